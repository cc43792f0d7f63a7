//! injector
