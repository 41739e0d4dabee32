//! Devices that were changed while nobody served them, by ways that leave their counters as they were.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::process::Command;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use serde_json::{Value, json};

use crate::daemon::{Loop, Place, Random, is_skipped};

const LINE: usize = 64 << 10;

#[test]
fn a_hole_that_would_keep_other_writes_waiting_for_long_is_not_made() {
    const BYTES: u64 = 1 << 30;
    if is_skipped() {
        return;
    }
    let place = Place::new();
    place.ssd(8 << 20);
    let disk = File::create(place.path("disk")).expect("made");
    disk.set_len(BYTES).expect("a size");
    disk.write_all_at(&vec![7; 2 * LINE], 0).expect("written");
    let Some(device) = Loop::new(&place.path("disk")) else {
        return;
    };
    symlink(&device.0, place.dir().join("block")).expect("a link");
    let daemon = place.start(&place.config("write-through"));
    let block = File::options()
        .read(true)
        .write(true)
        .open(place.dir().join("block"));
    let block = block.expect("the device");
    let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    for length in [BYTES, u64::MAX >> 1] {
        assert_eq!(fallocate(&block, mode, 0, length), Err(Errno::OPNOTSUPP));
    }
    fallocate(&block, mode, LINE as u64, LINE as u64).expect("it is small");
    let mut out = vec![1; 2 * LINE];
    block.read_exact_at(&mut out, 0).expect("read");
    assert!(out[..LINE].iter().all(|&byte| byte == 7) && out[LINE..].iter().all(|&byte| byte == 0));
    // Beyond the end there is nothing.
    fallocate(&block, mode, BYTES - LINE as u64, BYTES).expect("it is small");
    drop(block);
    daemon.stop();
}

/// A source whose `block` is a loop device over a file of so many lines.
struct Disk {
    place: Place,
    device: Loop,
    bytes: Vec<u8>,
    config: Value,
}

impl Disk {
    fn new(lines: usize) -> Option<Self> {
        let place = Place::new();
        let bytes = Random::new(5).bytes(lines * LINE);
        fs::write(place.path("disk"), &bytes).expect("written");
        place.ssd((4 * lines * LINE) as u64);
        let device = Loop::new(&place.path("disk"))?;
        symlink(&device.0, place.dir().join("block")).expect("a link");
        let config = place.config("write-through");
        Some(Self {
            place,
            device,
            bytes,
            config,
        })
    }

    /// A session that reads all of the device in lines, so often: the bytes of hits, and what it said of the device's lines.
    fn session(&self, times: usize, context: &str) -> (u64, Value) {
        let daemon = self.place.start(&self.config);
        let block = File::open(self.place.dir().join("block")).expect("the device");
        let mut out = vec![0; LINE];
        for _ in 0..times {
            for (number, expected) in self.bytes.chunks(LINE).enumerate() {
                block
                    .read_exact_at(&mut out, (number * LINE) as u64)
                    .expect("read");
                assert!(out == expected, "{context}: line {number} is stale");
            }
        }
        let status = daemon.status();
        let said = status["devices_at_start"][0].clone();
        drop(block);
        daemon.stop();
        (
            status["stats"]["reads"]["bytes_hit"].as_u64().expect("a count"),
            said,
        )
    }

    fn rewrite(&mut self, line: usize, path: &str) {
        self.bytes[line * LINE + 4096..][..4096].fill(line as u8 ^ 0x5a);
        let file = File::options().write(true).open(self.place.path(path));
        let file = file.expect("the file behind the device");
        let changed = &self.bytes[line * LINE..][..LINE];
        file.write_all_at(changed, (line * LINE) as u64).expect("written");
        file.sync_all().expect("durable");
    }
}

#[test]
fn a_loop_device_whose_file_was_rewritten_or_replaced_while_stopped_is_not_served_as_it_was() {
    if is_skipped() {
        return;
    }
    let Some(mut disk) = Disk::new(64) else {
        return;
    };
    let all = disk.bytes.len() as u64;
    disk.session(2, "at first");
    let (hits, said) = disk.session(1, "unchanged");
    assert_eq!(
        (hits, &said["at_start"], &said["sampled_lines"]),
        (all, &json!("sampled"), &json!(64))
    );
    assert!(
        disk.place.log().contains("64 cached lines are the device's"),
        "{}",
        disk.place.log()
    );

    disk.rewrite(7, "disk");
    let (hits, said) = disk.session(1, "the file was rewritten");
    assert_eq!((hits, &said["at_start"]), (0, &json!("dropped")));
    assert!(
        disk.place.log().contains("all cached lines are dropped: "),
        "{}",
        disk.place.log()
    );
    // What it was cannot be noted: it is used all the same, and compared the next time.
    let new = disk.place.path("state").join("devices.new");
    fs::create_dir(&new).expect("a directory");
    fs::remove_file(disk.place.path("state").join("devices.json")).expect("removed");
    disk.session(1, "warm again");
    fs::remove_dir(&new).expect("removed");
    let (hits, said) = disk.session(2, "not noted");
    assert_eq!((hits, &said["at_start"]), (all, &json!("dropped")));
    assert!(
        said["reason"].to_string().contains("not known which device"),
        "{said}"
    );

    // The same number, and another file.
    fs::copy(disk.place.path("disk"), disk.place.path("other")).expect("copied");
    disk.rewrite(9, "other");
    let losetup = |arguments: &[&str]| {
        let done = Command::new("losetup").args(arguments).status().expect("losetup");
        assert!(done.success());
    };
    losetup(&["--detach", &disk.device.0]);
    losetup(&[&disk.device.0, disk.place.path("other").to_str().expect("a path")]);
    let (hits, said) = disk.session(1, "another file");
    assert_eq!((hits, &said["at_start"]), (0, &json!("dropped")));
    let reason = said["reason"].to_string();
    assert!(reason.contains("other"), "{reason}");
}

#[test]
fn a_large_device_that_was_changed_below_is_compared_and_what_is_the_same_is_served() {
    if is_skipped() {
        return;
    }
    // Lines of 64 MiB and more are compared.
    let Some(mut disk) = Disk::new(1024 + 64) else {
        return;
    };
    disk.session(2, "at first");
    let (hits, said) = disk.session(1, "unchanged");
    assert_eq!(said["sampled_lines"], json!(688), "{said}");
    assert_eq!(hits, disk.bytes.len() as u64);
    disk.rewrite(700, "disk");
    let (_, said) = disk.session(1, "rewritten");
    assert_eq!(said["at_start"], "compared");
    assert!(
        disk.place
            .log()
            .contains("are compared with the device before they are used")
    );
}
