//! Many files and a full file system: users of one directory leave the descriptors of others alone, all entries are listed, and
//! space is free when it is free on the bare directory.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use rustix::fs::{Mode, OFlags, fstat, open, statvfs};
use rustix::io::Errno;

use crate::daemon::{Place, is_skipped};

const ENTRIES: usize = 10_000;

/// Nothing is mounted there when this ends, also by a failure.
struct Unmounted(PathBuf);

impl Drop for Unmounted {
    fn drop(&mut self) {
        while umount2(&self.0, MntFlags::MNT_DETACH).is_ok() {}
    }
}

/// Entries of a directory whose attributes are known, or the error.
fn listed(directory: &Path) -> std::io::Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir(directory)? {
        entry?.metadata()?;
        count += 1;
    }
    Ok(count)
}

#[test]
fn many_files_of_one_directory_are_all_listed_and_leave_another_one_its_descriptors() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    place.ssd(8 << 20);
    let (dir, other) = (place.dir(), place.path("other"));
    fs::create_dir(&other).expect("a directory");
    let _unmounted = Unmounted(other.clone());
    fs::create_dir(dir.join("many")).expect("a directory");
    for number in 0..ENTRIES {
        File::create(dir.join(format!("many/{number}"))).expect("made");
    }
    let mut config = place.config("write-through");
    let mut second = config["sources"][0].clone();
    second["dir"] = other.to_string_lossy().into();
    config["sources"].as_array_mut().expect("a list").push(second);
    let daemon = place.start_with_descriptors(&config, 1024);

    assert_eq!(listed(&dir.join("many")).expect("listed"), ENTRIES);
    let known = daemon.ask("status")["sources"][0]["in_use"]["inodes"].as_u64();
    assert!(
        known >= Some(ENTRIES as u64),
        "the kernel knows {known:?} at a time"
    );
    let is_served = |name: &str| {
        fs::write(other.join(name), name)?;
        fs::read_to_string(other.join(name))
    };
    assert_eq!(is_served("one").expect("the other directory is served"), "one");

    // As many files are open as one source may have, and there are descriptors for the other one.
    let mut opened = Vec::new();
    let error = loop {
        match File::open(dir.join(format!("many/{}", opened.len()))) {
            Ok(file) => opened.push(file),
            Err(error) => break error,
        }
        assert!(opened.len() < 1024, "nothing limits them");
    };
    assert_eq!(Errno::from_io_error(&error), Some(Errno::NFILE), "{error}");
    assert_eq!(is_served("two").expect("the other directory is served"), "two");
    // Nor do they leave nothing for another user of the same directory.
    let read = Command::new("cat")
        .arg(dir.join("many/0"))
        .uid(65534)
        .output()
        .expect("it runs");
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    assert_eq!(listed(&other).expect("listed"), 2);
    // An error, and not a part.
    assert!(
        listed(&dir.join("many")).is_ok_and(|count| count == ENTRIES) || listed(&dir.join("many")).is_err()
    );
    // Attributes of known ones take no descriptor.
    assert!(fs::metadata(dir.join("many/9999")).is_ok());
    drop(opened);
    while File::open(dir.join("many/0")).is_err() {
        thread::sleep(Duration::from_millis(5));
    }
    daemon.stop();
}

#[test]
fn a_file_that_gets_the_number_of_a_removed_one_is_another_file() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    let daemon = place.start(&place.config("pass-through"));
    let [old, new] = ["old", "new"].map(|name| place.dir().join(name));
    let is_given_again = (0..100).any(|_| {
        fs::write(&old, "old").expect("written");
        // The kernel knows it for as long as this is open, and the daemon is not told that it is.
        let known = open(&old, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).expect("it is there");
        let number = fs::metadata(&old).expect("attributes").ino();
        fs::remove_file(&old).expect("removed");
        fs::write(&new, "another one").expect("written");
        let is_new = || {
            let is = fs::metadata(&new).expect("attributes");
            assert_eq!((is.len(), is.nlink()), (11, 1));
            assert_eq!(fs::read_to_string(&new).expect("read"), "another one");
            is.ino()
        };
        let is_given_again = is_new() == number;
        assert!(fstat(&known).is_ok_and(|is| is.st_nlink == 0) || fstat(&known).is_err());
        drop(known);
        assert_eq!(is_new() == number, is_given_again);
        fs::remove_file(&new).expect("removed");
        is_given_again
    });
    if !is_given_again {
        eprintln!("SKIPPED: the file system does not use the number of an inode again");
    }
    daemon.stop();
}

/// A tmpfs with two directories, one of which is served.
struct Small {
    _mounts: [Unmounted; 2],
    place: Place,
}

impl Small {
    const BYTES: u64 = 16 << 20;

    fn new() -> Self {
        let place = Place::new();
        let below = place.path("below");
        fs::create_dir(&below).expect("a directory");
        let size = format!("size={}", Self::BYTES);
        mount(
            Some("tmpfs"),
            &below,
            Some("tmpfs"),
            MsFlags::empty(),
            Some(size.as_str()),
        )
        .expect("mounted");
        for name in ["dir", "bare"] {
            fs::create_dir(below.join(name)).expect("a directory");
        }
        place.ssd(8 << 20);
        Self {
            _mounts: [Unmounted(below.join("dir")), Unmounted(below)],
            place,
        }
    }
}

#[test]
fn a_full_file_system_takes_what_it_has_room_for_and_gives_the_room_of_removed_files_back() {
    if is_skipped() {
        return;
    }
    let small = Small::new();
    let below = small.place.path("below");
    for mode in ["pass-through", "write-through"] {
        let mut config = small.place.config(mode);
        config["sources"][0]["dir"] = below.join("dir").to_string_lossy().into();
        let daemon = small.place.start(&config);
        let free = || statvfs(&below).expect("asked").f_bavail;
        let before = free();
        // The kernel tells of it a moment later, and a read is answered before what it fetched is copied to the SSD.
        let wait_for_end_of_use = || loop {
            let status = daemon.status();
            if status["in_use"]["open_files"] == 0 && status["stats"]["pending"] == 0 {
                break;
            }
            thread::sleep(Duration::from_millis(5));
        };
        let [mounted, bare] = ["dir", "bare"].map(|root| {
            let path = below.join(root).join("f");
            let file = File::create(&path).expect("made");
            let chunk = vec![7; 3 << 20];
            let mut written = Vec::new();
            let error = loop {
                match file.write_at(&chunk, written.iter().sum::<usize>() as u64) {
                    Ok(bytes) => written.push(bytes),
                    Err(error) => break error,
                }
            };
            assert_eq!(Errno::from_io_error(&error), Some(Errno::NOSPC));
            drop(file);
            wait_for_end_of_use();
            assert_eq!(free(), 0);
            let bytes = fs::read(&path).expect("read");
            assert_eq!(bytes.len(), written.iter().sum::<usize>());
            assert!(bytes.iter().all(|&byte| byte == 7));
            wait_for_end_of_use();
            fs::remove_file(path).expect("removed");
            assert_eq!(free(), before, "{mode}, {root}: at once");
            written
        });
        assert_eq!(
            mounted.iter().sum::<usize>(),
            bare.iter().sum::<usize>(),
            "{mode}"
        );
        assert!(bare.last() < Some(&(3 << 20)), "the last one was done in part");
        daemon.stop();
    }
}
