//! A cache that was stopped cleanly gets another size, with its content.
//!
//! Slots do not move: a cache grows by an extent with tables of its own, or by the slots that its last extent has room for, and
//! is cut at its end. So one superblock is all that changes. It is written to the place of the older one, and until it is
//! there whole the other counts. The next start finds it clean, and a state that is of another stop, so it takes the lines
//! from their records: those of slots that are gone are not read, and a line in a slot that is in memory now is read into it.
//!
//! Where tables begin to count, their records are voided first, durably: those of an earlier, larger size of this cache would
//! be believed. Why only after a clean stop: records of slots in memory say what was there at a stop, so in an unclean cache
//! one that becomes a slot on the SSD could have the record of a line that was written to since.

use std::io;
use std::sync::Arc;

use bathy_cache_model::{MemoryBudget, OverBudget};

use crate::engine::open::{OpenError, load_superblock};
use crate::engine::options::Options;
use crate::format::{BLOCK_BYTES, Geometry, Superblock};
use crate::store::BlockStore;
use crate::store::ssd::Area;
use crate::store::ssd::Ssd;

/// Why a cache kept its size.
#[derive(Debug, thiserror::Error)]
pub enum ResizeError {
    /// It holds no cache, or cannot be read or written.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The SSD ends before.
    #[error("the SSD has {ssd_bytes} bytes, and the cache would take {asked_bytes}")]
    Beyond {
        /// Bytes asked for.
        asked_bytes: u64,
        /// Bytes of the SSD.
        ssd_bytes: u64,
    },
    /// There is no room for a line of each shard, or none for another extent.
    #[error(
        "no cache can be made of {0} bytes out of this one: it is too small for that, or grew 15 times already"
    )]
    DoesNotFit(u64),
    /// It would need more memory than it may take.
    #[error(transparent)]
    OverBudget(#[from] OverBudget),
    /// It is in use, or was killed.
    #[error("the cache was not stopped cleanly")]
    Unclean,
}

impl From<io::Error> for ResizeError {
    fn from(error: io::Error) -> Self {
        Self::Open(error.into())
    }
}

/// Gives a cache that nobody uses another size: it takes so many bytes of the SSD at most, and of memory what it may. Returns the bytes that lines have
/// room for.
///
/// # Errors
/// If nothing has changed.
pub fn resize(ssd: Arc<dyn BlockStore>, size_bytes: u64, memory: MemoryBudget) -> Result<u64, ResizeError> {
    let ssd = Options::default().ssd(ssd);
    let found = load_superblock(&ssd)?;
    let geometry = planned(&found, &ssd, size_bytes, memory)?;
    void_tables(&found.geometry, &geometry, &ssd)?;
    apply(&geometry, &ssd)?;
    Ok(geometry.slots_total() * geometry.line().bytes())
}

/// What the cache becomes.
pub(crate) fn planned(
    found: &Superblock,
    ssd: &Ssd,
    size_bytes: u64,
    memory: MemoryBudget,
) -> Result<Geometry, ResizeError> {
    let ssd_bytes = ssd.size_bytes()?;
    if size_bytes > ssd_bytes {
        return Err(ResizeError::Beyond {
            asked_bytes: size_bytes,
            ssd_bytes,
        });
    }
    let geometry = found.geometry.resized(size_bytes);
    let geometry = geometry.ok_or(ResizeError::DoesNotFit(size_bytes))?;
    // One that is too large already may become smaller, if it is too large still.
    if geometry.slots > found.geometry.slots {
        memory.check(geometry.slots_total(), geometry.line())?;
    }
    Ok(geometry)
}

/// Voids what tables hold that are to count and do not yet, apart from the last block of each shard's line table. Nobody reads
/// or writes them meanwhile, also if the cache is in use.
pub(crate) fn void_tables(old: &Geometry, new: &Geometry, ssd: &Ssd) -> io::Result<()> {
    const BYTES_AT_ONCE: u64 = 1 << 20;
    let zeroes = vec![0; BYTES_AT_ONCE as usize];
    for range in new.layout().tables_beyond(old.slots, old.layout().file_blocks()) {
        for start in range.clone().step_by(BYTES_AT_ONCE as usize) {
            let bytes = BYTES_AT_ONCE.min(range.end - start);
            ssd.write(Area::LineTable, zeroes[..bytes as usize].into(), start)?;
        }
    }
    ssd.flush()
}

/// Makes the new size that of a cache that was stopped cleanly.
pub(crate) fn apply(new: &Geometry, ssd: &Ssd) -> Result<(), ResizeError> {
    let found = load_superblock(ssd)?;
    if !found.is_clean {
        return Err(ResizeError::Unclean);
    }
    let old = found.geometry;
    if new.slots > old.slots {
        // The block in which the last slot has its record, and others behind it.
        let layout = new.layout();
        let (block, index) = layout.record_place(old.slots - 1);
        for shard in (0..old.shards).filter(|_| index + 1 < layout.records_per_block()) {
            let offset = layout.table(shard, block);
            let mut bytes = ssd.read(BLOCK_BYTES as usize, offset)?;
            bytes[(index + 1) * layout.record_bytes()..].fill(0);
            ssd.write(Area::LineTable, bytes, offset)?;
        }
        ssd.flush()?;
    }
    let superblock = Superblock {
        geometry: *new,
        sequence: found.sequence + 1,
        ..found
    };
    let place = new.layout().superblock(superblock.place());
    ssd.write(Area::Superblocks, superblock.encode()[..].into(), place)?;
    Ok(ssd.flush()?)
}
