//! What a cache takes of memory, counted as it is allocated, against what is planned for its size.
//!
//! The tests share one allocator, so they run one after the other.

#![allow(unsafe_code, reason = "an allocator cannot be written without it")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use bathy_cache::{
    BlockStore, CachedFile, CreateError, CreateOptions, Engine, ErrorBudget, FileIdentity, GenerationStore,
    LiveCache, Options, Stamp, create, inspect, open,
};
use bathy_cache_model::memory::THREAD_LINES_BYTES;
use bathy_cache_model::{LineSize, MemoryBudget, MemoryNeed};
use bathy_policy::PolicyKind;

/// Counts what is allocated, and the most that was.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

fn allocated(bytes: usize) {
    let now = NOW.fetch_add(bytes, Ordering::Relaxed) + bytes;
    MOST.fetch_max(now, Ordering::Relaxed);
}

// SAFETY: every call goes to the allocator of the system with the arguments it came with, and only numbers are counted beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        allocated(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        allocated(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static ALONE: Mutex<()> = Mutex::new(());

/// Counts what is allocated from now on, apart from what is there.
struct Counted {
    before: usize,
    _alone: MutexGuard<'static, ()>,
}

impl Counted {
    fn begin() -> Self {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let before = NOW.load(Ordering::Relaxed);
        MOST.store(before, Ordering::Relaxed);
        Self {
            before,
            _alone: alone,
        }
    }

    /// What is allocated now, and the most that was since it was asked last.
    fn again(&self) -> u64 {
        let now = NOW.load(Ordering::Relaxed);
        MOST.store(now, Ordering::Relaxed);
        (now - self.before) as u64
    }

    fn most(&self) -> u64 {
        (MOST.load(Ordering::Relaxed) - self.before) as u64
    }
}

/// An SSD of any size that keeps its first 8 MiB, where the tables of a small cache are; what is beyond is read as zeros.
struct LargeSsd {
    bytes: u64,
    kept: Mutex<Vec<u8>>,
    /// What each write takes.
    write: Duration,
    /// Nothing can be written from this byte on.
    fails_from: AtomicU64,
}

impl LargeSsd {
    fn new(bytes: u64, write: Duration) -> Arc<Self> {
        Arc::new(Self {
            bytes,
            kept: Mutex::new(vec![0; 8 << 20]),
            write,
            fails_from: AtomicU64::new(u64::MAX),
        })
    }
}

impl BlockStore for LargeSsd {
    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let kept = self.kept.lock().expect("no panic");
        let start = kept.len().min(offset as usize);
        let known = (kept.len() - start).min(buffer.len());
        buffer[..known].copy_from_slice(&kept[start..start + known]);
        buffer[known..].fill(0);
        Ok(())
    }

    fn write(&self, data: &[u8], offset: u64) -> io::Result<()> {
        thread::sleep(self.write);
        if offset >= self.fails_from.load(Ordering::Relaxed) {
            return Err(io::Error::other("on purpose"));
        }
        let mut kept = self.kept.lock().expect("no panic");
        let start = kept.len().min(offset as usize);
        let known = (kept.len() - start).min(data.len());
        kept[start..start + known].copy_from_slice(&data[..known]);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn stamp(&self) -> io::Result<Stamp> {
        Ok(Stamp {
            size_bytes: self.bytes,
            id: 7,
            modified_ns: 1,
            changed_ns: 1,
        })
    }

    fn size_bytes(&self) -> io::Result<u64> {
        Ok(self.bytes)
    }
}

#[derive(Default)]
struct InMemory(Mutex<Option<u64>>);

impl GenerationStore for InMemory {
    fn load(&self) -> Option<u64> {
        *self.0.lock().expect("no panic")
    }

    fn store(&self, generation: u64) -> io::Result<()> {
        *self.0.lock().expect("no panic") = Some(generation);
        Ok(())
    }
}

fn line(bytes: u64) -> LineSize {
    LineSize::new(bytes).expect("a power of two")
}

fn made(
    ssd: &Arc<LargeSsd>,
    line_bytes: u64,
    memory: MemoryBudget,
    size_bytes: Option<u64>,
) -> (Arc<InMemory>, Options) {
    let witness = Arc::<InMemory>::default();
    let new = CreateOptions {
        line: line(line_bytes),
        memory,
        size_bytes,
        ..CreateOptions::new(*b"0123456789abcdef")
    };
    create(ssd.clone(), &*witness, &new).expect("there is room");
    let options = Options {
        memory,
        ssd_deadline: None,
        ssd_write_deadline: None,
        ..Options::default()
    };
    (witness, options)
}

/// A source of a test.
const SOURCE: [u8; 16] = [1; 16];

/// What lies under the file of a test.
fn backing() -> Arc<LargeSsd> {
    LargeSsd::new(64 << 30, Duration::ZERO)
}

fn attached(engine: &Arc<Engine>, backing: Arc<LargeSsd>) -> CachedFile {
    let identity = FileIdentity::new(SOURCE, b"file").expect("it is short");
    engine.attach(identity, backing).expect("it works")
}

/// What does not grow with the cache: the least that it keeps of records, curves, latencies.
const FIXED_BYTES: u64 = 16 << 20;

/// The memory that a cache has by its size.
fn of_size(need: MemoryNeed) -> u64 {
    need.index_bytes + need.stage_bytes
}

#[test]
fn a_cache_takes_what_is_planned_and_no_more() {
    const MIB: u64 = 1 << 20;
    let with_64_kib = [(16, 4096), (64, 512), (256, 512)].map(|(gib, mib)| (gib, mib, 64));
    for (gib, budget_mib, kib) in with_64_kib.into_iter().chain([(64, 512, 16), (512, 512, 256)]) {
        let ssd = LargeSsd::new(gib << 30, Duration::ZERO);
        let memory = MemoryBudget::of(budget_mib * MIB);
        let (witness, options) = made(&ssd, kib << 10, memory, None);
        let counted = Counted::begin();
        let engine = open(ssd, witness, &options).expect("it is a cache").engine;
        let (need, budget) = engine.memory_need();
        let most = counted.most();
        eprintln!("{gib} GiB in lines of {kib} KiB: {need:?}, {most} allocated");
        assert_eq!(budget, memory);
        assert!(need.bytes() <= memory.bytes, "{need:?}");
        // Nothing is taken beyond the plan, and at least nine tenths of it are.
        assert!(most <= of_size(need) + FIXED_BYTES, "{gib} GiB: {need:?}, {most}");
        assert!(most >= of_size(need) / 10 * 9, "{gib} GiB: {need:?}, {most}");
        assert_eq!(engine.stage_bytes() as u64 >> 20, need.stage_bytes >> 20);
    }
}

#[test]
fn a_cache_beyond_its_budget_is_not_made_and_what_fits_is_said() {
    let ssd = LargeSsd::new(8 << 40, Duration::ZERO);
    let witness = InMemory::default();
    let new = CreateOptions::new(*b"0123456789abcdef");
    let refused = create(ssd.clone(), &witness, &new).expect_err("it needs 7 GiB");
    let CreateError::OverBudget(over) = refused else {
        panic!("{refused}");
    };
    assert!(over.need.bytes() > 7 << 30, "{over:?}");
    let fits = CreateOptions {
        size_bytes: Some(over.size_bytes_that_fits()),
        ..new
    };
    fits.check(8 << 40).expect("it says that it fits");
    let enough = CreateOptions {
        memory: over.budget_needed(),
        ..new
    };
    enough.check(8 << 40).expect("it says that it is enough");
}

#[test]
fn writes_that_come_faster_than_the_ssd_takes_them_stay_within_the_plan() {
    const THREADS: u64 = 8;
    let ssd = LargeSsd::new(1 << 30, Duration::from_millis(1));
    let memory = MemoryBudget::of(256 << 20);
    let (witness, options) = made(&ssd, 65_536, memory, None);
    let (backing, counted) = (backing(), Counted::begin());
    let engine = open(ssd, witness, &options).expect("it is a cache").engine;
    let ((need, _), file) = (engine.memory_need(), attached(&engine, backing));
    let data = vec![7; 256 << 10];
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (file, data) = (&file, &data);
            scope.spawn(move || {
                // Each line twice, so that it has earned its place on the SSD, which is written to for each of them.
                for number in 0..160 {
                    let place = thread * 160 + number / 2 * 2 % 160;
                    file.write(data, place * data.len() as u64, 0).expect("it works");
                }
            });
        }
    });
    let most = counted.most();
    let written = engine.counts().ssd_writes.data_bytes;
    eprintln!("{need:?}, {most} allocated, {written} bytes of lines written");
    assert!(
        written > need.stage_bytes,
        "it is a load that the stage does not take alone"
    );
    let buffers = THREADS * THREAD_LINES_BYTES;
    assert!(most <= of_size(need) + FIXED_BYTES + buffers, "{need:?}, {most}");
}

#[test]
fn threads_that_all_read_large_requests_stay_within_the_plan() {
    const THREADS: u64 = 48;
    const READ: u64 = 1 << 20;
    for kib in [16, 64, 256] {
        // Copies to the SSD take their time, for which a read that was answered has what it fetched.
        let ssd = LargeSsd::new(4 << 30, Duration::from_millis(5));
        let (witness, options) = made(&ssd, kib << 10, MemoryBudget::of(512 << 20), None);
        let (backing, counted) = (backing(), Counted::begin());
        let engine = open(ssd, witness, &options).expect("it is a cache").engine;
        let ((need, _), file) = (engine.memory_need(), attached(&engine, backing));
        let mut buffers: Vec<_> = (0..THREADS).map(|_| vec![0; READ as usize]).collect();
        thread::scope(|scope| {
            for (thread, out) in (0..).zip(&mut buffers) {
                let file = &file;
                scope.spawn(move || {
                    for number in 0..12 {
                        // Twice each, within lines and units, so that some are hits and others move to the SSD.
                        let place = (thread * 12 + number / 2) * 2 * READ + 512;
                        assert_eq!(file.read(out, place, 0).expect("it works"), out.len());
                    }
                });
            }
        });
        let most = counted.most() - THREADS * READ;
        eprintln!("lines of {kib} KiB: {need:?}, {most} allocated");
        let buffers = THREADS * THREAD_LINES_BYTES;
        assert!(most <= of_size(need) + FIXED_BYTES + buffers, "{need:?}, {most}");
    }
}

/// A cache that has so many lines on its SSD, whatever its errors.
fn with_lines(lines: u64) -> (Arc<LargeSsd>, Arc<Engine>, CachedFile) {
    let ssd = LargeSsd::new(4 << 30, Duration::ZERO);
    let witness = Arc::<InMemory>::default();
    let new = CreateOptions {
        // It has no stage: each line goes to the SSD at once.
        policy: PolicyKind::Lru,
        line: line(16_384),
        shards: 1,
        ..CreateOptions::new(*b"0123456789abcdef")
    };
    create(ssd.clone(), &*witness, &new).expect("there is room");
    let options = Options {
        ssd_deadline: None,
        ssd_write_deadline: None,
        error_budget: ErrorBudget {
            errors_max: f64::INFINITY,
            ..ErrorBudget::default()
        },
        ..Options::default()
    };
    let engine = open(ssd.clone(), witness, &options)
        .expect("it is a cache")
        .engine;
    let file = attached(&engine, backing());
    let data = vec![7; 4096];
    for number in 0..lines {
        file.write(&data, number * 16_384, 0).expect("it works");
    }
    assert_eq!(engine.lines().0, lines);
    (ssd, engine, file)
}

/// What the records of some lines take while they wait is more than this.
const LINES: u64 = 100_000;
const OF_RECORDS: u64 = 1 << 20;

#[test]
fn what_is_forgotten_after_the_ssd_was_given_up_takes_no_memory() {
    let counted = Counted::begin();
    let (ssd, engine, _file) = with_lines(LINES);
    ssd.fails_from.store(0, Ordering::Relaxed);
    engine.bypass().expect("the witness works");
    let before = counted.again();
    let said = engine.memory_bytes();
    engine.abandon_source(&SOURCE);
    assert_eq!(engine.lines().0, 0);
    let (most, errors) = (counted.most() - before, engine.counts().ssd_errors);
    eprintln!("{most} bytes more after {LINES} lines were forgotten, {errors} errors");
    // The keys of the lines of a shard.
    assert!(most < LINES * 8 * 2 + OF_RECORDS, "{most}");
    assert!(counted.again() < before + OF_RECORDS);
    assert!((engine.memory_bytes() as u64) < said as u64 + OF_RECORDS);
    assert_eq!(errors, 0, "nothing is written to an SSD that was given up");
}

#[test]
fn an_ssd_that_takes_no_records_is_given_up_before_they_take_much_memory() {
    let counted = Counted::begin();
    let (ssd, engine, file) = with_lines(LINES);
    let found = inspect(ssd.clone()).expect("it is a cache");
    ssd.fails_from
        .store(found.geometry.layout().table(0, 0), Ordering::Relaxed);
    let before = counted.again();
    // Each forgets a line whose record is on the SSD.
    for number in 0..LINES {
        file.discard(number * 16_384..(number + 1) * 16_384, || Ok(()))
            .expect("no error reaches the caller");
    }
    let most = counted.most() - before;
    eprintln!("{most} bytes more at most, {} errors", engine.counts().ssd_errors);
    assert!(most < OF_RECORDS, "{most}");
    assert!(engine.is_bypassed(), "its records were lost");
    assert!(!engine.tidy(), "nothing of it is believed");
}

#[test]
fn a_cache_that_gets_another_size_while_it_runs_is_not_there_twice() {
    let ssd = LargeSsd::new(64 << 30, Duration::ZERO);
    let memory = MemoryBudget::of(1 << 30);
    let (witness, options) = made(&ssd, 65_536, memory, Some(48 << 30));
    let counted = Counted::begin();
    let engine = open(ssd.clone(), witness.clone(), &options)
        .expect("it is a cache")
        .engine;
    let lines = |bytes: u64| bytes / line(65_536).bytes();
    let live = LiveCache::new(Some((engine, ssd)), witness, options);
    live.resize(64 << 30).expect("there is room");
    let need = memory.need(lines(64 << 30), line(65_536));
    let most = counted.most();
    eprintln!("{need:?}, {most} allocated");
    // Beside it: the table of the files of the one before, and what a start reads of a shard.
    assert!(most <= of_size(need) * 5 / 4 + FIXED_BYTES, "{need:?}, {most}");
    let over = live.resize(1 << 40);
    assert!(over.is_err(), "the SSD is smaller");
}
