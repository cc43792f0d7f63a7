//! The live view, on a pseudo terminal that script(1) makes.

use std::process::{Command, Stdio};

use crate::run::{alone, cpu_hierarchy};

#[test]
fn terminal_shows_progress_latency_culprit_and_limits() {
    let _one = alone();
    if cpu_hierarchy().is_none() {
        println!("skipped, because cpu quotas cannot be written here");
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let demo = format!(
        "{} demo --duration 15s --no-comparison --state-dir {}",
        env!("CARGO_BIN_EXE_firm"),
        state.path().display()
    );
    let run = Command::new("script")
        .args(["--quiet", "--return", "--command", &demo, "/dev/null"])
        .env_remove("FIRM_STATE_DIR")
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .output();
    let output = match run {
        Ok(output) => output,
        Err(error) => {
            println!("skipped, because script(1) cannot be run: {error}");
            return;
        }
    };
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{shown}");
    assert!(shown.contains('\u{1b}'), "no live view: {shown}");
    for part in [
        "latency   ",
        "culprit   none",
        " lacks CPU",
        "limits    as they were",
        "injected into",
        "objective violated at",
    ] {
        assert!(shown.contains(part), "`{part}` is not in\n{shown}");
    }
}
