//! How many lines and bytes the cache has of each source, counted as they come and go, so that nobody has to look at each
//! line for it.
//!
//! How long lines stay is measured on a sample: one line of 128, by a hash of its key, is noted when it enters, and when it
//! leaves its residence time is counted for its file and source.
//!
//! Shards report each change of a line under their own lock; this one is the last to be taken. Files are found by number.
//! Numbers are given in rising order, so new ones are added at the end and a search halves.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use crate::format::UNIT_BYTES;
use crate::format::number_of;
use crate::sync::Mutex;
use crate::sync::lock;

/// What the cache has of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Lines that it occupies.
    pub lines: u64,
    /// The most lines that it occupied since the start.
    pub lines_max: u64,
    /// Bytes of the valid units in these lines.
    pub cached_bytes: u64,
    /// Files with at least one line.
    pub files: u64,
    /// Lines that entered since the start. Those that the start found are not among them.
    pub lines_entered: u64,
    /// Lines that left since the start.
    pub lines_left: u64,
    /// Of the lines that entered since the start and left, those that were sampled.
    pub residences: u64,
    /// Their residence times, from entering to leaving, in sum.
    pub residence_ms: u64,
}

/// Residence times of sampled lines: one of 128 of those that entered since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Residence {
    /// Lines that left, unless they were forgotten for files with more.
    pub lines_left: u32,
    /// Mean time from entering to leaving of these; 0 if there are none.
    pub mean_ms: u64,
    /// Lines that are there.
    pub lines_present: u32,
    /// Time since the first of these entered; 0 if there are none.
    pub oldest_ms: u64,
}

/// A line in the cache, as it counts: its valid units.
pub(crate) type Line = Option<u32>;

#[derive(Clone, Copy)]
struct FileLines {
    number: u32,
    lines: u32,
    source: u16,
    /// It has no record any more: without lines it is nothing.
    is_gone: bool,
}

/// Of so many lines one is sampled.
const SAMPLED_ONE_OF: u64 = 128;
/// Files of which residence times are kept.
const FILES_MAX: usize = 1024;

/// Sampled lines, and how long those that left were there.
struct Sample {
    /// When each line entered, by key.
    entered_ms: HashMap<u64, u64>,
    /// Of files whose lines left: how many, and their residence times in sum.
    left: HashMap<u32, (u32, u64)>,
}

impl Sample {
    fn new(lines_max: u64) -> Self {
        // With a quarter to spare: a sample is not exactly one of so many.
        let lines = lines_max / SAMPLED_ONE_OF * 5 / 4;
        Self {
            entered_ms: HashMap::with_capacity(lines as usize),
            left: HashMap::new(),
        }
    }

    /// A line came or left: its residence time, if it left and was sampled.
    fn change(&mut self, key: u64, before: Line, after: Line, now_ms: impl FnOnce() -> u64) -> Option<u64> {
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        if before.is_some() == after.is_some() || hash % SAMPLED_ONE_OF != 0 {
            return None;
        }
        if after.is_some() {
            self.entered_ms.insert(key, now_ms());
            return None;
        }
        let residence_ms = now_ms() - self.entered_ms.remove(&key)?;
        let number = number_of(key);
        if self.left.len() >= FILES_MAX && !self.left.contains_key(&number) {
            let mut lines: Vec<u32> = self.left.values().map(|file| file.0).collect();
            let (_, &mut median, _) = lines.select_nth_unstable(FILES_MAX / 2);
            self.left.retain(|_, file| file.0 > median);
        }
        let (lines, sum_ms) = self.left.entry(number).or_default();
        *lines = lines.saturating_add(1);
        *sum_ms += residence_ms;
        Some(residence_ms)
    }

    fn residences(&self, numbers: &HashSet<u32>, now_ms: u64) -> HashMap<u32, Residence> {
        let of_file = |(&number, &(lines_left, sum_ms)): (&u32, &(u32, u64))| {
            let residence = Residence {
                lines_left,
                mean_ms: sum_ms / u64::from(lines_left.max(1)),
                ..Residence::default()
            };
            (number, residence)
        };
        let left = self.left.iter().filter(|(number, _)| numbers.contains(number));
        let mut residences: HashMap<u32, Residence> = left.map(of_file).collect();
        for (&key, &entered_ms) in &self.entered_ms {
            if numbers.contains(&number_of(key)) {
                let file = residences.entry(number_of(key)).or_default();
                file.lines_present += 1;
                file.oldest_ms = file.oldest_ms.max(now_ms - entered_ms);
            }
        }
        residences
    }

    fn memory_bytes(&self) -> usize {
        let tables = [
            (self.entered_ms.capacity(), size_of::<(u64, u64)>()),
            (self.left.capacity(), size_of::<(u32, (u32, u64))>()),
        ];
        // The tables keep a byte beside each entry, and an eighth free.
        tables
            .iter()
            .map(|(entries, bytes)| entries * 8 / 7 * (bytes + 1))
            .sum()
    }
}

fn ms_since(time: Instant) -> u64 {
    time.elapsed().as_millis() as u64
}

struct Inner {
    /// By number.
    files: Vec<FileLines>,
    sources: Vec<Usage>,
    /// Lines that a source may occupy, if there is a limit.
    limits: Vec<Option<u64>>,
    sample: Sample,
    began: Instant,
}

impl Inner {
    fn find(&mut self, number: u32) -> Option<&mut FileLines> {
        let place = self.files.binary_search_by_key(&number, |file| file.number);
        place.ok().map(|place| &mut self.files[place])
    }

    /// A line got other units, came or left: the source, if it is known.
    fn change(&mut self, number: u32, before: Line, after: Line) -> Option<&mut Usage> {
        let file = self.find(number)?;
        let files_before = u64::from(file.lines > 0);
        file.lines = file.lines + u32::from(after.is_some()) - u32::from(before.is_some());
        let files_after = u64::from(file.lines > 0);
        let source = usize::from(file.source);
        let usage = &mut self.sources[source];
        let bytes = |line: Line| u64::from(line.unwrap_or(0)) * UNIT_BYTES;
        usage.files = usage.files + files_after - files_before;
        usage.lines = usage.lines + u64::from(after.is_some()) - u64::from(before.is_some());
        usage.lines_max = usage.lines_max.max(usage.lines);
        usage.cached_bytes = usage.cached_bytes + bytes(after) - bytes(before);
        Some(usage)
    }
}

impl Default for Residency {
    fn default() -> Self {
        Self::new(0, 0)
    }
}

/// See the [module](self).
pub(crate) struct Residency(Mutex<Inner>);

impl Residency {
    /// With room for so many files and lines.
    pub(crate) fn new(files_max: u32, lines_max: u64) -> Self {
        Self(Mutex::new(Inner {
            files: Vec::with_capacity(files_max as usize),
            sources: Vec::new(),
            limits: Vec::new(),
            sample: Sample::new(lines_max),
            began: Instant::now(),
        }))
    }

    /// A new source gets a number. More than there are numbers for are counted together.
    pub(crate) fn add_source(&self) -> u16 {
        let mut inner = lock(&self.0);
        if let Ok(number) = u16::try_from(inner.sources.len()) {
            inner.sources.push(Usage::default());
            inner.limits.push(None);
            return number;
        }
        u16::MAX
    }

    /// Files that a start found, with their sources, in any order.
    pub(crate) fn found_files(&self, files: impl Iterator<Item = (u32, u16)>) {
        let mut inner = lock(&self.0);
        inner.files.extend(files.map(|(number, source)| FileLines {
            number,
            lines: 0,
            source,
            is_gone: false,
        }));
        inner.files.sort_unstable_by_key(|file| file.number);
    }

    /// A file gets a number, above all others.
    pub(crate) fn add_file(&self, number: u32, source: u16) {
        let mut inner = lock(&self.0);
        if inner.files.len() == inner.files.capacity() {
            inner.files.retain(|file| !file.is_gone || file.lines > 0);
        }
        debug_assert!(inner.files.last().is_none_or(|last| last.number < number));
        inner.files.push(FileLines {
            number,
            lines: 0,
            source,
            is_gone: false,
        });
    }

    /// A number is that of no file any more, or again. Its lines are still there.
    pub(crate) fn set_gone(&self, number: u32, is_gone: bool) {
        if let Some(file) = lock(&self.0).find(number) {
            file.is_gone = is_gone;
        }
    }

    /// Lines that a start found.
    pub(crate) fn found_lines(&self, lines: &mut dyn Iterator<Item = (u64, u32)>) {
        let mut inner = lock(&self.0);
        for (key, units) in lines {
            inner.change(number_of(key), None, Some(units));
        }
    }

    /// A line got other units, came or left.
    pub(crate) fn change(&self, key: u64, before: Line, after: Line) {
        if before == after {
            return;
        }
        let mut inner = lock(&self.0);
        let began = inner.began;
        let residence_ms = inner.sample.change(key, before, after, || ms_since(began));
        if let Some(usage) = inner.change(number_of(key), before, after) {
            usage.lines_entered += u64::from(before.is_none());
            usage.lines_left += u64::from(after.is_none());
            usage.residences += u64::from(residence_ms.is_some());
            usage.residence_ms += residence_ms.unwrap_or(0);
        }
    }

    /// The lines of the file with this number. `None` if the number is not known any more.
    pub(crate) fn lines_of(&self, number: u32) -> Option<u32> {
        lock(&self.0).find(number).map(|file| file.lines)
    }

    /// The usage of a source.
    pub(crate) fn of_source(&self, source: u16) -> Usage {
        lock(&self.0).sources[usize::from(source)]
    }

    /// How long lines of these files stay, of those that have sampled ones.
    pub(crate) fn residences(&self, numbers: &HashSet<u32>) -> HashMap<u32, Residence> {
        let inner = lock(&self.0);
        inner.sample.residences(numbers, ms_since(inner.began))
    }

    /// The source of the file with this number.
    pub(crate) fn source_of(&self, number: u32) -> Option<u16> {
        lock(&self.0).find(number).map(|file| file.source)
    }

    /// Whether a line is one of this source.
    pub(crate) fn is_of_source(&self, key: u64, source: u16) -> bool {
        self.source_of(number_of(key)) == Some(source)
    }

    /// Limits the lines of a source.
    pub(crate) fn set_limit(&self, source: u16, lines_max: Option<u64>) {
        lock(&self.0).limits[usize::from(source)] = lines_max;
    }

    /// The limit of a source.
    pub(crate) fn limit(&self, source: u16) -> Option<u64> {
        lock(&self.0).limits.get(usize::from(source)).copied().flatten()
    }

    /// How many lines more than it may a source occupies.
    pub(crate) fn lines_over(&self, source: u16) -> u64 {
        let (inner, source) = (lock(&self.0), usize::from(source));
        let lines = inner.sources[source].lines;
        lines.saturating_sub(inner.limits[source].unwrap_or(lines))
    }

    /// The source of a line, if it occupies all lines that it may, or more.
    pub(crate) fn source_at_limit(&self, key: u64) -> Option<u16> {
        let mut inner = lock(&self.0);
        let source = inner.find(number_of(key))?.source;
        let lines_max = inner.limits[usize::from(source)]?;
        (inner.sources[usize::from(source)].lines >= lines_max).then_some(source)
    }

    /// Bytes of valid units, of all sources together.
    pub(crate) fn cached_bytes(&self) -> u64 {
        lock(&self.0).sources.iter().map(|usage| usage.cached_bytes).sum()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let inner = lock(&self.0);
        inner.files.capacity() * size_of::<FileLines>()
            + inner.sources.capacity() * size_of::<Usage>()
            + inner.sample.memory_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn residence_times_are_those_of_sampled_lines() {
        let mut sample = Sample::new(100_000);
        let key = |file: u64, line: u64| file << 32 | line;
        let mut left_ms = Vec::new();
        for line in 0..50_000 {
            assert_eq!(sample.change(key(1, line), None, Some(0), || line), None);
            // Units that come later change nothing.
            assert_eq!(sample.change(key(1, line), Some(0), Some(7), || line + 1), None);
        }
        for line in 0..30_000 {
            left_ms.extend(sample.change(key(1, line), Some(7), None, || 50_000));
        }
        // One that the start found.
        assert_eq!(sample.change(key(2, 1), Some(1), None, || 9), None);
        let residences = sample.residences(&HashSet::from([1, 2]), 60_000);
        assert_eq!(residences.keys().collect::<Vec<_>>(), [&1]);
        let file = residences[&1];
        assert_eq!(file.lines_left as usize, left_ms.len());
        assert_eq!(file.mean_ms, left_ms.iter().sum::<u64>() / left_ms.len() as u64);
        // Those that left were there for 20 to 50 s, the oldest of the others came at 30 s.
        assert!((34_000..36_000).contains(&file.mean_ms), "{file:?}");
        assert!((29_000..=30_000).contains(&file.oldest_ms), "{file:?}");
        assert!(
            (180..290).contains(&file.lines_left) && (110..210).contains(&file.lines_present),
            "{file:?}"
        );
        assert!(sample.memory_bytes() < 100_000);
    }

    #[test]
    fn files_with_few_residence_times_give_way_to_others() {
        let mut sample = Sample::new(0);
        let mut leave = |file: u64| {
            let lines = (0..).map(|line| file << 32 | line);
            let mut left = lines.filter_map(|key| {
                sample.change(key, None, Some(1), || 0);
                sample.change(key, Some(1), None, || 5)
            });
            assert_eq!(left.next(), Some(5));
        };
        (0..3).for_each(|_| leave(1));
        (2..5000).for_each(leave);
        assert!(sample.left.len() <= FILES_MAX);
        assert_eq!(sample.residences(&HashSet::from([1]), 9)[&1].lines_left, 3);
    }

    #[test]
    fn numbers_of_removed_files_make_room_when_their_lines_are_gone() {
        // Its lock is one of shuttle's here.
        shuttle::check_random(add_and_remove, 1);
    }

    fn add_and_remove() {
        let residency = Residency::new(8, 1000);
        let source = residency.add_source();
        let capacity = lock(&residency.0).files.capacity() as u32;
        for number in 1..=10 * capacity {
            residency.add_file(number, source);
            let key = u64::from(number) << 32;
            residency.change(key, None, Some(3));
            residency.set_gone(number, true);
            assert_eq!(residency.of_source(source).files, 1);
            residency.change(key, Some(3), None);
        }
        assert_eq!(lock(&residency.0).files.capacity() as u32, capacity);
        let usage = residency.of_source(source);
        assert_eq!((usage.lines, usage.lines_max, usage.cached_bytes), (0, 1, 0));
        assert_eq!(
            (usage.lines_entered, usage.lines_left),
            (10 * u64::from(capacity), 10 * u64::from(capacity))
        );
    }
}
