//! Some lines of a file are compared with it before any of them is believed.
//!
//! What a stamp says of a device is not all that can happen to it: the file behind a loop device is written to, a snapshot of a
//! logical volume or of an array is merged back, and nothing that the kernel counts of the device changes. So lines are drawn from
//! all that is cached of it, each with the same chance, by a seed that differs at each start. If one of them differs nothing of the
//! file is believed. A change of a share `c` of the lines is missed with a chance of `(1 - c)^n` at most; [`DEVICE_LINES`] is the
//! `n` for which that is 1 in 1,000 where `c` is a hundredth. With so many lines or fewer all are compared.

use std::collections::BinaryHeap;

use bathy_mrc::hash::mix64;
use bathy_policy::Policy;

use crate::engine::Engine;
use crate::format::{first_key, number_of};
use crate::store::aligned::Aligned;
use crate::store::{BlockStore, Trust};

/// Lines of a device that are compared.
pub(crate) const DEVICE_LINES: usize = 688;
/// Lines of a file that was being written to when a session was killed, and that nobody could reach since.
pub(crate) const FILE_LINES: usize = 16;

impl Engine {
    /// Whether lines of a file, so many at most, are whole and not what the backing has: somebody else changed it. How many
    /// were compared, if not.
    pub(crate) fn compare_sample(
        &self,
        number: u32,
        len_bytes: u64,
        store: &dyn BlockStore,
        most: usize,
    ) -> Option<u32> {
        let lines = self.sample_of(number, len_bytes, most);
        // A look at a unit that is damaged, as a power cut leaves some, forgets its line. Of a device all units count.
        let choose = |valid: u64| match store.trust() {
            Trust::Stamp => valid & valid.wrapping_neg(),
            _ => valid,
        };
        let is_same = |&line: &u64| {
            let start = line * self.line_bytes;
            let mut bytes = Aligned::new(len_bytes.saturating_sub(start).min(self.line_bytes) as usize);
            if store.read(&mut bytes, start).is_err() {
                // Of a file that keeps its stamp, what cannot be read is no evidence.
                return store.trust() == Trust::Stamp;
            }
            // What is damaged is found when it is served.
            self.is_copy_of(first_key(number) + line, choose, &bytes)
                .unwrap_or(true)
        };
        lines.iter().all(is_same).then_some(lines.len() as u32)
    }

    /// Lines that are cached of a file, in the order of the file: all of them, or so many that are drawn.
    fn sample_of(&self, number: u32, len_bytes: u64, most: usize) -> Vec<u64> {
        // The lines with the lowest hashes: any set of lines is as likely as any other.
        let mut drawn = BinaryHeap::new();
        let mut draw = |key: u64| {
            drawn.push((mix64(key ^ self.sample_seed), key));
            if drawn.len() > most {
                drawn.pop();
            }
        };
        let lines = len_bytes.div_ceil(self.line_bytes).min(1 << 32);
        if lines <= self.looked_up_max() {
            let keys = (0..lines).map(|line| first_key(number) + line);
            keys.filter(|&key| self.shard(key).lock().has(key)).for_each(draw);
        } else {
            for shard in &self.shards {
                shard.lock().model.policy().for_each_resident(&mut |key, _| {
                    if number_of(key) == number && key - first_key(number) < lines {
                        draw(key);
                    }
                });
            }
        }
        let mut drawn: Vec<u64> = drawn
            .into_iter()
            .map(|(_, key)| key - first_key(number))
            .collect();
        drawn.sort_unstable();
        drawn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_a_hundredth_is_missed_once_in_a_thousand_starts_at_most() {
        let missed = |lines: usize| 0.99_f64.powi(lines as i32);
        assert!(missed(DEVICE_LINES) < 0.001 && missed(DEVICE_LINES - 1) > 0.001);
    }
}
