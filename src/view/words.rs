//! Events in words.

use firm_lab::demo::DemoEvent;
use firm_lab::demo::event::{InstanceLimit, Phase, Status};
use firm_model::text::{shown, shown_lines, shown_name};
use firm_model::{Change, Culprit, Finding, Latency, MilliCores, Resource, Verdict};

/// An event as one line, `None` for what only a live view shows.
pub(crate) fn of(event: &DemoEvent) -> Option<String> {
    Some(match event {
        DemoEvent::Started {
            instances,
            rate,
            only_recommends,
        } => started(instances, *rate, only_recommends.as_deref()),
        DemoEvent::Phase { phase, at_s } => format!("{at_s:6.2} s  {}", phase_name(*phase)),
        DemoEvent::Status(_) => return None,
        DemoEvent::Injected {
            target, intensity, ..
        } => format!(
            "          injected: CPU contention in `{}`, intensity {intensity:.2} of a core",
            shown_name(target)
        ),
        DemoEvent::InjectionEnded(anomaly) => {
            let achieved = anomaly.achieved.map_or_else(
                || "not measured".to_owned(),
                |intensity| format!("{:.2}", intensity.get()),
            );
            format!(
                "          contention in `{}` ended: intensity asked {:.2}, achieved {achieved}",
                shown_name(&anomaly.target),
                anomaly.asked.get()
            )
        }
        DemoEvent::Finding(finding) => found(finding),
        DemoEvent::Change(change) => changed(change),
        DemoEvent::Recommendation { instance, cpu, .. } => match cpu {
            Some(cpu) => format!("          recommended: `{}` to {cpu}", shown_name(instance)),
            None => format!(
                "          recommended: more CPU for `{}`",
                shown_name(instance)
            ),
        },
        DemoEvent::TakenBack => "          everything given is taken back".to_owned(),
        DemoEvent::Note { text } => format!("note: {}", shown_lines(text)),
    })
}

fn started(instances: &[InstanceLimit], rate: f64, only_recommends: Option<&str>) -> String {
    let names: Vec<String> = instances
        .iter()
        .map(|instance| format!("{} {}", shown_name(&instance.instance), limit(instance.cpu)))
        .collect();
    let mut words = format!(
        "{} instances serve ({}), {rate} requests/s",
        instances.len(),
        names.join(", ")
    );
    if let Some(why) = only_recommends {
        words.push_str(&format!(
            "\nonly recommends, changes no limit: {}",
            shown(why)
        ));
    }
    words
}

/// What a phase is about.
pub(crate) fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::WarmUp => "warming up",
        Phase::Learn => "learning what is normal",
        Phase::Watch => "watching the objectives",
        Phase::Inject => "injecting contention",
        Phase::Recover => "contention is over; taking back what is not needed",
        Phase::Restore => "restoring limits",
    }
}

fn found(finding: &Finding) -> String {
    let culprits: Vec<String> = finding.culprits.iter().map(culprit).collect();
    format!(
        "          objective of {} violated: {}",
        shown(&finding.request_type),
        culprits.join("; also ")
    )
}

fn culprit(culprit: &Culprit) -> String {
    let figure = |name: &str, value: Option<f64>| {
        value.map_or_else(
            || format!("{name} undefined"),
            |value| format!("{name} {value:.2}"),
        )
    };
    format!(
        "`{}` lacks {}: {}; {}, {}",
        shown_name(&culprit.instance),
        lacks(culprit.verdict),
        shown(&culprit.why),
        figure("RI", culprit.ri),
        figure("CI", culprit.ci)
    )
}

/// What a culprit lacks.
pub(crate) fn lacks(verdict: Verdict) -> String {
    match verdict {
        Verdict::Resource(Resource::Cpu) => "CPU".to_owned(),
        Verdict::Resource(resource) => resource.to_string(),
        Verdict::NotAResource => "no resource".to_owned(),
        Verdict::Unknown => "nothing that was measured".to_owned(),
    }
}

/// A change of a limit.
pub(crate) fn changed(change: &Change) -> String {
    format!(
        "          limit of `{}`: {} to {} ({})",
        shown_name(&change.applied.instance),
        limit(change.applied.from),
        limit(change.applied.to),
        change.by
    )
}

/// A limit, or that there is none.
pub(crate) fn limit(limit: Option<MilliCores>) -> String {
    limit.map_or_else(|| "no limit".to_owned(), |limit| limit.to_string())
}

fn latency(latency: Option<Latency>) -> String {
    latency.map_or_else(
        || "unanswered".to_owned(),
        |latency| format!("{:.0} ms", latency.as_millis_f64()),
    )
}

/// The figures of a moment.
pub(crate) fn status(status: &Status) -> String {
    format!(
        "{}: p50 {}, p99 {}, objective p{} {:.0} ms; {} requests/s",
        shown(&status.request_type),
        latency(status.p50),
        latency(status.p99),
        status.quantile * 100.0,
        status.bound.as_millis_f64(),
        status.per_second
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use firm_model::{InstanceId, Part, Timestamp};

    #[test]
    fn a_finding_shows_control_characters_and_does_not_obey_them() {
        let clear = "x\u{1b}[2J\ny";
        let at = Timestamp::from_nanos(1).unwrap();
        let words = found(&Finding {
            id: 1,
            at,
            window_start: at,
            window_end: at,
            request_type: clear.to_owned(),
            culprits: vec![Culprit {
                service: clear.to_owned(),
                instance: InstanceId::new(clear),
                part: Part::Server,
                verdict: Verdict::Unknown,
                score: 1.0,
                ri: None,
                ci: None,
                why: clear.to_owned(),
            }],
            evidence: Vec::new(),
        });
        assert_eq!(words.matches(r"x\u{1b}[2J\ny").count(), 3, "{words}");
        assert!(!words.contains(char::is_control), "{words:?}");
    }
}
