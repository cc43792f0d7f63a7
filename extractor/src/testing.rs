//! Short ways to write down observations in tests.

use firm_model::{InstanceKey, Interner, Part, RequestType, SpanId, Timestamp, TraceId};

use crate::observation::{Observation, PartTime};

/// One interner for all tests, so that equal names are equal symbols.
pub(crate) fn names() -> &'static Interner {
    static NAMES: std::sync::LazyLock<Interner> = std::sync::LazyLock::new(Interner::new);
    &NAMES
}

pub(crate) fn key(service: &str, instance: &str) -> InstanceKey {
    InstanceKey {
        service: names().intern(service),
        instance: names().intern(instance),
    }
}

pub(crate) fn server(service: &str, instance: &str, nanos: i64) -> PartTime {
    PartTime {
        key: key(service, instance),
        part: Part::Server,
        caller: None,
        nanos,
        calls: 1,
    }
}

pub(crate) fn gap(caller: InstanceKey, service: &str, instance: &str, nanos: i64) -> PartTime {
    PartTime {
        part: Part::Gap,
        caller: Some(caller),
        ..server(service, instance, nanos)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "tests use small numbers")]
pub(crate) fn seconds(value: f64) -> Timestamp {
    Timestamp::EPOCH.saturating_add_nanos((value * 1e9).round() as i64)
}

/// A request that lasted as long as its parts together.
pub(crate) fn observation(trace: u32, end: Timestamp, parts: &[PartTime]) -> Observation {
    let root_nanos: i64 = parts.iter().map(|p| p.nanos).sum();
    Observation {
        trace_id: TraceId::new((u128::from(trace) + 1).to_be_bytes()).unwrap(),
        root: SpanId::new([1; 8]).unwrap(),
        request: RequestType {
            service: names().intern("front"),
            operation: names().intern("GET /"),
        },
        start: end.saturating_add_nanos(-root_nanos),
        end,
        root_nanos,
        error: false,
        signature: 0,
        parts: parts.to_vec(),
    }
}
