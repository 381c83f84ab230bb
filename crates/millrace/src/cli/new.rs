//! `millrace new` writes a crate with a working function.

use std::fs;
use std::path::{Path, PathBuf};

use super::failure::Failed;
use crate::print::output::print;
use catalogue::Catalogue;

/// Write a crate with a working network function, to start your own from
///
/// The crate has the function, the command `millrace` with this function in its catalogue, a test that compares every engine, a case file
/// with packets and expected outcomes, and a README that says what to change.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  millrace new my-function --path ../millrace
  millrace new my-function --into functions/mine --git https://example.com/millrace.git --rev v0.1.0")]
pub(super) struct Args {
    /// Name of the function: lower case letters and digits, words joined by hyphens
    #[arg(value_name = "NAME")]
    name: String,
    /// Folder to write to; it must be empty or not exist [default: the name]
    #[arg(long, value_name = "FOLDER")]
    into: Option<PathBuf>,
    #[command(flatten)]
    source: Source,
    /// With --git: commit, tag or branch [default: the repository's default branch]
    #[arg(long, value_name = "REV")]
    rev: Option<String>,
}

/// Source of Millrace for the new crate. Not a registry version, because the name `millrace` belongs to another project there.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct Source {
    /// Folder with Millrace's sources to build with
    #[arg(long, value_name = "FOLDER")]
    path: Option<PathBuf>,
    /// Git repository with Millrace's sources to build with
    #[arg(long, value_name = "URL")]
    git: Option<String>,
}

/// Attributes of the function crate.
const HEAD: &str = "#![no_std]\n#![forbid(unsafe_code)]\n";

/// The files, by their path in the crate.
const FILES: [(&str, &str); 6] = [
    ("src/lib.rs", include_str!("../../skeleton/lib.rs")),
    ("src/main.rs", include_str!("../../skeleton/main.rs")),
    ("tests/engines.rs", include_str!("../../skeleton/test.rs")),
    ("tests/cases.toml", include_str!("../../skeleton/cases.toml")),
    ("README.md", include_str!("../../skeleton/README.md")),
    ("clippy.toml", include_str!("../../skeleton/clippy.toml")),
];

pub(super) fn perform(args: &Args, catalogue: &Catalogue) -> Result<(), Failed> {
    let name = args.name.as_str();
    if let Some(wrong) = wrong(name) {
        return Err(Failed::usage(format_args!("`{name}` {wrong}: as in `my-function`")));
    }
    if catalogue.get(name).is_some() {
        return Err(Failed::usage(format_args!(
            "the function `{name}` exists already; `millrace functions {name}` describes it"
        )));
    }
    let folder = args.into.clone().unwrap_or_else(|| PathBuf::from(name));
    let taken = fs::read_dir(&folder).map(|mut entries| entries.next().is_some());
    if taken.unwrap_or_else(|_| folder.exists()) {
        return Err(Failed::usage(format_args!(
            "{} exists and is not an empty folder; give another one with --into",
            folder.display()
        )));
    }
    if args.rev.is_some() && args.source.git.is_none() {
        return Err(Failed::usage("--rev needs --git; omit it"));
    }
    let dependency = dependency(&args.source, args.rev.as_deref())?;
    let manifest = format!(
        "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[dependencies]\nmillrace = {dependency}\nserde = {{ version = \
         \"1\", default-features = false, features = [\"derive\"] }}\n\n# A build of its own, wherever the folder lies.\n[workspace]\n\n\
         [profile.release]\nlto = \"thin\"\n\n# With line tables, for `profile --flame`.\n[profile.profiling]\ninherits = \"release\"\ndebug = \"line-tables-only\"\n"
    );
    write(&folder, "Cargo.toml", &manifest)?;
    write(&folder, ".gitignore", "/target\n")?;
    for (place, text) in FILES {
        write(&folder, place, &named(place, text, name))?;
    }
    let shown = folder.display();
    print(&format!(
        "{shown}: the function `{name}`; until you change it, it counts the packets of each host\n\n  cd {shown}\n  cargo test\n  cargo \
         run --release -- functions {name}\n\nREADME.md says what to change, step by step.\n"
    ))
}

/// What is wrong with a name, if anything.
fn wrong(name: &str) -> Option<&'static str> {
    let words: Vec<&str> = name.split('-').collect();
    let is_word = |word: &&str| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    if !words.iter().all(is_word) {
        return Some("must have lower case letters and digits, with words joined by hyphens");
    }
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) {
        return Some("must begin with a letter");
    }
    if name.len() > NAME_MAX {
        return Some("must not be longer than 64 characters");
    }
    // Keywords, names of libraries and of cargo, and types that the crate uses.
    let camel = camel(name);
    let sources = FILES.iter().filter(|(place, _)| place.ends_with(".rs"));
    let code = sources.flat_map(|(_, text)| text.lines()).filter(|line| !line.trim_start().starts_with("//"));
    let used = code.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_')).any(|word| word == camel);
    (RESERVED.contains(&name) || used).then_some("is reserved by the compiler or by the crate itself")
}

const NAME_MAX: usize = 64;

const RESERVED: [&str; 58] = [
    "abstract",
    "alloc",
    "as",
    "async",
    "await",
    "become",
    "box",
    "break",
    "build",
    "const",
    "continue",
    "core",
    "crate",
    "deps",
    "do",
    "dyn",
    "else",
    "enum",
    "examples",
    "extern",
    "false",
    "final",
    "fn",
    "for",
    "gen",
    "if",
    "impl",
    "in",
    "incremental",
    "let",
    "loop",
    "macro",
    "match",
    "millrace",
    "mod",
    "move",
    "mut",
    "override",
    "priv",
    "proc-macro",
    "pub",
    "ref",
    "return",
    "self",
    "serde",
    "static",
    "std",
    "struct",
    "super",
    "test",
    "trait",
    "try",
    "type",
    "typeof",
    "unsafe",
    "use",
    "where",
    "yield",
];

/// The name as a type name.
fn camel(name: &str) -> String {
    name.split('-')
        .map(|word| {
            let mut letters = word.chars();
            letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
        })
        .collect()
}

/// The text of a file with the skeleton's name replaced.
fn named(place: &str, text: &str, name: &str) -> String {
    let camel = camel(name);
    let used = format!("use {}::", name.replace('-', "_"));
    let text = text.replace("use crate::skeleton::", &used).replace("use skeleton::", &used);
    let text = text.replace("Skeleton", &camel).replace("skeleton", name);
    if place != "src/lib.rs" {
        return text;
    }
    // Behind the file's own words.
    match text.split_once("\n\nuse ") {
        Some((words, rest)) => format!("{words}\n{HEAD}\nuse {rest}"),
        None => HEAD.to_owned() + &text,
    }
}

/// The dependency on Millrace for Cargo.toml.
fn dependency(source: &Source, rev: Option<&str>) -> Result<String, Failed> {
    let place = match (&source.path, &source.git) {
        (Some(folder), _) => format!("path = {:?}", crate_of(folder)?),
        (None, Some(url)) => {
            for (option, text) in [("--git", url.as_str())].into_iter().chain(rev.map(|rev| ("--rev", rev))) {
                if text.is_empty() || text.contains(|c: char| c.is_whitespace() || c.is_control() || "\"\\".contains(c))
                {
                    return Err(Failed::usage(format_args!("{option}: `{text}` is not a valid git name")));
                }
            }
            if !url.contains(':') {
                return Err(Failed::usage(format_args!("--git: `{url}` is not a URL; use --path for a folder")));
            }
            let rev = rev.map(|rev| format!(", rev = \"{rev}\"")).unwrap_or_default();
            format!("git = \"{url}\"{rev}")
        }
        (None, None) => return Err(Failed::usage("give the place of Millrace's sources: --path FOLDER or --git URL")),
    };
    Ok(format!("{{ package = \"{PACKAGE}\", {place} }}"))
}

/// Package name of this crate.
const PACKAGE: &str = env!("CARGO_PKG_NAME");

/// The folder of this crate in Millrace's sources, or the folder itself if it is the crate.
fn crate_of(folder: &Path) -> Result<PathBuf, Failed> {
    let named = format!("name = \"{PACKAGE}\"");
    let is_crate =
        |folder: &PathBuf| fs::read_to_string(folder.join("Cargo.toml")).is_ok_and(|text| text.contains(&named));
    let found = [folder.to_path_buf(), folder.join("crates/millrace")].into_iter().find(is_crate);
    found.and_then(|folder| folder.canonicalize().ok()).ok_or_else(|| {
        let shown = folder.display();
        Failed::usage(format_args!(
            "{shown} has no crate `{PACKAGE}`; the crate is in crates/millrace of Millrace's sources"
        ))
    })
}

fn write(folder: &Path, place: &str, text: &str) -> Result<(), Failed> {
    let path = folder.join(place);
    let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, text));
    written.map_err(|error| Failed::input(format_args!("{}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_crates_and_types_can_be_called() {
        for good in ["my-function", "a", "dns2-tunnel-guard"] {
            assert_eq!(wrong(good), None, "{good}");
        }
        for bad in [
            "",
            "-",
            "My",
            "a--b",
            "a_b",
            "1a",
            "a-",
            "core",
            "ä",
            "a b",
            "../a",
            "match",
            "config",
            "flow",
            "catalogue-entry",
        ] {
            assert!(wrong(bad).is_some(), "{bad}");
        }
        assert_eq!(named("README.md", "skeleton Skeleton use skeleton::X", "my-fn"), "my-fn MyFn use my_fn::X");
        let lib = named("src/lib.rs", FILES[0].1, "my-fn");
        assert!(
            lib.contains("first.\n#![no_std]\n#![forbid(unsafe_code)]\n\nuse millrace") && !lib.contains("keleton"),
            "{lib}"
        );
    }
}
