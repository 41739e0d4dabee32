//! Eviction and admission policies of the cache: single-threaded, deterministic, each citing its paper.
//!
//! **The policy that is simulated is the policy that ships.** The miss-ratio simulator and the cache engine drive
//! the same code; they differ only in the [`KeyIndex`] underneath: [`HashIndex`] takes any `u64`, [`DenseIndex`]
//! takes keys that were renumbered from 0 and is one array read.
//!
//! * [`Policy`] is what a user of a policy sees: `access`, `touch`, `remove`, `contains`, restore order.
//! * [`PolicyKind`] names the policies; [`build`] makes one behind a `Box`, [`visit_policy`] makes one for a loop
//!   that is compiled for that policy alone.
//! * Everything a policy keeps lives in one [slab] that is allocated when the policy is made. No access
//!   allocates.
//!
//! Not here: data, devices, threads, time. Sizes are in lines, and all lines are of one size; policies that weigh
//! objects of different sizes against each other are not what a block cache needs.

pub mod admission;
pub mod arc;
pub mod belady;
pub mod clock;
pub mod clock2q_plus;
pub mod fifo;
pub mod frequency_sketch;
pub mod index;
pub mod kind;
pub mod lirs;
pub mod lru;
pub mod policy;
pub mod s3_fifo;
pub mod sieve;
pub mod slab;
pub mod two_q;
pub mod w_tinylfu;
#[cfg(test)]
mod walk;

pub use admission::{Admission, AdmissionChain, AdmitAll, NHit, StreamBypass, WriteBudget, access_admitted};
pub use arc::Arc;
pub use belady::{Insertion, belady_misses, belady_misses_with};
pub use clock::Clock;
pub use clock2q_plus::{Clock2QPlus, Clock2QPlusOptions};
pub use fifo::Fifo;
pub use frequency_sketch::FrequencySketch;
pub use index::{DenseIndex, HashIndex, HashSeed, KeyIndex, Universe};
pub use kind::{
    ParsePolicyKindError, PolicyKind, PolicyOptions, PolicyVisitor, build, build_with_options, visit_policy,
};
pub use lirs::Lirs;
pub use lru::Lru;
pub use policy::{Access, EvictionSink, NoSink, Policy};
pub use s3_fifo::{S3Fifo, S3FifoOptions};
pub use sieve::Sieve;
pub use two_q::TwoQ;
pub use w_tinylfu::WTinyLfu;
