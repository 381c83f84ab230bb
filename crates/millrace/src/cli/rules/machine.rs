//! Arguments that say on which machine rules run, for commands that run them themselves.

use std::path::{Path, PathBuf};

use catalogue::config::Settings;
use functions::rules::{Config, Rules};
use iptables::{Family, guess_family};
use nf::NetworkFunction;

use crate::cli::configuration;
use crate::cli::failure::Failed;
use crate::print::output::note;

/// The machine that rules run on.
#[derive(clap::Args)]
pub(super) struct Machine {
    /// TOML file with the router's interfaces and routes, as `millrace rules router` prints it
    #[arg(long, value_name = "FILE")]
    pub(super) router: Option<PathBuf>,
    /// Sets that the rules name, as `ipset save` prints them
    #[arg(long, value_name = "FILE")]
    pub(super) sets: Option<PathBuf>,
    /// Rules of ip6tables, beside those of iptables
    #[arg(long, value_name = "FILE")]
    rules_v6: Option<PathBuf>,
    /// TOML file with other keys of the function `rules`
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Leave out rules that iptables takes and Millrace can't read, and list them
    #[arg(long)]
    skip_unsupported: bool,
    /// Set one configuration key. May be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

impl Machine {
    /// The function that runs these rules on it. They may be of ip6tables.
    pub(super) fn with(&self, rules: &Path) -> Result<Rules, Failed> {
        let name = |path: &Path| path.display().to_string();
        let mut settings = match &self.config {
            Some(path) => Settings::from_file(name(path), configuration(path)?),
            None => Settings::default(),
        };
        if let Some(path) = &self.router {
            settings.set_table("router", name(path), configuration(path)?)?;
        }
        if self.skip_unsupported {
            settings.set("skip_unsupported=true")?;
        }
        if let Some(path) = &self.sets {
            settings.set_text("sets", name(path), super::text(path)?);
        }
        let text = super::text(rules)?;
        let key = match guess_family(&name(rules), &text) {
            Family::V4 => "rules",
            Family::V6 if self.rules_v6.is_none() => "rules_v6",
            Family::V6 => {
                let what =
                    format_args!("{} has rules of ip6tables, and so has --rules-v6; omit one of them", name(rules));
                return Err(Failed::usage(what));
            }
        };
        settings.set_text(key, name(rules), text);
        if let Some(path) = &self.rules_v6 {
            settings.set_text("rules_v6", name(path), super::text(path)?);
        }
        for given in &self.set {
            settings.set(given)?;
        }
        let config: Config = settings.read(&<Rules>::DESCRIPTION)?;
        let function = Rules::new(&config);
        for line in function.skipped() {
            let (file, rest) = line.split_once(':').unwrap_or(("", line));
            let path = if file == key { Some(rules) } else { self.rules_v6.as_deref() };
            let file = path.map_or_else(|| file.to_owned(), name);
            note(&format!("left out: {file}:{rest}\n"));
        }
        Ok(function)
    }
}
