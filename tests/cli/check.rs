//! `firm check`: all problems of all files together, and every file of ours that is meant to be
//! right.

use std::path::{Path, PathBuf};

use crate::program::{USAGE, checkout, firm};

const CONFIGURATION: &str = "\
tracer: {grace: 10s, idle: 1s}
objectives:
  - {service: shop, operation: browse, quantile: .nan, bound: 20}
extractor:
  trigger: {least: 400, false_alarm: .inf}
  treshold: {ri: 0.5}
mitigator:
  cpu_upper: 2GiB
  cool_down: 0s
";

const CAMPAIGN: &str = "\
targets: [cart-0]
anomalies:
  - {kind: cpu, target: cart-0, start: 5s, duration: 10s, intensity_range: [0.8, 0.2]}
  - {kind: cpu, target: other-0, start: 5, duration: 10s, intensity: .nan}
";

const TOPOLOGY: &str = "\
load: {rate: -1}
requests:
  - {service: gateway, operation: go, objective: {quantile: 1.5, bound: 80ms}}
services:
  gateway:
    cpu: 250MB
    cpu_limit: 1
    operations: {go: {steps: [{cpu: 1ms}]}}
";

/// Writes the texts and gives their paths.
fn written(dir: &Path, files: &[(&str, &str)]) -> Vec<String> {
    let write = |(name, text): &(&str, &str)| {
        let path = dir.join(name);
        fs_err::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    files.iter().map(write).collect()
}

fn check(files: &[String]) -> crate::program::Finished {
    firm(std::iter::once("check").chain(files.iter().map(String::as_str)))
}

#[test]
fn all_problems_of_all_files_come_together_with_file_line_key_value_and_rule() {
    let dir = tempfile::tempdir().unwrap();
    let files = [
        ("firm.yaml", CONFIGURATION),
        ("campaign.yaml", CAMPAIGN),
        ("topology.yaml", TOPOLOGY),
        ("torn.yaml", "tracer: [1\n"),
    ];
    let paths = written(dir.path(), &files);
    let done = check(&paths).exits(USAGE);
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let expected = [
        (
            "firm.yaml",
            "1: tracer.grace: must be at most idle (1s) (value `10s`)",
        ),
        (
            "firm.yaml",
            "3: objectives[0].quantile: quantile NaN is not strictly between 0 and 1 (value `NaN`)",
        ),
        (
            "firm.yaml",
            "3: objectives[0].bound: expected a time with a unit like `250us`, `20ms` or `1.5s` (value `20`)",
        ),
        (
            "firm.yaml",
            "5: extractor.trigger.least: must be at most most (300) (value `400`)",
        ),
        (
            "firm.yaml",
            "5: extractor.trigger.false_alarm: expected a finite number (value `inf`)",
        ),
        (
            "firm.yaml",
            "6: extractor.treshold: unknown key (value `a map of 1`); did you mean `threshold`?",
        ),
        (
            "firm.yaml",
            "8: mitigator.cpu_upper: `2GiB` has no unit of CPU",
        ),
        (
            "firm.yaml",
            "9: mitigator.cool_down: must be above zero (value `0s`)",
        ),
        (
            "campaign.yaml",
            "3: anomalies[0].intensity_range: expected two numbers from 0 to 1, rising",
        ),
        (
            "campaign.yaml",
            "4: anomalies[1].target: is not among the campaign's `targets` (value `other-0`)",
        ),
        (
            "campaign.yaml",
            "4: anomalies[1].start: expected a time with a unit",
        ),
        (
            "campaign.yaml",
            "4: anomalies[1].intensity: intensity NaN is not within 0..=1 (value `NaN`)",
        ),
        (
            "topology.yaml",
            "1: load.rate: must be above 0 and at most 100000 a second (value `-1`)",
        ),
        (
            "topology.yaml",
            "3: requests[0].objective.quantile: quantile 1.5 is not strictly between 0 and 1 (value `1.5`)",
        ),
        (
            "topology.yaml",
            "6: services.gateway.cpu: `250MB` has no unit of CPU",
        ),
        (
            "topology.yaml",
            "7: services.gateway.cpu_limit: unknown key (value `1`)",
        ),
        ("torn.yaml", "2: not YAML: "),
    ];
    for (file, problem) in expected {
        let line = format!("{}:{problem}", at(file));
        assert!(
            done.stderr.lines().any(|said| said.starts_with(&line)),
            "{line}\nis not in\n{}",
            done.stderr
        );
    }
    let ours = |line: &str| {
        paths
            .iter()
            .any(|path| line.starts_with(&format!("{path}:")))
    };
    assert!(done.stderr.lines().all(ours), "{}", done.stderr);
    assert_eq!(done.stdout, "");
}

#[test]
fn file_that_cannot_be_read_hides_no_problem_of_another() {
    let dir = tempfile::tempdir().unwrap();
    let mut paths = vec![dir.path().join("missing.yaml").to_str().unwrap().to_owned()];
    let bytes = dir.path().join("bytes.yaml");
    fs_err::write(&bytes, b"\xff\xfe").unwrap();
    paths.push(bytes.to_str().unwrap().to_owned());
    paths.extend(written(dir.path(), &[("firm.yaml", CONFIGURATION)]));
    let done = check(&paths).exits(USAGE);
    done.says(&[
        &format!("{}: ", paths[0]),
        "No such file or directory",
        &format!("{}: ", paths[1]),
        "UTF-8",
        &format!("{}:9: mitigator.cool_down", paths[2]),
    ]);
}

#[test]
fn right_files_are_told_by_their_kind_and_an_empty_one_is_all_defaults() {
    let dir = tempfile::tempdir().unwrap();
    let campaign = "targets: [a-0]\nanomalies: [{kind: cpu, target: a-0, start: 1s, duration: 2s, \
                    intensity: 0.5}]\n";
    let files = [("empty.yaml", ""), ("campaign.yaml", campaign)];
    let paths = written(dir.path(), &files);
    let done = check(&paths).exits(0);
    let lines: Vec<&str> = done.stdout.lines().collect();
    assert_eq!(
        lines,
        [
            format!("{}: a configuration, no problems", paths[0]),
            format!("{}: a campaign, no problems", paths[1]),
        ]
    );
}

#[test]
fn every_yaml_of_the_checkout_that_is_meant_to_be_right_is() {
    let mut files = Vec::new();
    for dir in [
        "crates",
        "docs",
        "tests",
        "tracer",
        "extractor",
        "mitigator",
        "injector",
    ] {
        yaml_below(&checkout(dir), &mut files);
    }
    assert!(
        files
            .iter()
            .any(|file| file.ends_with("topologies/demo.yaml")),
        "{files:?}"
    );
    let names: Vec<String> = files
        .iter()
        .map(|file| file.to_str().unwrap().to_owned())
        .collect();
    check(&names).exits(0);
}

/// All YAML files below a directory but those with `wrong` in their name, which are meant to be.
fn yaml_below(dir: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs_err::read_dir(dir) else {
        return;
    };
    for entry in entries {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let is_yaml = name.ends_with(".yaml") || name.ends_with(".yml");
        if path.is_dir() && name != "target" {
            yaml_below(&path, found);
        } else if is_yaml && !name.contains("wrong") {
            found.push(path);
        }
    }
}
