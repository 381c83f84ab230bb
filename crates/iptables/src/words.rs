//! Splits a line into words, as iptables-restore does and as a shell does.

use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use alloc::{format, vec};

use crate::error::Fault;

/// Longest word, in bytes. iptables-restore takes 1,023, but may print more than it takes.
const WORD_BYTES_MAX: usize = 8_191;
/// Longest line, in bytes. iptables-restore takes 10,239.
pub(crate) const LINE_BYTES_MAX: usize = 65_535;
/// Most words in a line. iptables-restore takes 254.
const WORDS_MAX: usize = 4_096;

/// A word of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) text: String,
    /// Column of its first character, from 1.
    pub(crate) column: u32,
    /// True if a part of it was in quotes, so that it is a value even if it looks like an option.
    pub(crate) quoted: bool,
}

/// Splits a line of a file for iptables-restore. Only double quotes group, and a backslash escapes only between them. The closing quote
/// ends the word.
pub(crate) fn split_restore(line: &str, first_column: u32) -> Result<Vec<Word>, Fault> {
    let mut words = Vec::new();
    let mut word = Word { text: String::new(), column: 0, quoted: false };
    let (mut open, mut escaped) = (false, false);
    for (column, char) in (first_column..).zip(line.chars()) {
        if open {
            match char {
                _ if escaped => {
                    escaped = false;
                    word.text.push(char);
                }
                '\\' => escaped = true,
                '"' => {
                    open = false;
                    finish(&mut words, &mut word)?;
                }
                other => word.text.push(other),
            }
            continue;
        }
        match char {
            '"' => {
                open = true;
                word.quoted = true;
                word.column = if word.column == 0 { column } else { word.column };
            }
            ' ' | '\t' if word.text.is_empty() => {}
            ' ' | '\t' => finish(&mut words, &mut word)?,
            other => {
                word.column = if word.column == 0 { column } else { word.column };
                word.text.push(other);
            }
        }
    }
    if open {
        return Err(Fault::syntax(word.column, &word.text, "the quote is not closed").instead("add `\"`"));
    }
    if word.column != 0 {
        finish(&mut words, &mut word)?;
    }
    Ok(words)
}

fn finish(words: &mut Vec<Word>, word: &mut Word) -> Result<(), Fault> {
    if word.text.len() > WORD_BYTES_MAX {
        let what = format!("the word is longer than {WORD_BYTES_MAX} bytes");
        return Err(Fault::syntax(word.column, &word.text[..word.text.floor_char_boundary(20)], what));
    }
    if words.len() == WORDS_MAX {
        return Err(Fault::syntax(word.column, &word.text, format!("the line has more than {WORDS_MAX} words")));
    }
    words.push(core::mem::replace(word, Word { text: String::new(), column: 0, quoted: false }));
    Ok(())
}

/// Splits a line of a shell script into commands, each of words. Variables, pipes and the like are refused.
pub(crate) fn split_shell(line: &str) -> Result<Vec<Vec<Word>>, Fault> {
    let mut commands = vec![Vec::new()];
    let mut word = Word { text: String::new(), column: 0, quoted: false };
    let mut chars = (1_u32..).zip(line.chars()).peekable();
    let unclosed = |column| Fault::syntax(column, "", "the quote is not closed");
    while let Some((column, char)) = chars.next() {
        let begin = if word.column == 0 { column } else { word.column };
        let words = commands.last_mut().expect("there is always a command that words go to");
        match char {
            ' ' | '\t' | '\r' => end(words, &mut word)?,
            '#' if word.column == 0 => break,
            ';' => {
                end(words, &mut word)?;
                commands.push(Vec::new());
            }
            '&' if matches!(chars.peek(), Some((_, '&'))) => {
                chars.next();
                end(words, &mut word)?;
                commands.push(Vec::new());
            }
            '|' | '&' | '<' | '>' | '(' | ')' | '`' => return Err(not_plain(column, char)),
            '$' => return Err(variable(column)),
            '\'' => {
                (word.quoted, word.column) = (true, begin);
                loop {
                    match chars.next() {
                        Some((_, '\'')) => break,
                        Some((_, other)) => word.text.push(other),
                        None => return Err(unclosed(column)),
                    }
                }
            }
            '"' => {
                (word.quoted, word.column) = (true, begin);
                loop {
                    match chars.next() {
                        Some((_, '"')) => break,
                        Some((_, '\\')) => match chars.next() {
                            Some((_, escaped @ ('"' | '\\' | '$' | '`'))) => word.text.push(escaped),
                            Some((_, other)) => word.text.extend(['\\', other]),
                            None => return Err(unclosed(column)),
                        },
                        Some((at, '$' | '`')) => return Err(variable(at)),
                        Some((_, other)) => word.text.push(other),
                        None => return Err(unclosed(column)),
                    }
                }
            }
            '\\' => {
                word.column = begin;
                word.text.extend(chars.next().map(|(_, escaped)| escaped));
            }
            other => {
                word.column = begin;
                word.text.push(other);
            }
        }
    }
    end(commands.last_mut().expect("there is always a command that words go to"), &mut word)?;
    commands.retain(|words| !words.is_empty());
    Ok(commands)
}

fn end(words: &mut Vec<Word>, word: &mut Word) -> Result<(), Fault> {
    match word.column {
        0 => Ok(()),
        column if word.text.contains('\r') => {
            Err(Fault::syntax(column, "\\r", "a carriage return is in the word").instead("leave it out"))
        }
        _ => finish(words, word),
    }
}

fn variable(column: u32) -> Fault {
    Fault::unsupported(column, "$", "shell", "variables of a shell are not expanded")
        .instead("write the value, or load the script and read what `iptables-save` prints")
}

fn not_plain(column: u32, char: char) -> Fault {
    let what = format!("`{char}` needs a shell, and only plain commands are read");
    Fault::unsupported(column, &char.to_string(), "shell", what)
        .instead("load the script and read what `iptables-save` prints")
}

/// Quotes a word as iptables-save does, unless it is plain.
pub(crate) fn quote(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if !text.is_empty() && text.bytes().all(is_plain) {
        return text.to_owned();
    }
    let mut quoted = String::from("\"");
    for char in text.chars() {
        if matches!(char, '"' | '\\' | '\'') {
            quoted.push('\\');
        }
        quoted.push(char);
    }
    quoted.push('"');
    quoted
}

/// A name that iptables-save prints without quotes. Quoted where a name with a space or a quote in it would not read back.
pub(crate) fn bare(text: &str) -> String {
    let needs = text.is_empty() || text.contains(['"', ' ', '\t']);
    if needs { quote(text) } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(words: &[Word]) -> Vec<(&str, u32)> {
        words.iter().map(|word| (word.text.as_str(), word.column)).collect()
    }

    #[test]
    fn restore_splits_at_spaces_and_closing_quotes() {
        let words = split_restore("-A  x \"a \\\"b\"c 'd e' \"\"", 1).unwrap();
        let expected = [("-A", 1), ("x", 5), ("a \"b", 7), ("c", 14), ("'d", 16), ("e'", 19), ("", 22)];
        assert_eq!(texts(&words), expected);
        assert!(split_restore("a \"b", 1).unwrap_err().what.contains("not closed"));
        assert!(split_restore(&"x".repeat(9_000), 1).unwrap_err().what.contains("longer"));
        assert!(split_restore(&"x ".repeat(5_000), 1).unwrap_err().what.contains("more than"));
    }

    #[test]
    fn a_shell_splits_commands() {
        let commands = split_shell("a 'b c'\"d\\\"\" && e\\ f; # g").unwrap();
        assert_eq!(
            commands.iter().map(|words| texts(words)).collect::<Vec<_>>(),
            [vec![("a", 1), ("b cd\"", 3)], vec![("e f", 17)]]
        );
        for (line, feature) in [("a $b", "shell"), ("a | b", "shell"), ("a \"$b\"", "shell"), ("a 'b", "")] {
            assert_eq!(split_shell(line).unwrap_err().feature, feature, "{line}");
        }
    }

    #[test]
    fn quoting_is_read_back() {
        for text in ["plain", "two words", "a\"b\\c'd", ""] {
            let words = split_restore(&format!("x {}", quote(text)), 1).unwrap();
            assert_eq!(words[1].text, text);
        }
    }
}
