//! A read is answered before what it fetched is copied to the SSD, and neighbouring lines are fetched at once.

use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use bathy_cache::{Events, FileIdentity};
use bathy_cache_model::FetchSize;
use bathy_policy::PolicyKind;

use crate::common::{
    BACKING, Cache, Fault, LINE, MemoryStore, UNIT, World, assert_serves_backing, assert_usage, identity,
};

const BYTES: u64 = 40 * LINE;
const SHARDS: u64 = 4;
/// Lines that a source may have.
const LIMIT: u64 = 2 * SHARDS;
/// Whoever takes longer than this hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// One without lines in memory.
fn world() -> World {
    let mut world = World::running(PolicyKind::Lru, LINE, BYTES, 64, 4);
    world.options.fetch = FetchSize::Fixed(UNIT);
    world
}

#[test]
fn a_read_is_answered_while_the_ssd_writes_what_it_fetched_and_so_are_others_without_the_backing() {
    let world = world();
    let cache = world.open().engine;
    let bytes = world.backing.bytes();
    let (offset, len) = (LINE / 2, 2 * LINE as usize);
    world.ssd.set_fault(Fault::Hang(0));
    world.backing.set_fault(Fault::None);
    thread::scope(|scope| {
        let (tell, told) = channel();
        let (cache, bytes) = (&cache, &bytes[offset as usize..][..len]);
        let reader = scope.spawn(move || {
            let mut out = vec![0; len];
            let served = &|bytes: &[u8]| tell.send(bytes.to_vec()).expect("the test listens");
            let waits = &|| {};
            cache
                .file
                .read_telling(&mut out, offset, 0, &Events { waits, served })
        });
        let answer = told.recv_timeout(PATIENCE).expect("no copy is waited for");
        assert!(answer == bytes);
        assert_eq!(world.backing.operations(), 1, "neighbours are fetched at once");
        let mut again = vec![0; len];
        cache.read(&mut again, offset, 0).expect("the backing works");
        assert!(again == bytes);
        assert_eq!(world.backing.operations(), 1, "what was fetched is there");
        let counts = cache.counts();
        assert_eq!((counts.reads.requests, counts.reads.requests_hit), (2, 1));
        world.ssd.release();
        assert_eq!(reader.join().expect("no panic").expect("the backing works"), len);
    });
    let mut again = vec![0; len];
    cache.read(&mut again, offset, 0).expect("the backing works");
    assert!(again == bytes[offset as usize..][..len]);
    assert_eq!(world.backing.operations(), 1, "the SSD has it");
    assert_usage(&cache, "after the copies");
    assert_serves_backing(&cache, &bytes, 16_384, "after the copies");
    assert_eq!(cache.counts().mismatches, 0);
}

/// Reads all, and does something when it has the answer, while nothing of it is on the SSD.
fn while_it_is_copied(world: &World, cache: &Cache, then: impl FnOnce(&[u8])) {
    world.ssd.set_fault(Fault::Hang(0));
    thread::scope(|scope| {
        let (tell, told) = channel();
        let reader = scope.spawn(move || {
            let served = &|bytes: &[u8]| tell.send(bytes.to_vec()).expect("the test listens");
            let waits = &|| {};
            let mut out = vec![0; BYTES as usize];
            cache.file.read_telling(&mut out, 0, 0, &Events { waits, served })
        });
        then(&told.recv_timeout(PATIENCE).expect("no copy is waited for"));
        world.ssd.release();
        reader.join().expect("no panic").expect("the backing works");
    });
}

#[test]
fn a_read_of_many_lines_is_answered_as_soon_and_its_source_stays_within_its_limit() {
    let world = world();
    let cache = world.open().engine;
    let bytes = world.backing.bytes();
    let source = *identity(BACKING).source();
    cache.set_size(&source, Some(LIMIT * LINE));
    while_it_is_copied(&world, &cache, |answer| {
        assert!(answer == bytes);
        let usage = cache.usage(&source);
        assert!(
            usage.lines >= LIMIT && usage.lines_max <= LIMIT + SHARDS,
            "{usage:?}"
        );
        // All that the cache may have of the source is being copied, so this one finds room for nothing.
        let mut again = vec![0; bytes.len()];
        cache.read(&mut again, 0, 0).expect("the backing works");
        assert!(again == bytes);
        assert_eq!(
            cache.usage(&source),
            usage,
            "what is not cached neither enters nor leaves"
        );
    });
    assert_usage(&cache, "after the copies");
    let lines = cache.usage(&source).lines;
    assert!(lines >= LIMIT - SHARDS, "{lines}");
    assert_serves_backing(&cache, &bytes, 16_384, "after the copies");
    // The lines of a write are in use until the source has it.
    cache.set_size(&source, None);
    cache.set_size(&source, Some(LIMIT * LINE));
    cache.write(&bytes, 0, 0).expect("the backing works");
    let usage = cache.usage(&source);
    assert!(usage.lines_max <= LIMIT + SHARDS, "{usage:?}");
    assert_serves_backing(&cache, &bytes, 16_384, "after the write");
    assert_eq!(cache.counts().mismatches, 0);
}

#[test]
fn what_a_source_has_no_room_for_drives_nobody_else_out() {
    let world = world();
    let cache = world.open().engine;
    let source = *identity(BACKING).source();
    cache.set_size(&source, Some(LIMIT * LINE));
    let other = FileIdentity::new(*b"uuid of another.", &[1]).expect("it is short enough");
    let lines = cache.capacity_lines();
    let file = cache
        .engine
        .attach(
            other.clone(),
            MemoryStore::new(vec![7; (2 * lines * LINE) as usize]),
        )
        .expect("it works");
    file.read(&mut vec![0; (2 * lines * LINE) as usize], 0, 0)
        .expect("it works");
    assert_eq!(cache.usage(other.source()).lines, lines, "the cache is full");
    while_it_is_copied(&world, &cache, |_| {
        let seen = || {
            (
                cache.usage(&source),
                cache.usage(other.source()),
                cache.counts().evictions,
            )
        };
        let (of_source, of_other, evictions) = seen();
        assert_eq!(of_source.lines + of_other.lines, lines);
        cache
            .read(&mut vec![0; BYTES as usize], 0, 0)
            .expect("the backing works");
        assert_eq!(seen(), (of_source, of_other, evictions));
    });
}

#[test]
fn what_is_in_use_while_its_source_gets_less_of_the_cache_leaves_when_that_has_ended() {
    let mut world = world();
    // No change of the size waits for the SSD.
    world.options.pending_records = (BYTES / LINE) as usize;
    let cache = world.open().engine;
    let source = *identity(BACKING).source();
    while_it_is_copied(&world, &cache, |_| {
        assert!(cache.usage(&source).lines > LIMIT + SHARDS);
        cache.set_size(&source, Some(LIMIT * LINE));
    });
    assert_eq!(assert_usage(&cache, "after the copies").lines, LIMIT);
    assert_serves_backing(&cache, &world.backing.bytes(), 16_384, "after the copies");
    assert_eq!(cache.counts().mismatches, 0);
}

#[test]
fn neighbours_are_fetched_by_one_read_and_what_is_cached_between_them_parts_them() {
    let world = world();
    let cache = world.open().engine;
    let bytes = world.backing.bytes();
    let read = |offset: u64, len: u64| {
        world.backing.set_fault(Fault::None);
        let mut out = vec![0; len as usize];
        cache.read(&mut out, offset, 0).expect("the backing works");
        assert!(out == bytes[offset as usize..][..len as usize]);
        world.backing.operations()
    };
    assert_eq!(read(0, 8 * LINE), 1);
    assert_eq!(read(0, 8 * LINE), 0);
    // More lines than are held in memory at once.
    assert_eq!(read(8 * LINE, 10 * LINE), 2);
    assert_eq!(read(20 * LINE + UNIT, UNIT), 1);
    assert_eq!(read(19 * LINE, 4 * LINE), 2);
    // Where a part of a unit was asked for, the line is read by itself.
    assert_eq!(read(30 * LINE + 512, 3 * LINE), 3);
    assert_eq!(read(30 * LINE, 3 * LINE), 0);
    // At the end of the file there is less than a unit.
    assert!(cache.stop().expect("the backing works"));
    world.backing.resize((BYTES - 1024) as usize);
    let cache = world.open().engine;
    let mut out = vec![0; 3 * LINE as usize];
    world.backing.set_fault(Fault::None);
    let last = cache.file.read(&mut out, BYTES - 2 * LINE, 0);
    let len = last.expect("the backing works");
    assert_eq!(len as u64, 2 * LINE - 1024);
    assert!(out[..len] == bytes[bytes.len() - 2 * LINE as usize..][..len]);
    assert_eq!(world.backing.operations(), 1);
}
