use super::*;

fn problems(text: &str) -> String {
    Topology::parse("t.yaml", text).unwrap_err().to_string()
}

#[test]
fn the_demo_is_as_described() {
    let demo = Topology::parse("demo.yaml", DEMO).unwrap();
    assert_eq!(demo.services.len(), 7);
    let need = demo.cpu_need();
    let total: u64 = need.iter().map(|cpu| cpu.get()).sum();
    assert!((200..350).contains(&total), "work alone needs {total}m");
    for (service, need) in demo.services.iter().zip(need) {
        assert!(
            service.cpu.get() >= 2 * need.get(),
            "{} needs {need}",
            service.name
        );
    }
    let jaeger = |service: &&Service| service.tracer == Tracer::Jaeger;
    assert_eq!(demo.services.iter().filter(jaeger).count(), 1);
    let shares: f64 = demo.requests.iter().map(|request| request.share).sum();
    assert!((shares - 1.0).abs() < 1e-12);
}

const SMALL: &str = "
load: {rate: 10}
requests:
  - {service: a, operation: go, objective: {quantile: 0.99, bound: 20ms}}
services:
  a:
    cpu: 100m
    operations:
      go: {steps: [{cpu: 1ms}, {parallel: [b/one, b/two]}, {background: [b/one]}]}
  b:
    replicas: 2
    cpu: 100m
    operations:
      one: {steps: [{cpu: 2ms}]}
      two: {steps: [{cpu: 3ms}]}
";

#[test]
fn need_follows_the_calls() {
    let small = Topology::parse("t.yaml", SMALL).unwrap();
    assert_eq!(small.cpu_need(), [MilliCores::new(10), MilliCores::new(70)]);
    let names: Vec<String> = small.services[1].instances().collect();
    assert_eq!(names, ["b-0", "b-1"]);
}

#[test]
fn all_problems_come_together_with_their_places() {
    let text = "
load: {rate: -1, arrivals: never}
requests:
  - {service: a, operation: gone, objective: {quantile: 1.5, bound: 20}}
  - {service: x, operation: go, share: 0, objective: {quantile: 0.9, bound: 20ms}}
services:
  a:
    replicas: 0
    threads: 0
    cpu: 5m
    colour: red
    operations:
      go: {steps: [{cpu: 1ms, sequence: [a/go]}, {}, {sequence: [nothing, b/gone]}]}
      'no name': {steps: []}
  b: {cpu: 9000m, tracer: zipkin, operations: {go: {steps: [{cpu: 20s}]}}}
";
    let all = problems(text);
    for part in [
        "t.yaml:2: load.rate",
        "load.arrivals: expected one of poisson, constant",
        "requests[0].objective.quantile",
        "requests[0].objective.bound",
        "requests[1].share",
        "`x/go`: there is no service `x`",
        "services.a.replicas: must be from 1 to 100",
        "services.a.threads: must be from 1 to 256",
        "services.a.cpu: the kernel grants no quota below 10m",
        "services.a.colour: unknown key",
        "services.a.operations.go.steps[0]: expected exactly one of",
        "services.a.operations.go.steps[1]: expected exactly one of",
        "`nothing` is not SERVICE/OPERATION",
        "`b/gone`: the service has no such operation",
        "services.a.operations.no name: name must be",
        "services.b.cpu: more than its threads can use, which is 2000m",
        "services.b.tracer: expected one of otlp, jaeger",
        "services.b.operations.go.steps[0].cpu: must be above 0 and at most 10.0 s",
    ] {
        assert!(all.contains(part), "`{part}` is missing in:\n{all}");
    }
}

#[test]
fn circles_and_overload_are_found() {
    let circle = SMALL.replace(
        "one: {steps: [{cpu: 2ms}]}",
        "one: {steps: [{sequence: [a/go]}]}",
    );
    let all = problems(&circle);
    assert!(all.contains("services.a.operations.go.steps: `a/go` calls itself in a circle"));
    assert!(all.contains("services.b.operations.one.steps: `b/one` calls itself"));
    let overload = SMALL.replace("rate: 10", "rate: 100");
    let all = problems(&overload);
    assert!(
        all.contains("services.a.cpu: cannot carry the load, which needs 100m"),
        "{all}"
    );
    assert!(
        all.contains("services.b.cpu: cannot carry the load, which needs 700m"),
        "{all}"
    );
}

#[test]
fn an_empty_file_says_what_is_needed() {
    let all = problems("");
    for key in ["load", "requests", "services"] {
        assert!(all.contains(key), "{all}");
    }
}
