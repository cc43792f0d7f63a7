//! The live view: progress, the current quantiles against the objective, the culprit, and the
//! limits that differ from what they were.

use std::time::Duration;

use firm_lab::demo::event::Status;
use firm_lab::demo::{DemoEvent, Plan};
use firm_model::Latency;
use firm_model::text::shown_name;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::words;

/// Width of the latency bar, in characters.
const WIDTH: usize = 30;

/// Lines at the foot of the terminal; what happened scrolls above them.
pub(crate) struct Live {
    bars: MultiProgress,
    progress: ProgressBar,
    latency: ProgressBar,
    blame: ProgressBar,
    limits: ProgressBar,
}

impl Live {
    /// A view of a run.
    pub(crate) fn new(plan: &Plan) -> Self {
        let bars = MultiProgress::new();
        let millis = u64::try_from(plan.duration.as_millis()).unwrap_or(u64::MAX);
        let progress = bars.add(ProgressBar::new(millis));
        // The templates are constants that a test has parsed.
        if let Ok(style) = ProgressStyle::with_template(PROGRESS) {
            progress.set_style(style);
        }
        let line = || {
            let bar = bars.add(ProgressBar::new_spinner());
            if let Ok(style) = ProgressStyle::with_template(LINE) {
                bar.set_style(style);
            }
            bar
        };
        let (latency, blame, limits) = (line(), line(), line());
        blame.set_message("culprit   none");
        limits.set_message("limits    as they were");
        Self {
            bars,
            progress,
            latency,
            blame,
            limits,
        }
    }

    /// Shows what happened.
    pub(crate) fn tell(&mut self, event: &DemoEvent) {
        match event {
            DemoEvent::Status(status) => self.status(status),
            DemoEvent::Phase { phase, .. } => {
                self.progress.set_message(words::phase_name(*phase));
            }
            DemoEvent::Finding(finding) => {
                if let Some(culprit) = finding.culprits.first() {
                    let lacks = words::lacks(culprit.verdict);
                    let name = shown_name(&culprit.instance);
                    let message = format!("culprit   {name} lacks {lacks}");
                    self.blame.set_message(message);
                }
            }
            _ => {}
        }
        if let Some(line) = words::of(event) {
            self.line(&line);
        }
    }

    /// A line above the view.
    pub(crate) fn line(&self, text: &str) {
        // A terminal that has gone leaves nobody to tell.
        let _ = self.bars.println(text);
    }

    fn status(&self, status: &Status) {
        let at = Duration::try_from_secs_f64(status.at_s).unwrap_or_default();
        self.progress
            .set_position(u64::try_from(at.as_millis()).unwrap_or(u64::MAX));
        let bar = latency_bar(
            status.p99.map_or(u64::MAX, Latency::as_nanos),
            status.bound.as_nanos(),
        );
        self.latency
            .set_message(format!("latency   {bar} {}", words::status(status)));
        let changed: Vec<String> = status
            .changed
            .iter()
            .map(|limit| {
                format!(
                    "{} {}",
                    shown_name(&limit.instance),
                    words::limit(limit.cpu)
                )
            })
            .collect();
        let limits = if changed.is_empty() {
            "as they were".to_owned()
        } else {
            changed.join(", ")
        };
        self.limits.set_message(format!("limits    {limits}"));
    }

    /// Takes the lines away.
    pub(crate) fn end(&mut self) {
        for bar in [&self.progress, &self.latency, &self.blame, &self.limits] {
            bar.finish_and_clear();
        }
    }
}

const PROGRESS: &str = "{elapsed_precise} [{bar:40}] {msg}";
const LINE: &str = "{msg}";

/// The p99 as a bar whose middle is the bound.
fn latency_bar(p99: u64, bound: u64) -> String {
    let middle = WIDTH / 2;
    let filled = u128::from(p99) * middle as u128 / u128::from(bound.max(1));
    let filled = usize::try_from(filled).unwrap_or(WIDTH).min(WIDTH);
    (0..WIDTH)
        .map(|place| match (place == middle, place < filled) {
            (true, _) => '|',
            (false, true) => '=',
            (false, false) => ' ',
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_right() {
        assert!(ProgressStyle::with_template(PROGRESS).is_ok());
        assert!(ProgressStyle::with_template(LINE).is_ok());
    }

    #[test]
    fn bar_reaches_the_bound_in_its_middle() {
        assert_eq!(latency_bar(0, 60).trim(), "|");
        assert!(latency_bar(60, 60).starts_with("===============|"));
        assert_eq!(
            latency_bar(u64::MAX, 1)
                .chars()
                .filter(|c| *c == '=')
                .count(),
            WIDTH - 1
        );
    }
}
