//! What an engine says of itself.

use std::collections::HashMap;
use std::ops::Range;

use bathy_cache_model::{LineSize, MemoryBudget, MemoryNeed};
use bathy_policy::{Policy, PolicyKind};

use crate::curve::MissRatioCurve;
use crate::engine::Engine;
use crate::engine::shard::Shard;
use crate::format::{FileIdentity, UNIT_BYTES, first_key, number_of};
use crate::stats::FileStatus;
use crate::stats::counters::Counts;
use crate::sync::lock;

/// A line that is cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedLine {
    /// The number of its file.
    pub file: u32,
    /// Its first byte in the file.
    pub offset_bytes: u64,
    /// Its valid units of 4 KiB, one bit each.
    pub valid_units: u64,
    /// Its shard and its slot there.
    pub place: (u32, u32),
    /// Whether it is not on the SSD.
    pub is_in_memory: bool,
}

impl Engine {
    /// What was counted since the start.
    pub fn counts(&self) -> Counts {
        let mut counts = self.inherited;
        // Those of engines before this one as well.
        counts.ssd_errors = self.ssd.errors();
        counts.ssd_writes = self.ssd.writes();
        {
            let files = lock(&self.files);
            counts.changed_files += files.changed;
            counts.evicted_files += files.evicted;
            counts.evicted_file_lines += files.evicted_lines;
            counts.files_without_room = if self.is_bypassed() {
                0
            } else {
                files.without_room()
            };
        }
        self.shards
            .iter()
            .for_each(|shard| counts.add(&shard.lock().counts()));
        for source in lock(&self.files).sources() {
            let of_source = lock(&source.counts).counts;
            counts.reads.add(&of_source.reads);
            counts.writes.add(&of_source.writes);
        }
        counts
    }

    /// Lines that are cached, and how many of them are in memory.
    pub fn lines(&self) -> (u64, u64) {
        let of_shard = |shard: &Shard| {
            let shard = shard.lock();
            let policy = shard.model.policy();
            (policy.len() as u64, policy.lines_in_memory() as u64)
        };
        let of_shards = self.shards.iter().map(of_shard);
        of_shards.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// Bytes of the valid units of all lines.
    pub fn cached_bytes(&self) -> u64 {
        self.residency.cached_bytes()
    }

    /// Bytes of a line.
    pub fn line_bytes(&self) -> u64 {
        self.line_bytes
    }

    /// Who decides what stays.
    pub fn policy(&self) -> PolicyKind {
        self.policy
    }

    /// The files with the most requests since the start, at most so many; of closed ones only those that are remembered. It
    /// looks at each cached line.
    pub fn busiest_files(&self, most: usize) -> Vec<FileStatus> {
        let mut files = lock(&self.files).all_counted();
        files.sort_by_key(|(_, status)| std::cmp::Reverse(status.counts.requests()));
        files.truncate(most);
        let numbers = files.iter().map(|(number, _)| *number);
        let places: HashMap<u32, usize> = numbers.zip(0..).filter(|&(number, _)| number != 0).collect();
        self.for_each_line(&mut |line| {
            if let Some(&place) = places.get(&line.file) {
                let (_, status) = &mut files[place];
                status.cached_lines += 1;
                status.cached_bytes += u64::from(line.valid_units.count_ones()) * UNIT_BYTES;
            }
        });
        let mut residences = self.residency.residences(&places.into_keys().collect());
        let with_residence = |(number, status)| FileStatus {
            residence: residences.remove(&number).unwrap_or_default(),
            ..status
        };
        files.into_iter().map(with_residence).collect()
    }

    /// Bytes of each of these ranges of a file that reads would find in the cache, in whole units. `None` if the file is not in
    /// use.
    pub fn cached_bytes_in(&self, identity: &FileIdentity, ranges: &[Range<u64>]) -> Option<Vec<u64>> {
        let file = lock(&self.files).in_use(identity)?;
        let of_line = |range: &Range<u64>, line: u64| {
            let start = line * self.line_bytes;
            let first = range.start.saturating_sub(start) / UNIT_BYTES;
            let end = (range.end - start).min(self.line_bytes).div_ceil(UNIT_BYTES);
            if !file.is_compared(line) {
                return 0;
            }
            let key = first_key(file.number) + line;
            let valid_units = self.shard(key).lock().valid_units(key);
            let units = (first..end).filter(|unit| valid_units >> unit & 1 != 0);
            units.count() as u64 * UNIT_BYTES
        };
        let of_range = |range: &Range<u64>| {
            let range = range.start..range.end.min(file.len_bytes());
            if range.is_empty() {
                return 0;
            }
            let lines = range.start / self.line_bytes..range.end.div_ceil(self.line_bytes);
            lines.map(|line| of_line(&range, line)).sum()
        };
        Some(ranges.iter().map(of_range).collect())
    }

    /// Calls `visit` with each cached line.
    pub fn for_each_line(&self, visit: &mut dyn FnMut(CachedLine)) {
        for (number, shard) in (0..).zip(&self.shards) {
            let shard = shard.lock();
            shard.model.policy().for_each_resident(&mut |key, slot| {
                visit(CachedLine {
                    file: number_of(key),
                    offset_bytes: (key & u64::from(u32::MAX)) * self.line_bytes,
                    valid_units: shard.model.valid_units(slot),
                    place: (number, slot),
                    is_in_memory: slot >= shard.stage_start,
                });
            });
        }
    }

    /// Bits of intent that are set: the next start would drop the lines of their regions if the power failed now.
    pub fn marked_regions(&self) -> u64 {
        self.intent.marked()
    }

    /// What LRU caches of other sizes would have served. `None` before the first reads.
    pub fn curve(&self) -> Option<MissRatioCurve> {
        self.curve.now()
    }

    /// Files that have a place in the file table, and how many have room there: nothing is cached of others.
    pub fn files(&self) -> (u64, u64) {
        let files = lock(&self.files);
        (files.len(), files.capacity())
    }

    /// Lines that the cache has room for.
    pub fn capacity_lines(&self) -> u64 {
        self.capacity_lines
    }

    /// What it takes of memory by its size, and the budget, which a cache that was made without one may exceed.
    pub fn memory_need(&self) -> (MemoryNeed, MemoryBudget) {
        let line = LineSize::new(self.line_bytes).expect("it is one");
        (self.memory.need(self.capacity_lines, line), self.memory)
    }

    /// Bytes of memory held, apart from [`Engine::stage_bytes`].
    pub fn memory_bytes(&self) -> usize {
        let shards: usize = self.shards.iter().map(|shard| shard.lock().memory_bytes()).sum();
        let intent = self.intent.memory_bytes();
        let files = lock(&self.files).memory_bytes();
        size_of::<Self>() + shards + self.curve.memory_bytes() + intent + files
    }

    /// Bytes of the lines in memory.
    pub fn stage_bytes(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().stage_bytes()).sum()
    }
}
