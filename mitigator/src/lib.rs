//! mitigator
