//! Several files in one cache that are written, grow, are cut, punched, removed and made anew with the same handle: against
//! arrays of bytes, and with power cuts.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bathy_cache::format::{FILE_RECORD_BYTES, FileRecord, Superblock};
use bathy_cache::{
    BlockStore, CachedFile, ColdReason, Engine, FileIdentity, Recovery, SourceMode, open, void,
};
use bathy_cache_model::{FetchSize, WriteMode};

use crate::common::{
    Event, Fault, LINE, MemoryStore, MemoryWitness, Random, SSD, UNIT, World, assert_usage, identity,
};
use crate::power_cut::Replayed;

/// A file and who has it open.
struct File {
    store: Arc<MemoryStore>,
    open: Option<CachedFile>,
    handle: u8,
}

impl File {
    fn attach(&mut self, engine: &Arc<Engine>) -> &CachedFile {
        let store = self.store.clone();
        let attach = || {
            engine
                .attach(identity(self.handle), store)
                .expect("the backing works")
        };
        self.open.get_or_insert_with(attach)
    }

    fn assert_served(&mut self, engine: &Arc<Engine>, step: usize, context: &str) {
        let (bytes, handle) = (self.store.bytes(), self.handle);
        let file = self.attach(engine);
        assert_eq!(file.size_bytes(), bytes.len() as u64, "{context}: file {handle}");
        let mut out = vec![0xee; step];
        for (number, expected) in bytes.chunks(step).enumerate() {
            let offset = number * step;
            let read = file.read(&mut out, offset as u64, 0).expect("the backing works");
            let is_right = out[..read] == *expected;
            assert!(
                is_right,
                "{context}: file {handle} from {offset} is not what the backing has"
            );
        }
    }
}

const SIZE_MAX: u64 = 20 * LINE;

/// One request, or what a daemon does besides.
fn step(engine: &Arc<Engine>, files: &mut [File], random: &mut Random) {
    if random.chance(0.1) {
        engine.compare_next();
    }
    let number = random.below(files.len() as u64) as usize;
    // Some files are used more than others.
    let file = &mut files[if random.chance(0.5) { number % 2 } else { number }];
    let store = file.store.clone();
    let size = store.bytes().len() as u64;
    let offset = random.below(SIZE_MAX) / 512 * 512;
    let len = (1 + random.below(3 * LINE)).min(SIZE_MAX - offset);
    match random.below(100) {
        0..40 => {
            let expected = store.bytes();
            let mut out = vec![0xee; len as usize];
            let read = file
                .attach(engine)
                .read(&mut out, offset, 0)
                .expect("the backing works");
            let start = offset.min(size) as usize;
            assert!(out[..read] == expected[start..(start + len as usize).min(expected.len())]);
        }
        40..75 => {
            let mut data = vec![0; len as usize];
            random.fill(&mut data);
            // Beyond the end now and then.
            let offset = if random.chance(0.7) {
                offset.min(size)
            } else {
                offset
            };
            let file = file.attach(engine);
            let written = if random.chance(0.5) {
                file.write(&data, offset, 0)
            } else {
                file.write_buffered(&data, offset, 0)
            };
            written.expect("the backing works");
        }
        75..80 => {
            let to_nothing = random.chance(0.3);
            let new = random.below(if to_nothing { 1 } else { SIZE_MAX });
            let resize = || {
                store.resize(new as usize);
                Ok(())
            };
            file.attach(engine)
                .resize(new, resize)
                .expect("the backing works");
        }
        80..83 => {
            let end = (offset + len).min(size);
            let range = offset.min(end)..end;
            let zeros = vec![0; (range.end - range.start) as usize];
            let punch = || BlockStore::write(&*store, &zeros, range.start);
            file.attach(engine)
                .discard(range.clone(), punch)
                .expect("the backing works");
        }
        83..86 => {
            // Removed, open or not, and made anew with the same handle.
            let remove = || {
                store.resize(0);
                Ok(())
            };
            engine
                .forget(&identity(file.handle), remove)
                .expect("the backing works");
            file.open = None;
        }
        86..88 => {
            let error = engine
                .forget(&identity(file.handle), || {
                    Err::<(), _>(io::Error::from_raw_os_error(16))
                })
                .expect_err("it cannot be removed");
            assert_eq!(error.raw_os_error(), Some(16));
        }
        88..92 => file.open = None,
        92..95 => file.attach(engine).flush().expect("the backing works"),
        _ => {
            engine.tidy();
        }
    }
}

fn close(files: &mut [File]) {
    for file in files {
        file.open = None;
    }
}

fn new_files(count: u8) -> Vec<File> {
    let file = |handle: u8| {
        let mut bytes = vec![0; (u64::from(handle) * 7919 % SIZE_MAX) as usize];
        Random(u64::from(handle)).fill(&mut bytes);
        File {
            store: MemoryStore::new(bytes),
            open: None,
            handle,
        }
    };
    (1..=count).map(file).collect()
}

/// More than the places of a small file table, with a unit each and the same handles.
fn small_files() -> Vec<File> {
    let mut files = new_files(70);
    for file in &mut files {
        file.store = MemoryStore::new(vec![file.handle; UNIT as usize]);
    }
    files
}

fn open_engine(world: &World) -> (Arc<Engine>, Recovery) {
    let opened = open(world.ssd.clone(), world.witness.clone(), &world.options).expect("it is a cache");
    (opened.engine, opened.recovery)
}

#[test]
fn files_come_and_go_and_each_is_what_it_is() {
    // The second time there are more files than the file table has room for.
    for (count, shards) in [(5, 2), (120, 1)] {
        let world = World::new(4096, 60, shards);
        let mut files = new_files(count);
        let mut random = Random(u64::from(count));
        let (mut engine, _) = open_engine(&world);
        let (mut hits, mut stops, mut kills) = (0, 0, 0);
        let (mut found, mut was_killed) = (0, false);
        for number in 0..20_000 {
            step(&engine, &mut files, &mut random);
            if number % 10 == 0 {
                let usage = assert_usage(&engine, &format!("step {number}"));
                assert_eq!(usage.lines + usage.lines_left, found + usage.lines_entered);
            }
            if number % 500 == 499 {
                let counts = engine.counts();
                hits += counts.reads.requests_hit;
                assert_eq!((counts.ssd_errors, counts.changed_files), (0, 0));
                // A kill may leave the old record of a slot that has another line by then.
                assert!(counts.mismatches == 0 || was_killed, "{counts:?}");
                let is_clean = random.chance(0.5);
                was_killed = !is_clean;
                if is_clean {
                    assert!(engine.stop().expect("the backing works"));
                    stops += 1;
                } else {
                    kills += 1;
                }
                close(&mut files);
                let recovery;
                (engine, recovery) = open_engine(&world);
                assert_eq!(recovery == Recovery::Clean, is_clean, "{recovery:?}");
                found = assert_usage(&engine, "found").lines;
            }
        }
        for file in &mut files {
            file.assert_served(&engine, 3 * LINE as usize, "in the end");
        }
        assert!(hits > 300 && stops > 10 && kills > 10, "{hits} {stops} {kills}");
    }
}

#[test]
fn after_each_power_cut_each_file_is_what_the_backing_has() {
    let points = crate::power_cut::crash_points();
    let (mut cuts, mut hits, mut dropped, mut seed) = (0, 0, 0, 0);
    let mut cuts_when_full = 0;
    while cuts < points {
        let mut random = Random(1000 + seed);
        let mut world = World::new(4096, 40, 1 + (seed % 2) as u32);
        // Sometimes every file is large enough to be compared, and nobody knows what happened between the sessions.
        let is_compared = seed % 4 > 1;
        if is_compared {
            world.options.compared_bytes_min = 0;
            world.options.was_fenced = false;
        }
        seed += 1;
        // Sometimes there are more small files than the file table has places, most of which are open files'.
        let is_full = seed % 8 == 6;
        let mut files = if is_full { small_files() } else { new_files(4) };
        let mut stores = vec![Replayed::new(&world.ssd)];
        stores.extend(files.iter().map(|file| Replayed::new(&file.store)));
        let mut generation = world.witness.generation.load(Ordering::SeqCst);
        let log = world.record();
        world.ssd.flushed();
        for file in &files {
            file.store.record(file.handle, &log);
        }
        let (mut engine, _) = open_engine(&world);
        for file in files.iter_mut().filter(|_| is_full) {
            file.attach(&engine);
            if random.chance(0.2) {
                file.open = None;
            }
        }
        let dies_at = if random.chance(0.2) {
            random.below(80)
        } else {
            u64::MAX
        };
        for number in 0..80 {
            if number == dies_at {
                world.ssd.set_fault(if random.chance(0.5) {
                    Fault::LosingFlush(random.below(4))
                } else {
                    Fault::From(random.below(4))
                });
            }
            step(&engine, &mut files, &mut random);
            if random.chance(0.03) {
                engine.stop().expect("the backing works");
                close(&mut files);
                world.ssd.set_fault(Fault::None);
                (engine, _) = open_engine(&world);
            }
        }
        close(&mut files);
        drop(engine);
        let events: Vec<Event> = std::mem::take(&mut *log.lock().expect("no panic"));
        for (number, event) in events.iter().enumerate() {
            match event.store() {
                Ok(store) => stores[usize::from(store)].on(event),
                Err(new) => generation = new,
            }
            if !random.chance(if is_full { 0.03 } else { 0.2 }) {
                continue;
            }
            cuts += 1;
            cuts_when_full += u64::from(is_full);
            // Each store loses what it loses.
            let mode = random.below(4);
            let after = World {
                ssd: MemoryStore::device(stores[usize::from(SSD)].cut(mode, &mut random).bytes()),
                backing: world.backing.clone(),
                witness: Arc::new(MemoryWitness {
                    generation: generation.into(),
                    ..MemoryWitness::default()
                }),
                options: world.options,
                line: world.line,
            };
            let (engine, recovery) = open_engine(&after);
            let mut compares = is_compared && random.chance(0.5);
            if let Recovery::Unclean { dropped_lines, .. } = recovery {
                dropped += dropped_lines;
            }
            assert_usage(&engine, "after a power cut");
            let mut files = if is_full { small_files() } else { new_files(4) };
            for (file, store) in files.iter_mut().zip(&stores[1..]) {
                let mode_of_file = random.below(4);
                file.store = store.cut(mode_of_file, &mut random);
                let context =
                    format!("seed {seed} event {number} modes {mode} and {mode_of_file}, {recovery:?}");
                let before = engine.counts().reads.requests_hit;
                file.attach(&engine);
                while compares && engine.compare_next().is_some() {}
                compares = is_compared && random.chance(0.5);
                file.assert_served(&engine, LINE as usize, &context);
                hits += engine.counts().reads.requests_hit - before;
                // What grows now has nothing old beyond the end.
                let size = file.store.bytes().len() as u64;
                let grow = file.attach(&engine).write(&[7; 10], size + UNIT + 5, 0);
                grow.expect("the backing works");
                file.assert_served(&engine, UNIT as usize, &context);
            }
            // What the comparison with the backing finds must not be needed.
            let changed = engine.counts().changed_files;
            assert_eq!(changed, 0, "seed {seed} event {number} mode {mode}");
        }
    }
    eprintln!("{cuts} power cuts, {hits} lines found after them, {dropped} lines dropped");
    assert!(hits > cuts && dropped > cuts, "{cuts} {hits} {dropped}");
    assert!(cuts_when_full > 0);
}

#[test]
fn no_error_of_the_ssd_reaches_who_cuts_removes_and_attaches() {
    let (mut sessions, mut void) = (0, 0);
    for is_lasting in [false, true] {
        for errors_max in [0.0, 1000.0] {
            for number in (0..400).step_by(if is_lasting { 9 } else { 3 }) {
                let mut world = World::new(4096, 30, 1);
                world.options.error_budget.errors_max = errors_max;
                let mut files = new_files(3);
                let mut random = Random(number);
                let (mut engine, _) = open_engine(&world);
                let fault = if is_lasting {
                    Fault::From(number)
                } else {
                    Fault::Nth(number)
                };
                world.ssd.set_fault(fault);
                for _ in 0..100 {
                    step(&engine, &mut files, &mut random);
                }
                if random.chance(0.5) {
                    engine.stop().expect("no error reaches the caller");
                }
                close(&mut files);
                drop(engine);
                // The SSD comes back with whatever it had.
                world.ssd.set_fault(Fault::None);
                let recovery;
                (engine, recovery) = open_engine(&world);
                void += u64::from(matches!(recovery, Recovery::Cold(_)));
                for file in &mut files {
                    file.assert_served(&engine, LINE as usize, &format!("{fault:?}, {recovery:?}"));
                }
                assert_eq!(engine.counts().changed_files, 0, "{fault:?}");
                sessions += 1;
            }
        }
    }
    eprintln!("{sessions} sessions, {void} void after it");
    assert!(void > sessions / 20 && void < sessions, "{sessions} {void}");
}

/// What a file has at each place, whoever wrote it: never zero, as which a gap would be read.
fn pattern(offset: usize) -> u8 {
    (offset / 7 % 251) as u8 + 1
}

#[test]
fn who_reads_a_file_that_grows_and_is_cut_meanwhile_reads_what_was_written() {
    let world = World::new(4096, 40, 2);
    let store = MemoryStore::new(Vec::new());
    store.set_yields();
    let (engine, _) = open_engine(&world);
    let file = engine
        .attach(identity(1), store.clone())
        .expect("the backing works");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..3)
            .map(|reader| {
                let (file, is_over) = (&file, &is_over);
                scope.spawn(move || {
                    let mut random = Random(reader);
                    let mut out = vec![0; 2 * LINE as usize];
                    while !is_over.load(Ordering::Relaxed) {
                        let size = file.size_bytes();
                        // Mostly near the end.
                        let offset = size.saturating_sub(random.below(3 * UNIT)) as usize;
                        let len = 1 + random.below(3 * UNIT) as usize;
                        let read = file
                            .read(&mut out[..len], offset as u64, 0)
                            .expect("the backing works");
                        for (at, &byte) in (offset..).zip(&out[..read]) {
                            assert_eq!(byte, pattern(at), "byte {at} of {size}");
                        }
                    }
                })
            })
            .collect();
        let mut random = Random(9);
        let mut size = 0;
        for number in 0..1500 {
            if number % 100 == 99 {
                size = random.below(size as u64) as usize;
                let resize = || {
                    store.resize(size);
                    Ok(())
                };
                file.resize(size as u64, resize).expect("the backing works");
            } else {
                let data: Vec<u8> = (size..size + 1 + random.below(2500) as usize)
                    .map(pattern)
                    .collect();
                file.write(&data, size as u64, 0).expect("the backing works");
                size += data.len();
            }
        }
        is_over.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.join().expect("no thread read a wrong byte");
        }
    });
    let expected: Vec<u8> = (0..file.size_bytes() as usize).map(pattern).collect();
    assert!(store.bytes() == expected);
    assert!(engine.counts().reads.requests_hit > 100, "{:?}", engine.counts());
}

fn attach(engine: &Arc<Engine>, handle: u8, store: &Arc<MemoryStore>) -> CachedFile {
    engine
        .attach(identity(handle), store.clone())
        .expect("the backing works")
}

fn read_all(file: &CachedFile) -> Vec<u8> {
    let mut out = vec![0; file.size_bytes() as usize];
    assert_eq!(file.read(&mut out, 0, 0).expect("the backing works"), out.len());
    out
}

fn lines(engine: &Engine) -> usize {
    let mut lines = 0;
    engine.for_each_line(&mut |_| lines += 1);
    lines
}

#[test]
fn the_number_of_a_removed_file_is_not_given_again_while_records_of_its_lines_are_there() {
    let world = World::new(4096, 30, 1);
    let removed = MemoryStore::new(vec![1; 4 * LINE as usize]);
    let (engine, _) = open_engine(&world);
    let file = attach(&engine, 1, &removed);
    read_all(&file);
    assert!(engine.tidy() && lines(&engine) == 4);
    file.forget(|| Ok(())).expect("it is removed");
    drop((file, engine));
    let other = MemoryStore::new(vec![2; 4 * LINE as usize]);
    for _ in 0..2 {
        let (engine, _) = open_engine(&world);
        assert_eq!(lines(&engine), 0);
        assert!(read_all(&attach(&engine, 2, &other)) == other.bytes());
    }
}

#[test]
fn a_cut_of_many_regions_is_marked_too() {
    let world = World::new(4096, 30, 1);
    let size = 20 << 20;
    let store = MemoryStore::new(vec![1; size]);
    let (engine, _) = open_engine(&world);
    let file = attach(&engine, 1, &store);
    let mut out = vec![0; 4 * LINE as usize];
    file.read(&mut out, 0, 0).expect("the backing works");
    assert!(engine.tidy() && lines(&engine) == 4);
    for size in [0, size] {
        let resize = || {
            store.resize(size);
            Ok(())
        };
        file.resize(size as u64, resize).expect("it has another size");
    }
    assert_eq!(engine.marked_regions(), 1, "the whole file");
    drop((file, engine));
    let (engine, _) = open_engine(&world);
    let file = attach(&engine, 1, &store);
    // It is not the comparison that finds them.
    assert_eq!((engine.counts().changed_files, lines(&engine)), (0, 0));
    file.read(&mut out, 0, 0).expect("the backing works");
    assert!(out.iter().all(|&byte| byte == 0));
}

#[test]
fn of_two_records_of_a_file_the_newer_counts() {
    let world = World::new(4096, 30, 1);
    let store = MemoryStore::new(vec![1; 100]);
    let (engine, _) = open_engine(&world);
    let number = attach(&engine, 1, &store).number();
    drop(engine);
    let ssd = world.ssd.bytes();
    let superblock = Superblock::decode(&ssd[..4096]).expect("it is there");
    let place = |slot: usize| superblock.geometry.layout().files(0) as usize + slot * FILE_RECORD_BYTES;
    let record = FileRecord::decode(&superblock.uuid, 0, &ssd[place(0)..place(1)]).expect("the first");
    assert_eq!(record.number, number);
    for (slot, number) in [(3, 7), (5, 6)] {
        let record = FileRecord {
            number,
            ..record.clone()
        };
        let bytes = FileRecord::encode(Some(&record), &superblock.uuid, slot);
        BlockStore::write(&*world.ssd, &bytes, place(slot as usize) as u64).expect("it works");
    }
    let (engine, _) = open_engine(&world);
    assert_eq!(attach(&engine, 1, &store).number(), 7);
    assert_eq!(attach(&engine, 2, &MemoryStore::new(vec![1; 100])).number(), 8);
    // When it is gone, the older ones do not count either.
    engine.forget(&identity(1), || Ok(())).expect("it is removed");
    drop(engine);
    let (engine, _) = open_engine(&world);
    assert_eq!(attach(&engine, 1, &store).number(), 9);
}

#[test]
fn a_file_that_was_found_changed_is_found_changed_again_after_a_power_cut() {
    const LINES: u64 = 12;
    let world = World::new(4096, 40, 1);
    let store = MemoryStore::new(vec![1; 16 * LINE as usize]);
    let (engine, _) = open_engine(&world);
    let file = attach(&engine, 1, &store);
    let mut out = vec![0; (LINES * LINE) as usize];
    for _ in 0..3 {
        file.read(&mut out, 0, 0).expect("the backing works");
    }
    // Its record has no stamp now, so its lines are compared.
    file.write(&[1], LINES * LINE, 0).expect("the backing works");
    assert!(engine.tidy());
    let mut offsets = Vec::new();
    engine.for_each_line(&mut |line| offsets.extend(Some(line.offset_bytes).filter(|_| !line.is_in_memory)));
    drop((file, engine));
    // The comparison sees the first unit of a line alone, so the second change is found by the first only.
    offsets.retain(|&offset| offset < LINES * LINE);
    offsets.sort_unstable();
    assert!(offsets.len() > 8, "more than the records that wait: {offsets:?}");
    store.change_offline(offsets[0] as usize, 2);
    store.change_offline((offsets[offsets.len() - 1] + UNIT) as usize, 2);
    let (engine, recovery) = open_engine(&world);
    assert!(matches!(recovery, Recovery::Unclean { .. }), "{recovery:?}");
    let superblock = Superblock::decode(&world.ssd.bytes()[..4096]).expect("it is there");
    let layout = superblock.geometry.layout();
    let file_table = layout.files(0)..layout.files(layout.file_blocks());
    let mut ssd = world.ssd.bytes();
    let log = world.record();
    drop(attach(&engine, 1, &store));
    assert_eq!(engine.counts().changed_files, 1);
    drop(engine);
    // The power cut takes what was not flushed of the file table, and nothing else.
    let mut unflushed = Vec::new();
    let mut events = std::mem::take(&mut *log.lock().expect("no panic"));
    events.retain(|event| event.store() == Ok(SSD));
    for event in events {
        match event {
            Event::Write { offset, data, .. } if file_table.contains(&offset) => {
                unflushed.push((offset, data));
            }
            Event::Write { offset, data, .. } => ssd[offset as usize..][..data.len()].copy_from_slice(&data),
            _ => {
                for (offset, data) in unflushed.drain(..) {
                    ssd[offset as usize..][..data.len()].copy_from_slice(&data);
                }
            }
        }
    }
    let after = World {
        ssd: MemoryStore::device(ssd),
        ..world
    };
    let (engine, _) = open_engine(&after);
    assert!(read_all(&attach(&engine, 1, &store)) == store.bytes());
}

#[test]
fn a_file_without_a_stamp_is_not_believed_two_starts_after_a_gap_in_which_somebody_may_have_used_it() {
    const LINES: u64 = 40;
    type Gap = fn(&mut World);
    let gaps: [Gap; 3] = [
        |world| {
            world.options.was_fenced = false;
            drop(open_engine(world));
            world.options.was_fenced = true;
        },
        |world| open_engine(world).0.set_unfenced().expect("the witness works"),
        |world| {
            let left = open_engine(world).0.leave_source(b"another source..");
            left.expect("the witness works");
        },
    ];
    for (number, gap) in gaps.iter().enumerate() {
        let mut world = World::new(4096, 60, 1);
        let store = MemoryStore::new(vec![1; LINES as usize * LINE as usize]);
        let (engine, _) = open_engine(&world);
        let file = attach(&engine, 1, &store);
        read_all(&file);
        file.write(&[1], 0, 0).expect("the backing works");
        // Killed, when the file has lines and no stamp. All but the first region are not marked.
        assert!(engine.tidy());
        drop((file, engine));
        // More of its lines than these are compared come before it.
        store.change_offline(30 * LINE as usize, 2);
        gap(&mut world);
        let (engine, _) = open_engine(&world);
        let file = attach(&engine, 1, &store);
        assert!(read_all(&file) == store.bytes(), "gap {number}");
    }
}

#[test]
fn a_device_is_warm_only_for_who_can_prove_that_nobody_else_used_it() {
    let world = World::new(4096, 40, 1);
    let store = MemoryStore::device(vec![1; 12 * LINE as usize]);
    for (is_killed, is_proven) in [(false, true), (false, false), (true, true), (true, false)] {
        let (engine, _) = open_engine(&world);
        let file = attach(&engine, 1, &store);
        for _ in 0..3 {
            read_all(&file);
        }
        assert!(engine.tidy());
        let cached = lines(&engine);
        assert!(cached > 4);
        if !is_killed {
            assert!(engine.stop().expect("the backing works"));
        }
        drop((file, engine));
        if !is_proven {
            // In none of the units that are compared.
            (0..12).for_each(|line| store.change_offline((line * LINE + UNIT) as usize, 2));
        }
        let (engine, _) = open_engine(&world);
        let file = if is_proven {
            let attached = engine.attach_unchanged(identity(1), store.clone());
            attached.expect("the backing works")
        } else {
            attach(&engine, 1, &store)
        };
        assert_eq!(engine.counts().changed_files, u64::from(!is_proven));
        assert!(read_all(&file) == store.bytes());
        let hits = engine.counts().reads.bytes_hit;
        assert_eq!(hits > 0, is_proven);
        drop((file, engine));
    }
}

#[test]
fn what_is_void_stays_void_whatever_the_witness_had() {
    let world = World::new(4096, 40, 1);
    for lost in [true, true, false, false, true] {
        let (engine, _) = open_engine(&world);
        assert!(engine.stop().expect("the backing works"));
        assert_eq!(open_engine(&world).1, Recovery::Clean);
        let kept = world.witness.generation.load(Ordering::SeqCst);
        if lost {
            world.witness.generation.store(0, Ordering::SeqCst);
        }
        void(&*world.witness).expect("the witness works");
        assert_ne!(world.witness.generation.load(Ordering::SeqCst), kept);
        assert_eq!(open_engine(&world).1, Recovery::Cold(ColdReason::Generation));
    }
}

#[test]
fn what_is_counted_of_files_and_sources() {
    let mut world = World::new(4096, 60, 1);
    world.options.fetch = FetchSize::Fixed(UNIT);
    let (engine, _) = open_engine(&world);
    let stores = [1, 2].map(|byte| MemoryStore::new(vec![byte; 4 * LINE as usize]));
    let [busy, idle] = [1, 2].map(|handle| attach(&engine, handle, &stores[usize::from(handle) - 1]));
    let other = FileIdentity::new(*b"another source..", &[1]).expect("it is short enough");
    let elsewhere = engine
        .attach(other.clone(), stores[0].clone())
        .expect("the backing works");
    let mut out = vec![0; UNIT as usize];
    for time_ns in [5, 9, 7] {
        busy.read(&mut out, 0, time_ns).expect("the backing works");
    }
    let mut two = vec![0; 2 * UNIT as usize];
    busy.read(&mut two, 0, 8).expect("the backing works");
    idle.write(&two, 0, 11).expect("the backing works");
    elsewhere.read(&mut out, 0, 3).expect("the backing works");
    let reads = busy.counts().reads;
    assert_eq!(
        (reads.requests, reads.requests_hit, reads.requests_partial),
        (4, 2, 1)
    );
    assert_eq!((reads.bytes, reads.bytes_hit), (5 * UNIT, 3 * UNIT));
    assert_eq!(busy.counts().last_access_ns, 9);
    let of = |identity: &FileIdentity| {
        let counts = engine.source_counts(identity.source());
        let counts = counts.lock().expect("no thread panicked");
        counts.status()
    };
    let source = of(&identity(1));
    assert_eq!((of(&other).counts.requests(), source.counts.requests()), (1, 5));
    let kinds = [
        source.cache_reads,
        source.source_reads,
        source.cache_writes,
        source.source_writes,
    ];
    // Copied were the two fetches, a unit each, and the write.
    assert_eq!(kinds.map(|kind| kind.requests), [2, 2, 3, 1]);
    assert_eq!(
        kinds.map(|kind| kind.bytes),
        [2 * UNIT, 3 * UNIT, 4 * UNIT, 2 * UNIT]
    );
    for kind in kinds {
        assert!(kind.latency_ns_p50 > 0 && kind.latency_ns_p50 <= kind.latency_ns_max);
        assert_eq!(kind.buckets.last(), Some(&kind.requests));
    }
    assert_eq!(engine.counts().reads.requests, 5);
    // Closed files are remembered, and go on when they are opened again.
    let expected = busy.counts();
    drop(busy);
    let files = engine.busiest_files(2);
    assert_eq!(
        (files.len(), &files[0].identity, files[0].is_in_use),
        (2, &identity(1), false)
    );
    assert_eq!(
        (files[0].counts, files[0].cached_lines, files[0].cached_bytes),
        (expected, 1, 2 * UNIT)
    );
    assert_eq!(attach(&engine, 1, &stores[0]).counts(), expected);
    // Removed ones are not.
    engine.forget(&identity(1), || Ok(())).expect("it is removed");
    assert_eq!(attach(&engine, 1, &stores[0]).counts().requests(), 0);
}

#[test]
fn the_lines_of_a_file_that_was_written_to_and_removed_leave_with_its_last_user() {
    let world = World::new(4096, 60, 1);
    let (engine, _) = open_engine(&world);
    let store = MemoryStore::new(vec![0; 4 * LINE as usize]);
    let file = attach(&engine, 1, &store);
    file.write(&vec![1; 3 * LINE as usize], 0, 0)
        .expect("the backing works");
    file.forget(|| Ok(())).expect("it is removed");
    assert_eq!(assert_usage(&engine, "removed").lines, 3);
    drop(file);
    assert_eq!(assert_usage(&engine, "closed").lines, 0);
}

#[test]
fn a_source_that_is_left_is_warm_if_nobody_changed_it_and_what_was_not_settled_is_dropped() {
    let world = World::new(4096, 60, 2);
    let (engine, _) = open_engine(&world);
    let stores = [1, 2, 3].map(|byte| MemoryStore::new(vec![byte; 4 * LINE as usize]));
    let mut out = vec![0; LINE as usize];
    let files = [1, 2, 3].map(|handle| attach(&engine, handle, &stores[usize::from(handle) - 1]));
    for file in &files {
        file.write(&[9; UNIT as usize], 0, 0).expect("the backing works");
        file.read(&mut out, 0, 0).expect("the backing works");
    }
    engine.settle_source(identity(1).source());
    // The third is written to when the others are at rest.
    files[2]
        .write(&[8; UNIT as usize], 0, 0)
        .expect("the backing works");
    drop(files);
    engine
        .leave_source(identity(1).source())
        .expect("the witness works");
    // The second is changed without the cache, the first is not.
    BlockStore::write(&*stores[1], &[7; UNIT as usize], 0).expect("changed");
    let hits = [1, 2, 3].map(|handle: u8| {
        let file = attach(&engine, handle, &stores[usize::from(handle) - 1]);
        let before = file.counts().reads.requests_hit;
        file.read(&mut out, 0, 0).expect("the backing works");
        assert!(out == stores[usize::from(handle) - 1].bytes()[..LINE as usize]);
        file.counts().reads.requests_hit - before
    });
    assert_eq!((hits, engine.counts().changed_files), ([1, 0, 0], 1));
    assert_usage(&engine, "served again");
}

#[test]
fn a_source_that_is_abandoned_is_not_cached_any_more() {
    let world = World::new(4096, 60, 2);
    let (engine, _) = open_engine(&world);
    let store = MemoryStore::new(vec![1; 4 * LINE as usize]);
    let file = attach(&engine, 1, &store);
    let mut out = vec![0; LINE as usize];
    file.read(&mut out, 0, 0).expect("the backing works");
    engine.abandon_source(identity(1).source());
    assert_eq!(assert_usage(&engine, "abandoned").lines, 0);
    BlockStore::write(&*store, &[7; UNIT as usize], 0).expect("changed");
    for _ in 0..2 {
        file.read(&mut out, 0, 0).expect("the backing works");
        assert!(out == store.bytes()[..LINE as usize]);
        file.write(&[5; UNIT as usize], LINE, 0)
            .expect("the backing works");
    }
    assert_eq!(assert_usage(&engine, "abandoned").lines, 0);
}

#[test]
fn each_source_has_a_mode_of_its_own_and_it_can_change() {
    let world = World::new(4096, 60, 1);
    let (engine, _) = open_engine(&world);
    let source = |byte: u8| [byte; 16];
    let modes = [
        SourceMode::Cached(WriteMode::Allocate),
        SourceMode::Cached(WriteMode::Update),
        SourceMode::Cached(WriteMode::Invalidate),
        SourceMode::PassThrough,
    ];
    let store = MemoryStore::new(vec![1; 4 * LINE as usize]);
    let mut out = vec![0; UNIT as usize];
    // Every mode, and then every other one after it.
    for (number, order) in (1..).zip([[0, 1, 2, 3], [1, 0, 3, 2], [2, 3, 0, 1], [3, 2, 1, 0]]) {
        let uuid = source(number);
        let identity = FileIdentity::new(uuid, &[1]).expect("it is short enough");
        let file = engine.attach(identity, store.clone()).expect("the backing works");
        for mode in order {
            engine.set_mode(&uuid, modes[mode]);
            let lines = || engine.usage(&uuid).lines;
            let mut seen = Vec::new();
            file.discard(0..4 * LINE, || Ok(())).expect("the backing works");
            assert_eq!(lines(), 0);
            file.write(&[2; UNIT as usize], 0, 0).expect("the backing works");
            seen.push(lines());
            file.read(&mut out, LINE, 0).expect("the backing works");
            seen.push(lines());
            file.write(&[3; UNIT as usize], LINE, 0)
                .expect("the backing works");
            seen.push(lines());
            let expected = [[1, 2, 2], [0, 1, 1], [0, 1, 0], [0, 0, 0]];
            assert_eq!(seen, expected[mode], "{:?}", modes[mode]);
        }
        // What is foretold of a read is what it does, also where lines of another mode are left.
        let unit = UNIT as usize;
        engine.set_mode(&uuid, modes[0]);
        file.write(&[4; UNIT as usize], 0, 0).expect("the backing works");
        assert!(file.holds(0, unit));
        engine.set_mode(&uuid, modes[3]);
        assert!(!file.holds(0, unit));
    }
}

#[test]
fn a_source_with_a_size_takes_room_from_itself_and_others_keep_theirs() {
    let world = World::new(4096, 120, 2);
    let (engine, _) = open_engine(&world);
    let attach = |byte: u8| {
        let identity = FileIdentity::new([byte; 16], &[1]).expect("it is short enough");
        let store = MemoryStore::new(vec![byte; 400 * LINE as usize]);
        engine.attach(identity, store).expect("the backing works")
    };
    let (limited, other) = (attach(1), attach(2));
    let lines = |byte: u8| engine.usage(&[byte; 16]).lines;
    engine.set_size(&[1; 16], Some(20 * LINE + 1));
    let mut out = vec![0; UNIT as usize];
    for line in 0..60 {
        other.read(&mut out, line * LINE, 0).expect("the backing works");
    }
    let others = lines(2);
    assert!(others > 50);
    for line in 0..400 {
        limited.read(&mut out, line * LINE, 0).expect("the backing works");
        limited
            .write(&out, (line * 7 % 400) * LINE, 0)
            .expect("the backing works");
        // One more in each of the two shards.
        assert!(lines(1) <= 22, "{}", lines(1));
    }
    assert!(lines(1) >= 19);
    assert!(lines(2) > 40, "{} of {others}", lines(2));
    engine.set_size(&[1; 16], Some(5 * LINE));
    assert_eq!(lines(1), 5);
    engine.set_size(&[1; 16], None);
    for line in 0..60 {
        limited.read(&mut out, line * LINE, 0).expect("the backing works");
    }
    assert!(lines(1) > 30);
    engine.set_size(&[1; 16], Some(0));
    assert_eq!(lines(1), 0);
}

#[test]
fn a_file_that_comes_when_all_records_are_of_open_files_is_served_and_said_to_have_no_room() {
    let world = World::new(4096, 60, 1);
    let (engine, _) = open_engine(&world);
    let stores: Vec<_> = (0..70_u8)
        .map(|byte| MemoryStore::new(vec![byte; LINE as usize]))
        .collect();
    let mut files: Vec<_> = (0..)
        .zip(&stores)
        .map(|(handle, store)| attach(&engine, handle, store))
        .collect();
    // 60 slots have 64 records.
    assert_eq!(engine.counts().files_without_room, 6);
    for (file, store) in files.iter().zip(&stores) {
        assert!(read_all(file) == store.bytes() && read_all(file) == store.bytes());
    }
    assert_eq!(files[69].counts().reads.requests_hit, 0);
    files.truncate(65);
    assert_eq!(engine.counts().files_without_room, 1);
    // Without an SSD nothing has room, and nothing needs it.
    engine.bypass().expect("the witness works");
    assert_eq!(engine.counts().files_without_room, 0);
}
