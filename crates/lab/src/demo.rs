//! The main job on one machine: a real application misses its objective, the culprit is found,
//! given what it lacks, and everything is put back.
//!
//! [`plan::plan`] draws from a seed who is hurt, when and how much. [`run::run`] does one run and
//! gives a [`report::RunReport`]; a second one with [`setup::Mode::Observe`] shows what happens
//! when nothing is done.

mod control;
pub mod event;
pub mod plan;
mod recorder;
pub mod report;
pub mod run;
pub mod setup;
mod stage;
mod start;
mod starve;

pub use event::DemoEvent;
pub use plan::Plan;
pub use report::RunReport;
pub use run::run;
pub use setup::{DemoError, Mode, Setup};

/// First part of the names of cgroups that runs make.
pub const GROUP_PREFIX: &str = stage::PREFIX;
