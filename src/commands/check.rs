//! `firm check`: validates files without running anything.

use std::path::Path;

use firm_config::{Document, Problem, Problems};
use firm_injector::Campaign;
use firm_lab::settings::Settings;
use firm_model::text::shown_name;
use firm_testbed::Topology;

use crate::cli::CheckArguments;
use crate::output;

/// Checks every file and reports the problems of all of them together.
pub(crate) fn run(arguments: &CheckArguments) -> anyhow::Result<()> {
    let mut problems = Vec::new();
    for path in &arguments.files {
        let file = shown_name(&path.display());
        let checked = read(path, &file).and_then(|text| check(&file, &text));
        match checked {
            Ok(what) => output::line(format_args!("{file}: {what}, no problems"))?,
            Err(found) => problems.extend(found.0),
        }
    }
    if problems.is_empty() {
        Ok(())
    } else {
        Err(Problems(problems).into())
    }
}

/// A file that cannot be read is a problem among the others, so that it hides none of them.
fn read(path: &Path, file: &str) -> Result<String, Problems> {
    fs_err::read_to_string(path).map_err(|error| {
        Problems(vec![Problem {
            file: file.to_owned(),
            line: None,
            key: String::new(),
            value: String::new(),
            rule: error.to_string(),
        }])
    })
}

/// Validates a text as what its keys say it is; returns what that is.
fn check(file: &str, text: &str) -> Result<&'static str, Problems> {
    let document = Document::parse(file, text)?;
    if document.has("services") || document.has("requests") {
        Topology::parse(file, text).map(|_| "a topology")
    } else if document.has("anomalies") {
        Campaign::parse(file, text).map(|_| "a campaign")
    } else {
        Settings::parse(file, text).map(|_| "a configuration")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_is_told_from_the_keys() {
        assert_eq!(check("t", firm_testbed::topology::DEMO), Ok("a topology"));
        assert_eq!(
            check("f", "mitigator: {enforce: false}\n"),
            Ok("a configuration")
        );
        let campaign = "targets: [a-0]\nanomalies: [{kind: cpu, target: a-0, start: 1s, \
                        duration: 2s, intensity: 0.5}]\n";
        assert_eq!(check("c", campaign), Ok("a campaign"));
    }
}
