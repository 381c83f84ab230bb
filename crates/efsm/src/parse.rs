//! Parses a program's text to its syntax tree.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::error::{Error, Place};
use crate::lex::{Kind, Token, tokens};
use crate::syntax::{
    Action, Comparison, Condition, Expression, Extractor, Item, Line, Operator, Preset, Row, SetState, Timeout,
    TimeoutKind, Word,
};

/// Parses a program's text, one item a line.
///
/// # Errors
/// The first error of every line that has one.
pub fn parse(text: &str) -> Result<Vec<Line>, Vec<Error>> {
    let (mut lines, mut errors) = (Vec::new(), Vec::new());
    for (number, text) in (1..).zip(text.lines()) {
        match line(text, number) {
            Ok(line) => lines.push(line),
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() { Ok(lines) } else { Err(errors) }
}

fn line(text: &str, number: u32) -> Result<Line, Error> {
    let (tokens, comment) = tokens(text, number)?;
    let end =
        Place { line: number, column: text.split('#').next().unwrap_or(text).trim_end().chars().count() as u32 + 1 };
    let item = if tokens.is_empty() { None } else { Some(Parser { tokens: &tokens, end }.item()?) };
    Ok(Line { item, comment: comment.map(ToOwned::to_owned), number })
}

/// The keywords that a line may begin with.
const KEYWORDS: [&str; 12] =
    ["ports", "meta", "template", "stage", "key", "lookup", "update", "global", "states", "contexts", "preset", "on"];

/// The rest of a line.
struct Parser<'t, 'a> {
    tokens: &'t [Token<'a>],
    /// The end of the line.
    end: Place,
}

impl<'a> Parser<'_, 'a> {
    fn item(mut self) -> Result<Item, Error> {
        let keyword = self.word("a keyword")?;
        let item = match keyword.text.as_str() {
            "ports" => Item::Ports(self.pairs("port")?),
            "meta" => self.meta()?,
            "template" => self.template()?,
            "stage" => Item::Stage(self.word("the stage's name")?),
            "key" => Item::Key(self.extractor()?),
            "lookup" => Item::Lookup(self.extractor()?),
            "update" => Item::Update(self.extractor()?),
            "global" => Item::Globals(self.pairs("global register")?),
            "states" => Item::States(self.pairs("state")?),
            "contexts" => Item::Contexts(self.word("the number of contexts")?),
            "preset" => Item::Preset(self.preset()?),
            "on" => Item::Row(self.row()?),
            other => {
                let message = format!("unknown keyword `{other}`; a line begins with one of: {}", KEYWORDS.join(", "));
                return Err(Error::new(keyword.place, message));
            }
        };
        match self.tokens.first() {
            None => Ok(item),
            Some(token) => Err(self.unexpected(*token, "the line to end")),
        }
    }

    fn meta(&mut self) -> Result<Item, Error> {
        let name = self.word("the metadata's name")?;
        self.sign("=")?;
        let bits = self.word("`bits`")?;
        if bits.text != "bits" {
            return Err(Error::new(bits.place, "write `meta NAME = bits FIRST..LAST`, as in `meta mark = bits 0..3`"));
        }
        let first = self.word("the number of the first bit")?;
        self.sign("..")?;
        Ok(Item::Meta(name, first, self.word("the number of the last bit")?))
    }

    fn template(&mut self) -> Result<Item, Error> {
        let name = self.word("the template's name")?;
        self.sign("=")?;
        let mut words = Vec::new();
        while !self.tokens.is_empty() {
            words.push(self.word("bytes in hexadecimal")?);
        }
        Ok(Item::Template(name, words))
    }

    /// `a=1 b=2`, with or without commas.
    fn pairs(&mut self, of: &str) -> Result<Vec<(Word, Word)>, Error> {
        let mut pairs = Vec::new();
        loop {
            let name = self.word(&format!("the {of}'s name"))?;
            self.sign("=")?;
            pairs.push((name, self.word("a number")?));
            if !self.take(",") && self.tokens.is_empty() {
                return Ok(pairs);
            }
        }
    }

    fn extractor(&mut self) -> Result<Extractor, Error> {
        let mut fields = Vec::new();
        while !self.tokens.is_empty() {
            fields.push(self.word("a field")?);
            self.take(",");
        }
        let biflow = fields.first().is_some_and(|field| field.text == "biflow");
        if biflow {
            fields.remove(0);
        }
        if fields.is_empty() {
            return Err(Error::new(self.end, "name the fields of the key, as in `key ip.src l4.src`"));
        }
        Ok(Extractor { biflow, fields })
    }

    fn preset(&mut self) -> Result<Preset, Error> {
        let mut values = Vec::new();
        while !self.take(":") {
            let from = self.word("a value of the key")?;
            let to = if self.take("..") { Some(self.word("the last value")?) } else { None };
            values.push((from, to));
            self.take(",");
        }
        Ok(Preset { values, actions: self.actions()? })
    }

    fn row(&mut self) -> Result<Row, Error> {
        let state = match self.tokens.first() {
            Some(Token { kind: Kind::Sign("*"), place }) => {
                let place = *place;
                self.tokens = &self.tokens[1..];
                Word { text: "*".to_owned(), place }
            }
            _ => self.word("a state, or `*` for any")?,
        };
        let mut conditions = Vec::new();
        while !self.take(":") {
            if self.tokens.is_empty() {
                return Err(Error::new(self.end, "` : ` and the row's actions are missing"));
            }
            conditions.push(self.condition()?);
            self.take(",");
        }
        Ok(Row { state, conditions, actions: self.actions()? })
    }

    fn condition(&mut self) -> Result<Condition, Error> {
        let left = self.word("a field, or ` : ` and the actions")?;
        let found = self.tokens.first().copied();
        let comparison = match found.map(|token| token.kind) {
            Some(Kind::Sign("==")) => Some(Comparison::Equal),
            Some(Kind::Sign(sign)) => {
                Comparison::ALL.iter().find(|(_, text)| *text == sign).map(|(comparison, _)| *comparison)
            }
            _ => None,
        };
        let Some(comparison) = comparison else {
            let place = found.map_or(self.end, |token| token.place);
            return Err(Error::new(
                place,
                format!("`{}` is not compared with anything: write =, !=, <, <=, > or >=", left.text),
            ));
        };
        self.tokens = &self.tokens[1..];
        let right = self.word("a value")?;
        let mask = if self.take("/") { Some(self.word("a mask")?) } else { None };
        Ok(Condition { left, comparison, right, mask })
    }

    fn actions(&mut self) -> Result<Vec<Action>, Error> {
        let mut actions = Vec::new();
        loop {
            if self.tokens.is_empty() {
                return Ok(actions);
            }
            actions.push(self.action()?);
            if !self.take(";") && !self.tokens.is_empty() {
                return Err(self.unexpected(self.tokens[0], "`;` or the end of the line"));
            }
        }
    }

    fn action(&mut self) -> Result<Action, Error> {
        let word = self.word("an action")?;
        Ok(match word.text.as_str() {
            "drop" => Action::Drop(word.place),
            "goto" => Action::Goto(self.word("a stage")?),
            "out" => Action::Out(self.word("a port")?),
            "copy" => Action::Copy(self.word("a port")?),
            "make" => Action::Make(self.word("a template")?),
            "state" => {
                let computed = self.take("=");
                let state = if computed { self.expression()? } else { Expression::Operand(self.word("a state")?) };
                let mut timeouts = Vec::new();
                while let Some(timeout) = self.timeout()? {
                    timeouts.push(timeout);
                }
                Action::State(SetState { state, timeouts, computed })
            }
            _ => {
                if !self.take("=") {
                    let message = format!(
                        "unknown action `{}`: write `state NAME`, `goto STAGE`, `out PORT`, `copy PORT`, `make TEMPLATE`, `drop` or `NAME = VALUE`",
                        word.text
                    );
                    return Err(Error::new(word.place, message));
                }
                Action::Assign(word, self.expression()?)
            }
        })
    }

    fn timeout(&mut self) -> Result<Option<Timeout>, Error> {
        let Some(Token { kind: Kind::Word(word), place }) = self.tokens.first().copied() else { return Ok(None) };
        let kind = match word {
            "idle" => TimeoutKind::Idle,
            "hard" => TimeoutKind::Hard,
            _ => {
                return Err(Error::new(
                    place,
                    format!("`{word}` can't stand behind a state: write `idle 20s` or `hard 20s`"),
                ));
            }
        };
        self.tokens = &self.tokens[1..];
        let span = self.word("how long, as in `20s`")?;
        let fallback = if self.take("->") { Some(self.word("the state to fall back to")?) } else { None };
        Ok(Some(Timeout { kind, span, fallback }))
    }

    fn expression(&mut self) -> Result<Expression, Error> {
        let first = self.word("a value")?;
        if self.take("(") {
            let mut arguments = Vec::new();
            while !self.take(")") {
                arguments.push(self.word("an argument, or `)`")?);
                self.take(",");
            }
            return Ok(Expression::Call(first, arguments));
        }
        let Some(Token { kind: Kind::Sign(sign), .. }) = self.tokens.first() else {
            return Ok(Expression::Operand(first));
        };
        let Some((operator, _)) = Operator::ALL.iter().find(|(_, text)| text == sign) else {
            return Ok(Expression::Operand(first));
        };
        self.tokens = &self.tokens[1..];
        Ok(Expression::Binary(first, *operator, self.word("the second operand")?))
    }

    /// Takes the sign, if it comes next.
    fn take(&mut self, sign: &str) -> bool {
        let comes = self.tokens.first().is_some_and(|token| token.kind == Kind::Sign(sign_of(sign)));
        if comes {
            self.tokens = &self.tokens[1..];
        }
        comes
    }

    fn sign(&mut self, sign: &str) -> Result<(), Error> {
        if self.take(sign) {
            return Ok(());
        }
        Err(match self.tokens.first() {
            Some(token) => self.unexpected(*token, &format!("`{sign}`")),
            None => Error::new(self.end, format!("`{sign}` is missing")),
        })
    }

    fn word(&mut self, what: &str) -> Result<Word, Error> {
        match self.tokens.first() {
            Some(Token { kind: Kind::Word(word), place }) => {
                self.tokens = &self.tokens[1..];
                Ok(Word { text: (*word).to_owned(), place: *place })
            }
            Some(token) => Err(self.unexpected(*token, what)),
            None => Err(Error::new(self.end, format!("{what} is missing"))),
        }
    }

    fn unexpected(&self, token: Token<'a>, expected: &str) -> Error {
        let found: String = match token.kind {
            Kind::Word(word) => word.to_string(),
            Kind::Sign(sign) => sign.to_string(),
        };
        Error::new(token.place, format!("expected {expected}, found `{found}`"))
    }
}

/// The same sign with the lifetime of the lexer's.
fn sign_of(sign: &str) -> &'static str {
    crate::lex::SIGNS.iter().find(|known| **known == sign).copied().expect("the parser takes only signs of the lexer")
}
