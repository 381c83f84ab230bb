//! Makes a failing case small: leaves out rules and packets while the two sides still differ.

use super::case::{Numbered, Rules};
use super::play::{Difference, Match, parsed};

/// Most tries.
const TRIES_MAX: usize = 600;

/// Replays that must all fail: the kernel chooses some ports at random, and on some choices the sides differ by chance.
const REPLAYS: usize = 3;

/// Returns the smallest failing case found. The difference may be another one than at first. `None` if the case does not fail again.
pub(crate) fn shrink(
    sides: &mut Match<'_>,
    rules: &Rules,
    steps: &[Numbered],
) -> Option<(Rules, Vec<Numbered>, Difference)> {
    let mut tries = 0;
    let mut fails = |rules: &Rules, steps: &[Numbered]| {
        tries += 1;
        let set = parsed(rules).ok().filter(|_| tries <= TRIES_MAX)?;
        let mut last = None;
        for _ in 0..REPLAYS {
            sides.load(rules).ok()?;
            last = Some(sides.replay(&set, steps)?);
        }
        last
    };
    let mut difference = fails(rules, steps)?;
    let (mut lines, mut steps): (Vec<String>, _) = (rules.text.lines().map(str::to_owned).collect(), steps.to_vec());
    let with = |lines: &[String]| Rules { text: lines.join("\n") + "\n", ..rules.clone() };
    // Behind the last step that matters, nothing does.
    if let Some(last) = difference.step {
        steps.retain(|(number, _)| *number <= last);
    }
    loop {
        let before = (lines.len(), steps.len());
        lines = without(
            lines,
            |line| line.contains("-A "),
            |fewer| fails(&with(fewer), &steps).map(|found| difference = found).is_some(),
        );
        steps = without(steps, |_| true, |fewer| fails(&with(&lines), fewer).map(|found| difference = found).is_some());
        if (lines.len(), steps.len()) == before {
            return Some((with(&lines), steps, difference));
        }
    }
}

/// Leaves out items that `may` be left out while the rest `still` fails: first many at a time, then one by one.
fn without<T: Clone>(items: Vec<T>, may: impl Fn(&T) -> bool, mut still: impl FnMut(&[T]) -> bool) -> Vec<T> {
    let mut items = items;
    let mut chunk = items.len().div_ceil(2);
    while chunk > 0 {
        let mut at = 0;
        while at < items.len() {
            let end = (at + chunk).min(items.len());
            let kept = items[at..end].iter().filter(|item| !may(item));
            let fewer: Vec<T> = items[..at].iter().chain(kept).chain(&items[end..]).cloned().collect();
            if fewer.len() < items.len() && still(&fewer) {
                items = fewer;
            } else {
                at = end;
            }
        }
        chunk /= 2;
    }
    items
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_what_matters_remains() {
        let small =
            super::without((0..100).collect(), |item| *item != 50, |items| items.contains(&17) && items.contains(&80));
        assert_eq!(small, [17, 50, 80]);
    }
}
