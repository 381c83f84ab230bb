//! Lines over a number of cores or a share, as SVG that stands by itself beside a page.

use std::fmt::Write;

/// A line with a name.
pub(super) struct Line {
    pub(super) name: String,
    pub(super) points: Vec<Point>,
}

/// A point: where, and whether it was modelled.
#[derive(Clone, Copy)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) modelled: bool,
}

/// A picture: points that were measured are filled, modelled ones hollow.
pub(super) struct Plot<'a> {
    pub(super) title: String,
    pub(super) x_label: &'a str,
    pub(super) y_label: &'a str,
    pub(super) lines: Vec<Line>,
}

/// Colours that people with any colour vision tell apart (Okabe, Ito, 2008), which show on light and on dark.
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9", "#8a8a8a"];
const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 112.0;
const TOP: f64 = 52.0;
const BOTTOM: f64 = 50.0;
/// The least distance of names at the ends of lines.
const NAME_HEIGHT: f64 = 14.0;

impl Plot<'_> {
    pub(super) fn svg(&self) -> String {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let largest = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
        let (x_most, y_most) =
            (largest(&mut points().map(|point| point.x)), largest(&mut points().map(|point| point.y)));
        let (y_step, y_end) = ticks(y_most);
        let x = |value: f64| LEFT + value / x_most.max(1e-9) * (WIDTH - RIGHT - LEFT);
        let y = |value: f64| HEIGHT - BOTTOM - value / y_end * (HEIGHT - BOTTOM - TOP);
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
             font-family=\"sans-serif\" font-size=\"12\" fill=\"#808080\">\n<title>{}</title>\n",
            escaped(&self.title)
        );
        text(&mut out, 8.0, 18.0, "start", &self.title);
        text(&mut out, 8.0, TOP - 12.0, "start", self.y_label);
        text(&mut out, f64::midpoint(LEFT, WIDTH - RIGHT), HEIGHT - 10.0, "middle", self.x_label);
        for tick in (0..).map(|tick| f64::from(tick) * y_step).take_while(|tick| *tick <= y_end * 1.001) {
            let at = y(tick);
            let _ = writeln!(
                out,
                r##"<path d="M{LEFT} {at:.1}H{:.1}" stroke="#808080" stroke-opacity="0.3"/>"##,
                WIDTH - RIGHT
            );
            text(&mut out, LEFT - 6.0, at + 4.0, "end", &number(tick));
        }
        let mut marks: Vec<f64> = points().map(|point| point.x).collect();
        marks.sort_by(f64::total_cmp);
        marks.dedup();
        let mut last = f64::NEG_INFINITY;
        for mark in marks {
            let at = x(mark);
            if at - last >= 20.0 {
                text(&mut out, at, HEIGHT - BOTTOM + 17.0, "middle", &number(mark));
                last = at;
            }
        }
        let mut names: Vec<(f64, &str, &str)> = Vec::new();
        for (index, line) in self.lines.iter().enumerate() {
            let colour = COLOURS[index % COLOURS.len()];
            for pair in line.points.windows(2) {
                let dashes = if pair[1].modelled { r#" stroke-dasharray="5 4""# } else { "" };
                let _ = writeln!(
                    out,
                    r#"<path d="M{:.1} {:.1}L{:.1} {:.1}" stroke="{colour}" stroke-width="1.8"{dashes}/>"#,
                    x(pair[0].x),
                    y(pair[0].y),
                    x(pair[1].x),
                    y(pair[1].y)
                );
            }
            for point in &line.points {
                // Hollow on any ground: nothing inside.
                let fill = if point.modelled { "none" } else { colour };
                let _ = writeln!(
                    out,
                    r#"<circle cx="{:.1}" cy="{:.1}" r="3.2" fill="{fill}" stroke="{colour}" stroke-width="1.4"/>"#,
                    x(point.x),
                    y(point.y)
                );
            }
            names.extend(line.points.last().map(|last| (y(last.y), line.name.as_str(), colour)));
        }
        names.sort_by(|one, other| one.0.total_cmp(&other.0));
        let mut below = TOP;
        for (at, name, colour) in names {
            below = at.max(below);
            let _ = writeln!(
                out,
                r#"<text x="{:.1}" y="{:.1}" fill="{colour}">{}</text>"#,
                WIDTH - RIGHT + 8.0,
                below + 4.0,
                escaped(name)
            );
            below += NAME_HEIGHT;
        }
        out + "</svg>\n"
    }
}

/// The distance of marks on an axis from zero, and its end.
fn ticks(most: f64) -> (f64, f64) {
    let rough = most.max(1e-9) / 5.0;
    let decade = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().map(|part| part * decade).find(|step| *step >= rough * 0.999);
    let step = step.unwrap_or(rough);
    (step, (most / step).ceil().max(1.0) * step)
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    let _ = writeln!(out, r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{}</text>"#, escaped(words));
}

fn number(value: f64) -> String {
    format!("{}", (value * 1e3).round() / 1e3)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
