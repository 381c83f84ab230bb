//! Text tables: plain columns, a dim header, numbers aligned right.

use comfy_table::{Attribute, Cell, CellAlignment, Color, ContentArrangement, Table, presets};

use super::style::Style;

/// Alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Emphasis of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Dim,
    Bold,
    Good,
    Bad,
    Warn,
}

/// Minimum terminal width to which tables are adapted.
const WIDTH_MIN: u16 = 60;

/// A table that is being built.
pub(crate) struct Sheet {
    table: Table,
    align: Vec<Align>,
}

impl Sheet {
    /// A table with these columns.
    pub(crate) fn new(style: Style, columns: &[(&str, Align)]) -> Self {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
        if style.colour {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
        // Adapt to the width only on a terminal that reports one.
        if !style.colour || table.width().is_none_or(|width| width < WIDTH_MIN) {
            table.set_content_arrangement(ContentArrangement::Disabled);
        }
        let align: Vec<Align> = columns.iter().map(|(_, align)| *align).collect();
        let head = columns.iter().map(|(name, align)| cell(name, *align, Tone::Dim));
        if columns.iter().any(|(name, _)| !name.is_empty()) {
            table.set_header(head);
        }
        Self { table, align }
    }

    /// Adds a row of plain cells.
    pub(crate) fn row<T: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.toned(cells.into_iter().map(|text| (text, Tone::Plain)));
    }

    /// Adds a row with emphasis for its cells.
    pub(crate) fn toned<T: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = (T, Tone)>) {
        let cells = cells.into_iter().zip(&self.align);
        let cells: Vec<Cell> = cells.map(|((text, tone), align)| cell(text.as_ref(), *align, tone)).collect();
        self.table.add_row(cells);
    }

    /// The lines of the table, indented by `indent` spaces.
    pub(crate) fn lines(&self, indent: usize) -> String {
        let mut table = self.table.clone();
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        let mut out = String::new();
        for line in table.lines() {
            out.extend(std::iter::repeat_n(' ', indent));
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }
}

fn cell(text: &str, align: Align, tone: Tone) -> Cell {
    let cell = Cell::new(text).set_alignment(match align {
        Align::Left => CellAlignment::Left,
        Align::Right => CellAlignment::Right,
    });
    match tone {
        Tone::Plain => cell,
        Tone::Dim => cell.add_attribute(Attribute::Dim),
        Tone::Bold => cell.add_attribute(Attribute::Bold),
        Tone::Good => cell.fg(Color::DarkGreen),
        Tone::Bad => cell.fg(Color::DarkRed).add_attribute(Attribute::Bold),
        Tone::Warn => cell.fg(Color::DarkYellow),
    }
}
