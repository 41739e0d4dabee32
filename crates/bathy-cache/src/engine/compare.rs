//! Files that others may have changed, whose lines are compared with them before they count again.
//!
//! The stamp of such a file says that something may have changed, not what: the stamp of a device, such as that of a `BlueStore`
//! OSD, does so after every restart of the machine. The lines of a small file are dropped. Those of a large one keep their
//! places, but are not used: reads go past them, and a write drops those that it touches. Meanwhile they are read from the
//! file and from the SSD, in the order of the file, and compared; [`FileState::compared_lines`] says how far this has come.
//! The file's record says that it is not compared until it is, so no start believes what was not.

use std::io;
use std::sync::{Arc, PoisonError, Weak};

use crate::engine::Engine;
use crate::engine::shard::Look;
use crate::engine::shard_state::{UNIT, runs};
use crate::format::Uuid;
use crate::format::first_key;
use crate::index::files::{ALL_LINES, FileState};
use crate::store::aligned::Aligned;
use crate::sync::atomic::Ordering;
use crate::sync::lock;

/// Lines that are looked for at once.
const LOOKED_FOR_LINES: u64 = 1 << 14;
/// Bytes that are read at once at most: enough for a hard disk to be mostly reading.
const READ_BYTES: u64 = 1 << 20;
impl FileState {
    /// Whether this line may be used.
    pub(crate) fn is_compared(&self, line: u64) -> bool {
        line < self.compared_lines.load(Ordering::Acquire)
    }
}

impl Engine {
    /// Compares some lines of a file of a source that others may have changed: the bytes that were read from it. `None` if
    /// there is no such file. To be called by one thread for each source, as often as its disk has time for it.
    pub fn compare_next_of(&self, source: &Uuid) -> Option<u64> {
        self.compare_next_where(|of| of == source)
    }

    /// [`Engine::compare_next_of`] of any source, for one thread that waits for all disks.
    pub fn compare_next(&self) -> Option<u64> {
        self.compare_next_where(|_| true)
    }

    fn compare_next_where(&self, is_wanted: impl Fn(&Uuid) -> bool) -> Option<u64> {
        loop {
            let next =
                |all: &[(Uuid, Weak<FileState>)]| Some(all.iter().find(|(of, _)| is_wanted(of))?.1.upgrade());
            let file = next(&lock(&self.uncompared))?;
            if let Some(read) = file.as_ref().and_then(|file| self.compare_in(file)) {
                return Some(read);
            }
            // It may have another place, if dead ones left the list.
            let is_it = |one: &Weak<FileState>| Some(one.as_ptr()) == file.as_ref().map(Arc::as_ptr);
            lock(&self.uncompared).retain(|(_, one)| one.strong_count() > 0 && !is_it(one));
            if let Some(file) = file {
                // Who closed the removed file saw that it was used here.
                if file.is_forgotten.load(Ordering::Acquire) && Arc::strong_count(&file) == 1 {
                    self.drop_lines(file.number, 0..u64::MAX);
                }
            }
        }
    }

    /// Bytes of files that are to be compared: of the parts of them that are not used.
    pub fn uncompared_bytes(&self) -> u64 {
        let left = |file: Arc<FileState>| {
            let compared = file.compared_lines.load(Ordering::Acquire);
            file.len_bytes()
                .saturating_sub(compared.saturating_mul(self.line_bytes))
        };
        let files = lock(&self.uncompared);
        files
            .iter()
            .filter_map(|(_, file)| file.upgrade())
            .map(left)
            .sum()
    }

    /// `None` if there is nothing more to compare of this file.
    fn compare_in(&self, file: &Arc<FileState>) -> Option<u64> {
        // Nobody cuts it meanwhile, and the stop waits.
        let _gate = file.gate.read().unwrap_or_else(PoisonError::into_inner);
        let is_over = self.is_stopped.load(Ordering::Acquire) || self.is_bypassed() || self.ssd.is_given_up();
        let is_forgotten = file.is_forgotten.load(Ordering::Acquire);
        // Whether the file is still the one in use is asked at its end alone: what is compared in vain makes nothing wrong.
        if is_over || is_forgotten || file.source.is_abandoned() {
            return None;
        }
        let begin = file.compared_lines.load(Ordering::Acquire);
        // Keys of a file end there.
        let end = file.len_bytes().div_ceil(self.line_bytes).min(1 << 32);
        if begin >= end {
            // If this fails the next start compares it once more.
            let _ = self.end_comparison(file);
            return None;
        }
        let looked_for = end.min(begin + LOOKED_FOR_LINES);
        let Some(first) = (begin..looked_for).find(|&line| self.has_line(file, line)) else {
            file.compared_lines.store(looked_for, Ordering::Release);
            return Some(0);
        };
        let within = first..end.min(first + (READ_BYTES / self.line_bytes).max(1));
        let lines: Vec<u64> = within.filter(|&line| self.has_line(file, line)).collect();
        let last = lines.last().copied().unwrap_or(first);
        let read = self.compare_lines(file, &lines, first, last);
        file.compared_lines.store(last + 1, Ordering::Release);
        Some(read)
    }

    fn has_line(&self, file: &FileState, line: u64) -> bool {
        let key = first_key(file.number) + line;
        self.shard(key).lock().has(key)
    }

    /// Forgets those of the lines that are not what the file has: the bytes that were read from it.
    ///
    /// Who writes to one of them at the same time has forgotten it before, or finds it compared and keeps it true.
    fn compare_lines(&self, file: &FileState, lines: &[u64], first: u64, last: u64) -> u64 {
        let start = first * self.line_bytes;
        let len = (last + 1) * self.line_bytes - start;
        let len = len.min(file.len_bytes().saturating_sub(start));
        let mut bytes = Aligned::new(len as usize);
        let read = file.store.read(&mut bytes, start);
        if read.is_ok() {
            lock(&file.source.counts).count_comparison(len);
        }
        for &line in lines {
            let of_line = bytes.get(((line - first) * self.line_bytes) as usize..);
            let of_line = of_line.filter(|_| read.is_ok()).unwrap_or_default();
            let key = first_key(file.number) + line;
            if self.is_copy_of(key, |valid| valid, of_line) != Some(true) {
                self.shard(key).forget(key);
            }
        }
        len
    }

    /// Whether what is cached of a line, of those of its units that `choose` takes, is what its file has: `bytes`, from the begin of
    /// the line on and up to its end or that of the file. `None` if that cannot be read, or changed meanwhile.
    pub(crate) fn is_copy_of(&self, key: u64, choose: impl FnOnce(u64) -> u64, bytes: &[u8]) -> Option<bool> {
        let (units, copy) = match self.shard(key).look(key, choose) {
            Look::Absent => return Some(true),
            Look::Failed => return None,
            Look::Units(units, copy) => (units, copy),
        };
        let is_same = |unit: usize| {
            let of_unit = bytes.get(unit * UNIT..).unwrap_or_default();
            // The last unit of a file has bytes beyond its end, which read as zeros.
            let of_unit = &of_unit[..of_unit.len().min(UNIT)];
            !of_unit.is_empty() && copy[unit * UNIT..].starts_with(of_unit)
        };
        Some(runs(units).flatten().all(is_same))
    }

    /// The records of what was dropped are durable before that of the file lets a start believe the others.
    fn end_comparison(&self, file: &Arc<FileState>) -> io::Result<()> {
        for shard in &self.shards {
            shard.write_out()?;
        }
        self.ssd.flush()?;
        let mut files = lock(&self.files);
        file.compared_lines.store(ALL_LINES, Ordering::Release);
        // Else its record is another's by now, or counts for who attaches the file after its source was left.
        if !file.is_forgotten.load(Ordering::Acquire) && files.uses(file) {
            files.note_compared(file, &self.ssd)?;
            self.ssd.flush()?;
        }
        Ok(())
    }
}
