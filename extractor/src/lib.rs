//! From execution graphs to culprits: critical paths (FIRM Algorithm 3.1), what each instance
//! adds to them, features (Algorithm 3.2), objectives, and who is to blame for want of what.
//!
//! Pure: values in, values out; no clock, no IO. Begin with [`critical_path`], then
//! [`observation`], [`features`], [`trigger`] and [`localise`].

pub mod baseline;
pub mod callees;
pub mod critical_path;
pub mod features;
pub mod histogram;
pub mod localise;
pub mod observation;
pub mod quantile;
pub mod resource;
#[cfg(test)]
mod testing;
pub mod trigger;
pub mod window;
