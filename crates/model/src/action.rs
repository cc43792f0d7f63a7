//! Actions on limits: proposed, validated, applied.
//!
//! Only [`validate`] makes a [`ValidAction`], and only a `ValidAction` reaches an [`Actuator`].
//! What comes over the wire is an [`Action`] and is validated again where it arrives.
//!
//! ```compile_fail,E0451
//! // There is no way around validation: the fields are private.
//! use firm_model::{InstanceId, ValidAction};
//! let forged = ValidAction { instance: InstanceId::new("cart-0"), cpu: None };
//! ```

use serde::{Deserialize, Serialize};

use crate::instance::InstanceId;
use crate::resource::Resource;
use crate::time::Timestamp;
use crate::unit::MilliCores;

/// A wish to change one instance's limits. `None` leaves a limit as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Action {
    /// Whose limits.
    pub instance: InstanceId,
    /// CPU quota wanted, as an absolute limit.
    pub cpu: Option<MilliCores>,
}

/// Lower and upper bound of a limit, lower at most upper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    lower: MilliCores,
    upper: MilliCores,
}

impl Bounds {
    /// Bounds from `lower` to `upper`, both inclusive.
    ///
    /// # Errors
    /// `lower` above `upper`.
    pub fn new(lower: MilliCores, upper: MilliCores) -> Result<Self, String> {
        if lower > upper {
            return Err(format!("lower bound {lower} is above upper bound {upper}"));
        }
        Ok(Self { lower, upper })
    }

    /// Least value.
    #[must_use]
    pub const fn lower(self) -> MilliCores {
        self.lower
    }

    /// Greatest value.
    #[must_use]
    pub const fn upper(self) -> MilliCores {
        self.upper
    }

    /// `value` held within the bounds.
    #[must_use]
    pub fn clamp(self, value: MilliCores) -> MilliCores {
        value.clamp(self.lower, self.upper)
    }
}

/// What may be done to one instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceBounds {
    /// Whose.
    pub instance: InstanceId,
    /// Bounds of the CPU quota.
    pub cpu: Bounds,
    /// Threads that can use CPU at once; a quota above threads x 1000 m has no effect.
    pub threads: Option<u32>,
    /// Never to be touched.
    pub protected: bool,
}

/// An action that keeps all rules. Made by [`validate`] alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ValidAction {
    instance: InstanceId,
    cpu: Option<MilliCores>,
}

impl ValidAction {
    /// Whose limits.
    #[must_use]
    pub const fn instance(&self) -> &InstanceId {
        &self.instance
    }

    /// CPU quota to set, `None` to leave it.
    #[must_use]
    pub const fn cpu(&self) -> Option<MilliCores> {
        self.cpu
    }

    /// Back to a wish, to be validated again elsewhere.
    #[must_use]
    pub fn to_action(&self) -> Action {
        Action {
            instance: self.instance.clone(),
            cpu: self.cpu,
        }
    }
}

/// Why an action is not carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RefusedAction {
    /// The bounds are of another instance.
    #[error("action is for `{action}`, bounds are for `{bounds}`")]
    OtherInstance {
        /// Instance of the action.
        action: InstanceId,
        /// Instance of the bounds.
        bounds: InstanceId,
    },
    /// The instance is protected.
    #[error("instance `{0}` is protected")]
    Protected(InstanceId),
    /// The action changes nothing.
    #[error("action for `{0}` changes nothing")]
    Empty(InstanceId),
}

/// Checks an action against what may be done, and holds its values within the bounds.
///
/// Validating a valid action again changes nothing.
///
/// # Errors
/// See [`RefusedAction`].
pub fn validate(action: &Action, rules: &InstanceBounds) -> Result<ValidAction, RefusedAction> {
    if action.instance != rules.instance {
        return Err(RefusedAction::OtherInstance {
            action: action.instance.clone(),
            bounds: rules.instance.clone(),
        });
    }
    if rules.protected {
        return Err(RefusedAction::Protected(action.instance.clone()));
    }
    let Some(cpu) = action.cpu else {
        return Err(RefusedAction::Empty(action.instance.clone()));
    };
    let useful = rules
        .threads
        .map_or(cpu, |n| cpu.min(MilliCores::new(1000 * u64::from(n))));
    // The lower bound wins over the useful maximum: it is what the operator asked for.
    Ok(ValidAction {
        instance: action.instance.clone(),
        cpu: Some(rules.cpu.clamp(useful)),
    })
}

/// What the kernel says after a limit was written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Applied {
    /// Whose limit.
    pub instance: InstanceId,
    /// Which.
    pub resource: Resource,
    /// Value before, `None` where there was no limit.
    pub from: Option<MilliCores>,
    /// Value read back after the write, `None` where there is no limit.
    pub to: Option<MilliCores>,
    /// When the value was read back.
    pub at: Timestamp,
}

/// A change for the event log: what was applied, why, and whether it was taken back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// What was done.
    #[serde(flatten)]
    pub applied: Applied,
    /// Finding that led to it, `None` for the rule loop's own steps and for restores.
    pub finding: Option<u64>,
    /// Which rule or policy asked for it, in a word.
    pub by: String,
    /// Whether it puts back an earlier value.
    pub undo: bool,
}

/// Carries valid actions to the kernel or a cluster.
pub trait Actuator: Send {
    /// Why it failed.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Writes the limits of a valid action and reads them back.
    ///
    /// # Errors
    /// The limit could not be journalled, written or read back, or another writer changed it.
    fn apply(&mut self, action: &ValidAction) -> Result<Vec<Applied>, Self::Error>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rules(lower: u64, upper: u64, threads: Option<u32>) -> InstanceBounds {
        InstanceBounds {
            instance: InstanceId::new("cart-0"),
            cpu: Bounds::new(MilliCores::new(lower), MilliCores::new(upper)).unwrap(),
            threads,
            protected: false,
        }
    }

    fn wish(cpu: u64) -> Action {
        Action {
            instance: InstanceId::new("cart-0"),
            cpu: Some(MilliCores::new(cpu)),
        }
    }

    proptest! {
        #[test]
        fn valid_is_within_bounds_and_stays_valid(
            a in 1_u64..100_000, b in 1_u64..100_000, cpu in any::<u64>(),
            threads in proptest::option::of(1_u32..64),
        ) {
            let rules = rules(a.min(b), a.max(b), threads);
            let valid = validate(&wish(cpu), &rules).unwrap();
            let value = valid.cpu().unwrap();
            prop_assert!(value >= rules.cpu.lower() && value <= rules.cpu.upper());
            prop_assert_eq!(validate(&valid.to_action(), &rules).unwrap(), valid);
        }
    }

    #[test]
    fn quota_above_threads_is_useless() {
        assert_eq!(
            validate(&wish(9000), &rules(10, 9000, Some(2)))
                .unwrap()
                .cpu(),
            Some(MilliCores::new(2000))
        );
    }

    #[test]
    fn protected_and_foreign_instances_are_refused() {
        let mut guarded = rules(10, 20, None);
        guarded.protected = true;
        assert!(matches!(
            validate(&wish(15), &guarded),
            Err(RefusedAction::Protected(_))
        ));
        let other = Action {
            instance: InstanceId::new("x"),
            cpu: None,
        };
        assert!(matches!(
            validate(&other, &guarded),
            Err(RefusedAction::OtherInstance { .. })
        ));
    }

    #[test]
    fn reversed_bounds_are_refused() {
        assert!(Bounds::new(MilliCores::new(2), MilliCores::new(1)).is_err());
    }
}
