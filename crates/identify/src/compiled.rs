//! The automata of the built-in patterns, which the build script has compiled.

use crate::automaton::Automaton;
use crate::built_in::Reads;

/// Bytes that begin at an address which is a multiple of four, as numbers of four bytes among them must.
#[repr(C, align(4))]
struct Aligned<B: ?Sized>(B);

macro_rules! automata {
    ($($reads:ident: $name:literal),*) => {
        fn bytes(reads: Reads) -> (&'static [u8], &'static [u8]) {
            match reads {
                $(Reads::$reads => {
                    static STATES: &Aligned<[u8]> =
                        &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".states")));
                    (&STATES.0, include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".later")))
                })*
            }
        }
    };
}

automata!(Initiator: "initiator", Responder: "responder", Datagrams: "datagrams");

/// Loads an automaton.
pub(crate) fn load(reads: Reads) -> Automaton {
    let (states, later) = bytes(reads);
    Automaton::from_bytes(states, later).expect("the build script has written it")
}
