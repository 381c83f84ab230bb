//! `millrace rss check`: can a card shard packet sets?

use ::rss::{Check, Driver, Fields, Fit, Obstacle, Outcome, PacketSets, PacketType, Problem, Proof};
use serde_json::{Value, json};

use super::question::Question;
use super::shown;
use crate::cli::failure::{Failed, OUTCOME};
use crate::print::output::{print, print_json};
use crate::print::style::Style;
use crate::print::table::{Align, Sheet, Tone};

/// Check whether a card can shard packet sets, and which fields prevent it
///
/// A card that hashes fewer fields than name a set is correct: sets that differ only in the other fields share a queue. A card that
/// hashes more fields sends packets of one set to several queues, unless a key cancels the extra fields. The command works out whether
/// such a key exists. Exit code 1 if the card can't shard the sets.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  millrace rss check my-sets.toml --nic mlx5
  millrace rss check --sets \"lan: src, wan: dst\" --nic ixgbe --json")]
pub(super) struct Args {
    #[command(flatten)]
    question: Question,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The answer for one driver.
struct Answer {
    driver: Driver,
    rows: Vec<Check>,
    proof: Option<Proof>,
    /// The obstacles, if the answer is no.
    obstacles: Vec<Obstacle>,
}

impl Answer {
    fn of(problem: &Problem<'_>) -> Self {
        let rows = ::rss::check(problem.card, problem.driver, problem.sets, problem.one_card);
        let proof = match ::rss::solve(problem) {
            Outcome::Solved(_) => None,
            Outcome::Impossible(proof) | Outcome::NotFound(proof) => Some(proof),
        };
        let obstacles = if proof.is_some() { ::rss::obstacles(problem) } else { Vec::new() };
        Self { driver: problem.driver, rows, proof, obstacles }
    }

    const fn is_yes(&self) -> bool {
        self.proof.is_none()
    }

    /// How sets are kept together: by fields or by a key.
    fn by(&self) -> Option<&'static str> {
        let together = self.rows.iter().all(|row| row.fit.keeps_together());
        self.is_yes().then_some(if together { "fields" } else { "key" })
    }
}

pub(super) fn perform(args: &Args) -> Result<(), Failed> {
    let sets = args.question.sets()?;
    if let Some(file) = args.question.spare() {
        let file = file.display();
        return Err(Failed::usage(format_args!("{file} and --sets both name the packet sets; omit one of them")));
    }
    let answers: Vec<Answer> = args.question.problems(&sets, 1)?.iter().map(Answer::of).collect();
    if args.json {
        print_json(&json(args, &answers))?;
    } else {
        print(&text(args, &sets, &answers))?;
    }
    if answers.iter().any(Answer::is_yes) { Ok(()) } else { Err(Failed::Said(OUTCOME)) }
}

fn text(args: &Args, sets: &PacketSets, answers: &[Answer]) -> String {
    let style = Style::stdout();
    let names: Vec<&str> = sets.ports.iter().map(|port| port.name.as_str()).collect();
    let mut out = format!("{} on {}\n\n", names.join(", "), shown::card(args.question.nic, style));
    out += &table(answers, style).lines(0);
    out.push('\n');
    for answer in answers {
        let driver = format!("{:<6}", answer.driver.name());
        out += &match (&answer.proof, answer.by()) {
            (Some(proof), _) => format!("{driver} {}: {}", style.bad("no"), refusal(proof, &answer.obstacles)),
            (None, Some("fields")) => {
                format!(
                    "{driver} {}: only fields that name the sets are hashed; `rss solve` prints the keys\n",
                    style.good("yes")
                )
            }
            (None, _) => {
                format!("{driver} {}, with a key that cancels other fields; `rss solve` prints it\n", style.good("yes"))
            }
        };
    }
    let is_apart = |row: &Check| matches!(row.fit, Fit::Apart { .. });
    if answers.iter().any(|answer| answer.rows.iter().any(is_apart)) {
        out += "Fragments have no ports: they are hashed by addresses and reach another queue than the whole packets \
             of their flow.\n";
    }
    out + &shown::not_confirmed(args.question.nic, style)
}

/// Why the answer is no, with all packets that prevent it.
fn refusal(proof: &Proof, obstacles: &[Obstacle]) -> String {
    if obstacles.is_empty() {
        return format!("{}; `rss solve` prints the proof\n", proof.consequence);
    }
    let mut out =
        "these fields prevent it, and no known key helps (`rss solve --driver NAME` explains why, and what would help)\n"
            .to_owned();
    for Obstacle { port, types, fields } in obstacles {
        let what = if *fields == Fields::NONE {
            "are not hashed and all go to one queue".to_owned()
        } else {
            format!("are also hashed by {fields}")
        };
        out += &format!("         {} at {port} {what}\n", shown::types(types));
    }
    out
}

/// One row for the types of a port with the same answers.
fn table(answers: &[Answer], style: Style) -> Sheet {
    let mut columns = vec![("port", Align::Left), ("packets", Align::Left), ("set by", Align::Left)];
    columns.extend(answers.iter().map(|answer| (answer.driver.name(), Align::Left)));
    let mut sheet = Sheet::new(style, &columns);
    let mut rows: Vec<(&str, Fields, Vec<Fit>, Vec<PacketType>)> = Vec::new();
    for (index, row) in answers.first().map(|answer| answer.rows.as_slice()).unwrap_or_default().iter().enumerate() {
        let fits: Vec<Fit> = answers.iter().map(|answer| answer.rows[index].fit).collect();
        let same =
            rows.iter_mut().find(|(port, named, other, _)| *port == row.port && *named == row.named && *other == fits);
        match same {
            Some((.., kinds)) => kinds.push(row.kind),
            None => rows.push((&row.port, row.named, fits, vec![row.kind])),
        }
    }
    for (port, named, fits, kinds) in rows {
        let mut cells =
            vec![(port.to_owned(), Tone::Bold), (shown::types(&kinds), Tone::Plain), (named.to_string(), Tone::Plain)];
        cells.extend(fits.iter().map(|fit| (brief(*fit), tone(*fit))));
        sheet.toned(cells);
    }
    sheet
}

const fn tone(fit: Fit) -> Tone {
    match fit {
        Fit::Exact | Fit::Coarser { .. } => Tone::Good,
        Fit::Apart { .. } | Fit::Splits { .. } | Fit::Unhashed => Tone::Warn,
    }
}

fn brief(fit: Fit) -> String {
    match fit {
        Fit::Exact => "exact".to_owned(),
        Fit::Coarser { selection } => format!("coarser: {selection}"),
        Fit::Apart { selection } => format!("apart: {selection}"),
        Fit::Splits { selection, in_the_way } => format!("splits: {selection}, because of {in_the_way}"),
        Fit::Unhashed => "not hashed".to_owned(),
    }
}

fn json(args: &Args, answers: &[Answer]) -> Value {
    let row = |row: &Check| {
        let (selection, in_the_way) = match row.fit {
            Fit::Exact => (Some(row.named), Fields::NONE),
            Fit::Coarser { selection } | Fit::Apart { selection } => (Some(selection), Fields::NONE),
            Fit::Splits { selection, in_the_way } => (Some(selection), in_the_way),
            Fit::Unhashed => (None, Fields::NONE),
        };
        json!({
            "port": row.port, "packets": row.kind.name(), "set_by": names(row.named), "fit": row.fit.name(),
            "hashed": selection.map(names), "in_the_way": names(in_the_way), "says": row.fit.to_string(),
        })
    };
    let answer = |answer: &Answer| {
        json!({
            "driver": answer.driver.name(), "yes": answer.is_yes(), "by": answer.by(),
            "proof": answer.proof.as_ref().map(shown::proof_json),
            "in_the_way": answer.obstacles.iter().map(|Obstacle { port, types, fields }| json!({
                "port": port, "packets": types.iter().map(|kind| kind.name()).collect::<Vec<_>>(), "fields": names(*fields),
            })).collect::<Vec<_>>(),
            "rows": answer.rows.iter().map(row).collect::<Vec<_>>(),
        })
    };
    json!({
        "card": args.question.nic.name, "yes": answers.iter().any(Answer::is_yes),
        "drivers": answers.iter().map(answer).collect::<Vec<_>>(), "facts": shown::facts_json(args.question.nic),
    })
}

/// The names of fields, one by one.
pub(super) fn names(fields: Fields) -> Vec<&'static str> {
    fields.iter().map(|field| field.name()).collect()
}
