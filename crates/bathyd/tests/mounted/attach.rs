//! The SSD is detached, attached and given another size under load, killed meanwhile, and comes back by itself after it failed:
//! no error and no wrong byte at those who use the mount.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::daemon::{Daemon, Loop, Place, Random, asked, is_skipped};
use crate::ssd_faults::FailingSsd;

const FILE_BYTES: u64 = 8 << 20;
const UNIT: usize = 4096;
const THREADS: u64 = 3;
const SSD_BYTES: u64 = 16 << 20;

/// A place with an SSD, and a file with bytes without a pattern.
fn place() -> (Place, Vec<u8>) {
    let place = Place::new();
    place.ssd(SSD_BYTES);
    let bytes = Random::new(7).bytes(FILE_BYTES as usize);
    fs::write(place.dir().join("file"), &bytes).expect("written");
    (place, bytes)
}

fn open(place: &Place) -> File {
    let mut options = File::options();
    options.read(true).write(true);
    options.open(place.dir().join("file")).expect("the file")
}

fn tell(daemon: &Daemon, command: &str, with: Value) -> Result<Value, String> {
    let mut question = with;
    question["command"] = json!(command);
    daemon.tell(&question)
}

/// Reads the file in whole lines: how many requests the cache served.
fn hits(daemon: &Daemon, file: &File, expected: &[u8]) -> u64 {
    let count = || daemon.status()["stats"]["reads"]["requests_hit"].as_u64();
    let before = count().expect("a count");
    let mut out = vec![0; 65_536];
    for (number, expected) in expected.chunks(65_536).enumerate() {
        file.read_exact_at(&mut out, number as u64 * 65_536)
            .expect("read");
        assert!(out == expected, "line {number}");
    }
    count().expect("a count") - before
}

/// A thread with units of its own in a file that all share; it returns what it wrote.
fn load(place: &Place, thread: u64, is_over: &AtomicBool, done: &AtomicU64, mut own: Vec<u8>) -> Vec<u8> {
    let (file, mut random) = (open(place), Random::new(thread));
    while !is_over.load(Ordering::Relaxed) {
        let group = random.below(FILE_BYTES / UNIT as u64 / THREADS);
        let offset = (group * THREADS + thread) * UNIT as u64;
        let range = offset as usize..offset as usize + UNIT;
        match random.below(20) {
            0..=7 => {
                own[range.clone()].copy_from_slice(&random.bytes(UNIT));
                file.write_all_at(&own[range], offset).expect("no error");
            }
            8 => file.sync_data().expect("no error"),
            _ => {
                let mut out = [0; UNIT];
                file.read_exact_at(&mut out, offset).expect("no error");
                assert!(out == own[range], "thread {thread} at {offset}");
            }
        }
        done.fetch_add(1, Ordering::Relaxed);
    }
    own
}

/// Puts the units of each thread together.
fn joined(of_threads: &[Vec<u8>]) -> Vec<u8> {
    let units = (0..FILE_BYTES as usize / UNIT).flat_map(|unit| {
        // The last units, which are no group, are nobody's.
        let of_thread = &of_threads[unit % of_threads.len()];
        of_thread[unit * UNIT..][..UNIT].to_vec()
    });
    units.collect()
}

#[test]
fn the_ssd_goes_comes_grows_and_shrinks_under_load_and_keeps_what_it_has() {
    if is_skipped() {
        return;
    }
    let (place, bytes) = place();
    let daemon = place.start(&place.config("write-through"));
    let (is_over, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let rounds = asked("BATHY_TORTURE_SWITCHES", 3);
    let written = thread::scope(|scope| {
        let (place, is_over, done) = (&place, &is_over, &done);
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let own = bytes.clone();
                scope.spawn(move || load(place, thread, is_over, done, own))
            })
            .collect();
        let go_on = || {
            let so_far = done.load(Ordering::Relaxed);
            while done.load(Ordering::Relaxed) < so_far + 300 {
                thread::yield_now();
            }
        };
        for round in 0..rounds {
            go_on();
            let detached = tell(&daemon, "detach", json!({})).expect("it is there");
            assert_eq!(detached["is_content_kept"], true, "round {round}");
            let cache = daemon.ask("status")["cache"].clone();
            assert_eq!(cache["attachment"]["state"], "detached");
            assert_eq!(cache["engine"]["capacity_bytes"], 0);
            go_on();
            tell(&daemon, "attach", json!({})).expect("it is there");
            go_on();
            for size_bytes in [SSD_BYTES * 2, SSD_BYTES / 2] {
                let resized = tell(&daemon, "resize", json!({"size_bytes": size_bytes}));
                let capacity_bytes = resized.expect("there is room")["capacity_bytes"].as_u64();
                assert!(capacity_bytes > Some(size_bytes / 2) && capacity_bytes < Some(size_bytes));
                let length = fs::metadata(place.path("ssd")).expect("the SSD").len();
                assert_eq!(length, size_bytes);
                go_on();
            }
        }
        is_over.store(true, Ordering::Relaxed);
        let of_threads = threads.into_iter().map(|it| it.join().expect("no error"));
        of_threads.collect::<Vec<_>>()
    });
    let bytes = joined(&written);
    let file = open(&place);
    let engine = daemon.status()["cache"]["engine"].clone();
    assert_eq!(
        (&engine["mismatches"], &engine["ssd_errors"]),
        (&json!(0), &json!(0))
    );
    // All is cached in a cache that is large enough, and stays so.
    tell(&daemon, "resize", json!({"size_bytes": 2 * SSD_BYTES})).expect("there is room");
    hits(&daemon, &file, &bytes);
    hits(&daemon, &file, &bytes);
    let all = FILE_BYTES / 65_536;
    assert_eq!(hits(&daemon, &file, &bytes), all);
    tell(&daemon, "resize", json!({"size_bytes": 3 * SSD_BYTES})).expect("there is room");
    assert_eq!(hits(&daemon, &file, &bytes), all, "it grew");
    tell(&daemon, "detach", json!({})).expect("it is there");
    assert_eq!(hits(&daemon, &file, &bytes), 0);
    let attached = tell(&daemon, "attach", json!({})).expect("it is there");
    assert!(attached["found"].to_string().contains("clean"), "{attached}");
    assert_eq!(hits(&daemon, &file, &bytes), all, "nothing was written meanwhile");
    drop(file);
    daemon.stop();
    assert!(fs::read(place.dir().join("file")).expect("plain") == bytes);
}

#[test]
fn what_is_asked_of_the_ssd_and_cannot_be_is_said_and_changes_nothing() {
    if is_skipped() {
        return;
    }
    let (place, bytes) = place();
    let mut config = place.config("write-through");
    config["cache"]["name"] = json!("fast");
    let daemon = place.start(&config);
    let file = open(&place);
    let refused = |command: &str, with: Value, problem: &str| {
        let said = tell(&daemon, command, with).expect_err(problem);
        assert!(said.contains(problem) && said.contains("hint: "), "{said}");
    };
    refused("attach", json!({}), "the cache has its SSD");
    refused("attach", json!({}), "bathy cache detach fast");
    refused("resize", json!({"size_bytes": 1 << 20}), "too small");
    refused(
        "resize",
        json!({"size_bytes": 1_u64 << 60}),
        "choose another --size",
    );
    refused("resize", json!({}), "size_bytes");
    assert_eq!(fs::metadata(place.path("ssd")).expect("the SSD").len(), SSD_BYTES);
    tell(&daemon, "detach", json!({})).expect("it is there");
    refused("detach", json!({}), "detached already");
    refused("detach", json!({}), "bathy cache attach fast");
    refused("resize", json!({"size_bytes": SSD_BYTES}), "has no SSD");
    refused(
        "resize",
        json!({"size_bytes": SSD_BYTES}),
        "bathy cache attach fast",
    );
    refused("attach", json!({"ssd": "ssd"}), "must be absolute");
    let foreign = place.path("foreign");
    fs::write(&foreign, vec![7; 8 << 20]).expect("written");
    refused(
        "attach",
        json!({"ssd": foreign}),
        "holds something that is not known",
    );
    assert_eq!(fs::read(&foreign).expect("read"), vec![7; 8 << 20]);
    refused("attach", json!({"ssd": place.path("none")}), "No such file");
    hits(&daemon, &file, &bytes);

    // Another one, which is empty; and the first under another name.
    let other = place.path("other");
    File::create(&other)
        .and_then(|file| file.set_len(SSD_BYTES))
        .expect("an SSD");
    tell(&daemon, "attach", json!({"ssd": other})).expect("it is empty");
    assert_eq!(daemon.ask("status")["cache"]["ssd"], json!(other));
    assert_eq!(hits(&daemon, &file, &bytes), 0);
    tell(&daemon, "detach", json!({})).expect("it is there");
    let renamed = place.path("renamed");
    fs::rename(&other, &renamed).expect("renamed");
    tell(&daemon, "attach", json!({"ssd": renamed})).expect("it is known");
    assert_eq!(hits(&daemon, &file, &bytes), FILE_BYTES / 65_536);
    drop(file);
    daemon.stop();
}

#[test]
fn a_kill_while_the_cache_gets_another_size_leaves_a_cache_and_no_wrong_byte() {
    if is_skipped() {
        return;
    }
    let (place, mut bytes) = place();
    let config = place.config("write-through");
    let mut random = Random::new(3);
    let mut sizes = std::collections::BTreeSet::new();
    for round in 0..asked("BATHY_TORTURE_KILLS", 8) {
        let daemon = place.start(&config);
        let file = open(&place);
        for _ in 0..200 {
            let offset = random.below(FILE_BYTES / UNIT as u64) * UNIT as u64;
            let range = offset as usize..offset as usize + UNIT;
            bytes[range.clone()].copy_from_slice(&random.bytes(UNIT));
            file.write_all_at(&bytes[range], offset).expect("no error");
        }
        hits(&daemon, &file, &bytes);
        let size_bytes = SSD_BYTES * [1, 3, 2][round as usize % 3];
        let mut stream = UnixStream::connect(place.path("socket")).expect("a socket");
        writeln!(
            stream,
            "{}",
            json!({"command": "resize", "size_bytes": size_bytes})
        )
        .expect("asked");
        // The kill comes somewhere on the way, or after it.
        thread::sleep(Duration::from_micros(random.below(60_000)));
        drop(file);
        daemon.kill();
        let daemon = place.start(&config);
        let cache = daemon.ask("status")["cache"].clone();
        assert!(cache["problem"].is_null(), "round {round}: {cache}");
        sizes.insert(cache["engine"]["capacity_bytes"].as_u64());
        let file = open(&place);
        hits(&daemon, &file, &bytes);
        hits(&daemon, &file, &bytes);
        drop(file);
        daemon.stop();
        assert!(fs::read(place.dir().join("file")).expect("plain") == bytes);
    }
    eprintln!("sizes that were found: {sizes:?}");
}

/// Waits until the daemon says so: it looks every few seconds, and tries after ten.
fn wait_for(daemon: &Daemon, state: &str) -> Value {
    loop {
        let cache = daemon.ask("status")["cache"].clone();
        if cache["attachment"]["state"] == state {
            return cache;
        }
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn an_ssd_that_hung_or_failed_or_was_missing_comes_back_by_itself() {
    if is_skipped() {
        return;
    }
    let (place, bytes) = place();
    let ssd = FailingSsd::new(&place);
    let mut config = place.config("write-through");
    config["cache"]["ssd"] = json!(ssd.path());
    thread::scope(|scope| {
        // One that is not there at the start.
        scope.spawn(|| {
            let (place, bytes) = self::place();
            let away = place.path("away");
            Place::run(&["create", &place.written(&place.config("write-through"))]).expect("it is empty");
            fs::rename(place.path("ssd"), &away).expect("away");
            let daemon = place.start(&place.config("write-through"));
            let file = open(&place);
            let cache = wait_for(&daemon, "waiting");
            assert!(cache["problem"].to_string().contains("No such file"), "{cache}");
            assert!(cache["attachment"]["next_try_s"].as_f64() <= Some(10.0));
            hits(&daemon, &file, &bytes);
            fs::rename(&away, place.path("ssd")).expect("back");
            wait_for(&daemon, "attached");
            hits(&daemon, &file, &bytes);
            assert_eq!(hits(&daemon, &file, &bytes), FILE_BYTES / 65_536);
            drop(file);
            daemon.stop();
        });
        let daemon = place.start(&config);
        let file = open(&place);
        for (number, fault) in ["hang", "eio"].into_iter().enumerate() {
            hits(&daemon, &file, &bytes);
            let added = ssd.ask(&json!({"op": "fault", "disk": "ssd", "add": fault}));
            hits(&daemon, &file, &bytes);
            let cache = wait_for(&daemon, "waiting");
            assert_eq!(cache["attachment"]["times_given_up"], number + 1, "{cache}");
            assert!(cache["attachment"]["last_reason"].is_string());
            hits(&daemon, &file, &bytes);
            ssd.ask(&json!({"op": "fault", "disk": "ssd", "clear": added["id"]}));
            let cache = wait_for(&daemon, "attached");
            assert!(cache["found"].to_string().contains("cold"), "{cache}");
            hits(&daemon, &file, &bytes);
        }
        assert!(hits(&daemon, &file, &bytes) > 0, "it caches again");
        drop(file);
        daemon.stop();
    });
    assert!(Path::new(&place.dir().join("file")).exists());
}

#[test]
fn a_command_that_waits_for_a_switch_keeps_nobody_from_the_status() {
    if is_skipped() {
        return;
    }
    let (place, _) = place();
    let disk = FailingSsd::new(&place);
    let Some(device) = Loop::new(&disk.path()) else {
        return;
    };
    symlink(&device.0, place.dir().join("block")).expect("a link");
    let daemon = place.start(&place.config("write-through"));
    let block = File::open(place.dir().join("block")).expect("the device");
    let added = disk.ask(&json!({"op": "fault", "disk": "ssd", "add": "hang"}));
    thread::scope(|scope| {
        scope.spawn(|| block.read_exact_at(&mut [0; UNIT], 0).expect("it ends"));
        while daemon.status()["stats"]["pending"] == 0 {
            thread::yield_now();
        }
        // The switch waits for the read, and a change of the source for the switch.
        scope.spawn(|| tell(&daemon, "detach", json!({})));
        let (says, said) = mpsc::channel();
        loop {
            let (daemon, says) = (&daemon, says.clone());
            scope.spawn(move || {
                says.send(tell(
                    daemon,
                    "set_size",
                    json!({"name": "dir", "size_bytes": null}),
                ))
            });
            if said.recv_timeout(Duration::from_millis(200)).is_ok() {
                continue;
            }
            // A status that waited would find the SSD given up.
            let cache = daemon.ask("status")["cache"].clone();
            assert_eq!(cache["attachment"]["state"], "attached", "{cache}");
            // An answer now: the change was slow and did not wait for the switch.
            if said.try_recv().is_err() {
                break;
            }
        }
        disk.ask(&json!({"op": "fault", "disk": "ssd", "clear": added["id"]}));
        said.recv().expect("an answer").expect("it changes");
    });
    drop(block);
    daemon.stop();
}
