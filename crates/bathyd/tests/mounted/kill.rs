//! `kill -9` of the daemon while threads write, read, punch and flush. After each restart every block is what the last
//! acknowledged write made it, or what the one that was under way at the kill would have; never anything older. What is below
//! is the same, byte for byte.
//!
//! What a killed daemon wrote stays in the page cache of the kernel, so this holds without a flush as well.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::mount::{MntFlags, umount2};
use rustix::fs::{FallocateFlags, fallocate};
use serde_json::json;

use crate::daemon::{Loop, Place, Random, asked, is_mounted, is_skipped};

/// A file of blocks. Whole units of the cache, of 4 KiB, are written with direct I/O below, parts of them are not.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    bytes: u64,
    block_bytes: u64,
    /// Blocks side by side that are of one worker: less than a line of the cache.
    stripe: u64,
}

const FILES: [Kind; 4] = [
    kind("whole", 16 << 20, 4096, 4),
    // Several workers write to a unit.
    kind("sectors", 1 << 20, 512, 4),
    // Whole units and parts of them side by side.
    kind("parts", 2 << 20, 256, 32),
    kind("block", 8 << 20, 4096, 4),
];
const WORKERS: u64 = 4;
const UNIT: u64 = 4096;
/// What was written to lately in a region is dropped after a kill.
const REGION: u64 = 4 << 20;
/// The daemon tidies its cache every 5 s: kills around that moment fall between these.
const TIDY_AT_LEAST: Duration = Duration::from_millis(4950);
const TIDY_SPREAD_MS: u64 = 200;

const fn kind(name: &'static str, bytes: u64, block_bytes: u64, stripe: u64) -> Kind {
    Kind {
        name,
        bytes,
        block_bytes,
        stripe,
    }
}

impl Kind {
    fn blocks(&self) -> u64 {
        self.bytes / self.block_bytes
    }

    fn owner(&self, block: u64) -> u64 {
        block / self.stripe % WORKERS
    }
}

/// What a block should hold: the number of the write that made it, or 0 for zeroes.
#[derive(Clone, Copy, Default)]
struct Block {
    settled: u64,
    /// A write that was not acknowledged.
    attempted: Option<u64>,
}

/// The bytes of a block say which file, block and write they are of, all of them.
fn content(file: usize, block: u64, write: u64, out: &mut [u8]) {
    if write == 0 {
        out.fill(0);
        return;
    }
    let mut word = write ^ (block << 32) ^ ((file as u64) << 60);
    for chunk in out.chunks_exact_mut(8) {
        chunk.copy_from_slice(&word.to_le_bytes());
        word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
    }
}

/// Checks a block, and returns the write that it is of.
fn recognise(file: usize, number: u64, block: Block, found: &[u8]) -> Result<u64, String> {
    let mut expected = vec![0; found.len()];
    for write in [Some(block.settled), block.attempted].into_iter().flatten() {
        content(file, number, write, &mut expected);
        if found == expected {
            return Ok(write);
        }
    }
    let word = u64::from_le_bytes(found[..8].try_into().expect("8 bytes"));
    let write = word ^ (number << 32) ^ ((file as u64) << 60);
    content(file, number, write, &mut expected);
    Err(format!(
        "{} block {number}: write {write} (whole: {}) instead of {} or {:?}",
        FILES[file].name,
        expected == found,
        block.settled,
        block.attempted,
    ))
}

/// A thread with the blocks that are its own.
struct Worker {
    number: u64,
    random: Random,
    writes: u64,
    blocks: Vec<Vec<Block>>,
}

impl Worker {
    fn new(number: u64) -> Self {
        let blocks = FILES.map(|file| vec![Block::default(); file.blocks() as usize]);
        Self {
            number,
            random: Random::new(number + 1),
            writes: 0,
            blocks: blocks.to_vec(),
        }
    }

    fn open(dir: &Path) -> io::Result<Vec<File>> {
        let mut options = File::options();
        let options = options.read(true).write(true);
        FILES
            .iter()
            .map(|file| options.open(dir.join(file.name)))
            .collect()
    }

    /// One operation. The error is one of the mount; a wrong byte is a panic.
    fn step(&mut self, files: &[File], part: u64) -> io::Result<()> {
        let random = &mut self.random;
        let index = random.below(FILES.len() as u64) as usize;
        let (kind, file) = (&FILES[index], &files[index]);
        let (block_bytes, stripe_blocks) = (kind.block_bytes, kind.stripe);
        let stripes = kind.blocks() / stripe_blocks / WORKERS;
        let regions = kind.bytes.div_ceil(REGION);
        let what = random.below(32);
        // Reads of all that is there, but writes and half of the reads in a part of one region, so that threads meet.
        let stripe = if what < 7 {
            random.below(stripes)
        } else {
            part % regions * (stripes / regions) + random.below(stripes / regions / 4)
        };
        let (mut first, mut blocks) = (random.below(stripe_blocks), 1);
        if stripe_blocks * block_bytes > UNIT && random.below(2) == 0 {
            blocks = UNIT / block_bytes;
            first -= first % blocks;
        } else {
            blocks += random.below(stripe_blocks - first);
        }
        first += (stripe * WORKERS + self.number) * stripe_blocks;
        let end = first + blocks;
        let (offset, length) = (first * block_bytes, (end - first) * block_bytes);
        match what {
            0..=13 => {
                // Others' blocks as well, for fills that meet their writes.
                let last = (first + 1 + random.below(64)).min(kind.blocks());
                let mut found = vec![0; ((last - first) * block_bytes) as usize];
                file.read_exact_at(&mut found, offset)?;
                for (block, found) in (first..last).zip(found.chunks_exact(block_bytes as usize)) {
                    if kind.owner(block) == self.number {
                        recognise(index, block, self.blocks[index][block as usize], found)
                            .unwrap_or_else(|problem| panic!("{problem}"));
                    }
                }
            }
            14..=29 => {
                let is_hole = what == 29;
                let mut data = vec![0; length as usize];
                for (block, out) in (first..end).zip(data.chunks_exact_mut(block_bytes as usize)) {
                    self.writes += 1;
                    // Numbers of all workers differ.
                    let write = if is_hole {
                        0
                    } else {
                        self.writes * WORKERS + self.number
                    };
                    self.blocks[index][block as usize].attempted = Some(write);
                    content(index, block, write, out);
                }
                if is_hole {
                    let mode = FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE;
                    fallocate(file, mode, offset, length)?;
                } else {
                    file.write_all_at(&data, offset)?;
                }
                for block in &mut self.blocks[index][first as usize..end as usize] {
                    block.settled = block.attempted.take().expect("it was attempted");
                }
            }
            _ => file.sync_data()?,
        }
        Ok(())
    }

    /// Operations until they fail or it is over.
    fn run(&mut self, dir: &Path, part: u64, is_over: &AtomicBool) -> io::Result<()> {
        let files = Self::open(dir)?;
        while !is_over.load(Ordering::Relaxed) {
            self.step(&files, part)?;
        }
        Ok(())
    }
}

/// Every block is what it should be, and the same below. What was under way has happened or not from now on.
fn verify(workers: &mut [Worker], shown: &Path, bare: &Path, context: &str) {
    for (index, kind) in FILES.iter().enumerate() {
        let [found, below] = [shown, bare].map(|dir| {
            let mut found = vec![0; kind.bytes as usize];
            let file = File::open(dir.join(kind.name)).expect("the file");
            file.read_exact_at(&mut found, 0).expect("read");
            found
        });
        for (number, found) in (0..).zip(found.chunks_exact(kind.block_bytes as usize)) {
            let block = &mut workers[kind.owner(number) as usize].blocks[index][number as usize];
            match recognise(index, number, *block, found) {
                Ok(write) => {
                    *block = Block {
                        settled: write,
                        attempted: None,
                    }
                }
                Err(problem) => panic!("{context}: {problem}"),
            }
        }
        assert!(found == below, "{context}: {} is another file below", kind.name);
    }
}

/// What came of it.
#[derive(Debug, Default)]
struct Story {
    kills: u64,
    kills_in_start: u64,
    kills_near_tidy: u64,
    stops: u64,
    bare_uses: u64,
    /// From the cache, in the first reading after a kill.
    warm_bytes: u64,
    ended_by_kill: u64,
    operations: u64,
}

fn kill_under_load(after_unclean: &str, kills: u64, seed: u64) {
    let place = Place::new();
    for Kind { name, bytes, .. } in FILES {
        let path = if name == "block" {
            place.path("disk")
        } else {
            place.dir().join(name)
        };
        File::create(path)
            .and_then(|file| file.set_len(bytes))
            .expect("a file");
    }
    let Some(device) = Loop::new(&place.path("disk")) else {
        return;
    };
    std::os::unix::fs::symlink(&device.0, place.dir().join("block")).expect("a link");
    // Room for about half of it.
    place.ssd(14 << 20);
    // By this descriptor the directory is reached when it is mounted over.
    let below = File::open(place.dir()).expect("a directory");
    let bare = PathBuf::from(format!("/proc/self/fd/{}", below.as_raw_fd()));
    let mut random = Random::new(seed);
    let mut workers: Vec<_> = (0..WORKERS).map(Worker::new).collect();
    let mut story = Story::default();
    let mut was_killed = false;
    while story.kills < kills {
        let mode = [
            "write-through",
            "write-through",
            "write-around",
            "read-only",
            "pass-through",
        ];
        let mode = mode[random.below(mode.len() as u64) as usize];
        let mut config = place.adaptive(mode);
        config["cache"]["after_unclean"] = json!(after_unclean);
        let context = format!("{story:?}, {mode}");
        if random.below(8) == 0 {
            let daemon = place.spawn(&config);
            thread::sleep(Duration::from_millis(random.below(60)));
            daemon.end();
            story.kills += 1;
            story.kills_in_start += 1;
        }
        let (daemon, began) = (place.start(&config), Instant::now());
        verify(&mut workers, &place.dir(), &bare, &context);
        let engine = daemon.status()["cache"]["engine"].clone();
        if mode != "pass-through" {
            assert_eq!(engine["ssd_errors"], 0, "{context}");
            if was_killed {
                story.warm_bytes += engine["reads"]["bytes_hit"].as_u64().expect("a count");
            }
        }
        // Now and then around the moment at which the cache is tidied; only then the SSD has most of its records.
        let is_near_tidy = random.below(5) == 0;
        let until = if is_near_tidy {
            began + TIDY_AT_LEAST + Duration::from_millis(random.below(TIDY_SPREAD_MS))
        } else {
            Instant::now() + Duration::from_millis(random.below(250))
        };
        let (is_over, is_killed) = (AtomicBool::new(false), AtomicBool::new(false));
        let is_stopped = random.below(8) == 0;
        let part = random.below(4);
        thread::scope(|scope| {
            let running: Vec<_> = workers
                .iter_mut()
                .map(|worker| {
                    let (dir, is_over) = (place.dir(), &is_over);
                    scope.spawn(move || worker.run(&dir, part, is_over))
                })
                .collect();
            thread::sleep(until.saturating_duration_since(Instant::now()));
            let daemon = if is_stopped {
                is_over.store(true, Ordering::Relaxed);
                Some(daemon)
            } else {
                is_killed.store(true, Ordering::Relaxed);
                daemon.kill();
                None
            };
            for running in running {
                match running.join().expect("no wrong byte") {
                    Ok(()) => {}
                    Err(error) => {
                        assert!(is_killed.load(Ordering::Relaxed), "{context}: {error}");
                        story.ended_by_kill += 1;
                    }
                }
            }
            if let Some(daemon) = daemon {
                daemon.stop();
            }
        });
        was_killed = !is_stopped;
        story.kills += u64::from(was_killed);
        story.kills_near_tidy += u64::from(was_killed && is_near_tidy);
        story.stops += u64::from(is_stopped);
        // Who compares some lines does not find what changed elsewhere.
        if after_unclean == "cold" && random.below(6) == 0 {
            if is_mounted(&place.dir()) {
                umount2(&place.dir(), MntFlags::MNT_DETACH).expect("unmounted");
            }
            verify(&mut workers, &place.dir(), &bare, &context);
            for worker in &mut workers {
                let files = Worker::open(&place.dir()).expect("the plain directory");
                for _ in 0..5 {
                    worker.step(&files, 0).expect("the plain directory works");
                }
                for file in &files {
                    file.sync_all().expect("durable");
                }
            }
            story.bare_uses += 1;
        }
    }
    story.operations = workers.iter().map(|worker| worker.writes).sum();
    eprintln!("{after_unclean}: {story:?}");
    assert!(story.warm_bytes > 0 && story.ended_by_kill > 0, "{story:?}");
}

#[test]
fn no_block_is_lost_or_goes_back_when_the_daemon_is_killed_under_load() {
    if is_skipped() {
        return;
    }
    let kills = asked("BATHY_TORTURE_KILLS", 12);
    kill_under_load("cold", kills - kills / 3, 5);
    kill_under_load("verify", kills / 3, 6);
}
