//! `shared` and `transactional` on two cores compared with `sequential` on one.

use engine::EngineKind;
use lab::targets::TARGETS;
use lab::{Bench, Rounds, Spread};
use serde_json::{Value, json};
use synth::{FlowTransport, FrameLen, Params, Profile};

use super::TRACE_PACKETS;
use crate::cli::bench::{Args, json as figures, setups, text, timed};
use crate::cli::failure::Failed;
use crate::cli::refuse_too_much;
use crate::cli::traffic::synthesised;
use crate::print::number::count;
use crate::print::style::Style;
use crate::print::table::{Align, Sheet, Tone};
use catalogue::config::{ConfigError, Settings};
use catalogue::{Catalogue, CatalogueEntry};

/// The engines whose cores share one state.
const SHARING: [EngineKind; 2] = [EngineKind::Shared, EngineKind::Transactional];
const CORES: usize = 2;
const FLOWS: u64 = 10_000;

/// Results of all functions that `shared` or `transactional` supports.
pub(super) struct Sharing {
    rows: Vec<Row>,
    /// Functions that could not be measured, each with the reason.
    left_out: Vec<String>,
    rounds: Rounds,
}

/// One function: `sequential` on one core, and each of [`SHARING`] on [`CORES`].
struct Row {
    function: &'static str,
    /// Rate of `sequential` in millions of packets a second.
    sequential: Spread,
    /// Rates of [`SHARING`]; `None` if the engine doesn't support the function.
    sharing: [Option<Spread>; SHARING.len()],
}

impl Sharing {
    pub(super) fn measure(args: &Args, catalogue: &Catalogue) -> Result<Self, Failed> {
        let mut all = Self { rows: Vec::new(), left_out: Vec::new(), rounds: Rounds::default() };
        for entry in catalogue.entries() {
            let function = entry.description().name;
            match bench(args, entry) {
                Ok(Some(bench)) => {
                    all.rounds = all.rounds.and(text::of_all(&bench));
                    all.rows.extend(Row::of(function, &bench));
                }
                Ok(None) => {}
                Err(Failed::Usage(reason)) => all.left_out.push(format!("{function} is not measured: {reason:#}")),
                Err(other) => return Err(other),
            }
        }
        Ok(all)
    }

    pub(super) fn json(&self) -> Value {
        self.rows.iter().map(Row::json).collect()
    }

    pub(super) fn text(&self, style: Style) -> String {
        let columns = [
            ("function", Align::Left),
            ("sequential, 1 core", Align::Right),
            ("shared, 2 cores", Align::Right),
            ("times", Align::Right),
            ("transactional, 2 cores", Align::Right),
            ("times", Align::Right),
        ];
        let mut sheet = Sheet::new(style, &columns);
        for row in &self.rows {
            let mut cells =
                vec![(row.function.to_owned(), Tone::Bold), (format!("{:.1}", row.sequential.median), Tone::Plain)];
            for at in 0..SHARING.len() {
                let mpps = row.sharing[at].map(|mpps| format!("{:.1}", mpps.median));
                let tone = if row.is_slower(at) { Tone::Bad } else { Tone::Good };
                cells.push((mpps.unwrap_or_else(|| "-".to_owned()), Tone::Plain));
                cells.push((row.times(at).map_or_else(String::new, |times| format!("{times:.2}")), tone));
            }
            sheet.toned(cells);
        }
        let mut out = format!(
            "\ntwo cores that share state, compared with sequential on one core, {} flows, measured: Mpps, and ratio \
             to sequential\n\n",
            count(FLOWS)
        );
        out += &sheet.lines(0);
        out += "\nIf packet sets share no state, transactional gives each core its own flows. load-balancer has three \
             services and ipsec 64 tunnels; all other functions have their default settings.\n";
        for slower in SHARING.iter().enumerate().filter_map(|(at, engine)| self.slower(at, *engine)) {
            out += &format!("{}\n", style.warn(slower));
        }
        for reason in &self.left_out {
            out += &format!("{}\n", style.warn(reason));
        }
        if let Some(note) = text::disturbance(self.rounds) {
            out += &format!("{}\n", style.dim(note));
        }
        out
    }

    /// A sentence with the functions for which the engine on two cores is slower than `sequential` on one; `None` if there are none.
    fn slower(&self, at: usize, engine: EngineKind) -> Option<String> {
        let named = |row: &Row| {
            let (times, fastest) = (row.times(at)?, row.times_fastest(at)?);
            // Other programs on the machine slow down two cores more than one.
            let but = if fastest < 1.0 { String::new() } else { format!(", but {fastest:.2} in the fastest rounds") };
            Some(format!("{} ({times:.2} times{but})", row.function))
        };
        let functions: Vec<String> = self.rows.iter().filter(|row| row.is_slower(at)).filter_map(named).collect();
        (!functions.is_empty()).then(|| {
            let functions = functions.join(", ");
            format!("{engine} on two cores is slower than sequential on one for {functions}.")
        })
    }
}

impl Row {
    fn of(function: &'static str, bench: &Bench) -> Option<Self> {
        let mpps = |engine, cores| {
            let row = bench.rows.iter().find(|row| row.engine == engine && row.cores == cores);
            row.map(|row| row.mpps)
        };
        let sharing = SHARING.map(|engine| mpps(engine, CORES));
        let sequential = mpps(EngineKind::Sequential, 1)?;
        sharing.iter().any(Option::is_some).then_some(Self { function, sequential, sharing })
    }

    /// Rate relative to `sequential`, rounded to the two digits shown.
    fn times(&self, at: usize) -> Option<f64> {
        self.sharing[at].map(|mpps| two_digits(mpps.median / self.sequential.median))
    }

    /// The same for the fastest rounds of both.
    fn times_fastest(&self, at: usize) -> Option<f64> {
        self.sharing[at].map(|mpps| two_digits(mpps.max / self.sequential.max))
    }

    fn is_slower(&self, at: usize) -> bool {
        self.times(at).is_some_and(|times| times < 1.0)
    }

    fn json(&self) -> Value {
        let engines = SHARING.iter().enumerate().filter_map(|(at, engine)| {
            Some(json!({
                "engine": engine.name(), "cores": CORES, "mpps": figures::spread(self.sharing[at].as_ref()?),
                "times_sequential": self.times(at)?, "times_sequential_fastest": self.times_fastest(at)?, "is_slower": self.is_slower(at),
            }))
        });
        json!({
            "function": self.function, "flows": FLOWS, "sequential_mpps": figures::spread(&self.sequential),
            "sharing": engines.collect::<Vec<_>>(),
        })
    }
}

fn two_digits(times: f64) -> f64 {
    (times * 100.0).round() / 100.0
}

/// Measures one function; `None` if it doesn't support the table options.
fn bench(args: &Args, entry: &CatalogueEntry) -> Result<Option<Bench>, Failed> {
    let function = entry.description().name;
    let program = entry.load(&settings(function)?)?;
    let Ok(tables) = args.table_options.tables(&*program) else { return Ok(None) };
    let engines = [&[EngineKind::Sequential], SHARING.as_slice()].concat();
    let mut plan = super::plan(args, tables, engines, vec![1, CORES]);
    if args.undisturbed {
        // Two cores are rarely undisturbed for long.
        plan.packets = plan.packets.min(2 * TRACE_PACKETS);
    }
    refuse_too_much(&*program, &setups(&plan))?;
    timed(&*program, &synthesised(Profile::Uniform, &traffic(function))?, &plan, function, args.json).map(Some)
}

/// The traffic of the table of targets; whole TCP connections for functions that are not in it.
fn traffic(function: &str) -> Params {
    let target = TARGETS.iter().find(|target| target.function == function && target.flows == FLOWS);
    Params {
        packets: TRACE_PACKETS,
        flows: Some(FLOWS),
        frame_len: Some(FrameLen::Fixed(64)),
        transport: Some(target.map_or(FlowTransport::Tcp, |target| target.transport)),
        // Few clients have one server, which is the balanced service.
        hosts: (function == "load-balancer").then_some(16),
        ..Params::default()
    }
}

/// Configuration for functions that do nothing without one.
fn settings(function: &str) -> Result<Settings, ConfigError> {
    let mut settings = Settings::default();
    match function {
        "load-balancer" => {
            let services = ["443", "80", "22"].map(|port| {
                format!("{{address='198.18.0.0:{port}',protocol='tcp',backends=['10.9.0.1:{port}','10.9.0.2:{port}']}}")
            });
            settings.set(&format!("services=[{}]", services.join(",")))?;
        }
        "ipsec" => {
            let tunnel = |number: u32| {
                let (inside, peer, spi) = (4 * number, number + 1, 0x1000 + 2 * number);
                format!(
                    "{{local='192.0.2.1',peer='198.51.100.{peer}',inside=['10.{inside}.0.0/14'],beyond=['198.18.0.0/15'],\
                     spi_out={spi},key_out='{number:040x}',spi_in={},key_in='{:040x}'}}",
                    spi + 1,
                    number + 64
                )
            };
            settings.set("other=forward")?;
            settings.set(&format!("tunnels=[{}]", (0..64).map(tunnel).collect::<Vec<_>>().join(",")))?;
        }
        _ => {}
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(function: &'static str, sequential: f64, shared: Option<f64>, transactional: Option<f64>) -> Row {
        let spread = |mpps: f64| Spread { min: mpps, median: mpps, max: mpps };
        Row { function, sequential: spread(sequential), sharing: [shared, transactional].map(|mpps| mpps.map(spread)) }
    }

    fn sharing(rows: Vec<Row>) -> Sharing {
        Sharing { rows, left_out: Vec::new(), rounds: Rounds::default() }
    }

    #[test]
    fn where_sharing_loses_is_said_by_function_and_factor() {
        let all = sharing(vec![
            row("ddos", 80.0, Some(40.0), Some(150.0)),
            row("nat", 20.0, Some(30.0), Some(30.0)),
            row("policer", 70.0, Some(52.5), Some(140.0)),
        ]);
        let expected =
            "shared on two cores is slower than sequential on one for ddos (0.50 times), policer (0.75 times).";
        assert_eq!(all.slower(0, EngineKind::Shared).as_deref(), Some(expected));
        assert_eq!(all.slower(1, EngineKind::Transactional), None);
        let text = all.text(Style { colour: false });
        assert!(text.contains(expected) && !text.contains("transactional on two cores is"), "{text}");
        let nat = text.lines().find(|line| line.starts_with("nat")).unwrap();
        assert_eq!(nat.split_whitespace().collect::<Vec<_>>(), ["nat", "20.0", "30.0", "1.50", "30.0", "1.50"]);
    }

    #[test]
    fn what_is_shown_as_one_time_is_no_loss() {
        let even = row("ddos", 100.0, Some(99.6), Some(99.4));
        assert_eq!((even.times(0), even.is_slower(0)), (Some(1.0), false));
        assert_eq!((even.times(1), even.is_slower(1)), (Some(0.99), true));
    }

    #[test]
    fn a_loss_that_the_fastest_rounds_do_not_have_says_so() {
        let mut nat = row("nat", 20.0, Some(15.0), None);
        nat.sharing[0] = Some(Spread { min: 10.0, median: 15.0, max: 30.0 });
        let expected = "shared on two cores is slower than sequential on one for nat (0.75 times, but 1.50 in the \
             fastest rounds).";
        assert_eq!(sharing(vec![nat]).slower(0, EngineKind::Shared).as_deref(), Some(expected));
    }

    #[test]
    fn an_engine_that_does_not_take_a_function_has_no_factor() {
        let all = sharing(vec![row("ddos", 80.0, None, Some(160.0))]);
        assert_eq!(all.slower(0, EngineKind::Shared), None);
        let text = all.text(Style { colour: false });
        let ddos = text.lines().find(|line| line.starts_with("ddos")).unwrap();
        assert_eq!(ddos.split_whitespace().collect::<Vec<_>>(), ["ddos", "80.0", "-", "160.0", "2.00"]);
        let json = all.json();
        assert_eq!(json[0]["sharing"].as_array().map(Vec::len), Some(1));
        assert_eq!(json[0]["sharing"][0]["times_sequential"], 2.0);
        assert_eq!(json[0]["sharing"][0]["is_slower"], false);
    }

    #[test]
    fn every_function_can_be_built_and_has_traffic() {
        for entry in Catalogue::standard().entries() {
            let function = entry.description().name;
            assert!(settings(function).is_ok_and(|settings| entry.load(&settings).is_ok()), "{function}");
            assert_eq!(traffic(function).flows, Some(FLOWS), "{function}");
        }
        assert_eq!(traffic("nat").transport, Some(FlowTransport::Udp), "as in the table of targets");
        assert_eq!(traffic("firewall").transport, Some(FlowTransport::Tcp));
    }
}
