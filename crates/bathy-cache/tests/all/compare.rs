//! Files that others may have changed: what is compared is served again, and what differs never.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use bathy_cache::{Beginning, BlockStore, CachedFile, Engine, FileIdentity, Stamp, Trust, open};

use crate::common::{Fault, LINE, MemoryStore, Random, UNIT, World, identity, passes_on};

const LINES: u64 = 24;

fn sessions() -> u64 {
    let operations = std::env::var("BATHY_TORTURE_OPS")
        .ok()
        .and_then(|text| text.parse::<u64>().ok());
    operations.map_or(400, |operations| operations / 60)
}

fn world(shards: u32) -> World {
    let mut world = World::new(4096, 2 * LINES, shards);
    world.options.compared_bytes_min = 0;
    world
}

fn begin(world: &World, store: &Arc<MemoryStore>) -> (Arc<Engine>, CachedFile) {
    let opened = open(world.ssd.clone(), world.witness.clone(), &world.options).expect("it is a cache");
    let file = opened.engine.attach(identity(1), store.clone());
    (opened.engine, file.expect("the backing works"))
}

fn assert_served(file: &CachedFile, store: &MemoryStore, context: &str) {
    let mut out = vec![0; file.size_bytes() as usize];
    file.read(&mut out, 0, 0).expect("the backing works");
    assert!(out == store.bytes(), "{context}");
}

/// A device with a full cache, after a clean stop.
fn cached(world: &World, store: &Arc<MemoryStore>) {
    let (engine, file) = begin(world, store);
    while engine.compare_next().is_some() {}
    for _ in 0..4 {
        assert_served(&file, store, "at first");
    }
    assert!(engine.stop().expect("the backing works"));
}

#[test]
fn a_device_is_warm_after_it_was_compared_and_what_others_changed_is_not_served() {
    let world = world(2);
    let store = MemoryStore::device(vec![1; (LINES * LINE) as usize]);
    cached(&world, &store);
    // Two units of one line, and one of another.
    for unit in [0, 3, 4 * 7 + 2] {
        store.change_offline((unit * UNIT + 9) as usize, 2);
    }
    let (engine, file) = begin(&world, &store);
    assert_eq!(engine.uncompared_bytes(), LINES * LINE);
    assert_served(&file, &store, "before it is compared");
    assert_eq!(
        (engine.counts().reads.bytes_hit, file.holds(10 * LINE, 1)),
        (0, false)
    );
    // What is written meanwhile is not cached, and so is not compared.
    file.write(&[3; UNIT as usize], 10 * LINE, 0)
        .expect("the backing works");
    let mut read = 0;
    while let Some(bytes) = engine.compare_next() {
        read += bytes;
    }
    assert_eq!((engine.uncompared_bytes(), read), (0, LINES * LINE));
    let counts = engine.source_counts(identity(1).source());
    let counts = counts.lock().expect("no panic").status();
    assert_eq!(counts.compared_bytes, LINES * LINE);
    assert_eq!(counts.source_read_bytes, LINES * LINE, "those of the read");
    assert_served(&file, &store, "after it was compared");
    let changed = 3 * LINE;
    assert_eq!(engine.counts().reads.bytes_hit, LINES * LINE - changed);
    assert_eq!(engine.counts().changed_files, 0);
}

#[test]
fn a_source_whose_disk_hangs_keeps_no_other_from_being_compared() {
    let mut world = World::new(4096, 4 * LINES, 2);
    world.options.compared_bytes_min = 0;
    let stores = [(); 2].map(|()| MemoryStore::device(vec![1; (LINES * LINE) as usize]));
    let identities = [*b"the slow source ", *b"the other source"].map(|uuid| {
        let identity = FileIdentity::new(uuid, &[1]);
        identity.expect("it is short enough")
    });
    let begin = || {
        let opened = open(world.ssd.clone(), world.witness.clone(), &world.options).expect("it is a cache");
        let files = [0, 1].map(|file: usize| {
            let attached = opened
                .engine
                .attach(identities[file].clone(), stores[file].clone());
            attached.expect("the backing works")
        });
        (opened.engine, files)
    };
    let (engine, files) = begin();
    for (file, store) in files.iter().zip(&stores).chain(files.iter().zip(&stores)) {
        assert_served(file, store, "at first");
    }
    assert!(engine.stop().expect("the backing works"));
    let (engine, files) = begin();
    assert_eq!(engine.uncompared_bytes(), 2 * LINES * LINE);
    stores[0].set_fault(Fault::Hang(0));
    let asked = stores[0].operations();
    let slow = {
        let (engine, source) = (Arc::clone(&engine), *identities[0].source());
        thread::spawn(move || while engine.compare_next_of(&source).is_some() {})
    };
    while stores[0].operations() == asked {
        thread::yield_now();
    }
    while engine.compare_next_of(identities[1].source()).is_some() {}
    assert_eq!(engine.uncompared_bytes(), LINES * LINE);
    assert!(files[1].holds(0, LINE as usize) && !files[0].holds(0, LINE as usize));
    stores[0].release();
    slow.join().expect("no panic");
    assert_eq!(engine.uncompared_bytes(), 0);
    assert!(files[0].holds(0, LINE as usize));
}

#[test]
fn a_file_that_cannot_be_read_loses_what_could_not_be_compared() {
    let world = world(1);
    let store = MemoryStore::device(vec![1; (LINES * LINE) as usize]);
    cached(&world, &store);
    let (engine, file) = begin(&world, &store);
    store.set_fault(Fault::From(0));
    while engine.compare_next().is_some() {}
    store.set_fault(Fault::None);
    assert_served(&file, &store, "after errors");
    assert_eq!(engine.counts().reads.bytes_hit, 0);
}

#[test]
fn sessions_that_are_killed_while_they_compare_never_serve_what_others_changed() {
    let mut random = Random(77);
    let (mut hits, mut kept, mut kills) = (0, 0, 0);
    let mut world = world(2);
    let store = MemoryStore::new(vec![0; (LINES * LINE) as usize]);
    for session in 0..sessions() {
        // In some of the gaps between sessions somebody writes, and nobody knows it after a kill.
        let is_changed = random.chance(0.3);
        if is_changed {
            let byte = random.next() as u8;
            store.change_offline(random.below(LINES * LINE) as usize, byte);
        }
        world.options.was_fenced = !is_changed && random.chance(0.7);
        let (engine, file) = begin(&world, &store);
        for step in 0..random.below(120) {
            let offset = random.below(LINES * LINE / UNIT) * UNIT;
            match random.below(8) {
                0 => {
                    let byte = [random.next() as u8; UNIT as usize];
                    let of_unit = random.below(UNIT / 2) as usize;
                    file.write(&byte[of_unit..], offset + of_unit as u64 / 2, step)
                        .expect("the backing works");
                }
                1 => drop(engine.tidy()),
                2 => drop(engine.compare_next()),
                _ => {
                    let mut out = vec![0; (UNIT * (1 + random.below(6))) as usize];
                    let read = file.read(&mut out, offset, step).expect("the backing works");
                    let expected = &store.bytes()[offset as usize..][..read];
                    assert!(
                        out[..read] == *expected,
                        "session {session} step {step} at {offset}"
                    );
                }
            }
        }
        if random.chance(0.3) {
            while engine.compare_next().is_some() {}
            kept += u64::from(engine.lines().0 > 0);
        }
        assert_served(&file, &store, &format!("session {session}"));
        hits += engine.counts().reads.bytes_hit;
        if random.chance(0.5) {
            assert!(engine.stop().expect("the backing works"));
        } else {
            kills += 1;
        }
        drop((file, engine));
    }
    eprintln!("{hits} bytes hit, {kills} kills");
    assert!(hits > 0 && kept > 0 && kills > 0, "{hits} {kept} {kills}");
}

#[test]
fn who_reads_and_writes_while_it_is_compared_reads_what_was_written() {
    let world = world(2);
    let store = MemoryStore::device(vec![0; (LINES * LINE) as usize]);
    for round in 0..20 {
        cached(&world, &store);
        store.change_offline((round * UNIT) as usize, 0xee);
        let before = store.bytes();
        let (engine, file) = begin(&world, &store);
        store.set_yields();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while engine.compare_next().is_some() {
                    std::thread::yield_now();
                }
                is_over.store(true, Ordering::Release);
            });
            for writer in 0..2_u64 {
                let (file, is_over, before) = (&file, &is_over, &before);
                scope.spawn(move || {
                    // Each has units of its own, and reads back at once.
                    let mut random = Random(round * 2 + writer);
                    let mut own = before.clone();
                    let mut rest = 50;
                    while rest > 0 {
                        rest -= u32::from(is_over.load(Ordering::Acquire));
                        let unit = random.below(LINES * LINE / UNIT / 2) * 2 + writer;
                        let bytes = (unit * UNIT) as usize..((unit + 1) * UNIT) as usize;
                        if random.chance(0.4) {
                            own[bytes.clone()].fill(random.next() as u8);
                            file.write(&own[bytes.clone()], bytes.start as u64, 0)
                                .expect("the backing works");
                        }
                        let mut out = vec![0; UNIT as usize];
                        file.read(&mut out, bytes.start as u64, 0)
                            .expect("the backing works");
                        assert!(out == own[bytes], "round {round} unit {unit}");
                    }
                });
            }
        });
        assert_served(&file, &store, "after all");
        assert!(engine.stop().expect("the backing works"));
    }
    assert!(store.size_bytes().is_ok());
}

/// A device that others change without a sign: its stamp stays as it is. It counts what is read.
struct Silent {
    store: Arc<MemoryStore>,
    reads: AtomicU64,
    trust: Trust,
}

impl BlockStore for Silent {
    passes_on!(write, flush, size_bytes);

    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.store.read(buffer, offset)
    }

    fn stamp(&self) -> io::Result<Stamp> {
        Ok(Stamp {
            modified_ns: 1,
            ..self.store.stamp()?
        })
    }

    fn trust(&self) -> Trust {
        self.trust
    }
}

/// Attaches a device anew: what became of its lines, and how often it was read for that.
fn attached(world: &World, store: &Arc<MemoryStore>, trust: Trust) -> (Beginning, u64) {
    let opened = open(world.ssd.clone(), world.witness.clone(), &world.options).expect("it is a cache");
    let silent = Arc::new(Silent {
        store: Arc::clone(store),
        reads: AtomicU64::new(0),
        trust,
    });
    let file = opened
        .engine
        .attach(identity(1), silent.clone())
        .expect("the backing works");
    let found = (file.beginning(), silent.reads.load(Ordering::Relaxed));
    if found.0 == Beginning::Compared {
        while opened.engine.compare_next().is_some() {}
    }
    for line in 0..store.bytes().len() as u64 / LINE {
        let mut out = vec![0; UNIT as usize];
        file.read(&mut out, line * LINE, 0).expect("the backing works");
    }
    drop(file);
    assert!(opened.engine.stop().expect("the backing works"));
    found
}

#[test]
fn a_silent_change_of_a_hundredth_of_a_device_is_found_by_its_sample() {
    const LINES: u64 = 3000;
    let mut world = World::new(4096, 2 * LINES, 4);
    world.options.compared_bytes_min = 0;
    let store = MemoryStore::device(vec![1; (LINES * LINE) as usize]);
    assert_eq!(attached(&world, &store, Trust::Sample).0, Beginning::New);
    let mut random = Random(9);
    for round in 0..8 {
        let kept = attached(&world, &store, Trust::Sample);
        assert_eq!(kept, (Beginning::Sampled { lines: 688 }, 688), "round {round}");
        // Another seed each time: spread over the device, or in one piece.
        let start = random.below(LINES - LINES / 100);
        for number in 0..LINES / 100 {
            let line = if round % 2 == 0 {
                random.below(LINES)
            } else {
                start + number
            };
            store.change_offline((line * LINE + 9) as usize, round as u8 + 2);
        }
        assert_eq!(
            attached(&world, &store, Trust::Sample).0,
            Beginning::Compared,
            "round {round}"
        );
    }
    assert_eq!(attached(&world, &store, Trust::Stamp).0, Beginning::Known);
    assert_eq!(attached(&world, &store, Trust::Nothing).0, Beginning::Compared);
}
