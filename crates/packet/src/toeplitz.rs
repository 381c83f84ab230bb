//! The Toeplitz hash of receive-side scaling.
