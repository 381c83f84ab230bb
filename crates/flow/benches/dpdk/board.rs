//! Prints the measurements and compares them with the targets.

use std::fmt;

/// The rounds of a measurement.
#[derive(Clone, Copy)]
pub(crate) struct Figure {
    pub(crate) median: f64,
    least: f64,
    most: f64,
}

impl Figure {
    /// Summarises at least one round.
    pub(crate) fn of(mut rounds: Vec<f64>) -> Self {
        rounds.sort_by(f64::total_cmp);
        Self { median: rounds[rounds.len() / 2], least: rounds[0], most: rounds[rounds.len() - 1] }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} ({:.1}-{:.1})", self.median, self.least, self.most)
    }
}

/// The targets, and the result of each index.
pub(crate) struct Board {
    indexes: Vec<&'static str>,
    rows: Vec<[String; 2]>,
    cells: Vec<Vec<String>>,
}

impl Board {
    /// A board for indexes of these names.
    pub(crate) const fn new(indexes: Vec<&'static str>) -> Self {
        Self { indexes, rows: Vec::new(), cells: Vec::new() }
    }

    /// Adds a lower limit and the result of each index.
    pub(crate) fn at_least(&mut self, title: &str, floor: f64, values: impl Iterator<Item = f64>) {
        self.add(title, format!(">= {floor}"), values.map(|value| (value, value >= floor)));
    }

    /// Adds an upper limit.
    pub(crate) fn at_most(&mut self, title: &str, ceiling: f64, values: impl Iterator<Item = f64>) {
        self.add(title, format!("<= {ceiling}"), values.map(|value| (value, value <= ceiling)));
    }

    fn add(&mut self, title: &str, target: String, values: impl Iterator<Item = (f64, bool)>) {
        self.rows.push([title.into(), target]);
        let cell = |(value, met)| format!("{value:.2} {}", if met { "met" } else { "MISSED" });
        self.cells.push(values.map(cell).collect());
    }

    /// The targets, a row each.
    pub(crate) fn print(&self) {
        println!(
            "\n{:66} {:>8}{}",
            "targets",
            "",
            self.indexes.iter().map(|name| format!(" {name:>14}")).collect::<String>()
        );
        for ([title, target], cells) in self.rows.iter().zip(&self.cells) {
            println!("{title:66} {target:>8}{}", cells.iter().map(|cell| format!(" {cell:>14}")).collect::<String>());
        }
    }
}

/// A row of a table, its title first.
pub(crate) fn print_row(title: &str, cells: &[&str]) {
    println!("{title:44}{}", cells.iter().map(|cell| format!(" {cell:>22}")).collect::<String>());
}

/// How much of this process's memory lies on huge pages.
pub(crate) fn huge_bytes() -> usize {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let line = rollup.lines().find_map(|line| line.strip_prefix("AnonHugePages:"));
    line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<usize>().ok()).unwrap_or(0) * 1024
}
