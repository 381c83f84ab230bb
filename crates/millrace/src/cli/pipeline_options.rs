//! Options of the pipeline: its stages, ways and cut.

use clap::ValueEnum;
use engine::Cuts;

use super::failure::Failed;
use crate::print::number::{self, counted};

/// Options of the pipeline.
#[derive(clap::Args)]
#[command(next_help_heading = "Pipeline")]
pub(super) struct PipelineOptions {
    /// With pipeline: number of stages, 2 or 3. With 2, one core reads and steers, and the others run the function. With 3, one core reads,
    /// the next gathers fragments and steers [default: 2]
    #[arg(long, value_name = "NUMBER", value_parser = number::parse_positive)]
    stages: Option<u64>,
    /// With pipeline: number of ways, the cores of the last stage, each with flows of its own [default: all cores that are left]
    #[arg(long, value_name = "NUMBER", value_parser = number::parse_positive)]
    ways: Option<u64>,
    /// With pipeline of 2 stages: what the second stage begins with. `millrace advise` says which cut is best [default: parse]
    #[arg(long, value_enum, value_name = "STEP")]
    cut: Option<Cut>,
}

/// What the second of two stages begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Cut {
    /// Gathering fragments: the first core only reads. One way
    Defragment,
    /// Parsing: the first core also gathers fragments and steers
    Parse,
}

impl PipelineOptions {
    /// Checks the options for `cores` cores; `named` is true if the engine was given as pipeline.
    ///
    /// # Errors
    /// An option was given for another engine, or doesn't fit the number of cores.
    pub(super) fn cuts(&self, named: bool, cores: usize) -> Result<Cuts, Failed> {
        let given =
            [("--stages", self.stages.is_some()), ("--ways", self.ways.is_some()), ("--cut", self.cut.is_some())];
        let Some((option, _)) = given.into_iter().find(|(_, is_given)| *is_given) else { return Ok(Cuts::Parse) };
        if !named {
            return Err(Failed::usage(format_args!(
                "{option} is for pipeline; give --engine pipeline or omit the option"
            )));
        }
        let cuts = match (self.stages.unwrap_or(2), self.cut) {
            (2, None | Some(Cut::Parse)) => Cuts::Parse,
            (2, Some(Cut::Defragment)) => Cuts::Defragment,
            (3, None) => Cuts::Both,
            (3, Some(_)) => {
                return Err(Failed::usage("three stages have both cuts; --cut is for two, so omit one of the options"));
            }
            (stages, _) => return Err(Failed::usage(format_args!("a pipeline has 2 or 3 stages, not {stages}"))),
        };
        if cores < cuts.stages() {
            return Err(Failed::usage(format_args!(
                "{} stages need --cores {0} or more, a core for each",
                cuts.stages()
            )));
        }
        let ways = (cores - cuts.ahead()) as u64;
        if let Some(wanted) = self.ways.filter(|wanted| *wanted != ways) {
            let ahead = cuts.ahead() as u64;
            let needed = wanted.saturating_add(ahead);
            let need = counted(wanted, "way needs", "ways need");
            let more = if ahead == 1 { "one more core reads and steers" } else { "two more cores read and steer" };
            return Err(Failed::usage(format_args!(
                "{need} --cores {needed}, as {more}; this run has {}",
                counted(cores as u64, "core", "cores")
            )));
        }
        cuts.accepts(cores).map_err(Failed::usage)?;
        Ok(cuts)
    }
}
