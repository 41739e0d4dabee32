//! The SSD is taken away, given back, made smaller and larger while threads read and write: each reads what it wrote last.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bathy_cache::{
    AttachError, BlockStore, ColdReason, DetachError, FileIdentity, LiveCache, LiveFile, PAUSE_MAX, Recovery,
    ResizeError, create, open,
};
use bathy_cache_model::FetchSize;

use crate::common::{
    BACKING, Cache, Fault, LINE, MemoryStore, MemoryWitness, Random, UNIT, World, assert_serves_backing,
    create_options, identity,
};

const THREADS: u64 = 3;
const BYTES: u64 = 1 << 20;

fn live(world: &World) -> LiveCache {
    let ssd: Arc<dyn BlockStore> = world.ssd.clone();
    let opened = open(ssd.clone(), world.witness.clone(), &world.options).expect("it is a cache");
    LiveCache::new(Some((opened.engine, ssd)), world.witness.clone(), world.options)
}

fn of_lines(lines: u64) -> u64 {
    (1 << 20) + lines * LINE
}

/// A cache opened on copies of SSD and witness: what a start would find if the power failed now.
fn found_now(world: &World) -> Recovery {
    let witness = MemoryWitness::default();
    let generation = world.witness.generation.load(Ordering::SeqCst);
    witness.generation.store(generation, Ordering::SeqCst);
    let ssd = MemoryStore::device(world.ssd.bytes());
    let opened = open(ssd, Arc::new(witness), &world.options).expect("it is a cache");
    opened.recovery
}

/// One of the threads: its units of the shared file, through a handle of its own.
fn work(file: &LiveFile, thread: u64, is_over: &AtomicBool, done: &AtomicU64, mut own: Vec<u8>) {
    let mut random = Random(thread);
    for number in 0.. {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let group = random.below(BYTES / UNIT / THREADS);
        let group = if random.chance(0.8) { group / 16 } else { group };
        let offset = (group * THREADS + thread) * UNIT;
        let range = offset as usize..(offset + UNIT) as usize;
        if random.chance(0.4) {
            random.fill(&mut own[range.clone()]);
            let written = file.write(&own[range], offset, number);
            written.expect("the backing works");
        } else if random.chance(0.02) {
            file.flush().expect("the backing works");
        } else {
            let mut out = vec![0; UNIT as usize];
            file.read(&mut out, offset, number).expect("the backing works");
            assert!(out == own[range], "thread {thread} request {number}");
        }
        done.fetch_add(1, Ordering::Relaxed);
    }
}

/// Another one: files that are removed while they are open, and new ones with their handle.
fn come_and_go(cache: &LiveCache, is_over: &AtomicBool) {
    let mut random = Random(99);
    let mut before: Option<(Arc<LiveFile>, Vec<u8>)> = None;
    for number in 1.. {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        // As in a file system, a new file has other times than the one before.
        let store = MemoryStore::with_modified(vec![0; 4 * UNIT as usize], number << 32);
        let file = cache
            .attach(identity(9), store, false)
            .expect("the backing works");
        let mut bytes = vec![0; 4 * UNIT as usize];
        random.fill(&mut bytes);
        file.write(&bytes, 0, 0).expect("the backing works");
        let check = |file: &LiveFile, bytes: &[u8], which: &str| {
            let mut out = vec![0; bytes.len()];
            file.read(&mut out, 0, 0).expect("the backing works");
            assert!(out == bytes, "{which}");
        };
        for _ in 0..20 {
            check(&file, &bytes, "the file that has the handle");
            if let Some((file, bytes)) = &mut before {
                bytes[5] = bytes[5].wrapping_add(1);
                file.write(&bytes[5..6], 5, 0).expect("the backing works");
                check(file, bytes, "the file that had the handle");
            }
        }
        cache.forget(&identity(9), || Ok(())).expect("nothing fails");
        before = Some((file, bytes));
    }
}

#[test]
fn the_ssd_goes_and_comes_and_changes_its_size_under_load() {
    let world = World::new(BYTES, 24, 2);
    world.backing.set_yields();
    let cache = live(&world);
    let (is_over, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let attach = || {
        let attached = cache.attach(identity(BACKING), world.backing.clone(), false);
        attached.expect("the backing works")
    };
    let mut hits = 0;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (file, own) = (attach(), world.backing.bytes());
            let (is_over, done) = (&is_over, &done);
            scope.spawn(move || work(&file, thread, is_over, done, own));
        }
        scope.spawn(|| come_and_go(&cache, &is_over));
        let go_on = || {
            let so_far = done.load(Ordering::Relaxed);
            while done.load(Ordering::Relaxed) < so_far + 500 {
                cache.engine().tidy();
                std::thread::yield_now();
            }
        };
        for round in 0..6 {
            assert!(
                cache.detach_ssd(PAUSE_MAX).expect("nothing fails"),
                "by a clean stop"
            );
            go_on();
            assert!(!cache.has_ssd() && cache.engine().is_bypassed());
            assert_eq!(Arc::strong_count(&world.ssd), 1, "nobody has the SSD any more");
            assert_eq!(found_now(&world), Recovery::Clean, "round {round}");
            // The same, with all that it has, and the next time a new one.
            let ssd: Arc<dyn BlockStore> = world.ssd.clone();
            let expected = if round % 2 == 1 {
                create(ssd.clone(), &*world.witness, &create_options(LINE, 2)).expect("there is room");
                Recovery::Cold(ColdReason::Generation)
            } else {
                Recovery::Clean
            };
            assert_eq!(cache.attach_ssd(ssd).expect("it is a cache"), expected);
            go_on();
            for lines in [8, 24] {
                let capacity_bytes = cache.resize(of_lines(lines)).expect("there is room");
                assert_eq!(capacity_bytes, lines * LINE);
                go_on();
                let engine = cache.engine();
                assert_eq!(engine.capacity_lines(), lines);
                assert!(!engine.is_bypassed());
            }
        }
        hits = cache.engine().counts().reads.requests_hit;
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(hits > 300, "{hits}");
    let counts = cache.engine().counts();
    assert_eq!((counts.mismatches, counts.ssd_errors), (0, 0));
    // A power cut.
    drop(cache);
    let opened = world.open();
    assert!(matches!(opened.recovery, Recovery::Unclean { .. }));
    let backing = world.backing.bytes();
    assert_serves_backing(&opened.engine, &backing, 16_384, "after a power cut");
}

#[test]
fn a_size_that_does_not_fit_changes_nothing() {
    let world = World::new(BYTES, 24, 2);
    let cache = live(&world);
    assert!(matches!(
        cache.resize(of_lines(0)),
        Err(AttachError::Resize(ResizeError::DoesNotFit(_)))
    ));
    assert!(matches!(
        cache.resize(of_lines(25)),
        Err(AttachError::Resize(ResizeError::Beyond { .. }))
    ));
    assert!(cache.has_ssd() && !cache.engine().is_bypassed());
    cache.detach_ssd(PAUSE_MAX).expect("nothing fails");
    assert!(matches!(cache.resize(of_lines(8)), Err(AttachError::NoSsd)));
}

#[test]
fn a_file_that_cannot_be_made_durable_stays_where_it_is_and_its_error_is_not_lost() {
    let world = World::new(BYTES, 24, 2);
    let cache = live(&world);
    let file = cache
        .attach(identity(BACKING), world.backing.clone(), false)
        .expect("the backing works");
    file.write(&[7; 4096], 0, 0).expect("the backing works");
    world.backing.set_fault(Fault::NextFlush);
    // Tidying hears of the lost write; the caller does after the switch.
    cache.engine().tidy();
    cache.engine().tidy();
    cache.detach_ssd(PAUSE_MAX).expect("nothing fails");
    assert!(file.flush().is_err(), "the error was taken along");
    file.flush().expect("it was reported once");
    world.backing.set_fault(Fault::NextFlush);
    let ssd: Arc<dyn BlockStore> = world.ssd.clone();
    assert!(matches!(
        cache.attach_ssd(ssd.clone()),
        Err(AttachError::Switch(_))
    ));
    assert!(!cache.has_ssd());
    file.write(&[8; 4096], 4096, 0).expect("the backing works");
    cache.attach_ssd(ssd).expect("the backing works");
    let mut out = [0; 8192];
    assert_eq!(file.read(&mut out, 0, 0).expect("the backing works"), 8192);
    assert!(out[..4096] == [7; 4096] && out[4096..] == [8; 4096]);
}

#[test]
fn an_ssd_that_hangs_is_left_and_not_made_anew() {
    let mut world = World::new(BYTES, 24, 2);
    world.options.ssd_deadline = Some(std::time::Duration::from_millis(50));
    world.options.ssd_write_deadline = world.options.ssd_deadline;
    let cache = live(&world);
    let file = cache
        .attach(identity(BACKING), world.backing.clone(), false)
        .expect("the backing works");
    world.ssd.set_fault(Fault::Hang(0));
    file.write(&[7; 4096], 0, 0).expect("the backing works");
    assert!(cache.engine().is_bypassed());
    assert!(matches!(cache.resize(of_lines(8)), Err(AttachError::NoSsd)));
    cache.detach_ssd(PAUSE_MAX).expect("nothing fails");
    assert!(Arc::strong_count(&world.ssd) > 1, "what hangs still has it");
    world.ssd.release();
    cache.attach_ssd(world.ssd.clone()).expect("it answers again");
    let served = Cache::new(cache.engine(), world.backing.clone());
    assert_serves_backing(&served, &world.backing.bytes(), 16_384, "after the hang");
}

/// A cache, and a file of it of which all is cached.
fn warm_file(world: &World, store: Arc<dyn BlockStore>, is_proven: bool) -> (LiveCache, Arc<LiveFile>) {
    let cache = live(world);
    let file = cache
        .attach(identity(BACKING), store, is_proven)
        .expect("the backing works");
    for _ in 0..3 {
        let mut out = vec![0; 8 * LINE as usize];
        file.read(&mut out, 0, 0).expect("the backing works");
    }
    (cache, file)
}

/// Reads eight lines: how many units of them the cache served.
fn units_hit(cache: &LiveCache, file: &LiveFile, expected: &[u8]) -> u64 {
    let hits = cache.engine().counts().reads.bytes_hit;
    let mut out = vec![0; 8 * LINE as usize];
    file.read(&mut out, 0, 0).expect("the backing works");
    assert!(out == expected[..out.len()]);
    (cache.engine().counts().reads.bytes_hit - hits) / UNIT
}

#[test]
fn an_ssd_that_is_taken_again_has_what_was_not_changed_meanwhile() {
    let world = World::new(BYTES, 24, 2);
    let (cache, file) = warm_file(&world, world.backing.clone(), false);
    for is_changed in [false, true] {
        assert!(cache.detach_ssd(PAUSE_MAX).expect("nothing fails"));
        assert_eq!(units_hit(&cache, &file, &world.backing.bytes()), 0);
        if is_changed {
            file.write(&[9; 100], 5000, 0).expect("the backing works");
        }
        let taken = cache.attach_ssd(world.ssd.clone()).expect("it is a cache");
        assert_eq!(taken, Recovery::Clean);
        let hit = units_hit(&cache, &file, &world.backing.bytes());
        assert_eq!(hit, if is_changed { 0 } else { 8 * LINE / UNIT });
    }
    assert_eq!(cache.engine().counts().changed_files, 1);
}

#[test]
fn a_device_that_was_written_to_without_the_ssd_is_not_proven_any_more() {
    let world = World::new(BYTES, 24, 2);
    let store = MemoryStore::device(world.backing.bytes());
    let (cache, file) = warm_file(&world, store.clone(), true);
    for is_changed in [false, true] {
        cache.detach_ssd(PAUSE_MAX).expect("nothing fails");
        if is_changed {
            // Where no line of it would be compared, and closed before the SSD comes back.
            let other = cache
                .attach(identity(BACKING), store.clone(), true)
                .expect("it works");
            other.write(&[9; 100], 5000, 0).expect("the backing works");
        }
        cache.attach_ssd(world.ssd.clone()).expect("it is a cache");
        let hit = units_hit(&cache, &file, &store.bytes());
        assert_eq!(hit, if is_changed { 0 } else { 8 * LINE / UNIT });
    }
}

#[test]
fn a_source_that_is_first_seen_without_the_ssd_has_the_curve_of_its_cache() {
    let mut world = World::new(BYTES, 24, 2);
    // A hard disk, of which a miss fetches whole lines.
    world.options.fetch = FetchSize::Adaptive {
        break_even_bytes: 1_200_000,
    };
    let (cache, _file) = warm_file(&world, world.backing.clone(), false);
    cache.detach_ssd(PAUSE_MAX).expect("nothing fails");
    let source = *b"another source..";
    let identity = FileIdentity::new(source, b"file").expect("it is short enough");
    let file = cache
        .attach(identity, MemoryStore::new(world.backing.bytes()), false)
        .expect("the backing works");
    cache.attach_ssd(world.ssd.clone()).expect("it is a cache");
    for offset in [0, LINE - UNIT] {
        let mut out = vec![0; UNIT as usize];
        file.read(&mut out, offset, 0).expect("the backing works");
    }
    let engine = cache.engine();
    let curve = engine.source_curve(&source).expect("it was read");
    let bytes = engine.capacity_lines() * LINE;
    let present = curve.points.iter().find(|point| point.size_bytes == bytes);
    let present = present.expect("its share is the cache");
    assert_eq!(present.hit_ratio, Some(0.5), "the miss fetched the line");
}

#[test]
fn a_size_of_a_source_that_comes_to_an_engine_that_was_left_changes_nothing() {
    let world = World::new(BYTES, 24, 2);
    let (cache, _file) = warm_file(&world, world.backing.clone(), false);
    let source = *identity(BACKING).source();
    let left = cache.engine();
    // The search for lines that leave is somewhere.
    left.set_size(&source, Some(3 * LINE));
    assert!(cache.detach_ssd(PAUSE_MAX).expect("the SSD works"));
    left.set_size(&source, Some(0));
}

#[test]
fn counts_modes_and_limits_go_on_whatever_becomes_of_the_ssd() {
    let world = World::new(BYTES, 24, 2);
    let (cache, file) = warm_file(&world, world.backing.clone(), false);
    let source = *identity(BACKING).source();
    let whole = cache.engine().curve().expect("it was read").reads;
    assert_eq!(
        cache.engine().source_curve(&source).map(|it| it.reads),
        Some(whole)
    );
    cache.with_engine(|engine| engine.set_size(&source, Some(12 * LINE)));
    assert_eq!(
        cache.engine().source_curve(&source),
        None,
        "its size is another one"
    );
    let (mut reads, of_source) = (3, cache.engine().source_counts(&source));
    let mut filled = 0;
    let mut check = |cache: &LiveCache, what: &str, curve_reads: (u64, u64)| {
        reads += 1;
        let mut out = vec![0; 64];
        file.read(&mut out, 0, 0).expect("the backing works");
        let counts = cache.engine().counts();
        assert_eq!(counts.reads.requests, reads, "{what}");
        assert_eq!(
            of_source.lock().expect("no panic").status().counts.reads.requests,
            reads
        );
        assert_eq!(file.counts().reads.requests, reads, "{what}");
        assert!(
            counts.flash_write_bytes + counts.backing_read_bytes >= filled,
            "{what}"
        );
        filled = counts.flash_write_bytes + counts.backing_read_bytes;
        let engine = cache.engine();
        let curves = [engine.curve(), engine.source_curve(&source)];
        let [whole, own] = curves.map(|curve| curve.expect("it was read").reads);
        assert_eq!((whole, own), curve_reads, "{what}");
    };
    check(&cache, "before", (whole + 1, 1));
    cache.resize(of_lines(20)).expect("there is room");
    check(
        &cache,
        "resized: that is another size of the cache, and not of the source",
        (1, 2),
    );
    cache.detach_ssd(PAUSE_MAX).expect("nothing fails");
    check(&cache, "detached", (1, 2));
    cache.attach_ssd(world.ssd.clone()).expect("it is a cache");
    check(&cache, "attached", (2, 3));
    let mut out = vec![0; BYTES as usize];
    file.read(&mut out, 0, 0).expect("the backing works");
    assert!(cache.engine().usage(&source).lines <= 12 + 2, "the limit holds");
}

/// The source of all files is named.
fn assert_busy(left: &Result<bool, DetachError>) {
    let source = *identity(BACKING).source();
    assert!(
        matches!(left, Err(DetachError::Busy(sources)) if sources[..] == [source]),
        "{left:?}"
    );
}

#[test]
fn requests_that_do_not_end_keep_a_switch_from_happening() {
    let world = World::new(BYTES, 24, 2);
    let (cache, file) = warm_file(&world, world.backing.clone(), false);
    world.backing.set_fault(Fault::Hang(0));
    std::thread::scope(|scope| {
        let hanging = scope.spawn(|| file.read(&mut [0; 4096], BYTES - 4096, 0));
        while world.backing.operations() == 0 {
            std::thread::yield_now();
        }
        let detached = cache.detach_ssd(Duration::from_millis(100));
        assert_busy(&detached);
        assert!(cache.has_ssd() && !cache.engine().is_bypassed());
        world.backing.release();
        hanging.join().expect("no panic").expect("the backing works");
    });
    assert_eq!(units_hit(&cache, &file, &world.backing.bytes()), 8 * LINE / UNIT);
}

#[test]
fn a_file_that_is_made_durable_without_an_end_keeps_a_switch_from_happening_and_no_request() {
    let world = World::new(BYTES, 24, 2);
    let (cache, file) = warm_file(&world, world.backing.clone(), false);
    file.write(&[7; UNIT as usize], 0, 0).expect("the backing works");
    world.backing.set_fault(Fault::Hang(0));
    let pause = Duration::from_millis(100);
    assert_busy(&cache.detach_ssd(pause));
    assert!(cache.has_ssd());
    // A hit.
    let mut out = [0; UNIT as usize];
    file.read(&mut out, LINE, 0).expect("the SSD works");
    world.backing.release();
    assert!(cache.detach_ssd(PAUSE_MAX).expect("nothing fails"));
}

#[test]
fn a_disk_that_hangs_after_a_write_that_came_before_the_pause_keeps_the_others_no_longer_than_that() {
    let world = World::new(BYTES, 24, 2);
    let (cache, good) = warm_file(&world, world.backing.clone(), false);
    let stores = [101, 102].map(|number| (number, MemoryStore::new(vec![1; BYTES as usize])));
    let [busy, slow] = stores.each_ref().map(|(number, store)| {
        cache
            .attach(identity(*number), store.clone(), false)
            .expect("works")
    });
    let [(_, busy_store), (_, slow_store)] = &stores;
    busy_store.set_fault(Fault::Hang(0));
    let pause = Duration::from_secs(2);
    let (answered, switched) = std::thread::scope(|scope| {
        let before = busy_store.operations();
        scope.spawn(|| busy.read(&mut [0; UNIT as usize], 0, 0).expect("works"));
        while busy_store.operations() == before {
            std::thread::yield_now();
        }
        // It waits for that read now, with all that was written before made durable.
        let switch = scope.spawn(|| cache.detach_ssd(pause));
        std::thread::sleep(pause / 4);
        slow.write_buffered(&[7; UNIT as usize], 0, 1)
            .expect("the page cache below takes it");
        slow_store.set_fault(Fault::Hang(0));
        busy_store.release();
        let (tell, told) = std::sync::mpsc::channel();
        let good = &good;
        scope.spawn(move || {
            good.read(&mut [0; UNIT as usize], LINE, 0).expect("works");
            tell.send(()).expect("it is waited for");
        });
        let answered = told.recv_timeout(60 * pause);
        slow_store.release();
        (answered, switch.join().expect("no panic"))
    });
    answered.expect("others are served while the disk hangs");
    assert_busy(&switched);
    assert!(cache.detach_ssd(PAUSE_MAX).expect("nothing fails"));
}

#[test]
fn a_flush_that_failed_is_counted_for_all_who_have_the_file_and_in_a_switch_too() {
    let world = World::new(BYTES, 24, 2);
    let (cache, one) = warm_file(&world, world.backing.clone(), false);
    let two = cache
        .attach(identity(BACKING), world.backing.clone(), false)
        .expect("works");
    one.write_buffered(&[7; UNIT as usize], 0, 1).expect("works");
    two.write_buffered(&[7; UNIT as usize], 8 * UNIT, 1)
        .expect("works");
    world.backing.set_fault(Fault::NextFlush);
    assert_eq!([one.flush().is_err(), two.flush().is_err()], [true, false]);
    assert_eq!([one.failed_flushes(), two.failed_flushes()], [1, 1]);
    let _left = cache.detach_ssd(PAUSE_MAX).expect("it goes on without the SSD");
    assert_eq!([one.failed_flushes(), two.failed_flushes()], [1, 1]);
}

#[test]
fn an_ssd_that_could_not_be_taken_because_of_requests_is_not_believed_later() {
    let world = World::new(BYTES, 24, 2);
    let (cache, file) = warm_file(&world, world.backing.clone(), false);
    assert!(cache.detach_ssd(PAUSE_MAX).expect("nothing fails"));
    world.backing.set_fault(Fault::Hang(0));
    std::thread::scope(|scope| {
        let before = world.backing.operations();
        let hanging = scope.spawn(|| file.read(&mut [0; 4096], BYTES - 4096, 0));
        while world.backing.operations() == before {
            std::thread::yield_now();
        }
        let attached = cache.attach_ssd(world.ssd.clone());
        let Err(AttachError::Detach(error)) = attached else {
            panic!("it is busy: {attached:?}");
        };
        assert_busy(&Err(error));
        assert!(!cache.has_ssd());
        world.backing.release();
        hanging.join().expect("no panic").expect("the backing works");
    });
    file.write(&[9; UNIT as usize], 0, 0).expect("the backing works");
    cache.stop().expect("the backing works");
    drop((file, cache));
    assert_eq!(world.open().recovery, Recovery::Cold(ColdReason::Generation));
}

#[test]
fn what_a_switch_writes_to_the_ssd_is_counted() {
    let world = World::new(BYTES, 24, 2);
    let (cache, _file) = warm_file(&world, world.backing.clone(), false);
    let counted = || cache.engine().counts().ssd_writes;
    let before = counted();
    assert!(cache.detach_ssd(PAUSE_MAX).expect("nothing fails"));
    let detached = counted();
    // A state of each shard, and the superblock after it.
    assert_eq!(detached.state_bytes - before.state_bytes, 2 * 4096);
    assert_eq!(detached.superblock_bytes - before.superblock_bytes, 4096);
    assert!(detached.data_bytes > before.data_bytes, "lines in memory");
    cache.attach_ssd(world.ssd.clone()).expect("it is a cache");
    assert_eq!(counted().state_bytes, detached.state_bytes);
    cache.resize(of_lines(20)).expect("there is room");
    assert_eq!(counted().state_bytes, detached.state_bytes + 2 * 4096);
}
