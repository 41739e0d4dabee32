//! What of a shard its lock guards: the model, what memory has of the records, and the lines in memory. Nothing here can use the
//! SSD, so nobody waits for it with the lock.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use bathy_cache_model::{
    AdmissionOptions, Backing, CacheConfig, CacheModel, FetchSize, LineSize, Miss, Part, Promoted, Room,
    Ticket, WriteMode, WritePlan,
};
use bathy_policy::{CachePolicy, Policy, PolicyKind};

use crate::format::{Record, UNIT_BYTES, UNITS_MAX};
use crate::index::table::Table;
use crate::mutant::{Mutant, is_made};
use crate::stats::counters::Counts;
use crate::stats::residency::{Line, Residency};
use crate::store::aligned::Aligned;

pub(crate) type Model = CacheModel<CachePolicy>;

pub(crate) const UNIT: usize = UNIT_BYTES as usize;

pub(crate) type Crcs = [u32; UNITS_MAX];

/// Checksums of no units.
pub(crate) const NO_CRCS: Crcs = [0; UNITS_MAX];

/// The model of one shard. Its policy is one that a cache runs: a superblock has no other.
pub(crate) fn new_model(config: CacheConfig, kind: PolicyKind, slots: u32, stage_slots: u32) -> Model {
    let policy = CachePolicy::new(kind, slots as usize, stage_slots as usize);
    CacheModel::new(config, policy.expect("a policy that a cache runs"))
}

/// What of a read the backing is needed for, if it is.
#[derive(Clone, Copy, Default)]
pub(crate) struct Fetch {
    /// The units.
    pub(crate) units: u64,
    /// Bytes of those among them that nobody asked for.
    pub(crate) ahead_bytes: u64,
    /// Where they may be kept.
    pub(crate) fill: Option<(Ticket, u32)>,
}

/// Units that are to be read from a slot of the SSD.
pub(crate) struct Hit {
    pub(crate) key: u64,
    pub(crate) slot: u32,
    pub(crate) units: u64,
    /// The record of the slot, if memory has it.
    pub(crate) record: Option<Record>,
    /// Since when it has not.
    pub(crate) epoch: u64,
    pub(crate) ticket: Ticket,
}

/// A line that is to be written to the SSD, as it left memory.
pub(crate) struct Move {
    pub(crate) line: Promoted,
    pub(crate) bytes: Arc<Aligned>,
    ticket: Ticket,
}

/// What a fill has fetched, each unit in its place in the line.
pub(crate) struct Arrived {
    pub(crate) key: u64,
    pub(crate) fill: Ticket,
    pub(crate) line: Arc<Aligned>,
}

/// A read of a part: what memory has was copied.
pub(crate) struct ReadPlan {
    pub(crate) moved: Option<Move>,
    pub(crate) hit: Option<Hit>,
    pub(crate) fetch: Fetch,
}

/// How a hit ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum HitEnd {
    Served,
    /// It was written to or dropped meanwhile, or was damaged and is dropped: it must be planned anew.
    Again,
}

/// Which line of a source left a shard.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    ALine,
    /// None: all that there are are in use.
    AllInUse,
    /// None: there is none.
    Nothing,
}

/// What a slot gets.
pub(crate) enum Store {
    /// It has it: the slot is in memory.
    Done(u64),
    /// These units are to be written to the SSD.
    Units(u64),
}

/// Whether a newcomer finds room in what its source may have: it has less, or a line here that can leave for it. Where it has none
/// here it may have one more.
fn may_come(policy: &CachePolicy, residency: &Residency, hand: &mut u32, key: u64) -> bool {
    let full = residency.source_at_limit(key);
    full.is_none_or(|source| next_to_leave(policy, residency, hand, source, None) != Left::AllInUse)
}

/// Moves the hand, in the order of slots, to the next line of a source that can leave, but for the one that is to be kept. It stays
/// where it is if there is none.
fn next_to_leave(
    policy: &CachePolicy,
    residency: &Residency,
    hand: &mut u32,
    source: u16,
    kept: Option<u64>,
) -> Left {
    let mut left = Left::Nothing;
    for _ in 0..policy.capacity() {
        let key = policy.key_at(*hand).filter(|&key| Some(key) != kept);
        if key.is_some_and(|key| residency.is_of_source(key, source)) {
            if !policy.is_pinned(*hand) {
                return Left::ALine;
            }
            left = Left::AllInUse;
        }
        *hand = after(*hand, policy);
    }
    left
}

/// The next slot in their order.
fn after(slot: u32, policy: &CachePolicy) -> u32 {
    (slot + 1) % policy.capacity() as u32
}

pub(crate) struct ShardState {
    line_bytes: usize,
    pub(crate) model: Model,
    pub(crate) table: Table,
    /// The first slot in memory; all from there on are.
    pub(crate) stage_start: u32,
    /// The lines in memory.
    stage: Vec<u8>,
    /// By their new slots, lines that are being moved from memory to the SSD, each with a copy.
    moving: HashMap<u32, (Ticket, Arc<Aligned>)>,
    /// What fills have fetched that is not on the SSD yet.
    arrived: Vec<Arrived>,
    pub(crate) counts: Counts,
    residency: Arc<Residency>,
    /// The slot where the search for a line of a source that has too many goes on.
    hand: u32,
}

impl ShardState {
    pub(crate) fn new(line_bytes: usize, model: Model, table: Table) -> Self {
        let (slots, in_memory) = (model.policy().capacity(), model.policy().memory_lines());
        Self {
            line_bytes,
            stage_start: (slots - in_memory) as u32,
            stage: vec![0; in_memory * line_bytes],
            moving: HashMap::new(),
            arrived: Vec::new(),
            model,
            table,
            counts: Counts::default(),
            residency: Arc::default(),
            hand: 0,
        }
    }

    /// From now on changes of lines are counted in `residency`, to which those that are there are added.
    pub(crate) fn count_in(&mut self, residency: &Arc<Residency>) {
        let (model, mut lines) = (&self.model, Vec::with_capacity(self.model.policy().len()));
        let mut add = |key, slot| lines.push((key, model.valid_units(slot).count_ones()));
        model.policy().for_each_resident(&mut add);
        residency.found_lines(&mut lines.into_iter());
        self.residency = Arc::clone(residency);
    }

    fn line(&self, key: u64) -> Line {
        let slot = self.model.policy().find(key)?;
        Some(self.model.valid_units(slot).count_ones())
    }

    /// Counts what `change` does to a line.
    fn changing<R>(&mut self, key: u64, change: impl FnOnce(&mut Self) -> R) -> R {
        let before = self.line(key);
        let result = change(self);
        self.residency.change(key, before, self.line(key));
        result
    }

    /// The place of a line in memory, if its slot is there.
    fn in_memory(&self, slot: u32) -> Option<Range<usize>> {
        let start = slot.checked_sub(self.stage_start)? as usize * self.line_bytes;
        Some(start..start + self.line_bytes)
    }

    /// The bytes of a line in memory, if its slot is there.
    pub(crate) fn staged(&mut self, slot: u32) -> Option<&mut [u8]> {
        let place = self.in_memory(slot)?;
        Some(&mut self.stage[place])
    }

    fn put_record(&mut self, slot: u32, record: &Record) {
        if slot < self.stage_start {
            self.table.put(slot, record);
        }
    }

    /// Plans a read and copies what memory has to `out`, which has the length of the part.
    #[inline]
    pub(crate) fn read(&mut self, backing: Backing, part: &Part, time_ns: u64, out: &mut [u8]) -> ReadPlan {
        let (residency, hand) = (&self.residency, &mut self.hand);
        let has_room = |policy: &CachePolicy| may_come(policy, residency, hand, part.key);
        let plan = self.model.read_from(backing, part, time_ns, has_room);
        let mut moved = None;
        let miss = plan.miss.unwrap_or_default();
        self.counts.refused += u64::from(miss.refused);
        if miss.room.is_needed {
            moved = self.make_room(&miss.room);
            self.keep_limit(part.key);
            self.residency.change(part.key, None, Some(0));
        }
        let Miss {
            awaited,
            fetch,
            ahead,
            pass,
            fill,
            ..
        } = miss;
        // What another read waits for, and has not yet, is read a second time: nobody here waits for somebody else's I/O.
        let units = awaited & !self.copy_arrived(part, awaited, out) | fetch | pass;
        self.counts.fetched_ahead_bytes += self.model.bytes_of(ahead);
        let fetch = Fetch {
            units,
            ahead_bytes: self.model.bytes_of(ahead),
            fill: fill.zip(plan.slot),
        };
        let hit = plan.slot.filter(|_| plan.hit != 0);
        let hit = hit.and_then(|slot| {
            self.begin_hit(part.key, slot, plan.hit, |run, data| {
                copy_units(part, run, data, out);
            })
        });
        ReadPlan { moved, hit, fetch }
    }

    /// Copies those of units that fills have fetched and nothing has touched since: which these are.
    fn copy_arrived(&self, part: &Part, units: u64, out: &mut [u8]) -> u64 {
        let mut left = units;
        for it in self.arrived.iter().filter(|it| it.key == part.key) {
            let untouched = if is_made(Mutant::ArrivedUnitsAreBelieved) {
                left
            } else {
                self.model.units_of(it.fill)
            };
            let there = left & untouched;
            for run in runs(there) {
                copy_units(part, run.clone(), &it.line[run.start * UNIT..], out);
            }
            left &= !there;
        }
        units & !left
    }

    /// Passes those of valid units that memory has to `copy`: the others, which are to be read from the SSD.
    #[inline]
    fn begin_hit(
        &mut self,
        key: u64,
        slot: u32,
        units: u64,
        mut copy: impl FnMut(Range<usize>, &[u8]),
    ) -> Option<Hit> {
        if let Some(place) = self.in_memory(slot) {
            for run in runs(units) {
                copy(run.clone(), &self.stage[place.clone()][run.start * UNIT..]);
            }
            return None;
        }
        let mut units = units;
        if let Some((ticket, line)) = self
            .moving
            .get(&slot)
            .filter(|_| !is_made(Mutant::MovesAreReadFromTheirSlots))
        {
            let copied = units & self.model.units_of(*ticket);
            for run in runs(copied) {
                copy(run.clone(), &line[run.start * UNIT..]);
            }
            units &= !copied;
        }
        (units != 0).then(|| {
            let record = self.table.get(slot);
            Hit {
                key,
                slot,
                units,
                epoch: record.map_or_else(|| self.table.epoch(slot), |_| 0),
                record,
                ticket: self.model.begin_hit(key, slot, units),
            }
        })
    }

    /// A hit was read: whether what was read is what its record says, and the record if memory did not have it. A line that
    /// is damaged is forgotten.
    #[inline]
    pub(crate) fn end_hit(&mut self, hit: &Hit, is_whole: bool, record: Option<&Record>) -> HitEnd {
        let still_valid = if self.model.has_emptied() {
            self.changing(hit.key, |it| it.model.hit_done(hit.ticket))
        } else {
            self.model.hit_done(hit.ticket)
        };
        if let (None, Some(record)) = (&hit.record, record) {
            self.table.learn(hit.slot, record, hit.epoch);
        }
        if still_valid != hit.units && !is_made(Mutant::HitsThatWereWrittenAreBelieved) {
            return HitEnd::Again;
        }
        if is_whole {
            self.counts.flash_read_bytes += self.model.bytes_of(hit.units);
            return HitEnd::Served;
        }
        self.counts.mismatches += 1;
        self.forget(hit.key);
        HitEnd::Again
    }

    /// A fill is over, and nothing is kept of it.
    pub(crate) fn end_fill(&mut self, key: u64, fill: Ticket) {
        self.changing(key, |it| it.model.fill_done(fill, false));
        self.arrived.retain(|it| it.fill != fill);
    }

    /// Who carried this out is gone, and nobody knows how far it came. What ended already is left alone.
    pub(crate) fn abort(&mut self, key: u64, tickets: impl IntoIterator<Item = Ticket>) {
        self.forget(key);
        tickets.into_iter().for_each(|ticket| self.end_fill(key, ticket));
    }

    /// Nothing is fetched, as the read is planned anew.
    pub(crate) fn take_back(&mut self, key: u64, fetch: &Fetch) {
        self.counts.fetched_ahead_bytes -= fetch.ahead_bytes;
        if let Some((fill, _)) = fetch.fill {
            self.end_fill(key, fill);
        }
    }

    /// Begins a read of valid units of a line, those that `choose` takes: which these are. `copy` gets what memory has of them.
    pub(crate) fn begin_look(
        &mut self,
        key: u64,
        choose: impl FnOnce(u64) -> u64,
        copy: impl FnMut(Range<usize>, &[u8]),
    ) -> Option<(u64, Option<Hit>)> {
        let slot = self.model.policy().find(key)?;
        let units = choose(self.model.valid_units(slot));
        let hit = (units != 0).then(|| self.begin_hit(key, slot, units, copy));
        Some((units, hit.flatten()))
    }

    /// The fetch of a fill is done whose slot is in memory. `copy` gives it its units. The bytes that it keeps.
    pub(crate) fn fill_stage(
        &mut self,
        key: u64,
        (fill, slot): (Ticket, u32),
        mut copy: impl FnMut(Range<usize>, &mut [u8]),
    ) -> u64 {
        let keep = self.begin_store(fill);
        let Some(stage) = self.staged(slot) else {
            self.end_fill(key, fill);
            return 0;
        };
        for run in runs(keep) {
            let bytes = run.start * UNIT..run.end * UNIT;
            copy(run, &mut stage[bytes]);
        }
        self.changing(key, |it| it.model.fill_done(fill, true));
        self.model.bytes_of(keep)
    }

    /// The fetch of a fill is done whose slot is on the SSD: the units that are to be written there. Until that has ended they
    /// are served from here.
    pub(crate) fn arrive(&mut self, arrived: Arrived) -> u64 {
        let keep = self.begin_store(arrived.fill);
        self.arrived.push(arrived);
        keep
    }

    /// What a fill has fetched was written to its slot, or was not. `record` is that of the slot.
    pub(crate) fn end_arrived(
        &mut self,
        (key, slot, fill): (u64, u32, Ticket),
        units: u64,
        stored: Option<&Crcs>,
        record: Option<&Record>,
    ) {
        self.end_store((key, slot), units, stored, record, |model, ok| {
            model.fill_done(fill, ok)
        });
        self.arrived.retain(|it| it.fill != fill);
    }

    fn begin_store(&mut self, ticket: Ticket) -> u64 {
        if is_made(Mutant::StoresOverlap) {
            return self.model.units_of(ticket);
        }
        self.model.begin_store(ticket)
    }

    /// What a fill or write puts into a slot of the SSD was written, or was not. `record` is that of the slot.
    pub(crate) fn end_store(
        &mut self,
        (key, slot): (u64, u32),
        units: u64,
        stored: Option<&Crcs>,
        record: Option<&Record>,
        done: impl FnOnce(&mut Model, bool) -> u64,
    ) {
        self.changing(key, |it| done(&mut it.model, stored.is_some()));
        self.settle(key, slot, units, stored, record);
    }

    /// Plans a write, before the backing gets it.
    pub(crate) fn begin_write(
        &mut self,
        part: &Part,
        mode: WriteMode,
        time_ns: u64,
    ) -> (WritePlan, Option<Move>) {
        let before = self.model.policy().find(part.key);
        let (plan, moved) = self.changing(part.key, |it| {
            let (residency, hand) = (&it.residency, &mut it.hand);
            let has_room = |policy: &CachePolicy| may_come(policy, residency, hand, part.key);
            let plan = it.model.write_in(mode, part, time_ns, has_room);
            // Before the newcomer counts: there are never more lines than there is room for.
            let moved = it.make_room(&plan.room);
            if plan.room.is_needed {
                it.keep_limit(part.key);
            }
            (plan, moved)
        });
        self.counts.refused += u64::from(plan.refused);
        if let (Some(slot), None) = (before, plan.slot) {
            self.put_record(slot, &Record::default());
        }
        (plan, moved)
    }

    /// The backing has a write, `data`, of which the slot keeps some.
    pub(crate) fn store_write(&mut self, part: &Part, plan: &WritePlan, slot: u32, data: &[u8]) -> Store {
        let keep = self.begin_store(plan.ticket);
        let Some(stage) = self.staged(slot) else {
            return Store::Units(keep);
        };
        for run in runs(keep) {
            overlay(part, run.clone(), data, &mut stage[run.start * UNIT..]);
        }
        self.end_write(part.key, plan, true);
        Store::Done(u64::from(plan.keep_bytes))
    }

    /// A unit to which a write was to be applied is not what its record says.
    pub(crate) fn write_met_damage(&mut self, plan: &WritePlan, unit: usize) {
        // Else the line was forgotten meanwhile, and its record with it.
        self.counts.mismatches += self.model.units_of(plan.ticket) >> unit & 1;
    }

    /// A write is over of which the SSD gets nothing.
    pub(crate) fn end_write(&mut self, key: u64, plan: &WritePlan, ok: bool) {
        self.changing(key, |it| it.model.write_done(plan.ticket, ok));
    }

    /// Makes the record of a slot what the model says of it, after `units` got new data or were to get them.
    fn settle(&mut self, key: u64, slot: u32, units: u64, stored: Option<&Crcs>, record: Option<&Record>) {
        if slot >= self.stage_start {
            return;
        }
        if self.model.policy().find(key) != Some(slot) {
            // It was forgotten meanwhile, and its slot is free now.
            self.put_record(slot, &Record::default());
            return;
        }
        let Some(mut record) = record.copied() else {
            self.forget(key);
            return;
        };
        if record.key != Some(key) {
            record = Record {
                key: Some(key),
                ..Record::default()
            };
        }
        if let Some(crcs) = stored {
            runs(units)
                .flatten()
                .for_each(|unit| record.crcs[unit] = crcs[unit]);
        }
        // What is being moved there has its record when it is there.
        let moving = self
            .moving
            .get(&slot)
            .map_or(0, |(ticket, _)| self.model.units_of(*ticket));
        record.valid = self.model.valid_units(slot) & !moving;
        self.put_record(slot, &record);
    }

    /// Does what making room for a newcomer takes: a line that is to be written to the SSD.
    fn make_room(&mut self, room: &Room) -> Option<Move> {
        if let Some(victim) = room.victim {
            self.counts.evictions += 1;
            let units = room.victim_units.count_ones();
            self.residency.change(victim.key, Some(units), None);
            self.put_record(victim.slot, &Record::default());
        }
        let line = room.promoted?;
        // The newcomer may get its place in memory.
        let bytes = Arc::new(Aligned::from(&*self.staged(line.from)?));
        let ticket = self.model.begin_move(&line);
        self.moving.insert(line.to, (ticket, Arc::clone(&bytes)));
        Some(Move { line, bytes, ticket })
    }

    /// A line that moved is on the SSD, or could not be written.
    pub(crate) fn end_move(&mut self, moved: &Move, stored: Option<&Crcs>, record: Option<&Record>) {
        let Promoted { key, to, .. } = moved.line;
        self.moving.remove(&to);
        let Some(crcs) = stored else {
            // While it is pinned, so that its slot is nobody else's before its record is gone.
            self.forget(key);
            self.changing(key, |it| it.model.move_done(moved.ticket, false));
            return;
        };
        self.counts.flash_write_bytes += self.model.bytes_of(moved.line.units);
        self.changing(key, |it| it.model.move_done(moved.ticket, true));
        // Also of what was touched meanwhile, as a write that covers a part of a unit is applied to what was moved.
        self.settle(key, to, moved.line.units, Some(crcs), record);
    }

    /// Before a newcomer counts: its source may have all the lines that it may. Two leave at most, one more than came: one request
    /// does not pay for all that other shards have too much.
    fn keep_limit(&mut self, key: u64) {
        for _ in 0..2 {
            let full = self.residency.source_at_limit(key);
            if full.is_none_or(|source| self.make_room_in(source, Some(key)) != Left::ALine) {
                break;
            }
        }
    }

    /// Forgets the next line of a source in the order of slots, but the one that is to be kept.
    pub(crate) fn make_room_in(&mut self, source: u16, kept: Option<u64>) -> Left {
        let policy = self.model.policy();
        let left = next_to_leave(policy, &self.residency, &mut self.hand, source, kept);
        if let (Left::ALine, Some(key)) = (left, policy.key_at(self.hand)) {
            self.hand = after(self.hand, policy);
            self.counts.evictions += 1;
            self.forget(key);
        }
        left
    }

    /// Whether it is cached.
    pub(crate) fn has(&self, key: u64) -> bool {
        self.model.policy().find(key).is_some()
    }

    /// The valid units of a line; none if it is not cached.
    pub(crate) fn valid_units(&self, key: u64) -> u64 {
        let slot = self.model.policy().find(key);
        slot.map_or(0, |slot| self.model.valid_units(slot))
    }

    /// Forgets a line. Whether it was cached.
    pub(crate) fn forget(&mut self, key: u64) -> bool {
        let slot = self.model.policy().find(key);
        self.changing(key, |it| it.model.evict(key));
        if let Some(slot) = slot {
            self.put_record(slot, &Record::default());
        }
        slot.is_some()
    }

    /// The keys of the lines in memory, by their places.
    pub(crate) fn staged_keys(&self) -> Vec<Option<u64>> {
        let mut keys = vec![None; self.stage.len() / self.line_bytes];
        self.model.policy().for_each_resident(&mut |key, slot| {
            if let Some(number) = slot.checked_sub(self.stage_start) {
                keys[number as usize] = Some(key);
            }
        });
        keys
    }

    /// What was counted since the start.
    pub(crate) fn counts(&self) -> Counts {
        let ahead = self.model.ahead_units();
        Counts {
            ahead_sampled_bytes: self.counts.ahead_sampled_bytes + ahead.fetched * UNIT_BYTES,
            ahead_used_bytes: self.counts.ahead_used_bytes + ahead.used * UNIT_BYTES,
            ..self.counts
        }
    }

    /// Bytes held, apart from the lines in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.model.memory_bytes() + self.table.memory_bytes()
    }

    /// Lets go of its memory when nobody uses it any more; what was counted stays. `table` is one of a slot.
    pub(crate) fn release(&mut self, table: Table) {
        self.counts = self.counts();
        let config = CacheConfig {
            line: LineSize::new(self.line_bytes as u64).expect("it is one"),
            unit_bytes: UNIT_BYTES,
            fetch: FetchSize::Fixed(UNIT_BYTES),
            write_mode: WriteMode::Invalidate,
            admission: AdmissionOptions::default(),
        };
        self.model = new_model(config, PolicyKind::S3Fifo, 1, 0);
        self.table = table;
        self.stage = Vec::new();
        self.arrived = Vec::new();
        self.stage_start = 1;
        self.hand = 0;
    }

    /// Bytes of the lines in memory.
    pub(crate) fn stage_bytes(&self) -> usize {
        self.stage.len()
    }
}

/// The runs of neighbouring units of a mask.
pub(crate) fn runs(mut units: u64) -> impl Iterator<Item = Range<usize>> {
    std::iter::from_fn(move || {
        if units == 0 {
            return None;
        }
        let start = units.trailing_zeros();
        let len = (units >> start).trailing_ones();
        units &= !(u64::MAX >> (64 - len) << start);
        Some(start as usize..(start + len) as usize)
    })
}

/// The bytes of a line that a part touches in a run of units.
pub(crate) fn overlap(part: &Part, run: &Range<usize>) -> Range<usize> {
    let start = (part.start as usize).max(run.start * UNIT);
    start..(part.end as usize).min(run.end * UNIT).max(start)
}

/// Copies what a part touches of a run of units, whose bytes are `data`, to `out`, whose bytes are those of the part.
pub(crate) fn copy_units(part: &Part, run: Range<usize>, data: &[u8], out: &mut [u8]) {
    let bytes = overlap(part, &run);
    let (from, to) = (bytes.start - run.start * UNIT, bytes.start - part.start as usize);
    out[to..to + bytes.len()].copy_from_slice(&data[from..from + bytes.len()]);
}

/// Copies what a part touches of a run of units from `data`, the bytes of the part, to `line`, the bytes of the run.
pub(crate) fn overlay(part: &Part, run: Range<usize>, data: &[u8], line: &mut [u8]) {
    let bytes = overlap(part, &run);
    let (from, to) = (bytes.start - part.start as usize, bytes.start - run.start * UNIT);
    line[to..to + bytes.len()].copy_from_slice(&data[from..from + bytes.len()]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_units() {
        let of = |units| runs(units).collect::<Vec<_>>();
        assert_eq!(of(0), []);
        assert_eq!(of(0b1_0110), [1..3, 4..5]);
        assert_eq!(of(u64::MAX), vec![0..64; 1]);
        assert_eq!(of(1 << 63 | 1), [0..1, 63..64]);
    }
}
