//! The documents say what is true: their examples parse, every field and key is in them, and
//! their links lead somewhere.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use firm_injector::Campaign;
use firm_lab::analyze::{analyze, per_trace};
use firm_lab::demo::event::{InstanceLimit, Phase, Status};
use firm_lab::demo::report::{Budget, LimitChange, LimitCheck, SpanCounts, Times};
use firm_lab::demo::{DemoEvent, RunReport};
use firm_lab::settings::Settings;
use firm_model::{
    Anomaly, AnomalyKind, Applied, Change, Culprit, Event, Finding, InstanceId, Intensity,
    Interner, Latency, MilliCores, Part, PathRule, Resource, Timestamp, Verdict,
};
use firm_testbed::Topology;
use firm_tracer::file::read_path;
use serde_json::Value;

fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn text(path: &str) -> String {
    fs_err::read_to_string(root().join(path)).unwrap()
}

/// All Markdown files below `dir`, or right in it.
fn markdown(dir: &Path, below: bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs_err::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && below {
            found.extend(markdown(&path, true));
        } else if path.extension().is_some_and(|e| e == "md") {
            found.push(path);
        }
    }
    found
}

/// The documents that a user or contributor reads.
fn documents() -> Vec<PathBuf> {
    let mut all = markdown(&root().join("docs"), true);
    all.extend(markdown(&root(), false));
    all.push(root().join("tests/README.md"));
    all
}

/// Fenced blocks whose fence says `language mark`.
fn blocks(text: &str, fence: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.trim_end() == format!("```{fence}") {
            let inside: Vec<&str> = lines.by_ref().take_while(|l| *l != "```").collect();
            found.push(inside.join("\n"));
        }
    }
    found
}

#[test]
fn every_yaml_example_parses_as_what_it_is() {
    let mut seen = BTreeSet::new();
    for path in documents() {
        let file = path.display().to_string();
        let text = fs_err::read_to_string(&path).unwrap();
        for block in blocks(&text, "yaml firm") {
            Settings::parse(&file, &block).unwrap();
            seen.insert("firm");
        }
        for block in blocks(&text, "yaml topology") {
            Topology::parse(&file, &block).unwrap();
            seen.insert("topology");
        }
        for block in blocks(&text, "yaml campaign") {
            Campaign::parse(&file, &block).unwrap();
            seen.insert("campaign");
        }
        assert!(
            blocks(&text, "yaml").is_empty(),
            "{file}: a YAML block that does not say what it is"
        );
    }
    assert_eq!(seen, BTreeSet::from(["campaign", "firm", "topology"]));
}

#[test]
fn defaults_in_the_document_are_the_defaults_of_the_code() {
    let blocks = blocks(&text("docs/reference/configuration.md"), "yaml firm");
    let mut documented = Settings::parse("configuration.md", &blocks[0]).unwrap();
    documented.objectives.clear();
    assert_eq!(documented, Settings::default());
}

/// Texts in quotes that look like a key, of the part of a source file before its tests.
fn quoted_words(source: &str) -> BTreeSet<String> {
    let code = source.split("#[cfg(test)]").next().unwrap();
    let code: Vec<&str> = code
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect();
    let code = code.join("\n");
    let is_key =
        |word: &&str| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    // Every second piece between quotes is a literal; none of these files has escaped quotes.
    let words = code.split('"').skip(1).step_by(2).filter(is_key);
    words.map(str::to_owned).collect()
}

#[test]
fn every_key_that_is_read_is_documented() {
    let document = text("docs/reference/configuration.md");
    for source in [
        "crates/lab/src/settings.rs",
        "crates/testbed/src/topology/read.rs",
        "injector/src/campaign.rs",
    ] {
        let keys = quoted_words(&text(source));
        assert!(keys.len() > 5, "{source}: {keys:?}");
        for key in keys {
            let is_named = names(&document).any(|name| name.split('.').any(|part| part == key));
            assert!(is_named, "`{key}` of {source} is not in configuration.md");
        }
    }
}

/// What stands in backticks.
fn names(document: &str) -> impl Iterator<Item = &str> {
    let lines = document.lines();
    lines.flat_map(|line| line.split('`').skip(1).step_by(2))
}

/// The last part of a name: of `a.b[].c` it is `c`.
fn last(name: &str) -> &str {
    name.rsplit(['.', ']']).next().unwrap_or(name)
}

/// Every key of every object in a value, but for maps whose keys are data.
fn keys(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (key, inside) in map {
                found.insert(key.clone());
                keys(inside, found);
            }
        }
        Value::Array(list) => list.iter().for_each(|inside| keys(inside, found)),
        _ => {}
    }
}

fn assert_documented(values: &[Value], document: &str) {
    let mut found = BTreeSet::new();
    values.iter().for_each(|value| keys(value, &mut found));
    assert!(found.len() > 10, "{found:?}");
    let text = text(document);
    for key in found {
        let is_named = names(&text).any(|name| last(name) == key);
        assert!(is_named, "`{key}` is not in {document}");
    }
}

#[test]
fn every_field_of_an_analysis_is_documented() {
    let mut values = Vec::new();
    for file in [
        "tests/data/wire/otlp-export-500spans.pb",
        "tests/data/jaeger-json/ids-not-hexadecimal.json",
        "tests/data/jaeger-json/hotrod-4-traces.json.gz",
        "tests/data/zipkin-json/messaging-kafka.json",
    ] {
        let (names, mut spans) = (Interner::new(), Vec::new());
        let Ok(read) = read_path(&root().join(file), &names, &mut spans) else {
            continue;
        };
        values.push(serde_json::to_value(read).unwrap());
        let report = analyze(&spans, Some(&spans), PathRule::Firm, &names);
        values.push(serde_json::to_value(report).unwrap());
        // Twice, so that something is left out.
        spans.extend_from_within(..);
        let report = analyze(&spans, None, PathRule::Firm, &names);
        values.push(serde_json::to_value(report).unwrap());
        per_trace(&spans, PathRule::Firm, &names, |line| {
            values.push(serde_json::to_value(line).unwrap());
        });
    }
    assert_documented(&values, "docs/reference/analyze-json.md");
}

fn anomaly() -> Anomaly {
    Anomaly {
        kind: AnomalyKind::Cpu,
        target: InstanceId::new("cart-0"),
        start: Timestamp::EPOCH,
        end: Timestamp::MAX,
        asked: Intensity::new(0.4).unwrap(),
        achieved: None,
    }
}

fn events() -> Vec<DemoEvent> {
    let (instance, cpu) = (InstanceId::new("cart-0"), Some(MilliCores::new(140)));
    let limit = InstanceLimit {
        instance: instance.clone(),
        cpu,
    };
    let applied = Applied {
        instance: instance.clone(),
        resource: Resource::Cpu,
        from: cpu,
        to: cpu,
        at: Timestamp::EPOCH,
    };
    let culprit = Culprit {
        service: "cart".to_owned(),
        instance: instance.clone(),
        part: Part::Server,
        verdict: Verdict::Resource(Resource::Cpu),
        score: 1.0,
        ri: None,
        ci: None,
        why: String::new(),
    };
    vec![
        DemoEvent::Started {
            instances: vec![limit.clone()],
            rate: 70.0,
            only_recommends: None,
        },
        DemoEvent::Phase {
            phase: Phase::WarmUp,
            at_s: 0.0,
        },
        DemoEvent::Status(Status {
            at_s: 0.0,
            of_s: 40.0,
            request_type: "gateway/browse".to_owned(),
            p50: Some(Latency::ZERO),
            p99: Some(Latency::ZERO),
            bound: Latency::ZERO,
            quantile: 0.99,
            per_second: 0,
            changed: vec![limit],
        }),
        DemoEvent::Injected {
            target: instance.clone(),
            at: Timestamp::EPOCH,
            intensity: 0.4,
        },
        DemoEvent::InjectionEnded(anomaly()),
        DemoEvent::Finding(Finding {
            id: 1,
            at: Timestamp::EPOCH,
            window_start: Timestamp::EPOCH,
            window_end: Timestamp::EPOCH,
            request_type: "gateway/browse".to_owned(),
            culprits: vec![culprit],
            evidence: Vec::new(),
        }),
        DemoEvent::Change(Change {
            applied,
            finding: Some(1),
            by: "rule".to_owned(),
            undo: false,
        }),
        DemoEvent::Recommendation {
            instance,
            cpu,
            finding: Some(1),
        },
        DemoEvent::TakenBack,
        DemoEvent::Note {
            text: String::new(),
        },
    ]
}

fn report() -> RunReport {
    let instance = InstanceId::new("cart-0");
    RunReport {
        seed: 1,
        enforced: true,
        false_alarms: 0,
        violations_after_holding: Some(0),
        mitigated: true,
        interrupted: false,
        target: instance.clone(),
        asked: 0.4,
        achieved: None,
        times: Times::default(),
        culprit: Some(instance.clone()),
        verdict: Some(Verdict::Resource(Resource::Cpu)),
        culprit_right: true,
        action: Some(LimitChange {
            instance,
            from: None,
            to: None,
        }),
        others_changed: Vec::new(),
        budget: Some(Budget {
            export: Latency::ZERO,
            grace: Latency::ZERO,
            window: Latency::ZERO,
            decision: Latency::ZERO,
            write: Latency::ZERO,
        }),
        requests: 0,
        violations: 0,
        total_requests: 0,
        taken_back_at: None,
        limits: LimitCheck::default(),
        spans: SpanCounts::default(),
    }
}

#[test]
fn every_event_and_field_of_a_demo_is_documented() {
    let mut values: Vec<Value> = events()
        .iter()
        .map(|event| serde_json::to_value(event).unwrap())
        .collect();
    let document = text("docs/reference/demo-json.md");
    for value in &values {
        let heading = format!("### `{}`", value["event"].as_str().unwrap());
        assert!(document.contains(&heading), "no {heading}");
    }
    values.push(serde_json::to_value(report()).unwrap());
    assert_documented(&values, "docs/reference/demo-json.md");
}

#[test]
fn example_of_the_event_log_is_one() {
    let blocks = blocks(&text("docs/reference/files.md"), "json events");
    let mut kinds = BTreeSet::new();
    for line in blocks[0].lines().skip(1) {
        let event: Event = serde_json::from_str(line).unwrap();
        let again = serde_json::to_value(&event).unwrap();
        assert_eq!(again, serde_json::from_str::<Value>(line).unwrap());
        kinds.insert(again["event"].as_str().unwrap().to_owned());
    }
    assert_eq!(kinds.len(), 3, "{kinds:?}");
}

#[test]
fn every_relative_link_leads_to_a_file() {
    let mut followed = 0;
    let mut broken = Vec::new();
    for path in documents() {
        let text = fs_err::read_to_string(&path).unwrap();
        for after in text.split("](").skip(1) {
            let target = after.split([')', '#', ' ']).next().unwrap_or_default();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            followed += 1;
            if !path.parent().unwrap().join(target).exists() {
                broken.push(format!("{}: {target}", path.display()));
            }
        }
    }
    assert!(followed > 0);
    assert!(broken.is_empty(), "{broken:#?}");
}
