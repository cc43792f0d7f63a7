use std::path::Path;

use firm_model::SpanId;
use firm_tracer::file::read_path;
use proptest::prelude::*;

use super::*;

fn read(name: &str, names: &Interner) -> Vec<Span> {
    let path = format!("{}/../../tests/data/{name}", env!("CARGO_MANIFEST_DIR"));
    let mut spans = Vec::new();
    read_path(Path::new(&path), names, &mut spans).unwrap();
    spans
}

const BEFORE: &str = "nezha/onlineboutique/2022-08-23/15_38_trace.csv.gz";
const FAULT: &str = "nezha/onlineboutique/2022-08-23/15_40_trace.csv.gz";

#[test]
fn delayed_instance_is_the_culprit_against_the_baseline() {
    let names = Interner::new();
    let (before, fault) = (read(BEFORE, &names), read(FAULT, &names));
    let report = analyze(&fault, Some(&before), PathRule::Firm, &names);
    assert_eq!((report.traces.read, report.traces.used), (40, 40));
    let request = &report.requests[0];
    assert_eq!(request.operation, "hipstershop.Frontend/Recv.");
    let first = &request.instances[0];
    assert_eq!(first.service, "shippingservice");
    assert_eq!((first.is_culprit, first.part), (true, Part::Gap));
    let change = first.gap.unwrap().baseline.unwrap();
    assert!(change.mean_change_ns > 50e6, "{change:?}");
    let others = request.instances.iter().skip(1).filter(|i| i.is_culprit);
    assert_eq!(others.count(), 0);
}

#[test]
fn shares_sum_to_one() {
    let names = Interner::new();
    let fault = read(FAULT, &names);
    let report = analyze(&fault, None, PathRule::Firm, &names);
    let sum: f64 = report.path_share.iter().map(|s| s.share).sum();
    assert!((sum - 1.0).abs() < 1e-9);
    let parts = report.requests[0].instances.iter();
    let parts: f64 = parts
        .flat_map(|i| [i.server, i.gap])
        .flatten()
        .map(|p| p.path_share)
        .sum();
    assert!((parts - 1.0).abs() < 1e-9, "{parts}");
    let path_ns: i64 = report.path_share.iter().map(|s| s.path_ns).sum();
    let latency = report.requests[0].latency.mean_ns * 40.0;
    assert!((path_ns as f64 - latency).abs() < 1.0);
}

#[test]
fn sections_of_each_trace_sum_to_its_root() {
    let names = Interner::new();
    let spans = read(FAULT, &names);
    let mut lines = Vec::new();
    per_trace(&spans, PathRule::Firm, &names, |line| lines.push(line));
    assert_eq!(lines.len(), 40);
    for line in &lines {
        let sum: i64 = line.sections.iter().map(|s| s.end_ns - s.start_ns).sum();
        assert_eq!(sum, line.root_ns);
        assert!(line.sections.is_sorted_by_key(|s| s.start_ns));
    }
    let text = serde_json::to_value(&lines[0]).unwrap();
    let fields: Vec<&String> = text.as_object().unwrap().keys().collect();
    let wanted = ["root_ns", "root_span_id", "sections", "trace_id", "unused"];
    assert_eq!(fields, wanted);
    let section = text["sections"][0].as_object().unwrap();
    let fields: Vec<&String> = section.keys().collect();
    let wanted = [
        "end_ns",
        "instance",
        "operation",
        "service",
        "span_id",
        "start_ns",
    ];
    assert_eq!(fields, wanted);
}

#[test]
fn trace_without_duration_is_not_used_and_says_why() {
    let names = Interner::new();
    let mut spans = read(FAULT, &names);
    let root = spans.iter().position(|s| s.parent_id.is_none()).unwrap();
    let mut alone = spans.swap_remove(root);
    (alone.end, alone.parent_id) = (alone.start, Some(SpanId::new([9; 8]).unwrap()));
    let report = analyze(&[alone, alone], None, PathRule::Firm, &names);
    assert_eq!(
        report.traces.unused,
        BTreeMap::from([(UnusedTrace::NoDuration, 1)])
    );
    assert_eq!(
        report.unused_spans,
        BTreeMap::from([(UnusedReason::Duplicate, 1)])
    );
    assert_eq!(report.traces.foreign_roots, 1);
    let text = report.to_string();
    assert!(
        text.starts_with("2 spans, 1 traces, 0 used, 1 not used (no duration)"),
        "{text}"
    );
}

#[test]
fn times_at_the_end_of_what_can_be_told_do_not_overflow() {
    let names = Interner::new();
    let mut spans = read(FAULT, &names);
    for span in &mut spans {
        (span.start, span.end) = (firm_model::Timestamp::EPOCH, firm_model::Timestamp::MAX);
    }
    for rule in PathRule::ALL {
        let report = analyze(&spans, Some(&spans), rule, &names);
        assert_eq!(report.traces.used, 40, "{rule}");
        per_trace(&spans, rule, &names, |line| {
            assert_eq!(line.root_ns, i64::MAX)
        });
    }
}

#[test]
fn nothing_gives_an_empty_report() {
    let report = analyze(&[], Some(&[]), PathRule::Paper, &Interner::new());
    assert_eq!((report.traces.read, report.requests.len()), (0, 0));
    assert!(report.to_string().contains("0 spans"));
}

#[test]
fn tables_name_the_culprit() {
    let names = Interner::new();
    let (before, fault) = (read(BEFORE, &names), read(FAULT, &names));
    let text = analyze(&fault, Some(&before), PathRule::Firm, &names).to_string();
    let marked: Vec<&str> = text.lines().filter(|l| l.starts_with('!')).collect();
    assert_eq!(marked.len(), 1, "{text}");
    assert!(marked[0].contains("shippingservice"), "{text}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn report_does_not_depend_on_the_order_of_spans_or_on_threads(seed in any::<prop::sample::Index>()) {
        let names = Interner::new();
        let spans = read(FAULT, &names);
        let before = read(BEFORE, &names);
        let mut turned = spans.clone();
        turned.rotate_left(seed.index(spans.len()));
        turned.reverse();
        for rule in PathRule::ALL {
            let one = analyze(&spans, Some(&before), rule, &names);
            prop_assert_eq!(&one, &analyze(&turned, Some(&before), rule, &names));
            let threads = NonZeroUsize::new(3).unwrap();
            prop_assert_eq!(&one, &analyze_in(threads, &turned, Some(&before), rule, &names));
        }
    }
}

#[test]
fn a_thread_that_cannot_be_started_leaves_its_work_to_the_caller() {
    let names = Interner::new();
    let spans = read(FAULT, &names);
    // No machine has room for such a stack.
    let builder = || thread::Builder::new().stack_size(1 << 62);
    assert!(builder().spawn(|| ()).is_err());
    let pass = Pass::over_shards(&shards(&spans, 4), PathRule::Firm, builder);
    assert_eq!((pass.spans, pass.used), (spans.len() as u64, 40));
}

#[test]
fn more_threads_than_any_machine_has_are_not_started() {
    let names = Interner::new();
    let spans = read(FAULT, &names);
    let known = analyze(&spans, None, PathRule::Firm, &names);
    let report = analyze_in(NonZeroUsize::MAX, &spans, None, PathRule::Firm, &names);
    assert_eq!(report.to_string(), known.to_string());
}

#[test]
fn names_from_traces_reach_a_terminal_escaped_and_programs_as_they_are() {
    let text = r#"[{"traceID":"1","spanID":"1","operationName":"\u001b[2Jx\ny","startTime":1,
        "duration":5,"process":{"serviceName":"a\u0007","tags":[
        {"key":"hostname","type":"string","value":"h\u009b2J"}]}}]"#;
    let (names, mut spans) = (Interner::new(), Vec::new());
    firm_tracer::decode::jaeger_json::decode(text.as_bytes(), &names, &mut spans).unwrap();
    let report = analyze(&spans, None, PathRule::Firm, &names);
    let table = report.to_string();
    for name in [r"a\u{7}", r"\u{1b}[2Jx\ny", r"h\u{9b}2J"] {
        assert!(table.contains(name), "{name} is not in\n{table}");
    }
    assert!(!table.contains(|c: char| c.is_control() && c != '\n'));
    assert_eq!(report.requests[0].operation, "\u{1b}[2Jx\ny");
    assert_eq!(report.requests[0].instances[0].instance, "a\u{7}@h\u{9b}2J");
}
