//! The testbed alone, for its tests and measurements; users have `firm`.
//!
//! `firm-testbed service` is one instance. `firm-testbed fleet FILE OTLP JAEGER` starts all
//! instances of a topology, prints `{"pids": [...]}`, and runs until its stdin ends.

use std::process::ExitCode;
use std::time::Duration;

use firm_testbed::Topology;
use firm_testbed::fleet::{Fleet, FleetConfig};

type Error = Box<dyn std::error::Error>;

#[expect(clippy::print_stderr, reason = "the one place that reports errors")]
fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match args.as_slice() {
        ["service"] => firm_testbed::service::run_service().map_err(Error::from),
        ["fleet", file, otlp, jaeger] => fleet(file, otlp, jaeger),
        _ => Err(Error::from(
            "usage: firm-testbed service | firm-testbed fleet FILE OTLP JAEGER",
        )),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let mut cause = Some(error.as_ref());
            while let Some(one) = cause {
                eprintln!("firm-testbed: {one}");
                cause = one.source();
            }
            ExitCode::FAILURE
        }
    }
}

fn fleet(file: &str, otlp: &str, jaeger: &str) -> Result<(), Error> {
    let topology = Topology::parse(file, &fs_err::read_to_string(file)?)?;
    let config = FleetConfig {
        program: std::env::current_exe()?,
        args: vec!["service".to_owned()],
        otlp: otlp.to_owned(),
        jaeger: jaeger.parse()?,
        export_interval: Duration::from_millis(100),
        cpus: Vec::new(),
        nice: None,
        seed: 1,
    };
    let fleet = Fleet::start(&topology, &config, &mut |_, _| Ok(()))?;
    let pids: Vec<u32> = fleet.instances().iter().map(|one| one.pid).collect();
    firm_child::send(
        &mut std::io::stdout().lock(),
        &serde_json::json!({ "pids": pids }),
    )?;
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    fleet.stop(Duration::from_secs(2))?;
    Ok(())
}
