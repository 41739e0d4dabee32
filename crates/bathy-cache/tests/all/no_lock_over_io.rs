//! No lock that a hit needs is held while the SSD is used. While the SSD is asked for anything by one thread, another thread
//! reads a file through the same shard, and the SSD answers when that read is over.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use bathy_cache::{BlockStore, Engine, Options, open};
use bathy_policy::{CachePolicy, PolicyKind};

use crate::common::{LINE, MemoryStore, Random, UNIT, World, identity, passes_on};

/// Whoever takes longer than this waits for a lock.
const PATIENCE: Duration = Duration::from_secs(20);
const BYTES: u64 = 40 * LINE;
/// The file that the other thread reads.
const OTHER: u8 = 9;

thread_local! {
    /// Whether the operations of this thread wait for a read of the other one.
    static WAITS: Cell<bool> = const { Cell::new(false) };
}

/// An SSD that answers when another thread has read something.
struct Watched {
    store: Arc<MemoryStore>,
    /// Where a read is ordered, and where its end is told.
    reads: Mutex<Option<(Sender<()>, Receiver<()>)>>,
    /// Operations that waited for one: reads, writes, flushes.
    waited: [AtomicU64; 3],
}

impl Watched {
    fn between(&self, operation: usize) {
        if !WAITS.get() {
            return;
        }
        let reads = self.reads.lock().expect("no panic");
        let Some((order, end)) = reads.as_ref() else {
            return;
        };
        order.send(()).expect("the reader runs");
        let what = ["read", "write", "flush"][operation];
        end.recv_timeout(PATIENCE)
            .unwrap_or_else(|_| panic!("a {what} of the SSD keeps a read of another line waiting"));
        self.waited[operation].fetch_add(1, Ordering::Relaxed);
    }
}

impl BlockStore for Watched {
    passes_on!(stamp, size_bytes);

    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.between(0);
        self.store.read(buffer, offset)
    }

    fn write(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.between(1);
        self.store.write(data, offset)
    }

    fn flush(&self) -> io::Result<()> {
        self.between(2);
        self.store.flush()
    }
}

/// Reads what it is asked to, line by line of a file of its own.
fn read_when_asked(engine: &Arc<Engine>, orders: &Receiver<()>, ends: &Sender<()>) {
    let store = MemoryStore::new(vec![7; 2 * LINE as usize]);
    let file = engine.attach(identity(OTHER), store);
    let file = file.expect("the backing works");
    let mut out = vec![0; UNIT as usize];
    ends.send(()).expect("somebody waits until the file is open");
    for number in 0.. {
        if orders.recv().is_err() {
            return;
        }
        // After the stop it is refused, which needs no lock either.
        let read = file.read(&mut out, number % 8 * UNIT, 0);
        assert!(read.is_err() || out.iter().all(|&byte| byte == 7));
        if ends.send(()).is_err() {
            return;
        }
    }
}

/// All that uses the SSD of a running cache, by a thread that holds what it holds.
fn use_all(engine: &Arc<Engine>, world: &World) {
    let file = engine.attach(identity(1), world.backing.clone());
    let file = file.expect("the backing works");
    let mut random = Random(7);
    let mut data = vec![0; 2 * LINE as usize];
    for number in 0..300 {
        let len = 512 * (1 + random.below(2 * LINE / 512)) as usize;
        // A part of the file fits, so that there are hits on the SSD as well as newcomers.
        let reach = if random.chance(0.6) { 6 * LINE } else { BYTES };
        let offset = random.below((reach - len as u64) / 512) * 512;
        let data = &mut data[..len];
        match random.below(10) {
            0..6 => drop(file.read(data, offset, number).expect("the backing works")),
            6..9 => {
                random.fill(data);
                file.write(data, offset, number).expect("the backing works");
            }
            _ => drop(engine.tidy()),
        }
    }
    file.discard(0..3 * LINE, || {
        world.backing.write(&vec![0; 3 * LINE as usize], 0)
    })
    .expect("the backing works");
    let mut out = vec![0; BYTES as usize];
    file.read(&mut out, 0, 0).expect("the backing works");
    assert!(out == world.backing.bytes());
    while engine.compare_next().is_some() {}
    file.forget(|| Ok(())).expect("the backing works");
    assert_eq!(engine.counts().mismatches, 0);
    assert!(engine.stop().expect("the backing works"));
}

fn watched(world: &World) -> Arc<Watched> {
    Arc::new(Watched {
        store: world.ssd.clone(),
        reads: Mutex::default(),
        waited: Default::default(),
    })
}

fn no_lock_is_held(policy: PolicyKind) {
    let mut world = World::running(policy, LINE, BYTES, 12, 1);
    world.options = Options {
        compared_bytes_min: 0,
        ..world.options
    };
    // Lines that are compared, as their file is changed between the sessions.
    let engine = world.open().engine;
    let mut out = vec![0; BYTES as usize];
    engine.read(&mut out, 0, 0).expect("the backing works");
    assert!(engine.stop().expect("the backing works"));
    drop(engine);
    world.backing.change_offline(3, 1);
    let ssd = watched(&world);
    let opened = open(ssd.clone(), world.witness.clone(), &world.options).expect("it is a cache");
    let ((order, orders), (ends, end)) = (channel(), channel());
    let engine = opened.engine.clone();
    let reader = thread::spawn(move || read_when_asked(&engine, &orders, &ends));
    end.recv().expect("the file can be opened");
    *ssd.reads.lock().expect("no panic") = Some((order, end));
    WAITS.set(true);
    use_all(&opened.engine, &world);
    WAITS.set(false);
    let waited = ssd.waited.each_ref().map(|count| count.load(Ordering::Relaxed));
    eprintln!("{policy:?}: reads, writes and flushes {waited:?}");
    assert!(waited.into_iter().all(|count| count > 5), "{waited:?}");
    // Nothing more is asked of the reader.
    *ssd.reads.lock().expect("no panic") = None;
    reader.join().expect("no wrong byte");
}

#[test]
fn a_read_needs_no_lock_that_is_held_while_the_ssd_is_used() {
    for policy in CachePolicy::KINDS {
        no_lock_is_held(policy);
    }
}
