//! Data to standard output, everything else to standard error.

use std::io::{self, Write};

use clap::ValueEnum;
use serde::Serialize;
use tracing_subscriber::EnvFilter;

/// Form of a command's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// Tables for people.
    Table,
    /// JSON for programs.
    Json,
}

/// Writes one line of data.
pub(crate) fn line(text: impl std::fmt::Display) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{text}")
}

/// Writes one value as a line of JSON.
pub(crate) fn json<T: Serialize>(value: &T) -> anyhow::Result<()> {
    let text = serde_json::to_string(value)?;
    Ok(line(text)?)
}

/// Sends log lines to standard error: warnings, and more with each `-v`.
pub(crate) fn start_logging(verbose: u8) {
    let level = match verbose {
        0 => "warn",
        1 => "info",
        2 => "debug",
        _ => "trace",
    };
    let filter = EnvFilter::new(level);
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .init();
}
