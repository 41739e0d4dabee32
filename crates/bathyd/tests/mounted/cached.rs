//! A cached file against a model of its bytes, through the mount, across clean stops and kills.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::mount::{MntFlags, umount2};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::{ReadWriteFlags, preadv2, pwritev2};

use crate::daemon::{Daemon, Loop, Place, Random, is_skipped, operations};

const FILE_BYTES: u64 = 32 << 20;
const ALIGNMENT: u64 = 4096;
/// Each start takes the next one: what was written without the cache must not be found in it later.
const MODES: [&str; 4] = ["write-through", "write-around", "pass-through", "read-only"];

/// The file with and without direct I/O.
fn open(place: &Place) -> [File; 2] {
    [0, libc::O_DIRECT].map(|flags| {
        let mut options = File::options();
        options.read(true).write(true).custom_flags(flags);
        options.open(place.dir().join("block")).expect("the file")
    })
}

#[test]
fn reads_return_what_was_written_last() {
    if is_skipped() {
        return;
    }
    let total = operations(6_000);
    let (mut hits, mut kills) = (0, 0);
    for line_bytes in [16 << 10, 64 << 10, 256 << 10] {
        let of_line = reads_with_lines(line_bytes, total.div_ceil(3));
        eprintln!("lines of {line_bytes}: {of_line:?} hits and kills");
        hits += of_line.0;
        kills += of_line.1;
    }
    assert!(hits > total / 40 && kills > 0, "{hits} hits, {kills} kills");
}

/// The hits and the kills of so many operations.
fn reads_with_lines(line_bytes: u64, total: u64) -> (u64, u64) {
    let place = Place::new();
    let mut model = vec![0_u8; FILE_BYTES as usize];
    let made = File::create(place.dir().join("block")).expect("a file");
    made.set_len(FILE_BYTES).expect("a size");
    place.ssd(12 << 20);
    let mut random = Random::new(3);
    let (mut hits, mut kills) = (0, 0);
    let mut done = 0;
    let mut was_killed = false;
    for mode in MODES.into_iter().cycle() {
        if done >= total {
            break;
        }
        let mut config = place.adaptive(mode);
        config["cache"]["line_bytes"] = line_bytes.into();
        let daemon = place.start(&config);
        let files = open(&place);
        for _ in 0..total.div_ceil(6) {
            done += 1;
            let direct = random.below(2) == 1;
            // Half of the requests in a sixteenth of the file, so that there are hits.
            let reach = if random.below(2) == 0 {
                FILE_BYTES / 16
            } else {
                FILE_BYTES
            };
            let (mut offset, mut length) = (random.below(reach - (200 << 10)), 1 + random.below(200 << 10));
            if direct {
                offset -= offset % ALIGNMENT;
                length = length.next_multiple_of(ALIGNMENT);
            }
            let file = &files[usize::from(direct)];
            let range = offset as usize..(offset + length) as usize;
            // Aligned in memory as well.
            let mut buffer = vec![0; (length + ALIGNMENT) as usize];
            let start = buffer.as_ptr().align_offset(ALIGNMENT as usize);
            let buffer = &mut buffer[start..start + length as usize];
            match random.below(10) {
                0..=5 => {
                    file.read_exact_at(buffer, offset).expect("read");
                    assert!(
                        *buffer == model[range],
                        "operation {done} at {offset}, {length} bytes"
                    );
                }
                6..=8 => {
                    buffer.copy_from_slice(&random.bytes(length as usize));
                    file.write_all_at(buffer, offset).expect("written");
                    model[range].copy_from_slice(buffer);
                }
                _ => {
                    let mode = FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE;
                    fallocate(file, mode, offset, length).expect("punched");
                    model[range].fill(0);
                }
            }
        }
        let engine = daemon.status()["cache"]["engine"].clone();
        if mode != "pass-through" {
            assert_eq!(engine["line_bytes"], line_bytes, "{engine}");
            hits += engine["reads"]["requests_hit"].as_u64().expect("a count");
            assert_eq!(engine["is_bypassed"], false);
            // A kill leaves old records of slots that have another line: these are misses.
            assert!(was_killed || engine["mismatches"] == 0, "{engine}");
        }
        drop(files);
        was_killed = random.below(2) == 0;
        if was_killed {
            kills += 1;
            daemon.kill();
        } else {
            daemon.stop();
            // What is below is what was shown.
            assert!(std::fs::read(place.dir().join("block")).expect("read") == model);
        }
    }
    (hits, kills)
}

#[test]
fn what_is_cached_before_a_clean_stop_is_cached_after_it() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    std::fs::write(place.dir().join("block"), Random::new(1).bytes(8 << 20)).expect("written");
    place.ssd(64 << 20);
    let config = place.config("write-through");
    let mut source_read_bytes = Vec::new();
    for _ in 0..3 {
        let daemon = place.start(&config);
        for _ in 0..2 {
            let [file, _] = open(&place);
            let mut block = [0; 4096];
            for offset in (0..8 << 20).step_by(4096) {
                file.read_exact_at(&mut block, offset).expect("read");
            }
        }
        let engine = daemon.status()["cache"]["engine"].clone();
        source_read_bytes.push(engine["source_read_bytes"].as_u64().expect("a count"));
        daemon.stop();
    }
    assert_eq!(source_read_bytes, [8 << 20, 0, 0]);
}

/// Starts a daemon, reads the first block, which is all `byte`, and returns how the cache was found.
fn found(place: &Place, byte: u8) -> (Daemon, String) {
    let daemon = place.start(&place.config("write-through"));
    let [file, _] = open(place);
    let mut block = [0; 4096];
    file.read_exact_at(&mut block, 0).expect("read");
    assert_eq!(block, [byte; 4096]);
    let found = daemon.status()["cache"]["found"].to_string();
    (daemon, found)
}

#[test]
fn a_directory_that_was_used_after_a_kill_is_cached_anew() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    let block = place.dir().join("block");
    std::fs::write(&block, vec![1; 4 << 20]).expect("written");
    place.ssd(16 << 20);
    found(&place, 1).0.kill();
    // The dead mount has kept everybody out. Whether the SSD had a record by then or not, nothing calls it clean.
    let (daemon, how) = found(&place, 1);
    assert!(!how.contains("clean: all"), "{how}");
    daemon.kill();
    umount2(&place.dir(), MntFlags::MNT_DETACH).expect("unmounted");
    std::fs::write(&block, vec![2; 4 << 20]).expect("written");
    let (daemon, _) = found(&place, 2);
    assert_eq!(daemon.status()["cache"]["engine"]["changed_files"], 1);
    daemon.stop();
}

#[test]
fn one_block_that_was_written_without_the_cache_is_not_found_in_it() {
    if is_skipped() {
        return;
    }
    let changed = 20 << 20;
    let place = Place::new();
    std::fs::write(place.dir().join("block"), vec![1; FILE_BYTES as usize]).expect("written");
    place.ssd(80 << 20);
    let daemon = place.start(&place.config("write-through"));
    for _ in 0..2 {
        assert!(
            std::fs::read(place.dir().join("block"))
                .expect("read")
                .iter()
                .all(|&byte| byte == 1)
        );
    }
    daemon.kill();
    let daemon = place.start(&place.config("pass-through"));
    let [file, _] = open(&place);
    file.write_all_at(&[2; 4096], changed).expect("written");
    drop(file);
    daemon.kill();
    let daemon = place.start(&place.config("write-through"));
    let [file, _] = open(&place);
    let mut block = [0; 4096];
    file.read_exact_at(&mut block, changed).expect("read");
    assert_eq!(block, [2; 4096]);
    drop(file);
    daemon.stop();
}

#[test]
fn a_device_is_shown_as_a_file_and_cached_anew_when_it_was_written_to_without_the_cache() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    std::fs::write(place.path("disk"), vec![1; 4 << 20]).expect("written");
    let Some(device) = Loop::new(&place.path("disk")) else {
        return;
    };
    let link = place.dir().join("block");
    std::os::unix::fs::symlink(&device.0, &link).expect("a link");
    std::os::unix::fs::symlink(&device.0, place.dir().join("other")).expect("a link");
    place.ssd(16 << 20);
    found(&place, 1).0.stop();
    let (daemon, how) = found(&place, 1);
    assert!(how.contains("clean: all"), "{how}");
    let is = std::fs::symlink_metadata(&link).expect("attributes");
    assert!(is.is_file() && is.len() == 4 << 20);
    assert!(
        std::fs::symlink_metadata(place.dir().join("other"))
            .expect("attributes")
            .is_symlink()
    );
    let mut listed: Vec<_> = std::fs::read_dir(place.dir())
        .expect("a directory")
        .map(|entry| entry.expect("an entry").file_type().expect("a kind").is_file())
        .collect();
    listed.sort_unstable();
    assert_eq!(listed, [false, true]);
    daemon.stop();

    let bare = File::options().write(true).open(&link).expect("the device");
    bare.write_all_at(&[2; 4096], 0).expect("written");
    bare.sync_all().expect("synced");
    let (daemon, _) = found(&place, 2);
    assert_eq!(daemon.status()["cache"]["engine"]["changed_files"], 1);
    daemon.stop();
}

#[test]
fn a_large_device_that_was_written_to_without_the_cache_is_compared_and_stays_warm() {
    const BYTES: usize = 80 << 20;
    if is_skipped() {
        return;
    }
    let place = Place::new();
    std::fs::write(place.path("disk"), vec![1; BYTES]).expect("written");
    let Some(device) = Loop::new(&place.path("disk")) else {
        return;
    };
    let link = place.dir().join("block");
    std::os::unix::fs::symlink(&device.0, &link).expect("a link");
    place.ssd(64 << 20);
    let begin = 40 << 20;
    let mut buffer = vec![0; 8 << 20];
    let mut read = |byte: Option<u8>| {
        let [file, _] = open(&place);
        file.read_exact_at(&mut buffer, begin).expect("read");
        assert!(buffer[1 << 20..].iter().all(|&is| is == 1));
        assert!(buffer[..1 << 20].iter().all(|&is| Some(is) == byte || is == 1));
    };
    let daemon = place.start(&place.config("write-through"));
    (0..3).for_each(|_| read(None));
    daemon.stop();
    let bare = File::options().write(true).open(&link).expect("the device");
    bare.write_all_at(&vec![2; 1 << 20], begin).expect("written");
    bare.sync_all().expect("synced");
    drop(bare);
    let daemon = place.start(&place.config("write-through"));
    read(Some(2));
    // Written to while it is compared, or just after.
    let [file, _] = open(&place);
    file.write_all_at(&vec![1; 1 << 20], begin + (2 << 20))
        .expect("written");
    let engine = || daemon.status()["cache"]["engine"].clone();
    let deadline = Instant::now() + Duration::from_secs(60);
    while engine()["uncompared_bytes"] != 0 {
        assert!(Instant::now() < deadline, "{}", engine());
        std::thread::sleep(Duration::from_millis(50));
    }
    let before = engine()["reads"]["bytes_hit"].as_u64();
    read(Some(2));
    let hit = engine()["reads"]["bytes_hit"]
        .as_u64()
        .zip(before)
        .map(|(is, was)| is - was);
    // What was not changed or written to meanwhile, but for the last of what was read.
    assert!(hit > Some(4 << 20), "{hit:?}");
    assert_eq!(
        (&engine()["mismatches"], &engine()["changed_files"]),
        (&0.into(), &0.into())
    );
    drop(file);
    daemon.stop();
}

#[test]
fn a_file_that_grows_is_cut_and_punched_stays_cached_and_right() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    place.ssd(16 << 20);
    let daemon = place.start(&place.config("write-through"));
    let counted = |kind: &str, what: &str| daemon.status()["cache"]["engine"][kind][what].clone();
    // As an OSD that is made does: the file is new, gets its size, and is opened again.
    let file = File::create_new(place.dir().join("block")).expect("a file");
    file.set_len(4 << 20).expect("a size");
    drop(file);
    let [file, _] = open(&place);
    for offset in [0, 1 << 20] {
        file.write_all_at(&[7; 16384], offset).expect("written");
    }
    file.set_len(6 << 20).expect("a size");
    file.write_all_at(&[8; 8192], 5 << 20).expect("written");
    assert_eq!(counted("writes", "requests"), 3);
    file.set_len(4 << 20).expect("a size");
    file.set_len(6 << 20).expect("a size");
    let punched = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, punched, 4096, 8192).expect("a hole");
    drop(file);
    let [file, _] = open(&place);
    let mut block = [0; 4096];
    for (offset, byte) in [
        (0, 7),
        (4096, 0),
        (8192, 0),
        (12288, 7),
        (1 << 20, 7),
        (5 << 20, 0),
    ] {
        file.read_exact_at(&mut block, offset).expect("read");
        assert_eq!(block, [byte; 4096], "at {offset}");
    }
    assert_eq!(counted("reads", "requests"), 6);
    // A line with a hole leaves the cache, and so does what is cut off; the other one is served from it.
    assert_eq!(counted("reads", "requests_hit"), 1);
    drop(file);
    daemon.stop();
}

#[test]
fn writes_go_to_the_page_cache_below_unless_their_file_was_opened_for_more() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    let link = place.path("link");
    std::fs::write(place.dir().join("block"), vec![0; 4 << 20]).expect("written");
    std::fs::hard_link(place.dir().join("block"), &link).expect("a link");
    let below = File::open(&link).expect("the file");
    below.sync_all().expect("synced");
    for advice in [
        PosixFadviseAdvice::POSIX_FADV_RANDOM,
        PosixFadviseAdvice::POSIX_FADV_DONTNEED,
    ] {
        posix_fadvise(&below, 0, 0, advice).expect("advised");
    }
    let is_in_memory = |offset: u64| {
        let mut block = [0; 4096];
        let read = preadv2(
            &below,
            &mut [IoSliceMut::new(&mut block)],
            offset,
            ReadWriteFlags::NOWAIT,
        );
        read.is_ok_and(|read| read == block.len())
    };
    if is_in_memory(7 << 19) {
        eprintln!("SKIPPED: this file system has its files in memory");
        return;
    }
    place.ssd(16 << 20);
    let daemon = place.start(&place.config("write-through"));
    let flags = [0, libc::O_DIRECT, libc::O_DSYNC, libc::O_SYNC];
    let found = [0, 1, 2, 3].map(|number| {
        let (flags, offset) = (flags[number], (number as u64) << 20);
        let mut options = File::options();
        let file = options
            .write(true)
            .custom_flags(flags)
            .open(place.dir().join("block"));
        // Aligned in memory as well.
        let data = vec![7; 2 * ALIGNMENT as usize];
        let start = data.as_ptr().align_offset(ALIGNMENT as usize);
        file.expect("the file")
            .write_all_at(&data[start..start + ALIGNMENT as usize], offset)
            .expect("written");
        is_in_memory(offset)
    });
    daemon.stop();
    assert_eq!(found, [true, false, false, false]);
    assert!(std::fs::read(&link).expect("read")[..4096] == [7; 4096]);
}

/// Files that are made, written, cut, holed, replaced and removed, with what each has as its bytes.
struct Model {
    random: Random,
    files: std::collections::BTreeMap<String, Vec<u8>>,
}

impl Model {
    fn step(&mut self, dir: &Path) {
        let random = &mut self.random;
        let name = format!("f{}", random.below(24));
        let path = dir.join(&name);
        let open = || {
            File::options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path)
        };
        let file = open().expect("a file");
        let bytes = self.files.entry(name.clone()).or_default();
        let (offset, length) = (random.below(300_000), 1 + random.below(100_000));
        let end = (offset + length) as usize;
        match random.below(12) {
            0..=3 => {
                let mut read = vec![0; length as usize];
                let got = file.read_at(&mut read, offset).expect("read");
                let start = bytes.len().min(offset as usize);
                assert!(
                    read[..got] == bytes[start..bytes.len().min(end)],
                    "{name} at {offset}"
                );
            }
            4..=6 => {
                let data = random.bytes(length as usize);
                file.write_all_at(&data, offset).expect("written");
                bytes.resize(bytes.len().max(end), 0);
                bytes[offset as usize..end].copy_from_slice(&data);
            }
            7 => {
                use std::io::Write;
                let data = random.bytes(5000);
                let mut appended = File::options().append(true).open(&path).expect("a file");
                appended.write_all(&data).expect("appended");
                bytes.extend(data);
            }
            8 => {
                file.set_len(offset).expect("cut");
                bytes.resize(offset as usize, 0);
            }
            9 => {
                let mode = FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE;
                fallocate(&file, mode, offset, length).expect("punched");
                let start = bytes.len().min(offset as usize);
                let end = bytes.len().min(end);
                bytes[start..end].fill(0);
            }
            10 => {
                std::fs::remove_file(&path).expect("removed");
                self.files.remove(&name);
            }
            _ => {
                let other = format!("f{}", random.below(24));
                std::fs::rename(&path, dir.join(&other)).expect("renamed");
                let moved = self.files.remove(&name).expect("it is known");
                self.files.insert(other, moved);
            }
        }
    }

    fn check(&self, dir: &Path) {
        let entries = std::fs::read_dir(dir).expect("a directory");
        assert_eq!(entries.count(), self.files.len());
        for (name, bytes) in &self.files {
            assert!(std::fs::read(dir.join(name)).expect("read") == *bytes, "{name}");
        }
    }
}

#[test]
fn many_files_are_what_was_done_to_them_across_kills_and_stops() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    place.ssd(12 << 20);
    let mut model = Model {
        random: Random::new(11),
        files: std::collections::BTreeMap::new(),
    };
    let mut hits = 0;
    for round in 0..operations(6_000).div_ceil(100) {
        let daemon = place.start(&place.config("write-through"));
        model.check(&place.dir());
        for _ in 0..100 {
            model.step(&place.dir());
        }
        let engine = daemon.status()["cache"]["engine"].clone();
        hits += engine["reads"]["requests_hit"].as_u64().expect("a count");
        if round % 8 == 7 {
            daemon.stop();
        } else {
            daemon.kill();
        }
        // Every fourth time the directory is used without the cache.
        if round % 4 == 3 {
            if round % 8 == 3 {
                umount2(&place.dir(), MntFlags::MNT_DETACH).expect("unmounted");
            }
            model.check(&place.dir());
            model.step(&place.dir());
        }
    }
    assert!(hits > 0);
}

/// Writes so that it is durable, or not.
type Writes = fn(&Path, &[u8]);

fn opened_with(path: &Path, flags: i32) -> File {
    let mut options = File::options();
    let opened = options.write(true).custom_flags(flags).open(path);
    opened.expect("the file")
}

fn written_with(path: &Path, bytes: &[u8], flags: ReadWriteFlags) {
    let slices = [IoSlice::new(bytes)];
    let written = pwritev2(opened_with(path, 0), &slices, 0, flags);
    assert_eq!(written, Ok(bytes.len()));
}

const WRITES: [(&str, Writes, bool); 7] = [
    (
        "nothing",
        |path, bytes| written_with(path, bytes, ReadWriteFlags::empty()),
        false,
    ),
    (
        "rwf_dsync",
        |path, bytes| written_with(path, bytes, ReadWriteFlags::DSYNC),
        true,
    ),
    (
        "rwf_sync",
        |path, bytes| written_with(path, bytes, ReadWriteFlags::SYNC),
        true,
    ),
    (
        "o_dsync",
        |path, bytes| {
            opened_with(path, libc::O_DSYNC)
                .write_all_at(bytes, 0)
                .expect("written");
        },
        true,
    ),
    (
        "o_sync",
        |path, bytes| {
            opened_with(path, libc::O_SYNC)
                .write_all_at(bytes, 0)
                .expect("written");
        },
        true,
    ),
    (
        "o_direct_dsync",
        |path, bytes| {
            let flags = libc::O_DIRECT | libc::O_DSYNC;
            opened_with(path, flags).write_all_at(bytes, 0).expect("written");
        },
        true,
    ),
    (
        "fdatasync",
        |path, bytes| {
            let file = opened_with(path, 0);
            file.write_all_at(bytes, 0).expect("written");
            file.sync_data().expect("durable");
        },
        true,
    ),
];

/// Whether all of a file has its place on the disk, in a file system that gives one when it writes back: a write that is in the page
/// cache alone has none.
fn is_on_the_disk(path: &Path) -> bool {
    let shown = Command::new("filefrag")
        .arg("-v")
        .arg(path)
        .output()
        .expect("filefrag");
    !String::from_utf8_lossy(&shown.stdout).contains("delalloc")
}

#[test]
fn a_write_that_asks_for_it_is_durable_when_it_returns() {
    if is_skipped() {
        return;
    }
    for mode in ["write-through", "pass-through"] {
        let place = Place::new();
        let sizes = [("small", 100), ("aligned", 1 << 16)];
        let named = |how: &str, size: &str| format!("{how}-{size}");
        for (how, ..) in WRITES {
            for (size, _) in sizes {
                let name = named(how, size);
                std::fs::write(place.dir().join(&name), "").expect("written");
                // The file below, which the mount hides.
                std::fs::hard_link(place.dir().join(&name), place.path(&name)).expect("a link");
            }
        }
        place.ssd(16 << 20);
        let daemon = place.start(&place.config(mode));
        let mut told = false;
        for (how, write, is_durable) in WRITES {
            for (size, bytes) in sizes {
                let name = named(how, size);
                write(&place.dir().join(&name), &vec![9; bytes]);
                let is_there = is_on_the_disk(&place.path(&name));
                if is_durable {
                    assert!(is_there, "{mode}: {name}");
                } else {
                    told |= !is_there;
                }
            }
        }
        daemon.stop();
        if !told {
            eprintln!("SKIPPED: the file system of the test gives files their places at once");
        }
    }
}
