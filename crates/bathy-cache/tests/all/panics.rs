//! A thread panics while the SSD is used, as by an error of this program: all others go on, and what it began is ended.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;
use std::{io, ops::Range};

use bathy_cache::{BlockStore, Recovery, Stamp, inspect, open};

use crate::common::{Cache, LINE, MemoryStore, Random, UNIT, World, assert_serves_backing, assert_usage};

const BYTES: u64 = 512 << 10;
/// Whoever takes longer than this hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// One operation on a range of it panics.
struct Panicking {
    store: Arc<MemoryStore>,
    range: Range<u64>,
    is_of_writes: bool,
    /// Operations until then; below 0 it is over.
    left: AtomicI64,
}

impl Panicking {
    /// It panics when it is told to: [`Panicking::after`].
    fn new(store: &Arc<MemoryStore>, range: Range<u64>, is_of_writes: bool) -> Arc<Self> {
        Arc::new(Self {
            store: Arc::clone(store),
            range,
            is_of_writes,
            left: AtomicI64::new(-1),
        })
    }

    /// After so many operations the next one panics.
    fn after(&self, operations: i64) {
        self.left.store(operations, Ordering::SeqCst);
    }

    fn perhaps(&self, is_write: bool, offset: u64) {
        let counts = is_write == self.is_of_writes && self.range.contains(&offset);
        if counts && self.left.fetch_sub(1, Ordering::SeqCst) == 0 {
            // Without a word on the screen.
            resume_unwind(Box::new("on purpose"));
        }
    }
}

impl BlockStore for Panicking {
    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.perhaps(false, offset);
        self.store.read(buffer, offset)
    }

    fn write(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.store.write(data, offset)?;
        self.perhaps(true, offset);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.store.flush()
    }

    fn stamp(&self) -> io::Result<Stamp> {
        self.store.stamp()
    }

    fn size_bytes(&self) -> io::Result<u64> {
        self.store.size_bytes()
    }
}

/// Where the records of lines begin on the SSD of a world, and all behind them.
fn from_records(world: &World) -> Range<u64> {
    let found = inspect(world.ssd.clone()).expect("it is a cache");
    found.geometry.layout().table(0, 0)..u64::MAX
}

#[test]
fn a_panic_while_records_are_written_keeps_nobody_waiting() {
    let world = World::new(BYTES, 20, 1);
    let found = inspect(world.ssd.clone()).expect("it is a cache");
    let records = from_records(&world).start..found.geometry.layout().data(0, 0);
    let ssd = Panicking::new(&world.ssd, records, true);
    let opened = open(ssd.clone(), world.witness.clone(), &world.options).expect("it is a cache");
    let cache = Arc::new(Cache::new(opened.engine, world.backing.clone()));
    ssd.after(0);
    let mut panics = 0;
    for number in 0..200 {
        let offset = number * 7 % (BYTES / UNIT) * UNIT;
        let mut out = [0; UNIT as usize];
        let read = catch_unwind(AssertUnwindSafe(|| cache.read(&mut out, offset, number)));
        panics += usize::from(read.is_err());
        cache.write(&out, offset, number).expect("the backing works");
    }
    assert_eq!(panics, 1, "the records are written by a reader");
    let ((done, ended), bytes) = (mpsc::channel(), world.backing.bytes());
    thread::spawn(move || {
        assert_serves_backing(&cache, &bytes, 16_384, "after the panic");
        while cache.marked_regions() > 0 {
            cache.tidy();
        }
        done.send(cache.stop().expect("the backing works"))
    });
    let is_clean = ended.recv_timeout(PATIENCE);
    assert_eq!(
        is_clean,
        Ok(true),
        "somebody waits for a block that nobody writes"
    );
    let opened = world.open();
    assert_eq!(opened.recovery, Recovery::Clean);
    assert_serves_backing(&opened.engine, &world.backing.bytes(), 16_384, "the next session");
}

/// Reads and writes, of which one may panic. Whether it did.
fn panics_once(cache: &Cache, seed: u64) -> bool {
    let mut random = Random(seed);
    let (mut offset, mut panics) = (0, 0);
    for number in 0..150 {
        // Some come again at once, for which a line moves from memory to the SSD.
        if random.chance(0.5) {
            offset = random.below(BYTES / 512) * 512;
        }
        let mut bytes = vec![0; (1 + random.below(3 * UNIT)).min(BYTES - offset) as usize];
        random.fill(&mut bytes);
        let is_write = random.chance(0.5);
        let done = catch_unwind(AssertUnwindSafe(|| {
            if is_write {
                cache.write(&bytes, offset, number)
            } else {
                cache.read(&mut bytes, offset, number)
            }
        }));
        match done {
            Ok(done) => done.expect("the backing works"),
            Err(_) => panics += 1,
        }
    }
    assert!(panics <= 1);
    panics > 0
}

/// Nothing is under way, whatever was begun before.
fn assert_all_has_ended(cache: &Cache, world: &World, context: &str) {
    assert_serves_backing(cache, &world.backing.bytes(), 16_384, context);
    for _ in 0..3 {
        cache.tidy();
    }
    assert_eq!(cache.marked_regions(), 0, "{context}: a write is under way");
    assert_usage(cache, context);
    let mut line = [0; LINE as usize];
    for offset in (0..BYTES).step_by(LINE as usize) {
        cache.read(&mut line, offset, 0).expect("the backing works");
        let holds = cache.file.holds(offset, line.len());
        assert!(
            holds,
            "{context}: something is under way with the line at {offset}"
        );
    }
    cache.file.discard(0..BYTES, || Ok(())).expect("nothing fails");
    assert_eq!(cache.lines(), (0, 0), "{context}: a line is kept in its slot");
    assert_usage(cache, context);
}

#[test]
fn what_a_thread_began_that_panics_is_ended() {
    for (is_ssd, is_of_writes) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut panics = 0;
        for after in 0.. {
            let world = World::new(BYTES, 20, 1);
            let range = from_records(&world);
            let ssd = Panicking::new(&world.ssd, range, is_of_writes);
            let backing = Panicking::new(&world.backing, 0..BYTES, is_of_writes);
            let opened = open(ssd.clone(), world.witness.clone(), &world.options).expect("it is a cache");
            let cache = Cache::new(opened.engine, backing.clone());
            if is_ssd { &ssd } else { &backing }.after(after);
            if !panics_once(&cache, after as u64) {
                break;
            }
            panics += 1;
            let context = format!("ssd {is_ssd}, writes {is_of_writes}, after {after}");
            assert_all_has_ended(&cache, &world, &context);
            assert!(cache.stop().expect("the backing works"), "{context}");
            let opened = world.open();
            assert_eq!(opened.recovery, Recovery::Clean, "{context}");
            assert_serves_backing(&opened.engine, &world.backing.bytes(), 16_384, &context);
        }
        assert!(panics > 5, "ssd {is_ssd}, writes {is_of_writes}: {panics} panics");
    }
}

#[test]
fn a_change_that_panics_leaves_no_mark_and_the_size_that_the_file_has() {
    let world = World::new(BYTES, 20, 1);
    let backing = Panicking::new(&world.backing, 0..u64::MAX, true);
    let opened = open(world.ssd.clone(), world.witness.clone(), &world.options).expect("it is a cache");
    let cache = Cache::new(opened.engine, backing.clone());
    let mut line = [0; LINE as usize];
    cache.read(&mut line, 0, 0).expect("the backing works");
    let panics = || -> io::Result<()> { resume_unwind(Box::new("on purpose")) };
    let cut = || {
        world.backing.resize(BYTES as usize / 2);
        panics()
    };
    assert!(catch_unwind(AssertUnwindSafe(|| cache.file.discard(0..UNIT, panics))).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| cache.file.resize(BYTES / 2, cut))).is_err());
    assert_eq!(cache.file.size_bytes(), BYTES / 2);
    world.backing.resize(BYTES as usize);
    cache.file.resize(BYTES, || Ok(())).expect("nothing fails");
    backing.after(0);
    let growing = catch_unwind(AssertUnwindSafe(|| cache.write(&[7; 512], BYTES, 0)));
    assert!(growing.is_err());
    assert_eq!(cache.file.size_bytes(), BYTES + 512);
    world.backing.resize(BYTES as usize);
    cache.file.resize(BYTES, || Ok(())).expect("nothing fails");
    assert_all_has_ended(&cache, &world, "after the panics");
}

#[test]
fn a_comparison_that_panics_keeps_no_line() {
    let mut world = World::new(BYTES, 20, 1);
    let cache = world.open().engine;
    panics_once(&cache, 1);
    assert!(cache.stop().expect("the backing works"));
    drop(cache);
    world.backing.change_offline(0, 7);
    world.options.compared_bytes_min = 1;
    let ssd = Panicking::new(&world.ssd, from_records(&world), false);
    let opened = open(ssd.clone(), world.witness.clone(), &world.options).expect("it is a cache");
    let cache = Cache::new(opened.engine, world.backing.clone());
    ssd.after(0);
    assert!(catch_unwind(AssertUnwindSafe(|| cache.compare_next())).is_err());
    while cache.compare_next().is_some() {}
    assert_eq!(cache.uncompared_bytes(), 0);
    assert_all_has_ended(&cache, &world, "after the panic");
}
