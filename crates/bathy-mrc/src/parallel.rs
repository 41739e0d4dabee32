//! One trace in memory, several threads.
//!
//! An exact profile and a sample of a fixed size are cut by their work, which has three parts of about equal size that
//! must each see the trace in order: a [`Pipeline`]. What one thread would do is done once, in as many threads as there
//! are parts. With more threads than that, an exact profile is cut by time into [`pieces`], whose joining costs extra;
//! a sample at a fixed rate is always cut by time, since nearly all its work is to hash keys.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::chunk::Chunk;
use crate::items::Items;
use crate::pieces;
use crate::pipeline::Pipeline;
use crate::profile::{Profile, record_exact};
use crate::replicates::{ReplicateStep, Replicates};
use crate::sample_filter::{Filtered, filter_items};
use crate::tracker::{Sampling, TrackerOptions};
use bathy_cache_model::LineSize;

/// Parts of the work of an exact profile, and of one of a fixed size.
const PARTS: usize = 3;

/// Lines that pass from one part to the next at a time.
const BATCH_LINES: usize = 16_384;

/// Batches that a part may be ahead of the next. With 4 two threads profile exactly 1.7 times as fast as one, with 16
/// 1.9 times.
const WINDOW: usize = 16;

/// Fewer items are not worth a thread.
const MIN_ITEMS: usize = 65_536;

/// Profiles `items` with `threads` threads. Every profile equals what one thread gives.
pub fn profile(items: &Items<'_>, threads: usize, options: TrackerOptions, line: LineSize) -> Profile {
    let len = items.len();
    if threads <= 1 || len < MIN_ITEMS {
        let mut profile = Profile::new(options, line);
        profile.access_items(items, 0..len);
        return profile;
    }
    match options.sampling {
        Sampling::Size(_) => fixed_size(items, threads, options, line),
        Sampling::Exact if threads <= PARTS => exact(items, threads, options, line),
        Sampling::Exact | Sampling::Rate(_) => pieces::profile(items, threads, options, line),
    }
}

/// Profiles line numbers with `threads` threads; see [`profile`].
pub fn profile_keys(keys: &[u64], threads: usize, options: TrackerOptions, line: LineSize) -> Profile {
    profile(&Items::Keys(keys), threads, options, line)
}

/// What passes between the parts of an exact profile.
enum Exact {
    Items(Range<usize>),
    /// The lines of these items.
    Chunks(Range<usize>, Vec<Chunk>),
    /// The distances of the lines of these items.
    Distances(Range<usize>, Vec<Vec<u32>>),
}

/// The parts: the distances within short chunks, those beyond them, and what is recorded of both.
fn exact(items: &Items<'_>, threads: usize, options: TrackerOptions, line: LineSize) -> Profile {
    let mut profile = Profile::new(options, line);
    let (search, tracker, recorder) = profile.parts();
    let mut pipeline = Pipeline::new(WINDOW);
    let searched = pipeline.add(None, |batch| {
        let Exact::Items(range) = batch else { return None };
        Some(Exact::Chunks(
            range.clone(),
            search.chunks(&items.keys(range.clone(), line)),
        ))
    });
    let resolved = pipeline.add(Some(searched), |batch| {
        let Exact::Chunks(range, chunks) = batch else {
            return None;
        };
        let distances = chunks.iter().map(|chunk| tracker.distances(chunk)).collect();
        Some(Exact::Distances(range.clone(), distances))
    });
    pipeline.add(Some(resolved), |batch| {
        let Exact::Distances(range, distances) = batch else {
            return None;
        };
        let distances = distances.iter().flatten().copied();
        record_exact(recorder, line, items, range.clone(), distances);
        None
    });
    let batches = items.batches(0..items.len(), line, BATCH_LINES);
    pipeline.run(batches.map(Exact::Items), threads);
    profile
}

/// What passes between the parts of a sample.
enum Sampled {
    Items(Range<usize>),
    Filtered(Filtered),
    Steps(Vec<ReplicateStep>),
}

/// The parts: what is in the sample, its distances, and those of its replicates. A key is filtered at a threshold that the
/// sample had a little before; it can only have been lowered since, and the sample looks again.
fn fixed_size(items: &Items<'_>, threads: usize, options: TrackerOptions, line: LineSize) -> Profile {
    let (mut sample, mut replicates) = (
        Profile::without_replicates(options, line),
        Replicates::new(&options),
    );
    let threshold = AtomicU64::new(sample.tracker().threshold());
    let mut pipeline = Pipeline::new(WINDOW);
    let filtered = pipeline.add(None, |batch| {
        let Sampled::Items(range) = batch else { return None };
        let threshold = threshold.load(Ordering::Relaxed);
        Some(Sampled::Filtered(filter_items(
            items,
            range.clone(),
            &options,
            line,
            threshold,
        )))
    });
    let sampled = pipeline.add(Some(filtered), |batch| {
        let Sampled::Filtered(filtered) = batch else {
            return None;
        };
        sample.access_filtered(filtered);
        threshold.store(sample.tracker().threshold(), Ordering::Relaxed);
        Some(Sampled::Steps(sample.take_steps()))
    });
    pipeline.add(Some(sampled), |batch| {
        let Sampled::Steps(steps) = batch else { return None };
        replicates.follow(steps);
        None
    });
    let batches = items.batches(0..items.len(), line, BATCH_LINES);
    pipeline.run(batches.map(Sampled::Items), threads);
    sample.put_replicates(replicates);
    sample
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::items::Columns;
    use crate::{Ops, Unit};

    #[test]
    fn any_number_of_threads_gives_the_same_curve() {
        let keys: Vec<u64> = (0..500_000u64)
            .map(|step| crate::hash::mix64(step) % (1 + step / 10))
            .collect();
        let line = LineSize::new(4096).expect("valid");
        let sizes: Vec<u64> = (0..300).map(|step| step * 100).collect();
        for sampling in [Sampling::Exact, Sampling::Rate(0.1)] {
            let options = TrackerOptions::new(sampling);
            let one = profile_keys(&keys, 1, options, line).curve(&sizes, Unit::Lines, Ops::All);
            for threads in [2, 3, 7] {
                let many = profile_keys(&keys, threads, options, line).curve(&sizes, Unit::Lines, Ops::All);
                assert!(
                    one.miss_ratio
                        .iter()
                        .zip(&many.miss_ratio)
                        .all(|(a, b)| (a - b).abs() < 1e-12)
                );
            }
        }
    }

    #[test]
    fn a_profile_of_several_threads_goes_on_as_that_of_one() {
        let keys: Vec<u64> = (0..600_000u64)
            .map(|step| crate::hash::mix64(step) % 50_000)
            .collect();
        let (head, tail) = keys.split_at(400_000);
        let line = LineSize::new(4096).expect("valid");
        let sizes: Vec<u64> = (0..100).map(|step| step * 500).collect();
        for sampling in [Sampling::Exact, Sampling::Rate(0.1), Sampling::Size(1000)] {
            let options = TrackerOptions::new(sampling);
            let [one, two] = [1, 2].map(|threads| {
                let mut profile = profile_keys(head, threads, options, line);
                profile.access_keys(tail);
                profile.curve(&sizes, Unit::Lines, Ops::All).miss_ratio
            });
            assert!(one.iter().zip(&two).all(|(a, b)| (a - b).abs() < 1e-12));
        }
    }

    /// Columns of random requests of one to eight lines, a quarter of them writes, some of them neither.
    struct Table {
        offset_bytes: Vec<u64>,
        length_bytes: Vec<u32>,
        op: Vec<u8>,
    }

    impl Table {
        fn random(rows: u64) -> Self {
            let mut table = Self {
                offset_bytes: Vec::new(),
                length_bytes: Vec::new(),
                op: Vec::new(),
            };
            for row in 0..rows {
                let random = crate::hash::mix64(row);
                table.offset_bytes.push(random % (1 + row / 10) * 4096);
                table.length_bytes.push(4096 << (random >> 62));
                table.op.push([0, 0, 1, 2][(random >> 40) as usize % 4]);
            }
            table
        }

        fn items(&self) -> Items<'_> {
            Items::Requests(Columns {
                offset_bytes: &self.offset_bytes,
                length_bytes: &self.length_bytes,
                op: Some(&self.op),
                volume: None,
            })
        }
    }

    #[test]
    fn requests_in_parts_equal_one_pass_and_go_on_alike() {
        let line = LineSize::new(4096).expect("valid");
        let sizes: Vec<u64> = (0..300).map(|step| step * 100).collect();
        let table = Table::random(200_000);
        let items = table.items();
        for sampling in [Sampling::Size(1000), Sampling::Exact] {
            for (joinable, group_bits) in [(false, 0), (true, 0), (true, 3)] {
                let options = TrackerOptions {
                    group_bits,
                    joinable,
                    ..TrackerOptions::new(sampling)
                };
                let mut profiles = [1, 2, 3].map(|threads| profile(&items, threads, options, line));
                for round in 0..2 {
                    let [one, others @ ..] = &profiles;
                    for other in others {
                        assert_eq!(one.tracker().tracked(), other.tracker().tracked());
                        for unit in [Unit::Lines, Unit::Requests, Unit::Bytes] {
                            for ops in [Ops::Reads, Ops::Writes] {
                                let curves = [one, other].map(|profile| profile.curve(&sizes, unit, ops));
                                assert_eq!(curves[0], curves[1], "{unit:?} {ops:?} round {round}");
                            }
                        }
                        for ops in [Ops::All, Ops::Reads, Ops::Writes] {
                            assert_eq!(
                                one.self_check(&sizes, ops).stderr(),
                                other.self_check(&sizes, ops).stderr()
                            );
                        }
                    }
                    // What follows finds all in the same state.
                    for profile in &mut profiles {
                        profile.access_items(&items, 0..50_000);
                    }
                }
            }
        }
    }
}
