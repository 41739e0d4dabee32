//! The policies that a cache runs, chosen when it is made.

use crate::durable::{Durable, ImportError, StateRecord};
use crate::index::HashIndex;
use crate::kind::PolicyKind;
use crate::places::HashPlaces;
use crate::policy::{Access, Inserted, Policy};
use crate::slots::HashSeed;
use crate::{Lru, StagedFifo, StagedOptions};

/// One of [`CachePolicy::KINDS`]: all take at most 24 bytes a line, have as many slots as lines, and can be stored.
#[derive(Debug, Clone)]
pub enum CachePolicy {
    /// S3-FIFO or `Clock2Q+`, with a stage in memory.
    Staged(StagedFifo<HashPlaces>),
    /// LRU, which has no stage: all that enters is written to the SSD. After an interruption, which leaves lines alone,
    /// their order is that of their slots.
    Lru(Lru<HashIndex>),
}

macro_rules! each {
    ($policy:expr, $name:ident => $call:expr) => {
        match $policy {
            CachePolicy::Staged($name) => $call,
            CachePolicy::Lru($name) => $call,
        }
    };
}

impl CachePolicy {
    /// What a cache can run; the first one is the default.
    pub const KINDS: [PolicyKind; 3] = [PolicyKind::S3Fifo, PolicyKind::Clock2QPlus, PolicyKind::Lru];

    /// An empty policy of so many lines, `stage_lines` of them in memory where the policy has a stage. `None` if a cache does
    /// not run this kind.
    ///
    /// # Panics
    /// If the numbers of lines are outside their ranges.
    pub fn new(kind: PolicyKind, capacity: usize, stage_lines: usize) -> Option<Self> {
        let seed = HashSeed::default();
        let staged = |options| Self::Staged(StagedFifo::new(capacity, seed, options));
        match kind {
            PolicyKind::S3Fifo => Some(staged(StagedOptions::s3_fifo(capacity, stage_lines))),
            PolicyKind::Clock2QPlus => Some(staged(StagedOptions::clock2q_plus(capacity, stage_lines))),
            PolicyKind::Lru => Some(Self::Lru(Lru::new(capacity, seed))),
            _ => None,
        }
    }
}

impl Policy for CachePolicy {
    #[inline]
    fn reference(&mut self, key: u64) -> Option<u32> {
        each!(self, policy => policy.reference(key))
    }

    #[inline]
    fn find(&self, key: u64) -> Option<u32> {
        each!(self, policy => policy.find(key))
    }

    #[inline]
    fn insert(&mut self, key: u64) -> Option<Inserted> {
        each!(self, policy => policy.insert(key))
    }

    fn insert_in_memory(&mut self, key: u64) -> Option<Inserted> {
        each!(self, policy => policy.insert_in_memory(key))
    }

    #[inline]
    fn access(&mut self, key: u64) -> Access {
        each!(self, policy => policy.access(key))
    }

    #[inline]
    fn pin(&mut self, slot: u32) {
        each!(self, policy => policy.pin(slot));
    }

    #[inline]
    fn unpin(&mut self, slot: u32) {
        each!(self, policy => policy.unpin(slot));
    }

    #[inline]
    fn is_pinned(&self, slot: u32) -> bool {
        each!(self, policy => policy.is_pinned(slot))
    }

    fn remove(&mut self, key: u64) -> Option<u32> {
        each!(self, policy => policy.remove(key))
    }

    fn len(&self) -> usize {
        each!(self, policy => policy.len())
    }

    fn capacity(&self) -> usize {
        each!(self, policy => policy.capacity())
    }

    fn slots_end(&self) -> usize {
        each!(self, policy => policy.slots_end())
    }

    fn memory_lines(&self) -> usize {
        each!(self, policy => policy.memory_lines())
    }

    fn lines_in_memory(&self) -> usize {
        each!(self, policy => policy.lines_in_memory())
    }

    #[inline]
    fn is_in_memory(&self, slot: u32) -> bool {
        each!(self, policy => policy.is_in_memory(slot))
    }

    fn key_at(&self, slot: u32) -> Option<u64> {
        each!(self, policy => policy.key_at(slot))
    }

    fn memory_bytes(&self) -> usize {
        each!(self, policy => policy.memory_bytes())
    }

    fn for_each_resident(&self, visit: &mut dyn FnMut(u64, u32)) {
        each!(self, policy => policy.for_each_resident(visit));
    }
}

impl Durable for CachePolicy {
    fn export(&self, emit: &mut dyn FnMut(StateRecord)) {
        each!(self, policy => policy.export(emit));
    }

    fn import(&mut self, records: &mut dyn Iterator<Item = StateRecord>) -> Result<(), ImportError> {
        each!(self, policy => policy.import(records))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_takes_at_most_24_bytes_a_line_and_has_as_many_slots_as_lines() {
        for kind in PolicyKind::ALL {
            let policy = CachePolicy::new(kind, 100_000, 1_562);
            assert_eq!(policy.is_some(), CachePolicy::KINDS.contains(&kind), "{kind}");
            let Some(policy) = policy else {
                continue;
            };
            assert!(policy.memory_bytes() <= 24 * 100_000, "{kind}");
            assert_eq!(
                (policy.capacity(), policy.slots_end()),
                (100_000, 100_000),
                "{kind}"
            );
        }
    }
}
