//! Line plots over a number of cores or a share, as standalone SVG.

use std::fmt::Write;

/// A line with a name.
pub(super) struct Line {
    pub(super) name: String,
    pub(super) points: Vec<Point>,
}

/// A point, and whether it was modelled.
#[derive(Clone, Copy)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) modelled: bool,
}

/// A plot. Measured points are filled, modelled ones hollow.
pub(super) struct Plot<'a> {
    pub(super) title: String,
    pub(super) x_label: &'a str,
    pub(super) y_label: &'a str,
    pub(super) lines: Vec<Line>,
}

/// Colours that people with any colour vision can tell apart (Okabe, Ito, 2008), on light and dark backgrounds.
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9", "#8a8a8a"];
const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 112.0;
const TOP: f64 = 52.0;
const BOTTOM: f64 = 50.0;
/// The least distance between labels at the ends of lines.
const NAME_HEIGHT: f64 = 14.0;
/// The distance from the end of a line to its label.
const NAME_GAP: f64 = 18.0;

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
                // Hollow on any background: no fill.
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
        let ends: Vec<f64> = names.iter().map(|(end, ..)| *end).collect();
        for ((end, name, colour), at) in names.into_iter().zip(apart(&ends)) {
            if (at - end).abs() > NAME_HEIGHT / 2.0 {
                // A label that was moved is connected to its line.
                let (from, to) = (WIDTH - RIGHT + 4.0, WIDTH - RIGHT + NAME_GAP - 2.0);
                let _ = writeln!(
                    out,
                    r#"<path d="M{from:.1} {end:.1}L{to:.1} {at:.1}" stroke="{colour}" stroke-width="0.8"/>"#
                );
            }
            let _ = writeln!(
                out,
                r#"<text x="{:.1}" y="{:.1}" fill="{colour}">{}</text>"#,
                WIDTH - RIGHT + NAME_GAP,
                at + 4.0,
                escaped(name)
            );
        }
        out + "</svg>\n"
    }
}

/// The heights of labels for lines that end at these heights, uppermost first: as near as possible without overlap, and beside the lines,
/// not beside the axis text below.
fn apart(ends: &[f64]) -> Vec<f64> {
    let mut places: Vec<f64> = ends.to_vec();
    let mut least = TOP;
    for place in &mut places {
        *place = place.max(least);
        least = *place + NAME_HEIGHT;
    }
    let mut most = HEIGHT - BOTTOM;
    for place in places.iter_mut().rev() {
        *place = place.min(most);
        most = *place - NAME_HEIGHT;
    }
    places
}

/// The distance between the marks of an axis that begins at 0, and its end.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A text's box: left, top, right, bottom. Letters are seven tenths of their height wide at most.
    fn boxes(svg: &str) -> Vec<([f64; 4], String)> {
        let value = |line: &str, name: &str| -> Option<f64> {
            line.split(&format!("{name}=\"")).nth(1)?.split('"').next()?.parse().ok()
        };
        let of = |line: &str| {
            let words = line.split_once('>')?.1.split_once("</text>")?.0.to_owned();
            let (x, y) = (value(line, " x")?, value(line, " y")?);
            let wide = words.chars().count() as f64 * 12.0 * 0.6;
            let left = match line.split("text-anchor=\"").nth(1).and_then(|rest| rest.split('"').next()) {
                Some("middle") => x - wide / 2.0,
                Some("end") => x - wide,
                _ => x,
            };
            Some(([left, y - 10.0, left + wide, y + 3.0], words))
        };
        svg.lines().filter(|line| line.starts_with("<text")).filter_map(of).collect()
    }

    fn collisions(svg: &str) -> Vec<(String, String)> {
        let boxes = boxes(svg);
        let mut found = Vec::new();
        for (index, (one, name)) in boxes.iter().enumerate() {
            for (other, beside) in &boxes[index + 1..] {
                if one[0] < other[2] && other[0] < one[2] && one[1] < other[3] && other[1] < one[3] {
                    found.push((name.clone(), beside.clone()));
                }
            }
        }
        found
    }

    fn plot(ends: &[f64]) -> String {
        let line = |(index, end): (usize, &f64)| Line {
            name: format!("heavy-hitter {index}"),
            points: [(1.0, 1.0), (16.0, *end)].map(|(x, y)| Point { x, y, modelled: false }).to_vec(),
        };
        let lines = ends.iter().enumerate().map(line).collect();
        Plot { title: "a title".to_owned(), x_label: "cores", y_label: "Mpps", lines }.svg()
    }

    #[test]
    fn names_touch_neither_each_other_nor_the_axes() {
        for ends in [
            [4.2, 1.7, 1.6, 1.5, 1.4, 1.3, 1.2].as_slice(),
            &[0.1, 0.1, 0.1, 0.1, 0.1, 10.0],
            &[0.0; 7],
            &[9.9, 9.95, 10.0, 9.98, 9.97],
            &[5.0; 7],
            &[1.0, 9.0],
        ] {
            let svg = plot(ends);
            assert_eq!(collisions(&svg), [], "{ends:?}");
            let names = boxes(&svg).into_iter().filter(|(_, words)| words.starts_with("heavy"));
            for (place, name) in names {
                assert!(place[1] >= TOP - 12.0 && place[3] <= HEIGHT - BOTTOM + 8.0, "{ends:?}: {name} {place:?}");
            }
        }
        assert!(!collisions("<text x=\"1\" y=\"9\">a</text>\n<text x=\"2\" y=\"12\">b</text>").is_empty());
    }

    #[test]
    fn figures_of_the_pages_have_no_names_that_collide() {
        let folder = crate::check::root().join("docs/results");
        let mut seen = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|ending| ending == "svg") {
                seen += 1;
                assert_eq!(collisions(&std::fs::read_to_string(&path).unwrap()), [], "{}", path.display());
            }
        }
        assert!(seen > 10, "{seen} figures");
    }
}
