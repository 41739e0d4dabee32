//! The SSD, and how many faults it may have before it is used no more.

use std::io;
use std::sync::{Arc, PoisonError};

use crate::store::aligned::Aligned;
use crate::store::guard::{Deadlines, Guard};
use crate::store::{BlockStore, Place, PlacesRead};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard, OnPanic};

/// What of the SSD is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Area {
    Superblocks,
    Intent,
    FileTable,
    State,
    LineTable,
    Data,
}

/// Bytes that were written to the SSD since it was opened, by what they were: whole blocks, as the device gets them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SsdWrites {
    /// Both superblocks.
    pub superblock_bytes: u64,
    /// The bitmap of regions that are being written to.
    pub intent_bytes: u64,
    /// Records of files.
    pub file_table_bytes: u64,
    /// What a clean stop stores of the policy.
    pub state_bytes: u64,
    /// Records of lines.
    pub line_table_bytes: u64,
    /// Units of lines. A unit of which a request changed a part is written as a whole.
    pub data_bytes: u64,
}

impl SsdWrites {
    /// All of them.
    pub fn bytes(&self) -> u64 {
        self.superblock_bytes
            + self.intent_bytes
            + self.file_table_bytes
            + self.state_bytes
            + self.line_table_bytes
            + self.data_bytes
    }
}

/// A flush of an SSD, which have numbers in the order in which they begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FlushNumber(u64);

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

/// However often such a part of the SSD cannot be read, that is one error, until it would count half: a bad area says nothing of the rest.
/// What is written to a bad area goes elsewhere, in the SSD itself, so an error of that says more.
const BAD_AREA_BYTES: u64 = 1 << 20;

/// The errors of late.
#[derive(Clone, Debug, Default)]
struct Health {
    level: f64,
    at_ns: u64,
    /// Areas that could not be read, and when that was counted.
    unreadable: Vec<(u64, u64)>,
    /// What went wrong when it was given up.
    problem: Option<String>,
}

impl Health {
    /// Counts an error, of a read from `unreadable` on or of something else. Whether the budget is spent.
    fn on_error(&mut self, budget: &ErrorBudget, time_ns: u64, unreadable: Option<u64>) -> bool {
        if let Some(area) = unreadable.map(|offset| offset / BAD_AREA_BYTES) {
            let is_recent = |at_ns: u64| time_ns.saturating_sub(at_ns) < budget.half_life_ns;
            self.unreadable.retain(|&(_, at_ns)| is_recent(at_ns));
            if self.unreadable.iter().any(|&(known, _)| known == area) {
                return self.level > budget.errors_max;
            }
            self.unreadable.push((area, time_ns));
        }
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
    /// Flushes that began.
    flushes: AtomicU64,
    /// The number of the last one that succeeded.
    flushed: AtomicU64,
    now_ns: AtomicU64,
    counts: Mutex<Arc<SsdCounts>>,
}

impl Ssd {
    pub(crate) fn new(store: Arc<dyn BlockStore>, deadlines: Deadlines, budget: ErrorBudget) -> Self {
        Self {
            store: Guard::new(store, deadlines),
            budget,
            health: Mutex::default(),
            is_given_up: AtomicBool::new(false),
            flushing: Mutex::new(()),
            flushes: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
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

    /// Whether its errors have spent the budget, a flush failed, its line table cannot be written, it does not answer, or files
    /// are used without it. It stays so.
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
        result.inspect_err(|error| self.count(error, None))
    }

    fn count(&self, error: &io::Error, unreadable: Option<u64>) {
        self.counts().errors.fetch_add(1, Ordering::Relaxed);
        let mut health = self.health();
        // After the first one that is late all fail, and say less.
        if health.problem.is_none() || error.kind() != io::ErrorKind::NotConnected {
            health.problem = Some(error.to_string());
        }
        if health.on_error(&self.budget, self.now_ns.load(Ordering::Relaxed), unreadable) {
            self.give_up();
        }
    }

    pub(crate) fn size_bytes(&self) -> io::Result<u64> {
        self.counted(self.store.size_bytes())
    }

    /// It is used no more from now on.
    pub(crate) fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Relaxed);
    }

    /// What was given up is asked for nothing: what it has may be older than what is known of it.
    ///
    /// # Errors
    /// If it was.
    pub(crate) fn check_used(&self) -> io::Result<()> {
        if self.is_given_up() {
            return Err(io::Error::other("the SSD was given up"));
        }
        Ok(())
    }

    pub(crate) fn read(&self, len: usize, offset: u64) -> io::Result<Aligned> {
        let (bytes, ends) = self.read_all(&[Place { offset, len }])?;
        ends.into_iter().collect::<io::Result<()>>().map(|()| bytes)
    }

    /// Reads places at once. However many of them fail, it counts as one error: one bad area, or one reset of the controller, meets
    /// all that is under way.
    pub(crate) fn read_all(&self, places: &[Place]) -> io::Result<PlacesRead> {
        self.check_used()?;
        let (bytes, ends) = self.counted(self.store.read(places))?;
        let mut each = ends.iter().zip(places);
        if let Some((error, place)) = each.find_map(|(end, place)| Some((end.as_ref().err()?, place))) {
            self.count(error, Some(place.offset));
        }
        Ok((bytes, ends))
    }

    pub(crate) fn write(&self, area: Area, data: Aligned, offset: u64) -> io::Result<()> {
        self.check_used()?;
        let bytes = data.len() as u64;
        self.counted(self.store.write(data, offset, area == Area::LineTable))?;
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

    /// By which flush all is durable that was written until now.
    pub(crate) fn next_flush(&self) -> FlushNumber {
        // One that began before may have passed the last write by.
        FlushNumber(self.flushes.load(Ordering::SeqCst) + 1)
    }

    /// Whether this flush or a later one has succeeded.
    pub(crate) fn is_flushed(&self, number: FlushNumber) -> bool {
        self.flushed.load(Ordering::SeqCst) >= number.0
    }

    /// Makes durable what was written until now, with what all wrote who wait for a flush meanwhile: one that began after the
    /// last of them came is that of all.
    pub(crate) fn flush(&self) -> io::Result<()> {
        self.flush_up_to(self.next_flush())
    }

    /// Flushes, unless this flush or a later one has succeeded.
    ///
    /// A flush that fails is not forgiven: nobody knows which earlier writes it lost, and the next one would succeed. So none
    /// succeeds after it.
    pub(crate) fn flush_up_to(&self, wanted: FlushNumber) -> io::Result<()> {
        if self.is_flushed(wanted) {
            return Ok(());
        }
        let _alone = self.flushing.lock().unwrap_or_else(PoisonError::into_inner);
        self.check_used()?;
        if self.is_flushed(wanted) {
            return Ok(());
        }
        let number = self.flushes.fetch_add(1, Ordering::SeqCst) + 1;
        let _failed = OnPanic(|| self.give_up());
        let flushed = self.counted(self.store.flush());
        match flushed {
            Ok(()) => self.flushed.store(number, Ordering::SeqCst),
            Err(_) => self.give_up(),
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
        assert!((0..100).all(|error| !health.on_error(&budget, error * 1000, None)));
        let burst = (0..3).map(|_| health.on_error(&budget, 100_000, None));
        assert_eq!(burst.collect::<Vec<_>>(), [false, false, true]);
        // An area counts again after as long, and others by themselves.
        let mut health = Health::default();
        assert!((0..300).all(|error| !health.on_error(&budget, error * 10, Some(BAD_AREA_BYTES + error))));
        assert!(health.level > 1.5);
        let others = (0..3).map(|area| health.on_error(&budget, 3000, Some(area * 2 * BAD_AREA_BYTES)));
        assert_eq!(others.collect::<Vec<_>>(), [false, false, true]);
    }
}
