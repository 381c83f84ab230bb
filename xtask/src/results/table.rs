//! Tables in Markdown.

/// A table. The first column is left-aligned, and the last, the source of the figures; the others are right-aligned.
pub(super) fn markdown(columns: &[&str], rows: &[Vec<String>]) -> String {
    let last = columns.len() - 1;
    let line = |cells: &mut dyn Iterator<Item = &str>| format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "));
    let mut out = line(&mut columns.iter().copied());
    out += &line(&mut (0..=last).map(|column| if column == 0 || column == last { "---" } else { "---:" }));
    for row in rows {
        assert_eq!(row.len(), columns.len(), "a cell for each column: {row:?}");
        out += &line(&mut row.iter().map(String::as_str));
    }
    out + "\n"
}

/// The table of a text whose first line begins with `beginning`; empty if there is none.
pub(super) fn in_text(text: &str, beginning: &str) -> String {
    let lines = text.lines().skip_while(|line| !line.starts_with(beginning));
    let lines: Vec<&str> = lines.take_while(|line| line.starts_with('|')).collect();
    if lines.is_empty() { String::new() } else { lines.join("\n") + "\n\n" }
}
