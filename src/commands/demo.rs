//! `firm demo`: one run with mitigation, one without, side by side.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context;
use firm_lab::demo::plan::{Plan, PlanError, plan};
use firm_lab::demo::{DemoEvent, Mode, RunReport, Setup, run as run_once};
use firm_lab::settings::Settings;
use firm_testbed::Topology;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use super::{read_text, state_dir};
use crate::cli::{DemoArguments, StateDirectory};
use crate::failure::WrongUsage;
use crate::output::{self, Form};
use crate::processors::Processors;
use crate::view::{self, View};

/// Nice value of the program itself.
const OWN_NICE: i32 = -10;

/// Runs the demo and prints its table.
pub(crate) fn run(arguments: &DemoArguments) -> anyhow::Result<()> {
    let setup = setup(arguments)?;
    let plan = planned(&setup, arguments.seed, arguments.duration)?;
    let interrupt = interrupt()?;
    let mode = if arguments.dry_run {
        Mode::Observe
    } else {
        Mode::Enforce
    };
    let mut view = View::new(arguments.output, &plan);
    let first = one(&setup, &plan, mode, &interrupt, &mut view)?;
    let is_comparable = first.enforced && !first.interrupted && !arguments.no_comparison;
    let second = if is_comparable {
        view.second_run();
        Some(one(&setup, &plan, Mode::Observe, &interrupt, &mut view)?)
    } else {
        None
    };
    view.end();
    match arguments.output {
        Form::Json => {
            for report in std::iter::once(&first).chain(&second) {
                output::json(&view::Report {
                    event: "report",
                    report,
                })?;
            }
        }
        Form::Table => output::line(view::outcome(&first, second.as_ref()))?,
    }
    if first.interrupted || second.as_ref().is_some_and(|run| run.interrupted) {
        anyhow::bail!("interrupted; processes are ended and limits put back");
    }
    let runs = std::iter::once(&first).chain(&second);
    let different: Vec<&str> = runs
        .flat_map(|run| &run.limits.different)
        .map(String::as_str)
        .collect();
    if !different.is_empty() {
        let files = different.join(", ");
        anyhow::bail!("limit files differ from what they held before: {files}");
    }
    Ok(())
}

/// One run, told to the view.
pub(crate) fn one(
    setup: &Setup,
    plan: &Plan,
    mode: Mode,
    interrupt: &AtomicBool,
    view: &mut View,
) -> anyhow::Result<RunReport> {
    let mut tell = |event: DemoEvent| view.tell(&event);
    Ok(run_once(setup, plan, mode, interrupt, &mut tell)?)
}

fn setup(arguments: &DemoArguments) -> anyhow::Result<Setup> {
    let settings = match &arguments.config {
        Some(path) => {
            let (file, text) = read_text(path)?;
            Settings::parse(&file, &text)?
        }
        None => Settings::default(),
    };
    let topology = match &arguments.topology {
        Some(path) => {
            let (file, text) = read_text(path)?;
            Topology::parse(&file, &text)?
        }
        None => Topology::parse("built-in topology", firm_testbed::topology::DEMO)?,
    };
    of_machine(settings, topology, &arguments.state, arguments.keep_groups)
}

/// The demo's setup with everything built in.
pub(crate) fn built_in(state: &StateDirectory) -> anyhow::Result<Setup> {
    let topology = Topology::parse("built-in topology", firm_testbed::topology::DEMO)?;
    of_machine(Settings::default(), topology, state, false)
}

/// Takes this process's own processor; to be called before other threads are started.
fn of_machine(
    settings: Settings,
    topology: Topology,
    state: &StateDirectory,
    keep_groups: bool,
) -> anyhow::Result<Setup> {
    let processors = Processors::divide().context("cannot read this process's processors")?;
    if processors.is_shared() {
        view::note("one processor only: the program and the application measure each other");
    } else {
        firm_child::take_cpus(&processors.own)?;
    }
    // Where that is allowed the loop runs before others, so that it is on time on a busy machine.
    let is_eager = firm_child::take_nice(OWN_NICE).is_ok();
    Ok(Setup {
        program: program()?,
        service_args: vec!["testbed-service".to_owned()],
        stress_args: vec!["stress".to_owned()],
        topology,
        settings,
        state_dir: state_dir(state)?,
        app_cpus: processors.app,
        own_cpus: processors.own,
        app_nice: is_eager.then_some(0),
        keep_groups,
    })
}

/// This program, even if its file is replaced while it runs.
fn program() -> anyhow::Result<PathBuf> {
    std::env::current_exe().context("cannot find this program's own file")
}

/// The plan of a run.
pub(crate) fn planned(setup: &Setup, seed: u64, duration: Duration) -> anyhow::Result<Plan> {
    plan(&setup.topology, seed, duration).map_err(|error| match error {
        PlanError::TooShort(_) => WrongUsage(format!("--duration: {error}")).into(),
        PlanError::NoTarget => anyhow::Error::from(error),
    })
}

/// A flag that Ctrl-C, SIGTERM and SIGHUP raise; a second signal ends the program at once.
pub(crate) fn interrupt() -> anyhow::Result<Arc<AtomicBool>> {
    let raised = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        flag::register_conditional_shutdown(signal, 1, Arc::clone(&raised))?;
        flag::register(signal, Arc::clone(&raised))?;
    }
    Ok(raised)
}
