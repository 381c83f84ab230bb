//! Output of the command: numbers, colours, tables, progress.

pub(crate) mod dropped;
pub(crate) mod flame;
pub(crate) mod fragments;
pub(crate) mod number;
pub(crate) mod origin;
pub(crate) mod outcome;
pub(crate) mod output;
pub(crate) mod page;
pub(crate) mod plot;
pub(crate) mod ports;
pub(crate) mod progress;
pub(crate) mod reorder;
pub(crate) mod split;
pub(crate) mod style;
pub(crate) mod table;
