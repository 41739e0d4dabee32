//! A driver with many operations under way at once, their steps in any order, against a world in which every byte is
//! known: no valid unit ever differs from the backing, and no slot in use changes its line.
//!
//! A unit's content is a number. A write that covers a unit replaces it, one that covers a part makes another number of the
//! old one, so a change that is applied to the wrong copy shows.

use std::collections::BTreeMap;

use bathy_cache_model::{
    AdmissionOptions, Backing, CacheConfig, CacheModel, Evicted, FetchSize, LineSize, Miss, Part, ReadPlan,
    Room, Ticket, WriteMode, WritePlan,
};
use bathy_policy::{Arc, CachePolicy, HashIndex, HashSeed, Policy, PolicyKind};
use proptest::prelude::*;

const UNIT: u32 = 4096;
const UNITS: u32 = 4;
const KEYS: u64 = 9;

#[derive(Debug, Clone, Copy)]
enum Op {
    /// Of a line of which the backing has so many bytes.
    Read(Part, u32),
    Write(Part),
    Invalidate(Part),
    Evict(u64),
    /// The next step of one of the operations under way, by number, and whether it succeeds.
    Step(usize, bool),
}

fn part() -> impl Strategy<Value = Part> {
    let range = prop_oneof![
        3 => (0..UNITS, 1..=UNITS).prop_map(|(start, units)| (start * UNIT, ((start + units) * UNIT).min(UNITS * UNIT))),
        1 => (0..UNITS * UNIT - 1, 1..2 * UNIT).prop_map(|(start, len)| (start, (start + len).min(UNITS * UNIT))),
    ];
    let key = prop_oneof![0..KEYS, 0..2u64];
    (key, range, prop::bool::weighted(0.05)).prop_map(|(key, (start, end), bypasses)| Part {
        key,
        start,
        end,
        bypasses,
    })
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        4 => (part(), 0..2 * UNITS * UNIT).prop_map(|(part, line_end)| Op::Read(part, line_end.max(part.end))),
        3 => part().prop_map(Op::Write),
        1 => part().prop_map(Op::Invalidate),
        1 => (0..KEYS).prop_map(Op::Evict),
        16 => (any::<usize>(), prop::bool::weighted(0.9)).prop_map(|(number, ok)| Op::Step(number, ok)),
    ];
    prop::collection::vec(op, 1..400)
}

/// Bytes of a part in a unit.
fn bytes_in(part: &Part, unit: u32) -> u32 {
    let end = part.end.min((unit + 1) * UNIT);
    end.saturating_sub(part.start.max(unit * UNIT))
}

/// Units of a part, and whether each is covered whole.
fn units_of(part: &Part) -> BTreeMap<u32, bool> {
    let bytes = (0..UNITS).map(|unit| (unit, bytes_in(part, unit)));
    let touched = bytes.filter(|(_, bytes)| *bytes > 0);
    touched.map(|(unit, bytes)| (unit, bytes == UNIT)).collect()
}

fn mask(units: impl IntoIterator<Item = u32>) -> u64 {
    units.into_iter().fold(0, |mask, unit| mask | 1 << unit)
}

fn units_in(mask: u64) -> impl Iterator<Item = u32> {
    (0..64).filter(move |&unit| mask >> unit & 1 == 1)
}

enum Kind {
    /// What was read from the backing, once that has happened.
    Fill(Option<[u64; UNITS as usize]>),
    /// Whether the backing has it; which number it writes.
    Write(bool, u64),
    /// A reader of a slot: what it found there, once it has read.
    Hit(u64, Option<[u64; UNITS as usize]>),
    /// A line that moves: a copy of it.
    Move([u64; UNITS as usize]),
}

/// What a slot holds while it is written.
const TORN: u64 = u64::MAX;

struct UnderWay {
    key: u64,
    slot: Option<u32>,
    ticket: Option<Ticket>,
    touched: BTreeMap<u32, bool>,
    /// By the plain rules: the units that will be valid.
    units: u64,
    store: Store,
    /// What a write puts into its slot.
    written: BTreeMap<u32, u64>,
    kind: Kind,
}

/// How far the write to the slot has come.
#[derive(Clone, Copy, PartialEq)]
enum Store {
    Before,
    /// These units.
    UnderWay(u64),
    /// The model does not know it yet.
    Done(u64),
}

struct World<P> {
    cache: CacheModel<P>,
    backing: BTreeMap<(u64, u32), u64>,
    /// Slots of the cached lines by the plans, and the valid units by the plain rules.
    lines: BTreeMap<u64, (u32, u64)>,
    content: BTreeMap<(u32, u32), u64>,
    under_way: Vec<UnderWay>,
    next: u64,
}

impl<P: Policy> World<P> {
    fn new(cache: CacheModel<P>) -> Self {
        Self {
            cache,
            backing: BTreeMap::new(),
            lines: BTreeMap::new(),
            content: BTreeMap::new(),
            under_way: Vec::new(),
            next: 1,
        }
    }

    fn in_backing(&self, key: u64, unit: u32) -> u64 {
        self.backing.get(&(key, unit)).copied().unwrap_or(key)
    }

    fn moving(&self, key: u64) -> Option<&UnderWay> {
        let is_it = |other: &&UnderWay| other.key == key && matches!(other.kind, Kind::Move(_));
        self.under_way.iter().find(is_it)
    }

    fn is_in_use(&self, slot: u32) -> bool {
        self.under_way.iter().any(|other| other.slot == Some(slot))
    }

    fn on_room(&mut self, room: &Room, newcomer: Option<(u64, u32)>) -> Result<(), TestCaseError> {
        if let Some(victim) = room.victim {
            prop_assert_eq!(
                self.lines.remove(&victim.key).map(|line| line.0),
                Some(victim.slot)
            );
            prop_assert!(!self.is_in_use(victim.slot));
        }
        if let Some(promoted) = room.promoted {
            let expected = Some((promoted.from, promoted.units));
            prop_assert_eq!(
                self.lines.insert(promoted.key, (promoted.to, promoted.units)),
                expected
            );
            prop_assert!(!self.is_in_use(promoted.from) && !self.is_in_use(promoted.to));
            let mut copy = [0; UNITS as usize];
            for unit in units_in(promoted.units) {
                copy[unit as usize] = self.content[&(promoted.from, unit)];
                self.content.insert((promoted.to, unit), TORN);
            }
            self.under_way.push(UnderWay {
                key: promoted.key,
                slot: Some(promoted.to),
                ticket: Some(self.cache.begin_move(&promoted)),
                touched: BTreeMap::new(),
                units: promoted.units,
                store: Store::UnderWay(promoted.units),
                written: BTreeMap::new(),
                kind: Kind::Move(copy),
            });
        }
        if let Some((key, slot)) = newcomer {
            prop_assert!(!self.is_in_use(slot), "the slot of a newcomer is nobody's");
            prop_assert!(self.lines.values().all(|line| line.0 != slot));
            self.lines.insert(key, (slot, 0));
        }
        Ok(())
    }

    /// The slot of a plan is that of the line, or it is a newcomer's.
    fn on_slot(&mut self, key: u64, slot: Option<u32>, room: &Room) -> Result<(), TestCaseError> {
        let before = self.lines.get(&key).map(|line| line.0);
        if before.is_some() {
            prop_assert_eq!(slot, before);
            prop_assert_eq!(*room, Room::default());
            return Ok(());
        }
        self.on_room(room, slot.map(|slot| (key, slot)))
    }

    fn read(&mut self, part: Part, line_end: u32, has_room: bool) -> Result<(), TestCaseError> {
        let touched = units_of(&part);
        let valid = self.lines.get(&part.key).map_or(0, |line| line.1);
        let of_line = || self.under_way.iter().filter(|other| other.key == part.key);
        let filled = of_line()
            .filter(|other| matches!(other.kind, Kind::Fill(_)))
            .fold(0, |mask, other| mask | other.units);
        let written = of_line()
            .filter(|other| matches!(other.kind, Kind::Write(..)))
            .fold(0, |all, other| all | mask(other.touched.keys().copied()));
        let backing = Backing {
            break_even_bytes: u64::from(line_end) << 8,
            line_end,
        };
        let ReadPlan { slot, hit, miss } = self.cache.read_from(backing, &part, 0, |_| has_room);
        let Miss {
            awaited,
            fetch,
            ahead,
            pass,
            fill,
            room,
            refused,
        } = miss.unwrap_or_default();
        prop_assert!(!room.is_needed || has_room && !refused);
        let all = mask(touched.keys().copied());
        let asked = fetch & !ahead;
        prop_assert_eq!(hit | awaited | asked | pass, all);
        prop_assert_eq!(ahead & (all | valid | filled | written | !fetch), 0);
        prop_assert_eq!(
            ahead & !mask(0..line_end.div_ceil(UNIT)),
            0,
            "nothing beyond the end"
        );
        prop_assert_eq!(
            [hit, awaited, asked, pass]
                .map(u64::count_ones)
                .iter()
                .sum::<u32>(),
            all.count_ones()
        );
        prop_assert_eq!(hit, all & valid);
        prop_assert_eq!(awaited, all & !valid & filled & !written);
        prop_assert_eq!(fetch & written, 0);
        prop_assert_eq!(fill.is_some(), fetch != 0);
        self.on_slot(part.key, slot, &room)?;
        if let Some(ticket) = fill {
            self.under_way.push(UnderWay {
                key: part.key,
                slot,
                ticket: Some(ticket),
                touched: touched.clone(),
                units: fetch,
                store: Store::Before,
                written: BTreeMap::new(),
                kind: Kind::Fill(None),
            });
        }
        let moving = self.moving(part.key).map_or(0, |it| it.units);
        let hit = hit & !moving;
        if let (Some(slot), true) = (slot, hit != 0) {
            self.under_way.push(UnderWay {
                key: part.key,
                slot: Some(slot),
                ticket: Some(self.cache.begin_hit(part.key, slot, hit)),
                touched,
                units: hit,
                store: Store::Before,
                written: BTreeMap::new(),
                kind: Kind::Hit(hit, None),
            });
        }
        Ok(())
    }

    fn write(&mut self, part: Part, plan: WritePlan) -> Result<(), TestCaseError> {
        let touched = units_of(&part);
        let all = mask(touched.keys().copied());
        let before = self.lines.get(&part.key).copied();
        prop_assert_eq!(plan.was_cached, before.is_some());
        if let (Some((slot, _)), None) = (before, plan.slot) {
            self.lines.remove(&part.key);
            if self.is_in_use(slot) {
                self.lines.insert(part.key, (slot, 0));
            }
        } else {
            self.on_slot(part.key, plan.slot, &plan.room)?;
        }
        let mut contested = 0;
        let dropped = plan.slot.is_none();
        for other in self.under_way.iter_mut().filter(|other| other.key == part.key) {
            if matches!(other.kind, Kind::Write(..)) {
                contested |= all & mask(other.touched.keys().copied());
            }
            other.units &= if dropped && before.is_some() { 0 } else { !all };
        }
        let valid = before.map_or(0, |line| line.1);
        let keep = if dropped {
            0
        } else {
            let whole = touched.iter().filter(|(_, whole)| **whole).map(|(unit, _)| *unit);
            (mask(whole) | all & valid) & !contested
        };
        prop_assert_eq!(plan.keep, keep);
        let bytes: u32 = units_in(keep).map(|unit| bytes_in(&part, unit)).sum();
        prop_assert_eq!(plan.keep_bytes, bytes);
        if let Some(line) = self.lines.get_mut(&part.key) {
            line.1 &= !all;
        }
        self.next += 1;
        self.under_way.push(UnderWay {
            key: part.key,
            slot: plan.slot,
            ticket: Some(plan.ticket),
            touched,
            units: keep,
            store: Store::Before,
            written: BTreeMap::new(),
            kind: Kind::Write(false, self.next),
        });
        Ok(())
    }

    fn evict(&mut self, key: u64) -> Result<(), TestCaseError> {
        let slot = self.lines.get(&key).map(|line| line.0);
        let expected = match slot {
            None => Evicted::Absent,
            Some(slot) if self.is_in_use(slot) => Evicted::Emptied(slot),
            Some(slot) => Evicted::Freed(slot),
        };
        prop_assert_eq!(self.cache.evict(key), expected);
        match expected {
            Evicted::Freed(_) => drop(self.lines.remove(&key)),
            Evicted::Emptied(slot) => drop(self.lines.insert(key, (slot, 0))),
            Evicted::Absent => {}
        }
        if slot.is_some() {
            for other in self.under_way.iter_mut().filter(|other| other.key == key) {
                other.units = 0;
            }
        }
        Ok(())
    }

    /// Does the next step of an operation: to the backing, to the slot, done.
    fn step(&mut self, number: usize, ok: bool) -> Result<(), TestCaseError> {
        if self.under_way.is_empty() {
            return Ok(());
        }
        let number = number % self.under_way.len();
        let mut operation = self.under_way.swap_remove(number);
        let (key, slot) = (operation.key, operation.slot);
        let ticket = operation.ticket.expect("it has one");
        prop_assert_eq!(self.cache.units_of(ticket), operation.units);
        match (&mut operation.kind, operation.store) {
            (Kind::Hit(units, found @ None), _) => {
                let slot = slot.expect("a reader has a slot");
                let all = units_in(*units);
                let mut read = [0; UNITS as usize];
                all.for_each(|unit| read[unit as usize] = self.content[&(slot, unit)]);
                *found = Some(read);
            }
            (Kind::Hit(_, Some(found)), _) => {
                let at = self.lines.get(&key).map(|line| line.0);
                prop_assert_eq!(at, slot, "its line is where it was");
                for unit in units_in(self.cache.hit_done(ticket)) {
                    prop_assert_eq!(found[unit as usize], self.in_backing(key, unit));
                }
                self.forget_emptied(key);
                return Ok(());
            }
            (Kind::Fill(fetched @ None), _) => {
                let units: Vec<u64> = (0..UNITS).map(|unit| self.in_backing(key, unit)).collect();
                *fetched = Some(units.try_into().expect("as many"));
            }
            (Kind::Write(applied @ false, value), _) => {
                for (&unit, &whole) in &operation.touched {
                    let old = if whole {
                        0
                    } else {
                        self.in_backing(key, unit).wrapping_mul(31)
                    };
                    self.backing.insert((key, unit), old.wrapping_add(*value << 8));
                }
                *applied = true;
            }
            (Kind::Fill(Some(_)) | Kind::Write(true, _), Store::Before) => {
                let stored_by = |other: &UnderWay| match other.store {
                    Store::UnderWay(units) | Store::Done(units) if other.key == key => units,
                    _ => 0,
                };
                operation.units &= !self.under_way.iter().fold(0, |all, other| all | stored_by(other));
                prop_assert_eq!(self.cache.begin_store(ticket), operation.units);
                operation.store = Store::UnderWay(operation.units);
                for unit in units_in(operation.units) {
                    let place = (slot.expect("it has one"), unit);
                    let old = self.content.insert(place, TORN);
                    if let Kind::Write(_, value) = &mut operation.kind {
                        let is_whole = operation.touched[&unit];
                        let old = if is_whole {
                            0
                        } else {
                            old.expect("it was valid").wrapping_mul(31)
                        };
                        operation.written.insert(unit, old.wrapping_add(*value << 8));
                    }
                }
            }
            (kind, Store::UnderWay(units)) => {
                for unit in units_in(units) {
                    let value = match kind {
                        Kind::Fill(Some(data)) | Kind::Move(data) => data[unit as usize],
                        _ => operation.written[&unit],
                    };
                    self.content.insert((slot.expect("it has one"), unit), value);
                }
                operation.store = Store::Done(units);
            }
            (_, Store::Done(_)) => {
                let done = match operation.kind {
                    Kind::Write(..) => self.cache.write_done(ticket, ok),
                    Kind::Move(_) => self.cache.move_done(ticket, ok),
                    _ => self.cache.fill_done(ticket, ok),
                };
                let valid = if ok && slot.is_some() { operation.units } else { 0 };
                prop_assert_eq!(done, valid);
                prop_assert_eq!(self.cache.fill_done(ticket, true), 0, "a ticket is good for once");
                if let (Some(_), Some(line)) = (slot, self.lines.get_mut(&key)) {
                    line.1 |= valid;
                }
                self.forget_emptied(key);
                if matches!(operation.kind, Kind::Move(_)) && !ok {
                    self.evict(key)?;
                }
                return Ok(());
            }
            (Kind::Move(_), Store::Before) => unreachable!("it begins with its copy"),
        }
        self.under_way.push(operation);
        Ok(())
    }

    /// A line without valid units can be gone when nothing uses its slot; then nothing of it is in the cache.
    fn forget_emptied(&mut self, key: u64) {
        if let Some(&(slot, 0)) = self.lines.get(&key) {
            if !self.is_in_use(slot) && self.cache.policy().find(key).is_none() {
                self.lines.remove(&key);
            }
        }
    }

    fn check(&self) -> Result<(), TestCaseError> {
        prop_assert_eq!(self.cache.policy().len(), self.lines.len());
        for (&key, &(slot, valid)) in &self.lines {
            prop_assert_eq!(self.cache.policy().find(key), Some(slot));
            prop_assert_eq!(self.cache.valid_units(slot), valid);
            prop_assert_eq!(self.cache.policy().is_pinned(slot), self.is_in_use(slot));
            for unit in units_in(valid) {
                let content = match self.moving(key) {
                    Some(UnderWay {
                        units,
                        kind: Kind::Move(copy),
                        ..
                    }) if units >> unit & 1 == 1 => Some(&copy[unit as usize]),
                    _ => self.content.get(&(slot, unit)),
                };
                prop_assert_eq!(content, Some(&self.in_backing(key, unit)), "{}:{}", key, unit);
            }
        }
        Ok(())
    }
}

struct Run<'a> {
    fetch: FetchSize,
    write_mode: WriteMode,
    admission: AdmissionOptions,
    /// Of so many requests one is of a driver that has no room for a newcomer.
    refused_one_of: usize,
    ops: &'a [Op],
}

impl Run<'_> {
    fn with<P: Policy>(&self, policy: P) -> Result<(), TestCaseError> {
        let config = CacheConfig {
            line: LineSize::new(u64::from(UNIT * UNITS)).expect("a power of two"),
            unit_bytes: u64::from(UNIT),
            fetch: self.fetch,
            write_mode: self.write_mode,
            admission: self.admission,
        };
        let mut world = World::new(CacheModel::new(config, policy));
        for (number, &op) in self.ops.iter().enumerate() {
            let has_room = (number + 1) % self.refused_one_of != 0;
            match op {
                Op::Read(part, line_end) => world.read(part, line_end, has_room)?,
                Op::Write(part) => {
                    let plan = world.cache.write_in(self.write_mode, &part, 0, |_| has_room);
                    prop_assert!(has_room || !plan.room.is_needed);
                    world.write(part, plan)?;
                }
                Op::Invalidate(part) => {
                    let plan = world.cache.invalidate(&part);
                    world.write(part, plan)?;
                }
                Op::Evict(key) => world.evict(key)?,
                Op::Step(number, ok) => world.step(number, ok)?,
            }
            world.check()?;
        }
        // Everything comes to an end, and then nothing is pinned.
        while !world.under_way.is_empty() {
            world.step(0, true)?;
            world.check()?;
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn no_valid_unit_differs_from_the_backing(
        // Those that a cache runs, and one whose ghosts have slots.
        kind in prop_oneof![
            3 => prop::sample::select(CachePolicy::KINDS.to_vec()).prop_map(Some),
            1 => Just(None::<PolicyKind>),
        ],
        capacity in 1..7usize,
        stage_lines in 1..3usize,
        refused_one_of in 2..100usize,
        write_mode in prop::sample::select(vec![WriteMode::Allocate, WriteMode::Update]),
        budget in prop_oneof![Just(None), (8_192..500_000u64).prop_map(Some)],
        fetch in prop::sample::select(vec![
            FetchSize::Fixed(u64::from(UNIT)), FetchSize::Fixed(u64::from(UNITS * UNIT)), FetchSize::Adaptive { break_even_bytes: 0 },
        ]),
        ops in ops(),
    ) {
        let admission = AdmissionOptions { write_budget_bytes_per_day: budget, ..AdmissionOptions::default() };
        let run = Run { fetch, write_mode, admission, refused_one_of, ops: &ops };
        let policy = kind.and_then(|kind| CachePolicy::new(kind, capacity, stage_lines.min(capacity - 1)));
        match policy {
            Some(policy) => run.with(policy)?,
            None => run.with(Arc::<HashIndex>::new(capacity, HashSeed::default()))?,
        }
    }
}
