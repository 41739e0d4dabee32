//! Miss-ratio curves: exact stack distance, SHARDS, miniature and full simulation.
//!
//! One pass over a trace gives the curves of a whole range of cache sizes:
//!
//! * [`Profile`] measures stack distances, exactly or of a sample, and answers for LRU at every size.
//! * [`groups`] does so for many groups and line sizes at once, [`parallel`] with several threads.
//! * [`simulate`] runs any policy over line numbers, in full or in miniature.
//! * [`engine`] runs any policy as the cache engine does: sub-blocks, fetch size, admission, write mode.
//! * [`flow`] runs all of these in several threads.
//!
//! The simulated policy is the code that ships: it comes from `bathy-policy`.
//!
//! Nothing here reads files or knows the time; traces come as slices of line numbers or as [`Io`]s.

pub mod curve;
pub mod engine;
pub mod flow;
pub mod groups;
pub mod hash;
pub mod histogram;
pub mod items;
pub mod key_ids;
mod lanes;
pub mod lines;
pub mod parallel;
mod pieces;
mod places;
mod positions;
pub mod profile;
mod rank;
mod recorder;
mod run;
mod run_ranks;
mod self_check;
mod sift;
pub mod simulate;
pub mod stack;
pub mod tracker;

pub use curve::{Curve, Estimate, Weighted};
pub use lanes::LANES;
pub use lines::{Io, LineSize};
pub use profile::{Ops, Profile, Unit};
pub use self_check::SelfCheck;
pub use tracker::{Sampling, Tracker, TrackerOptions};
