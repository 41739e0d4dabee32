//! Which files the cache knows, and by which number the keys of their lines begin.
//!
//! A number is given once in a generation of the content, so an old record of a line never passes for one of another file: a
//! file that is changed, or made anew with the handle of an old one, has another number. Lines of a number that is in no
//! record of the file table are void.
//!
//! A record has the file's stamp while nobody writes to the file. Before the first write the record without it is durable.
//! So a file with a stamp was changed by nobody since, if it still looks like that, however the last session ended.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::{Arc, Weak};

use crate::compare::ALL_LINES;
use crate::counters::Area;
use crate::engine::lock;
use crate::format::{
    BLOCK_BYTES, FILE_RECORD_BYTES, FILES_PER_BLOCK, FileRecord, HANDLE_BYTES_MAX, Layout, Uuid,
};
use crate::health::Ssd;
use crate::residency::{Residence, Residency};
use crate::sources::{NewSource, Source};
use crate::stats::{Closed, FileStatus, RequestCounts, Served};
use crate::store::{BlockStore, Stamp};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Mutex, RwLock};

/// By what a file is known for as long as it lives: its source and a handle there, such as `name_to_handle_at` gives it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    source: Uuid,
    handle: Box<[u8]>,
}

impl FileIdentity {
    /// `None` if the handle has more than [`HANDLE_BYTES_MAX`] bytes.
    pub fn new(source: Uuid, handle: &[u8]) -> Option<Self> {
        (handle.len() <= HANDLE_BYTES_MAX).then(|| Self {
            source,
            handle: handle.into(),
        })
    }

    /// One that no file has, for a file of the source that has none any more. It cannot be stored.
    pub(crate) fn unnamed(source: Uuid, number: u64) -> Self {
        let mut handle = vec![0; HANDLE_BYTES_MAX + 1];
        handle[..8].copy_from_slice(&number.to_le_bytes());
        Self {
            source,
            handle: handle.into(),
        }
    }

    /// Names the source.
    pub fn source(&self) -> &Uuid {
        &self.source
    }

    /// Names the file in the source.
    pub fn handle(&self) -> &[u8] {
        &self.handle
    }

    fn hash(&self) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(&self.source), &self.handle)
    }
}

/// The first key of the lines of a file.
pub(crate) fn first_key(number: u32) -> u64 {
    u64::from(number) << 32
}

/// The number of the file that a line belongs to.
pub(crate) fn number_of(key: u64) -> u32 {
    (key >> 32) as u32
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
    /// Written to since the last tidying.
    pub(crate) is_recent: AtomicBool,
    /// It is among the files that are to be flushed.
    pub(crate) is_unflushed: AtomicBool,
    /// It has no record any more.
    pub(crate) is_forgotten: AtomicBool,
    /// An error of a flush that no caller asked for, for the next caller that does: the kernel reports it once. Locked by who
    /// flushes until it is noted.
    pub(crate) flush_error: Mutex<Option<io::Error>>,
    /// Lines from this one on may not be what the file has: see [`compare`](crate::compare).
    pub(crate) compared_lines: AtomicU64,
    counts: Mutex<RequestCounts>,
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

/// The file table, and an index of it that takes 17 bytes a file: what a record says is read from the SSD.
pub(crate) struct Files {
    uuid: Uuid,
    generation: u64,
    layout: Layout,
    entries: Vec<Entry>,
    /// Of each slot: its file was attached in this session, so what happens to the file is known.
    is_checked: Vec<bool>,
    buckets: Vec<u32>,
    free: u32,
    /// Where the search for a file to drop goes on.
    hand: u32,
    pub(crate) next_number: u32,
    in_use: HashMap<FileIdentity, Weak<FileState>>,
    /// Files that somebody attaches or removes at the moment.
    pub(crate) claimed: HashSet<FileIdentity>,
    /// Files that were removed while they were in use.
    removed: Vec<Weak<FileState>>,
    /// Files that were changed without the cache.
    pub(crate) changed: u64,
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
            is_checked: vec![false; files_max as usize],
            buckets: vec![NOBODY; files_max as usize],
            free: NOBODY,
            hand: 0,
            next_number: next_number.max(1),
            in_use: HashMap::new(),
            claimed: HashSet::new(),
            removed: Vec::new(),
            changed: 0,
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
                found.push((record.number, self.source(&record.identity.source).number));
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
        let mut unstamped = self.unused(|_| true);
        unstamped.retain(|slot| !self.is_checked[*slot as usize] && without.contains(slot));
        Ok(unstamped)
    }

    fn find_free(&mut self) {
        self.free = NOBODY;
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

    fn put_free(&mut self, slot: u32) {
        self.entries[slot as usize] = Entry {
            number: 0,
            hash: 0,
            next: self.free,
        };
        self.is_checked[slot as usize] = false;
        self.free = slot;
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
        self.is_checked[slot as usize] = false;
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
                let (offset, index) = self.place(slot);
                let block = ssd.read(BLOCK_BYTES as usize, offset)?;
                let record = self.decode(slot, &block[index..index + FILE_RECORD_BYTES]);
                // The number is that which was loaded, or what lies there is none of ours.
                let is_it =
                    |record: &FileRecord| record.identity == *identity && record.number == entry.number;
                if let Some(record) = record.filter(is_it) {
                    return Ok(Some(Found {
                        slot,
                        record,
                        is_checked: self.is_checked[slot as usize],
                    }));
                }
            }
            slot = entry.next;
        }
        Ok(None)
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
    pub(crate) fn put(&self, file: &FileState, stamp: Option<Stamp>, ssd: &Ssd) -> io::Result<()> {
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
    pub(crate) fn note_compared(&self, file: &FileState, ssd: &Ssd) -> io::Result<()> {
        let (offset, index) = self.place(file.slot);
        let block = ssd.read(BLOCK_BYTES as usize, offset)?;
        let record = self.decode(file.slot, &block[index..index + FILE_RECORD_BYTES]);
        let stamp = record.and_then(|record| record.stamp);
        self.put(
            file,
            stamp.filter(|_| !file.is_in_use.load(Ordering::Acquire)),
            ssd,
        )
    }

    /// Takes the records of slots away; durable after a flush.
    pub(crate) fn remove(&mut self, slots: &[u32], ssd: &Ssd) -> io::Result<()> {
        self.store(slots, None, ssd)?;
        for &slot in slots {
            self.residency.set_gone(self.entries[slot as usize].number, true);
            self.unlink(slot);
            self.put_free(slot);
        }
        Ok(())
    }

    /// Takes the record of a file away that is about to be removed; durable after a flush. Its slot stays taken until
    /// [`Files::free`] or [`Files::restore`].
    pub(crate) fn void(&self, found: &Found, ssd: &Ssd) -> io::Result<()> {
        self.store(&[found.slot], None, ssd)
    }

    /// Whether what was found is still so.
    pub(crate) fn has(&self, found: &Found) -> bool {
        let (slot, number) = (found.slot as usize, found.record.number);
        self.entries[slot].number == number && self.is_checked[slot] == found.is_checked
    }

    /// The slot of a file that was removed is free, unless somebody freed it before.
    pub(crate) fn free(&mut self, found: &Found) {
        if self.number_in(found.slot) == found.record.number {
            self.residency.set_gone(found.record.number, true);
            self.unlink(found.slot);
            self.put_free(found.slot);
        }
    }

    /// A file in use was not removed after all: its record is there again.
    pub(crate) fn restore(&self, file: &FileState, ssd: &Ssd) {
        // Before the next write it is made durable, or its failure noticed.
        let _ = self.put(file, None, ssd);
        file.is_in_use.store(false, Ordering::Release);
    }

    /// A new number for a file, in its slot or a free one, if there are any left.
    fn take(&mut self, identity: &FileIdentity, slot: Option<u32>) -> Option<(u32, u32)> {
        let number = self.next_number;
        let free = Some(self.free).filter(|&free| free != NOBODY);
        let slot_or_free = slot.or(free).filter(|_| number != u32::MAX)?;
        let source = self.source(&identity.source).number;
        self.residency.add_file(number, source);
        if slot.is_some() {
            let entry = &mut self.entries[slot_or_free as usize];
            self.residency.set_gone(entry.number, true);
            entry.number = number;
        } else {
            self.free = self.entries[slot_or_free as usize].next;
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
    /// there is no SSD for it. The caller puts the record of a new number.
    pub(crate) fn begin_use(
        &mut self,
        identity: FileIdentity,
        store: Arc<dyn BlockStore>,
        stamp: Stamp,
        found: Option<&Found>,
        is_changed: bool,
        has_ssd: bool,
    ) -> Arc<FileState> {
        let known = found.filter(|_| !is_changed);
        self.changed += u64::from(is_changed);
        let taken = match known {
            Some(known) => Some((known.slot, known.record.number)),
            None if has_ssd => self.take(&identity, found.map(|found| found.slot)),
            None => None,
        };
        let (slot, number) = taken.unwrap_or((NOBODY, 0));
        let source = self.source(&identity.source);
        let file = Arc::new(FileState {
            number,
            slot,
            store,
            len_bytes: AtomicU64::new(stamp.size_bytes),
            gate: RwLock::new(()),
            is_in_use: AtomicBool::new(known.is_some_and(|known| known.record.stamp.is_none())),
            is_recent: AtomicBool::new(false),
            is_unflushed: AtomicBool::new(false),
            is_forgotten: AtomicBool::new(false),
            flush_error: Mutex::new(None),
            compared_lines: AtomicU64::new(match known {
                Some(known) if !known.record.is_compared => 0,
                _ => ALL_LINES,
            }),
            counts: Mutex::new(lock(&self.closed).take(&identity)),
            source,
            closed: Arc::clone(&self.closed),
            identity: identity.clone(),
        });
        if number != 0 {
            self.is_checked[slot as usize] = true;
        }
        if self.in_use.len() >= 2 * self.in_use.capacity() / 3 {
            self.in_use.retain(|_, file| file.strong_count() > 0);
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

    /// What happens to the files of a source is not known any more.
    pub(crate) fn uncheck(&mut self, source: u16) {
        for (is_checked, entry) in self.is_checked.iter_mut().zip(&self.entries) {
            *is_checked &= self.residency.source_of(entry.number) != Some(source);
        }
    }

    /// The number of the file with this slot.
    pub(crate) fn number_in(&self, slot: u32) -> u32 {
        self.entries[slot as usize].number
    }

    /// Slots of files that nobody uses and of which `is_free` says so, by their number.
    pub(crate) fn unused(&self, is_free: impl Fn(u32) -> bool) -> Vec<u32> {
        let used: HashSet<u32> = self.all_in_use().iter().map(|file| file.slot).collect();
        let slots = (0..).zip(&self.entries);
        let unused = slots.filter(|(slot, entry)| entry.number != 0 && !used.contains(slot));
        unused
            .filter(|(_, entry)| is_free(entry.number))
            .map(|(slot, _)| slot)
            .collect()
    }

    /// The next files that nobody uses, a sixteenth of all: their slots in order, and their numbers.
    pub(crate) fn next_to_drop(&mut self) -> (Vec<u32>, HashSet<u32>) {
        let mut slots = self.unused(|_| true);
        let after = slots.partition_point(|&slot| slot < self.hand);
        slots.rotate_left(after);
        slots.truncate(self.entries.len() / 16);
        self.hand = slots.last().map_or(0, |slot| slot + 1);
        slots.sort_unstable();
        let numbers = slots.iter().map(|&slot| self.entries[slot as usize].number);
        let numbers = numbers.collect();
        (slots, numbers)
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.entries.capacity() * (size_of::<Entry>() + size_of::<bool>())
            + self.residency.memory_bytes()
            + self.buckets.capacity() * 4
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

impl FileState {
    pub(crate) fn len_bytes(&self) -> u64 {
        self.len_bytes.load(Ordering::Acquire)
    }

    /// Counts a request.
    pub(crate) fn count(&self, served: &Served) {
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
