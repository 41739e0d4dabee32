//! How an engine is run.

use std::sync::Arc;
use std::time::Duration;

use bathy_cache_model::{AdmissionOptions, FetchSize, LineSize, MemoryBudget, WriteMode};

use crate::curve::CurveOptions;
use crate::format::Geometry;
use crate::index::source::NewSource;
use crate::store::BlockStore;
use crate::store::guard::Deadlines;
use crate::store::ssd::{ErrorBudget, Ssd};

/// How a cache is run. Nothing of it is stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Writes to what is not cached, of sources for which [`Engine::set_mode`] says nothing else.
    pub write_mode: WriteMode,
    /// Filters.
    pub admission: AdmissionOptions,
    /// What a miss fetches. Of an adaptive size, what it says of the disk is the first guess for each source.
    pub fetch: FetchSize,
    /// Whether that is measured then. If not, the engine does what the simulator does.
    pub is_backing_measured: bool,
    /// Errors of the SSD that are forgiven.
    pub error_budget: ErrorBudget,
    /// After this time a read of the SSD is not waited for any more, and the SSD is given up. `None`: callers wait as long as
    /// it takes.
    pub ssd_deadline: Option<Duration>,
    /// The same for writes and flushes: see `store/guard.rs` for who waits for what.
    pub ssd_write_deadline: Option<Duration>,
    /// Changed records that each shard keeps before it writes them to the line table.
    pub pending_records: usize,
    /// A file of at least this size that others may have changed is compared with its lines; the lines of a smaller one are
    /// dropped.
    pub compared_bytes_min: u64,
    /// By which lines are drawn that are compared with a device when its use begins. The session is in it besides.
    pub sample_seed: u64,
    /// Whether nobody can have written to a file between the sessions. If not, the lines of a file that was being written to
    /// when a session was killed are dropped: it has no stamp by which a later change is known.
    pub was_fenced: bool,
    /// What the cache may take of memory: it decides how large the stage is.
    pub memory: MemoryBudget,
}

/// What a hard disk transfers in the time of an access: 8 ms, 150 MB/s.
pub const HDD_BREAK_EVEN_BYTES: u64 = 1_200_000;

impl Options {
    /// An SSD with the deadlines and the error budget.
    pub(crate) fn ssd(&self, store: Arc<dyn BlockStore>) -> Ssd {
        let deadlines = Deadlines {
            reads: self.ssd_deadline,
            writes: self.ssd_write_deadline,
        };
        Ssd::new(store, deadlines, self.error_budget)
    }

    /// How a source of this cache begins.
    pub(crate) fn new_source(&self, geometry: &Geometry) -> NewSource {
        let (break_even_bytes, is_adaptive) = match self.fetch {
            FetchSize::Adaptive { break_even_bytes } => (break_even_bytes, true),
            FetchSize::Fixed(_) => (0, false),
        };
        NewSource {
            write_mode: self.write_mode,
            break_even_bytes,
            is_backing_measured: is_adaptive && self.is_backing_measured,
            curve: CurveOptions {
                capacity_lines: geometry.slots_total(),
                line_bytes: geometry.line().bytes(),
                fetch: self.fetch_of(geometry.line()),
            },
        }
    }

    /// What a miss of a line fetches at most; the line is that of the SSD.
    pub(crate) fn fetch_of(&self, line: LineSize) -> FetchSize {
        match self.fetch {
            FetchSize::Fixed(bytes) => FetchSize::Fixed(bytes.min(line.bytes())),
            adaptive @ FetchSize::Adaptive { .. } => adaptive,
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            write_mode: WriteMode::Allocate,
            admission: AdmissionOptions::default(),
            fetch: FetchSize::Adaptive {
                break_even_bytes: HDD_BREAK_EVEN_BYTES,
            },
            is_backing_measured: true,
            error_budget: ErrorBudget::default(),
            ssd_deadline: Some(Duration::from_secs(2)),
            ssd_write_deadline: Some(Duration::from_secs(10)),
            pending_records: 1024,
            compared_bytes_min: 64 << 20,
            sample_seed: 0,
            was_fenced: true,
            memory: MemoryBudget::default(),
        }
    }
}
