use super::*;
use proptest::prelude::*;

fn entry(path: &str, original: &[u8]) -> Entry {
    Entry {
        path: PathBuf::from(path),
        inode: 12,
        original: original.to_owned(),
        written: None,
        effective: None,
    }
}

fn journal(dir: &Path) -> Journal {
    Journal::new(dir.join("limits.journal"), Header::own(Path::new("/proc")))
}

#[test]
fn what_was_written_is_read_and_left_files_are_gone() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = journal(dir.path());
    assert_eq!(load(&journal.path).unwrap(), None);
    journal.touch(&entry("/a", b"-1\n")).unwrap();
    journal.writing(Path::new("/a"), b"5000").unwrap();
    journal.effective(Path::new("/a"), b"5000\n").unwrap();
    journal.touch(&entry("/b", b"\xff\x00")).unwrap();
    journal.touch(&entry("/c", b"max\n")).unwrap();
    journal.left(Path::new("/c")).unwrap();
    let loaded = load(&journal.path).unwrap().unwrap();
    assert_eq!(loaded.header, journal.header);
    let expected = vec![
        Entry {
            written: Some(b"5000".to_vec()),
            effective: Some(b"5000\n".to_vec()),
            ..entry("/a", b"-1\n")
        },
        entry("/b", b"\xff\x00"),
    ];
    assert_eq!(loaded.entries, expected);
    journal.rewrite(&loaded.entries).unwrap();
    assert_eq!(load(&journal.path).unwrap().unwrap(), loaded);
    journal.remove().unwrap();
    assert_eq!(load(&journal.path).unwrap(), None);
}

#[test]
fn a_torn_end_loses_only_the_last_line() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = journal(dir.path());
    journal.touch(&entry("/a", b"1\n")).unwrap();
    journal.touch(&entry("/b", b"2\n")).unwrap();
    let whole = fs_err::read(&journal.path).unwrap();
    let last_line = whole[..whole.len() - 1]
        .iter()
        .rposition(|b| *b == b'\n')
        .unwrap()
        + 1;
    for end in 0..whole.len() {
        fs_err::write(&journal.path, &whole[..end]).unwrap();
        let entries = load(&journal.path).unwrap().map_or(0, |l| l.entries.len());
        assert!(entries <= 1);
        if end >= last_line {
            assert_eq!(entries, 1, "cut at {end}");
        }
    }
}

#[test]
fn a_broken_line_in_the_middle_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = journal(dir.path());
    journal.touch(&entry("/a", b"1\n")).unwrap();
    let text = fs_err::read_to_string(&journal.path).unwrap();
    fs_err::write(&journal.path, text.replacen('\n', "\nbroken\n", 1)).unwrap();
    assert!(matches!(
        load(&journal.path),
        Err(JournalError::Line { line: 2, .. })
    ));
    fs_err::write(
        &journal.path,
        text.replace("\"version\":1", "\"version\":9"),
    )
    .unwrap();
    assert!(matches!(
        load(&journal.path),
        Err(JournalError::Version { found: 9, .. })
    ));
}

#[test]
fn a_whole_line_that_is_not_understood_was_taken_for_torn() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    fs_err::write(&path, "{\"header\":{\"v\":2}}\n").unwrap();
    let why = load(&path).unwrap_err().to_string();
    assert!(why.contains("line 1: missing field `version`"), "{why}");

    let mut journal = journal(dir.path());
    journal.touch(&entry("/a", b"1\n")).unwrap();
    let whole = fs_err::read_to_string(&journal.path).unwrap();
    fs_err::write(&path, format!("{whole}{{\"touch\":{{\"pa")).unwrap();
    assert_eq!(load(&path).unwrap().unwrap().entries.len(), 1, "torn");
    fs_err::write(&path, format!("{whole}{{\"touch\":{{\"pa\n")).unwrap();
    assert!(matches!(
        load(&path),
        Err(JournalError::Line { line: 3, .. })
    ));
    let touch = whole.split_once('\n').unwrap().1;
    fs_err::write(&path, touch).unwrap();
    assert!(matches!(
        load(&path),
        Err(JournalError::Line { line: 1, .. })
    ));
}

#[test]
fn links_and_fifos_for_journals_were_followed_and_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let victim = dir.path().join("victim");
    fs_err::write(&victim, "hello owner").unwrap();
    let mut journal = journal(dir.path());
    let new = journal.path.with_extension("new");
    std::os::unix::fs::symlink(&victim, &new).unwrap();
    journal.touch(&entry("/a", b"1\n")).unwrap();
    assert_eq!(load(&journal.path).unwrap().unwrap().entries.len(), 1);
    assert_eq!(fs_err::read_to_string(&victim).unwrap(), "hello owner");
    assert!(!new.is_symlink());

    for target in [victim.as_path(), Path::new("/dev/zero")] {
        fs_err::remove_file(&journal.path).unwrap();
        std::os::unix::fs::symlink(target, &journal.path).unwrap();
        assert!(matches!(load(&journal.path), Err(JournalError::Io { .. })));
    }
    fs_err::remove_file(&journal.path).unwrap();
    nix::unistd::mkfifo(&journal.path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(matches!(load(&journal.path), Err(JournalError::Io { .. })));
}

#[test]
fn a_file_touched_again_has_one_entry_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = journal(dir.path());
    for (path, original) in [("/a", b"1\n"), ("/b", b"2\n"), ("/a", b"3\n")] {
        journal.touch(&entry(path, original)).unwrap();
    }
    let entries = load(&journal.path).unwrap().unwrap().entries;
    assert_eq!(entries, [entry("/b", b"2\n"), entry("/a", b"3\n")]);
}

proptest! {
    #[test]
    fn any_bytes_read_back(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
        let value = FileBytes(bytes);
        let text = serde_json::to_string(&value).unwrap();
        prop_assert_eq!(serde_json::from_str::<FileBytes>(&text).unwrap(), value);
    }

    #[test]
    fn any_file_is_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("j");
        fs_err::write(&path, bytes).unwrap();
        let _ = load(&path);
    }
}
