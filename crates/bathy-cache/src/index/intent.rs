//! Which regions of files may differ from what the SSD holds of them after a power cut.
//!
//! The bitmap has one size. Regions share bits by a hash of the file, so neighbours have neighbouring bits; regions that are
//! marked for another one's sake cost lines after a power cut, never truth.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::ops::Range;

use crate::format::number_of;
use crate::format::{
    BLOCK_BYTES, Geometry, Layout, REGIONS_PER_SECTOR, SECTOR_BYTES, Uuid, decode_intent, encode_intent,
};
use crate::mutant::{Mutant, is_made};
use crate::store::aligned::Aligned;
use crate::store::ssd::Area;
use crate::store::ssd::Ssd;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, MutexGuard, is_poisoned, lock};

const SECTORS_PER_BLOCK: u64 = BLOCK_BYTES / SECTOR_BYTES as u64;
const REGIONS_PER_BLOCK: u64 = SECTORS_PER_BLOCK * REGIONS_PER_SECTOR;

/// A change of more regions marks the whole file.
const REGIONS_AT_ONCE: u64 = 256;

/// So many regions are marked ahead at most: 64 MiB of regions as bathyd makes them, which a power cut may take from the cache.
const REGIONS_AHEAD: u64 = 16;

#[derive(Default)]
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
/// while writes come. It is taken back when no source needs it any more: each has the bits of its own writes, so that one
/// whose disk does not answer keeps its own alone.
///
/// Writes whose bits are on the SSD wait for nobody, and neither do those to files of which no start believes anything yet. Those
/// with new bits wait for one flush together, and the bits that follow a run of marked ones are marked with it: a stream would
/// wait for the SSD at each of its regions.
pub(crate) struct Intent {
    uuid: Uuid,
    layout: Layout,
    bits: u64,
    line_bytes: u64,
    region_bytes: u64,
    marks: Mutex<Marks>,
    /// Held by who writes to the bitmap on the SSD, so that no block is replaced by one that is older. Taken before the marks.
    writing: Mutex<()>,
}

struct Marks {
    /// What the SSD has, or is about to have. It has more after a bit was taken back.
    marked: Bits,
    /// Of these, the bits that the SSD may not have for certain, and for which a write waits.
    pending: BTreeSet<u64>,
    /// The others that it may not have: of files without a record, of which no start believes anything.
    deferred: BTreeSet<u64>,
    /// By the number of a source. A marked bit that is among those of none was found by the start.
    sources: Vec<OfSource>,
    /// Writes under way by bit.
    writers: HashMap<u64, u32>,
}

/// The bits of a source. While it has none this takes no memory.
#[derive(Default)]
struct OfSource {
    /// Those that it needs: a write to them may not be durable.
    needed: Bits,
    /// Of these, the bits with a write that began since the last [`Intent::idle`], or is expected.
    recent: Bits,
}

impl Marks {
    /// Whether the SSD has them for certain.
    fn are_durable(&self, bits: &[u64]) -> bool {
        let is_durable =
            |bit: &u64| self.marked.get(*bit) && !self.pending.contains(bit) && !self.deferred.contains(bit);
        bits.iter().all(is_durable)
    }

    fn mark(&mut self, bit: u64, source: u16, may_wait: bool) {
        let (source, words) = (usize::from(source), self.marked.0.len());
        if self.sources.len() <= source {
            self.sources.resize_with(source + 1, OfSource::default);
        }
        let of = &mut self.sources[source];
        for bits in [&mut of.needed, &mut of.recent] {
            bits.0.resize(words, 0);
            bits.set(bit, true);
        }
        let is_new = !self.marked.get(bit);
        self.marked.set(bit, true);
        if is_new && may_wait {
            self.deferred.insert(bit);
        } else if is_new || !may_wait && self.deferred.remove(&bit) {
            self.pending.insert(bit);
        }
    }

    /// Whether the source writes to it no more.
    fn is_idle(&self, bit: u64, source: u16) -> bool {
        let of = self.sources.get(usize::from(source));
        !of.is_some_and(|of| of.recent.get(bit)) && !self.writers.contains_key(&bit)
    }

    /// Whether the source, or nobody, needs it.
    fn is_left_to(&self, bit: u64, source: u16) -> bool {
        let of = self.sources.get(usize::from(source));
        of.is_some_and(|of| of.needed.get(bit)) || !self.is_needed(bit)
    }

    fn is_needed(&self, bit: u64) -> bool {
        self.sources.iter().any(|of| of.needed.get(bit))
    }

    fn leave(&mut self, bits: &[u64]) {
        for bit in bits {
            if let Some(writers) = self.writers.get_mut(bit) {
                *writers -= 1;
                if *writers == 0 {
                    self.writers.remove(bit);
                }
            }
        }
    }
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
            marks: Mutex::new(Marks {
                marked: Bits::new(geometry.intent_bits),
                pending: BTreeSet::new(),
                deferred: BTreeSet::new(),
                sources: Vec::new(),
                writers: HashMap::new(),
            }),
            writing: Mutex::new(()),
        }
    }

    /// See [`is_poisoned`].
    pub(crate) fn is_poisoned(&self) -> bool {
        is_poisoned(&self.marks)
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
        let marks = lock(&self.marks);
        marks.marked.get(self.bit(number, Some(region))) || marks.marked.get(self.bit(number, None))
    }

    /// The bitmap that the SSD holds: of a damaged sector all regions are marked.
    pub(crate) fn load(&self, ssd: &Ssd) -> io::Result<()> {
        let marked = &mut lock(&self.marks).marked;
        for first in (0..self.layout.intent_sectors()).step_by(SECTORS_PER_BLOCK as usize) {
            let offset = self.layout.intent() + first * SECTOR_BYTES as u64;
            let block = ssd.read(BLOCK_BYTES as usize, offset)?;
            for (number, sector) in (first..).zip(block.chunks_exact(SECTOR_BYTES)) {
                let start = number * REGIONS_PER_SECTOR;
                match decode_intent(&self.uuid, number, sector) {
                    Some(regions) => regions.iter().for_each(|region| marked.set(start + region, true)),
                    None => (start..start + REGIONS_PER_SECTOR).for_each(|region| marked.set(region, true)),
                }
            }
        }
        Ok(())
    }

    /// Writes all of it.
    pub(crate) fn store(&self, ssd: &Ssd) -> io::Result<()> {
        let _alone = lock(&self.writing);
        let blocks = self.layout.intent_sectors().div_ceil(SECTORS_PER_BLOCK);
        (0..blocks).try_for_each(|number| self.store_block(number, ssd))
    }

    /// Writes a block of the bitmap as it is to be. The caller has the right to.
    fn store_block(&self, number: u64, ssd: &Ssd) -> io::Result<()> {
        let mut block = Aligned::new(BLOCK_BYTES as usize);
        let marks = lock(&self.marks);
        let first = number * SECTORS_PER_BLOCK;
        for (number, sector) in (first..).zip(block.chunks_exact_mut(SECTOR_BYTES)) {
            let start = number * REGIONS_PER_SECTOR;
            let is_marked = |region| marks.marked.get(start + region);
            sector.copy_from_slice(&encode_intent(&self.uuid, number, is_marked));
        }
        drop(marks);
        ssd.write(Area::Intent, block, self.layout.intent() + number * BLOCK_BYTES)
    }

    /// Writes the blocks of bits, which are in order.
    fn write_blocks<'a>(&self, bits: impl Iterator<Item = &'a u64>, ssd: &Ssd) -> io::Result<()> {
        let mut blocks: Vec<u64> = bits.map(|bit| bit / REGIONS_PER_BLOCK).collect();
        blocks.dedup();
        blocks
            .iter()
            .try_for_each(|&number| self.store_block(number, ssd))
    }

    /// Bits that are set.
    pub(crate) fn marked(&self) -> u64 {
        let marks = lock(&self.marks);
        marks
            .marked
            .0
            .iter()
            .map(|word| u64::from(word.count_ones()))
            .sum()
    }

    /// A write of a source to regions with these bits is about to go to the backing: they are durable when this returns, unless
    /// they `may_wait`. After an error they are not, and the write must not go to the backing before the SSD is void.
    pub(crate) fn begin(
        &self,
        bits: &[u64],
        source: u16,
        ssd: &Ssd,
        may_wait: &AtomicBool,
    ) -> io::Result<()> {
        let mut marks = lock(&self.marks);
        // Asked while the marks are locked: see `make_all_durable`.
        let may_wait = may_wait.load(Ordering::SeqCst);
        // From here on nobody takes them back.
        for &bit in bits {
            *marks.writers.entry(bit).or_insert(0) += 1;
        }
        let are_durable = marks.are_durable(bits);
        for &bit in bits {
            marks.mark(bit, source, may_wait);
        }
        drop(marks);
        if are_durable || may_wait {
            return Ok(());
        }
        self.make_durable(bits, source, ssd)
            .inspect_err(|_| lock(&self.marks).leave(bits))
    }

    /// Makes all marks durable, also those that may wait. A file whose marks may wait no more from before this call on has none
    /// left then that is not durable: who asked before that has marked its bits.
    pub(crate) fn make_all_durable(&self, ssd: &Ssd) -> io::Result<()> {
        let _alone = lock(&self.writing);
        let mut marks = lock(&self.marks);
        let deferred = std::mem::take(&mut marks.deferred);
        marks.pending.extend(deferred);
        self.write_pending(marks, ssd)
    }

    /// Makes marks durable, with those of all who came meanwhile.
    fn make_durable(&self, bits: &[u64], source: u16, ssd: &Ssd) -> io::Result<()> {
        let _alone = lock(&self.writing);
        let mut marks = lock(&self.marks);
        if marks.are_durable(bits) {
            return Ok(());
        }
        for bit in self.ahead(&marks, bits) {
            marks.mark(bit, source, false);
        }
        self.write_pending(marks, ssd)
    }

    /// The caller has the right to write.
    fn write_pending(&self, marks: MutexGuard<'_, Marks>, ssd: &Ssd) -> io::Result<()> {
        let pending = marks.pending.clone();
        drop(marks);
        if pending.is_empty() {
            return Ok(());
        }
        self.write_blocks(pending.iter(), ssd)?;
        if !is_made(Mutant::MarkIsNotFlushed) {
            ssd.flush()?;
        }
        lock(&self.marks).pending.retain(|bit| !pending.contains(bit));
        Ok(())
    }

    /// The bits that follow, as many as are marked before: who wrote to those regions one after the other goes on.
    fn ahead(&self, marks: &Marks, bits: &[u64]) -> impl Iterator<Item = u64> + use<> {
        let (first, last) = (bits.first().copied(), bits.last().copied());
        let (first, last, all) = (first.unwrap_or(0), last.unwrap_or(0), self.bits);
        let most = REGIONS_AHEAD.min(all - 1);
        let is_marked = |back: &u64| marks.marked.get((first + all - back) % all);
        let before = (1..=most).take_while(is_marked).count() as u64;
        (1..=before).map(move |on| (last + on) % all)
    }

    /// The write is done, on the backing and in the cache, or failed.
    pub(crate) fn end(&self, bits: &[u64]) {
        lock(&self.marks).leave(bits);
    }

    /// The marked bits of a source, and those of none, with no write under way and none of the source since the last call.
    pub(crate) fn idle(&self, source: u16) -> Vec<u64> {
        // Sources beyond those that have a number of their own share one: a call for one of them would be none for the others.
        if source == u16::MAX {
            return Vec::new();
        }
        let mut marks = lock(&self.marks);
        let is_idle = |bit: &u64| marks.is_idle(*bit, source) && marks.is_left_to(*bit, source);
        let idle = marks.marked.ones().filter(is_idle).collect();
        if let Some(of) = marks.sources.get_mut(usize::from(source)) {
            of.recent.0.fill(0);
            if of.needed.0.iter().all(|&word| word == 0) {
                *of = OfSource::default();
            }
        }
        idle
    }

    /// The source needs the bits no more that [`Intent::idle`] found and that it did not write to since: those that nobody else
    /// needs are taken back. Between the two calls its files were flushed, and then the records of the SSD were. Not flushed: a
    /// bit that stays costs lines, not truth.
    pub(crate) fn clear(&self, idle: &[u64], source: u16, ssd: &Ssd) -> io::Result<()> {
        let _alone = lock(&self.writing);
        let mut marks = lock(&self.marks);
        let mut cleared = idle.to_vec();
        cleared.retain(|&bit| marks.is_idle(bit, source) || is_made(Mutant::MarksGoDuringAWrite));
        for bit in &cleared {
            if let Some(of) = marks.sources.get_mut(usize::from(source)) {
                of.needed.set(*bit, false);
            }
        }
        cleared.retain(|&bit| !marks.is_needed(bit));
        for bit in &cleared {
            marks.marked.set(*bit, false);
            marks.pending.remove(bit);
            marks.deferred.remove(bit);
        }
        drop(marks);
        self.write_blocks(cleared.iter(), ssd)
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let marks = lock(&self.marks);
        let of_sources = marks.sources.iter().flat_map(|of| [&of.needed, &of.recent]);
        let words = of_sources.map(|bits| bits.0.capacity()).sum::<usize>() + marks.marked.0.capacity();
        words * 8 + marks.writers.capacity() * 16
    }
}
