//! A part of a cache that shares nothing with the others: a model, its records and its lines. It carries out what the model
//! plans, under the lock of its owner; what comes from the backing is passed in.

use std::ops::Range;
use std::sync::Arc;

use bathy_cache_model::{
    Backing, CacheConfig, CacheModel, Miss, Part, Room, Ticket, WriteMode, WritePlan, stage_lines,
};
use bathy_policy::{CachePolicy, Policy, PolicyKind};

use crate::aligned::Aligned;
use crate::counters::{Area, Counts};
use crate::format::{Layout, Record, UNIT_BYTES, UNITS_MAX, UnitSeed, Uuid};
use crate::health::Ssd;
use crate::residency::{Line, Residency};
use crate::table::Table;

pub(crate) type Model = CacheModel<CachePolicy>;

const UNIT: usize = UNIT_BYTES as usize;

type Crcs = [u32; UNITS_MAX];

/// The model of one shard. Its policy is one that a cache runs: a superblock has no other.
pub(crate) fn new_model(config: CacheConfig, kind: PolicyKind, slots: u32) -> Model {
    let stage = stage_lines(u64::from(slots), config.line) as usize;
    let policy = CachePolicy::new(kind, slots as usize, stage);
    CacheModel::new(config, policy.expect("a policy that a cache runs"))
}

/// What of a read the backing is needed for.
pub(crate) struct Fetch {
    /// The units.
    pub(crate) units: u64,
    /// Bytes of those among them that nobody asked for.
    pub(crate) ahead_bytes: u64,
    /// Where they may be kept.
    pub(crate) fill: Option<(Ticket, u32)>,
}

pub(crate) struct Shard {
    number: u32,
    uuid: Uuid,
    layout: Arc<Layout>,
    line_bytes: usize,
    ssd: Arc<Ssd>,
    pub(crate) model: Model,
    pub(crate) table: Table,
    /// The first slot in memory; all from there on are.
    pub(crate) stage_start: u32,
    /// The lines in memory.
    stage: Vec<u8>,
    pub(crate) counts: Counts,
    residency: Arc<Residency>,
    /// Where the search for a line of a source that has too many goes on.
    hand: u32,
}

impl Shard {
    pub(crate) fn new(
        number: u32,
        uuid: Uuid,
        layout: Arc<Layout>,
        line_bytes: u32,
        ssd: Arc<Ssd>,
        model: Model,
        table: Table,
    ) -> Self {
        let (slots, in_memory) = (model.policy().capacity(), model.policy().memory_lines());
        Self {
            number,
            uuid,
            layout,
            line_bytes: line_bytes as usize,
            ssd,
            stage_start: (slots - in_memory) as u32,
            stage: vec![0; in_memory * line_bytes as usize],
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

    fn seed(&self, key: u64) -> UnitSeed {
        UnitSeed::new(&self.uuid, key)
    }

    fn offset(&self, slot: u32, unit: usize) -> u64 {
        self.layout.data(self.number, slot) + unit as u64 * UNIT_BYTES
    }

    fn put_record(&mut self, slot: u32, record: Record) {
        if slot < self.stage_start {
            self.table.put(slot, record, &self.ssd);
        }
    }

    /// Whether a read of the part would be a hit. Counts as nothing.
    pub(crate) fn holds(&self, part: &Part) -> bool {
        self.model.holds(part)
    }

    /// Plans a read and copies what is cached to `out`, which has the length of the part: what is to be read from the
    /// backing, if anything. A copy that cannot be read or does not match its record is forgotten and planned anew.
    pub(crate) fn read(
        &mut self,
        backing: Backing,
        part: &Part,
        time_ns: u64,
        out: &mut [u8],
    ) -> Option<Fetch> {
        loop {
            let plan = self.model.read_from(backing, part, time_ns);
            if let Some(miss) = &plan.miss {
                self.counts.refused += u64::from(miss.refused);
                self.make_room(&miss.room);
                if miss.room.is_needed {
                    self.residency.change(part.key, None, Some(0));
                    self.keep_limit(part.key);
                }
            }
            let Miss {
                awaited,
                fetch,
                ahead,
                pass,
                fill,
                ..
            } = plan.miss.unwrap_or_default();
            let is_served = match plan.slot {
                Some(slot) if plan.hit != 0 => self.serve(part, slot, plan.hit, out).is_some(),
                _ => true,
            };
            if is_served {
                // What another read waits for is read a second time: nobody here waits for somebody else's I/O.
                let units = awaited | fetch | pass;
                let fill = fill.zip(plan.slot);
                let ahead_bytes = self.model.bytes_of(ahead);
                self.counts.fetched_ahead_bytes += ahead_bytes;
                return (units != 0).then_some(Fetch {
                    units,
                    ahead_bytes,
                    fill,
                });
            }
            self.counts.mismatches += 1;
            if let Some(fill) = fill {
                self.changing(part.key, |it| it.model.fill_done(fill, false));
            }
            self.forget(part.key);
        }
    }

    /// Copies valid units of a line to `out`. `None` if they are not what their record says.
    fn serve(&mut self, part: &Part, slot: u32, units: u64, out: &mut [u8]) -> Option<()> {
        if let Some(place) = self.in_memory(slot) {
            for run in runs(units) {
                copy_units(
                    part,
                    run.clone(),
                    &self.stage[place.clone()][run.start * UNIT..],
                    out,
                );
            }
            return Some(());
        }
        let record = self.record(slot, part.key, units)?;
        for run in runs(units) {
            let data = self.load(slot, part.key, &record, run.clone())?;
            self.counts.flash_read_bytes += data.len() as u64;
            copy_units(part, run, &data, out);
        }
        Some(())
    }

    /// The record of a slot, if it says that these units of this line are there.
    fn record(&mut self, slot: u32, key: u64, units: u64) -> Option<Record> {
        let record = self.table.get(slot, &self.ssd).ok()?;
        (record.key == Some(key) && units & !u64::from(record.valid) == 0).then_some(record)
    }

    /// A unit of a line on the SSD, if it is what its record says.
    pub(crate) fn copy_of(&mut self, key: u64, slot: u32, unit: usize) -> Option<Aligned> {
        if slot >= self.stage_start || unit >= self.line_bytes / UNIT {
            return None;
        }
        let record = self.record(slot, key, 1 << unit)?;
        self.load(slot, key, &record, unit..unit + 1)
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

    /// Whether the valid units of a line are those of `bytes`, which begin with it. A line that is not cached has none.
    pub(crate) fn is_same(&mut self, key: u64, bytes: &[u8]) -> bool {
        let Some(slot) = self.model.policy().find(key) else {
            return true;
        };
        runs(self.model.valid_units(slot)).into_iter().all(|run| {
            let Some(expected) = bytes.get(run.start * UNIT..run.end * UNIT) else {
                return false;
            };
            if let Some(line) = self.in_memory(slot) {
                return self.stage[line][run.start * UNIT..run.end * UNIT] == *expected;
            }
            let units = self.model.valid_units(slot);
            let record = self.record(slot, key, units);
            let copy = record.and_then(|record| self.load(slot, key, &record, run));
            copy.is_some_and(|copy| copy[..] == *expected)
        })
    }

    /// Reads units of a slot and compares them with their record.
    fn load(&self, slot: u32, key: u64, record: &Record, run: Range<usize>) -> Option<Aligned> {
        let data = self
            .ssd
            .read(run.len() * UNIT, self.offset(slot, run.start))
            .ok()?;
        let seed = self.seed(key);
        run.zip(data.chunks_exact(UNIT))
            .all(|(unit, data)| seed.crc(unit, data) == record.crcs[unit])
            .then_some(data)
    }

    /// The fetch of [`Shard::read`] is done: `data` is the line, of which the fetched units are filled; `None` after an
    /// error of the backing. The bytes that were copied.
    pub(crate) fn fill(&mut self, key: u64, (fill, slot): (Ticket, u32), data: Option<&[u8]>) -> u64 {
        let keep = self.model.units_to_keep(fill);
        let stored = data.and_then(|line| self.store(slot, key, keep, line));
        let copied = stored.map_or(0, |_| self.model.bytes_of(keep));
        if slot < self.stage_start {
            self.counts.flash_write_bytes += copied;
        }
        self.changing(key, |it| it.model.fill_done(fill, stored.is_some()));
        self.settle(key, slot, keep, stored);
        copied
    }

    /// Plans a write, before the backing gets it.
    pub(crate) fn begin_write(&mut self, part: &Part, mode: WriteMode, time_ns: u64) -> WritePlan {
        let before = self.model.policy().find(part.key);
        let plan = self.changing(part.key, |it| {
            let plan = it.model.write_in(mode, part, time_ns);
            // Before the newcomer counts: there are never more lines than there is room for.
            it.make_room(&plan.room);
            plan
        });
        self.counts.refused += u64::from(plan.refused);
        if plan.room.is_needed {
            self.keep_limit(part.key);
        }
        if let (Some(slot), None) = (before, plan.slot) {
            self.put_record(slot, Record::default());
        }
        plan
    }

    /// The backing has the write, or failed: what is kept of `data`, which are those of the part, goes to the slot. The bytes
    /// that were copied.
    pub(crate) fn finish_write(&mut self, part: &Part, plan: &WritePlan, data: Option<&[u8]>) -> u64 {
        let Some(slot) = plan.slot else {
            self.changing(part.key, |it| it.model.write_done(plan.ticket, data.is_some()));
            return 0;
        };
        let keep = self.model.units_to_keep(plan.ticket);
        let stored = data.and_then(|data| self.apply(slot, part, keep, data));
        let copied = stored.map_or(0, |_| u64::from(plan.keep_bytes));
        if slot < self.stage_start {
            self.counts.flash_write_bytes += copied;
            self.counts.flash_update_bytes += copied;
        }
        self.changing(part.key, |it| it.model.write_done(plan.ticket, stored.is_some()));
        self.settle(part.key, slot, keep, stored);
        copied
    }

    /// Applies a write to units of a slot; a unit that is covered in part was valid before.
    fn apply(&mut self, slot: u32, part: &Part, units: u64, data: &[u8]) -> Option<Crcs> {
        let covers =
            |unit: usize| part.start as usize <= unit * UNIT && (unit + 1) * UNIT <= part.end as usize;
        if let Some(place) = self.in_memory(slot) {
            for run in runs(units) {
                overlay(
                    part,
                    run.clone(),
                    data,
                    &mut self.stage[place.clone()][run.start * UNIT..],
                );
            }
            return Some(Crcs::default());
        }
        let mut crcs = Crcs::default();
        for run in runs(units) {
            let mut bytes = Aligned::to_fill(run.len() * UNIT);
            for unit in run.clone().filter(|&unit| !covers(unit)) {
                // It is not valid while it is written, but its checksum is that of the copy, which nobody else touches.
                let record = self.table.get(slot, &self.ssd).ok()?;
                let is_recorded = record.key == Some(part.key);
                let old = is_recorded.then(|| self.load(slot, part.key, &record, unit..unit + 1));
                let Some(old) = old.flatten() else {
                    self.counts.mismatches += 1;
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
    fn store(&mut self, slot: u32, key: u64, units: u64, line: &[u8]) -> Option<Crcs> {
        let mut crcs = Crcs::default();
        for run in runs(units) {
            let bytes = &line[run.start * UNIT..run.end * UNIT];
            if let Some(place) = self.in_memory(slot) {
                self.stage[place][run.start * UNIT..run.end * UNIT].copy_from_slice(bytes);
                continue;
            }
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
        let seed = self.seed(key);
        for (unit, data) in run.clone().zip(bytes.chunks_exact(UNIT)) {
            crcs[unit] = seed.crc(unit, data);
        }
        self.ssd
            .write(Area::Data, bytes, self.offset(slot, run.start))
            .ok()
    }

    /// Makes the record of a slot what the model says of it, after `units` got new data or were to get them.
    fn settle(&mut self, key: u64, slot: u32, units: u64, stored: Option<Crcs>) {
        if slot >= self.stage_start {
            return;
        }
        if self.model.policy().find(key) != Some(slot) {
            // It was forgotten meanwhile, and its slot is free now.
            self.put_record(slot, Record::default());
            return;
        }
        let Ok(mut record) = self.table.get(slot, &self.ssd) else {
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
        record.valid = self.model.valid_units(slot) as u16;
        self.put_record(slot, record);
    }

    /// Does what making room for a newcomer takes.
    fn make_room(&mut self, room: &Room) {
        if let Some(victim) = room.victim {
            self.counts.evictions += 1;
            let units = room.victim_units.count_ones();
            self.residency.change(victim.key, Some(units), None);
            self.put_record(victim.slot, Record::default());
        }
        if let (Some(promoted), Some(place)) = (
            room.promoted,
            room.promoted.and_then(|promoted| self.in_memory(promoted.from)),
        ) {
            // Lent out, as its slot on the SSD is no place in it.
            let stage = std::mem::take(&mut self.stage);
            let stored = self.store(promoted.to, promoted.key, promoted.units, &stage[place]);
            self.stage = stage;
            if stored.is_none() {
                self.forget(promoted.key);
                return;
            }
            self.counts.flash_write_bytes += self.model.bytes_of(promoted.units);
            self.settle(promoted.key, promoted.to, promoted.units, stored);
        }
    }

    /// After a newcomer: its source may have had all the lines that it may. Two leave at most, one more than came: one request
    /// does not pay for all that other shards have too much.
    fn keep_limit(&mut self, key: u64) {
        for _ in 0..2 {
            let over = self.residency.source_over_limit(key);
            if !over.is_some_and(|source| self.make_room_in(source, Some(key))) {
                break;
            }
        }
    }

    /// Forgets the next line of a source in the order of slots, but the one that is to be kept. Whether there is one.
    pub(crate) fn make_room_in(&mut self, source: u16, kept: Option<u64>) -> bool {
        let slots = self.model.policy().capacity() as u32;
        for _ in 0..slots {
            let slot = self.hand;
            self.hand = if slot + 1 == slots { 0 } else { slot + 1 };
            let policy = self.model.policy();
            let key = policy
                .key_at(slot)
                .filter(|&key| Some(key) != kept && !policy.is_pinned(slot));
            if let Some(key) = key.filter(|&key| self.residency.is_of_source(key, source)) {
                self.counts.evictions += 1;
                self.forget(key);
                return true;
            }
        }
        false
    }

    /// Forgets a line. Whether it was cached.
    pub(crate) fn forget(&mut self, key: u64) -> bool {
        let slot = self.model.policy().find(key);
        self.changing(key, |it| it.model.evict(key));
        if let Some(slot) = slot {
            self.put_record(slot, Record::default());
        }
        slot.is_some()
    }

    /// Stores the lines in memory at their slots' places on the SSD, for the next start, and all records.
    pub(crate) fn park(&mut self) -> Option<()> {
        let mut lines = vec![None; self.stage.len() / self.line_bytes];
        self.model.policy().for_each_resident(&mut |key, slot| {
            if let Some(number) = slot.checked_sub(self.stage_start) {
                lines[number as usize] = Some(key);
            }
        });
        for (slot, key) in (self.stage_start..).zip(lines) {
            let mut record = Record {
                key,
                ..Record::default()
            };
            if let Some(key) = key {
                let valid = self.model.valid_units(slot);
                let line = &self.stage[self.in_memory(slot)?];
                record.valid = valid as u16;
                for run in runs(valid) {
                    let bytes = &line[run.start * UNIT..run.end * UNIT];
                    self.store_run(slot, key, run, bytes.into(), &mut record.crcs)?;
                }
            }
            self.table.put(slot, record, &self.ssd);
        }
        self.table.write_out(&self.ssd).ok()
    }

    /// Reads a line in memory back, before it is imported: whether it is what its record says.
    pub(crate) fn unpark(&mut self, key: u64, slot: u32, units: u64) -> bool {
        let mut read = || {
            let record = self.record(slot, key, units)?;
            for run in runs(units) {
                let data = self.load(slot, key, &record, run.clone())?;
                let place = self.in_memory(slot)?;
                self.stage[place][run.start * UNIT..run.end * UNIT].copy_from_slice(&data);
            }
            Some(())
        };
        read().is_some()
    }

    /// What was counted since the start.
    pub(crate) fn counts(&self) -> Counts {
        let ahead = self.model.ahead_units();
        Counts {
            ahead_sampled_bytes: ahead.fetched * UNIT_BYTES,
            ahead_used_bytes: ahead.used * UNIT_BYTES,
            ..self.counts
        }
    }

    /// Bytes held, apart from the lines in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.model.memory_bytes() + self.table.memory_bytes()
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
fn overlap(part: &Part, run: &Range<usize>) -> Range<usize> {
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
fn overlay(part: &Part, run: Range<usize>, data: &[u8], line: &mut [u8]) {
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
