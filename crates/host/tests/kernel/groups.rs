//! Groups of a run: made, used, removed, swept.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::Duration;

use firm_host::{CpuGroup, process, sched, sweep};
use firm_model::Clock;
use firm_model::clock::SystemClock;

use crate::support::{PREFIX, Process, measure_for, milli, mounts, run_tree};

pub(crate) fn made_and_removed() {
    let mut run = run_tree();
    let dir = run.dir().to_owned();
    let instance = run.add_instance("cart-0", milli(250)).unwrap();
    let quota = instance.cpu().quota().unwrap().unwrap();
    assert_eq!(quota.limit(), Some(milli(250)));
    for file in instance.limit_files() {
        assert!(
            file.starts_with(&dir) && file.is_file(),
            "{}",
            file.display()
        );
    }
    assert!(
        run.add_instance("cart-0", milli(250)).is_err(),
        "the name is taken"
    );
    assert!(run.add_instance("../x", milli(250)).is_err());
    let mut busy = Process::start(&["spin"]);
    instance.stress_add_pid(busy.pid()).unwrap();
    run.destroy().unwrap();
    assert_eq!(busy.0.wait().unwrap().signal(), Some(9));
    assert!(!dir.exists());
    run.destroy().unwrap();
}

pub(crate) fn process_is_found_in_its_leaf() {
    let mut run = run_tree();
    let instance = run.add_instance("cart-0", milli(250)).unwrap();
    let busy = Process::start(&["spin"]);
    instance.app_add_pid(busy.pid()).unwrap();
    let layout = mounts().cpu_layout().unwrap();
    let found = CpuGroup::of_pid(&layout, Path::new("/proc"), busy.pid()).unwrap();
    assert_eq!(found.quota_dir(), run.dir().join("cart-0/app"));
    let above = found.limiting_ancestors().unwrap();
    assert_eq!(
        above.len(),
        1,
        "the instance's group has the quota, the run's has none"
    );
    assert_eq!(above[0].quota_dir(), instance.cpu().quota_dir());
}

pub(crate) fn sweep_spares_the_living() {
    let prefix = "firm-test-swept";
    let mut holder = Process::start(&["hold-run", prefix]);
    let line = holder.line();
    let (dir, busy) = line.split_once(' ').unwrap();
    let name = Path::new(dir)
        .file_name()
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned();
    let report = sweep(&mounts(), prefix).unwrap();
    assert_eq!((report.left, report.removed), (vec![name.clone()], vec![]));
    assert!(Path::new(dir).exists());
    holder.kill();
    let report = sweep(&mounts(), prefix).unwrap();
    assert_eq!((report.left, report.removed), (vec![], vec![name]));
    assert!(!Path::new(dir).exists());
    let state = process::start_time(Path::new("/proc"), busy.parse().unwrap());
    // A dead process may stay as a zombie until its new parent has seen to it.
    if state.is_some() {
        let stat = fs_err::read_to_string(format!("/proc/{busy}/stat")).unwrap_or_default();
        assert!(
            stat.is_empty() || stat.contains(") Z ") || stat.contains(") X "),
            "{stat}"
        );
    }
}

pub(crate) fn usage_is_told_apart() {
    let mut run = run_tree();
    let instance = run.add_instance("cart-0", milli(1000)).unwrap();
    let (app, stress) = (Process::start(&["spin"]), Process::start(&["spin"]));
    instance.app_add_pid(app.pid()).unwrap();
    let before = instance.stress_usage_ns().unwrap().unwrap();
    instance.stress_add_pid(stress.pid()).unwrap();
    measure_for(Duration::from_millis(600));
    let now = SystemClock.monotonic();
    let (app, stress) = (
        instance.app_usage_ns().unwrap(),
        instance.stress_usage_ns().unwrap(),
    );
    let all = instance.cpu_sample(now).unwrap().usage_ns.unwrap();
    let (app, stress) = (app.unwrap(), stress.unwrap());
    assert!(
        app > 10_000_000 && stress - before > 10_000_000,
        "{app} {stress}"
    );
    // Read one after the other while the processes run on, so not equal.
    assert!(all >= app.max(stress), "{all} {app} {stress}");
}

pub(crate) fn waiting_is_seen() {
    let mut run = firm_host::RunTree::create(&mounts(), PREFIX).unwrap();
    let instance = run.add_instance("cart-0", milli(100)).unwrap();
    let busy = Process::start(&["spin"]);
    instance.app_add_pid(busy.pid()).unwrap();
    let sample = || {
        let now = SystemClock.monotonic();
        sched::sample(Path::new("/proc"), busy.pid(), now).unwrap()
    };
    let Some(first) = sample() else {
        println!("waiting_is_seen: skipped, because the kernel has no schedstat");
        return;
    };
    measure_for(Duration::from_millis(800));
    let second = sample().unwrap();
    if second.run_ns == 0 {
        println!("waiting_is_seen: skipped, because the kernel counts nothing in schedstat");
        return;
    }
    let rate = second.rate_since(&first).unwrap();
    assert!(
        rate.wait > milli(200),
        "a process held to a tenth of a core: {rate:?}"
    );
}
