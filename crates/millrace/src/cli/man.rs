//! `millrace man` writes the manual pages.

use std::path::PathBuf;

use clap::Command;
use clap_mangen::Man;

use super::failure::Failed;
use super::folder::Folder;
use crate::print::number::counted;
use crate::print::output::print;

/// Write the manual pages, one for each command, into a folder
#[derive(clap::Args)]
#[command(after_help = "Example:\n  millrace man ~/.local/share/man/man1")]
pub(super) struct Args {
    /// Folder to write to
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

pub(super) fn perform(args: &Args, mut command: Command) -> Result<(), Failed> {
    command.build();
    let mut pages = Vec::new();
    gather(&command, &mut pages)?;
    let folder = Folder::make(&args.folder)?;
    for (name, page) in &pages {
        folder.write(&format!("{name}.1"), page)?;
    }
    let pages = counted(pages.len() as u64, "page", "pages");
    print(&format!(
        "{pages} in {}; `man -l {}` shows the first\n",
        args.folder.display(),
        args.folder.join("millrace.1").display()
    ))
}

/// The page of a command and of its subcommands: `millrace-run`.
fn gather(command: &Command, pages: &mut Vec<(String, String)>) -> Result<(), Failed> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let mut page = Vec::new();
    Man::new(command.clone()).render(&mut page).map_err(|error| Failed::output(&error))?;
    pages.push((name, String::from_utf8_lossy(&page).into_owned()));
    for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help" && !inner.is_hide_set()) {
        gather(inner, pages)?;
    }
    Ok(())
}
