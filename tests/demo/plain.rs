//! What a demo says where there is no terminal: plain lines, and a table at the end.

use std::io::{BufRead, BufReader, Read};
use std::sync::mpsc::{Receiver, channel};

/// Lines of a stream as they come.
pub(crate) fn lines(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        // Ends with the program, or with the test that listens.
        let _ = BufReader::new(stream)
            .lines()
            .map_while(Result::ok)
            .try_for_each(|line| sender.send(line));
    });
    lines
}

/// Asserts what a dry run tells on standard error, and the table on standard output.
#[track_caller]
pub(crate) fn assert_told(told: &[String], table: &str) {
    let text = told.join("\n");
    assert!(!text.contains('\u{1b}'), "no control sequences: {text:?}");
    for part in [
        "only recommends, changes no limit: asked to change nothing",
        "learning what is normal",
        "injected: CPU contention in `",
        "recommended: `",
    ] {
        assert!(text.contains(part), "`{part}` is not in\n{text}");
    }
    for part in [
        "recommendations only",
        "injected into",
        "objective violated at",
        "culprit named at",
        "(right)",
        "limit files as before",
    ] {
        assert!(table.contains(part), "`{part}` is not in\n{table}");
    }
}
