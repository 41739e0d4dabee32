//! Miss-ratio curves: exact stack distance, SHARDS, miniature and full simulation.
//!
//! One pass over a trace gives the curves of a whole range of cache sizes:
//!
//! * [`Profile`] measures stack distances, exactly or of a sample, and answers for LRU at every size.
//! * [`groups`] does so for many groups and line sizes at once, [`parallel`] with several threads.
//! * [`engine`] simulates the cache: any policy, sub-blocks, fetch size, admission, write mode.
//! * [`simulate`] does so for bare line numbers, several times as fast.
//! * [`passes`] takes a mixed trace through profiles or engines of the whole and of its groups.
//! * [`pipeline`] runs all of these in several threads.
//!
//! The policies are those of `bathy-policy` and the cache is that of `bathy-cache-model`: code that a cache engine can run
//! as it is.
//!
//! Nothing here reads files or knows the time; traces come as slices of line numbers or as [`Io`]s.

mod chunk;
mod chunk_ranks;
pub mod curve;
pub mod engine;
pub mod grouping;
pub mod groups;
pub mod hash;
pub mod histogram;
pub mod items;
pub mod key_ids;
mod last_access;
pub mod log_histogram;
pub mod parallel;
pub mod passes;
mod pieces;
pub mod pipeline;
mod positions;
pub mod profile;
mod rank;
mod recorder;
mod replicates;
mod sample_filter;
mod self_check;
pub mod simulate;
pub mod stack;
pub mod tracker;

pub use bathy_cache_model::{Io, LineSize, lines};
pub use curve::{Curve, Estimate, Weighted};
pub use hash::REPLICATES;
pub use profile::{Profile, Unit};
pub use recorder::Ops;
pub use self_check::SelfCheck;
pub use tracker::{Sampling, Tracker, TrackerOptions};
