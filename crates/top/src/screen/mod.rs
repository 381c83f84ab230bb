//! Draws a view: header, rates, and panels as far as they fit.

mod panels;
mod text;

use ratatui::Frame;
use ratatui::layout::{Rect, Size};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Wrap};

use self::panels::{Content, content};
use self::text::{cut, left, right, spark};
use crate::number::{bps, percent, plain, pps, span};
use crate::view::{Panel, Shot, View};

/// The smallest terminal with a view.
const SMALLEST: Size = Size::new(60, 15);
/// From this size on all panels are shown at once.
const LARGE: Size = Size::new(100, 30);
/// Rows of the rates, with a blank one.
const RATES_ROWS: u16 = 6;
/// The least rows of a panel, with its border.
const PANEL_ROWS_MIN: u16 = 4;

/// Draws a view into a frame of any size.
pub fn draw(frame: &mut Frame<'_>, view: &mut View) {
    let area = frame.area();
    if area.width < SMALLEST.width || area.height < SMALLEST.height {
        let Size { width, height } = SMALLEST;
        let text =
            format!("{} x {} is too small: make this terminal at least {width} x {height}", area.width, area.height);
        return frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), area);
    }
    let style = Look { has_color: view.has_color };
    let row = |y, height| Rect { y: area.y + y, height, ..area };
    frame.render_widget(header(view, area.width, style), row(0, 1));
    frame.render_widget(Paragraph::new(rates(view.shot(), area.width, style)), row(1, RATES_ROWS));
    frame.render_widget(footer(view, area.width, style), row(area.height - 1, 1));
    let rest = row(1 + RATES_ROWS, area.height - 2 - RATES_ROWS);
    if area.width >= LARGE.width && area.height >= LARGE.height {
        all_panels(frame, view, rest, style);
    } else {
        one_panel(frame, view, rest, style);
    }
    if view.shows_help {
        help(frame, area);
    }
}

/// Colours, where there are some.
#[derive(Clone, Copy)]
struct Look {
    has_color: bool,
}

impl Look {
    fn color(self, color: Color) -> Style {
        if self.has_color { Style::new().fg(color) } else { Style::new() }
    }

    fn faint(self) -> Style {
        self.color(Color::DarkGray)
    }

    fn alarm(self) -> Style {
        self.color(Color::Red).add_modifier(Modifier::BOLD)
    }
}

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

fn header(view: &View, width: u16, look: Look) -> Line<'static> {
    let stats = &view.shot().stats;
    let (state, style) = if view.ended.is_some() {
        ("ended", look.alarm())
    } else if view.is_paused() {
        ("paused", look.color(Color::Yellow).add_modifier(Modifier::BOLD))
    } else {
        ("live", look.color(Color::Green).add_modifier(Modifier::BOLD))
    };
    let cores = if stats.cores.len() == 1 { "core" } else { "cores" };
    let about =
        format!(" under {} on {} {cores}, up {}", plain(&stats.engine), stats.cores.len(), span(stats.uptime_ms));
    let room = usize::from(width) - state.len() - 1;
    let function = cut(&plain(&stats.function), room / 2);
    let about = left(&about, room - Span::raw(function.as_str()).width());
    Line::from(vec![Span::styled(function, BOLD), Span::raw(about), Span::raw(" "), Span::styled(state, style)])
}

/// A rate: its name, how it is written, and its colour.
type Series = (&'static str, fn(f64) -> String, Color);

/// The rates, each with its past.
fn rates(shot: &Shot, width: u16, look: Look) -> Vec<Line<'static>> {
    let now = shot.history.back().filter(|_| shot.rates.is_some());
    let series: [Series; 5] = [
        ("received", pps, Color::Cyan),
        ("", bps, Color::Cyan),
        ("forwarded", pps, Color::Green),
        ("replied", pps, Color::Blue),
        ("dropped", pps, Color::Red),
    ];
    let row = |(at, (name, format, color)): (usize, Series)| {
        let value = now.map_or_else(|| "-".to_owned(), |now| format(now[at]));
        let share = match now {
            Some(now) if at >= 2 => percent(now[at], now[0]),
            _ => String::new(),
        };
        let past = spark(shot.history.iter().map(|rates| rates[at]), usize::from(width) - 33);
        Line::from(vec![
            Span::raw(left(name, 10)),
            Span::styled(right(&value, 12), BOLD),
            Span::styled(right(&share, 9), look.faint()),
            Span::raw("  "),
            Span::styled(past, look.color(color)),
        ])
    };
    series.into_iter().enumerate().map(row).collect()
}

fn footer(view: &View, width: u16, look: Look) -> Line<'static> {
    let width = usize::from(width);
    if let Some(reason) = &view.ended {
        return Line::styled(cut(&format!("The run has ended (q quits): {}", plain(reason)), width), look.alarm());
    }
    if let Some(core) = view.shot().stats.stalled {
        return Line::styled(cut(&format!("Core {core} stalls: the others wait for it."), width), look.alarm());
    }
    let keys = "q quit  p pause  tab next panel  arrows scroll  ? help";
    Line::styled(cut(keys, width), look.faint())
}

/// All panels, in two columns.
fn all_panels(frame: &mut Frame<'_>, view: &mut View, area: Rect, look: Look) {
    let half = area.width / 2;
    let columns = [
        (Rect { width: half, ..area }, [Panel::Cores, Panel::State].as_slice()),
        (Rect { x: area.x + half, width: area.width - half, ..area }, &[Panel::Drops, Panel::Flows, Panel::Interfaces]),
    ];
    for (column, panels) in columns {
        let contents: Vec<Content> =
            panels.iter().map(|panel| content(*panel, view.shot(), column.width - 2, look)).collect();
        let wanted: Vec<u16> = contents.iter().map(Content::rows_wanted).collect();
        let mut y = column.y;
        for ((panel, content), height) in panels.iter().zip(contents).zip(shares(&wanted, column.height)) {
            framed(frame, view, *panel, content, Rect { y, height, ..column }, look);
            y += height;
        }
    }
}

/// Rows for panels that want more or less than there is: those that want little get it, the others share the rest.
fn shares(wanted: &[u16], height: u16) -> Vec<u16> {
    let mut given = vec![0; wanted.len()];
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by_key(|at| wanted[*at]);
    let (mut rest, mut others) = (height, wanted.len() as u16);
    for at in order {
        given[at] = wanted[at].max(PANEL_ROWS_MIN).min(rest / others);
        rest -= given[at];
        others -= 1;
    }
    // Whatever nobody wants goes to the last one.
    if let Some(last) = given.last_mut() {
        *last += rest;
    }
    given
}

/// The chosen panel, under a line of their names.
fn one_panel(frame: &mut Frame<'_>, view: &mut View, area: Rect, look: Look) {
    let chosen = BOLD.add_modifier(Modifier::REVERSED);
    let names = Panel::ALL.into_iter().flat_map(|panel| {
        let style = if panel == view.panel { chosen } else { look.faint() };
        [Span::styled(format!(" {} ", panel.name()), style), Span::raw(" ")]
    });
    frame.render_widget(Line::from_iter(names), Rect { height: 1, ..area });
    let (panel, rest) = (view.panel, Rect { y: area.y + 1, height: area.height - 1, ..area });
    let content = content(panel, view.shot(), rest.width - 2, look);
    framed(frame, view, panel, content, rest, look);
}

/// A panel in its frame, from the row on that the user has scrolled to.
fn framed(frame: &mut Frame<'_>, view: &mut View, panel: Panel, content: Content, area: Rect, look: Look) {
    if area.height < 3 {
        return;
    }
    let room = usize::from(area.height - 2).saturating_sub(usize::from(content.head.is_some()));
    let scroll = &mut view.scrolls[panel as usize];
    *scroll = (*scroll).min(content.rows.len().saturating_sub(room));
    let (first, all) = (*scroll, content.rows.len());
    let style = if panel == view.panel { look.color(Color::Cyan) } else { look.faint() };
    let mut block = Block::bordered().border_style(style).title_top(Span::styled(content.title, BOLD));
    if all > room {
        let shown = format!(" {}-{} of {all} ", first + 1, first + room);
        block = block.title_bottom(Line::styled(shown, style).right_aligned());
    }
    let lines: Vec<Line> = content.head.into_iter().chain(content.rows.into_iter().skip(first).take(room)).collect();
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

fn help(frame: &mut Frame<'_>, area: Rect) {
    let lines = [
        "q, Esc, Ctrl-C     quit; the run goes on",
        "p, space           pause what is shown, and go on",
        "tab, left, right   the next panel, or the one before",
        "up, down           scroll the panel by a row",
        "page up, down      scroll it by ten rows",
        "home, end          its first or last rows",
        "?                  this help; any key closes it",
    ];
    let (width, height) = (54, lines.len() as u16 + 2);
    let place = Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height };
    frame.render_widget(Clear, place);
    let block = Block::bordered().title_top(Span::styled(" Keys ", BOLD));
    frame.render_widget(Paragraph::new(lines.map(Line::raw).to_vec()).block(block), place);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_shared_by_need() {
        assert_eq!(shares(&[5, 6], 20), [5, 15]);
        assert_eq!(shares(&[60, 6], 20), [14, 6]);
        assert_eq!(shares(&[60, 60, 60], 20), [6, 7, 7]);
        assert_eq!(shares(&[60, 1, 60], 21), [8, 4, 9]);
    }
}
