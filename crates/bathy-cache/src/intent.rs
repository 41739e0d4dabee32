//! Which regions of the backing may differ from what the SSD holds of them after a power cut.

use std::collections::HashMap;
use std::io;
use std::ops::RangeInclusive;

use crate::aligned::Aligned;
use crate::format::{
    BLOCK_BYTES, Layout, REGIONS_PER_SECTOR, SECTOR_BYTES, Uuid, decode_intent, encode_intent,
};
use crate::health::Ssd;

const SECTORS_PER_BLOCK: u64 = BLOCK_BYTES / SECTOR_BYTES as u64;
const REGIONS_PER_BLOCK: u64 = SECTORS_PER_BLOCK * REGIONS_PER_SECTOR;

/// A bit for each region.
struct Bits(Vec<u64>);

impl Bits {
    fn new(bits: u64) -> Self {
        Self(vec![0; bits.div_ceil(64) as usize])
    }

    fn get(&self, bit: u64) -> bool {
        self.0
            .get((bit / 64) as usize)
            .is_some_and(|word| word >> (bit % 64) & 1 == 1)
    }

    fn set(&mut self, bit: u64, value: bool) {
        if let Some(word) = self.0.get_mut((bit / 64) as usize) {
            *word = *word & !(1 << (bit % 64)) | u64::from(value) << (bit % 64);
        }
    }

    fn ones(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.0.len() as u64 * 64).filter(|&bit| self.0[(bit / 64) as usize] != 0 && self.get(bit))
    }
}

/// The intent bitmap. A bit is set durably before the first write to its region goes to the backing, and stays set while
/// writes come.
pub(crate) struct Intent {
    uuid: Uuid,
    layout: Layout,
    /// What the SSD has for certain, or more after a bit was taken back.
    marked: Bits,
    /// Regions with a write that began since the last [`Intent::idle`].
    recent: Bits,
    /// Writes under way by region.
    writers: HashMap<u64, u32>,
}

impl Intent {
    /// With no region marked.
    pub(crate) fn new(uuid: Uuid, layout: Layout, regions: u64) -> Self {
        Self {
            uuid,
            layout,
            marked: Bits::new(regions),
            recent: Bits::new(regions),
            writers: HashMap::new(),
        }
    }

    /// The bitmap that the SSD holds: of a damaged sector all regions are marked.
    pub(crate) fn load(&mut self, ssd: &Ssd) -> io::Result<()> {
        let mut block = Aligned::new(BLOCK_BYTES as usize);
        for first in (0..self.layout.intent_sectors()).step_by(SECTORS_PER_BLOCK as usize) {
            ssd.read(&mut block, self.layout.intent() + first * SECTOR_BYTES as u64)?;
            for (number, sector) in (first..).zip(block.chunks_exact(SECTOR_BYTES)) {
                let start = number * REGIONS_PER_SECTOR;
                match decode_intent(&self.uuid, number, sector) {
                    Some(regions) => regions
                        .iter()
                        .for_each(|region| self.marked.set(start + region, true)),
                    None => {
                        (start..start + REGIONS_PER_SECTOR).for_each(|region| self.marked.set(region, true));
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes all of it.
    pub(crate) fn store(&self, ssd: &Ssd) -> io::Result<()> {
        let sectors = self.layout.intent_sectors();
        (0..sectors.div_ceil(SECTORS_PER_BLOCK)).try_for_each(|block| self.store_block(block, ssd))
    }

    fn store_block(&self, number: u64, ssd: &Ssd) -> io::Result<()> {
        let mut block = Aligned::new(BLOCK_BYTES as usize);
        let first = number * SECTORS_PER_BLOCK;
        for (number, sector) in (first..).zip(block.chunks_exact_mut(SECTOR_BYTES)) {
            let start = number * REGIONS_PER_SECTOR;
            let is_marked = |region| self.marked.get(start + region);
            sector.copy_from_slice(&encode_intent(&self.uuid, number, is_marked));
        }
        ssd.write(&block, self.layout.intent() + number * BLOCK_BYTES)
    }

    pub(crate) fn is_marked(&self, region: u64) -> bool {
        self.marked.get(region)
    }

    /// Regions that are marked.
    pub(crate) fn marked(&self) -> u64 {
        self.marked
            .0
            .iter()
            .map(|word| u64::from(word.count_ones()))
            .sum()
    }

    /// A write to `regions` is about to go to the backing: their bits are durable when this returns. After an error they
    /// are not, and the write must not go to the backing before the SSD is void.
    pub(crate) fn begin(&mut self, regions: RangeInclusive<u64>, ssd: &Ssd) -> io::Result<()> {
        let new: Vec<u64> = regions
            .clone()
            .filter(|&region| !self.is_marked(region))
            .collect();
        if !new.is_empty() {
            for &region in &new {
                self.marked.set(region, true);
            }
            let mut blocks: Vec<u64> = new.iter().map(|region| region / REGIONS_PER_BLOCK).collect();
            blocks.dedup();
            let stored = blocks
                .iter()
                .try_for_each(|&block| self.store_block(block, ssd))
                .and_then(|()| ssd.flush());
            if let Err(error) = stored {
                for &region in &new {
                    self.marked.set(region, false);
                }
                return Err(error);
            }
        }
        for region in regions {
            self.recent.set(region, true);
            *self.writers.entry(region).or_insert(0) += 1;
        }
        Ok(())
    }

    /// The write is done, on the backing and in the cache, or failed.
    pub(crate) fn end(&mut self, regions: RangeInclusive<u64>) {
        for region in regions {
            if let Some(writers) = self.writers.get_mut(&region) {
                *writers -= 1;
                if *writers == 0 {
                    self.writers.remove(&region);
                }
            }
        }
    }

    /// The marked regions with no write under way and none since the last call.
    pub(crate) fn idle(&mut self) -> Vec<u64> {
        let is_idle = |region: &u64| !self.recent.get(*region) && !self.writers.contains_key(region);
        let idle = self.marked.ones().filter(is_idle).collect();
        self.recent.0.fill(0);
        idle
    }

    /// Takes back the bits of those that [`Intent::idle`] found and that nobody wrote to since. Between the two calls the
    /// backing was flushed, and then the records of the SSD were. Not flushed: a bit that stays costs lines, not truth.
    pub(crate) fn clear(&mut self, idle: &[u64], ssd: &Ssd) -> io::Result<()> {
        let mut blocks = Vec::new();
        for &region in idle {
            if !self.recent.get(region) && !self.writers.contains_key(&region) {
                self.marked.set(region, false);
                blocks.push(region / REGIONS_PER_BLOCK);
            }
        }
        blocks.dedup();
        blocks.iter().try_for_each(|&block| self.store_block(block, ssd))
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        (self.marked.0.capacity() + self.recent.0.capacity()) * 8 + self.writers.capacity() * 16
    }
}
