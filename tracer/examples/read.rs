//! Prints what each file of the given paths gives: format, spans, refusals, notes, errors.
//!
//! `cargo run -p firm-tracer --example read -- PATH...`

#![expect(clippy::print_stdout, reason = "printing is what it is for")]

use std::path::Path;

use firm_model::Interner;
use firm_tracer::file::read_path;

fn main() {
    let names = Interner::new();
    let mut spans = Vec::new();
    for path in std::env::args().skip(1) {
        match read_path(Path::new(&path), &names, &mut spans) {
            Ok(report) => {
                for file in &report.files {
                    println!(
                        "{}: {} {} spans; rejected [{}]; notes [{}]{}",
                        file.path.display(),
                        file.format,
                        file.decoded.spans,
                        file.decoded.rejected,
                        file.decoded.notes,
                        file.damage
                            .as_ref()
                            .map_or(String::new(), |damage| format!("; ended early: {damage}")),
                    );
                }
                for error in &report.failed {
                    println!("error: {error}");
                }
                println!(
                    "{path}: {} files, {} failed, {} spans, rejected [{}]",
                    report.files.len(),
                    report.failed.len(),
                    report.total.spans,
                    report.total.rejected
                );
            }
            Err(error) => println!("error: {error}"),
        }
    }
}
