//! `millrace rss solve` finds keys, or proves that there are none.

use ::rss::{
    Balance, Driver, Field, FieldRank, Member, Outcome, PacketSets, PacketType, Probe, Proof, Rank, Relaxation,
    Solution, Spread, commands, probe, relaxations, verify,
};
use functions::config::Prefix;
use serde_json::{Value, json};

use super::check::names;
use super::question::Question;
use super::shown;
use crate::cli::failure::{Failed, OUTCOME};
use crate::cli::traffic::{Source, Traffic};
use crate::print::number::{count, counted, percent};
use crate::print::output::{print, print_json};
use crate::print::style::Style;
use crate::print::table::{Align, Sheet, Tone};

/// Find a Toeplitz key for each port that keeps packet sets together and spreads them, or prove that there is none
///
/// "Packets of one set get one hash" is a system of linear equations over the bits of the keys. The command solves it. Of all solutions
/// it chooses one whose low hash bits, which index the indirection table, depend on the bits that differ between your hosts. It then
/// checks the keys on random packets. Exit code 1 if there is no key.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  millrace rss solve --sets \"lan: src, wan: dst\" --nic ice
  millrace rss solve --sets \"tap: five-tuple symmetric\" --nic ixgbe --queues 4 --in a.pcap
  millrace rss solve my-sets.toml --nic i40e --driver linux --seed 7 --json")]
pub(super) struct Args {
    #[command(flatten)]
    question: Question,
    /// Seed of the choice among keys; the same seed gives the same keys
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    seed: u64,
    /// Number of queues that the indirection table is spread over
    #[arg(long, default_value_t = 8, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=1024))]
    queues: u16,
    /// With a capture: count packets from these networks at the first port and all other packets at the other ports, instead of each
    /// packet at every port
    #[arg(long, value_name = "PREFIX", value_delimiter = ',')]
    inside: Vec<Prefix>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    source: Source,
}

/// Packets of each class for verifying a solution.
const VERIFIED_PACKETS: usize = 20_000;

/// Result for a driver without a key.
struct Refused {
    driver: Driver,
    proof: Proof,
    /// True if it is proved that there is no key, for the fields that were tried.
    proved: bool,
    /// True if the card could hash other fields than those tried.
    chooses: bool,
    instead: Vec<Relaxation>,
}

/// Spread of a capture's packets over the queues.
struct Measured {
    name: String,
    /// Packets of the capture.
    packets: u64,
    counted: Counted,
    ports: Vec<Balance>,
}

/// The ports at which a packet is counted.
#[derive(Clone, Copy)]
enum Counted {
    /// All ports, because a capture doesn't say where a packet came in.
    Everywhere,
    /// The first port if it comes from inside, otherwise the other ports.
    BySide,
}

impl Counted {
    fn of(args: &Args) -> Self {
        if args.inside.is_empty() { Self::Everywhere } else { Self::BySide }
    }

    fn words(self, solution: &Solution, packets: u64) -> String {
        let packets = counted(packets, "packet", "packets");
        let (first, rest) = solution.ports.split_first().map_or(("", &[][..]), |(first, rest)| (first, rest));
        match self {
            Self::Everywhere => format!(
                "each port is shown with all {packets}, as if all came in there; give --inside PREFIX for the \
                 networks at {first}"
            ),
            Self::BySide => {
                format!(
                    "of {packets}, those from inside are counted at {first}, the others at {}",
                    rest.join(" and at ")
                )
            }
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Everywhere => "each packet at every port",
            Self::BySide => "packets from inside at the first port, others at the rest",
        }
    }
}

pub(super) fn perform(args: &Args) -> Result<(), Failed> {
    let sets = args.question.sets()?;
    let source = match args.question.spare() {
        Some(capture) => &args.source.clone().reading(capture)?,
        None => &args.source,
    };
    if !args.inside.is_empty() && !source.is_given() {
        return Err(Failed::usage("--inside needs a capture; give one, or omit --inside"));
    }
    let mut refused = Vec::new();
    let mut solved = None;
    let problems = args.question.problems(&sets, args.seed)?;
    if let Some(table) = problems.iter().map(|problem| problem.table).find(|table| usize::from(args.queues) > *table) {
        return Err(Failed::usage(format_args!(
            "--queues {}: an indirection table of {table} entries has at most {table} queues",
            args.queues
        )));
    }
    for problem in problems {
        let (proof, proved) = match ::rss::solve(&problem) {
            Outcome::Solved(solution) => {
                solved = Some(solution);
                break;
            }
            Outcome::Impossible(proof) => (proof, true),
            Outcome::NotFound(proof) => (proof, false),
        };
        let (driver, chooses, instead) = (problem.driver, problem.leaves_choice(), relaxations(&problem));
        refused.push(Refused { driver, proof, proved, chooses, instead });
    }
    let Some(solution) = solved else {
        if args.json {
            print_json(&json(args, &sets, None, &refused, None))?;
        } else {
            print(&refusals(args, &sets, &refused, true))?;
        }
        return Err(Failed::Said(OUTCOME));
    };
    // A wrong key would be a bug of the solver; never print it.
    if let Err(mismatch) = verify(&solution, VERIFIED_PACKETS, args.seed) {
        return Err(Failed::Outcome(anyhow::anyhow!("bug in millrace: the keys are wrong: {mismatch}")));
    }
    let measured = match source.is_given() {
        true => Some(measure(args, &solution, &source.load(args.json)?)),
        false => None,
    };
    if args.json {
        print_json(&json(args, &sets, Some(&solution), &refused, measured.as_ref()))
    } else {
        let text = refusals(args, &sets, &refused, false) + &text(args, &solution, measured.as_ref());
        print(&text)
    }
}

/// Counts a capture's packets, port by port.
fn measure(args: &Args, solution: &Solution, traffic: &Traffic) -> Measured {
    let queues = usize::from(args.queues);
    let ports = (0..solution.ports.len()).map(|port| {
        let mut spread = Spread::new(solution, port, queues);
        for (packet, bytes) in traffic.trace.iter() {
            let Ok(headers) = packet::parse(packet.link, bytes, packet.wire_len, packet.interface) else { continue };
            let inside = headers.addresses().is_some_and(|(src, _)| args.inside.iter().any(|net| net.contains(src)));
            if args.inside.is_empty() || inside == (port == 0) {
                spread.count(&headers, bytes);
            }
        }
        spread.finish()
    });
    let packets = traffic.trace.len() as u64;
    Measured { name: traffic.name.clone(), packets, counted: Counted::of(args), ports: ports.collect() }
}

/// Why drivers have no key, and what would help.
fn refusals(args: &Args, sets: &PacketSets, refused: &[Refused], all: bool) -> String {
    let style = Style::stdout();
    let mut out = String::new();
    for Refused { driver, proof, proved, chooses, instead } in refused {
        let verdict = match (proved, chooses) {
            (true, false) => "there is no key that spreads",
            (true, true) => "there is no key that spreads, with the fields closest to the sets",
            (false, _) => "no key was found that spreads",
        };
        out += &format!("{} by {driver}: {}\n", shown::card(args.question.nic, style), style.bad(verdict));
        out += &format!("  {}\n", proof.consequence);
        for forced in &proof.forced {
            out += &format!("    {forced}\n");
        }
        // The other driver is tried anyway, so it isn't suggested.
        let shown: Vec<&Relaxation> = instead.iter().filter(|one| all && one.driver == *driver).collect();
        if !shown.is_empty() {
            out += "  what would help:\n";
            for relaxation in shown {
                let (says, arguments) = shown::relaxation(relaxation, sets.vary, *driver);
                out += &format!("    {says}: {}\n", style.bold(arguments));
            }
        }
        out.push('\n');
    }
    out
}

fn text(args: &Args, solution: &Solution, measured: Option<&Measured>) -> String {
    let style = Style::stdout();
    let (card, driver) = (solution.card, solution.driver);
    let verdict = style.good(if solution.ports.len() == 1 { "a key" } else { "keys" });
    let mut out = format!(
        "{} by {driver}: {verdict}, for a table of {}\n\n",
        shown::card(card, style),
        count(solution.table as u64)
    );
    out += &members(solution, style).lines(0);
    out.push('\n');
    for (port, key) in solution.ports.iter().zip(&solution.keys) {
        out += &format!("key of {}  {key}\n", style.bold(port));
    }
    out += &format!(
        "\nverified: {} random packets of each kind; packets of one set always have the same hash\n",
        count(VERIFIED_PACKETS as u64)
    );
    if let Some(measured) = measured {
        out += &balance(solution, measured, style);
    }
    out +=
        &format!("\ncommands that configure the card, with {}:\n", counted(u64::from(args.queues), "queue", "queues"));
    for command in commands(solution, usize::from(args.queues)) {
        out += &format!("  {}\n", if command.starts_with('#') { style.dim(command) } else { command });
    }
    out += &probes(solution, style);
    out + &shown::not_confirmed(card, style)
}

fn members(solution: &Solution, style: Style) -> Sheet {
    let mut sheet = Sheet::new(
        style,
        &[
            ("port", Align::Left),
            ("packets", Align::Left),
            ("set by", Align::Left),
            ("hashed", Align::Left),
            ("index bits that vary", Align::Left),
        ],
    );
    type Row<'s> = (usize, &'s [Field], String, String, Vec<PacketType>);
    let mut rows: Vec<Row<'_>> = Vec::new();
    for member in &solution.members {
        let hashed = hashed(member);
        let rank = solution
            .ranks
            .iter()
            .find(|rank| rank.class == member.class)
            .map(|rank| varying(rank, member))
            .unwrap_or_default();
        let same = rows.iter_mut().find(|(port, named, other, ranks, _)| {
            *port == member.port && *named == member.named && *other == hashed && *ranks == rank
        });
        match same {
            Some((.., kinds)) => kinds.push(member.kind),
            None => rows.push((member.port, &member.named, hashed, rank, vec![member.kind])),
        }
    }
    for (port, named, hashed, rank, kinds) in rows {
        let named: Vec<&str> = named.iter().map(|field| field.name()).collect();
        sheet.toned([
            (solution.ports[port].clone(), Tone::Bold),
            (shown::types(&kinds), Tone::Plain),
            (named.join(" "), Tone::Plain),
            (hashed, Tone::Plain),
            (rank, Tone::Plain),
        ]);
    }
    sheet
}

/// The hashed fields, and those that the key cancels.
fn hashed(member: &Member) -> String {
    let mut out = member.selection.to_string();
    if !member.extra().is_empty() {
        out += &format!(" ({} cancelled)", member.extra());
    }
    if !member.missing().is_empty() {
        out += " (coarser)";
    }
    out
}

/// `9 of 9 (src 9, neighbours 8)`.
fn varying(rank: &Rank, member: &Member) -> String {
    let field = |one: &FieldRank| format!("{} {}, neighbours {}", member.named[one.place], one.rank, one.neighbours);
    let fields: Vec<String> = rank.fields.iter().map(field).collect();
    format!("{} of {} ({})", rank.rank, rank.of, fields.join("; "))
}

fn balance(solution: &Solution, measured: &Measured, style: Style) -> String {
    let mut out = format!("\n{}:\n", measured.name);
    let mut sheet = Sheet::new(
        style,
        &[
            ("port", Align::Left),
            ("packets", Align::Right),
            ("sets", Align::Right),
            ("busiest queue", Align::Right),
            ("even", Align::Right),
            ("ratio", Align::Right),
            ("largest set", Align::Right),
            ("packets of each queue", Align::Left),
        ],
    );
    for (port, balance) in solution.ports.iter().zip(&measured.ports) {
        let packets = balance.packets();
        let most = balance.queues.iter().max().copied().unwrap_or(0);
        let queues: Vec<String> = balance.queues.iter().map(|packets| count(*packets)).collect();
        sheet.toned([
            (port.clone(), Tone::Bold),
            (count(packets), Tone::Plain),
            (count(balance.sets), Tone::Plain),
            (percent(most, packets), Tone::Plain),
            (percent(1, balance.queues.len() as u64), Tone::Dim),
            (format!("{:.2}", balance.busiest_against_even()), Tone::Plain),
            (percent(balance.largest_set, packets), Tone::Dim),
            (queues.join(" "), Tone::Dim),
        ]);
    }
    out += &sheet.lines(2);
    let dim = |text: String| format!("  {}\n", style.dim(text));
    if solution.ports.len() > 1 {
        out += &dim(measured.counted.words(solution, measured.packets));
    }
    for (port, balance) in solution.ports.iter().zip(&measured.ports).filter(|(_, balance)| balance.left_out > 0) {
        out += &dim(format!("at {port}, packets of ignored types: {}", count(balance.left_out)));
    }
    out
}

/// Test packets for cards with an undocumented order of fields.
fn probes(solution: &Solution, style: Style) -> String {
    let doubtful = |member: &&Member| !solution.card.order_is_documented(member.selection);
    let doubtful: Vec<&Member> = solution.members.iter().filter(doubtful).collect();
    if doubtful.is_empty() {
        return String::new();
    }
    let (sport, dport) = Probe::PORTS;
    let mut out =
        format!("\nto check the order of fields, hash and table entry of a packet (ports {sport} > {dport}):\n");
    let mut sheet = Sheet::new(
        style,
        &[
            ("port", Align::Left),
            ("packets", Align::Left),
            ("packet", Align::Left),
            ("hash", Align::Left),
            ("entry", Align::Right),
        ],
    );
    for probe in probe(solution) {
        if doubtful.iter().any(|member| member.port == probe.port && member.kind == probe.kind) {
            sheet.row([
                solution.ports[probe.port].clone(),
                probe.kind.name().to_owned(),
                Probe::packet(probe.kind.family()).to_owned(),
                format!("{:08x}", probe.hash),
                probe.entry.to_string(),
            ]);
        }
    }
    out += &sheet.lines(2);
    out
}

fn json(
    args: &Args,
    sets: &PacketSets,
    solution: Option<&Solution>,
    refused: &[Refused],
    measured: Option<&Measured>,
) -> Value {
    let refusal = |one: &Refused| {
        let instead = one.instead.iter().map(|relaxation| {
            let (says, arguments) = shown::relaxation(relaxation, sets.vary, one.driver);
            json!({ "says": says, "arguments": arguments })
        });
        json!({
            "driver": one.driver.name(), "proved": one.proved, "other_fields_untried": one.chooses, "proof": shown::proof_json(&one.proof),
            "instead": instead.collect::<Vec<_>>(),
        })
    };
    json!({
        "card": args.question.nic.name, "solved": solution.is_some(), "driver": solution.map(|solution| solution.driver.name()),
        "seed": args.seed.to_string(), "queues": args.queues,
        "solution": solution.map(|solution| solution_json(args, solution, measured)),
        "refused": refused.iter().map(refusal).collect::<Vec<_>>(), "facts": shown::facts_json(args.question.nic),
    })
}

fn solution_json(args: &Args, solution: &Solution, measured: Option<&Measured>) -> Value {
    let members = solution.members.iter().map(|member| {
        let rank = solution.ranks.iter().find(|rank| rank.class == member.class);
        let of_field = |one: &FieldRank| {
            json!({ "field": member.named[one.place].name(), "varying": one.rank, "neighbours": one.neighbours })
        };
        json!({
            "port": solution.ports[member.port], "packets": member.kind.name(),
            "set_by": member.named.iter().map(|field| field.name()).collect::<Vec<_>>(), "symmetric": member.symmetric,
            "hashed": names(member.selection), "not_counting": names(member.extra()), "left_out": names(member.missing()),
            "order_documented": solution.card.order_is_documented(member.selection),
            "index_bits_varying": rank.map(|rank| rank.rank), "index_bits": rank.map(|rank| rank.of),
            "by_field": rank.map(|rank| rank.fields.iter().map(of_field).collect::<Vec<_>>()),
        })
    });
    let keys =
        solution.ports.iter().zip(&solution.keys).map(|(port, key)| json!({ "port": port, "key": key.to_string() }));
    let probes = probe(solution).into_iter().map(|probe| {
        json!({
            "port": solution.ports[probe.port], "packets": probe.kind.name(), "packet": Probe::packet(probe.kind.family()),
            "ports": [Probe::PORTS.0, Probe::PORTS.1], "hash": format!("{:08x}", probe.hash), "entry": probe.entry,
        })
    });
    let balance = measured.map(|measured| {
        let ports = solution.ports.iter().zip(&measured.ports).map(|(port, balance)| {
            json!({
                "port": port, "packets": balance.packets(), "queues": balance.queues, "sets": balance.sets,
                "largest_set_packets": balance.largest_set, "busiest_against_even": balance.busiest_against_even(),
                "left_out": balance.left_out,
            })
        });
        json!({
            "input": measured.name, "packets": measured.packets, "counted": measured.counted.name(),
            "ports": ports.collect::<Vec<_>>(),
        })
    });
    json!({
        "table": solution.table, "keys": keys.collect::<Vec<_>>(), "free_key_bits": solution.space.dimension(),
        "members": members.collect::<Vec<_>>(), "verified_packets": VERIFIED_PACKETS, "balance": balance,
        "commands": commands(solution, usize::from(args.queues)), "probes": probes.collect::<Vec<_>>(),
    })
}
