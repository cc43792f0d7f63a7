//! One open grant: what was seen of the instance since, and what to do next.

use std::collections::VecDeque;
use std::time::Duration;

use firm_model::{Bounds, CpuRate, MilliCores, Monotonic};

use super::{Reading, RuleLoopConfig, StepKind};

#[derive(Debug, Clone)]
pub(super) struct Grant {
    bounds: Bounds,
    floor: MilliCores,
    /// Throttled share that was there when all was well.
    pub(super) tolerated: f64,
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

pub(super) enum Turn {
    Hold,
    Close,
    Set(MilliCores, StepKind),
}

impl Grant {
    pub(super) fn new(bounds: Bounds, floor: MilliCores, now: Monotonic) -> Self {
        Self {
            bounds,
            floor,
            tolerated: 0.0,
            readings: VecDeque::new(),
            seen_since: now,
            last_step: now,
            cut: None,
            undone: VecDeque::new(),
        }
    }

    /// Takes over what stays true when a grant is given anew.
    pub(super) fn renew(&mut self, open: &Grant) {
        self.floor = self.bounds.clamp(self.floor.min(open.floor));
        self.tolerated = open.tolerated;
        self.undone.clone_from(&open.undone);
    }

    pub(super) fn turn(
        &mut self,
        config: &RuleLoopConfig,
        now: Monotonic,
        reading: Option<&Reading>,
    ) -> Turn {
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
        // A cut of less is noise of the use, and every write has its cost.
        let least = scaled(limit, config.least_cut);
        let is_worth_it = wanted == self.floor || wanted.get() + least.get() <= limit.get();
        if wanted < limit && is_worth_it {
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
