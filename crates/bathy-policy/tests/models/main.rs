//! Every policy decides as a plain reference implementation of its paper does, after every single operation.
//!
//! The references are lists and linear searches, written to be compared with the papers by eye. What is compared is
//! hits, victims in order and the resident set, for random references, touches and removals.

mod ghosts;
mod simple;
mod w_tinylfu;

use std::collections::BTreeSet;

use bathy_policy::{
    Access, Arc, Clock, Clock2QPlus, Clock2QPlusOptions, DenseIndex, Fifo, HashIndex, HashSeed, Lirs, Lru,
    Policy, S3Fifo, S3FifoOptions, Sieve, TwoQ, Universe, WTinyLfu,
};
use proptest::prelude::*;

/// A reference implementation. Lists have the oldest first.
pub(crate) trait Model {
    /// References `key` if it is resident.
    fn touch(&mut self, key: u64) -> bool;
    /// Inserts the absent `key` and returns who left.
    fn miss(&mut self, key: u64) -> Vec<u64>;
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
}

/// A capacity and operations on keys of about twice as many blocks, a fifth of them asked for most of the time, with
/// short loops in between; 3 in 100 operations are removals.
fn workload() -> impl Strategy<Value = (usize, Vec<Op>)> {
    let capacity = prop_oneof![1..12usize, 12..64usize, 195..205usize];
    capacity.prop_flat_map(|capacity| {
        let keys = 2 * capacity as u64 + 3;
        let key = prop_oneof![0..keys, 0..keys.div_ceil(5)];
        let single = (0..100u8, key).prop_map(|(die, key)| match die {
            0..3 => vec![Op::Remove(key)],
            3..8 => vec![Op::Touch(key)],
            _ => vec![Op::Access(key)],
        });
        let run = (0..keys, 1..capacity as u64 + 4)
            .prop_map(move |(from, len)| (from..from + len).map(|key| Op::Access(key % keys)).collect());
        let ops = prop::collection::vec(prop_oneof![30 => single, 1 => run], 1..400);
        (Just(capacity), ops.prop_map(|ops: Vec<Vec<Op>>| ops.concat()))
    })
}

fn agree(mut policy: impl Policy, mut model: impl Model, ops: &[Op]) -> Result<(), TestCaseError> {
    for (step, &op) in ops.iter().enumerate() {
        match op {
            Op::Access(key) => {
                let mut evicted = Vec::new();
                let access = policy.access_with(key, &mut |key| evicted.push(key));
                let hit = model.touch(key);
                prop_assert_eq!(
                    access,
                    if hit {
                        Access::Hit
                    } else {
                        Access::Miss { inserted: true }
                    },
                    "{}",
                    step
                );
                let expected = if hit { Vec::new() } else { model.miss(key) };
                prop_assert_eq!(evicted, expected, "victims of step {} {:?}", step, op);
            }
            Op::Touch(key) => prop_assert_eq!(policy.touch(key), model.touch(key), "{}", step),
            Op::Remove(key) => {
                let resident = model.residents().contains(&key);
                model.remove(key);
                prop_assert_eq!(policy.remove(key), resident, "{}", step);
            }
        }
    }
    let mut residents = BTreeSet::new();
    policy.for_each_in_restore_order(&mut |key| {
        residents.insert(key);
    });
    prop_assert_eq!(
        residents,
        model.residents().into_iter().collect::<BTreeSet<u64>>()
    );
    Ok(())
}

const HASH: HashSeed = HashSeed(1);

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn lru((capacity, ops) in workload()) {
        agree(Lru::<HashIndex>::new(capacity, HASH), simple::Lru::new(capacity), &ops)?;
    }

    #[test]
    fn fifo((capacity, ops) in workload()) {
        agree(Fifo::<HashIndex>::new(capacity, HASH), simple::Fifo::new(capacity), &ops)?;
    }

    #[test]
    fn clock((capacity, ops) in workload()) {
        agree(Clock::<HashIndex>::new(capacity, HASH), simple::Clock::new(capacity), &ops)?;
    }

    #[test]
    fn sieve((capacity, ops) in workload()) {
        agree(Sieve::<HashIndex>::new(capacity, HASH), simple::Sieve::new(capacity), &ops)?;
    }

    #[test]
    fn two_q((capacity, ops) in workload()) {
        agree(TwoQ::<HashIndex>::new(capacity, HASH), ghosts::TwoQ::new(capacity), &ops)?;
    }

    #[test]
    fn arc((capacity, ops) in workload()) {
        agree(Arc::<DenseIndex>::new(capacity, Universe(1000)), ghosts::Arc::new(capacity), &ops)?;
    }

    #[test]
    fn lirs((capacity, ops) in workload()) {
        agree(Lirs::<HashIndex>::new(capacity, HASH), ghosts::Lirs::new(capacity), &ops)?;
    }

    #[test]
    fn s3_fifo((capacity, ops) in workload(), small_in_ram: bool) {
        let options = S3FifoOptions { small_in_ram, ..S3FifoOptions::default() };
        let policy = S3Fifo::<DenseIndex>::with_options(capacity, Universe(1000), options);
        agree(policy, ghosts::ThreeQueues::s3_fifo(capacity, small_in_ram), &ops)?;
    }

    #[test]
    fn clock2q_plus((capacity, ops) in workload(), small_in_ram: bool) {
        let options = Clock2QPlusOptions { small_in_ram, ..Clock2QPlusOptions::default() };
        let policy = Clock2QPlus::<HashIndex>::with_options(capacity, HASH, options);
        agree(policy, ghosts::ThreeQueues::clock2q_plus(capacity, small_in_ram), &ops)?;
    }

    #[test]
    fn w_tinylfu_window_and_contest((capacity, ops) in workload()) {
        agree(WTinyLfu::<HashIndex>::new(capacity, HASH), w_tinylfu::WTinyLfu::new(capacity), &ops)?;
    }
}
