//! What a policy sees and says. Shapes are described at run time by a versioned [`Spec`]; the
//! paper's 8 and 5 are one `Spec`, not constants (FIRM Tables 3.2 and 3.3).

use serde::{Deserialize, Serialize};

/// Names and bounds of the entries of a vector.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// Grows with every change of meaning, so that a saved policy can be refused.
    pub version: u32,
    /// Name of each entry.
    pub names: Vec<String>,
    /// Least value of each entry.
    pub lower: Vec<f32>,
    /// Greatest value of each entry.
    pub upper: Vec<f32>,
}

/// A state: one value per entry of its [`Spec`], with a mask for what could not be measured.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    /// Values; meaningless where `present` is false.
    pub values: Vec<f32>,
    /// Whether the entry was measured.
    pub present: Vec<bool>,
}

impl State {
    /// The value at `index`, `None` if it was not measured or does not exist.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<f32> {
        if self.present.get(index).copied().unwrap_or(false) {
            self.values.get(index).copied()
        } else {
            None
        }
    }
}

/// What a policy says before it is decoded: one number in [-1, 1] per entry, or `None` to hold.
#[derive(Debug, Clone, PartialEq)]
pub struct RawAction(pub Vec<Option<f32>>);

/// Anything that decides: the rule, a baseline, a learned network.
pub trait Policy: Send {
    /// Short name for tables.
    fn name(&self) -> &'static str;
    /// Decides for one instance. Missing data means hold.
    fn decide(&mut self, state: &State) -> RawAction;
}
