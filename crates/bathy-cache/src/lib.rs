//! A crash-safe SSD cache over a block store, write-through.
//!
//! * [`Engine`] serves many files with the help of one SSD. It carries out the plans of `bathy-cache-model` and decides
//!   nothing itself. [`Engine::attach`] gives a [`CachedFile`], which reads, writes, cuts and forgets.
//! * [`LiveCache`] is an engine whose SSD can be taken away and another one given while files are in use.
//! * [`BlockStore`] is what lies below, SSD and backing alike; [`FileStore`] is a file or device.
//! * [`GenerationStore`] is a number kept apart from the SSD, by which an SSD that could not be written is known to be stale.
//! * [`format`](mod@format) is what lies on the SSD.
//!
//! `README.md` of this crate has the invariants with their arguments and tests.
//!
//! Rooms: `store` (what lies below), [`format`](mod@format), `index` (which files and lines), `stats`, `curve`, `engine`.
//!
//! Limits: threads of the callers do the I/O. `bathyd` is the front end.

#![deny(unsafe_code)]

// The stores in memory of `tests/all` are used by the unit tests as well.
#[cfg(test)]
extern crate self as bathy_cache;

mod curve;
mod engine;
pub mod format;
mod index;
mod mutant;
mod stats;
mod store;
mod sync;

pub use curve::{CurvePoint, MissRatioCurve};
pub use engine::cached_file::{CachedFile, Events};
pub use engine::live::{AttachError, DetachError, LiveCache, LiveFile, PAUSE_MAX};
pub use engine::open::{
    ColdReason, CreateError, CreateOptions, OpenError, Opened, Recovery, create, inspect, open, probe,
};
pub use engine::options::{HDD_BREAK_EVEN_BYTES, Options};
pub use engine::report::CachedLine;
pub use engine::resize::{ResizeError, resize};
pub use engine::sources::SourceFetch;
pub use engine::{Engine, NEW_FILES_MAX};
pub use format::FileIdentity;
pub use format::generation_store::{GenerationFile, GenerationStore, void};
pub use index::files::Beginning;
pub use index::source::SourceMode;
pub use stats::backing_cost::ReadCost;
pub use stats::counters::{Counts, OpCounts};
pub use stats::residency::{Residence, Usage};
pub use stats::{
    FileStatus, LATENCY_BOUNDS, Latencies, RequestCounts, ServedRequest, SourceCounts, SourceStatus,
};
pub use store::aligned::Aligned;
pub use store::file_store::{FileStore, write_some};
pub use store::file_system::FileSystem;
pub use store::held_for_moments::wait_for_moments;
pub use store::ssd::{ErrorBudget, SsdWrites};
pub use store::{BlockStore, Place, PlacesRead, Stamp, Trust, Until, parts_of};
