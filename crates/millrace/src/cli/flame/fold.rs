//! Folds sampled stacks: the stages of the engine, the function's own lines, and what these call.

use std::collections::BTreeMap;

use sampler::Stack;

use super::known::{Known, Origin};
use crate::print::flame::Part;

/// A place in a stack.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct StackPlace {
    pub(super) part: Part,
    pub(super) name: String,
}

/// A source line of the function.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Line {
    /// File, relative to the sources of its crate, and line.
    pub(super) place: String,
    /// The function around it.
    pub(super) function: String,
}

/// Samples by what is shown. Each sample of a worker is in `stacks` once, and once in either `lines` or `outside`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Folded {
    /// From the outermost place inwards.
    pub(super) stacks: BTreeMap<Vec<StackPlace>, u64>,
    /// By the innermost of the function's lines.
    pub(super) lines: BTreeMap<Line, u64>,
    /// Samples without a line of the function, by the stage of the engine.
    pub(super) outside: BTreeMap<String, u64>,
    /// Samples of other threads.
    pub(super) elsewhere: u64,
}

/// Stages of a worker, by crate and function.
const STAGES: [(&str, &str, &str); 11] = [
    ("port", "receive", "receive"),
    ("port", "transmit", "transmit"),
    ("port", "finish", "transmit"),
    ("engine", "classify", "parse headers"),
    ("engine", "hash_of", "hash keys"),
    ("engine", "prefetch", "prefetch"),
    ("engine", "prefetch_entry", "prefetch"),
    ("engine", "locate", "prefetch"),
    ("engine", "step", "take steps"),
    ("engine", "steps", "take steps"),
    ("engine", "apply_verdicts", "emit"),
];

/// The function that runs from a worker's first packet to its last.
const WORKER: (&str, &str) = ("engine", "serve");
const LOOP: &str = "worker loop";
/// Name of a stack that can't be resolved.
const UNKNOWN: &str = "not attributed";

/// Folds stacks; the function is in the crate `home`.
pub(super) fn fold<'a>(stacks: impl IntoIterator<Item = &'a (Stack, u64)>, home: &str) -> Folded {
    let mut folded = Folded::default();
    for (stack, count) in stacks {
        let Some(Path { cells, line, stage }) = path(stack, home) else {
            folded.elsewhere += count;
            continue;
        };
        *folded.stacks.entry(cells).or_default() += count;
        match line {
            Some(line) => *folded.lines.entry(line).or_default() += count,
            None => *folded.outside.entry(stage.to_owned()).or_default() += count,
        }
    }
    folded
}

struct Path {
    cells: Vec<StackPlace>,
    line: Option<Line>,
    stage: &'static str,
}

/// The part of a stack that is shown; `None` for a thread that is not a worker.
fn path(stack: &Stack, home: &str) -> Option<Path> {
    let frames: Vec<Known<'_>> = stack.frames.iter().map(|frame| Known::new(frame, home)).collect();
    let start = frames.iter().position(|frame| frame.is(WORKER.0, WORKER.1));
    let Some(start) = start.filter(|_| stack.whole) else {
        // If the unwinder gave up, the thread is unknown.
        let begins = stack.whole && frames.iter().any(Known::is_start);
        let unknown = StackPlace { part: Part::Unknown, name: UNKNOWN.to_owned() };
        return (!begins).then(|| Path { cells: vec![unknown], line: None, stage: UNKNOWN });
    };
    let frames = &frames[start + 1..];
    let own = frames.iter().position(|frame| frame.origin == Origin::Own).unwrap_or(frames.len());

    let (mut stage, mut behind) = (LOOP, 0);
    for (at, frame) in frames[..own].iter().enumerate() {
        if let Some((.., marked)) = STAGES.iter().find(|(room, function, _)| frame.is(room, function)) {
            (stage, behind) = (marked, at + 1);
        }
    }
    let cell = |part, name: &str| StackPlace { part, name: name.to_owned() };
    let mut cells = vec![cell(Part::Engine, LOOP)];
    if stage != LOOP {
        cells.push(cell(Part::Engine, stage));
    }
    // The engine's frames between the stage and the function are not shown.
    let shown = if own < frames.len() { &frames[own..] } else { &frames[behind..] };
    let mut innermost = None;
    for frame in shown {
        let next = if frame.origin == Origin::Own {
            let line = frame.line();
            let next = cell(Part::Own, &format!("{} {}", line.place, line.function));
            innermost = Some(line);
            next
        } else if frame.is_plumbing() {
            continue;
        } else {
            let part = if innermost.is_some() { Part::Called } else { Part::Engine };
            cell(part, &frame.called())
        };
        if cells.last() != Some(&next) {
            cells.push(next);
        }
    }
    Some(Path { cells, line: innermost, stage })
}

impl Folded {
    /// Samples of workers.
    pub(super) fn total(&self) -> u64 {
        self.stacks.values().sum()
    }

    /// Samples by part, that of the innermost place.
    pub(super) fn parts(&self) -> BTreeMap<Part, u64> {
        let mut parts = BTreeMap::new();
        for (cells, count) in &self.stacks {
            if let Some(last) = cells.last() {
                *parts.entry(last.part).or_default() += count;
            }
        }
        parts
    }

    /// The function's lines, the hottest first.
    pub(super) fn hottest(&self) -> Vec<(&Line, u64)> {
        let mut lines: Vec<_> = self.lines.iter().map(|(line, count)| (line, *count)).collect();
        lines.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        lines
    }

    /// Samples without a line of the function by stage, the most first.
    pub(super) fn stages(&self) -> Vec<(&str, u64)> {
        let mut stages: Vec<_> = self.outside.iter().map(|(stage, count)| (stage.as_str(), *count)).collect();
        stages.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        stages
    }

    /// The stacks in the folded format of other tools: `worker loop;take steps;nat.rs:12 packet 345`.
    pub(super) fn text(&self) -> String {
        let line = |(cells, count): (&Vec<StackPlace>, &u64)| {
            // These two have a meaning in that format.
            let names: Vec<String> = cells.iter().map(|cell| cell.name.replace([';', '\n'], ",")).collect();
            format!("{} {count}\n", names.join(";"))
        };
        self.stacks.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use proptest::prelude::*;
    use sampler::Frame;

    use super::*;

    fn frame(function: &str, file: &str, line: u32) -> Frame {
        Frame { function: function.to_owned(), file: Some(file.to_owned()), line: Some(line).filter(|line| *line > 0) }
    }

    /// A worker's stack that goes on so.
    fn worker(inner: &[Frame]) -> Stack {
        let outer = [
            frame("std::sys::thread::unix::Thread::new::thread_start", "/rustc/1/library/std/src/thread.rs", 1),
            frame(
                "engine::run::cores::run_cores::<functions::nat::Nat>::{closure#0}::{closure#0}",
                "/w/crates/engine/src/run.rs",
                5,
            ),
            frame("engine::run::cores::serve::<functions::nat::Nat>", "/w/crates/engine/src/run.rs", 9),
            frame(
                "<engine::worker::Worker<N, P> as engine::any_worker::AnyWorker<N>>::process",
                "/w/crates/engine/src/any.rs",
                7,
            ),
            frame("engine::worker::Worker<N,P>::flush", "/w/crates/engine/src/worker.rs", 300),
        ];
        Stack { frames: outer.iter().chain(inner).cloned().collect(), whole: true }
    }

    fn steps() -> Frame {
        frame(
            "<engine::transacted::Transacted<N> as engine::placement::Placement<N>>::steps",
            "/w/crates/engine/src/transacted.rs",
            1,
        )
    }

    fn packet() -> Frame {
        frame("<functions::nat::Nat as nf::function::NetworkFunction>::packet", "/w/crates/functions/src/nat.rs", 230)
    }

    fn outward() -> Frame {
        frame(
            "functions::nat::translate::<impl functions::nat::Nat>::outward",
            "/w/crates/functions/src/nat/translate.rs",
            41,
        )
    }

    fn get() -> Frame {
        frame("<memory::transactional::map::Map<K,V> as memory::Map<K,V>>::get", "/w/crates/memory/src/map.rs", 8)
    }

    fn glue() -> Frame {
        frame("core::ops::function::FnOnce::call_once", "/rustc/1/library/core/src/ops.rs", 1)
    }

    #[track_caller]
    fn folds_to(stack: Stack, text: &str) -> Folded {
        let folded = fold(&[(stack, 3)], "functions");
        assert_eq!(folded.text(), format!("{text} 3\n"));
        folded
    }

    #[test]
    fn handlers_are_told_by_line_and_the_rest_by_name() {
        let folded = folds_to(
            worker(&[steps(), glue(), packet(), glue(), outward(), get(), glue()]),
            "worker loop;take steps;nat.rs:230 packet;nat/translate.rs:41 outward;Map::get",
        );
        let line = Line { place: "nat/translate.rs:41".into(), function: "outward".into() };
        assert_eq!(folded.hottest(), [(&line, 3)], "the innermost line has it");
        assert_eq!(folded.parts(), BTreeMap::from([(Part::Called, 3)]));
        assert!(folded.outside.is_empty());
        // A closure of the function's, called by what it calls, is the function's.
        folds_to(
            worker(&[steps(), packet(), get(), outward()]),
            "worker loop;take steps;nat.rs:230 packet;Map::get;nat/translate.rs:41 outward",
        );
    }

    #[test]
    fn what_is_outside_of_handlers_has_its_stage() {
        let emit = frame("engine::work::emit::Emitter::apply_verdicts", "/w/crates/engine/src/emit.rs", 20);
        let rewrite = frame("<packet::rewrite::Rewrite>::apply_to_frame", "/w/crates/packet/src/rewrite.rs", 2);
        let folded = folds_to(worker(&[steps(), emit, glue(), rewrite]), "worker loop;emit;Rewrite::apply_to_frame");
        assert_eq!(folded.stages(), [("emit", 3)]);
        assert_eq!(folded.parts(), BTreeMap::from([(Part::Engine, 3)]));
        let copy = frame("__memmove_avx_unaligned_erms", "memmove.S", 0);
        let receive = frame("<port::replay::Source as port::queue::Queue>::receive", "/w/crates/port/src/replay.rs", 2);
        folds_to(worker(&[receive, copy]), "worker loop;receive;memmove");
        folds_to(worker(&[]), "worker loop");
        let meta = frame("<mine::Mine as nf::function::NetworkFunction>::meta", "src/lib.rs", 0);
        let classify = frame("engine::classify::classify", "/w/crates/engine/src/classify.rs", 2);
        let parse = frame("packet::parse::parse_ordinary", "/w/crates/packet/src/parse.rs", 2);
        let stack = worker(&[classify, parse, meta]);
        assert_eq!(fold(&[(stack.clone(), 1)], "mine").text(), "worker loop;parse headers;lib.rs:? meta 1\n");
        assert_eq!(
            fold(&[(stack, 1)], "functions").text(),
            "worker loop;parse headers;parse::parse_ordinary;Mine::meta 1\n"
        );
    }

    #[test]
    fn nothing_that_is_not_known_is_guessed() {
        let cut = Stack { whole: false, ..worker(&[steps(), packet()]) };
        let folded = folds_to(cut, UNKNOWN);
        assert_eq!(folded.stages(), [(UNKNOWN, 3)]);
        let main =
            Stack { frames: vec![frame("millrace::main", "/w/crates/millrace/src/main.rs", 3), glue()], whole: true };
        let folded = fold(&[(main, 4)], "functions");
        assert_eq!((folded.total(), folded.elsewhere), (0, 4));
        // The tables that stacks are unwound by end in the middle of one.
        let lost = Stack { frames: vec![frame("assembled", "", 0), glue()], whole: true };
        folds_to(lost, UNKNOWN);
    }

    #[test]
    fn stages_are_functions_that_there_are() {
        fn source(folder: &Path) -> String {
            let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
            let text = |path: PathBuf| if path.is_dir() { source(&path) } else { fs::read_to_string(path).unwrap() };
            entries.map(text).collect()
        }
        let rooms = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        if !rooms.join("engine/src").exists() {
            // A package of this crate alone has no other beside it.
            return;
        }
        let stages = STAGES.iter().map(|(room, function, _)| (*room, *function));
        for (room, function) in stages.chain([WORKER]) {
            let source = source(&rooms.join(room).join("src"));
            let marks = [format!("fn {function}<"), format!("fn {function}(")];
            assert!(marks.iter().any(|mark| source.contains(mark)), "{room} has no `{function}`");
        }
    }

    #[test]
    fn other_tools_find_their_marks() {
        let odd = frame("a;b", "x", 1);
        let text = fold(&[(worker(&[odd]), 1)], "functions").text();
        assert_eq!(text, "worker loop;a,b 1\n");
    }

    proptest! {
        #[test]
        fn no_sample_is_lost_or_told_twice(stacks in prop::collection::vec(
            (prop::collection::vec(0_usize..9, 0..8), any::<bool>(), 0_usize..12, 1_u64..1000),
            0..20,
        )) {
            let kinds = [
                steps(), packet(), outward(), get(), glue(),
                frame("engine::work::emit::Emitter::apply_verdicts", "s", 1), frame("engine::run::cores::serve", "r", 1),
                frame("0x7f0012", "", 0), frame("<port::Queue>::receive", "p", 0),
            ];
            let stacks: Vec<(Stack, u64)> = stacks.into_iter().map(|(inner, whole, is_worker, count)| {
                let inner: Vec<Frame> = inner.into_iter().map(|kind| kinds[kind].clone()).collect();
                let stack = if is_worker > 0 { worker(&inner) } else { Stack { frames: inner, whole } };
                (Stack { whole, ..stack }, count)
            }).collect();
            let all: u64 = stacks.iter().map(|(_, count)| count).sum();
            let folded = fold(&stacks, "functions");
            prop_assert_eq!(folded.total() + folded.elsewhere, all);
            let reported = folded.lines.values().chain(folded.outside.values()).sum::<u64>();
            prop_assert_eq!(reported, folded.total());
            prop_assert_eq!(folded.parts().values().sum::<u64>(), folded.total());
            let written: u64 = folded.text().lines().map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
            prop_assert_eq!(written, folded.total());
        }
    }
}
