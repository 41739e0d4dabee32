//! The miss-ratio curves of the running cache and of its sources: what another size would give.
//!
//! Fixed-size SHARDS (Waldspurger et al., FAST'15): the stack distances of at most so many lines, chosen by a hash of their
//! keys, say in which LRU caches a line is still there. The other policies of a cache miss about a tenth less. A line is cached
//! in units, and what a miss fetches depends on the units that are there: so for each sampled line the units are kept that would
//! be valid in a cache of each size. An adaptive fetch size is tried there as the running cache does it, and is another one for
//! another size, as neighbours are used if their lines stay long enough.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use bathy_cache_model::{FetchCosts, FetchSize, blocks};
use bathy_mrc::hash::{SamplingHash, threshold_of_rate};
use bathy_mrc::{Sampling, Tracker, TrackerOptions};
use rustc_hash::FxHashMap;

use crate::format::UNIT_BYTES;
use crate::sync::Mutex;
use crate::sync::lock;

/// The sizes, in quarters of the present one.
const QUARTERS: [u64; 9] = [1, 2, 3, 4, 6, 8, 12, 16, 32];
const SIZES: usize = QUARTERS.len();
/// References that wait to be looked up together, a few microseconds' work. After a read of the SSD the processor's caches hold
/// other bytes than the sample: so the misses of many look-ups overlap.
const WAITING: usize = 16;
/// Lines of a cache that are followed at most.
const CACHE_LINES: usize = 3072;
/// Lines of a source that are followed at most, as there may be many sources.
const SOURCE_LINES: usize = 1024;
/// Lines that left the sample are forgotten when there are so many more than may be in it.
const LINES_LEFT: usize = 512;
/// A size that has room for fewer lines of the sample has no hit ratio: distances are that coarse.
const LINES_MIN: f64 = 32.0;
/// After so many reads it is decided anew what misses fetch.
const DECIDE_READS: u64 = 64;

/// Bits of a word of [`Units`].
const WORD_BITS: usize = 16;

/// Of lines, the units that are valid in a cache of each size if it fetches with each fetch size that is tried. They are of as
/// many words as a line has units for: 90 bytes of a line of 64 KiB, 504 of one of 256 KiB.
struct Units {
    /// Words of the units of a line in one cache.
    words: usize,
    /// Fetch sizes that are tried.
    tried: usize,
    values: Vec<u16>,
    free: Vec<u32>,
}

impl Units {
    fn new(line_units: usize, tried: usize) -> Self {
        Self {
            words: line_units.div_ceil(WORD_BITS),
            tried,
            values: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Words of a line in caches of one size.
    fn words_of_size(&self) -> usize {
        self.words * self.tried
    }

    /// The place of another line, which has no units.
    fn add(&mut self) -> u32 {
        let words = self.words_of_size() * SIZES;
        if let Some(place) = self.free.pop() {
            self.values[place as usize * words..][..words].fill(0);
            return place;
        }
        let place = self.values.len() / words;
        self.values.resize(self.values.len() + words, 0);
        place as u32
    }

    /// Those of a line, by the sizes of caches.
    fn of_line(&mut self, place: u32) -> std::slice::ChunksExactMut<'_, u16> {
        let of_size = self.words_of_size();
        let words = of_size * SIZES;
        self.values[place as usize * words..][..words].chunks_exact_mut(of_size)
    }

    fn memory_bytes(&self) -> usize {
        self.values.capacity() * size_of::<u16>() + self.free.capacity() * size_of::<u32>()
    }
}

/// The units that words say.
fn units_of(words: &[u16]) -> u64 {
    let more = |units: u64, word: &u16| units << WORD_BITS | u64::from(*word);
    words.iter().rev().fold(0, more)
}

/// More of them.
fn add_units(words: &mut [u16], units: u64) {
    for (number, word) in words.iter_mut().enumerate() {
        *word |= (units >> (number * WORD_BITS)) as u16;
    }
}

/// What caches of other sizes would have served of the reads since the start, or since the size or the content became another.
#[derive(Clone, Debug, PartialEq)]
pub struct MissRatioCurve {
    /// Reads of lines: a request counts once for each line that it touches.
    pub reads: u64,
    /// Of these, the reads of lines in the sample.
    pub reads_sampled: u64,
    /// The share of lines that is in the sample now.
    pub sampling_rate: f64,
    /// From the smallest size to the largest.
    pub points: Vec<CurvePoint>,
}

/// A size of a line or more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurvePoint {
    /// The size, in whole lines.
    pub size_bytes: u64,
    /// The same as a multiple of the present size, which is 1.
    pub size_ratio: f64,
    /// The share of the reads that would have found all that they asked for; `None` of a size for which the sample is too small.
    pub hit_ratio: Option<f64>,
}

/// A read of a line.
#[derive(Clone, Copy)]
pub(crate) struct Read {
    /// The units that it touches.
    pub(crate) units: u64,
    /// The units that the file has.
    pub(crate) there: u64,
    /// As of `Backing`.
    pub(crate) break_even_bytes: u64,
    /// Whether caches that do not have the line get it.
    pub(crate) allocates: bool,
}

/// What happens to a line.
#[derive(Clone, Copy)]
enum Change {
    Read(Read),
    /// Units are written whole, and parts of others perhaps. If it does not `allocate`, caches that do not have the line do not
    /// get it.
    Write {
        units: u64,
        allocates: bool,
    },
    /// It leaves, whatever the size of the cache.
    Leave,
}

/// The cache that there is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CurveOptions {
    pub(crate) capacity_lines: u64,
    pub(crate) line_bytes: u64,
    pub(crate) fetch: FetchSize,
}

impl CurveOptions {
    fn sizes_lines(&self) -> [u64; SIZES] {
        QUARTERS.map(|quarters| self.capacity_lines * quarters / 4)
    }
}

/// What caches fetch, by size.
struct Fetching {
    levels: [usize; SIZES],
    /// The fetch sizes that are tried: one if it is fixed.
    tried: Range<usize>,
    costs: [FetchCosts; SIZES],
    /// For which disk that was decided, and how many reads may go by until it is decided anew.
    break_even_bytes: u64,
    reads_left: u64,
}

impl Fetching {
    fn new(of: &CurveOptions) -> Self {
        let costs = FetchCosts::new(of.line_bytes, UNIT_BYTES);
        let tried = match of.fetch {
            FetchSize::Fixed(bytes) => {
                let level = (bytes / UNIT_BYTES).trailing_zeros() as usize;
                level..level + 1
            }
            FetchSize::Adaptive { .. } => 0..costs.levels(),
        };
        Self {
            levels: [tried.start; SIZES],
            tried,
            costs: [costs; SIZES],
            break_even_bytes: 0,
            reads_left: 0,
        }
    }

    /// Before a read from a disk. What is measured of one changes a little all the time; another source may have another disk.
    fn decide(&mut self, break_even_bytes: u64) {
        if self.tried.len() == 1 {
            return;
        }
        let is_like = break_even_bytes.abs_diff(self.break_even_bytes) <= self.break_even_bytes / 8;
        if is_like && self.reads_left > 0 {
            self.reads_left -= 1;
            return;
        }
        self.levels = self.costs.map(|costs| costs.level(break_even_bytes));
        (self.break_even_bytes, self.reads_left) = (break_even_bytes, DECIDE_READS - 1);
    }

    /// A read of a line in the cache of one size: whether it is a hit. `of_size` are its units there, so many words for each
    /// fetch size.
    fn read(&mut self, size: usize, of_size: &mut [u16], words: usize, read: Read) -> bool {
        let (chosen, costs) = (self.levels[size], &mut self.costs[size]);
        let valid_in = of_size.chunks_exact(words).map(units_of);
        let in_all = valid_in.fold(u64::MAX, |in_all, valid| in_all & valid);
        if read.units & !in_all == 0 {
            return true;
        }
        let valid = units_of(&of_size[(chosen - self.tried.start) * words..][..words]);
        if read.allocates || valid != 0 {
            for (level, of_level) in self.tried.clone().zip(of_size.chunks_exact_mut(words)) {
                let valid = units_of(of_level);
                let missing = read.units & !valid;
                if missing != 0 {
                    let fetched = blocks(missing, level, valid | !read.there);
                    costs.count(level, missing, fetched);
                    add_units(of_level, fetched);
                }
            }
            costs.age();
        }
        read.units & !valid == 0
    }
}

/// The sampled lines.
struct Followed {
    lines_max: usize,
    sizes_lines: [u64; SIZES],
    hash: SamplingHash,
    tracker: Tracker,
    /// The places of lines in `units`.
    places: FxHashMap<u64, u32>,
    units: Units,
}

impl Followed {
    /// References a line: what a reference weighs, and its units in the caches that it has not left.
    fn touch(&mut self, key: u64) -> Option<(f64, u32)> {
        let touch = self.tracker.touch(key)?;
        if self.places.len() >= self.lines_max + LINES_LEFT {
            let threshold = threshold_of_rate(self.tracker.rate());
            let (hash, free) = (self.hash, &mut self.units.free);
            self.places.retain(|&key, &mut place| {
                let stays = hash.hash(key) <= threshold;
                free.extend((!stays).then_some(place));
                stays
            });
        }
        let place = *self.places.entry(key).or_insert_with(|| self.units.add());
        let distance = touch.distance.unwrap_or(u64::MAX);
        for (of_size, &size) in self.units.of_line(place).zip(&self.sizes_lines) {
            if distance >= size {
                of_size.fill(0);
            }
        }
        Some((touch.weight, place))
    }

    fn forget(&mut self, key: u64) {
        self.units.free.extend(self.places.remove(&key));
    }
}

struct Sample {
    of: CurveOptions,
    /// What happened last to lines, oldest first.
    waiting: Vec<(u64, Change)>,
    lines: Followed,
    fetching: Fetching,
    reads: u64,
    /// The reads that these stand for, and of them the hits in a cache of each size.
    weight: f64,
    hits: [f64; SIZES],
}

impl Sample {
    fn new(lines_max: usize, of: CurveOptions) -> Self {
        let options = TrackerOptions::new(Sampling::Size(lines_max));
        let fetching = Fetching::new(&of);
        let line_units = (of.line_bytes / UNIT_BYTES) as usize;
        Self {
            of,
            waiting: Vec::with_capacity(WAITING),
            lines: Followed {
                lines_max,
                sizes_lines: of.sizes_lines(),
                hash: SamplingHash::new(options.salt, options.group_bits),
                tracker: Tracker::new(options),
                places: FxHashMap::default(),
                units: Units::new(line_units, fetching.tried.len()),
            },
            fetching,
            reads: 0,
            weight: 0.0,
            hits: [0.0; SIZES],
        }
    }

    /// Counts what waits.
    fn settle(&mut self) {
        let mut waiting = std::mem::take(&mut self.waiting);
        let keys = waiting.iter().map(|&(key, _)| key);
        self.lines.tracker.warm(keys.clone());
        std::hint::black_box(keys.filter(|key| self.lines.places.contains_key(key)).count());
        for (key, change) in waiting.drain(..) {
            match change {
                Change::Read(read) => self.read(key, read),
                Change::Write { units, allocates } => self.write(key, units, allocates),
                Change::Leave => self.lines.forget(key),
            }
        }
        self.waiting = waiting;
    }

    fn read(&mut self, key: u64, read: Read) {
        if !read.allocates && !self.lines.places.contains_key(&key) {
            self.reads += 1;
            self.weight += 1.0 / self.lines.tracker.rate();
            return;
        }
        let Some((weight, place)) = self.lines.touch(key) else {
            return;
        };
        self.fetching.decide(read.break_even_bytes);
        let words = self.lines.units.words;
        for (size, of_size) in self.lines.units.of_line(place).enumerate() {
            if self.fetching.read(size, of_size, words, read) {
                self.hits[size] += weight;
            }
        }
        self.reads += 1;
        self.weight += weight;
    }

    fn write(&mut self, key: u64, written: u64, allocates: bool) {
        if !allocates && !self.lines.places.contains_key(&key) {
            return;
        }
        if let Some((_, place)) = self.lines.touch(key) {
            let words = self.lines.units.words;
            for valid in self
                .lines
                .units
                .of_line(place)
                .flat_map(|of_size| of_size.chunks_exact_mut(words))
            {
                if allocates || units_of(valid) != 0 {
                    add_units(valid, written);
                }
            }
        }
    }
}

/// See the [module](self).
pub(crate) struct OnlineCurve {
    hash: SamplingHash,
    /// Keys with higher hashes are not in the sample. It only falls, until the curve begins anew.
    threshold: AtomicU64,
    reads: AtomicU64,
    sample: Mutex<Sample>,
}

impl OnlineCurve {
    /// Of all that is cached.
    pub(crate) fn of_cache(of: CurveOptions) -> Self {
        Self::new(CACHE_LINES, of)
    }

    /// Of a source, as if it had a cache of its own.
    pub(crate) fn of_source(of: CurveOptions) -> Self {
        Self::new(SOURCE_LINES, of)
    }

    fn new(lines_max: usize, of: CurveOptions) -> Self {
        let sample = Sample::new(lines_max, of);
        Self {
            hash: sample.lines.hash,
            threshold: AtomicU64::new(u64::MAX),
            reads: AtomicU64::new(0),
            sample: Mutex::new(sample),
        }
    }

    /// Goes on if the cache is the same, and else begins anew, as what is kept of a line belongs to certain sizes.
    pub(crate) fn go_on(&self, of: CurveOptions) {
        let mut sample = lock(&self.sample);
        if sample.of != of {
            self.begin(&mut sample, of);
        }
    }

    /// Begins anew.
    pub(crate) fn empty(&self) {
        let mut sample = lock(&self.sample);
        let of = sample.of;
        self.begin(&mut sample, of);
    }

    fn begin(&self, sample: &mut Sample, of: CurveOptions) {
        *sample = Sample::new(sample.lines.lines_max, of);
        self.threshold.store(u64::MAX, Ordering::Relaxed);
        self.reads.store(0, Ordering::Relaxed);
    }

    fn add(&self, key: u64, change: Change) {
        if self.hash.hash(key) > self.threshold.load(Ordering::Relaxed) {
            return;
        }
        let mut sample = lock(&self.sample);
        sample.waiting.push((key, change));
        if sample.waiting.len() >= WAITING {
            sample.settle();
            // A little more, as a rate is rounded: the tracker has the last word.
            let threshold = threshold_of_rate(sample.lines.tracker.rate());
            self.threshold.store(threshold | 0xffff_ffff, Ordering::Relaxed);
        }
    }

    /// A line is read.
    pub(crate) fn read(&self, key: u64, read: Read) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.add(key, Change::Read(read));
    }

    /// Units of a line are written whole, and parts of others perhaps. If it does not `allocate`, caches that do not have the
    /// line do not get it.
    pub(crate) fn write(&self, key: u64, units: u64, allocates: bool) {
        self.add(key, Change::Write { units, allocates });
    }

    /// A line leaves the cache, whatever its size.
    pub(crate) fn forget(&self, key: u64) {
        self.add(key, Change::Leave);
    }

    /// `None` before the first read of a sampled line.
    pub(crate) fn now(&self) -> Option<MissRatioCurve> {
        let mut sample = lock(&self.sample);
        sample.settle();
        let sampling_rate = sample.lines.tracker.rate();
        let sizes = sample.lines.sizes_lines.iter().zip(sample.hits).zip(QUARTERS);
        let sizes = sizes.filter(|((size_lines, _), _)| **size_lines > 0);
        let points = sizes.map(|((&size_lines, hits), quarters)| CurvePoint {
            size_bytes: size_lines * sample.of.line_bytes,
            size_ratio: quarters as f64 / 4.0,
            hit_ratio: (sampling_rate >= 1.0 || size_lines as f64 * sampling_rate >= LINES_MIN)
                .then(|| hits / sample.weight),
        });
        (sample.reads > 0).then(|| MissRatioCurve {
            // A read that came while it began anew may be among the sampled ones alone.
            reads: self.reads.load(Ordering::Relaxed).max(sample.reads),
            reads_sampled: sample.reads,
            sampling_rate,
            points: points.collect(),
        })
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let lines = &lock(&self.sample).lines;
        lines.tracker.memory_bytes()
            + lines.units.memory_bytes()
            + lines.places.capacity() * (size_of::<(u64, u32)>() + 1) * 8 / 7
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes from one line on.
    fn curve() -> OnlineCurve {
        curve_of(4, FetchSize::Fixed(UNIT_BYTES))
    }

    fn curve_of(capacity_lines: u64, fetch: FetchSize) -> OnlineCurve {
        OnlineCurve::of_cache(options(capacity_lines, fetch))
    }

    fn options(capacity_lines: u64, fetch: FetchSize) -> CurveOptions {
        CurveOptions {
            capacity_lines,
            line_bytes: 16 * UNIT_BYTES,
            fetch,
        }
    }

    fn read(units: u64) -> Read {
        Read {
            units,
            there: 0xffff,
            break_even_bytes: 1_200_000,
            allocates: true,
        }
    }

    fn past(units: u64) -> Read {
        Read {
            allocates: false,
            ..read(units)
        }
    }

    /// The curve, and its hit ratio at so many lines.
    fn at(curve: &OnlineCurve, size_lines: u64) -> (MissRatioCurve, f64) {
        let at = curve.now().expect("it was read");
        let point = at
            .points
            .iter()
            .find(|point| point.size_bytes == size_lines * 16 * UNIT_BYTES);
        let hit_ratio = point.expect("one of the sizes").hit_ratio;
        (at, hit_ratio.expect("all lines are in the sample"))
    }

    // Locks are those of shuttle here.
    #[test]
    fn whatever_is_read_it_takes_two_megabytes_at_most() {
        shuttle::check_random(read_many, 1);
    }

    #[test]
    fn who_goes_past_the_cache_misses_in_every_size_and_takes_no_place() {
        shuttle::check_random(read_past, 1);
    }

    fn read_past() {
        let curve = curve();
        curve.read(1, read(1));
        for key in 2..10 {
            curve.read(key, past(1));
            curve.write(key, 1, false);
        }
        curve.read(1, read(1));
        curve.read(1, past(1));
        let (at, hit_ratio) = at(&curve, 1);
        assert_eq!((at.reads, at.reads_sampled), (11, 11));
        assert!((hit_ratio - 2.0 / 11.0).abs() < 1e-9, "{at:?}");
    }

    #[test]
    fn a_line_that_left_does_not_come_back_by_a_read_that_goes_past() {
        shuttle::check_random(read_past_again, 1);
    }

    fn read_past_again() {
        let curve = curve();
        (1..10).for_each(|key| curve.read(key, read(1)));
        curve.read(1, past(1));
        curve.read(1, read(1));
        assert!(at(&curve, 1).1.abs() < 1e-9);
        assert!((at(&curve, 16).1 - 2.0 / 11.0).abs() < 1e-9);
    }

    #[test]
    fn a_miss_fetches_what_the_cache_would_and_the_file_has() {
        shuttle::check_random(fetch_ahead, 1);
    }

    fn fetch_ahead() {
        let ahead = |units| Read {
            there: 0b11_1111,
            ..read(units)
        };
        let curve = curve_of(4, FetchSize::Fixed(4 * UNIT_BYTES));
        // The first block of four, and of the second one what there is.
        for units in [0b1, 0b1000, 0b1_0000, 0b10_0000] {
            curve.read(1, ahead(units));
        }
        assert!((at(&curve, 1).1 - 0.5).abs() < 1e-9);
        // Another line takes its place where there is room for one alone.
        curve.read(2, read(1));
        curve.read(1, ahead(0b100));
        curve.read(1, ahead(0b1000));
        assert!((at(&curve, 1).1 - 3.0 / 7.0).abs() < 1e-9);
        assert!((at(&curve, 2).1 - 4.0 / 7.0).abs() < 1e-9);
        // Beyond the end there was nothing to fetch.
        curve.read(1, ahead(0b100_0000));
        assert!((at(&curve, 2).1 - 4.0 / 8.0).abs() < 1e-9);
    }

    #[test]
    fn who_goes_past_does_not_keep_the_others_from_fetching_ahead_and_each_disk_has_its_size() {
        shuttle::check_random(mixed, 1);
    }

    fn mixed() {
        const ADAPTIVE: FetchSize = FetchSize::Adaptive { break_even_bytes: 0 };
        // Before anything is known a hard disk has a fetch size of 64 KiB, and this flash one of 4 KiB.
        let (hdd, flash) = (1_200_000, 10_000);
        let curve = curve_of(1000, ADAPTIVE);
        for key in 0..40 {
            curve.read(1000 + key, past(1));
            let break_even_bytes = if key % 2 == 0 { hdd } else { flash };
            for units in [1, 0x100] {
                curve.read(
                    key,
                    Read {
                        break_even_bytes,
                        ..read(units)
                    },
                );
            }
        }
        // The second read of each of 20 lines, out of 120 reads.
        assert!((at(&curve, 1000).1 - 20.0 / 120.0).abs() < 1e-9);
    }

    #[test]
    fn another_cache_begins_anew_and_the_same_goes_on() {
        shuttle::check_random(resized, 1);
    }

    fn resized() {
        let unit = FetchSize::Fixed(UNIT_BYTES);
        let curve = curve();
        curve.read(1, read(1));
        curve.go_on(options(4, unit));
        curve.read(1, read(1));
        assert!((at(&curve, 4).1 - 0.5).abs() < 1e-9);
        curve.go_on(options(8, unit));
        assert_eq!(curve.now(), None);
        curve.read(1, read(1));
        assert_eq!(at(&curve, 8).0.reads, 1);
        // That of an engine without an SSD has small lines.
        let adaptive = FetchSize::Adaptive { break_even_bytes: 0 };
        let bare = CurveOptions {
            line_bytes: UNIT_BYTES,
            ..options(8, adaptive)
        };
        let curve = OnlineCurve::of_source(bare);
        curve.go_on(options(8, adaptive));
        curve.read(1, read(1));
        curve.read(1, read(0x8000));
        assert!((at(&curve, 8).1 - 0.5).abs() < 1e-9, "the whole line was fetched");
    }

    #[test]
    fn a_line_has_as_many_units_as_it_has() {
        shuttle::check_random(line_sizes, 1);
    }

    fn line_sizes() {
        for line_units in [4, 16, 64] {
            let all = u64::MAX >> (64 - line_units);
            let of = |units| Read {
                there: all,
                ..read(units)
            };
            for fetch in [
                FetchSize::Fixed(UNIT_BYTES),
                FetchSize::Fixed(line_units * UNIT_BYTES),
            ] {
                let curve = OnlineCurve::of_cache(CurveOptions {
                    line_bytes: line_units * UNIT_BYTES,
                    ..options(4, fetch)
                });
                curve.read(1, of(1));
                curve.write(2, all, true);
                // The last unit of the line that was fetched, and of the one that was written.
                curve.read(1, of(1 << (line_units - 1)));
                curve.read(2, of(all));
                let is_whole = fetch != FetchSize::Fixed(UNIT_BYTES);
                let hits = if is_whole { 2.0 } else { 1.0 };
                let at = curve.now().expect("it was read");
                assert_eq!(at.points[3].hit_ratio, Some(hits / 3.0), "{line_units} {fetch:?}");
            }
        }
    }

    #[test]
    fn a_curve_has_no_sizes_below_a_line() {
        shuttle::check_random(tiny, 1);
    }

    fn tiny() {
        for (capacity_lines, sizes) in [(0, 0), (1, 6), (3, 8)] {
            let curve = curve_of(capacity_lines, FetchSize::Fixed(UNIT_BYTES));
            curve.read(1, read(1));
            curve.read(1, read(1));
            let at = curve.now().expect("it was read");
            assert_eq!(at.points.len(), sizes);
            assert!(
                at.points.iter().all(|point| point.hit_ratio == Some(0.5)),
                "{at:?}"
            );
        }
    }

    fn read_many() {
        let options = options(1 << 20, FetchSize::Adaptive { break_even_bytes: 0 });
        for (curve, bytes_max) in [
            (OnlineCurve::of_cache(options), 2 << 20),
            (OnlineCurve::of_source(options), 1 << 20),
        ] {
            let mut key: u64 = 1;
            let mut most = 0;
            for number in 0..3_000_000_u64 {
                key = key.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(number);
                curve.read(key >> 40 << (number % 3), read(1 << (number % 16)));
                if number % 10_000 == 0 {
                    most = most.max(curve.memory_bytes());
                }
            }
            assert!(most <= bytes_max, "{most}");
            let at = curve.now().expect("it was read");
            assert!(at.sampling_rate < 0.01 && at.reads == 3_000_000, "{at:?}");
        }
    }

    #[test]
    fn a_size_with_too_few_lines_of_the_sample_has_no_hit_ratio() {
        shuttle::check_random(too_few, 1);
    }

    fn too_few() {
        let curve = curve_of(1000, FetchSize::Fixed(UNIT_BYTES));
        (0..300_000).for_each(|key| curve.read(key, read(1)));
        let at = curve.now().expect("it was read");
        for point in &at.points {
            let is_known = point.size_ratio * 1000.0 * at.sampling_rate >= LINES_MIN;
            assert_eq!(point.hit_ratio.is_some(), is_known, "{at:?}");
        }
        assert!(
            at.points[0].hit_ratio.is_none() && at.points[8].hit_ratio.is_some(),
            "{at:?}"
        );
    }
}
