//! The doctor's judgement: facts in, findings out.

pub(super) mod interface;
pub(super) mod machine;
