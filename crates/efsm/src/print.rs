//! Prints a program in its normal form: one space between words, the rows of a stage aligned at their colons.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

use crate::syntax::{
    Action, Comparison, Condition, Expression, Extractor, Item, Line, Operator, SetState, TimeoutKind, Word,
};

/// Prints the lines in normal form. Parsing the result gives the same program, and printing that gives the same text.
#[must_use]
pub fn print(lines: &[Line]) -> String {
    let mut out = String::new();
    // A stage's lines are aligned with each other, as are those before the first stage.
    for block in lines.chunk_by(|_, next| !matches!(next.item, Some(Item::Stage(_)))) {
        let halves: Vec<_> = block.iter().map(halves).collect();
        let colon =
            halves.iter().filter(|(_, actions)| actions.is_some()).map(|(left, _)| width(left)).max().unwrap_or(0);
        let texts: Vec<String> = halves
            .into_iter()
            .map(|(left, actions)| match actions {
                Some(actions) => format!("{left:colon$} : {actions}"),
                None => left,
            })
            .collect();
        let of_rows =
            |(text, line): (&String, &Line)| (line.comment.is_some() && is_aligned(line)).then_some(width(text));
        let comments = texts.iter().zip(block).filter_map(of_rows).max().unwrap_or(0);
        for (text, line) in texts.iter().zip(block) {
            let column = if is_aligned(line) { comments } else { 0 };
            match &line.comment {
                None => out.push_str(text.trim_end()),
                Some(comment) if text.is_empty() => out.push_str(format!("# {comment}").trim_end()),
                Some(comment) => out.push_str(format!("{text:column$}  # {comment}").trim_end()),
            }
            out.push('\n');
        }
    }
    // One newline at the end, and no empty lines before it.
    let text = out.trim_end().to_owned();
    if text.is_empty() { text } else { text + "\n" }
}

fn width(text: &str) -> usize {
    text.chars().count()
}

/// True if the line's comment is aligned with those of its neighbours.
const fn is_aligned(line: &Line) -> bool {
    matches!(line.item, Some(Item::Row(_) | Item::Preset(_)))
}

/// A line's text: up to the colon, and behind it.
fn halves(line: &Line) -> (String, Option<String>) {
    let Some(item) = &line.item else { return (String::new(), None) };
    match item {
        Item::Ports(ports) => (format!("ports {}", pairs(ports, "=", " ")), None),
        Item::Meta(name, first, last) => (format!("meta {} = bits {}..{}", name.text, first.text, last.text), None),
        Item::Template(name, bytes) => {
            let bytes: Vec<_> = bytes.iter().map(|word| word.text.as_str()).collect();
            (format!("template {} = {}", name.text, bytes.join(" ")), None)
        }
        Item::Stage(name) => (format!("stage {}", name.text), None),
        Item::Key(fields) => (format!("  key {}", extractor(fields)), None),
        Item::Lookup(fields) => (format!("  lookup {}", extractor(fields)), None),
        Item::Update(fields) => (format!("  update {}", extractor(fields)), None),
        Item::Globals(globals) => (format!("  global {}", pairs(globals, " = ", ", ")), None),
        Item::States(states) => (format!("  states {}", pairs(states, "=", " ")), None),
        Item::Contexts(most) => (format!("  contexts {}", most.text), None),
        Item::Preset(preset) => {
            let value = |(from, to): &(Word, Option<Word>)| match to {
                Some(to) => format!("{}..{}", from.text, to.text),
                None => from.text.clone(),
            };
            let values: Vec<_> = preset.values.iter().map(value).collect();
            (format!("  preset {}", values.join(", ")), Some(actions(&preset.actions)))
        }
        Item::Row(row) => {
            let mut left = format!("  on {}", row.state.text);
            for condition in &row.conditions {
                left.push(' ');
                left.push_str(&self::condition(condition));
            }
            (left, Some(actions(&row.actions)))
        }
    }
}

fn pairs(pairs: &[(Word, Word)], equals: &str, between: &str) -> String {
    let pairs: Vec<_> = pairs.iter().map(|(name, value)| format!("{}{equals}{}", name.text, value.text)).collect();
    pairs.join(between)
}

fn extractor(extractor: &Extractor) -> String {
    let biflow = if extractor.biflow { "biflow " } else { "" };
    let fields: Vec<_> = extractor.fields.iter().map(|field| field.text.as_str()).collect();
    format!("{biflow}{}", fields.join(" "))
}

pub(crate) fn condition(condition: &Condition) -> String {
    let Condition { left, comparison, right, mask } = condition;
    let mask = mask.as_ref().map(|mask| format!("/{}", mask.text)).unwrap_or_default();
    format!("{}{}{}{mask}", left.text, sign(*comparison), right.text)
}

fn sign(comparison: Comparison) -> &'static str {
    Comparison::ALL.iter().find(|(known, _)| *known == comparison).map_or("", |(_, sign)| *sign)
}

pub(crate) fn actions(actions: &[Action]) -> String {
    let texts: Vec<_> = actions.iter().map(action).collect();
    texts.join("; ")
}

fn action(action: &Action) -> String {
    match action {
        Action::State(SetState { state, timeouts, computed }) => {
            let mut text = format!("state {}{}", if *computed { "= " } else { "" }, expression(state));
            for timeout in timeouts {
                let kind = match timeout.kind {
                    TimeoutKind::Idle => "idle",
                    TimeoutKind::Hard => "hard",
                };
                // Writing to a string can't fail.
                let _ = write!(text, " {kind} {}", timeout.span.text);
                if let Some(fallback) = &timeout.fallback {
                    let _ = write!(text, " -> {}", fallback.text);
                }
            }
            text
        }
        Action::Assign(name, value) => format!("{} = {}", name.text, expression(value)),
        Action::Goto(stage) => format!("goto {}", stage.text),
        Action::Out(port) => format!("out {}", port.text),
        Action::Copy(port) => format!("copy {}", port.text),
        Action::Make(template) => format!("make {}", template.text),
        Action::Drop(_) => "drop".to_owned(),
    }
}

fn expression(expression: &Expression) -> String {
    match expression {
        Expression::Operand(word) => word.text.clone(),
        Expression::Binary(left, operator, right) => {
            let sign = Operator::ALL.iter().find(|(known, _)| known == operator).map_or("", |(_, sign)| *sign);
            format!("{} {sign} {}", left.text, right.text)
        }
        Expression::Call(function, arguments) => {
            let arguments: Vec<_> = arguments.iter().map(|argument| argument.text.as_str()).collect();
            format!("{}({})", function.text, arguments.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::print;
    use crate::parse::parse;

    #[test]
    fn templates_and_copies_have_a_normal_form() {
        let text = "template  a=45000014 0000\nstage s\n on * in=1 :make a;out back\n on * : copy 3; out across";
        let printed =
            "template a = 45000014 0000\nstage s\n  on * in=1 : make a; out back\n  on *      : copy 3; out across\n";
        assert_eq!(print(&parse(text).expect("it parses")), printed);
    }
}
