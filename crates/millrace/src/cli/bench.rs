//! `millrace bench` measures throughput under each engine, with a cost model.

mod apart;
pub(super) mod fifo;
pub(super) mod json;
mod loss;
pub(super) mod options;
mod report;
mod suite;
mod sweep;
mod text;

use std::path::Path;
use std::sync::Arc;

use clap::builder::ArgPredicate;
use engine::EngineKind;
use lab::{Bench, BenchError, BenchPlan, LossFreePlan, Remote};
use nf::Description;
use port::{HugePages, Trace};
use serde_json::Value;

use super::defragment::DefragmentOption;
use super::engines::{self, Choice, Cores};
use super::failure::Failed;
use super::folder::{Folder, refuse_no_folder};
use super::table_options::{GuardOption, TableOptions};
use super::traffic::{Counter, Source};
use super::{Configuration, refuse_too_much, signals};
use crate::print::number::{self, counted};
use crate::print::output::{json_text, print, print_json, remark};
use crate::print::progress::{Progress, Sample};
use crate::print::style::Style;
use catalogue::{Catalogue, Program};

/// Measure a function's throughput under each engine
///
/// The traffic is replayed from memory again and again. In each round all engines take turns. Numbers of cores that the machine doesn't
/// have are never timed; their rows are computed and labelled modelled. Under most engines every core has its packets in memory, as a card
/// with a queue for each core brings them. Under pipeline the first core takes all packets from memory, finds each packet's way and puts the
/// packets in order again: that is in its figures.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true, disable_help_subcommand = true)]
#[command(after_help = "Examples:
  millrace bench ddos --in a.pcap --cores 1-2
  millrace bench policer --synth uniform --flows 1M --packets 2M --engines rss,scr
  millrace bench conntrack --in a.pcap --mlffr --model-to 16 --report out/
  millrace bench firewall --in a.pcap --latency --load 10%,90%
  millrace bench ddos --in a.pcap --dispatch 104ns --mlffr --loss-threshold 0
  millrace bench port-knock --synth uniform --cores 2 --link-loss 0.01%,1%
  millrace bench identify --in a.pcap --engines sequential,rss,pipeline --cores 1-2
  millrace bench --chain firewall,nat,policer --apart --synth uniform --flows 1M --packets 4M
  millrace bench sweep --cores 1-2 --model-to 16
  millrace bench suite --undisturbed
  millrace bench fifo")]
pub(super) struct Args {
    #[command(subcommand)]
    other: Option<Other>,
    /// Name of the function (`millrace functions` lists them), or `suite`, or `sweep`
    ///
    /// `suite` compares functions with targets. A target is a multiple of the time of a bare loop. It also compares shared and
    /// transactional on two cores with sequential on one. `sweep` measures a stateless program that takes more and more time for a
    /// packet.
    #[arg(
        value_name = "FUNCTION",
        required_unless_present = "chain",
        default_value_if("chain", ArgPredicate::IsPresent, "chain")
    )]
    function: Option<String>,
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    configuration: Configuration,
    /// Engines, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "all", value_name = "LIST", value_parser = engines::choice())]
    engines: Vec<Choice>,
    /// Numbers of cores to run each engine on: 2, 1-2, 1,4, or all
    #[arg(long, default_value = "all", value_name = "LIST", value_parser = engines::core_list)]
    cores: Cores,
    /// Number of times that each case runs; figures are medians over these rounds
    #[arg(long, default_value_t = 5, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Count only rounds in which no other program used the cores, as a short calculation between bursts detects. For shared hosts. Up to
    /// 20 times as many rounds run then. Trials of --mlffr always count
    #[arg(long)]
    undisturbed: bool,
    /// Packets of one case in a round; at least one pass over the traffic
    #[arg(long, default_value = "1M", value_name = "NUMBER", value_parser = number::parse_positive)]
    round_packets: u64,
    /// With --chain: measure the chain beside the same functions one behind another, under sequential on one core
    #[arg(long, requires = "chain", conflicts_with_all = ["engines", "cores"])]
    apart: bool,
    #[command(flatten)]
    options: options::Options,
    /// With `sweep`: processing times of a packet, separated by commas: 10ns,100ns,1us
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = options::nanoseconds)]
    compute: Vec<f64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    defragment: DefragmentOption,
    #[command(flatten)]
    table_options: TableOptions,
    #[command(flatten)]
    guard_option: GuardOption,
}

/// What else can be measured, with options of its own.
#[derive(clap::Subcommand)]
enum Other {
    Fifo(fifo::Args),
}

pub(super) fn perform(args: &Args, catalogue: &Catalogue) -> Result<(), Failed> {
    if let Some(Other::Fifo(args)) = &args.other {
        return fifo::perform(args);
    }
    let function = args.function.as_deref().unwrap_or_default();
    if function != "sweep" && !args.compute.is_empty() {
        return Err(Failed::usage("--compute is for `millrace bench sweep`; omit it"));
    }
    signals::exit_on_interrupt("nothing was timed");
    match function {
        // Its options are those of a subcommand.
        "fifo" => return Err(Failed::usage("options of `bench fifo` stand behind it: millrace bench fifo --rounds 3")),
        "suite" => {
            args.source.refuse("suite generates its own traffic")?;
            args.options.refuse("suite")?;
            args.defragment.refuse("suite")?;
            return suite::perform(args, catalogue);
        }
        "sweep" => {
            args.defragment.refuse("sweep")?;
            return sweep::perform(args);
        }
        _ => {}
    }
    let entry = args.configuration.entry(catalogue, function)?;
    let program = entry.load(&args.configuration.settings()?)?;
    if args.apart {
        args.options.refuse("--apart")?;
        return apart::perform(args, program);
    }
    if let Some(folder) = &args.options.report {
        refuse_no_folder(folder)?;
    }
    if !args.options.link_loss.is_empty() {
        args.defragment.refuse("--link-loss")?;
        return loss::perform(args, &*program, entry.description());
    }
    let traffic = args.source.load(args.json)?;
    let traffic = args.defragment.renumbered(program.wants_whole_datagrams(), traffic, args.json);
    let tables = args.table_options.guarded_tables(&args.guard_option, &*program)?;
    let plan = args.plan(engine::Options { tables, ..engine::Options::default() });
    refuse_too_much(&*program, &setups(&plan))?;
    let bench = timed(&*program, &traffic.trace, &plan, entry.description().name, args.json)?;
    if let ([], Some((.., reason))) = (bench.rows.as_slice(), bench.refused.first()) {
        return Err(Failed::usage(format_args!("nothing can be measured: {reason}")));
    }
    let benched = Benched {
        description: entry.description(),
        name: &traffic.name,
        trace: &traffic.trace,
        bench: &bench,
        loss_free: plan.loss_free.as_ref(),
    };
    if args.json {
        print_json(&json::benched(&benched))?;
    } else {
        print(&text::text(&benched, Style::stdout()))?;
    }
    match &args.options.report {
        Some(folder) => keep(folder, &json::benched(&benched), &report::benched(&benched, args.rounds), args.json),
        None => Ok(()),
    }
}

impl Args {
    fn plan(&self, options: engine::Options) -> BenchPlan {
        BenchPlan {
            engines: engines::chosen(&self.engines),
            cores: self.cores.to_vec(),
            rounds: usize::from(self.rounds),
            packets: self.round_packets,
            options,
            undisturbed: self.undisturbed,
            with_bare: false,
            dispatch: self.options.dispatch(),
            loss_free: self.options.loss_free(),
            delay: self.options.delay(),
            model_to: self.options.model_to(),
            far_line_ns: self.options.far_line(),
        }
    }
}

/// Formats the extra time for records from other cores' caches.
pub(super) fn from_elsewhere(r: Remote) -> String {
    let beyond = match r.beyond_ns == r.here_ns {
        true => String::new(),
        false => format!(" (on more than {}, as given: {:.1})", counted(r.here as u64, "core", "cores"), r.beyond_ns),
    };
    format!("r = {:.1}{beyond} more if another core used it last", r.here_ns)
}

/// Engines and numbers of cores in memory at once, because they take turns.
fn setups(plan: &BenchPlan) -> Vec<(EngineKind, usize)> {
    let of = |engine: &EngineKind| plan.cores.iter().map(|cores| (*engine, *cores)).collect::<Vec<_>>();
    let mut setups: Vec<_> = plan.engines.iter().flat_map(of).collect();
    // Modelled cores run later, one case at a time.
    let modelled: usize = setups.iter().map(|(engine, cores)| engine.tables(*cores)).sum();
    if plan.model_to > modelled {
        setups = vec![(EngineKind::Scr, plan.model_to)];
    }
    setups
}

/// Measures and shows a progress bar.
fn timed(
    program: &dyn Program,
    trace: &Arc<Trace>,
    plan: &BenchPlan,
    what: &str,
    quiet: bool,
) -> Result<Bench, Failed> {
    let cores: Vec<String> = plan.cores.iter().map(ToString::to_string).collect();
    let doing = format!(
        "timing {what} under {} on {} {}, in {}",
        counted(plan.engines.len() as u64, "engine", "engines"),
        cores.join(", "),
        if plan.cores == [1] { "core" } else { "cores" },
        counted(plan.rounds as u64, "round", "rounds")
    );
    watched(plan.packets.max(trace.len() as u64), &doing, quiet, |progress| program.bench(trace, plan, progress))
}

/// Shows a progress bar for `work`, with the packets of a run.
fn watched<T>(
    packets: u64,
    doing: &str,
    quiet: bool,
    work: impl FnOnce(&mut dyn FnMut(u64, u64)) -> Result<T, BenchError>,
) -> Result<T, Failed> {
    let (done, of) = (Counter::default(), Counter::default());
    let (shown, total) = (done.clone(), of.clone());
    let sample = move || Sample { done: shown.get(), total: Some(total.get().max(1)), packets: shown.get() * packets };
    let _progress = Progress::begin(quiet, "bench", doing, sample);
    Ok(work(&mut |runs, all| {
        signals::so_far(timed_so_far(runs, all));
        done.set(runs);
        of.set(all);
    })?)
}

/// The message of an interrupt.
pub(super) fn timed_so_far(runs: u64, of: u64) -> String {
    format!("{} of {} runs were timed; figures need all of them", number::count(runs), number::count(of))
}

/// Input of the output formats: the bench and its description.
struct Benched<'a> {
    description: &'a Description,
    /// Name of the traffic.
    name: &'a str,
    trace: &'a Trace,
    bench: &'a Bench,
    loss_free: Option<&'a LossFreePlan>,
}

/// Share of the traffic on huge pages.
fn huge_share(bench: &Bench) -> f64 {
    let HugePages { bytes, huge_bytes } = bench.huge_pages;
    huge_bytes as f64 / bytes.max(1) as f64
}

/// Writes the report, a page and its figures, into the folder of --report.
fn keep(folder: &Path, figures: &Value, page: &str, quiet: bool) -> Result<(), Failed> {
    let folder = Folder::make(folder)?;
    folder.write("bench.json", &json_text(figures))?;
    let page = folder.write("index.html", page)?;
    if !quiet {
        remark(&format!("the report is in {}\n", page.display()));
    }
    Ok(())
}
