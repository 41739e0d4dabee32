//! The SSD is taken away, given back, made smaller and larger while threads read and write: each reads what it wrote last.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bathy_cache::{
    AttachError, BlockStore, ColdReason, CreateOptions, LiveCache, LiveFile, Recovery, create, open,
};

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

fn of_lines(lines: u64, number: u8) -> CreateOptions {
    let mut options = CreateOptions {
        size_bytes: Some((1 << 20) + lines * LINE),
        ..create_options(2)
    };
    options.uuid[0] = number;
    options
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
    while !is_over.load(Ordering::Relaxed) {
        let store = MemoryStore::new(vec![0; 4 * UNIT as usize]);
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
                cache.tidy();
                std::thread::yield_now();
            }
        };
        let cold = Recovery::Cold(ColdReason::Witness);
        for round in 0..6 {
            cache.detach_ssd().expect("nothing fails");
            go_on();
            assert!(!cache.has_ssd() && cache.engine().is_bypassed());
            assert_eq!(Arc::strong_count(&world.ssd), 1, "nobody has the SSD any more");
            assert_eq!(found_now(&world), cold, "round {round}");
            // The same, with all that it has, and the next time a new one.
            let ssd: Arc<dyn BlockStore> = world.ssd.clone();
            if round % 2 == 1 {
                create(ssd.clone(), &*world.witness, &of_lines(20, round)).expect("there is room");
            }
            assert_eq!(cache.attach_ssd(ssd).expect("it is a cache"), cold);
            go_on();
            for lines in [8, 24] {
                let options = of_lines(lines, round + lines as u8);
                assert_eq!(cache.recreate(&options).expect("there is room"), cold);
                go_on();
                let engine = cache.engine();
                assert!(engine.capacity_lines() <= lines && engine.capacity_lines() + 4 > lines);
                assert!(!engine.is_bypassed());
                hits += engine.counts().reads.requests_hit;
            }
        }
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
        cache.recreate(&of_lines(0, 1)),
        Err(AttachError::Create(_))
    ));
    assert!(cache.has_ssd() && !cache.engine().is_bypassed());
    cache.detach_ssd().expect("nothing fails");
    assert!(matches!(cache.recreate(&of_lines(8, 1)), Err(AttachError::NoSsd)));
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
    cache.tidy();
    cache.tidy();
    cache.detach_ssd().expect("nothing fails");
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
    let cache = live(&world);
    let file = cache
        .attach(identity(BACKING), world.backing.clone(), false)
        .expect("the backing works");
    world.ssd.set_fault(Fault::Hang(0));
    file.write(&[7; 4096], 0, 0).expect("the backing works");
    assert!(cache.engine().is_bypassed());
    assert!(matches!(cache.recreate(&of_lines(8, 1)), Err(AttachError::NoSsd)));
    cache.detach_ssd().expect("nothing fails");
    assert!(Arc::strong_count(&world.ssd) > 1, "what hangs still has it");
    world.ssd.release();
    cache.attach_ssd(world.ssd.clone()).expect("it answers again");
    let served = Cache::new(cache.engine(), world.backing.clone());
    assert_serves_backing(&served, &world.backing.bytes(), 16_384, "after the hang");
}
