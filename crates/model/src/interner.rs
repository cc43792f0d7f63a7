//! Service, operation and instance names as small numbers.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;

/// Longest name kept, in bytes; longer ones are cut at a character boundary. A rule, so that a
/// name of a megabyte costs a kilobyte and its span stays usable.
pub const MAX_NAME_BYTES: usize = 1024;

/// Most distinct names an interner holds; further ones all become [`Symbol::OVERFLOW`].
pub const MAX_NAMES: usize = 1 << 20;

/// A name in an [`Interner`]. Only meaningful together with the interner that gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Symbol(u32);

impl Symbol {
    /// The empty name.
    pub const EMPTY: Symbol = Symbol(0);
    /// Stands for every name that came after the table was full.
    pub const OVERFLOW: Symbol = Symbol(1);

    /// Position in the interner's table, for arrays indexed by name.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A shared, append-only table of names. Cheap to read from several threads.
#[derive(Debug)]
pub struct Interner {
    inner: RwLock<Table>,
}

#[derive(Debug)]
struct Table {
    by_name: HashMap<Arc<str>, Symbol, foldhash::fast::RandomState>,
    names: Vec<Arc<str>>,
}

impl Default for Interner {
    fn default() -> Self {
        Self::new()
    }
}

impl Interner {
    /// An interner that holds the empty name and the overflow name.
    #[must_use]
    pub fn new() -> Self {
        let interner = Self {
            inner: RwLock::new(Table {
                by_name: HashMap::default(),
                names: Vec::new(),
            }),
        };
        interner.intern("");
        interner.intern("(too many names)");
        interner
    }

    /// The symbol of `name`, which is added if it is new.
    pub fn intern(&self, name: &str) -> Symbol {
        let name = truncate(name);
        if let Some(symbol) = self.inner.read().by_name.get(name) {
            return *symbol;
        }
        let mut table = self.inner.write();
        if let Some(symbol) = table.by_name.get(name) {
            return *symbol;
        }
        if table.names.len() >= MAX_NAMES {
            return Symbol::OVERFLOW;
        }
        let Ok(next) = u32::try_from(table.names.len()) else {
            return Symbol::OVERFLOW;
        };
        let shared: Arc<str> = Arc::from(name);
        table.names.push(Arc::clone(&shared));
        table.by_name.insert(shared, Symbol(next));
        Symbol(next)
    }

    /// The symbol of `name` if it was interned before.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Symbol> {
        self.inner.read().by_name.get(truncate(name)).copied()
    }

    /// The name behind a symbol of this interner; the empty name for a foreign symbol.
    #[must_use]
    pub fn resolve(&self, symbol: Symbol) -> Arc<str> {
        let table = self.inner.read();
        table
            .names
            .get(symbol.index())
            .or(table.names.first())
            .cloned()
            .unwrap_or_default()
    }

    /// Number of distinct names.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.read().names.len()
    }

    /// Never true: two names are there from the start.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn truncate(name: &str) -> &str {
    &name[..name.floor_char_boundary(MAX_NAME_BYTES)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_name_same_symbol() {
        let names = Interner::new();
        let a = names.intern("cart");
        assert_eq!(names.intern("cart"), a);
        assert_eq!(&*names.resolve(a), "cart");
        assert_eq!(names.intern(""), Symbol::EMPTY);
    }

    #[test]
    fn name_of_a_megabyte_is_cut() {
        let names = Interner::new();
        let long = "é".repeat(1 << 19);
        let symbol = names.intern(&long);
        assert!(names.resolve(symbol).len() <= MAX_NAME_BYTES);
        assert_eq!(names.intern(&long), symbol);
    }
}
