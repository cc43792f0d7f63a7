//! The injector alone, for its tests and measurements; users have `firm`.
//!
//! `firm-injector stress` is one stressor. `firm-injector measure CPU INTENSITY SECONDS` makes
//! CPU contention and prints what was achieved as one JSON line; after the line
//! `{"pid": ...}` it burns.

use std::process::ExitCode;
use std::time::Duration;

use firm_injector::Planned;
use firm_injector::inject::{Injector, InjectorConfig, process_cpu_time};
use firm_model::{AnomalyKind, InstanceId, Intensity};

type Error = Box<dyn std::error::Error>;

#[expect(clippy::print_stderr, reason = "the one place that reports errors")]
fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match args.as_slice() {
        ["stress"] => firm_injector::stressor::run_stressor().map_err(Error::from),
        ["measure", cpu, intensity, seconds] => measure(cpu, intensity, seconds),
        _ => Err(Error::from(
            "usage: firm-injector stress | firm-injector measure CPU INTENSITY SECONDS",
        )),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let mut cause = Some(error.as_ref());
            while let Some(one) = cause {
                eprintln!("firm-injector: {one}");
                cause = one.source();
            }
            ExitCode::FAILURE
        }
    }
}

fn measure(cpu: &str, intensity: &str, seconds: &str) -> Result<(), Error> {
    let target = InstanceId::new("measured");
    let injector = Injector::new(InjectorConfig {
        program: std::env::current_exe()?,
        args: vec!["stress".to_owned()],
        targets: [target.clone()].into(),
        cpus: vec![cpu.parse()?],
        nice: None,
    })?;
    let planned = Planned {
        kind: AnomalyKind::Cpu,
        target,
        start: Duration::ZERO,
        duration: Duration::try_from_secs_f64(seconds.parse()?)?,
        intensity: Intensity::new(intensity.parse()?)?,
    };
    let injection = injector.start(&planned, &mut |_, _| Ok(()), Box::new(process_cpu_time))?;
    let mut stdout = std::io::stdout();
    firm_child::send(&mut stdout, &serde_json::json!({ "pid": injection.pid }))?;
    firm_child::send(&mut stdout, &injection.wait()?)?;
    Ok(())
}
