//! The real stores: files with direct I/O, their lock, their times, and the memory that a large cache takes.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bathy_cache::{
    BlockStore, CreateOptions, FileStore, GenerationFile, OpCounts, Options, Recovery, create, open,
};

use bathy_cache_model::LineSize;

use crate::common::{Cache, LINE_SIZES, Opened, Random, assert_serves_backing};

/// A directory of one test; gone when it ends.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory for the test");
        Self(path)
    }

    fn file(&self, name: &str, bytes: u64) -> PathBuf {
        let path = self.0.join(name);
        File::create(&path)
            .and_then(|file| file.set_len(bytes))
            .expect("a sparse file");
        path
    }

    fn store(&self, name: &str) -> Arc<FileStore> {
        Arc::new(FileStore::open(&self.0.join(name)).expect("nobody else has it"))
    }

    fn create(&self, line: u64) {
        let witness = GenerationFile::new(self.0.join("witness"));
        let options = CreateOptions {
            line: LineSize::new(line).expect("a power of two"),
            ..CreateOptions::new(*b"0123456789abcdef")
        };
        create(self.store("ssd"), &witness, &options).expect("there is room");
    }

    fn open(&self) -> Opened {
        let witness = Arc::new(GenerationFile::new(self.0.join("witness")));
        let opened = open(self.store("ssd"), witness, &Options::default()).expect("it is a cache");
        Opened {
            engine: Cache::new(opened.engine, self.store("backing")),
            recovery: opened.recovery,
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_cache_over_files_is_warm_after_a_stop_and_cold_after_a_change() {
    for line in LINE_SIZES {
        is_warm_after_a_stop_and_cold_after_a_change(line);
    }
}

fn is_warm_after_a_stop_and_cold_after_a_change(line: u64) {
    let directory = Directory::new("files");
    let mut bytes = vec![0; (4 << 20) + 1000];
    Random(5).fill(&mut bytes);
    fs::write(directory.0.join("backing"), &bytes).expect("a backing");
    directory.file("ssd", 40 << 20);
    directory.create(line);
    let engine = directory.open().engine;
    let second = FileStore::open(&directory.0.join("backing"))
        .err()
        .expect("it is in use");
    assert_eq!(second.kind(), std::io::ErrorKind::WouldBlock);
    let mut random = Random(6);
    for _ in 0..2000 {
        let offset = random.below(bytes.len() as u64);
        let len = (1 + random.below(20_000)).min(bytes.len() as u64 - offset);
        // Half of them are aligned.
        let (offset, len) = if random.chance(0.5) {
            (offset, len)
        } else {
            (offset / 4096 * 4096, len / 4096 * 4096)
        };
        let range = offset as usize..(offset + len) as usize;
        if random.chance(0.4) {
            random.fill(&mut bytes[range.clone()]);
            engine.write(&bytes[range], offset, 0).expect("written");
        } else {
            let mut out = vec![0; range.len()];
            let is_held = engine.file.holds(offset, range.len());
            let hits = |reads: OpCounts| (reads.requests, reads.requests_hit);
            let before = hits(engine.counts().reads);
            engine.read(&mut out, offset, 0).expect("read");
            let after = hits(engine.counts().reads);
            assert_eq!(is_held, after.0 - before.0 == after.1 - before.1, "foretold");
            assert!(out == bytes[range]);
        }
    }
    assert_serves_backing(&engine, &bytes, 100_000, "used");
    assert!(engine.stop().expect("stopped"));
    drop(engine);
    let opened = directory.open();
    assert_eq!(opened.recovery, Recovery::Clean);
    assert_serves_backing(&opened.engine, &bytes, 100_000, "warm");
    let reads = opened.engine.counts().reads;
    assert_eq!(reads.requests_hit, reads.requests, "all of it fits");
    assert!(opened.engine.stop().expect("stopped"));
    assert!(
        fs::read(directory.0.join("backing")).expect("the backing") == bytes,
        "complete without the cache"
    );
    let backing = File::options()
        .write(true)
        .open(directory.0.join("backing"))
        .expect("the backing");
    backing.write_all_at(b"x", 70_000).expect("changed");
    // Apart from the last write by more than the clock's tick.
    let later = SystemTime::now() + Duration::from_secs(5);
    backing.set_modified(later).expect("changed");
    drop((opened, backing));
    assert_eq!(directory.open().engine.counts().changed_files, 1);
}

#[test]
fn a_line_of_64_kib_or_less_takes_at_most_48_bytes_of_memory() {
    for (line, bytes_max) in LINE_SIZES.into_iter().zip([48.0, 48.0, 100.0]) {
        takes_at_most(line, bytes_max);
    }
}

fn takes_at_most(line: u64, bytes_max: f64) {
    let directory = Directory::new("memory");
    // Sparse: nothing of it is written but the intent bitmap.
    directory.file("backing", 64 << 30);
    directory.file("ssd", 16 << 30);
    directory.create(line);
    let engine = directory.open().engine;
    let per_line = engine.memory_bytes() as f64 / engine.capacity_lines() as f64;
    let of_ssd = engine.stage_bytes() as f64 / (16u64 << 30) as f64;
    eprintln!(
        "{per_line:.1} bytes a line of {line} bytes, {} lines; {:.2} % of the SSD in memory",
        engine.capacity_lines(),
        of_ssd * 100.0
    );
    assert!(engine.capacity_lines() > (16 << 30) / line * 98 / 100);
    assert!(per_line <= bytes_max, "{per_line}");
    assert!((0.01..0.02).contains(&of_ssd));
}

#[test]
fn what_is_not_aligned_goes_through_the_page_cache_and_is_the_same_file() {
    let directory = Directory::new("store");
    directory.file("store", 1 << 20);
    let store = directory.store("store");
    store.write(&[1; 8192], 4096).expect("direct");
    store.write(&[2; 100], 5000).expect("buffered");
    let mut out = vec![0; 8192];
    store.read(&mut out, 4096).expect("direct");
    assert_eq!([out[903], out[904], out[1003], out[1004]], [1, 2, 2, 1]);
    store.flush().expect("flushed");
    assert!(store.read(&mut out, (1 << 20) - 4096).is_err(), "beyond the end");
    let identity = store.stamp().expect("known");
    assert_eq!(identity.size_bytes, 1 << 20);
    assert!(identity.id != 0 && identity.modified_ns > 0);
}
