//! What a request that panicked may have left half done is trusted no more: its source, and the SSD if all share it.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use bathy_cache::{BlockStore, LiveCache, Recovery, SourceMode, inspect, open};
use bathy_cache_model::WriteMode;

use crate::common::{
    Cache, Fault, LINE, MemoryStore, UNIT, World, assert_serves_backing, identity, passes_on,
};

/// Whoever takes longer than this hangs.
const PATIENCE: Duration = Duration::from_secs(120);

const BYTES: usize = 4 * LINE as usize;

/// An SSD of which the next write to the file table panics, when it is told so: that table is locked meanwhile.
struct PanicsAtFiles {
    store: Arc<MemoryStore>,
    is_armed: AtomicBool,
}

impl BlockStore for PanicsAtFiles {
    passes_on!(read, flush, stamp, size_bytes);

    fn write(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let found = inspect(Arc::clone(&self.store) as Arc<dyn BlockStore>);
        let layout = found.expect("it is a cache").geometry.layout();
        let files = layout.files(0)..layout.files(layout.file_blocks());
        let panics = files.contains(&offset) && self.is_armed.swap(false, Ordering::SeqCst);
        assert!(!panics, "on purpose");
        self.store.write(data, offset)
    }
}

#[test]
fn a_source_that_was_distrusted_is_not_waited_for_when_the_ssd_changes() {
    let world = World::new(BYTES as u64, 60, 2);
    let opened = open(world.ssd.clone(), world.witness.clone(), &world.options).expect("it is a cache");
    let cache = LiveCache::new(
        Some((opened.engine, world.ssd.clone())),
        world.witness.clone(),
        world.options,
    );
    let file = cache
        .attach(identity(1), world.backing.clone(), false)
        .expect("the backing works");
    file.write(&[1; UNIT as usize], 0, 0).expect("the backing works");
    let source = *identity(1).source();
    cache
        .with_engine(|engine| engine.distrust_source(&source))
        .expect("the witness works");
    world.backing.set_fault(Fault::Hang(0));
    let (done, is_done) = mpsc::channel();
    let bytes = (1 << 20) + 50 * LINE;
    thread::scope(|scope| {
        scope.spawn(|| {
            cache.resize(bytes).expect("nothing is asked of the backing");
            cache.with_engine(|engine| engine.set_mode(&source, SourceMode::Cached(WriteMode::Allocate)));
            let again = cache.attach(identity(1), world.backing.clone(), false);
            done.send(again.map(|_| ())).expect("the test listens");
        });
        let ended = is_done.recv_timeout(PATIENCE);
        world.backing.release();
        ended
            .expect("it waits for the backing")
            .expect("the backing works");
    });
    let hits = || file.counts().reads.requests_hit;
    let (before, mut line) = (hits(), vec![0; LINE as usize]);
    for number in 0..3 {
        file.read(&mut line, 0, number).expect("the backing works");
    }
    assert_eq!(hits(), before, "it stays so, whatever its mode");
}

#[test]
fn a_panic_that_held_what_all_share_makes_the_ssd_void_and_another_one_its_source_alone() {
    for is_of_all in [false, true] {
        let world = World::new(BYTES as u64, 60, 2);
        let ssd = Arc::new(PanicsAtFiles {
            store: world.ssd.clone(),
            is_armed: AtomicBool::new(false),
        });
        let opened = open(ssd.clone(), world.witness.clone(), &world.options).expect("it is a cache");
        let engine = opened.engine;
        let cache = Cache::new(engine.clone(), world.backing.clone());
        let others = MemoryStore::new(vec![3; BYTES]);
        let other = bathy_cache::FileIdentity::new([9; 16], &[1]).expect("a handle");
        let other = engine.attach(other, others).expect("the backing works");
        let mut line = vec![0; LINE as usize];
        for number in 0..2 {
            cache.read(&mut line, 0, number).expect("the backing works");
            other.read(&mut line, 0, number).expect("the backing works");
        }
        engine.settle_source(identity(1).source());
        if is_of_all {
            // The first write since the file was at rest.
            ssd.is_armed.store(true, Ordering::SeqCst);
            let written = catch_unwind(AssertUnwindSafe(|| cache.write(&[1; UNIT as usize], 0, 3)));
            assert!(written.is_err() || !ssd.is_armed.load(Ordering::SeqCst));
        }
        engine
            .distrust_source(identity(1).source())
            .expect("the witness works");
        assert_eq!(engine.is_bypassed(), is_of_all);
        // It stays so in whatever mode.
        engine.set_mode(identity(1).source(), SourceMode::Cached(WriteMode::Allocate));
        let before = cache.file.counts().reads.requests_hit;
        assert_serves_backing(&cache, &world.backing.bytes(), LINE as usize, "distrusted");
        cache.write(&[2; UNIT as usize], 0, 4).expect("the backing works");
        assert_serves_backing(&cache, &world.backing.bytes(), LINE as usize, "and written to");
        assert_eq!(cache.file.counts().reads.requests_hit, before);
        let before = other.counts().reads.requests_hit;
        other.read(&mut line, 0, 5).expect("the backing works");
        assert!(line.iter().all(|&byte| byte == 3));
        let hits = other.counts().reads.requests_hit - before;
        assert_eq!(hits, u64::from(!is_of_all));
        assert_eq!(engine.stop().expect("the witness works"), !is_of_all);
        let recovery = world.open().recovery;
        assert_eq!(matches!(recovery, Recovery::Clean), !is_of_all);
        assert_eq!(matches!(recovery, Recovery::Cold(_)), is_of_all);
    }
}
