//! The decisions of a cache.

use std::collections::HashMap;

use bathy_policy::admission::NHitOptions;
use bathy_policy::{
    Admission, AdmissionChain, Durable, ImportError, NHit, Policy, StateRecord, Victim, WriteBudget,
};

use crate::config::{CacheConfig, WriteMode};
use crate::fetch::{AheadUnits, Backing, FetchSize, FetchTrial, blocks};
use crate::masks::Masks;
use crate::operations::{Operation, Operations, Ticket};
use crate::request::Part;

/// A line that moved from memory to the SSD. Its valid units must be written there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promoted {
    /// The line.
    pub key: u64,
    /// The slot that it had in memory.
    pub from: u32,
    /// The slot that it has on the SSD.
    pub to: u32,
    /// Its valid units.
    pub units: u64,
}

/// How room was made for a newcomer: the victim left, then a line was promoted, then the newcomer took its slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Whether there is a newcomer.
    pub is_needed: bool,
    /// Who left.
    pub victim: Option<Victim>,
    /// The valid units of who left.
    pub victim_units: u64,
    /// Who moved.
    pub promoted: Option<Promoted>,
}

/// What to do with a part of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadPlan {
    /// The slot of the line, if it is cached now.
    pub slot: Option<u32>,
    /// Units that are served from the slot. Who needs time for that begins a hit.
    pub hit: u64,
    /// What to do with the other units; `None` if there are none.
    pub miss: Option<Miss>,
}

/// What to do with the units of a read that are not valid. The sets but `ahead` are disjoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Miss {
    /// Units that a fill under way has been sent for. What it brings is good for this read; it may be kept no longer.
    pub awaited: u64,
    /// Units to fetch from the backing and keep, with `fill` as the ticket.
    pub fetch: u64,
    /// Of these, units that nobody asked for.
    pub ahead: u64,
    /// Units to fetch from the backing and not to keep.
    pub pass: u64,
    /// The ticket of `fetch`, if there is any.
    pub fill: Option<Ticket>,
    /// How room was made, if the line is a newcomer.
    pub room: Room,
    /// Admission, a driver that has no room for it, or pinned lines kept the line out.
    pub refused: bool,
}

/// What to do with a part of a write: always to the backing, and then, as it says, to the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WritePlan {
    /// The slot of the line, if it is cached now.
    pub slot: Option<u32>,
    /// Whether it was cached before.
    pub was_cached: bool,
    /// Units that the slot takes over from the write: covered whole, or valid before. The others that it touches are not
    /// valid any more.
    pub keep: u64,
    /// Bytes of the part that lie in `keep`.
    pub keep_bytes: u32,
    /// The ticket, also of a write of which nothing is kept: until it is given back no fetch of what it touches is kept.
    pub ticket: Ticket,
    /// How room was made, if the line is a newcomer.
    pub room: Room,
    /// Admission, a driver that has no room for it, or pinned lines kept the line out; or a cached line was dropped because its
    /// change was not admitted.
    pub refused: bool,
}

/// What [`CacheModel::evict`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evicted {
    /// The line was not cached.
    Absent,
    /// Its slot is free.
    Freed(u32),
    /// It has no valid units any more, and its slot will be free when the last pin is gone.
    Emptied(u32),
}

/// See the [crate](crate).
pub struct CacheModel<P> {
    policy: P,
    admission: AdmissionChain,
    budget: Option<WriteBudget>,
    write_mode: WriteMode,
    unit_shift: u32,
    fetch: FetchSize,
    /// Of an adaptive fetch size.
    pub(crate) trial: Option<FetchTrial>,
    /// Valid units by slot.
    valid: Masks,
    operations: Operations,
    /// Pins of a slot beyond the first, which the policy has.
    more_pins: HashMap<u32, u32>,
    /// Lines to be removed when the last pin is gone, by slot.
    emptied: HashMap<u32, u64>,
}

impl<P: Policy> CacheModel<P> {
    /// An empty cache with an empty policy.
    ///
    /// # Panics
    /// If units or fetch size do not fit the line.
    pub fn new(config: CacheConfig, policy: P) -> Self {
        assert!(config.is_valid(), "units and fetch size fit the line");
        let mut valid = Masks::new(config.line.bytes() / config.unit_bytes);
        if let Some(last) = policy.slots_end().checked_sub(1) {
            valid.cover(last as u32);
        }
        Self {
            admission: admission(&config, policy.capacity()),
            trial: matches!(config.fetch, FetchSize::Adaptive { .. })
                .then(|| FetchTrial::new(config.line.bytes(), config.unit_bytes, policy.capacity())),
            fetch: config.fetch,
            budget: config.admission.write_budget_bytes_per_day.map(WriteBudget::new),
            policy,
            write_mode: config.write_mode,
            unit_shift: config.unit_bytes.trailing_zeros(),
            valid,
            operations: Operations::default(),
            more_pins: HashMap::new(),
            emptied: HashMap::new(),
        }
    }

    /// The policy.
    pub fn policy(&self) -> &P {
        &self.policy
    }

    /// The valid units of a slot; none of a free one.
    #[inline]
    pub fn valid_units(&self, slot: u32) -> u64 {
        self.valid.get(slot)
    }

    /// Bytes of some units.
    #[inline]
    pub fn bytes_of(&self, units: u64) -> u64 {
        u64::from(units.count_ones()) << self.unit_shift
    }

    /// Bytes held, all included.
    pub fn memory_bytes(&self) -> usize {
        let entry = size_of::<(u32, u64)>() + 1;
        size_of::<Self>()
            + self.policy.memory_bytes()
            + self.admission.memory_bytes()
            + self.valid.memory_bytes()
            + self.trial.as_ref().map_or(0, FetchTrial::memory_bytes)
            + self.operations.memory_bytes()
            + (self.more_pins.capacity() + self.emptied.capacity()) * entry
    }

    /// Whether a read of a part would be a hit. Counts as nothing.
    #[inline]
    pub fn holds(&self, part: &Part) -> bool {
        let touched = part.touched(self.unit_shift);
        let slot = self.policy.find(part.key);
        slot.is_some_and(|slot| touched & !self.valid.get(slot) == 0)
    }

    /// The bytes that a miss would fetch at most from a disk of which this is known.
    pub fn fetch_bytes(&self, break_even_bytes: u64) -> u64 {
        1 << (self.unit_shift + self.fetch_level(break_even_bytes) as u32)
    }

    /// Of an adaptive fetch size, what was fetched ahead on sampled lines.
    pub fn ahead_units(&self) -> AheadUnits {
        self.trial
            .as_ref()
            .map_or_else(AheadUnits::default, FetchTrial::ahead)
    }

    fn fetch_level(&self, break_even_bytes: u64) -> usize {
        match (self.fetch, &self.trial) {
            (FetchSize::Adaptive { .. }, Some(trial)) => trial.level(break_even_bytes),
            (FetchSize::Fixed(bytes), _) => (bytes.trailing_zeros() - self.unit_shift) as usize,
            (FetchSize::Adaptive { .. }, None) => 0,
        }
    }

    /// Plans a read of a part, from the backing of the configuration.
    #[inline]
    pub fn read(&mut self, part: &Part, time_ns: u64) -> ReadPlan {
        let break_even_bytes = match self.fetch {
            FetchSize::Adaptive { break_even_bytes } => break_even_bytes,
            FetchSize::Fixed(_) => 0,
        };
        let backing = Backing {
            break_even_bytes,
            line_end: u32::MAX,
        };
        self.read_from(backing, part, time_ns, |_| true)
    }

    /// [`CacheModel::read`] from another backing than that of the configuration, by a driver that has limits of its own.
    ///
    /// `has_room` is asked of a newcomer that admission lets in, before anything makes room for it: whether the driver has room. What
    /// it has none for changes nothing: nobody leaves, a ghost stays one, and neither budget nor trial count it. That it was asked
    /// for counts, as admission counts requests.
    #[inline]
    pub fn read_from(
        &mut self,
        backing: Backing,
        part: &Part,
        time_ns: u64,
        has_room: impl FnOnce(&P) -> bool,
    ) -> ReadPlan {
        let touched = part.touched(self.unit_shift);
        let slot = self.policy.reference(part.key);
        let hit = slot.map_or(0, |slot| touched & self.valid.get(slot));
        let there = self.units_before(backing.line_end);
        if let (Some(trial), Some(slot)) = (&mut self.trial, slot) {
            trial.read(slot, touched, there);
        }
        if hit == touched {
            return ReadPlan {
                slot,
                hit,
                miss: None,
            };
        }
        let (slot, miss) = self.miss(backing, part, time_ns, slot, touched & !hit, has_room);
        ReadPlan {
            slot,
            hit,
            miss: Some(miss),
        }
    }

    /// Plans the units of a read that are not valid: the slot of the line after it. Apart, so that a hit is short.
    fn miss(
        &mut self,
        backing: Backing,
        part: &Part,
        time_ns: u64,
        slot: Option<u32>,
        missing: u64,
        has_room: impl FnOnce(&P) -> bool,
    ) -> (Option<u32>, Miss) {
        let mut miss = Miss::default();
        let (mut filled, mut written) = (0, 0);
        for operation in self.operations.of_line(part.key) {
            written |= operation.written;
            // A fill that was overtaken by a write no longer has the units that the write touched.
            if operation.written == 0 {
                filled |= operation.units;
            }
        }
        miss.awaited = filled & missing & !written;
        miss.pass = missing & written;
        miss.fetch = missing & !miss.awaited & !miss.pass;
        if miss.fetch == 0 {
            return (slot, miss);
        }
        let there = self.units_before(backing.line_end);
        let level = self.fetch_level(backing.break_even_bytes);
        if level > 0 {
            let valid = slot.map_or(0, |slot| self.valid.get(slot));
            let taken = valid | filled | written | !there;
            miss.ahead = blocks(miss.fetch, level, taken) & !miss.fetch;
        }
        let bytes = self.bytes_of(miss.fetch | miss.ahead);
        let kept_at = match slot {
            Some(slot) if !self.admits_change(slot, time_ns, bytes) => None,
            Some(slot) => Some(slot),
            None => {
                let inserted = self.insert(part, time_ns, bytes, has_room);
                miss.refused = inserted.is_none();
                miss.room = inserted.map_or(Room::default(), |(_, room)| room);
                inserted.map(|(slot, _)| slot)
            }
        };
        if let Some(kept_at) = kept_at {
            miss.fetch |= miss.ahead;
            miss.fill = Some(self.begin(part.key, Some(kept_at), miss.fetch, 0));
            if let Some(trial) = &mut self.trial {
                if slot.is_none() {
                    let touched = part.touched(self.unit_shift);
                    trial.read(kept_at, touched, there);
                }
                trial.fetched_ahead(kept_at, miss.ahead);
            }
        } else {
            miss.pass |= miss.fetch;
            (miss.fetch, miss.ahead) = (0, 0);
        }
        (slot.or(kept_at), miss)
    }

    /// The units of a line that begin before a byte.
    fn units_before(&self, line_end: u32) -> u64 {
        let units = u64::from(line_end).div_ceil(1 << self.unit_shift);
        u64::MAX.checked_shr(64 - units.min(64) as u32).unwrap_or(0) & self.valid.ones()
    }

    /// The units that a fill or write puts into its slot from now on until it is done: those that nothing has touched since it
    /// began, but for those that another operation is putting there, of which nobody knows which comes last. It is asked once,
    /// right before the slot is written; others may ask and write meanwhile.
    pub fn begin_store(&mut self, ticket: Ticket) -> u64 {
        let Some(&Operation { key, units, .. }) = self.operations.get(ticket) else {
            return 0;
        };
        let others = self.operations.of_line(key).fold(0, |all, it| all | it.storing);
        let Some(operation) = self.operations.get_mut(ticket) else {
            return 0;
        };
        operation.units = units & !others;
        operation.storing = operation.units;
        operation.units
    }

    /// The units of [`ReadPlan::hit`] are read from the slot from now on, which takes time: the line neither leaves nor moves.
    #[inline]
    pub fn begin_hit(&mut self, key: u64, slot: u32, units: u64) -> Ticket {
        self.begin(key, Some(slot), units, 0)
    }

    /// A hit was read: the units that were valid all the time. The slot may have been written where the others lie.
    #[inline]
    pub fn hit_done(&mut self, hit: Ticket) -> u64 {
        self.end(hit, true)
    }

    /// A line is moved from now on, which takes time. Its units are valid meanwhile; those of [`CacheModel::units_of`] are to be
    /// served from a copy.
    pub fn begin_move(&mut self, line: &Promoted) -> Ticket {
        let ticket = self.begin(line.key, Some(line.to), line.units, 0);
        self.begin_store(ticket);
        ticket
    }

    /// The units of an operation that nothing has touched since it began.
    pub fn units_of(&self, ticket: Ticket) -> u64 {
        self.operations.get(ticket).map_or(0, |it| it.units)
    }

    /// A move is done or failed; then the driver forgets the line. The units that were moved, and that nothing has touched
    /// since. A write that touched a part of another one is applied to what was moved.
    pub fn move_done(&mut self, ticket: Ticket, ok: bool) -> u64 {
        self.end(ticket, ok)
    }

    /// Whether a line that was forgotten keeps its slot because something is under way with it.
    #[inline]
    pub fn has_emptied(&self) -> bool {
        !self.emptied.is_empty()
    }

    /// The fetch of a fill is done, and what may be kept lies in the slot; or one of both failed. The units that are valid
    /// now: those of the plan that no write touched and no eviction dropped since. None for a ticket given back before.
    #[inline]
    pub fn fill_done(&mut self, fill: Ticket, ok: bool) -> u64 {
        self.end(fill, ok)
    }

    /// Plans a write of a part. It is called before the backing gets the write.
    #[inline]
    pub fn write(&mut self, part: &Part, time_ns: u64) -> WritePlan {
        self.write_in(self.write_mode, part, time_ns, |_| true)
    }

    /// [`CacheModel::write`] in another mode than that of the configuration, with limits as in [`CacheModel::read_from`].
    #[inline]
    pub fn write_in(
        &mut self,
        mode: WriteMode,
        part: &Part,
        time_ns: u64,
        has_room: impl FnOnce(&P) -> bool,
    ) -> WritePlan {
        if mode == WriteMode::Invalidate {
            return self.invalidate(part);
        }
        let touched = part.touched(self.unit_shift);
        let covered = part.covered(self.unit_shift);
        let cached_at = self.policy.reference(part.key);
        if let Some(slot) = cached_at {
            // A unit that is written in part stays as valid as it was: the write is applied to the copy.
            let keep = covered | (touched & self.valid.get(slot));
            let bytes = part.bytes_in(keep, self.unit_shift);
            if self.admits_change(slot, time_ns, u64::from(bytes)) {
                let keep = keep & !self.overtake(part.key, touched);
                self.valid.remove(slot, touched);
                if let Some(trial) = &mut self.trial {
                    trial.written(slot, touched, covered);
                }
                return self.begin_write(part, touched, Some(slot), keep);
            }
            // What cannot be written must not be served.
            return WritePlan {
                refused: true,
                ..self.invalidate(part)
            };
        }
        let bytes = part.bytes_in(covered, self.unit_shift);
        let contested = self.overtake(part.key, touched);
        let allocates = mode == WriteMode::Allocate;
        let inserted = if allocates {
            self.insert(part, time_ns, u64::from(bytes), has_room)
        } else {
            None
        };
        let slot = inserted.map(|(slot, _)| slot);
        if let (Some(trial), Some(slot)) = (&mut self.trial, slot) {
            trial.written(slot, touched, covered);
        }
        let keep = if slot.is_some() { covered & !contested } else { 0 };
        WritePlan {
            was_cached: false,
            room: inserted.map_or(Room::default(), |(_, room)| room),
            refused: allocates && slot.is_none(),
            ..self.begin_write(part, touched, slot, keep)
        }
    }

    /// The plan of a write to a cached line.
    #[inline]
    fn begin_write(&mut self, part: &Part, touched: u64, slot: Option<u32>, keep: u64) -> WritePlan {
        WritePlan {
            slot,
            was_cached: true,
            keep,
            keep_bytes: part.bytes_in(keep, self.unit_shift),
            ticket: self.begin(part.key, slot, keep, touched),
            room: Room::default(),
            refused: false,
        }
    }

    /// Plans a write, or a trim, whose line leaves the cache.
    pub fn invalidate(&mut self, part: &Part) -> WritePlan {
        let was_cached = self.evict(part.key) != Evicted::Absent;
        let touched = part.touched(self.unit_shift);
        self.overtake(part.key, touched);
        WritePlan {
            was_cached,
            ..self.begin_write(part, touched, None, 0)
        }
    }

    /// The backing has the write, and then the slot got what is kept; or one of both failed. The units that are valid now.
    #[inline]
    pub fn write_done(&mut self, write: Ticket, ok: bool) -> u64 {
        self.end(write, ok)
    }

    /// Forgets a line.
    pub fn evict(&mut self, key: u64) -> Evicted {
        let Some(slot) = self.policy.find(key) else {
            self.policy.remove(key);
            return Evicted::Absent;
        };
        self.valid.clear(slot);
        if let Some(trial) = &mut self.trial {
            trial.left(slot);
        }
        for operation in self.operations.of_line(key) {
            operation.units = 0;
        }
        if self.policy.is_pinned(slot) {
            self.emptied.insert(slot, key);
            return Evicted::Emptied(slot);
        }
        self.policy.remove(key);
        Evicted::Freed(slot)
    }

    /// The slot of a cached line is in use: the line neither leaves nor moves. Pins are counted.
    #[inline]
    fn pin(&mut self, slot: u32) {
        if self.policy.is_pinned(slot) {
            *self.more_pins.entry(slot).or_insert(0) += 1;
        } else {
            self.policy.pin(slot);
        }
    }

    /// Ends one [`CacheModel::pin`].
    #[inline]
    fn unpin(&mut self, slot: u32) {
        if !self.more_pins.is_empty() {
            if let Some(more) = self.more_pins.get_mut(&slot) {
                *more -= 1;
                if *more == 0 {
                    self.more_pins.remove(&slot);
                }
                return;
            }
        }
        self.policy.unpin(slot);
        if !self.emptied.is_empty() {
            if let Some(key) = self.emptied.remove(&slot) {
                self.policy.remove(key);
            }
        }
    }

    /// Takes the units that a write touches from all that is under way on its line. Returns those of other writes: nobody
    /// knows which of them comes last.
    #[inline]
    fn overtake(&mut self, key: u64, touched: u64) -> u64 {
        let mut contested = 0;
        for operation in self.operations.of_line(key) {
            operation.units &= !touched;
            contested |= operation.written & touched;
        }
        contested
    }

    #[inline]
    fn begin(&mut self, key: u64, slot: Option<u32>, units: u64, written: u64) -> Ticket {
        if let Some(slot) = slot {
            self.pin(slot);
            if !self.emptied.is_empty() {
                // The line is in use again before its slot was free.
                self.emptied.remove(&slot);
            }
        }
        self.operations.begin(key, slot, units, written)
    }

    #[inline]
    fn end(&mut self, ticket: Ticket, ok: bool) -> u64 {
        let Some(&Operation {
            key,
            slot: Some(slot),
            units,
            ..
        }) = self.operations.end(ticket)
        else {
            return 0;
        };
        let units = if ok { units } else { 0 };
        self.valid.add(slot, units);
        self.unpin(slot);
        // A newcomer whose first data never came is dropped.
        if !ok
            && self.valid.get(slot) == 0
            && self.policy.find(key) == Some(slot)
            && !self.policy.is_pinned(slot)
        {
            self.policy.remove(key);
            if let Some(trial) = &mut self.trial {
                trial.left(slot);
            }
        }
        units
    }

    /// Whether the budget lets so many bytes be written to a slot that has a line.
    #[inline]
    fn admits_change(&mut self, slot: u32, time_ns: u64, bytes: u64) -> bool {
        match &mut self.budget {
            Some(budget) if !self.policy.is_in_memory(slot) => budget.admit_change(time_ns, bytes),
            _ => true,
        }
    }

    /// Inserts the line of a part if admission, the driver and pinned lines let it: its slot, and how room was made.
    #[inline]
    fn insert(
        &mut self,
        part: &Part,
        time_ns: u64,
        bytes: u64,
        has_room: impl FnOnce(&P) -> bool,
    ) -> Option<(u32, Room)> {
        self.admission
            .observe_fill(self.policy.len(), self.policy.capacity());
        if part.bypasses || !self.admission.admit(part.key, time_ns, bytes) || !has_room(&self.policy) {
            return None;
        }
        let writes = self.budget.as_mut().is_none_or(|budget| budget.draw(time_ns));
        let inserted = if writes {
            self.policy.insert(part.key)?
        } else {
            self.policy.insert_in_memory(part.key)?
        };
        let mut victim_units = 0;
        if let Some(victim) = inserted.victim {
            victim_units = self.valid.get(victim.slot);
            self.valid.clear(victim.slot);
            if let Some(trial) = &mut self.trial {
                trial.left(victim.slot);
            }
        }
        let promoted = inserted.promotion.map(|promotion| {
            let units = self.valid.get(promotion.from);
            self.valid.clear(promotion.from);
            self.valid.add(promotion.to, units);
            if let Some(trial) = &mut self.trial {
                trial.moved(promotion.from, promotion.to);
            }
            Promoted {
                key: promotion.key,
                from: promotion.from,
                to: promotion.to,
                units,
            }
        });
        self.valid.cover(inserted.slot);
        if let Some(trial) = &mut self.trial {
            trial.entered(inserted.slot);
        }
        if let Some(budget) = &mut self.budget {
            let is_in_memory = self.policy.is_in_memory(inserted.slot);
            let promoted = promoted.map_or(0, |line| u64::from(line.units.count_ones()) << self.unit_shift);
            budget.on_newcomer(promoted + if is_in_memory { 0 } else { bytes });
        }
        let room = Room {
            is_needed: true,
            victim: inserted.victim,
            victim_units,
            promoted,
        };
        Some((inserted.slot, room))
    }
}

impl<P: Durable> CacheModel<P> {
    /// Passes the state to `emit`, with the valid units of each line. What is under way is not in it.
    pub fn export(&self, emit: &mut dyn FnMut(StateRecord, u64)) {
        self.policy.export(&mut |record| {
            let units = match record {
                StateRecord::Line { slot, .. } => self.valid.get(slot),
                _ => 0,
            };
            emit(record, units);
        });
    }

    /// Takes a state over into a new model; see [`Durable::import`].
    ///
    /// # Errors
    /// If the records are not a state of this model. The model is of no use then.
    pub fn import(&mut self, records: impl Iterator<Item = (StateRecord, u64)>) -> Result<(), ImportError> {
        let (policy, valid) = (&mut self.policy, &mut self.valid);
        let slots = policy.slots_end();
        policy.import(&mut records.map(|(record, units)| {
            if let StateRecord::Line { slot, .. } = record {
                if (slot as usize) < slots {
                    valid.clear(slot);
                    valid.add(slot, units & valid.ones());
                }
            }
            record
        }))
    }
}

/// The filters behind the detector of streams, which has marked the parts.
fn admission(config: &CacheConfig, capacity: usize) -> AdmissionChain {
    let options = config.admission;
    let mut parts: Vec<Box<dyn Admission + Send>> = Vec::new();
    if let Some(threshold) = options.n_hit {
        parts.push(Box::new(NHit::new(NHitOptions {
            threshold,
            ..NHitOptions::for_capacity(capacity)
        })));
    }
    AdmissionChain::new(parts)
}
