//! What happens while marks are taken back, and which old records may not come back to life.

use std::io;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use bathy_cache::{BlockStore, Recovery, open};
use bathy_cache_model::WriteMode;

use crate::common::{
    BACKING, Cache, Event, Fault, LINE, MemoryStore, REGION, SSD, UNIT, World, assert_serves_backing,
    identity, passes_on,
};

type Hook = Box<dyn Fn(&Cache) + Send>;

/// A backing during whose next read, write or flush something else happens.
struct Hooked {
    store: Arc<MemoryStore>,
    engine: OnceLock<Arc<Cache>>,
    in_read: Mutex<Option<Hook>>,
    in_write: Mutex<Option<Hook>>,
    in_flush: Mutex<Option<Hook>>,
}

impl Hooked {
    fn run(&self, hook: &Mutex<Option<Hook>>) {
        let hook = hook.lock().expect("no panic").take();
        if let Some(hook) = hook {
            hook(self.engine.get().expect("opened"));
        }
    }
}

impl BlockStore for Hooked {
    passes_on!(stamp, size_bytes);

    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.store.read(buffer, offset)?;
        self.run(&self.in_read);
        Ok(())
    }

    fn write(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.run(&self.in_write);
        self.store.write(data, offset)
    }

    fn flush(&self) -> io::Result<()> {
        let flushed = self.store.flush();
        self.run(&self.in_flush);
        flushed
    }
}

fn hooked(world: &World) -> (Arc<Hooked>, Arc<Cache>) {
    let backing = Arc::new(Hooked {
        store: world.backing.clone(),
        engine: OnceLock::new(),
        in_read: Mutex::new(None),
        in_write: Mutex::new(None),
        in_flush: Mutex::new(None),
    });
    let witness = world.witness.clone();
    let opened = open(world.ssd.clone(), witness, &world.options).expect("it is a cache");
    let engine = Arc::new(Cache::new(opened.engine, backing.clone()));
    assert!(backing.engine.set(engine.clone()).is_ok());
    (backing, engine)
}

#[test]
fn a_region_keeps_its_mark_while_a_write_to_it_is_under_way_or_came_after_the_flush() {
    let world = World::new(1 << 20, 40, 1);
    let (backing, engine) = hooked(&world);
    *backing.in_write.lock().expect("no panic") = Some(Box::new(|engine| {
        for _ in 0..3 {
            assert!(engine.tidy());
            assert!(engine.is_marked(0), "the backing does not have the write yet");
        }
    }));
    engine.write(&[1; 4096], 0, 0).expect("written");
    *backing.in_flush.lock().expect("no panic") = Some(Box::new(|engine| {
        engine.write(&[2; 4096], 4096, 0).expect("written");
    }));
    assert!(engine.tidy());
    assert!(engine.is_marked(0), "the flush did not cover the second write");
    assert!(engine.tidy() && engine.is_marked(0));
    assert!(engine.tidy() && !engine.is_marked(0));
}

#[test]
fn a_stream_of_writes_waits_for_few_flushes_of_marks_and_those_ahead_of_it_are_taken_back() {
    let world = World::new(32 * REGION, 40, 1);
    let engine = world.open().engine;
    let flushes_of = |writes: &mut dyn Iterator<Item = u64>| {
        let log = world.record();
        for offset in writes {
            engine.write(&[1; 4096], offset, 0).expect("written");
        }
        let log = log.lock().expect("no panic");
        let is_flush = |event: &&Event| matches!(event, Event::Flush { store: SSD });
        log.iter().filter(is_flush).count()
    };
    // That the file is in use, and the mark, are made durable together.
    assert_eq!(flushes_of(&mut std::iter::once(0)), 1);
    assert_eq!(engine.marked_regions(), 1);
    // Of regions 1, 3, 7 and 15.
    assert_eq!(flushes_of(&mut (0..24 * REGION).step_by(4096)), 4);
    assert_eq!(engine.marked_regions(), 31);
    // At most 16 ahead.
    assert_eq!(flushes_of(&mut (24 * REGION..32 * REGION).step_by(4096)), 1);
    assert_eq!(engine.marked_regions(), 48);
    // Far from each other: each waits for its own.
    assert!(engine.tidy() && engine.tidy() && engine.tidy());
    assert_eq!(engine.marked_regions(), 0);
    assert_eq!(
        flushes_of(&mut (0..32).step_by(2).map(|region| region * REGION)),
        16
    );
    assert_eq!(engine.marked_regions(), 16);
}

#[test]
fn writes_to_several_regions_wait_for_one_flush_together() {
    let mut world = World::new(32 * REGION, 40, 1);
    // Nothing but marks goes to the SSD.
    world.options.write_mode = WriteMode::Invalidate;
    let engine = world.open().engine;
    engine.write(&[1; 4096], 0, 0).expect("written");
    world.ssd.set_fault(Fault::Hang(0));
    let log = world.record();
    let write = |region: u64| engine.write(&[1; 4096], region * REGION, 0).expect("written");
    let write = &write;
    let has_ended_early = std::thread::scope(|scope| {
        let first = scope.spawn(move || write(8));
        while world.ssd.operations() == 0 {
            std::thread::yield_now();
        }
        // Its region was marked before: it does not wait for the SSD.
        write(0);
        // The first of the others has the same region.
        let others = [8].into_iter().chain(10..20);
        let others: Vec<_> = others.map(|at| scope.spawn(move || write(at))).collect();
        while engine.marked_regions() < 12 {
            std::thread::yield_now();
        }
        // Time for one that does not wait.
        std::thread::sleep(Duration::from_millis(20));
        let has_ended_early = std::iter::once(&first)
            .chain(&others)
            .any(ScopedJoinHandle::is_finished);
        world.ssd.release();
        has_ended_early
    });
    assert!(!has_ended_early);
    let log = log.lock().expect("no panic");
    let flushes = log
        .iter()
        .filter(|event| matches!(event, Event::Flush { store: SSD }));
    assert_eq!(flushes.count(), 2, "one for the first, one for all others");
}

#[test]
fn a_write_that_ends_during_the_flush_is_not_covered_by_it() {
    let world = World::new(1 << 20, 40, 1);
    let (backing, engine) = hooked(&world);
    let (has_begun, begun) = channel();
    let (let_go, may_go) = channel();
    let (has_ended, ended) = channel();
    *backing.in_write.lock().expect("no panic") = Some(Box::new(move |_| {
        has_begun.send(()).expect("somebody waits");
        may_go.recv().expect("somebody lets it go");
    }));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            engine.write(&[1; 4096], 0, 0).expect("written");
            has_ended.send(()).expect("somebody may ask");
        });
        begun.recv().expect("the write begins");
        let let_it_go = let_go.clone();
        *backing.in_flush.lock().expect("no panic") = Some(Box::new(move |_| {
            let_it_go.send(()).expect("the write waits");
            ended.recv().expect("the write ends");
        }));
        assert!(engine.tidy() && engine.tidy());
        let is_marked = engine.is_marked(0);
        // If nobody has.
        let _ = let_go.send(());
        assert!(is_marked);
    });
    backing.in_flush.lock().expect("no panic").take();
    assert!(engine.tidy() && !engine.is_marked(0));
}

/// How long a hook waits for another thread that must wait for the hook: if it does not, it is done by then.
const PATIENCE: Duration = Duration::from_millis(300);

/// `first` flushes the file and hears that writes are lost; before it can note this, `second` comes, which hears nothing.
/// What `second` returned.
fn meet<T: Send>(world: &World, first: fn(&Cache), second: fn(&Cache) -> T) -> (Arc<Cache>, T) {
    let (backing, engine) = hooked(world);
    engine.write(&[1; 4096], 0, 0).expect("written");
    assert!(engine.tidy() && engine.is_marked(0));
    let (has_failed, failed) = channel();
    let (has_ended, ended) = channel();
    *backing.in_flush.lock().expect("no panic") = Some(Box::new(move |_| {
        has_failed.send(()).expect("somebody waits");
        let _ = ended.recv_timeout(PATIENCE);
    }));
    world.backing.set_fault(Fault::NextFlush);
    let result = std::thread::scope(|scope| {
        let engine = &engine;
        let second = scope.spawn(move || {
            failed.recv().expect("the flush fails");
            let result = second(engine);
            let _ = has_ended.send(());
            result
        });
        first(engine);
        second.join().expect("no panic")
    });
    (engine, result)
}

#[test]
fn a_lost_write_that_tidying_hears_of_fails_the_flush_of_a_caller_at_the_same_time() {
    let world = World::new(1 << 20, 40, 1);
    let tidy = |engine: &Cache| assert!(!engine.tidy());
    let (_, flushed) = meet(&world, tidy, Cache::flush);
    assert!(flushed.is_err());
}

#[test]
fn a_lost_write_that_a_caller_hears_of_keeps_its_mark_from_tidying_at_the_same_time() {
    let world = World::new(1 << 20, 40, 1);
    let flush = |engine: &Cache| assert!(engine.flush().is_err());
    let (engine, was_tidied) = meet(&world, flush, |engine| engine.tidy());
    assert!(!was_tidied && engine.is_marked(0));
}

#[test]
fn a_lost_write_of_a_closed_file_fails_the_flush_of_who_opens_it_next() {
    let world = World::new(1 << 20, 40, 1);
    let Cache { file, engine } = world.open().engine;
    file.write(&[1; 4096], 0, 0).expect("written");
    drop(file);
    assert!(engine.tidy());
    world.backing.set_fault(Fault::NextFlush);
    assert!((0..3).all(|_| !engine.tidy()));
    let file = engine
        .attach(identity(BACKING), world.backing.clone())
        .expect("the backing works");
    assert!(file.flush().is_err());
    assert!(file.flush().is_ok(), "it is told once");
}

#[test]
fn a_stop_waits_for_a_write_to_a_removed_file_that_is_open() {
    let world = World::new(1 << 20, 40, 1);
    let (backing, engine) = hooked(&world);
    engine.file.forget(|| Ok(())).expect("it is removed");
    let (has_begun, begun) = channel();
    let (has_stopped, stopped) = channel();
    *backing.in_write.lock().expect("no panic") = Some(Box::new(move |_| {
        has_begun.send(()).expect("somebody waits");
        assert!(stopped.recv_timeout(PATIENCE).is_err(), "a write is under way");
    }));
    std::thread::scope(|scope| {
        let engine = &engine;
        scope.spawn(move || {
            begun.recv().expect("the write begins");
            let _ = has_stopped.send(engine.stop());
        });
        engine.write(&[1; 4096], 0, 0).expect("written");
    });
}

#[test]
fn a_stop_flushes_all_files_also_after_one_failed() {
    let world = World::new(1 << 20, 40, 1);
    let Cache { file, engine } = world.open().engine;
    let other = MemoryStore::new(vec![0; 4096]);
    let other_file = engine
        .attach(identity(BACKING + 1), other.clone())
        .expect("attached");
    file.write(&[1; 4096], 0, 0).expect("written");
    other_file.write(&[1; 4096], 0, 0).expect("written");
    for store in [&world.backing, &other] {
        store.set_fault(Fault::Flushes);
    }
    assert!(engine.stop().is_err());
    assert!(world.backing.operations() > 0 && other.operations() > 0);
}

#[test]
fn a_line_that_left_does_not_come_back_while_its_slot_waits_for_the_next_one() {
    let mut world = World::new(1 << 20, 20, 1);
    world.options.write_mode = WriteMode::Update;
    let (backing, engine) = hooked(&world);
    let lines = (1u64 << 20) / LINE;
    let mut line = vec![0; LINE as usize];
    let images = Arc::new(Mutex::new(Vec::new()));
    // Backwards the second time: those that left last are ghosts, and drive lines out of their slots on the SSD.
    for (fill, number) in (0..).zip((0..lines).chain((0..lines).rev())) {
        let (images, before) = (images.clone(), world.backing.clone());
        let (ssd, has_seen_all) = (world.ssd.clone(), engine.counts().evictions > 20);
        // The newcomer has its slot, and its data are on the way. Meanwhile all others are written and all marks taken back.
        let hook = move |engine: &Cache| {
            for number in (0..lines).filter(|&other| other != number) {
                engine
                    .write(&[fill; UNIT as usize], number * LINE, 0)
                    .expect("the backing works");
            }
            assert!(engine.tidy() && engine.tidy());
            assert_eq!(engine.marked_regions(), 0);
            images
                .lock()
                .expect("no panic")
                .push((ssd.bytes(), before.bytes()));
        };
        if has_seen_all {
            *backing.in_read.lock().expect("no panic") = Some(Box::new(hook));
        }
        engine
            .read(&mut line, number * LINE, 0)
            .expect("the backing works");
        backing.in_read.lock().expect("no panic").take();
    }
    let images = std::mem::take(&mut *images.lock().expect("no panic"));
    assert!(images.len() > 10, "{}", images.len());
    for (ssd, bytes) in images {
        world.ssd = MemoryStore::new(ssd);
        world.backing = MemoryStore::new(bytes.clone());
        let opened = world.open();
        assert!(
            matches!(opened.recovery, Recovery::Unclean { .. }),
            "{:?}",
            opened.recovery
        );
        assert_serves_backing(&opened.engine, &bytes, LINE as usize, "after the kill");
    }
}

#[test]
fn a_removal_that_waited_for_another_one_removes_the_file_that_has_the_handle_then() {
    // Who comes when is left to the scheduler: in some rounds the file is there anew before the second removal.
    for round in 0..20 {
        let world = World::new(1 << 20, 40, 1);
        let (backing, engine) = hooked(&world);
        let (has_begun, begun) = channel();
        *backing.in_write.lock().expect("no panic") = Some(Box::new(move |_| {
            // Both removals find this file, and wait until the write is over.
            has_begun.send(()).expect("somebody waits");
            std::thread::sleep(PATIENCE / 20);
        }));
        let remove = || {
            engine
                .forget(&identity(BACKING), || Ok(()))
                .expect("it is removed");
            let store = MemoryStore::new(vec![2; 4096]);
            let file = engine.engine.attach(identity(BACKING), store.clone());
            (file.expect("the backing works"), store)
        };
        let mut files = std::thread::scope(|scope| {
            let writer = scope.spawn(|| engine.write(&[1; 4096], 0, 0));
            begun.recv().expect("the write begins");
            let removals = [0; 2].map(|_| scope.spawn(remove));
            writer.join().expect("no panic").expect("written");
            removals.map(|removal| removal.join().expect("no panic"))
        });
        files.sort_by_key(|(file, _)| file.number());
        let [(first, _), (last, store)] = &files;
        if first.number() == last.number() {
            continue;
        }
        last.write(&[4; 4096], 0, 0).expect("the backing works");
        // A removed file has no record, and writes none over that of the file that has its place now.
        first.write(&[3; 4096], 0, 0).expect("the backing works");
        let after = open(world.ssd.clone(), world.witness.clone(), &world.options).expect("it is a cache");
        let found = after.engine.attach(identity(BACKING), store.clone());
        let number = found.expect("the backing works").number();
        assert_eq!(number, last.number(), "round {round}");
    }
}
