//! The report as tables for people.

use std::fmt;

use firm_model::text::shown;

use super::report::{AnalyzeReport, InstanceReport, PartReport, RequestReport};

/// Rows of a table before the rest is only counted.
const MOST_ROWS: usize = 20;
/// Request types shown.
const MOST_TYPES: usize = 5;

impl fmt::Display for AnalyzeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} spans, {} traces, {} used",
            self.spans, self.traces.read, self.traces.used
        )?;
        for (reason, count) in &self.traces.unused {
            write!(f, ", {count} not used ({})", name(reason))?;
        }
        if self.traces.foreign_roots > 0 {
            write!(
                f,
                ", {} spans whose parent is elsewhere",
                self.traces.foreign_roots
            )?;
        }
        for (reason, count) in &self.unused_spans {
            write!(f, ", {count} spans left out ({})", name(reason))?;
        }
        writeln!(f, "\n\nTime on critical paths (rule {})", self.rule)?;
        writeln!(
            f,
            "{:>7} {:>10} {:>8}  service operation",
            "share", "time", "spans"
        )?;
        for row in self.path_share.iter().take(MOST_ROWS) {
            let (share, time) = (row.share * 100.0, time(row.path_ns as f64));
            let (service, operation) = (shown(&row.service), shown(&row.operation));
            writeln!(
                f,
                "{share:>6.1}% {time:>10} {:>8}  {service} {operation}",
                row.spans
            )?;
        }
        rest(f, self.path_share.len(), MOST_ROWS, "rows")?;
        for request in self.requests.iter().take(MOST_TYPES) {
            writeln!(f)?;
            request.fmt(f)?;
        }
        rest(f, self.requests.len(), MOST_TYPES, "request types")
    }
}

fn rest(f: &mut fmt::Formatter<'_>, all: usize, shown: usize, what: &str) -> fmt::Result {
    match all.saturating_sub(shown) {
        0 => Ok(()),
        more => writeln!(f, "... and {more} {what} more"),
    }
}

impl fmt::Display for RequestReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {}: {} requests, p50 {}, p99 {}",
            shown(&self.service),
            shown(&self.operation),
            self.requests,
            time(self.latency.p50_ns as f64),
            time(self.latency.p99_ns as f64)
        )?;
        if let Some(old) = self.baseline_latency {
            let (p50, p99) = (time(old.p50_ns as f64), time(old.p99_ns as f64));
            write!(f, " (baseline {p50}, {p99})")?;
        }
        writeln!(
            f,
            "\n{:<1} {:<36} {:<6} {:>7} {:>6} {:>7} {:>10} {:>10} {:>10} {:>11}",
            "", "instance", "part", "share", "RI", "CI", "p50", "p99", "mean", "change"
        )?;
        for instance in self.instances.iter().take(MOST_ROWS) {
            rows(f, instance)?;
        }
        rest(f, self.instances.len(), MOST_ROWS, "instances")
    }
}

fn rows(f: &mut fmt::Formatter<'_>, instance: &InstanceReport) -> fmt::Result {
    let mark = if instance.is_culprit { "!" } else { "" };
    let parts = [("server", instance.server), ("gap", instance.gap)];
    let present = parts
        .iter()
        .filter_map(|(name, part)| Some((name, part.as_ref()?)));
    let name = shown(&instance.instance);
    for (row, (part, figures)) in present.enumerate() {
        let (mark, label) = match row {
            0 => (mark, &*name),
            _ => ("", ""),
        };
        write!(f, "{mark:<1} {label:<36} {part:<6} ")?;
        figures.write(f)?;
    }
    Ok(())
}

impl PartReport {
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |value: Option<f64>| value.map_or("-".to_owned(), |v| format!("{v:.2}"));
        let change = self.baseline.map_or("-".to_owned(), |old| {
            let sign = if old.mean_change_ns < 0.0 { "-" } else { "+" };
            format!("{sign}{}", time(old.mean_change_ns.abs()))
        });
        writeln!(
            f,
            "{:>6.1}% {:>6} {:>7} {:>10} {:>10} {:>10} {:>11}",
            self.path_share * 100.0,
            number(self.ri),
            number(self.ci),
            time(self.p50_ns),
            time(self.p99_ns),
            time(self.mean_ns),
            change
        )
    }
}

/// The snake-case name that the JSON form has.
fn name<T: serde::Serialize>(reason: &T) -> String {
    let value = serde_json::to_value(reason).unwrap_or_default();
    value.as_str().unwrap_or_default().replace('_', " ")
}

fn time(nanos: f64) -> String {
    match nanos {
        n if n < 1e3 => format!("{n:.0} ns"),
        n if n < 1e6 => format!("{:.1} us", n / 1e3),
        n if n < 1e9 => format!("{:.1} ms", n / 1e6),
        n => format!("{:.2} s", n / 1e9),
    }
}
