//! What holds for every device under every load.

use std::collections::{BTreeMap, BTreeSet};

use bathy_simdisk::model::{Op, Outcome, Request, Settings};
use bathy_simdisk::profile::PROFILES;
use proptest::prelude::*;

const BLOCKS: u64 = 4096;
const SIZE: u64 = BLOCKS * 4096;

#[derive(Debug, Clone, Copy)]
struct Step {
    op: Op,
    block: u64,
    blocks: u64,
    pause_ns: u64,
}

fn step() -> impl Strategy<Value = Step> {
    let op = prop_oneof![
        4 => Just(Op::Read),
        4 => Just(Op::Write { durable: false }),
        1 => Just(Op::Write { durable: true }),
        1 => Just(Op::Flush),
        1 => Just(Op::Discard),
    ];
    let pause = prop_oneof![Just(0_u64), 1_000..100_000_u64, 1_000_000..50_000_000_u64];
    (op, 0..BLOCKS - 64, 1..64_u64, pause).prop_map(|(op, block, blocks, pause_ns)| Step {
        op,
        block,
        blocks,
        pause_ns,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Every request is answered once, in order of time and not before it came; a durable write is durable before it is
    /// answered; when a flush is answered, everything answered before it came is durable; and the same load gives the
    /// same times.
    #[test]
    fn promises(
        steps in prop::collection::vec(step(), 1..150),
        profile in prop::sample::select(PROFILES),
        write_cache in prop::option::of(any::<bool>()),
        seed in 0..4_u64,
    ) {
        let settings = Settings { size_bytes: SIZE, seed, write_cache };
        let mut device = profile.device(&settings);
        let mut twin = profile.device(&settings);
        let mut now_ns = 0;
        let mut last_ns = 0;
        let mut open: BTreeMap<u64, (Op, u64)> = BTreeMap::new();
        let (mut answered, mut durable) = (BTreeSet::new(), BTreeSet::new());
        let mut guarded: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
        let (mut outcomes, mut twins) = (Vec::new(), Vec::new());
        let mut arrivals = steps.iter().enumerate();
        let mut next = arrivals.next();
        loop {
            let event_ns = device.next_event_ns();
            prop_assert_eq!(event_ns, twin.next_event_ns());
            match (next, event_ns) {
                (None, None) => break,
                (Some((index, step)), event) if event.is_none_or(|it| it > now_ns + step.pause_ns) => {
                    now_ns += step.pause_ns;
                    let (id, flush) = (index as u64 + 1, step.op == Op::Flush);
                    let length = if flush { 0 } else { step.blocks * 4096 };
                    let request = Request::new(id, step.op, if flush { 0 } else { step.block * 4096 }, length);
                    device.submit(request, now_ns);
                    twin.submit(request, now_ns);
                    open.insert(id, (step.op, now_ns));
                    if flush {
                        guarded.insert(id, answered.clone());
                    }
                    next = arrivals.next();
                }
                (_, event) => {
                    now_ns = now_ns.max(event.unwrap_or(now_ns));
                    device.advance(now_ns, &mut outcomes);
                    twin.advance(now_ns, &mut twins);
                    prop_assert_eq!(&outcomes, &twins);
                }
            }
            twins.clear();
            for outcome in outcomes.drain(..) {
                match outcome {
                    Outcome::Durable { id } => {
                        durable.insert(id);
                    }
                    Outcome::Completed { id, at_ns } => {
                        prop_assert!(at_ns >= last_ns, "time goes back");
                        last_ns = at_ns;
                        let (op, since_ns) = open.remove(&id).expect("answered once");
                        prop_assert!(at_ns >= since_ns && at_ns <= now_ns);
                        let promised = match op {
                            Op::Write { durable } => {
                                answered.insert(id);
                                if durable { BTreeSet::from([id]) } else { BTreeSet::new() }
                            }
                            Op::Flush => guarded.remove(&id).unwrap_or_default(),
                            Op::Read | Op::Discard => BTreeSet::new(),
                        };
                        let kept = !device.is_volatile() || promised.is_subset(&durable);
                        prop_assert!(kept, "{op:?} {id} broke its promise of {promised:?}");
                    }
                }
            }
        }
        prop_assert!(open.is_empty(), "{} requests are never answered", open.len());
        let left: Vec<u64> = answered.difference(&durable).copied().collect();
        prop_assert!(left.is_empty() || !device.is_volatile(), "volatile for ever: {left:?}");
    }

    /// After a power cut a device forgets what was in flight and works as before.
    #[test]
    fn power_cuts(steps in prop::collection::vec(step(), 1..60), profile in prop::sample::select(PROFILES)) {
        let mut device = profile.device(&Settings::new(SIZE, 1));
        let mut now_ns = 0;
        for (index, step) in steps.iter().enumerate() {
            now_ns += step.pause_ns;
            device.submit(Request::new(index as u64 + 1, step.op, step.block * 4096, step.blocks * 4096), now_ns);
            if index % 7 == 6 {
                device.power_cut(now_ns);
                prop_assert_eq!(device.next_event_ns(), None);
                prop_assert_eq!(device.work().volatile_bytes, 0);
            }
        }
        let mut outcomes = Vec::new();
        device.power_cut(now_ns);
        device.submit(Request::new(1000, Op::Read, 0, 4096), now_ns);
        while let Some(event_ns) = device.next_event_ns() {
            device.advance(event_ns, &mut outcomes);
        }
        let answered = matches!(outcomes[..], [Outcome::Completed { id: 1000, .. }]);
        prop_assert!(answered);
    }
}
