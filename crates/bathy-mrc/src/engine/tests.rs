//! The engine against the exact profile, against plain simulation, and by hand.

use proptest::prelude::*;

use super::*;
use crate::{Ops, Profile, Sampling, TrackerOptions, Unit};

mod sample;

fn options(policy: PolicyKind, line: u64, fetch: u64) -> EngineOptions {
    EngineOptions {
        policy,
        memory: None,
        line: LineSize::new(line).expect("valid"),
        unit_bytes: fetch,
        fetch: FetchSize::Fixed(fetch),
        write_mode: WriteMode::Allocate,
        admission: AdmissionOptions::default(),
        windows: None,
        sample_region_bytes: 0,
    }
}

fn requests() -> Vec<TimedIo> {
    (0..40_000u64)
        .map(|step| {
            let random = crate::hash::mix64(step);
            let bound = 1 + (random >> 40) % 4000;
            let io = Io {
                offset_bytes: (random % bound) * 4096,
                length_bytes: 4096 * (1 + (random >> 30) as u32 % 20),
                write: (random >> 60) % 4 == 0,
                volume: 0,
            };
            TimedIo {
                time_ns: step * 1_000_000,
                io,
            }
        })
        .collect()
}

const FULL_AND_HALF: [Fidelity; 2] = [
    Fidelity::Full,
    Fidelity::Miniature {
        rate: 0.5,
        min_lines: 500,
        salt: 1,
    },
];

/// What passes between the stages of a pipeline.
enum Step {
    Requests(Vec<TimedIo>),
    Pieces(Pieces),
}

#[test]
fn sizes_in_workers_of_a_flow_equal_one_pass() {
    let options = options(PolicyKind::S3Fifo, 16_384, 4096);
    let sizes: Vec<u64> = (1..8).map(|size| size * 100).collect();
    for fidelity in FULL_AND_HALF {
        let mut alone = EngineSweep::new(options, &sizes, fidelity);
        alone.access(requests().into_iter());
        for (threads, stages) in [(1, 1), (2, 3), (3, 20)] {
            let mut sweep = EngineSweep::new(options, &sizes, fidelity);
            let mut pipeline = Pipeline::new(4);
            let all = pipeline.add(None, |step: &Step| match step {
                Step::Requests(requests) => Some(Step::Requests(requests.clone())),
                Step::Pieces(_) => None,
            });
            sweep.add_to(
                &mut pipeline,
                all,
                |step| match step {
                    Step::Requests(requests) => requests,
                    Step::Pieces(_) => &[],
                },
                stages,
                Step::Pieces,
                |step| match step {
                    Step::Pieces(pieces) => pieces,
                    Step::Requests(_) => unreachable!("engines follow the splitter"),
                },
            );
            let requests = requests();
            pipeline.run(
                requests.chunks(777).map(|part| Step::Requests(part.to_vec())),
                threads,
            );
            assert_eq!(sweep.results(), alone.results());
            assert_eq!(sweep.windows(), alone.windows());
        }
    }
}

fn run(options: EngineOptions, sizes: &[u64]) -> Vec<EngineResult> {
    let mut sweep = EngineSweep::new(options, sizes, Fidelity::Full);
    for batch in requests().chunks(1000) {
        sweep.access(batch.iter().copied());
    }
    sweep.results()
}

#[test]
fn lru_with_whole_lines_equals_the_stack() {
    let sizes = [5, 50, 200];
    let line = LineSize::new(65_536).expect("valid");
    let results = run(options(PolicyKind::Lru, 65_536, 65_536), &sizes);
    let mut profile = Profile::new(TrackerOptions::new(Sampling::Exact), line);
    for request in requests() {
        profile.access_io(request.io);
    }
    // A partly written line that was not cached has invalid parts, so only the writes agree without reads' help.
    let writes = profile.curve(&sizes, Unit::Requests, Ops::Writes).miss_ratio;
    for (result, miss_ratio) in results.iter().zip(writes) {
        let hit_ratio = result.counts.writes.requests_hit / result.counts.writes.requests;
        assert!(
            (1.0 - hit_ratio - miss_ratio).abs() < 1e-9,
            "{hit_ratio} {miss_ratio}"
        );
    }
}

#[test]
fn four_kib_lines_agree_for_reads_too() {
    let sizes = [100, 1000];
    let results = run(options(PolicyKind::Lru, 4096, 4096), &sizes);
    let mut profile = Profile::new(
        TrackerOptions::new(Sampling::Exact),
        LineSize::new(4096).expect("valid"),
    );
    for request in requests() {
        profile.access_io(request.io);
    }
    for (unit, of) in [
        (
            Unit::Requests,
            (|c: OpCounts| c.requests_hit / c.requests) as fn(OpCounts) -> f64,
        ),
        (Unit::Bytes, |c| c.bytes_hit / c.bytes),
    ] {
        let misses = profile.curve(&sizes, unit, Ops::Reads).miss_ratio;
        for (result, miss_ratio) in results.iter().zip(misses) {
            assert!((1.0 - of(result.counts.reads) - miss_ratio).abs() < 1e-9);
        }
    }
    assert!((results[0].counts.reads.requests_cold / results[0].counts.reads.requests) < 1.0);
}

#[test]
fn smaller_fetches_read_less_and_hit_less() {
    let coarse = run(options(PolicyKind::S3Fifo, 65_536, 65_536), &[100])[0];
    let fine = run(options(PolicyKind::S3Fifo, 65_536, 4096), &[100])[0];
    assert!(fine.counts.backing_read_bytes < coarse.counts.backing_read_bytes);
    assert!(fine.counts.reads.bytes_hit <= coarse.counts.reads.bytes_hit);
    assert!(fine.counts.flash_write_bytes < coarse.counts.flash_write_bytes);
}

#[test]
fn a_small_queue_in_memory_and_admission_save_flash_writes() {
    let plain = run(options(PolicyKind::Lru, 4096, 4096), &[800])[0];
    let mut staged = options(PolicyKind::S3Fifo, 4096, 4096);
    staged.memory = Some(MemoryBudget::default());
    let staged = run(staged, &[800])[0];
    assert!(staged.counts.flash_write_bytes < 0.8 * plain.counts.flash_write_bytes);
    let mut budgeted = options(PolicyKind::Lru, 4096, 4096);
    let budget = 40_000_000_000;
    budgeted.write_mode = WriteMode::Update;
    budgeted.admission.write_budget_bytes_per_day = Some(budget);
    assert!(run(budgeted, &[800])[0].counts.refused == 0.0);
    budgeted.admission.write_budget_bytes_per_day = Some(10_000_000);
    let tight = run(budgeted, &[800])[0];
    assert!(tight.counts.refused > 0.0);
    let mut picky = options(PolicyKind::Lru, 4096, 4096);
    picky.admission.n_hit = Some(3);
    assert!(run(picky, &[800])[0].counts.flash_write_bytes < plain.counts.flash_write_bytes);
}

#[test]
fn writes_that_invalidate_leave_nothing_behind() {
    let mut invalidating = options(PolicyKind::Lru, 4096, 4096);
    invalidating.write_mode = WriteMode::Invalidate;
    let result = run(invalidating, &[2000])[0];
    let allocating = run(options(PolicyKind::Lru, 4096, 4096), &[2000])[0];
    assert!(result.counts.reads.requests_hit < allocating.counts.reads.requests_hit);
    assert!(result.counts.flash_write_bytes < allocating.counts.flash_write_bytes);
}

fn io(offset_bytes: u64, length_bytes: u32, write: bool) -> TimedIo {
    let io = Io {
        offset_bytes,
        length_bytes,
        write,
        volume: 0,
    };
    TimedIo { time_ns: 0, io }
}

/// One request after the other, so that the counts between them can be looked at.
struct One(EngineSweep);

impl One {
    fn new(options: EngineOptions, size: u64) -> Self {
        Self(EngineSweep::new(options, &[size], Fidelity::Full))
    }

    fn after(&mut self, request: TimedIo) -> EngineCounts {
        self.0.access(std::iter::once(request));
        self.0.results()[0].counts
    }
}

#[test]
fn with_one_line_a_request_it_is_the_plain_simulation_of_every_policy() {
    let keys: Vec<u64> = (0..40_000u64)
        .map(|s| crate::hash::mix64(s) % (1 + crate::hash::mix64(s ^ 9) % 2000))
        .collect();
    for kind in PolicyKind::ALL {
        let simulation = crate::simulate::simulate_keys(&keys, kind, None, &[200], Fidelity::Full, 1);
        let mut sweep = EngineSweep::new(options(kind, 4096, 4096), &[200], Fidelity::Full);
        sweep.access(keys.iter().map(|&key| io(key * 4096, 4096, false)));
        let result = sweep.results()[0];
        let misses = result.counts.reads.requests - result.counts.reads.requests_hit;
        // The sketch of W-TinyLFU hashes the keys, and the two number them differently.
        let tolerance = if kind == PolicyKind::WTinyLfu { 40.0 } else { 0.0 };
        let expected = simulation.sizes[0].misses as f64;
        assert!(
            (misses - expected).abs() <= tolerance,
            "{kind}: {misses} {expected}"
        );
        assert_eq!(result.counts.backing_read_bytes, misses * 4096.0, "{kind}");
        assert_eq!(result.distinct_lines, simulation.distinct_keys, "{kind}");
        assert_eq!(result.read_hit_stderr, 0.0);
    }
}

#[test]
fn a_partly_valid_line_is_fetched_in_part() {
    let mut one = One::new(options(PolicyKind::Lru, 65_536, 4096), 4);
    assert_eq!(one.after(io(0, 8192, false)).backing_read_bytes, 8192.0);
    let counts = one.after(io(4096, 8192, false));
    assert_eq!(counts.backing_read_bytes, 12_288.0, "one sub-block was there");
    assert_eq!(counts.reads.requests_hit, 0.0, "half a request is not a hit");
    assert_eq!(counts.reads.bytes_hit, 4096.0);
    let counts = one.after(io(0, 12_288, false));
    assert_eq!(
        (counts.reads.requests_hit, counts.flash_write_bytes),
        (1.0, 12_288.0)
    );
}

#[test]
fn whole_lines_bring_their_neighbours() {
    let mut one = One::new(options(PolicyKind::Lru, 65_536, 65_536), 4);
    one.after(io(0, 4096, false));
    let counts = one.after(io(61_440, 4096, false));
    assert_eq!(
        (counts.reads.requests_hit, counts.backing_read_bytes),
        (1.0, 65_536.0)
    );
}

#[test]
fn a_write_makes_valid_only_what_it_covers_whole() {
    let mut one = One::new(options(PolicyKind::Lru, 65_536, 4096), 4);
    one.after(io(2048, 4096, true));
    let counts = one.after(io(0, 4096, false));
    assert_eq!(counts.reads.requests_hit, 0.0, "no sub-block was covered whole");
    one.after(io(8192, 8192, true));
    assert_eq!(one.after(io(8192, 8192, false)).reads.requests_hit, 1.0);
}

/// What a curve of ten sizes costs for each line that it simulates.
#[test]
fn memory_grows_by_little_more_than_a_hundred_bytes_a_line() {
    let lines = 100_000u64;
    let sizes: Vec<u64> = (1..=10).map(|tenth| lines * tenth / 10).collect();
    let bytes_per_line = |policy, line, fetch| {
        let mut options = options(policy, line, fetch);
        options.memory = Some(MemoryBudget::default());
        let mut sweep = EngineSweep::new(options, &sizes, Fidelity::Full);
        let empty = sweep.memory_bytes();
        sweep.access((0..lines).map(|step| io(step * line, 4096, false)));
        assert!(sweep.memory_bytes() > empty);
        sweep.memory_bytes() as f64 / lines as f64
    };
    for policy in [PolicyKind::Lru, PolicyKind::S3Fifo] {
        let whole = bytes_per_line(policy, 4096, 4096);
        let parts = bytes_per_line(policy, 65_536, 4096);
        assert!(whole < 140.0, "{policy}: {whole}");
        // Ten sizes of sixteen bits instead of one, with an eighth to spare.
        assert!((10.0..25.0).contains(&(parts - whole)), "{policy}: {parts}");
    }
}

/// Fills, fills of missing parts and updates of cached lines are paid alike, whatever the policy stages in memory.
#[test]
fn a_write_budget_bounds_all_that_is_written_to_flash() {
    let requests = requests();
    let day_ns = 86_400_000_000_000.0;
    let days = (requests[requests.len() - 1].time_ns - requests[0].time_ns) as f64 / day_ns;
    let mut bounded = 0;
    for (policy, staged) in [
        (PolicyKind::Lru, false),
        (PolicyKind::S3Fifo, false),
        (PolicyKind::S3Fifo, true),
    ] {
        for fetch in [4096, 65_536] {
            let mut options = options(policy, 65_536, fetch);
            options.memory = staged.then(MemoryBudget::default);
            let sizes = [20, 200];
            let free = run(options, &sizes);
            for budget in [1u64 << 20, 16 << 20, 64 << 20] {
                options.admission.write_budget_bytes_per_day = Some(budget);
                for (free, paid) in free.iter().zip(run(options, &sizes)) {
                    let bound = budget as f64 * (1.0 + days);
                    assert!(paid.counts.flash_write_bytes <= bound, "{policy} {budget}");
                    bounded += u32::from(free.counts.flash_write_bytes > bound);
                }
            }
        }
    }
    assert!(bounded > 20, "the budget was felt {bounded} times");
}

#[test]
fn a_cache_of_one_line_has_no_stage_in_memory() {
    let mut options = options(PolicyKind::S3Fifo, 4096, 4096);
    options.memory = Some(MemoryBudget::default());
    let counts = One::new(options, 1).after(io(0, 4096, false));
    assert_eq!(counts.flash_write_bytes, 4096.0);
    let counts = One::new(options, 2).after(io(0, 4096, false));
    assert_eq!(counts.flash_write_bytes, 0.0);
}

#[test]
fn a_large_request_is_simulated_in_parts() {
    let mut sweep = EngineSweep::new(options(PolicyKind::Lru, 4096, 4096), &[100], Fidelity::Full);
    let longest = 1 << 30;
    sweep.access((0..3).map(|turn| io(turn << 40, longest, false)));
    let pieces = u64::from(longest) / 4096;
    assert_eq!(sweep.results()[0].distinct_lines, 3.0 * pieces as f64);
    sweep.access((0..100_000).map(|_| io(0, 65_536, false)));
    let counts = sweep.results()[0].counts;
    assert_eq!(
        (counts.reads.requests, counts.reads.requests_hit),
        (100_003.0, 99_999.0)
    );
}

#[test]
fn writes_that_only_update_fill_nothing() {
    let mut update = options(PolicyKind::Lru, 4096, 4096);
    update.write_mode = WriteMode::Update;
    let mut one = One::new(update, 4);
    one.after(io(0, 4096, true));
    one.after(io(0, 4096, false));
    let counts = one.after(io(0, 4096, true));
    assert_eq!(
        (counts.reads.requests_hit, counts.writes.requests_hit),
        (0.0, 1.0)
    );
    assert_eq!(counts.flash_write_bytes, 8192.0);
}

#[test]
fn windows_add_up_to_the_whole() {
    let mut windowed = options(PolicyKind::S3Fifo, 16_384, 16_384);
    windowed.memory = Some(MemoryBudget::default());
    windowed.windows = Some(Windows {
        origin_ns: 0,
        length_ns: 4_000_000_000,
    });
    for fidelity in FULL_AND_HALF {
        let mut sweep = EngineSweep::new(windowed, &[400, 1600], fidelity);
        for batch in requests().chunks(777) {
            sweep.access(batch.iter().copied());
        }
        for (windows, result) in sweep.windows().iter().zip(sweep.results()) {
            assert_eq!(windows.len(), 10);
            let mut sum = EngineCounts::default();
            for window in windows {
                sum.add_scaled(window, 1.0);
            }
            for (a, b) in [
                (sum.reads.requests, result.counts.reads.requests),
                (sum.reads.requests_hit, result.counts.reads.requests_hit),
                (sum.writes.bytes, result.counts.writes.bytes),
                (sum.backing_read_bytes, result.counts.backing_read_bytes),
                (sum.flash_write_bytes, result.counts.flash_write_bytes),
                (sum.evictions, result.counts.evictions),
            ] {
                // Of a sample, the ratios of the windows are their own and not that of the whole.
                let tolerance = if fidelity == Fidelity::Full { 1e-9 } else { 1e-3 };
                assert!((a - b).abs() <= tolerance * b.abs(), "{a} {b}");
            }
            let ratio = |w: &EngineCounts| w.reads.bytes_hit / w.reads.bytes;
            assert!(
                ratio(&windows[0]) < ratio(&windows[9]),
                "the first window is cold"
            );
        }
    }
}

proptest! {
    #[test]
    fn every_byte_is_counted_and_none_hits_that_was_not_fetched_or_written(
        requests in prop::collection::vec((0u64..1 << 22, 1u32..300_000, any::<bool>()), 1..200),
        size in 1u64..40,
        line_shift in 12u32..19,
        fetch_shift in 12u32..19,
        policy in 0usize..PolicyKind::ALL.len(),
    ) {
        let line_bytes = 1u64 << line_shift;
        let fetch_bytes = (1u64 << fetch_shift).min(line_bytes);
        let mut sweep = EngineSweep::new(options(PolicyKind::ALL[policy], line_bytes, fetch_bytes), &[size], Fidelity::Full);
        sweep.access(requests.iter().map(|&(offset, length, write)| io(offset, length, write)));
        let counts = sweep.results()[0].counts;
        let bytes: u64 = requests.iter().map(|r| u64::from(r.1)).sum();
        prop_assert_eq!(counts.reads.bytes + counts.writes.bytes, bytes as f64);
        prop_assert_eq!(counts.reads.requests + counts.writes.requests, requests.len() as f64);
        prop_assert!(counts.reads.bytes_hit + counts.backing_read_bytes >= counts.reads.bytes);
        prop_assert!(counts.reads.requests_hit <= counts.reads.requests && counts.reads.bytes_hit <= counts.reads.bytes);
    }

}

/// A cache of sectors of 512 bytes, by the definition: LRU over lines, of which whole sub-blocks are valid.
fn flash_bytes_by_sector(
    requests: &[(u64, u64, bool)],
    size: usize,
    line: u64,
    fetch: u64,
    mode: WriteMode,
) -> u64 {
    let (line, fetch) = (line / 512, fetch / 512);
    let mut lines: Vec<(u64, Vec<bool>)> = Vec::new();
    let mut written = 0;
    for &(start, sectors, write) in requests {
        let end = start + sectors;
        for number in start / line..=(end - 1) / line {
            let cached = lines.iter().position(|(other, _)| *other == number);
            if cached.is_none() && write && mode == WriteMode::Update {
                continue;
            }
            let mut valid = cached.map_or(vec![false; line as usize], |at| lines.remove(at).1);
            if cached.is_none() && lines.len() == size {
                lines.remove(0);
            }
            let first = number * line;
            for sub_block in (first..first + line).step_by(fetch as usize) {
                let touched = start.max(sub_block)..end.min(sub_block + fetch);
                let place = (sub_block - first) as usize..(sub_block - first + fetch) as usize;
                let was_valid = valid[place.start];
                if touched.is_empty() {
                    continue;
                }
                let whole = touched.end - touched.start == fetch;
                if write && (whole || was_valid) {
                    written += touched.end - touched.start;
                    valid[place].fill(true);
                } else if !write && !was_valid {
                    written += fetch;
                    valid[place].fill(true);
                }
            }
            lines.push((number, valid));
        }
    }
    written * 512
}

proptest! {
    #[test]
    fn flash_writes_are_those_of_a_cache_of_sectors(
        requests in prop::collection::vec((0u64..4000, 1u64..400, any::<bool>()), 1..300),
        size in 1usize..12,
        line_shift in 12u32..18,
        fetch_shift in 12u32..18,
        mode in prop::sample::select(vec![WriteMode::Allocate, WriteMode::Update]),
    ) {
        let line_bytes = 1u64 << line_shift;
        let fetch_bytes = (1u64 << fetch_shift).min(line_bytes);
        let mut options = options(PolicyKind::Lru, line_bytes, fetch_bytes);
        options.write_mode = mode;
        let mut sweep = EngineSweep::new(options, &[size as u64], Fidelity::Full);
        sweep.access(requests.iter().map(|&(start, sectors, write)| io(start * 512, sectors as u32 * 512, write)));
        let expected = flash_bytes_by_sector(&requests, size, line_bytes, fetch_bytes, mode);
        prop_assert_eq!(sweep.results()[0].counts.flash_write_bytes, expected as f64);
    }
}

#[test]
fn what_is_a_stream_does_not_depend_on_the_size_and_a_hit_is_a_hit() {
    let mut bypassing = options(PolicyKind::Lru, 65_536, 4096);
    bypassing.admission.stream_cutoff = Some(StreamCutoff {
        bytes: 1 << 20,
        is_of_writes: false,
    });
    let mut sweep = EngineSweep::new(bypassing, &[4, 1024], Fidelity::Full);
    for _ in 0..2 {
        // 32 lines, of which the cutoff lets 16 in.
        sweep.access((0..512u64).map(|page| io(page * 4096, 4096, false)));
        // Far from the first, so that the second round is a run of its own.
        sweep.access(std::iter::once(io(1 << 40, 4096, false)));
    }
    let [small, large] = [sweep.results()[0], sweep.results()[1]].map(|result| result.counts);
    assert_eq!(small.reads.requests_hit, 0.0);
    assert_eq!(
        large.reads.requests_hit, 257.0,
        "the lines below the cutoff, and the page between"
    );
    assert_eq!((small.refused, large.refused), (512.0, 512.0));
}
