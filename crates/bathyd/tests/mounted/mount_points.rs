//! A source that is a mount point itself, such as the tmpfs of an OSD: at the end our mount goes and never the one below.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, symlink};
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::daemon::{Daemon, Loop, Place, Random, is_mounted, is_skipped, mounts_on};

const SERVED: &str = "fuse.bathyd";
/// Two regions of the cache.
const FILE_BYTES: usize = 8 << 20;
const BLOCK_BYTES: u64 = 4 << 20;

/// A file system that is mounted on the directory of a place, with a file of ones and a `block` that leads to a device.
struct Source {
    kind: &'static str,
    place: Place,
    _devices: Vec<Loop>,
}

impl Drop for Source {
    fn drop(&mut self) {
        let dir = self.place.dir();
        while !mounts_on(&dir).is_empty() && umount2(&dir, MntFlags::MNT_DETACH).is_ok() {}
    }
}

impl Source {
    fn new(kind: &'static str) -> Option<Self> {
        let place = Place::new();
        let device = |name: &str, bytes: u64| {
            let path = place.path(name);
            let made = File::create(&path).and_then(|file| file.set_len(bytes));
            made.expect("a file");
            Loop::new(&path)
        };
        let mut devices = vec![device("disk", BLOCK_BYTES)?];
        let from = if kind == "tmpfs" {
            kind.to_owned()
        } else {
            let below = device("below", 32 << 20)?;
            let made = Command::new(format!("mkfs.{kind}"))
                .args(["-q", &below.0])
                .status();
            if !made.is_ok_and(|status| status.success()) {
                eprintln!("SKIPPED: this test needs mkfs.{kind}");
                return None;
            }
            let name = below.0.clone();
            devices.push(below);
            name
        };
        mount(
            Some(&*from),
            &place.dir(),
            Some(kind),
            MsFlags::empty(),
            None::<&str>,
        )
        .expect("mounted");
        symlink(&devices[0].0, place.dir().join("block")).expect("a link");
        fs::write(place.dir().join("file"), vec![1; FILE_BYTES]).expect("written");
        place.ssd(64 << 20);
        Some(Self {
            kind,
            place,
            _devices: devices,
        })
    }

    /// One of each kind, or none where they cannot be made.
    fn each() -> impl Iterator<Item = Self> {
        let kinds = if is_skipped() { &[][..] } else { &["tmpfs", "ext4"] };
        kinds.iter().filter_map(|kind| Self::new(kind))
    }

    fn config(&self) -> Value {
        self.place.config("write-through")
    }

    fn start(&self) -> Daemon {
        let daemon = self.place.start(&self.config());
        assert_eq!(self.mounts(), [self.kind, SERVED]);
        daemon
    }

    /// Stops the daemon when nobody uses the source any more. A process that another test is about to start has the files
    /// of this one open for a moment, with which the cache would be made void.
    fn stop_unused(daemon: Daemon) {
        let command = json!({"command": "stop_source", "name": "dir"});
        while let Err(refused) = daemon.tell(&command) {
            assert!(refused.contains("is in use"), "{refused}");
            thread::sleep(Duration::from_millis(1));
        }
        daemon.stop();
    }

    fn assert_refused(&self, problem: &str) {
        let mut daemon = self.place.spawn(&self.config());
        assert!(patiently(|| daemon.has_ended()), "it serves or waits");
        assert_eq!(daemon.wait(), Some(2));
        let text = self.place.log();
        assert!(text.contains(problem), "{text}");
    }

    fn dir(&self) -> PathBuf {
        self.place.dir()
    }

    fn open(&self, name: &str) -> File {
        let mut options = File::options();
        let file = options.read(true).write(true).open(self.dir().join(name));
        file.expect("a file")
    }

    fn mounts(&self) -> Vec<String> {
        mounts_on(&self.dir())
    }

    /// What is below is mounted, alone, and has what was written.
    fn assert_plain(&self) {
        assert_eq!(self.mounts(), [self.kind]);
        assert!(
            self.dir().join("block").is_symlink(),
            "another directory is below"
        );
        self.read_file();
    }

    fn read_file(&self) {
        // In pieces: what reads much at once passes by the cache.
        let (file, mut piece) = (self.open("file"), [0; 4096]);
        for offset in (0..FILE_BYTES as u64).step_by(4096) {
            file.read_exact_at(&mut piece, offset).expect("read");
            assert_eq!(piece, [1; 4096]);
        }
    }

    /// Reads the file and returns the bytes of it that came from the cache.
    fn hits(&self, daemon: &Daemon) -> usize {
        let bytes_hit = || daemon.status()["cache"]["engine"]["reads"]["bytes_hit"].as_u64();
        let before = bytes_hit().expect("a count");
        self.read_file();
        (bytes_hit().expect("a count") - before) as usize
    }
}

/// Whether something that takes a moment happens. If it does not, the test is wrong and must not wait for ever.
fn patiently(mut happens: impl FnMut() -> bool) -> bool {
    for _ in 0..3000 {
        if happens() {
            return true;
        }
        thread::sleep(Duration::from_millis(10));
    }
    false
}

#[test]
fn a_mount_point_is_served_and_stays_when_the_daemon_stops() {
    for source in Source::each() {
        let daemon = source.start();
        assert_eq!(source.hits(&daemon), 0);
        assert_eq!(source.hits(&daemon), FILE_BYTES);
        let block = source.open("block");
        assert_eq!(block.metadata().expect("a file").len(), BLOCK_BYTES);
        block.write_all_at(&[2; 8192], 4096).expect("written");
        fs::write(source.dir().join("new"), "new").expect("written");
        drop(block);
        Source::stop_unused(daemon);
        source.assert_plain();
        let mut found = [0; 8192];
        let block = source.open("block");
        block.read_exact_at(&mut found, 4096).expect("read");
        assert_eq!(found, [2; 8192]);
        assert_eq!(fs::read_to_string(source.dir().join("new")).expect("read"), "new");
        drop(block);

        let daemon = source.start();
        assert_eq!(source.hits(&daemon), FILE_BYTES);
        source
            .open("block")
            .read_exact_at(&mut found, 4096)
            .expect("read");
        assert_eq!(found, [2; 8192]);
        daemon.stop();
        source.assert_plain();
    }
}

#[test]
fn an_unmount_from_outside_takes_our_mount_alone() {
    for source in Source::each() {
        let mut daemon = source.start();
        umount2(&source.dir(), MntFlags::empty()).expect("unmounted");
        assert_eq!(daemon.wait(), Some(0));
        source.assert_plain();

        // Detached with an open file: the daemon lives on, and its stop finds no mount of its own.
        let mut daemon = source.start();
        let file = source.open("file");
        umount2(&source.dir(), MntFlags::MNT_DETACH).expect("unmounted");
        daemon.signal(Signal::SIGTERM);
        let mut byte = [0];
        for _ in 0..20 {
            file.read_exact_at(&mut byte, 0).expect("it is served");
            assert_eq!(source.mounts(), [source.kind]);
            thread::sleep(Duration::from_millis(10));
        }
        drop(file);
        assert_eq!(daemon.wait(), Some(0));
        source.assert_plain();
    }
}

#[test]
fn a_stop_with_open_files_shows_what_is_below() {
    for source in Source::each() {
        let mut daemon = source.start();
        let file = source.open("file");
        daemon.signal(Signal::SIGTERM);
        while is_mounted(&source.dir()) {
            thread::yield_now();
        }
        source.assert_plain();
        file.write_all_at(&[3], 0).expect("it is served");
        assert_eq!(fs::read(source.dir().join("file")).expect("below")[0], 3);
        file.write_all_at(&[1], 0).expect("it is served");
        drop(file);
        assert_eq!(daemon.wait(), Some(0));
        source.assert_plain();
    }
}

#[test]
fn after_a_kill_the_dead_mount_alone_is_replaced_and_the_cache_is_warm() {
    for source in Source::each() {
        let daemon = source.start();
        assert_eq!(source.hits(&daemon), 0);
        Source::stop_unused(daemon);
        let daemon = source.start();
        assert_eq!(source.hits(&daemon), FILE_BYTES, "{}", source.place.log());
        // It is being written to when the daemon is killed, so nothing but the dead mount says that nobody else did.
        let file = source.open("file");
        file.write_all_at(&[1; 4096], 0).expect("written");
        daemon.kill();
        drop(file);
        assert_eq!(source.mounts(), [source.kind, SERVED]);
        let daemon = source.start();
        let hits = source.hits(&daemon);
        assert!(hits >= FILE_BYTES / 2, "{hits}: {}", source.place.log());
        daemon.stop();
        source.assert_plain();
    }
}

#[test]
fn a_daemon_that_is_killed_in_its_start_leaves_what_the_next_can_serve() {
    let mut random = Random::new(12);
    for source in Source::each() {
        for _ in 0..10 {
            let daemon = source.place.spawn(&source.config());
            thread::sleep(Duration::from_millis(random.below(60)));
            daemon.end();
            // A mount that is there is one that was served: it was dead at once, and waits for nobody.
            let asked = fs::metadata(source.dir()).map_err(|error| error.raw_os_error());
            match source.mounts().len() {
                1 => source.assert_plain(),
                2 => assert!(asked.is_err()),
                _ => panic!("{:?}", source.mounts()),
            }
        }
        source.start().stop();
        source.assert_plain();
    }
}

#[test]
fn of_two_daemons_that_start_at_once_one_serves() {
    for source in Source::each() {
        let mut other = source.config();
        other["socket"] = source.place.path("other-socket").to_string_lossy().into();
        other["state"] = source.place.path("bare").to_string_lossy().into();
        other["cache"]["ssd"] = source.place.path("other-ssd").to_string_lossy().into();
        let ssd = File::create(source.place.path("other-ssd")).expect("an SSD");
        ssd.set_len(64 << 20).expect("a size");
        for _ in 0..5 {
            let first = source.place.spawn(&source.config());
            // They share the place of the log and of the configuration, which is read late.
            thread::sleep(Duration::from_millis(2));
            let second = source.place.spawn(&other);
            let mut both = [first, second];
            let loser = loop {
                if let Some(place) = both.iter_mut().position(Daemon::has_ended) {
                    break place;
                }
                thread::sleep(Duration::from_millis(1));
            };
            assert_eq!(both[loser].wait(), Some(2), "{}", source.place.log());
            while source.mounts().len() < 2 {
                thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(source.mounts(), [source.kind, SERVED]);
            source.read_file();
            let [first, second] = both;
            if loser == 0 { second } else { first }.stop();
            source.assert_plain();
        }
        let below = File::open(source.dir()).expect("a directory");
        let lock = Flock::lock(below, FlockArg::LockSharedNonblock).expect("nobody serves it");
        source.assert_refused("another process serves it");
        drop(lock);
        source.assert_plain();
    }
}

#[test]
fn what_others_mount_over_ours_stays() {
    for source in Source::each() {
        let mut daemon = source.start();
        mount(
            Some("tmpfs"),
            &source.dir(),
            Some("tmpfs"),
            MsFlags::empty(),
            None::<&str>,
        )
        .expect("mounted");
        daemon.signal(Signal::SIGTERM);
        assert!(patiently(|| source
            .place
            .log()
            .contains("another file system is mounted over")));
        assert_eq!(source.mounts(), [source.kind, SERVED, "tmpfs"]);
        for _ in 0..2 {
            umount2(&source.dir(), MntFlags::empty()).expect("unmounted");
        }
        assert_eq!(daemon.wait(), Some(0));
        source.assert_plain();
    }
}

#[test]
fn a_connection_that_is_aborted_leaves_what_is_below() {
    for source in Source::each() {
        let mut daemon = source.start();
        let number = rustix::fs::stat(source.dir()).expect("it is served").st_dev;
        let control = source.place.path("bare");
        mount(
            Some("fusectl"),
            &control,
            Some("fusectl"),
            MsFlags::empty(),
            None::<&str>,
        )
        .expect("mounted");
        let connection = rustix::fs::minor(number).to_string();
        let aborted = fs::write(control.join(connection).join("abort"), "1");
        umount2(&control, MntFlags::MNT_DETACH).expect("unmounted");
        aborted.expect("aborted");
        daemon.wait();
        source.assert_plain();
    }
}

#[test]
fn the_mount_of_another_fuse_program_is_refused() -> io::Result<()> {
    for source in Source::each() {
        // Nobody answers: whoever asks waits.
        let device = File::options().read(true).write(true).open("/dev/fuse")?;
        let data = format!(
            "fd={},rootmode=40755,user_id=0,group_id=0,subtype=other",
            device.as_raw_fd()
        );
        mount(
            Some("other"),
            &source.dir(),
            Some("fuse"),
            MsFlags::empty(),
            Some(&*data),
        )?;
        source.assert_refused("already a mount point (type fuse.other)");
        assert_eq!(source.mounts(), [source.kind, "fuse.other"]);
        umount2(&source.dir(), MntFlags::MNT_DETACH)?;
        source.assert_plain();
    }
    Ok(())
}
