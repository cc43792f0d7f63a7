//! What the kernel of this machine really does with groups and limits, on cgroup v1 or v2,
//! whichever is there. Only groups made here are touched, and all are removed.
//!
//! `kernel [FILTER]` runs the tests; `kernel child ROLE ARG...` is a process that they start.
#![expect(clippy::print_stdout, reason = "a test harness prints its results")]
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod child;
mod groups;
mod limits;
mod support;

use std::panic::catch_unwind;
use std::process::ExitCode;

use support::mounts;

const TESTS: &[(&str, fn())] = &[
    (
        "groups::quota_is_as_asked_and_groups_go_with_the_run",
        groups::made_and_removed,
    ),
    (
        "groups::process_is_found_in_its_leaf",
        groups::process_is_found_in_its_leaf,
    ),
    (
        "groups::sweep_spares_the_living",
        groups::sweep_spares_the_living,
    ),
    ("groups::usage_is_told_apart", groups::usage_is_told_apart),
    (
        "groups::waiting_for_cpu_is_seen_without_groups",
        groups::waiting_is_seen,
    ),
    (
        "limits::cut_throttles_and_growth_ends_it",
        limits::cut_throttles_and_growth_ends_it,
    ),
    (
        "limits::refused_value_changes_nothing",
        limits::refused_value_changes_nothing,
    ),
    (
        "limits::period_and_quota_come_back",
        limits::period_and_quota_come_back,
    ),
    (
        "limits::parents_grow_first_and_shrink_last",
        limits::parents_move_along,
    ),
    ("limits::burst_is_respected", limits::burst_is_respected),
    (
        "limits::foreign_writer_is_yielded_to",
        limits::foreign_writer_is_yielded_to,
    ),
    ("limits::restore_after_kill_9", limits::restore_after_kill_9),
    (
        "limits::full_disk_refuses_the_write",
        limits::full_disk_refuses_the_write,
    ),
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|arg| arg == "child") {
        return child::run(&args[1..]);
    }
    let filter = args.iter().find(|arg| !arg.starts_with('-'));
    let version = match firm_host::can_write_cpu(&mounts()) {
        Ok(version) => version,
        Err(why) => {
            println!("kernel tests: skipped, because {why}");
            return ExitCode::SUCCESS;
        }
    };
    let mut failed = 0;
    for (name, test) in TESTS {
        if filter.is_some_and(|filter| !name.contains(filter.as_str())) {
            continue;
        }
        let passed = catch_unwind(test).is_ok();
        let verdict = if passed { "ok" } else { "FAILED" };
        println!("test cgroup {version} {name} ... {verdict}");
        failed += u32::from(!passed);
    }
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
