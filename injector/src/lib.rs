//! Contention on purpose: campaigns of anomalies, and the ground truth of what they really did.
//!
//! Begin with [`campaign`] (what is asked for), then [`schedule()`] (what that becomes under a
//! seed), then [`inject`] (what was done, as [`firm_model::Anomaly`]) and [`run()`]. [`stressor::run_stressor`]
//! is what a stressor's process does.
//!
//! # What an intensity means
//!
//! | kind | 0 | 1 |
//! |---|---|---|
//! | `cpu` | nothing | one whole core's time on each CPU of the stressor's set |
//!
//! An intensity of 0.4 on one CPU is 0.4 s of CPU time a second. It is measured on the
//! stressor's own CPU clock over the whole anomaly; what a quota or a neighbour took away from it
//! is missing from the achieved value, and that is what the records say.
//!
//! What this crate never does: touch an instance that was not opted in, write a limit, or look a
//! process up by name. The caller puts the stressor into a cgroup (see [`inject::Place`]).

pub mod campaign;
mod controller;
pub mod inject;
pub mod ledger;
mod run;
pub mod schedule;
pub mod stressor;

pub use campaign::Campaign;
pub use inject::{Injection, Injector};
pub use run::run;
pub use schedule::{Planned, schedule};
