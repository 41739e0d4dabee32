//! Reference implementations without ghosts.

use crate::Model;

/// The least recently used is first.
pub(crate) struct Lru {
    capacity: usize,
    keys: Vec<u64>,
}

impl Lru {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            keys: Vec::new(),
        }
    }
}

impl Model for Lru {
    fn touch(&mut self, key: u64) -> bool {
        let resident = self.keys.contains(&key);
        if resident {
            self.remove(key);
            self.keys.push(key);
        }
        resident
    }

    fn miss(&mut self, key: u64) -> Vec<u64> {
        let excess = (self.keys.len() + 1).saturating_sub(self.capacity);
        let evicted = self.keys.drain(..excess).collect();
        self.keys.push(key);
        evicted
    }

    fn remove(&mut self, key: u64) {
        self.keys.retain(|&other| other != key);
    }

    fn residents(&self) -> Vec<u64> {
        self.keys.clone()
    }
}

/// LRU whose touch does not move anything.
pub(crate) struct Fifo(Lru);

impl Fifo {
    pub(crate) fn new(capacity: usize) -> Self {
        Self(Lru::new(capacity))
    }
}

impl Model for Fifo {
    fn touch(&mut self, key: u64) -> bool {
        self.0.keys.contains(&key)
    }

    fn miss(&mut self, key: u64) -> Vec<u64> {
        self.0.miss(key)
    }

    fn remove(&mut self, key: u64) {
        self.0.remove(key);
    }

    fn residents(&self) -> Vec<u64> {
        self.0.residents()
    }
}

/// A ring of marked keys, written as a list that is turned until its first entry is unmarked.
pub(crate) struct Clock {
    capacity: usize,
    ring: Vec<(u64, bool)>,
}

impl Clock {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            ring: Vec::new(),
        }
    }
}

impl Model for Clock {
    fn touch(&mut self, key: u64) -> bool {
        let found = self.ring.iter_mut().find(|entry| entry.0 == key);
        found.is_some_and(|entry| {
            entry.1 = true;
            true
        })
    }

    fn miss(&mut self, key: u64) -> Vec<u64> {
        let mut evicted = Vec::new();
        if self.ring.len() == self.capacity {
            while self.ring[0].1 {
                self.ring[0].1 = false;
                self.ring.rotate_left(1);
            }
            evicted.push(self.ring.remove(0).0);
        }
        self.ring.push((key, false));
        evicted
    }

    fn remove(&mut self, key: u64) {
        self.ring.retain(|entry| entry.0 != key);
    }

    fn residents(&self) -> Vec<u64> {
        self.ring.iter().map(|entry| entry.0).collect()
    }
}

/// The hand is a position in the list; behind the newest it starts again at the oldest.
pub(crate) struct Sieve {
    capacity: usize,
    hand: usize,
    list: Vec<(u64, bool)>,
}

impl Sieve {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            hand: 0,
            list: Vec::new(),
        }
    }
}

impl Model for Sieve {
    fn touch(&mut self, key: u64) -> bool {
        let found = self.list.iter_mut().find(|entry| entry.0 == key);
        found.is_some_and(|entry| {
            entry.1 = true;
            true
        })
    }

    fn miss(&mut self, key: u64) -> Vec<u64> {
        let mut evicted = Vec::new();
        if self.list.len() == self.capacity {
            while self.list[self.hand].1 {
                self.list[self.hand].1 = false;
                self.hand = (self.hand + 1) % self.list.len();
            }
            evicted.push(self.list.remove(self.hand).0);
            if self.hand == self.list.len() {
                self.hand = 0;
            }
        }
        self.list.push((key, false));
        evicted
    }

    fn remove(&mut self, key: u64) {
        if let Some(position) = self.list.iter().position(|entry| entry.0 == key) {
            self.list.remove(position);
            if position < self.hand {
                self.hand -= 1;
            }
            if self.hand == self.list.len() {
                self.hand = 0;
            }
        }
    }

    fn residents(&self) -> Vec<u64> {
        self.list.iter().map(|entry| entry.0).collect()
    }
}
