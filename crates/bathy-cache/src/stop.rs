//! A clean stop: the next start has every line, and decides as if there had been no stop.

use std::io;
use std::sync::PoisonError;

use crate::engine::Engine;
use crate::format::{ENTRIES_PER_BLOCK, StateBlock, Superblock};
use crate::shard::Shard;

impl Engine {
    /// Stops. Whether the stop is a clean one; if not, because of the SSD, the next start drops what it cannot trust.
    ///
    /// # Errors
    /// Those of the backing's flush, unchanged.
    pub fn stop(mut self) -> io::Result<bool> {
        self.flush()?;
        let is_trusted = !self.is_bypassed() && !self.ssd.is_given_up() && !self.has_lost_writes();
        Ok(is_trusted && self.store_state().is_some())
    }

    fn store_state(&mut self) -> Option<()> {
        let superblock = Superblock {
            sequence: self.superblock.sequence + 1,
            is_clean: true,
            // After the last write, and before anybody else's.
            backing: self.backing.identity().ok()?,
            ..self.superblock
        };
        let layout = superblock.geometry.layout();
        for (number, shard) in (0..).zip(&mut self.shards) {
            let shard = shard.get_mut().unwrap_or_else(PoisonError::into_inner);
            shard.park()?;
            let blocks = state_blocks(shard);
            // A state that is larger than its place is left out: the next start reads the line table instead.
            let fits = blocks.len() as u64 <= layout.state_blocks();
            for (index, block) in (0..).zip(blocks.iter().filter(|_| fits)) {
                let bytes = block.encode(&superblock.uuid, superblock.sequence, number, index);
                self.ssd.write(&bytes, layout.state(number, index)).ok()?;
            }
        }
        // All that the superblock promises comes before it.
        self.ssd.flush().ok()?;
        let place = layout.superblock(superblock.place());
        self.ssd.write(&superblock.encode(), place).ok()?;
        self.ssd.flush().ok()
    }
}

fn state_blocks(shard: &Shard) -> Vec<StateBlock> {
    let mut blocks = vec![StateBlock::default()];
    shard.model.export(&mut |record, units| {
        if blocks
            .last()
            .is_none_or(|block| block.entries.len() == ENTRIES_PER_BLOCK)
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
