//! Why spans were refused, what was odd about those kept, and counts of both.

use std::fmt;
use std::marker::PhantomData;

use serde::ser::{Serialize, SerializeMap, Serializer};

/// A closed set of reasons with stable names.
pub trait Reason: Copy + 'static {
    /// All of them, in the order of [`Reason::index`].
    const ALL: &'static [Self];
    /// Stable snake_case name, used in reports and metric labels.
    fn name(self) -> &'static str;
    /// Position in [`Reason::ALL`].
    fn index(self) -> usize;
}

macro_rules! reasons {
    ($(#[$doc:meta])* $set:ident { $($(#[$variant_doc:meta])* $variant:ident = $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $set {
            $($(#[$variant_doc])* $variant,)*
        }

        impl Reason for $set {
            const ALL: &'static [Self] = &[$(Self::$variant,)*];
            fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
            fn index(self) -> usize {
                self as usize
            }
        }

        impl fmt::Display for $set {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }

        impl Serialize for $set {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }
    };
}

reasons!(
    /// Why a span cannot be used.
    Reject {
        /// No trace id.
        MissingTraceId = "missing_trace_id",
        /// A trace id of zeros only.
        ZeroTraceId = "zero_trace_id",
        /// A trace id of the wrong length or with other than hexadecimal digits.
        BadTraceId = "bad_trace_id",
        /// No span id.
        MissingSpanId = "missing_span_id",
        /// A span id of zeros only.
        ZeroSpanId = "zero_span_id",
        /// A span id of the wrong length or with other than hexadecimal digits.
        BadSpanId = "bad_span_id",
        /// A parent id of the wrong length or with other than hexadecimal digits.
        BadParentId = "bad_parent_id",
        /// No start, or (OTLP) no end.
        MissingTime = "missing_time",
        /// A time or duration that is not a whole number.
        BadTime = "bad_time",
        /// A time before 1970 or past 2262.
        TimeOutOfRange = "time_out_of_range",
        /// A span, row or line whose inside cannot be read.
        Malformed = "malformed",
    }
);

reasons!(
    /// What was odd about a span that was kept.
    Note {
        /// It names no service; the service is `unknown_service`.
        MissingService = "missing_service",
        /// Its name is not UTF-8 or has a wrong escape; what is wrong was replaced by U+FFFD.
        NameNotUtf8 = "name_not_utf8",
        /// Its end lies before its start.
        EndBeforeStart = "end_before_start",
        /// It has no duration; it ends at its last annotation, else where it starts.
        MissingDuration = "missing_duration",
        /// It has no timestamp; it starts at its first annotation.
        TimeFromAnnotation = "time_from_annotation",
        /// It refers to a span of another trace, which is not followed.
        ReferenceToOtherTrace = "reference_to_other_trace",
    }
);

/// Slots of a tally; a unit test holds every reason set within it.
const SLOTS: usize = 12;

/// How often each reason occurred.
#[derive(Clone, Copy)]
pub struct Tally<R> {
    counts: [u64; SLOTS],
    reasons: PhantomData<R>,
}

impl<R> PartialEq for Tally<R> {
    fn eq(&self, other: &Self) -> bool {
        self.counts == other.counts
    }
}

impl<R> Eq for Tally<R> {}

impl<R> Default for Tally<R> {
    fn default() -> Self {
        Self {
            counts: [0; SLOTS],
            reasons: PhantomData,
        }
    }
}

impl<R: Reason> Tally<R> {
    /// Adds `count` occurrences.
    pub fn add(&mut self, reason: R, count: u64) {
        if let Some(slot) = self.counts.get_mut(reason.index()) {
            *slot += count;
        }
    }

    /// Occurrences of one reason.
    #[must_use]
    pub fn get(&self, reason: R) -> u64 {
        self.counts.get(reason.index()).copied().unwrap_or(0)
    }

    /// All occurrences.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Adds another tally.
    pub fn merge(&mut self, other: &Self) {
        for (slot, more) in self.counts.iter_mut().zip(other.counts) {
            *slot += more;
        }
    }

    /// Reasons that occurred, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (R, u64)> + '_ {
        R::ALL
            .iter()
            .map(|reason| (*reason, self.get(*reason)))
            .filter(|(_, count)| *count > 0)
    }
}

impl<R: Reason> fmt::Display for Tally<R> {
    /// `name count, name count`; nothing when nothing occurred.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (reason, count)) in self.iter().enumerate() {
            let comma = if place == 0 { "" } else { ", " };
            write!(f, "{comma}{} {count}", reason.name())?;
        }
        Ok(())
    }
}

impl<R: Reason> fmt::Debug for Tally<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

impl<R: Reason> Serialize for Tally<R> {
    /// A map from names to counts, without zeros.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (reason, count) in self.iter() {
            map.serialize_entry(reason.name(), &count)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_slot_and_a_name_of_its_own() {
        fn check<R: Reason>() {
            assert!(R::ALL.len() <= SLOTS);
            let names: std::collections::BTreeSet<_> = R::ALL.iter().map(|r| r.name()).collect();
            assert_eq!(names.len(), R::ALL.len());
            for (index, reason) in R::ALL.iter().enumerate() {
                assert_eq!(reason.index(), index);
            }
        }
        check::<Reject>();
        check::<Note>();
    }

    #[test]
    fn tallies_add_up_and_print_what_occurred() {
        let mut tally = Tally::default();
        tally.add(Reject::ZeroTraceId, 2);
        let mut other = tally;
        other.add(Reject::Malformed, 1);
        tally.merge(&other);
        assert_eq!(tally.to_string(), "zero_trace_id 4, malformed 1");
        assert_eq!(tally.total(), 5);
        assert_eq!(
            serde_json::to_string(&tally).unwrap(),
            r#"{"zero_trace_id":4,"malformed":1}"#
        );
    }
}
