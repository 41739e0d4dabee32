//! What is refused, with what message; and what is served in spite of a fault.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::daemon::{Place, is_mounted, is_skipped};

fn refused(place: &Place, config: &Value, problem: &str) {
    let output = place.refused(config);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains(problem) && said.contains("\nhint: "), "{said}");
}

#[test]
fn bad_sources_are_refused() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    let with_dir = |dir: &str| {
        let mut config = place.config("pass-through");
        config["sources"][0]["dir"] = json!(place.path(dir));
        config
    };
    refused(&place, &with_dir("missing"), "No such file");
    fs::write(place.path("file"), "").expect("a file");
    refused(&place, &with_dir("file"), "not a directory");
    refused(&place, &json!({"sources": []}), "missing field");
    let mut twice = place.config("pass-through");
    twice["sources"] = json!([twice["sources"][0], twice["sources"][0]]);
    refused(&place, &twice, "is that of two sources");
    assert!(!is_mounted(&place.dir()));

    let daemon = place.start(&place.config("pass-through"));
    let mut second = place.config("pass-through");
    refused(&place, &second, "another bathyd uses it");
    fs::create_dir(place.path("state2")).expect("a directory");
    second["state"] = json!(place.path("state2"));
    refused(&place, &second, "another process listens");
    second["socket"] = json!(place.path("socket2"));
    refused(&place, &second, "is already a mount point");
    daemon.stop();
}

#[test]
fn a_source_that_cannot_be_served_keeps_no_other_from_being_served() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    let mut config = place.config("pass-through");
    let missing = place.path("missing");
    let other = json!({"dir": missing, "mode": "pass-through", "name": "away"});
    config["sources"] = json!([other, config["sources"][0]]);
    fs::write(place.dir().join("file"), "here").expect("a file");
    let daemon = place.start(&config);
    assert!(is_mounted(&place.dir()) && !is_mounted(&missing));
    assert_eq!(fs::read(place.dir().join("file")).expect("served"), b"here");
    let sources = daemon.ask("status")["sources"].clone();
    let of_each: Vec<_> = [0, 1]
        .map(|place| (&sources[place]["name"], &sources[place]["is_served"]))
        .into();
    assert_eq!(
        of_each,
        [(&json!("dir"), &json!(true)), (&json!("away"), &json!(false))]
    );
    let problem = sources[1]["problem"].as_str().expect("a text");
    assert!(
        problem.contains("No such file") && sources[0]["problem"].is_null(),
        "{problem}"
    );
    // When it is there again it can be started.
    fs::create_dir(&missing).expect("a directory");
    let command = json!({"command": "start_source", "source": other});
    assert_eq!(daemon.tell(&command).map(drop), Ok(()));
    assert!(is_mounted(&missing));
    let sources = daemon.ask("status")["sources"].clone();
    assert_eq!(sources.as_array().map(Vec::len), Some(2));
    assert_eq!(sources[1]["is_served"], json!(true));
    daemon.stop();
}

/// Locks all of a file as an OSD does: whether nobody else has it.
fn lock_as_an_osd(file: &File) -> bool {
    let lock = libc::flock {
        l_type: libc::F_WRLCK as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open, and the structure is valid for the time of the call, which only reads it.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) == 0 }
}

#[test]
fn a_directory_whose_osd_runs_is_refused() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    let fsid = File::create(place.dir().join("fsid")).expect("a file");
    assert!(lock_as_an_osd(&fsid));
    refused(
        &place,
        &place.config("pass-through"),
        "fsid is in use by another process",
    );
    drop(fsid);
    place.start(&place.config("pass-through")).stop();
}

#[test]
fn a_block_that_is_a_link_to_a_file_can_be_locked_by_its_osd_above_the_mount_and_its_user_is_seen_before() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    let data = File::create(place.path("data")).expect("a file");
    symlink(place.path("data"), place.dir().join("block")).expect("a link");
    assert!(lock_as_an_osd(&data));
    refused(
        &place,
        &place.config("pass-through"),
        "block is in use by another process",
    );
    drop(data);
    let daemon = place.start(&place.config("pass-through"));
    let above = File::options()
        .read(true)
        .write(true)
        .open(place.dir().join("block"));
    assert!(lock_as_an_osd(&above.expect("it is served")));
    daemon.stop();
}

#[test]
fn without_its_ssd_a_directory_is_served_as_it_is_and_what_the_ssd_has_is_void() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    let block = place.dir().join("block");
    fs::write(&block, vec![1; 4 << 20]).expect("written");
    let ssd = File::create(place.path("ssd")).expect("an SSD");
    ssd.set_len(16 << 20).expect("a size");
    let config = place.config("write-through");
    let daemon = place.start(&config);
    assert_eq!(fs::read(&block).expect("read")[0], 1);
    daemon.stop();

    fs::rename(place.path("ssd"), place.path("away")).expect("taken away");
    let daemon = place.start(&config);
    fs::write(&block, vec![2; 4 << 20]).expect("written");
    assert!(place.log().contains("NOT CACHED"), "{}", place.log());
    assert!(daemon.status()["cache"]["problem"].is_string());
    daemon.stop();

    fs::rename(place.path("away"), place.path("ssd")).expect("brought back");
    let daemon = place.start(&config);
    assert!(fs::read(&block).expect("read").iter().all(|&byte| byte == 2));
    let found = daemon.status()["cache"]["found"].to_string();
    assert!(found.contains("cold"), "{found}");
    daemon.stop();
}

#[test]
fn an_ssd_that_holds_something_else_is_left_alone() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    fs::write(place.dir().join("block"), vec![1; 4 << 20]).expect("written");
    let mut other = vec![0; 16 << 20];
    other[1080] = 0x53;
    fs::write(place.path("ssd"), &other).expect("written");
    let daemon = place.start(&place.config("write-through"));
    assert_eq!(fs::read(place.dir().join("block")).expect("read")[0], 1);
    assert!(place.log().contains("NOT CACHED"), "{}", place.log());
    daemon.stop();
    assert!(fs::read(place.path("ssd")).expect("read") == other);
}

/// `bathyd create` with a configuration, and what the SSD has before and after it.
fn create(place: &Place, config: &Value, options: &[&str]) -> (Result<Value, String>, bool) {
    let ssd = place.path("ssd");
    let before = fs::read(&ssd).unwrap_or_default();
    let written = place.written(config);
    let said = Place::run(&[&["create", &written], options].concat());
    (said, fs::read(&ssd).unwrap_or_default() == before)
}

#[test]
fn only_an_empty_ssd_becomes_a_cache_without_force() {
    let place = Place::new();
    let mut config = place.config("write-through");
    config["cache"]["policy"] = json!("lru");
    let refused = |options: &[&str], problem: &str| {
        let (said, is_untouched) = create(&place, &config, options);
        let said = said.expect_err(problem);
        assert!(
            is_untouched && said.contains(problem) && said.contains("\nhint: "),
            "{said}"
        );
    };
    refused(&[], "No such file");
    let ssd = File::create(place.path("ssd")).expect("an SSD");
    ssd.set_len(1 << 20).expect("a size");
    refused(&[], "too small");
    ssd.set_len(32 << 20).expect("a size");
    refused(&["--size", "much"], "--size takes a number");
    refused(&["--size", "99999999999"], "fewer than --size");
    refused(&["--size", "100000"], "too small");
    refused(&["--fast"], "--fast is not known");
    let ssd_path = place.path("ssd").to_string_lossy().into_owned();
    let blank = Place::run(&["inspect", &ssd_path]).expect("it can be read");
    assert_eq!(
        blank,
        json!({"is_cache": false, "uuid": null, "format": null, "size_bytes": 32 << 20, "capacity_bytes": null,
               "is_clean": null, "generation": null, "is_blank": true, "holds": null})
    );

    // Something unknown, and a file system where there are the programs that make and find one.
    std::os::unix::fs::FileExt::write_all_at(&ssd, b"x", 5000).expect("written");
    refused(&[], "it holds something that is not known");
    let made = std::process::Command::new("mkfs.ext4")
        .args(["-q", "-F", &ssd_path])
        .status();
    if made.is_ok_and(|status| status.success()) {
        refused(&[], "it holds ext4");
        assert_eq!(
            Place::run(&["inspect", &ssd_path]).expect("it can be read")["holds"],
            "ext4"
        );
    } else {
        eprintln!("SKIPPED: the part that needs mkfs.ext4");
    }
    let (made, _) = create(&place, &config, &["--force", "--size", "16777216"]);
    let made = made.expect("by force");
    assert_eq!(
        (&made["is_cache"], &made["holds"], &made["is_blank"]),
        (&json!(true), &Value::Null, &json!(false))
    );
    let capacity = made["capacity_bytes"].as_u64().expect("bytes");
    assert!((8 << 20..16 << 20).contains(&capacity), "{capacity}");
    refused(&[], "it is this cache already");

    // Of another state directory it is not taken, neither by `create` nor by a daemon.
    fs::create_dir(place.path("state2")).expect("a directory");
    let mut other = config.clone();
    other["state"] = json!(place.path("state2"));
    let (said, is_untouched) = create(&place, &other, &[]);
    assert!(
        is_untouched
            && said
                .expect_err("another's")
                .contains("cache of another state directory")
    );
    if is_skipped() {
        return;
    }
    for _ in 0..2 {
        let daemon = place.start(&other);
        let problem = daemon.status()["cache"]["problem"].to_string();
        assert!(problem.contains("cache of another state directory"), "{problem}");
        daemon.stop();
    }
    let daemon = place.start(&config);
    assert!(daemon.status()["cache"]["problem"].is_null());
    let engine = daemon.status()["cache"]["engine"].clone();
    assert_eq!(
        (&engine["capacity_bytes"], &engine["policy"]),
        (&json!(capacity), &json!("lru"))
    );
    refused(&[], "another bathyd uses it");
    let used = Place::run(&["inspect", &ssd_path]).expect_err("it is in use");
    assert!(used.contains("in use by another process"), "{used}");
    daemon.stop();
    assert_eq!(
        Place::run(&["inspect", &ssd_path]).expect("it can be read")["is_clean"],
        true
    );
}
