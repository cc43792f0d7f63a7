//! How a failure becomes words and an exit code, once, at the edge.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::error::ErrorKind;
use firm_config::Problems;
use firm_model::text::shown_lines;

/// Wrong usage or configuration, as `sysexits.h` numbers it.
const EX_USAGE: u8 = 64;

/// A way out that is printed after the error.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Hinted {
    message: String,
    hint: String,
}

impl Hinted {
    /// An error with a hint.
    pub(crate) fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hint: hint.into(),
        }
    }
}

/// Something in the arguments or a configuration file is wrong: exit code 64.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct WrongUsage(pub(crate) String);

/// Prints help or a usage error as clap words it.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    // A closed terminal leaves nobody to tell.
    let _ = error.print();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
        _ => ExitCode::from(EX_USAGE),
    }
}

/// Prints the chain of an error and its hint, fit for a terminal, and gives the exit code.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    if is_broken_pipe(error) {
        return ExitCode::SUCCESS;
    }
    let mut stderr = io::stderr().lock();
    if let Some(problems) = error.downcast_ref::<Problems>() {
        // Nobody to tell if this fails.
        let _ = writeln!(stderr, "{}", shown_lines(&problems.to_string()));
        return ExitCode::from(EX_USAGE);
    }
    let text = format!("{error:#}");
    let text = shown_lines(&text);
    // The library's errors carry their hint at the end.
    let (message, hint) = match text.split_once("; hint: ") {
        Some((message, hint)) => (message, Some(hint)),
        None => (&*text, None),
    };
    let _ = writeln!(stderr, "error: {message}");
    if let Some(hint) = hint {
        let _ = writeln!(stderr, "\nhint: {hint}");
    }
    if let Some(hinted) = error
        .chain()
        .find_map(|cause| cause.downcast_ref::<Hinted>())
    {
        let _ = writeln!(stderr, "\nhint: {}", shown_lines(&hinted.hint));
    }
    if error.chain().any(|cause| cause.is::<WrongUsage>()) {
        return ExitCode::from(EX_USAGE);
    }
    ExitCode::FAILURE
}

/// Whoever read our output has gone, as `head` does: not a failure of ours.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause
            .downcast_ref::<io::Error>()
            .is_some_and(|io| io.kind() == io::ErrorKind::BrokenPipe)
    })
}
