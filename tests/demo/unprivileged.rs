//! A demo without root: it recommends, says why, and finds the culprit all the same.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use nix::unistd::geteuid;

use crate::run::{Demo, alone};

const NOBODY: u32 = 65534;

/// A command that runs `program` as nobody, with a fresh environment.
fn as_nobody(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(program);
    command
}

#[test]
fn without_root_it_only_recommends_says_why_and_names_the_culprit() {
    let _one = alone();
    if !geteuid().is_root() {
        println!("skipped, because only root can become nobody");
        return;
    }
    // The checkout may lie where nobody cannot read.
    let dir = tempfile::tempdir().unwrap();
    fs_err::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let program = dir.path().join("firm");
    fs_err::copy(env!("CARGO_BIN_EXE_firm"), &program).unwrap();
    let state = dir.path().join("state");
    fs_err::create_dir(&state).unwrap();
    chown(&state, Some(NOBODY), Some(NOBODY)).unwrap();

    let mut command = as_nobody(&program);
    command
        .args([
            "demo",
            "--duration",
            "15s",
            "--output",
            "json",
            "--state-dir",
        ])
        .arg(&state)
        .env_remove("FIRM_STATE_DIR");
    let mut demo = Demo::start(&mut command);
    let started = demo.wait_for("started");
    let why = started["only_recommends"].as_str().unwrap();
    assert!(!why.contains('\n'), "{why}");
    assert!(why.contains("not writable by user 65534"), "{why}");
    assert!(why.contains("run as root"), "{why}");
    let ended = demo.end().exits(0);

    let target = &ended.all("injected")[0]["target"];
    let findings = ended.all("finding");
    let report = ended.report();
    assert!(!findings.is_empty(), "nobody is blamed: {report}");
    assert_eq!(findings[0]["culprits"][0]["instance"], *target);
    assert_eq!(ended.all("change").len(), 0);
    assert_eq!(report["culprit_right"], true, "{report}");
    assert_eq!(report["mitigated"], false);
    assert_eq!(report["action"], serde_json::Value::Null);
    // Without mitigation there is nothing to compare with: one report, no second run.
    assert_eq!(ended.all("report").len(), 1);
}
