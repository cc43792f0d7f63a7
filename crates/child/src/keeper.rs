//! The thread that starts children, outlives them, and tells of those that ended by themselves.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::lines::{self, LineError, MAX_LINE};

/// How often the thread looks for children that have ended.
const LOOK: Duration = Duration::from_millis(20);
/// How long children may take to end once their keeper is dropped.
const LAST_GRACE: Duration = Duration::from_millis(500);

/// Why a child could not be started or ended.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// The thread could not be started.
    #[error("cannot start the thread that keeps children")]
    Thread(#[source] std::io::Error),
    /// The program could not be started.
    #[error("cannot start `{program}` as {name}")]
    Start {
        /// The child's name.
        name: String,
        /// The program.
        program: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The keeper's thread has ended.
    #[error("the thread that keeps children has ended")]
    Ended,
}

/// A child that ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    /// Its name.
    pub name: String,
    /// Its process id, which may by now belong to another process.
    pub pid: u32,
    /// How it ended; `None` where that could not be read.
    pub status: Option<ExitStatus>,
}

enum Order {
    Start(Start),
    Stop(Vec<u32>, Duration, Sender<Vec<Exit>>),
}

struct Start {
    name: String,
    program: PathBuf,
    args: Vec<String>,
    reply: SyncSender<Result<Kept, KeeperError>>,
}

/// Starts children and ends them. Dropping it ends those that are left.
#[derive(Debug)]
pub struct Keeper {
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<()>>,
    exits: Arc<Mutex<Vec<Exit>>>,
}

/// A running child: its process id and its pipes.
#[derive(Debug)]
pub struct Kept {
    /// Process id, the child's until it was stopped or reported as ended.
    pub pid: u32,
    stdin: ChildStdin,
    stdout: Receiver<String>,
}

// === impl Kept ===

impl Kept {
    /// Sends one value as a JSON line.
    ///
    /// # Errors
    /// The pipe is closed.
    pub fn send(&mut self, value: &impl Serialize) -> Result<(), LineError> {
        lines::send(&mut self.stdin, value)
    }

    /// Waits for one JSON line.
    ///
    /// # Errors
    /// Nothing came within `timeout`, the child ended, or the line is not a `T`.
    pub fn receive<T: DeserializeOwned>(&mut self, timeout: Duration) -> Result<T, LineError> {
        let line = self
            .stdout
            .recv_timeout(timeout)
            .map_err(|error| match error {
                RecvTimeoutError::Timeout => LineError::Late(timeout),
                RecvTimeoutError::Disconnected => LineError::Closed,
            })?;
        lines::parse(&line)
    }
}

// === impl Keeper ===

impl Keeper {
    /// Starts the thread, without children.
    ///
    /// # Errors
    /// The thread could not be started.
    pub fn start() -> Result<Self, KeeperError> {
        let (orders, inbox) = mpsc::channel();
        let exits = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&exits);
        let thread = std::thread::Builder::new()
            .name("keeper".to_owned())
            .spawn(move || run(&inbox, &seen))
            .map_err(KeeperError::Thread)?;
        Ok(Self {
            orders: Some(orders),
            thread: Some(thread),
            exits,
        })
    }

    /// Starts `program` with an empty environment, with pipes for stdin and stdout; stderr is
    /// inherited; it is in a process group of its own. The child should wait for its first line, so that it can be placed before it works.
    ///
    /// # Errors
    /// The program could not be started.
    pub fn spawn(&self, name: &str, program: &Path, args: &[String]) -> Result<Kept, KeeperError> {
        let (reply, answer) = mpsc::sync_channel(1);
        self.order(Order::Start(Start {
            name: name.to_owned(),
            program: program.to_owned(),
            args: args.to_vec(),
            reply,
        }))?;
        answer.recv().map_err(|_| KeeperError::Ended)?
    }

    /// Ends the children of these process ids: `SIGTERM` to all, then `SIGKILL` to those that are
    /// left after `grace`; returns when all are gone. Ids that are not its children are ignored.
    ///
    /// # Errors
    /// The keeper's thread has ended.
    pub fn stop(&self, pids: &[u32], grace: Duration) -> Result<Vec<Exit>, KeeperError> {
        let (reply, answer) = mpsc::channel();
        self.order(Order::Stop(pids.to_vec(), grace, reply))?;
        answer.recv().map_err(|_| KeeperError::Ended)
    }

    /// Children that ended without being asked to, since the last call.
    #[must_use]
    pub fn take_exits(&self) -> Vec<Exit> {
        std::mem::take(&mut self.exits.lock())
    }

    fn order(&self, order: Order) -> Result<(), KeeperError> {
        self.orders
            .as_ref()
            .and_then(|orders| orders.send(order).ok())
            .ok_or(KeeperError::Ended)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            // A panic there has already been printed; there is nothing to add to it here.
            let _ = thread.join();
        }
    }
}

// === the thread ===

fn run(inbox: &Receiver<Order>, exits: &Mutex<Vec<Exit>>) {
    let mut children: Vec<(String, Child)> = Vec::new();
    loop {
        match inbox.recv_timeout(LOOK) {
            Ok(Order::Start(start)) => {
                let kept = launch(&start);
                let answer = kept.map(|(kept, child)| {
                    children.push((start.name.clone(), child));
                    kept
                });
                // Nobody waits for the answer when the caller has gone; the child is kept.
                let _ = start.reply.send(answer);
            }
            Ok(Order::Stop(pids, grace, reply)) => {
                let (ending, left) = children
                    .drain(..)
                    .partition(|(_, child)| pids.contains(&child.id()));
                children = left;
                let _ = reply.send(end(ending, grace));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        children.retain_mut(|(name, child)| match child.try_wait() {
            Ok(None) => true,
            Ok(Some(status)) => {
                exits.lock().push(exit(name, child, Some(status)));
                false
            }
            Err(_) => {
                exits.lock().push(exit(name, child, None));
                false
            }
        });
    }
    end(children, LAST_GRACE);
}

fn exit(name: &str, child: &Child, status: Option<ExitStatus>) -> Exit {
    Exit {
        name: name.to_owned(),
        pid: child.id(),
        status,
    }
}

fn launch(start: &Start) -> Result<(Kept, Child), KeeperError> {
    let failed = |source| KeeperError::Start {
        name: start.name.clone(),
        program: start.program.clone(),
        source,
    };
    let mut child = Command::new(&start.program)
        .args(&start.args)
        .env_clear()
        // A Ctrl-C on the terminal is for the parent, which then ends its children in order.
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(failed(std::io::Error::other("no pipes")));
    };
    match read_lines(&start.name, stdout) {
        Ok(stdout) => Ok((
            Kept {
                pid: child.id(),
                stdin,
                stdout,
            },
            child,
        )),
        Err(source) => {
            end(vec![(start.name.clone(), child)], Duration::ZERO);
            Err(failed(source))
        }
    }
}

/// Reads the child's lines on a thread of their own, which ends with the child.
fn read_lines(name: &str, stdout: ChildStdout) -> std::io::Result<Receiver<String>> {
    let (lines, receiver) = mpsc::channel();
    std::thread::Builder::new()
        .name(format!("read {name}"))
        .spawn(move || {
            let mut from = BufReader::new(stdout);
            loop {
                let mut line = String::new();
                let read = from.by_ref().take(MAX_LINE).read_line(&mut line);
                if !matches!(read, Ok(1..)) || lines.send(line).is_err() {
                    break;
                }
            }
        })?;
    Ok(receiver)
}

/// Asks, waits, then kills. A child that has not been waited for keeps its process id, so that
/// no signal can hit a stranger.
fn end(mut children: Vec<(String, Child)>, grace: Duration) -> Vec<Exit> {
    for (_, child) in &children {
        if let Ok(pid) = i32::try_from(child.id()) {
            // It may have ended already, which is what is wanted.
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
    }
    let step = Duration::from_millis(2);
    let mut exits = Vec::with_capacity(children.len());
    let mut waited = Duration::ZERO;
    while !children.is_empty() && waited < grace {
        children.retain_mut(|(name, child)| match child.try_wait() {
            Ok(Some(status)) => {
                exits.push(exit(name, child, Some(status)));
                false
            }
            _ => true,
        });
        if !children.is_empty() {
            std::thread::sleep(step);
            waited += step;
        }
    }
    for (name, mut child) in children {
        // Killing one that has just ended fails, and the wait below still reaps it.
        let _ = child.kill();
        let status = child.wait().ok();
        exits.push(exit(&name, &child, status));
    }
    exits
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    fn shell(script: &str) -> Vec<String> {
        vec!["-c".to_owned(), script.to_owned()]
    }

    const SECONDS: Duration = Duration::from_secs(20);

    #[test]
    fn lines_go_both_ways() {
        let keeper = Keeper::start().unwrap();
        let mut cat = keeper.spawn("cat", Path::new("/bin/cat"), &[]).unwrap();
        cat.send(&"hello").unwrap();
        assert_eq!(cat.receive::<String>(SECONDS).unwrap(), "hello");
        let exits = keeper.stop(&[cat.pid], SECONDS).unwrap();
        assert_eq!(exits[0].status.unwrap().signal(), Some(15));
        assert_eq!(keeper.take_exits(), []);
    }

    #[test]
    fn a_child_that_ignores_sigterm_is_killed() {
        let keeper = Keeper::start().unwrap();
        let script = shell("trap '' TERM; echo '\"ready\"'; while :; do read x || sleep 1; done");
        let mut child = keeper.spawn("deaf", Path::new("/bin/sh"), &script).unwrap();
        child.receive::<String>(SECONDS).unwrap();
        let exits = keeper
            .stop(&[child.pid], Duration::from_millis(50))
            .unwrap();
        assert_eq!(exits[0].status.unwrap().signal(), Some(9));
    }

    #[test]
    fn an_unexpected_end_is_reported_once() {
        let keeper = Keeper::start().unwrap();
        let mut child = keeper
            .spawn("short", Path::new("/bin/sh"), &shell("exit 3"))
            .unwrap();
        assert!(matches!(
            child.receive::<u8>(SECONDS),
            Err(LineError::Closed)
        ));
        let exits = std::iter::repeat_with(|| {
            std::thread::yield_now();
            keeper.take_exits()
        })
        .find(|exits| !exits.is_empty())
        .unwrap();
        assert_eq!((exits[0].name.as_str(), exits[0].pid), ("short", child.pid));
        assert_eq!(exits[0].status.unwrap().code(), Some(3));
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let keeper = Keeper::start().unwrap();
        let error = keeper
            .spawn("x", Path::new("/no/such/program"), &[])
            .unwrap_err();
        assert!(error.to_string().contains("/no/such/program"));
    }

    #[test]
    fn dropping_the_keeper_ends_its_children() {
        let keeper = Keeper::start().unwrap();
        let child = keeper.spawn("cat", Path::new("/bin/cat"), &[]).unwrap();
        drop(keeper);
        let pid = Pid::from_raw(i32::try_from(child.pid).unwrap());
        assert_eq!(kill(pid, None), Err(nix::errno::Errno::ESRCH));
    }
}
