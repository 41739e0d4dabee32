//! A file whose device does not answer keeps nobody from files of other devices: neither while it is opened, removed or made
//! durable.

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use bathy_cache::{
    AttachError, BlockStore, CachedFile, Engine, FileIdentity, LiveCache, Recovery, ResizeError, open,
};

use crate::common::{Fault, LINE, MemoryStore, World, assert_usage, identity, passes_on};

/// Whoever takes longer than this hangs.
const PATIENCE: Duration = Duration::from_secs(120);

fn of_slow_source(handle: u8) -> FileIdentity {
    FileIdentity::new(*b"slow source uuid", &[handle]).expect("it is short enough")
}

fn pattern() -> Vec<u8> {
    (0..2 * LINE).map(|byte| (byte % 251) as u8).collect()
}

/// Opens a file of a device that answers, reads it twice and removes it, in a thread.
fn use_another(engine: &Arc<Engine>, handle: u8) -> Receiver<()> {
    let (engine, (done, is_done)) = (Arc::clone(engine), channel());
    thread::spawn(move || {
        let file = engine.attach(identity(handle), MemoryStore::new(pattern()));
        let file = file.expect("its device works");
        let mut out = vec![0; 2 * LINE as usize];
        for _ in 0..2 {
            file.read(&mut out, 0, 0).expect("its device works");
            assert_eq!(out, pattern());
        }
        file.forget(|| Ok(())).expect("its device works");
        done.send(()).expect("somebody waits");
    });
    is_done
}

/// Until the store was asked for more than it had been `before`.
fn wait_until_asked(store: &MemoryStore, before: u64) {
    let until = Instant::now() + PATIENCE;
    while store.operations() == before {
        assert!(Instant::now() < until, "nobody asks it");
        thread::yield_now();
    }
}

fn attach_in_thread(
    engine: &Arc<Engine>,
    store: &Arc<MemoryStore>,
) -> thread::JoinHandle<std::io::Result<CachedFile>> {
    let (engine, store) = (Arc::clone(engine), Arc::clone(store));
    thread::spawn(move || engine.attach(of_slow_source(1), store))
}

#[test]
fn who_opens_or_removes_a_file_of_a_slow_device_keeps_nobody_from_files_of_others() {
    let world = World::new(8 * LINE, 8, 1);
    let engine = world.open().engine.engine;
    let slow = MemoryStore::new(pattern());
    // To open a file makes it durable.
    slow.set_fault(Fault::Hang(0));
    let openers = [attach_in_thread(&engine, &slow), attach_in_thread(&engine, &slow)];
    wait_until_asked(&slow, 0);
    use_another(&engine, 2)
        .recv_timeout(PATIENCE)
        .expect("an open of another device waits for nobody");
    slow.release();
    let files = openers.map(|opener| opener.join().expect("no panic").expect("it answers again"));
    assert_eq!(
        files[0].number(),
        files[1].number(),
        "one file, however many open it at once"
    );
    assert_eq!(slow.operations(), 1, "it was made durable once");
    // So does the file system below when a file is removed there.
    let (removal, (answer, is_answered)) = (Arc::clone(&engine), mpsc::channel::<()>());
    let (begun, is_begun) = mpsc::channel();
    let remover = thread::spawn(move || {
        removal.forget(&of_slow_source(1), || {
            begun.send(()).expect("somebody waits");
            is_answered.recv().expect("it answers later");
            Ok(())
        })
    });
    is_begun.recv_timeout(PATIENCE).expect("the removal begins");
    use_another(&engine, 3)
        .recv_timeout(PATIENCE)
        .expect("an open of another device waits for nobody");
    // Who has its handle next is another file, and waits until this one is gone.
    let next = MemoryStore::new(vec![7; LINE as usize]);
    let opener = attach_in_thread(&engine, &next);
    answer.send(()).expect("the removal waits");
    remover.join().expect("no panic").expect("it is removed");
    let next = opener.join().expect("no panic").expect("its device works");
    assert_ne!(next.number(), files[0].number());
    let mut out = vec![0; LINE as usize];
    assert_eq!(next.read(&mut out, 0, 0).expect("its device works"), out.len());
    assert!(out.iter().all(|&byte| byte == 7));
}

#[test]
fn who_makes_files_of_a_slow_device_durable_keeps_nobody_from_tidying_others() {
    let world = World::new(8 * LINE, 8, 1);
    let engine = world.open().engine.engine;
    let (slow, quick) = (MemoryStore::new(pattern()), MemoryStore::new(pattern()));
    let of_slow = engine.attach(of_slow_source(1), slow.clone()).expect("it works");
    let of_quick = engine.attach(identity(2), quick.clone()).expect("it works");
    for file in [&of_slow, &of_quick] {
        file.write(&[7; 512], 0, 0).expect("it works");
    }
    slow.set_fault(Fault::Hang(0));
    let before = slow.operations();
    let in_thread = |work: fn(&Engine)| {
        let (engine, (done, is_done)) = (Arc::clone(&engine), channel());
        let thread = thread::spawn(move || {
            work(&engine);
            let _ends = done.send(());
        });
        (thread, is_done)
    };
    let (hanging, _) =
        in_thread(|engine| (0..3).for_each(|_| engine.tidy_source(of_slow_source(1).source())));
    wait_until_asked(&slow, before);
    let (_, is_tidied) = in_thread(|engine| {
        for _ in 0..3 {
            for source in engine.sources() {
                engine.tidy_source(&source);
            }
            assert!(engine.tidy_shared());
        }
        engine.settle_source(identity(2).source());
    });
    is_tidied
        .recv_timeout(PATIENCE)
        .expect("it waits for no other device");
    assert!(!of_quick.is_marked(0) && of_slow.is_marked(0));
    // A source is left, too, and writes to the slow one wait for that alone.
    drop(of_quick);
    let (_, is_left) = in_thread(|engine| engine.leave_source(identity(2).source()).expect("the SSD works"));
    is_left
        .recv_timeout(PATIENCE)
        .expect("it waits for no other device");
    slow.release();
    hanging.join().expect("no panic");
    for _ in 0..3 {
        assert!(engine.tidy());
    }
    assert!(!of_slow.is_marked(0) && engine.marked_regions() == 0);
    drop(of_slow);
    assert!(engine.stop().expect("all devices work"));
}

/// What is done with a source while the disk of one of its files hangs, which was written to and closed. Others write to it before the disk
/// answers.
fn settled_too_late(late: impl FnOnce(&LiveCache) + Send) {
    let world = World::new(8 * LINE, 8, 1);
    let opened = open(world.ssd.clone(), world.witness.clone(), &world.options).expect("it is a cache");
    let ssd = Some((opened.engine, world.ssd.clone() as Arc<dyn BlockStore>));
    let cache = LiveCache::new(ssd, world.witness.clone(), world.options);
    let slow = MemoryStore::new(pattern());
    let file = cache.attach(of_slow_source(1), slow.clone(), false);
    let file = file.expect("it works");
    file.write(&pattern(), 0, 0).expect("it works");
    file.write(&pattern(), 0, 0).expect("it works");
    drop(file);
    slow.set_fault(Fault::Hang(0));
    let source = *of_slow_source(1).source();
    thread::scope(|scope| {
        let settling = scope.spawn(|| late(&cache));
        wait_until_asked(&slow, 0);
        // It is unmounted.
        cache.engine().set_stamped(&source, false);
        slow.change_offline(0, 99);
        slow.release();
        settling.join().expect("no panic");
    });
    cache
        .with_engine(|engine| engine.leave_source(&source))
        .expect("the SSD works");
    assert!(cache.stop().expect("all devices work"), "a clean stop");
    drop(cache);
    let engine = world.open().engine.engine;
    let again = engine.attach(of_slow_source(1), slow.clone()).expect("it works");
    let mut out = vec![0; 2 * LINE as usize];
    again.read(&mut out, 0, 0).expect("it works");
    assert!(out == slow.bytes(), "what others wrote");
    assert_eq!(again.counts().reads.requests_hit, 0);
}

#[test]
fn what_is_settled_after_others_may_have_changed_it_is_dropped() {
    let source = *of_slow_source(1).source();
    settled_too_late(|cache| cache.with_engine(|engine| engine.settle_source(&source)));
    settled_too_late(|cache| cache.with_engine(|engine| (0..3).for_each(|_| engine.tidy_source(&source))));
}

/// A store that does something when it is asked for its stamp the next time, before it answers.
struct StampedLater {
    store: Arc<MemoryStore>,
    before: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl BlockStore for StampedLater {
    passes_on!(read, write, flush, look, size_bytes);

    fn stamp(&self) -> std::io::Result<bathy_cache::Stamp> {
        let before = self.before.lock().expect("no panic").take();
        if let Some(before) = before {
            before();
        }
        self.store.stamp()
    }
}

#[test]
fn a_resize_during_which_others_may_have_changed_a_file_keeps_nothing_of_it() {
    let world = World::new(8 * LINE, 60, 2);
    let opened = open(world.ssd.clone(), world.witness.clone(), &world.options).expect("it is a cache");
    let ssd = Some((opened.engine, world.ssd.clone() as Arc<dyn BlockStore>));
    let cache = LiveCache::new(ssd, world.witness.clone(), world.options);
    let store = MemoryStore::new(pattern());
    let slow = Arc::new(StampedLater {
        store: Arc::clone(&store),
        before: Mutex::default(),
    });
    let file = cache.attach(of_slow_source(1), slow.clone(), false);
    let file = file.expect("it works");
    let mut out = vec![0; 2 * LINE as usize];
    for _ in 0..2 {
        file.write(&pattern(), 0, 0).expect("it works");
        file.read(&mut out, 0, 0).expect("it works");
    }
    let (engine, changed) = (cache.engine(), Arc::clone(&store));
    *slow.before.lock().expect("no panic") = Some(Box::new(move || {
        // It is unmounted.
        engine.set_stamped(of_slow_source(1).source(), false);
        changed.change_offline(0, 99);
    }));
    let resized = cache.resize((1 << 20) + 50 * LINE);
    assert!(
        matches!(resized, Err(AttachError::Resize(ResizeError::Unclean))),
        "{resized:?}"
    );
    file.read(&mut out, 0, 0).expect("it works");
    assert!(out == store.bytes(), "what others wrote");
}

#[test]
fn a_stop_waits_for_no_source_that_was_abandoned_and_is_a_clean_one_for_the_others() {
    let world = World::new(8 * LINE, 8, 1);
    let engine = world.open().engine.engine;
    let (slow, opened) = (MemoryStore::new(pattern()), MemoryStore::new(pattern()));
    let of_slow = engine.attach(of_slow_source(1), slow.clone()).expect("it works");
    let quick = MemoryStore::new(pattern());
    let of_quick = engine.attach(identity(2), quick.clone()).expect("it works");
    for file in [&of_slow, &of_quick] {
        file.write(&pattern(), 0, 0).expect("it works");
        file.write(&pattern(), 0, 0).expect("it works");
    }
    for store in [&slow, &opened] {
        store.set_fault(Fault::Hang(0));
    }
    // All that can be under way of it: it is made durable, left, read, and another file of it is opened.
    let tidying = Arc::clone(&engine);
    let hanging = [
        thread::spawn(move || (0..3).for_each(|_| tidying.tidy_source(of_slow_source(1).source()))),
        {
            let opening = Arc::clone(&engine);
            let opened = opened.clone();
            thread::spawn(move || drop(opening.attach(of_slow_source(3), opened)))
        },
    ];
    wait_until_asked(&slow, 0);
    wait_until_asked(&opened, 0);
    let leaving = Arc::clone(&engine);
    let left = thread::spawn(move || leaving.leave_source(of_slow_source(1).source()));
    let asked = slow.operations();
    let reading = thread::spawn(move || {
        let mut past = vec![0; 4 * LINE as usize];
        let _stopped_meanwhile = of_slow.write(&past, 0, 0);
        let _stopped_meanwhile = of_slow.read(&mut past, 0, 0);
    });
    wait_until_asked(&slow, asked);
    engine.abandon_source(of_slow_source(1).source());
    let (stopping, (done, is_done)) = (Arc::clone(&engine), channel());
    thread::spawn(move || done.send(stopping.stop()).expect("somebody waits"));
    let stopped = is_done.recv_timeout(PATIENCE).expect("it waits for no disk");
    assert!(stopped.expect("the others work"), "a clean stop");
    // What goes on now must not matter.
    for store in [slow, opened] {
        store.release();
    }
    for thread in hanging {
        thread.join().expect("no panic");
    }
    reading.join().expect("no panic");
    left.join().expect("no panic").expect("the SSD works");
    drop((of_quick, engine));
    let opened = world.open();
    assert_eq!(opened.recovery, Recovery::Clean);
    let engine = opened.engine.engine;
    let again = engine.attach(identity(2), quick).expect("it works");
    let mut out = vec![0; 2 * LINE as usize];
    again.read(&mut out, 0, 0).expect("it works");
    assert_eq!((out, again.counts().reads.requests_hit), (pattern(), 1));
    assert_eq!(engine.usage(of_slow_source(1).source()).cached_bytes, 0);
}

#[test]
fn a_file_that_could_not_be_removed_is_cached_as_before() {
    let world = World::new(8 * LINE, 8, 1);
    let engine = world.open().engine.engine;
    let file = engine.attach(identity(2), MemoryStore::new(pattern()));
    let file = file.expect("its device works");
    let read = || {
        let mut out = vec![0; 2 * LINE as usize];
        file.read(&mut out, 0, 0).expect("its device works");
        assert_eq!(out, pattern());
    };
    read();
    let failed = file.forget(|| {
        // Others come and go while the slot of its record is nobody's.
        use_another(&engine, 3)
            .recv_timeout(PATIENCE)
            .expect("nobody waits");
        Err::<(), _>(std::io::ErrorKind::ResourceBusy.into())
    });
    assert_eq!(
        failed.expect_err("it fails").kind(),
        std::io::ErrorKind::ResourceBusy
    );
    let hits = engine.counts().reads.requests_hit;
    read();
    assert_eq!(engine.counts().reads.requests_hit, hits + 1);
    // Its record is there again, too.
    file.write(&pattern(), 0, 0).expect("its device works");
    let number = file.number();
    drop(file);
    assert!(engine.stop().expect("all devices work"));
    drop(engine);
    let engine = world.open().engine.engine;
    let mut lines = 0;
    engine.for_each_line(&mut |line| lines += u64::from(line.file == number));
    assert_eq!(lines, 2, "as after any stop");
    assert_usage(&engine, "after the start");
}

#[test]
fn all_lines_of_a_removed_file_leave_wherever_in_it_they_are() {
    // Found by look-ups, by a walk after them, and far behind where look-ups end.
    for (first, step, count) in [(0, 1, 3), (0, 1, 20), (3, 5, 20), (1 << 20, 1 << 10, 20)] {
        let world = World::new(8 * LINE, 64, 2);
        let engine = world.open().engine.engine;
        // Of a file so long only what is read exists here.
        let sparse = Arc::new(Sparse);
        let other = engine.attach(identity(3), sparse.clone()).expect("it works");
        let file = engine.attach(identity(2), sparse).expect("it works");
        let mut out = vec![0; LINE as usize];
        for line in 0..count {
            for file in [&file, &other] {
                file.read(&mut out, (first + line * step) * LINE, 0)
                    .expect("it works");
            }
        }
        let lines = |number| {
            let mut lines = 0;
            engine.for_each_line(&mut |line| lines += u64::from(line.file == number));
            lines
        };
        let number = file.number();
        assert_eq!((lines(number), lines(other.number())), (count, count));
        file.forget(|| Ok(())).expect("removed");
        drop(file);
        assert_eq!((lines(number), lines(other.number())), (0, count));
        assert_usage(&engine, "after the removal");
    }
}

/// A terabyte of zeros.
struct Sparse;

impl bathy_cache::BlockStore for Sparse {
    fn read(&self, buffer: &mut [u8], _offset: u64) -> std::io::Result<()> {
        buffer.fill(0);
        Ok(())
    }

    fn write(&self, _data: &[u8], _offset: u64) -> std::io::Result<()> {
        Ok(())
    }

    fn flush(&self) -> std::io::Result<()> {
        Ok(())
    }

    fn stamp(&self) -> std::io::Result<bathy_cache::Stamp> {
        Ok(bathy_cache::Stamp {
            size_bytes: self.size_bytes()?,
            modified_ns: 1,
            ..bathy_cache::Stamp::default()
        })
    }

    fn size_bytes(&self) -> std::io::Result<u64> {
        Ok(1 << 40)
    }
}
