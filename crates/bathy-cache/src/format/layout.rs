//! Where the areas are.

use bathy_cache_model::{LineSize, stage_lines};

use super::file_record::FILES_PER_BLOCK;
use super::intent_sector::{REGIONS_PER_SECTOR, SECTOR_BYTES};
use super::record::{RECORDS_PER_BLOCK, UNIT_BYTES, UNITS_MAX};
use super::state::ENTRIES_PER_BLOCK;

/// What is read and written at once of everything but data.
pub const BLOCK_BYTES: u64 = 4096;

const INTENT_START_BLOCK: u64 = 16;
/// The data begin at a multiple of this.
const DATA_ALIGNMENT_BLOCKS: u64 = 256;
/// Slots of the cache for each file of the file table: 2.5 bytes of memory and 32 bytes of SSD a slot.
const SLOTS_PER_FILE: u64 = 8;
/// A small cache has as many files as slots up to this: programs keep some hundreds open at once (FileStore 128 and its
/// database), and one that came when all others had a record would never be cached.
const FILES_OF_SMALL: u64 = 1024;
const FILES_MIN: u64 = 64;
const SECTORS_PER_BLOCK: u64 = BLOCK_BYTES / SECTOR_BYTES as u64;

/// The sizes that all else follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a line: a power of two, 4 KiB to 64 KiB.
    pub line_bytes: u32,
    /// The cache is divided into so many parts that share nothing; keys are dealt out by their hash.
    pub shards: u32,
    /// Slots of each shard, those in memory included: their place on the SSD is used at a clean stop.
    pub slots: u32,
    /// Bytes of a file that one bit of intent stands for: a power of two, at least a line.
    pub region_bytes: u64,
    /// Bits of intent. Regions of files share them by a hash.
    pub intent_bits: u64,
}

/// A geometry that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GeometryError {
    /// A line size that is not supported.
    #[error("the line size must be a power of two from 4096 to 65536 bytes (got {0})")]
    Line(u32),
    /// A region size that is not supported.
    #[error("the region size must be a power of two from the line size to 2^40 bytes (got {0})")]
    Region(u64),
    /// No shards, too many, or no slots.
    #[error("a cache must have 1 to 1024 shards (got {0}) of 1 to 2^30 slots (got {1})")]
    Slots(u32, u32),
    /// A bitmap that no SSD holds.
    #[error("a cache must have 1 to 2^32 bits of intent (got {0})")]
    IntentBits(u64),
}

impl Geometry {
    /// # Errors
    /// If a size is not supported.
    pub fn check(&self) -> Result<(), GeometryError> {
        let line = u64::from(self.line_bytes);
        if !line.is_power_of_two() || !(UNIT_BYTES..=UNIT_BYTES * UNITS_MAX as u64).contains(&line) {
            return Err(GeometryError::Line(self.line_bytes));
        }
        if !self.region_bytes.is_power_of_two() || !(line..=1 << 40).contains(&self.region_bytes) {
            return Err(GeometryError::Region(self.region_bytes));
        }
        if !(1..=1024).contains(&self.shards) || !(1..=1 << 30).contains(&self.slots) {
            return Err(GeometryError::Slots(self.shards, self.slots));
        }
        if !(1..=1 << 32).contains(&self.intent_bits) {
            return Err(GeometryError::IntentBits(self.intent_bits));
        }
        Ok(())
    }

    /// The largest cache that fits an SSD of `ssd_bytes`; `None` if not even one slot a shard does.
    #[must_use]
    pub fn that_fits(mut self, ssd_bytes: u64) -> Option<Self> {
        let (mut fits, mut too_large) = (0, (ssd_bytes / u64::from(self.line_bytes)).min(1 << 30) + 1);
        while too_large - fits > 1 {
            let slots = fits.midpoint(too_large);
            self.slots = slots as u32;
            if self.layout().end() <= ssd_bytes {
                fits = slots;
            } else {
                too_large = slots;
            }
        }
        self.slots = fits as u32;
        (fits > 0).then_some(self)
    }

    /// The line size.
    ///
    /// # Panics
    /// If [`check`](Self::check) refuses the geometry.
    pub fn line(&self) -> LineSize {
        LineSize::new(u64::from(self.line_bytes)).expect("the geometry was checked")
    }

    /// Of the slots of a shard, those in memory: the last ones.
    pub fn stage_slots(&self) -> u32 {
        stage_lines(u64::from(self.slots), self.line()) as u32
    }

    /// Slots of all shards.
    pub fn slots_total(&self) -> u64 {
        u64::from(self.slots) * u64::from(self.shards)
    }

    /// Files that can have lines at once: one for eight slots, in a small cache more.
    pub fn files_max(&self) -> u32 {
        let of_small = self.slots_total().clamp(FILES_MIN, FILES_OF_SMALL);
        (self.slots_total() / SLOTS_PER_FILE).clamp(of_small, u64::from(u32::MAX)) as u32
    }

    /// Where the areas are.
    pub fn layout(&self) -> Layout {
        let shards = u64::from(self.shards);
        let slots = u64::from(self.slots);
        let intent_sectors = self.intent_bits.div_ceil(REGIONS_PER_SECTOR);
        let files_start = INTENT_START_BLOCK + intent_sectors.div_ceil(SECTORS_PER_BLOCK);
        let file_blocks = u64::from(self.files_max()).div_ceil(FILES_PER_BLOCK as u64);
        let state_start = files_start + file_blocks;
        // A line or hole for each slot, as many ghosts, and the hands.
        let state_blocks = (2 * slots + 1).div_ceil(ENTRIES_PER_BLOCK as u64);
        let table_start = state_start + shards * state_blocks;
        let table_blocks = slots.div_ceil(RECORDS_PER_BLOCK as u64);
        let data_start = (table_start + shards * table_blocks).next_multiple_of(DATA_ALIGNMENT_BLOCKS);
        Layout {
            geometry: *self,
            intent_sectors,
            files_start,
            file_blocks,
            state_start,
            state_blocks,
            table_start,
            table_blocks,
            data_start,
        }
    }
}

/// Where the areas of a [`Geometry`] are. Shards are counted from 0, and so are the slots and blocks of each.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    geometry: Geometry,
    intent_sectors: u64,
    files_start: u64,
    file_blocks: u64,
    state_start: u64,
    state_blocks: u64,
    table_start: u64,
    table_blocks: u64,
    data_start: u64,
}

impl Layout {
    /// The offset of superblock 0 or 1.
    pub fn superblock(&self, number: u64) -> u64 {
        number * BLOCK_BYTES
    }

    /// Sectors of the intent bitmap.
    pub fn intent_sectors(&self) -> u64 {
        self.intent_sectors
    }

    /// The offset of the intent bitmap.
    pub fn intent(&self) -> u64 {
        INTENT_START_BLOCK * BLOCK_BYTES
    }

    /// Blocks of the file table.
    pub fn file_blocks(&self) -> u64 {
        self.file_blocks
    }

    /// The offset of a block of the file table.
    pub fn files(&self, block: u64) -> u64 {
        (self.files_start + block) * BLOCK_BYTES
    }

    /// Blocks of state of each shard at most.
    pub fn state_blocks(&self) -> u64 {
        self.state_blocks
    }

    /// The offset of a block of state.
    pub fn state(&self, shard: u32, block: u64) -> u64 {
        (self.state_start + u64::from(shard) * self.state_blocks + block) * BLOCK_BYTES
    }

    /// Blocks of the line table of each shard.
    pub fn table_blocks(&self) -> u64 {
        self.table_blocks
    }

    /// The offset of a block of the line table.
    pub fn table(&self, shard: u32, block: u64) -> u64 {
        (self.table_start + u64::from(shard) * self.table_blocks + block) * BLOCK_BYTES
    }

    /// The offset of the data of a slot.
    pub fn data(&self, shard: u32, slot: u32) -> u64 {
        let slot = u64::from(shard) * u64::from(self.geometry.slots) + u64::from(slot);
        self.data_start * BLOCK_BYTES + slot * u64::from(self.geometry.line_bytes)
    }

    /// The number that the seal of a record covers.
    pub fn record_number(&self, shard: u32, slot: u32) -> u64 {
        u64::from(shard) << 32 | u64::from(slot)
    }

    /// The byte after the last.
    pub fn end(&self) -> u64 {
        self.data(self.geometry.shards, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn areas_lie_one_after_the_other_and_the_largest_that_fits_is_found(
            shards in 1u32..9, line_log in 12u32..17, ssd_bytes in 1u64 << 20..1 << 36, intent_bits in 1u64..1 << 20,
        ) {
            let geometry = Geometry { line_bytes: 1 << line_log, shards, slots: 1, region_bytes: 1 << 22, intent_bits };
            let Some(geometry) = geometry.that_fits(ssd_bytes) else {
                return Ok(());
            };
            prop_assert_eq!(geometry.check(), Ok(()));
            let layout = geometry.layout();
            prop_assert!(layout.end() <= ssd_bytes);
            let next = Geometry { slots: geometry.slots + 1, ..geometry };
            prop_assert!(next.layout().end() > ssd_bytes);
            let intent_end = layout.intent() + layout.intent_sectors() * SECTOR_BYTES as u64;
            prop_assert!(intent_end <= layout.files(0));
            prop_assert_eq!(layout.files(layout.file_blocks()), layout.state(0, 0));
            prop_assert_eq!(layout.state(shards, 0), layout.table(0, 0));
            prop_assert!(layout.table(shards, 0) <= layout.data(0, 0));
            prop_assert_eq!(layout.data(0, geometry.slots), layout.data(1, 0));
        }
    }
}
