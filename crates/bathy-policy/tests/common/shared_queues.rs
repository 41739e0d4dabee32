//! S3-FIFO (Yang and others, SOSP 2023) and `Clock2Q+` (Zhai and others, arXiv 2511.21958) as published: the small and the main
//! queue share the room of the cache.
//!
//! This form agrees with another implementation to the last miss (CROSSCHECK.md). It is no policy that anything offers: a
//! cache gives each queue its own room, in memory and on the SSD (`StagedFifo`), and is held against it.

use std::collections::{HashMap, VecDeque};

#[derive(Debug, Clone, Copy)]
struct Entry {
    count: u8,
    is_in_small: bool,
    /// Insertions into the small queue up to this one.
    born: usize,
}

/// Queues have the oldest first.
pub(crate) struct SharedQueues {
    capacity: usize,
    small_capacity: usize,
    ghost_capacity: usize,
    promote_at: u8,
    count_max: u8,
    window: usize,
    births: usize,
    entries: HashMap<u64, Entry>,
    small: VecDeque<u64>,
    main: VecDeque<u64>,
    ghosts: VecDeque<u64>,
}

impl SharedQueues {
    pub(crate) fn s3_fifo(capacity: usize) -> Self {
        Self {
            capacity,
            small_capacity: (capacity / 10).max(1),
            ghost_capacity: capacity * 9 / 10,
            promote_at: 2,
            count_max: 3,
            window: 0,
            births: 0,
            entries: HashMap::new(),
            small: VecDeque::new(),
            main: VecDeque::new(),
            ghosts: VecDeque::new(),
        }
    }

    pub(crate) fn clock2q_plus(capacity: usize) -> Self {
        let s3_fifo = Self::s3_fifo(capacity);
        Self {
            ghost_capacity: capacity / 2,
            promote_at: 1,
            count_max: 1,
            window: s3_fifo.small_capacity.div_ceil(2),
            ..s3_fifo
        }
    }

    /// References `key`, which is resident after that. Returns whether it was before.
    pub(crate) fn access(&mut self, key: u64) -> bool {
        if let Some(entry) = self.entries.get_mut(&key) {
            if !entry.is_in_small || self.births - entry.born >= self.window {
                entry.count = (entry.count + 1).min(self.count_max);
            }
            return true;
        }
        let ghost = self.ghosts.iter().position(|&ghost| ghost == key);
        if let Some(ghost) = ghost {
            self.ghosts.remove(ghost);
        }
        let is_full = self.entries.len() == self.capacity;
        // While there is room, what the small queue has no share for goes to main.
        let is_in_small = ghost.is_none() && (self.small.len() < self.small_capacity || is_full);
        if is_full {
            self.evict();
        }
        self.births += usize::from(is_in_small);
        let entry = Entry {
            count: 0,
            is_in_small,
            born: self.births,
        };
        self.entries.insert(key, entry);
        if is_in_small {
            self.small.push_back(key);
        } else {
            self.main.push_back(key);
        }
        false
    }

    fn evict(&mut self) {
        if self.main.len() <= self.capacity - self.small_capacity && self.evict_small() {
            return;
        }
        while let Some(key) = self.main.pop_front() {
            let entry = self.entries.get_mut(&key).expect("it is resident");
            if entry.count == 0 {
                self.entries.remove(&key);
                return;
            }
            entry.count -= 1;
            self.main.push_back(key);
        }
    }

    /// Returns whether a line left.
    fn evict_small(&mut self) -> bool {
        while let Some(key) = self.small.pop_front() {
            let entry = self.entries.get_mut(&key).expect("it is resident");
            if entry.count < self.promote_at {
                self.entries.remove(&key);
                self.ghosts.push_back(key);
                if self.ghosts.len() > self.ghost_capacity {
                    self.ghosts.pop_front();
                }
                return true;
            }
            (entry.count, entry.is_in_small) = (0, false);
            self.main.push_back(key);
        }
        false
    }
}
