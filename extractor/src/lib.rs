//! From execution graphs to culprits: critical paths (FIRM Algorithm 3.1), what each instance
//! adds to them, features (Algorithm 3.2), objectives, and who is to blame for want of what.
//!
//! Pure: values in, values out. Begin with [`critical_path`], then [`observation`],
//! [`features`], [`trigger`] and [`localise`].

pub mod critical_path;
