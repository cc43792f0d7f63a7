//! The `firm` command: arguments, configuration, output. The work is done in the crates below.
//!
//! Exit codes: 0 done, 1 failed, 64 wrong usage or configuration.

mod cli;
mod commands;
mod failure;
mod output;
mod processors;
mod view;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::Arguments;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return failure::usage(&error),
    };
    output::start_logging(arguments.verbose);
    match commands::run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure::report(&error),
    }
}
