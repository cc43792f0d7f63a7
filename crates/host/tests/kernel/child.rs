//! The processes that the kernel tests start and kill.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use nix::sys::prctl;
use nix::sys::signal::Signal;

use firm_host::StateDir;

use crate::support::{self, Process, milli};

pub(crate) fn run(args: &[String]) -> ExitCode {
    prctl::set_pdeathsig(Signal::SIGKILL).unwrap();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["spin"] => spin(),
        ["hold-limit", state, file, value] => hold_limit(Path::new(state), Path::new(file), value),
        ["hold-run", prefix] => hold_run(prefix),
        _ => ExitCode::FAILURE,
    }
}

/// Uses all CPU it can get.
fn spin() -> ExitCode {
    loop {
        std::hint::spin_loop();
    }
}

/// Changes a limit and waits to be killed.
fn hold_limit(state: &Path, file: &Path, value: &str) -> ExitCode {
    let mut writer = support::writer(&StateDir::open(state).unwrap());
    writer.write(file, value).unwrap();
    wait_to_be_killed("changed")
}

/// Makes a run with a busy process in it, says its folder and the process, and waits.
fn hold_run(prefix: &str) -> ExitCode {
    let mut run = firm_host::RunTree::create(&support::mounts(), prefix).unwrap();
    let instance = run.add_instance("a", milli(100)).unwrap();
    let busy = Process::start(&["spin"]);
    instance.app_add_pid(busy.pid()).unwrap();
    wait_to_be_killed(&format!("{} {}", run.dir().display(), busy.pid()))
}

fn wait_to_be_killed(line: &str) -> ExitCode {
    println!("{line}");
    std::io::stdout().flush().unwrap();
    loop {
        std::thread::park();
    }
}
