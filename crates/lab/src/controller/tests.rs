//! The controller from graphs to a finding, while a callee's spans are late.

use firm_mitigator::RulePolicy;
use firm_model::{
    CpuSample, EdgeKind, Latency, NodeId, ParentRelation, Part, Quantile, Resource, Span, SpanId,
    SpanKind,
};

use super::*;
use crate::telemetry::Counters;

const MS: i64 = 1_000_000;

struct Shop {
    names: Arc<Interner>,
    controller: Controller,
    telemetry: Telemetry,
}

impl Shop {
    /// A shop in which the gateway calls the cart, after 100 calm requests.
    fn calm() -> Self {
        let names = Arc::new(Interner::new());
        let objective = Objective {
            service: "gateway".to_owned(),
            operation: "view".to_owned(),
            quantile: Quantile::new(0.99).unwrap(),
            bound: Latency::from_millis(50),
        };
        let managed = Managed {
            original: Some(MilliCores::new(100)),
            threads: Some(2),
        };
        let managed = ["gateway-0", "cart-0"].map(|name| (InstanceId::new(name), managed.clone()));
        let mut controller = Controller::new(
            Settings::default(),
            Arc::clone(&names),
            &[objective],
            BTreeMap::from(managed),
            Box::new(RulePolicy::default()),
            true,
        );
        controller.begin_learning();
        let mut shop = Self {
            names,
            controller,
            telemetry: Telemetry::default(),
        };
        // Every third trace comes without the cart's spans first.
        for n in 0..100 {
            if n % 3 == 0 {
                shop.take(n, 10, false);
            }
            shop.take(n, 10, true);
        }
        shop.controller.end_learning();
        shop
    }

    /// Request `n` of a hundred a second, in which the cart takes `cart` milliseconds.
    fn take(&mut self, n: u32, cart: i64, is_seen: bool) {
        let after = i64::from(n) * 10 + cart + 200;
        self.take_at(n, cart, is_seen, after);
    }

    /// The same, arriving `after` milliseconds after the first request began.
    fn take_at(&mut self, n: u32, cart: i64, is_seen: bool, after: i64) {
        let trace_id = TraceId::new((u128::from(n) + 1).to_be_bytes()).unwrap();
        let begin = Timestamp::EPOCH.saturating_add_nanos(i64::from(n) * 10 * MS);
        let span = |id: u64, who: &str, operation: &str, kind, from: i64, to: i64| Span {
            trace_id,
            span_id: SpanId::new(id.to_be_bytes()).unwrap(),
            parent_id: (id > 1).then(|| SpanId::new((id - 1).to_be_bytes()).unwrap()),
            start: begin.saturating_add_nanos(from * MS),
            end: begin.saturating_add_nanos(to * MS),
            service: self.names.intern(who),
            operation: self.names.intern(operation),
            instance: self.names.intern(&format!("{who}-0")),
            kind,
            relation: ParentRelation::ChildOf,
            error: false,
            shared: false,
        };
        let mut spans = vec![
            span(1, "gateway", "view", SpanKind::Server, 0, cart + 8),
            span(2, "gateway", "cart", SpanKind::Client, 3, cart + 5),
        ];
        if is_seen {
            spans.push(span(3, "cart", "cart", SpanKind::Server, 4, cart + 4));
        }
        let parents = [None, Some(NodeId::new(0)), Some(NodeId::new(1))];
        let parents = parents[..spans.len()].to_vec();
        let edges = vec![EdgeKind::Call; spans.len()];
        let graph =
            ExecutionGraph::from_parents(trace_id, spans, parents, edges, Vec::new()).unwrap();
        let arrived = Timestamp::EPOCH.saturating_add_nanos(after * MS);
        self.controller.take(&graph, arrived);
    }

    /// Ten readings of an instance, so many of every ten periods throttled while calm and now.
    fn measure(&mut self, instance: &str, calm: u64, now: u64) {
        let instance = InstanceId::new(instance);
        for reading in 0..=20_u64 {
            let at = Monotonic::from_nanos(reading * 100_000_000);
            let throttled = reading.min(10) * calm + reading.saturating_sub(10) * now;
            let cpu = CpuSample {
                at,
                usage_ns: Some(reading * 10_000_000),
                periods: Some(reading * 10),
                throttled_periods: Some(throttled),
                throttled_ns: None,
            };
            let counters = Counters {
                cpu: Some(cpu),
                sched: None,
                limit: Some(MilliCores::new(100)),
            };
            self.telemetry.add(&instance, at, counters);
            match reading {
                0 => self.telemetry.begin_normal(),
                10 => self.telemetry.end_normal(),
                _ => {}
            }
        }
    }

    fn find(&mut self) -> Finding {
        let wall = Timestamp::EPOCH;
        let found = self.controller.find(wall, &self.telemetry);
        found.expect("the objective is violated").0
    }
}

fn who(finding: &Finding) -> Vec<(&str, Part, Verdict)> {
    let culprits = finding.culprits.iter();
    culprits
        .map(|c| (c.instance.as_str(), c.part, c.verdict))
        .collect()
}

#[test]
fn starved_callee_is_named_before_its_spans_arrive_and_after() {
    let mut shop = Shop::calm();
    shop.measure("gateway-0", 0, 0);
    shop.measure("cart-0", 0, 8);
    (200..260).for_each(|n| shop.take(n, 100, false));
    let cpu = Verdict::Resource(Resource::Cpu);
    let early = shop.find();
    assert_eq!(who(&early), vec![("cart-0", Part::Gap, cpu)]);
    let why = &early.culprits[0].why;
    assert!(why.contains("60 calls to it whose answer"), "{why}");
    assert!(
        why.contains("80 % of its periods throttled, normally 0 %"),
        "{why}"
    );
    (200..260).for_each(|n| shop.take(n, 100, true));
    let late = shop.find();
    assert_eq!(who(&late), vec![("cart-0", Part::Server, cpu)]);
    let why = &late.culprits[0].why;
    assert!(!why.contains("whose answer"), "{why}");
}

#[test]
fn without_telemetry_the_finding_says_that_nothing_was_measured() {
    let mut shop = Shop::calm();
    (200..260).for_each(|n| shop.take(n, 100, false));
    let finding = shop.find();
    let network = Verdict::Resource(Resource::Network);
    assert_eq!(who(&finding), vec![("cart-0", Part::Gap, network)]);
    let why = &finding.culprits[0].why;
    assert!(
        why.contains("neither throttling nor waiting could be measured"),
        "{why}"
    );
}

#[test]
fn request_whose_spans_come_late_counts_once() {
    let mut shop = Shop::calm();
    let request = shop.controller.watches[0].request;
    let normal = shop.controller.baseline.request(request).unwrap();
    // Before the overlay knows the cart, its early traces look complete: some twice.
    let twice = u64::from(firm_extractor::callees::STEADY).div_ceil(3);
    assert!(
        normal.root.requests <= 100 + twice,
        "{}",
        normal.root.requests
    );
    (200..240).for_each(|n| shop.take(n, 10, true));
    (0..30).for_each(|again| shop.take(240, 100, again > 15));
    assert!(!shop.controller.is_violated());
    (241..260).for_each(|n| shop.take(n, 100, true));
    assert!(shop.controller.is_violated());
}

#[test]
fn one_clock_that_ran_ahead_blinded_the_loop() {
    let mut shop = Shop::calm();
    shop.measure("gateway-0", 0, 0);
    shop.measure("cart-0", 0, 8);
    // A request of an hour later and one of ten seconds later, by their own clocks.
    shop.take_at(360_000, 10, true, 2000);
    shop.take_at(1200, 10, true, 2000);
    (200..260).for_each(|n| shop.take(n, 100, true));
    assert_eq!(shop.controller.ahead(), 2);
    let finding = shop.find();
    assert_eq!(who(&finding)[0].0, "cart-0");
}
