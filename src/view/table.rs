//! The tables at the end of a demo and of its evaluation.

use comfy_table::{Table, presets};
use firm_lab::demo::RunReport;
use firm_lab::demo::report::{Budget, Times};
use firm_model::text::shown_name;
use firm_model::{Latency, Timestamp};

use super::words;

/// The outcome of a demo: the run with mitigation, and beside it the one without, if there was
/// one.
pub(crate) fn outcome(first: &RunReport, second: Option<&RunReport>) -> String {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
    let title = if first.enforced {
        "with mitigation"
    } else {
        "recommendations only"
    };
    let mut header = vec!["", title];
    header.extend(second.map(|_| "without"));
    table.set_header(header);
    let mut row = |name: &str, of: &dyn Fn(&RunReport) -> String| {
        let mut cells = vec![name.to_owned(), of(first)];
        cells.extend(second.map(of));
        table.add_row(cells);
    };
    row("injected into", &|run| {
        let achieved = run
            .achieved
            .map_or_else(|| "?".to_owned(), |share| format!("{share:.2}"));
        format!(
            "{}, CPU {:.2} of a core (achieved {achieved})",
            shown_name(&run.target),
            run.asked
        )
    });
    row("injected at", &|run| {
        let at = run.times.injected.map(time_of_day);
        at.map_or_else(|| "-".to_owned(), |at| format!("{at}; below: from then on"))
    });
    let since = |run: &RunReport, to: Option<Timestamp>| since_injection(run, to);
    row("objective violated at", &|run| {
        since(run, run.times.violated)
    });
    row("culprit named at", &|run| since(run, run.times.named));
    row("culprit", &|run| match (&run.culprit, run.verdict) {
        (Some(culprit), Some(verdict)) => {
            let right = if run.culprit_right { "right" } else { "wrong" };
            let culprit = shown_name(culprit);
            format!("{culprit} lacks {} ({right})", words::lacks(verdict))
        }
        _ => "nobody".to_owned(),
    });
    row("action", &|run| {
        run.action.as_ref().map_or_else(
            || "none".to_owned(),
            |action| {
                let (from, to) = (words::limit(action.from), words::limit(action.to));
                format!("{} {from} to {to}", shown_name(&action.instance))
            },
        )
    });
    row("limit effective at", &|run| since(run, run.times.effective));
    row("objective holding at", &|run| since(run, run.times.holding));
    row("requests from injection on", &|run| {
        run.requests.to_string()
    });
    row("of these violations", &|run| {
        let after = run.violations_after_holding;
        let after = after.map_or(String::new(), |after| format!(" ({after} after it held)"));
        format!("{}{after}", run.violations)
    });
    row("everything taken back at", &|run| {
        since(run, run.taken_back_at)
    });
    row("limit files as before", &|run| {
        let left = match run.limits.left.len() {
            0 => String::new(),
            left => format!(", {left} left to others"),
        };
        format!("{} of {}{left}", run.limits.identical, run.limits.files)
    });
    row("spans, traces", &|run| {
        let spans = &run.spans;
        let lost = match spans.lost + spans.malformed + spans.dropped_graphs {
            0 => "none lost".to_owned(),
            lost => format!("{lost} lost"),
        };
        format!("{}, {} ({lost})", run.spans.received, run.spans.graphs)
    });
    let mut text = table.to_string();
    if let Some(budget) = &first.budget {
        text.push_str(&format!(
            "\nfrom the request that showed it to the limit: {}",
            parts(budget)
        ));
    }
    text
}

/// A time for people, in UTC to the millisecond.
fn time_of_day(at: Timestamp) -> String {
    let millis = at.as_nanos() / 1_000_000;
    jiff::Timestamp::from_millisecond(millis).map_or_else(|_| at.to_string(), |at| at.to_string())
}

/// Seconds since the injection.
fn since_injection(run: &RunReport, to: Option<Timestamp>) -> String {
    seconds(Times::seconds(run.times.injected, to)).map_or_else(|| "-".to_owned(), |s| s + " s")
}

fn seconds(value: Option<f64>) -> Option<String> {
    value.map(|value| format!("{value:+.2}"))
}

fn parts(budget: &Budget) -> String {
    let ms = |latency: Latency| format!("{:.1} ms", latency.as_millis_f64());
    format!(
        "export {}, grace {}, window {}, decision {}, write {}",
        ms(budget.export),
        ms(budget.grace),
        ms(budget.window),
        ms(budget.decision),
        ms(budget.write)
    )
}

/// One row a seed: the run with mitigation and the one without.
pub(crate) fn seeds(runs: &[(RunReport, RunReport)]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header([
        "seed",
        "target",
        "culprit",
        "violated",
        "named",
        "effective",
        "holding",
        "violated to effective",
        "effective to holding",
        "violations",
        "after it held",
        "without",
        "times fewer",
        "limits",
    ]);
    let cell = |value: Option<f64>| seconds(value).unwrap_or_else(|| "-".to_owned());
    for (run, without) in runs {
        let times = &run.times;
        let injected = times.injected;
        let fewer = without.violations as f64 / run.violations.max(1) as f64;
        let culprit = match (&run.culprit, run.culprit_right) {
            (Some(_), true) => "right".to_owned(),
            (Some(other), false) => format!("wrong: {}", shown_name(other)),
            (None, _) => "nobody".to_owned(),
        };
        table.add_row([
            run.seed.to_string(),
            shown_name(&run.target),
            culprit,
            cell(Times::seconds(injected, times.violated)),
            cell(Times::seconds(injected, times.named)),
            cell(Times::seconds(injected, times.effective)),
            cell(Times::seconds(injected, times.holding)),
            cell(Times::seconds(times.violated, times.effective)),
            cell(Times::seconds(times.effective, times.holding)),
            run.violations.to_string(),
            run.violations_after_holding
                .map_or_else(|| "-".to_owned(), |after| after.to_string()),
            without.violations.to_string(),
            format!("{fewer:.1}"),
            format!("{}/{}", run.limits.identical, run.limits.files),
        ]);
    }
    table.to_string()
}
