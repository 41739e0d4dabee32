//! A thread panics while the SSD is used, as by an error of this program: all others go on, and what it began is ended.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;
use std::{io, ops::Range};

use bathy_cache::{
    AttachError, BlockStore, ColdReason, DetachError, LiveCache, LiveFile, PAUSE_MAX, Recovery, Stamp,
    inspect, open,
};

use crate::common::{
    BACKING, Cache, LINE, MemoryStore, Random, UNIT, World, assert_serves_backing, assert_usage, identity,
    passes_on,
};

const BYTES: u64 = 512 << 10;
/// Whoever takes longer than this hangs.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Read,
    Write,
    Flush,
    /// Looks at it, too.
    Stamp,
}

/// One operation, of reads and writes one on a range of it, panics.
struct Panicking {
    store: Arc<MemoryStore>,
    range: Range<u64>,
    op: Op,
    /// Operations until then; below 0 it is over.
    left: AtomicI64,
}

impl Panicking {
    /// It panics when it is told to: [`Panicking::after`].
    fn new(store: &Arc<MemoryStore>, range: Range<u64>, op: Op) -> Arc<Self> {
        Arc::new(Self {
            store: Arc::clone(store),
            range,
            op,
            left: AtomicI64::new(-1),
        })
    }

    /// After so many operations the next one panics.
    fn after(&self, operations: i64) {
        self.left.store(operations, Ordering::SeqCst);
    }

    /// Whether it did since.
    fn has_panicked(&self) -> bool {
        self.left.load(Ordering::SeqCst) < 0
    }

    fn perhaps(&self, op: Op, offset: u64) {
        let counts = op == self.op && self.range.contains(&offset);
        if counts && self.left.fetch_sub(1, Ordering::SeqCst) == 0 {
            // Without a word on the screen.
            resume_unwind(Box::new("on purpose"));
        }
    }
}

impl BlockStore for Panicking {
    passes_on!(size_bytes);

    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.perhaps(Op::Read, offset);
        self.store.read(buffer, offset)
    }

    fn write(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.store.write(data, offset)?;
        self.perhaps(Op::Write, offset);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.perhaps(Op::Flush, self.range.start);
        self.store.flush()
    }

    fn stamp(&self) -> io::Result<Stamp> {
        self.perhaps(Op::Stamp, self.range.start);
        self.store.stamp()
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
    let ssd = Panicking::new(&world.ssd, records, Op::Write);
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
    for (is_ssd, op) in [
        (true, Op::Write),
        (true, Op::Read),
        (false, Op::Write),
        (false, Op::Read),
    ] {
        let mut panics = 0;
        for after in 0.. {
            let world = World::new(BYTES, 20, 1);
            let range = from_records(&world);
            let ssd = Panicking::new(&world.ssd, range, op);
            let backing = Panicking::new(&world.backing, 0..BYTES, op);
            let opened = open(ssd.clone(), world.witness.clone(), &world.options).expect("it is a cache");
            let cache = Cache::new(opened.engine, backing.clone());
            if is_ssd { &ssd } else { &backing }.after(after);
            if !panics_once(&cache, after as u64) {
                break;
            }
            panics += 1;
            let context = format!("ssd {is_ssd}, {op:?}, after {after}");
            assert_all_has_ended(&cache, &world, &context);
            assert!(cache.stop().expect("the backing works"), "{context}");
            let opened = world.open();
            assert_eq!(opened.recovery, Recovery::Clean, "{context}");
            assert_serves_backing(&opened.engine, &world.backing.bytes(), 16_384, &context);
        }
        assert!(panics > 5, "ssd {is_ssd}, {op:?}: {panics} panics");
    }
}

#[test]
fn a_change_that_panics_leaves_no_mark_and_the_size_that_the_file_has() {
    let world = World::new(BYTES, 20, 1);
    let backing = Panicking::new(&world.backing, 0..u64::MAX, Op::Write);
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
    let ssd = Panicking::new(&world.ssd, from_records(&world), Op::Read);
    let opened = open(ssd.clone(), world.witness.clone(), &world.options).expect("it is a cache");
    let cache = Cache::new(opened.engine, world.backing.clone());
    ssd.after(0);
    assert!(catch_unwind(AssertUnwindSafe(|| cache.compare_next())).is_err());
    while cache.compare_next().is_some() {}
    assert_eq!(cache.uncompared_bytes(), 0);
    assert_all_has_ended(&cache, &world, "after the panic");
}

#[test]
fn a_flush_of_the_ssd_that_panics_is_one_that_failed() {
    let world = World::new(BYTES, 20, 1);
    let ssd = Panicking::new(&world.ssd, 0..1, Op::Flush);
    let opened = open(ssd.clone(), world.witness.clone(), &world.options).expect("it is a cache");
    let cache = Cache::new(opened.engine, world.backing.clone());
    ssd.after(0);
    let mut line = [7; LINE as usize];
    // The flush of its mark.
    assert!(catch_unwind(AssertUnwindSafe(|| cache.write(&line, 0, 0))).is_err());
    cache.write(&line, 0, 1).expect("the backing works");
    assert!(
        cache.is_bypassed(),
        "the next flush would succeed, and may have lost what was before it"
    );
    cache.read(&mut line, 0, 2).expect("the backing works");
    assert_eq!(line, [7; LINE as usize]);
    assert!(!cache.stop().expect("the backing works"));
    let cold = Recovery::Cold(ColdReason::Generation);
    assert_eq!(world.open().recovery, cold);
}

#[test]
fn a_thread_of_the_ssd_that_panics_ends_its_use_and_keeps_nobody_waiting() {
    for op in [Op::Read, Op::Write, Op::Flush] {
        let mut world = World::new(BYTES, 20, 1);
        world.options.ssd_deadline = Some(PATIENCE);
        world.options.ssd_write_deadline = Some(PATIENCE);
        let ssd = Panicking::new(&world.ssd, 0..u64::MAX, op);
        let opened = open(ssd.clone(), world.witness.clone(), &world.options).expect("it is a cache");
        let cache = Arc::new(Cache::new(opened.engine, world.backing.clone()));
        assert!(!panics_once(&cache, 1));
        ssd.after(0);
        let (done, ended) = mpsc::channel();
        for seed in 0..3 {
            let (cache, done) = (Arc::clone(&cache), done.clone());
            thread::spawn(move || {
                let panicked = panics_once(&cache, seed);
                cache.tidy();
                cache.tidy();
                done.send(panicked)
            });
        }
        for _ in 0..3 {
            assert_eq!(ended.recv_timeout(PATIENCE / 2), Ok(false), "{op:?}");
        }
        assert!(ssd.has_panicked() && cache.is_bypassed(), "{op:?}");
        let problem = cache.ssd_problem().unwrap_or_default();
        assert!(problem.contains("panicked"), "{op:?}: {problem}");
        assert!(!cache.stop().expect("the backing works"));
        assert_eq!(
            world.open().recovery,
            Recovery::Cold(ColdReason::Generation),
            "{op:?}"
        );
    }
}

#[test]
fn a_file_whose_change_panicked_comes_to_rest() {
    let world = World::new(BYTES, 20, 1);
    let cache = world.open().engine;
    let users = Arc::strong_count(&world.backing);
    cache.write(&[7; LINE as usize], 0, 0).expect("the backing works");
    let panics = || -> io::Result<()> { resume_unwind(Box::new("on purpose")) };
    assert!(catch_unwind(AssertUnwindSafe(|| cache.file.discard(0..UNIT, panics))).is_err());
    let engine = Arc::clone(&cache.engine);
    drop(cache);
    for _ in 0..3 {
        engine.tidy();
    }
    assert!(
        Arc::strong_count(&world.backing) < users,
        "it is kept open for ever"
    );
}

#[test]
fn a_file_that_makes_tidying_panic_costs_its_source_alone() {
    let world = World::new(BYTES, 20, 1);
    let engine = world.open().engine.engine;
    let broken = Panicking::new(&MemoryStore::new(vec![5; LINE as usize]), 0..1, Op::Flush);
    let source = *b"the broken one's";
    let of_broken = bathy_cache::FileIdentity::new(source, &[1]).expect("a handle");
    let file = engine.attach(of_broken, broken.clone()).expect("it works");
    let cache = Cache::new(engine, world.backing.clone());
    file.write(&[6; UNIT as usize], 0, 0).expect("it works");
    cache.write(&[7; UNIT as usize], 0, 1).expect("the backing works");
    broken.after(0);
    // At the latest when both files are at rest.
    let panics = || catch_unwind(AssertUnwindSafe(|| cache.tidy_source(&source))).is_err();
    assert!((0..3).any(|_| panics()) && cache.tidy_shared());
    cache.distrust_source(&source).expect("the witness works");
    // It is not asked any more.
    broken.after(0);
    for _ in 0..3 {
        assert!(cache.tidy());
    }
    assert_eq!(cache.marked_regions(), 0);
    assert!(
        cache.stop().expect("the backing works"),
        "the stop is a clean one"
    );
    assert!(!broken.has_panicked());
    let opened = world.open();
    assert_eq!(opened.recovery, Recovery::Clean);
    assert_serves_backing(&opened.engine, &world.backing.bytes(), 16_384, "the next session");
}

/// What the file has, whoever serves it.
fn assert_is_served(file: &LiveFile, world: &World, byte: u8, context: &str) {
    file.write(&[byte; UNIT as usize], 0, 0)
        .expect("the backing works");
    let mut out = vec![0; BYTES as usize];
    file.read(&mut out, 0, 0).expect("the backing works");
    assert!(out == world.backing.bytes() && out[0] == byte, "{context}");
}

#[test]
fn a_switch_of_the_ssd_that_panics_half_way_leaves_the_files_without_it_and_the_next_one_works() {
    type Switch = fn(&LiveCache, Arc<dyn BlockStore>) -> Result<(), AttachError>;
    let switches: [(&str, Switch); 3] = [
        ("detach", |cache, _| Ok(cache.detach_ssd(PAUSE_MAX).map(drop)?)),
        ("attach", |cache, ssd| {
            cache.detach_ssd(PAUSE_MAX)?;
            cache.attach_ssd(ssd).map(drop)
        }),
        ("resize", |cache, _| cache.resize((1 << 20) + 12 * LINE).map(drop)),
    ];
    for (name, switch) in switches {
        for (is_ssd, op) in [
            (true, Op::Write),
            (true, Op::Flush),
            (true, Op::Read),
            (false, Op::Stamp),
            (false, Op::Flush),
        ] {
            let mut half_way = 0;
            for after in 0.. {
                let context = format!("{name}, ssd {is_ssd}, {op:?} {after}");
                let world = World::new(BYTES, 20, 1);
                let ssd = Panicking::new(&world.ssd, 0..u64::MAX, op);
                let backing = Panicking::new(&world.backing, 0..1, op);
                let opened = open(ssd.clone(), world.witness.clone(), &world.options).expect("it is a cache");
                let cache = LiveCache::new(
                    Some((opened.engine, ssd.clone())),
                    world.witness.clone(),
                    world.options,
                );
                let file = cache
                    .attach(identity(BACKING), backing.clone(), false)
                    .expect("the backing works");
                let mut out = vec![0; BYTES as usize];
                file.read(&mut out, 0, 0).expect("the backing works");
                file.write(&[1; UNIT as usize], 0, 0).expect("the backing works");
                let armed = if is_ssd { &ssd } else { &backing };
                armed.after(after);
                let switched = catch_unwind(AssertUnwindSafe(|| switch(&cache, ssd.clone())));
                let has_panicked = armed.has_panicked();
                armed.after(-1);
                if let Ok(Err(AttachError::Detach(DetachError::Panicked))) = switched {
                    assert!(!cache.has_ssd(), "{context}");
                    half_way += 1;
                }
                assert_is_served(&file, &world, 2, &context);
                if !has_panicked {
                    switched.expect("no panic").expect("it works");
                    break;
                }
                cache.attach_ssd(ssd.clone()).expect("it works now");
                assert_is_served(&file, &world, 3, &context);
                drop(file);
                // As if the power failed.
                drop(cache);
                let found = world.open();
                assert_serves_backing(&found.engine, &world.backing.bytes(), 16_384, &context);
            }
            // What can be made durable is, before requests wait.
            let may_be_none = !is_ssd && (name != "detach" || op == Op::Flush) || op == Op::Read;
            assert!(
                half_way > 0 || may_be_none,
                "{name}, ssd {is_ssd}, {op:?}: nothing panicked half way"
            );
        }
    }
}
