//! Options of the pipeline: its stages and ways.

use super::failure::Failed;
use crate::print::number::{self, counted};

/// Options of the pipeline.
#[derive(clap::Args)]
#[command(next_help_heading = "Pipeline")]
pub(super) struct PipelineOptions {
    /// With pipeline: number of stages. There are two: one core reads and steers, the others run the function [default: 2]
    #[arg(long, value_name = "NUMBER", value_parser = number::parse_positive)]
    stages: Option<u64>,
    /// With pipeline: number of ways, the cores of the second stage, each with flows of its own [default: all cores but the first]
    #[arg(long, value_name = "NUMBER", value_parser = number::parse_positive)]
    ways: Option<u64>,
}

/// The number of stages.
const STAGES: u64 = 2;

impl PipelineOptions {
    /// Checks the options for `cores` cores; `named` is true if the engine was given as pipeline.
    ///
    /// # Errors
    /// An option was given for another engine, or doesn't fit the number of cores.
    pub(super) fn check(&self, named: bool, cores: usize) -> Result<(), Failed> {
        let given = [("--stages", self.stages), ("--ways", self.ways)].into_iter().find(|(_, value)| value.is_some());
        let Some((option, _)) = given else { return Ok(()) };
        if !named {
            return Err(Failed::usage(format_args!(
                "{option} is for pipeline; give --engine pipeline or omit the option"
            )));
        }
        if let Some(stages) = self.stages.filter(|stages| *stages != STAGES) {
            return Err(Failed::usage(format_args!(
                "a pipeline has {STAGES} stages, not {stages}: one core reads and steers, the others run the function"
            )));
        }
        let ways = cores as u64 - 1;
        match self.ways {
            None if ways == 0 => Err(Failed::usage(format_args!(
                "{STAGES} stages need --cores 2 or more: one core reads and steers, the others run the function"
            ))),
            Some(wanted) if wanted != ways => {
                let needed = wanted.saturating_add(1);
                let need = counted(wanted, "way needs", "ways need");
                let cores = counted(cores as u64, "core", "cores");
                Err(Failed::usage(format_args!(
                    "{need} --cores {needed}, as one more core reads and steers; this run has {cores}"
                )))
            }
            None | Some(_) => Ok(()),
        }
    }
}
