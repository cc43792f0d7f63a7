//! What a run shows while it goes on: a live view on a terminal, plain lines elsewhere, JSON
//! lines for programs; and the table at its end.

mod live;
mod table;
mod words;

use std::io::{self, IsTerminal, Write};

use firm_lab::demo::{DemoEvent, Plan, RunReport};
use serde::Serialize;

use crate::output::{self, Form};
use live::Live;
pub(crate) use table::{outcome, seeds};

/// The last JSON lines of a demo.
#[derive(Serialize)]
pub(crate) struct Report<'a> {
    /// Always `report`.
    pub(crate) event: &'static str,
    #[serde(flatten)]
    pub(crate) report: &'a RunReport,
}

/// A view of the kind that fits where it is shown.
pub(crate) enum View {
    /// JSON lines on standard output.
    Json,
    /// Lines on standard error.
    Plain,
    /// Bars and figures on a terminal.
    Live(Box<Live>),
    /// Nothing, for runs in a row.
    Quiet,
}

impl View {
    /// The view for a form of output.
    pub(crate) fn new(form: Form, plan: &Plan) -> Self {
        match form {
            Form::Json => Self::Json,
            Form::Table if io::stderr().is_terminal() => Self::Live(Box::new(Live::new(plan))),
            Form::Table => Self::Plain,
        }
    }

    /// Shows what happened.
    pub(crate) fn tell(&mut self, event: &DemoEvent) {
        match self {
            // A reader that has gone is noticed at the end.
            Self::Json => {
                let _ = output::json(event);
            }
            Self::Plain => {
                if let Some(words) = words::of(event) {
                    note(&words);
                }
            }
            Self::Live(live) => live.tell(event),
            Self::Quiet => {}
        }
    }

    /// Says that the run without mitigation begins.
    pub(crate) fn second_run(&mut self) {
        let words = "now the same seed once more, without mitigation";
        match self {
            Self::Json | Self::Quiet => {}
            Self::Plain => note(words),
            Self::Live(live) => live.line(words),
        }
    }

    /// Leaves the terminal as it was.
    pub(crate) fn end(&mut self) {
        if let Self::Live(live) = self {
            live.end();
        }
    }
}

/// A line for people, on standard error.
pub(crate) fn note(text: &str) {
    // Nobody to tell if this fails.
    let _ = writeln!(io::stderr().lock(), "{text}");
}
