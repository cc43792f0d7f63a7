//! `firm restore`: puts back what a killed run left changed.

use std::path::Path;

use firm_host::restore::{ForeignPolicy, Outcome};
use firm_host::{Mounts, StateDir, SweepReport, restore, sweep};
use firm_lab::demo::GROUP_PREFIX;
use firm_model::text::shown;
use serde::Serialize;

use super::state_dir;
use crate::cli::RestoreArguments;
use crate::failure::Hinted;
use crate::output::{self, Form};

#[derive(Serialize)]
struct Report {
    files: Vec<firm_host::Restored>,
    groups_removed: Vec<String>,
    groups_left: Vec<String>,
}

/// Restores limits, then removes the groups of dead runs.
pub(crate) fn run(arguments: &RestoreArguments) -> anyhow::Result<()> {
    let path = state_dir(&arguments.state)?;
    let dir = StateDir::open(&path)?;
    let restored = restore(&dir, ForeignPolicy::LeaveAlone)?;
    let complete = restored.is_complete();
    let groups = if arguments.keep_groups {
        SweepReport::default()
    } else {
        swept()?
    };
    let report = Report {
        files: restored.files,
        groups_removed: groups.removed,
        groups_left: groups.left,
    };
    match arguments.output {
        Form::Json => output::json(&report)?,
        Form::Table => print(&report)?,
    }
    if complete {
        return Ok(());
    }
    Err(Hinted::new(
        "some limits could not be put back; they stay in the journal",
        "mend what stands beside each file above, then run `firm restore` again",
    )
    .into())
}

/// Without a hierarchy for CPU there are no groups of ours.
fn swept() -> anyhow::Result<SweepReport> {
    let mounts = Mounts::read(Path::new("/proc/self/mountinfo"))?;
    if mounts.cpu_layout().is_err() {
        return Ok(SweepReport::default());
    }
    Ok(sweep(&mounts, GROUP_PREFIX)?)
}

fn print(report: &Report) -> anyhow::Result<()> {
    if report.files.is_empty() {
        output::line("no limits to put back")?;
    }
    for file in &report.files {
        let became = match &file.outcome {
            Outcome::Restored => "restored".to_owned(),
            Outcome::AlreadyOriginal => "as it was".to_owned(),
            Outcome::Vanished => "its group is gone".to_owned(),
            Outcome::ForeignWriter {
                found,
                ours,
                original,
            } => format!(
                "left alone: somebody changed it to `{found}` after our `{ours}`; \
                 before us it was `{original}`"
            ),
            Outcome::Failed { why } => format!("failed: {why}"),
        };
        let words = format!("{}: {became}", file.path.display());
        output::line(shown(&words))?;
    }
    for group in &report.groups_removed {
        output::line(format_args!("{}: removed", shown(group)))?;
    }
    for group in &report.groups_left {
        output::line(format_args!("{}: left, its run is alive", shown(group)))?;
    }
    Ok(())
}
