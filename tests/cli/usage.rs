//! Help, exit codes, and what wrong arguments are answered with.

use crate::program::{USAGE, firm};

#[test]
fn help_says_what_a_newcomer_needs() {
    let parts: &[(&[&str], &[&str])] = &[
        (
            &["--help"],
            &[
                "firm demo",
                "firm analyze FILE",
                "demo",
                "analyze",
                "check",
                "restore",
                "eval",
                "Exit codes: 0 done, 1 failed, 64 wrong usage or configuration",
            ],
        ),
        (
            &["demo", "--help"],
            &[
                "--seed",
                "--duration",
                "--dry-run",
                "--no-comparison",
                "--keep-groups",
                "--output",
                "--state-dir",
                "FIRM_STATE_DIR",
            ],
        ),
        (
            &["analyze", "--help"],
            &[
                "<FILE>...",
                "--baseline",
                "--rule",
                "jaeger-ui",
                "--per-trace",
                "--output",
            ],
        ),
        (&["check", "--help"], &["<FILE>...", "YAML"]),
        (
            &["restore", "--help"],
            &["--keep-groups", "--state-dir", "--output"],
        ),
        (&["eval", "--help"], &["demo", "localise"]),
        (&["eval", "demo", "--help"], &["--seeds", "FIRST..LAST"]),
        (&["eval", "localise", "--help"], &["--nezha", "labels.json"]),
    ];
    for (arguments, parts) in parts {
        let help = firm(*arguments).exits(0);
        for part in *parts {
            assert!(
                help.stdout.contains(part),
                "`{part}` is not in the help of {arguments:?}\n{}",
                help.stdout
            );
        }
        // What the program starts itself is nobody's business.
        assert!(!help.stdout.contains("testbed-service"), "{arguments:?}");
    }
}

#[test]
fn version_is_that_of_the_package() {
    let version = firm(["--version"]).exits(0);
    assert_eq!(
        version.stdout.trim(),
        format!("firm {}", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn wrong_usage_exits_64_and_says_what_was_expected() {
    let cases: &[(&[&str], &str)] = &[
        (&[], "Usage:"),
        (&["demonstrate"], "unrecognized subcommand 'demonstrate'"),
        (&["analyze"], "<FILE>..."),
        (&["check"], "<FILE>..."),
        (&["eval"], "Usage:"),
        (&["eval", "localise"], "--nezha <DIR>"),
        (
            &["demo", "--sed", "1"],
            "a similar argument exists: '--seed'",
        ),
        (&["demo", "--seed", "-1"], "-1"),
        (&["demo", "--seed", "1.5"], "invalid digit"),
        (&["demo", "--duration", "5"], "expected a time with a unit"),
        (
            &["demo", "--duration", "NaN"],
            "expected a time with a unit",
        ),
        (&["demo", "--duration", "5s"], "at least 15s are needed"),
        (&["demo", "--output", "xml"], "possible values: table, json"),
        (
            &["analyze", "x", "--rule", "crispy"],
            "expected firm, paper, jaeger-ui or crisp",
        ),
        (
            &["eval", "demo", "--seeds", "3..1"],
            "first seed 3 is above last seed 1",
        ),
        (&["eval", "demo", "--seeds", "1-3"], "FIRST..LAST"),
        (
            &["eval", "demo", "--duration", "1s"],
            "at least 15s are needed",
        ),
    ];
    for (arguments, expected) in cases {
        let state = tempfile::tempdir().unwrap();
        let mut command = crate::program::command();
        command.args(*arguments).env("FIRM_STATE_DIR", state.path());
        let done = crate::program::Finished::from(command.output().unwrap());
        let done = done.exits(USAGE);
        assert!(
            done.stderr.contains(expected),
            "{arguments:?}: `{expected}` is not in\n{}",
            done.stderr
        );
        assert_eq!(done.stdout, "", "{arguments:?}");
    }
}

#[test]
fn configuration_that_cannot_be_read_fails_before_anything_is_started() {
    let state = tempfile::tempdir().unwrap();
    let wrong = state.path().join("wrong.yaml");
    fs_err::write(&wrong, "mitigator: {cpu_uper: 2}\n").unwrap();
    let (state, wrong) = (state.path().join("state"), wrong.to_str().unwrap());
    let state = state.to_str().unwrap();
    for key in ["--config", "--topology"] {
        firm(["demo", "--state-dir", state, key, "/no/such/file.yaml"])
            .exits(USAGE)
            .says(&["/no/such/file.yaml"]);
        firm(["demo", "--state-dir", state, key, wrong])
            .exits(USAGE)
            .says(&[&format!("{wrong}:1: mitigator")]);
    }
    assert!(!std::path::Path::new(state).exists());
}
