//! Spans in, execution graphs out. A trace's graph depends on its spans alone: not on the order
//! in which they came, not on how they were batched, not on how often each was delivered.
//!
//! - One trace at a time: [`assemble_trace`].
//! - All spans of a file: [`assemble_batch`], or [`assemble_each`] which hands graphs on one by
//!   one.
//! - A stream without end: [`StreamAssembler`].
//!
//! The rules, in the order they are applied:
//! 1. Canonical order is by start, then id, then the longer first, then the other fields.
//! 2. The same span twice is kept once ([`UnusedReason::Duplicate`]).
//! 3. Of different spans with one id, a client and a server half are both kept, the client half
//!    as parent of the server half, and children of that id hang on the server half (Zipkin's
//!    shared ids). Any further one is left out ([`UnusedReason::ConflictingId`]); without both
//!    halves the first in canonical order is kept.
//! 4. Spans above [`AssemblyLimits::max_trace_spans`] are left out, last in canonical order
//!    first ([`UnusedReason::TraceFull`]).
//! 5. A span whose parent is not there is a root and keeps its `parent_id`.
//! 6. A span that names itself as parent is a root if the trace has no other, else it is left
//!    out ([`UnusedReason::SelfParent`]).
//! 7. Of each cycle the last member in canonical order is left out ([`UnusedReason::Cycle`]);
//!    what hung on it becomes a root.
//!
//! [`UnusedReason::Duplicate`]: firm_model::UnusedReason::Duplicate
//! [`UnusedReason::ConflictingId`]: firm_model::UnusedReason::ConflictingId
//! [`UnusedReason::TraceFull`]: firm_model::UnusedReason::TraceFull
//! [`UnusedReason::SelfParent`]: firm_model::UnusedReason::SelfParent
//! [`UnusedReason::Cycle`]: firm_model::UnusedReason::Cycle

mod batch;
mod index;
mod limits;
mod stream;
#[cfg(test)]
mod tests;
mod trace;

pub use batch::{assemble_batch, assemble_each};
pub use limits::{AssemblyCounts, AssemblyLimits};
pub use stream::StreamAssembler;
pub use trace::assemble_trace;
