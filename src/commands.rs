//! One file a command: opens what the arguments name, calls the library, prints.

mod analyze;
mod check;
mod demo;
mod eval;
mod restore;

use std::path::PathBuf;

use anyhow::Context;
use firm_host::StateDir;

use crate::cli::{Arguments, Command, EvalCommand, StateDirectory};
use crate::failure::WrongUsage;

/// Runs the command that was asked for.
pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    match arguments.command {
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Analyze(arguments) => analyze::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Restore(arguments) => restore::run(&arguments),
        Command::Eval(EvalCommand::Demo(arguments)) => eval::demo(&arguments),
        Command::Eval(EvalCommand::Localise(arguments)) => eval::localise(&arguments),
        Command::TestbedService => Ok(firm_testbed::service::run_service()?),
        Command::Stress => Ok(firm_injector::stressor::run_stressor()?),
    }
}

/// Where journal, lock and event log are.
fn state_dir(arguments: &StateDirectory) -> anyhow::Result<PathBuf> {
    if let Some(path) = &arguments.state_dir {
        return Ok(path.clone());
    }
    let root = nix::unistd::geteuid().is_root();
    let xdg = arguments.xdg_state_home.as_deref();
    StateDir::default_path(root, xdg, arguments.home.as_deref())
        .context("name one with --state-dir")
}

/// Reads a configuration file; its name and text.
fn read_text(path: &std::path::Path) -> anyhow::Result<(String, String)> {
    let text = fs_err::read_to_string(path).map_err(|error| WrongUsage(error.to_string()))?;
    Ok((path.display().to_string(), text))
}
