//! One operation after the other: the decisions against a list of lines, a state that is taken over, what a line costs.

use std::collections::BTreeSet;

use bathy_cache_model::{
    AdmissionOptions, Backing, CacheConfig, CacheModel, FetchSize, Io, LineSize, Part, RequestSplitter,
    WriteMode,
};
use bathy_policy::{
    Durable, HashIndex, HashPlaces, HashSeed, Lru, Policy, PolicyKind, PolicyOptions, PolicyVisitor,
    StagedFifo, StagedOptions, StateRecord, visit_policy,
};
use proptest::prelude::*;

const UNIT: u64 = 4096;
const LINE: u64 = 16_384;

fn config(write_mode: WriteMode) -> CacheConfig {
    CacheConfig {
        line: LineSize::new(LINE).expect("a power of two"),
        unit_bytes: UNIT,
        fetch: FetchSize::Fixed(UNIT),
        write_mode,
        admission: AdmissionOptions::default(),
    }
}

fn requests() -> impl Strategy<Value = Vec<Io>> {
    let offset_bytes = prop_oneof![
        0..40 * LINE,
        (0..160u64).prop_map(|unit| unit * UNIT),
        0..4 * LINE
    ];
    let length_bytes = prop_oneof![1..40_000u32, (1..10u32).prop_map(|units| units * 4096)];
    let io = (offset_bytes, length_bytes, prop::bool::weighted(0.3)).prop_map(
        |(offset_bytes, length_bytes, write)| Io {
            offset_bytes,
            length_bytes,
            write,
            volume: u32::MAX,
        },
    );
    prop::collection::vec(io, 1..200)
}

/// LRU lines with their valid units, the least recently used first.
struct Plain {
    capacity: usize,
    write_mode: WriteMode,
    lines: Vec<(u64, BTreeSet<u64>)>,
}

impl Plain {
    /// Takes the line out, or makes one; who leaves for that.
    fn take(&mut self, key: u64) -> (bool, BTreeSet<u64>) {
        let position = self.lines.iter().position(|line| line.0 == key);
        position.map_or((false, BTreeSet::new()), |position| {
            (true, self.lines.remove(position).1)
        })
    }

    fn put(&mut self, key: u64, valid: BTreeSet<u64>) -> Option<u64> {
        self.lines.push((key, valid));
        (self.lines.len() > self.capacity).then(|| self.lines.remove(0).0)
    }
}

fn set(mask: u64) -> BTreeSet<u64> {
    (0..64).filter(|unit| mask >> unit & 1 == 1).collect()
}

/// The units that a part touches, and those that it covers whole.
fn units(part: &Part) -> (BTreeSet<u64>, BTreeSet<u64>) {
    let all = 0..LINE / UNIT;
    let (start, end) = (u64::from(part.start), u64::from(part.end));
    let touched = all
        .clone()
        .filter(|unit| unit * UNIT < end && (unit + 1) * UNIT > start);
    let covered = all.filter(|unit| unit * UNIT >= start && (unit + 1) * UNIT <= end);
    (touched.collect(), covered.collect())
}

fn agree(
    cache: &mut CacheModel<Lru<HashIndex>>,
    plain: &mut Plain,
    part: &Part,
    write: bool,
) -> Result<(), TestCaseError> {
    let (touched, covered) = units(part);
    if !write {
        let plan = cache.read(part, 0);
        let miss = plan.miss.unwrap_or_default();
        let (was_cached, mut valid) = plain.take(part.key);
        prop_assert_eq!(set(plan.hit), &touched & &valid);
        prop_assert_eq!(set(miss.fetch), &touched - &valid);
        prop_assert_eq!((miss.pass, miss.awaited, miss.refused), (0, 0, false));
        valid.extend(&touched);
        let victim = plain.put(part.key, valid);
        prop_assert_eq!(miss.room.victim.map(|victim| victim.key), victim);
        prop_assert!(victim.is_none() || !was_cached);
        let slot = plan.slot.expect("nothing is refused");
        prop_assert_eq!(
            set(cache.valid_units(slot))
                .intersection(&set(miss.fetch))
                .count(),
            0,
            "not before it is done"
        );
        if let Some(fill) = miss.fill {
            prop_assert_eq!(cache.fill_done(fill, true), miss.fetch);
        }
        return Ok(());
    }
    let plan = cache.write(part, 0);
    let (was_cached, mut valid) = plain.take(part.key);
    prop_assert_eq!(plan.was_cached, was_cached);
    let kept: BTreeSet<u64> = &covered | &(&touched & &valid);
    valid.extend(&covered);
    let stays = match plain.write_mode {
        WriteMode::Allocate => true,
        WriteMode::Update => was_cached,
        WriteMode::Invalidate => false,
    };
    prop_assert_eq!(plan.slot.is_some(), stays);
    prop_assert_eq!(set(plan.keep), if stays { kept } else { BTreeSet::new() });
    let victim = if stays { plain.put(part.key, valid) } else { None };
    prop_assert_eq!(plan.room.victim.map(|victim| victim.key), victim);
    prop_assert_eq!(cache.write_done(plan.ticket, true), plan.keep);
    Ok(())
}

fn parts(io: Io) -> Vec<Part> {
    let mut splitter = RequestSplitter::new(LineSize::new(LINE).expect("a power of two"), None);
    splitter.split(io).collect()
}

/// What a request of a part did: the plan, without its ticket.
fn plan<P: Policy>(
    cache: &mut CacheModel<P>,
    part: &Part,
    write: bool,
    time_ns: u64,
    has_room: bool,
) -> String {
    if write {
        let plan = cache.write_in(WriteMode::Allocate, part, time_ns, |_| has_room);
        cache.write_done(plan.ticket, true);
        return format!("{:?} {:x} {:?} {}", plan.slot, plan.keep, plan.room, plan.refused);
    }
    let disk = Backing {
        break_even_bytes: 50_000,
        line_end: u32::MAX,
    };
    let plan = cache.read_from(disk, part, time_ns, |_| has_room);
    let miss = plan.miss.unwrap_or_default();
    miss.fill.map(|fill| cache.fill_done(fill, true));
    let (fetch, room, refused) = (miss.fetch, miss.room, miss.refused);
    format!("{:?} {:x} {fetch:x} {room:?} {refused}", plan.slot, plan.hit)
}

/// What a request did: for each part the plan.
fn run<P: Policy>(cache: &mut CacheModel<P>, io: Io) -> Vec<String> {
    let plan = |part: &Part| plan(cache, part, io.write, 0, true);
    parts(io).iter().map(plan).collect()
}

fn exported<P: Durable>(cache: &CacheModel<P>) -> Vec<(StateRecord, u64)> {
    let mut records = Vec::new();
    cache.export(&mut |record, units| records.push((record, units)));
    records
}

fn lasts<P: Durable>(
    make: impl Fn() -> CacheModel<P>,
    (before, after): (&[Io], &[Io]),
) -> Result<(), TestCaseError> {
    let (mut cache, mut again) = (make(), make());
    for &io in before {
        run(&mut cache, io);
    }
    prop_assert_eq!(again.import(exported(&cache).into_iter()), Ok(()));
    for &io in after {
        prop_assert_eq!(run(&mut cache, io), run(&mut again, io));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn plans_are_those_of_a_list_of_lines(
        capacity in 1..30usize,
        write_mode in prop::sample::select(vec![WriteMode::Allocate, WriteMode::Update, WriteMode::Invalidate]),
        requests in requests(),
    ) {
        let mut cache = CacheModel::new(config(write_mode), Lru::<HashIndex>::new(capacity, HashSeed(1)));
        let mut plain = Plain { capacity, write_mode, lines: Vec::new() };
        let mut splitter = RequestSplitter::new(config(write_mode).line, None);
        for io in requests {
            let parts: Vec<Part> = splitter.split(io).collect();
            for part in &parts {
                agree(&mut cache, &mut plain, part, io.write)?;
            }
        }
    }

    #[test]
    fn a_cache_that_starts_again_decides_as_if_it_had_never_stopped(
        capacity in 2..40usize, requests in requests(), middle: prop::sample::Index,
    ) {
        let parts = requests.split_at(middle.index(requests.len()));
        let config = config(WriteMode::Allocate);
        lasts(|| CacheModel::new(config, Lru::<HashIndex>::new(capacity, HashSeed(1))), parts)?;
        let options = StagedOptions::s3_fifo(capacity, 1 + capacity / 10);
        lasts(|| CacheModel::new(config, StagedFifo::new(capacity, HashSeed(1), options)), parts)?;
    }

    /// Nobody leaves for it, a ghost stays one, and neither the write budget nor the trial of fetch sizes count it.
    #[test]
    fn a_newcomer_that_the_driver_has_no_room_for_changes_nothing(
        capacity in 2..40usize,
        requests in requests(),
        has_room in prop::collection::vec(prop::bool::weighted(0.7), 200),
    ) {
        let config = CacheConfig {
            fetch: FetchSize::Adaptive { break_even_bytes: 0 },
            admission: AdmissionOptions { write_budget_bytes_per_day: Some(50_000_000), ..AdmissionOptions::default() },
            ..config(WriteMode::Allocate)
        };
        let options = StagedOptions::s3_fifo(capacity, 1 + capacity / 10);
        let make = || CacheModel::new(config, StagedFifo::<HashPlaces>::new(capacity, HashSeed(1), options));
        let (mut cache, mut unasked) = (make(), make());
        for ((io, has_room), minute) in requests.into_iter().zip(has_room).zip(0u64..) {
            let time_ns = minute * 60_000_000_000;
            for part in parts(io) {
                if has_room || unasked.policy().find(part.key).is_some() {
                    let expected = plan(&mut unasked, &part, io.write, time_ns, true);
                    prop_assert_eq!(plan(&mut cache, &part, io.write, time_ns, has_room), expected);
                } else {
                    let refused = plan(&mut cache, &part, io.write, time_ns, false);
                    prop_assert!(refused.starts_with("None 0") && refused.ends_with("true"), "{}", refused);
                }
            }
            prop_assert_eq!(cache.ahead_units(), unasked.ahead_units());
            prop_assert_eq!(cache.fetch_bytes(50_000), unasked.fetch_bytes(50_000));
        }
        prop_assert_eq!(exported(&cache), exported(&unasked));
    }
}

/// Policy, valid units and what else the model keeps, in lines of 64 KiB with units of 4 KiB.
#[test]
fn a_line_costs_two_bytes_more_than_its_policy() {
    struct Bytes(CacheConfig);
    impl PolicyVisitor for Bytes {
        type Output = (usize, usize);
        fn visit<P: bathy_policy::Policy + Send + 'static>(self, policy: P) -> Self::Output {
            let bytes = policy.memory_bytes();
            (bytes, CacheModel::new(self.0, policy).memory_bytes())
        }
    }
    let lines = 1 << 20;
    let config = CacheConfig {
        line: LineSize::new(65_536).expect("a power of two"),
        ..config(WriteMode::Allocate)
    };
    let options = PolicyOptions {
        stage_ratio: 1.0 / 64.0,
    };
    for kind in [PolicyKind::S3Fifo, PolicyKind::Clock2QPlus, PolicyKind::Lru] {
        let (policy, model) = visit_policy(kind, lines, None, options, Bytes(config));
        assert!(policy <= 24 * lines, "{kind}: {policy}");
        let more = (model - policy) as f64 / lines as f64;
        assert!((2.0..2.3).contains(&more), "{kind}: {more}");
    }
}
