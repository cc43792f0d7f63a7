//! A `firm demo` in progress: its events, its cgroups, its processes.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use firm_model::clock::SystemClock;
use firm_model::{Clock, Monotonic};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;

use crate::program::{self, Finished};

/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(90);
/// How often a condition is looked at that nobody tells of.
const LOOK: Duration = Duration::from_millis(20);

/// Runs share the machine's processors, so there is one at a time.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock()
}

/// Top of the hierarchy of the cpu controller.
pub(crate) fn cpu_hierarchy() -> Option<PathBuf> {
    let mounts = firm_host::Mounts::read(Path::new("/proc/self/mountinfo")).ok()?;
    firm_host::capability::can_write_cpu(&mounts).ok()?;
    Some(mounts.cpu_layout().ok()?.quota.point.clone())
}

/// A demo that was started and not yet waited for. Dropping it ends it.
pub(crate) struct Demo {
    child: Child,
    lines: Receiver<String>,
    /// Events that were taken so far.
    pub(crate) events: Vec<Value>,
    stderr: Option<std::thread::JoinHandle<String>>,
}

/// What a demo left.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) events: Vec<Value>,
    pub(crate) stderr: String,
}

/// `firm demo` for a short run with this state directory, telling events as JSON.
pub(crate) fn short(state: &Path) -> Command {
    let mut command = program::command();
    command
        .args(["demo", "--duration", "15s", "--no-comparison"])
        .args(["--output", "json", "--state-dir"])
        .arg(state);
    command
}

impl Demo {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let stderr = child.stderr.take().unwrap();
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            // Ends with the program, or with the test that listens.
            let _ = stdout
                .lines()
                .map_while(Result::ok)
                .try_for_each(|line| sender.send(line));
        });
        let stderr = std::thread::spawn(move || std::io::read_to_string(stderr).unwrap());
        Self {
            child,
            lines,
            events: Vec::new(),
            stderr: Some(stderr),
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Takes events up to the next of this name.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, event: &str) -> Value {
        let deadline = SystemClock.monotonic() + PATIENCE;
        loop {
            let left = deadline - SystemClock.monotonic();
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    self.events.push(serde_json::from_str(&line).unwrap());
                    let last = &self.events[self.events.len() - 1];
                    if last["event"] == event {
                        return last.clone();
                    }
                }
                Err(why) => {
                    self.signal(Signal::SIGTERM);
                    let said = self.stderr.take().map(|thread| thread.join().unwrap());
                    panic!(
                        "no `{event}` ({why}); it said {said:?}; events:\n{:#?}",
                        self.events
                    );
                }
            }
        }
    }

    /// The run's group in this hierarchy, found by the process id in its name.
    #[track_caller]
    pub(crate) fn group(&self, hierarchy: &Path) -> PathBuf {
        let prefix = format!("firm-{}-", self.pid());
        let found: Vec<PathBuf> = groups(hierarchy, &prefix);
        assert_eq!(found.len(), 1, "groups {prefix}*: {found:?}");
        found[0].clone()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid().try_into().unwrap());
        kill(pid, signal).unwrap();
    }

    /// Whether the program still runs.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for the end.
    #[track_caller]
    pub(crate) fn end(mut self) -> Ended {
        let deadline = SystemClock.monotonic() + PATIENCE;
        loop {
            let left = deadline - SystemClock.monotonic();
            match self.lines.recv_timeout(left) {
                Ok(line) => self.events.push(serde_json::from_str(&line).unwrap()),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("the demo does not end"),
            }
        }
        Ended {
            status: self.child.wait().unwrap(),
            events: std::mem::take(&mut self.events),
            stderr: self.stderr.take().unwrap().join().unwrap(),
        }
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // A test has failed; what is left is put back by the program itself.
            self.signal(Signal::SIGTERM);
            let _ = self.child.wait();
        }
    }
}

impl Ended {
    /// Asserts the exit code; shows what was said otherwise.
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(
            self.status.code(),
            Some(code),
            "signal {:?}\n{}\nlast event: {:#?}",
            self.status.signal(),
            self.stderr,
            self.events.last()
        );
        self
    }

    /// All events of this name.
    pub(crate) fn all(&self, event: &str) -> Vec<&Value> {
        self.events
            .iter()
            .filter(|told| told["event"] == event)
            .collect()
    }

    /// The report, which is the last line.
    #[track_caller]
    pub(crate) fn report(&self) -> &Value {
        let last = self.events.last().unwrap();
        assert_eq!(last["event"], "report");
        last
    }
}

/// Groups directly below `dir` whose names begin so.
pub(crate) fn groups(dir: &Path, prefix: &str) -> Vec<PathBuf> {
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        path.is_dir() && name.is_some_and(|name| name.starts_with(prefix))
    };
    entries(dir).into_iter().filter(is_ours).collect()
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs_err::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    paths
}

/// Every limit of the cpu controller in a group and those below it, with its bytes: what may be
/// written and is not a trigger of pressure.
pub(crate) fn limits(group: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut open = vec![group.to_owned()];
    while let Some(dir) = open.pop() {
        for path in entries(&dir) {
            let name = path.file_name().unwrap().to_str().unwrap();
            let meta = fs_err::metadata(&path).unwrap();
            if meta.is_dir() {
                open.push(path);
            } else if name.starts_with("cpu.")
                && name != "cpu.pressure"
                && meta.permissions().mode() & 0o200 != 0
            {
                // Some exist for real-time scheduling alone and cannot be read without it.
                if let Ok(bytes) = fs_err::read(&path) {
                    found.push((path, bytes));
                }
            }
        }
    }
    found.sort();
    found
}

/// Processes in a group and those below it.
pub(crate) fn processes(group: &Path) -> Vec<Process> {
    let mut found = Vec::new();
    let mut open = vec![group.to_owned()];
    while let Some(dir) = open.pop() {
        let text = fs_err::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
        let pids = text.lines().map(|pid| pid.parse().unwrap());
        found.extend(pids.filter_map(Process::of));
        open.extend(entries(&dir).into_iter().filter(|path| path.is_dir()));
    }
    found
}

/// A process, not to be taken for a later one of the same id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    pid: u32,
    start: String,
}

impl Process {
    /// The process that has this id now; one that has ended and waits to be collected is none.
    fn of(pid: u32) -> Option<Self> {
        let stat = fs_err::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // After the name, which may hold anything: state is the first field, start time the 20th.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let start = (*fields.get(19)?).to_owned();
        (!matches!(fields[0], "Z" | "X")).then_some(Self { pid, start })
    }

    fn lives(&self) -> bool {
        Self::of(self.pid).as_ref() == Some(self)
    }
}

/// Waits until all these processes have ended.
#[track_caller]
pub(crate) fn wait_for_end(processes: &[Process]) {
    until(&format!("the end of {processes:?}"), || {
        !processes.iter().any(Process::lives)
    });
}

/// Waits until a condition holds that nobody tells of.
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline: Monotonic = SystemClock.monotonic() + PATIENCE;
    while !holds() {
        let left = deadline - SystemClock.monotonic();
        assert!(!left.is_zero(), "waited in vain for {what}");
        std::thread::sleep(LOOK);
    }
}

/// `firm restore` on this state directory.
pub(crate) fn restore(state: &Path, more: &[&str]) -> Finished {
    let state = state.to_str().unwrap();
    let arguments = [&["restore", "--state-dir", state], more].concat();
    program::firm(arguments)
}
