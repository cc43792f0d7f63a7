//! Bytes to spans: one file per format, pure functions.
//!
//! Every decoder is `decode(bytes, names, out)`: spans are pushed onto `out`, names go through the
//! interner. A span that cannot be used is counted with its [`Reject`] reason and its neighbours
//! are kept; only input whose framing is broken ends in a [`DecodeError`], which says where, and
//! the spans before that place stay in `out`.

mod block;
pub(crate) mod documents;
pub mod jaeger_json;
pub mod jaeger_proto;
pub mod jaeger_thrift;
pub mod nezha_csv;
mod origin;
pub mod otlp_json;
pub mod otlp_proto;
mod scalar;
pub(crate) mod scan;
mod tally;
mod thrift;
mod wire;
pub mod zipkin_json;

use std::fmt;

use serde::Serialize;

pub use origin::UNKNOWN_SERVICE;
pub use tally::{Note, Reason, Reject, Tally};

/// A place in the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Position {
    /// Offset in bytes from the start, after inflating.
    Byte(usize),
    /// Line and column of a text, both from 1.
    Line {
        /// Line.
        line: usize,
        /// Column, in bytes; 0 where the whole line is meant.
        column: usize,
    },
    /// The n-th span of the input, from 1.
    Span(u64),
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Byte(at) => write!(f, "byte {at}"),
            Self::Line { line, column: 0 } => write!(f, "line {line}"),
            Self::Line { line, column } => write!(f, "line {line}, column {column}"),
            Self::Span(n) => write!(f, "span {n}"),
        }
    }
}

/// What one input gave.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Decoded {
    /// Spans pushed.
    pub spans: u64,
    /// Spans refused, by reason.
    pub rejected: Tally<Reject>,
    /// What was odd about spans that were kept.
    pub notes: Tally<Note>,
    /// The first span refused.
    pub first_rejected: Option<(Position, Reject)>,
}

impl Decoded {
    /// Adds what another input gave.
    pub fn merge(&mut self, other: &Self) {
        self.spans += other.spans;
        self.rejected.merge(&other.rejected);
        self.notes.merge(&other.notes);
        self.first_rejected = self.first_rejected.or(other.first_rejected);
    }

    /// Counts a refused span; its place is its ordinal number in the input.
    fn reject(&mut self, reason: Reject) {
        let ordinal = self.spans + self.rejected.total() + 1;
        self.reject_at(Position::Span(ordinal), reason);
    }

    fn reject_at(&mut self, at: Position, reason: Reject) {
        self.rejected.add(reason, 1);
        self.first_rejected.get_or_insert((at, reason));
    }

    /// Pushes a span or counts why there is none.
    fn take(&mut self, span: Result<firm_model::Span, Reject>, out: &mut Vec<firm_model::Span>) {
        match span {
            Ok(span) => {
                if span.end < span.start {
                    self.notes.add(Note::EndBeforeStart, 1);
                }
                self.spans += 1;
                out.push(span);
            }
            Err(reason) => self.reject(reason),
        }
    }
}

/// Input whose framing is broken. Spans before the place were kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {reason} ({} spans before it kept)", decoded.spans)]
pub struct DecodeError {
    /// Where.
    pub at: Position,
    /// What is wrong there.
    pub reason: String,
    /// What was decoded before.
    pub decoded: Box<Decoded>,
}

impl DecodeError {
    fn new(at: Position, reason: impl Into<String>, decoded: Decoded) -> Self {
        Self {
            at,
            reason: reason.into(),
            decoded: Box::new(decoded),
        }
    }
}
