//! From YAML to a topology that keeps all rules.

use std::collections::BTreeMap;

use firm_config::Section;
use firm_model::{Latency, MilliCores, Objective, Quantile};

use super::{
    Arrivals, Call, Distribution, EntryRequest, Operation, Service, Step, Topology, Tracer, Work,
    need,
};

/// The kernel grants no quota below 1 ms per period of 100 ms.
const LEAST_CPU: MilliCores = MilliCores::new(10);
const MOST_THREADS: u32 = 256;
const MOST_REPLICAS: u32 = 100;
const MOST_WORK: Latency = Latency::from_millis(10_000);
const MOST_RATE: f64 = 100_000.0;

type MakeStep = fn(Vec<Call>) -> Step;

/// What is checked once all services are known, with the section to blame.
#[derive(Default)]
struct Later<'a> {
    calls: Vec<(Section<'a>, Vec<(&'static str, Call)>)>,
    operations: Vec<(Section<'a>, Call)>,
    services: Vec<Section<'a>>,
}

pub(super) fn topology(root: &mut Section<'_>) -> Option<Topology> {
    let mut later = Later::default();
    let services = services(root, &mut later);
    let requests = requests(root, &mut later);
    let (rate, arrivals) = load(root);
    if services.is_empty() {
        root.problem("services", "at least one service is needed");
    }
    if requests.is_empty() {
        root.problem("requests", "at least one request type is needed");
    }
    let known = all_known(&services, &later);
    let circles = circles(&services, &later);
    let rate = rate?;
    if known && !circles {
        for ((service, section), need) in services
            .iter()
            .zip(&later.services)
            .zip(need(&services, &requests, rate))
        {
            let granted = service
                .cpu
                .get()
                .saturating_mul(u64::from(service.replicas));
            if need.get() >= granted {
                section.problem("cpu", format!("cannot carry the load, which needs {need}"));
            }
        }
    }
    Some(Topology {
        services,
        requests,
        rate,
        arrivals,
    })
}

fn load(root: &mut Section<'_>) -> (Option<f64>, Arrivals) {
    let Some(mut load) = root.section("load") else {
        root.problem("load", "missing, expected `rate` and `arrivals`");
        return (None, Arrivals::Poisson);
    };
    let rate = load.required::<f64>("rate").filter(|rate| {
        let right = *rate > 0.0 && *rate <= MOST_RATE;
        if !right {
            load.problem(
                "rate",
                format!("must be above 0 and at most {MOST_RATE} a second"),
            );
        }
        right
    });
    let arrivals = choice(
        &mut load,
        "arrivals",
        &[
            ("poisson", Arrivals::Poisson),
            ("constant", Arrivals::Constant),
        ],
    );
    (rate, arrivals)
}

/// One of several words; the first is the default.
fn choice<T: Copy>(section: &mut Section<'_>, key: &'static str, words: &[(&str, T)]) -> T {
    let given: Option<String> = section.optional(key);
    match given {
        None => words[0].1,
        Some(given) => match words.iter().find(|(word, _)| *word == given) {
            Some((_, value)) => *value,
            None => {
                let all: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                section.problem(key, format!("expected one of {}", all.join(", ")));
                words[0].1
            }
        },
    }
}

/// Names become directories, URL paths and span names.
fn check_name(section: &Section<'_>, name: &str) {
    let right = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || name.len() > 63 || !name.chars().all(right) {
        section.problem("", "name must be 1 to 63 letters, digits, `-` or `_`");
    }
}

fn within(section: &Section<'_>, key: &str, value: u32, most: u32) {
    if value == 0 || value > most {
        section.problem(key, format!("must be from 1 to {most}"));
    }
}

fn services<'a>(root: &mut Section<'a>, later: &mut Later<'a>) -> Vec<Service> {
    let mut services = Vec::new();
    for (name, mut section) in root.entries("services") {
        check_name(&section, &name);
        let replicas = section.or("replicas", 1_u32);
        within(&section, "replicas", replicas, MOST_REPLICAS);
        let threads = section.or("threads", 1_u32);
        within(&section, "threads", threads, MOST_THREADS);
        let cpu: MilliCores = section.required("cpu").unwrap_or(LEAST_CPU);
        if cpu < LEAST_CPU {
            section.problem(
                "cpu",
                format!("the kernel grants no quota below {LEAST_CPU}"),
            );
        }
        // One more than the working threads, because the requests are served by another one.
        let useful = MilliCores::new(1000 * (u64::from(threads) + 1));
        if cpu > useful {
            let rule = format!("more than its threads can use, which is {useful}");
            section.problem("cpu", rule);
        }
        let tracer = choice(
            &mut section,
            "tracer",
            &[("otlp", Tracer::Otlp), ("jaeger", Tracer::Jaeger)],
        );
        let operations = operations(&name, &mut section, later);
        if operations.is_empty() {
            section.problem("operations", "at least one operation is needed");
        }
        services.push(Service {
            name,
            replicas,
            threads,
            cpu,
            tracer,
            operations,
        });
        later.services.push(section);
    }
    services
}

fn operations<'a>(
    service: &str,
    section: &mut Section<'a>,
    later: &mut Later<'a>,
) -> Vec<Operation> {
    let mut operations = Vec::new();
    for (name, mut operation) in section.entries("operations") {
        check_name(&operation, &name);
        let steps: Vec<Step> = operation
            .sections("steps")
            .into_iter()
            .filter_map(|section| step(section, later))
            .collect();
        if steps.is_empty() {
            operation.problem("steps", "at least one step is needed");
        }
        later.operations.push((
            operation,
            Call {
                service: service.to_owned(),
                operation: name.clone(),
            },
        ));
        operations.push(Operation { name, steps });
    }
    operations
}

fn step<'a>(mut section: Section<'a>, later: &mut Later<'a>) -> Option<Step> {
    const KINDS: [&str; 4] = ["cpu", "sequence", "parallel", "background"];
    let given = KINDS.iter().filter(|key| section.has(key)).count();
    if given != 1 {
        section.problem("", format!("expected exactly one of {}", KINDS.join(", ")));
    }
    let mean: Option<Latency> = section.optional("cpu");
    if let Some(mean) = mean {
        if mean == Latency::ZERO || mean > MOST_WORK {
            section.problem("cpu", format!("must be above 0 and at most {MOST_WORK}"));
        }
        let distribution = choice(
            &mut section,
            "distribution",
            &[
                ("constant", Distribution::Constant),
                ("exponential", Distribution::Exponential),
                ("lognormal", Distribution::Lognormal),
            ],
        );
        return Some(Step::Cpu(Work { mean, distribution }));
    }
    let mut step = None;
    let mut found = Vec::new();
    let makers: [(&'static str, MakeStep); 3] = [
        ("sequence", Step::Sequence),
        ("parallel", Step::Parallel),
        ("background", Step::Background),
    ];
    for (key, make) in makers {
        let texts: Vec<String> = section.list(key);
        let mut calls = Vec::with_capacity(texts.len());
        for text in texts {
            match text.split_once('/') {
                Some((service, operation)) => calls.push(Call {
                    service: service.to_owned(),
                    operation: operation.to_owned(),
                }),
                None => {
                    section.problem(key, format!("`{text}` is not SERVICE/OPERATION"));
                }
            }
        }
        found.extend(calls.iter().map(|call| (key, call.clone())));
        if !calls.is_empty() {
            step = Some(make(calls));
        }
    }
    later.calls.push((section, found));
    step
}

fn requests<'a>(root: &mut Section<'a>, later: &mut Later<'a>) -> Vec<EntryRequest> {
    let mut requests: Vec<EntryRequest> = Vec::new();
    for mut section in root.sections("requests") {
        let service: Option<String> = section.required("service");
        let operation: Option<String> = section.required("operation");
        let share = section.or("share", 1.0_f64);
        if share <= 0.0 {
            section.problem("share", "must be above 0");
        }
        let mut objective = section.section("objective");
        if objective.is_none() {
            section.problem("objective", "missing, expected `quantile` and `bound`");
        }
        let quantile: Option<Quantile> = objective.as_mut().and_then(|o| o.required("quantile"));
        let bound: Option<Latency> = objective.as_mut().and_then(|o| o.required("bound"));
        if let (Some(objective), Some(Latency::ZERO)) = (&objective, bound) {
            objective.problem("bound", "must be above 0");
        }
        drop(objective);
        let (Some(service), Some(operation), Some(quantile), Some(bound)) =
            (service, operation, quantile, bound)
        else {
            continue;
        };
        let call = Call {
            service: service.clone(),
            operation: operation.clone(),
        };
        let same = |r: &EntryRequest| {
            r.objective.service == call.service && r.objective.operation == call.operation
        };
        if requests.iter().any(same) {
            section.problem("operation", format!("`{call}` stands here twice"));
        }
        later.calls.push((section, vec![("operation", call)]));
        requests.push(EntryRequest {
            objective: Objective {
                service,
                operation,
                quantile,
                bound,
            },
            share,
        });
    }
    let sum: f64 = requests.iter().map(|request| request.share).sum();
    for request in &mut requests {
        request.share /= sum;
    }
    requests
}

/// Whether all calls lead to operations that are there; notes those that do not.
fn all_known(services: &[Service], later: &Later<'_>) -> bool {
    let mut all = true;
    for (section, calls) in &later.calls {
        for (key, call) in calls {
            let rule = match services.iter().find(|s| s.name == call.service) {
                None => format!("`{call}`: there is no service `{}`", call.service),
                Some(service) if service.operations.iter().any(|o| o.name == call.operation) => {
                    continue;
                }
                Some(_) => format!("`{call}`: the service has no such operation"),
            };
            section.problem(key, rule);
            all = false;
        }
    }
    all
}

/// Whether calls lead back to where they came from; notes each operation on a circle.
fn circles(services: &[Service], later: &Later<'_>) -> bool {
    let graph: BTreeMap<Call, Vec<&Call>> = services
        .iter()
        .flat_map(|service| service.operations.iter().map(move |o| (service, o)))
        .map(|(service, operation)| {
            let from = Call {
                service: service.name.clone(),
                operation: operation.name.clone(),
            };
            (from, operation.steps.iter().flat_map(Step::calls).collect())
        })
        .collect();
    let mut found = false;
    for (section, start) in &later.operations {
        let mut seen: Vec<&Call> = Vec::new();
        let mut open: Vec<&Call> = graph.get(start).cloned().unwrap_or_default();
        while let Some(call) = open.pop() {
            if !seen.contains(&call) {
                seen.push(call);
                open.extend(graph.get(call).into_iter().flatten());
            }
        }
        if seen.contains(&start) {
            section.problem("steps", format!("`{start}` calls itself in a circle"));
            found = true;
        }
    }
    found
}
