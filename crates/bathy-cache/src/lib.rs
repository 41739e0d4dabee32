//! A crash-safe SSD cache over a block store, write-through.
//!
//! * [`Engine`] serves many files with the help of one SSD. It carries out the plans of `bathy-cache-model` and decides
//!   nothing itself. [`Engine::attach`] gives a [`CachedFile`], which reads, writes, cuts and forgets.
//! * [`BlockStore`] is what lies below, SSD and backing alike; [`FileStore`] is a file or device.
//! * [`Witness`] is a number kept apart from the SSD, by which an SSD that could not be written is known to be stale.
//! * [`format`](mod@format) is what lies on the SSD.
//!
//! `README.md` of this crate has the invariants with their arguments and tests.
//!
//! Limits: begun. Threads of the callers do the I/O. `bathyd` is its front end.

#![forbid(unsafe_code)]

mod aligned;
mod cached_file;
mod counters;
mod engine;
mod file_store;
mod files;
pub mod format;
mod health;
mod intent;
mod open;
mod shard;
mod stats;
mod stop;
mod store;
mod table;
mod witness;

pub use cached_file::CachedFile;
pub use counters::{Counts, OpCounts};
pub use engine::{CachedLine, Engine, Options};
pub use file_store::FileStore;
pub use files::FileIdentity;
pub use health::ErrorBudget;
pub use open::{ColdReason, CreateError, CreateOptions, OpenError, Opened, Recovery, create, open};
pub use stats::{FileStatus, Latencies, RequestCounts, SourceStatus};
pub use store::{BlockStore, Stamp};
pub use witness::{FileWitness, Witness, void};
