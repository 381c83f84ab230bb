//! The extended-finite-state-machine stage of the Open Packet Processor: stateful packet processing as a table.
//!
//! A program is a list of stages, and a stage is a table of rows. A stage looks the packet's flow context up by a key of header fields. The
//! first row whose state and conditions match sets the context's next state, its registers, global registers and header fields, and sends the
//! packet on. Language and meaning: `crates/functions/docs/efsm.md`. After Bonola, Bifulco, Petrucci, Pontarelli, Tulumello and Bianchi.
//!
//! ```
//! use millrace_efsm::Machine;
//!
//! // A host's first three packets pass; then it must be silent for a minute.
//! let machine = Machine::compile("
//! ports lan=0 wan=1
//! stage count
//!   key ip.src
//!   on 0 r0<3 : r0 = r0 + 1; state 0 idle 60s; out wan
//!   on 0      : drop
//! ").expect("the program has no errors");
//! assert_eq!(machine.stages[0].rows.len(), 2);
//!
//! let errors = Machine::compile("stage count\n  on 0 ip.source=10.0.0.1 : drop").unwrap_err();
//! assert!(errors[0].to_string().starts_with("2:8: `ip.source` is neither"));
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod compile;
mod context;
mod edit;
mod error;
mod key;
mod lex;
pub mod machine;
mod memory;
mod packet;
mod parse;
mod print;
mod profile;
mod step;
pub mod syntax;

pub use self::packet::{Field, Layers, Packet};
pub use context::{CONTEXT_WORDS, Context, Timeouts};
pub use edit::{Edit, EditError, Program};
pub use error::{Error, Place};
pub use key::{ContextKey, LongKey, OTHER_BITS, ShortKey};
pub use machine::Machine;
pub use memory::MemoryStore;
pub use parse::parse;
pub use print::print;
pub use profile::netfpga;
pub use step::{Outcome, Store};
