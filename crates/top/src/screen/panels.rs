//! The panels: each as a title, a head and rows.

use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use super::text::{bar, left, right};
use super::{BOLD, Look};
use crate::number::{bps, count, load, percent, plain, pps, scaled, time};
use crate::view::{Panel, Shot};

/// Content of a panel.
pub(super) struct Content {
    pub(super) title: String,
    /// The line above the rows, which doesn't scroll.
    pub(super) head: Option<Line<'static>>,
    pub(super) rows: Vec<Line<'static>>,
}

impl Content {
    /// Rows for all of it with its border.
    pub(super) fn rows_wanted(&self) -> u16 {
        let rows = self.rows.len() + usize::from(self.head.is_some()) + 2;
        u16::try_from(rows).unwrap_or(u16::MAX)
    }
}

impl Panel {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Cores => "Cores",
            Self::Drops => "Drops",
            Self::State => "State",
            Self::Flows => "Flows",
            Self::Interfaces => "Interfaces",
        }
    }
}

/// Content of a panel of a width without its border.
pub(super) fn content(panel: Panel, shot: &Shot, width: u16, look: Look) -> Content {
    let width = usize::from(width);
    match panel {
        Panel::Cores => cores(shot, width, look),
        Panel::Drops => drops(shot, width, look),
        Panel::State => state(shot, width, look),
        Panel::Flows => flows(shot, width, look),
        Panel::Interfaces => interfaces(shot, width, look),
    }
}

fn cores(shot: &Shot, width: usize, look: Look) -> Content {
    let imbalance = shot.rates.as_ref().and_then(|rates| rates.imbalance());
    let title = match imbalance {
        Some(imbalance) if shot.stats.cores.len() > 1 => format!(" Cores: imbalance {imbalance:.2} "),
        _ => " Cores ".to_owned(),
    };
    let bar_width = width - 32;
    let row = |number: usize| {
        let now = shot.rates.as_ref().and_then(|rates| Some((rates.cores.get(number)?, rates.received)));
        let part = now.map(|((load, _), _)| *load);
        let stalls = shot.stats.stalled == Some(number as u64);
        let color = if stalls || part.is_some_and(|part| part >= 0.9) { Color::Red } else { Color::Cyan };
        Line::from(vec![
            Span::raw(right(&number.to_string(), 4)),
            Span::raw(right(&load(part), 6)),
            Span::raw(" "),
            Span::styled(bar(part.unwrap_or(0.0), bar_width), look.color(color)),
            Span::raw(right(&now.map_or_else(dash, |((_, rate), all)| percent(*rate, all)), 9)),
            Span::raw(right(&now.map_or_else(dash, |((_, rate), _)| pps(*rate)), 12)),
        ])
    };
    let head = format!("core  load {}{}{}", left("", bar_width), right("share", 9), right("received", 12));
    Content {
        title,
        head: Some(Line::styled(head, look.faint())),
        rows: (0..shot.stats.cores.len()).map(row).collect(),
    }
}

fn drops(shot: &Shot, width: usize, look: Look) -> Content {
    let all = shot.stats.dropped.iter().map(|dropped| dropped.packets as f64).sum();
    let mut order: Vec<usize> = (0..shot.stats.dropped.len()).collect();
    // The reasons with the most packets come first.
    order.sort_by_key(|at| std::cmp::Reverse(shot.stats.dropped[*at].packets));
    let row = |at: usize| {
        let dropped = &shot.stats.dropped[at];
        let rate = shot.rates.as_ref().and_then(|rates| rates.dropped_by.get(at));
        let cells =
            [rate.map_or_else(dash, |rate| pps(*rate)), percent(dropped.packets as f64, all), count(dropped.packets)];
        Line::raw(cells_of(&plain(&dropped.reason), &cells, &DROPS, width))
    };
    if order.is_empty() {
        return nothing(" Drops by reason ", "nothing dropped so far", look);
    }
    let head = cells_of("reason", &["now", "of all", "packets"].map(str::to_owned), &DROPS, width);
    Content {
        title: " Drops by reason ".to_owned(),
        head: Some(Line::styled(head, look.faint())),
        rows: order.into_iter().map(row).collect(),
    }
}

/// Widths of the columns behind the first one.
const DROPS: [usize; 3] = [11, 9, 15];
const FLOWS: [usize; 2] = [12, 13];
const INTERFACES: [usize; 2] = [12, 18];

fn state(shot: &Shot, width: usize, look: Look) -> Content {
    let (stats, mut rows) = (&shot.stats, Vec::new());
    let mut row = |name: &str, value: String| {
        rows.push(Line::from(vec![Span::styled(left(name, 14), look.faint()), Span::raw(value)]));
    };
    if stats.flows_max > 0 {
        let part = stats.flows as f64 / stats.flows_max as f64;
        let bar_width = (width - 14).saturating_sub(9).min(40);
        row("flow table", format!("{} {}", bar(part, bar_width), percent(stats.flows as f64, stats.flows_max as f64)));
        row("", format!("{} of {} flows", count(stats.flows), count(stats.flows_max)));
        let opened = shot.rates.as_ref().map_or_else(dash, |rates| scaled(rates.opened, "/s"));
        row("opened", format!("{opened}, {} so far", count(stats.flows_opened)));
    } else {
        row("flow table", "none".to_owned());
    }
    match stats.latency {
        Some(latency) if latency.packets > 0 => {
            row("latency", format!("median {}, 99 % {}", time(latency.p50_ns), time(latency.p99_ns)));
            row("", format!("99.9 % {}, worst {}", time(latency.p999_ns), time(latency.worst_ns)));
            row("", format!("of {} packets", count(latency.packets)));
        }
        _ => row("latency", "not measured".to_owned()),
    }
    if let Some(transactions) = stats.transactions {
        let rates = shot.rates.as_ref().and_then(|rates| rates.transactions);
        let now = rates.map_or_else(dash, |(committed, aborted)| {
            format!("{}, {} aborted", scaled(committed, "/s"), percent(aborted, committed + aborted))
        });
        row("transactions", now);
        let (committed, aborted) = (transactions.committed as f64, transactions.aborted as f64);
        row("", format!("{} aborted since the start", percent(aborted, committed + aborted)));
    }
    Content { title: " State ".to_owned(), head: None, rows }
}

fn flows(shot: &Shot, width: usize, look: Look) -> Content {
    let title = " Largest flows (estimated) ";
    if shot.stats.top_flows.is_empty() {
        return nothing(title, "no large flows in the last seconds", look);
    }
    let head = cells_of("flow", &["packets", "bits"].map(str::to_owned), &FLOWS, width);
    let room = width.saturating_sub(FLOWS.iter().sum());
    let mut rows = Vec::new();
    for flow in &shot.stats.top_flows {
        let cells = [pps(flow.packets_per_second as f64), bps(flow.bytes_per_second as f64 * 8.0)];
        let name = plain(&flow.flow);
        if name.width() <= room {
            rows.push(Line::raw(cells_of(&name, &cells, &FLOWS, width)));
        } else {
            // Both of its addresses matter, so it has a row to itself.
            rows.push(Line::raw(left(&name, width)));
            rows.push(Line::raw(cells_of("", &cells, &FLOWS, width)));
        }
    }
    Content { title: title.to_owned(), head: Some(Line::styled(head, look.faint())), rows }
}

fn interfaces(shot: &Shot, width: usize, look: Look) -> Content {
    let title = " Interfaces ";
    if shot.stats.interfaces.is_empty() {
        return nothing(title, "this run has no interfaces", look);
    }
    let head = cells_of("packets", &["now", "since the start"].map(str::to_owned), &INTERFACES, width);
    let mut rows = Vec::new();
    for (at, interface) in shot.stats.interfaces.iter().enumerate() {
        let trouble = interface.trouble.as_ref().map(|trouble| format!(": {}", plain(trouble))).unwrap_or_default();
        rows.push(Line::styled(left(&(plain(&interface.name) + &trouble), width), BOLD));
        for (number, (counter, packets)) in interface.counters.iter().enumerate() {
            let rate = shot.rates.as_ref().and_then(|rates| rates.interfaces.get(at)?.get(number));
            let cells = [rate.map_or_else(dash, |rate| pps(*rate)), count(*packets)];
            rows.push(Line::raw(cells_of(&format!("  {}", plain(counter)), &cells, &INTERFACES, width)));
        }
    }
    Content { title: title.to_owned(), head: Some(Line::styled(head, look.faint())), rows }
}

/// A first cell that takes what is left, and cells of given widths.
fn cells_of(first: &str, cells: &[String], widths: &[usize], width: usize) -> String {
    let taken: usize = widths.iter().sum();
    let cells = cells.iter().zip(widths).map(|(cell, width)| right(cell, *width));
    left(first, width.saturating_sub(taken)) + &cells.collect::<String>()
}

fn nothing(title: &str, text: &'static str, look: Look) -> Content {
    let style: Style = look.faint();
    Content { title: title.to_owned(), head: None, rows: vec![Line::styled(text, style)] }
}

fn dash() -> String {
    "-".to_owned()
}
