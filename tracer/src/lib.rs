//! Spans in, execution graphs out: receivers, decoders, files, assembly.

pub mod assemble;
pub mod decode;
pub mod file;
mod inflate;
pub mod live;
pub mod receive;
