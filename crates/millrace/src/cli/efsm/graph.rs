//! Draws a program as SVG: a panel for each stage with its states, its transitions and its rows, and arrows from stage to stage.

use std::fmt::Write;

use crate::print::plot::escaped;
use efsm::Machine;
use efsm::machine::{Next, Operand, Row, SetState, Stage, Value};

/// Width of a character of the text, in pixels.
const LETTER: f64 = 7.3;
/// Height of a line of text.
const LINE: f64 = 18.0;
/// Free space around things.
const GAP: f64 = 16.0;
/// Radius of a state.
const RADIUS: f64 = 26.0;
/// Between the centres of two states.
const STEP: f64 = 150.0;
/// Height of the part of a panel that shows the states.
const STATES: f64 = 220.0;
/// Room to the right of the panels for arrows between stages.
const MARGIN: f64 = 90.0;

/// A state in a drawing: its label and what a row has to name it by.
struct State {
    label: String,
    value: Option<u64>,
}

/// The program's picture. `text` is its source, of which each panel shows its rows.
pub(super) fn svg(machine: &Machine, text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let row_text = |row: &Row| {
        let line = lines.get(row.line as usize - 1).copied().unwrap_or_default();
        let words = line.split('#').next().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
        format!("{:>3}  {words}", row.line)
    };
    let widest = machine.stages.iter().flat_map(|stage| &stage.rows).map(|row| row_text(row).chars().count()).max();
    let most = machine.stages.iter().map(|stage| states(stage).len()).max().unwrap_or(1);
    let width = (widest.unwrap_or(0) as f64 * LETTER + 2.0 * GAP).max(most as f64 * STEP + 2.0 * GAP);
    let mut panels = String::new();
    let mut tops = Vec::new();
    let mut y = GAP;
    for stage in &machine.stages {
        tops.push(y);
        y += panel(&mut panels, stage, y, width, &row_text) + GAP;
    }
    let arrows = between(machine, &tops, width);
    let (total_width, total_height) = (width + 2.0 * GAP + MARGIN, y);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{total_width:.0}\" height=\"{total_height:.0}\" \
         viewBox=\"0 0 {total_width:.0} {total_height:.0}\" font-family=\"monospace\" font-size=\"12\">\n\
         <defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" \
         orient=\"auto-start-reverse\"><path d=\"M0 0 8 4 0 8z\" fill=\"#333\"/></marker></defs>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{panels}{arrows}</svg>\n"
    )
}

/// Draws a stage and returns its height.
fn panel(out: &mut String, stage: &Stage, y: f64, width: f64, row_text: &dyn Fn(&Row) -> String) -> f64 {
    let states = states(stage);
    let has_states = stage.keys.is_some();
    let drawn = if has_states { STATES } else { 0.0 };
    let height = LINE + GAP + drawn + stage.rows.len() as f64 * LINE + GAP;
    let title = if has_states { escaped(&stage.name) } else { format!("{} (no state)", escaped(&stage.name)) };
    put(
        out,
        format_args!(
            "<rect x=\"{GAP}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"6\" fill=\"#f7f7f5\" stroke=\"#999\"/>"
        ),
    );
    put(out, format_args!("<text x=\"{}\" y=\"{}\" font-weight=\"bold\">stage {title}</text>", 2.0 * GAP, y + LINE));
    if has_states {
        transitions(out, stage, &states, y + LINE + STATES / 2.0);
    }
    for (at, row) in stage.rows.iter().enumerate() {
        let line = y + LINE + GAP + drawn + at as f64 * LINE + 8.0;
        put(
            out,
            format_args!(
                "<text x=\"{}\" y=\"{line}\" xml:space=\"preserve\">{}</text>",
                2.0 * GAP,
                escaped(&row_text(row))
            ),
        );
    }
    height
}

/// The states that rows name, in order of their values; and "any" or "other" where rows match in states without a name.
fn states(stage: &Stage) -> Vec<State> {
    let mut values: Vec<u64> = stage.rows.iter().filter_map(|row| row.state).collect();
    for set in stage.rows.iter().filter_map(|row| row.set_state) {
        values.extend(target(&set));
        values.extend([set.idle, set.hard].into_iter().flatten().filter_map(|timeout| timeout.fallback));
    }
    values.sort_unstable();
    values.dedup();
    let label = |value: u64| stage.state_name(value).map_or_else(|| value.to_string(), str::to_owned);
    let mut states: Vec<_> = values.iter().map(|value| State { label: label(*value), value: Some(*value) }).collect();
    if stage.rows.iter().any(|row| row.state.is_none() || row.set_state.is_some_and(|set| target(&set).is_none())) {
        states.push(State { label: "*".into(), value: None });
    }
    states
}

/// The state that a row sets; `None` if it is calculated.
const fn target(set: &SetState) -> Option<u64> {
    match set.state {
        Value::Operand(Operand::Constant(value)) => Some(value as u64),
        _ => None,
    }
}

/// Draws the states of a stage in a row, and the transitions as arcs with the numbers of their lines.
fn transitions(out: &mut String, stage: &Stage, states: &[State], middle: f64) {
    let x = |at: usize| GAP + STEP / 2.0 + 30.0 + at as f64 * STEP;
    let place = |value: Option<u64>| states.iter().position(|state| state.value == value).unwrap_or(states.len() - 1);
    // Rows between the same two states share an arc.
    let mut arcs: Vec<(usize, usize, bool, Vec<String>)> = Vec::new();
    let mut add = |from: usize, to: usize, timeout: bool, label: String| match arcs
        .iter_mut()
        .find(|arc| (arc.0, arc.1, arc.2) == (from, to, timeout))
    {
        Some((.., labels)) if !labels.contains(&label) => labels.push(label),
        Some(_) => {}
        None => arcs.push((from, to, timeout, vec![label])),
    };
    for row in &stage.rows {
        let from = place(row.state);
        let to = row.set_state.map_or(from, |set| place(target(&set)));
        add(from, to, false, row.line.to_string());
        for (name, timeout) in row.set_state.into_iter().flat_map(|set| [("idle", set.idle), ("hard", set.hard)]) {
            if let Some(timeout) = timeout {
                let gone = states.iter().position(|state| state.value == Some(0));
                let end = timeout.fallback.map(|state| place(Some(state))).or(gone);
                if let Some(end) = end {
                    add(to, end, true, format!("{name} {}s", timeout.span.as_secs_f64()));
                }
            }
        }
    }
    for (from, to, timeout, labels) in arcs {
        let style = if timeout { " stroke-dasharray=\"4 3\"" } else { "" };
        let label = escaped(&labels.join(", "));
        let (a, b) = (x(from), x(to));
        if from == to && timeout {
            continue;
        }
        if from == to {
            let top = middle - RADIUS;
            put(
                out,
                format_args!(
                    "<path d=\"M{} {top}C{} {} {} {} {} {top}\" fill=\"none\" stroke=\"#333\" marker-end=\"url(#tip)\"/>",
                    a - 8.0,
                    a - 26.0,
                    top - 34.0,
                    a + 26.0,
                    top - 34.0,
                    a + 8.0
                ),
            );
            put(
                out,
                format_args!(
                    "<text x=\"{a}\" y=\"{}\" text-anchor=\"middle\" fill=\"#555\">{label}</text>",
                    top - 30.0
                ),
            );
            continue;
        }
        // To the right above, to the left below; the further, the higher.
        let up = if a < b { -1.0 } else { 1.0 };
        let deeper = if timeout { 16.0 } else { 0.0 };
        let lift = up * (deeper + (20.0 + 16.0 * from.abs_diff(to) as f64).min(70.0));
        let inset = if a < b { 16.0 } else { -16.0 };
        let (start, end) = (a + inset, b - inset);
        let edge = middle + up * (RADIUS - 5.0);
        put(
            out,
            format_args!(
                "<path d=\"M{start} {edge}Q{} {} {end} {edge}\" fill=\"none\" stroke=\"#333\"{style} marker-end=\"url(#tip)\"/>",
                f64::midpoint(a, b),
                edge + 1.6 * lift
            ),
        );
        let offset = if up < 0.0 { -4.0 } else { 12.0 };
        put(
            out,
            format_args!(
                "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\" fill=\"#555\">{label}</text>",
                f64::midpoint(a, b),
                edge + 0.8 * lift + offset
            ),
        );
    }
    for (at, state) in states.iter().enumerate() {
        put(
            out,
            format_args!(
                "<circle cx=\"{}\" cy=\"{middle}\" r=\"{RADIUS}\" fill=\"#fff\" stroke=\"#333\" stroke-width=\"1.5\"/>",
                x(at)
            ),
        );
        let short: String = state.label.chars().take(18).collect();
        let size = if short.chars().count() > 7 { 8 } else { 12 };
        put(
            out,
            format_args!(
                "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\" font-size=\"{size}\">{}</text>",
                x(at),
                middle + 4.0,
                escaped(&short)
            ),
        );
    }
}

/// Arrows from each stage to the stages that its rows send packets to.
fn between(machine: &Machine, tops: &[f64], width: f64) -> String {
    let mut out = String::new();
    let right = GAP + width;
    for (from, stage) in machine.stages.iter().enumerate() {
        let mut next: Vec<usize> = stage
            .rows
            .iter()
            .filter_map(|row| match row.next {
                Next::Goto(stage) => Some(usize::from(stage)),
                Next::Out(_) | Next::Copy(..) | Next::Make(..) | Next::Drop | Next::Miss | Next::Keyless => None,
            })
            .collect();
        next.sort_unstable();
        next.dedup();
        for to in next {
            let (start, end) = (tops[from] + 26.0 + 5.0 * (to - from) as f64, tops[to] + 12.0);
            let bend = right + 18.0 + 16.0 * (to - from) as f64;
            put(
                &mut out,
                format_args!(
                    "<path d=\"M{right} {start}C{bend} {start} {bend} {end} {right} {end}\" fill=\"none\" stroke=\"#06c\" marker-end=\"url(#tip)\"/>"
                ),
            );
        }
    }
    out
}

fn put(out: &mut String, element: std::fmt::Arguments<'_>) {
    // Writing to a string can't fail.
    let _ = writeln!(out, "{element}");
}
