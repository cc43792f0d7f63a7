//! Processes that must not outlive the one that started them: services of the testbed and
//! stressors of the injector.
//!
//! Both sides are here. A child calls [`enter`] first: it arms the parent-death signal, then
//! takes its CPUs and its nice value. The parent keeps a [`Keeper`], whose thread starts the
//! children and lives as long as they may, because the kernel sends the parent-death signal
//! when the *thread* that forked ends (`prctl(2)`, `PR_SET_PDEATHSIG`). They talk in JSON lines
//! over the child's stdin and stdout ([`receive`], [`Kept::send`], [`Kept::receive`]).
//!
//! What this crate never does: decide what runs where, touch a cgroup, or look a process up by
//! name. Children are ended by the process ids that were handed out when they were started.

mod enter;
mod keeper;
mod lines;

pub use enter::{
    EnterError, Placement, enter, parent_is_gone, take_cpus, take_nice, thread_cpu_time,
};
pub use keeper::{Exit, Keeper, KeeperError, Kept};
pub use lines::{LineError, receive, send};
