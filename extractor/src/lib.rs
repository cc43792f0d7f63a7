//! extractor
