//! `firm eval`: figures of how well it works, as a table and one last line of JSON.

use std::sync::atomic::Ordering;

use firm_lab::demo::{Mode, RunReport};
use firm_lab::eval_demo::summary;
use firm_lab::localise::evaluate_nezha;

use super::demo::{built_in, interrupt, one, planned};
use crate::cli::{EvalDemoArguments, EvalLocaliseArguments};
use crate::output;
use crate::view::{self, View};

/// Runs the demo once per seed, with and without mitigation.
pub(crate) fn demo(arguments: &EvalDemoArguments) -> anyhow::Result<()> {
    let setup = built_in(&arguments.state)?;
    let interrupt = interrupt()?;
    let (first, last) = arguments.seeds;
    let mut runs: Vec<(RunReport, RunReport)> = Vec::new();
    for seed in first..=last {
        let plan = planned(&setup, seed, arguments.duration)?;
        view::note(&format!(
            "seed {seed} of {first}..{last}: contention in {}",
            plan.target
        ));
        let with = one(&setup, &plan, Mode::Enforce, &interrupt, &mut View::Quiet)?;
        let without = one(&setup, &plan, Mode::Observe, &interrupt, &mut View::Quiet)?;
        if interrupt.load(Ordering::Relaxed) {
            anyhow::bail!("interrupted; processes are ended and limits put back");
        }
        runs.push((with, without));
    }
    output::line(view::seeds(&runs))?;
    let summary = summary(&runs);
    output::line(&summary)?;
    output::json(&summary)
}

/// Ranks the instances of every labelled fault.
pub(crate) fn localise(arguments: &EvalLocaliseArguments) -> anyhow::Result<()> {
    let report = evaluate_nezha(&arguments.nezha)?;
    output::line(&report)?;
    output::json(&report)
}
