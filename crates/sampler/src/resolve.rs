//! Resolves addresses to functions, files and lines.

use std::collections::HashMap;
use std::ffi::c_void;

use crate::store::Sample;

/// A function in a stack, inlined or called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its name in the line tables, with or without path; the address if it has no name.
    pub function: String,
    /// Its source file, as given to the compiler.
    pub file: Option<String>,
    /// The line that runs, or that calls the next frame.
    pub line: Option<u32>,
}

/// A call stack, from the outermost function inwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// The functions.
    pub frames: Vec<Frame>,
    /// True if it starts where the thread started. Otherwise the callers of the first frame are unknown.
    pub whole: bool,
}

/// True if the function at `address` has line tables with inlined functions.
#[must_use]
pub fn has_lines(address: usize) -> bool {
    frames(address + 1).iter().any(|frame| frame.line.is_some()) && tells_inlined()
}

/// True if line tables name a function that is inlined into this one.
#[inline(never)]
fn tells_inlined() -> bool {
    let mut resolved = false;
    inlined_here(&mut |address| {
        let frames = frames(address);
        let named = |name| frames.iter().any(|frame| frame.function.ends_with(name));
        resolved |= named("tells_inlined") && named("inlined_here");
    });
    resolved
}

#[inline(always)]
fn inlined_here(look: &mut dyn FnMut(usize)) {
    backtrace::trace(|frame| {
        look(frame.ip() as usize);
        true
    });
}

/// Caches resolved addresses, because samples share most of them.
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

/// The functions around the instruction before `behind`, the outermost first.
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
