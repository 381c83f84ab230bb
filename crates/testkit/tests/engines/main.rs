//! Functions under the engines. One program for all of them: each would compile every function under every engine anew.

mod carrier;
mod conformance;
mod faults;
mod link;
mod moves;
mod naive;
mod offered_load;
mod shared;
mod tables;
mod verify;
