//! `firm analyze --per-trace`: one JSON line a trace, by each rule.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::program::{Finished, data, firm};

const RULES: [&str; 4] = ["firm", "paper", "jaeger-ui", "crisp"];

const INPUTS: [&str; 4] = [
    "jaeger-json/hotrod-4-traces.json.gz",
    "wire",
    "zipkin-json",
    "otlp-json",
];

fn per_trace(input: &str, rule: &str) -> Finished {
    firm(["analyze", &data(input), "--per-trace", "--rule", rule]).exits(0)
}

fn nanos(value: &Value) -> i64 {
    value.as_i64().unwrap()
}

#[test]
fn every_line_has_the_documented_fields_by_every_rule() {
    for rule in RULES {
        for line in per_trace(INPUTS[0], rule).json_lines() {
            let keys: Vec<&String> = line.as_object().unwrap().keys().collect();
            let expected = ["root_ns", "root_span_id", "sections", "trace_id", "unused"];
            assert_eq!(keys, expected, "{rule}");
            for section in line["sections"].as_array().unwrap() {
                let keys: Vec<&String> = section.as_object().unwrap().keys().collect();
                let expected = [
                    "end_ns",
                    "instance",
                    "operation",
                    "service",
                    "span_id",
                    "start_ns",
                ];
                assert_eq!(keys, expected, "{rule}");
            }
        }
    }
}

#[test]
fn sections_sum_to_the_root_and_are_in_time_order() {
    for input in INPUTS {
        for rule in ["firm", "jaeger-ui"] {
            for line in per_trace(input, rule).json_lines() {
                let sections = line["sections"].as_array().unwrap();
                let times: Vec<(i64, i64)> = sections
                    .iter()
                    .map(|section| (nanos(&section["start_ns"]), nanos(&section["end_ns"])))
                    .collect();
                let sum: i64 = times.iter().map(|(start, end)| end - start).sum();
                assert_eq!(sum, nanos(&line["root_ns"]), "{rule} {input}: {line}");
                assert!(
                    times.windows(2).all(|pair| pair[0].1 <= pair[1].0),
                    "{rule} {input}: {line}"
                );
            }
        }
    }
}

#[test]
fn every_rule_finds_a_path_in_every_trace() {
    let traces = |rule| -> BTreeSet<String> {
        let lines = per_trace(INPUTS[0], rule).json_lines();
        lines
            .iter()
            .map(|line| line["trace_id"].as_str().unwrap().to_owned())
            .collect()
    };
    let by_firm = traces("firm");
    assert_eq!(by_firm.len(), 4);
    for rule in RULES {
        assert_eq!(traces(rule), by_firm, "{rule}");
        for line in per_trace(INPUTS[0], rule).json_lines() {
            let sections = line["sections"].as_array().unwrap();
            assert!(!sections.is_empty(), "{rule}: {line}");
            assert!(line["root_span_id"].is_string(), "{rule}: {line}");
        }
    }
}

#[test]
fn right_values_of_a_trace_worked_by_hand() {
    // A root of 100 us; its second child ends last, the first before that one begins.
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.json");
    let span = |id: &str, parent: Option<&str>, service: &str, start: u64, micros: u64| {
        let parent = parent.map_or_else(String::new, |id| format!(r#","parentId":"{id}""#));
        format!(
            r#"{{"traceId":"000000000000000a","id":"{id}"{parent},"name":"{service}-op","timestamp":{start},"duration":{micros},"localEndpoint":{{"serviceName":"{service}"}}}}"#
        )
    };
    let spans = [
        span("000000000000000a", None, "shop", 1_000_000, 100),
        span(
            "000000000000000b",
            Some("000000000000000a"),
            "cart",
            1_000_010,
            20,
        ),
        span(
            "000000000000000c",
            Some("000000000000000a"),
            "price",
            1_000_040,
            50,
        ),
    ];
    fs_err::write(&file, format!("[{}]", spans.join(","))).unwrap();
    for rule in ["firm", "jaeger-ui"] {
        let done = firm([
            "analyze",
            file.to_str().unwrap(),
            "--per-trace",
            "--rule",
            rule,
        ]);
        let line = done.exits(0).json();
        assert_eq!(line["root_ns"], 100_000);
        let sections: Vec<(String, i64, i64)> = line["sections"]
            .as_array()
            .unwrap()
            .iter()
            .map(|section| {
                let service = section["service"].as_str().unwrap().to_owned();
                let from = |key: &str| nanos(&section[key]) - 1_000_000_000;
                (service, from("start_ns"), from("end_ns"))
            })
            .collect();
        let expected = [
            ("shop", 0, 10_000),
            ("cart", 10_000, 30_000),
            ("shop", 30_000, 40_000),
            ("price", 40_000, 90_000),
            ("shop", 90_000, 100_000),
        ];
        let expected = expected.map(|(service, from, to)| (service.to_owned(), from, to));
        assert_eq!(sections, expected, "{rule}");
    }
}

#[test]
fn spans_left_out_are_named_with_the_reason() {
    // Two of the files hold the same span, one of them with other content besides.
    let lines = per_trace("otlp-json", "firm").json_lines();
    let reasons: BTreeSet<&str> = lines
        .iter()
        .flat_map(|line| line["unused"].as_array().unwrap())
        .inspect(|entry| assert!(entry["span_id"].is_string(), "{entry}"))
        .map(|entry| entry["reason"].as_str().unwrap())
        .collect();
    assert_eq!(reasons, BTreeSet::from(["conflicting_id", "duplicate"]));
}

#[test]
fn files_not_used_are_named_on_standard_error() {
    per_trace("otlp-json", "firm").says(&["not used: ", "README.md: byte 0"]);
}
