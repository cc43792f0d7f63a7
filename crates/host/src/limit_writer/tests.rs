//! On plain files: the bookkeeping. What the kernel does with limits is in `tests/kernel.rs`.

use super::*;
use crate::restore::{RestoreError, Restored, restore_on};
use crate::state_dir::StateDir;

/// A plain file is not truncated by a write as a kernel file is, so all values have one length.
fn padded(value: &str) -> String {
    format!("{value:<11}\n")
}

struct Bench {
    _temp: tempfile::TempDir,
    state: StateDir,
    files: Vec<PathBuf>,
}

fn bench(contents: &[&str]) -> Bench {
    let temp = tempfile::tempdir().unwrap();
    let state = StateDir::open(&temp.path().join("state")).unwrap();
    let files = contents.iter().enumerate().map(|(index, text)| {
        let group = temp.path().join(format!("group-{index}"));
        fs_err::create_dir(&group).unwrap();
        let path = group.join("cpu.max");
        fs_err::write(&path, padded(text)).unwrap();
        path
    });
    Bench {
        files: files.collect(),
        state,
        _temp: temp,
    }
}

impl Bench {
    fn writer(&self) -> LimitWriter {
        LimitWriter::open_on(Ground::Any, self.state.lock().unwrap())
            .unwrap()
            .0
    }

    fn restore(&self, policy: ForeignPolicy) -> Result<RestoreReport, RestoreError> {
        restore_on(Ground::Any, &self.state, policy)
    }

    fn read(&self, index: usize) -> String {
        fs_err::read_to_string(&self.files[index])
            .unwrap()
            .trim_end()
            .to_owned()
    }
}

#[test]
fn originals_come_back_byte_by_byte() {
    let bench = bench(&["-1", "max 100000"]);
    let original = fs_err::read(&bench.files[0]).unwrap();
    let mut writer = bench.writer();
    assert!(
        !bench.state.journal().exists(),
        "no journal before the first touch"
    );
    let written = writer.write(&bench.files[0], &padded("5000")).unwrap();
    assert_eq!(
        (written.before.as_str(), written.effective.as_str()),
        ("-1", "5000")
    );
    writer.write(&bench.files[0], &padded("6000")).unwrap();
    writer.write(&bench.files[1], &padded("1 100000")).unwrap();
    let report = writer.undo_all().unwrap();
    assert!(report.is_complete() && report.files.len() == 2);
    assert_eq!(
        (bench.read(0).as_str(), bench.read(1).as_str()),
        ("-1", "max 100000")
    );
    assert_eq!(fs_err::read(&bench.files[0]).unwrap(), original);
    assert!(!bench.state.journal().exists());
    // And again after the undo, by dropping.
    writer.write(&bench.files[0], &padded("7000")).unwrap();
    drop(writer);
    assert_eq!(bench.read(0), "-1");
}

#[test]
fn a_missing_file_is_an_error_and_is_not_made() {
    let bench = bench(&[]);
    let missing = bench.state.path().join("cpu.maxx");
    let error = bench.writer().write(&missing, "1").unwrap_err();
    assert!(matches!(error, LimitError::File(ref e) if e.is_gone()));
    assert!(!missing.exists());
}

#[test]
fn a_foreign_writer_is_yielded_to() {
    let bench = bench(&["-1", "-1"]);
    let mut writer = bench.writer();
    writer.write(&bench.files[0], &padded("5000")).unwrap();
    writer.write(&bench.files[1], &padded("5000")).unwrap();
    fs_err::write(&bench.files[0], padded("7777")).unwrap();
    for _ in 0..2 {
        let error = writer.write(&bench.files[0], &padded("6000")).unwrap_err();
        assert!(matches!(error, LimitError::ForeignWriter { ref found, .. } if found == "7777"));
    }
    assert!(writer.is_foreign(&bench.files[0]));
    // Noticed at the undo only: reported then.
    fs_err::write(&bench.files[1], padded("8888")).unwrap();
    let report = writer.undo_all().unwrap();
    assert!(matches!(
        &report.files[..],
        [Restored { outcome: Outcome::ForeignWriter { found, original, .. }, .. }]
            if found == "8888" && original == "-1"
    ));
    assert_eq!(
        (bench.read(0).as_str(), bench.read(1).as_str()),
        ("7777", "8888")
    );
}

#[test]
fn after_a_reboot_there_is_nothing_to_restore() {
    let bench = bench(&["-1"]);
    let mut writer = bench.writer();
    writer.write(&bench.files[0], &padded("5000")).unwrap();
    let journal = fs_err::read_to_string(bench.state.journal()).unwrap();
    drop(writer);
    let boot = crate::journal::boot_id(Path::new("/proc")).unwrap();
    fs_err::write(bench.state.journal(), journal.replace(&boot, "another")).unwrap();
    // A group of the same name, made since, that happens to hold what we had written.
    fs_err::write(&bench.files[0], padded("5000")).unwrap();
    let report = bench.restore(ForeignPolicy::LeaveAlone).unwrap();
    assert_eq!(report.files[0].outcome, Outcome::Vanished);
    assert_eq!(bench.read(0), "5000");
    assert!(!bench.state.journal().exists());
}

#[test]
fn overwriting_a_foreign_value_is_a_choice() {
    let bench = bench(&["-1"]);
    let mut writer = bench.writer();
    writer.write(&bench.files[0], &padded("5000")).unwrap();
    let journal = fs_err::read(bench.state.journal()).unwrap();
    drop(writer);
    fs_err::write(bench.state.journal(), journal).unwrap();
    fs_err::write(&bench.files[0], padded("9999")).unwrap();
    let report = bench.restore(ForeignPolicy::Overwrite).unwrap();
    assert_eq!(report.files[0].outcome, Outcome::Restored);
    assert_eq!(bench.read(0), "-1");
}

#[test]
fn the_next_writer_needs_the_lock() {
    let bench = bench(&["-1"]);
    let mut writer = bench.writer();
    writer.write(&bench.files[0], &padded("5000")).unwrap();
    let error = bench.restore(ForeignPolicy::LeaveAlone).unwrap_err();
    assert!(
        error.to_string().contains("hint: end that process first"),
        "{error}"
    );
    assert_eq!(bench.read(0), "5000");
}

#[test]
fn a_journal_left_behind_is_worked_off() {
    let bench = bench(&["-1", "-1", "-1", "-1"]);
    let mut writer = bench.writer();
    for file in &bench.files {
        writer.write(file, &padded("5000")).unwrap();
    }
    let journal = fs_err::read(bench.state.journal()).unwrap();
    drop(writer);
    // As a killed process would have left it.
    fs_err::write(bench.state.journal(), journal).unwrap();
    fs_err::write(&bench.files[0], padded("5000")).unwrap();
    fs_err::write(&bench.files[1], padded("9999")).unwrap();
    fs_err::remove_file(&bench.files[2]).unwrap();
    let report = bench.restore(ForeignPolicy::LeaveAlone).unwrap();
    let outcome = |index: usize| {
        let file = report.files.iter().find(|f| f.path == bench.files[index]);
        file.unwrap().outcome.clone()
    };
    assert_eq!(outcome(0), Outcome::Restored);
    assert!(matches!(outcome(1), Outcome::ForeignWriter { .. }));
    assert_eq!(outcome(2), Outcome::Vanished);
    assert_eq!(outcome(3), Outcome::AlreadyOriginal);
    assert_eq!(
        (bench.read(0).as_str(), bench.read(1).as_str()),
        ("-1", "9999")
    );
    assert!(!bench.state.journal().exists());
    assert_eq!(bench.restore(ForeignPolicy::LeaveAlone).unwrap().files, []);
}

#[test]
fn a_long_run_keeps_a_short_journal() {
    let bench = bench(&["-1"]);
    let mut writer = bench.writer();
    for value in 0..5_000_u32 {
        writer
            .write(&bench.files[0], &padded(&value.to_string()))
            .unwrap();
    }
    let lines = fs_err::read_to_string(bench.state.journal())
        .unwrap()
        .lines()
        .count();
    assert!(lines < 5_000, "{lines} lines");
    writer.undo_all().unwrap();
    assert_eq!(bench.read(0), "-1");
}

/// A journal of this boot that says of a file that it held `FORGED` and was given its content.
fn forge(state: &StateDir, file: &Path) {
    use std::os::unix::fs::MetadataExt;
    let boot = crate::journal::boot_id(Path::new("/proc")).unwrap();
    let content = fs_err::read_to_string(file).unwrap();
    let inode = fs_err::metadata(file).unwrap().ino();
    let lines = [
        serde_json::json!({"header": {"version": 1, "owner": null, "boot_id": boot}}),
        serde_json::json!({"touch": {"path": file, "inode": inode, "original": "FORGED\n"}}),
        serde_json::json!({"write": {"path": file, "value": content}}),
    ];
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    fs_err::write(state.journal(), text).unwrap();
}

fn failed(report: &RestoreReport) -> &str {
    match &report.files[..] {
        [
            Restored {
                outcome: Outcome::Failed { why },
                ..
            },
        ] => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_forged_journal_overwrote_any_file() {
    let bench = bench(&["hello owner"]);
    let misnamed = bench.files[0].with_file_name("victim");
    fs_err::copy(&bench.files[0], &misnamed).unwrap();
    let link = bench.files[0].with_file_name("cpu.cfs_quota_us");
    std::os::unix::fs::symlink(&misnamed, &link).unwrap();
    let policies = [ForeignPolicy::LeaveAlone, ForeignPolicy::Overwrite];
    for policy in policies {
        // Named as a limit file, and not on a cgroup file system.
        forge(&bench.state, &bench.files[0]);
        let report = crate::restore::restore(&bench.state, policy).unwrap();
        let why = failed(&report);
        assert!(why.contains("not on a cgroup file system"), "{why}");
        assert!(!report.is_complete());
        assert!(bench.state.journal().exists(), "it stays to be looked at");

        let (writer, report) = LimitWriter::open(bench.state.lock().unwrap()).unwrap();
        assert!(!report.is_complete());
        drop(writer);
        assert_eq!(bench.read(0), "hello owner");

        // On the right ground, and misnamed; or named right, and a link.
        forge(&bench.state, &misnamed);
        let why = failed(&bench.restore(policy).unwrap()).to_owned();
        assert!(why.contains("its name is none of"), "{why}");
        forge(&bench.state, &link);
        let why = failed(&bench.restore(policy).unwrap()).to_owned();
        assert!(why.contains("symbolic link"), "{why}");
    }
    let text = fs_err::read_to_string(&misnamed).unwrap();
    assert_eq!(text.trim_end(), "hello owner");
}

#[test]
fn the_writer_wrote_files_that_are_no_limits() {
    let bench = bench(&["hello owner"]);
    let (mut writer, _) = LimitWriter::open(bench.state.lock().unwrap()).unwrap();
    let error = writer.write(&bench.files[0], "1 100000").unwrap_err();
    assert!(
        matches!(error, LimitError::File(KernelFileError::NotALimit { .. })),
        "{error}"
    );
    assert_eq!(bench.read(0), "hello owner");
    assert!(!bench.state.journal().exists());
}

#[test]
fn many_files_are_put_back() {
    let bench = bench(&["-1"]);
    let top = bench.files[0].parent().unwrap();
    let mut writer = bench.writer();
    let files: Vec<PathBuf> = (0..300)
        .map(|index| {
            let group = top.join(index.to_string());
            fs_err::create_dir(&group).unwrap();
            let file = group.join("cpu.max");
            fs_err::write(&file, padded(&index.to_string())).unwrap();
            writer.write(&file, &padded("5000")).unwrap();
            file
        })
        .collect();
    // One is another's and one cannot be put back: each is told from the rest.
    fs_err::write(&files[7], padded("9999")).unwrap();
    fs_err::remove_file(&files[8]).unwrap();
    fs_err::create_dir(&files[8]).unwrap();
    let report = writer.undo_all().unwrap();
    assert_eq!(report.files.len(), files.len());
    for file in &report.files {
        let index = files.iter().position(|path| *path == file.path).unwrap();
        match index {
            7 => assert!(matches!(file.outcome, Outcome::ForeignWriter { .. })),
            8 => assert!(matches!(file.outcome, Outcome::Failed { .. })),
            _ => assert_eq!(file.outcome, Outcome::Restored),
        }
    }
    assert!(writer.is_foreign(&files[7]) && !writer.is_foreign(&files[9]));
    let left = crate::journal::load(&bench.state.journal())
        .unwrap()
        .unwrap()
        .entries;
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].path, files[8]);
}
