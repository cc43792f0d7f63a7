//! What a culprit lacks, from its telemetry and from which part of its time has grown.

use firm_model::{Part, Resource, Verdict};

/// Share of throttled enforcement periods from which CPU is held to be what lacks.
pub const THROTTLED_RATIO: f64 = 0.1;
/// Share of runnable time spent waiting for a processor from which CPU is held to be what lacks.
pub const WAIT_SHARE: f64 = 0.2;
/// How many times the normal share a share must be to count, where the normal one is known.
pub const OVER_NORMAL: f64 = 1.5;
/// How many times the normal waiting time for each second of run time must be there. Not the
/// share itself, which ends at 1 and may normally be two thirds on a shared processor.
pub const WAIT_OVER_NORMAL: f64 = 3.0;
/// Share of failed requests from which a fault, not a resource, is the reason.
pub const ERROR_SHARE: f64 = 0.5;

/// A share now and when all was well; `None` where it cannot be measured.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Share {
    /// In the window of the finding, 0 to 1.
    pub now: Option<f64>,
    /// While the baseline was learned, 0 to 1.
    pub normal: Option<f64>,
}

impl Share {
    fn is_high(self, threshold: f64) -> bool {
        let Some(now) = self.now else {
            return false;
        };
        now >= threshold && self.normal.is_none_or(|normal| now >= OVER_NORMAL * normal)
    }

    /// As [`Share::is_high`], by waiting time over run time: w / (1 - w).
    fn is_long_wait(self) -> bool {
        let Some(now) = self.now else {
            return false;
        };
        let grown = |normal: f64| now * (1.0 - normal) >= WAIT_OVER_NORMAL * normal * (1.0 - now);
        now >= WAIT_SHARE && self.normal.is_none_or(grown)
    }
}

/// What is known of a culprit beside its spans.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Evidence {
    /// Throttled enforcement periods ([`firm_model::CpuRate::throttled_ratio`]).
    pub throttled: Share,
    /// Time that its threads were runnable and waited, over that and their run time (schedstat).
    pub waiting: Share,
    /// Requests through it that failed.
    pub errors: Share,
}

impl Evidence {
    /// Whether throttling or waiting for a processor proves that CPU lacks.
    #[must_use]
    pub fn is_starved(&self) -> bool {
        self.throttled.is_high(THROTTLED_RATIO) || self.waiting.is_long_wait()
    }

    /// Whether throttling is high and known to be more than normal: enough to suspect an
    /// instance that its spans alone do not accuse.
    #[must_use]
    pub fn is_newly_throttled(&self) -> bool {
        self.throttled.normal.is_some() && self.throttled.is_high(THROTTLED_RATIO)
    }

    /// Whether neither throttling nor waiting could be measured.
    #[must_use]
    pub fn is_unmeasured(&self) -> bool {
        self.throttled.now.is_none() && self.waiting.now.is_none()
    }
}

/// Names the resource that lacks.
///
/// Throttling or waiting for a processor names CPU whichever part has grown: a service that does
/// not get to run answers late and is reached late. Else failures name none. Else growth in the
/// gap alone names the network. Else nothing is claimed, and nothing should be done.
#[must_use]
pub fn name_resource(part: Part, evidence: &Evidence) -> Verdict {
    match part {
        _ if evidence.is_starved() => Verdict::Resource(Resource::Cpu),
        _ if evidence.errors.is_high(ERROR_SHARE) => Verdict::NotAResource,
        Part::Gap => Verdict::Resource(Resource::Network),
        Part::Server => Verdict::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now(share: f64) -> Share {
        Share {
            now: Some(share),
            normal: None,
        }
    }

    #[test]
    fn throttling_is_cpu_whichever_part_grew() {
        let evidence = Evidence {
            throttled: now(0.6),
            ..Evidence::default()
        };
        for part in [Part::Server, Part::Gap] {
            assert_eq!(
                name_resource(part, &evidence),
                Verdict::Resource(Resource::Cpu)
            );
        }
    }

    #[test]
    fn throttling_that_was_always_there_is_not_the_reason() {
        let evidence = Evidence {
            throttled: Share {
                now: Some(0.3),
                normal: Some(0.3),
            },
            ..Evidence::default()
        };
        assert_eq!(name_resource(Part::Server, &evidence), Verdict::Unknown);
    }

    #[test]
    fn suspicion_needs_throttling_that_is_known_to_be_new() {
        let throttled = |normal| Evidence {
            throttled: Share {
                now: Some(0.3),
                normal,
            },
            ..Evidence::default()
        };
        assert!(throttled(Some(0.1)).is_newly_throttled());
        assert!(!throttled(Some(0.25)).is_newly_throttled());
        assert!(!throttled(None).is_newly_throttled());
        assert!(throttled(None).is_starved());
        assert!(!throttled(None).is_unmeasured() && Evidence::default().is_unmeasured());
    }

    #[test]
    fn gap_alone_is_the_network_and_failures_are_no_resource() {
        let none = Evidence::default();
        let network = Verdict::Resource(Resource::Network);
        assert_eq!(name_resource(Part::Gap, &none), network);
        assert_eq!(name_resource(Part::Server, &none), Verdict::Unknown);
        let failing = Evidence {
            errors: now(0.9),
            waiting: now(0.05),
            ..none
        };
        assert_eq!(name_resource(Part::Server, &failing), Verdict::NotAResource);
    }

    #[test]
    fn long_wait_shows_where_waiting_is_normal_too() {
        let waiting = |now, normal| Evidence {
            waiting: Share {
                now: Some(now),
                normal: Some(normal),
            },
            ..Evidence::default()
        };
        assert!(waiting(0.98, 0.67).is_starved());
        assert!(!waiting(0.75, 0.67).is_starved());
        assert!(
            !waiting(0.1, 0.01).is_starved(),
            "a tenth is little, however rare"
        );
        assert!(waiting(1.0, 0.67).is_starved());
    }
}
