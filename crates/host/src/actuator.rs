//! Carries valid actions on CPU to the kernel, through the limit writer.
//!
//! A group can use no more than the groups around it allow, and v1 refuses (`EINVAL`) a child's
//! quota above its parent's. So a limiting parent moves by as much as the child does: before it
//! when growing, after it when shrinking.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use firm_model::{Actuator, Applied, Clock, InstanceId, MilliCores, Resource, ValidAction};

use crate::cpu::{CpuGroup, CpuQuota};
use crate::kernel_file::KernelFileError;
use crate::limit_writer::{LimitError, LimitWriter};
use crate::mounts::{CpuLayout, MountsError};

/// An action was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum ActuatorError {
    /// The instance was never given a group.
    #[error("no group is known for instance `{0}`")]
    UnknownInstance(InstanceId),
    /// The instance's group is gone or cannot have a quota.
    #[error("group of instance `{instance}` has no quota file `{path}`")]
    NoQuota {
        /// The instance.
        instance: InstanceId,
        /// The file looked for.
        path: std::path::PathBuf,
    },
    /// The limit could not be read.
    #[error(transparent)]
    Read(#[from] KernelFileError),
    /// The limit could not be written.
    #[error("limit of instance `{instance}` is not changed")]
    Write {
        /// The instance.
        instance: InstanceId,
        /// Why.
        source: LimitError,
    },
}

#[derive(Debug)]
struct Target {
    group: CpuGroup,
    parents: Vec<CpuGroup>,
    threads: Option<u32>,
}

/// Sets CPU quotas of known instances.
pub struct CpuActuator {
    writer: LimitWriter,
    clock: Arc<dyn Clock>,
    targets: BTreeMap<InstanceId, Target>,
}

impl CpuActuator {
    /// An actuator that knows no instance yet.
    #[must_use]
    pub fn new(writer: LimitWriter, clock: Arc<dyn Clock>) -> Self {
        Self {
            writer,
            clock,
            targets: BTreeMap::new(),
        }
    }

    /// Makes an instance known by its group. `threads` is how many of its threads can run at
    /// once, if known: a quota above that has no effect. Groups around it that have a quota grow
    /// and shrink with it.
    ///
    /// # Errors
    /// A quota around it cannot be read.
    pub fn add(
        &mut self,
        instance: InstanceId,
        group: CpuGroup,
        threads: Option<u32>,
    ) -> Result<(), KernelFileError> {
        let target = Target {
            parents: group.limiting_ancestors()?,
            group,
            threads,
        };
        self.targets.insert(instance, target);
        Ok(())
    }

    /// Makes an instance known by one of its processes.
    ///
    /// # Errors
    /// No such process, its group cannot be seen from here, or a quota cannot be read.
    pub fn add_pid(
        &mut self,
        instance: InstanceId,
        layout: &CpuLayout,
        pid: u32,
        threads: Option<u32>,
    ) -> Result<(), MountsError> {
        let group = CpuGroup::of_pid(layout, Path::new("/proc"), pid)?;
        Ok(self.add(instance, group, threads)?)
    }

    /// The group of an instance.
    #[must_use]
    pub fn group(&self, instance: &InstanceId) -> Option<&CpuGroup> {
        self.targets.get(instance).map(|target| &target.group)
    }

    /// The instance's limit now, `None` where there is none.
    ///
    /// # Errors
    /// The instance is not known, or its quota cannot be read.
    pub fn limit(&self, instance: &InstanceId) -> Result<Option<MilliCores>, ActuatorError> {
        let target = self.target(instance)?;
        Ok(read_quota(instance, &target.group)?.limit())
    }

    /// The limit writer, to undo what was done.
    pub fn writer_mut(&mut self) -> &mut LimitWriter {
        &mut self.writer
    }

    fn target(&self, instance: &InstanceId) -> Result<&Target, ActuatorError> {
        self.targets
            .get(instance)
            .ok_or_else(|| ActuatorError::UnknownInstance(instance.clone()))
    }

    fn set(&mut self, instance: &InstanceId, limit: MilliCores) -> Result<Applied, ActuatorError> {
        let target = self.target(instance)?;
        let group = target.group.clone();
        let old = read_quota(instance, &group)?;
        let new = CpuQuota::from_limit(limit, old.period_us, group.burst_us()?, target.threads);
        let steps = steps(instance, target, old, new)?;
        let from = old.limit();
        for (step, quota) in steps {
            self.writer
                .write(&step.quota_file(), &step.quota_text(&quota))
                .map_err(|source| ActuatorError::Write {
                    instance: instance.clone(),
                    source,
                })?;
        }
        Ok(Applied {
            instance: instance.clone(),
            resource: Resource::Cpu,
            from,
            to: read_quota(instance, &group)?.limit(),
            at: self.clock.wall(),
        })
    }
}

/// The writes that take an instance from one quota to another, in an order in which every moment
/// between two writes is allowed.
fn steps(
    instance: &InstanceId,
    target: &Target,
    old: CpuQuota,
    new: CpuQuota,
) -> Result<Vec<(CpuGroup, CpuQuota)>, ActuatorError> {
    let mut steps = vec![(target.group.clone(), new)];
    // From no limit to one, and the reverse, says nothing about what the parent needs.
    let (Some(was), Some(becomes)) = (old.quota_us, new.quota_us) else {
        return Ok(steps);
    };
    for parent in &target.parents {
        let quota = read_quota(instance, parent)?;
        let Some(parent_us) = quota.quota_us else {
            continue;
        };
        let scaled = |us: u64| {
            us.saturating_mul(quota.period_us)
                .div_ceil(old.period_us.max(1))
        };
        let (was, becomes) = (scaled(was), scaled(becomes));
        let moved = if becomes >= was {
            parent_us.saturating_add(becomes - was)
        } else {
            parent_us.saturating_sub(was - becomes)
        };
        let moved = CpuQuota {
            quota_us: Some(moved.max(becomes).max(parent.burst_us()?)),
            ..quota
        };
        if becomes > was {
            // The outermost is last in the list and first to grow.
            steps.insert(0, (parent.clone(), moved));
        } else if becomes < was {
            steps.push((parent.clone(), moved));
        }
    }
    Ok(steps)
}

fn read_quota(instance: &InstanceId, group: &CpuGroup) -> Result<CpuQuota, ActuatorError> {
    group.quota()?.ok_or_else(|| ActuatorError::NoQuota {
        instance: instance.clone(),
        path: group.quota_file(),
    })
}

impl Actuator for CpuActuator {
    type Error = ActuatorError;

    fn apply(&mut self, action: &ValidAction) -> Result<Vec<Applied>, ActuatorError> {
        match action.cpu() {
            Some(limit) => Ok(vec![self.set(action.instance(), limit)?]),
            None => Ok(Vec::new()),
        }
    }
}
