//! Where the areas are.

use std::ops::Range;

use bathy_cache_model::memory::LINES_PER_FILE;
use bathy_cache_model::{LineSize, MemoryBudget};

use super::file_record::FILES_PER_BLOCK;
use super::intent_sector::{REGIONS_PER_SECTOR, SECTOR_BYTES};
use super::record::{UNIT_BYTES, UNITS_MAX, record_bytes};
use super::sealed::BLOCK_BYTES;
use super::state::entries_per_block;

const INTENT_START_BLOCK: u64 = 16;
/// The data begin at a multiple of this.
const DATA_ALIGNMENT_BLOCKS: u64 = 256;
/// A small cache has as many files as slots up to this: programs keep some hundreds open at once (`FileStore` 128 and its
/// database), and one that came when all others had a record would never be cached.
const FILES_OF_SMALL: u64 = 1024;
const FILES_MIN: u64 = 64;
const SLOTS_MAX: u32 = 1 << 30;
const SECTORS_PER_BLOCK: u64 = BLOCK_BYTES / SECTOR_BYTES as u64;

/// A cache that grew more often must be made anew.
pub const EXTENTS_MAX: usize = 16;
/// No SSD is so large: arithmetic with places cannot overflow.
const START_BLOCK_MAX: u64 = 1 << 48;

/// A part of the SSD with all areas of its own but the intent bitmap. A cache is made with one and gets another when it grows,
/// so nothing that is there has to move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Where it begins, in blocks.
    pub start_block: u64,
    /// Slots of each shard that it has room for; 0 if there is no such extent.
    pub slots: u32,
}

/// The sizes that all else follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a line: a power of two, 4 KiB to 256 KiB.
    pub line_bytes: u32,
    /// The cache is divided into so many parts that share nothing; keys are dealt out by their hash.
    pub shards: u32,
    /// Slots of each shard, those in memory included: their place on the SSD is used at a clean stop. After the cache was made
    /// smaller the last extent has room for more.
    pub slots: u32,
    /// Bytes of a file that one bit of intent stands for: a power of two, at least a line.
    pub region_bytes: u64,
    /// Bits of intent. Regions of files share them by a hash.
    pub intent_bits: u64,
    /// The slots are in these, one after the other.
    pub extents: [Extent; EXTENTS_MAX],
}

/// A geometry that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GeometryError {
    /// A line size that is not supported.
    #[error("the line size must be a power of two from 4096 to 262144 bytes (got {0})")]
    Line(u32),
    /// A region size that is not supported.
    #[error("the region size must be a power of two from the line size to 2^40 bytes (got {0})")]
    Region(u64),
    /// No shards, too many, or no slots.
    #[error("a cache must have 1 to 1024 shards (got {0}) of 1 to 2^30 slots (got {1})")]
    Slots(u32, u32),
    /// Extents that overlap, or do not have the slots.
    #[error("its extents do not hold its slots")]
    Extents,
    /// A bitmap that no SSD holds.
    #[error("a cache must have 1 to 2^32 bits of intent (got {0})")]
    IntentBits(u64),
}

impl Geometry {
    /// With one extent of so many slots.
    #[must_use]
    pub fn with_slots(mut self, slots: u32) -> Self {
        self.slots = slots;
        self.extents = [Extent::default(); EXTENTS_MAX];
        self.extents[0] = Extent {
            start_block: self.intent_end_block(),
            slots,
        };
        self
    }

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
        if !(1..=1024).contains(&self.shards) || !(1..=SLOTS_MAX).contains(&self.slots) {
            return Err(GeometryError::Slots(self.shards, self.slots));
        }
        if !(1..=1 << 32).contains(&self.intent_bits) {
            return Err(GeometryError::IntentBits(self.intent_bits));
        }
        let (mut free_block, mut slots) = (self.intent_end_block(), 0);
        let count = self.extents_count();
        for extent in &self.extents[..count] {
            let is_needed = slots < self.slots;
            if !is_needed
                || extent.slots > SLOTS_MAX
                || !(free_block..START_BLOCK_MAX).contains(&extent.start_block)
            {
                return Err(GeometryError::Extents);
            }
            free_block = self.areas(extent).end_block(self);
            slots += extent.slots;
        }
        let is_rest_empty = self.extents[count..]
            .iter()
            .all(|extent| *extent == Extent::default());
        if slots < self.slots || slots > 2 * SLOTS_MAX || !is_rest_empty {
            return Err(GeometryError::Extents);
        }
        Ok(())
    }

    fn extents_count(&self) -> usize {
        let is_there = |extent: &&Extent| extent.slots != 0;
        self.extents.iter().take_while(is_there).count()
    }

    fn intent_end_block(&self) -> u64 {
        INTENT_START_BLOCK
            + self
                .intent_bits
                .div_ceil(REGIONS_PER_SECTOR)
                .div_ceil(SECTORS_PER_BLOCK)
    }

    /// The largest cache that fits an SSD of `ssd_bytes`; `None` if not even one slot a shard does.
    #[must_use]
    pub fn that_fits(self, ssd_bytes: u64) -> Option<Self> {
        let slots = self.slots_that_fit(self.intent_end_block(), ssd_bytes, SLOTS_MAX);
        (slots > 0).then(|| self.with_slots(slots))
    }

    /// The slots of each shard, at most so many, that an extent can have which ends by `end_bytes`.
    fn slots_that_fit(&self, start_block: u64, end_bytes: u64, slots_max: u32) -> u32 {
        let in_bytes = end_bytes / u64::from(self.line_bytes);
        let (mut fits, mut too_large) = (0, in_bytes.min(u64::from(slots_max)) + 1);
        while too_large - fits > 1 {
            let slots = fits.midpoint(too_large);
            let extent = Extent {
                start_block,
                slots: slots as u32,
            };
            if self.areas(&extent).end_block(self) * BLOCK_BYTES <= end_bytes {
                fits = slots;
            } else {
                too_large = slots;
            }
        }
        fits as u32
    }

    /// The same cache with another size: the largest that ends by `end_bytes`. Every slot that both have is where it was.
    /// `None` if not even one slot a shard fits, or if it grew too often.
    #[must_use]
    pub fn resized(mut self, end_bytes: u64) -> Option<Self> {
        let count = self.extents_count();
        self.slots = 0;
        for number in 0..count {
            let extent = self.extents[number];
            let room = end_bytes.saturating_sub(self.areas(&extent).data_start * BLOCK_BYTES);
            let fits = (room / self.slot_bytes()).min(u64::from(extent.slots)) as u32;
            self.slots += fits;
            if fits < extent.slots {
                // Of an extent that is used in part the tables stay whole, and its slots come back when the cache grows.
                let kept = number + usize::from(fits > 0);
                self.extents[kept..].fill(Extent::default());
                return (self.slots > 0).then_some(self);
            }
        }
        let last = self.areas(&self.extents[count - 1]);
        let start_block = last.end_block(&self);
        let slots = self.slots_that_fit(start_block, end_bytes, SLOTS_MAX - self.slots);
        if slots > 0 {
            *self.extents.get_mut(count)? = Extent { start_block, slots };
            self.slots += slots;
        }
        Some(self)
    }

    /// Units of a line.
    pub fn line_units(&self) -> usize {
        (u64::from(self.line_bytes) / UNIT_BYTES) as usize
    }

    /// Records of a block of the line table.
    fn records_per_block(&self) -> u64 {
        BLOCK_BYTES / record_bytes(self.line_units()) as u64
    }

    /// Bytes of the data of one slot of each shard.
    fn slot_bytes(&self) -> u64 {
        u64::from(self.shards) * u64::from(self.line_bytes)
    }

    /// The line size.
    ///
    /// # Panics
    /// If [`check`](Self::check) refuses the geometry.
    pub fn line(&self) -> LineSize {
        LineSize::new(u64::from(self.line_bytes)).expect("the geometry was checked")
    }

    /// Of the slots of a shard, those in memory with this budget: the last ones. All shards together have the stage.
    pub fn stage_slots(&self, memory: MemoryBudget) -> u32 {
        if self.slots < 2 {
            return 0;
        }
        let lines = memory.stage_lines(self.slots_total(), self.line());
        (lines / u64::from(self.shards)).max(1) as u32
    }

    /// Slots of all shards.
    pub fn slots_total(&self) -> u64 {
        u64::from(self.slots) * u64::from(self.shards)
    }

    /// Files that can have lines at once: one for eight slots that there is room for, in a small cache more.
    pub fn files_max(&self) -> u32 {
        let files = self.layout().file_blocks() * FILES_PER_BLOCK as u64;
        files.min(u64::from(u32::MAX)) as u32
    }

    /// The areas of an extent, as if it was the first.
    fn areas(&self, extent: &Extent) -> Areas {
        let (shards, slots) = (u64::from(self.shards), u64::from(extent.slots));
        let of_small = (shards * slots).clamp(FILES_MIN, FILES_OF_SMALL);
        let files = (shards * slots / LINES_PER_FILE).clamp(of_small, u64::from(u32::MAX));
        let file_blocks = files.div_ceil(FILES_PER_BLOCK as u64);
        let state_start = extent.start_block + file_blocks;
        // A line or hole for each slot, as many ghosts, and the hands.
        let state_blocks = (2 * slots + 1).div_ceil(entries_per_block(self.line_units()) as u64);
        let table_start = state_start + shards * state_blocks;
        let table_blocks = slots.div_ceil(self.records_per_block());
        Areas {
            first_slot: 0,
            slots,
            files_start: extent.start_block,
            first_file_block: 0,
            file_blocks,
            state_start,
            first_state_block: 0,
            state_blocks,
            table_start,
            first_table_block: 0,
            table_blocks,
            data_start: (table_start + shards * table_blocks).next_multiple_of(DATA_ALIGNMENT_BLOCKS),
        }
    }

    /// Where the areas are.
    pub fn layout(&self) -> Layout {
        let mut layout = Layout {
            geometry: *self,
            extents: [Areas::default(); EXTENTS_MAX],
            extents_count: self.extents_count().max(1),
        };
        let mut next = Areas::default();
        for (areas, extent) in layout.extents.iter_mut().zip(&self.extents) {
            *areas = Areas {
                first_slot: next.first_slot,
                first_file_block: next.first_file_block,
                first_state_block: next.first_state_block,
                first_table_block: next.first_table_block,
                ..self.areas(extent)
            };
            next.first_slot += areas.slots;
            next.first_file_block += areas.file_blocks;
            next.first_state_block += areas.state_blocks;
            next.first_table_block += areas.table_blocks;
        }
        layout
    }
}

/// Where the areas of an extent are, in blocks from the begin of the SSD, and what comes before it in other extents.
#[derive(Clone, Copy, Debug, Default)]
struct Areas {
    first_slot: u64,
    slots: u64,
    files_start: u64,
    first_file_block: u64,
    file_blocks: u64,
    state_start: u64,
    first_state_block: u64,
    /// Of each shard, as the next ones.
    state_blocks: u64,
    table_start: u64,
    first_table_block: u64,
    table_blocks: u64,
    data_start: u64,
}

impl Areas {
    /// The block after the last, if all slots are used; a line may be smaller than the alignment of data.
    fn end_block(&self, geometry: &Geometry) -> u64 {
        self.data_start + (self.slots * geometry.slot_bytes()).div_ceil(BLOCK_BYTES)
    }
}

/// Where the areas of a [`Geometry`] are. Shards are counted from 0, and so are the slots and blocks of each.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    geometry: Geometry,
    extents: [Areas; EXTENTS_MAX],
    extents_count: usize,
}

impl Layout {
    fn extents(&self) -> &[Areas] {
        &self.extents[..self.extents_count]
    }

    /// The last extent that does not begin after `at`, counted as `first_of` counts.
    fn extent(&self, at: u64, first_of: impl Fn(&Areas) -> u64) -> &Areas {
        let found = self.extents().iter().rev().find(|areas| first_of(areas) <= at);
        found.unwrap_or(&self.extents[0])
    }

    fn last(&self) -> &Areas {
        &self.extents[self.extents_count - 1]
    }

    /// The number of shards.
    pub fn shards(&self) -> u32 {
        self.geometry.shards
    }

    /// Units of a line.
    pub fn line_units(&self) -> usize {
        self.geometry.line_units()
    }

    /// Bytes of a record of the line table.
    pub fn record_bytes(&self) -> usize {
        record_bytes(self.line_units())
    }

    /// Records of a block of the line table.
    pub fn records_per_block(&self) -> usize {
        self.geometry.records_per_block() as usize
    }

    /// The offset of superblock 0 or 1.
    pub fn superblock(&self, number: u64) -> u64 {
        number * BLOCK_BYTES
    }

    /// The offset of a block that holds nothing: who wonders whether the SSD answers may write there.
    pub fn scratch(&self) -> u64 {
        (INTENT_START_BLOCK - 1) * BLOCK_BYTES
    }

    /// Sectors of the intent bitmap.
    pub fn intent_sectors(&self) -> u64 {
        self.geometry.intent_bits.div_ceil(REGIONS_PER_SECTOR)
    }

    /// The offset of the intent bitmap.
    pub fn intent(&self) -> u64 {
        INTENT_START_BLOCK * BLOCK_BYTES
    }

    /// Blocks of the file table.
    pub fn file_blocks(&self) -> u64 {
        self.extents().iter().map(|areas| areas.file_blocks).sum()
    }

    /// The offset of a block of the file table.
    pub fn files(&self, block: u64) -> u64 {
        let areas = self.extent(block, |areas| areas.first_file_block);
        (areas.files_start + block - areas.first_file_block) * BLOCK_BYTES
    }

    /// Blocks of state of each shard at most.
    pub fn state_blocks(&self) -> u64 {
        self.extents().iter().map(|areas| areas.state_blocks).sum()
    }

    /// The offset of a block of state.
    pub fn state(&self, shard: u32, block: u64) -> u64 {
        let areas = self.extent(block, |areas| areas.first_state_block);
        let of_shard = u64::from(shard) * areas.state_blocks;
        (areas.state_start + of_shard + block - areas.first_state_block) * BLOCK_BYTES
    }

    /// The block of the line table of a slot's shard that has its record, and the place of the record there.
    pub fn record_place(&self, slot: u32) -> (u64, usize) {
        let areas = self.extent(u64::from(slot), |areas| areas.first_slot);
        let in_extent = u64::from(slot) - areas.first_slot;
        let records = self.geometry.records_per_block();
        (
            areas.first_table_block + in_extent / records,
            (in_extent % records) as usize,
        )
    }

    /// The slots that have records in a block of the line table.
    pub fn slots_of_block(&self, block: u64) -> Range<u32> {
        let areas = self.extent(block, |areas| areas.first_table_block);
        let records = self.geometry.records_per_block();
        let first = (block - areas.first_table_block) * records;
        let end = (first + records).min(areas.slots);
        (areas.first_slot + first) as u32..(areas.first_slot + end) as u32
    }

    /// Blocks of the line table of each shard.
    pub fn table_blocks(&self) -> u64 {
        self.extents().iter().map(|areas| areas.table_blocks).sum()
    }

    /// The blocks of the line table from one on that lie side by side.
    pub fn table_blocks_after(&self, block: u64) -> u64 {
        let areas = self.extent(block, |areas| areas.first_table_block);
        areas.first_table_block + areas.table_blocks - block
    }

    /// The offset of a block of the line table.
    pub fn table(&self, shard: u32, block: u64) -> u64 {
        let areas = self.extent(block, |areas| areas.first_table_block);
        let of_shard = u64::from(shard) * areas.table_blocks;
        (areas.table_start + of_shard + block - areas.first_table_block) * BLOCK_BYTES
    }

    /// The offset of the data of a slot. Slots with one number lie side by side, so that a cache can be cut.
    pub fn data(&self, shard: u32, slot: u32) -> u64 {
        let areas = self.extent(u64::from(slot), |areas| areas.first_slot);
        let in_extent = (u64::from(slot) - areas.first_slot) * self.geometry.slot_bytes();
        areas.data_start * BLOCK_BYTES + in_extent + u64::from(shard) * u64::from(self.geometry.line_bytes)
    }

    /// The number that the seal of a record covers.
    pub fn record_number(&self, shard: u32, slot: u32) -> u64 {
        u64::from(shard) << 32 | u64::from(slot)
    }

    /// The byte after the last.
    pub fn end(&self) -> u64 {
        let last = self.last();
        let slots = u64::from(self.geometry.slots).saturating_sub(last.first_slot);
        last.data_start * BLOCK_BYTES + slots * self.geometry.slot_bytes()
    }

    /// The byte ranges of file table and line table that a cache with this layout has and one with `slots` and `file_blocks`
    /// has not; the last block of its line table may be among them.
    pub fn tables_beyond(&self, slots: u32, file_blocks: u64) -> Vec<Range<u64>> {
        let mut ranges = Vec::new();
        for areas in self.extents() {
            if areas.first_file_block >= file_blocks {
                let start = areas.files_start * BLOCK_BYTES;
                ranges.push(start..start + areas.file_blocks * BLOCK_BYTES);
            }
            let kept = u64::from(slots).saturating_sub(areas.first_slot).min(areas.slots);
            let kept_blocks = kept.div_ceil(self.geometry.records_per_block());
            for shard in 0..u64::from(self.geometry.shards) {
                let start = areas.table_start + shard * areas.table_blocks;
                ranges.push((start + kept_blocks) * BLOCK_BYTES..(start + areas.table_blocks) * BLOCK_BYTES);
            }
        }
        ranges.retain(|range| !range.is_empty());
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn blank(line_log: u32, shards: u32, intent_bits: u64) -> Geometry {
        Geometry {
            line_bytes: 1 << line_log,
            shards,
            slots: 0,
            region_bytes: 1 << 22,
            intent_bits,
            extents: [Extent::default(); EXTENTS_MAX],
        }
    }

    #[test]
    fn lines_of_16_kib_fill_a_tebibyte_and_larger_ones_more() {
        for (line_log, ssd_bytes, share) in
            [(14, 1 << 40, 0.988), (16, 4 << 40, 0.995), (18, 16 << 40, 0.996)]
        {
            let geometry = blank(line_log, 16, 1 << 20)
                .that_fits(ssd_bytes)
                .expect("there is room");
            assert_eq!(geometry.check(), Ok(()));
            let of_data = geometry.slots_total() as f64 * f64::from(geometry.line_bytes) / ssd_bytes as f64;
            assert!(of_data > share, "{of_data}");
        }
    }

    #[test]
    fn the_stage_of_all_shards_together_is_within_the_budget() {
        let of = |ssd_bytes: u64, memory| {
            let geometry = blank(16, 16, 1 << 20)
                .that_fits(ssd_bytes)
                .expect("there is room");
            u64::from(geometry.stage_slots(memory)) * 16 * 65_536
        };
        // It was 16 GiB and 64 GiB.
        for ssd_bytes in [1 << 40, 4 << 40] {
            assert_eq!(of(ssd_bytes, MemoryBudget::default()), 1 << 30);
            assert_eq!(of(ssd_bytes, MemoryBudget::of(1 << 30)), 256 << 20);
        }
        let small = of(16 << 30, MemoryBudget::default());
        assert!((255 << 20..=256 << 20).contains(&small), "a 64th: {small}");
        // A line for each shard, however little it may be.
        assert_eq!(of(16 << 30, MemoryBudget::of(0)), 1 << 20);
    }

    #[test]
    fn no_shard_has_more_in_memory_than_a_64th_and_one_line_at_least() {
        for shards in [1, 2, 3, 16, 64] {
            for slots in 1..2000 {
                let geometry = blank(16, shards, 1 << 20).with_slots(slots);
                let most = if slots < 2 { 0 } else { (slots / 64).max(1) };
                let stage_slots = geometry.stage_slots(MemoryBudget::default());
                assert!(
                    stage_slots <= most,
                    "{shards} shards of {slots} slots: {stage_slots}"
                );
            }
        }
    }

    proptest! {
        #[test]
        fn areas_lie_one_after_the_other_and_the_largest_that_fits_is_found(
            shards in 1u32..9, line_log in 12u32..19, ssd_bytes in 1u64 << 20..1 << 36, intent_bits in 1u64..1 << 20,
        ) {
            let geometry = blank(line_log, shards, intent_bits);
            let Some(geometry) = geometry.that_fits(ssd_bytes) else {
                return Ok(());
            };
            prop_assert_eq!(geometry.check(), Ok(()));
            let layout = geometry.layout();
            prop_assert!(layout.end() <= ssd_bytes);
            let next = geometry.with_slots(geometry.slots + 1);
            prop_assert!(next.layout().end() > ssd_bytes);
            let intent_end = layout.intent() + layout.intent_sectors() * SECTOR_BYTES as u64;
            prop_assert!(intent_end <= layout.files(0));
            prop_assert_eq!(layout.files(layout.file_blocks()), layout.state(0, 0));
            prop_assert_eq!(layout.state(shards, 0), layout.table(0, 0));
            prop_assert!(layout.table(shards, 0) <= layout.data(0, 0));
            prop_assert_eq!(layout.data(shards, 0), layout.data(0, 1));
            prop_assert_eq!(layout.data(0, geometry.slots), layout.end());
        }

        #[test]
        fn a_cache_of_another_size_has_its_slots_where_they_were_and_nothing_overlaps(
            shards in 1u32..5, line_log in 12u32..19, sizes in prop::collection::vec(1u64 << 21..1 << 26, 2..12),
        ) {
            let Some(mut geometry) = blank(line_log, shards, 64).that_fits(sizes[0]) else {
                return Ok(());
            };
            for &size in &sizes[1..] {
                let Some(next) = geometry.resized(size) else {
                    continue;
                };
                prop_assert_eq!(next.check(), Ok(()));
                let (before, after) = (geometry.layout(), next.layout());
                prop_assert!(after.end() <= size);
                for slot in 0..geometry.slots.min(next.slots) {
                    for shard in 0..shards {
                        prop_assert_eq!(before.data(shard, slot), after.data(shard, slot));
                        let place = |layout: &Layout| {
                            let (block, index) = layout.record_place(slot);
                            (layout.table(shard, block), index)
                        };
                        prop_assert_eq!(place(&before), place(&after));
                    }
                }
                let mut taken: Vec<Range<u64>> = Vec::new();
                for block in 0..after.file_blocks() {
                    taken.push(after.files(block)..after.files(block) + BLOCK_BYTES);
                }
                for shard in 0..shards {
                    let blocks = (0..after.state_blocks()).map(|block| after.state(shard, block));
                    let blocks = blocks.chain((0..after.table_blocks()).map(|block| after.table(shard, block)));
                    taken.extend(blocks.map(|start| start..start + BLOCK_BYTES));
                    let data = (0..next.slots).map(|slot| after.data(shard, slot));
                    taken.extend(data.map(|start| start..start + u64::from(next.line_bytes)));
                }
                taken.sort_unstable_by_key(|range| range.start);
                prop_assert!(taken.windows(2).all(|two| two[0].end <= two[1].start));
                prop_assert!(taken[0].start >= next.intent_end_block() * BLOCK_BYTES);
                prop_assert!(taken.last().is_some_and(|last| last.end <= size));
                // Each record has a place of its own, by which its slot is found again.
                for slot in 0..next.slots {
                    let (block, index) = after.record_place(slot);
                    prop_assert_eq!(after.slots_of_block(block).nth(index), Some(slot));
                }
                geometry = next;
            }
        }
    }
}
