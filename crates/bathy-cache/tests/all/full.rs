//! A file system below that is full: what was written in part, and what removed files keep.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bathy_cache::BlockStore;
use bathy_cache_model::WriteMode;

use crate::common::{LINE, MemoryStore, World, identity, passes_on};

/// A file in a file system with room for so many bytes.
struct Full {
    store: Arc<MemoryStore>,
    room_bytes: AtomicUsize,
}

impl Full {
    fn with_room(room_bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            store: MemoryStore::new(Vec::new()),
            room_bytes: AtomicUsize::new(room_bytes as usize),
        })
    }
}

impl BlockStore for Full {
    passes_on!(read, flush, stamp, size_bytes);

    fn write(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let written = self.write_some(data, offset)?;
        if written < data.len() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    fn write_some(&self, data: &[u8], offset: u64) -> io::Result<usize> {
        let room_bytes = self.room_bytes.load(Ordering::Relaxed);
        let written = data.len().min(room_bytes);
        if written == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.room_bytes.store(room_bytes - written, Ordering::Relaxed);
        self.store.write(&data[..written], offset)?;
        Ok(written)
    }
}

#[test]
fn a_write_that_is_done_in_part_says_how_much_and_the_error_comes_with_the_rest() {
    for mode in [WriteMode::Allocate, WriteMode::Update, WriteMode::Invalidate] {
        let mut world = World::new(LINE, 40, 1);
        world.options.write_mode = mode;
        let cache = world.open().engine;
        let full = Full::with_room(5 * LINE / 2);
        let file = cache.engine.attach(identity(9), full.clone()).expect("it works");
        let data: Vec<u8> = (0..4 * LINE).map(|at| (at % 251) as u8).collect();
        let written = file.write(&data, 0, 0).expect("there was room for some");
        assert_eq!(written as u64, 5 * LINE / 2, "{mode:?}");
        assert_eq!(file.size_bytes(), 5 * LINE / 2);
        let error = file
            .write(&data[written..], written as u64, 0)
            .expect_err("no room");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        // Through the cache, twice, and below.
        for _ in 0..2 {
            let mut read = vec![0; data.len()];
            assert_eq!(file.read(&mut read, 0, 0).expect("read"), written);
            assert!(read[..written] == data[..written], "{mode:?}");
        }
        assert!(full.store.bytes() == data[..written]);
    }
}

#[test]
fn nothing_keeps_a_removed_file_open_after_its_last_user() {
    let world = World::new(LINE, 40, 1);
    let cache = world.open().engine;
    for is_open_when_removed in [true, false] {
        let store = MemoryStore::new(vec![0; 2 * LINE as usize]);
        let file = cache.engine.attach(identity(9), store.clone()).expect("it works");
        file.write(&[1; 4096], 0, 0).expect("written");
        let mut file = Some(file);
        if !is_open_when_removed {
            file = None;
        }
        cache.forget(&identity(9), || Ok(())).expect("removed");
        if let Some(file) = &file {
            file.write(&[2; 4096], 4096, 0).expect("written");
        }
        drop(file);
        assert_eq!(
            Arc::strong_count(&store),
            1,
            "open when removed: {is_open_when_removed}"
        );
        assert!(cache.tidy());
    }
    assert_eq!(cache.lines().0, 0, "its lines are gone too");
}
