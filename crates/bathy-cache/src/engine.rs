//! Requests: which locks are taken, and in which order backing and SSD are written.
//!
//! The threads of the callers do the I/O. A shard is locked while it plans and while it uses the SSD, never while the backing
//! is used; what happens on a line meanwhile the model's tickets settle. Workers with a ring each can own the shards later:
//! [`Shard`] knows no lock, and all that touches several shards is in this file.

use std::io;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bathy_cache_model::{AdmissionOptions, Io, Part, RequestSplitter, WriteMode};
use bathy_policy::Policy;

use crate::counters::{Counts, OpCounts};
use crate::format::{Superblock, UNIT_BYTES};
use crate::health::{ErrorBudget, Ssd};
use crate::intent::Intent;
use crate::shard::{Fetch, Shard, copy_units, runs};
use crate::store::BlockStore;
use crate::witness::Witness;

/// How a cache is run. Nothing of it is stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Writes to what is not cached.
    pub write_mode: WriteMode,
    /// Filters.
    pub admission: AdmissionOptions,
    /// Errors of the SSD that are forgiven.
    pub error_budget: ErrorBudget,
    /// Changed records that each shard keeps before it writes them to the line table.
    pub pending_records: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            write_mode: WriteMode::Allocate,
            admission: AdmissionOptions::default(),
            error_budget: ErrorBudget::default(),
            pending_records: 1024,
        }
    }
}

/// A line that is cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedLine {
    /// Its first byte in the backing.
    pub offset_bytes: u64,
    /// Its valid units of 4 KiB, one bit each.
    pub valid_units: u64,
    /// Its shard and its slot there.
    pub place: (u32, u32),
    /// Whether it is not on the SSD.
    pub is_in_memory: bool,
}

/// A cache over a backing. See the [crate](crate).
pub struct Engine {
    pub(crate) ssd: Arc<Ssd>,
    pub(crate) backing: Arc<dyn BlockStore>,
    witness: Arc<dyn Witness>,
    pub(crate) superblock: Superblock,
    backing_bytes: u64,
    splitter: Mutex<RequestSplitter>,
    pub(crate) shards: Vec<Mutex<Shard>>,
    pub(crate) intent: Mutex<Intent>,
    /// Requests and bytes of reads and of writes.
    totals: Mutex<[OpCounts; 2]>,
    /// The cache is used no more, and the witness has made the SSD void. Locked while that happens.
    bypass: Mutex<()>,
    is_bypassed: AtomicBool,
    /// A flush of the backing failed: what it lost is not known.
    has_lost_writes: AtomicBool,
    /// An error of a flush that no caller asked for, for the next caller that does: the kernel reports it once.
    flush_error: Mutex<Option<io::Error>>,
}

/// What a panic of another thread left behind is still consistent enough to be read; lines are verified when served.
fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The shard of a key. Its hash must differ from the one of the policy's table.
pub(crate) fn shard_of(key: u64, shards: u32) -> u32 {
    let mixed = (key ^ key >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let mixed = (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (((mixed >> 32) * u64::from(shards)) >> 32) as u32
}

impl Engine {
    pub(crate) fn new(
        ssd: Arc<Ssd>,
        backing: Arc<dyn BlockStore>,
        witness: Arc<dyn Witness>,
        superblock: Superblock,
        options: &Options,
        shards: Vec<Shard>,
        intent: Intent,
    ) -> Self {
        let line = superblock.geometry.line();
        Self {
            ssd,
            backing,
            witness,
            backing_bytes: superblock.backing.size_bytes,
            splitter: Mutex::new(RequestSplitter::new(line, options.admission.stream_cutoff_bytes)),
            superblock,
            shards: shards.into_iter().map(Mutex::new).collect(),
            intent: Mutex::new(intent),
            totals: Mutex::default(),
            bypass: Mutex::new(()),
            is_bypassed: AtomicBool::new(false),
            has_lost_writes: AtomicBool::new(false),
            flush_error: Mutex::new(None),
        }
    }

    /// The size of the backing.
    pub fn size_bytes(&self) -> u64 {
        self.backing_bytes
    }

    /// Whether the SSD was given up: all requests go to the backing alone.
    pub fn is_bypassed(&self) -> bool {
        self.is_bypassed.load(Ordering::Acquire)
    }

    /// Reads `out.len()` bytes. `time_ns` does not go back by much.
    ///
    /// # Errors
    /// Those of the backing, unchanged, and `InvalidInput` beyond its end. No error of the SSD.
    pub fn read(&self, out: &mut [u8], offset: u64, time_ns: u64) -> io::Result<()> {
        let Some(parts) = self.split(offset, out.len(), false)? else {
            return Ok(());
        };
        self.ssd.set_time(time_ns);
        if self.is_bypassed() || self.ssd.is_given_up() {
            return self.backing.read(out, offset);
        }
        let (bytes, mut bytes_hit) = (out.len() as u64, 0);
        let mut rest = out;
        for part in &parts {
            let (out, others) = rest.split_at_mut(part.bytes() as usize);
            rest = others;
            bytes_hit += self.read_part(part, time_ns, out)?;
        }
        self.count(0, bytes, bytes_hit, bytes_hit == bytes);
        Ok(())
    }

    /// The bytes that the cache served.
    fn read_part(&self, part: &Part, time_ns: u64, out: &mut [u8]) -> io::Result<u64> {
        let shard = self.shard(part.key);
        let fetch = lock(shard).read(part, time_ns, out);
        let Some(Fetch { units, fill }) = fetch else {
            return Ok(u64::from(part.bytes()));
        };
        let Some(fill) = fill else {
            let read = self.read_units(part, units, None, out)?;
            lock(shard).counts.backing_read_bytes += read;
            return Ok(u64::from(part.bytes()) - read);
        };
        let mut line = vec![0; self.superblock.geometry.line_bytes as usize];
        let read = self.read_units(part, units, Some(&mut line), out);
        let mut shard = lock(shard);
        shard.fill(part.key, fill, read.is_ok().then_some(&line));
        let Ok(read) = read else {
            drop(shard);
            // The error may lie in what was read besides.
            self.read_units(part, units, None, out)?;
            return Ok(0);
        };
        shard.counts.backing_read_bytes += read;
        // A unit that the request covers in part counts as if it were covered whole, as in the simulator.
        Ok(u64::from(part.bytes()).saturating_sub(read))
    }

    /// Reads units from the backing: whole ones into `line`, or without one just what the part touches. The bytes read.
    fn read_units(
        &self,
        part: &Part,
        units: u64,
        line: Option<&mut Vec<u8>>,
        out: &mut [u8],
    ) -> io::Result<u64> {
        let line_start = part.key * u64::from(self.superblock.geometry.line_bytes);
        let unit = UNIT_BYTES as usize;
        let mut bytes = 0;
        let Some(line) = line else {
            for run in runs(units) {
                let start = (run.start * unit).max(part.start as usize);
                let end = (run.end * unit).min(part.end as usize);
                let out = &mut out[start - part.start as usize..end - part.start as usize];
                self.backing.read(out, line_start + start as u64)?;
                bytes += (end - start) as u64;
            }
            return Ok(bytes);
        };
        for run in runs(units) {
            let start = line_start + run.start as u64 * UNIT_BYTES;
            // What lies beyond the end stays zero.
            let len = (self.backing_bytes - start).min((run.len() * unit) as u64) as usize;
            let data = &mut line[run.start * unit..run.end * unit];
            self.backing.read(&mut data[..len], start)?;
            copy_units(part, run.clone(), data, out);
            bytes += (run.len() * unit) as u64;
        }
        Ok(bytes)
    }

    /// Writes `data`. When this returns the backing has them; durable they are after [`Engine::flush`].
    ///
    /// # Errors
    /// Those of the backing, unchanged, and `InvalidInput` beyond its end. An error of the SSD only if the witness fails as
    /// well: then nothing could keep a stale SSD from being believed later.
    pub fn write(&self, data: &[u8], offset: u64, time_ns: u64) -> io::Result<()> {
        let Some(parts) = self.split(offset, data.len(), true)? else {
            return Ok(());
        };
        self.ssd.set_time(time_ns);
        if self.ssd.is_given_up() {
            self.enter_bypass()?;
        }
        if self.is_bypassed() {
            return self.backing.write(data, offset);
        }
        let regions = self.regions(offset, data.len() as u64);
        let marked = lock(&self.intent).begin(regions.clone(), &self.ssd);
        if marked.is_err() {
            self.enter_bypass()?;
            return self.backing.write(data, offset);
        }
        let plan = |part: &Part| lock(self.shard(part.key)).begin_write(part, time_ns);
        let plans: Vec<_> = parts.iter().map(plan).collect();
        let written = self.backing.write(data, offset);
        let (mut rest, mut bytes_hit) = (data, 0);
        for (part, plan) in parts.iter().zip(&plans) {
            let (of_part, others) = rest.split_at(part.bytes() as usize);
            rest = others;
            let of_part = written.is_ok().then_some(of_part);
            lock(self.shard(part.key)).finish_write(part, plan, of_part);
            bytes_hit += u64::from(part.bytes()) * u64::from(plan.was_cached);
        }
        lock(&self.intent).end(regions);
        self.count(1, data.len() as u64, bytes_hit, bytes_hit == data.len() as u64);
        written
    }

    /// Makes all writes durable that were acknowledged before.
    ///
    /// # Errors
    /// Those of the backing, unchanged; one of an earlier [`Engine::tidy`] too.
    pub fn flush(&self) -> io::Result<()> {
        let earlier = lock(&self.flush_error).take();
        let flushed = self.backing.flush();
        if flushed.is_err() {
            self.on_lost_writes();
        }
        earlier.map_or(flushed, Err)
    }

    /// Takes back the intent of regions that nobody wrote to since the last call, and writes the records that wait. To be
    /// called now and then, such as every few seconds: it bounds what a power cut takes from the cache. Whether all records
    /// are on the SSD.
    pub fn tidy(&self) -> bool {
        if self.is_bypassed() || self.has_lost_writes.load(Ordering::Acquire) {
            return false;
        }
        let idle = lock(&self.intent).idle();
        if !idle.is_empty() {
            if let Err(error) = self.backing.flush() {
                *lock(&self.flush_error) = Some(error);
                self.on_lost_writes();
                return false;
            }
        }
        // The records of lines that a write changed or drove out must be on the SSD before the bit that covers them goes.
        let write_out = |shard: &Mutex<Shard>| lock(shard).table.write_out(&self.ssd);
        let written_out = self.shards.iter().try_for_each(write_out);
        let is_durable = written_out.and_then(|()| self.ssd.flush()).is_ok();
        if !is_durable || self.has_lost_writes.load(Ordering::Acquire) {
            return false;
        }
        // Bits that stay on the SSD by an error cost lines, not truth.
        let _ = lock(&self.intent).clear(&idle, &self.ssd);
        true
    }

    /// The backing lost writes, nobody knows which: lines that are newer than it are forgotten. The intent of their regions
    /// stays, so that the next start drops them as well.
    fn on_lost_writes(&self) {
        self.has_lost_writes.store(true, Ordering::Release);
        for shard in &self.shards {
            let mut keys = Vec::new();
            let mut shard = lock(shard);
            let intent = lock(&self.intent);
            shard.model.policy().for_each_resident(&mut |key, _| {
                if intent.is_marked(self.region_of(key)) {
                    keys.push(key);
                }
            });
            drop(intent);
            for key in keys {
                shard.forget(key);
            }
        }
    }

    /// From now on the SSD is not used. Its content is void for every later start, before the backing gets another write.
    fn enter_bypass(&self) -> io::Result<()> {
        let entering = lock(&self.bypass);
        if !self.is_bypassed() {
            self.witness.store(self.superblock.generation + 1)?;
            self.is_bypassed.store(true, Ordering::Release);
        }
        drop(entering);
        Ok(())
    }

    /// Gives the SSD up, as its errors would.
    ///
    /// # Errors
    /// If the witness cannot be written.
    pub fn bypass(&self) -> io::Result<()> {
        self.enter_bypass()
    }

    /// Whether a flush of the backing failed since the start.
    pub(crate) fn has_lost_writes(&self) -> bool {
        self.has_lost_writes.load(Ordering::Acquire) || lock(&self.flush_error).is_some()
    }

    /// What was counted since the start.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts {
            ssd_errors: self.ssd.errors(),
            ..Counts::default()
        };
        self.shards
            .iter()
            .for_each(|shard| counts.add(&lock(shard).counts));
        [counts.reads, counts.writes] = *lock(&self.totals);
        counts
    }

    /// Calls `visit` with each cached line.
    pub fn for_each_line(&self, visit: &mut dyn FnMut(CachedLine)) {
        let line = u64::from(self.superblock.geometry.line_bytes);
        for (number, shard) in (0..).zip(&self.shards) {
            let shard = lock(shard);
            shard.model.policy().for_each_resident(&mut |key, slot| {
                visit(CachedLine {
                    offset_bytes: key * line,
                    valid_units: shard.model.valid_units(slot),
                    place: (number, slot),
                    is_in_memory: slot >= shard.stage_start,
                });
            });
        }
    }

    /// Regions whose lines the next start would drop if the power failed now.
    pub fn marked_regions(&self) -> u64 {
        lock(&self.intent).marked()
    }

    /// Whether the next start would drop the line of this byte if the power failed now.
    pub fn is_marked(&self, offset: u64) -> bool {
        lock(&self.intent).is_marked(offset / self.superblock.geometry.region_bytes)
    }

    /// Lines that the cache has room for.
    pub fn capacity_lines(&self) -> u64 {
        self.superblock.geometry.slots_total()
    }

    /// Bytes of memory held, apart from [`Engine::stage_bytes`].
    pub fn memory_bytes(&self) -> usize {
        let shards: usize = self.shards.iter().map(|shard| lock(shard).memory_bytes()).sum();
        size_of::<Self>() + shards + lock(&self.intent).memory_bytes()
    }

    /// Bytes of the lines in memory.
    pub fn stage_bytes(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).stage_bytes()).sum()
    }

    pub(crate) fn region_of(&self, key: u64) -> u64 {
        key * u64::from(self.superblock.geometry.line_bytes) / self.superblock.geometry.region_bytes
    }

    fn regions(&self, offset: u64, bytes: u64) -> RangeInclusive<u64> {
        let region = self.superblock.geometry.region_bytes;
        offset / region..=(offset + bytes - 1) / region
    }

    fn shard(&self, key: u64) -> &Mutex<Shard> {
        &self.shards[shard_of(key, self.superblock.geometry.shards) as usize]
    }

    fn count(&self, op: usize, bytes: u64, bytes_hit: u64, hit: bool) {
        let counts = &mut lock(&self.totals)[op];
        counts.requests += 1;
        counts.requests_hit += u64::from(hit);
        counts.bytes += bytes;
        counts.bytes_hit += bytes_hit;
    }

    /// The parts of a request, or `None` of an empty one.
    fn split(&self, offset: u64, len: usize, write: bool) -> io::Result<Option<Vec<Part>>> {
        let end = offset.checked_add(len as u64);
        if end.is_none_or(|end| end > self.backing_bytes) || len > u32::MAX as usize {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let io = Io {
            offset_bytes: offset,
            length_bytes: len as u32,
            write,
            // There is one address space: keys are line numbers.
            volume: u32::MAX,
        };
        Ok((len > 0).then(|| lock(&self.splitter).split(io).collect()))
    }
}
