//! The hand-written OTLP decoder against prost: any request that prost encodes gives the spans
//! that prost reads from it.

use std::collections::BTreeMap;

use firm_model::instance::{IdentityHints, identity};
use firm_model::{Interner, Span, SpanKind};
use firm_tracer::decode::{Reason, UNKNOWN_SERVICE, otlp_json, otlp_proto};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{
    AnyValue, ArrayValue, InstrumentationScope, KeyValue, any_value::Value,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{
    ResourceSpans, ScopeSpans, Span as ProtoSpan, Status,
    span::{Event, Link},
};
use proptest::collection::vec;
use proptest::prelude::*;
use prost::Message;

/// What a span is, with names as text: symbols of two interners cannot be compared.
type Plain = (
    String,
    String,
    String,
    String,
    String,
    i64,
    i64,
    SpanKind,
    bool,
);

fn plain(span: &Span, names: &Interner) -> Plain {
    (
        span.trace_id.to_string(),
        span.span_id.to_string(),
        span.parent_id.map_or(String::new(), |id| id.to_string()),
        format!(
            "{}/{}",
            names.resolve(span.service),
            names.resolve(span.instance)
        ),
        names.resolve(span.operation).to_string(),
        span.start.as_nanos(),
        span.end.as_nanos(),
        span.kind,
        span.error,
    )
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What the documentation says about a span that prost read: its content or why it is refused.
fn expected(span: &ProtoSpan, origin: &str) -> Result<Plain, &'static str> {
    let zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
    match span.trace_id.len() {
        0 => return Err("missing_trace_id"),
        16 if zero(&span.trace_id) => return Err("zero_trace_id"),
        16 => {}
        _ => return Err("bad_trace_id"),
    }
    match span.span_id.len() {
        0 => return Err("missing_span_id"),
        8 if zero(&span.span_id) => return Err("zero_span_id"),
        8 => {}
        _ => return Err("bad_span_id"),
    }
    let parent = match span.parent_span_id.len() {
        0 => String::new(),
        8 if zero(&span.parent_span_id) => String::new(),
        8 => hex(&span.parent_span_id),
        _ => return Err("bad_parent_id"),
    };
    let (start, end) = (span.start_time_unix_nano, span.end_time_unix_nano);
    if start == 0 || end == 0 {
        return Err("missing_time");
    }
    let (Ok(start), Ok(end)) = (i64::try_from(start), i64::try_from(end)) else {
        return Err("time_out_of_range");
    };
    let kind = match span.kind {
        1 => SpanKind::Internal,
        2 => SpanKind::Server,
        3 => SpanKind::Client,
        4 => SpanKind::Producer,
        5 => SpanKind::Consumer,
        _ => SpanKind::Unspecified,
    };
    let failed = span.status.as_ref().is_some_and(|status| status.code == 2);
    Ok((
        hex(&span.trace_id),
        hex(&span.span_id),
        parent,
        origin.to_owned(),
        span.name.clone(),
        start,
        end,
        kind,
        failed,
    ))
}

fn origin(resource: Option<&Resource>) -> String {
    let text = |wanted: &str| {
        resource?.attributes.iter().find_map(|attribute| {
            match attribute.value.as_ref()?.value.as_ref()? {
                Value::StringValue(text) if attribute.key == wanted => Some(text.as_str()),
                _ => None,
            }
        })
    };
    let filled = |wanted: &str| {
        resource?.attributes.iter().find_map(|attribute| {
            match attribute.value.as_ref()?.value.as_ref()? {
                Value::StringValue(text) if attribute.key == wanted && !text.is_empty() => {
                    Some(text.as_str())
                }
                _ => None,
            }
        })
    };
    let service = text("service.name").filter(|name| !name.is_empty());
    let service = service.unwrap_or(UNKNOWN_SERVICE);
    let hints = IdentityHints {
        pod_name: filled("k8s.pod.name"),
        pod_uid: filled("k8s.pod.uid"),
        container_id: filled("container.id"),
        service_instance_id: filled("service.instance.id"),
        host_name: filled("host.name"),
    };
    format!("{service}/{}", identity(service, &hints))
}

fn any_value() -> impl Strategy<Value = Option<AnyValue>> {
    let leaf = prop_oneof![
        ".{0,20}".prop_map(Value::StringValue),
        any::<bool>().prop_map(Value::BoolValue),
        any::<i64>().prop_map(Value::IntValue),
        any::<f64>().prop_map(Value::DoubleValue),
        vec(any::<u8>(), 0..20).prop_map(Value::BytesValue),
    ];
    let nested = leaf.prop_recursive(3, 8, 3, |inner| {
        vec(inner, 0..3).prop_map(|values| {
            let values = values
                .into_iter()
                .map(|value| AnyValue { value: Some(value) });
            Value::ArrayValue(ArrayValue {
                values: values.collect(),
            })
        })
    });
    prop_oneof![
        9 => nested.prop_map(|value| Some(AnyValue { value: Some(value) })),
        1 => Just(Some(AnyValue { value: None })),
        1 => Just(None),
    ]
}

fn attributes() -> impl Strategy<Value = Vec<KeyValue>> {
    let key = prop_oneof![
        Just("service.name".to_owned()),
        Just("k8s.pod.name".to_owned()),
        Just("k8s.pod.uid".to_owned()),
        Just("container.id".to_owned()),
        Just("service.instance.id".to_owned()),
        Just("host.name".to_owned()),
        ".{0,12}",
    ];
    let pair = (key, any_value()).prop_map(|(key, value)| KeyValue {
        key,
        value,
        ..KeyValue::default()
    });
    vec(pair, 0..6)
}

fn id(length: usize) -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        20 => vec(any::<u8>(), length),
        1 => Just(vec![0; length]),
        1 => Just(Vec::new()),
        1 => vec(any::<u8>(), 1..20),
    ]
}

fn time() -> impl Strategy<Value = u64> {
    prop_oneof![
        10 => 1_600_000_000_000_000_000_u64..1_900_000_000_000_000_000,
        1 => any::<u64>(),
        1 => Just(0),
    ]
}

fn span() -> impl Strategy<Value = ProtoSpan> {
    let status = (".{0,8}", -1..5_i32).prop_map(|(message, code)| Status { message, code });
    let event = (any::<u64>(), ".{0,8}", attributes()).prop_map(|(at, name, attributes)| Event {
        time_unix_nano: at,
        name,
        attributes,
        dropped_attributes_count: 1,
    });
    let link = (id(16), id(8)).prop_map(|(trace_id, span_id)| Link {
        trace_id,
        span_id,
        ..Link::default()
    });
    (
        (id(16), id(8), id(8), ".{0,30}", -1..8_i32),
        (time(), time(), attributes(), any::<u32>()),
        (
            proptest::option::of(status),
            vec(event, 0..2),
            vec(link, 0..2),
            ".{0,10}",
        ),
    )
        .prop_map(
            |(
                (trace_id, span_id, parent_span_id, name, kind),
                (start_time_unix_nano, end_time_unix_nano, attributes, flags),
                (status, events, links, trace_state),
            )| ProtoSpan {
                trace_id,
                span_id,
                parent_span_id,
                name,
                kind,
                start_time_unix_nano,
                end_time_unix_nano,
                attributes,
                flags,
                status,
                events,
                links,
                trace_state,
                ..ProtoSpan::default()
            },
        )
}

fn request() -> impl Strategy<Value = ExportTraceServiceRequest> {
    let scope = vec(span(), 0..4).prop_map(|spans| ScopeSpans {
        scope: Some(InstrumentationScope {
            name: "scope".to_owned(),
            ..InstrumentationScope::default()
        }),
        spans,
        schema_url: "https://example.test".to_owned(),
    });
    let resource = proptest::option::of(attributes()).prop_map(|attributes| {
        attributes.map(|attributes| Resource {
            attributes,
            ..Resource::default()
        })
    });
    let resource_spans =
        (resource, vec(scope, 0..3)).prop_map(|(resource, scope_spans)| ResourceSpans {
            resource,
            scope_spans,
            ..ResourceSpans::default()
        });
    vec(resource_spans, 0..4)
        .prop_map(|resource_spans| ExportTraceServiceRequest { resource_spans })
}

/// Spans and refusals that the request should give.
fn outcome(request: &ExportTraceServiceRequest) -> (Vec<Plain>, BTreeMap<&'static str, u64>) {
    let (mut spans, mut rejected) = (Vec::new(), BTreeMap::new());
    for resource in &request.resource_spans {
        let origin = origin(resource.resource.as_ref());
        for span in resource.scope_spans.iter().flat_map(|scope| &scope.spans) {
            match expected(span, &origin) {
                Ok(span) => spans.push(span),
                Err(reason) => *rejected.entry(reason).or_default() += 1,
            }
        }
    }
    (spans, rejected)
}

proptest! {
    #[test]
    fn any_request_gives_what_prost_reads(request in request()) {
        let bytes = request.encode_to_vec();
        let names = Interner::new();
        let mut out = Vec::new();
        let decoded = otlp_proto::decode(&bytes, &names, &mut out).unwrap();
        let (spans, rejected) = outcome(&request);
        prop_assert_eq!(out.iter().map(|s| plain(s, &names)).collect::<Vec<_>>(), spans);
        let counts: BTreeMap<_, _> =
            decoded.rejected.iter().map(|(reason, count)| (reason.name(), count)).collect();
        prop_assert_eq!(counts, rejected);
        prop_assert_eq!(decoded.spans, out.len() as u64);
    }

    #[test]
    fn a_cut_request_keeps_the_spans_before_the_cut(request in request(), cut in any::<prop::sample::Index>()) {
        let bytes = request.encode_to_vec();
        let cut = cut.index(bytes.len() + 1);
        let names = Interner::new();
        let (mut whole, mut part) = (Vec::new(), Vec::new());
        otlp_proto::decode(&bytes, &names, &mut whole).unwrap();
        let result = otlp_proto::decode(&bytes[..cut], &names, &mut part);
        if cut == bytes.len() {
            prop_assert!(result.is_ok());
        }
        // A resource behind the cut cannot be known; everything else is as in the whole.
        prop_assert!(part.len() <= whole.len());
        for (a, b) in part.iter().zip(&whole) {
            prop_assert_eq!((a.span_id, a.start, a.end, a.operation), (b.span_id, b.start, b.end, b.operation));
        }
    }

    #[test]
    fn json_and_protobuf_give_the_same(request in request()) {
        let names = Interner::new();
        let (mut proto, mut json) = (Vec::new(), Vec::new());
        otlp_proto::decode(&request.encode_to_vec(), &names, &mut proto).unwrap();
        let decoded = otlp_json::decode(to_json(&request).as_bytes(), &names, &mut json).unwrap();
        prop_assert_eq!(&proto, &json);
        prop_assert_eq!(decoded.spans + decoded.rejected.total(), spans_in(&request));
    }
}

fn spans_in(request: &ExportTraceServiceRequest) -> u64 {
    let scopes = request.resource_spans.iter().flat_map(|r| &r.scope_spans);
    scopes.map(|scope| scope.spans.len() as u64).sum()
}

/// The fields that are read, in OTLP's JSON form.
fn to_json(request: &ExportTraceServiceRequest) -> String {
    let attribute = |pair: &KeyValue| {
        let value = match pair.value.as_ref().and_then(|value| value.value.as_ref()) {
            Some(Value::StringValue(text)) => serde_json::json!({"stringValue": text}),
            Some(Value::IntValue(number)) => serde_json::json!({"intValue": number.to_string()}),
            Some(Value::BoolValue(yes)) => serde_json::json!({"boolValue": yes}),
            _ => serde_json::json!({}),
        };
        serde_json::json!({"key": pair.key, "value": value})
    };
    let span = |span: &ProtoSpan| {
        serde_json::json!({
            "traceId": hex(&span.trace_id).to_uppercase(),
            "spanId": hex(&span.span_id),
            "parentSpanId": hex(&span.parent_span_id),
            "name": span.name,
            "kind": span.kind,
            "startTimeUnixNano": span.start_time_unix_nano.to_string(),
            "endTimeUnixNano": span.end_time_unix_nano,
            "attributes": span.attributes.iter().map(attribute).collect::<Vec<_>>(),
            "status": {"code": span.status.as_ref().map_or(0, |status| status.code)},
        })
    };
    let scope = |scope: &ScopeSpans| serde_json::json!({"spans": scope.spans.iter().map(span).collect::<Vec<_>>()});
    let resource = |resource: &ResourceSpans| {
        let attributes = resource
            .resource
            .iter()
            .flat_map(|resource| &resource.attributes);
        serde_json::json!({
            "scopeSpans": resource.scope_spans.iter().map(scope).collect::<Vec<_>>(),
            "resource": {"attributes": attributes.map(attribute).collect::<Vec<_>>()},
        })
    };
    let resources: Vec<_> = request.resource_spans.iter().map(resource).collect();
    serde_json::json!({"resourceSpans": resources}).to_string()
}
