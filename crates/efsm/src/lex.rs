//! Splits a line of a program into tokens.

use alloc::format;
use alloc::vec::Vec;

use crate::error::{Error, Place};

/// A token with its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    pub kind: Kind<'a>,
    pub place: Place,
}

/// The kind of a token, with its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind<'a> {
    /// A name or a literal: `ip.src`, `10.0.0.0`, `20s`, `fe80::1`.
    Word(&'a str),
    /// An operator or a separator.
    Sign(&'static str),
}

/// Longer signs come before their beginnings.
pub(crate) const SIGNS: [&str; 26] = [
    "->", "==", "!=", "<=", ">=", "<<", ">>", "..", "=", "<", ">", "+", "-", "*", "/", "%", "&", "|", "^", "(", ")",
    ",", ";", ":", "!", "~",
];

/// The tokens of a line, and its comment without the `#`.
pub(crate) fn tokens(line: &str, number: u32) -> Result<(Vec<Token<'_>>, Option<&str>), Error> {
    let (text, comment) = match line.split_once('#') {
        Some((text, comment)) => (text, Some(comment.trim())),
        None => (line, None),
    };
    let mut tokens = Vec::new();
    let (mut rest, mut column) = (text, 1);
    while let Some(first) = rest.chars().next() {
        let place = Place { line: number, column };
        let (kind, len) = if first.is_whitespace() {
            rest = &rest[first.len_utf8()..];
            column += 1;
            continue;
        } else if let Some(len) = word_len(rest) {
            (Kind::Word(&rest[..len]), len)
        } else if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            (Kind::Sign(sign), sign.len())
        } else {
            return Err(Error::new(place, format!("`{first}` can't stand here")));
        };
        tokens.push(Token { kind, place });
        column += rest[..len].chars().count() as u32;
        rest = &rest[len..];
    }
    Ok((tokens, comment))
}

/// The length of the word that `text` begins with. A colon belongs to a word between characters that an address may have there; a dot,
/// unless another follows, as in `1..20`.
fn word_len(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let begins_address = bytes.starts_with(b"::");
    if !is_word(*bytes.first()?) && !begins_address {
        return None;
    }
    let mut len = if begins_address { 2 } else { 1 };
    while let Some(byte) = bytes.get(len) {
        let next = bytes.get(len + 1).copied();
        let inner = match byte {
            b'.' => next.is_some_and(is_word),
            b':' => next.is_some_and(|next| is_word(next) || next == b':') || bytes[len - 1] == b':',
            _ => is_word(*byte),
        };
        if !inner {
            break;
        }
        len += 1;
    }
    Some(len)
}

#[cfg(test)]
mod tests {
    use alloc::string::String;

    use super::*;

    fn words(line: &str) -> Vec<String> {
        let (tokens, _) = tokens(line, 1).expect("the line has only known signs");
        tokens
            .iter()
            .map(|token| match token.kind {
                Kind::Word(word) => word.into(),
                Kind::Sign(sign) => alloc::format!("[{sign}]"),
            })
            .collect()
    }

    #[test]
    fn rows_split_into_words_and_signs() {
        assert_eq!(
            words("on new in=lan ip.dst=8.0.0.0/24 : state open idle 20s -> shut; r0 = r0+1 # 7"),
            [
                "on", "new", "in", "[=]", "lan", "ip.dst", "[=]", "8.0.0.0", "[/]", "24", "[:]", "state", "open",
                "idle", "20s", "[->]", "shut", "[;]", "r0", "[=]", "r0", "[+]", "1"
            ]
        );
    }

    #[test]
    fn addresses_are_words() {
        assert_eq!(words("ip.src=fe80::1/64 :drop"), ["ip.src", "[=]", "fe80::1", "[/]", "64", "[:]", "drop"]);
        assert_eq!(
            words("ip.src=::1 eth.src=02:00:00:00:00:01: drop"),
            ["ip.src", "[=]", "::1", "eth.src", "[=]", "02:00:00:00:00:01", "[:]", "drop"]
        );
        assert_eq!(words("ip.src=:: : drop"), ["ip.src", "[=]", "::", "[:]", "drop"]);
        assert_eq!(words("ip.src=fe80:: : drop"), ["ip.src", "[=]", "fe80::", "[:]", "drop"]);
        assert_eq!(words("preset 1..20 : state = key"), ["preset", "1", "[..]", "20", "[:]", "state", "[=]", "key"]);
    }

    #[test]
    fn columns_count_characters() {
        let error = tokens("on é", 7).unwrap_err();
        assert_eq!(error.place, Place { line: 7, column: 4 });
    }
}
