//! The checks of Millrace.
fn main() {}
