//! Classifies stack frames: which crate they belong to, and their name.

use sampler::Frame;

use super::fold::Line;
use super::name::Name;

/// A classified frame.
pub(super) struct Known<'a> {
    frame: &'a Frame,
    name: Name,
    pub(super) origin: Origin,
}

/// The origin of the code of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The author's function.
    Own,
    /// Millrace, with the crate.
    House(String),
    /// Another library, with the crate if it is known.
    Library(Option<String>),
}

/// Millrace's crates that workers run.
const HOUSE: [&str; 9] = ["packet", "flow", "memory", "nf", "port", "engine", "functions", "lab", "millrace"];

/// Parts of the source paths of the compiler and of package managers.
const LIBRARIES: [&str; 5] = ["/rustc/", "/rustlib/", "/rust/deps/", "/registry/src/", "/git/checkouts/"];

impl<'a> Known<'a> {
    /// Classifies a frame; the function is in the crate `home`.
    pub(super) fn new(frame: &'a Frame, home: &str) -> Self {
        let name = Name::of(&frame.function);
        let origin = origin(frame, &name, home);
        Self { frame, name, origin }
    }

    /// True if it is this function of Millrace.
    pub(super) fn is(&self, room: &str, function: &str) -> bool {
        matches!(&self.origin, Origin::House(house) if house == room) && self.name.last() == Some(function)
    }

    /// True if it is the start of a thread or of the program.
    pub(super) fn is_start(&self) -> bool {
        self.name.last().is_some_and(|last| ["thread_start", "lang_start", "main"].contains(&last))
    }

    /// True if it is not worth showing: Rust's standard library (its time belongs to the caller), closures of other crates, and the
    /// engine between its stages.
    pub(super) fn is_plumbing(&self) -> bool {
        match &self.origin {
            Origin::Own => false,
            Origin::House(room) => room == "engine" || self.name.last().is_none(),
            Origin::Library(Some(library)) => {
                ["core", "core_arch", "alloc", "std"].contains(&library.as_str()) || self.name.last().is_none()
            }
            Origin::Library(None) => false,
        }
    }

    /// The line of the function.
    pub(super) fn line(&self) -> Line {
        let file = self.frame.file.as_deref().unwrap_or("?");
        let place = file.rsplit_once("/src/").map_or_else(|| base(file), |(_, inner)| inner);
        let place = match self.frame.line {
            Some(line) => format!("{place}:{line}"),
            None => format!("{place}:?"),
        };
        Line { place, function: self.name.last().unwrap_or("closure").to_owned() }
    }

    /// A short name: type and function if line tables have the type, otherwise module or crate and function. The C library's copy
    /// functions have one name, whatever the processor.
    pub(super) fn called(&self) -> String {
        let last = self.name.last().unwrap_or("closure");
        let copies = ["memcpy", "memmove", "memset", "memcmp"].into_iter().find(|copies| last.contains(copies));
        match (&self.origin, self.name.owner(), &self.frame.file) {
            (_, Some(owner), _) => format!("{owner}::{last}"),
            (Origin::Library(Some(library)), None, _) => format!("{library}::{last}"),
            (Origin::House(_), None, Some(file)) => format!("{}::{last}", module(file)),
            (Origin::Library(None), ..) if let Some(copies) = copies => copies.to_owned(),
            (Origin::Library(None), ..) if last.starts_with("0x") => "code without a name".to_owned(),
            // The C library's own name for what it exports.
            (..) => last.trim_start_matches("__GI_").trim_start_matches('_').to_owned(),
        }
    }
}

/// Decides by the source file, because line tables have names without paths; by the name if there is no file.
fn origin(frame: &Frame, name: &Name, home: &str) -> Origin {
    let file = frame.file.as_deref().filter(|file| file.starts_with('/'));
    let Some(file) = file else {
        return match name.home() {
            Some(room) if room == home => Origin::Own,
            Some(room) if HOUSE.contains(&room) => Origin::House(room.to_owned()),
            room => Origin::Library(room.map(str::to_owned)),
        };
    };
    let room = crate_of(file);
    match room {
        Some(room) if room.replace('-', "_") == home => Origin::Own,
        Some(room) if HOUSE.contains(&room) => Origin::House(room.to_owned()),
        room if LIBRARIES.iter().any(|library| file.contains(library)) => {
            Origin::Library(room.map(|room| room.replace('-', "_")))
        }
        // An author's crate may lie in a folder of any name, and be of several crates.
        Some(_) | None => Origin::Own,
    }
}

/// The crate that a source file belongs to, by its folder: `engine` of `millrace-engine-0.1.0/src/run.rs`.
fn crate_of(file: &str) -> Option<&str> {
    let (folder, _) = file.rsplit_once("/src/")?;
    let folder = base(folder);
    let folder = folder.strip_prefix("millrace-").unwrap_or(folder);
    match folder.rsplit_once('-') {
        Some((name, version)) if version.starts_with(|first: char| first.is_ascii_digit()) => Some(name),
        Some(_) | None => Some(folder),
    }
}

/// A file's module: `map` of `memory/src/transactional/map.rs`, and the folder's name where the file has none of its own.
fn module(file: &str) -> &str {
    let stem = base(file).strip_suffix(".rs").unwrap_or(base(file));
    match stem {
        "lib" => crate_of(file).unwrap_or(stem),
        "mod" => file.rsplit('/').nth(1).unwrap_or(stem),
        stem => stem,
    }
}

fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(function: &str, file: &str) -> Frame {
        Frame {
            function: function.to_owned(),
            file: Some(file.to_owned()).filter(|file| !file.is_empty()),
            line: Some(7),
        }
    }

    fn house(room: &str) -> Origin {
        Origin::House(room.to_owned())
    }

    fn library(name: &str) -> Origin {
        Origin::Library(Some(name.to_owned()))
    }

    #[test]
    fn code_is_known_by_where_it_lies() {
        for (function, file, origin) in [
            ("flush", "/w/crates/engine/src/worker.rs", house("engine")),
            ("flush", "/h/registry/src/index-1/millrace-engine-0.1.0/src/worker.rs", house("engine")),
            ("flush", "/h/git/checkouts/millrace-1a/2b/crates/engine/src/worker.rs", house("engine")),
            ("packet", "/own/my-function/src/lib.rs", Origin::Own),
            ("packet", "/own/somewhere/else/src/lib.rs", Origin::Own),
            ("packet", "/own/one/examples/own.rs", Origin::Own),
            ("packet", "/h/registry/src/index-1/my-function-2.0.1/src/lib.rs", Origin::Own),
            ("packet", "/w/crates/functions/src/nat.rs", house("functions")),
            ("next", "/rustc/1234/library/core/src/iter.rs", library("core")),
            ("next", "/toolchains/x/lib/rustlib/src/rust/library/core/src/iter.rs", library("core")),
            ("seal", "/h/registry/src/index-1/aes-gcm-0.10.3/src/lib.rs", library("aes_gcm")),
            ("my_function::packet", "", Origin::Own),
            ("engine::run::cores::serve", "", house("engine")),
            ("clone3", "./misc/../sysdeps/clone3.S", Origin::Library(None)),
            ("0x7f00", "", Origin::Library(None)),
        ] {
            assert_eq!(Known::new(&frame(function, file), "my_function").origin, origin, "{function} in {file}");
        }
    }

    #[test]
    fn what_is_called_has_a_short_name() {
        for (function, file, name) in [
            ("get<u32, u64>", "/w/crates/memory/src/transactional/map.rs", "map::get"),
            (
                "<memory::transactional::map::Map<K, V> as memory::Map<K, V>>::get",
                "/w/crates/memory/src/map.rs",
                "Map::get",
            ),
            ("find", "/w/crates/flow/src/index/mod.rs", "index::find"),
            ("find", "/w/crates/flow/src/lib.rs", "flow::find"),
            ("seal", "/h/registry/src/index-1/aes-gcm-0.10.3/src/lib.rs", "aes_gcm::seal"),
            ("__memmove_avx_unaligned_erms", "../sysdeps/x86_64/memmove.S", "memmove"),
            ("0x7f0012", "", "code without a name"),
            ("sched_yield", "", "sched_yield"),
            ("__GI___sched_yield", "../sysdeps/unix/syscall-template.S", "sched_yield"),
        ] {
            assert_eq!(Known::new(&frame(function, file), "mine").called(), name, "{function} in {file}");
        }
        for plumbing in ["/rustc/1/library/core/src/ptr.rs", "/rustc/1/library/stdarch/crates/core_arch/src/sse.rs"] {
            assert!(Known::new(&frame("read", plumbing), "mine").is_plumbing(), "{plumbing}");
        }
        let line = Known::new(&frame("{closure#0}", "/w/crates/functions/src/nat/state.rs"), "functions").line();
        assert_eq!(line, Line { place: "nat/state.rs:7".into(), function: "closure".into() });
    }
}
