//! The engine under schedules that `shuttle` chooses: at each lock, each atomic number of the engine and before and after each
//! operation of a store it decides which thread goes on. Half of the schedules are random, half those of PCT (Burckhardt et
//! al., ASPLOS'10), which finds an error that needs `d` switches at certain places with a known least probability.
//!
//! In each schedule a cache of three lines has a file of six, which two threads read and one writes, one cuts and
//! punches, while another makes, fills and removes a second file, one tidies, and the power fails somewhere. In some the cache
//! is stopped meanwhile. Afterwards
//! * each cell of 512 bytes has a history that is linearizable, lengths included,
//! * the cache serves what the backing has, what is counted of lines is what is there, and no copy was found damaged,
//! * so does one that is opened with what the power cut left of SSD and backing, and one that is opened after a stop.
//!
//! [`Mutant`] has the errors that this finds; `each_error_made_on_purpose_is_found` makes them one by one and prints after
//! how many schedules: a few to some hundred of the fixed seeds, but for `LengthAfterTheLines` and `MarksGoDuringAWrite`, which take
//! thousands and are for the long form alone; `tests/all/tidy.rs` has the second one at a place of its own.
//!
//! Not explored: the threads by which [`Guard`](crate::store::guard) leaves an SSD that hangs (the stores here answer, and have no
//! deadline), and `LiveCache`. Atomic numbers are sequentially consistent here, whatever order the engine asks for.

use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use bathy_cache_model::WriteMode;
use bathy_policy::{CachePolicy, Policy, PolicyKind};
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::{Config, Runner, thread};

use crate::format::Record;
use crate::mutant::{MADE, Mutant};
use crate::{Beginning, BlockStore, CachedFile, Engine, Options, Recovery, Stamp, open};

#[expect(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "the integration tests use all of it"
)]
#[path = "../../tests/all/common.rs"]
mod common;
#[expect(dead_code, reason = "the integration tests use all of it")]
#[path = "../../tests/all/history.rs"]
mod history;

use common::{BACKING, LINE, MemoryStore, MemoryWitness, REGION, UNIT, World, assert_usage, identity};
use history::{CELL, History, Operation, linearize};

/// Lines of the file, and of the cache.
const FILE_LINES: u64 = 6;
const CACHE_LINES: u64 = 3;
/// From here on the file is cut and grows; one thread alone does that and writes there.
const TAIL: u64 = (FILE_LINES - 1) * LINE;
const END: u64 = FILE_LINES * LINE;
/// What a cell beyond the end of the file holds.
const ABSENT: u64 = u64::MAX;
/// The second file.
const OTHER: u8 = 2;

/// Schedules of the short form; `BATHY_TORTURE_SCHEDULES` is the number of the long one.
const SCHEDULES: u64 = 600;
/// Schedules within which each error on purpose must be found.
const SCHEDULES_TO_FIND: u64 = 10_000;
const MODES: [WriteMode; 3] = [WriteMode::Allocate, WriteMode::Update, WriteMode::Invalidate];
/// A schedule of few threads needs few switches for any error that is known.
const PCT_DEPTH: usize = 4;
/// Schedules until the next seed.
const SCHEDULES_OF_A_SEED: u64 = 50;

/// A store whose operations begin and end at moments that the schedule chooses.
struct Stepped {
    store: Arc<MemoryStore>,
    steps: AtomicU64,
    /// How often the store had been changed when it was flushed last: what its times say after a power cut.
    flushed_modified: std::sync::atomic::AtomicU64,
}

impl Stepped {
    fn new(store: Arc<MemoryStore>) -> Arc<Self> {
        // Flushes are kept from here on.
        store.flushed();
        Arc::new(Self {
            flushed_modified: store.modified().into(),
            store,
            steps: AtomicU64::new(0),
        })
    }

    fn step(&self) {
        self.steps.load(Ordering::SeqCst);
    }

    fn stepped<T>(&self, operation: impl FnOnce() -> T) -> T {
        self.step();
        let result = operation();
        self.step();
        result
    }

    fn note_flush(&self) {
        self.flushed_modified
            .store(self.store.modified(), Ordering::SeqCst);
    }

    /// What a power cut leaves: all that was written, or only what was flushed.
    fn image(&self, is_flushed: bool) -> (Vec<u8>, u64) {
        if is_flushed {
            let modified = self.flushed_modified.load(Ordering::SeqCst);
            return (self.store.flushed(), modified);
        }
        (self.store.bytes(), self.store.modified())
    }
}

impl BlockStore for Stepped {
    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.stepped(|| self.store.read(buffer, offset))
    }

    fn write(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.stepped(|| self.store.write(data, offset))
    }

    fn flush(&self) -> io::Result<()> {
        self.stepped(|| {
            self.store.flush()?;
            self.note_flush();
            Ok(())
        })
    }

    fn stamp(&self) -> io::Result<Stamp> {
        self.stepped(|| {
            let stamp = self.store.stamp()?;
            self.note_flush();
            Ok(stamp)
        })
    }

    fn look(&self) -> io::Result<Stamp> {
        self.stepped(|| self.store.look())
    }

    fn size_bytes(&self) -> io::Result<u64> {
        self.stepped(|| self.store.size_bytes())
    }
}

/// What all threads of a schedule use.
struct Scene {
    engine: Arc<Engine>,
    ssd: Arc<Stepped>,
    backing: Arc<Stepped>,
    /// The file is empty at first, so it has no record before it is tidied.
    is_new: bool,
    world: World,
    clock: std::sync::atomic::AtomicU64,
}

/// What one thread did, and the first thing that it saw and that must not be.
#[derive(Default)]
struct Seen {
    history: History,
    wrong: Option<String>,
}

fn below(end: u64) -> u64 {
    thread_rng().gen_range(0..end)
}

fn cells(from: u64, to: u64) -> std::ops::Range<u64> {
    from / CELL as u64..to / CELL as u64
}

/// Whether the cache was stopped; any other error is one.
fn is_stopped<T>(result: &io::Result<T>) -> bool {
    matches!(result, Err(error) if error.kind() == io::ErrorKind::NotConnected)
}

impl Scene {
    fn new(mode: WriteMode) -> Self {
        // Made once: that has a deadline, by the clock of the machine.
        static CREATED: OnceLock<(Vec<u8>, u64)> = OnceLock::new();
        Self::of(&CREATED, CachePolicy::KINDS[0], mode)
    }

    /// One without lines in memory: all that is fetched goes to the SSD.
    fn without_memory(mode: WriteMode) -> Self {
        static CREATED: OnceLock<(Vec<u8>, u64)> = OnceLock::new();
        Self::of(&CREATED, PolicyKind::Lru, mode)
    }

    fn of(created: &OnceLock<(Vec<u8>, u64)>, policy: PolicyKind, mode: WriteMode) -> Self {
        let (ssd, generation) = created.get_or_init(|| {
            let world = World::running(policy, LINE, 0, CACHE_LINES, 1);
            (world.ssd.bytes(), world.witness.generation.load(Ordering::SeqCst))
        });
        let is_new = below(2) == 0;
        let world = World {
            ssd: MemoryStore::device(ssd.clone()),
            backing: MemoryStore::new(vec![0; if is_new { 0 } else { END as usize }]),
            witness: Arc::default(),
            line: LINE,
            options: Options {
                write_mode: mode,
                // Few wait, so that some are on the SSD when the power fails.
                pending_records: 2,
                ssd_deadline: None,
                ssd_write_deadline: None,
                ..Options::default()
            },
        };
        world.witness.generation.store(*generation, Ordering::SeqCst);
        let ssd = Stepped::new(Arc::clone(&world.ssd));
        let backing = Stepped::new(Arc::clone(&world.backing));
        let opened = open(ssd.clone(), world.witness.clone(), &world.options).expect("it is a cache");
        let mut engine = opened.engine;
        if below(2) == 0 {
            // Where files wait to be made durable, the first to come lets go of another.
            Arc::get_mut(&mut engine)
                .expect("nobody uses it yet")
                .unflushed_max = 0;
        }
        Self {
            engine,
            ssd,
            backing,
            is_new,
            world,
            clock: 0.into(),
        }
    }

    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn attach(&self) -> io::Result<CachedFile> {
        self.engine.attach(identity(BACKING), self.backing.clone())
    }

    /// A range of cells before `end`, mostly of the first two units, where threads meet.
    fn range(end: u64) -> (u64, u64) {
        let reach = if below(3) == 0 { end } else { 2 * UNIT };
        let first = below(reach / CELL as u64);
        // Up to two units, so that some are covered whole, and some requests touch two lines.
        let len = (1 + below(2 * UNIT / CELL as u64)) * CELL as u64;
        let start = if below(2) == 0 {
            first * CELL as u64
        } else {
            first * CELL as u64 / UNIT * UNIT
        };
        (start, end.min(start + len))
    }

    /// Reads somewhere. Whether the cache still runs.
    fn read(&self, file: &CachedFile, (start, end): (u64, u64), seen: &mut Seen) -> bool {
        let mut out = vec![0; (end - start) as usize];
        let began = self.now();
        let read = file.read(&mut out, start, 0);
        let ended = self.now();
        if is_stopped(&read) {
            return false;
        }
        let read = read.expect("the backing works");
        let found = out[..read].chunks_exact(CELL).map(|bytes| {
            let is_torn = bytes.chunks_exact(8).any(|word| *word != bytes[..8]);
            (
                u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes")),
                is_torn,
            )
        });
        let beyond = std::iter::repeat((ABSENT, false));
        for (cell, (value, is_torn)) in cells(start, end).zip(found.chain(beyond)) {
            if is_torn {
                seen.wrong = Some(format!("half of a write in cell {cell}"));
            }
            seen.history.entry(cell).or_default().push(Operation {
                began,
                ended,
                is_write: false,
                value,
            });
        }
        true
    }

    /// Changes cells of a range to values by `change`. Whether the cache still runs; else nothing has changed.
    fn change(
        &self,
        changed: impl Iterator<Item = (u64, u64)>,
        seen: &mut Seen,
        change: impl FnOnce() -> io::Result<()>,
    ) -> bool {
        let began = self.now();
        let result = change();
        let ended = self.now();
        if is_stopped(&result) {
            return false;
        }
        result.expect("the backing works");
        for (cell, value) in changed {
            seen.history.entry(cell).or_default().push(Operation {
                began,
                ended,
                is_write: true,
                value,
            });
        }
        true
    }

    /// Writes a value that nobody else writes.
    fn write(&self, file: &CachedFile, (start, end): (u64, u64), len: u64, seen: &mut Seen) -> bool {
        let value = self.now() << 8 | 1;
        let data: Vec<u8> = (0..(end - start) / 8).flat_map(|_| value.to_le_bytes()).collect();
        let gap = cells(len.min(start), start).map(|cell| (cell, 0));
        let written = cells(start, end).map(|cell| (cell, value));
        self.change(gap.chain(written), seen, || file.write(&data, start, 0).map(drop))
    }

    fn reader(&self) -> Seen {
        let mut seen = Seen::default();
        for _ in 0..2 {
            // Files are opened and closed meanwhile.
            let Ok(file) = self.attach() else { break };
            for _ in 0..3 {
                let range = match below(3) {
                    0 => (TAIL + below(3) * UNIT, END),
                    _ => Self::range(END),
                };
                if !self.read(&file, range, &mut seen) {
                    return seen;
                }
            }
        }
        seen
    }

    fn writer(&self) -> Seen {
        let mut seen = Seen::default();
        let Ok(file) = self.attach() else { return seen };
        for number in 0..4 {
            if number == 2 && below(2) == 0 {
                let _of_a_caller = file.flush();
            }
            if !self.write(&file, Self::range(TAIL), u64::MAX, &mut seen) {
                break;
            }
        }
        seen
    }

    /// Cuts the file and lets it grow, and punches holes.
    fn cutter(&self) -> Seen {
        let mut seen = Seen::default();
        let Ok(file) = self.attach() else { return seen };
        let mut len = END;
        for number in 0..5 {
            // First it is cut, so that writes make it longer.
            let runs = match if number == 0 { 3 } else { below(5) } {
                0 => {
                    let (start, end) = Self::range(TAIL);
                    let hole = || {
                        file.discard(start..end, || {
                            self.backing.write(&vec![0; (end - start) as usize], start)
                        })
                    };
                    self.change(cells(start, end).map(|cell| (cell, 0)), &mut seen, hole)
                }
                1 | 2 => {
                    let at_end = len < END && below(2) == 0;
                    let start = if at_end { len } else { TAIL + below(8) * UNIT / 2 };
                    let end = (start + UNIT + below(2) * CELL as u64).min(END);
                    let runs = self.write(&file, (start, end), len, &mut seen);
                    len = len.max(end);
                    runs
                }
                _ => {
                    let room = if number == 0 { UNIT } else { LINE };
                    let size = TAIL + below(room / CELL as u64 + 1) * CELL as u64;
                    let (shorter, longer) = (size.min(len), size.max(len));
                    let value = if size < len { ABSENT } else { 0 };
                    let changed = cells(shorter, longer).map(|cell| (cell, value));
                    let resize = || self.backing.stepped(|| self.world.backing.resize(size as usize));
                    len = size;
                    self.change(changed, &mut seen, || {
                        file.resize(size, || {
                            resize();
                            Ok(())
                        })
                    })
                }
            };
            if !runs {
                break;
            }
        }
        seen
    }

    /// Files that have one handle after the other: each has its own bytes, for who has it open.
    fn remover(&self) -> Seen {
        let mut seen = Seen::default();
        for life in 1..=2_u8 {
            let bytes = vec![life; 2 * LINE as usize];
            let is_new = below(2) == 0;
            let begin = if is_new { Vec::new() } else { bytes.clone() };
            let store = Stepped::new(MemoryStore::new(begin));
            let Ok(file) = self.engine.attach(identity(OTHER), store) else {
                break;
            };
            if is_new && file.write(&bytes, 0, 0).is_err() {
                break;
            }
            let read = |seen: &mut Seen| {
                let mut out = vec![0; UNIT as usize];
                let read = file.read(&mut out, below(8) * UNIT, 0);
                if read.is_ok() && out != bytes[..UNIT as usize] {
                    seen.wrong = Some(format!("file {life} has bytes of another one"));
                }
            };
            read(&mut seen);
            let begun = below(2) == 0;
            if begun {
                let _unless_stopped = file.write(&[life; CELL], 0, 0);
            }
            if self.engine.forget(&identity(OTHER), || Ok(())).is_err() {
                break;
            }
            read(&mut seen);
        }
        seen
    }

    /// What is there when all begin: lines, and a mark that the next tidying may take back.
    fn begin(&self) -> Seen {
        let mut seen = Seen::default();
        let file = self.attach().expect("the backing works");
        if self.is_new {
            let written = file.write(&vec![0; END as usize], 0, 0);
            written.expect("the backing works");
        }
        for line in 0..below(3) {
            self.read(&file, (line * LINE, (line + 1) * LINE), &mut seen);
        }
        if below(2) == 0 {
            self.write(&file, Self::range(TAIL), u64::MAX, &mut seen);
            self.engine.tidy();
        }
        seen
    }

    fn tidier(&self) -> Seen {
        let mut seen = Seen::default();
        let looks = below(4) == 0;
        for _ in 0..4 {
            self.engine.tidy();
            // Not always: that would write what the next tidying is to write.
            if !looks {
                continue;
            }
            let left = self.engine.shards[0].not_written_out();
            if !left.is_empty() {
                seen.wrong = Some(format!("the records of slots {left:?} are not on the SSD"));
            }
        }
        seen
    }

    /// What a power cut leaves at some moment, opened again: what is served and should not be.
    fn cut(&self) -> PowerCut {
        for _ in 0..below(200) {
            self.ssd.step();
        }
        let witness = self.world.witness.generation.load(Ordering::SeqCst);
        PowerCut {
            ssd: self.ssd.image(below(2) == 0).0,
            backing: self.backing.image(below(2) == 0),
            witness,
        }
    }
}

struct PowerCut {
    ssd: Vec<u8>,
    backing: (Vec<u8>, u64),
    witness: u64,
}

/// Opens a cache and compares what it serves.
fn served_after(
    ssd: Vec<u8>,
    (bytes, modified): (Vec<u8>, u64),
    witness: u64,
    is_clean: bool,
    world: &World,
) -> Result<(), String> {
    let memory = MemoryWitness::default();
    memory.generation.store(witness, Ordering::SeqCst);
    let opened = open(MemoryStore::device(ssd), Arc::new(memory), &world.options).expect("it is a cache");
    if is_clean && opened.recovery != Recovery::Clean {
        return Err(format!("a clean stop is found as {:?}", opened.recovery));
    }
    let store = MemoryStore::with_modified(bytes.clone(), modified);
    let file = opened.engine.attach(identity(BACKING), store);
    let file = file.expect("the backing works");
    serves(&file, &bytes)
}

/// Whether a file is what its backing has.
fn serves(file: &CachedFile, bytes: &[u8]) -> Result<(), String> {
    let mut out = vec![0; bytes.len() + 1];
    // First what is cached, unit by unit, in an order that lets each line be found once before others drive it out.
    for (start, expected) in (0..).step_by(UNIT as usize).zip(bytes.chunks(UNIT as usize)) {
        if file.holds(start, expected.len()) {
            let out = &mut out[..expected.len()];
            file.read(out, start, 0).expect("the backing works");
            if out != expected {
                return Err(format!("the cached unit at {start} is not what the backing has"));
            }
        }
    }
    let read = file.read(&mut out, 0, 0).expect("the backing works");
    if out[..read] != *bytes {
        return Err(format!("{read} bytes are not the {} of the backing", bytes.len()));
    }
    Ok(())
}

/// All threads under one schedule.
fn play(mode: WriteMode) -> Result<(), String> {
    let parts = [
        Scene::reader,
        Scene::reader,
        Scene::writer,
        Scene::cutter,
        Scene::remover,
        Scene::tidier,
    ];
    play_in(Scene::new(mode), parts, below(4) == 0)
}

/// All kinds of requests beside a stop.
fn play_and_stop(mode: WriteMode) -> Result<(), String> {
    let parts = [Scene::reader, Scene::reader, Scene::writer, Scene::writer];
    play_in(Scene::without_memory(mode), parts, true)
}

/// What several fetch while one writes, and has not reached the SSD yet.
fn play_readers(mode: WriteMode) -> Result<(), String> {
    let parts = [Scene::reader, Scene::reader, Scene::reader, Scene::writer];
    let scene = Scene::without_memory(mode);
    if below(2) == 0 {
        // All that it may have is in use now and then: what comes then is read or written past the cache.
        let source = *identity(BACKING).source();
        scene.engine.set_size(&source, Some((1 + below(2)) * LINE));
    }
    play_in(scene, parts, below(4) == 0)
}

/// Two write to a file that is in use, each to lines on the SSD, of a region without a mark and of one with: when one of them has its
/// answer, a start after a power cut serves no older bytes, though the SSD lost all that was not flushed.
fn play_marks(mode: WriteMode) -> Result<(), String> {
    let scene = Arc::new(Scene::without_memory(mode));
    let file = scene.attach().expect("the backing works");
    let write = move |scene: &Scene, file: &CachedFile, region: u64| {
        let start = region * REGION + below(2) * UNIT;
        scene.write(file, (start, start + UNIT), u64::MAX, &mut Seen::default());
    };
    file.write(&vec![0; END as usize], 0, 0)
        .expect("the backing works");
    // By the last two the mark of the other region goes, durably, and the file does not come to rest.
    for region in [0, 1, 0, 0] {
        let line = region * REGION / LINE;
        write(&scene, &file, region);
        scene.read(&file, (line * LINE, (line + 1) * LINE), &mut Seen::default());
        scene.engine.tidy();
    }
    let file = Arc::new(file);
    let writing = [0, 1].map(|region| {
        let (scene, file) = (Arc::clone(&scene), Arc::clone(&file));
        thread::spawn(move || {
            write(&scene, &file, region);
            PowerCut {
                ssd: scene.ssd.image(true).0,
                backing: scene.backing.image(false),
                witness: scene.world.witness.generation.load(Ordering::SeqCst),
            }
        })
    });
    for cut in writing.map(|writing| writing.join().expect("no panic")) {
        served_after(cut.ssd, cut.backing, cut.witness, false, &scene.world)?;
    }
    Ok(())
}

fn play_in<const PARTS: usize>(
    scene: Scene,
    parts: [fn(&Scene) -> Seen; PARTS],
    stops_meanwhile: bool,
) -> Result<(), String> {
    let scene = Arc::new(scene);
    let first = scene.begin();
    let run = |part: fn(&Scene) -> Seen| {
        let scene = Arc::clone(&scene);
        thread::spawn(move || part(&scene))
    };
    let running = parts.map(run);
    let cutting = {
        let scene = Arc::clone(&scene);
        thread::spawn(move || scene.cut())
    };
    let stopping = stops_meanwhile.then(|| {
        let scene = Arc::clone(&scene);
        thread::spawn(move || scene.engine.stop().expect("the backing works"))
    });
    let seen = running.map(|part| part.join().expect("no panic"));
    let cut = cutting.join().expect("no panic");
    let stopped = stopping.map(|it| it.join().expect("no panic"));
    let mut histories: BTreeMap<u64, Vec<&[Operation]>> = BTreeMap::new();
    for seen in std::iter::once(&first).chain(&seen) {
        if let Some(wrong) = &seen.wrong {
            return Err(wrong.clone());
        }
        for (cell, operations) in &seen.history {
            histories.entry(*cell).or_default().push(operations);
        }
    }
    for (cell, threads) in histories {
        linearize(0, &threads).map_err(|stuck| format!("cell {cell}: {stuck}"))?;
    }
    let is_clean = if let Some(is_clean) = stopped {
        is_clean
    } else {
        let file = scene.attach().expect("the backing works");
        serves(&file, &scene.world.backing.bytes())?;
        drop(file);
        assert_usage(&scene.engine, "after all threads");
        let mismatches = scene.engine.counts().mismatches;
        if mismatches != 0 {
            return Err(format!(
                "{mismatches} copies are not what their records say, and nothing was damaged"
            ));
        }
        scene.engine.stop().expect("the backing works")
    };
    let after = |ssd, backing, witness, is_clean| served_after(ssd, backing, witness, is_clean, &scene.world);
    after(cut.ssd, cut.backing, cut.witness, false).map_err(|wrong| format!("after a power cut: {wrong}"))?;
    let witness = scene.world.witness.generation.load(Ordering::SeqCst);
    if !is_clean {
        return Err("nothing failed, and the stop is not a clean one".to_owned());
    }
    after(
        scene.ssd.image(false).0,
        scene.backing.image(false),
        witness,
        is_clean,
    )
    .map_err(|wrong| format!("after a stop: {wrong}"))
}

/// A source gets less of the cache while that is stopped: what the records say afterwards is what the state says. A record of
/// a line that the state does not have would be believed after a later power cut, whatever was written since.
fn play_resize_and_stop(mode: WriteMode) -> Result<(), String> {
    let scene = Arc::new(Scene::new(mode));
    let file = scene.attach().expect("the backing works");
    for line in (0..CACHE_LINES).chain(0..CACHE_LINES) {
        scene.read(&file, (line * LINE, (line + 1) * LINE), &mut Seen::default());
    }
    drop(file);
    let sizing = {
        let scene = Arc::clone(&scene);
        thread::spawn(move || scene.engine.set_size(identity(BACKING).source(), Some(0)))
    };
    let is_clean = scene.engine.stop().expect("the backing works");
    sizing.join().expect("no panic");
    if !is_clean {
        return Err("nothing failed, and the stop is not a clean one".to_owned());
    }
    let ssd = MemoryStore::device(scene.ssd.image(false).0);
    let opened = open(ssd, scene.world.witness.clone(), &scene.world.options).expect("it is a cache");
    let shard = &opened.engine.shards[0];
    let (mut beyond, mut on_ssd) = (None, 0);
    let look = &mut |slot, record: Record| {
        let Some(key) = record.key.filter(|_| record.valid != 0) else {
            return;
        };
        let state = shard.lock();
        if slot < state.stage_start && state.model.policy().find(key) != Some(slot) {
            beyond = Some(format!("slot {slot} has a record of line {key:#x}, and no line"));
        }
        on_ssd += u64::from(slot < state.stage_start);
    };
    shard.scan(CACHE_LINES as u32, look).expect("the SSD works");
    LINES_FOUND.fetch_add(on_ssd, std::sync::atomic::Ordering::Relaxed);
    beyond.map_or(Ok(()), Err)
}

/// One opens a new file and does nothing with it, another one fills it, and a third makes a file that may get its place in the
/// table: each has a place of its own.
fn play_new_files(mode: WriteMode) -> Result<(), String> {
    let scene = Arc::new(Scene::new(mode));
    let handles = [BACKING, OTHER];
    let stores = handles.map(|_| Stepped::new(MemoryStore::new(Vec::new())));
    let use_file = |which: usize, writes: bool| {
        let (scene, store) = (Arc::clone(&scene), Arc::clone(&stores[which]));
        thread::spawn(move || {
            let file = scene.engine.attach(identity(handles[which]), store);
            let file = file.expect("the backing works");
            if writes {
                file.write(&[1; CELL], 0, 0).expect("the backing works");
            }
        })
    };
    for thread in [use_file(0, false), use_file(0, true), use_file(1, true)] {
        thread.join().expect("no panic");
    }
    for _ in 0..3 {
        scene.engine.tidy();
    }
    if scene.engine.files().0 != 2 {
        return Err(format!("two files have {} places", scene.engine.files().0));
    }
    for (handle, store) in handles.iter().zip(&stores) {
        let file = scene.engine.attach(identity(*handle), store.clone());
        if file.expect("the backing works").beginning() == Beginning::New {
            return Err(format!("file {handle} is not known"));
        }
    }
    Ok(())
}

/// More new files than may wait for a record: none of them waits for the SSD, and those that are closed leave.
fn play_too_many_new_files(mode: WriteMode) -> Result<(), String> {
    let mut scene = Scene::new(mode);
    let engine = Arc::get_mut(&mut scene.engine).expect("nobody uses it yet");
    engine.unflushed_max = 0;
    crate::sync::lock(&engine.files).without_record_max = 3;
    let flushes = scene.engine.ssd.next_flush();
    let make = |handle: u8| {
        let store = MemoryStore::new(Vec::new());
        let file = scene.engine.attach(identity(handle), store.clone());
        let file = file.expect("the backing works");
        file.write(&[handle; CELL], 0, 0).expect("the backing works");
        (handle, store, file)
    };
    let open = make(1);
    let closed: Vec<_> = (2..20)
        .map(make)
        .map(|(handle, store, _)| (handle, store))
        .collect();
    if scene.engine.ssd.next_flush() != flushes {
        return Err("a new file waited for the SSD".to_owned());
    }
    // The last one made room for itself, and one waits to be made durable.
    let (places, _) = scene.engine.files();
    if !(1..=4).contains(&places) {
        return Err(format!("{places} files have a place"));
    }
    for (handle, store) in closed.iter().chain([&(open.0, open.1.clone())]) {
        let file = scene.engine.attach(identity(*handle), store.clone());
        serves(&file.expect("the backing works"), &store.bytes())?;
    }
    assert_usage(&scene.engine, "after too many");
    Ok(())
}

/// Lines on the SSD that [`play_resize_and_stop`] found after the stop: it must be early enough now and then.
static LINES_FOUND: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

/// What schedules showed.
#[derive(Default)]
struct Outcome {
    played: u64,
    wrong: Option<String>,
}

/// Plays so many schedules, or until one ends with something wrong.
fn explore(schedules: u64, play: fn(WriteMode) -> Result<(), String>) -> Outcome {
    let outcome = Arc::new(Mutex::new(Outcome::default()));
    for seed in 0..schedules.div_ceil(SCHEDULES_OF_A_SEED) {
        let mut config = Config::default();
        config.stack_size = 1 << 20;
        config.silence_warnings = true;
        let many = SCHEDULES_OF_A_SEED as usize;
        let mode = MODES[(seed / 2) as usize % MODES.len()];
        let player = Arc::clone(&outcome);
        let play_one = move || {
            if lock(&player).wrong.is_some() {
                return;
            }
            lock(&player).played += 1;
            let wrong = play(mode).err();
            lock(&player).wrong = wrong.map(|wrong| format!("{mode:?}, seed {seed}: {wrong}"));
        };
        let ran = catch_unwind(AssertUnwindSafe(|| {
            if seed % 2 == 0 {
                Runner::new(RandomScheduler::new_from_seed(seed, many), config).run(play_one)
            } else {
                Runner::new(PctScheduler::new_from_seed(seed, PCT_DEPTH, many), config).run(play_one)
            }
        }));
        if ran.is_err() {
            // The engine asserts something of itself, or a thread waits for ever.
            lock(&outcome).wrong = Some(format!("{mode:?}, seed {seed}: a panic"));
        }
        if lock(&outcome).wrong.is_some() {
            break;
        }
    }
    std::mem::take(&mut *lock(&outcome))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn under_many_schedules_what_threads_see_is_in_an_order_and_survives_power_cuts_and_stops() {
    let asked = std::env::var("BATHY_TORTURE_SCHEDULES").ok();
    let schedules = asked.map_or(SCHEDULES, |text| text.parse().expect("a number of schedules"));
    let begun = Instant::now();
    let Outcome { played, wrong } = explore(schedules, play);
    assert_eq!(wrong, None, "schedule {played}");
    eprintln!("{played} schedules in {:.1?}", begun.elapsed());
}

#[test]
fn what_was_fetched_is_served_before_the_ssd_has_it_and_no_longer_once_it_is_written_to() {
    let Outcome { played, wrong } = explore(SCHEDULES, play_readers);
    assert_eq!(wrong, None, "schedule {played}");
}

#[test]
fn a_stop_waits_for_what_is_under_way() {
    let Outcome { played, wrong } = explore(SCHEDULES / 3, play_and_stop);
    assert_eq!(wrong, None, "schedule {played}");
}

#[test]
fn a_mark_is_durable_before_the_write() {
    let Outcome { played, wrong } = explore(SCHEDULES / 3, play_marks);
    assert_eq!(wrong, None, "schedule {played}");
}

#[test]
fn a_source_that_gets_another_size_beside_a_stop_leaves_no_record_without_a_line() {
    let Outcome { played, wrong } = explore(SCHEDULES, play_resize_and_stop);
    assert_eq!(wrong, None, "schedule {played}");
    let found = LINES_FOUND.load(std::sync::atomic::Ordering::Relaxed);
    assert!(found > 0, "every line had left before each stop");
}

#[test]
fn new_files_that_are_opened_and_closed_at_once_have_a_place_each() {
    let Outcome { played, wrong } = explore(SCHEDULES, play_new_files);
    assert_eq!(wrong, None, "schedule {played}");
}

#[test]
fn new_files_beyond_those_that_may_be_without_a_record_wait_for_nothing_and_others_leave() {
    let Outcome { wrong, .. } = explore(1, play_too_many_new_files);
    assert_eq!(wrong, None);
}

#[test]
fn each_error_made_on_purpose_is_found() {
    let is_long = std::env::var_os("BATHY_TORTURE_SCHEDULES").is_some();
    let is_rare = |mutant| matches!(mutant, Mutant::LengthAfterTheLines | Mutant::MarksGoDuringAWrite);
    for mutant in Mutant::ALL.into_iter().filter(|&it| is_long || !is_rare(it)) {
        MADE.set(Some(mutant));
        let begun = Instant::now();
        let play = match mutant {
            Mutant::StateBesideOlderRecords => play_resize_and_stop,
            Mutant::EmptyFilesAreFound => play_new_files,
            Mutant::ArrivedUnitsAreBelieved => play_readers,
            Mutant::MarkIsNotFlushed => play_marks,
            Mutant::StopWaitsForNobody => play_and_stop,
            _ => play,
        };
        let Outcome { played, wrong } = explore(SCHEDULES_TO_FIND, play);
        MADE.set(None);
        let wrong = wrong.unwrap_or_else(|| panic!("{mutant:?} is not found in {played} schedules"));
        let wrong: String = wrong.chars().take(120).collect();
        eprintln!("{mutant:?}: schedule {played}, {:.1?}: {wrong}", begun.elapsed());
    }
}
