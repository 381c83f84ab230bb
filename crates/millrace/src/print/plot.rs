//! Plots as SVG: lines over a measured quantity, and marks along a logarithmic axis. The page around them sets fonts and colours
//! ([`super::page`]).

use std::fmt::Write;

use maud::{Markup, PreEscaped};

use super::number::time;

/// A line, or a horizontal level.
pub(crate) struct Line {
    pub(crate) name: String,
    /// Index in [`COLOURS`].
    pub(crate) colour: usize,
    pub(crate) points: Vec<Point>,
    /// A constant value, drawn as a dashed line across.
    pub(crate) level: Option<f64>,
}

/// A median with its spread.
#[derive(Clone, Copy)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) from: f64,
    pub(crate) to: f64,
    /// True for a hollow point with a dashed line to it.
    pub(crate) modelled: bool,
}

/// Lines in a frame.
pub(crate) struct Chart<'a> {
    pub(crate) title: &'a str,
    pub(crate) x_label: &'a str,
    pub(crate) y_label: &'a str,
    /// Positions of the marks of the horizontal axis.
    pub(crate) ticks: Vec<f64>,
    pub(crate) lines: Vec<Line>,
}

/// A row of marks on a logarithmic axis.
pub(crate) struct Marks {
    pub(crate) name: String,
    /// Value and shape.
    pub(crate) marks: Vec<(f64, Shape)>,
}

/// Shape of a mark.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Shape {
    Dot,
    Ring,
    Bar,
    Diamond,
}

/// Rows of marks in a frame.
pub(crate) struct Strips<'a> {
    pub(crate) title: &'a str,
    pub(crate) x_label: &'a str,
    /// Meaning of the shapes.
    pub(crate) legend: Vec<(Shape, &'a str)>,
    pub(crate) rows: Vec<Marks>,
}

/// Colours that people with any colour vision can distinguish (Okabe, Ito, 2008), dark enough for paper; then greys, and three more for
/// other lines. Each with its variant for a dark screen.
pub(crate) const COLOURS: [(&str, &str); 11] = [
    ("#0072b2", "#56b4e9"),
    ("#d55e00", "#ff8c3a"),
    ("#009e73", "#2fc79b"),
    ("#a8487f", "#e08cbc"),
    ("#b8860b", "#e0b23c"),
    ("#7a4a21", "#c49a6c"),
    ("#4d4d4d", "#c8c8c8"),
    ("#8a8a8a", "#9a9a9a"),
    ("#c21807", "#ff6b5a"),
    ("#000000", "#ffffff"),
    ("#3aa0d8", "#8fd0f5"),
];

/// A colour as a CSS variable, which follows light or dark.
fn ink(colour: usize) -> String {
    format!("var(--c{})", colour % COLOURS.len())
}

const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 104.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 48.0;
/// Minimum distance of names at the ends of lines.
const NAME_HEIGHT: f64 = 13.5;
/// Minimum distance of numbers along the horizontal axis; closer marks have no number.
const TICK_WIDTH: f64 = 21.0;
/// Ratio of largest to smallest value from which the axis is logarithmic.
const WIDE: f64 = 25.0;

/// Mapping of values to positions along an axis.
struct Axis {
    from: f64,
    to: f64,
    start: f64,
    end: f64,
    log: bool,
}

impl Axis {
    fn at(&self, value: f64) -> f64 {
        let part = if self.log {
            (value.max(self.from) / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        };
        self.start + part * (self.end - self.start)
    }

    /// An axis from zero, or, for a wide range of values, from the decade below the smallest.
    fn of(values: &[f64], start: f64, end: f64) -> (Self, Vec<f64>) {
        let (least, most) = extent(values);
        if most / least > WIDE { Self::decades(least, most, start, end) } else { Self::from_zero(most, start, end) }
    }

    fn from_zero(most: f64, start: f64, end: f64) -> (Self, Vec<f64>) {
        let rough = most / 5.0;
        let decade = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().map(|part| part * decade).find(|step| *step >= rough);
        let step = step.unwrap_or(rough);
        let count = (most / step).ceil().max(1.0);
        let ticks = (0..=count as usize).map(|tick| tick as f64 * step).collect();
        (Self { from: 0.0, to: count * step, start, end, log: false }, ticks)
    }

    fn decades(least: f64, most: f64, start: f64, end: f64) -> (Self, Vec<f64>) {
        let parts: &[f64] = if most / least > 1e4 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let first = least.log10().floor() as i32;
        let all: Vec<f64> =
            (first..=first + 14).flat_map(|decade| parts.iter().map(move |part| part * 10_f64.powi(decade))).collect();
        let below = all.iter().rposition(|tick| *tick <= least * 1.0001).unwrap_or(0);
        let above = all.iter().position(|tick| *tick >= most * 0.9999).unwrap_or(all.len() - 1).max(below + 1);
        (Self { from: all[below], to: all[above], start, end, log: true }, all[below..=above].to_vec())
    }
}

fn extent(values: &[f64]) -> (f64, f64) {
    let some = || values.iter().copied().filter(|value| value.is_finite() && *value > 0.0);
    let least = some().fold(f64::INFINITY, f64::min);
    if least.is_finite() { (least, some().fold(least, f64::max)) } else { (1.0, 1.0) }
}

impl Chart<'_> {
    /// The picture.
    pub(crate) fn svg(&self) -> Markup {
        let values: Vec<f64> =
            self.lines.iter().flat_map(|line| line.points.iter().map(|point| point.y).chain(line.level)).collect();
        let (y, y_ticks) = Axis::of(&values, HEIGHT - BOTTOM, TOP);
        let first = self.ticks.iter().copied().fold(f64::INFINITY, f64::min);
        let last = self.ticks.iter().copied().fold(first, f64::max);
        let margin = ((last - first) * 0.04).max(0.1);
        let x = Axis { from: first - margin, to: last + margin, start: LEFT, end: WIDTH - RIGHT, log: false };
        let mut out = open(self.title, HEIGHT);
        for tick in y_ticks {
            let at = y.at(tick);
            let _ = write!(out, r##"<path class="grid" d="M{LEFT} {at:.1}H{:.1}"/>"##, WIDTH - RIGHT);
            text(&mut out, LEFT - 7.0, at + 4.0, "end", "tick", &plain(tick));
        }
        let mut labelled = f64::NEG_INFINITY;
        for tick in &self.ticks {
            let at = x.at(*tick);
            let base = HEIGHT - BOTTOM;
            let _ = write!(out, r##"<path class="axis" d="M{at:.1} {base}v4"/>"##);
            if at - labelled < TICK_WIDTH {
                continue;
            }
            labelled = at;
            text(&mut out, at, base + 17.0, "middle", "tick", &plain(*tick));
        }
        let _ = write!(out, r##"<path class="axis" d="M{LEFT} {}H{:.1}"/>"##, HEIGHT - BOTTOM, WIDTH - RIGHT);
        text(&mut out, f64::midpoint(LEFT, WIDTH - RIGHT), HEIGHT - 10.0, "middle", "label", self.x_label);
        text(&mut out, 4.0, TOP - 10.0, "start", "label", self.y_label);
        let mut names = Vec::new();
        for line in &self.lines {
            let colour = ink(line.colour);
            if let Some(level) = line.level {
                let at = y.at(level);
                let _ = write!(
                    out,
                    r##"<path d="M{LEFT} {at:.1}H{:.1}" style="stroke:{colour}" stroke-dasharray="2 4" fill="none" stroke-width="1.6"/>"##,
                    WIDTH - RIGHT
                );
                names.push((at, &line.name, line.colour));
            }
            for pair in line.points.windows(2) {
                let dashes = if pair[1].modelled { r##" stroke-dasharray="5 4""## } else { "" };
                let (a, b) = (pair[0], pair[1]);
                let _ = write!(
                    out,
                    r##"<path d="M{:.1} {:.1}L{:.1} {:.1}" style="stroke:{colour}" fill="none" stroke-width="1.8"{dashes}/>"##,
                    x.at(a.x),
                    y.at(a.y),
                    x.at(b.x),
                    y.at(b.y)
                );
            }
            for point in &line.points {
                let at = x.at(point.x);
                let _ = write!(
                    out,
                    r##"<path d="M{at:.1} {:.1}V{:.1}" style="stroke:{colour}" stroke-width="1" opacity="0.55"/>"##,
                    y.at(point.from.clamp(y.from, y.to)),
                    y.at(point.to.clamp(y.from, y.to))
                );
                let fill = if point.modelled { "var(--paper)" } else { &colour };
                let _ = write!(
                    out,
                    r##"<circle cx="{at:.1}" cy="{:.1}" r="2.9" style="fill:{fill};stroke:{colour}" stroke-width="1.4"/>"##,
                    y.at(point.y)
                );
            }
            if let Some(last) = line.points.last() {
                names.push((y.at(last.y), &line.name, line.colour));
            }
        }
        for (at, line_end, name, colour) in spread_out(names) {
            let (x, colour) = (WIDTH - RIGHT, ink(colour));
            let _ = write!(
                out,
                r##"<path d="M{:.1} {line_end:.1}L{:.1} {at:.1}" style="stroke:{colour}" stroke-width="0.8" fill="none" opacity="0.6"/>"##,
                x - 2.0,
                x + 9.0
            );
            let _ = write!(out, r##"<g style="fill:{colour}">"##);
            text(&mut out, x + 12.0, at + 4.0, "start", "name", name);
            out += "</g>";
        }
        PreEscaped(out + "</svg>")
    }
}

/// Positions of names at the ends of their lines, moved apart where they would overlap: position of the name, and end of its line.
fn spread_out(mut names: Vec<(f64, &String, usize)>) -> Vec<(f64, f64, &str, usize)> {
    names.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut at: Vec<f64> = names.iter().map(|(at, ..)| *at).collect();
    for index in 1..at.len() {
        at[index] = at[index].max(at[index - 1] + NAME_HEIGHT);
    }
    // What was pushed out below comes back up.
    let mut floor = HEIGHT - BOTTOM + 8.0;
    for place in at.iter_mut().rev() {
        *place = place.min(floor);
        floor = *place - NAME_HEIGHT;
    }
    names.into_iter().zip(at).map(|((end, name, colour), at)| (at, end, name.as_str(), colour)).collect()
}

/// Width for the names of strips.
const NAMES: f64 = 170.0;
const STRIP: f64 = 21.0;

impl Strips<'_> {
    /// The picture.
    pub(crate) fn svg(&self) -> Markup {
        let values: Vec<f64> = self.rows.iter().flat_map(|row| row.marks.iter().map(|(value, _)| *value)).collect();
        let (least, most) = extent(&values);
        let width = 760.0;
        let (x, ticks) = Axis::decades(least, most, NAMES, width - 24.0);
        let top = TOP + 22.0;
        let base = top + STRIP * self.rows.len() as f64;
        let height = base + 46.0;
        let mut out = open_wide(self.title, width, height);
        let mut at = NAMES;
        for (shape, meaning) in &self.legend {
            mark(&mut out, at, TOP - 8.0, *shape);
            text(&mut out, at + 9.0, TOP - 4.0, "start", "tick", meaning);
            at += 30.0 + meaning.len() as f64 * 6.4;
        }
        for tick in ticks {
            let at = x.at(tick);
            let _ = write!(out, r##"<path class="grid" d="M{at:.1} {:.1}V{base:.1}"/>"##, top - 6.0);
            text(&mut out, at, base + 15.0, "middle", "tick", &time(tick));
        }
        for (index, row) in self.rows.iter().enumerate() {
            let at = top + STRIP * (index as f64 + 0.5);
            text(&mut out, NAMES - 12.0, at + 4.0, "end", "name", &row.name);
            let ends = extent(&row.marks.iter().map(|(value, _)| *value).collect::<Vec<_>>());
            let _ = write!(out, r##"<path class="reach" d="M{:.1} {at:.1}H{:.1}"/>"##, x.at(ends.0), x.at(ends.1));
            for (value, shape) in &row.marks {
                mark(&mut out, x.at(*value), at, *shape);
            }
        }
        text(&mut out, f64::midpoint(NAMES, width - 24.0), height - 8.0, "middle", "label", self.x_label);
        PreEscaped(out + "</svg>")
    }
}

fn mark(out: &mut String, x: f64, y: f64, shape: Shape) {
    let _ = match shape {
        Shape::Dot => write!(out, r##"<circle cx="{x:.1}" cy="{y:.1}" r="4" style="fill:{}"/>"##, ink(0)),
        Shape::Ring => write!(
            out,
            r##"<circle cx="{x:.1}" cy="{y:.1}" r="4" style="fill:var(--paper);stroke:{}" stroke-width="1.6"/>"##,
            ink(0)
        ),
        Shape::Bar => {
            write!(out, r##"<path d="M{x:.1} {:.1}v12" style="stroke:{}" stroke-width="2.6"/>"##, y - 6.0, ink(2))
        }
        Shape::Diamond => {
            write!(out, r##"<path d="M{x:.1} {:.1}l5 5l-5 5l-5 -5z" style="fill:{}"/>"##, y - 5.0, ink(1))
        }
    };
}

fn open(title: &str, height: f64) -> String {
    open_wide(title, WIDTH, height)
}

fn open_wide(title: &str, width: f64, height: f64) -> String {
    format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height:.0}" role="img" aria-label="{0}"><title>{0}</title>"##,
        escaped(title)
    )
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, class: &str, words: &str) {
    let words = escaped(words);
    let _ = write!(out, r##"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}" class="{class}">{words}</text>"##);
}

/// Escapes text for XML.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A number on an axis: `0`, `2.5`, `20`, `12k`.
fn plain(number: f64) -> String {
    if number >= 1e6 {
        format!("{}M", (number / 1e5).round() / 10.0)
    } else if number >= 1e4 {
        format!("{}k", (number / 1e2).round() / 10.0)
    } else {
        format!("{}", (number * 1e3).round() / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_hold_what_they_show() {
        for values in [vec![3.0, 7.0], vec![0.02, 0.021], vec![20.0, 31.0, 480.0], vec![5.0, 5e5], vec![100.0]] {
            let (axis, ticks) = Axis::of(&values, 0.0, 100.0);
            assert!((2..=16).contains(&ticks.len()), "{ticks:?}");
            assert!(ticks.is_sorted());
            for value in values {
                assert!((-0.01..=100.01).contains(&axis.at(value)), "{value} in {ticks:?}");
            }
        }
    }

    #[test]
    fn names_keep_their_distance() {
        let name = String::from("x");
        let ends = [100.0, 101.0, 102.0, 270.0, 271.0];
        let places = spread_out(ends.iter().map(|end| (*end, &name, 0)).collect());
        assert!(places.windows(2).all(|pair| pair[1].0 - pair[0].0 >= NAME_HEIGHT - 1e-9));
        assert!(places.iter().all(|(at, ..)| *at <= HEIGHT - BOTTOM + 8.0));
    }
}
