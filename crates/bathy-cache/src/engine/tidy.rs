//! What makes files durable and takes their marks back.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use crate::engine::Engine;
use crate::engine::shard::Shard;
use crate::format::Uuid;
use crate::index::files::{FileState, Files};
use crate::index::source::Source;
use crate::mutant::{Mutant, is_made};
use crate::store::ssd::FlushNumber;
use crate::sync::atomic::Ordering;
use crate::sync::{MutexGuard, if_free, lock};

/// Files that are looked at for one that is to be settled.
const LOOKED_AT_MAX: usize = 16;

impl Engine {
    /// Takes back the intent of regions that nobody wrote to since the last call, notes which files are at rest, and writes
    /// the records that wait. To be called now and then, such as every few seconds: it bounds what a power cut takes from the
    /// cache, and how many files that were closed are kept open. Whether all records are on the SSD.
    ///
    /// This waits for the disks of all sources. Who has several calls [`Engine::tidy_source`] for each, by a thread of its own,
    /// and then [`Engine::tidy_shared`].
    pub fn tidy(&self) -> bool {
        for (_, source) in self.all_sources() {
            self.make_source_durable(&source, &mut lock(&source.tidying));
        }
        self.tidy_shared()
    }

    /// The sources that files are known of.
    pub fn sources(&self) -> Vec<Uuid> {
        lock(&self.files).sources.keys().copied().collect()
    }

    /// The part of [`Engine::tidy`] that waits for the disk of a source, and for no other. Nothing happens if somebody does it.
    pub fn tidy_source(&self, source: &Uuid) {
        let source = lock(&self.files).source(source);
        if let Some(mut idle) = if_free(source.tidying.try_lock()) {
            self.make_source_durable(&source, &mut idle);
        }
    }

    pub(crate) fn all_sources(&self) -> Vec<(Uuid, Arc<Source>)> {
        let files = lock(&self.files);
        let sources = files.sources.iter();
        sources
            .map(|(uuid, source)| (*uuid, Arc::clone(source)))
            .collect()
    }

    /// The sources for whose disks somebody waits at this moment, other than for a request.
    pub(crate) fn waited_for(&self) -> Vec<Uuid> {
        let mut sources = self.all_sources();
        let unflushed: Vec<Arc<FileState>> = lock(&self.unflushed).values().cloned().collect();
        let flushed = unflushed
            .iter()
            .filter(|file| if_free(file.flush_error.try_lock()).is_none());
        let mut waited_for: HashSet<Uuid> = flushed.map(|file| *file.identity.source()).collect();
        sources.retain(|(_, source)| if_free(source.tidying.try_lock()).is_none());
        waited_for.extend(sources.iter().map(|(uuid, _)| *uuid));
        waited_for.extend(lock(&self.files).claimed.iter().map(|file| *file.source()));
        waited_for.into_iter().collect()
    }

    fn make_source_durable(&self, source: &Source, idle: &mut Vec<u64>) {
        // Those of the last time wait for the SSD still: a disk that takes longer than a round has its turn all the same.
        if !self.can_be_tidied() || !idle.is_empty() {
            return;
        }
        let found = self.intent.idle(source.number);
        let is_of_source = |file: &&Arc<FileState>| file.source.number == source.number;
        let files = lock(&self.unflushed);
        let numbers: Vec<u32> = files
            .values()
            .filter(is_of_source)
            .map(|file| file.number)
            .collect();
        drop(files);
        for number in numbers {
            if source.is_abandoned() {
                return;
            }
            // None of them is kept open for longer than its own flush takes: it may be removed meanwhile.
            let Some(file) = lock(&self.unflushed).get(&number).cloned() else {
                continue;
            };
            let is_at_rest = !file.is_recent.swap(false, Ordering::AcqRel);
            let has_record = file.may_have_record.load(Ordering::Acquire);
            if found.is_empty() && !is_at_rest && has_record {
                continue;
            }
            if !is_made(Mutant::MarksGoBeforeTheFilesAreDurable)
                && self.let_have_record(&file, || file.store.flush()).is_none()
            {
                return;
            }
            if is_at_rest || file.is_forgotten.load(Ordering::Acquire) {
                self.settle(&file);
            }
        }
        *idle = found;
    }

    /// The part of [`Engine::tidy`] that needs the SSD, for the sources that are done with theirs. Whether all records are on
    /// the SSD.
    pub fn tidy_shared(&self) -> bool {
        // A stop has begun, and may wait for a disk.
        let Some(_goes_on) = if_free(self.tidying.try_read()) else {
            return false;
        };
        if !self.can_be_tidied() {
            return false;
        }
        self.drop_leftover();
        let sources = self.all_sources();
        // Whose disk is waited for now is not: its marks stay until the next time.
        let done = sources
            .iter()
            .filter_map(|(_, source)| Some((source, if_free(source.tidying.try_lock())?)));
        let mut done: Vec<_> = done.collect();
        // The records of lines that a write changed or drove out must be on the SSD before the bit that covers them goes.
        let write_out = |shard: &Shard| {
            if is_made(Mutant::MarksGoBeforeTheRecords) {
                return Ok(());
            }
            shard.write_out()
        };
        let written_out = self.shards.iter().try_for_each(write_out);
        let is_durable = written_out.and_then(|()| self.ssd.flush()).is_ok();
        if !is_durable || self.has_lost_writes() {
            return false;
        }
        for (source, idle) in &mut done {
            // Bits that stay on the SSD by an error cost lines, not truth.
            let _ = self
                .intent
                .clear(&std::mem::take(&mut **idle), source.number, &self.ssd);
        }
        true
    }

    /// Whether there is an SSD that is believed. Else files wait no more to be flushed for its sake.
    fn can_be_tidied(&self) -> bool {
        if self.is_stopped.load(Ordering::Acquire) {
            return false;
        }
        if self.ssd.is_given_up() {
            // If the generation store fails, the next write tries again, or is refused.
            let _ = self.enter_bypass();
        }
        if self.is_bypassed() || self.has_lost_writes() {
            // There is nothing to keep files open for but an error that the next caller is to get, perhaps of a flush now.
            self.flush_no_more(|file| {
                let keeps = if_free(file.flush_error.try_lock()).is_none_or(|kept| kept.is_some());
                file.is_unflushed.store(keeps, Ordering::Release);
                !keeps
            });
            return false;
        }
        // Nothing is cached of these any more.
        self.flush_no_more(|file| file.source.is_abandoned());
        true
    }

    /// These files wait no more to be flushed.
    fn flush_no_more(&self, is_one: impl Fn(&FileState) -> bool) {
        let mut left = Vec::new();
        lock(&self.unflushed).retain(|_, file| {
            let leaves = is_one(file);
            left.extend(leaves.then(|| Arc::clone(file)));
            !leaves
        });
        // Closes some, which may take time if they are removed: nobody waits for that.
        drop(left);
    }

    /// The writes to a file are to be made durable by tidying, and the file is used until then.
    pub(crate) fn is_to_be_flushed(&self, file: &Arc<FileState>) {
        if !file.is_unflushed.swap(true, Ordering::AcqRel) {
            lock(&self.unflushed).insert(file.number, Arc::clone(file));
        }
    }

    /// A new file that is not made durable, if too many wait for that: its lines stay, and count until the session ends. It
    /// waits again when somebody opens it. Nobody has it open, and nobody opens it while the file table is locked.
    pub(crate) fn take_surplus(&self, _files: &MutexGuard<'_, Files>) -> Option<Arc<FileState>> {
        let mut unflushed = lock(&self.unflushed);
        if unflushed.len() <= self.unflushed_max {
            return None;
        }
        let from = self.surplus_from.load(Ordering::Relaxed);
        let mut in_turn = (unflushed.range(from..).chain(unflushed.range(..from))).take(LOOKED_AT_MAX);
        let is_surplus = |file: &Arc<FileState>| {
            let has_error = || if_free(file.flush_error.try_lock()).is_none_or(|kept| kept.is_some());
            Arc::strong_count(file) == 1 && !file.may_have_record.load(Ordering::Acquire) && !has_error()
        };
        let number = in_turn.find_map(|(&number, file)| {
            self.surplus_from.store(number + 1, Ordering::Relaxed);
            is_surplus(file).then_some(number)
        });
        let file = unflushed.remove(&number?)?;
        // Who attaches it before the caller drops it, and writes to it, notes it again.
        file.is_unflushed.store(false, Ordering::Release);
        Some(file)
    }

    /// Makes the writes to all files durable. None of them is at rest by that.
    pub(crate) fn flush_all(&self) {
        let files: Vec<Arc<FileState>> = lock(&self.unflushed).values().cloned().collect();
        for file in files.iter().filter(|file| !file.source.is_abandoned()) {
            let _kept_in_the_file = self.make_durable(file, || file.store.flush());
        }
    }

    /// Notes what a file is, if no request to it is under way.
    pub(crate) fn settle(&self, file: &Arc<FileState>) {
        let Some(_gate) = if_free(file.gate.try_write()) else {
            return;
        };
        // A write that came since the flush is durable with the stamp.
        if self.note_stamp(file) {
            file.is_unflushed.store(false, Ordering::Release);
            lock(&self.unflushed).remove(&file.number);
            if file.is_forgotten.load(Ordering::Acquire) {
                // Nobody else may be there to do it.
                self.drop_lines(file.number, 0..u64::MAX);
            }
        }
    }

    /// Makes the writes to a file durable for a caller, who gets an error that nobody got before, too.
    ///
    /// Who flushes a file has it alone until an error is noted, here and in [`Engine::make_durable`]: the kernel reports a lost
    /// write once, so the flush of another succeeds then and must not be believed before it is known that writes were lost.
    pub(crate) fn flush(&self, file: &FileState) -> io::Result<()> {
        let mut kept = lock(&file.flush_error);
        let earlier = kept.take();
        let flushed = file.store.flush();
        if flushed.is_err() {
            file.failed_flushes.fetch_add(1, Ordering::AcqRel);
            self.on_lost_writes();
        }
        earlier.map_or(flushed, Err)
    }

    /// Makes the writes to a file durable by `flush`, for no caller: an error is kept for the next one who asks.
    pub(crate) fn make_durable<T>(
        &self,
        file: &FileState,
        flush: impl FnOnce() -> io::Result<T>,
    ) -> Option<T> {
        let mut kept = lock(&file.flush_error);
        match flush() {
            Ok(flushed) => Some(flushed),
            Err(error) => {
                *kept = Some(error);
                file.failed_flushes.fetch_add(1, Ordering::AcqRel);
                self.on_lost_writes();
                None
            }
        }
    }

    /// Stores the stamp of a file that is at rest, whose writes are durable then. Whether it could be stored; else the file
    /// counts as in use.
    pub(crate) fn note_stamp(&self, file: &FileState) -> bool {
        if file.number == 0 || file.is_forgotten.load(Ordering::Acquire) {
            return true;
        }
        let Some(stamp) = self.let_have_record(file, || file.store.stamp()) else {
            return false;
        };
        let mut files = lock(&self.files);
        // Else its slot may be another file's by now.
        if file.is_forgotten.load(Ordering::Acquire) {
            return true;
        }
        // The stamp may be of what others wrote.
        if !file.source.is_stamped() {
            return false;
        }
        // Even a record that failed may be on the SSD.
        file.is_in_use.store(false, Ordering::Release);
        files.put(file, Some(stamp), &self.ssd).is_ok()
    }

    /// Makes the writes to a file durable by `flush`, as [`Engine::make_durable`]. From then on a record of it may be written.
    ///
    /// A start believes lines of a file that has a record, unless they are marked. So before one that was new gets its record the
    /// marks that it has are durable, and those to come will be before the write; and its bytes are, as marks may have been taken
    /// back without them.
    fn let_have_record<T>(&self, file: &FileState, flush: impl FnOnce() -> io::Result<T>) -> Option<T> {
        let is_new = !file.may_have_record.load(Ordering::Acquire);
        if is_new {
            file.marks_may_wait.store(false, Ordering::SeqCst);
            self.intent.make_all_durable(&self.ssd).ok()?;
        }
        let flushed = self.make_durable(file, flush)?;
        if is_new {
            file.may_have_record.store(true, Ordering::Release);
        }
        Some(flushed)
    }

    /// Notes that a file is in use, before the first write to it since it was at rest: by which flush that must be durable
    /// before the write, for [`Engine::end_note_of_use`]. `None` if it is.
    pub(crate) fn note_use(&self, file: &FileState) -> io::Result<Option<FlushNumber>> {
        let needs_none = |file: &FileState| {
            file.is_in_use.load(Ordering::Acquire) || !file.may_have_record.load(Ordering::Acquire)
        };
        if needs_none(file) {
            return Ok(None);
        }
        let mut files = lock(&self.files);
        if file.is_forgotten.load(Ordering::Acquire) {
            // It has no record that could be believed.
            file.is_in_use.store(true, Ordering::Release);
            return Ok(None);
        }
        files.put(file, None, &self.ssd)?;
        Ok(Some(self.ssd.next_flush()))
    }

    /// Waits for that flush, unless that of the marks was one. The caller shares the gate of the file, so it does not come to rest
    /// meanwhile.
    pub(crate) fn end_note_of_use(&self, file: &FileState, noted: Option<FlushNumber>) -> io::Result<()> {
        let Some(noted) = noted else { return Ok(()) };
        if !is_made(Mutant::MarkIsNotFlushed) {
            self.ssd.flush_up_to(noted)?;
        }
        file.is_in_use.store(true, Ordering::Release);
        Ok(())
    }

    /// The backing lost writes, nobody knows which: lines that are newer than it are forgotten. The intent of their regions
    /// stays, so that the next start drops them as well.
    pub(crate) fn on_lost_writes(&self) {
        self.has_lost_writes.store(true, Ordering::Release);
        self.drop_matching(&|key| self.intent.is_line_marked(key));
    }

    /// Whether a flush of a file failed since the start.
    pub(crate) fn has_lost_writes(&self) -> bool {
        self.has_lost_writes.load(Ordering::Acquire)
    }
}
