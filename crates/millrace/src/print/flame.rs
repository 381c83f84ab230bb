//! A flame graph as a single SVG file: callers and callees, with widths by share of samples.
//!
//! The idea is Brendan Gregg's ("The Flame Graph", CACM 59(6), 2016). Every bar is drawn, however narrow. A click zooms in on a bar. The
//! file needs nothing external; without scripts it is the same picture without zoom.

use std::fmt::Write;

use super::number::{counted, percent};
use super::plot::escaped;

/// The part of the program that the time belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// A line of the function.
    Own,
    /// What a line of the function called.
    Called,
    /// The engine, and what that called.
    Engine,
    /// Unknown.
    Unknown,
    /// Everything.
    All,
}

/// A function, and the functions that it called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bar {
    pub(crate) name: String,
    pub(crate) part: Part,
    /// Its samples, including those of its callees.
    pub(crate) samples: u64,
    pub(crate) inner: Vec<Bar>,
}

/// A flame graph with its texts.
pub(crate) struct Flame {
    pub(crate) title: String,
    /// Lines under the title.
    pub(crate) notes: Vec<String>,
    /// Meaning of the colours, with samples.
    pub(crate) legend: Vec<(Part, &'static str, u64)>,
    /// The outermost bars.
    pub(crate) bars: Vec<Bar>,
}

impl Part {
    /// Warm colours for the function, a cold one for the engine; black is legible on all of them.
    const fn colour(self) -> &'static str {
        match self {
            Self::Own => "#f08c3c",
            Self::Called => "#f7cf8a",
            Self::Engine => "#9cc4e4",
            Self::Unknown => "#c4c4c4",
            Self::All => "#ececec",
        }
    }
}

impl Bar {
    /// Bars from stacks (from the outermost name inwards) with their samples; at each level the widest comes first.
    pub(crate) fn of<'a>(stacks: impl IntoIterator<Item = (Vec<(Part, &'a str)>, u64)>) -> Vec<Self> {
        let mut bars = Vec::new();
        for (stack, samples) in stacks {
            let mut level = &mut bars;
            for (part, name) in stack {
                let known = level.iter().position(|bar: &Self| (bar.part, bar.name.as_str()) == (part, name));
                let at = known.unwrap_or_else(|| {
                    level.push(Self { name: name.to_owned(), part, samples: 0, inner: Vec::new() });
                    level.len() - 1
                });
                level[at].samples += samples;
                level = &mut level[at].inner;
            }
        }
        Self::sort(&mut bars);
        bars
    }

    fn sort(bars: &mut [Self]) {
        bars.sort_by(|one, other| other.samples.cmp(&one.samples).then_with(|| one.name.cmp(&other.name)));
        bars.iter_mut().for_each(|bar| Self::sort(&mut bar.inner));
    }

    fn height(bars: &[Self]) -> usize {
        bars.iter().map(|bar| 1 + Self::height(&bar.inner)).max().unwrap_or(0)
    }
}

const WIDTH: f64 = 1200.0;
const MARGIN: f64 = 10.0;
/// Height of a bar with the gap to the next.
const ROW: f64 = 18.0;
/// Width of a letter; the font is monospaced.
const LETTER: f64 = 6.65;

impl Flame {
    /// The file.
    pub(crate) fn svg(&self) -> String {
        let total: u64 = self.bars.iter().map(|bar| bar.samples).sum();
        let top = 54.0 + 17.0 * self.notes.len() as f64;
        let height = top + 14.0 + ROW * (1 + Bar::height(&self.bars)) as f64 + MARGIN;
        let title = escaped(&self.title);
        let mut out = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
             width=\"{WIDTH}\" height=\"{height}\">\n<title>{title}</title>\n<style>{STYLE}</style>\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n<text class=\"head\" x=\"{MARGIN}\" y=\"26\">{title}</text>\n"
        );
        for (number, note) in self.notes.iter().enumerate() {
            let y = 46.0 + 17.0 * number as f64;
            let _ = writeln!(out, "<text class=\"note\" x=\"{MARGIN}\" y=\"{y}\">{}</text>", escaped(note));
        }
        let mut x = MARGIN;
        for (part, meaning, samples) in &self.legend {
            let text = format!("{meaning} {}", percent(*samples, total));
            let (y, fill) = (top - 11.0, part.colour());
            let _ = writeln!(out, "<rect x=\"{x}\" y=\"{y}\" width=\"12\" height=\"12\" fill=\"{fill}\"/>");
            let _ =
                writeln!(out, "<text class=\"note\" x=\"{}\" y=\"{}\">{}</text>", x + 17.0, y + 10.0, escaped(&text));
            x += 40.0 + 6.6 * text.chars().count() as f64;
        }
        let all = Bar { name: "all samples".into(), part: Part::All, samples: total, inner: self.bars.clone() };
        let mut drawing = Drawing { out, base: height - MARGIN - ROW, total };
        drawing.bar(&all, 0, 0);
        let Drawing { mut out, .. } = drawing;
        let _ = writeln!(
            out,
            "<script><![CDATA[\nconst margin = {MARGIN}, width = {}, letter = {LETTER};\n{SCRIPT}]]></script>\n</svg>",
            WIDTH - 2.0 * MARGIN
        );
        out
    }
}

struct Drawing {
    out: String,
    /// Position of the lowest row.
    base: f64,
    total: u64,
}

impl Drawing {
    /// Draws a bar that begins at sample `from`, and the bars on it.
    fn bar(&mut self, bar: &Bar, from: u64, depth: usize) {
        let scale = (WIDTH - 2.0 * MARGIN) / self.total.max(1) as f64;
        let (x, y) = (MARGIN + from as f64 * scale, self.base - ROW * depth as f64);
        let width = bar.samples as f64 * scale;
        let name = escaped(&bar.name);
        let (samples, fill) = (bar.samples, bar.part.colour());
        let of = counted(samples, "sample", "samples");
        let reported = escaped(&format!("{}: {of}, {}", bar.name, percent(samples, self.total)));
        let _ = writeln!(
            self.out,
            "<g class=\"bar\" data-from=\"{from}\" data-of=\"{samples}\" data-depth=\"{depth}\" data-name=\"{name}\"><title>{reported}</title><rect x=\"{x:.2}\" y=\"{y}\" width=\"{:.2}\" height=\"{}\" fill=\"{fill}\"/><text x=\"{:.2}\" \
             y=\"{}\">{}</text></g>",
            drawn(width),
            ROW - 1.0,
            x + 3.0,
            y + 12.5,
            escaped(&fitting(&bar.name, width)),
        );
        let mut from = from;
        for inner in &bar.inner {
            self.bar(inner, from, depth + 1);
            from += inner.samples;
        }
    }
}

/// Width of a bar without the gap to the next; a narrow bar has no gap. The script does the same.
fn drawn(width: f64) -> f64 {
    if width > 3.0 { width - 1.0 } else { width }
}

/// The part of a name that fits in a bar: all of it, its beginning, or nothing. The script does the same.
fn fitting(name: &str, width: f64) -> String {
    let room = ((width - 6.0) / LETTER).max(0.0) as usize;
    match name.chars().count() {
        len if len <= room => name.to_owned(),
        _ if room < 4 => String::new(),
        _ => name.chars().take(room - 1).chain(['…']).collect(),
    }
}

const STYLE: &str = "text{font:11px monospace;fill:#111}.head{font:bold 17px sans-serif}.note{font:12px sans-serif;fill:#333}\
                     .bar{cursor:pointer}.bar:hover rect{stroke:#111}.bar text{pointer-events:none}";

/// Zoom: a click shows a bar at full width, the bars on it in proportion, and those below it faded.
const SCRIPT: &str = r#"const bars = [...document.querySelectorAll('.bar')].map(at => {
  const { from, of, depth, name } = at.dataset;
  return { at, from: +from, of: +of, depth: +depth, name, rect: at.querySelector('rect'), text: at.querySelector('text') };
});
function show(focus) {
  for (const bar of bars) {
    const below = bar.depth < focus.depth;
    const seen = below ? bar.from <= focus.from && bar.from + bar.of >= focus.from + focus.of
      : bar.from >= focus.from && bar.from + bar.of <= focus.from + focus.of;
    bar.at.style.display = seen ? '' : 'none';
    if (!seen) continue;
    const x = below ? margin : margin + (bar.from - focus.from) / focus.of * width;
    const wide = below ? width : bar.of / focus.of * width;
    bar.at.style.opacity = below ? 0.5 : 1;
    bar.rect.setAttribute('x', x);
    bar.rect.setAttribute('width', wide > 3 ? wide - 1 : wide);
    bar.text.setAttribute('x', x + 3);
    const name = [...bar.name], room = Math.max(0, Math.floor((wide - 6) / letter));
    bar.text.textContent = name.length <= room ? bar.name : room < 4 ? '' : name.slice(0, room - 1).join('') + '…';
  }
}
bars.forEach(bar => bar.at.addEventListener('click', () => show(bar)));
"#;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn flame(bars: Vec<Bar>) -> Flame {
        let legend = vec![(Part::Own, "the function's lines", 3), (Part::Engine, "the engine", 1)];
        Flame { title: "nat: <time> & \"lines\"".into(), notes: vec!["one & two".into()], legend, bars }
    }

    fn shown<'a>(document: &'a roxmltree::Document<'_>) -> Vec<roxmltree::Node<'a, 'a>> {
        document.descendants().filter(|node| node.attribute("class") == Some("bar")).collect()
    }

    fn number(node: roxmltree::Node<'_, '_>, name: &str) -> f64 {
        node.attribute(name).unwrap().parse().unwrap()
    }

    #[test]
    fn a_picture_is_well_formed_and_says_all() {
        let bars = Bar::of([
            (vec![(Part::Engine, "worker loop"), (Part::Own, "nat.rs:1 packet"), (Part::Called, "Map::<get>")], 3),
            (vec![(Part::Engine, "worker loop"), (Part::Engine, "settle")], 1),
        ]);
        let svg = flame(bars).svg();
        let document = roxmltree::Document::parse(&svg).unwrap();
        let bars = shown(&document);
        let names: Vec<_> = bars.iter().map(|bar| bar.attribute("data-name").unwrap()).collect();
        assert_eq!(names, ["all samples", "worker loop", "nat.rs:1 packet", "Map::<get>", "settle"]);
        let reported: Vec<_> = bars.iter().map(|bar| bar.first_child().unwrap().text().unwrap()).collect();
        assert_eq!(reported[2], "nat.rs:1 packet: 3 samples, 75.0 %");
        let texts: Vec<_> = document.descendants().filter_map(|node| node.text()).collect();
        for text in ["nat: <time> & \"lines\"", "one & two", "the function's lines 75.0 %", "the engine 25.0 %"] {
            assert!(texts.contains(&text), "{text}: {texts:?}");
        }
    }

    #[test]
    fn names_are_as_long_as_there_is_room() {
        assert_eq!(fitting("nat.rs:1 packet", 200.0), "nat.rs:1 packet");
        assert_eq!(fitting("nat.rs:1 packet", 60.0), "nat.rs:…");
        assert_eq!(fitting("nat.rs:1 packet", 20.0), "");
        assert_eq!(fitting("nat.rs:1 packet", 0.0), "");
    }

    proptest! {
        #[test]
        fn bars_lie_on_those_that_called_them(stacks in prop::collection::vec(
            (prop::collection::vec(0_usize..4, 1..6), 1_u64..500), 1..30,
        )) {
            let names = ["a", "b", "c & d", "<e>"];
            let total: u64 = stacks.iter().map(|(_, samples)| samples).sum();
            let stacks = stacks.into_iter().map(|(stack, samples)| {
                (stack.into_iter().map(|at| (Part::Own, names[at])).collect(), samples)
            });
            let svg = flame(Bar::of(stacks)).svg();
            let document = roxmltree::Document::parse(&svg).unwrap();
            let mut below: Vec<(f64, f64)> = Vec::new();
            let mut lowest = 0.0;
            for bar in shown(&document) {
                let (from, of, depth) = (number(bar, "data-from"), number(bar, "data-of"), number(bar, "data-depth") as usize);
                below.truncate(depth);
                if let Some((start, end)) = below.last() {
                    prop_assert!(*start <= from && from + of <= *end);
                }
                lowest += if depth == 1 { of } else { 0.0 };
                below.push((from, from + of));
                let rect = bar.children().find(|node| node.has_tag_name("rect")).unwrap();
                let (x, width) = (number(rect, "x"), number(rect, "width"));
                prop_assert!((x - MARGIN - from / total as f64 * 1180.0).abs() < 0.01);
                prop_assert!((width - drawn(of / total as f64 * 1180.0)).abs() < 0.01);
            }
            prop_assert!((lowest - total as f64).abs() < 0.5, "every sample is drawn");
        }
    }
}
