//! One objective, its trigger, and the latest requests of its type.

use std::time::Duration;

use firm_extractor::observation::Observation;
use firm_extractor::trigger::{Trigger, TriggerConfig};
use firm_mitigator::state::RequestLoad;
use firm_model::{Interner, Latency, Objective, RequestType};

use super::{Tipped, per_second};
use crate::settings::TriggerSettings;

/// An objective under watch.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) request: RequestType,
    pub(super) objective: Objective,
    trigger: Trigger,
    /// The request that made the trigger fire.
    tipped: Option<Tipped>,
}

/// The trigger of an objective under these settings; also what the load generator's clock is
/// read by.
#[must_use]
pub(crate) fn trigger_of(objective: &Objective, settings: &TriggerSettings) -> Trigger {
    Trigger::new(TriggerConfig {
        quantile: objective.quantile,
        bound: objective.bound,
        window: settings.window,
        most: settings.most,
        least: settings.least,
        false_alarm: settings.false_alarm,
    })
}

impl Watch {
    pub(super) fn new(objective: &Objective, settings: &TriggerSettings, names: &Interner) -> Self {
        Self {
            request: RequestType {
                service: names.intern(&objective.service),
                operation: names.intern(&objective.operation),
            },
            objective: objective.clone(),
            trigger: trigger_of(objective, settings),
            tipped: None,
        }
    }

    pub(super) fn push(&mut self, observation: &Observation, is_judged: bool, tipped: Tipped) {
        if !is_judged {
            return;
        }
        let nanos = u64::try_from(observation.root_nanos).unwrap_or(0);
        let was = self.trigger.is_violated();
        if self
            .trigger
            .push(observation.end, Latency::from_nanos(nanos))
            && !was
        {
            self.tipped = Some(tipped);
        }
    }

    pub(super) const fn is_violated(&self) -> bool {
        self.trigger.is_violated()
    }

    /// Requests over the bound among the latest.
    pub(super) fn over(&self) -> usize {
        self.trigger.over()
    }

    pub(super) const fn tipped(&self) -> Option<Tipped> {
        self.tipped
    }

    pub(super) fn clear(&mut self) {
        self.trigger.clear();
        self.tipped = None;
    }

    /// Its load and latency over the latest requests. Where they are too few for the quantile,
    /// the latency is unknown.
    pub(super) fn load(&self, window: Duration) -> RequestLoad {
        let status = self.trigger.status();
        RequestLoad {
            objective: self.objective.bound,
            current: status.latency,
            arrivals: per_second(status.count, window),
        }
    }
}
