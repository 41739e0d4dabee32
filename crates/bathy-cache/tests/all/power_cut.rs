//! Power cuts after every single write and flush, on SSD and backing at once.
//!
//! The rule is that of dm-log-writes: what was flushed is there; of the writes since, each may be lost, kept, or kept in some
//! of its sectors, whatever their order. After each cut the cache must serve exactly the bytes that the backing has: then no
//! byte is stale, none is newer than the backing and goes back in time when its line leaves, and what the caller knows to be
//! durable is there. Lines outside marked regions that were on the SSD must still be there, and be hits.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bathy_cache::{CachedLine, ColdReason, Recovery, resize};

use bathy_cache_model::MemoryBudget;
use bathy_policy::CachePolicy;

use crate::common::{
    BACKING, Cache, Event, Fault, LINE_SIZES, MemoryStore, MemoryWitness, RUNS_GO_PAST, Random, SECTOR, SSD,
    UNIT, World, assert_serves_backing, region_of,
};

/// Bytes of the backing of a cache with such lines, and its lines.
fn sizes(line: u64) -> (u64, u64) {
    match line {
        16_384 => (512 << 10, 20),
        65_536 => (1 << 20, 10),
        _ => (2 << 20, 6),
    }
}

/// Bytes of the backing.
fn backing_bytes(world: &World) -> u64 {
    sizes(world.line).0
}

fn untouched(world: &World) -> Rc<Vec<bool>> {
    Rc::new(vec![false; backing_bytes(world) as usize / SECTOR])
}

/// Crash points of the short form; `BATHY_TORTURE_CRASHES` makes it longer.
pub(crate) fn crash_points() -> u64 {
    let asked = std::env::var("BATHY_TORTURE_CRASHES").ok();
    asked.map_or(1500, |text| text.parse().expect("a number of crash points"))
}

/// What is known after a request.
#[derive(Clone)]
struct Known {
    /// Events until then.
    events: usize,
    /// What the backing had at the last flush that the caller saw succeed, and what was written to since.
    synced: Rc<Vec<u8>>,
    written: Rc<Vec<bool>>,
    /// Lines on the SSD since the last time that all records were written there, at one place.
    settled: Rc<Vec<CachedLine>>,
}

impl Known {
    fn new(world: &World) -> Self {
        Self {
            events: 0,
            synced: Rc::new(world.backing.bytes()),
            written: untouched(world),
            settled: Rc::default(),
        }
    }

    fn on_write(&mut self, offset: u64, len: usize) {
        let sectors = offset as usize / SECTOR..(offset as usize + len).div_ceil(SECTOR);
        Rc::make_mut(&mut self.written)[sectors].fill(true);
    }

    fn on_flush(&mut self, world: &World) {
        self.synced = Rc::new(world.backing.bytes());
        self.written = untouched(world);
    }

    fn on_lines(&mut self, engine: &Cache, all_are_written: bool) {
        let mut lines = Vec::new();
        engine.for_each_line(&mut |line| lines.push(line));
        if all_are_written {
            lines.retain(|line| !line.is_in_memory && line.valid_units != 0);
            self.settled = Rc::new(lines);
        } else if !engine.is_bypassed() {
            let is_there = |settled: &CachedLine| {
                let line = lines.iter().find(|line| line.place == settled.place);
                line.is_some_and(|line| line.offset_bytes == settled.offset_bytes)
            };
            let there: Vec<_> = self.settled.iter().copied().filter(is_there).collect();
            if there.len() < self.settled.len() {
                self.settled = Rc::new(there);
            }
        }
    }
}

/// Opens a cache after a power cut, and finds the lines whose data went with it: where the record of a slot was still that
/// of its last line. They are no hits.
fn verified(world: &World) -> Cache {
    let engine = world.open().engine;
    assert_serves_backing(&engine, &world.backing.bytes(), world.line as usize, "opened");
    engine
}

/// One request of the caller, or what a daemon does besides.
fn step(world: &World, engine: Cache, random: &mut Random, known: &mut Known) -> Cache {
    // Writes stay in a few regions for a while, so that others lose their marks.
    let (bytes, region) = (backing_bytes(world), region_of(world.line));
    let near = known.events as u64 / 256 * 3 * region % bytes;
    let unit = random.below(bytes / UNIT);
    let len = (1 + random.below(5)) * UNIT;
    let at = |offset: u64| (offset, len.min(bytes - offset) as usize);
    match random.below(100) {
        0..45 => {
            let (offset, len) = at(unit * UNIT % (bytes / 2) / (1 + random.below(3)));
            engine
                .read(&mut vec![0; len], offset, 0)
                .expect("the backing works");
        }
        45..85 => {
            let (mut offset, mut len) = at((near + unit * UNIT % (2 * region)) % bytes);
            if random.chance(0.3) {
                (offset, len) = (offset / 3, len.min(3000));
            }
            let mut data = vec![0; len];
            random.fill(&mut data);
            known.on_write(offset, len);
            let written = if random.chance(0.5) {
                engine.write(&data, offset, 0)
            } else {
                engine.write_buffered(&data, offset)
            };
            written.expect("the backing works");
        }
        85..90 => {
            engine.flush().expect("the backing works");
            known.on_flush(world);
        }
        90..98 => {
            let all_are_written = engine.tidy();
            known.on_lines(&engine, all_are_written);
        }
        _ => {
            let is_clean = engine.stop().expect("the backing works");
            known.on_flush(world);
            // An SSD that died comes back with what it had; one that is to fail later does not in the start.
            world.ssd.set_fault(Fault::None);
            if !is_clean {
                known.settled = Rc::default();
                return verified(world);
            }
            if random.chance(0.7) {
                let size_bytes = (1 << 20) + random.below(world.ssd.bytes().len() as u64 - (1 << 20));
                // It is too small now and then.
                let _is_changed = resize(
                    world.ssd.clone(),
                    size_bytes.next_multiple_of(UNIT),
                    MemoryBudget::default(),
                );
            }
            let opened = world.open();
            assert_eq!(opened.recovery, Recovery::Clean);
            known.on_lines(&opened.engine, true);
            return opened.engine;
        }
    }
    known.on_lines(&engine, false);
    engine
}

/// A change of a store that was not flushed.
enum Change {
    Write(u64, Vec<u8>),
    Resize(usize),
}

/// A store as a log makes it: what is durable, and the changes since.
pub(crate) struct Replayed {
    durable: Vec<u8>,
    unflushed: Vec<Change>,
    /// Its time.
    modified: u64,
}

/// Puts data into a store, which grows if it must.
fn put(bytes: &mut Vec<u8>, offset: usize, data: &[u8]) {
    bytes.resize(bytes.len().max(offset + data.len()), 0);
    bytes[offset..offset + data.len()].copy_from_slice(data);
}

impl Replayed {
    pub(crate) fn new(store: &MemoryStore) -> Self {
        Self {
            durable: store.bytes(),
            unflushed: Vec::new(),
            modified: store.modified(),
        }
    }

    /// What an event of the store did to it.
    pub(crate) fn on(&mut self, event: &Event) {
        match event {
            Event::Write { offset, data, .. } => self.unflushed.push(Change::Write(*offset, data.clone())),
            Event::WriteBack { offset, data, .. } => {
                // Its time became another one when the page was written to.
                self.unflushed.push(Change::Write(*offset, data.clone()));
                return;
            }
            Event::Resize { size, .. } => self.unflushed.push(Change::Resize(*size)),
            Event::Flush { .. } => {
                for change in self.unflushed.drain(..) {
                    match change {
                        Change::Write(offset, data) => put(&mut self.durable, offset as usize, &data),
                        Change::Resize(size) => self.durable.resize(size, 0),
                    }
                }
                return;
            }
            Event::Loss { .. } => {
                self.unflushed.clear();
                return;
            }
            Event::Witness(_) => return,
        }
        self.modified += 1;
    }

    /// The store that a power cut leaves: it takes all that was not flushed, nothing, some changes, or some sectors.
    pub(crate) fn cut(&self, mode: u64, random: &mut Random) -> Arc<MemoryStore> {
        let mut bytes = self.durable.clone();
        for change in &self.unflushed {
            let is_kept = match mode {
                0 => false,
                1 => true,
                _ => random.chance(0.5),
            };
            match change {
                Change::Resize(size) if is_kept => bytes.resize(*size, 0),
                Change::Write(offset, data) if mode == 3 => {
                    // Torn where a sector ends.
                    let mut start = 0;
                    while start < data.len() {
                        let place = *offset as usize + start;
                        let len = (SECTOR - place % SECTOR).min(data.len() - start);
                        if random.chance(0.5) {
                            put(&mut bytes, place, &data[start..start + len]);
                        }
                        start += len;
                    }
                }
                Change::Write(offset, data) if is_kept => put(&mut bytes, *offset as usize, data),
                _ => {}
            }
        }
        MemoryStore::with_modified(bytes, self.modified)
    }
}

#[derive(Default, Debug)]
struct Seen {
    cuts: u64,
    warm_lines: u64,
    dropped_lines: u64,
    clean: u64,
    unclean: u64,
    cold: u64,
    mismatches: u64,
    went_past: u64,
}

/// Runs requests and cuts the power after each event. `depth` cuts more follow each other at some of the points.
fn torture(world: &World, random: &mut Random, steps: u64, depth: u32, seen: &mut Seen) {
    let mut stores = [&world.ssd, &world.backing].map(|store| Replayed::new(store));
    let mut generation = world.witness.generation.load(Ordering::SeqCst);
    let mut known = Known::new(world);
    let log = world.record();
    world.ssd.flushed();
    let mut history = vec![known.clone()];
    let mut engine = verified(world);
    // Some SSDs die on the way.
    let dies_at = if random.chance(0.25) {
        random.below(steps)
    } else {
        u64::MAX
    };
    for number in 0..steps {
        known.events = log.lock().expect("no panic").len();
        history.push(known.clone());
        if number == dies_at {
            world.ssd.set_fault(if random.chance(0.5) {
                Fault::LosingFlush(random.below(4))
            } else {
                Fault::From(random.below(4))
            });
        }
        engine = step(world, engine, random, &mut known);
    }
    seen.went_past += engine.went_past();
    drop(engine);
    let events = std::mem::take(&mut *log.lock().expect("no panic"));
    known.events = events.len();
    history.push(known);
    for (number, event) in events.iter().enumerate() {
        match event.store() {
            Ok(store) => stores[usize::from(store)].on(event),
            Err(new) => generation = new,
        }
        // Nested cuts would be too many if each point had its own.
        if depth == 0 && !random.chance(0.2) {
            continue;
        }
        // Each store loses what it loses.
        let modes = [SSD, BACKING].map(|_| random.below(4));
        let [ssd, backing] =
            [SSD, BACKING].map(|store| stores[usize::from(store)].cut(modes[usize::from(store)], random));
        let after = World {
            ssd: MemoryStore::device(ssd.bytes()),
            backing,
            witness: Arc::new(MemoryWitness {
                generation: generation.into(),
                ..MemoryWitness::default()
            }),
            options: world.options,
            line: world.line,
        };
        // The cut came after `number + 1` events: some requests were over, the next may have been under way.
        let over = history.partition_point(|known| known.events <= number + 1) - 1;
        let under_way = &history[(over + 1).min(history.len() - 1)];
        check(
            &after,
            &history[over],
            under_way,
            seen,
            &format!("event {number} modes {modes:?}"),
        );
        if depth > 0 && random.chance(0.05) {
            torture(&after, random, 12, depth - 1, seen);
        }
    }
}

fn check(after: &World, over: &Known, under_way: &Known, seen: &mut Seen, context: &str) {
    let bytes = after.backing.bytes();
    for (sector, expected) in over.synced.chunks(SECTOR).enumerate() {
        let untouched = !over.written[sector] && !under_way.written[sector];
        assert!(
            !untouched || bytes[sector * SECTOR..][..SECTOR] == *expected,
            "{context}: sector {sector} was durable"
        );
    }
    let opened = after.open();
    seen.cuts += 1;
    match opened.recovery {
        Recovery::Clean => seen.clean += 1,
        Recovery::Unclean { dropped_lines, .. } => {
            seen.unclean += 1;
            seen.dropped_lines += dropped_lines;
        }
        Recovery::Cold(ColdReason::Generation) => seen.cold += 1,
        other => panic!("{context}: {other:?}"),
    }
    let engine = opened.engine;
    // The comparison with the backing must not hide what this test looks for.
    assert_eq!(engine.counts().changed_files, 0, "{context}");
    let is_cold = matches!(opened.recovery, Recovery::Cold(_));
    let mut lines = Vec::new();
    engine.for_each_line(&mut |line| lines.push(line));
    let is_still_there = |line: &&CachedLine| under_way.settled.iter().any(|other| other.place == line.place);
    for settled in over.settled.iter().filter(is_still_there) {
        if is_cold || engine.is_marked(settled.offset_bytes) {
            continue;
        }
        let line = lines
            .iter()
            .find(|line| line.offset_bytes == settled.offset_bytes)
            .unwrap_or_else(|| panic!("{context}: {settled:?} is gone"));
        let missing = settled.valid_units & !line.valid_units;
        assert_eq!(missing, 0, "{context}: {settled:?} is {line:?}");
        for unit in (0..after.line / UNIT).filter(|unit| settled.valid_units >> unit & 1 == 1) {
            let mut out = vec![0; UNIT as usize];
            let hits = engine.counts().reads.requests_hit;
            engine
                .read(&mut out, settled.offset_bytes + unit * UNIT, 0)
                .expect("the backing works");
            assert_eq!(
                engine.counts().reads.requests_hit,
                hits + 1,
                "{context}: {settled:?}"
            );
        }
        seen.warm_lines += 1;
    }
    // First what is cached, then what that drove out; then with what was filled.
    let context = &format!("{context}, {:?}", opened.recovery);
    assert_serves_backing(&engine, &bytes, 65_536, context);
    assert_serves_backing(&engine, &bytes, 4096, context);
    seen.mismatches += engine.counts().mismatches;
}

#[test]
fn after_each_power_cut_the_cache_serves_what_the_backing_has() {
    let (mut seen, mut seed) = (Seen::default(), 0);
    for line in LINE_SIZES {
        // What is copied and read for each cut grows with the lines.
        let share = if line == LINE_SIZES[0] { 4 } else { 1 };
        let until = seen.cuts + crash_points() * share / 6;
        while seen.cuts < until {
            cuts_with(line, seed, &mut seen);
            seed += 1;
        }
        eprintln!("up to lines of {line}: {seen:?}");
    }
    assert!(seen.warm_lines > seen.cuts / 2, "{seen:?}");
    assert!(seen.dropped_lines > seen.cuts / 2, "{seen:?}");
    assert!(
        seen.clean > 0 && seen.unclean > 0 && seen.cold > 0 && seen.mismatches > 0 && seen.went_past > 0,
        "{seen:?}"
    );
}

fn cuts_with(line: u64, seed: u32, seen: &mut Seen) {
    let policy = CachePolicy::KINDS[seed as usize % 3];
    let (bytes, lines) = sizes(line);
    let mut world = World::running(policy, line, bytes, lines, 1 + seed % 2);
    if seed / 3 % 2 == 1 {
        world.options.admission = RUNS_GO_PAST;
    }
    if seed % 3 == 2 {
        // There is room for more extents, whose tables begin at a MiB.
        world.ssd.resize((3 << 20) + (2 * lines * line) as usize);
    }
    torture(&world, &mut Random(u64::from(seed)), 60, 1, seen);
}

#[test]
fn a_flush_of_the_ssd_that_failed_is_not_made_good_by_the_next_one() {
    let world = World::running(
        CachePolicy::KINDS[0],
        LINE_SIZES[0],
        sizes(LINE_SIZES[0]).0,
        40,
        1,
    );
    let engine = verified(&world);
    assert!(engine.tidy(), "the records of the old bytes are on the SSD");
    world.ssd.flushed();
    engine.write(&[1; 4096], 0, 0).expect("the backing works");
    assert!(engine.tidy() && engine.is_marked(0));
    world.ssd.set_fault(Fault::LosingFlush(0));
    assert!((0..3).all(|_| !engine.tidy()));
    assert!(engine.is_bypassed());
    let after = World {
        ssd: MemoryStore::device(world.ssd.flushed()),
        backing: MemoryStore::with_modified(world.backing.bytes(), world.backing.modified()),
        witness: Arc::clone(&world.witness),
        options: world.options,
        line: world.line,
    };
    let opened = after.open();
    assert_serves_backing(&opened.engine, &after.backing.bytes(), 4096, "after the cut");
    assert_eq!(opened.recovery, Recovery::Cold(ColdReason::Generation));
}
