//! A device whose small reads go through the page cache and whose direct writes end by themselves: the kernel drops pages before
//! such a write and not after it, so one that is read meanwhile keeps the bytes of before.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bathy_cache::{Aligned, BlockStore, FileStore, Recovery, Until, open};

use crate::common::{Cache, MemoryStore, Random, UNIT, World, assert_serves_backing, passes_on};

const BYTES: u64 = 512 << 10;
const PAGE: u64 = 4096;

/// While it is written to without a `pwrite`, somebody reads each page of it.
struct Device {
    store: Arc<MemoryStore>,
    pages: Mutex<HashMap<u64, Vec<u8>>>,
    reads_meanwhile: AtomicU64,
}

impl Device {
    fn pages_of(range: Range<u64>) -> impl Iterator<Item = u64> {
        range.start / PAGE..range.end.div_ceil(PAGE)
    }

    fn drop_pages(&self, data: &[u8], offset: u64) {
        let mut pages = self.pages.lock().expect("no panic");
        for page in Self::pages_of(offset..offset + data.len() as u64) {
            pages.remove(&page);
        }
    }

    fn page(&self, page: u64) -> io::Result<Vec<u8>> {
        let mut pages = self.pages.lock().expect("no panic");
        if let Some(bytes) = pages.get(&page) {
            return Ok(bytes.clone());
        }
        let mut bytes = vec![0; PAGE as usize];
        self.store.read(&mut bytes, page * PAGE)?;
        pages.insert(page, bytes.clone());
        Ok(bytes)
    }
}

impl BlockStore for Device {
    passes_on!(flush, stamp, size_bytes);

    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        if offset % PAGE == 0 && buffer.len() as u64 % PAGE == 0 {
            return self.store.read(buffer, offset);
        }
        let within = (offset % PAGE) as usize;
        let page = self.page(offset / PAGE)?;
        buffer.copy_from_slice(&page[within..within + buffer.len()]);
        Ok(())
    }

    fn write(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.drop_pages(data, offset);
        let written = self.store.write(data, offset);
        self.drop_pages(data, offset);
        written
    }

    fn write_within(&self, data: Aligned, offset: u64, _: &Until<'_>) -> Result<io::Result<()>, Aligned> {
        self.drop_pages(&data, offset);
        for page in Self::pages_of(offset..offset + data.len() as u64) {
            self.reads_meanwhile.fetch_add(1, Ordering::Relaxed);
            self.page(page).expect("it works");
        }
        Ok(self.store.write(&data, offset))
    }

    fn leaves_old_pages(&self) -> bool {
        true
    }
}

#[test]
fn records_are_read_as_they_were_written_beside_small_reads_of_a_device() {
    for is_clean in [true, false] {
        let mut world = World::new(BYTES, 30, 1);
        world.options.ssd_deadline = Some(Duration::from_secs(60));
        world.options.ssd_write_deadline = world.options.ssd_deadline;
        let device = Arc::new(Device {
            store: world.ssd.clone(),
            pages: Mutex::default(),
            reads_meanwhile: AtomicU64::new(0),
        });
        let mut random = Random(1);
        for session in 0..4 {
            let opened = open(device.clone(), world.witness.clone(), &world.options).expect("it is a cache");
            assert!(session == 0 || matches!(opened.recovery, Recovery::Clean) == is_clean);
            let cache = Cache::new(opened.engine, world.backing.clone());
            // Memory has no record yet: each is read from the device.
            let cached = cache.lines().0;
            assert_serves_backing(&cache, &world.backing.bytes(), 16_384, "after the start");
            let counts = cache.counts();
            assert_eq!(counts.mismatches, 0, "session {session}, clean {is_clean}");
            assert!(
                session == 0 || counts.flash_read_bytes > 0,
                "{cached} lines and no hit"
            );
            for number in 0..200 {
                let mut out = [0; UNIT as usize];
                let offset = random.below(BYTES / UNIT) * UNIT;
                cache.read(&mut out, offset, number).expect("it works");
                random.fill(&mut out);
                if random.chance(0.3) {
                    cache.write(&out, offset, number).expect("it works");
                }
            }
            while cache.marked_regions() > 0 {
                cache.tidy();
            }
            assert_eq!(
                cache.counts().mismatches,
                0,
                "session {session}, clean {is_clean}"
            );
            if is_clean {
                assert!(cache.stop().expect("the backing works"));
            }
        }
        let reads_meanwhile = device.reads_meanwhile.load(Ordering::Relaxed);
        assert!(reads_meanwhile > 100, "{reads_meanwhile}");
    }
}

/// Aligned requests go past the page cache, and others and buffered writes through it.
#[test]
fn a_file_that_is_written_both_ways_reads_as_what_was_written_last() {
    let path = std::env::temp_dir().join(format!("bathy-page-cache-{}", std::process::id()));
    std::fs::write(&path, vec![0; BYTES as usize]).expect("the directory is writable");
    let store = FileStore::open_unlocked(&path).expect("it is a file");
    let other = FileStore::open_unlocked(&path).expect("it is a file");
    assert_eq!(store.name(), path.display().to_string());
    let mut bytes = vec![0; BYTES as usize];
    let mut random = Random(5);
    for number in 0..3000 {
        let (mut offset, mut len) = (random.below(16 * PAGE), 1 + random.below(3 * PAGE));
        if random.chance(0.6) {
            (offset, len) = (offset / PAGE * PAGE, len.next_multiple_of(PAGE));
        }
        let range = offset as usize..(offset + len) as usize;
        let mut data = Aligned::new(len as usize);
        match random.below(7) {
            0..2 => {
                random.fill(&mut data);
                bytes[range].copy_from_slice(&data);
                let written = store.write_some_buffered(&data, offset);
                assert_eq!(written.expect("there is room"), len as usize);
            }
            2..4 => {
                random.fill(&mut data);
                bytes[range].copy_from_slice(&data);
                let written = store.write_some(&data, offset);
                assert_eq!(written.expect("there is room"), len as usize);
            }
            4 => store.flush().expect("the disk works"),
            which => {
                // Also as somebody sees it who knows nothing of the pages.
                let store = if which == 5 { &store } else { &other };
                store.read(&mut data, offset).expect("it is there");
                assert!(data[..] == bytes[range], "request {number} at {offset}");
            }
        }
    }
    store.flush().expect("the disk works");
    drop(store);
    assert!(std::fs::read(&path).expect("it is there") == bytes);
    std::fs::remove_file(&path).expect("the test's own");
}
