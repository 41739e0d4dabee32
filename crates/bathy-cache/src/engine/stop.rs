//! A clean stop: the next start has every line, and decides as if there had been no stop.

use std::io;
use std::sync::{Arc, PoisonError};

use crate::engine::Engine;
use crate::engine::shard::Shard;
use crate::engine::shard_state::Model;
use crate::format::{StateBlock, Superblock, entries_per_block};
use crate::index::files::FileState;
use crate::mutant::{Mutant, is_made};
use crate::store::ssd::Area;
use crate::sync::atomic::Ordering;
use crate::sync::lock;

impl Engine {
    /// Stops: later requests fail. Whether the stop is a clean one; if not, because of the SSD, the next start drops what it
    /// cannot trust.
    ///
    /// # Errors
    /// Those of a file's flush, unchanged; the stop is not a clean one then.
    pub fn stop(&self) -> io::Result<bool> {
        let (is_clean, files) = self.stop_and_keep_errors();
        let kept = files.iter().find_map(|file| lock(&file.flush_error).take());
        kept.map_or(Ok(is_clean), Err)
    }

    /// Stops: whether the stop is a clean one, and the files, which have the errors of their flushes.
    ///
    /// Sources that were abandoned are not waited for: no start believes what the SSD has of them, so it is no matter what of them is
    /// still under way, and their disks may never answer.
    pub(crate) fn stop_and_keep_errors(&self) -> (bool, Vec<Arc<FileState>>) {
        let _alone = self.tidying.write().unwrap_or_else(PoisonError::into_inner);
        if self.is_stopped.swap(true, Ordering::AcqRel) {
            return (false, Vec::new());
        }
        // Nobody attaches a file or begins to tidy from here on. What is under way ends.
        let mut sources = self.all_sources();
        sources.retain(|(_, source)| !source.is_abandoned());
        let tidied = sources.iter().map(|(_, source)| lock(&source.tidying));
        let _tidied: Vec<_> = tidied.collect();
        let mut open = self.wait_for_claims().all_open();
        open.retain(|file| !file.source.is_abandoned());
        for file in open.iter().filter(|_| !is_made(Mutant::StopWaitsForNobody)) {
            drop(file.gate.write().unwrap_or_else(PoisonError::into_inner));
        }
        let mut unflushed = std::mem::take(&mut *lock(&self.unflushed));
        // Nothing is cached of these any more.
        unflushed.retain(|_, file| !file.source.is_abandoned());
        // All of them, whatever happens to one.
        for file in unflushed.values() {
            let _kept_in_the_file = self.make_durable(file, || file.store.flush());
        }
        let files: Vec<Arc<FileState>> = open.iter().chain(unflushed.values()).cloned().collect();
        let is_sound = !self.is_bypassed() && !self.ssd.is_given_up() && !self.has_lost_writes();
        // After the last write, and before anybody else's.
        let mut is_trusted = is_sound;
        for file in files.iter().filter(|_| is_sound) {
            is_trusted &= self.note_stamp(file);
        }
        let is_clean = is_trusted && !self.has_lost_writes() && self.store_state().is_some();
        if self.ssd.is_given_up() {
            // What it was sent may still reach it. If the generation store fails the stop is no clean one all the same.
            let _ = self.enter_bypass();
        }
        (is_clean && !self.is_bypassed(), files)
    }

    /// Lets go of what grows with the cache, apart from the table of its files, after the stop. What was counted stays.
    pub(crate) fn release(&self) {
        self.shards.iter().for_each(Shard::release);
    }

    fn store_state(&self) -> Option<()> {
        let mut current = lock(&self.superblock);
        let superblock = Superblock {
            sequence: current.sequence + 1,
            is_clean: true,
            next_file: lock(&self.files).next_number,
            ..*current
        };
        *current = superblock;
        let layout = superblock.geometry.layout();
        for (number, shard) in (0..).zip(&self.shards) {
            let units = layout.line_units();
            let blocks = shard.park(|model| state_blocks(model, entries_per_block(units)))?;
            // A state that is larger than its place is left out: the next start reads the line table instead.
            let fits = blocks.len() as u64 <= layout.state_blocks();
            for (index, block) in (0..).zip(blocks.iter().filter(|_| fits)) {
                let bytes = block.encode(units, &superblock.uuid, superblock.sequence, number, index);
                self.ssd
                    .write(Area::State, bytes[..].into(), layout.state(number, index))
                    .ok()?;
            }
        }
        // All that the superblock promises comes before it.
        self.ssd.flush().ok()?;
        let place = layout.superblock(superblock.place());
        self.ssd
            .write(Area::Superblocks, superblock.encode()[..].into(), place)
            .ok()?;
        self.ssd.flush().ok()
    }
}

fn state_blocks(model: &Model, entries_max: usize) -> Vec<StateBlock> {
    let mut blocks = vec![StateBlock::default()];
    model.export(&mut |record, units| {
        if blocks
            .last()
            .is_none_or(|block| block.entries.len() == entries_max)
        {
            blocks.push(StateBlock::default());
        }
        if let Some(block) = blocks.last_mut() {
            block.entries.push((record, units));
        }
    });
    if let Some(block) = blocks.last_mut() {
        block.is_last = true;
    }
    blocks
}
