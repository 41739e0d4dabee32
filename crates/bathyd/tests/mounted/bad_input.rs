//! What is refused, with what message; and what is served in spite of a fault.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;

use serde_json::{Value, json};

use crate::daemon::{Loop, Place, is_mounted, is_skipped};
use crate::ssd_faults::FailingSsd;

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
    for (dir, problem) in [
        ("/proc/sys", "on a file system of the kernel"),
        ("/sys/kernel", "on a file system of the kernel"),
    ] {
        let mut config = place.config("pass-through");
        config["sources"][0]["dir"] = json!(dir);
        refused(&place, &config, problem);
    }
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
fn a_source_of_one_daemon_within_that_of_another_is_refused() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    let (inner, outer) = (place.dir().join("inner"), place.dir());
    fs::create_dir(&inner).expect("a directory");
    fs::create_dir(place.path("state2")).expect("a directory");
    let of = |dir: &Path, number: &str| {
        let mut config = place.config("pass-through");
        config["sources"][0]["dir"] = json!(dir);
        config["state"] = json!(place.path(&format!("state{number}")));
        config["socket"] = json!(place.path(&format!("socket{number}")));
        config
    };
    let first = place.start(&of(&inner, ""));
    refused(&place, &of(&outer, "2"), "a file system is mounted below it");
    assert!(!is_mounted(&outer));
    first.stop();
    let first = place.start(&of(&outer, ""));
    refused(&place, &of(&inner, "2"), "is on a FUSE file system");
    first.stop();
}

#[test]
fn what_others_could_replace_is_refused() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    let (shared, own) = (place.path("shared"), place.path("shared/own"));
    fs::create_dir_all(&own).expect("directories");
    fs::set_permissions(&shared, Permissions::from_mode(0o777)).expect("changed");
    let problem = format!(": others can write to {}", shared.display());
    for (field, path) in [("state", &own), ("socket", &shared.join("socket"))] {
        let mut config = place.config("pass-through");
        config[field] = json!(path);
        refused(&place, &config, &problem);
    }
    let mut config = place.config("write-through");
    config["cache"]["ssd"] = json!(shared.join("ssd"));
    refused(&place, &config, &problem);
    let written = shared.join("config.json");
    fs::write(&written, place.config("pass-through").to_string()).expect("written");
    let said = Place::run(&[&*written.to_string_lossy()]).expect_err("others can replace it");
    assert!(said.contains(&problem), "{said}");
    assert!(!is_mounted(&place.dir()));
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
    // Beside one that is missing: one that is there twice, and one of a program.
    let mut twice = config["sources"][0].clone();
    twice["name"] = json!("twice");
    let disk = FailingSsd::new(&place);
    let of_fuse = json!({"dir": disk.path().parent(), "mode": "pass-through", "name": "fuse"});
    config["sources"] = json!([other, config["sources"][0], twice, of_fuse]);
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
    let named = |name: &str| {
        let all = sources.as_array().expect("a list");
        let found = all.iter().find(|source| source["name"] == name);
        found.expect("it is there")["problem"].to_string()
    };
    assert!(named("twice").contains("is that of two sources"));
    assert!(named("fuse").contains("fuse"));
    let problem = sources[1]["problem"].as_str().expect("a text");
    assert!(
        problem.contains("No such file") && sources[0]["problem"].is_null(),
        "{problem}"
    );
    daemon.stop();
    // One that is not understood is named with its line, and the others are served.
    let mut wrong = config.clone();
    wrong["sources"][0]["size_bytes"] = json!("5");
    let daemon = place.start(&wrong);
    assert!(is_mounted(&place.dir()));
    let sources = daemon.ask("status")["sources"].clone();
    let all = sources.as_array().expect("a list");
    let away = all
        .iter()
        .find(|source| source["name"] == "away")
        .expect("it is there");
    let problem = away["problem"].as_str().expect("a text");
    assert!(
        problem.contains("source 1: invalid type") && problem.contains("at line 1 column"),
        "{problem}"
    );
    assert_eq!((&away["is_served"], &away["mode"]), (&json!(false), &json!(null)));
    assert!(place.log().contains(problem), "{}", place.log());
    daemon.stop();
    let daemon = place.start(&config);
    // When it is there again it can be started.
    fs::create_dir(&missing).expect("a directory");
    let command = json!({"command": "start_source", "source": other});
    assert_eq!(daemon.tell(&command).map(drop), Ok(()));
    assert!(is_mounted(&missing));
    let sources = daemon.ask("status")["sources"].clone();
    assert_eq!(sources.as_array().map(Vec::len), Some(4));
    assert_eq!(sources[1]["is_served"], json!(true));
    daemon.stop();
}

#[test]
fn a_path_that_is_no_text_is_served_and_keeps_no_other_from_being_served() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    let odd = place.path("").join(OsStr::from_bytes(b"odd-\xff"));
    fs::create_dir(&odd).expect("a directory");
    fs::write(odd.join("file"), "odd").expect("a file");
    let mut config = place.config("pass-through");
    let shown = place.path("odd-").to_string_lossy().into_owned();
    config["sources"] = json!([{"dir": "ODD", "name": "odd", "mode": "pass-through"}, config["sources"][0]]);
    // As Python writes it.
    let text = config.to_string().replace("ODD", &format!("{shown}\\udcff"));
    fs::write(place.path("config.json"), text).expect("a configuration");
    // Other tests need not cope with such a mount.
    let daemon = place.serving(place.spawn_apart());
    let served = daemon.root().join(odd.strip_prefix("/").expect("it is absolute"));
    assert_eq!(fs::read(served.join("file")).expect("served"), b"odd");
    let sources = daemon.ask("status")["sources"].clone();
    assert_eq!(
        [&sources[0]["is_served"], &sources[1]["is_served"]],
        [&json!(true); 2]
    );
    daemon.stop();
}

/// Locks all of a file as an OSD does: whether nobody else has it.
pub(crate) fn lock_as_an_osd(file: &File) -> bool {
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
    place.ssd(16 << 20);
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

#[test]
fn a_start_makes_no_cache_and_an_attach_does() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    place.ssd(16 << 20);
    let daemon = place.serving(place.spawn_as_it_is(&place.config("write-through")));
    let problem = daemon.status()["cache"]["problem"].to_string();
    assert!(problem.contains("it holds no cache"), "{problem}");
    let detached = daemon.tell(&json!({"command": "detach"})).map(drop);
    assert_eq!(detached, Ok(()));
    assert!(
        fs::read(place.path("ssd"))
            .expect("read")
            .iter()
            .all(|&byte| byte == 0)
    );
    let attached = daemon.tell(&json!({"command": "attach"})).expect("it is empty");
    assert!(
        attached["found"].to_string().contains("nothing is cached"),
        "{attached}"
    );
    daemon.stop();
}

#[test]
fn the_ssd_and_the_devices_of_a_source_are_held_alone() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    let make = |name: &str| {
        let file = File::create(place.path(name)).expect("a file");
        file.set_len(16 << 20).expect("a size");
        Loop::new(&place.path(name))
    };
    let (Some(ssd), Some(disk)) = (make("ssd.img"), make("disk.img")) else {
        return;
    };
    symlink(&disk.0, place.dir().join("block")).expect("a link");
    let mut config = place.config("write-through");
    config["cache"]["ssd"] = json!(ssd.0);
    let daemon = place.start(&config);
    let alone = |device: &Loop| {
        let mut options = File::options();
        options.read(true).custom_flags(libc::O_EXCL).open(&device.0)
    };
    for device in [&ssd, &disk] {
        let refused = alone(device).err().and_then(|error| error.raw_os_error());
        assert_eq!(refused, Some(libc::EBUSY), "{}", device.0);
    }
    daemon.stop();
    for device in [&ssd, &disk] {
        alone(device).expect("nobody has it");
    }
    // Who has it alone keeps the daemon away.
    let held = alone(&ssd).expect("nobody has it");
    let daemon = place.start(&config);
    let problem = daemon.status()["cache"]["problem"].to_string();
    assert!(problem.contains("in use"), "{problem}");
    daemon.stop();
    drop(held);
    let held = alone(&disk).expect("nobody has it");
    refused(&place, &config, "block is in use");
    // Who has them for a moment, as udev, is waited for.
    let all_held = [held, alone(&ssd).expect("nobody has it")];
    let looks = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(100));
        drop(all_held);
    });
    let daemon = place.start(&config);
    looks.join().expect("no panic");
    assert!(
        daemon.status()["cache"]["problem"].is_null(),
        "{}",
        daemon.status()
    );
    daemon.stop();
}

#[test]
fn a_file_behind_a_loop_device_is_taken_by_no_force() {
    let place = Place::new();
    let file = File::create(place.path("ssd")).expect("a file");
    file.set_len(16 << 20).expect("a size");
    let Some(device) = Loop::new(&place.path("ssd")) else {
        return;
    };
    let (said, is_untouched) = create(&place, &place.config("write-through"), &["--force"]);
    let said = said.expect_err("it is in use");
    assert!(
        is_untouched && said.contains(&device.0) && said.contains("losetup"),
        "{said}"
    );
    drop(device);
    let (made, _) = create(&place, &place.config("write-through"), &[]);
    made.expect("nobody uses it");
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
    let ssd = place.ssd(1 << 20);
    refused(&[], "too small");
    ssd.set_len(32 << 20).expect("a size");
    refused(&["--size", "much"], "--size takes a number");
    refused(&["--size", "99999999999"], "fewer than --size");
    refused(&["--size", "100000"], "too small");
    refused(&["--fast"], "--fast is not known");
    let ssd_path = place.path("ssd").to_string_lossy().into_owned();
    let mut blank = Place::run(&["inspect", &ssd_path]).expect("it can be read");
    let identity = blank["identity"].take();
    assert_eq!(
        (&identity["size_bytes"], &identity["file"]["path"]),
        (&json!(32 << 20), &json!(ssd_path))
    );
    assert_eq!(
        blank,
        json!({"is_cache": false, "uuid": null, "format": null, "size_bytes": 32 << 20, "capacity_bytes": null,
               "is_clean": null, "generation": null, "is_blank": true, "holds": null,
               "line_bytes": null, "identity": null})
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
