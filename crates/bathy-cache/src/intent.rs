//! Which regions of files may differ from what the SSD holds of them after a power cut.
//!
//! The bitmap has one size. Regions share bits by a hash of the file, so neighbours have neighbouring bits; regions that are
//! marked for another one's sake cost lines after a power cut, never truth.

use std::collections::HashMap;
use std::io;
use std::ops::Range;

use crate::aligned::Aligned;
use crate::counters::Area;
use crate::files::number_of;
use crate::format::{
    BLOCK_BYTES, Geometry, Layout, REGIONS_PER_SECTOR, SECTOR_BYTES, Uuid, decode_intent, encode_intent,
};
use crate::health::Ssd;
use crate::mutant::{Mutant, is_made};

const SECTORS_PER_BLOCK: u64 = BLOCK_BYTES / SECTOR_BYTES as u64;
const REGIONS_PER_BLOCK: u64 = SECTORS_PER_BLOCK * REGIONS_PER_SECTOR;

/// A change of more regions marks the whole file.
const REGIONS_AT_ONCE: u64 = 256;

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

/// The intent bitmap. A bit is set durably before the first write to one of its regions goes to the backing, and stays set
/// while writes come.
pub(crate) struct Intent {
    uuid: Uuid,
    layout: Layout,
    bits: u64,
    line_bytes: u64,
    region_bytes: u64,
    /// What the SSD has for certain, or more after a bit was taken back.
    marked: Bits,
    /// Bits with a write that began since the last [`Intent::idle`].
    recent: Bits,
    /// Writes under way by bit.
    writers: HashMap<u64, u32>,
}

impl Intent {
    /// With no region marked.
    pub(crate) fn new(uuid: Uuid, geometry: &Geometry) -> Self {
        Self {
            uuid,
            layout: geometry.layout(),
            bits: geometry.intent_bits,
            line_bytes: u64::from(geometry.line_bytes),
            region_bytes: geometry.region_bytes,
            marked: Bits::new(geometry.intent_bits),
            recent: Bits::new(geometry.intent_bits),
            writers: HashMap::new(),
        }
    }

    /// The bit of a region of a file, or of all of it.
    fn bit(&self, number: u32, region: Option<u64>) -> u64 {
        let seed = u64::from(number) << 1 | u64::from(region.is_none());
        let hash = (seed ^ 0x2545_f491).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (hash >> 32).wrapping_add(region.unwrap_or(0)) % self.bits
    }

    /// The bits of a byte range of a file.
    pub(crate) fn bits_of(&self, number: u32, range: &Range<u64>) -> Vec<u64> {
        if range.is_empty() {
            return Vec::new();
        }
        let (first, last) = (
            range.start / self.region_bytes,
            (range.end - 1) / self.region_bytes,
        );
        if last - first >= REGIONS_AT_ONCE {
            return vec![self.bit(number, None)];
        }
        (first..=last)
            .map(|region| self.bit(number, Some(region)))
            .collect()
    }

    /// Whether the line may differ from the SSD after a power cut.
    pub(crate) fn is_line_marked(&self, key: u64) -> bool {
        let (number, line) = (number_of(key), key & u64::from(u32::MAX));
        let region = line * self.line_bytes / self.region_bytes;
        self.marked.get(self.bit(number, Some(region))) || self.marked.get(self.bit(number, None))
    }

    /// The bitmap that the SSD holds: of a damaged sector all regions are marked.
    pub(crate) fn load(&mut self, ssd: &Ssd) -> io::Result<()> {
        for first in (0..self.layout.intent_sectors()).step_by(SECTORS_PER_BLOCK as usize) {
            let offset = self.layout.intent() + first * SECTOR_BYTES as u64;
            let block = ssd.read(BLOCK_BYTES as usize, offset)?;
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
        ssd.write(Area::Intent, &block, self.layout.intent() + number * BLOCK_BYTES)
    }

    /// Bits that are set.
    pub(crate) fn marked(&self) -> u64 {
        self.marked
            .0
            .iter()
            .map(|word| u64::from(word.count_ones()))
            .sum()
    }

    /// A write to regions with these bits is about to go to the backing: they are durable when this returns. After an error
    /// they are not, and the write must not go to the backing before the SSD is void.
    pub(crate) fn begin(&mut self, bits: &[u64], ssd: &Ssd) -> io::Result<()> {
        let new: Vec<u64> = bits
            .iter()
            .copied()
            .filter(|&bit| !self.marked.get(bit))
            .collect();
        if !new.is_empty() {
            for &bit in &new {
                self.marked.set(bit, true);
            }
            let mut blocks: Vec<u64> = new.iter().map(|bit| bit / REGIONS_PER_BLOCK).collect();
            blocks.dedup();
            let stored = blocks
                .iter()
                .try_for_each(|&block| self.store_block(block, ssd))
                .and_then(|()| {
                    if is_made(Mutant::MarkIsNotFlushed) {
                        return Ok(());
                    }
                    ssd.flush()
                });
            if let Err(error) = stored {
                for &bit in &new {
                    self.marked.set(bit, false);
                }
                return Err(error);
            }
        }
        for &bit in bits {
            self.recent.set(bit, true);
            *self.writers.entry(bit).or_insert(0) += 1;
        }
        Ok(())
    }

    /// The write is done, on the backing and in the cache, or failed.
    pub(crate) fn end(&mut self, bits: &[u64]) {
        for bit in bits {
            if let Some(writers) = self.writers.get_mut(bit) {
                *writers -= 1;
                if *writers == 0 {
                    self.writers.remove(bit);
                }
            }
        }
    }

    /// The marked bits with no write under way and none since the last call.
    pub(crate) fn idle(&mut self) -> Vec<u64> {
        let is_idle = |bit: &u64| !self.recent.get(*bit) && !self.writers.contains_key(bit);
        let idle = self.marked.ones().filter(is_idle).collect();
        self.recent.0.fill(0);
        idle
    }

    /// Takes back the bits that [`Intent::idle`] found and that nobody wrote to since. Between the two calls the
    /// backing was flushed, and then the records of the SSD were. Not flushed: a bit that stays costs lines, not truth.
    pub(crate) fn clear(&mut self, idle: &[u64], ssd: &Ssd) -> io::Result<()> {
        let mut blocks = Vec::new();
        for &bit in idle {
            let is_idle = !self.recent.get(bit) && !self.writers.contains_key(&bit);
            if is_idle || is_made(Mutant::MarksGoDuringAWrite) {
                self.marked.set(bit, false);
                blocks.push(bit / REGIONS_PER_BLOCK);
            }
        }
        blocks.dedup();
        blocks.iter().try_for_each(|&block| self.store_block(block, ssd))
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        (self.marked.0.capacity() + self.recent.0.capacity()) * 8 + self.writers.capacity() * 16
    }
}
