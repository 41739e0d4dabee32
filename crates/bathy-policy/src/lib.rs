//! Eviction and admission policies of a block cache: single-threaded, deterministic, each with its paper.
//!
//! * [`Policy`] is the interface of a policy: a look-up gives a slot, an insertion a slot and who left; a pinned line stays.
//! * [`PolicyKind`] names the policies; [`build`] makes one in a `Box`, [`visit_policy`] makes one for a loop that is
//!   compiled for that policy alone.
//! * [`Durable`] is a policy whose state can be stored, and [`CachePolicy`] one of those that a cache runs, with at most
//!   24 bytes a line.
//! * [`Admission`] decides whether a block that missed may enter.
//! * A driver chooses the [`KeyIndex`]: [`HashIndex`] takes any `u64`, [`DenseIndex`] takes keys that were renumbered
//!   from 0 and is one array read. The policy decides the same with either.
//! * All memory of a policy is allocated when it is made. No access allocates.
//!
//! Limits: no data, devices, threads or time. Sizes are in lines, and all lines are of one size; a block cache does not
//! need policies that compare objects of different sizes.

pub mod admission;
mod arc;
mod cache_policy;
mod clock;
mod durable;
mod fifo;
mod frequency_sketch;
mod index;
mod kind;
mod lirs;
mod lru;
mod places;
mod policy;
mod sieve;
mod slab;
mod slot_table;
mod slots;
mod staged_fifo;
mod two_q;
mod w_tinylfu;
#[cfg(test)]
mod walk;

pub use admission::{Admission, AdmissionChain, NHit, StreamBypass, WriteBudget};
pub use arc::Arc;
pub use cache_policy::CachePolicy;
pub use clock::Clock;
pub use durable::{Durable, ImportError, StateRecord};
pub use fifo::Fifo;
pub use frequency_sketch::FrequencySketch;
pub use index::{DenseIndex, HashIndex, KeyIndex};
pub use kind::{ParsePolicyKindError, PolicyKind, PolicyOptions, PolicyVisitor, build, visit_policy};
pub use lirs::Lirs;
pub use lru::Lru;
pub use places::{DensePlaces, HashPlaces, PlaceIndex};
pub use policy::{Access, Inserted, Policy, Promotion, Victim};
pub use sieve::Sieve;
pub use slots::{HashSeed, Universe};
pub use staged_fifo::{StagedFifo, StagedOptions};
pub use two_q::TwoQ;
pub use w_tinylfu::WTinyLfu;
