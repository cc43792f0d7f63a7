//! Limits: written, read back, put back.

use std::path::PathBuf;
use std::time::Duration;

use firm_host::restore::{ForeignPolicy, Outcome, restore};
use firm_host::{InstanceGroup, LimitError, StateDir};
use firm_model::clock::SystemClock;
use firm_model::{Actuator, Clock, CpuRate, InstanceId};
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use crate::support::{
    Process, action, actuator, bytes, measure_for, milli, run_tree, state, writer,
};

fn rate(instance: &InstanceGroup, length: Duration) -> CpuRate {
    let before = instance.cpu_sample(SystemClock.monotonic()).unwrap();
    measure_for(length);
    let after = instance.cpu_sample(SystemClock.monotonic()).unwrap();
    after.rate_since(&before)
}

pub(crate) fn cut_throttles_and_growth_ends_it() {
    let (_temp, state) = state();
    let mut run = run_tree();
    let instance = run.add_instance("cart-0", milli(2000)).unwrap();
    let original = bytes(&instance.limit_files());
    let busy = Process::start(&["spin"]);
    instance.app_add_pid(busy.pid()).unwrap();
    let mut actuator = actuator(&state);
    let id = InstanceId::new("cart-0");
    actuator
        .add(id.clone(), instance.cpu().clone(), None)
        .unwrap();

    let free = rate(&instance, Duration::from_millis(500));
    assert_eq!(
        free.throttled_periods,
        Some(0),
        "one thread cannot use two cores"
    );
    let applied = actuator.apply(&action("cart-0", 200)).unwrap();
    assert_eq!(
        (applied[0].from, applied[0].to),
        (Some(milli(2000)), Some(milli(200)))
    );
    let cut = rate(&instance, Duration::from_secs(2));
    assert!(cut.throttled_ratio().unwrap() > 0.5, "{cut:?}");
    let usage = cut.usage.unwrap().get();
    assert!((100..=300).contains(&usage), "{cut:?}");

    actuator.apply(&action("cart-0", 2000)).unwrap();
    assert_eq!(actuator.limit(&id).unwrap(), Some(milli(2000)));
    // The period in which the quota was changed may still end throttled.
    measure_for(Duration::from_millis(200));
    let grown = rate(&instance, Duration::from_secs(1));
    assert_eq!(grown.throttled_periods, Some(0), "{grown:?}");

    actuator.apply(&action("cart-0", 123)).unwrap();
    assert_ne!(bytes(&instance.limit_files()), original);
    assert!(actuator.writer_mut().undo_all().unwrap().is_complete());
    assert_eq!(bytes(&instance.limit_files()), original);
}

pub(crate) fn refused_value_changes_nothing() {
    let (_temp, state) = state();
    let mut run = run_tree();
    let instance = run.add_instance("cart-0", milli(250)).unwrap();
    let original = bytes(&instance.limit_files());
    let mut writer = writer(&state);
    let file = instance.cpu().quota_file();
    // Below the kernel's least quota of 1 ms.
    let error = writer.write(&file, "100").unwrap_err();
    assert!(
        matches!(&error, LimitError::File(e) if e.is_refused_value()),
        "{error}"
    );
    assert_eq!(bytes(&instance.limit_files()), original);
    // A removed group is told from a file that cannot be read.
    let gone = writer
        .write(&file.with_file_name("gone"), "30000")
        .unwrap_err();
    assert!(
        matches!(&gone, LimitError::File(e) if e.is_gone()),
        "{gone}"
    );
    writer.write(&file, "30000").unwrap();
    assert_ne!(bytes(&instance.limit_files()), original);
    drop(writer);
    assert_eq!(bytes(&instance.limit_files()), original);
}

pub(crate) fn period_and_quota_come_back() {
    let (_temp, state) = state();
    let mut run = run_tree();
    let instance = run.add_instance("cart-0", milli(250)).unwrap();
    let files = instance.limit_files();
    let original = bytes(&files);
    let mut writer = writer(&state);
    match &files[..] {
        [quota, period] => {
            writer.write(period, "50000").unwrap();
            writer.write(quota, "40000").unwrap();
            writer.write(period, "200000").unwrap();
        }
        [max] => {
            writer.write(max, "40000 50000").unwrap();
            writer.write(max, "max 200000").unwrap();
        }
        other => panic!("{other:?}"),
    }
    let quota = instance.cpu().quota().unwrap().unwrap();
    assert_eq!(quota.period_us, 200_000);
    assert!(writer.undo_all().unwrap().is_complete());
    assert_eq!(bytes(&files), original);
}

pub(crate) fn parents_move_along() {
    let (_temp, state) = state();
    let mut run = run_tree();
    let pod = run.add_instance("pod", milli(500)).unwrap();
    let busy = Process::start(&["spin"]);
    pod.app_add_pid(busy.pid()).unwrap();
    let layout = crate::support::mounts().cpu_layout().unwrap();
    let container =
        firm_host::CpuGroup::of_pid(&layout, std::path::Path::new("/proc"), busy.pid()).unwrap();
    fs_err::write(container.quota_file(), "30000").unwrap();
    let mut files = pod.limit_files();
    files.extend(container.limit_files());
    let original = bytes(&files);

    let mut actuator = actuator(&state);
    let id = InstanceId::new("container");
    actuator.add(id.clone(), container.clone(), None).unwrap();
    let pod_limit = || pod.cpu().quota().unwrap().unwrap().limit();
    actuator.apply(&action("container", 900)).unwrap();
    assert_eq!(actuator.limit(&id).unwrap(), Some(milli(900)));
    assert_eq!(
        pod_limit(),
        Some(milli(1100)),
        "the pod keeps what its others had"
    );
    actuator.apply(&action("container", 100)).unwrap();
    assert_eq!(actuator.limit(&id).unwrap(), Some(milli(100)));
    assert_eq!(pod_limit(), Some(milli(300)));
    actuator.apply(&action("container", 1500)).unwrap();
    assert!(actuator.writer_mut().undo_all().unwrap().is_complete());
    assert_eq!(bytes(&files), original);
}

pub(crate) fn burst_is_respected() {
    let (_temp, state) = state();
    let mut run = run_tree();
    let instance = run.add_instance("cart-0", milli(500)).unwrap();
    let dir = instance.cpu().quota_dir();
    let burst = ["cpu.cfs_burst_us", "cpu.max.burst"]
        .iter()
        .map(|name| dir.join(name))
        .find(|path| path.exists());
    let Some(burst) = burst else {
        println!("burst_is_respected: skipped, because the kernel has no burst");
        return;
    };
    fs_err::write(burst, "30000").unwrap();
    let mut actuator = actuator(&state);
    actuator
        .add(InstanceId::new("cart-0"), instance.cpu().clone(), None)
        .unwrap();
    let applied = actuator.apply(&action("cart-0", 100)).unwrap();
    assert_eq!(
        applied[0].to,
        Some(milli(300)),
        "the quota cannot be below the burst of 30 ms"
    );
}

pub(crate) fn foreign_writer_is_yielded_to() {
    let (_temp, state) = state();
    let mut run = run_tree();
    let instance = run.add_instance("cart-0", milli(250)).unwrap();
    let mut actuator = actuator(&state);
    actuator
        .add(InstanceId::new("cart-0"), instance.cpu().clone(), None)
        .unwrap();
    actuator.apply(&action("cart-0", 400)).unwrap();
    fs_err::write(instance.cpu().quota_file(), "77000").unwrap();
    let error = actuator.apply(&action("cart-0", 500)).unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("another writer"), "{source}");
    assert!(
        actuator
            .writer_mut()
            .is_foreign(&instance.cpu().quota_file())
    );
    actuator.writer_mut().undo_all().unwrap();
    let quota = instance.cpu().quota().unwrap().unwrap();
    assert_eq!(quota.limit(), Some(milli(770)), "theirs stays");
}

pub(crate) fn restore_after_kill_9() {
    let (_temp, state) = state();
    let mut run = run_tree();
    let instance = run.add_instance("cart-0", milli(250)).unwrap();
    let original = bytes(&instance.limit_files());
    let mut holder = holder(&state, &instance.cpu().quota_file());
    assert_ne!(bytes(&instance.limit_files()), original);

    let error = restore(&state, ForeignPolicy::LeaveAlone)
        .unwrap_err()
        .to_string();
    let owner = format!("in use by process {}; hint:", holder.pid());
    assert!(error.contains(&owner), "{error}");
    holder.kill();
    assert_ne!(
        bytes(&instance.limit_files()),
        original,
        "nobody has put it back"
    );
    let report = restore(&state, ForeignPolicy::LeaveAlone).unwrap();
    assert_eq!(report.files[0].outcome, Outcome::Restored);
    assert_eq!(bytes(&instance.limit_files()), original);

    // Killed again, and this time the next start puts it back.
    self::holder(&state, &instance.cpu().quota_file()).kill();
    let mut next = writer(&state);
    assert_eq!(bytes(&instance.limit_files()), original);
    next.undo_all().unwrap();
    drop(next);

    // Killed, and the group is gone by the time of the restore.
    self::holder(&state, &instance.cpu().quota_file()).kill();
    run.destroy().unwrap();
    let report = restore(&state, ForeignPolicy::LeaveAlone).unwrap();
    assert_eq!(report.files[0].outcome, Outcome::Vanished);
}

fn holder(state: &StateDir, file: &std::path::Path) -> Process {
    let (state, file) = (state.path().to_str().unwrap(), file.to_str().unwrap());
    let mut holder = Process::start(&["hold-limit", state, file, "60000"]);
    assert_eq!(holder.line(), "changed");
    holder
}

struct SmallDisk(PathBuf);

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}

pub(crate) fn full_disk_refuses_the_write() {
    let temp = tempfile::tempdir().unwrap();
    let size = Some("size=64k,mode=700");
    if let Err(why) = mount(
        Some("none"),
        temp.path(),
        Some("tmpfs"),
        MsFlags::empty(),
        size,
    ) {
        println!("full_disk_refuses_the_write: skipped, because tmpfs cannot be mounted: {why}");
        return;
    }
    let _disk = SmallDisk(temp.path().to_owned());
    let state = StateDir::open(temp.path()).unwrap();
    let mut run = run_tree();
    let instance = run.add_instance("cart-0", milli(250)).unwrap();
    let file = instance.cpu().quota_file();
    let original = bytes(&instance.limit_files());
    let mut writer = writer(&state);
    let filler = temp.path().join("filler");
    while fs_err::OpenOptions::new()
        .create(true)
        .append(true)
        .open(&filler)
        .and_then(|mut f| std::io::Write::write_all(&mut f, &[0; 512]))
        .is_ok()
    {}
    let error = writer.write(&file, "50000").unwrap_err();
    assert!(matches!(error, LimitError::Journal(_)), "{error}");
    assert_eq!(bytes(&instance.limit_files()), original);
    fs_err::remove_file(&filler).unwrap();
    writer.write(&file, "50000").unwrap();
    assert_ne!(bytes(&instance.limit_files()), original);
    writer.undo_all().unwrap();
    assert_eq!(bytes(&instance.limit_files()), original);
}
