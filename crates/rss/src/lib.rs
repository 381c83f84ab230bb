//! Can this card shard this packet set, and with which key?
//!
//! A card picks a packet's queue by a Toeplitz hash of header fields. Packets that share state must get one queue, so
//! they must get one hash: whatever they agree in may count, nothing else may. [`check`] holds what a packet set names
//! against the fields that a card can be told to hash. Where it hashes more, a key may still make those fields not
//! count: the hash is linear in the key, so "these packets get one hash" is a system of equations over GF(2) whose
//! unknowns are the bits of the keys. [`solve`] solves it, chooses a key that spreads well, or proves that all that
//! there are send everybody to one queue. The idea is that of RS3 (Pereira, Ramos, Pedrosa: "Automatic Parallelization
//! of Software Network Functions", NSDI '24), which asks an SMT solver; elimination answers at once and with a reason.
//!
//! ```
//! use millrace_rss::{Card, Driver, Outcome, PacketSets, Problem};
//!
//! let sets = PacketSets::from_line("lan: src dst sport dport, wan: dst src dport sport", None).unwrap();
//! let card = Card::named("virtio").unwrap();
//! let problem = Problem { table: 128, ..Problem::new(card, Driver::Linux, &sets) };
//! let Outcome::Solved(solution) = millrace_rss::solve(&problem) else { panic!("virtio hashes just these fields") };
//! assert_eq!(millrace_rss::verify(&solution, 1_000, 7), Ok(()));
//! ```
#![forbid(unsafe_code)]

mod balance;
mod card;
mod cards;
mod check;
mod commands;
mod constraint;
mod field;
mod file;
mod gf2;
mod key;
mod line;
mod obstacle;
mod plan;
mod proof;
mod relax;
mod rng;
mod sets;
mod solve;
mod verify;

pub use balance::{Balance, Spread};
pub use card::{Ability, Card, Choice, Driver, Fact, Scope, Symmetry};
pub use check::{Check, Fit, check};
pub use commands::commands;
pub use constraint::{Constraint, Reason, Window};
pub use field::{Family, Field, Fields, PacketType};
pub use gf2::{Bits, Space, System};
pub use key::Key;
pub use obstacle::{Obstacle, obstacles};
pub use plan::Member;
pub use proof::{Forced, Proof};
pub use relax::{Relaxation, relaxations};
pub use sets::{PacketSets, PortSets, SetsError, TypeSets, Vary};
pub use solve::{FieldRank, Outcome, Problem, Rank, Solution, solve};
pub use verify::{Mismatch, Probe, probe, verify};
