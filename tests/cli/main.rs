//! The commands that run to their end: `analyze`, `check`, `eval localise`, and how wrong usage is
//! answered.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod analyze;
mod check;
mod eval;
mod per_trace;
#[path = "../support/program.rs"]
mod program;
mod usage;
