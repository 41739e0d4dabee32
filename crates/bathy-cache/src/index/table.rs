//! The line table: the records of a shard's slots, of which memory holds few.
//!
//! A record that changed waits in `pending` and is written with its neighbours, because a block holds those of 32 slots (of 8 with lines of 256 KiB) and
//! lines enter in the order of slots. It stays there until it is on the SSD, so whoever asks for it meanwhile finds it. What a power cut takes with it are only lines: see "Records may be late" in README.md.
//! Once the SSD was given up none waits any more: no start believes what it has, and nobody reads it.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use crate::format::{BLOCK_BYTES, Layout, Record, UNITS_MAX, Uuid};
use crate::mutant::{Mutant, is_made};
use crate::store::aligned::Aligned;
use crate::store::ssd::Area;
use crate::store::ssd::Ssd;

/// One cached record for so many slots: 12 bytes a line of 64 KiB, 6 of 16 KiB, 36 of 256 KiB.
const SLOTS_PER_CACHED_RECORD: u32 = 8;
/// The cached records of a cache take so much at least, if it has as many slots: 34,000 with lines of 64 KiB, 11,000 of
/// 256 KiB. One that has no room costs a hit a system call.
const CACHED_BYTES_MIN: usize = 3 << 20;
/// Sequences go on from session to session, so that none needs to know how far the last one came.
const RECORDS_PER_SESSION_BITS: u32 = 40;
const NOBODY: u32 = u32::MAX;
/// Records that wait beyond twice their number because they cannot be written: there are never so many at once that one block
/// which failed makes the difference.
const WAITING_BEYOND_MAX: usize = 256;
/// Of so many blocks in a row each has an epoch of its own.
const EPOCHS: usize = 64;

/// Words of a record that memory holds, before the checksums: key, valid units and sequence.
const HEAD_WORDS: usize = 6;

/// Records as memory holds them: without the generation, which is that of the table, and with checksums of no more units than
/// a line has.
struct Packed {
    words: Vec<u32>,
    words_each: usize,
}

impl Packed {
    fn new(records: usize, line_units: usize) -> Self {
        let words_each = HEAD_WORDS + line_units.min(UNITS_MAX);
        Self {
            words: vec![0; records * words_each],
            words_each,
        }
    }

    fn put(&mut self, place: usize, record: &Record) {
        let words = &mut self.words[place * self.words_each..][..self.words_each];
        let (head, crcs) = words.split_at_mut(HEAD_WORDS);
        // No line has this key: files are numbered from 1.
        let numbers = [record.key.unwrap_or(0), record.valid, record.sequence];
        for (words, number) in head.chunks_exact_mut(2).zip(numbers) {
            words.copy_from_slice(&[number as u32, (number >> 32) as u32]);
        }
        crcs.copy_from_slice(&record.crcs[..crcs.len()]);
    }

    fn get(&self, place: usize, generation: u64) -> Record {
        let words = &self.words[place * self.words_each..][..self.words_each];
        let (head, crcs) = words.split_at(HEAD_WORDS);
        let number = |at: usize| u64::from(head[at]) | u64::from(head[at + 1]) << 32;
        let mut record = Record {
            key: Some(number(0)).filter(|&key| key != 0),
            valid: number(2),
            generation,
            sequence: number(4),
            ..Record::default()
        };
        record.crcs[..crcs.len()].copy_from_slice(crcs);
        record
    }

    fn memory_bytes(&self) -> usize {
        self.words.capacity() * size_of::<u32>()
    }
}

/// Where the records of a shard lie on the SSD.
pub(crate) struct Records {
    shard: u32,
    uuid: Uuid,
    generation: u64,
    layout: Arc<Layout>,
}

/// Records of one block that are being written.
pub(crate) struct Batch {
    block: u64,
    records: Vec<(u32, Record)>,
}

/// What memory holds of a line table. It uses no SSD: who has it locked keeps others from their hits.
pub(crate) struct Table {
    generation: u64,
    layout: Arc<Layout>,
    /// The sequence of the record that was made last.
    sequence: u64,
    /// Changed records that wait, by slot: their places.
    pending: BTreeMap<u32, u32>,
    pending_records: Packed,
    pending_free: Vec<u32>,
    pending_max: usize,
    /// Nothing waits any more, and nothing is known of a slot that changes.
    is_given_up: bool,
    /// Blocks with a [`Batch`]: nobody else writes one of them, so that none is replaced by one that is older.
    written: Vec<u64>,
    /// Where the search for the next block goes on.
    hand: u32,
    /// How often records of a block left `pending`, of all blocks with the same remainder together. What was read of a block
    /// before the last time may be older than what left. By block, as else who reads a record would have to read it again
    /// whenever any other block was written meanwhile.
    epochs: [u64; EPOCHS],
    /// The slots whose records are held as they are on the SSD, each at its remainder.
    cached: Vec<u32>,
    cached_records: Packed,
}

impl Records {
    pub(crate) fn new(shard: u32, uuid: Uuid, generation: u64, layout: Arc<Layout>) -> Self {
        Self {
            shard,
            uuid,
            generation,
            layout,
        }
    }

    fn decode(&self, slot: u32, bytes: &[u8]) -> Record {
        let number = self.layout.record_number(self.shard, slot);
        Record::decode(&self.uuid, number, bytes)
            .filter(|record| record.generation == self.generation)
            .unwrap_or_default()
    }

    /// The record of a slot on the SSD. A damaged one, and one of another generation, is that of an empty slot.
    pub(crate) fn read(&self, slot: u32, ssd: &Ssd) -> io::Result<Record> {
        let (block, index) = self.layout.record_place(slot);
        let record_bytes = self.layout.record_bytes();
        let offset = self.layout.table(self.shard, block) + (index * record_bytes) as u64;
        // Not the whole block: less than a block comes from the page cache, where the records of busy lines stay, so
        // that a hit waits for the SSD once and not twice.
        let bytes = ssd.read(record_bytes, offset)?;
        Ok(self.decode(slot, &bytes))
    }

    /// Writes records with what lies beside them.
    pub(crate) fn write(&self, batch: &Batch, ssd: &Ssd) -> io::Result<()> {
        let record_bytes = self.layout.record_bytes();
        let offset = self.layout.table(self.shard, batch.block);
        let mut bytes = if batch.records.len() < self.layout.records_per_block() {
            // Of one that cannot be read nobody will read the others: their lines are void, and it can be written.
            let read = ssd.read(BLOCK_BYTES as usize, offset);
            read.unwrap_or_else(|_| Aligned::new(BLOCK_BYTES as usize))
        } else {
            Aligned::new(BLOCK_BYTES as usize)
        };
        for (slot, record) in &batch.records {
            let number = self.layout.record_number(self.shard, *slot);
            let (_, index) = self.layout.record_place(*slot);
            record.encode(
                &self.uuid,
                number,
                &mut bytes[index * record_bytes..][..record_bytes],
            );
        }
        ssd.write(Area::LineTable, bytes, offset)
    }

    /// Passes the record of each slot that has one to `visit`, as the SSD holds it.
    pub(crate) fn scan(&self, slots: u32, ssd: &Ssd, visit: &mut dyn FnMut(u32, Record)) -> io::Result<()> {
        const BLOCKS_AT_ONCE: u64 = 256;
        let blocks = self.layout.table_blocks();
        let mut first = 0;
        while first < blocks {
            let count = BLOCKS_AT_ONCE.min(self.layout.table_blocks_after(first));
            let bytes = ssd.read(
                (count * BLOCK_BYTES) as usize,
                self.layout.table(self.shard, first),
            )?;
            for (block, bytes) in (first..).zip(bytes.chunks_exact(BLOCK_BYTES as usize)) {
                let of_block = self.layout.slots_of_block(block);
                for (slot, bytes) in of_block.zip(bytes.chunks_exact(self.layout.record_bytes())) {
                    // Of a cache that was made smaller there are more.
                    if slot >= slots {
                        return Ok(());
                    }
                    let record = self.decode(slot, bytes);
                    if record.key.is_some() {
                        visit(slot, record);
                    }
                }
            }
            first += count;
        }
        Ok(())
    }
}

impl Table {
    pub(crate) fn new(
        slots: u32,
        generation: u64,
        session: u64,
        layout: Arc<Layout>,
        pending_max: usize,
    ) -> Self {
        let line_units = layout.line_units();
        let record_bytes = (1 + HEAD_WORDS + line_units) * size_of::<u32>();
        let least = slots.min((CACHED_BYTES_MIN / record_bytes) as u32 / layout.shards());
        let cached = slots.div_ceil(SLOTS_PER_CACHED_RECORD).max(least) as usize;
        Self {
            generation,
            layout,
            sequence: session << RECORDS_PER_SESSION_BITS,
            pending: BTreeMap::new(),
            pending_records: Packed::new(0, line_units),
            pending_free: Vec::new(),
            pending_max: pending_max.max(1),
            is_given_up: false,
            written: Vec::new(),
            hand: 0,
            epochs: [0; EPOCHS],
            cached: vec![NOBODY; cached],
            cached_records: Packed::new(cached, line_units),
        }
    }

    /// The record of a slot, if memory has it.
    pub(crate) fn get(&self, slot: u32) -> Option<Record> {
        if let Some(&place) = self.pending.get(&slot) {
            return Some(self.pending_records.get(place as usize, self.generation));
        }
        let place = slot as usize % self.cached.len();
        (self.cached[place] == slot).then(|| self.cached_records.get(place, self.generation))
    }

    /// The epoch of a slot's block.
    pub(crate) fn epoch(&self, slot: u32) -> u64 {
        self.epochs[self.layout.record_place(slot).0 as usize % EPOCHS]
    }

    /// Keeps a record that memory did not have and that was read from the SSD since an epoch. Whether it is known to be the
    /// newest one.
    pub(crate) fn learn(&mut self, slot: u32, record: &Record, epoch: u64) -> bool {
        let is_newest = epoch == self.epoch(slot) && !self.pending.contains_key(&slot) && !self.is_given_up;
        if is_newest {
            self.cache(slot, record);
        }
        is_newest
    }

    fn cache(&mut self, slot: u32, record: &Record) {
        let place = slot as usize % self.cached.len();
        self.cached[place] = slot;
        self.cached_records.put(place, record);
    }

    /// A changed record waits.
    fn set_pending(&mut self, slot: u32, record: &Record) {
        let place = self.pending.get(&slot).copied().unwrap_or_else(|| {
            let records = &mut self.pending_records;
            let place = self.pending_free.pop().unwrap_or_else(|| {
                records.words.resize(records.words.len() + records.words_each, 0);
                (records.words.len() / records.words_each - 1) as u32
            });
            self.pending.insert(slot, place);
            place
        });
        self.pending_records.put(place as usize, record);
    }

    /// Replaces the record of a slot. It waits until somebody takes it along with a [`Batch`].
    pub(crate) fn put(&mut self, slot: u32, record: &Record) {
        self.sequence += 1;
        let record = Record {
            generation: self.generation,
            sequence: self.sequence,
            ..*record
        };
        if !self.is_given_up {
            self.set_pending(slot, &record);
        }
        let place = slot as usize % self.cached.len();
        if self.cached[place] == slot {
            self.cached[place] = NOBODY;
        }
    }

    /// Whether more records wait than there is room for.
    #[inline]
    pub(crate) fn has_excess(&self) -> bool {
        self.pending.len() >= self.pending_max
    }

    /// Whether so many wait that the SSD takes none any more: many more than there is room for are not even being written.
    pub(crate) fn is_stuck(&self) -> bool {
        let being_written = self.written.len() * self.layout.records_per_block();
        self.pending.len() > 2 * self.pending_max + WAITING_BEYOND_MAX + being_written
    }

    /// The SSD was given up: nothing waits for it from now on.
    pub(crate) fn give_up(&mut self) {
        self.is_given_up = true;
        self.pending.clear();
        self.pending_records.words = Vec::new();
        self.pending_free = Vec::new();
    }

    /// Some of the records that wait: those of the next block that nobody writes.
    pub(crate) fn take_next(&mut self) -> Option<Batch> {
        let block = self.next_block(self.hand).or_else(|| self.next_block(0))?;
        self.hand = self.layout.slots_of_block(block).end;
        Some(self.take(block))
    }

    fn next_block(&self, mut slot: u32) -> Option<u64> {
        loop {
            let (&next, _) = self.pending.range(slot..).next()?;
            let (block, _) = self.layout.record_place(next);
            if !self.written.contains(&block) {
                return Some(block);
            }
            slot = self.layout.slots_of_block(block).end;
        }
    }

    fn take(&mut self, block: u64) -> Batch {
        self.written.push(block);
        let of_block = self.pending.range(self.layout.slots_of_block(block));
        Batch {
            block,
            records: of_block
                .map(|(&slot, &place)| (slot, self.pending_records.get(place as usize, self.generation)))
                .collect(),
        }
    }

    /// The blocks for which records wait.
    pub(crate) fn pending_blocks(&self) -> Vec<u64> {
        let of = |&slot: &u32| self.layout.record_place(slot).0;
        let mut blocks: Vec<u64> = self.pending.keys().map(of).collect();
        blocks.dedup();
        blocks
    }

    /// The slots whose records wait, and the sequences of these.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> Vec<(u32, u64)> {
        let sequence = |place: u32| self.pending_records.get(place as usize, self.generation).sequence;
        let of = |(&slot, &place): (&u32, &u32)| (slot, sequence(place));
        self.pending.iter().map(of).collect()
    }

    /// Whether records wait.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Whether somebody writes a block.
    pub(crate) fn is_written(&self, block: u64) -> bool {
        self.written.contains(&block)
    }

    /// The records that wait for a block that nobody writes; `None` if there are none any more.
    pub(crate) fn take_block(&mut self, block: u64) -> Option<Batch> {
        let mut waiting = self.pending.range(self.layout.slots_of_block(block));
        waiting.next().is_some().then(|| self.take(block))
    }

    /// A batch was written, or not: then its records wait on. So do those that replaced some of them meanwhile.
    pub(crate) fn end_batch(&mut self, batch: &Batch, is_written: bool) {
        self.written.retain(|&block| block != batch.block);
        for (slot, record) in batch.records.iter().filter(|_| is_written) {
            let Some(&place) = self.pending.get(slot) else {
                continue;
            };
            let newest = self.pending_records.get(place as usize, self.generation).sequence;
            if newest == record.sequence || is_made(Mutant::NewerRecordIsForgotten) {
                self.pending.remove(slot);
                self.pending_free.push(place);
                self.cache(*slot, record);
            }
        }
        self.epochs[batch.block as usize % EPOCHS] += 1;
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        // A B-tree holds about two thirds of what its nodes have room for.
        let entry =
            size_of::<(u32, u32)>() * 3 / 2 + size_of::<u32>() * (1 + self.pending_records.words_each);
        self.cached.capacity() * size_of::<u32>()
            + self.cached_records.memory_bytes()
            + self.pending_max.max(self.pending.len() + self.pending_free.len()) * entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{EXTENTS_MAX, Extent, Geometry};

    #[test]
    fn a_packed_record_is_the_same_with_each_line_size() {
        for units in [4, 16, 64] {
            let mut packed = Packed::new(3, units);
            let mut record = Record {
                key: Some(7 << 32 | 9),
                valid: u64::MAX >> (64 - units),
                generation: 5,
                sequence: 6 << 40 | 1,
                ..Record::default()
            };
            for unit in 0..units {
                record.crcs[unit] = 0x0101_0101 * unit as u32 + 1;
            }
            packed.put(1, &record);
            assert_eq!(packed.get(1, 5), record);
            let nothing = Record {
                generation: 5,
                ..Record::default()
            };
            assert_eq!([0, 2].map(|place| packed.get(place, 5)), [nothing; 2]);
        }
    }

    #[test]
    fn what_was_read_is_the_newest_unless_a_batch_of_its_own_block_has_ended() {
        let geometry = Geometry {
            line_bytes: 65_536,
            shards: 1,
            slots: 0,
            region_bytes: 1 << 22,
            intent_bits: 64,
            extents: [Extent::default(); EXTENTS_MAX],
        };
        let layout = Arc::new(geometry.with_slots(1000).layout());
        let mut table = Table::new(1000, 1, 1, layout, 8);
        let record = Record {
            key: Some(1 << 32),
            ..Record::default()
        };
        let end_batch_of = |table: &mut Table, slot| {
            table.put(slot, &record);
            let batch = table.take_block(table.layout.record_place(slot).0);
            table.end_batch(&batch.expect("a record waits"), true);
        };
        let epoch = table.epoch(5);
        end_batch_of(&mut table, 500);
        assert!(
            table.learn(5, &record, epoch),
            "the batch was one of another block"
        );
        end_batch_of(&mut table, 6);
        assert!(
            !table.learn(5, &record, epoch),
            "the record may have been in the batch"
        );
        let epoch = table.epoch(5);
        assert!(table.learn(5, &record, epoch));
        table.put(5, &record);
        assert!(!table.learn(5, &record, epoch), "a newer one waits");
    }
}
