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

mod aligned;
mod backing_cost;
mod cached_file;
mod counters;
mod curve;
mod engine;
mod file_store;
mod files;
pub mod format;
mod guard;
mod health;
mod intent;
mod live;
mod open;
mod residency;
mod shard;
mod sources;
mod stats;
mod stop;
mod store;
mod table;
mod timed_read;
mod witness;

pub use aligned::Aligned;
pub use backing_cost::ReadCost;
pub use cached_file::CachedFile;
pub use counters::{Counts, OpCounts};
pub use curve::MissRatioCurve;
pub use engine::{CachedLine, Engine, HDD_BREAK_EVEN_BYTES, Options};
pub use file_store::FileStore;
pub use files::FileIdentity;
pub use health::ErrorBudget;
pub use live::{AttachError, LiveCache, LiveFile};
pub use open::{ColdReason, CreateError, CreateOptions, OpenError, Opened, Recovery, create, inspect, open};
pub use residency::{Residence, Usage};
pub use sources::{SourceFetch, SourceMode};
pub use stats::{FileStatus, LATENCY_BOUNDS, Latencies, RequestCounts, Served, SourceCounts, SourceStatus};
pub use store::{BlockStore, Stamp};
pub use witness::{FileWitness, Witness, void};
