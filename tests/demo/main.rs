//! `firm demo` and `firm restore` with real processes, spans and limits.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking and says why it is skipped, in its helpers too"
)]

mod limits;
mod live;
mod plain;
#[path = "../support/program.rs"]
#[expect(dead_code, reason = "shared with the tests of the other commands")]
mod program;
mod run;
mod unprivileged;
