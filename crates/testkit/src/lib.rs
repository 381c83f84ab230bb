//! Packet builders, trace synthesis, naive models, the conformance runner, and namespaces to test against the kernel in.

pub mod netns;
