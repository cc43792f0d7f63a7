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

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use firm_model::{Action, Bounds, CpuRate, InstanceId, MilliCores, Monotonic};

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

#[derive(Debug, Clone)]
struct Grant {
    bounds: Bounds,
    floor: MilliCores,
    /// Throttled share that was there when all was well.
    tolerated: f64,
    readings: VecDeque<(Monotonic, CpuRate)>,
    /// Since when there have been readings without a gap.
    seen_since: Monotonic,
    last_step: Monotonic,
    cut: Option<Cut>,
    undone: VecDeque<Monotonic>,
}

#[derive(Debug, Clone, Copy)]
struct Cut {
    from: MilliCores,
    at: Monotonic,
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
        let floor = bounds.clamp(match self.grants.get(&instance) {
            Some(open) => open.floor.min(floor),
            None => floor,
        });
        let undone = self
            .grants
            .remove(&instance)
            .map(|open| open.undone)
            .unwrap_or_default();
        self.grants.insert(
            instance,
            Grant {
                bounds,
                floor,
                tolerated: 0.0,
                readings: VecDeque::new(),
                seen_since: now,
                last_step: now,
                cut: None,
                undone,
            },
        );
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

#[derive(Debug, Clone, Copy, Default)]
struct Periods {
    throttled: u64,
    all: u64,
}

impl Periods {
    /// Throttled share; 0 where no period passed, for then nothing wanted to run.
    fn ratio(self) -> f64 {
        if self.all == 0 {
            0.0
        } else {
            self.throttled as f64 / self.all as f64
        }
    }
}

enum Turn {
    Hold,
    Close,
    Set(MilliCores, StepKind),
}

impl Grant {
    fn turn(&mut self, config: &RuleLoopConfig, now: Monotonic, reading: Option<&Reading>) -> Turn {
        self.forget_if_stale(config, now);
        let Some(Reading {
            rate,
            limit: Some(limit),
            ..
        }) = reading
        else {
            return Turn::Hold;
        };
        if rate.throttled_periods.is_none() {
            return Turn::Hold;
        }
        if self.readings.is_empty() {
            self.seen_since = now;
        }
        self.readings.push_back((now, *rate));
        while self
            .readings
            .front()
            .is_some_and(|(at, _)| now - *at > config.use_window.max(config.calm))
        {
            self.readings.pop_front();
        }
        if now - self.last_step < config.settle {
            return Turn::Hold;
        }
        self.undo_cut(config, now, *limit)
            .or_else(|| self.up(config, now, *limit))
            .unwrap_or_else(|| self.down(config, now, *limit))
    }

    /// After a gap the old readings say nothing, and calm has to be seen anew.
    fn forget_if_stale(&mut self, config: &RuleLoopConfig, now: Monotonic) {
        let last = self.readings.back();
        if last.is_some_and(|(at, _)| now - *at > config.stale) {
            self.readings.clear();
            self.cut = None;
        }
    }

    fn undo_cut(
        &mut self,
        config: &RuleLoopConfig,
        now: Monotonic,
        limit: MilliCores,
    ) -> Option<Turn> {
        let cut = self.cut.filter(|cut| now - cut.at <= config.undo_window)?;
        let periods = self.periods_since(cut.at + config.settle);
        let is_harmful = periods.throttled >= config.undo_periods
            && periods.ratio() >= config.undo_ratio.max(self.calm_ratio(config));
        if !is_harmful || limit >= cut.from {
            return None;
        }
        self.cut = None;
        self.undone.push_back(now);
        Some(self.set(now, cut.from, StepKind::UndoCut))
    }

    fn up(&mut self, config: &RuleLoopConfig, now: Monotonic, limit: MilliCores) -> Option<Turn> {
        let settled = self.last_step + config.settle;
        let from = settled.max(before(now, config.up_window));
        let ratio = self.periods_since(from).ratio();
        if ratio < config.up_ratio.max(self.calm_ratio(config)) {
            return None;
        }
        // At least one thousandth, so that the least limits grow too.
        let wanted = scaled(limit, config.up_factor).max(MilliCores::new(limit.get() + 1));
        let wanted = wanted.min(self.bounds.upper());
        if wanted <= limit {
            return Some(Turn::Hold);
        }
        self.cut = None;
        Some(self.set(now, wanted, StepKind::Up))
    }

    fn down(&mut self, config: &RuleLoopConfig, now: Monotonic, limit: MilliCores) -> Turn {
        let settled = self.last_step + config.settle;
        let from = settled.max(before(now, config.calm));
        let is_calm = now - self.seen_since >= config.calm
            && self.periods_since(from).ratio() <= self.calm_ratio(config);
        let since_step = now - self.last_step;
        let patience = self.patience(config, now);
        if !is_calm {
            return Turn::Hold;
        }
        if limit <= self.floor {
            return if since_step >= config.calm {
                Turn::Close
            } else {
                Turn::Hold
            };
        }
        // A raise, or an undone cut, has to hold as long as calm does before the next cut.
        let pause = match self.cut {
            Some(_) => config.down_pause,
            None => config.calm * patience,
        };
        if since_step < pause || self.undone.len() >= config.flap_budget {
            return Turn::Hold;
        }
        let Some(used) = self.use_quantile(config.use_quantile) else {
            return Turn::Hold;
        };
        let wanted = scaled(limit, 1.0 - config.down_step)
            .max(scaled(used, 1.0 + config.margin))
            .max(self.floor);
        if wanted < limit {
            self.cut = Some(Cut {
                from: limit,
                at: now,
            });
            self.set(now, wanted, StepKind::TakeBack)
        } else {
            Turn::Hold
        }
    }

    /// Half more than was there when all was well is still calm.
    fn calm_ratio(&self, config: &RuleLoopConfig) -> f64 {
        config.calm_ratio.max(1.5 * self.tolerated)
    }

    fn set(&mut self, now: Monotonic, limit: MilliCores, kind: StepKind) -> Turn {
        self.last_step = now;
        Turn::Set(limit, kind)
    }

    /// How many times the usual pause to wait: doubles with each cut that was undone of late.
    fn patience(&mut self, config: &RuleLoopConfig, now: Monotonic) -> u32 {
        while self
            .undone
            .front()
            .is_some_and(|at| now - *at > config.flap_window)
        {
            self.undone.pop_front();
        }
        1 << self.undone.len().min(4)
    }

    fn periods_since(&self, from: Monotonic) -> Periods {
        let mut sum = Periods::default();
        for (_, rate) in self.readings.iter().filter(|(at, _)| *at > from) {
            sum.throttled = sum
                .throttled
                .saturating_add(rate.throttled_periods.unwrap_or(0));
            sum.all = sum.all.saturating_add(rate.periods.unwrap_or(0));
        }
        sum
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an index within the readings"
    )]
    fn use_quantile(&self, quantile: f64) -> Option<MilliCores> {
        let mut used: Vec<MilliCores> = self
            .readings
            .iter()
            .filter_map(|(_, rate)| rate.usage)
            .collect();
        let last = used.len().checked_sub(1)?;
        used.sort_unstable();
        let index = (quantile.clamp(0.0, 1.0) * last as f64).round() as usize;
        used.get(index).copied()
    }
}

fn before(now: Monotonic, window: Duration) -> Monotonic {
    let window = u64::try_from(window.as_nanos()).unwrap_or(u64::MAX);
    Monotonic::from_nanos(now.as_nanos().saturating_sub(window))
}

fn scaled(value: MilliCores, factor: f64) -> MilliCores {
    // Out of range only for limits beyond any machine.
    MilliCores::from_cores(value.as_cores() * factor).unwrap_or(value)
}
