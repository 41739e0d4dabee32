//! The SSD fails, vanishes, is cut or has no room: no error and no wrong byte at those who use the mount, then or after a
//! restart with an SSD that is back with whatever it has.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use serde_json::{Value, json};

use crate::daemon::{Daemon, Loop, Place, Random, asked, exchange, is_skipped, mounts_on};

const FILE_BYTES: u64 = 4 << 20;
/// Less than the file.
const SSD_BYTES: u64 = 4 << 20;
/// The arguments of a simulated disk, a line each.
const DISK_ARGUMENTS: &str = "BATHYD_TEST_DISK";

#[test]
#[ignore = "other tests run it as a process of its own"]
fn serves_a_simulated_disk() {
    if let Ok(arguments) = std::env::var(DISK_ARGUMENTS) {
        assert_eq!(
            bathy_simdisk::program::main(arguments.lines().map(str::to_owned)),
            0
        );
    }
}

/// An SSD in the memory of another process, which fails when it is told to.
pub(crate) struct FailingSsd {
    process: Child,
    control: PathBuf,
    mount: PathBuf,
}

impl FailingSsd {
    pub(crate) fn new(place: &Place) -> Self {
        let (mount, control) = (place.path("disks"), place.path("control"));
        std::fs::create_dir(&mount).expect("a directory");
        let arguments = [
            "--mount",
            mount.to_str().expect("a path"),
            "--control",
            control.to_str().expect("a path"),
            "--disk",
            &format!("name=ssd,profile=zero,size={SSD_BYTES}"),
        ];
        let process = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "ssd_faults::serves_a_simulated_disk", "--ignored"])
            .env(DISK_ARGUMENTS, arguments.join("\n"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it runs");
        let mut ssd = Self {
            process,
            control,
            mount,
        };
        while !ssd.path().exists() || UnixStream::connect(&ssd.control).is_err() {
            assert!(
                ssd.process.try_wait().expect("a child").is_none(),
                "the disk ended"
            );
            thread::sleep(Duration::from_millis(5));
        }
        ssd
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.mount.join("ssd")
    }

    pub(crate) fn ask(&self, question: &Value) -> Value {
        let answer = exchange(&self.control, question);
        assert_eq!(answer["ok"], true, "{answer}");
        answer
    }

    /// How many requests the faults had their effect on.
    fn hits(&self) -> u64 {
        let answer = self.ask(&json!({"op": "faults"}));
        answer["disks"][0]["faults"][0]["hits"].as_u64().expect("a count")
    }
}

impl Drop for FailingSsd {
    fn drop(&mut self) {
        let _ended = self.process.kill();
        let _waited = self.process.wait();
        if !mounts_on(&self.mount).is_empty() {
            let _unmounted = umount2(&self.mount, MntFlags::MNT_DETACH);
        }
    }
}

/// A file in the mount, and what it should hold.
struct Model {
    random: Random,
    bytes: Vec<u8>,
}

impl Model {
    fn new(place: &Place) -> Self {
        let bytes = Random::new(1).bytes(FILE_BYTES as usize);
        std::fs::write(place.dir().join("block"), &bytes).expect("written");
        Self {
            random: Random::new(2),
            bytes,
        }
    }

    fn file(place: &Place) -> File {
        let mut options = File::options();
        options
            .read(true)
            .write(true)
            .open(place.dir().join("block"))
            .expect("the file")
    }

    /// Requests, all of which succeed.
    fn requests(&mut self, place: &Place, count: u64, context: &str) {
        let file = Self::file(place);
        for number in 0..count {
            let random = &mut self.random;
            let length = 1 + random.below(60_000);
            let offset = random.below(FILE_BYTES - length);
            let range = offset as usize..(offset + length) as usize;
            match random.below(12) {
                0..=5 => {
                    let mut found = vec![0; length as usize];
                    file.read_exact_at(&mut found, offset)
                        .unwrap_or_else(|error| panic!("{context}, request {number}: {error}"));
                    assert!(
                        found == self.bytes[range],
                        "{context}, request {number}: wrong bytes"
                    );
                }
                6..=10 => {
                    let data = random.bytes(length as usize);
                    file.write_all_at(&data, offset)
                        .unwrap_or_else(|error| panic!("{context}, request {number}: {error}"));
                    self.bytes[range].copy_from_slice(&data);
                }
                _ => file
                    .sync_data()
                    .unwrap_or_else(|error| panic!("{context}, request {number}: {error}")),
            }
        }
    }

    /// Everything, twice: what is read first may be cached then.
    fn check(&self, place: &Place, context: &str) {
        for _ in 0..2 {
            let mut found = vec![0; FILE_BYTES as usize];
            Self::file(place).read_exact_at(&mut found, 0).expect("read");
            assert!(found == self.bytes, "{context}: wrong bytes");
        }
    }
}

fn end(daemon: Daemon, is_killed: bool) {
    if is_killed { daemon.kill() } else { daemon.stop() }
}

/// Sessions in each of which one more operation of the SSD succeeds before one fails, or all do from then on.
fn fail_each(is_lasting: bool, requests: u64) {
    let place = Place::new();
    let ssd = FailingSsd::new(&place);
    let mut config = place.config("write-through");
    config["cache"]["ssd"] = json!(ssd.path());
    let mut model = Model::new(&place);
    let each = asked("BATHY_TORTURE_FAULTS", 6);
    let (mut after, mut sessions) = (0, 0);
    loop {
        let kind = if is_lasting { "eio" } else { "eio,count=1" };
        let fault = format!("{kind},after={after}");
        let added = ssd.ask(&json!({"op": "fault", "disk": "ssd", "add": fault}));
        let daemon = place.start(&config);
        model.requests(&place, requests, &fault);
        let hits = ssd.hits();
        end(daemon, sessions % 3 == 0);
        ssd.ask(&json!({"op": "fault", "disk": "ssd", "clear": added["id"]}));
        let daemon = place.start(&config);
        model.check(&place, &fault);
        assert_eq!(daemon.status()["cache"]["engine"]["ssd_errors"], 0, "{fault}");
        end(daemon, sessions % 2 == 0);
        sessions += 1;
        if hits == 0 {
            break;
        }
        after += if after < each { 1 } else { after / 3 };
    }
    eprintln!("lasting {is_lasting}: {sessions} sessions, the last one after {after} operations of the SSD");
    assert!(after > requests / 2);
}

/// A flush that hangs holds the file's lock in the kernel: who hands over a write waits for it, and with a ring cannot be left.
#[test]
fn a_file_system_that_holds_a_flush_of_the_ssd_holds_no_request() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    let ssd = FailingSsd::new(&place);
    let mut config = place.config("write-through");
    config["cache"]["ssd"] = json!(ssd.path());
    let mut model = Model::new(&place);
    let daemon = place.start(&config);
    model.requests(&place, 50, "before");
    let added = ssd.ask(&json!({"op": "fault", "disk": "ssd", "add": "hang=flush"}));
    let (say, done) = mpsc::channel();
    thread::scope(|scope| {
        let (model, place) = (&mut model, &place);
        scope.spawn(move || {
            model.requests(place, 400, "while a flush hangs");
            say.send(()).expect("it is waited for");
        });
        let done = done.recv_timeout(Duration::from_secs(180));
        // Else nothing would ever end.
        ssd.ask(&json!({"op": "fault", "disk": "ssd", "clear": added["id"]}));
        done.expect("requests go on");
    });
    model.check(&place, "after it");
    end(daemon, false);
}

#[test]
fn no_operation_of_the_ssd_that_fails_is_seen_in_the_mount() {
    if is_skipped() {
        return;
    }
    fail_each(false, 100);
}

#[test]
fn an_ssd_that_vanishes_at_any_operation_is_not_seen_in_the_mount() {
    if is_skipped() {
        return;
    }
    fail_each(true, 100);
}

/// Sessions before, in and after each of which the SSD is what `change` makes it.
fn change_under_load(place: &Place, config: &Value, change: &mut dyn FnMut()) {
    let mut model = Model::new(place);
    for is_killed in [false, true] {
        let daemon = place.start(config);
        model.requests(place, 200, "before");
        assert_eq!(daemon.status()["cache"]["engine"]["is_bypassed"], false);
        change();
        model.requests(place, 400, "changed");
        let engine = daemon.status()["cache"]["engine"].clone();
        let noticed = engine["ssd_errors"].as_u64() > Some(0) || engine["mismatches"].as_u64() > Some(0);
        assert!(noticed, "nothing was wrong with the SSD: {engine}");
        end(daemon, is_killed);
        let daemon = place.start(config);
        model.check(place, "after it");
        end(daemon, is_killed);
        // A new one for the next round.
        let ssd = config["cache"]["ssd"].as_str().expect("a path");
        if let Ok(file) = File::options().write(true).open(ssd) {
            drop(file.write_all_at(&vec![0; 2 << 20], 0));
        }
    }
}

#[test]
fn an_ssd_file_that_is_cut_under_load_is_not_seen_in_the_mount() {
    if is_skipped() {
        return;
    }
    for bytes in [0, SSD_BYTES / 2] {
        let place = Place::new();
        let ssd = place.ssd(SSD_BYTES);
        let config = place.config("write-through");
        change_under_load(&place, &config, &mut || ssd.set_len(bytes).expect("cut"));
    }
}

#[test]
fn a_device_without_its_medium_is_not_seen_in_the_mount() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    let medium = File::create(place.path("medium")).expect("a file");
    medium.set_len(SSD_BYTES).expect("a size");
    let Some(device) = Loop::new(&place.path("medium")) else {
        return;
    };
    let mut config = place.config("write-through");
    config["cache"]["ssd"] = json!(device.0);
    change_under_load(&place, &config, &mut || medium.set_len(0).expect("cut"));
}

#[test]
fn a_full_file_system_below_the_ssd_is_not_seen_in_the_mount() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    let small = place.path("small");
    std::fs::create_dir(&small).expect("a directory");
    // Room for the tables and some lines.
    mount(
        Some("tmpfs"),
        &small,
        Some("tmpfs"),
        MsFlags::empty(),
        Some("size=2m"),
    )
    .expect("a file system");
    let ssd = File::create(small.join("ssd")).expect("an SSD");
    ssd.set_len(8 << 20).expect("a size");
    let mut config = place.config("write-through");
    config["cache"]["ssd"] = json!(small.join("ssd"));
    let mut model = Model::new(&place);
    for is_killed in [true, false] {
        let daemon = place.start(&config);
        model.requests(&place, 400, "full");
        let engine = daemon.status()["cache"]["engine"].clone();
        assert!(engine["ssd_errors"].as_u64() > Some(0), "{engine}");
        end(daemon, is_killed);
        let daemon = place.start(&config);
        model.check(&place, "after it");
        end(daemon, is_killed);
    }
    drop(ssd);
    umount2(&small, MntFlags::MNT_DETACH).expect("unmounted");
}
