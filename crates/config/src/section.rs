//! A map of keys, read one by one.

use std::cell::RefCell;

use crate::document::{Data, Node};
use crate::problem::Problem;
use crate::value::FromScalar;

/// A map in a document. Keys that were never asked for are reported when it is dropped.
#[derive(Debug)]
pub struct Section<'a> {
    file: &'a str,
    node: &'a Node,
    path: String,
    asked: Vec<&'static str>,
    open: bool,
    problems: &'a RefCell<Vec<Problem>>,
}

impl<'a> Section<'a> {
    pub(crate) fn root(file: &'a str, node: &'a Node, problems: &'a RefCell<Vec<Problem>>) -> Self {
        let section = Self {
            file,
            node,
            path: String::new(),
            asked: Vec::new(),
            open: false,
            problems,
        };
        section.expect_map();
        section
    }

    fn below(&self, node: &'a Node, path: String) -> Self {
        let section = Self {
            file: self.file,
            node,
            path,
            asked: Vec::new(),
            open: false,
            problems: self.problems,
        };
        section.expect_map();
        section
    }

    fn expect_map(&self) {
        if !matches!(self.node.data, Data::Map(_) | Data::Null) {
            self.note(
                self.node.line,
                self.path.clone(),
                self.node.shown(),
                "not a map of keys",
            );
        }
    }

    fn map(&self) -> &'a [(String, Node)] {
        match &self.node.data {
            Data::Map(entries) => entries,
            _ => &[],
        }
    }

    fn find(&mut self, key: &'static str) -> Option<&'a Node> {
        self.asked.push(key);
        let node = self
            .map()
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, node)| node)?;
        if matches!(node.data, Data::Null) {
            None
        } else {
            Some(node)
        }
    }

    fn child_path(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    fn note(&self, line: usize, key: String, value: String, rule: impl Into<String>) {
        self.problems.borrow_mut().push(Problem {
            file: self.file.to_owned(),
            line: Some(line),
            key,
            value,
            rule: rule.into(),
        });
    }

    fn scalar<T: FromScalar>(&self, node: &Node, path: String) -> Option<T> {
        let Data::Scalar(atom) = &node.data else {
            self.note(
                node.line,
                path,
                node.shown(),
                format!("expected {}", T::EXPECTED),
            );
            return None;
        };
        match T::from_scalar(atom) {
            Ok(value) => Some(value),
            Err(rule) => {
                self.note(node.line, path, node.shown(), rule);
                None
            }
        }
    }

    /// Path of this section, empty for the whole document.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Whether the key is there and not null. Does not count as asking for it.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.map()
            .iter()
            .any(|(name, node)| name == key && !matches!(node.data, Data::Null))
    }

    /// The value of a key that must be there.
    pub fn required<T: FromScalar>(&mut self, key: &'static str) -> Option<T> {
        let Some(node) = self.find(key) else {
            let rule = format!("missing, expected {}", T::EXPECTED);
            self.note(self.node.line, self.child_path(key), String::new(), rule);
            return None;
        };
        self.scalar(node, self.child_path(key))
    }

    /// The value of a key that may be absent.
    pub fn optional<T: FromScalar>(&mut self, key: &'static str) -> Option<T> {
        let node = self.find(key)?;
        self.scalar(node, self.child_path(key))
    }

    /// The value of a key, or what it is when absent.
    pub fn or<T: FromScalar>(&mut self, key: &'static str, default: T) -> T {
        self.optional(key).unwrap_or(default)
    }

    /// A list of scalars; empty when absent. Elements with problems are noted and left out.
    pub fn list<T: FromScalar>(&mut self, key: &'static str) -> Vec<T> {
        let Some(node) = self.find(key) else {
            return Vec::new();
        };
        let path = self.child_path(key);
        let Data::List(items) = &node.data else {
            self.note(
                node.line,
                path,
                node.shown(),
                format!("expected a list of {}", T::EXPECTED),
            );
            return Vec::new();
        };
        let element = |(index, item)| self.scalar(item, format!("{path}[{index}]"));
        items.iter().enumerate().filter_map(element).collect()
    }

    /// The map under a key, `None` when absent.
    pub fn section(&mut self, key: &'static str) -> Option<Section<'a>> {
        let node = self.find(key)?;
        Some(self.below(node, self.child_path(key)))
    }

    /// The maps of a list under a key; empty when absent.
    pub fn sections(&mut self, key: &'static str) -> Vec<Section<'a>> {
        let Some(node) = self.find(key) else {
            return Vec::new();
        };
        let path = self.child_path(key);
        let Data::List(items) = &node.data else {
            self.note(node.line, path, node.shown(), "expected a list");
            return Vec::new();
        };
        items
            .iter()
            .enumerate()
            .map(|(index, item)| self.below(item, format!("{path}[{index}]")))
            .collect()
    }

    /// The maps under the keys of a map, in order; empty when absent.
    pub fn entries(&mut self, key: &'static str) -> Vec<(String, Section<'a>)> {
        let Some(node) = self.find(key) else {
            return Vec::new();
        };
        let path = self.child_path(key);
        let Data::Map(items) = &node.data else {
            self.note(node.line, path, node.shown(), "expected a map");
            return Vec::new();
        };
        items
            .iter()
            .map(|(name, item)| (name.clone(), self.below(item, format!("{path}.{name}"))))
            .collect()
    }

    /// Notes that the value of `key` breaks `rule`. An empty key means the section itself.
    pub fn problem(&self, key: &str, rule: impl Into<String>) {
        if key.is_empty() {
            self.note(self.node.line, self.path.clone(), String::new(), rule);
            return;
        }
        let found = self.map().iter().find(|(name, _)| name == key);
        let (line, shown) = found.map_or((self.node.line, String::new()), |(_, node)| {
            (node.line, node.shown())
        });
        self.note(line, self.child_path(key), shown, rule);
    }

    /// Lets unknown keys pass, for sections that somebody else reads.
    pub fn allow_unknown(&mut self) {
        self.open = true;
    }
}

impl Drop for Section<'_> {
    fn drop(&mut self) {
        if self.open {
            return;
        }
        for (name, node) in self.map() {
            if self.asked.contains(&name.as_str()) {
                continue;
            }
            let rule = match nearest(name, &self.asked) {
                Some(near) => format!("unknown key; did you mean `{near}`?"),
                None if self.asked.is_empty() => "unknown key".to_owned(),
                None => format!("unknown key; expected one of {}", self.asked.join(", ")),
            };
            self.note(node.line, self.child_path(name), node.shown(), rule);
        }
    }
}

/// The known key at an edit distance of at most a third of its length, if any.
fn nearest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    known
        .iter()
        .map(|key| (distance(name, key), *key))
        .filter(|(edits, key)| *edits <= key.len().div_ceil(3))
        .min()
        .map(|(_, key)| key)
}

/// Levenshtein distance in bytes.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut corner = i;
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let replaced = corner + usize::from(x != y);
            corner = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(corner + 1);
        }
    }
    row[b.len()]
}
