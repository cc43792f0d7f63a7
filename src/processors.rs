//! Which processors the program, and what it starts, run on: apart, or they measure each other.

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

/// A division of the processors that this process may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Processors {
    /// For the program and the load.
    pub(crate) own: Vec<usize>,
    /// For the application and its stressors: one.
    pub(crate) app: Vec<usize>,
}

impl Processors {
    /// The first processor for the program, the last for the application; the same one for both
    /// where there is no other.
    pub(crate) fn divide() -> nix::Result<Self> {
        let set = sched_getaffinity(Pid::from_raw(0))?;
        let allowed = (0..CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false));
        Ok(Self::of(&allowed.collect::<Vec<_>>()))
    }

    fn of(allowed: &[usize]) -> Self {
        let one = |cpu: Option<&usize>| cpu.copied().into_iter().collect();
        Self {
            own: one(allowed.first()),
            app: one(allowed.last()),
        }
    }

    /// Whether program and application have to share.
    pub(crate) fn is_shared(&self) -> bool {
        self.own == self.app
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn application_has_a_processor_of_its_own_where_there_are_two() {
        let two = Processors::of(&[0, 1]);
        assert_eq!((two.own.clone(), two.app.clone()), (vec![0], vec![1]));
        assert!(!two.is_shared());
        assert!(Processors::of(&[3]).is_shared());
    }
}
