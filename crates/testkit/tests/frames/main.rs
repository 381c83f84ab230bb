//! Frames and traces that are made here: to our own parser, and to tshark.

mod built;
mod synth;
mod tshark;
