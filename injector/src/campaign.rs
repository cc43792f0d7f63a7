//! What a campaign asks for, read from YAML.
//!
//! ```yaml
//! seed: 7                        # draws what is left open below
//! targets: [cart-0, pricing-0]   # opt-in: nothing else is touched
//! anomalies:
//!   - {kind: cpu, target: cart-0, start: 5s, duration: 10s, intensity: 0.4}
//!   - {kind: cpu, start: 30s, duration: 10s, intensity_range: [0.2, 0.8]}   # target drawn
//! ```

use std::time::Duration;

use firm_config::{Document, Problems, Section};
use firm_model::{AnomalyKind, InstanceId, Intensity};

/// Longest anomaly, and latest start.
const MOST_TIME: Duration = Duration::from_secs(24 * 3600);

/// A checked campaign.
#[derive(Debug, Clone, PartialEq)]
pub struct Campaign {
    /// Seed of what is drawn.
    pub seed: u64,
    /// Instances that may be touched, in the order of the file.
    pub targets: Vec<InstanceId>,
    /// What is to be done, in the order of the file.
    pub anomalies: Vec<AnomalySpec>,
}

/// One anomaly as asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct AnomalySpec {
    /// Its type.
    pub kind: AnomalyKind,
    /// Its target, `None` to draw one.
    pub target: Option<InstanceId>,
    /// When it starts, from the campaign's start.
    pub start: Duration,
    /// How long it lasts.
    pub duration: Duration,
    /// How strong it is: drawn from between both, which may be equal.
    pub intensity: (Intensity, Intensity),
}

impl Campaign {
    /// Reads and checks a campaign; `file` is its name in problems.
    ///
    /// # Errors
    /// All problems together: unknown keys, wrong units, targets that are not opted in,
    /// intensities out of range, reversed ranges, kinds that cannot be made.
    pub fn parse(file: &str, text: &str) -> Result<Self, Problems> {
        Document::parse(file, text)?.read(|root| {
            let seed = root.or("seed", 0_u64);
            let targets = targets(root);
            let anomalies: Vec<AnomalySpec> = root
                .sections("anomalies")
                .iter_mut()
                .filter_map(|section| anomaly(section, &targets))
                .collect();
            if !root.has("anomalies") {
                root.problem("anomalies", "missing, expected a list of anomalies");
            }
            Some(Self {
                seed,
                targets,
                anomalies,
            })
        })
    }
}

fn targets(root: &mut Section<'_>) -> Vec<InstanceId> {
    let names: Vec<String> = root.list("targets");
    if names.is_empty() {
        root.problem("targets", "at least one instance must be opted in");
    }
    let mut targets: Vec<InstanceId> = Vec::with_capacity(names.len());
    for name in names {
        let target = InstanceId::new(name);
        if target.as_str().is_empty() || targets.contains(&target) {
            root.problem(
                "targets",
                format!("`{target}` is empty or stands here twice"),
            );
        } else {
            targets.push(target);
        }
    }
    targets
}

fn anomaly(section: &mut Section<'_>, targets: &[InstanceId]) -> Option<AnomalySpec> {
    let kind: Option<String> = section.required("kind");
    let kind = kind.and_then(|kind| {
        let known = (kind == "cpu").then_some(AnomalyKind::Cpu);
        if known.is_none() {
            section.problem("kind", "expected `cpu`, the one kind that can be made");
        }
        known
    });
    let target: Option<String> = section.optional("target");
    let target = target.map(InstanceId::new);
    if target
        .as_ref()
        .is_some_and(|target| !targets.contains(target))
    {
        section.problem("target", "is not among the campaign's `targets`");
    }
    let start: Option<Duration> = section.required("start");
    if start.is_some_and(|start| start > MOST_TIME) {
        section.problem("start", format!("must be at most {MOST_TIME:?}"));
    }
    let duration: Option<Duration> = section.required("duration");
    if duration.is_some_and(|duration| duration == Duration::ZERO || duration > MOST_TIME) {
        section.problem(
            "duration",
            format!("must be above 0 and at most {MOST_TIME:?}"),
        );
    }
    let intensity = intensity(section);
    Some(AnomalySpec {
        kind: kind?,
        target,
        start: start?,
        duration: duration?,
        intensity: intensity?,
    })
}

fn intensity(section: &mut Section<'_>) -> Option<(Intensity, Intensity)> {
    let one: Option<Intensity> = section.optional("intensity");
    let range: Vec<Intensity> = section.list("intensity_range");
    match (section.has("intensity"), section.has("intensity_range")) {
        (true, false) => one.map(|one| (one, one)),
        (false, true) => match range.as_slice() {
            [from, to] if from <= to => Some((*from, *to)),
            _ => {
                section.problem(
                    "intensity_range",
                    "expected two numbers from 0 to 1, rising",
                );
                None
            }
        },
        _ => {
            section.problem("", "expected exactly one of intensity, intensity_range");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_form_is_read() {
        let text = "
seed: 7
targets: [cart-0, pricing-0]
anomalies:
  - {kind: cpu, target: cart-0, start: 5s, duration: 10s, intensity: 0.4}
  - {kind: cpu, start: 30s, duration: 10s, intensity_range: [0.2, 0.8]}
";
        let campaign = Campaign::parse("c.yaml", text).unwrap();
        assert_eq!((campaign.seed, campaign.targets.len()), (7, 2));
        let first = &campaign.anomalies[0];
        assert_eq!(first.target, Some(InstanceId::new("cart-0")));
        assert_eq!(first.start, Duration::from_secs(5));
        assert_eq!(first.intensity.0.get(), 0.4);
        assert_eq!(campaign.anomalies[1].intensity.1.get(), 0.8);
    }

    #[test]
    fn all_problems_come_together() {
        let text = "
sed: 7
targets: [a, a]
anomalies:
  - {kind: disk, target: b, start: 5, duration: 0s, intensity: 1.5}
  - {kind: cpu, start: 1s, duration: 1s}
  - {kind: cpu, start: 1s, duration: 1s, intensity_range: [0.8, 0.2]}
  - {kind: cpu, start: 1s, duration: 25h, intensity: .nan, intensity_range: [0, 1]}
";
        let all = Campaign::parse("c.yaml", text).unwrap_err().to_string();
        for part in [
            "c.yaml:2: sed: unknown key (value `7`); did you mean `seed`?",
            "targets: `a` is empty or stands here twice",
            "anomalies[0].kind: expected `cpu`",
            "anomalies[0].target: is not among",
            "anomalies[0].start",
            "anomalies[0].duration: must be above 0",
            "anomalies[0].intensity",
            "anomalies[1]: expected exactly one of intensity, intensity_range",
            "anomalies[2].intensity_range: expected two numbers",
            "anomalies[3].duration",
            "anomalies[3].intensity",
        ] {
            assert!(all.contains(part), "`{part}` is missing in:\n{all}");
        }
        let empty = Campaign::parse("c.yaml", "").unwrap_err().to_string();
        assert!(empty.contains("targets") && empty.contains("anomalies"));
    }
}
