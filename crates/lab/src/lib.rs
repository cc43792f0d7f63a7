//! What needs all stages at once: the loop itself, the demo, evaluations.
//!
//! Begin with [`controller`], the loop without its hands; [`demo`] gives it hands and something
//! to do.

pub mod analyze;
pub mod controller;
pub mod demo;
pub mod eval_demo;
pub mod localise;
pub mod settings;
pub mod telemetry;
