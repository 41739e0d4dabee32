//! A part of a cache that shares nothing with the others. It carries out what the model plans.
//!
//! Whatever uses the SSD has three steps: it is planned under the lock, done without it, and ended under the lock. What was planned
//! has a ticket of the model meanwhile: the line has its slot, and who touches its units takes them from the ticket. So a hit
//! that was overtaken by a write is planned anew, a fill or write that was overtaken keeps less, and what two put into the same
//! units at once is kept by neither. A line that moves from memory to the SSD is served from a copy until it is there. A thread that
//! panics between these steps ends what it began, and its line is forgotten ([`OnPanic`]).

use std::io;
use std::ops::Range;
use std::sync::{Arc, PoisonError};

use bathy_cache_model::{Backing, Part, Ticket, WriteMode, WritePlan};
use smallvec::SmallVec;

use crate::engine::shard_state::{
    Arrived, Crcs, Fetch, Hit, HitEnd, Model, Move, NO_CRCS, ReadPlan, ShardState, Store, UNIT, overlay, runs,
};
use crate::format::{Layout, Record, UNIT_BYTES, UnitSeed, Uuid};
use crate::index::table::{Batch, Records, Table};
use crate::mutant::{Mutant, is_made};
use crate::stats::residency::Residency;
use crate::store::aligned::Aligned;
use crate::store::ssd::Area;
use crate::store::ssd::Ssd;
use crate::store::{Place, parts_of};
use crate::sync::{Condvar, Mutex, MutexGuard, OnPanic, is_poisoned, lock};

pub(crate) struct Shard {
    number: u32,
    uuid: Uuid,
    layout: Arc<Layout>,
    line_bytes: usize,
    /// The first slot in memory.
    stage_start: u32,
    ssd: Arc<Ssd>,
    records: Records,
    state: Mutex<ShardState>,
    /// Told when a [`Batch`] has ended.
    batch_ended: Condvar,
}

/// A copy to the SSD for which nobody waits: what it has is served from memory until it has ended.
pub(crate) enum SsdCopy {
    /// A line that left memory.
    Move(Move),
    /// What a fill has fetched: into this slot, these units.
    Fill(Arrived, u32, u64),
}

/// What a fill has fetched.
pub(crate) enum Fetched<'a> {
    /// A line of which the fetched units are filled.
    Line(Aligned),
    /// The bytes of a part, which covers the fetched units as far as the file has them.
    Part(&'a Part, &'a [u8]),
}

impl Fetched<'_> {
    /// Copies a run of the fetched units.
    fn copy(&self, run: Range<usize>, to: &mut [u8]) {
        match self {
            Self::Line(line) => to.copy_from_slice(&line[run.start * UNIT..run.end * UNIT]),
            Self::Part(part, data) => {
                let there = (part.end as usize).min(run.end * UNIT) - run.start * UNIT;
                to[there..].fill(0);
                overlay(part, run, data, to);
            }
        }
    }

    /// The line, of which the fetched units are filled.
    fn into_line(self, units: u64, line_bytes: usize) -> Aligned {
        match self {
            Self::Line(line) => line,
            Self::Part(..) => {
                let mut line = Aligned::to_fill(line_bytes);
                for run in runs(units) {
                    self.copy(run.clone(), &mut line[run.start * UNIT..run.end * UNIT]);
                }
                line
            }
        }
    }
}

/// What of a hit was read from the SSD.
pub(crate) struct Loaded {
    /// All of it.
    is_whole: bool,
    /// Its record, if memory did not have it.
    record: Option<Record>,
}

/// What a look at a line found.
pub(crate) enum Look {
    /// Nothing: it is not cached, or not these units.
    Absent,
    /// It is damaged, cannot be read, or was changed meanwhile.
    Failed,
    /// These units, each in its place.
    Units(u64, Aligned),
}

/// A batch that is being written. However that ends, by a panic too, somebody else can write its block then.
struct Writing<'a> {
    shard: &'a Shard,
    batch: Batch,
    is_written: bool,
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.shard.lock().table.end_batch(&self.batch, self.is_written);
        self.shard.batch_ended.notify_all();
    }
}

impl Shard {
    pub(crate) fn new(
        number: u32,
        uuid: Uuid,
        layout: Arc<Layout>,
        ssd: Arc<Ssd>,
        records: Records,
        line_bytes: u32,
        state: ShardState,
    ) -> Self {
        Self {
            number,
            uuid,
            layout,
            line_bytes: line_bytes as usize,
            stage_start: state.stage_start,
            ssd,
            records,
            state: Mutex::new(state),
            batch_ended: Condvar::new(),
        }
    }

    pub(crate) fn count_in(&self, residency: &Arc<Residency>) {
        self.lock().count_in(residency);
    }

    /// What it knows now. The SSD cannot be used with this, and who has it should not use anything else that takes time.
    pub(crate) fn lock(&self) -> MutexGuard<'_, ShardState> {
        lock(&self.state)
    }

    /// See [`is_poisoned`].
    pub(crate) fn is_poisoned(&self) -> bool {
        is_poisoned(&self.state)
    }

    /// Changes it, and then writes the records for which there is no room any more.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut ShardState) -> R) -> R {
        let mut state = self.lock();
        let result = change(&mut state);
        self.end_change(state);
        result
    }

    /// Who changes records writes those of a block at a time, while there are too many, so that no request has to write all.
    fn end_change<'a>(&'a self, mut state: MutexGuard<'a, ShardState>) {
        while state.table.has_excess() {
            if self.ssd.is_given_up() {
                state.table.give_up();
                return;
            }
            let Some(batch) = state.table.take_next() else {
                return;
            };
            drop(state);
            // Errors are counted by the SSD, and too many at once end its use. So do too many records that wait in vain.
            let is_written = self.write_batch(batch).is_ok();
            state = self.lock();
            if !is_written {
                if state.table.is_stuck() {
                    self.ssd.give_up();
                    state.table.give_up();
                }
                return;
            }
        }
    }

    fn write_batch(&self, batch: Batch) -> io::Result<()> {
        let mut writing = Writing {
            shard: self,
            batch,
            is_written: false,
        };
        let written = self.records.write(&writing.batch, &self.ssd);
        writing.is_written = written.is_ok();
        written
    }

    /// Writes all records that wait. Flushed by the caller, if at all.
    ///
    /// # Errors
    /// If one cannot be written, or the SSD was given up, and with it what waited.
    pub(crate) fn write_out(&self) -> io::Result<()> {
        self.ssd.check_used()?;
        let mut state = self.lock();
        for block in state.table.pending_blocks() {
            loop {
                if state.table.is_written(block) {
                    if is_made(Mutant::RecordsUnderWayAreWritten) {
                        break;
                    }
                    // By somebody else, perhaps as it was before the last change.
                    let waited = self.batch_ended.wait(state);
                    state = waited.unwrap_or_else(PoisonError::into_inner);
                    continue;
                }
                let Some(batch) = state.table.take_block(block) else {
                    break;
                };
                drop(state);
                self.write_batch(batch)?;
                state = self.lock();
                // What came since the call waits for the next one.
                break;
            }
        }
        Ok(())
    }

    /// What it knows now, and the record of a slot.
    fn lock_with_record(&self, slot: u32) -> (MutexGuard<'_, ShardState>, io::Result<Record>) {
        let mut state = self.lock();
        loop {
            if let Some(record) = state.table.get(slot) {
                return (state, Ok(record));
            }
            let epoch = state.table.epoch(slot);
            drop(state);
            let read = self.records.read(slot, &self.ssd);
            state = self.lock();
            match read {
                Ok(record) if state.table.learn(slot, &record, epoch) => return (state, Ok(record)),
                // Another one may be on the SSD by now.
                Ok(_) => {}
                Err(error) => return (state, Err(error)),
            }
        }
    }

    fn offset(&self, slot: u32, unit: usize) -> u64 {
        self.layout.data(self.number, slot) + unit as u64 * UNIT_BYTES
    }

    /// Plans a read of a part, and copies what memory has to `out`, which has the length of the part: what is to be read from the
    /// SSD, and from the backing. A line that leaves memory for this is passed to `later`, at the latest when its copy must be made.
    pub(crate) fn plan_read(
        &self,
        backing: Backing,
        part: &Part,
        time_ns: u64,
        out: &mut [u8],
        later: &mut dyn FnMut(Move),
    ) -> (Option<Hit>, Fetch) {
        let ReadPlan { moved, hit, fetch } = self.lock().read(backing, part, time_ns, out);
        if let Some(moved) = moved {
            later(moved);
        }
        (hit, fetch)
    }

    /// Reads hits: the records that memory does not have one by one, the data, those of all shards, by one submission. `copy` gets the number of a hit and units that are what its record says:
    /// those of all of it, or nobody needs them.
    pub(crate) fn load_hits(
        hits: &[(&Self, &Hit)],
        mut copy: impl FnMut(usize, Range<usize>, &[u8]),
    ) -> SmallVec<[Loaded; 2]> {
        let mut places = SmallVec::<[Place; 2]>::new();
        let mut find = |&(shard, hit): &(&Self, &Hit)| {
            let loaded = shard.load_record(hit);
            if loaded.is_whole {
                places.extend(runs(hit.units).map(|run| Place {
                    offset: shard.offset(hit.slot, run.start),
                    len: run.len() * UNIT,
                }));
            }
            loaded
        };
        let mut all: SmallVec<[Loaded; 2]> = hits.iter().map(&mut find).collect();
        let first = hits.first().filter(|_| !places.is_empty());
        let Some(Ok((bytes, ends))) = first.map(|(shard, _)| shard.ssd.read_all(&places)) else {
            all.iter_mut().for_each(|it| it.is_whole = false);
            return all;
        };
        let mut read = parts_of(&places).zip(ends);
        for (number, ((shard, hit), loaded)) in hits.iter().zip(&mut all).enumerate() {
            let Some(record) = hit
                .record
                .as_ref()
                .or(loaded.record.as_ref())
                .filter(|_| loaded.is_whole)
            else {
                continue;
            };
            for (run, ((_, part), end)) in runs(hit.units).zip(&mut read) {
                let data = &bytes[part];
                loaded.is_whole &= end.is_ok() && shard.has_units(hit.key, record, run.clone(), data);
                if loaded.is_whole {
                    copy(number, run, data);
                }
            }
        }
        all
    }

    /// What is known of a hit before it is read: whether it has a record that names its units.
    fn load_record(&self, hit: &Hit) -> Loaded {
        let record = if hit.record.is_none() {
            self.records.read(hit.slot, &self.ssd).ok()
        } else {
            None
        };
        let names_them = |record: &Record| record.key == Some(hit.key) && hit.units & !record.valid == 0;
        Loaded {
            is_whole: hit.record.as_ref().or(record.as_ref()).is_some_and(names_them),
            record,
        }
    }

    /// A hit was read: if it is not served, what was to be fetched beside it is taken back, as it is planned anew.
    pub(crate) fn end_hit(&self, hit: &Hit, loaded: &Loaded, fetch: &Fetch) -> HitEnd {
        let mut state = self.lock();
        let end = state.end_hit(hit, loaded.is_whole, loaded.record.as_ref());
        if end == HitEnd::Again {
            state.take_back(hit.key, fetch);
            self.end_change(state);
        }
        end
    }

    /// Reads units of a slot and compares them with their record.
    fn load(&self, slot: u32, key: u64, record: &Record, run: Range<usize>) -> Option<Aligned> {
        let data = self
            .ssd
            .read(run.len() * UNIT, self.offset(slot, run.start))
            .ok()?;
        self.has_units(key, record, run, &data).then_some(data)
    }

    /// Whether these are units of a line, as its record says.
    fn has_units(&self, key: u64, record: &Record, run: Range<usize>, data: &[u8]) -> bool {
        let seed = UnitSeed::new(&self.uuid, key);
        run.zip(data.chunks_exact(UNIT))
            .all(|(unit, data)| seed.crc(unit, data) == record.crcs[unit])
    }

    /// The valid units of a line that `choose` takes. It counts as nothing.
    pub(crate) fn look(&self, key: u64, choose: impl FnOnce(u64) -> u64) -> Look {
        let mut line = Aligned::new(self.line_bytes);
        let mut copy = |run: Range<usize>, data: &[u8]| {
            let place = run.start * UNIT..run.end * UNIT;
            line[place.clone()].copy_from_slice(&data[..place.len()]);
        };
        let Some((units, hit)) = self.lock().begin_look(key, choose, &mut copy) else {
            return Look::Absent;
        };
        if let Some(hit) = hit {
            let _ended = OnPanic(|| self.abort(key, [hit.ticket]));
            let loaded = Self::load_hits(&[(self, &hit)], |_, run, data| copy(run, data));
            let is_served = |loaded| self.end_hit(&hit, loaded, &Fetch::default()) == HitEnd::Served;
            if !loaded.iter().all(is_served) {
                return Look::Failed;
            }
        }
        if units == 0 {
            Look::Absent
        } else {
            Look::Units(units, line)
        }
    }

    /// The fetch of [`Shard::read`], of these units, is done: the bytes that memory keeps, and what is to be written to the SSD.
    pub(crate) fn fill(
        &self,
        key: u64,
        (fill, slot): (Ticket, u32),
        units: u64,
        fetched: Fetched<'_>,
    ) -> (u64, Option<SsdCopy>) {
        if slot >= self.stage_start {
            let copy = |run, to: &mut [u8]| fetched.copy(run, to);
            let bytes = self.change(|state| state.fill_stage(key, (fill, slot), copy));
            return (bytes, None);
        }
        let line = Arc::new(fetched.into_line(units, self.line_bytes));
        let keep = self.lock().arrive(Arrived {
            key,
            fill,
            line: Arc::clone(&line),
        });
        (0, Some(SsdCopy::Fill(Arrived { key, fill, line }, slot, keep)))
    }

    /// The fetch of [`Shard::read`] failed, or nobody carries it out.
    pub(crate) fn end_fill(&self, key: u64, fill: Ticket) {
        self.change(|state| state.end_fill(key, fill));
    }

    /// Makes a copy: the bytes of a fill that were written.
    pub(crate) fn make(&self, copy: &SsdCopy) -> u64 {
        let (arrived, slot, keep) = match copy {
            SsdCopy::Move(moved) => {
                self.carry_out(moved);
                return 0;
            }
            SsdCopy::Fill(arrived, slot, keep) => (arrived, *slot, *keep),
        };
        let Arrived { key, fill, ref line } = *arrived;
        let _ended = OnPanic(|| self.abort(key, [fill]));
        let stored = self.store(slot, key, keep, line);
        let (mut state, record) = self.lock_with_record(slot);
        let copied = stored.map_or(0, |_| state.model.bytes_of(keep));
        state.counts.flash_write_bytes += copied;
        state.end_arrived((key, slot, fill), keep, stored.as_ref(), record.ok().as_ref());
        self.end_change(state);
        copied
    }

    /// A copy is not made, as who was to make it panics.
    pub(crate) fn abandon(&self, copy: &SsdCopy) {
        match copy {
            SsdCopy::Move(moved) => self.lock().end_move(moved, None, None),
            SsdCopy::Fill(arrived, ..) => self.abort(arrived.key, [arrived.fill]),
        }
    }

    /// Plans a write, before the backing gets it.
    pub(crate) fn begin_write(&self, part: &Part, mode: WriteMode, time_ns: u64) -> WritePlan {
        let (plan, moved) = self.lock().begin_write(part, mode, time_ns);
        if let Some(moved) = moved {
            let _ended = OnPanic(|| self.abort(part.key, [plan.ticket]));
            self.carry_out(&moved);
        }
        plan
    }

    /// The backing has the write, or failed: what is kept of `data`, which are those of the part, goes to the slot. The bytes
    /// that were copied.
    pub(crate) fn finish_write(&self, part: &Part, plan: &WritePlan, data: Option<&[u8]>) -> u64 {
        let Some(slot) = plan.slot else {
            self.change(|state| state.end_write(part.key, plan, data.is_some()));
            return 0;
        };
        let mut keep = 0;
        if let Some(data) = data {
            let mut state = self.lock();
            match state.store_write(part, plan, slot, data) {
                Store::Done(bytes) => {
                    self.end_change(state);
                    return bytes;
                }
                Store::Units(units) => keep = units,
            }
        } else if slot >= self.stage_start {
            self.change(|state| state.end_write(part.key, plan, false));
            return 0;
        }
        let stored = data.and_then(|data| self.apply(slot, part, plan, keep, data));
        let copied = stored.map_or(0, |_| u64::from(plan.keep_bytes));
        let (mut state, record) = self.lock_with_record(slot);
        state.counts.flash_write_bytes += copied;
        state.counts.flash_update_bytes += copied;
        state.end_store(
            (part.key, slot),
            keep,
            stored.as_ref(),
            record.ok().as_ref(),
            |model, ok| model.write_done(plan.ticket, ok),
        );
        self.end_change(state);
        copied
    }

    /// Applies a write to units of a slot; a unit that is covered in part was valid before.
    fn apply(&self, slot: u32, part: &Part, plan: &WritePlan, units: u64, data: &[u8]) -> Option<Crcs> {
        let covers =
            |unit: usize| part.start as usize <= unit * UNIT && (unit + 1) * UNIT <= part.end as usize;
        let mut crcs = NO_CRCS;
        for run in runs(units) {
            let mut bytes = Aligned::to_fill(run.len() * UNIT);
            for unit in run.clone().filter(|&unit| !covers(unit)) {
                // It is not valid while it is written, but its checksum is that of the copy, which nobody else touches.
                let (state, record) = self.lock_with_record(slot);
                drop(state);
                let record = record.ok()?;
                let is_recorded = record.key == Some(part.key);
                let old = is_recorded.then(|| self.load(slot, part.key, &record, unit..unit + 1));
                let Some(old) = old.flatten() else {
                    self.lock().write_met_damage(plan, unit);
                    return None;
                };
                bytes[(unit - run.start) * UNIT..][..UNIT].copy_from_slice(&old);
            }
            overlay(part, run.clone(), data, &mut bytes);
            self.store_run(slot, part.key, run, bytes, &mut crcs)?;
        }
        Some(crcs)
    }

    /// Writes units of a line to its slot. `None` if that failed, and the units may be anything.
    fn store(&self, slot: u32, key: u64, units: u64, line: &[u8]) -> Option<Crcs> {
        let mut crcs = NO_CRCS;
        for run in runs(units) {
            let bytes = &line[run.start * UNIT..run.end * UNIT];
            self.store_run(slot, key, run, bytes.into(), &mut crcs)?;
        }
        Some(crcs)
    }

    /// Writes a run of units to its slot on the SSD, and their checksums to `crcs`. `None` if that failed.
    fn store_run(
        &self,
        slot: u32,
        key: u64,
        run: Range<usize>,
        bytes: Aligned,
        crcs: &mut Crcs,
    ) -> Option<()> {
        let seed = UnitSeed::new(&self.uuid, key);
        for (unit, data) in run.clone().zip(bytes.chunks_exact(UNIT)) {
            crcs[unit] = seed.crc(unit, data);
        }
        self.ssd
            .write(Area::Data, bytes, self.offset(slot, run.start))
            .ok()
    }

    /// Writes a line that left memory to the SSD.
    fn carry_out(&self, moved: &Move) {
        let line = &moved.line;
        let ended = OnPanic(|| self.lock().end_move(moved, None, None));
        let stored = self.store(line.to, line.key, line.units, &moved.bytes);
        let (mut state, record) = self.lock_with_record(line.to);
        // Its slot may be the one of another move as soon as this one has ended.
        drop(ended);
        state.end_move(moved, stored.as_ref(), record.ok().as_ref());
        self.end_change(state);
    }

    /// [`ShardState::abort`]. No record is written, as whoever panicked may have done so there.
    pub(crate) fn abort(&self, key: u64, tickets: impl IntoIterator<Item = Ticket>) {
        self.lock().abort(key, tickets);
    }

    /// Forgets a line. Whether it was cached.
    pub(crate) fn forget(&self, key: u64) -> bool {
        self.change(|state| state.forget(key))
    }

    /// Stores the lines in memory at their slots' places on the SSD, for the next start, and all records, and gives the model
    /// that these are of to `take`. Nothing comes any more, but lines may be forgotten meanwhile, as of a source that gets
    /// less of the cache.
    pub(crate) fn park<R>(&self, take: impl FnOnce(&Model) -> R) -> Option<R> {
        let keys = self.lock().staged_keys();
        for (slot, key) in (self.stage_start..).zip(keys) {
            let mut record = Record {
                key,
                ..Record::default()
            };
            if let Some(key) = key {
                let mut state = self.lock();
                let valid = state.model.valid_units(slot);
                let line = Aligned::from(&*state.staged(slot)?);
                drop(state);
                record.valid = valid;
                record.crcs = self.store(slot, key, valid, &line)?;
            }
            self.change(|state| state.table.put(slot, &record));
        }
        loop {
            self.write_out().ok()?;
            let state = self.lock();
            // Else the SSD would keep a record of a line that was forgotten since: no start would void it, and one after a
            // power cut would believe it, whatever was written to the file by then.
            if !state.table.has_waiting() || is_made(Mutant::StateBesideOlderRecords) {
                return Some(take(&state.model));
            }
        }
    }

    /// Reads a line in memory back, before it is imported: whether it is what its record says.
    pub(crate) fn unpark(&self, key: u64, slot: u32, units: u64) -> bool {
        let read = || {
            let (state, record) = self.lock_with_record(slot);
            drop(state);
            let record = record.ok()?;
            if record.key != Some(key) || units & !record.valid != 0 {
                return None;
            }
            for run in runs(units) {
                let data = self.load(slot, key, &record, run.clone())?;
                self.lock().staged(slot)?[run.start * UNIT..run.end * UNIT].copy_from_slice(&data);
            }
            Some(())
        };
        read().is_some()
    }

    /// Writes all records that wait: the slots whose records were not written.
    #[cfg(test)]
    pub(crate) fn not_written_out(&self) -> Vec<u32> {
        let mut waiting = self.lock().table.waiting();
        self.write_out().expect("the SSD works");
        let is_older = |&mut (slot, sequence): &mut (u32, u64)| {
            self.records
                .read(slot, &self.ssd)
                .expect("the SSD works")
                .sequence
                < sequence
        };
        waiting.retain_mut(is_older);
        waiting.into_iter().map(|(slot, _)| slot).collect()
    }

    /// See [`ShardState::release`].
    pub(crate) fn release(&self) {
        let table = Table::new(1, 0, 0, Arc::clone(&self.layout), 1);
        self.lock().release(table);
    }

    /// Passes the record of each slot that has one to `visit`, as the SSD holds it.
    pub(crate) fn scan(&self, slots: u32, visit: &mut dyn FnMut(u32, Record)) -> io::Result<()> {
        self.records.scan(slots, &self.ssd, visit)
    }
}
