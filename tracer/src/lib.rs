//! Spans in, execution graphs out: receivers, decoders, files, assembly.

pub mod assemble;
pub mod decode;
pub mod file;
pub mod live;
pub mod receive;
