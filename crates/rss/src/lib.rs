//! Checks whether a network card can shard packet sets, and finds the Toeplitz keys for it.
//!
//! A card selects a packet's queue by a Toeplitz hash of header fields. Packets that share state must reach the same queue, so they must
//! have the same hash. The hash may depend only on fields in which these packets agree. [`check`] compares the fields that name a packet
//! set with the fields that a card can hash. If the card hashes more fields, a key may still cancel them. The hash is linear in the key,
//! so "these packets have the same hash" is a system of equations over GF(2), with the bits of the keys as unknowns. [`solve`] solves it
//! and chooses a key that spreads well, or proves that every key sends all packets to one queue. The idea is from RS3 (Pereira, Ramos,
//! Pedrosa: "Automatic Parallelization of Software Network Functions", NSDI '24), which uses an SMT solver. Gaussian elimination is
//! faster and gives a reason.
//!
//! ```
//! use millrace_rss::{Card, Driver, Outcome, PacketSets, Problem};
//!
//! let sets = PacketSets::from_line("lan: src dst sport dport, wan: dst src dport sport", None).unwrap();
//! let card = Card::named("virtio").unwrap();
//! let problem = Problem { table: 128, ..Problem::new(card, Driver::Linux, &sets) };
//! let Outcome::Solved(solution) = millrace_rss::solve(&problem) else { panic!("virtio hashes exactly these fields") };
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
