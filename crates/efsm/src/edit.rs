//! Changes to a program: rows and stages are added, replaced, removed. A changed program is checked as a whole, so it is either a program or
//! nothing changes.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::error::Error;
use crate::machine::Machine;
use crate::parse::parse;
use crate::print::print;
use crate::syntax::{Item, Line};

/// A program with its text, for changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    lines: Vec<Line>,
    machine: Machine,
}

/// A change to a program. Rows of a stage are numbered from 0, from the top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// Adds a row, as in `on new : drop`.
    AddRow {
        /// The stage's name.
        stage: String,
        /// The number that the row gets, or `None` to add it below the last row.
        at: Option<usize>,
        /// The row's text.
        row: String,
    },
    /// Replaces a row.
    ReplaceRow {
        /// The stage's name.
        stage: String,
        /// The row's number.
        at: usize,
        /// The new row's text.
        row: String,
    },
    /// Removes all rows of a stage. Edits behind it in the list must add some: a stage without rows is an error.
    EmptyStage {
        /// The stage's name.
        stage: String,
    },
    /// Adds a stage. Edits beside it in the list must lead packets to it, unless it is the first one: a stage that no packet reaches is an
    /// error.
    AddStage {
        /// The stage that comes below it, or `None` to add it below the last one.
        before: Option<String>,
        /// The stage's lines, the first one being `stage NAME`.
        text: String,
    },
}

/// Why a program can't be changed so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EditError {
    /// One edit is wrong by itself: its number from 0, and the reason.
    Edit(usize, String),
    /// All edits together make no program: the first error, and the changed line that it is about.
    Program(Error, String),
}

impl fmt::Display for EditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Edit(number, reason) => write!(f, "edit {number}: {reason}"),
            Self::Program(error, line) => write!(f, "after the edits: {error}: `{}`", line.trim()),
        }
    }
}

impl core::error::Error for EditError {}

impl Program {
    /// Reads a program's text.
    ///
    /// # Errors
    /// Everything that is wrong with the text, in order of lines.
    pub fn read(text: &str) -> Result<Self, Vec<Error>> {
        let lines = parse(text)?;
        Machine::of_lines(&lines).map(|machine| Self { lines, machine })
    }

    /// The compiled program.
    #[must_use]
    pub const fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The program's text in normal form.
    #[must_use]
    pub fn text(&self) -> String {
        print(&self.lines)
    }

    /// The program after these edits, in their order. This one stays as it is.
    ///
    /// # Errors
    /// The first edit that names what is not there or has no row's or stage's text; or the first error of the program that would result.
    pub fn edit(&self, edits: &[Edit]) -> Result<Self, EditError> {
        let mut lines = self.lines.clone();
        for (number, edit) in edits.iter().enumerate() {
            apply(&mut lines, edit).map_err(|reason| EditError::Edit(number, reason))?;
        }
        // Read again, so that lines have the numbers of the new text.
        let text = print(&lines);
        Self::read(&text).map_err(|errors| {
            let error = errors[0].clone();
            let line = text.lines().nth((error.place.line as usize).saturating_sub(1)).unwrap_or("").to_owned();
            EditError::Program(error, line)
        })
    }
}

fn apply(lines: &mut Vec<Line>, edit: &Edit) -> Result<(), String> {
    match edit {
        Edit::AddRow { stage, at, row } => {
            let (end, rows) = rows(lines, stage)?;
            let place = match at {
                None => rows.last().map_or(end, |last| last + 1),
                Some(at) if *at == rows.len() => rows.last().map_or(end, |last| last + 1),
                Some(at) => no_row(&rows, stage, *at)?,
            };
            lines.insert(place, one_row(row)?);
        }
        Edit::ReplaceRow { stage, at, row } => {
            let place = no_row(&rows(lines, stage)?.1, stage, *at)?;
            lines[place] = one_row(row)?;
        }
        Edit::EmptyStage { stage } => {
            for place in rows(lines, stage)?.1.into_iter().rev() {
                lines.remove(place);
            }
        }
        Edit::AddStage { before, text } => {
            let place = match before {
                None => lines.len(),
                Some(before) => stage_lines(lines, before)?.0,
            };
            let added = parse(text).map_err(|errors| errors[0].to_string())?;
            let mut items = added.iter().filter_map(|line| line.item.as_ref());
            if !matches!(items.next(), Some(Item::Stage(_))) || items.any(|item| matches!(item, Item::Stage(_))) {
                return Err("a stage's text is `stage NAME` and the lines of that one stage".to_owned());
            }
            lines.splice(place..place, added);
        }
    }
    Ok(())
}

/// The line of the stage's head, and the one behind its last line.
fn stage_lines(lines: &[Line], name: &str) -> Result<(usize, usize), String> {
    let heads: Vec<(usize, &str)> = lines
        .iter()
        .enumerate()
        .filter_map(|(at, line)| match &line.item {
            Some(Item::Stage(stage)) => Some((at, stage.text.as_str())),
            _ => None,
        })
        .collect();
    let Some(at) = heads.iter().position(|(_, known)| *known == name) else {
        let known: Vec<&str> = heads.iter().map(|(_, known)| *known).collect();
        return Err(format!("no stage `{name}`: stages are {}", known.join(", ")));
    };
    Ok((heads[at].0, heads.get(at + 1).map_or(lines.len(), |(next, _)| *next)))
}

/// The line behind the stage's last item, and the lines of its rows.
fn rows(lines: &[Line], name: &str) -> Result<(usize, Vec<usize>), String> {
    let (start, end) = stage_lines(lines, name)?;
    let last = (start..end).rev().find(|at| lines[*at].item.is_some()).unwrap_or(start);
    Ok((last + 1, (start..end).filter(|at| matches!(lines[*at].item, Some(Item::Row(_)))).collect()))
}

/// The line of a row, or why there is none.
fn no_row(rows: &[usize], stage: &str, at: usize) -> Result<usize, String> {
    rows.get(at)
        .copied()
        .ok_or_else(|| format!("stage `{stage}` has no row {at}: it has {}, numbered from 0", rows.len()))
}

/// The line of a row's text.
fn one_row(text: &str) -> Result<Line, String> {
    let mut lines = parse(text).map_err(|errors| errors[0].to_string())?;
    match lines.pop() {
        Some(line) if lines.is_empty() && matches!(line.item, Some(Item::Row(_))) => Ok(line),
        _ => Err("a row is one line, as in `on new in=lan : drop`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "ports lan=0 wan=1
stage track # one
  key ip.src
  on 0 : state 1; out wan
  on 1 : drop

stage more
  on * : out lan
";

    /// `more` isn't reached, so the program goes there.
    fn program() -> Program {
        Program::read(&TEXT.replace("on 1 : drop", "on 1 : goto more")).expect("a program")
    }

    fn add(stage: &str, at: Option<usize>, row: &str) -> Edit {
        Edit::AddRow { stage: stage.to_owned(), at, row: row.to_owned() }
    }

    #[test]
    fn edits_make_a_new_program_and_leave_the_old_one() {
        let old = program();
        let replace = Edit::ReplaceRow { stage: "track".to_owned(), at: 1, row: "on 1 : goto last".to_owned() };
        let empty = Edit::EmptyStage { stage: "more".to_owned() };
        let text = "stage last\n  on * : out wan\n".to_owned();
        let stage = Edit::AddStage { before: None, text };
        let to_more = add("track", Some(0), "on 7 : goto more");
        let new =
            old.edit(&[replace, empty, add("more", None, "on * : drop # empty"), stage, to_more]).expect("a program");
        assert_eq!(
            new.text(),
            "ports lan=0 wan=1
stage track  # one
  key ip.src
  on 7 : goto more
  on 0 : state 1; out wan
  on 1 : goto last

stage more
  on * : drop  # empty
stage last
  on * : out wan
"
        );
        assert_eq!(new.machine().stages[0].rows[2].line, 6);
        assert_eq!(old, program());
        assert_eq!(new, Program::read(&new.text()).expect("the text is the program"));
    }

    #[test]
    fn errors_say_which_edit_and_why() {
        let why = |edits: &[Edit]| program().edit(edits).expect_err("no program").to_string();
        let fine = add("more", Some(1), "on * : drop");
        assert_eq!(
            why(&[fine.clone(), add("mor", None, "on * : drop")]),
            "edit 1: no stage `mor`: stages are track, more"
        );
        assert_eq!(
            why(&[add("more", Some(2), "on * : drop")]),
            "edit 0: stage `more` has no row 2: it has 1, numbered from 0"
        );
        assert_eq!(why(&[add("more", None, "key ip.src")]), "edit 0: a row is one line, as in `on new in=lan : drop`");
        assert_eq!(
            why(&[add("more", None, "on * : drip")]).split(": write").next(),
            Some("edit 0: 1:8: unknown action `drip`")
        );
        assert_eq!(
            why(&[fine, add("track", Some(1), "on 0 : goto track")]),
            "after the edits: 5:15: stage `track` is not below this one; packets go down only: `on 0 : goto track`"
        );
        let empty = Edit::EmptyStage { stage: "more".to_owned() };
        assert!(why(&[empty]).starts_with("after the edits: 7:7: stage `more` has no rows"));
        let two = Edit::AddStage { before: None, text: "stage a\n  on * : drop\nstage b\n".to_owned() };
        assert!(why(&[two]).starts_with("edit 0: a stage's text is"));
        let unreached = Edit::AddStage { before: Some("more".to_owned()), text: "stage a\n  on * : drop\n".to_owned() };
        assert!(why(&[unreached]).contains("no packet comes to stage `a`"));
    }
}
