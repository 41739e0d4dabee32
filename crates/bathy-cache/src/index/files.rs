//! Which files the cache knows, and by which number the keys of their lines begin.
//!
//! A number is given once in a generation of the content, so an old record of a line never passes for one of another file: a
//! file that is changed, or made anew with the handle of an old one, has another number. Lines of a number that is in no
//! record of the file table are void.
//!
//! A record has the file's stamp while nobody writes to the file. Before the first write the record without it is durable.
//! So a file with a stamp was changed by nobody since, if it still looks like that, however the last session ended.
//!
//! A file that is new and empty has a slot and a number, and gets its record when tidying has made durable what was written to
//! it. Until then its lines are void for a start.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::{Arc, Weak};

use crate::format::{
    BLOCK_BYTES, FILE_RECORD_BYTES, FILES_PER_BLOCK, FileIdentity, FileRecord, Layout, Uuid,
};
use crate::index::heat::{Heat, HeatClock};
use crate::index::source::{NewSource, Source};
use crate::mutant::{Mutant, is_made};
use crate::stats::residency::{Residence, Residency};
use crate::stats::{Closed, FileStatus, RequestCounts, ServedRequest};
use crate::store::ssd::Area;
use crate::store::ssd::{FlushNumber, Ssd};
use crate::store::{BlockStore, Stamp};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::lock;
use crate::sync::{Mutex, RwLock};

/// [`FileState::compared_lines`] of a file that need not be compared.
pub(crate) const ALL_LINES: u64 = u64::MAX;

/// What became of the lines that an earlier session left of a file, when its use began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// There were none.
    New,
    /// They are kept: the file is known to be unchanged.
    Known,
    /// They are kept, after so many of them were compared with the file.
    Sampled {
        /// All, or as many as are drawn.
        lines: u32,
    },
    /// All are compared with the file before they are used.
    Compared,
    /// They are dropped.
    Dropped,
}

/// A file in use.
pub(crate) struct FileState {
    pub(crate) identity: FileIdentity,
    /// 0 if nothing of it is cached: there was no room for it in the file table.
    pub(crate) number: u32,
    slot: u32,
    pub(crate) store: Arc<dyn BlockStore>,
    pub(crate) len_bytes: AtomicU64,
    /// Shared by reads and writes; who changes the file in another way has it alone.
    pub(crate) gate: RwLock<()>,
    /// Its record without the stamp is durable.
    pub(crate) is_in_use: AtomicBool,
    /// It is new and has no record, so no start believes anything of it. Its marks need not be durable before a write.
    pub(crate) marks_may_wait: AtomicBool,
    /// Its marks are durable, and will be before a write: a record of it may be written.
    pub(crate) may_have_record: AtomicBool,
    /// Written to since the last tidying.
    pub(crate) is_recent: AtomicBool,
    /// It is among the files that are to be flushed.
    pub(crate) is_unflushed: AtomicBool,
    /// It has no record any more.
    pub(crate) is_forgotten: AtomicBool,
    /// An error of a flush that no caller asked for, for the next caller that does: the kernel reports it once. Locked by who
    /// flushes until it is noted.
    pub(crate) flush_error: Mutex<Option<io::Error>>,
    /// Flushes of it that failed: each who has it open is to hear of every one.
    pub(crate) failed_flushes: AtomicU64,
    pub(crate) beginning: Beginning,
    /// Lines from this one on may not be what the file has: see [`compare`](crate::engine::compare).
    pub(crate) compared_lines: AtomicU64,
    counts: Mutex<RequestCounts>,
    heat: Heat,
    pub(crate) source: Arc<Source>,
    closed: Arc<Mutex<Closed>>,
}

#[derive(Clone, Copy)]
struct Entry {
    /// 0 of a free slot.
    number: u32,
    hash: u32,
    /// The next slot with the same bucket, or the next free one.
    next: u32,
}

const NOBODY: u32 = u32::MAX;

/// So many files have no record at most: they are found by what memory has of them, some 100 bytes each.
const WITHOUT_RECORD_MAX: usize = 16_384;
/// So many files that gave way are remembered at most until their records are gone durably.
const GIVEN_WAY_MAX: usize = 4096;
/// Files that are looked at for one that nobody uses.
const LOOKED_AT_MAX: usize = 16;

/// The file table, and an index of it that takes 17 bytes a file: what a record says is read from the SSD.
pub(crate) struct Files {
    uuid: Uuid,
    generation: u64,
    layout: Layout,
    entries: Vec<Entry>,
    /// Of each slot: its file was attached in this session, so what happens to the file is known.
    checked: Vec<u64>,
    buckets: Vec<u32>,
    free: u32,
    free_slots: u32,
    /// Says who leaves when all slots are taken.
    clock: HeatClock,
    pub(crate) next_number: u32,
    in_use: HashMap<FileIdentity, Weak<FileState>>,
    /// The same by slot, of those that have one.
    in_use_at: HashMap<u32, Weak<FileState>>,
    /// Files that somebody attaches or removes at the moment.
    pub(crate) claimed: HashSet<FileIdentity>,
    /// Files that were removed while they were in use.
    removed: Vec<Weak<FileState>>,
    /// Files that were empty when their use began, and have no record yet. Their slots are taken.
    without_record: HashMap<u32, FileIdentity>,
    /// So many of these at most.
    pub(crate) without_record_max: usize,
    /// Files that gave way to others, by the hash of their identity: by which flush nothing of their records is left.
    given_way: HashMap<u32, FlushNumber>,
    /// Files that were changed without the cache.
    pub(crate) changed: u64,
    /// Files that gave way to others in the full table, and the lines that they had.
    pub(crate) evicted: u64,
    pub(crate) evicted_lines: u64,
    /// The numbers of those that have lines still, which were not found. Nobody asks for these lines: they give way by and by.
    pub(crate) leftover: Vec<u32>,
    pub(crate) sources: HashMap<Uuid, Arc<Source>>,
    pub(crate) residency: Arc<Residency>,
    /// That of new sources.
    pub(crate) new_source: NewSource,
    pub(crate) closed: Arc<Mutex<Closed>>,
}

/// A record that was found.
pub(crate) struct Found {
    pub(crate) slot: u32,
    pub(crate) record: FileRecord,
    pub(crate) is_checked: bool,
}

impl Files {
    /// Without a file.
    pub(crate) fn new(
        uuid: Uuid,
        generation: u64,
        layout: &Layout,
        files_max: u32,
        next_number: u32,
        lines_max: u64,
        new_source: NewSource,
    ) -> Self {
        let mut files = Self {
            uuid,
            generation,
            layout: *layout,
            entries: vec![
                Entry {
                    number: 0,
                    hash: 0,
                    next: NOBODY,
                };
                files_max as usize
            ],
            checked: vec![0; (files_max as usize).div_ceil(64)],
            buckets: vec![NOBODY; files_max as usize],
            free: NOBODY,
            free_slots: 0,
            clock: HeatClock::new(files_max),
            next_number: next_number.max(1),
            in_use: HashMap::new(),
            in_use_at: HashMap::new(),
            claimed: HashSet::new(),
            removed: Vec::new(),
            without_record: HashMap::new(),
            without_record_max: WITHOUT_RECORD_MAX,
            given_way: HashMap::new(),
            changed: 0,
            evicted: 0,
            evicted_lines: 0,
            leftover: Vec::new(),
            sources: HashMap::new(),
            residency: Arc::new(Residency::new(files_max, lines_max)),
            new_source,
            closed: Arc::default(),
        };
        files.find_free();
        files
    }

    /// Takes over what the SSD has. Of two records of one file the one with the higher number is newer; the other is taken
    /// away, durable after a flush, because it would count when the newer one is gone. A record without a stamp is noted as not
    /// compared if it is not known that nobody used the file: it would be believed at a later start, which knows of its own
    /// past only.
    pub(crate) fn load(&mut self, was_fenced: bool, ssd: &Ssd) -> io::Result<()> {
        let (mut older, mut found) = (Vec::new(), Vec::new());
        for number in 0..self.layout.file_blocks() {
            for (slot, record) in self.records(number, ssd)? {
                self.next_number = self.next_number.max(record.number.saturating_add(1));
                let other = self.find(&record.identity, ssd)?;
                if other
                    .as_ref()
                    .is_some_and(|other| other.record.number >= record.number)
                {
                    older.push(slot);
                    continue;
                }
                if let Some(other) = other {
                    older.push(other.slot);
                    self.unlink(other.slot);
                    self.entries[other.slot as usize].number = 0;
                }
                self.link(slot, record.number, record.identity.hash());
                found.push((record.number, self.source(record.identity.source()).number));
                if record.stamp.is_none() && !was_fenced && record.is_compared {
                    let record = FileRecord {
                        is_compared: false,
                        ..record
                    };
                    self.store(&[slot], Some(&record), ssd)?;
                }
            }
        }
        self.residency.found_files(found.into_iter());
        self.find_free();
        older.sort_unstable();
        self.store(&older, None, ssd)
    }

    /// The records of a block of the table, with their slots.
    fn records(&self, block: u64, ssd: &Ssd) -> io::Result<Vec<(u32, FileRecord)>> {
        let bytes = ssd.read(BLOCK_BYTES as usize, self.layout.files(block))?;
        let first = block as u32 * FILES_PER_BLOCK as u32;
        let slots = (first..self.entries.len() as u32).zip(bytes.chunks_exact(FILE_RECORD_BYTES));
        let records = slots.filter_map(|(slot, bytes)| Some((slot, self.decode(slot, bytes)?)));
        Ok(records.collect())
    }

    /// Slots of files that were not attached in this session and have no stamp, in order.
    pub(crate) fn unstamped(&self, ssd: &Ssd) -> io::Result<Vec<u32>> {
        let mut without = HashSet::new();
        for block in 0..self.layout.file_blocks() {
            let mut records = self.records(block, ssd)?;
            records.retain(|(_, record)| record.stamp.is_none());
            without.extend(records.iter().map(|&(slot, _)| slot));
        }
        let slots = 0..self.entries.len() as u32;
        let is_unstamped = |slot: &u32| {
            is_unused(&self.entries, &self.in_use_at, *slot)
                && !self.is_checked(*slot)
                && without.contains(slot)
        };
        Ok(slots.filter(is_unstamped).collect())
    }

    fn find_free(&mut self) {
        (self.free, self.free_slots) = (NOBODY, 0);
        for slot in (0..self.entries.len() as u32).rev() {
            if self.entries[slot as usize].number == 0 {
                self.put_free(slot);
            }
        }
    }

    fn decode(&self, slot: u32, bytes: &[u8]) -> Option<FileRecord> {
        let record = FileRecord::decode(&self.uuid, slot, bytes);
        record.filter(|record| record.generation == self.generation)
    }

    /// The numbers that a file has.
    pub(crate) fn numbers(&self) -> HashSet<u32> {
        let numbers = self.entries.iter().map(|entry| entry.number);
        numbers.filter(|&number| number != 0).collect()
    }

    fn is_checked(&self, slot: u32) -> bool {
        self.checked[slot as usize / 64] >> (slot % 64) & 1 != 0
    }

    fn set_checked(&mut self, slot: u32, is_checked: bool) {
        let (word, bit) = (&mut self.checked[slot as usize / 64], slot % 64);
        *word = *word & !(1 << bit) | u64::from(is_checked) << bit;
    }

    fn put_free(&mut self, slot: u32) {
        self.entries[slot as usize] = Entry {
            number: 0,
            hash: 0,
            next: self.free,
        };
        self.set_checked(slot, false);
        self.without_record.remove(&slot);
        self.free = slot;
        self.free_slots += 1;
    }

    fn bucket(&self, hash: u32) -> usize {
        ((u64::from(hash) * self.buckets.len() as u64) >> 32) as usize
    }

    fn link(&mut self, slot: u32, number: u32, hash: u32) {
        let bucket = self.bucket(hash);
        self.entries[slot as usize] = Entry {
            number,
            hash,
            next: self.buckets[bucket],
        };
        self.set_checked(slot, false);
        self.clock.begin(slot);
        self.buckets[bucket] = slot;
    }

    fn unlink(&mut self, slot: u32) {
        let Entry { hash, next, .. } = self.entries[slot as usize];
        let bucket = self.bucket(hash);
        if self.buckets[bucket] == slot {
            self.buckets[bucket] = next;
            return;
        }
        let mut at = self.buckets[bucket];
        while at != NOBODY {
            let entry = &mut self.entries[at as usize];
            if entry.next == slot {
                entry.next = next;
                return;
            }
            at = entry.next;
        }
    }

    /// The record of a file, if there is one.
    ///
    /// # Errors
    /// If a record that may be that of the file cannot be read.
    pub(crate) fn find(&self, identity: &FileIdentity, ssd: &Ssd) -> io::Result<Option<Found>> {
        let hash = identity.hash();
        let mut slot = self.buckets[self.bucket(hash)];
        while slot != NOBODY {
            let entry = self.entries[slot as usize];
            if entry.hash == hash {
                let record = match self.without_record.get(&slot) {
                    Some(own) => Some(FileRecord {
                        identity: own.clone(),
                        number: entry.number,
                        generation: self.generation,
                        stamp: None,
                        is_compared: true,
                    }),
                    None => self.record(slot, ssd)?,
                };
                // The number is that which was loaded, or what lies there is none of ours.
                let is_it =
                    |record: &FileRecord| record.identity == *identity && record.number == entry.number;
                if let Some(record) = record.filter(is_it) {
                    return Ok(Some(Found {
                        slot,
                        record,
                        is_checked: self.is_checked(slot),
                    }));
                }
            }
            slot = entry.next;
        }
        Ok(None)
    }

    /// The record of a slot on the SSD.
    fn record(&self, slot: u32, ssd: &Ssd) -> io::Result<Option<FileRecord>> {
        let (offset, index) = self.place(slot);
        let block = ssd.read(BLOCK_BYTES as usize, offset)?;
        Ok(self.decode(slot, &block[index..index + FILE_RECORD_BYTES]))
    }

    /// The offset of the block of a slot's record, and where the record begins there.
    fn place(&self, slot: u32) -> (u64, usize) {
        let slot = slot as usize;
        (
            self.layout.files((slot / FILES_PER_BLOCK) as u64),
            slot % FILES_PER_BLOCK * FILE_RECORD_BYTES,
        )
    }

    /// Writes records of slots, which are in order; durable after a flush.
    fn store(&self, slots: &[u32], record: Option<&FileRecord>, ssd: &Ssd) -> io::Result<()> {
        let per_block = FILES_PER_BLOCK as u32;
        for slots in slots.chunk_by(|one, other| one / per_block == other / per_block) {
            let (offset, _) = self.place(slots[0]);
            let mut block = ssd.read(BLOCK_BYTES as usize, offset)?;
            for &slot in slots {
                let (_, index) = self.place(slot);
                block[index..index + FILE_RECORD_BYTES]
                    .copy_from_slice(&FileRecord::encode(record, &self.uuid, slot));
            }
            ssd.write(Area::FileTable, block, offset)?;
        }
        Ok(())
    }

    /// Writes the record of a file that is in use; durable after a flush.
    pub(crate) fn put(&mut self, file: &FileState, stamp: Option<Stamp>, ssd: &Ssd) -> io::Result<()> {
        debug_assert!(file.may_have_record.load(Ordering::Acquire));
        // Also after an error: it may have been written.
        self.without_record.remove(&file.slot);
        let record = FileRecord {
            identity: file.identity.clone(),
            number: file.number,
            generation: self.generation,
            stamp,
            is_compared: file.compared_lines.load(Ordering::Acquire) == ALL_LINES,
        };
        self.store(&[file.slot], Some(&record), ssd)
    }

    /// The lines of a file that is in use are compared with it; durable after a flush.
    pub(crate) fn note_compared(&mut self, file: &FileState, ssd: &Ssd) -> io::Result<()> {
        let stamp = self.record(file.slot, ssd)?.and_then(|record| record.stamp);
        self.put(
            file,
            stamp.filter(|_| !file.is_in_use.load(Ordering::Acquire)),
            ssd,
        )
    }

    /// Takes the records of slots away; durable after a flush, which nobody waits for but who uses one of the files again:
    /// [`Files::record_is_gone_by`].
    pub(crate) fn remove(&mut self, slots: &[u32], ssd: &Ssd) -> io::Result<()> {
        let has_record = |slot: &&u32| !self.without_record.contains_key(slot);
        let with_record: Vec<u32> = slots.iter().filter(has_record).copied().collect();
        let stored = self.store(&with_record, None, ssd);
        let gone_by = ssd.next_flush();
        if self.given_way.len() + with_record.len() > GIVEN_WAY_MAX {
            // Tidying flushes every few seconds, so most of them need not be remembered any more.
            self.given_way.retain(|_, number| !ssd.is_flushed(*number));
        }
        if self.given_way.len() + with_record.len() > GIVEN_WAY_MAX && ssd.flush_up_to(gone_by).is_ok() {
            self.given_way.clear();
        }
        if !ssd.is_flushed(gone_by) {
            // After an error, too: some of the records may have been written.
            let hashes = with_record.iter().map(|&slot| self.entries[slot as usize].hash);
            self.given_way.extend(hashes.map(|hash| (hash, gone_by)));
        }
        stored?;
        for &slot in slots {
            self.let_go(slot);
        }
        Ok(())
    }

    fn let_go(&mut self, slot: u32) {
        self.residency.set_gone(self.number_in(slot), true);
        self.unlink(slot);
        self.put_free(slot);
    }

    /// Of a file without a record that nobody uses any more nothing is kept. Who attaches it before it is dropped gets another.
    pub(crate) fn let_go_of_new(&mut self, file: &Arc<FileState>) {
        if self.without_record.contains_key(&file.slot) && self.number_in(file.slot) == file.number {
            self.let_go(file.slot);
            if self.uses(file) && !is_made(Mutant::EmptyFilesAreFound) {
                self.in_use.remove(&file.identity);
            }
        }
    }

    /// Where too many have no record, one that nobody uses leaves, with its lines, so that the next ones need none either.
    fn let_go_of_surplus(&mut self) {
        if self.without_record.len() < self.without_record_max {
            return;
        }
        let mut slots = self.without_record.keys().take(LOOKED_AT_MAX).copied();
        let unused = slots.find(|&slot| is_unused(&self.entries, &self.in_use_at, slot));
        if let Some(slot) = unused {
            let number = self.number_in(slot);
            let lines = self.residency.lines_of(number).unwrap_or(0);
            self.evicted += 1;
            self.evicted_lines += u64::from(lines);
            self.leftover.extend((lines > 0).then_some(number));
            self.let_go(slot);
        }
    }

    /// By which flush a record is gone that a file without one may have had before it gave way to others. It must be before the
    /// file changes: a start would find it with the lines and the stamp of then.
    pub(crate) fn record_is_gone_by(&self, identity: &FileIdentity) -> Option<FlushNumber> {
        self.given_way.get(&identity.hash()).copied()
    }

    /// Takes the record of a file away that is about to be removed: by which flush, if it has one. Its slot stays taken until
    /// [`Files::free`] or [`Files::restore`].
    pub(crate) fn void(&self, found: &Found, ssd: &Ssd) -> io::Result<Option<FlushNumber>> {
        if self.without_record.contains_key(&found.slot) {
            return Ok(None);
        }
        self.store(&[found.slot], None, ssd)?;
        Ok(Some(ssd.next_flush()))
    }

    /// Whether what was found is still so.
    pub(crate) fn has(&self, found: &Found) -> bool {
        self.number_in(found.slot) == found.record.number && self.is_checked(found.slot) == found.is_checked
    }

    /// The slot of a file that was removed is free, unless somebody freed it before.
    pub(crate) fn free(&mut self, found: &Found) {
        if self.number_in(found.slot) == found.record.number {
            self.let_go(found.slot);
        }
    }

    /// A file in use was not removed after all: its record is there again.
    pub(crate) fn restore(&mut self, file: &FileState, ssd: &Ssd) {
        if self.without_record.contains_key(&file.slot) {
            return;
        }
        // Before the next write it is made durable, or its failure noticed.
        let _ = self.put(file, None, ssd);
        file.is_in_use.store(false, Ordering::Release);
    }

    /// A new number for a file, in its slot or a free one, if there are any left.
    fn take(&mut self, identity: &FileIdentity, slot: Option<u32>) -> Option<(u32, u32)> {
        let number = self.next_number;
        let free = Some(self.free).filter(|&free| free != NOBODY);
        let slot_or_free = slot.or(free).filter(|_| number != u32::MAX)?;
        let source = self.source(identity.source()).number;
        self.residency.add_file(number, source);
        if slot.is_some() {
            let entry = &mut self.entries[slot_or_free as usize];
            self.residency.set_gone(entry.number, true);
            entry.number = number;
        } else {
            self.free = self.entries[slot_or_free as usize].next;
            self.free_slots -= 1;
            self.link(slot_or_free, number, identity.hash());
        }
        self.next_number += 1;
        Some((slot_or_free, number))
    }

    /// Whether every slot is taken.
    pub(crate) fn is_full(&self) -> bool {
        self.free == NOBODY
    }

    /// The file in use with this identity.
    pub(crate) fn in_use(&self, identity: &FileIdentity) -> Option<Arc<FileState>> {
        self.in_use.get(identity)?.upgrade()
    }

    /// Whether who attaches the file now gets this one.
    pub(crate) fn uses(&self, file: &Arc<FileState>) -> bool {
        self.in_use(&file.identity)
            .is_some_and(|used| Arc::ptr_eq(&used, file))
    }

    /// Nobody has files of this source open: who attaches one later gets it anew, also if it is still being compared.
    pub(crate) fn end_use_of(&mut self, source: &Uuid) {
        self.in_use.retain(|identity, _| identity.source() != source);
    }

    /// The files in use.
    pub(crate) fn all_in_use(&self) -> Vec<Arc<FileState>> {
        self.in_use.values().filter_map(Weak::upgrade).collect()
    }

    /// Files in use that are not cached for want of a record.
    pub(crate) fn without_room(&self) -> u64 {
        let without = self.all_in_use().into_iter().filter(|file| file.number == 0);
        without.count() as u64
    }

    /// The files that requests may be under way to: those in use, and removed ones that somebody has open.
    pub(crate) fn all_open(&self) -> Vec<Arc<FileState>> {
        let removed = self.removed.iter().filter_map(Weak::upgrade);
        self.all_in_use().into_iter().chain(removed).collect()
    }

    /// The file was removed: who has this identity from now on is another one.
    pub(crate) fn end_use(&mut self, identity: &FileIdentity) {
        self.removed.retain(|file| file.strong_count() > 0);
        self.removed.extend(self.in_use.remove(identity));
        lock(&self.closed).take(identity);
    }

    /// A file is used from now on: with its number if it was `found` and is as it was, else with a new one; without any if
    /// there is no SSD for it. The caller puts the record of a new number, unless the file is new and empty: nothing can be cached
    /// of it before it is written to, and most files that are made are written once or removed soon.
    pub(crate) fn begin_use(
        &mut self,
        identity: FileIdentity,
        store: Arc<dyn BlockStore>,
        stamp: Stamp,
        found: Option<&Found>,
        beginning: Beginning,
        has_ssd: bool,
    ) -> Arc<FileState> {
        let is_changed = beginning == Beginning::Dropped;
        let known = found.filter(|_| !is_changed);
        self.changed += u64::from(is_changed);
        let taken = match known {
            Some(known) => Some((known.slot, known.record.number)),
            None if has_ssd => self.take(&identity, found.map(|found| found.slot)),
            None => None,
        };
        let (slot, number) = taken.unwrap_or((NOBODY, 0));
        let is_new = found.is_none() && number != 0 && stamp.size_bytes == 0;
        if is_new {
            self.let_go_of_surplus();
        }
        if is_new && self.without_record.len() < self.without_record_max {
            self.without_record.insert(slot, identity.clone());
        } else if beginning != Beginning::Known {
            // Its record is put now.
            self.without_record.remove(&slot);
        }
        let has_record = !self.without_record.contains_key(&slot);
        let source = self.source(identity.source());
        let file = Arc::new(FileState {
            number,
            slot,
            store,
            len_bytes: AtomicU64::new(stamp.size_bytes),
            gate: RwLock::new(()),
            is_in_use: AtomicBool::new(has_record && known.is_some_and(|known| known.record.stamp.is_none())),
            marks_may_wait: AtomicBool::new(!has_record),
            may_have_record: AtomicBool::new(has_record),
            is_recent: AtomicBool::new(false),
            is_unflushed: AtomicBool::new(false),
            is_forgotten: AtomicBool::new(false),
            flush_error: Mutex::new(None),
            failed_flushes: AtomicU64::new(0),
            compared_lines: AtomicU64::new(match known {
                Some(known) if !known.record.is_compared => 0,
                _ => ALL_LINES,
            }),
            counts: Mutex::new(lock(&self.closed).take(&identity)),
            heat: self.clock.heat.clone(),
            beginning,
            source,
            closed: Arc::clone(&self.closed),
            identity: identity.clone(),
        });
        if number != 0 {
            self.set_checked(slot, true);
        }
        if self.in_use.len() >= 2 * self.in_use.capacity() / 3 {
            self.in_use.retain(|_, file| file.strong_count() > 0);
            self.in_use_at.retain(|_, file| file.strong_count() > 0);
        }
        if number != 0 {
            self.in_use_at.insert(slot, Arc::downgrade(&file));
        }
        self.in_use.insert(identity, Arc::downgrade(&file));
        file
    }

    /// A source, which may be new.
    pub(crate) fn source(&mut self, uuid: &Uuid) -> Arc<Source> {
        let new = || Arc::new(Source::new(self.residency.add_source(), self.new_source));
        Arc::clone(self.sources.entry(*uuid).or_insert_with(new))
    }

    /// The sources.
    pub(crate) fn sources(&self) -> impl Iterator<Item = &Arc<Source>> {
        self.sources.values()
    }

    /// The files of which counts are known, by number and without what is cached of them.
    pub(crate) fn all_counted(&self) -> Vec<(u32, FileStatus)> {
        let status = |identity: &FileIdentity, is_in_use, counts| FileStatus {
            identity: identity.clone(),
            is_in_use,
            counts,
            cached_lines: 0,
            cached_bytes: 0,
            residence: Residence::default(),
        };
        let in_use = self.all_in_use();
        let closed = lock(&self.closed);
        let of_closed = closed
            .all()
            .map(|(identity, number, counts)| (number, status(identity, false, counts)));
        let of_open = in_use
            .iter()
            .map(|file| (file.number, status(&file.identity, true, file.counts())));
        of_open.chain(of_closed).collect()
    }

    /// What happens to the files of a source is not known any more. Those without a record are forgotten.
    pub(crate) fn uncheck(&mut self, source: u16) {
        let mut without = Vec::new();
        for &slot in self.without_record.keys() {
            let is_of_source = self.residency.source_of(self.number_in(slot)) == Some(source);
            if is_of_source && is_unused(&self.entries, &self.in_use_at, slot) {
                without.push(slot);
            }
        }
        for slot in without {
            self.let_go(slot);
        }
        for slot in 0..self.entries.len() as u32 {
            if self.residency.source_of(self.number_in(slot)) == Some(source) {
                self.set_checked(slot, false);
            }
        }
    }

    /// The number of the file with this slot.
    pub(crate) fn number_in(&self, slot: u32) -> u32 {
        self.entries[slot as usize].number
    }

    /// The files that give way to others in the full table: their slots, and the numbers and lines that they have. None if all
    /// files are in use.
    pub(crate) fn next_to_leave(&mut self) -> (Vec<u32>, Vec<(u32, u32)>) {
        let Self {
            clock,
            entries,
            in_use_at,
            residency,
            ..
        } = self;
        let file_in = |slot: u32| {
            let number = entries[slot as usize].number;
            (number, residency.lines_of(number).unwrap_or(0))
        };
        let is_unused = |slot| is_unused(entries, in_use_at, slot);
        let slots = clock.leave(|slot| is_unused(slot).then(|| file_in(slot).1));
        let files = slots.iter().map(|&slot| file_in(slot)).collect();
        (slots, files)
    }

    /// The files of [`Files::leftover`], if they have more lines than so many: these are to be forgotten now.
    pub(crate) fn take_leftover(&mut self, lines_max: u64) -> HashSet<u32> {
        let lines_of = |number: &u32| u64::from(self.residency.lines_of(*number).unwrap_or(0));
        self.leftover.retain(|number| lines_of(number) > 0);
        let lines: u64 = self.leftover.iter().map(lines_of).sum();
        if lines <= lines_max {
            return HashSet::new();
        }
        self.leftover.drain(..).collect()
    }

    /// Files that have a record.
    pub(crate) fn len(&self) -> u64 {
        self.capacity() - u64::from(self.free_slots)
    }

    /// Files that there is room for.
    pub(crate) fn capacity(&self) -> u64 {
        self.entries.len() as u64
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
            + self.checked.capacity() * 8
            + self.residency.memory_bytes()
            + self.buckets.capacity() * 4
            + self.clock.memory_bytes()
            + self.in_use_at.capacity() * (size_of::<(u32, Weak<FileState>)>() + 1)
            + self.leftover.capacity() * 4
            + self.without_record.capacity() * (size_of::<(u32, FileIdentity)>() + 1)
            + self.given_way.capacity() * (size_of::<(u32, FlushNumber)>() + 1)
            + self.in_use.capacity() * (size_of::<(FileIdentity, Weak<FileState>)>() + 1)
            + self.in_use.len() * size_of::<FileState>()
            + lock(&self.closed).memory_bytes()
            + self
                .sources
                .values()
                .map(|source| lock(&source.counts).memory_bytes() + source.curve.memory_bytes())
                .sum::<usize>()
    }
}

/// Whether there is a file in this slot, and nobody uses it.
fn is_unused(entries: &[Entry], in_use_at: &HashMap<u32, Weak<FileState>>, slot: u32) -> bool {
    let is_used = |file: &Weak<FileState>| file.strong_count() > 0;
    entries[slot as usize].number != 0 && !in_use_at.get(&slot).is_some_and(is_used)
}

impl FileState {
    pub(crate) fn len_bytes(&self) -> u64 {
        self.len_bytes.load(Ordering::Acquire)
    }

    /// Counts a request.
    pub(crate) fn count(&self, served: &ServedRequest) {
        if served.bytes_hit > 0 {
            self.heat.add(self.slot);
        }
        lock(&self.counts).count(served);
        lock(&self.source.counts).count(served);
    }

    pub(crate) fn counts(&self) -> RequestCounts {
        *lock(&self.counts)
    }

    /// Another one counts on.
    pub(crate) fn give_counts(&self, next: &Self) {
        let counts = std::mem::take(&mut *lock(&self.counts));
        if counts.requests() > 0 {
            *lock(&next.counts) = counts;
        }
    }
}

impl Drop for FileState {
    fn drop(&mut self) {
        let counts = self.counts();
        if counts.requests() > 0 && !self.is_forgotten.load(Ordering::Acquire) {
            lock(&self.closed).remember(self.identity.clone(), self.number, counts);
        }
    }
}
