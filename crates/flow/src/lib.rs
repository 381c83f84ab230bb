//! Bounded flow tables and the ageing of flows.
