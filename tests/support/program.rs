//! The built `firm`, run to its end.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// Exit code of wrong usage and of wrong configuration.
pub(crate) const USAGE: i32 = 64;

/// What a finished program left.
pub(crate) struct Finished {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The program, with nothing of the caller's environment that it would read.
pub(crate) fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_firm"));
    command.env_remove("FIRM_STATE_DIR");
    command
}

/// Runs the program with these arguments.
pub(crate) fn firm<I: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = I>) -> Finished {
    Finished::from(command().args(arguments).output().unwrap())
}

/// A file or directory of the checkout.
pub(crate) fn checkout(path: impl AsRef<Path>) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// A file or directory of `tests/data`, as an argument.
pub(crate) fn data(path: &str) -> String {
    let path = checkout("tests/data").join(path);
    path.to_str().unwrap().to_owned()
}

impl From<Output> for Finished {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Finished {
    /// Asserts the exit code; shows what was said otherwise.
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(
            self.code,
            Some(code),
            "\n-- stdout\n{}\n-- stderr\n{}",
            self.stdout,
            self.stderr
        );
        self
    }

    /// Asserts that standard error has all these parts.
    #[track_caller]
    pub(crate) fn says(self, parts: &[&str]) -> Self {
        for part in parts {
            assert!(
                self.stderr.contains(part),
                "`{part}` is not in\n{}",
                self.stderr
            );
        }
        self
    }

    /// Standard output as lines of JSON.
    #[track_caller]
    pub(crate) fn json_lines(&self) -> Vec<Value> {
        self.stdout
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Standard output as one JSON value.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        let mut lines = self.json_lines();
        assert_eq!(lines.len(), 1, "{}", self.stdout);
        lines.remove(0)
    }
}
