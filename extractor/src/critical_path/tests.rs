use std::collections::{BTreeMap, HashMap};

use firm_model::{EdgeKind, Interner, ParentRelation, Span, SpanId, SpanKind, Symbol, TraceId};
use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn at(nanos: i64) -> Timestamp {
    Timestamp::EPOCH.saturating_add_nanos(nanos)
}

fn span(number: u64, start: i64, end: i64) -> Span {
    Span {
        trace_id: TraceId::new([7; 16]).unwrap(),
        span_id: SpanId::new((number + 1).to_be_bytes()).unwrap(),
        parent_id: None,
        start: at(start),
        end: at(end),
        service: Symbol::EMPTY,
        operation: Symbol::EMPTY,
        instance: Symbol::EMPTY,
        kind: SpanKind::Unspecified,
        relation: ParentRelation::ChildOf,
        error: false,
        shared: false,
    }
}

struct Link {
    span: Span,
    parent: Option<usize>,
    background: bool,
}

/// Builds a graph in canonical order (by start, then id).
fn graph(links: &[Link]) -> ExecutionGraph {
    let mut order: Vec<usize> = (0..links.len()).collect();
    order.sort_by_key(|i| (links[*i].span.start, links[*i].span.span_id));
    let mut place = vec![0; links.len()];
    for (new, old) in order.iter().enumerate() {
        place[*old] = u32::try_from(new).unwrap();
    }
    let spans = order.iter().map(|i| links[*i].span).collect();
    let parents = order
        .iter()
        .map(|i| links[*i].parent.map(|p| NodeId::new(place[p])))
        .collect();
    let edges = order
        .iter()
        .map(|i| match links[*i].background {
            true => EdgeKind::Background,
            false => EdgeKind::Call,
        })
        .collect();
    let trace_id = links[0].span.trace_id;
    ExecutionGraph::from_parents(trace_id, spans, parents, edges, Vec::new()).unwrap()
}

fn read(name: &str) -> Value {
    let path = format!(
        "{}/../tests/data/critical-path-cases/{name}",
        env!("CARGO_MANIFEST_DIR")
    );
    serde_json::from_str(&fs_err::read_to_string(path).unwrap()).unwrap()
}

/// A case's graph, with each span's operation set to its id in the case.
fn case_graph(spans: Vec<(Link, String, Option<String>)>, names: &Interner) -> ExecutionGraph {
    let places: HashMap<String, usize> = spans
        .iter()
        .enumerate()
        .map(|(i, (_, id, _))| (id.clone(), i))
        .collect();
    let links: Vec<Link> = spans
        .into_iter()
        .map(|(mut link, id, parent)| {
            link.span.instance = names.intern(&id);
            link.parent = parent.map(|p| places[&p]);
            link
        })
        .collect();
    graph(&links)
}

fn section_names(path: &CriticalPath, graph: &ExecutionGraph, names: &Interner) -> Vec<Value> {
    path.sections
        .iter()
        .map(|s| {
            let id = names.resolve(graph.span(s.node).instance);
            serde_json::json!([&*id, s.start.as_nanos(), s.end.as_nanos()])
        })
        .collect()
}

fn node_names(path: &CriticalPath, graph: &ExecutionGraph, names: &Interner) -> Vec<Value> {
    path.nodes
        .iter()
        .map(|n| Value::from(&*names.resolve(graph.span(*n).instance)))
        .collect()
}

#[test]
fn cases_of_jaeger_ui_and_crisp() {
    let data = read("cases.json");
    let cases = data["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 26);
    let (mut by_sections, mut by_time, mut by_order) = (0, 0, 0);
    for case in cases {
        let name = case["name"].as_str().unwrap();
        let names = Interner::new();
        let spans = case["spans"].as_array().unwrap().iter().enumerate();
        let spans = spans.map(|(i, s)| {
            let start = s["start"].as_i64().unwrap();
            let mut own = span(i as u64, start, start + s["duration"].as_i64().unwrap());
            own.service = names.intern(s["service"].as_str().unwrap_or_default());
            own.operation = names.intern(s["operation"].as_str().unwrap_or_default());
            let background = s["background"].as_bool().unwrap_or(false);
            let link = Link {
                span: own,
                parent: None,
                background,
            };
            let parent = s["parent"].as_str().map(str::to_owned);
            (link, s["id"].as_str().unwrap().to_owned(), parent)
        });
        let graph = case_graph(spans.collect(), &names);
        let rule = if name.starts_with("crisp") {
            PathRule::Crisp
        } else {
            PathRule::JaegerUi
        };
        let path = critical_path(&graph, graph.roots()[0], rule);
        if let Some(expected) = case["expected_sections"].as_array() {
            let mut expected = expected.clone();
            expected.sort_by_key(|section| section[1].as_i64());
            assert_eq!(section_names(&path, &graph, &names), expected, "{name}");
            by_sections += 1;
        }
        if let Some(expected) = case["expected_exclusive"].as_array() {
            let mut times: BTreeMap<(Symbol, Symbol), i64> = BTreeMap::new();
            for node in &path.nodes {
                let s = graph.span(*node);
                times.entry((s.service, s.operation)).or_default();
            }
            for section in &path.sections {
                let s = graph.span(section.node);
                *times.entry((s.service, s.operation)).or_default() += section.nanos();
            }
            let expected: BTreeMap<(Symbol, Symbol), i64> = expected
                .iter()
                .map(|e| {
                    let symbol = |key: &str| names.intern(e[key].as_str().unwrap());
                    (
                        (symbol("service"), symbol("operation")),
                        e["time"].as_i64().unwrap(),
                    )
                })
                .collect();
            assert_eq!(times, expected, "{name}");
            by_time += 1;
        }
        if let Some(expected) = case["expected_path_order"].as_array() {
            assert_eq!(&node_names(&path, &graph, &names), expected, "{name}");
            by_order += 1;
        }
    }
    assert_eq!((by_sections, by_time, by_order), (9, 16, 1));
}

#[test]
fn hand_worked_cases() {
    let data = read("hand-worked.json");
    let mut count: BTreeMap<&str, usize> = BTreeMap::new();
    for case in data["cases"].as_array().unwrap() {
        let names = Interner::new();
        let spans = case["spans"].as_array().unwrap().iter().enumerate();
        let spans = spans.map(|(i, s)| {
            let times = (s[1].as_i64().unwrap(), s[2].as_i64().unwrap());
            let background = s[4].as_str() == Some("background");
            let link = Link {
                span: span(i as u64, times.0, times.1),
                parent: None,
                background,
            };
            (
                link,
                s[0].as_str().unwrap().to_owned(),
                s[3].as_str().map(str::to_owned),
            )
        });
        let graph = case_graph(spans.collect(), &names);
        let rule = case["rule"].as_str().unwrap();
        let path = critical_path(&graph, graph.roots()[0], rule.parse().unwrap());
        let label = format!("{rule}: {}", case["name"]);
        let sections = Value::Array(section_names(&path, &graph, &names));
        assert_eq!(sections, case["sections"], "{label}");
        let nodes = Value::Array(node_names(&path, &graph, &names));
        assert_eq!(nodes, case["nodes"], "{label}");
        *count.entry(rule).or_default() += 1;
    }
    assert!(count["firm"] >= 8 && count["paper"] >= 8, "{count:?}");
}

fn client_and_server(server_start: i64, server_end: i64) -> ExecutionGraph {
    let mut client = span(0, 100, 200);
    client.kind = SpanKind::Client;
    let mut server = span(1, server_start, server_end);
    server.kind = SpanKind::Server;
    graph(&[
        Link {
            span: client,
            parent: None,
            background: false,
        },
        Link {
            span: server,
            parent: Some(0),
            background: false,
        },
    ])
}

#[test]
fn crisp_leaves_a_lone_server_span_where_its_clock_puts_it() {
    let graph = client_and_server(250, 310);
    let root = graph.roots()[0];
    let path = critical_path(&graph, root, PathRule::Crisp);
    let own = |node| -> i64 {
        let mine = path.sections.iter().filter(|s| s.node == node);
        mine.map(Section::nanos).sum()
    };
    assert_eq!((own(NodeId::new(0)), own(NodeId::new(1))), (40, 60));
    // The others find it outside its parent.
    let firm = critical_path(&graph, root, PathRule::Firm);
    assert_eq!(firm.nodes, vec![root]);
}

#[test]
fn crisp_holds_a_lone_server_span_to_the_duration_of_its_client() {
    let graph = client_and_server(90, 400);
    let path = critical_path(&graph, NodeId::new(1), PathRule::Crisp);
    let times: Vec<i64> = path.sections.iter().map(Section::nanos).collect();
    assert_eq!(times, vec![100]);
}

#[test]
fn foreign_root_and_unknown_node() {
    let graph = client_and_server(110, 120);
    assert!(
        critical_path(&graph, NodeId::new(9), PathRule::Firm)
            .nodes
            .is_empty()
    );
    let below = critical_path(&graph, NodeId::new(1), PathRule::Firm);
    assert_eq!((below.root_nanos, below.sections.len()), (10, 1));
}

#[test]
fn hundred_thousand_deep_and_wide() {
    let count = 100_000_i64;
    let deep: Vec<Link> = (0..count)
        .map(|n| Link {
            span: span(n.cast_unsigned(), n, 3 * count - n),
            parent: usize::try_from(n - 1).ok(),
            background: false,
        })
        .collect();
    let wide: Vec<Link> = (0..count)
        .map(|n| Link {
            // Serial calls that overlap by one, under every rule's tolerance.
            span: span(
                n.cast_unsigned(),
                n * 10,
                if n == 0 { count * 10 + 1 } else { n * 10 + 11 },
            ),
            parent: (n > 0).then_some(0),
            background: false,
        })
        .collect();
    for rule in PathRule::ALL {
        let path = critical_path(&graph(&deep), NodeId::new(0), rule);
        assert_eq!(path.nodes.len(), 100_000, "{rule}");
        let path = critical_path(&graph(&wide), NodeId::new(0), rule);
        let chained = matches!(rule, PathRule::Firm | PathRule::Crisp);
        assert_eq!(path.nodes.len() == 100_000, chained, "{rule}");
    }
}

prop_compose! {
    /// Graphs with nonsense times: children anywhere, ends before starts, ties.
    fn any_graph()(
        rows in prop::collection::vec(
            (0_i64..40, -5_i64..40, any::<prop::sample::Index>(), prop::bool::weighted(0.1)),
            1..40,
        ),
        scale in prop::sample::select(vec![1_i64, 37, 1_000_000_007]),
    ) -> ExecutionGraph {
        let links: Vec<Link> = rows.iter().enumerate().map(|(i, (start, length, parent, background))| {
            let (start, end) = (start * scale, (start + length).max(0) * scale);
            Link {
                span: span(i as u64, start, end),
                parent: (i > 0).then(|| parent.index(i)),
                background: *background,
            }
        }).collect();
        graph(&links)
    }
}

proptest! {
    #[test]
    fn sections_sum_to_the_root_and_follow_each_other(graph in any_graph()) {
        for node in graph.nodes() {
            for rule in [PathRule::Firm, PathRule::JaegerUi] {
                let path = critical_path(&graph, node, rule);
                let sum: i64 = path.sections.iter().map(Section::nanos).sum();
                prop_assert_eq!(sum, graph.span(node).duration_nanos());
                let mut cursor = graph.span(node).start;
                for section in &path.sections {
                    prop_assert_eq!(section.start, cursor);
                    prop_assert!(section.nanos() > 0);
                    cursor = section.end;
                }
            }
        }
    }

    #[test]
    fn path_lies_within_the_root(graph in any_graph()) {
        for root in graph.roots() {
            let span = graph.span(*root);
            for rule in PathRule::ALL {
                let path = critical_path(&graph, *root, rule);
                for section in &path.sections {
                    prop_assert!(section.start >= span.start && section.end <= span.end);
                }
                prop_assert!(path.sections.is_sorted_by_key(|s| s.start));
            }
        }
    }

    #[test]
    fn parents_come_before_children_and_none_is_background(graph in any_graph()) {
        for rule in PathRule::ALL {
            let root = graph.roots()[0];
            let path = critical_path(&graph, root, rule);
            let mut seen = vec![false; graph.spans().len()];
            for node in &path.nodes {
                prop_assert!(!seen[node.index()]);
                seen[node.index()] = true;
                if *node != root {
                    prop_assert_eq!(graph.edge(*node), EdgeKind::Call);
                    prop_assert!(graph.parent(*node).is_some_and(|p| seen[p.index()]));
                }
            }
            for section in &path.sections {
                prop_assert!(seen[section.node.index()]);
            }
        }
    }

    #[test]
    fn paper_takes_at_least_what_a_strict_chain_takes(graph in any_graph()) {
        // Every link of the chain ended before the last returned child began.
        let root = graph.roots()[0];
        let paper = critical_path(&graph, root, PathRule::Paper);
        let chain = critical_path(&graph, root, PathRule::JaegerUi);
        for node in &chain.nodes {
            prop_assert!(paper.nodes.contains(node));
        }
    }
}
