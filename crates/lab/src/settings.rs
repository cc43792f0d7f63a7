//! `firm.yaml`: what the tracer, the extractor and the mitigator may be told. Every key has a
//! default, so an empty file is a right one.

use std::time::Duration;

use firm_config::{Document, Problems, Section};
use firm_extractor::localise::Threshold;
use firm_mitigator::RuleLoopConfig;
use firm_model::{Latency, MilliCores, Objective, PathRule, Quantile};
use firm_tracer::assemble::AssemblyLimits;

/// Checked settings.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Key `tracer`.
    pub tracer: AssemblyLimits,
    /// Key `objectives`; empty to take those of the topology.
    pub objectives: Vec<Objective>,
    /// Key `extractor`.
    pub extractor: ExtractorSettings,
    /// Key `mitigator`.
    pub mitigator: MitigatorSettings,
}

/// How culprits are found.
#[derive(Debug, Clone, PartialEq)]
pub struct ExtractorSettings {
    /// `rule`: rule of the critical path.
    pub rule: PathRule,
    /// `window`: span time that a finding looks back.
    pub window: Duration,
    /// `capacity`: requests held for it.
    pub capacity: usize,
    /// `trigger`: when an objective counts as violated.
    pub trigger: TriggerSettings,
    /// `threshold`: who is a culprit.
    pub threshold: Threshold,
}

/// When an objective counts as violated; see [`firm_extractor::trigger`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TriggerSettings {
    /// `window`: span time looked back.
    pub window: Duration,
    /// `most`: most requests looked at.
    pub most: usize,
    /// `least`: fewest requests for a decision.
    pub least: usize,
    /// `false_alarm`: chance of firing under a held objective.
    pub false_alarm: f64,
}

/// What is done about culprits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MitigatorSettings {
    /// `enforce`: change limits; otherwise only recommend.
    pub enforce: bool,
    /// `cpu_upper`: most CPU that an instance may be given.
    pub cpu_upper: MilliCores,
    /// `cool_down`: time after a change in which its effect is awaited.
    pub cool_down: Duration,
    /// `rule_loop`: the fast loop.
    pub rule_loop: RuleLoopConfig,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            tracer: AssemblyLimits::default(),
            objectives: Vec::new(),
            extractor: ExtractorSettings {
                rule: PathRule::Firm,
                window: Duration::from_secs(1),
                capacity: 20_000,
                trigger: TriggerSettings {
                    window: Duration::from_secs(2),
                    most: 300,
                    least: 20,
                    false_alarm: 1e-4,
                },
                threshold: Threshold::default(),
            },
            mitigator: MitigatorSettings {
                enforce: true,
                cpu_upper: MilliCores::new(1000),
                cool_down: Duration::from_secs(1),
                rule_loop: RuleLoopConfig::default(),
            },
        }
    }
}

impl Settings {
    /// Reads and checks settings; `file` is their name in problems.
    ///
    /// # Errors
    /// All problems together.
    pub fn parse(file: &str, text: &str) -> Result<Self, Problems> {
        Document::parse(file, text)?.read(|root| {
            let mut settings = Self::default();
            if let Some(mut section) = root.section("tracer") {
                settings.tracer = tracer(&mut section, settings.tracer);
            }
            for mut section in root.sections("objectives") {
                let Some(found) = objective(&mut section) else {
                    continue;
                };
                let same = |known: &Objective| {
                    known.service == found.service && known.operation == found.operation
                };
                if settings.objectives.iter().any(same) {
                    section.problem("operation", "this request type has an objective already");
                }
                settings.objectives.push(found);
            }
            if let Some(mut section) = root.section("extractor") {
                extractor(&mut section, &mut settings.extractor);
            }
            if let Some(mut section) = root.section("mitigator") {
                mitigator(&mut section, &mut settings.mitigator);
            }
            Some(settings)
        })
    }
}

fn tracer(section: &mut Section<'_>, default: AssemblyLimits) -> AssemblyLimits {
    let limits = AssemblyLimits {
        max_trace_spans: count(section, "max_trace_spans", default.max_trace_spans),
        grace: section.or("grace", default.grace),
        idle: section.or("idle", default.idle),
        max_age: section.or("max_age", default.max_age),
        max_held_spans: count(section, "max_held_spans", default.max_held_spans),
        remember: section.or("remember", default.remember),
    };
    if limits.grace > limits.idle {
        section.problem("grace", format!("must be at most idle ({:?})", limits.idle));
    }
    if limits.idle > limits.max_age {
        section.problem(
            "idle",
            format!("must be at most max_age ({:?})", limits.max_age),
        );
    }
    if limits.max_trace_spans > limits.max_held_spans {
        let rule = format!("must be at most max_held_spans ({})", limits.max_held_spans);
        section.problem("max_trace_spans", rule);
    }
    limits
}

fn objective(section: &mut Section<'_>) -> Option<Objective> {
    let service = section.required("service");
    let operation = section.required("operation");
    let quantile = section.required::<Quantile>("quantile");
    let bound = section.required::<Latency>("bound");
    if bound == Some(Latency::ZERO) {
        section.problem("bound", "must be above zero");
    }
    Some(Objective {
        service: service?,
        operation: operation?,
        quantile: quantile?,
        bound: bound?,
    })
}

fn extractor(section: &mut Section<'_>, settings: &mut ExtractorSettings) {
    if let Some(rule) = section.optional::<String>("rule") {
        match rule.parse() {
            Ok(rule) => settings.rule = rule,
            Err(_) => section.problem("rule", "expected firm, paper, jaeger-ui or crisp"),
        }
    }
    settings.window = positive(section, "window", settings.window);
    settings.capacity = count(section, "capacity", settings.capacity);
    if let Some(mut section) = section.section("trigger") {
        let trigger = &mut settings.trigger;
        trigger.window = positive(&mut section, "window", trigger.window);
        trigger.most = count(&mut section, "most", trigger.most);
        trigger.least = count(&mut section, "least", trigger.least);
        trigger.false_alarm = positive_share(&mut section, "false_alarm", trigger.false_alarm);
        if trigger.least > trigger.most {
            section.problem("least", format!("must be at most most ({})", trigger.most));
        }
    }
    if let Some(mut section) = section.section("threshold") {
        let threshold = &mut settings.threshold;
        threshold.of_highest = share(&mut section, "of_highest", threshold.of_highest);
        threshold.growth = at_least(&mut section, "growth", 0.0, threshold.growth);
        threshold.of_request = share(&mut section, "of_request", threshold.of_request);
        threshold.ri = share(&mut section, "ri", threshold.ri);
        threshold.ci = at_least(&mut section, "ci", 1.0, threshold.ci);
    }
}

fn mitigator(section: &mut Section<'_>, settings: &mut MitigatorSettings) {
    settings.enforce = section.or("enforce", settings.enforce);
    settings.cpu_upper = section.or("cpu_upper", settings.cpu_upper);
    if settings.cpu_upper < MilliCores::new(10) {
        section.problem(
            "cpu_upper",
            "must be at least 10m, the least quota of the kernel",
        );
    }
    settings.cool_down = positive(section, "cool_down", settings.cool_down);
    if let Some(mut section) = section.section("rule_loop") {
        let rule = &mut settings.rule_loop;
        rule.up_ratio = share(&mut section, "up_ratio", rule.up_ratio);
        rule.up_factor = at_least(&mut section, "up_factor", 1.0, rule.up_factor);
        rule.calm_ratio = share(&mut section, "calm_ratio", rule.calm_ratio);
        rule.calm = positive(&mut section, "calm", rule.calm);
        rule.down_step = positive_share(&mut section, "down_step", rule.down_step);
        rule.down_pause = positive(&mut section, "down_pause", rule.down_pause);
        rule.margin = at_least(&mut section, "margin", 0.0, rule.margin);
        if rule.calm_ratio > rule.up_ratio {
            section.problem(
                "calm_ratio",
                format!("must be at most up_ratio ({})", rule.up_ratio),
            );
        }
        rule.flap_budget = count(&mut section, "flap_budget", rule.flap_budget);
    }
}

fn count(section: &mut Section<'_>, key: &'static str, default: usize) -> usize {
    let Some(value) = section.optional::<u64>(key) else {
        return default;
    };
    match usize::try_from(value) {
        Ok(value) if value > 0 => value,
        _ => {
            section.problem(key, "must be at least 1");
            default
        }
    }
}

fn positive(section: &mut Section<'_>, key: &'static str, default: Duration) -> Duration {
    let value = section.or(key, default);
    if value.is_zero() {
        section.problem(key, "must be above zero");
    }
    value
}

fn share(section: &mut Section<'_>, key: &'static str, default: f64) -> f64 {
    let value = section.or(key, default);
    if !(0.0..=1.0).contains(&value) {
        section.problem(key, "must be from 0 to 1");
    }
    value
}

fn positive_share(section: &mut Section<'_>, key: &'static str, default: f64) -> f64 {
    let value = share(section, key, default);
    if value == 0.0 {
        section.problem(key, "must be above 0");
    }
    value
}

fn at_least(section: &mut Section<'_>, key: &'static str, least: f64, default: f64) -> f64 {
    let value = section.or(key, default);
    if value < least {
        section.problem(key, format!("must be at least {least}"));
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_file_is_the_defaults() {
        assert_eq!(
            Settings::parse("firm.yaml", "").unwrap(),
            Settings::default()
        );
    }

    #[test]
    fn all_problems_of_all_sections_come_together() {
        let text = "tracer: {grace: 10s, idle: 1s}\n\
                    objectives: [{service: a, operation: b, quantile: .nan, bound: 20}]\n\
                    extractor: {trigger: {least: 400}, rule: papre}\n\
                    mitigator: {cpu_uper: 2, cool_down: 0s}\n";
        let problems = Settings::parse("firm.yaml", text).unwrap_err().to_string();
        for part in [
            "firm.yaml:1: tracer.grace: must be at most idle (1s) (value `10s`)",
            "firm.yaml:2: objectives[0].quantile",
            "firm.yaml:2: objectives[0].bound: expected a time with a unit",
            "firm.yaml:3: extractor.trigger.least: must be at most most (300) (value `400`)",
            "firm.yaml:3: extractor.rule: expected firm, paper, jaeger-ui or crisp (value `papre`)",
            "firm.yaml:4: mitigator.cpu_uper: unknown key (value `2`); did you mean `cpu_upper`?",
            "firm.yaml:4: mitigator.cool_down: must be above zero",
        ] {
            assert!(problems.contains(part), "{part}\nnot in\n{problems}");
        }
    }
}
