//! Splits a line of a case into tokens, separated by spaces; quotes and parentheses group text.

/// A token of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Plain(String),
    /// Text in quotes, with escapes resolved.
    Quoted(Vec<u8>),
    /// Tokens in parentheses.
    Group(Vec<Self>),
}

/// Splits a line, up to a comment.
pub(super) fn split(line: &str) -> Result<Vec<Token>, String> {
    let mut rest = line;
    let words = group(&mut rest, false)?;
    debug_assert!(rest.is_empty(), "all of the line is read");
    Ok(words)
}

fn group(rest: &mut &str, inner: bool) -> Result<Vec<Token>, String> {
    let mut words = Vec::new();
    loop {
        *rest = rest.trim_start();
        match rest.chars().next() {
            None | Some('#') if inner => return Err("`(` without `)`".to_owned()),
            None | Some('#') => {
                *rest = "";
                return Ok(words);
            }
            Some('"') => words.push(Token::Quoted(quoted(rest)?)),
            Some('(') => {
                *rest = &rest[1..];
                words.push(Token::Group(group(rest, true)?));
            }
            Some(')') if inner => {
                *rest = &rest[1..];
                return Ok(words);
            }
            Some(')') => return Err("a `)` has no `(`".to_owned()),
            Some(_) => {
                let end = rest.find(|c: char| c.is_whitespace() || "()\"#".contains(c)).unwrap_or(rest.len());
                words.push(Token::Plain(rest[..end].to_owned()));
                *rest = &rest[end..];
            }
        }
    }
}

/// Takes a text in quotes, with the escapes of the language's strings: `\r`, `\n`, `\t`, `\"`, `\\`, `\x0a`.
fn quoted(rest: &mut &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut chars = rest[1..].char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => {
                *rest = &rest[1 + at + 1..];
                return Ok(bytes);
            }
            '\\' => match chars.next().map(|(_, escape)| escape) {
                Some('r') => bytes.push(b'\r'),
                Some('n') => bytes.push(b'\n'),
                Some('t') => bytes.push(b'\t'),
                Some(escape @ ('"' | '\\')) => bytes.push(escape as u8),
                Some('x') => {
                    let digits: String = chars.by_ref().take(2).map(|(_, digit)| digit).collect();
                    bytes.extend(hex(&digits).filter(|bytes| bytes.len() == 1).ok_or_else(|| {
                        format!("`\\x{digits}` is not a byte: write two hexadecimal digits, as in `\\x0a`")
                    })?);
                }
                escape => return Err(format!("`\\{}` is not an escape", escape.unwrap_or(' '))),
            },
            other => bytes.extend(other.encode_utf8(&mut [0; 4]).bytes()),
        }
    }
    Err("the text has no end: `\"` is missing".to_owned())
}

/// The bytes that a text of hexadecimal digits stands for.
pub(super) fn hex(digits: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = digits.chars().map(|digit| Some(digit.to_digit(16)? as u8)).collect();
    let digits = digits.filter(|digits| !digits.is_empty() && digits.len().is_multiple_of(2))?;
    Some(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// The remaining tokens of a line.
pub(super) struct Tokens<'a> {
    left: &'a [Token],
}

impl<'a> Tokens<'a> {
    pub(super) const fn new(left: &'a [Token]) -> Self {
        Self { left }
    }

    pub(super) fn peek(&self) -> Option<&'a Token> {
        self.left.first()
    }

    pub(super) fn next(&mut self) -> Option<&'a Token> {
        let (first, left) = self.left.split_first()?;
        self.left = left;
        Some(first)
    }

    /// Takes the next token if it is this word.
    pub(super) fn take(&mut self, word: &str) -> bool {
        let is_it = matches!(self.peek(), Some(Token::Plain(next)) if next == word);
        if is_it {
            self.next();
        }
        is_it
    }

    /// The next word; `what` describes it in errors.
    pub(super) fn plain(&mut self, what: &str) -> Result<&'a str, String> {
        match self.next() {
            Some(Token::Plain(word)) => Ok(word),
            Some(other) => Err(format!("found {}, expected {what}", show(other))),
            None => Err(format!("the line ends, expected {what}")),
        }
    }

    /// The next word as a number.
    pub(super) fn number<T: std::str::FromStr>(&mut self, what: &str) -> Result<T, String> {
        let word = self.plain(what)?;
        word.parse().map_err(|_| format!("found `{word}`, expected {what}"))
    }
}

/// A token as errors show it.
pub(super) fn show(word: &Token) -> String {
    match word {
        Token::Plain(word) => format!("`{word}`"),
        Token::Quoted(text) => format!("\"{}\"", text.escape_ascii()),
        Token::Group(_) => "a group in parentheses".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(word: &str) -> Token {
        Token::Plain(word.to_owned())
    }

    #[test]
    fn words_are_split() {
        let expected = [
            plain("udp"),
            plain("a"),
            plain(">"),
            Token::Quoted(b"x \"#\r\n\xff".to_vec()),
            Token::Group(vec![plain("b"), Token::Group(vec![plain("c")])]),
        ];
        assert_eq!(split(" udp a > \"x \\\"#\\r\\n\\xff\"(b (c)) # d (\" ").unwrap(), expected);
        assert_eq!(split("# nothing").unwrap(), []);
    }

    #[test]
    fn slips_are_told() {
        for (line, says) in [
            ("\"a", "no end"),
            ("\"\\q\"", "`\\q` is not an escape"),
            ("\"\\x1\"", "not a byte"),
            ("(a", "without `)`"),
            ("(a # b)", "without `)`"),
            ("a)", "no `(`"),
        ] {
            let error = split(line).unwrap_err();
            assert!(error.contains(says), "{line}: {error}");
        }
    }
}
