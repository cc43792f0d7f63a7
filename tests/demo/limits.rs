//! Every limit file is byte by byte what it was, however a run ends, and no process is left.

use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;

use crate::run::{
    Demo, Process, alone, cpu_hierarchy, groups, limits, processes, restore, short, until,
    wait_for_end,
};

/// A run whose limits differ from what they were.
struct Changed {
    demo: Demo,
    state: tempfile::TempDir,
    group: PathBuf,
    before: Vec<(PathBuf, Vec<u8>)>,
    processes: Vec<Process>,
}

/// Where limits are, or the reason to skip.
fn hierarchy() -> Option<PathBuf> {
    let hierarchy = cpu_hierarchy();
    if hierarchy.is_none() {
        println!("skipped, because cpu quotas cannot be written here");
    }
    hierarchy
}

/// Starts a run and waits for its first change.
fn changed(hierarchy: &Path) -> Changed {
    let state = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(short(state.path()).arg("--keep-groups"));
    let started = demo.wait_for("started");
    assert_eq!(started["only_recommends"], serde_json::Value::Null);
    let group = demo.group(hierarchy);
    let before = limits(&group);
    // A quota for each instance, beside what the kernel gives each group.
    let instances = started["instances"].as_array().unwrap();
    for instance in instances {
        let name = instance["instance"].as_str().unwrap();
        let quotas = ["cpu.cfs_quota_us", "cpu.max"].map(|file| group.join(name).join(file));
        assert!(
            before.iter().any(|(path, _)| quotas.contains(path)),
            "{name}: {before:?}"
        );
    }
    demo.wait_for("change");
    let processes = processes(&group);
    // The instances, and the stressor.
    assert!(processes.len() > instances.len(), "{processes:?}");
    assert_ne!(limits(&group), before, "the change is not to be seen");
    Changed {
        demo,
        state,
        group,
        before,
        processes,
    }
}

/// What holds after every orderly end with the groups kept: limits as before, nobody left, and
/// `firm restore` has only the groups to remove.
fn assert_put_back(group: &Path, before: &[(PathBuf, Vec<u8>)], left: &[Process], state: &Path) {
    assert_eq!(limits(group), before);
    wait_for_end(left);
    assert_eq!(processes(group), []);
    let done = restore(state, &["--output", "json"]).exits(0).json();
    assert_eq!(done["files"].as_array().unwrap().len(), 0, "{done}");
    let name = group.file_name().unwrap().to_str().unwrap();
    let removed = done["groups_removed"].as_array().unwrap();
    assert!(removed.iter().any(|group| group == name), "{done}");
    assert!(!group.exists());
}

#[test]
fn limits_are_put_back_at_the_end_and_a_second_run_waits_its_turn() {
    let _one = alone();
    let Some(hierarchy) = hierarchy() else { return };
    let mut run = changed(&hierarchy);
    // Another demo on the same state directory is refused and does no harm.
    let second = Demo::start(&mut short(run.state.path())).end().exits(1);
    for part in [
        run.state.path().to_str().unwrap(),
        &format!("process {}", run.demo.pid()),
        "hint: ",
    ] {
        assert!(second.stderr.contains(part), "{part}: {}", second.stderr);
    }
    assert!(second.events.is_empty());
    restore(run.state.path(), &[]).exits(1).says(&["hint: "]);
    assert!(run.demo.is_running());
    assert!(run.group.exists());

    let ended = run.demo.end().exits(0);
    let report = ended.report();
    assert_eq!(report["interrupted"], false);
    assert_eq!(report["mitigated"], true);
    assert_eq!(report["limits"]["files"], report["limits"]["identical"]);
    assert!(report["limits"]["files"].as_u64().unwrap() > 0);
    // The fleet is mixed, and all of it arrived.
    let spans = &report["spans"];
    assert!(spans["received"].as_u64().unwrap() > 0, "{spans}");
    assert!(spans["graphs"].as_u64().unwrap() > 0, "{spans}");
    assert!(spans["mixed"].as_u64().unwrap() > 0, "{spans}");
    assert_eq!(spans["lost"], 0, "{spans}");
    assert_eq!(spans["malformed"], 0, "{spans}");
    assert_put_back(&run.group, &run.before, &run.processes, run.state.path());
}

#[test]
fn limits_are_put_back_after_ctrl_c_and_after_sigterm() {
    let _one = alone();
    let Some(hierarchy) = hierarchy() else { return };
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let run = changed(&hierarchy);
        run.demo.signal(signal);
        let ended = run.demo.end().exits(1);
        assert!(ended.stderr.contains("interrupted"), "{}", ended.stderr);
        assert_eq!(ended.report()["interrupted"], true);
        assert_put_back(&run.group, &run.before, &run.processes, run.state.path());
    }
}

#[test]
fn limits_are_put_back_by_restore_after_kill_9() {
    let _one = alone();
    let Some(hierarchy) = hierarchy() else { return };
    let run = changed(&hierarchy);
    run.demo.signal(Signal::SIGKILL);
    let ended = run.demo.end();
    assert_eq!(ended.status.code(), None);
    // Nobody told them, and they end all the same.
    wait_for_end(&run.processes);
    assert_ne!(
        limits(&run.group),
        run.before,
        "a killed run puts nothing back"
    );

    let arguments = ["--keep-groups", "--output", "json"];
    let done = restore(run.state.path(), &arguments).exits(0).json();
    let files = done["files"].as_array().unwrap();
    assert!(
        files.iter().any(|file| file["outcome"] == "restored"),
        "{done}"
    );
    assert_eq!(limits(&run.group), run.before);
    assert_put_back(&run.group, &run.before, &run.processes, run.state.path());
    // Nothing is left to do.
    let again = restore(run.state.path(), &[]).exits(0);
    assert_eq!(again.stdout.lines().next(), Some("no limits to put back"));
}

#[test]
fn next_run_puts_back_what_a_killed_one_left_and_says_so() {
    let _one = alone();
    let Some(hierarchy) = hierarchy() else { return };
    let run = changed(&hierarchy);
    run.demo.signal(Signal::SIGKILL);
    assert_eq!(run.demo.end().status.code(), None);
    let mut next = Demo::start(&mut short(run.state.path()));
    let note = next.wait_for("note");
    let text = note["text"].as_str().unwrap();
    assert!(text.contains("put back"), "{text}");
    assert!(text.contains("killed"), "{text}");
    next.wait_for("started");
    assert!(!run.group.exists(), "groups of the killed run are swept");
    wait_for_end(&run.processes);
    let own = next.group(&hierarchy);
    next.signal(Signal::SIGTERM);
    next.end().exits(1);
    assert!(!own.exists());
}

#[test]
fn limit_that_another_writer_took_over_is_left_and_is_no_failure() {
    let _one = alone();
    let Some(hierarchy) = hierarchy() else { return };
    let run = changed(&hierarchy);
    let is_quota = |path: &Path| path.ends_with("cpu.cfs_quota_us") || path.ends_with("cpu.max");
    let now = limits(&run.group);
    let changed = run.before.iter().zip(&now).filter(|(was, is)| was != is);
    let (_, (quota, _)) = changed
        .into_iter()
        .find(|(_, (path, _))| is_quota(path))
        .expect("a quota was changed");
    fs_err::write(quota, "77000").unwrap();
    let ended = run.demo.end().exits(0);
    let held = fs_err::read_to_string(quota).unwrap();
    assert!(held.starts_with("77000"), "{held}");
    let report = ended.report();
    let left = report["limits"]["left"].as_array().unwrap();
    assert_eq!(left.len(), 1, "{report}");
    assert_eq!(report["limits"]["different"].as_array().unwrap().len(), 0);
    assert!(ended.all("taken_back").is_empty());
    assert!(!ended.all("note").is_empty(), "a person is told");
    restore(run.state.path(), &[]).exits(0);
}

#[test]
fn dry_run_changes_no_limit_at_any_time_and_tells_it_in_plain_lines() {
    let _one = alone();
    let Some(hierarchy) = hierarchy() else { return };
    let state = tempfile::tempdir().unwrap();
    let mut child = crate::program::command()
        .args([
            "demo",
            "--duration",
            "15s",
            "--dry-run",
            "--keep-groups",
            "--state-dir",
        ])
        .arg(state.path())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let prefix = format!("firm-{}-", child.id());
    let lines = crate::plain::lines(child.stderr.take().unwrap());
    let first = lines.recv().unwrap();
    assert!(first.contains("7 instances serve"), "{first}");
    let group = groups(&hierarchy, &prefix).remove(0);
    let before = limits(&group);
    until("the end of the run", || {
        assert_eq!(limits(&group), before);
        child.try_wait().unwrap().is_some()
    });
    assert_eq!(limits(&group), before);
    let done = crate::program::Finished::from(child.wait_with_output().unwrap()).exits(0);
    let told: Vec<String> = std::iter::once(first).chain(lines).collect();
    crate::plain::assert_told(&told, &done.stdout);
    restore(state.path(), &[]).exits(0);
    assert!(!group.exists());
}
