//! What is wrong with a file.

use std::fmt;

/// One broken rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// File as the user named it.
    pub file: String,
    /// Line, from 1; `None` where no place can be told.
    pub line: Option<usize>,
    /// Path of keys, such as `services.cart.cpu`; empty for the whole file.
    pub key: String,
    /// The value found, shortened; empty where a key is missing.
    pub value: String,
    /// The rule it breaks.
    pub rule: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        let (rule, hint) = match self.rule.split_once(';') {
            Some((rule, hint)) => (rule, Some(hint)),
            None => (self.rule.as_str(), None),
        };
        write!(f, ": {rule}")?;
        if !self.value.is_empty() {
            write!(f, " (value `{}`)", self.value)?;
        }
        hint.map_or(Ok(()), |hint| write!(f, ";{hint}"))
    }
}

/// All problems of a file, in the order of its lines. Never empty.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    /// One line a problem.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}
