//! The SSD, and how many faults it may have before it is used no more.

use std::io;
use std::sync::{Arc, PoisonError};

use crate::aligned::Aligned;
use crate::counters::{Area, SsdWrites};
use crate::engine::Options;
use crate::guard::{Deadlines, Guard};
use crate::store::BlockStore;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard};

/// The faults that are forgiven.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ErrorBudget {
    /// Errors at once after which the SSD is given up.
    pub errors_max: f64,
    /// An error counts half after this time.
    pub half_life_ns: u64,
}

impl Default for ErrorBudget {
    fn default() -> Self {
        Self {
            errors_max: 16.0,
            half_life_ns: 60_000_000_000,
        }
    }
}

/// The errors of late.
#[derive(Clone, Debug, Default)]
struct Health {
    level: f64,
    at_ns: u64,
    /// What went wrong when it was given up.
    problem: Option<String>,
}

impl Health {
    /// Counts an error. Whether the budget is spent.
    fn on_error(&mut self, budget: &ErrorBudget, time_ns: u64) -> bool {
        let passed = time_ns.saturating_sub(self.at_ns) as f64;
        self.level = self.level * (-passed / budget.half_life_ns.max(1) as f64).exp2() + 1.0;
        self.at_ns = self.at_ns.max(time_ns);
        self.level > budget.errors_max
    }
}

/// What is counted of the SSDs of a process, one after the other: also what is written to one while it is left.
#[derive(Default)]
pub(crate) struct SsdCounts {
    errors: AtomicU64,
    /// By [`Area`].
    written_bytes: [AtomicU64; 6],
}

/// The SSD. Its errors are counted, and end where they are found.
pub(crate) struct Ssd {
    store: Guard,
    budget: ErrorBudget,
    health: Mutex<Health>,
    is_given_up: AtomicBool,
    /// Locked by who flushes until a failure is noted.
    flushing: Mutex<()>,
    now_ns: AtomicU64,
    counts: Mutex<Arc<SsdCounts>>,
}

impl Ssd {
    pub(crate) fn new(store: Arc<dyn BlockStore>, options: &Options) -> Self {
        Self {
            store: Guard::new(
                store,
                Deadlines {
                    reads: options.ssd_deadline,
                    writes: options.ssd_write_deadline,
                },
            ),
            budget: options.error_budget,
            health: Mutex::default(),
            is_given_up: AtomicBool::new(false),
            flushing: Mutex::new(()),
            now_ns: AtomicU64::new(0),
            counts: Mutex::default(),
        }
    }

    /// The time of the requests that come now, from which errors age.
    pub(crate) fn set_time(&self, time_ns: u64) {
        // A small step is no matter to errors, and a change takes the number from the caches of all other processors.
        let step_ns = self.budget.half_life_ns >> 10;
        if time_ns > self.now_ns.load(Ordering::Relaxed).saturating_add(step_ns) {
            self.now_ns.fetch_max(time_ns, Ordering::Relaxed);
        }
    }

    /// Whether its errors have spent the budget, a flush failed, or it does not answer.
    pub(crate) fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Relaxed) || self.store.is_closed()
    }

    /// Nothing reaches the SSD from now on.
    pub(crate) fn close(&self) {
        self.store.close();
    }

    fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn counts(&self) -> MutexGuard<'_, Arc<SsdCounts>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts on where an SSD before counted, and still may.
    pub(crate) fn count_in(&self, shared: &Arc<SsdCounts>) {
        let own = std::mem::replace(&mut *self.counts(), Arc::clone(shared));
        let bytes = shared.written_bytes.iter().zip(&own.written_bytes);
        for (shared, own) in bytes.chain([(&shared.errors, &own.errors)]) {
            shared.fetch_add(own.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    pub(crate) fn errors(&self) -> u64 {
        self.counts().errors.load(Ordering::Relaxed)
    }

    /// Why it was given up, or what its last error was.
    pub(crate) fn problem(&self) -> Option<String> {
        self.health().problem.clone()
    }

    fn counted<T>(&self, result: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &result {
            self.counts().errors.fetch_add(1, Ordering::Relaxed);
            let mut health = self.health();
            // After the first one that is late all fail, and say less.
            if health.problem.is_none() || error.kind() != io::ErrorKind::NotConnected {
                health.problem = Some(error.to_string());
            }
            if health.on_error(&self.budget, self.now_ns.load(Ordering::Relaxed)) {
                self.is_given_up.store(true, Ordering::Relaxed);
            }
        }
        result
    }

    pub(crate) fn size_bytes(&self) -> io::Result<u64> {
        self.counted(self.store.size_bytes())
    }

    pub(crate) fn read(&self, len: usize, offset: u64) -> io::Result<Aligned> {
        self.counted(self.store.read(len, offset))
    }

    pub(crate) fn write(&self, area: Area, data: Aligned, offset: u64) -> io::Result<()> {
        let bytes = data.len() as u64;
        self.counted(self.store.write(data, offset))?;
        self.counts().written_bytes[area as usize].fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn writes(&self) -> SsdWrites {
        let counts = Arc::clone(&self.counts());
        let bytes = |area: Area| counts.written_bytes[area as usize].load(Ordering::Relaxed);
        SsdWrites {
            superblock_bytes: bytes(Area::Superblocks),
            intent_bytes: bytes(Area::Intent),
            file_table_bytes: bytes(Area::FileTable),
            state_bytes: bytes(Area::State),
            line_table_bytes: bytes(Area::LineTable),
            data_bytes: bytes(Area::Data),
        }
    }

    /// A flush that fails is not forgiven: nobody knows which earlier writes it lost, and the next one would succeed. So none
    /// succeeds after it.
    pub(crate) fn flush(&self) -> io::Result<()> {
        let _alone = self.flushing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_given_up() {
            return Err(io::Error::other("the SSD was given up"));
        }
        let flushed = self.counted(self.store.flush());
        if flushed.is_err() {
            self.is_given_up.store(true, Ordering::Relaxed);
        }
        flushed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_far_apart_are_forgiven_and_a_burst_is_not() {
        let budget = ErrorBudget {
            errors_max: 3.0,
            half_life_ns: 1000,
        };
        let mut health = Health::default();
        assert!((0..100).all(|error| !health.on_error(&budget, error * 1000)));
        let burst = (0..3).map(|_| health.on_error(&budget, 100_000));
        assert_eq!(burst.collect::<Vec<_>>(), [false, false, true]);
    }
}
