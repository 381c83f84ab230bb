//! Tests of built frames and synthesised traces with our own parser and tshark.

mod built;
mod synth;
mod tshark;
