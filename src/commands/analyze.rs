//! `firm analyze`: critical paths and culprits from files.

use std::io::{self, BufWriter, Write};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::thread;

use firm_lab::analyze::{AnalyzeReport, analyze_in, per_trace};
use firm_model::text::{shown, shown_name};
use firm_model::{Interner, Span};
use firm_tracer::file::{FileError, FileReport, read_path};
use serde::Serialize;

use crate::cli::AnalyzeArguments;
use crate::failure::Hinted;
use crate::output::{self, Form};
use crate::view;

/// What `--output json` prints.
#[derive(Serialize)]
struct Output {
    files: Vec<FileReport>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    baseline_files: Vec<FileReport>,
    #[serde(flatten)]
    report: AnalyzeReport,
}

/// Reads the files, then prints the report or one line a trace.
pub(crate) fn run(arguments: &AnalyzeArguments) -> anyhow::Result<()> {
    let names = Interner::new();
    let (spans, files) = read(&arguments.files, &names)?;
    if arguments.per_trace {
        // Standard output is for the traces alone.
        for words in files.iter().flat_map(remarks) {
            view::note(&words);
        }
        return print_traces(&spans, arguments, &names);
    }
    let (normal, baseline_files) = read(&arguments.baseline, &names)?;
    let baseline = (!arguments.baseline.is_empty()).then_some(normal.as_slice());
    let threads = arguments
        .threads
        .or_else(|| thread::available_parallelism().ok());
    let threads = threads.unwrap_or(NonZeroUsize::MIN);
    let report = analyze_in(threads, &spans, baseline, arguments.rule, &names);
    match arguments.output {
        Form::Json => output::json(&Output {
            files,
            baseline_files,
            report,
        }),
        Form::Table => {
            for words in files.iter().chain(&baseline_files).flat_map(remarks) {
                output::line(words)?;
            }
            Ok(output::line(&report)?)
        }
    }
}

/// Spans of all paths. A path that cannot be opened is an error; a file that gives no spans only
/// if no other gives some.
fn read(paths: &[PathBuf], names: &Interner) -> anyhow::Result<(Vec<Span>, Vec<FileReport>)> {
    let mut spans = Vec::new();
    let mut reports = Vec::new();
    for path in paths {
        reports.push(match read_path(path, names, &mut spans) {
            Err(error @ FileError::Io(_)) => return Err(error.into()),
            Err(error) => FileReport {
                failed: vec![error],
                ..FileReport::default()
            },
            Ok(report) => report,
        });
    }
    if spans.is_empty() && !paths.is_empty() {
        let failed = reports.iter().flat_map(|report| &report.failed);
        let why: Vec<String> = failed.map(shown_name).collect();
        let why = if why.is_empty() {
            let paths: Vec<String> = paths.iter().map(|p| shown_name(&p.display())).collect();
            format!("no spans in {}", paths.join(", "))
        } else {
            why.join("\n")
        };
        return Err(Hinted::new(
            why,
            "Jaeger JSON, OTLP JSON or protobuf, Zipkin v2 JSON and Nezha CSV are read, \
             each gzipped or not",
        )
        .into());
    }
    Ok((spans, reports))
}

fn print_traces(
    spans: &[Span],
    arguments: &AnalyzeArguments,
    names: &Interner,
) -> anyhow::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    let mut result = Ok(());
    per_trace(spans, arguments.rule, names, |line| {
        if result.is_ok() {
            result = serde_json::to_writer(&mut out, &line)
                .map_err(io::Error::from)
                .and_then(|()| out.write_all(b"\n"));
        }
    });
    result?;
    Ok(out.flush()?)
}

/// One line a file that needs one, fit for a terminal: what was left out of it, and those that
/// gave nothing.
fn remarks(report: &FileReport) -> Vec<String> {
    let mut lines = Vec::new();
    for file in &report.files {
        let path = shown_name(&file.path.display());
        if let Some(damage) = &file.damage {
            lines.push(format!("{path}: read only in part: {}", shown(damage)));
        }
        let decoded = &file.decoded;
        if decoded.rejected.total() > 0 {
            lines.push(format!("{path}: spans refused: {}", decoded.rejected));
        }
        if decoded.notes.total() > 0 {
            lines.push(format!("{path}: spans kept with a note: {}", decoded.notes));
        }
    }
    let failed = report.failed.iter();
    lines.extend(failed.map(|failed| format!("not used: {}", shown_name(failed))));
    lines
}
