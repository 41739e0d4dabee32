//! What a cache does with a request: lines of valid units, plans for reads and writes, and nothing that carries them out.
//!
//! * [`RequestSplitter`] cuts a request into a [`Part`] for each line and follows sequential streams.
//! * [`CacheModel`] decides: [`ReadPlan`] and [`WritePlan`] say what is served, fetched and kept, and who leaves.
//! * [`MemoryBudget`] says what a cache takes of memory, and how large the stage is that waits there.
//!
//! A simulator counts the plans and reports at once that they are done; an engine carries them out, many at a time. No I/O,
//! clock, threads or locks: time is an argument, and an engine calls a model under a lock of its own. docs/decisions/cache.md
//! has the invariants.

mod config;
mod fetch;
mod fetch_costs;
pub mod lines;
mod masks;
pub mod memory;
mod model;
mod operations;
mod request;

pub use config::{AdmissionOptions, CacheConfig, MAX_UNITS, StreamCutoff, WriteMode};
pub use fetch::{AheadUnits, Backing, FetchSize, blocks};
pub use fetch_costs::FetchCosts;
pub use lines::{Io, LineSize};
pub use memory::{Bytes, MemoryBudget, MemoryNeed, OverBudget};
pub use model::{CacheModel, Evicted, Miss, Promoted, ReadPlan, Room, WritePlan};
pub use operations::Ticket;
pub use request::{Part, Parts, RequestSplitter};
