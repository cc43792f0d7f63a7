//! Applications to try everything on: real processes made from a topology file, and the load
//! that enters them.
//!
//! Begin with [`topology`], then [`fleet`], which starts one process an instance
//! ([`service::run_service`] is what each of them does), then [`load`].
//!
//! What this crate never does: touch a cgroup or any limit (the caller places the processes, see
//! [`fleet::Fleet::start`]), listen on anything but loopback, or read the environment.

pub mod fleet;
mod http;
pub mod load;
pub mod service;
mod spans;
pub mod topology;
pub mod work;

pub use http::CallError;
pub use spans::{Export, SpansError};
pub use topology::Topology;
