//! A crash-safe SSD cache over a block store, write-through.
//!
//! * [`Engine`] serves many files with the help of one SSD. It carries out the plans of `bathy-cache-model` and decides
//!   nothing itself. [`Engine::attach`] gives a [`CachedFile`], which reads, writes, cuts and forgets.
//! * [`LiveCache`] is an engine whose SSD can be taken away and another one given while files are in use.
//! * [`BlockStore`] is what lies below, SSD and backing alike; [`FileStore`] is a file or device.
//! * [`Witness`] is a number kept apart from the SSD, by which an SSD that could not be written is known to be stale.
//! * [`format`](mod@format) is what lies on the SSD.
//!
//! `README.md` of this crate has the invariants with their arguments and tests.
//!
//! Limits: begun. Threads of the callers do the I/O. `bathyd` is its front end.

#![deny(unsafe_code)]

// The stores in memory of `tests/all` are used by the unit tests as well.
#[cfg(test)]
extern crate self as bathy_cache;

mod aligned;
mod backing_cost;
mod cached_file;
mod compare;
mod counters;
mod curve;
mod engine;
mod file_store;
mod files;
pub mod format;
mod guard;
mod health;
mod inherit;
mod intent;
mod live;
mod mutant;
mod open;
mod residency;
mod resize;
#[cfg(test)]
mod schedules;
mod shard;
mod sources;
mod stats;
mod stop;
mod store;
mod sync;
mod table;
mod timed_io;
mod witness;

pub use aligned::Aligned;
pub use backing_cost::ReadCost;
pub use cached_file::CachedFile;
pub use counters::{Counts, OpCounts, SsdWrites};
pub use curve::{CurvePoint, MissRatioCurve};
pub use engine::{CachedLine, Engine, HDD_BREAK_EVEN_BYTES, Options};
pub use file_store::FileStore;
pub use files::FileIdentity;
pub use health::ErrorBudget;
pub use live::{AttachError, DetachError, LiveCache, LiveFile, PAUSE_MAX};
pub use open::{
    ColdReason, CreateError, CreateOptions, OpenError, Opened, Recovery, create, inspect, open, probe,
};
pub use residency::{Residence, Usage};
pub use resize::{ResizeError, resize};
pub use sources::{SourceFetch, SourceMode};
pub use stats::{FileStatus, LATENCY_BOUNDS, Latencies, RequestCounts, Served, SourceCounts, SourceStatus};
pub use store::{BlockStore, Stamp, Until};
pub use witness::{FileWitness, Witness, void};
