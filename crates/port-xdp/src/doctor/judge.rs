//! What facts mean for runs: facts in, findings out.

pub(super) mod interface;
pub(super) mod machine;
