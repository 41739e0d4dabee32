//! Every policy decides as a plain reference implementation of its paper does, after every single operation.
//!
//! The references are lists and linear searches, written to be compared with the papers by eye. What is compared is
//! hits, victims in order and the resident set, for random references, touches and removals.

mod ghosts;
mod simple;
mod staged;
mod w_tinylfu;

use std::collections::BTreeSet;

use bathy_policy::{
    Arc, Clock, DenseIndex, DensePlaces, Durable, Fifo, HashIndex, HashPlaces, HashSeed, Lirs, Lru, Policy,
    Sieve, StagedFifo, StagedOptions, TwoQ, Universe, WTinyLfu,
};
use proptest::prelude::*;

/// A reference implementation. Lists have the oldest first.
pub(crate) trait Model {
    /// References `key` if it is resident.
    fn touch(&mut self, key: u64) -> bool;
    /// Inserts the absent `key` and returns who left.
    fn miss(&mut self, key: u64) -> Vec<u64>;
    /// The same, or `None` if every line in the way is pinned.
    fn miss_unless_pinned(&mut self, key: u64) -> Option<Vec<u64>> {
        Some(self.miss(key))
    }
    /// Pins the resident `key`, or no longer.
    fn set_pinned(&mut self, key: u64, _pinned: bool) {
        unreachable!("{key} cannot be pinned in this model");
    }
    /// Forgets `key`.
    fn remove(&mut self, key: u64);
    /// The resident keys.
    fn residents(&self) -> Vec<u64>;
}

#[derive(Debug, Clone, Copy)]
enum Op {
    Access(u64),
    Touch(u64),
    Remove(u64),
    /// If the key is resident.
    Pin(u64),
    /// If the key is resident.
    Unpin(u64),
}

/// A capacity and operations on keys of about twice as many blocks, a fifth of them asked for most of the time, with
/// short loops in between; 3 in 100 operations are removals, and `pins` in 100 pin a line or end that.
fn workload(pins: u8) -> impl Strategy<Value = (usize, Vec<Op>)> {
    let capacity = prop_oneof![1..12usize, 12..64usize, 195..205usize];
    capacity.prop_flat_map(move |capacity| {
        let keys = 2 * capacity as u64 + 3;
        let key = prop_oneof![0..keys, 0..keys.div_ceil(5)];
        let single = (0..100u8, key).prop_map(move |(die, key)| match die {
            0..3 => vec![Op::Remove(key)],
            3..8 => vec![Op::Touch(key)],
            _ if die < 8 + pins => vec![Op::Pin(key)],
            _ if die < 8 + 2 * pins => vec![Op::Unpin(key)],
            _ => vec![Op::Access(key)],
        });
        let run = (0..keys, 1..capacity as u64 + 4)
            .prop_map(move |(from, len)| (from..from + len).map(|key| Op::Access(key % keys)).collect());
        let ops = prop::collection::vec(prop_oneof![30 => single, 1 => run], 1..400);
        (Just(capacity), ops.prop_map(|ops: Vec<Vec<Op>>| ops.concat()))
    })
}

fn agree(policy: &mut impl Policy, mut model: impl Model, ops: &[Op]) -> Result<(), TestCaseError> {
    for (step, &op) in ops.iter().enumerate() {
        match op {
            Op::Access(key) => {
                let hit = model.touch(key);
                prop_assert_eq!(policy.reference(key).is_some(), hit, "{}", step);
                if !hit {
                    let inserted = policy.insert(key);
                    let evicted =
                        inserted.map(|inserted| inserted.victim.iter().map(|victim| victim.key).collect());
                    prop_assert_eq!(evicted, model.miss_unless_pinned(key), "step {} {:?}", step, op);
                }
            }
            Op::Touch(key) => prop_assert_eq!(policy.reference(key).is_some(), model.touch(key), "{}", step),
            Op::Remove(key) => {
                let resident = model.residents().contains(&key);
                model.remove(key);
                prop_assert_eq!(policy.remove(key).is_some(), resident, "{}", step);
            }
            Op::Pin(key) => {
                if let Some(slot) = policy.find(key) {
                    policy.pin(slot);
                    model.set_pinned(key, true);
                }
            }
            Op::Unpin(key) => {
                if let Some(slot) = policy.find(key) {
                    policy.unpin(slot);
                    model.set_pinned(key, false);
                }
            }
        }
    }
    let mut residents = BTreeSet::new();
    policy.for_each_resident(&mut |key, _| {
        residents.insert(key);
    });
    prop_assert_eq!(
        residents,
        model.residents().into_iter().collect::<BTreeSet<u64>>()
    );
    Ok(())
}

/// Agrees with the model, and a policy that took over its state in the middle goes on as it does, slot for slot.
fn agree_and_last<P: Durable>(
    make: impl Fn() -> P,
    model: impl Model,
    (before, after): (&[Op], &[Op]),
) -> Result<(), TestCaseError> {
    let mut policy = make();
    let no_pins: Vec<Op> = before
        .iter()
        .copied()
        .filter(|op| !matches!(op, Op::Pin(_)))
        .collect();
    agree(&mut policy, model, &no_pins)?;
    let mut records = Vec::new();
    policy.export(&mut |record| records.push(record));
    let mut again = make();
    prop_assert_eq!(again.import(&mut records.iter().copied()), Ok(()));
    let mut exported_again = Vec::new();
    again.export(&mut |record| exported_again.push(record));
    prop_assert_eq!(&exported_again, &records);
    for &op in after {
        match op {
            Op::Access(key) => {
                let slots = (policy.reference(key), again.reference(key));
                prop_assert_eq!(slots.0, slots.1);
                if slots.0.is_none() {
                    prop_assert_eq!(policy.insert(key), again.insert(key));
                }
            }
            Op::Touch(key) => prop_assert_eq!(policy.reference(key), again.reference(key)),
            Op::Remove(key) => prop_assert_eq!(policy.remove(key), again.remove(key)),
            Op::Pin(key) | Op::Unpin(key) => {
                let slots = (policy.find(key), again.find(key));
                prop_assert_eq!(slots.0, slots.1);
                if let Some(slot) = slots.0 {
                    if matches!(op, Op::Pin(_)) {
                        policy.pin(slot);
                        again.pin(slot);
                    } else {
                        policy.unpin(slot);
                        again.unpin(slot);
                    }
                }
            }
        }
    }
    Ok(())
}

const HASH: HashSeed = HashSeed(1);

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn lru((capacity, ops) in workload(0)) {
        agree(&mut Lru::<HashIndex>::new(capacity, HASH), simple::Lru::new(capacity), &ops)?;
    }

    #[test]
    fn fifo((capacity, ops) in workload(0)) {
        agree(&mut Fifo::<HashIndex>::new(capacity, HASH), simple::Fifo::new(capacity), &ops)?;
    }

    #[test]
    fn clock((capacity, ops) in workload(0)) {
        agree(&mut Clock::<HashIndex>::new(capacity, HASH), simple::Clock::new(capacity), &ops)?;
    }

    #[test]
    fn sieve((capacity, ops) in workload(0)) {
        agree(&mut Sieve::<HashIndex>::new(capacity, HASH), simple::Sieve::new(capacity), &ops)?;
    }

    #[test]
    fn two_q((capacity, ops) in workload(0)) {
        agree(&mut TwoQ::<HashIndex>::new(capacity, HASH), ghosts::TwoQ::new(capacity), &ops)?;
    }

    #[test]
    fn arc((capacity, ops) in workload(0)) {
        agree(&mut Arc::<DenseIndex>::new(capacity, Universe(1000)), ghosts::Arc::new(capacity), &ops)?;
    }

    #[test]
    fn lirs((capacity, ops) in workload(0)) {
        agree(&mut Lirs::<HashIndex>::new(capacity, HASH), ghosts::Lirs::new(capacity), &ops)?;
    }

    #[test]
    fn s3_fifo((capacity, ops) in workload(8), share in 0.0..0.5f64, middle: prop::sample::Index) {
        let memory = (capacity as f64 * share) as usize;
        let options = StagedOptions::s3_fifo(capacity, memory);
        let mut dense = StagedFifo::<DensePlaces>::new(capacity, Universe(0), options);
        agree(&mut dense, staged::Staged::s3_fifo(capacity, memory), &ops)?;
        let make = || StagedFifo::<HashPlaces>::new(capacity, HASH, options);
        agree(&mut make(), staged::Staged::s3_fifo(capacity, memory), &ops)?;
        let parts = ops.split_at(middle.index(ops.len()));
        agree_and_last(make, staged::Staged::s3_fifo(capacity, memory), parts)?;
    }

    #[test]
    fn clock2q_plus((capacity, ops) in workload(8), share in 0.0..0.5f64, middle: prop::sample::Index) {
        let memory = (capacity as f64 * share) as usize;
        let options = StagedOptions::clock2q_plus(capacity, memory);
        let make = || StagedFifo::<HashPlaces>::new(capacity, HASH, options);
        agree(&mut make(), staged::Staged::clock2q_plus(capacity, memory), &ops)?;
        let parts = ops.split_at(middle.index(ops.len()));
        agree_and_last(make, staged::Staged::clock2q_plus(capacity, memory), parts)?;
    }

    #[test]
    fn lru_with_pins((capacity, ops) in workload(8), middle: prop::sample::Index) {
        let model = || staged::PinnedLru { capacity, keys: Vec::new(), pinned: BTreeSet::new() };
        let make = || Lru::<HashIndex>::new(capacity, HASH);
        agree(&mut make(), model(), &ops)?;
        agree_and_last(make, model(), ops.split_at(middle.index(ops.len())))?;
    }

    #[test]
    fn w_tinylfu_window_and_contest((capacity, ops) in workload(0)) {
        agree(&mut WTinyLfu::<HashIndex>::new(capacity, HASH), w_tinylfu::WTinyLfu::new(capacity), &ops)?;
    }
}
