//! Reads YAML into checked values and reports every problem at once, each with file, line, key,
//! value and the rule that it breaks.
//!
//! A section is read field by field; what was not asked for is an unknown key. Nothing here
//! reads files: the caller gives the text and the name to print.
//!
//! ```
//! use firm_config::Document;
//! use firm_model::MilliCores;
//!
//! let text = "cpu: 250m\nthreds: 2\n";
//! let document = Document::parse("demo.yaml", text).unwrap();
//! let problems = document
//!     .read(|section| {
//!         let cpu: Option<MilliCores> = section.required("cpu");
//!         let threads: u32 = section.or("threads", 1);
//!         Some((cpu?, threads))
//!     })
//!     .unwrap_err();
//! assert_eq!(
//!     problems.to_string(),
//!     "demo.yaml:2: threds: unknown key (value `2`); did you mean `threads`?"
//! );
//! ```

mod document;
mod problem;
mod section;
mod value;

pub use document::{Document, Scalar};
pub use problem::{Problem, Problems};
pub use section::Section;
pub use value::FromScalar;

#[cfg(test)]
mod tests;
