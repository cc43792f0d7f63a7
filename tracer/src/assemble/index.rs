//! From span id to place: by scanning when there are few, by hashing when there are many.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use firm_model::SpanId;

/// Up to here a scan over contiguous ids beats a hash table.
const SCAN_LIMIT: usize = 32;

/// The id as one machine word.
pub(super) fn word(id: SpanId) -> u64 {
    u64::from_ne_bytes(*id.as_bytes())
}

/// Reusable index of the ids of one trace; the first place of an id counts.
#[derive(Debug, Default)]
pub(super) struct IdIndex {
    ids: Vec<u64>,
    hashed: HashMap<u64, u32, foldhash::fast::RandomState>,
    by_scan: bool,
}

impl IdIndex {
    /// Indexes `ids` anew. Returns whether any id occurs twice.
    pub(super) fn rebuild(&mut self, ids: impl ExactSizeIterator<Item = SpanId>) -> bool {
        self.ids.clear();
        self.hashed.clear();
        self.by_scan = ids.len() <= SCAN_LIMIT;
        let mut twice = false;
        if self.by_scan {
            for id in ids {
                let id = word(id);
                twice |= self.ids.contains(&id);
                self.ids.push(id);
            }
        } else {
            self.hashed.reserve(ids.len());
            for (place, id) in (0_u32..).zip(ids) {
                match self.hashed.entry(word(id)) {
                    Entry::Vacant(free) => {
                        free.insert(place);
                    }
                    Entry::Occupied(_) => twice = true,
                }
            }
        }
        twice
    }

    /// First place of `id`.
    pub(super) fn get(&self, id: SpanId) -> Option<u32> {
        let id = word(id);
        if self.by_scan {
            let place = self.ids.iter().position(|other| *other == id)?;
            u32::try_from(place).ok()
        } else {
            self.hashed.get(&id).copied()
        }
    }
}
