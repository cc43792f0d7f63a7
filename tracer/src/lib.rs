//! Spans in, execution graphs out: receivers, decoders, files, assembly.
//!
//! Bytes become spans in [`decode`], called by [`receive`] (sockets) and [`mod@file`] (exports); spans
//! become graphs in [`assemble`], which [`live`] runs in a thread between a receiver's queue and
//! whoever uses graphs. Decoders and assembly are pure; sockets are bound by the caller.
//!
//! What this crate never does: lose a span without counting it, or stop because of one.
//!
//! ```
//! use firm_model::Interner;
//! use firm_tracer::decode::otlp_json;
//!
//! let text = br#"{"resourceSpans":[{"scopeSpans":[{"spans":[{
//!     "traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b174","name":"GET /",
//!     "startTimeUnixNano":"1544712660000000000","endTimeUnixNano":"1544712661000000000"}]}]}]}"#;
//! let (names, mut spans) = (Interner::new(), Vec::new());
//! let decoded = otlp_json::decode(text, &names, &mut spans)?;
//! assert_eq!((decoded.spans, spans[0].duration_nanos()), (1, 1_000_000_000));
//! # Ok::<(), firm_tracer::decode::DecodeError>(())
//! ```
//!
//! Begin with [`decode`], then [`mod@file`] or [`receive`].

pub mod assemble;
pub mod decode;
pub mod file;
mod inflate;
pub mod live;
pub mod receive;
