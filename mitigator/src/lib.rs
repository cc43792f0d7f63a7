//! What to do about a culprit: its state, a policy's decision, and the fast loop under it.
//!
//! [`state::observe`] makes the state that a policy sees; [`rule_policy::RulePolicy`] decides by
//! rule how much CPU a culprit is given; [`decode::decode`] turns that into absolute limits; and
//! [`rule_loop::RuleLoop`], every 100 ms, gives more at once where that was not enough and takes
//! back slowly what is not needed.
//!
//! What this crate never does: read a clock or touch a limit. All of it takes values and gives
//! values; the actions are validated and carried out elsewhere.
//!
//! Sources: FIRM 3.2.4 (state and action), the project's own rules for the rest.

pub mod decode;
pub mod rule_loop;
pub mod rule_policy;
pub mod state;

pub use decode::{decode, encode};
pub use rule_loop::{Reading, RuleLoop, RuleLoopConfig, Step, StepKind};
pub use rule_policy::RulePolicy;
pub use state::{Observation, observe, spec};
