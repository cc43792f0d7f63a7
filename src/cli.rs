//! Arguments. Parsing does nothing; the commands open what they need.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use firm_lab::analyze::MAX_THREADS;
use firm_model::PathRule;

use crate::output::Form;

/// Keeps the latency objectives of microservices with the least resources.
///
/// firm takes the spans that services already send, finds the instance that makes requests slow
/// and the resource it lacks, changes that instance's limits until the objective holds again,
/// and puts everything back.
///
/// Begin with `firm demo` to watch it happen on this machine, or with `firm analyze FILE...` on
/// traces you already have.
#[derive(Debug, Parser)]
#[command(
    name = "firm",
    version,
    after_help = "Exit codes: 0 done, 1 failed, 64 wrong usage or configuration."
)]
pub(crate) struct Arguments {
    /// Say more on standard error; twice for debugging.
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    pub(crate) verbose: u8,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Watch an objective being missed and restored, on this machine, in a minute and a half.
    Demo(DemoArguments),
    /// Critical paths and culprits from exported traces.
    Analyze(AnalyzeArguments),
    /// Validate configuration, topology and campaign files without running anything.
    Check(CheckArguments),
    /// Put back limits that a killed run left changed.
    Restore(RestoreArguments),
    /// Measure how well it works; each prints a table and ends with one line of JSON.
    #[command(subcommand)]
    Eval(EvalCommand),
    /// One instance of the testbed; started by `firm demo`.
    #[command(hide = true)]
    TestbedService,
    /// One CPU stressor; started by the injector.
    #[command(hide = true)]
    Stress,
}

/// Starts a small shop of seven services as real processes, each in a cgroup of its own, and
/// sends it an open-loop load. After learning what is normal, CPU contention is injected into
/// one instance. firm sees the objective missed, follows the critical paths to the instance,
/// gives it CPU, takes it back when it is no longer needed, and restores every limit. The same
/// seed is then run once more without mitigation, for comparison.
///
/// Needs root and a writable cpu cgroup; without, it recommends and changes nothing.
#[derive(Debug, Args)]
pub(crate) struct DemoArguments {
    /// Chooses the instance that is hurt, the arrivals and the moment.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// Length of each of the two runs, from first request to last.
    #[arg(long, default_value = "40s", value_parser = parse_duration, value_name = "TIME")]
    pub(crate) duration: Duration,

    /// Recommend only: change no limit even where it would be possible.
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Leave out the second run, without mitigation.
    #[arg(long)]
    pub(crate) no_comparison: bool,

    /// Configuration of the tracer, the extractor and the mitigator [default: built in].
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Application to run [default: the shop that is built in].
    #[arg(long, value_name = "FILE")]
    pub(crate) topology: Option<PathBuf>,

    /// Leave the run's cgroups in place after the limits were put back, to look at them;
    /// `firm restore` removes them.
    #[arg(long)]
    pub(crate) keep_groups: bool,

    /// Table for people, JSON lines for programs.
    #[arg(long, value_enum, default_value_t = Form::Table)]
    pub(crate) output: Form,

    #[command(flatten)]
    pub(crate) state: StateDirectory,
}

/// Where journal, lock and event log are kept.
#[derive(Debug, Clone, Args)]
pub(crate) struct StateDirectory {
    /// Directory of the journal, the lock and the event log [default: /var/lib/firm as root,
    /// else the XDG state directory].
    #[arg(long, env = "FIRM_STATE_DIR", value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,

    #[arg(long, env = "XDG_STATE_HOME", hide = true)]
    pub(crate) xdg_state_home: Option<PathBuf>,

    #[arg(long, env = "HOME", hide = true)]
    pub(crate) home: Option<PathBuf>,
}

/// Reads Jaeger JSON, OTLP JSON (object or lines) or protobuf, Zipkin v2 JSON, Nezha CSV, each
/// gzipped or not, and directories of these. The format is told from the content.
#[derive(Debug, Args)]
pub(crate) struct AnalyzeArguments {
    /// Trace files and directories.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// Traces of normal times to compare with; growth against them names culprits far better
    /// than one window alone.
    #[arg(long, num_args = 1.., value_name = "FILE")]
    pub(crate) baseline: Vec<PathBuf>,

    /// Rule of the critical path: firm, paper, jaeger-ui or crisp.
    #[arg(long, default_value_t = PathRule::Firm)]
    pub(crate) rule: PathRule,

    /// Threads for the analysis, 1 to 1024 [default: one a processor].
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    pub(crate) threads: Option<NonZeroUsize>,

    /// Print one JSON line a trace with the sections of its critical path, instead of a report.
    #[arg(long)]
    pub(crate) per_trace: bool,

    /// Table for people, JSON for programs.
    #[arg(long, value_enum, default_value_t = Form::Table)]
    pub(crate) output: Form,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArguments {
    /// YAML files; what each is for is told from its keys.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}

/// After a `kill -9` the journal still holds the original bytes of every limit file that was
/// changed. This puts them back, ends what the dead run left running in its cgroups, and
/// removes those cgroups.
#[derive(Debug, Args)]
pub(crate) struct RestoreArguments {
    /// Put limits back but leave the dead run's cgroups in place.
    #[arg(long)]
    pub(crate) keep_groups: bool,

    /// Table for people, JSON for programs.
    #[arg(long, value_enum, default_value_t = Form::Table)]
    pub(crate) output: Form,

    #[command(flatten)]
    pub(crate) state: StateDirectory,
}

#[derive(Debug, Subcommand)]
pub(crate) enum EvalCommand {
    /// Run the demo once per seed and print the times and counts of each.
    Demo(EvalDemoArguments),
    /// Localisation accuracy on labelled faults.
    Localise(EvalLocaliseArguments),
}

#[derive(Debug, Args)]
pub(crate) struct EvalDemoArguments {
    /// Seeds, as `FIRST..LAST` with both included.
    #[arg(long, default_value = "1..10", value_parser = parse_seeds, value_name = "FIRST..LAST")]
    pub(crate) seeds: (u64, u64),

    /// Length of each run.
    #[arg(long, default_value = "40s", value_parser = parse_duration, value_name = "TIME")]
    pub(crate) duration: Duration,

    #[command(flatten)]
    pub(crate) state: StateDirectory,
}

#[derive(Debug, Args)]
pub(crate) struct EvalLocaliseArguments {
    /// Directory with `labels.json` and the trace files that it names.
    #[arg(long, value_name = "DIR")]
    pub(crate) nezha: PathBuf,
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let document = firm_config::Document::parse("", &format!("duration: {text}"));
    document
        .and_then(|document| document.read(|section| section.required::<Duration>("duration")))
        .map_err(|_| "expected a time with a unit, like `500ms` or `35s`".to_owned())
}

fn parse_threads(text: &str) -> Result<NonZeroUsize, String> {
    let threads = text.parse::<NonZeroUsize>().ok();
    threads
        .filter(|threads| threads.get() <= MAX_THREADS)
        .ok_or_else(|| format!("expected a number from 1 to {MAX_THREADS}"))
}

fn parse_seeds(text: &str) -> Result<(u64, u64), String> {
    let wrong = || "expected `FIRST..LAST`, like `1..10`".to_owned();
    let (first, last) = text.split_once("..").ok_or_else(wrong)?;
    let first = first.parse().map_err(|_| wrong())?;
    let last = last.trim_start_matches('=').parse().map_err(|_| wrong())?;
    if first > last {
        return Err(format!("first seed {first} is above last seed {last}"));
    }
    Ok((first, last))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn arguments_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn durations_need_units_threads_a_bound_and_seeds_an_order() {
        assert_eq!(parse_duration("35s"), Ok(Duration::from_secs(35)));
        assert!(parse_duration("35").is_err());
        assert!(parse_duration("NaN").is_err());
        assert_eq!(parse_threads("1024").map(NonZeroUsize::get), Ok(1024));
        for wrong in ["0", "1025", "18446744073709551615", "-1", "x"] {
            assert!(parse_threads(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_seeds("1..10"), Ok((1, 10)));
        assert!(parse_seeds("10..1").is_err());
        assert!(parse_seeds("x").is_err());
    }
}
