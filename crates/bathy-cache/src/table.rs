//! The line table: the records of a shard's slots, of which memory holds few.
//!
//! A record that changed waits in `pending` and is written with its neighbours, because a block holds those of 32 slots and
//! lines enter in the order of slots. What a power cut takes with it are only lines: see "Records may be late" in README.md.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use crate::aligned::Aligned;
use crate::counters::Area;
use crate::format::{BLOCK_BYTES, Layout, RECORD_BYTES, RECORDS_PER_BLOCK, Record, Uuid};
use crate::health::Ssd;

/// One cached record for so many slots: 14 bytes a line.
const SLOTS_PER_CACHED_RECORD: u32 = 8;
/// A cache has room for so many at least, if it has as many slots: 3.5 MiB. One that has no room costs a hit a system call.
const CACHED_RECORDS_MIN: u32 = 32_768;
/// Sequences go on from session to session, so that none needs to know how far the last one came.
const RECORDS_PER_SESSION_BITS: u32 = 40;
const NOBODY: u32 = u32::MAX;

pub(crate) struct Table {
    shard: u32,
    uuid: Uuid,
    generation: u64,
    layout: Arc<Layout>,
    /// The sequence of the record that was made last.
    sequence: u64,
    pending: BTreeMap<u32, Record>,
    pending_max: usize,
    /// Records as they are on the SSD, each at its slot's remainder.
    cached: Vec<(u32, Record)>,
}

impl Table {
    pub(crate) fn new(
        shard: u32,
        slots: u32,
        uuid: Uuid,
        generation: u64,
        session: u64,
        layout: Arc<Layout>,
        pending_max: usize,
    ) -> Self {
        let least = slots.min(CACHED_RECORDS_MIN / layout.shards());
        let cached = slots.div_ceil(SLOTS_PER_CACHED_RECORD).max(least) as usize;
        Self {
            shard,
            uuid,
            generation,
            layout,
            sequence: session << RECORDS_PER_SESSION_BITS,
            pending: BTreeMap::new(),
            pending_max: pending_max.max(1),
            cached: vec![(NOBODY, Record::default()); cached],
        }
    }

    fn decode(&self, slot: u32, bytes: &[u8]) -> Record {
        let number = self.layout.record_number(self.shard, slot);
        Record::decode(&self.uuid, number, bytes)
            .filter(|record| record.generation == self.generation)
            .unwrap_or_default()
    }

    /// The record of a slot. A damaged one, and one of another generation, is that of an empty slot.
    pub(crate) fn get(&mut self, slot: u32, ssd: &Ssd) -> io::Result<Record> {
        if let Some(record) = self.pending.get(&slot) {
            return Ok(*record);
        }
        let place = slot as usize % self.cached.len();
        if self.cached[place].0 != slot {
            let (block, index) = self.layout.record_place(slot);
            let offset = self.layout.table(self.shard, block) + (index * RECORD_BYTES) as u64;
            // Not the whole block: less than a block comes from the page cache, where the records of busy lines stay, so
            // that a hit waits for the SSD once and not twice.
            let bytes = ssd.read(RECORD_BYTES, offset)?;
            let record = self.decode(slot, &bytes);
            self.cached[place] = (slot, record);
        }
        Ok(self.cached[place].1)
    }

    /// Replaces the record of a slot. Records that cannot be written wait for the next time.
    pub(crate) fn put(&mut self, slot: u32, record: Record, ssd: &Ssd) {
        self.sequence += 1;
        let record = Record {
            generation: self.generation,
            sequence: self.sequence,
            ..record
        };
        self.pending.insert(slot, record);
        let place = slot as usize % self.cached.len();
        if self.cached[place].0 == slot {
            self.cached[place].0 = NOBODY;
        }
        if self.pending.len() >= self.pending_max {
            // Errors are counted by the SSD, and too many end its use.
            let _ = self.write_out(ssd);
        }
    }

    /// Writes what is pending. Flushed by the caller, if at all.
    pub(crate) fn write_out(&mut self, ssd: &Ssd) -> io::Result<()> {
        while let Some((&slot, _)) = self.pending.first_key_value() {
            let (block, _) = self.layout.record_place(slot);
            let of_block: Vec<(u32, Record)> = self
                .pending
                .range(self.layout.slots_of_block(block))
                .map(|(&slot, &record)| (slot, record))
                .collect();
            let offset = self.layout.table(self.shard, block);
            let mut bytes = if of_block.len() < RECORDS_PER_BLOCK {
                ssd.read(BLOCK_BYTES as usize, offset)?
            } else {
                Aligned::new(BLOCK_BYTES as usize)
            };
            for &(slot, record) in &of_block {
                let number = self.layout.record_number(self.shard, slot);
                let (_, index) = self.layout.record_place(slot);
                bytes[index * RECORD_BYTES..][..RECORD_BYTES]
                    .copy_from_slice(&record.encode(&self.uuid, number));
            }
            ssd.write(Area::LineTable, bytes, offset)?;
            for (slot, record) in of_block {
                self.pending.remove(&slot);
                let place = slot as usize % self.cached.len();
                self.cached[place] = (slot, record);
            }
        }
        Ok(())
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
                for (slot, bytes) in of_block.zip(bytes.chunks_exact(RECORD_BYTES)) {
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

    pub(crate) fn memory_bytes(&self) -> usize {
        // A B-tree holds about two thirds of what its nodes have room for.
        let entry = size_of::<(u32, Record)>();
        self.cached.capacity() * entry + self.pending_max * entry * 3 / 2
    }
}
