//! A full file table: who leaves it is the file whose lines are used least, not the next one in the order of slots.

use std::sync::Arc;

use bathy_cache::{CachedFile, Engine, FileIdentity, create, open};

use crate::common::{MemoryStore, Random, UNIT, World, assert_usage, create_options, identity};

/// The lines of a cache of 512 MiB with lines of 64 KiB; here they have a unit each.
const LINES: u64 = 8192;

fn engine() -> Arc<Engine> {
    let world = World::new(UNIT, 8, 1);
    // Beside its lines it has its tables.
    let ssd = MemoryStore::device(vec![0; (2 << 20) as usize + (LINES * UNIT) as usize]);
    let options = create_options(UNIT, 16);
    create(ssd.clone(), &*world.witness, &options).expect("there is room");
    let opened = open(ssd, world.witness.clone(), &world.options);
    opened.expect("it is a cache").engine
}

/// A file of so many bytes that has a number for a handle.
struct File {
    identity: FileIdentity,
    store: Arc<MemoryStore>,
}

impl File {
    fn new(number: u32, bytes: usize) -> Self {
        let mut content = vec![0; bytes];
        Random(u64::from(number)).fill(&mut content);
        Self {
            identity: FileIdentity::new(*identity(0).source(), &number.to_le_bytes()).expect("it is short"),
            store: MemoryStore::new(content),
        }
    }

    fn open(&self, engine: &Arc<Engine>) -> CachedFile {
        let attached = engine.attach(self.identity.clone(), self.store.clone());
        attached.expect("the backing works")
    }

    /// Opened, read in requests of a unit, and closed: how many of the requests the cache served.
    fn read(&self, engine: &Arc<Engine>, units: u64) -> u64 {
        let (file, bytes) = (self.open(engine), self.store.bytes());
        let before = engine.counts().reads.requests_hit;
        let mut out = vec![0; UNIT as usize];
        for unit in 0..units {
            let start = (unit * UNIT) as usize;
            let len = file.read(&mut out, unit * UNIT, 0).expect("the backing works");
            assert!(out[..len] == bytes[start..start + len]);
        }
        engine.counts().reads.requests_hit - before
    }

    /// Made by a write of all that it has, and closed.
    fn write(&self, engine: &Arc<Engine>) {
        let bytes = self.store.bytes();
        self.store.resize(0);
        self.open(engine).write(&bytes, 0, 0).expect("the backing works");
    }
}

#[test]
fn thousands_of_tiny_files_do_not_throw_out_a_hot_one_of_half_the_cache() {
    let engine = engine();
    let hot = File::new(0, (4096 * UNIT) as usize);
    hot.read(&engine, 4096);
    assert!(hot.read(&engine, 4096) > 4000, "it fits");
    let tiny: Vec<File> = (1..=3000).map(|number| File::new(number, 60)).collect();
    for file in &tiny {
        file.write(&engine);
        if file.identity.handle()[0] == 0 {
            // As a daemon does: files that were written to stay open until it is known that they are durable.
            engine.tidy();
            engine.tidy();
        }
    }
    let hits = hot.read(&engine, 4096);
    assert!(hits > 4000, "{hits} of 4096 lines of the hot file are left");
    let usage = assert_usage(&engine, "in the end");
    assert!(usage.lines > LINES * 9 / 16, "{usage:?}");
    // Who had to leave is counted.
    let counts = engine.counts();
    let (files, files_max) = engine.files();
    assert!(
        usage.files == files && files <= files_max,
        "{usage:?}, room for {files_max}"
    );
    assert_eq!(counts.evicted_files, 3001 - files);
    assert_eq!(counts.evicted_file_lines, counts.evicted_files, "a line each");
    assert_eq!(counts.files_without_room, 0);
    assert!(engine.stop().expect("the backing works"));
}

#[test]
fn tiny_files_that_are_read_again_stay_and_those_that_are_not_leave() {
    let engine = engine();
    let used: Vec<File> = (0..200).map(|number| File::new(number, 60)).collect();
    let mut hits = 0;
    for number in 0..6000 {
        // Each of them once in 200 files that come and never come back.
        let place = number as usize % used.len();
        hits += used[place].read(&engine, 1);
        File::new(10_000 + number, 60).read(&engine, 1);
    }
    assert!(hits > 6000 - 2 * 200, "{hits} of {} reads", 6000);
}

#[test]
fn a_file_that_is_open_never_leaves_and_one_without_lines_leaves_first() {
    let engine = engine();
    let (_, files_max) = engine.files();
    let open: Vec<_> = (0..files_max as u32 - 2)
        .map(|number| {
            let file = File::new(number, 60);
            let opened = file.open(&engine);
            (file, opened)
        })
        .collect();
    let kept = File::new(5000, 60);
    kept.read(&engine, 1);
    for number in 6000..6100 {
        // Nothing of it is cached: it is only opened.
        drop(File::new(number, 60).open(&engine));
        assert_eq!(kept.read(&engine, 1), 1, "after {number}");
    }
    // The last place is that of another open file: only `kept` can leave.
    let last = File::new(7000, 60);
    let _open = last.open(&engine);
    assert_eq!(engine.counts().files_without_room, 0);
    let _another = File::new(7001, 60).open(&engine);
    let _one_more = File::new(7002, 60).open(&engine);
    assert_eq!(engine.counts().files_without_room, 1);
    let mut out = [0; 60];
    for (file, opened) in &open {
        assert_eq!(opened.read(&mut out, 0, 0).expect("the backing works"), 60);
        assert!(out[..] == file.store.bytes()[..]);
    }
    assert_eq!(engine.usage(identity(0).source()).files, files_max - 2);
}
