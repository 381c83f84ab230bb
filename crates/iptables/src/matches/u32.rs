//! Words of the packet: `u32`.

use alloc::vec::Vec;
use core::fmt;

use crate::error::Fault;
use crate::extension::Extension;
use crate::options::{Args, Spec, Value};
use crate::value::{Condition, Interval};

/// `-m u32`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct U32 {
    /// `--u32`: all of these tests hold.
    pub tests: Condition<Vec<U32Test>>,
}

/// A test of a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct U32Test {
    /// Offset of the word, in bytes from the IP header.
    pub offset: u32,
    /// The operations on the word, in this order.
    pub operations: Vec<U32Operation>,
    /// One of these ranges has the outcome.
    pub values: Vec<Interval<u32>>,
}

/// A step on the way to the value that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum U32Operation {
    /// `&`: keep these bits.
    And(u32),
    /// `<<`.
    Left(u32),
    /// `>>`.
    Right(u32),
    /// `@`: go on from the present value as an offset, and read the word this far behind it.
    At(u32),
}

/// Most tests, operations of a test and values of a test.
const PARTS_MAX: usize = 10;

impl Extension for U32 {
    const NAME: &'static str = "u32";
    const OPTIONS: &'static [Spec] = &[Spec::value("u32").inverts().required()];

    fn build(args: &Args<'_>) -> Result<Self, Fault> {
        let tests = args.test("u32", |value| {
            let mut reader = Reader { value, rest: value.text };
            let tests = reader.tests();
            tests.map_err(|what| value.part(reader.rest).fault(what).instead("write it as `6&0xFF=1&&4=0x10:0x20`"))
        })?;
        Ok(Self { tests: tests.ok_or_else(|| args.fault("u32 needs `--u32`"))? })
    }
}

struct Reader<'a> {
    value: Value<'a>,
    rest: &'a str,
}

impl Reader<'_> {
    fn tests(&mut self) -> Result<Vec<U32Test>, &'static str> {
        let mut tests = Vec::new();
        loop {
            let mut test = U32Test { offset: self.number()?, operations: Vec::new(), values: Vec::new() };
            while !self.takes("=") {
                let make = match () {
                    () if self.rest.trim_start().starts_with("&&") => return Err("expected `=`"),
                    () if self.takes("&") => U32Operation::And,
                    () if self.takes("<<") => U32Operation::Left,
                    () if self.takes(">>") => U32Operation::Right,
                    () if self.takes("@") => U32Operation::At,
                    () => return Err("expected `=`, `&`, `<<`, `>>` or `@`"),
                };
                test.operations.push(make(self.number()?));
                // The kernel counts the offset as an operation.
                if test.operations.len() == PARTS_MAX {
                    return Err("a test has too many operations");
                }
            }
            loop {
                let first = self.number()?;
                let last = if self.takes(":") { self.number()? } else { first };
                test.values.push(Interval { first, last });
                if !self.takes(",") {
                    break;
                }
                if test.values.len() == PARTS_MAX {
                    return Err("a test has too many values");
                }
            }
            tests.push(test);
            match () {
                () if self.rest.trim().is_empty() => return Ok(tests),
                () if tests.len() == PARTS_MAX => return Err("there are too many tests"),
                () if self.takes("&&") => {}
                () => return Err("expected `&&` or the end"),
            }
        }
    }

    fn takes(&mut self, sign: &str) -> bool {
        let rest = self.rest.trim_start().strip_prefix(sign);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn number(&mut self) -> Result<u32, &'static str> {
        debug_assert!(self.value.text.ends_with(self.rest), "the rest is the end of the value");
        let text = self.rest.trim_start();
        let end = text.find(|char: char| !char.is_ascii_alphanumeric()).unwrap_or(text.len());
        let number = crate::read::integer(&text[..end]).and_then(|number| u32::try_from(number).ok());
        let number = number.ok_or("expected a number of 32 bits")?;
        self.rest = &text[end..];
        Ok(number)
    }
}

impl fmt::Display for U32 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.tests.negated { " ! --u32 \"" } else { " --u32 \"" })?;
        for (nth, test) in self.tests.value.iter().enumerate() {
            write!(f, "{}{:#x}", if nth > 0 { "&&" } else { "" }, test.offset)?;
            for operation in &test.operations {
                match operation {
                    U32Operation::And(number) => write!(f, "&{number:#x}")?,
                    U32Operation::Left(number) => write!(f, "<<{number:#x}")?,
                    U32Operation::Right(number) => write!(f, ">>{number:#x}")?,
                    U32Operation::At(number) => write!(f, "@{number:#x}")?,
                }
            }
            f.write_str("=")?;
            for (nth, Interval { first, last }) in test.values.iter().enumerate() {
                write!(f, "{}{first:#x}", if nth > 0 { "," } else { "" })?;
                if first != last {
                    write!(f, ":{last:#x}")?;
                }
            }
        }
        f.write_str("\"")
    }
}
