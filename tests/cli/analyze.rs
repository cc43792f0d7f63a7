//! `firm analyze`: its JSON, its baseline, its directories, and what it says of damaged input.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use crate::program::{Finished, checkout, command, data, firm};

const HOTROD: &str = "jaeger-json/hotrod-4-traces.json.gz";

fn json(arguments: &[&str]) -> Value {
    let arguments = [&["analyze", "--output", "json"], arguments].concat();
    firm(arguments).exits(0).json()
}

/// Writes a file and gives its path.
fn written(dir: &Path, name: &str, bytes: &[u8]) -> String {
    let path = dir.join(name);
    fs_err::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Paths of all fields, those of list members under `[]`.
fn fields(value: &Value, at: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let path = format!("{at}.{key}");
                found.insert(path.clone());
                fields(value, &path, found);
            }
        }
        Value::Array(list) => {
            for value in list {
                fields(value, &format!("{at}[]"), found);
            }
        }
        _ => {}
    }
}

#[test]
fn field_names_stay() {
    let mut found = BTreeSet::new();
    let hotrod = data(HOTROD);
    let report = json(&[&hotrod, "--baseline", &hotrod]);
    fields(&report, "", &mut found);
    let found: Vec<&String> = found.iter().collect();
    let golden = checkout("tests/cli/analyze.fields");
    let golden = fs_err::read_to_string(golden).unwrap();
    let golden: Vec<&str> = golden.lines().collect();
    assert_eq!(found, golden);
}

#[test]
fn hotrod_gives_the_figures_that_its_spans_say() {
    let report = json(&[&data(HOTROD)]);
    assert_eq!(report["rule"], "firm");
    assert_eq!(report["spans"], 158);
    let counts = &report["traces"];
    assert_eq!((&counts["read"], &counts["used"]), (&4.into(), &4.into()));
    assert_eq!(report["files"][0]["files"][0]["format"], "jaeger_json");
    assert_eq!(report["files"][0]["files"][0]["gzip"], true);
    let request = &report["requests"][0];
    assert_eq!(request["service"], "frontend");
    assert_eq!(request["operation"], "/dispatch");
    assert_eq!(request["requests"], 4);
    // By nearest rank the median of four is the second.
    let lines = firm(["analyze", &data(HOTROD), "--per-trace"]).exits(0);
    let mut roots: Vec<i64> = lines
        .json_lines()
        .iter()
        .map(|line| line["root_ns"].as_i64().unwrap())
        .collect();
    roots.sort_unstable();
    assert_eq!(request["latency"]["p50_ns"], roots[1]);
    assert_eq!(request["latency"]["p99_ns"], roots[3]);
    let shares = report["path_share"].as_array().unwrap();
    let sum: f64 = shares
        .iter()
        .map(|row| row["share"].as_f64().unwrap())
        .sum();
    assert!((sum - 1.0).abs() < 1e-9, "{sum}");
    let owned: i64 = shares
        .iter()
        .map(|row| row["path_ns"].as_i64().unwrap())
        .sum();
    assert_eq!(owned, roots.iter().sum::<i64>());
    // HotROD's own story: its database is what takes the time.
    assert_eq!(shares[0]["service"], "mysql");
    assert_eq!(request["instances"][0]["service"], "mysql");
}

#[test]
fn baseline_names_the_instance_that_grew() {
    let file = |day: &str| {
        data(&format!(
            "nezha/onlineboutique/2022-08-22/{day}_trace.csv.gz"
        ))
    };
    let labels = fs_err::read_to_string(data("nezha/labels.json")).unwrap();
    let labels: Value = serde_json::from_str(&labels).unwrap();
    let culprit = labels["faults"]
        .as_array()
        .unwrap()
        .iter()
        .find(|fault| fault["id"] == "ob_2022-08-22_0353_frontend")
        .map(|fault| fault["culprit_pod"].as_str().unwrap())
        .unwrap();
    let report = json(&[&file("03_55"), "--baseline", &file("03_53")]);
    assert!(report["baseline_traces"].as_u64().unwrap() > 0);
    let grown: BTreeSet<&str> = report["requests"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|request| request["instances"].as_array().unwrap())
        .filter(|instance| instance["is_culprit"] == true)
        .map(|instance| instance["instance"].as_str().unwrap())
        .collect();
    assert!(grown.contains(culprit), "{culprit} is not among {grown:?}");
}

#[test]
fn same_traces_as_baseline_grow_by_nothing_and_blame_nobody() {
    let hotrod = data(HOTROD);
    let report = json(&[&hotrod, "--baseline", &hotrod]);
    for request in report["requests"].as_array().unwrap() {
        assert_eq!(request["latency"], request["baseline_latency"]);
        for instance in request["instances"].as_array().unwrap() {
            assert_eq!(instance["is_culprit"], false, "{instance}");
            for part in ["server", "gap"] {
                let change = &instance[part]["baseline"]["mean_change_ns"];
                assert!(change.is_null() || change == 0.0, "{instance}");
            }
        }
    }
}

#[test]
fn directory_is_read_whole_and_what_is_no_trace_is_named() {
    let report = json(&[&data("")]);
    let of = |key: &str| report["files"][0][key].as_array().unwrap().clone();
    let formats: BTreeSet<String> = of("files")
        .iter()
        .map(|file| file["format"].as_str().unwrap().to_owned())
        .collect();
    let expected = [
        "jaeger_json",
        "jaeger_proto",
        "jaeger_thrift_batch",
        "jaeger_thrift_binary",
        "jaeger_thrift_compact",
        "nezha_csv",
        "otlp_json",
        "otlp_proto",
        "zipkin_json",
    ];
    assert_eq!(formats, expected.map(str::to_owned).into());
    for failed in of("failed") {
        let said = failed.as_str().unwrap();
        let has_place = [": byte 0: ", ": line ", ": span "]
            .iter()
            .any(|place| said.contains(place));
        assert!(has_place, "{said}");
    }
    let failed = of("failed");
    assert!(
        failed
            .iter()
            .any(|said| said.as_str().unwrap().contains("wire/README.md: byte 0")),
        "{failed:?}"
    );
}

#[test]
fn all_forms_of_one_message_read_alike() {
    for form in [
        "udp-compact-emitbatch.bin",
        "udp-binary-emitbatch.bin",
        "thrift-http-binary-batch.bin",
    ] {
        let report = json(&[&data(&format!("wire/{form}"))]);
        assert_eq!(report["spans"], 3, "{form}");
    }
    let report = json(&[&data("wire/otlp-export-500spans.pb")]);
    assert_eq!(report["spans"], 500);
    assert_eq!(report["traces"]["read"], 50);
}

#[test]
fn table_shows_the_traces_the_paths_and_the_instances() {
    let done = firm(["analyze", &data(HOTROD)]).exits(0);
    for part in [
        "158 spans",
        "4 traces",
        "mysql",
        "SQL SELECT",
        "frontend",
        "p99",
    ] {
        assert!(
            done.stdout.contains(part),
            "`{part}` is not in\n{}",
            done.stdout
        );
    }
    assert_eq!(done.stderr, "");
}

#[test]
fn damaged_file_fails_with_its_name_the_position_and_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let cases: [(&str, &[u8], &str); 5] = [
        (
            "cut.json",
            br#"{"data":[{"traceID":"1","spans":[{"traceID"#,
            "line 1, column 35: string is not closed (read as jaeger_json)",
        ),
        (
            "text.txt",
            b"hello",
            "byte 0: neither JSON nor a known binary form or table; it begins with `hello`",
        ),
        ("empty", b"", "byte 0: the file is empty"),
        (
            "list.json",
            b"[1, 2]",
            "line 1: JSON of no known trace format",
        ),
        ("cut.gz", b"\x1f\x8b\x08\x00\x00\x00", "byte "),
    ];
    for (name, bytes, said) in cases {
        let path = written(dir.path(), name, bytes);
        let done = firm(["analyze", &path]).exits(1);
        let said = format!("error: {path}: {said}");
        assert!(done.stderr.starts_with(&said), "{said}\n{}", done.stderr);
        assert_eq!(done.stdout, "");
    }
}

#[test]
fn damaged_file_loses_no_neighbour() {
    let dir = tempfile::tempdir().unwrap();
    let broken = written(dir.path(), "broken.json", br#"{"data":[{"traceID""#);
    let report = json(&[&broken, &data(HOTROD)]);
    assert_eq!(report["spans"], 158);
    let failed = report["files"][0]["failed"][0].as_str().unwrap();
    assert!(
        failed.starts_with(&format!("{broken}: line 1, column ")),
        "{failed}"
    );
    let done = firm(["analyze", &broken, &data(HOTROD)]).exits(0);
    assert!(
        done.stdout.contains(&format!("not used: {broken}: line 1")),
        "{}",
        done.stdout
    );
}

#[test]
fn spans_before_a_cut_are_kept_and_the_cut_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let whole = fs_err::read(data(HOTROD)).unwrap();
    let cut = written(dir.path(), "cut.gz", &whole[..whole.len() / 2]);
    let report = json(&[&cut]);
    let spans = report["spans"].as_u64().unwrap();
    assert!((1..158).contains(&spans), "{spans}");
    let damage = report["files"][0]["files"][0]["damage"].as_str().unwrap();
    assert!(damage.starts_with("byte "), "{damage}");
    firm(["analyze", &cut, "--per-trace"])
        .exits(0)
        .says(&[&format!("{cut}: read only in part: byte ")]);
}

#[test]
fn name_without_a_file_and_directory_without_traces_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().to_str().unwrap();
    let missing = format!("{empty}/missing.json");
    firm(["analyze", &missing])
        .exits(1)
        .says(&[&missing, "No such file or directory"]);
    // A name that was mistyped is not passed over for the sake of another.
    firm(["analyze", &data(HOTROD), &missing])
        .exits(1)
        .says(&[&missing]);
    firm(["analyze", &data(HOTROD), "--baseline", &missing])
        .exits(1)
        .says(&[&missing]);
    firm(["analyze", empty])
        .exits(1)
        .says(&[&format!("no spans in {empty}"), "hint: Jaeger JSON"]);
}

#[test]
fn reader_that_leaves_early_is_no_failure() {
    for form in [&["--per-trace"][..], &["--output", "json"][..], &[][..]] {
        let mut child = command()
            .args(["analyze", &data("wire")])
            .args(form)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::with_capacity(16, child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        drop(stdout);
        let done = Finished::from(child.wait_with_output().unwrap());
        let done = done.exits(0);
        assert!(!done.stderr.contains("error"), "{form:?}: {}", done.stderr);
    }
}

#[test]
fn names_of_others_do_not_reach_the_terminal_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let text = r#"[{"traceID":"1","spanID":"1","operationName":"\u001b[2J\u001b]0;x\u0007\ny",
        "startTime":1,"duration":5,"process":{"serviceName":"a\u009b2J"}},{"traceID":"zz","spanID":"1"}]"#;
    let path = written(dir.path(), "spans\u{1b}[2J.json", text.as_bytes());
    let bad = written(dir.path(), "bad\u{1b}[2J", b"hello");
    let is_unfit = |c: char| c.is_control() && c != '\n';

    let table = firm(["analyze", &path, &bad]).exits(0).stdout;
    assert!(!table.contains(is_unfit), "{table:?}");
    for part in [
        r"a\u{9b}2J \u{1b}[2J\u{1b}]0;x\u{7}\ny",
        r"spans\u{1b}[2J.json: spans refused: bad_trace_id 1",
        r"bad\u{1b}[2J: byte 0",
    ] {
        assert!(table.contains(part), "`{part}` is not in\n{table}");
    }
    let lines = firm(["analyze", &path, "--per-trace"]).exits(0);
    assert!(!lines.stderr.contains(is_unfit), "{:?}", lines.stderr);
    let missing = format!("{path}.not");
    for wrong in [&bad, &missing] {
        let done = firm(["analyze", wrong]).exits(1);
        assert!(!done.stderr.contains(is_unfit), "{:?}", done.stderr);
    }
    let checked = firm(["check", &bad]).exits(64);
    assert!(!checked.stderr.contains(is_unfit), "{:?}", checked.stderr);

    // Programs get them exactly.
    let report = json(&[&path]);
    let request = &report["requests"][0];
    assert_eq!(request["operation"], "\u{1b}[2J\u{1b}]0;x\u{7}\ny");
    assert_eq!(report["files"][0]["files"][0]["path"], path);
}

#[test]
fn one_wrong_name_among_three_traces_loses_none() {
    let dir = tempfile::tempdir().unwrap();
    let trace = |id: u8, name: &str| {
        format!(
            r#"{{"traceID":"{id}","spans":[{{"traceID":"{id}","spanID":"1","operationName":"{name}","startTime":1,"duration":5,"processID":"p"}}],"processes":{{"p":{{"serviceName":"a"}}}}}}"#
        )
    };
    let traces = [trace(1, "x"), trace(2, r"x\ud83d"), trace(3, "x")].join(",");
    let path = written(
        dir.path(),
        "three.json",
        format!(r#"{{"data":[{traces}]}}"#).as_bytes(),
    );
    let report = json(&[&path]);
    assert_eq!(report["spans"], 3);
    let file = &report["files"][0]["files"][0];
    assert_eq!(file["damage"], Value::Null);
    assert_eq!(file["decoded"]["notes"]["name_not_utf8"], 1);
}

#[test]
fn a_number_of_threads_that_no_machine_has_is_wrong_usage() {
    for threads in ["0", "1025", "100000", "18446744073709551615"] {
        firm(["analyze", &data(HOTROD), "--threads", threads])
            .exits(64)
            .says(&["--threads", "expected a number from 1 to 1024"]);
    }
    let report = json(&[&data(HOTROD), "--threads", "1024"]);
    assert_eq!(report["spans"], 158);
}
