//! Stores in memory that do what devices do: lose, reorder and tear what was not flushed, flip bits, and fail.

use std::collections::{BTreeSet, HashSet};
use std::io;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use bathy_cache::{
    BlockStore, CachedFile, CreateOptions, Engine, FileIdentity, GenerationStore, OpenError, Options,
    Recovery, Stamp, Usage, create, open,
};
use bathy_cache_model::{AdmissionOptions, LineSize, StreamCutoff};
use bathy_policy::{CachePolicy, PolicyKind};

pub(crate) const SECTOR: usize = 512;
const PAGE: usize = 4096;
pub(crate) const SSD: u8 = 0;
pub(crate) const BACKING: u8 = 1;

/// Runs of writes go past the cache, as by default, but much shorter ones.
pub(crate) const RUNS_GO_PAST: AdmissionOptions = AdmissionOptions {
    n_hit: None,
    stream_cutoff: Some(StreamCutoff {
        bytes: 8 << 10,
        is_of_writes: true,
    }),
    write_budget_bytes_per_day: None,
};

/// Numbers without a pattern, from a seed.
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    pub(crate) fn chance(&mut self, of: f64) -> bool {
        (self.below(1 << 32) as f64) < of * (1u64 << 32) as f64
    }

    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let number = self.next().to_le_bytes();
            chunk.copy_from_slice(&number[..chunk.len()]);
        }
    }
}

/// What happened to a store, in the order in which it happened to all stores of one world.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Write {
        store: u8,
        offset: u64,
        data: Vec<u8>,
    },
    /// A page of its page cache reached the store.
    WriteBack {
        store: u8,
        offset: u64,
        data: Vec<u8>,
    },
    /// The store got another size: what is new reads as zeros.
    Resize {
        store: u8,
        size: usize,
    },
    Flush {
        store: u8,
    },
    /// What was not flushed is lost.
    Loss {
        store: u8,
    },
    /// The witness has this generation, at once and durably.
    Witness(u64),
}

impl Event {
    /// The number of the store that it happened to, or the new generation of the witness.
    pub(crate) fn store(&self) -> Result<u8, u64> {
        match *self {
            Self::Write { store, .. }
            | Self::WriteBack { store, .. }
            | Self::Resize { store, .. }
            | Self::Flush { store }
            | Self::Loss { store } => Ok(store),
            Self::Witness(generation) => Err(generation),
        }
    }
}

/// The events of all stores of a test.
pub(crate) type Log = Arc<Mutex<Vec<Event>>>;

/// Which operations of a store fail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fault {
    #[default]
    None,
    /// The n-th from now on, counted from 0, and a write leaves half of its sectors changed.
    Nth(u64),
    /// The n-th and all after it.
    From(u64),
    /// The n-th does not end, and no one after it, until [`MemoryStore::release`]; then all do what they were to do.
    Hang(u64),
    /// The flushes.
    Flushes,
    /// The next flush alone: who asks again hears nothing of it.
    NextFlush,
    /// The n-th flush alone, and what was written since the one before it is lost, as by a device that lost its volatile
    /// cache. Flushes are to be kept: [`MemoryStore::flushed`].
    LosingFlush(u64),
}

#[derive(Default)]
struct Inner {
    /// As who reads them finds them.
    bytes: Vec<u8>,
    /// Pages that were written to and have not reached the store.
    dirty: BTreeSet<usize>,
    modified: u64,
    operations: u64,
    fault: Fault,
    yields: bool,
    /// It has one size, and no times.
    is_device: bool,
    /// Its bytes at the last flush, if they are kept.
    flushed: Option<Vec<u8>>,
    log: Option<(u8, Log)>,
}

/// A store in memory.
#[derive(Default)]
pub(crate) struct MemoryStore(Mutex<Inner>, Hang);

/// Operations that do not end until they are let go.
#[derive(Default)]
struct Hang {
    /// How many are under way, the hanging ones included.
    under_way: Mutex<u64>,
    ended: Condvar,
}

impl MemoryStore {
    pub(crate) fn new(bytes: Vec<u8>) -> Arc<Self> {
        let inner = Inner {
            bytes,
            ..Inner::default()
        };
        Arc::new(Self(Mutex::new(inner), Hang::default()))
    }

    /// A copy of a store that was written to so often.
    pub(crate) fn with_modified(bytes: Vec<u8>, modified: u64) -> Arc<Self> {
        let store = Self::new(bytes);
        store.inner().modified = modified;
        store
    }

    pub(crate) fn modified(&self) -> u64 {
        self.inner().modified
    }

    /// One that cannot grow and has no times.
    pub(crate) fn device(bytes: Vec<u8>) -> Arc<Self> {
        let store = Self::new(bytes);
        store.inner().is_device = true;
        store
    }

    /// Cut or made longer.
    pub(crate) fn resize(&self, size: usize) {
        let mut inner = self.inner();
        inner.bytes.resize(size, 0);
        inner.dirty.retain(|page| page * PAGE < size);
        inner.modified += 1;
        if let Some((store, log)) = &inner.log {
            let store = *store;
            log.lock().expect("no panic").push(Event::Resize { store, size });
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().expect("no test thread panicked")
    }

    /// Its writes and flushes are recorded from now on.
    pub(crate) fn record(&self, number: u8, log: &Log) {
        let mut inner = self.inner();
        inner.log = Some((number, Arc::clone(log)));
        // What was written before counts as durable.
        inner.dirty.clear();
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.inner().bytes.clone()
    }

    pub(crate) fn flip(&self, bit: u64) {
        self.inner().bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
    }

    /// Changed without a cache.
    pub(crate) fn change_offline(&self, offset: usize, byte: u8) {
        let mut inner = self.inner();
        inner.bytes[offset] = byte;
        inner.modified += 1;
    }

    /// What a power cut leaves that takes all that was not flushed. Flushes are kept from the first call on.
    pub(crate) fn flushed(&self) -> Vec<u8> {
        let mut inner = self.inner();
        let bytes = inner.bytes.clone();
        inner.flushed.get_or_insert(bytes).clone()
    }

    /// From now on other threads come in between a request and its effect, and between that and the reply.
    pub(crate) fn set_yields(&self) {
        self.inner().yields = true;
    }

    /// Ends a hang, and waits until what hung is done.
    pub(crate) fn release(&self) {
        let under_way = self.1.under_way.lock().expect("no panic");
        // While nobody is between his look at the fault and his wait.
        self.set_fault(Fault::None);
        self.1.ended.notify_all();
        drop(self.1.ended.wait_while(under_way, |count| *count > 0));
    }

    fn hangs_now(&self) -> bool {
        let mut inner = self.inner();
        let Fault::Hang(first) = inner.fault else {
            return false;
        };
        inner.operations += 1;
        inner.operations > first
    }

    /// Does an operation, perhaps not before it is let go.
    fn when_let_go<T>(&self, operation: impl FnOnce() -> T) -> T {
        let mut under_way = self.1.under_way.lock().expect("no panic");
        *under_way += 1;
        if self.hangs_now() {
            let hangs = |_: &mut u64| matches!(self.inner().fault, Fault::Hang(_));
            under_way = self.1.ended.wait_while(under_way, hangs).expect("no panic");
        }
        drop(under_way);
        let result = operation();
        *self.1.under_way.lock().expect("no panic") -= 1;
        self.1.ended.notify_all();
        result
    }

    fn give_way(&self) {
        let yields = self.inner().yields;
        if yields {
            std::thread::yield_now();
        }
    }

    /// From now on these operations fail.
    pub(crate) fn set_fault(&self, fault: Fault) {
        let mut inner = self.inner();
        inner.fault = fault;
        inner.operations = 0;
    }

    /// Operations since [`MemoryStore::set_fault`].
    pub(crate) fn operations(&self) -> u64 {
        self.inner().operations
    }
}

impl Inner {
    fn fails(&mut self) -> bool {
        let number = self.operations;
        self.operations += 1;
        match self.fault {
            Fault::None | Fault::Hang(_) | Fault::Flushes | Fault::NextFlush | Fault::LosingFlush(_) => false,
            Fault::Nth(failing) => number == failing,
            Fault::From(first) => number >= first,
        }
    }
}

impl Inner {
    fn log(&self, event: impl FnOnce(u8) -> Event) {
        if let Some((store, log)) = &self.log {
            log.lock().expect("no panic").push(event(*store));
        }
    }

    /// Pages reach the store, each as it is now.
    fn write_back(&mut self, pages: impl Iterator<Item = usize>) {
        for page in pages {
            let place = page * PAGE..self.bytes.len().min((page + 1) * PAGE);
            if self.dirty.remove(&page) && !place.is_empty() {
                self.log(|store| Event::WriteBack {
                    store,
                    offset: place.start as u64,
                    data: self.bytes[place].to_vec(),
                });
            }
        }
    }
}

fn eio() -> io::Error {
    io::Error::from_raw_os_error(5)
}

impl MemoryStore {
    fn read_now(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let mut inner = self.inner();
        if inner.fails() {
            // What is in the buffer then is nobody's business.
            buffer.fill(0xee);
            return Err(eio());
        }
        let bytes = inner
            .bytes
            .get(offset as usize..offset as usize + buffer.len())
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(bytes);
        Ok(())
    }

    fn write_now(&self, data: &[u8], offset: u64, is_buffered: bool) -> io::Result<()> {
        let mut inner = self.inner();
        let fails = inner.fails();
        let start = offset as usize;
        if inner.is_device && start + data.len() > inner.bytes.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let written = if fails {
            data.len() / 2 / SECTOR * SECTOR
        } else {
            data.len()
        };
        let pages = start / PAGE..(start + written).div_ceil(PAGE);
        if !is_buffered {
            inner.write_back(pages.clone());
        }
        let end = inner.bytes.len().max(start + written);
        inner.bytes.resize(end, 0);
        inner.bytes[start..start + written].copy_from_slice(&data[..written]);
        inner.modified += 1;
        let data = if is_buffered { &[] } else { &data[..written] };
        inner.log(|store| Event::Write {
            store,
            // The time alone is another one.
            offset: if is_buffered { 0 } else { offset },
            data: data.to_vec(),
        });
        if is_buffered {
            inner.dirty.extend(pages);
            // The system writes some back whenever it likes.
            let first = inner.dirty.first().copied();
            inner.write_back(
                first
                    .into_iter()
                    .filter(|page| (page + written / SECTOR) % 3 == 0),
            );
        }
        if fails { Err(eio()) } else { Ok(()) }
    }
}

impl BlockStore for MemoryStore {
    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.when_let_go(|| self.read_now(buffer, offset))?;
        self.give_way();
        Ok(())
    }

    fn write(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.give_way();
        self.when_let_go(|| self.write_now(data, offset, false))?;
        self.give_way();
        Ok(())
    }

    fn write_some_buffered(&self, data: &[u8], offset: u64) -> io::Result<usize> {
        self.give_way();
        self.when_let_go(|| self.write_now(data, offset, true))?;
        self.give_way();
        Ok(data.len())
    }

    fn flush(&self) -> io::Result<()> {
        self.when_let_go(|| self.flush_now())
    }

    fn size_bytes(&self) -> io::Result<u64> {
        Ok(self.inner().bytes.len() as u64)
    }

    fn name(&self) -> String {
        "nvme-of-a-test".to_owned()
    }

    fn stamp(&self) -> io::Result<Stamp> {
        self.flush()?;
        self.look()
    }

    fn look(&self) -> io::Result<Stamp> {
        let inner = self.inner();
        // 0 is the time of a device.
        let time_ns = if inner.is_device { 0 } else { inner.modified + 1 };
        Ok(Stamp {
            size_bytes: inner.bytes.len() as u64,
            id: 77,
            modified_ns: time_ns,
            changed_ns: time_ns,
        })
    }
}

/// Operations of a store that are those of the one in its field `store`.
macro_rules! passes_on {
    ($($operation:ident),+) => { $(crate::common::passes_on!(@ $operation);)+ };
    (@ read) => {
        fn read(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<()> {
            self.store.read(buffer, offset)
        }
    };
    (@ write) => {
        fn write(&self, data: &[u8], offset: u64) -> std::io::Result<()> {
            self.store.write(data, offset)
        }
    };
    (@ flush) => {
        fn flush(&self) -> std::io::Result<()> {
            self.store.flush()
        }
    };
    (@ stamp) => {
        fn stamp(&self) -> std::io::Result<bathy_cache::Stamp> {
            self.store.stamp()
        }
    };
    (@ look) => {
        fn look(&self) -> std::io::Result<bathy_cache::Stamp> {
            self.store.look()
        }
    };
    (@ size_bytes) => {
        fn size_bytes(&self) -> std::io::Result<u64> {
            self.store.size_bytes()
        }
    };
}
pub(crate) use passes_on;

impl MemoryStore {
    fn flush_now(&self) -> io::Result<()> {
        let mut inner = self.inner();
        if inner.fails() || inner.fault == Fault::Flushes {
            return Err(eio());
        }
        if inner.fault == Fault::NextFlush {
            inner.fault = Fault::None;
            return Err(eio());
        }
        if let Fault::LosingFlush(left) = inner.fault {
            inner.fault = left.checked_sub(1).map_or(Fault::None, Fault::LosingFlush);
            if left == 0 {
                inner.bytes = inner.flushed.clone().expect("flushes are kept");
                inner.dirty.clear();
                if let Some((store, log)) = &inner.log {
                    log.lock().expect("no panic").push(Event::Loss { store: *store });
                }
                return Err(eio());
            }
        }
        let dirty = inner.dirty.clone();
        inner.write_back(dirty.into_iter());
        let Inner { bytes, flushed, .. } = &mut *inner;
        if let Some(flushed) = flushed {
            flushed.clone_from(bytes);
        }
        if let Some((store, log)) = &inner.log {
            log.lock().expect("no panic").push(Event::Flush { store: *store });
        }
        Ok(())
    }
}

/// A witness in memory; 0 is none.
#[derive(Default)]
pub(crate) struct MemoryWitness {
    pub(crate) generation: AtomicU64,
    pub(crate) fails: std::sync::atomic::AtomicBool,
    pub(crate) log: Mutex<Option<Log>>,
}

impl GenerationStore for MemoryWitness {
    fn load(&self) -> Option<u64> {
        Some(self.generation.load(Ordering::SeqCst)).filter(|&generation| generation != 0)
    }

    fn store(&self, generation: u64) -> io::Result<()> {
        if self.fails.load(Ordering::SeqCst) {
            return Err(eio());
        }
        self.generation.store(generation, Ordering::SeqCst);
        if let Some(log) = &*self.log.lock().expect("no panic") {
            log.lock().expect("no panic").push(Event::Witness(generation));
        }
        Ok(())
    }
}

/// The three that a cache needs.
pub(crate) struct World {
    pub(crate) ssd: Arc<MemoryStore>,
    pub(crate) backing: Arc<MemoryStore>,
    pub(crate) witness: Arc<MemoryWitness>,
    pub(crate) options: Options,
    /// Bytes of a line.
    pub(crate) line: u64,
}

/// The line sizes that a cache can have.
pub(crate) const LINE_SIZES: [u64; 3] = [16_384, 65_536, 262_144];
/// The one of tests for which it is no matter: the more lines, the shorter they take.
pub(crate) const LINE: u64 = LINE_SIZES[0];
pub(crate) const UNIT: u64 = 4096;
pub(crate) const REGION: u64 = 65_536;

/// Bytes of the regions of a cache with such lines.
pub(crate) fn region_of(line: u64) -> u64 {
    line.max(REGION)
}

pub(crate) fn create_options(line: u64, shards: u32) -> CreateOptions {
    CreateOptions {
        line: LineSize::new(line).expect("a power of two"),
        shards,
        region_bytes: region_of(line),
        // Few, so that regions of several files share some. Of 64 bits the one of a whole file is that of its region 7, too.
        intent_bits: if line > LINE { 128 } else { 64 },
        ..CreateOptions::new(*b"uuid of a test..")
    }
}

impl World {
    /// A backing of random bytes and a new cache for about `lines` lines of it.
    pub(crate) fn new(backing_bytes: u64, lines: u64, shards: u32) -> Self {
        Self::running(CachePolicy::KINDS[0], LINE, backing_bytes, lines, shards)
    }

    /// One with a cache of this policy and line size.
    pub(crate) fn running(
        policy: PolicyKind,
        line: u64,
        backing_bytes: u64,
        lines: u64,
        shards: u32,
    ) -> Self {
        let mut backing = vec![0; backing_bytes as usize];
        Random(backing_bytes).fill(&mut backing);
        // Data begin at a MiB, when the areas before are as small as here.
        let world = Self {
            ssd: MemoryStore::device(vec![0xa5; ((1 << 20) + lines * line) as usize]),
            backing: MemoryStore::new(backing),
            witness: Arc::default(),
            line,
            options: Options {
                pending_records: 8,
                // Threads between a request and its store would take most of the time of the tests.
                ssd_deadline: None,
                ssd_write_deadline: None,
                // As the simulator, whatever the machine is busy with.
                is_backing_measured: false,
                ..Options::default()
            },
        };
        let ssd: Arc<dyn BlockStore> = world.ssd.clone();
        let options = CreateOptions {
            policy,
            ..create_options(line, shards)
        };
        create(ssd, &*world.witness, &options).expect("there is room for a cache");
        world
    }

    /// All that happens to the three from now on.
    pub(crate) fn record(&self) -> Log {
        let log = Log::default();
        self.ssd.record(SSD, &log);
        self.backing.record(BACKING, &log);
        *self.witness.log.lock().expect("no panic") = Some(Arc::clone(&log));
        log
    }

    pub(crate) fn open(&self) -> Opened {
        self.try_open().expect("it is a cache")
    }

    pub(crate) fn try_open(&self) -> Result<Opened, OpenError> {
        let opened = open(self.ssd.clone(), self.witness.clone(), &self.options)?;
        Ok(Opened {
            engine: Cache::new(opened.engine, self.backing.clone()),
            recovery: opened.recovery,
        })
    }
}

/// The file with this handle.
pub(crate) fn identity(handle: u8) -> FileIdentity {
    FileIdentity::new(*b"uuid of a source", &[handle]).expect("it is short enough")
}

/// A cache with one file in use.
pub(crate) struct Cache {
    pub(crate) file: CachedFile,
    pub(crate) engine: Arc<Engine>,
}

pub(crate) struct Opened {
    pub(crate) engine: Cache,
    pub(crate) recovery: Recovery,
}

impl Cache {
    pub(crate) fn new(engine: Arc<Engine>, backing: Arc<dyn BlockStore>) -> Self {
        let file = engine
            .attach(identity(BACKING), backing)
            .expect("the backing works");
        Self { file, engine }
    }

    pub(crate) fn read(&self, out: &mut [u8], offset: u64, time_ns: u64) -> io::Result<()> {
        let read = self.file.read(out, offset, time_ns)?;
        assert_eq!(read, out.len(), "the file does not end there");
        Ok(())
    }

    pub(crate) fn write(&self, data: &[u8], offset: u64, time_ns: u64) -> io::Result<()> {
        let written = self.file.write(data, offset, time_ns)?;
        assert_eq!(written, data.len(), "stores of tests write all or nothing");
        Ok(())
    }

    /// [`Cache::write`] by the page cache of the backing.
    pub(crate) fn write_buffered(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let written = self.file.write_buffered(data, offset, 0)?;
        assert_eq!(written, data.len(), "stores of tests write all or nothing");
        Ok(())
    }

    pub(crate) fn flush(&self) -> io::Result<()> {
        self.file.flush()
    }

    /// Requests that went past the cache because they belong to a long run.
    pub(crate) fn went_past(&self) -> u64 {
        let counts = self.engine.source_counts(identity(BACKING).source());
        counts.lock().expect("no panic").status().bypassed_by_stream
    }

    pub(crate) fn is_marked(&self, offset: u64) -> bool {
        self.file.is_marked(offset)
    }
}

impl Deref for Cache {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}

/// Reads all through the cache and compares it with the backing, in requests of `step` bytes.
pub(crate) fn assert_serves_backing(engine: &Cache, backing: &[u8], step: usize, context: &str) {
    let mut out = vec![0; step];
    for (number, expected) in backing.chunks(step).enumerate() {
        let out = &mut out[..expected.len()];
        engine
            .read(out, (number * step) as u64, 0)
            .unwrap_or_else(|error| panic!("{context}: {error}"));
        if out != expected {
            let at = number * step
                + out
                    .iter()
                    .zip(expected)
                    .position(|(one, other)| one != other)
                    .expect("differs");
            panic!("{context}: byte {at} is not what the backing has");
        }
    }
}

/// What is counted of the lines as they come and go is what a look at each of them finds. All have the source of [`identity`].
pub(crate) fn assert_usage(engine: &Engine, context: &str) -> Usage {
    let (mut lines, mut in_memory, mut bytes, mut files) = (0, 0, 0, HashSet::new());
    engine.for_each_line(&mut |line| {
        lines += 1;
        in_memory += u64::from(line.is_in_memory);
        bytes += u64::from(line.valid_units.count_ones()) * UNIT;
        files.insert(line.file);
    });
    let usage = engine.usage(identity(0).source());
    assert_eq!(
        (usage.lines, usage.cached_bytes, usage.files),
        (lines, bytes, files.len() as u64),
        "{context}"
    );
    assert_eq!(
        (engine.lines(), engine.cached_bytes()),
        ((lines, in_memory), bytes),
        "{context}"
    );
    assert!(
        usage.lines <= usage.lines_max && usage.lines_max <= engine.capacity_lines(),
        "{context}"
    );
    usage
}
