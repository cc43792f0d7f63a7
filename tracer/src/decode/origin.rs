//! What the formats have in common: whose span it is, its ids, its parent.

use firm_model::instance::{IdentityHints, identity};
use firm_model::{IdError, Interner, ParentRelation, Span, SpanId, SpanKind, Symbol, TraceId};

use super::{Note, Reject, Tally};

/// Service of spans that name none.
pub const UNKNOWN_SERVICE: &str = "unknown_service";

/// The names of a service and its instance.
#[derive(Debug, Clone, Copy)]
pub(super) struct Origin {
    pub(super) service: Symbol,
    pub(super) instance: Symbol,
    /// Whether the input named the service.
    pub(super) named: bool,
}

impl Origin {
    /// Stands in a span until its resource or process is known.
    pub(super) const NONE: Origin = Origin {
        service: Symbol::EMPTY,
        instance: Symbol::EMPTY,
        named: false,
    };

    pub(super) fn new(names: &Interner, service: Option<&str>, hints: &IdentityHints<'_>) -> Self {
        let given = service.filter(|name| !name.is_empty());
        let service = given.unwrap_or(UNKNOWN_SERVICE);
        Self {
            service: names.intern(service),
            instance: names.intern(&identity(service, hints)),
            named: given.is_some(),
        }
    }

    /// Makes these spans its own.
    pub(super) fn claim(self, spans: &mut [Span], notes: &mut Tally<Note>) {
        for span in &mut *spans {
            span.service = self.service;
            span.instance = self.instance;
        }
        if !self.named {
            notes.add(Note::MissingService, spans.len() as u64);
        }
    }
}

/// Puts an attribute where [`identity`] looks for it; the first value of a key stands.
pub(super) fn hint<'a>(hints: &mut IdentityHints<'a>, key: &str, value: &'a str) {
    let slot = match key {
        "k8s.pod.name" => &mut hints.pod_name,
        "k8s.pod.uid" => &mut hints.pod_uid,
        "container.id" => &mut hints.container_id,
        "service.instance.id" => &mut hints.service_instance_id,
        "host.name" | "hostname" => &mut hints.host_name,
        _ => return,
    };
    if !value.is_empty() {
        slot.get_or_insert(value);
    }
}

pub(super) fn trace_error(error: IdError) -> Reject {
    match error {
        IdError::Zero => Reject::ZeroTraceId,
        IdError::Length { got: 0, .. } => Reject::MissingTraceId,
        IdError::Length { .. } | IdError::Hex { .. } => Reject::BadTraceId,
    }
}

pub(super) fn span_error(error: IdError) -> Reject {
    match error {
        IdError::Zero => Reject::ZeroSpanId,
        IdError::Length { got: 0, .. } => Reject::MissingSpanId,
        IdError::Length { .. } | IdError::Hex { .. } => Reject::BadSpanId,
    }
}

/// A parent id; all zeros and nothing at all both mean that there is none.
pub(super) fn parent(id: Result<SpanId, IdError>) -> Result<Option<SpanId>, Reject> {
    match id {
        Ok(id) => Ok(Some(id)),
        Err(IdError::Zero | IdError::Length { got: 0, .. }) => Ok(None),
        Err(_) => Err(Reject::BadParentId),
    }
}

/// A trace id from Jaeger's two signed halves.
pub(super) fn trace_id(high: i64, low: i64) -> Result<TraceId, Reject> {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&high.to_be_bytes());
    bytes[8..].copy_from_slice(&low.to_be_bytes());
    TraceId::new(bytes).map_err(trace_error)
}

/// OpenTracing's and OpenTelemetry's word for a span's role, in any case.
pub(super) fn kind(word: &str) -> SpanKind {
    for (name, kind) in [
        ("server", SpanKind::Server),
        ("client", SpanKind::Client),
        ("internal", SpanKind::Internal),
        ("producer", SpanKind::Producer),
        ("consumer", SpanKind::Consumer),
    ] {
        if word.eq_ignore_ascii_case(name) {
            return kind;
        }
    }
    SpanKind::Unspecified
}

/// OTLP's number of a span's role (`trace.proto`, `Span.SpanKind`).
pub(super) fn otlp_kind(number: u64) -> SpanKind {
    match number {
        1 => SpanKind::Internal,
        2 => SpanKind::Server,
        3 => SpanKind::Client,
        4 => SpanKind::Producer,
        5 => SpanKind::Consumer,
        _ => SpanKind::Unspecified,
    }
}

/// Chooses the parent among Jaeger's references: the legacy parent field, else the first
/// CHILD_OF within the trace, else the first FOLLOWS_FROM within it. References to other traces
/// are not parents.
#[derive(Debug, Default)]
pub(super) struct Parents {
    child_of: Option<SpanId>,
    follows_from: Option<SpanId>,
    pub(super) foreign: u64,
}

impl Parents {
    pub(super) fn add(&mut self, same_trace: bool, follows: bool, id: Option<SpanId>) {
        if !same_trace {
            self.foreign += 1;
            return;
        }
        let slot = if follows {
            &mut self.follows_from
        } else {
            &mut self.child_of
        };
        *slot = slot.or(id);
    }

    pub(super) fn choose(&self, field: Option<SpanId>) -> (Option<SpanId>, ParentRelation) {
        let parent = field.or(self.child_of).or(self.follows_from);
        let follows = parent.is_some() && self.child_of != parent && self.follows_from == parent;
        let relation = if follows {
            ParentRelation::FollowsFrom
        } else {
            ParentRelation::ChildOf
        };
        (parent, relation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(last: u8) -> SpanId {
        SpanId::new([0, 0, 0, 0, 0, 0, 0, last]).unwrap()
    }

    #[test]
    fn parent_is_field_then_child_of_then_follows_from() {
        let mut refs = Parents::default();
        refs.add(false, false, Some(id(9)));
        assert_eq!(refs.choose(None), (None, ParentRelation::ChildOf));
        refs.add(true, true, Some(id(1)));
        assert_eq!(
            refs.choose(None),
            (Some(id(1)), ParentRelation::FollowsFrom)
        );
        assert_eq!(
            refs.choose(Some(id(1))),
            (Some(id(1)), ParentRelation::FollowsFrom)
        );
        refs.add(true, false, Some(id(2)));
        assert_eq!(refs.choose(None), (Some(id(2)), ParentRelation::ChildOf));
        assert_eq!(
            refs.choose(Some(id(3))),
            (Some(id(3)), ParentRelation::ChildOf)
        );
        assert_eq!(refs.foreign, 1);
    }
}
