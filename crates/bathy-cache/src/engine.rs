//! The cache: its shards, and what concerns all of its files.
//!
//! The threads of the callers do the I/O. A shard is locked while it plans and while it uses the SSD, never while the backing
//! is used; what happens on a line meanwhile the model's tickets settle. Workers with a ring each can own the shards later:
//! [`Shard`] knows no lock, and all that touches several shards is here and in `cached_file.rs`.
//!
//! Who attaches or removes a file has a claim to it, so that nobody else does meanwhile. Locks are taken in this order: the
//! claim to a file, its gate, its flush error, the file table, a shard, the intent. While the file table is locked no file
//! below is used: one whose device is slow or hangs must not keep those of other devices from being opened.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::ops::Range;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use bathy_cache_model::{AdmissionOptions, FetchSize, LineSize, RequestSplitter, WriteMode};
use bathy_policy::{Policy, PolicyKind};

use crate::aligned::Aligned;
use crate::cached_file::CachedFile;
use crate::counters::Counts;
use crate::curve::{MissRatioCurve, OnlineCurve};
use crate::files::{FileIdentity, FileState, Files, Found, first_key, number_of};
use crate::format::{Superblock, UNIT_BYTES};
use crate::health::{ErrorBudget, Ssd};
use crate::intent::Intent;
use crate::mutant::{Mutant, is_made};
use crate::residency::Residency;
use crate::shard::Shard;
use crate::stats::FileStatus;
use crate::store::{BlockStore, Stamp};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Condvar, Mutex, MutexGuard};
use crate::witness::Witness;

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
    /// The same for writes and flushes: see `guard.rs` for who waits for what.
    pub ssd_write_deadline: Option<Duration>,
    /// Changed records that each shard keeps before it writes them to the line table.
    pub pending_records: usize,
    /// A file of at least this size that others may have changed is compared with its lines; the lines of a smaller one are
    /// dropped.
    pub compared_bytes_min: u64,
    /// Whether nobody can have written to a file between the sessions. If not, the lines of a file that was being written to
    /// when a session was killed are dropped: it has no stamp by which a later change is known.
    pub was_fenced: bool,
}

/// What a hard disk transfers in the time of an access: 8 ms, 150 MB/s.
pub const HDD_BREAK_EVEN_BYTES: u64 = 1_200_000;

impl Options {
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
            was_fenced: true,
        }
    }
}

/// A line that is cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedLine {
    /// The number of its file.
    pub file: u32,
    /// Its first byte in the file.
    pub offset_bytes: u64,
    /// Its valid units of 4 KiB, one bit each.
    pub valid_units: u64,
    /// Its shard and its slot there.
    pub place: (u32, u32),
    /// Whether it is not on the SSD.
    pub is_in_memory: bool,
}

/// Splits requests that make streams, of which it must see every one.
pub(crate) struct Streams {
    /// Whether reads are among them.
    pub(crate) has_reads: bool,
    pub(crate) splitter: Mutex<RequestSplitter>,
}

/// A cache for the files of one or more sources. See the [crate](crate).
pub struct Engine {
    pub(crate) ssd: Arc<Ssd>,
    witness: Arc<dyn Witness>,
    pub(crate) superblock: Mutex<Superblock>,
    pub(crate) generation: u64,
    shards_count: u32,
    pub(crate) line_bytes: u64,
    pub(crate) was_fenced: AtomicBool,
    pub(crate) capacity_lines: u64,
    policy: PolicyKind,
    pub(crate) is_fetch_adaptive: bool,
    /// Splits requests without a look at streams.
    pub(crate) splitter: RequestSplitter,
    /// Where streams are followed.
    pub(crate) streams: Option<Streams>,
    pub(crate) shards: Vec<Mutex<Shard>>,
    pub(crate) intent: Intent,
    pub(crate) files: Mutex<Files>,
    /// Told when one of [`Files::claimed`] goes.
    claim_ended: Condvar,
    pub(crate) residency: Arc<Residency>,
    pub(crate) curve: Arc<OnlineCurve>,
    /// Files in use that others may have changed.
    pub(crate) uncompared: Mutex<Vec<Weak<FileState>>>,
    compared_bytes_min: u64,
    /// Of engines before this one in the same process.
    pub(crate) inherited: Counts,
    /// Files written to that are to be flushed, by number.
    pub(crate) unflushed: Mutex<BTreeMap<u32, Arc<FileState>>>,
    /// The cache is used no more, and the witness has made the SSD void. Locked while that happens.
    bypass: Mutex<()>,
    is_bypassed: AtomicBool,
    /// A flush of a file failed: what it lost is not known.
    has_lost_writes: AtomicBool,
    pub(crate) is_stopped: AtomicBool,
    pub(crate) tidying: Mutex<()>,
}

/// The right to attach or remove a file.
struct Claim<'a> {
    engine: &'a Engine,
    identity: FileIdentity,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        lock(&self.engine.files).claimed.remove(&self.identity);
        self.engine.claim_ended.notify_all();
    }
}

/// What a panic of another thread left behind is still consistent enough to be read; lines are verified when served.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The shard of a key. Its hash must differ from the one of the policy's table.
pub(crate) fn shard_of(key: u64, shards: u32) -> u32 {
    let mixed = (key ^ key >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let mixed = (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (((mixed >> 32) * u64::from(shards)) >> 32) as u32
}

/// The error of a request after the stop.
pub(crate) fn stopped() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the cache was stopped")
}

/// So many lines are walked over in the time of the look-up of one.
const WALKED_PER_LOOKUP: u64 = 32;
/// Lines of a file that are compared with it where its times do not say that it is unchanged.
const SAMPLED_LINES: usize = 16;
/// Lines that are looked for to find these.
const PROBED_LINES: u64 = 4096;

impl Engine {
    pub(crate) fn new(
        ssd: Arc<Ssd>,
        witness: Arc<dyn Witness>,
        superblock: &Superblock,
        options: &Options,
        mut shards: Vec<Shard>,
        intent: Intent,
        files: Files,
    ) -> Self {
        let residency = Arc::clone(&files.residency);
        for shard in &mut shards {
            shard.count_in(&residency);
        }
        let line = superblock.geometry.line();
        Self {
            ssd,
            witness,
            generation: superblock.generation,
            shards_count: superblock.geometry.shards,
            line_bytes: line.bytes(),
            was_fenced: AtomicBool::new(options.was_fenced),
            capacity_lines: superblock.geometry.slots_total(),
            policy: superblock.policy,
            superblock: Mutex::new(*superblock),
            is_fetch_adaptive: matches!(options.fetch, FetchSize::Adaptive { .. }),
            splitter: RequestSplitter::new(line, None),
            streams: (options.admission.stream_cutoff).map(|cutoff| Streams {
                has_reads: !cutoff.is_of_writes,
                splitter: Mutex::new(RequestSplitter::new(line, Some(cutoff))),
            }),
            shards: shards.into_iter().map(Mutex::new).collect(),
            intent,
            curve: Arc::new(OnlineCurve::of_cache(files.new_source.curve)),
            files: Mutex::new(files),
            claim_ended: Condvar::new(),
            residency,
            inherited: Counts::default(),
            uncompared: Mutex::default(),
            compared_bytes_min: options.compared_bytes_min,
            unflushed: Mutex::default(),
            bypass: Mutex::new(()),
            is_bypassed: AtomicBool::new(false),
            has_lost_writes: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
            tidying: Mutex::new(()),
        }
    }

    /// Whether the SSD was given up: all requests go to the backing alone.
    pub fn is_bypassed(&self) -> bool {
        self.is_bypassed.load(Ordering::Acquire)
    }

    /// Begins the use of a file that is kept in `store`. Who attaches a file that is in use gets the same, with the store of
    /// the first. The file must change through the cache alone until the engine stops, also while it is not attached. What is
    /// cached of a device since an earlier session is dropped: nothing says that nobody else used it.
    ///
    /// # Errors
    /// Those of the store, and `NotConnected` after the stop.
    pub fn attach(
        self: &Arc<Self>,
        identity: FileIdentity,
        store: Arc<dyn BlockStore>,
    ) -> io::Result<CachedFile> {
        self.attach_if(identity, store, false)
    }

    /// [`Engine::attach`] for a caller who can prove that nobody else changed the file since the last session: what is cached
    /// of a device is kept, if some lines of it that are compared are the same.
    ///
    /// # Errors
    /// Those of [`Engine::attach`].
    pub fn attach_unchanged(
        self: &Arc<Self>,
        identity: FileIdentity,
        store: Arc<dyn BlockStore>,
    ) -> io::Result<CachedFile> {
        self.attach_if(identity, store, true)
    }

    pub(crate) fn attach_if(
        self: &Arc<Self>,
        identity: FileIdentity,
        store: Arc<dyn BlockStore>,
        is_proven: bool,
    ) -> io::Result<CachedFile> {
        let files = self.unclaimed(&identity)?;
        let file = if let Some(file) = files.in_use(&identity) {
            file
        } else {
            let claim = self.claim(files, identity);
            self.begin_use(&claim.identity, store, is_proven)?
        };
        Ok(CachedFile::new(Arc::clone(self), file))
    }

    /// The file table, when nobody attaches or removes the file.
    fn unclaimed(&self, identity: &FileIdentity) -> io::Result<MutexGuard<'_, Files>> {
        let mut files = lock(&self.files);
        loop {
            if self.is_stopped.load(Ordering::Acquire) {
                return Err(stopped());
            }
            if !files.claimed.contains(identity) || is_made(Mutant::ClaimsAreIgnored) {
                return Ok(files);
            }
            let waited = self.claim_ended.wait(files);
            files = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Nobody else attaches or removes the file until the claim is dropped.
    fn claim(&self, mut files: MutexGuard<'_, Files>, identity: FileIdentity) -> Claim<'_> {
        files.claimed.insert(identity.clone());
        Claim {
            engine: self,
            identity,
        }
    }

    /// Waits until nobody attaches or removes a file. After [`Engine::is_stopped`] nobody begins to.
    pub(crate) fn wait_for_claims(&self) -> MutexGuard<'_, Files> {
        let mut files = lock(&self.files);
        while !files.claimed.is_empty() {
            let waited = self.claim_ended.wait(files);
            files = waited.unwrap_or_else(PoisonError::into_inner);
        }
        files
    }

    /// Begins the use of a file that the caller has claimed.
    fn begin_use(
        &self,
        identity: &FileIdentity,
        store: Arc<dyn BlockStore>,
        is_proven: bool,
    ) -> io::Result<Arc<FileState>> {
        // Where there is nothing that must not be newer than the file, the file need not be durable.
        let stamp = if self.is_bypassed() {
            Stamp {
                size_bytes: store.size_bytes()?,
                ..Stamp::default()
            }
        } else {
            store.stamp()?
        };
        loop {
            let mut found = self.find(identity)?;
            // The file table is not locked while the file below is asked, whose device may take long to answer.
            let mut is_changed = found
                .as_ref()
                .is_some_and(|found| self.is_changed(found, &stamp, &*store, is_proven));
            let mut files = lock(&self.files);
            if self.is_stopped.load(Ordering::Acquire) {
                return Err(stopped());
            }
            // Meanwhile its slot may have been given to another file, or it is not known any more that nobody used it.
            if found.as_ref().is_some_and(|found| !files.has(found)) {
                continue;
            }
            if found.is_none() && files.is_full() && !self.is_bypassed() {
                self.make_room(&mut files);
            }
            let ssd = Some(&*self.ssd).filter(|_| !self.is_bypassed());
            if is_changed && stamp.size_bytes >= self.compared_bytes_min && ssd.is_some() {
                is_changed = false;
                if let Some(found) = &mut found {
                    found.record.is_compared = false;
                    found.record.stamp = Some(stamp);
                }
            }
            let (identity, found) = (identity.clone(), found.as_ref());
            let file = files.begin_use(identity, store, stamp, found, is_changed, ssd.is_some());
            match (found, ssd) {
                (Some(found), Some(ssd)) if !found.record.is_compared && !is_changed => {
                    // Before a write takes its stamp away, and a start then believes all of its lines.
                    let noted = files.put(&file, Some(stamp), ssd);
                    if noted.and_then(|()| ssd.flush()).is_err() {
                        self.enter_bypass()?;
                    }
                    drop(files);
                    // The last line of a file has bytes that lie beyond its end.
                    let beyond = stamp.size_bytes / self.line_bytes..u64::MAX;
                    self.drop_lines(found.record.number, beyond);
                    let mut uncompared = lock(&self.uncompared);
                    uncompared.retain(|file| file.strong_count() > 0);
                    uncompared.push(Arc::downgrade(&file));
                }
                (Some(found), Some(ssd)) if is_changed => {
                    // The record that makes the old lines void comes first: they are the evidence by which a start after a
                    // power cut finds again that the file was changed.
                    let is_void = file.number != 0
                        && files
                            .put(&file, Some(stamp), ssd)
                            .and_then(|()| ssd.flush())
                            .is_ok();
                    if !is_void {
                        self.enter_bypass()?;
                    }
                    drop(files);
                    self.drop_lines(found.record.number, 0..u64::MAX);
                }
                // If this fails its lines are void after a power cut, and before the first write it is tried again.
                (None, Some(ssd)) if file.number != 0 => drop(files.put(&file, Some(stamp), ssd)),
                _ => {}
            }
            return Ok(file);
        }
    }

    /// The record of a file, if there is one.
    fn find(&self, identity: &FileIdentity) -> io::Result<Option<Found>> {
        if self.is_bypassed() {
            return Ok(None);
        }
        let files = lock(&self.files);
        // An error that passes is not worth the cache.
        let found = files
            .find(identity, &self.ssd)
            .or_else(|_| files.find(identity, &self.ssd));
        found.or_else(|_| {
            // Lines that cannot be told from those of another file must not come back.
            self.enter_bypass()?;
            Ok(None)
        })
    }

    /// Whether a file of an earlier session was changed without the cache, or may have been and has no times to tell.
    fn is_changed(&self, found: &Found, stamp: &Stamp, store: &dyn BlockStore, is_proven: bool) -> bool {
        if !found.record.is_compared {
            return true;
        }
        if found.is_checked {
            return false;
        }
        match found.record.stamp {
            Some(at_rest) if at_rest != *stamp => return true,
            Some(_) if stamp.has_times() => return false,
            _ if !stamp.has_times() && !is_proven => return true,
            Some(_) => {}
            None if !self.was_fenced.load(Ordering::Acquire) => return true,
            None => {
                // What was beyond the end when it was cut without the cache must not be there when the file grows again.
                let first = stamp.size_bytes / self.line_bytes;
                self.drop_lines(found.record.number, first..u64::MAX);
            }
        }
        self.is_another(found.record.number, stamp.size_bytes, store)
    }

    /// Whether lines, spread over the file, are whole and not what the backing has: somebody else wrote to it.
    fn is_another(&self, number: u32, len_bytes: u64, store: &dyn BlockStore) -> bool {
        let lines = len_bytes.div_ceil(self.line_bytes).min(1 << 32);
        let step = (lines / PROBED_LINES).max(1);
        let copy_of = |line: u64| {
            let key = first_key(number) + line;
            let mut shard = lock(self.shard(key));
            let slot = shard.model.policy().find(key)?;
            let unit = shard.model.valid_units(slot).trailing_zeros();
            let copy = shard.copy_of(key, slot, unit as usize)?;
            Some((line * self.line_bytes + u64::from(unit) * UNIT_BYTES, copy))
        };
        let copies = (0..lines).step_by(step as usize).filter_map(copy_of);
        copies.take(SAMPLED_LINES).any(|(start, copy)| {
            let mut bytes = Aligned::new(len_bytes.saturating_sub(start).min(UNIT_BYTES) as usize);
            // What cannot be read is no evidence, and what is damaged is found when it is served.
            store.read(&mut bytes, start).is_ok() && copy[..bytes.len()] != bytes[..]
        })
    }

    /// Takes files without lines out of the file table, or else some that nobody uses with their lines.
    fn make_room(&self, files: &mut Files) {
        let mut slots = files.unused(|number| self.residency.lines_of(number) == Some(0));
        if slots.is_empty() {
            let (dropped, numbers) = files.next_to_drop();
            self.drop_matching(&|key| numbers.contains(&number_of(key)));
            slots = dropped;
        }
        // An error leaves the table full: the file is not cached.
        let _ = files.remove(&slots, &self.ssd);
    }

    /// Forgets the lines of a file in a range of them. No request to these is under way.
    pub(crate) fn drop_lines(&self, number: u32, lines: Range<u64>) {
        let first = first_key(number);
        let lines = lines.start..lines.end.min(1 << 32);
        // A look-up takes as long as a walk takes for some lines.
        let looked_up = (self.capacity_lines / WALKED_PER_LOOKUP).max(1);
        let looked_up = lines.start..lines.end.min(lines.start.saturating_add(looked_up));
        // Of a removed file that is open the number may be forgotten before its lines are.
        let mut left = self.residency.lines_of(number).unwrap_or(u32::MAX);
        for line in looked_up.clone() {
            if left == 0 {
                break;
            }
            let key = first + line;
            left -= u32::from(lock(self.shard(key)).forget(key));
        }
        if left > 0 && looked_up.end < lines.end {
            self.drop_matching(&|key| number_of(key) == number && lines.contains(&(key - first)));
        }
    }

    /// Forgets the lines whose keys match.
    pub(crate) fn drop_matching(&self, matches: &dyn Fn(u64) -> bool) {
        for shard in &self.shards {
            let mut shard = lock(shard);
            let mut keys = Vec::new();
            shard.model.policy().for_each_resident(&mut |key, _| {
                if matches(key) {
                    keys.push(key);
                }
            });
            for key in keys {
                shard.forget(key);
            }
        }
    }

    /// A file is about to be removed: `change` does that. Nothing that is cached of it is served to a file that has its
    /// handle later. Who has it open goes on.
    ///
    /// # Errors
    /// Those of `change`. An error of the SSD only if the witness fails as well.
    pub fn forget<T>(
        &self,
        identity: &FileIdentity,
        change: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        let files = self.unclaimed(identity)?;
        let file = files.in_use(identity);
        let _claim = self.claim(files, identity.clone());
        let gate = file.as_ref().map(|file| file.gate.write());
        let gate = gate.map(|gate| gate.unwrap_or_else(PoisonError::into_inner));
        let mut removed = None;
        if !self.is_bypassed() {
            let files = lock(&self.files);
            let result = files.find(identity, &self.ssd).and_then(|found| {
                if let Some(found) = &found {
                    files.void(found, &self.ssd)?;
                    self.ssd.flush()?;
                }
                Ok(found)
            });
            drop(files);
            match result {
                Ok(found) => removed = found,
                Err(_) => self.enter_bypass()?,
            }
        }
        // The claim keeps everybody from attaching it meanwhile; the file table is free for other files.
        let result = change();
        let mut files = lock(&self.files);
        if result.is_ok() {
            files.end_use(identity);
        }
        match (&result, &file, &removed) {
            (Err(_), Some(file), Some(_)) => files.restore(file, &self.ssd),
            (_, _, Some(found)) => files.free(found),
            // There is nothing to take back.
            _ => {}
        }
        if let (Ok(_), Some(file)) = (&result, &file) {
            file.is_forgotten.store(true, Ordering::Release);
        }
        drop(files);
        drop(gate);
        match (file, removed) {
            // Its last user left meanwhile and did not know yet that it is removed.
            (Some(file), _) if result.is_ok() && Arc::strong_count(&file) == 1 => {
                self.drop_lines(file.number, 0..u64::MAX);
            }
            (None, Some(found)) => self.drop_lines(found.record.number, 0..u64::MAX),
            _ => {}
        }
        result
    }

    /// Takes back the intent of regions that nobody wrote to since the last call, notes which files are at rest, and writes
    /// the records that wait. To be called now and then, such as every few seconds: it bounds what a power cut takes from the
    /// cache, and how many files that were closed are kept open. Whether all records are on the SSD.
    pub fn tidy(&self) -> bool {
        let _alone = lock(&self.tidying);
        if self.is_stopped.load(Ordering::Acquire) {
            return false;
        }
        if self.ssd.is_given_up() {
            // If the witness fails, the next write tries again, or is refused.
            let _ = self.enter_bypass();
        }
        if self.is_bypassed() || self.has_lost_writes() {
            // There is nothing to keep files open for but an error that the next caller is to get, perhaps of a flush now.
            lock(&self.unflushed).retain(|_, file| {
                let keeps = file.flush_error.try_lock().map_or(true, |kept| kept.is_some());
                file.is_unflushed.store(keeps, Ordering::Release);
                keeps
            });
            return false;
        }
        let idle = self.intent.idle();
        let written: Vec<Arc<FileState>> = lock(&self.unflushed).values().cloned().collect();
        for file in written {
            let is_at_rest = !file.is_recent.swap(false, Ordering::AcqRel);
            if idle.is_empty() && !is_at_rest {
                continue;
            }
            if !is_made(Mutant::MarksGoBeforeTheFilesAreDurable)
                && self.make_durable(&file, || file.store.flush()).is_none()
            {
                return false;
            }
            if is_at_rest {
                self.settle(&file);
            }
        }
        // The records of lines that a write changed or drove out must be on the SSD before the bit that covers them goes.
        let write_out = |shard: &Mutex<Shard>| {
            if is_made(Mutant::MarksGoBeforeTheRecords) {
                return Ok(());
            }
            lock(shard).table.write_out(&self.ssd)
        };
        let written_out = self.shards.iter().try_for_each(write_out);
        let is_durable = written_out.and_then(|()| self.ssd.flush()).is_ok();
        if !is_durable || self.has_lost_writes() {
            return false;
        }
        // Bits that stay on the SSD by an error cost lines, not truth.
        let _ = self.intent.clear(&idle, &self.ssd);
        true
    }

    /// Notes what a file is, if no request to it is under way.
    pub(crate) fn settle(&self, file: &Arc<FileState>) {
        let Ok(_gate) = file.gate.try_write() else {
            return;
        };
        // A write that came since the flush is durable with the stamp.
        if self.note_stamp(file) {
            file.is_unflushed.store(false, Ordering::Release);
            lock(&self.unflushed).remove(&file.number);
            if file.is_forgotten.load(Ordering::Acquire) {
                // Nobody else may be there to do it.
                self.drop_lines(file.number, 0..u64::MAX);
            }
        }
    }

    /// Makes the writes to a file durable for a caller, who gets an error that nobody got before, too.
    ///
    /// Who flushes a file has it alone until an error is noted, here and in [`Engine::make_durable`]: the kernel reports a lost
    /// write once, so the flush of another succeeds then and must not be believed before it is known that writes were lost.
    pub(crate) fn flush(&self, file: &FileState) -> io::Result<()> {
        let mut kept = lock(&file.flush_error);
        let earlier = kept.take();
        let flushed = file.store.flush();
        if flushed.is_err() {
            self.on_lost_writes();
        }
        earlier.map_or(flushed, Err)
    }

    /// Makes the writes to a file durable by `flush`, for no caller: an error is kept for the next one who asks.
    pub(crate) fn make_durable<T>(
        &self,
        file: &FileState,
        flush: impl FnOnce() -> io::Result<T>,
    ) -> Option<T> {
        let mut kept = lock(&file.flush_error);
        match flush() {
            Ok(flushed) => Some(flushed),
            Err(error) => {
                *kept = Some(error);
                self.on_lost_writes();
                None
            }
        }
    }

    /// Stores the stamp of a file that is at rest, whose writes are durable then. Whether it could be stored; else the file
    /// counts as in use.
    pub(crate) fn note_stamp(&self, file: &FileState) -> bool {
        if file.number == 0 || file.is_forgotten.load(Ordering::Acquire) {
            return true;
        }
        let Some(stamp) = self.make_durable(file, || file.store.stamp()) else {
            return false;
        };
        let files = lock(&self.files);
        // Else its slot may be another file's by now.
        if file.is_forgotten.load(Ordering::Acquire) {
            return true;
        }
        // Even a record that failed may be on the SSD.
        file.is_in_use.store(false, Ordering::Release);
        files.put(file, Some(stamp), &self.ssd).is_ok()
    }

    /// Makes durable that a file is in use, before the first write to it since it was at rest.
    pub(crate) fn note_use(&self, file: &FileState) -> io::Result<()> {
        if file.is_in_use.load(Ordering::Acquire) {
            return Ok(());
        }
        let files = lock(&self.files);
        if file.is_in_use.load(Ordering::Acquire) {
            return Ok(());
        }
        if !file.is_forgotten.load(Ordering::Acquire) {
            files.put(file, None, &self.ssd)?;
            self.ssd.flush()?;
        }
        file.is_in_use.store(true, Ordering::Release);
        Ok(())
    }

    /// The backing lost writes, nobody knows which: lines that are newer than it are forgotten. The intent of their regions
    /// stays, so that the next start drops them as well.
    pub(crate) fn on_lost_writes(&self) {
        self.has_lost_writes.store(true, Ordering::Release);
        self.drop_matching(&|key| self.intent.is_line_marked(key));
    }

    /// Whether a flush of a file failed since the start.
    pub(crate) fn has_lost_writes(&self) -> bool {
        self.has_lost_writes.load(Ordering::Acquire)
    }

    /// From now on the SSD is not used. Its content is void for every later start, before a file gets another write.
    pub(crate) fn enter_bypass(&self) -> io::Result<()> {
        let entering = lock(&self.bypass);
        if !self.is_bypassed() {
            self.witness.store(self.generation + 1)?;
            self.is_bypassed.store(true, Ordering::Release);
        }
        drop(entering);
        Ok(())
    }

    /// There is no SSD that would have to be void.
    pub(crate) fn begin_bypassed(&self) {
        self.is_bypassed.store(true, Ordering::Release);
    }

    /// Gives the SSD up, as its errors would.
    ///
    /// # Errors
    /// If the witness cannot be written.
    pub fn bypass(&self) -> io::Result<()> {
        self.enter_bypass()
    }

    /// Why the SSD was given up, or what its last error was.
    pub fn ssd_problem(&self) -> Option<String> {
        self.ssd.problem()
    }

    /// What was counted since the start.
    pub fn counts(&self) -> Counts {
        let mut counts = self.inherited;
        // Those of engines before this one as well.
        counts.ssd_errors = self.ssd.errors();
        counts.ssd_writes = self.ssd.writes();
        {
            let files = lock(&self.files);
            counts.changed_files += files.changed;
            counts.files_without_room = if self.is_bypassed() {
                0
            } else {
                files.without_room()
            };
        }
        self.shards
            .iter()
            .for_each(|shard| counts.add(&lock(shard).counts()));
        for source in lock(&self.files).sources() {
            let of_source = lock(&source.counts).counts;
            counts.reads.add(&of_source.reads);
            counts.writes.add(&of_source.writes);
        }
        counts
    }

    /// Lines that are cached, and how many of them are in memory.
    pub fn lines(&self) -> (u64, u64) {
        let of_shard = |shard: &Mutex<Shard>| {
            let shard = lock(shard);
            let policy = shard.model.policy();
            (policy.len() as u64, policy.lines_in_memory() as u64)
        };
        let of_shards = self.shards.iter().map(of_shard);
        of_shards.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// Bytes of the valid units of all lines.
    pub fn cached_bytes(&self) -> u64 {
        self.residency.cached_bytes()
    }

    /// Bytes of a line.
    pub fn line_bytes(&self) -> u64 {
        self.line_bytes
    }

    /// Who decides what stays.
    pub fn policy(&self) -> PolicyKind {
        self.policy
    }

    /// The files with the most requests since the start, at most so many; of closed ones only those that are remembered. It
    /// looks at each cached line.
    pub fn busiest_files(&self, most: usize) -> Vec<FileStatus> {
        let mut files = lock(&self.files).all_counted();
        files.sort_by_key(|(_, status)| std::cmp::Reverse(status.counts.requests()));
        files.truncate(most);
        let numbers = files.iter().map(|(number, _)| *number);
        let places: HashMap<u32, usize> = numbers.zip(0..).filter(|&(number, _)| number != 0).collect();
        self.for_each_line(&mut |line| {
            if let Some(&place) = places.get(&line.file) {
                let (_, status) = &mut files[place];
                status.cached_lines += 1;
                status.cached_bytes += u64::from(line.valid_units.count_ones()) * UNIT_BYTES;
            }
        });
        let mut residences = self.residency.residences(&places.into_keys().collect());
        let with_residence = |(number, status)| FileStatus {
            residence: residences.remove(&number).unwrap_or_default(),
            ..status
        };
        files.into_iter().map(with_residence).collect()
    }

    /// Bytes of each of these ranges of a file that reads would find in the cache, in whole units. `None` if the file is not in
    /// use.
    pub fn cached_bytes_in(&self, identity: &FileIdentity, ranges: &[Range<u64>]) -> Option<Vec<u64>> {
        let file = lock(&self.files).in_use(identity)?;
        let of_line = |range: &Range<u64>, line: u64| {
            let start = line * self.line_bytes;
            let first = range.start.saturating_sub(start) / UNIT_BYTES;
            let end = (range.end - start).min(self.line_bytes).div_ceil(UNIT_BYTES);
            if !file.is_compared(line) {
                return 0;
            }
            let key = first_key(file.number) + line;
            let valid_units = lock(self.shard(key)).valid_units(key);
            let units = (first..end).filter(|unit| valid_units >> unit & 1 != 0);
            units.count() as u64 * UNIT_BYTES
        };
        let of_range = |range: &Range<u64>| {
            let range = range.start..range.end.min(file.len_bytes());
            if range.is_empty() {
                return 0;
            }
            let lines = range.start / self.line_bytes..range.end.div_ceil(self.line_bytes);
            lines.map(|line| of_line(&range, line)).sum()
        };
        Some(ranges.iter().map(of_range).collect())
    }

    /// Calls `visit` with each cached line.
    pub fn for_each_line(&self, visit: &mut dyn FnMut(CachedLine)) {
        for (number, shard) in (0..).zip(&self.shards) {
            let shard = lock(shard);
            shard.model.policy().for_each_resident(&mut |key, slot| {
                visit(CachedLine {
                    file: number_of(key),
                    offset_bytes: (key & u64::from(u32::MAX)) * self.line_bytes,
                    valid_units: shard.model.valid_units(slot),
                    place: (number, slot),
                    is_in_memory: slot >= shard.stage_start,
                });
            });
        }
    }

    /// Bits of intent that are set: the next start would drop the lines of their regions if the power failed now.
    pub fn marked_regions(&self) -> u64 {
        self.intent.marked()
    }

    /// What LRU caches of other sizes would have served. `None` before the first reads.
    pub fn curve(&self) -> Option<MissRatioCurve> {
        self.curve.now()
    }

    /// Lines that the cache has room for.
    pub fn capacity_lines(&self) -> u64 {
        self.capacity_lines
    }

    /// Bytes of memory held, apart from [`Engine::stage_bytes`].
    pub fn memory_bytes(&self) -> usize {
        let shards: usize = self.shards.iter().map(|shard| lock(shard).memory_bytes()).sum();
        let intent = self.intent.memory_bytes();
        let files = lock(&self.files).memory_bytes();
        size_of::<Self>() + shards + self.curve.memory_bytes() + intent + files
    }

    /// Bytes of the lines in memory.
    pub fn stage_bytes(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).stage_bytes()).sum()
    }

    pub(crate) fn shard(&self, key: u64) -> &Mutex<Shard> {
        &self.shards[shard_of(key, self.shards_count) as usize]
    }
}
