//! A reference implementation of W-TinyLFU.

use bathy_policy::FrequencySketch;

use crate::Model;
use crate::ghosts::take;

/// Einziger, Friedman, Manes, ACM TOS 13(4), 2017: the window, the segmented LRU and the contest. How often a key was
/// seen is asked from the sketch itself, which has its own tests.
pub(crate) struct WTinyLfu {
    capacity: usize,
    window_capacity: usize,
    sketch: FrequencySketch,
    window: Vec<u64>,
    probation: Vec<u64>,
    protected: Vec<u64>,
}

impl WTinyLfu {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            window_capacity: (capacity / 100).max(1),
            sketch: FrequencySketch::new(capacity),
            window: Vec::new(),
            probation: Vec::new(),
            protected: Vec::new(),
        }
    }

    fn main_capacity(&self) -> usize {
        self.capacity - self.window_capacity
    }
}

impl Model for WTinyLfu {
    fn touch(&mut self, key: u64) -> bool {
        if take(&mut self.window, key) {
            self.window.push(key);
        } else if take(&mut self.protected, key) {
            self.protected.push(key);
        } else if take(&mut self.probation, key) {
            self.protected.push(key);
            if self.protected.len() > self.main_capacity() * 4 / 5 {
                self.probation.push(self.protected.remove(0));
            }
        } else {
            return false;
        }
        self.sketch.add(key);
        true
    }

    /// As the paper tells it: the newcomer enters the window, what falls out of the window enters main, and if main
    /// overflows, the two oldest compete.
    fn miss(&mut self, key: u64) -> Vec<u64> {
        self.sketch.add(key);
        self.window.push(key);
        if self.window.len() <= self.window_capacity {
            return Vec::new();
        }
        let challenger = self.window.remove(0);
        if self.probation.len() + self.protected.len() < self.main_capacity() {
            self.probation.push(challenger);
            return Vec::new();
        }
        let main = if self.probation.is_empty() {
            &mut self.protected
        } else {
            &mut self.probation
        };
        match main.first() {
            Some(&champion) if self.sketch.estimate(challenger) > self.sketch.estimate(champion) => {
                main.remove(0);
                self.probation.push(challenger);
                vec![champion]
            }
            _ => vec![challenger],
        }
    }

    fn remove(&mut self, key: u64) {
        for list in [&mut self.window, &mut self.probation, &mut self.protected] {
            take(list, key);
        }
    }

    fn residents(&self) -> Vec<u64> {
        [&self.window[..], &self.probation, &self.protected].concat()
    }
}
