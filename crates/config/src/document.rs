//! A YAML text as a tree that knows its lines.

use std::cell::RefCell;

use saphyr::{LoadableYamlNode, MarkedYaml, Scalar as Parsed, YamlData};
use saphyr_parser::{Event, Parser};

use crate::problem::{Problem, Problems};
use crate::section::Section;

/// Largest text that is read, in bytes.
pub(crate) const MAX_BYTES: usize = 1 << 20;
/// Deepest nesting that is read.
const MAX_DEPTH: usize = 64;

/// A parsed YAML file.
#[derive(Debug, Clone)]
pub struct Document {
    file: String,
    root: Node,
}

/// A node of the tree: where it stands and what it is.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) line: usize,
    pub(crate) data: Data,
}

#[derive(Debug, Clone)]
pub(crate) enum Data {
    Null,
    Scalar(Scalar),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

/// A scalar with the type that YAML's core schema gives it.
#[derive(Debug, Clone, PartialEq)]
pub enum Scalar {
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Any other number, NaN and infinities included.
    Float(f64),
    /// Anything else, and what stands in quotes.
    Text(String),
}

impl Document {
    /// Parses `text`. An empty text is an empty map.
    ///
    /// # Errors
    /// Not YAML, more than one document, larger than 1 MiB, nested too deeply, or keys
    /// that are no text.
    pub fn parse(file: &str, text: &str) -> Result<Self, Problems> {
        let problem = |line: Option<usize>, rule: String| {
            Problems(vec![Problem {
                file: file.to_owned(),
                line,
                key: String::new(),
                value: String::new(),
                rule,
            }])
        };
        if text.len() > MAX_BYTES {
            return Err(problem(None, format!("larger than {MAX_BYTES} bytes")));
        }
        // The tree is built and dropped recursively, so its depth is looked at before.
        if let Some(line) = too_deep(text) {
            return Err(problem(
                Some(line),
                format!("nested deeper than {MAX_DEPTH}"),
            ));
        }
        let documents = MarkedYaml::load_from_str(text).map_err(|error| {
            problem(
                Some(error.marker().line()),
                format!("not YAML: {}", error.info()),
            )
        })?;
        let root = match documents.as_slice() {
            [] => Node {
                line: 1,
                data: Data::Map(Vec::new()),
            },
            [one] => convert(one, 0).map_err(|(line, rule)| problem(Some(line), rule))?,
            [_, second, ..] => {
                let line = second.span.start.line();
                return Err(problem(Some(line), "more than one document".to_owned()));
            }
        };
        Ok(Self {
            file: file.to_owned(),
            root,
        })
    }

    /// Whether the document is a map that has this key, to tell what it is for.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        matches!(&self.root.data, Data::Map(entries) if entries.iter().any(|(name, _)| name == key))
    }

    /// Reads the document as one section.
    ///
    /// `read` returns `None` when it noted a problem that leaves nothing to return.
    ///
    /// # Errors
    /// All problems that were noted, unknown keys included.
    pub fn read<T>(&self, read: impl FnOnce(&mut Section<'_>) -> Option<T>) -> Result<T, Problems> {
        let problems = RefCell::new(Vec::new());
        let value = {
            let mut section = Section::root(&self.file, &self.root, &problems);
            read(&mut section)
        };
        let mut problems = problems.into_inner();
        match value {
            Some(value) if problems.is_empty() => Ok(value),
            _ => {
                if problems.is_empty() {
                    problems.push(Problem {
                        file: self.file.clone(),
                        line: None,
                        key: String::new(),
                        value: String::new(),
                        rule: "cannot be used".to_owned(),
                    });
                }
                problems.sort_by_key(|problem| problem.line.unwrap_or(usize::MAX));
                Err(Problems(problems))
            }
        }
    }
}

/// Line at which lists and maps first nest deeper than [`MAX_DEPTH`].
fn too_deep(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for event in Parser::new_from_str(text) {
        // What is not YAML is told by the loader.
        let (event, span) = event.ok()?;
        match event {
            Event::SequenceStart(..) | Event::MappingStart(..) => depth += 1,
            Event::SequenceEnd | Event::MappingEnd => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return Some(span.start.line());
        }
    }
    None
}

fn convert(node: &MarkedYaml<'_>, depth: usize) -> Result<Node, (usize, String)> {
    let line = node.span.start.line();
    if depth > MAX_DEPTH {
        return Err((line, format!("nested deeper than {MAX_DEPTH}")));
    }
    let data = match &node.data {
        YamlData::Value(scalar) => match scalar {
            Parsed::Null => Data::Null,
            Parsed::Boolean(value) => Data::Scalar(Scalar::Bool(*value)),
            Parsed::Integer(value) => Data::Scalar(Scalar::Int(*value)),
            Parsed::FloatingPoint(value) => Data::Scalar(Scalar::Float(value.into_inner())),
            Parsed::String(value) => Data::Scalar(Scalar::Text(value.to_string())),
        },
        YamlData::Sequence(items) => Data::List(
            items
                .iter()
                .map(|item| convert(item, depth + 1))
                .collect::<Result<_, _>>()?,
        ),
        YamlData::Mapping(entries) => {
            let mut map = Vec::with_capacity(entries.len());
            for (key, value) in entries {
                let key = match convert(key, depth + 1)?.data {
                    Data::Scalar(atom) => atom.to_string(),
                    _ => return Err((key.span.start.line(), "key is not a text".to_owned())),
                };
                let mut value = convert(value, depth + 1)?;
                // A value that is absent stands nowhere: point at its key.
                value.line = value.line.max(1);
                map.push((key, value));
            }
            Data::Map(map)
        }
        YamlData::Tagged(tag, _) => return Err((line, format!("tag `{tag}` is not supported"))),
        YamlData::Alias(_) => return Err((line, "aliases are not supported".to_owned())),
        _ => return Err((line, "not a value".to_owned())),
    };
    Ok(Node { line, data })
}

impl std::fmt::Display for Scalar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Scalar::Bool(value) => write!(f, "{value}"),
            Scalar::Int(value) => write!(f, "{value}"),
            Scalar::Float(value) => write!(f, "{value}"),
            Scalar::Text(value) => f.write_str(value),
        }
    }
}

impl Node {
    /// The value as it is shown in a problem.
    pub(crate) fn shown(&self) -> String {
        match &self.data {
            Data::Null => "null".to_owned(),
            Data::Scalar(atom) => {
                let text = atom.to_string();
                match text.char_indices().nth(60) {
                    Some((cut, _)) => format!("{}…", &text[..cut]),
                    None => text,
                }
            }
            Data::List(items) => format!("a list of {}", items.len()),
            Data::Map(entries) => format!("a map of {}", entries.len()),
        }
    }
}
