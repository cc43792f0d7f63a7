//! What the kernel tests share.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use firm_host::{CpuActuator, LimitWriter, Mounts, RunTree, StateDir};
use firm_model::clock::SystemClock;
use firm_model::{Action, Bounds, Clock, InstanceBounds, InstanceId, MilliCores, ValidAction};

pub(crate) const PREFIX: &str = "firm-test";

pub(crate) fn mounts() -> Mounts {
    Mounts::read(Path::new("/proc/self/mountinfo")).unwrap()
}

pub(crate) fn run_tree() -> RunTree {
    RunTree::create(&mounts(), PREFIX).unwrap()
}

pub(crate) fn milli(value: u64) -> MilliCores {
    MilliCores::new(value)
}

pub(crate) fn state() -> (tempfile::TempDir, StateDir) {
    let temp = tempfile::tempdir().unwrap();
    let state = StateDir::open(temp.path()).unwrap();
    (temp, state)
}

pub(crate) fn writer(state: &StateDir) -> LimitWriter {
    LimitWriter::open(state.lock().unwrap()).unwrap().0
}

pub(crate) fn actuator(state: &StateDir) -> CpuActuator {
    CpuActuator::new(writer(state), Arc::new(SystemClock))
}

pub(crate) fn action(instance: &str, cpu: u64) -> ValidAction {
    let instance = InstanceId::new(instance);
    let rules = InstanceBounds {
        instance: instance.clone(),
        cpu: Bounds::new(milli(1), milli(64_000)).unwrap(),
        threads: None,
        protected: false,
    };
    let action = Action {
        instance,
        cpu: Some(milli(cpu)),
    };
    firm_model::validate(&action, &rules).unwrap()
}

/// Bytes of files, to be compared with later.
pub(crate) fn bytes(files: &[PathBuf]) -> Vec<Vec<u8>> {
    files
        .iter()
        .map(|file| fs_err::read(file).unwrap())
        .collect()
}

/// A process that is killed when the test ends, however it ends.
pub(crate) struct Process(pub(crate) Child);

impl Process {
    pub(crate) fn start(args: &[&str]) -> Self {
        let exe = std::env::current_exe().unwrap();
        let child = Command::new(exe)
            .arg("child")
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn();
        Self(child.unwrap())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Waits for the next line that the process prints.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        let mut stdout = BufReader::new(self.0.stdout.as_mut().unwrap());
        stdout.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    /// `kill -9`, and waits for the end.
    pub(crate) fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Lets time pass as the length of a measurement.
pub(crate) fn measure_for(length: Duration) {
    let clock = SystemClock;
    let end = clock.monotonic() + length;
    while clock.monotonic() < end {
        std::thread::sleep(end - clock.monotonic());
    }
}
