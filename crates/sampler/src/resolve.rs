//! From addresses to functions, files and lines.

use std::collections::HashMap;
use std::ffi::c_void;

use crate::store::Sample;

/// A function that was under way, inlined or called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its name as line tables have it, with its path or without; the address where there is no name.
    pub function: String,
    /// The source file, as the compiler was told of it.
    pub file: Option<String>,
    /// Where in it: the line that is at work, or that calls the next frame.
    pub line: Option<u32>,
}

/// What was under way, from the outermost function inwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// The functions.
    pub frames: Vec<Frame>,
    /// Whether it begins where the thread began. Otherwise nobody knows who called the first of them.
    pub whole: bool,
}

/// Whether the function that begins at `address` has line tables, and they tell inlined functions apart.
#[must_use]
pub fn has_lines(address: usize) -> bool {
    frames(address + 1).iter().any(|frame| frame.line.is_some()) && tells_inlined()
}

/// Whether a function is told that is inlined into this one.
#[inline(never)]
fn tells_inlined() -> bool {
    let mut told = false;
    inlined_here(&mut |address| {
        let frames = frames(address);
        let named = |name| frames.iter().any(|frame| frame.function.ends_with(name));
        told |= named("tells_inlined") && named("inlined_here");
    });
    told
}

#[inline(always)]
fn inlined_here(look: &mut dyn FnMut(usize)) {
    backtrace::trace(|frame| {
        look(frame.ip() as usize);
        true
    });
}

/// Remembers what it has looked up: samples have most addresses in common.
#[derive(Default)]
pub(crate) struct Resolver(HashMap<usize, Vec<Frame>>);

impl Resolver {
    pub(crate) fn stack(&mut self, sample: &Sample) -> Stack {
        let mut stack = Vec::new();
        for (depth, &address) in sample.addresses.iter().enumerate().rev() {
            // A return address is behind the call; where the thread was is where it was. The library expects the former.
            let behind = if depth == 0 { address + 1 } else { address };
            stack.extend(self.0.entry(behind).or_insert_with(|| frames(behind)).iter().cloned());
        }
        Stack { frames: stack, whole: sample.whole }
    }
}

/// The functions around the instruction ahead of `behind`, the outermost first.
fn frames(behind: usize) -> Vec<Frame> {
    let mut frames = Vec::new();
    backtrace::resolve(behind as *mut c_void, |symbol| {
        frames.push(Frame {
            function: symbol.name().map_or_else(|| format!("{behind:#x}"), |name| format!("{name:#}")),
            file: symbol.filename().map(|path| path.display().to_string()),
            // Zero is what compilers call a line that isn't one.
            line: symbol.lineno().filter(|line| *line > 0),
        });
    });
    if frames.is_empty() {
        frames.push(Frame { function: format!("{behind:#x}"), file: None, line: None });
    }
    frames.reverse();
    frames
}
