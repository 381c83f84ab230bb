//! Text of a given width in columns of the terminal.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Text that is at most so wide; what is cut off is marked.
pub(super) fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let (mut out, mut used) = (String::new(), 0);
    for sign in text.chars() {
        let wide = sign.width().unwrap_or(0);
        if used + wide + 1 > width {
            break;
        }
        out.push(sign);
        used += wide;
    }
    if width > 0 {
        out.push('…');
    }
    out
}

/// Text at the left of a place that is so wide.
pub(super) fn left(text: &str, width: usize) -> String {
    let text = cut(text, width);
    let pad = width.saturating_sub(text.width());
    text + &" ".repeat(pad)
}

/// Text at the right of a place that is so wide.
pub(super) fn right(text: &str, width: usize) -> String {
    let text = cut(text, width);
    " ".repeat(width.saturating_sub(text.width())) + &text
}

/// A bar that is filled to a part between 0 and 1.
pub(super) fn bar(part: f64, width: usize) -> String {
    const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let eighths = (part.clamp(0.0, 1.0) * width as f64 * 8.0).round() as usize;
    let mut bar = "█".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        bar.push(EIGHTHS[eighths % 8]);
    }
    left(&bar, width)
}

/// The last values as columns, the newest at the right; the highest of them has the full height.
pub(super) fn spark(values: impl DoubleEndedIterator<Item = f64>, width: usize) -> String {
    const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let mut last: Vec<f64> = values.rev().take(width).collect();
    last.reverse();
    let highest = last.iter().copied().fold(0.0, f64::max);
    let height = |value: f64| match value {
        _ if value <= 0.0 => ' ',
        value => HEIGHTS[((value / highest * 8.0).ceil() as usize).clamp(1, 8) - 1],
    };
    let columns: String = last.into_iter().map(height).collect();
    right(&columns, width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_fits_its_place() {
        assert_eq!(
            [cut("table-full", 10), cut("table-full", 6), cut("ab", 1), cut("ab", 0)],
            ["table-full", "table…", "…", ""]
        );
        assert_eq!([left("ab", 4), right("ab", 4), right("日本語", 4)], ["ab  ", "  ab", " 日…"]);
        assert_eq!([bar(0.0, 2), bar(0.5, 3), bar(7.0, 2)], ["  ", "█▌ ", "██"]);
        assert_eq!(spark([1.0, 0.0, 4.0, 8.0].into_iter(), 3), " ▄█");
        assert_eq!(spark([2.0].into_iter(), 3), "  █");
    }
}
