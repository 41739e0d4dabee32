//! Sources that begin, change and end while others are served.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde_json::{Value, json};

use crate::daemon::{Daemon, Place, is_mounted, is_skipped};

const BYTES: u64 = 2 << 20;
/// The least share of a source: a line of 64 KiB in each of 16 shards.
const SHARE_BYTES_MIN: u64 = 16 << 16;

/// A place with an SSD, and two directories with a file each.
fn place() -> (Place, [std::path::PathBuf; 2]) {
    let place = Place::new();
    place.ssd(64 << 20);
    let dirs = [place.dir(), place.path("bare")];
    for (dir, byte) in dirs.iter().zip([1, 2]) {
        fs::write(dir.join("file"), vec![byte; BYTES as usize]).expect("written");
    }
    (place, dirs)
}

fn command(daemon: &Daemon, command: &str, with: &Value) -> Result<Value, String> {
    let mut question = with.clone();
    question["command"] = json!(command);
    daemon.tell(&question)
}

fn start(daemon: &Daemon, dir: &Path, mode: &str) -> Result<Value, String> {
    command(
        daemon,
        "start_source",
        &json!({"source": {"dir": dir, "mode": mode}}),
    )
}

fn source(daemon: &Daemon, name: &str) -> Value {
    let status = daemon.ask("status");
    let sources = status["sources"].as_array().expect("sources");
    let found = sources.iter().find(|source| source["name"] == name);
    found.cloned().unwrap_or(Value::Null)
}

/// Reads a file whole in pieces and returns the requests that the cache served and all of them.
fn read(daemon: &Daemon, dir: &Path, byte: u8) -> (u64, u64) {
    let name = dir.file_name().and_then(|name| name.to_str()).expect("a name");
    let count = |what: &str| {
        source(daemon, name)["stats"]["reads"][what]
            .as_u64()
            .expect("a count")
    };
    let before = (count("requests_hit"), count("requests"));
    let file = File::open(dir.join("file")).expect("a file");
    let mut block = [0; 4096];
    for offset in (0..BYTES).step_by(4096) {
        file.read_exact_at(&mut block, offset).expect("read");
        assert_eq!(block, [byte; 4096]);
    }
    (count("requests_hit") - before.0, count("requests") - before.1)
}

const ALL: u64 = BYTES / 4096;

#[test]
fn a_daemon_without_sources_serves_those_that_begin_and_end() {
    if is_skipped() {
        return;
    }
    let (place, [one, other]) = place();
    let mut config = place.config("write-through");
    config["sources"] = json!([]);
    let daemon = place.start(&config);
    assert_eq!(daemon.ask("status")["sources"], json!([]));
    start(&daemon, &one, "write-through").expect("it begins");
    start(&daemon, &other, "read-only").expect("it begins");
    assert!(is_mounted(&one) && is_mounted(&other));
    let refused = start(&daemon, &one, "read-only").expect_err("it is there");
    assert!(
        refused.contains("is that of two sources") && refused.contains("hint"),
        "{refused}"
    );
    assert!(
        start(&daemon, &place.path("none"), "read-only")
            .expect_err("missing")
            .contains("No such file")
    );
    for (dir, byte) in [(&one, 1), (&other, 2)] {
        assert_eq!(read(&daemon, dir, byte), (0, ALL));
        assert_eq!(read(&daemon, dir, byte), (ALL, ALL));
    }

    // Stopped and begun again: warm, because nobody changed it.
    command(&daemon, "stop_source", &json!({"name": "dir"})).expect("nobody uses it");
    assert!(!is_mounted(&one) && source(&daemon, "dir").is_null());
    assert!(
        fs::read(one.join("file"))
            .expect("it is plain")
            .iter()
            .all(|&byte| byte == 1)
    );
    start(&daemon, &one, "write-through").expect("it begins");
    assert_eq!(read(&daemon, &one, 1), (ALL, ALL));
    assert_eq!(read(&daemon, &other, 2), (ALL, ALL));

    // Changed without the cache meanwhile.
    command(&daemon, "stop_source", &json!({"name": "dir"})).expect("nobody uses it");
    fs::write(one.join("file"), vec![3; BYTES as usize]).expect("written");
    start(&daemon, &one, "write-through").expect("it begins");
    assert_eq!(read(&daemon, &one, 3), (0, ALL));
    assert_eq!(daemon.ask("status")["cache"]["engine"]["changed_files"], 1);

    // A kill, and the next daemon serves what its configuration says.
    daemon.kill();
    config["sources"] = json!([
        {"dir": one, "mode": "write-through"},
        {"dir": other, "mode": "read-only", "size_bytes": SHARE_BYTES_MIN},
    ]);
    let daemon = place.start(&config);
    assert_eq!(read(&daemon, &other, 2).1, ALL);
    assert_eq!(read(&daemon, &one, 3).1, ALL);
    assert_eq!(
        source(&daemon, "bare")["usage"]["capacity_bytes"],
        SHARE_BYTES_MIN
    );
    for name in ["dir", "bare"] {
        command(&daemon, "stop_source", &json!({"name": name})).expect("nobody uses it");
    }
    assert!(
        command(&daemon, "stop_source", &json!({"name": "dir"}))
            .expect_err("gone")
            .contains("no source")
    );
    start(&daemon, &one, "pass-through").expect("the daemon is still there");
    daemon.stop();
    assert!(!is_mounted(&one) && !is_mounted(&other));
}

#[test]
fn a_source_in_use_is_stopped_by_force_alone_and_is_not_cached_then() {
    if is_skipped() {
        return;
    }
    let (place, [one, other]) = place();
    let mut config = place.config("write-through");
    config["sources"] = json!([
        {"dir": one, "mode": "write-through"},
        {"dir": other, "mode": "write-through"},
    ]);
    let daemon = place.start(&config);
    read(&daemon, &one, 1);
    read(&daemon, &other, 2);
    let file = File::options()
        .read(true)
        .write(true)
        .open(one.join("file"))
        .expect("a file");
    let refused = command(&daemon, "stop_source", &json!({"name": "dir"})).expect_err("a file is open");
    assert!(
        refused.contains("1 open files") && refused.contains("force"),
        "{refused}"
    );
    assert_eq!(read(&daemon, &one, 1), (ALL, ALL));
    let stopped = command(&daemon, "stop_source", &json!({"name": "dir", "force": true}));
    assert_eq!(stopped.expect("by force")["is_draining"], true);
    assert!(!is_mounted(&one));
    assert_eq!(source(&daemon, "dir")["is_served"], false);
    let refused = start(&daemon, &one, "write-through").expect_err("the open file would go past its cache");
    assert!(refused.contains("still in use") && !is_mounted(&one), "{refused}");
    // Somebody else writes to the plain directory, and who has the file open sees it.
    let plain = File::options()
        .write(true)
        .open(one.join("file"))
        .expect("the plain file");
    plain.write_all_at(&[9; 4096], 0).expect("written");
    let mut block = [0; 4096];
    file.read_exact_at(&mut block, 0).expect("read");
    assert_eq!(block, [9; 4096]);
    file.write_all_at(&[8; 4096], 4096).expect("written");
    assert_eq!(fs::read(one.join("file")).expect("read")[4096], 8);
    assert_eq!(source(&daemon, "dir")["usage"]["used_bytes"], 0);
    // The other one is as warm as it was.
    assert_eq!(read(&daemon, &other, 2), (ALL, ALL));
    drop(file);
    while !source(&daemon, "dir").is_null() {
        std::thread::yield_now();
    }
    start(&daemon, &one, "write-through").expect("it begins anew");
    let file = File::open(one.join("file")).expect("a file");
    file.read_exact_at(&mut block, 0).expect("read");
    assert_eq!(
        (
            block,
            source(&daemon, "dir")["stats"]["reads"]["requests_hit"].as_u64()
        ),
        ([9; 4096], Some(0))
    );
    drop(file);
    daemon.stop();
}

#[test]
fn mode_and_size_of_a_source_change_while_it_is_served() {
    if is_skipped() {
        return;
    }
    let (place, [one, other]) = place();
    let mut config = place.config("write-through");
    config["sources"] = json!([
        {"dir": one, "mode": "read-only"},
        {"dir": other, "mode": "pass-through"},
    ]);
    let daemon = place.start(&config);
    let file = File::options()
        .read(true)
        .write(true)
        .open(one.join("file"))
        .expect("a file");
    let lines = || {
        source(&daemon, "dir")["stats"]["segments_present"]
            .as_u64()
            .expect("a count")
    };
    let write = |line: u64| file.write_all_at(&[1; 4096], line << 16).expect("written");
    let set_mode =
        |name: &str, mode: &str| command(&daemon, "set_mode", &json!({"name": name, "mode": mode}));
    write(0);
    assert_eq!(lines(), 0);
    set_mode("dir", "write-through").expect("it changes");
    assert_eq!(source(&daemon, "dir")["mode"], "write-through");
    write(0);
    assert_eq!(lines(), 1);
    set_mode("dir", "pass-through").expect("it changes");
    write(0);
    assert_eq!((lines(), read(&daemon, &one, 1)), (0, (0, ALL)));
    assert_eq!(lines(), 0);
    set_mode("dir", "write-around").expect("it changes");
    assert_eq!(
        (read(&daemon, &one, 1), read(&daemon, &one, 1)),
        ((0, ALL), (ALL, ALL))
    );
    assert!(
        set_mode("dir", "write-back")
            .expect_err("it is not known")
            .contains("unknown variant")
    );

    assert_eq!(lines(), BYTES >> 16);
    let set_size_of =
        |name: &str, size: Value| command(&daemon, "set_size", &json!({"name": name, "size_bytes": size}));
    let set_size = |size: Value| set_size_of("dir", size);
    let refused = set_size(json!(SHARE_BYTES_MIN - 1)).expect_err("too small");
    assert!(
        refused.contains("must be at least 1048576") && lines() == BYTES >> 16,
        "{refused}"
    );
    set_size(json!(SHARE_BYTES_MIN)).expect("it changes");
    let report = source(&daemon, "dir");
    assert_eq!(
        (lines(), &report["size_bytes"], &report["usage"]["capacity_bytes"]),
        (16, &json!(SHARE_BYTES_MIN), &json!(SHARE_BYTES_MIN))
    );
    for (name, with, problem) in [
        ("set_size", json!({"name": "dir"}), "missing field `size_bytes`"),
        (
            "stop_source",
            json!({"name": "dir", "is_forced": true}),
            "unknown field `is_forced`",
        ),
    ] {
        let refused = command(&daemon, name, &with).expect_err(problem);
        assert!(refused.contains(problem), "{refused}");
    }
    set_size(Value::Null).expect("it changes");
    read(&daemon, &one, 1);
    assert_eq!(lines(), BYTES >> 16);

    // What began in pass-through mode is served anew for that, when nobody uses it, and as it was if that fails.
    set_size_of("bare", json!(1)).expect("nothing is cached of it");
    let refused = set_mode("bare", "write-through").expect_err("too small");
    assert!(refused.contains("must be at least 1048576"), "{refused}");
    assert_eq!(source(&daemon, "bare")["mode"], "pass-through");
    set_size_of("bare", Value::Null).expect("it changes");
    assert_eq!(
        (read(&daemon, &other, 2), read(&daemon, &other, 2)),
        ((0, ALL), (0, ALL))
    );
    let used = File::open(other.join("file")).expect("a file");
    assert!(
        set_mode("bare", "write-through")
            .expect_err("it is in use")
            .contains("1 open files")
    );
    drop(used);
    while source(&daemon, "bare")["in_use"]["open_files"] != 0 {
        std::thread::yield_now();
    }
    set_mode("bare", "write-through").expect("it changes");
    assert_eq!(
        (read(&daemon, &other, 2), read(&daemon, &other, 2)),
        ((0, ALL), (ALL, ALL))
    );
    drop(file);
    daemon.stop();
}

#[test]
fn with_verify_a_file_that_was_being_written_to_at_a_kill_is_not_believed_after_a_clean_stop() {
    // Many lines, of which a sample does not find one that was changed.
    const BYTES: u64 = 16 << 20;
    if is_skipped() {
        return;
    }
    let place = Place::new();
    place.ssd(64 << 20);
    let dirs = [place.dir(), place.path("bare")];
    let mut config = place.config("write-through");
    config["cache"]["after_unclean"] = json!("verify");
    config["sources"] = json!(
        dirs.each_ref()
            .map(|dir| json!({"dir": dir, "mode": "write-through"}))
    );
    for dir in &dirs {
        fs::write(dir.join("file"), vec![1; BYTES as usize]).expect("written");
    }
    let read = |dir: &Path| fs::read(dir.join("file")).expect("served");
    let write = |dir: &Path, byte: u8, offset: u64| {
        let file = File::options()
            .write(true)
            .open(dir.join("file"))
            .expect("a file");
        file.write_all_at(&[byte; 4096], offset).expect("written");
    };
    let daemon = place.start(&config);
    for dir in [&dirs[0], &dirs[0], &dirs[1], &dirs[1]] {
        read(dir);
    }
    daemon.stop();
    let daemon = place.start(&config);
    for dir in &dirs {
        write(dir, 1, BYTES - 4096);
    }
    daemon.kill();
    // Nobody was let in, and it is believed.
    let daemon = place.start(&config);
    for dir in &dirs {
        assert!(read(dir).iter().all(|&byte| byte == 1));
        let name = dir.file_name().and_then(|name| name.to_str()).expect("a name");
        let hit = &source(&daemon, name)["stats"]["reads"]["bytes_hit"];
        assert!(
            hit.as_u64().is_some_and(|bytes| bytes >= BYTES / 2),
            "{name}: {hit}"
        );
    }
    // The second one that is left has no stamp still.
    command(&daemon, "stop_source", &json!({"name": "bare"})).expect("nobody uses it");
    daemon.stop();
    for dir in &dirs {
        write(dir, 2, 0);
    }
    let daemon = place.start(&config);
    for dir in &dirs {
        assert_eq!(read(dir)[..4096], [2; 4096]);
    }
    daemon.stop();
}
