//! The HTML page of a report: one file without scripts or external content, for light and dark screens and for print.

use std::fmt::Write;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::origin::Origin;
use super::plot::COLOURS;

/// A page with this title.
pub(crate) fn whole(title: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(palettes())) (PreEscaped(STYLE)) }
            }
            body { (body) footer { p.dim { (Origin::here().text()) } } }
        }
    };
    page.into_string()
}

/// Colours for light and dark, by their CSS names.
const PALETTE: [(&str, &str, &str); 13] = [
    ("ink", "#1c1c1c", "#ececec"),
    ("paper", "#fff", "#16181b"),
    ("rule", "#ddd", "#3a3d42"),
    ("text", "#333", "#d2d2d2"),
    ("lead", "#444", "#c0c0c0"),
    ("faint", "#555", "#a8a8a8"),
    ("grid", "#e4e4e4", "#2c2f34"),
    ("soft", "#666", "#9a9a9a"),
    ("reach", "#c9c9c9", "#55585e"),
    ("line", "#bbb", "#55585e"),
    ("hair", "#ececec", "#2c2f34"),
    ("dim", "#777", "#8f8f8f"),
    ("bad", "#a33c00", "#ff9d66"),
];

/// Light by default and in print, dark on a dark screen.
fn palettes() -> String {
    let mut light = String::from("color-scheme:light;");
    let mut dark = String::from("color-scheme:dark;");
    for (name, on_light, on_dark) in PALETTE {
        let _ = write!(light, "--{name}:{on_light};");
        let _ = write!(dark, "--{name}:{on_dark};");
    }
    for (number, (on_light, on_dark)) in COLOURS.into_iter().enumerate() {
        let _ = write!(light, "--c{number}:{on_light};");
        let _ = write!(dark, "--c{number}:{on_dark};");
    }
    format!(":root{{{light}}}\n@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}\n")
}

const STYLE: &str = "
body { font: 15px/1.5 system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif; color: var(--ink); background: var(--paper);
       max-width: 1120px; margin: 0 auto; padding: 28px 24px 60px; }
h1 { font-size: 28px; line-height: 1.2; margin: 0 0 6px; letter-spacing: -0.01em; }
h2 { font-size: 20px; margin: 44px 0 4px; padding-top: 14px; border-top: 1px solid var(--rule); }
p { margin: 4px 0 14px; max-width: 76ch; color: var(--text); }
.lead { color: var(--lead); }
.findings table { border-collapse: collapse; margin: 18px 0 0; }
.findings th { text-align: left; font-weight: 600; padding: 3px 18px 3px 0; white-space: nowrap; vertical-align: top; }
.findings td { padding: 3px 0; }
.pair { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 20px 28px; align-items: start; }
figure { margin: 8px 0; }
figcaption { font-size: 13px; color: var(--faint); }
svg { display: block; width: 100%; height: auto; font-family: inherit; }
.wide { max-width: 860px; }
svg .grid { stroke: var(--grid); stroke-width: 1; fill: none; }
svg .axis { stroke: var(--soft); stroke-width: 1; fill: none; }
svg .reach { stroke: var(--reach); stroke-width: 2; fill: none; }
svg .tick { font-size: 11.5px; fill: var(--faint); }
svg .label { font-size: 12px; fill: var(--text); }
svg .name { font-size: 12px; }
.numbers { border-collapse: collapse; font-size: 12.5px; font-variant-numeric: tabular-nums; margin: 14px 0 0; }
.numbers th, .numbers td { text-align: right; padding: 2px 0 2px 16px; white-space: nowrap; }
.numbers th:first-child { text-align: left; padding-left: 0; }
.numbers .left { text-align: left; }
.numbers .why { white-space: normal; min-width: 24ch; line-height: 1.3; }
.numbers thead th { color: var(--soft); font-weight: 500; border-bottom: 1px solid var(--line); }
.numbers tr.first > * { border-top: 1px solid var(--hair); padding-top: 5px; }
.dim { color: var(--dim); }
.bad { color: var(--bad); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 6px 20px; font-size: 14px; max-width: 90ch; }
dt { color: var(--soft); } dd { margin: 0; }
code { font: 12.5px ui-monospace, 'DejaVu Sans Mono', monospace; overflow-wrap: anywhere; }
@media screen and (max-width: 800px) { .pair { grid-template-columns: 1fr; } .numbers { display: block; overflow-x: auto; } }
@media print {
  @page { margin: 14mm; }
  body { font-size: 10.5pt; max-width: none; padding: 0; }
  h2 { break-after: avoid; margin-top: 20px; }
  p { break-after: avoid; }
  figure, .findings, tr { break-inside: avoid; }
  .numbers { font-size: 8pt; } .numbers th, .numbers td { padding-left: 9px; }
  thead { display: table-header-group; }
}
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_stands_alone_and_knows_all_its_colours() {
        let page = whole("A < B", &html! { p { "text" } });
        assert!(page.contains("<title>A &lt; B</title>") && page.contains("<p>text</p>"));
        assert!(!page.contains("http") && !page.contains("<script"));
        for used in STYLE.split("var(--").skip(1).filter_map(|rest| rest.split(')').next()) {
            assert!(PALETTE.iter().any(|(name, ..)| *name == used), "--{used} is nowhere defined");
        }
        assert_eq!(page.matches("--paper:").count(), 2, "light and dark");
    }
}
