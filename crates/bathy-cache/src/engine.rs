//! The cache: its shards, and what concerns all of its files.
//!
//! The threads of the callers do the I/O. A shard is locked while it plans, never while SSD or backing are used; what happens
//! on a line meanwhile the model's tickets settle ([`Shard`]). All that touches several shards is in this room.
//!
//! Locks are taken in this order: the tidying of a source, the claim to a file, its gate, its flush error, the file table, a
//! shard, the intent. While the file table is locked no file below is used: one whose device is slow or hangs must not keep those
//! of other devices from being opened. Who waits for the disk of a source has no lock that others need, but for the stop, unless the
//! source was abandoned.

mod attach;
pub(crate) mod cached_file;
pub(crate) mod compare;
pub(crate) mod file_lines;
pub(crate) mod inherit;
pub(crate) mod live;
pub(crate) mod open;
pub(crate) mod options;
pub(crate) mod report;
pub(crate) mod resize;
mod sample;
#[cfg(test)]
mod schedules;
pub(crate) mod shard;
pub(crate) mod shard_state;
pub(crate) mod sources;
pub(crate) mod stop;
mod tidy;

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Weak};

use bathy_cache_model::{FetchSize, MemoryBudget, RequestSplitter};
use bathy_mrc::hash::mix64;
use bathy_policy::{Policy, PolicyKind};

use crate::curve::OnlineCurve;
use crate::engine::options::Options;
use crate::engine::shard::Shard;
use crate::format::Superblock;
use crate::format::Uuid;
use crate::format::generation_store::GenerationStore;
use crate::index::files::{FileState, Files};
use crate::index::intent::Intent;
use crate::stats::counters::Counts;
use crate::stats::residency::Residency;
use crate::store::ssd::Ssd;
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::sync::{Condvar, Mutex, RwLock, is_poisoned, lock};

/// Splits requests that make streams, of which it must see every one.
pub(crate) struct Streams {
    /// Whether reads are among them.
    pub(crate) has_reads: bool,
    pub(crate) splitter: Mutex<RequestSplitter>,
}

/// A cache for the files of one or more sources. See the [crate](crate).
pub struct Engine {
    pub(crate) ssd: Arc<Ssd>,
    generations: Arc<dyn GenerationStore>,
    pub(crate) superblock: Mutex<Superblock>,
    pub(crate) generation: u64,
    shards_count: u32,
    pub(crate) line_bytes: u64,
    /// See [`sample`].
    pub(crate) sample_seed: u64,
    pub(crate) was_fenced: AtomicBool,
    pub(crate) capacity_lines: u64,
    policy: PolicyKind,
    pub(crate) is_fetch_adaptive: bool,
    /// Splits requests without a look at streams.
    pub(crate) splitter: RequestSplitter,
    /// Where streams are followed.
    pub(crate) streams: Option<Streams>,
    pub(crate) shards: Vec<Shard>,
    pub(crate) intent: Intent,
    pub(crate) files: Mutex<Files>,
    /// Told when one of [`Files::claimed`] goes.
    claim_ended: Condvar,
    pub(crate) residency: Arc<Residency>,
    pub(crate) curve: Arc<OnlineCurve>,
    /// Files in use that others may have changed, each with its source.
    pub(crate) uncompared: Mutex<Vec<(Uuid, Weak<FileState>)>>,
    compared_bytes_min: u64,
    memory: MemoryBudget,
    /// Of engines before this one in the same process.
    pub(crate) inherited: Counts,
    /// Files written to that are to be flushed, by number.
    pub(crate) unflushed: Mutex<BTreeMap<u32, Arc<FileState>>>,
    /// If more of them wait, one that is new and closed waits no more: see [`tidy`].
    unflushed_max: usize,
    /// The number that is looked at next for that.
    surplus_from: AtomicU32,
    /// The cache is used no more, and the generation store has made the SSD void. Locked while that happens.
    bypass: Mutex<()>,
    is_bypassed: AtomicBool,
    /// A flush of a file failed: what it lost is not known.
    has_lost_writes: AtomicBool,
    pub(crate) is_stopped: AtomicBool,
    /// Shared by who tidies what sources share: see [`Engine::tidy_shared`]. The stop has it alone, and then each source that was not
    /// abandoned.
    pub(crate) tidying: RwLock<()>,
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

/// So many new files that are closed wait at most to be made durable: each keeps its store and costs a flush, and no other file can
/// have its place in the file table.
pub const NEW_FILES_MAX: usize = 1024;

/// So many lines are forgotten before others get the shard and the records that wait are written.
const DROPPED_AT_ONCE: usize = 64;

impl Engine {
    pub(crate) fn new(
        ssd: Arc<Ssd>,
        generations: Arc<dyn GenerationStore>,
        superblock: &Superblock,
        options: &Options,
        shards: Vec<Shard>,
        intent: Intent,
        files: Files,
    ) -> Self {
        let residency = Arc::clone(&files.residency);
        for shard in &shards {
            shard.count_in(&residency);
        }
        let line = superblock.geometry.line();
        let unflushed_max = NEW_FILES_MAX.min(files.capacity() as usize / 2);
        Self {
            ssd,
            generations,
            generation: superblock.generation,
            shards_count: superblock.geometry.shards,
            line_bytes: line.bytes(),
            sample_seed: mix64(options.sample_seed ^ superblock.sequence),
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
            shards,
            intent,
            curve: Arc::new(OnlineCurve::of_cache(files.new_source.curve)),
            files: Mutex::new(files),
            claim_ended: Condvar::new(),
            residency,
            unflushed_max,
            surplus_from: AtomicU32::new(0),
            inherited: Counts::default(),
            uncompared: Mutex::default(),
            compared_bytes_min: options.compared_bytes_min,
            memory: options.memory,
            unflushed: Mutex::default(),
            bypass: Mutex::new(()),
            is_bypassed: AtomicBool::new(false),
            has_lost_writes: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
            tidying: RwLock::new(()),
        }
    }

    /// Whether the SSD was given up: all requests go to the backing alone.
    pub fn is_bypassed(&self) -> bool {
        self.is_bypassed.load(Ordering::Acquire)
    }

    /// Forgets the lines whose keys match.
    pub(crate) fn drop_matching(&self, matches: &dyn Fn(u64) -> bool) {
        for shard in &self.shards {
            let mut keys = Vec::new();
            shard.lock().model.policy().for_each_resident(&mut |key, _| {
                if matches(key) {
                    keys.push(key);
                }
            });
            // Of a line that came meanwhile nothing is lost but the line.
            for keys in keys.chunks(DROPPED_AT_ONCE) {
                shard.change(|state| {
                    for &key in keys {
                        state.forget(key);
                    }
                });
            }
        }
    }

    /// From now on the SSD is not used. Its content is void for every later start, before a file gets another write.
    pub(crate) fn enter_bypass(&self) -> io::Result<()> {
        let entering = lock(&self.bypass);
        if !self.is_bypassed() {
            self.generations.store(self.generation + 1)?;
            self.is_bypassed.store(true, Ordering::Release);
            self.ssd.give_up();
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
    /// If the generation store cannot be written.
    pub fn bypass(&self) -> io::Result<()> {
        self.enter_bypass()
    }

    /// Why the SSD was given up, or what its last error was.
    pub fn ssd_problem(&self) -> Option<String> {
        let panicked = || "a thread panicked while it changed what is known of the SSD".to_owned();
        self.is_poisoned().then(panicked).or_else(|| self.ssd.problem())
    }

    /// Gives the SSD up if a thread panicked while it changed what all sources share. To be called now and then, and when that
    /// may have happened.
    ///
    /// # Errors
    /// If the generation store cannot be written.
    pub fn bypass_if_poisoned(&self) -> io::Result<()> {
        if self.is_poisoned() {
            self.enter_bypass()?;
        }
        Ok(())
    }

    /// Whether a thread panicked while it changed what all sources share.
    pub(crate) fn is_poisoned(&self) -> bool {
        is_poisoned(&self.files) || self.intent.is_poisoned() || self.shards.iter().any(Shard::is_poisoned)
    }

    pub(crate) fn shard(&self, key: u64) -> &Shard {
        &self.shards[shard_of(key, self.shards_count) as usize]
    }
}
