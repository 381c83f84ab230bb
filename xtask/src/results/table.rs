//! Tables in Markdown.

/// A table: first column to the left, others to the right but the last, which says where figures come from.
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

/// The table of a text whose first line begins so; empty where there is none.
pub(super) fn in_text(text: &str, beginning: &str) -> String {
    let lines = text.lines().skip_while(|line| !line.starts_with(beginning));
    let lines: Vec<&str> = lines.take_while(|line| line.starts_with('|')).collect();
    if lines.is_empty() { String::new() } else { lines.join("\n") + "\n\n" }
}
