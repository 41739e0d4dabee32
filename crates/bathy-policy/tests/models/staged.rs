//! S3-FIFO and `Clock2Q+` with a stage in memory, and LRU, with pinned lines.

use std::collections::BTreeSet;

use crate::Model;

struct Entry {
    key: u64,
    count: u8,
}

struct Place {
    id: usize,
    entry: Option<Entry>,
}

/// Places in the order of their turns.
struct Queue {
    capacity: usize,
    places: Vec<Place>,
    /// Places that were given back, the latest last.
    holes: Vec<usize>,
}

impl Queue {
    fn new(capacity: usize) -> Self {
        Self {
            capacity,
            places: Vec::new(),
            holes: Vec::new(),
        }
    }

    fn entry(&mut self, key: u64) -> Option<&mut Entry> {
        let mut entries = self.places.iter_mut().flat_map(|place| &mut place.entry);
        entries.find(|entry| entry.key == key)
    }

    fn put(&mut self, id: usize, key: u64) {
        let place = self.places.iter_mut().find(|place| place.id == id);
        place.expect("the place exists").entry = Some(Entry { key, count: 0 });
    }

    /// The id of a place that holds nothing.
    fn free(&mut self) -> Option<usize> {
        if let Some(id) = self.holes.pop() {
            return Some(id);
        }
        (self.places.len() < self.capacity).then(|| {
            let id = self.places.len();
            self.places.push(Place { id, entry: None });
            id
        })
    }

    /// The place whose turn it is, which is the newest from now on.
    fn turn(&mut self) -> &mut Place {
        self.places.rotate_left(1);
        self.places.last_mut().expect("the queue has places")
    }
}

pub(crate) struct Staged {
    small: Queue,
    main: Queue,
    /// The lines that left last, the oldest first; `None` for one that came back.
    ghosts: Vec<Option<u64>>,
    ghost_capacity: usize,
    promote_at: u8,
    max_count: u8,
    window: usize,
    pinned: BTreeSet<u64>,
}

impl Staged {
    pub(crate) fn s3_fifo(capacity: usize, memory: usize) -> Self {
        Self {
            small: Queue::new(memory),
            main: Queue::new(capacity - memory),
            ghosts: Vec::new(),
            ghost_capacity: capacity * 9 / 10,
            promote_at: 2,
            max_count: 3,
            window: 0,
            pinned: BTreeSet::new(),
        }
    }

    pub(crate) fn clock2q_plus(capacity: usize, memory: usize) -> Self {
        Self {
            ghost_capacity: capacity / 2,
            promote_at: 1,
            max_count: 1,
            window: memory.div_ceil(2),
            ..Self::s3_fifo(capacity, memory)
        }
    }

    /// A place in main, and who left for it.
    fn place_in_main(&mut self) -> Option<(usize, Vec<u64>)> {
        if let Some(id) = self.main.free() {
            return Some((id, Vec::new()));
        }
        let keys = self.main.places.iter().flat_map(|place| &place.entry);
        if keys.clone().all(|entry| self.pinned.contains(&entry.key)) {
            return None;
        }
        loop {
            let place = self.main.turn();
            let entry = place.entry.as_mut().expect("the queue is full");
            if self.pinned.contains(&entry.key) {
                continue;
            }
            if entry.count == 0 {
                return Some((place.id, vec![entry.key]));
            }
            entry.count -= 1;
        }
    }

    fn make_room_in_memory(&mut self) -> Option<(usize, Vec<u64>)> {
        for _ in 0..self.small.capacity {
            let place = self.small.turn();
            let (id, entry) = (place.id, place.entry.as_ref().expect("the queue is full"));
            let (key, count) = (entry.key, entry.count);
            if self.pinned.contains(&key) {
                continue;
            }
            if count < self.promote_at {
                self.ghosts.push(Some(key));
                if self.ghosts.len() > self.ghost_capacity {
                    self.ghosts.remove(0);
                }
                return Some((id, vec![key]));
            }
            if let Some((to, evicted)) = self.place_in_main() {
                self.main.put(to, key);
                return Some((id, evicted));
            }
        }
        None
    }
}

impl Model for Staged {
    fn touch(&mut self, key: u64) -> bool {
        let max_count = self.max_count;
        let held = |place: &Place| place.entry.as_ref().is_some_and(|entry| entry.key == key);
        let age = self.small.places.iter().rev().position(held);
        let is_young = age.is_some_and(|age| age < self.window);
        let entry = self.small.entry(key).or_else(|| self.main.entry(key));
        entry.is_some_and(|entry| {
            entry.count = (entry.count + u8::from(!is_young)).min(max_count);
            true
        })
    }

    fn miss(&mut self, key: u64) -> Vec<u64> {
        self.miss_unless_pinned(key).expect("nothing is pinned")
    }

    fn miss_unless_pinned(&mut self, key: u64) -> Option<Vec<u64>> {
        let ghost = self.ghosts.iter().position(|&ghost| ghost == Some(key));
        if let Some(ghost) = ghost {
            let (id, evicted) = self.place_in_main()?;
            self.ghosts[ghost] = None;
            self.main.put(id, key);
            return Some(evicted);
        }
        if let Some(id) = self.small.free() {
            self.small.put(id, key);
            return Some(Vec::new());
        }
        let main_len = self.main.places.len() - self.main.holes.len();
        if main_len < self.main.capacity || self.small.capacity == 0 {
            let (id, evicted) = self.place_in_main()?;
            self.main.put(id, key);
            return Some(evicted);
        }
        let (id, evicted) = self.make_room_in_memory()?;
        self.small.put(id, key);
        Some(evicted)
    }

    fn set_pinned(&mut self, key: u64, pinned: bool) {
        if pinned {
            self.pinned.insert(key);
        } else {
            self.pinned.remove(&key);
        }
    }

    fn remove(&mut self, key: u64) {
        self.pinned.remove(&key);
        for ghost in &mut self.ghosts {
            ghost.take_if(|ghost| *ghost == key);
        }
        for queue in [&mut self.small, &mut self.main] {
            for place in &mut queue.places {
                if place.entry.take_if(|entry| entry.key == key).is_some() {
                    queue.holes.push(place.id);
                }
            }
        }
    }

    fn residents(&self) -> Vec<u64> {
        let places = self.small.places.iter().chain(&self.main.places);
        places
            .flat_map(|place| &place.entry)
            .map(|entry| entry.key)
            .collect()
    }
}

/// The least recently used is first.
pub(crate) struct PinnedLru {
    pub(crate) capacity: usize,
    pub(crate) keys: Vec<u64>,
    pub(crate) pinned: BTreeSet<u64>,
}

impl Model for PinnedLru {
    fn touch(&mut self, key: u64) -> bool {
        let position = self.keys.iter().position(|&other| other == key);
        position.is_some_and(|position| {
            self.keys.remove(position);
            self.keys.push(key);
            true
        })
    }

    fn miss(&mut self, key: u64) -> Vec<u64> {
        self.miss_unless_pinned(key).expect("nothing is pinned")
    }

    fn miss_unless_pinned(&mut self, key: u64) -> Option<Vec<u64>> {
        let mut evicted = Vec::new();
        if self.keys.len() == self.capacity {
            let oldest = self.keys.iter().position(|key| !self.pinned.contains(key))?;
            evicted.push(self.keys.remove(oldest));
        }
        self.keys.push(key);
        Some(evicted)
    }

    fn set_pinned(&mut self, key: u64, pinned: bool) {
        if pinned {
            self.pinned.insert(key);
        } else {
            self.pinned.remove(&key);
        }
    }

    fn remove(&mut self, key: u64) {
        self.pinned.remove(&key);
        self.keys.retain(|&other| other != key);
    }

    fn residents(&self) -> Vec<u64> {
        self.keys.clone()
    }
}
