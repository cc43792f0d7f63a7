//! The fast loop on CPU throttling, for instances under a grant and for no others.
//!
//! A grant is opened when a limit was raised for a culprit. While it is open, every tick (100 ms):
//!
//! - throttling: the limit goes up at once, within the grant's bounds;
//! - calm for a while: the limit goes down by a small step, toward the limit that the instance
//!   had before, never below recent use with a margin;
//! - throttling soon after such a cut: the cut is undone at once, and the next waits longer;
//! - missing data: nothing.
//!
//! The grant closes when the limit is back where it was and that has held.

mod grant;

use std::collections::BTreeMap;
use std::time::Duration;

use firm_model::{Action, Bounds, CpuRate, InstanceId, MilliCores, Monotonic};

use grant::{Grant, Turn};

/// Parameters of the loop.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RuleLoopConfig {
    /// Time after a step in which readings do not count: they began before it, and the period
    /// that was running may still end throttled.
    pub settle: Duration,
    /// How far back throttling counts for a step up.
    pub up_window: Duration,
    /// Throttled share of the periods in `up_window` at which the limit goes up.
    pub up_ratio: f64,
    /// Factor on the limit of one step up.
    pub up_factor: f64,
    /// Throttled share of the periods that still counts as calm.
    pub calm_ratio: f64,
    /// Time of calm before anything is taken back.
    pub calm: Duration,
    /// Share of the limit that one cut takes.
    pub down_step: f64,
    /// Least share of the limit that a cut takes, unless it reaches the limit of before.
    pub least_cut: f64,
    /// Time between two cuts.
    pub down_pause: Duration,
    /// How far back use counts for a cut.
    pub use_window: Duration,
    /// Quantile of the use of 100 ms readings that a cut leaves room for. Not the highest, which
    /// one busy moment would set; cuts that go too deep are undone.
    pub use_quantile: f64,
    /// Room left above that, as a share of it.
    pub margin: f64,
    /// Time after a cut in which throttling counts as its effect.
    pub undo_window: Duration,
    /// Throttled share of the periods since the cut at which it is undone.
    pub undo_ratio: f64,
    /// Least number of throttled periods for that.
    pub undo_periods: u64,
    /// Cuts that may be undone within `flap_window`; then nothing is cut until it has passed.
    pub flap_budget: usize,
    /// See `flap_budget`.
    pub flap_window: Duration,
    /// Time without readings after which old ones do not count any more.
    pub stale: Duration,
}

impl Default for RuleLoopConfig {
    fn default() -> Self {
        Self {
            settle: Duration::from_millis(150),
            up_window: Duration::from_millis(300),
            up_ratio: 0.5,
            up_factor: 1.5,
            calm_ratio: 0.1,
            calm: Duration::from_secs(3),
            down_step: 0.1,
            least_cut: 0.02,
            down_pause: Duration::from_millis(500),
            use_window: Duration::from_secs(3),
            use_quantile: 0.75,
            margin: 0.1,
            undo_window: Duration::from_secs(1),
            undo_ratio: 0.3,
            undo_periods: 2,
            flap_budget: 3,
            flap_window: Duration::from_secs(60),
            stale: Duration::from_secs(1),
        }
    }
}

/// What was measured of one instance since the tick before.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// The instance.
    pub instance: InstanceId,
    /// Its CPU use and throttling.
    pub rate: CpuRate,
    /// Its limit as the kernel has it, `None` where there is none.
    pub limit: Option<MilliCores>,
}

/// Why the loop changes a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepKind {
    /// The instance is throttled.
    Up,
    /// The instance does not need so much.
    TakeBack,
    /// The cut before was too deep.
    UndoCut,
}

/// One change that the loop asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The change.
    pub action: Action,
    /// Why.
    pub kind: StepKind,
}

/// The loop's state. Pure: the caller reads clock and counters, and carries out the steps.
#[derive(Debug, Clone)]
pub struct RuleLoop {
    config: RuleLoopConfig,
    grants: BTreeMap<InstanceId, Grant>,
}

impl RuleLoop {
    /// A loop without grants.
    #[must_use]
    pub const fn new(config: RuleLoopConfig) -> Self {
        Self {
            config,
            grants: BTreeMap::new(),
        }
    }

    /// Opens or renews a grant: the instance's limit may move within `bounds`, and goes back to
    /// `floor`, the limit it had before the first raise. A renewed grant keeps the lower floor.
    pub fn grant(
        &mut self,
        instance: InstanceId,
        bounds: Bounds,
        floor: MilliCores,
        now: Monotonic,
    ) {
        let mut grant = Grant::new(bounds, bounds.clamp(floor), now);
        if let Some(open) = self.grants.get(&instance) {
            grant.renew(open);
        }
        self.grants.insert(instance, grant);
    }

    /// Tells the throttled share, 0 to 1, that the instance had while its objective held. So much
    /// of it counts as calm.
    pub fn tolerate(&mut self, instance: &InstanceId, throttled: f64) {
        if let Some(grant) = self.grants.get_mut(instance) {
            grant.tolerated = if throttled.is_nan() {
                0.0
            } else {
                throttled.clamp(0.0, 1.0)
            };
        }
    }

    /// Ends a grant as it stands, for example because another writer has taken the limit over.
    pub fn revoke(&mut self, instance: &InstanceId) {
        self.grants.remove(instance);
    }

    /// Instances under a grant.
    pub fn granted(&self) -> impl Iterator<Item = &InstanceId> {
        self.grants.keys()
    }

    /// Whether everything given has been taken back: no grant is open.
    #[must_use]
    pub fn take_back_complete(&self) -> bool {
        self.grants.is_empty()
    }

    /// One turn of the loop. At most one step an instance. Readings of instances without a grant
    /// are passed over.
    pub fn tick(&mut self, now: Monotonic, readings: &[Reading]) -> Vec<Step> {
        let config = self.config;
        let mut steps = Vec::new();
        self.grants.retain(|instance, grant| {
            let reading = readings
                .iter()
                .find(|reading| reading.instance == *instance);
            match grant.turn(&config, now, reading) {
                Turn::Hold => true,
                Turn::Close => false,
                Turn::Set(limit, kind) => {
                    steps.push(Step {
                        action: Action {
                            instance: instance.clone(),
                            cpu: Some(limit),
                        },
                        kind,
                    });
                    true
                }
            }
        });
        steps
    }
}
