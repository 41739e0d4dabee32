//! How many lines and bytes the cache has of each source, counted as they come and go, so that nobody has to look at each
//! line for it.
//!
//! Shards report each change of a line under their own lock; this one is the last to be taken. Files are found by number.
//! Numbers are given in rising order, so new ones are added at the end and a search halves.

use crate::engine::lock;
use crate::files::number_of;
use crate::format::UNIT_BYTES;
use crate::sync::Mutex;

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

#[derive(Default)]
struct Inner {
    /// By number.
    files: Vec<FileLines>,
    sources: Vec<Usage>,
    /// Lines that a source may occupy, if there is a limit.
    limits: Vec<Option<u64>>,
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

/// See the [module](self).
#[derive(Default)]
pub(crate) struct Residency(Mutex<Inner>);

impl Residency {
    /// With room for so many files.
    pub(crate) fn new(files_max: u32) -> Self {
        Self(Mutex::new(Inner {
            files: Vec::with_capacity(files_max as usize),
            sources: Vec::new(),
            limits: Vec::new(),
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
        if let Some(usage) = lock(&self.0).change(number_of(key), before, after) {
            usage.lines_entered += u64::from(before.is_none());
            usage.lines_left += u64::from(after.is_none());
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

    /// Whether a source occupies more lines than it may.
    pub(crate) fn is_over(&self, source: u16) -> bool {
        let (inner, source) = (lock(&self.0), usize::from(source));
        inner.limits[source].is_some_and(|lines_max| inner.sources[source].lines > lines_max)
    }

    /// The source of a line, if it occupies more lines than it may.
    pub(crate) fn source_over_limit(&self, key: u64) -> Option<u16> {
        let mut inner = lock(&self.0);
        let source = inner.find(number_of(key))?.source;
        let lines_max = inner.limits[usize::from(source)]?;
        (inner.sources[usize::from(source)].lines > lines_max).then_some(source)
    }

    /// Bytes of valid units, of all sources together.
    pub(crate) fn cached_bytes(&self) -> u64 {
        lock(&self.0).sources.iter().map(|usage| usage.cached_bytes).sum()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let inner = lock(&self.0);
        inner.files.capacity() * size_of::<FileLines>() + inner.sources.capacity() * size_of::<Usage>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_removed_files_make_room_when_their_lines_are_gone() {
        // Its lock is one of shuttle's here.
        shuttle::check_random(add_and_remove, 1);
    }

    fn add_and_remove() {
        let residency = Residency::new(8);
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
