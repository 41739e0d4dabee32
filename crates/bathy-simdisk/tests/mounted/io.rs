//! Data goes in and comes out again.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::thread;

use nix::fcntl::{FallocateFlags, fallocate};
use serde_json::json;

use crate::server::{Server, can_mount, read, write};

#[test]
fn disks_are_files_of_fixed_size() {
    if !can_mount() {
        return;
    }
    let server = Server::start(&[
        "name=one,profile=zero,size=8M",
        "name=two,profile=hdd-7200-4t,size=10T",
    ]);
    let mut names: Vec<_> = fs::read_dir(server.mount_point())
        .unwrap()
        .map(|it| it.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["one", "two"]);
    assert_eq!(fs::metadata(server.path("two")).unwrap().len(), 10 << 40);
    assert_eq!(
        fs::metadata(server.socket()).unwrap().permissions().mode() & 0o777,
        0o600
    );
    chown(server.path("one"), Some(167), Some(167)).unwrap();
    assert_eq!(fs::metadata(server.path("one")).unwrap().uid(), 167);
    let file = OpenOptions::new().write(true).open(server.path("one")).unwrap();
    assert!(file.set_len(4096).is_err());
    file.set_len(8 << 20).unwrap();
    assert!(fs::write(server.path("three"), "x").is_err());
    assert!(fs::remove_file(server.path("one")).is_err());
}

#[test]
fn replies_of_hard_disks_have_a_lead_and_a_disk_starts_with_nothing_counted() {
    if !can_mount() {
        return;
    }
    let server = Server::start(&[
        "name=hdd,profile=hdd-7200-4t,size=8M",
        "name=ssd,profile=ssd-sata,size=8M",
    ]);
    let stats = server.command(&json!({"op": "stats", "disk": "hdd"}));
    let disk = &stats["disks"][0];
    let lead_ns = disk["lead_ns"].as_u64().unwrap();
    assert!((1..=350_000).contains(&lead_ns), "{disk}");
    assert_eq!((&disk["read"]["count"], &disk["busy_ns"]), (&json!(0), &json!(0)));
    let stats = server.command(&json!({"op": "stats", "disk": "ssd"}));
    assert_eq!(stats["disks"][0]["lead_ns"], 0);
}

#[test]
fn what_was_written_is_read() {
    if !can_mount() {
        return;
    }
    for profile in ["zero", "nvme-dc", "nvme-consumer", "hdd-7200-4t"] {
        let server = Server::start(&[&format!("name=disk,profile={profile},size=64M")]);
        let file = server.open("disk");
        assert_eq!(read(&file, 0, 8192).unwrap(), [0; 8192], "{profile}");
        write(&file, 4096, 8192, 1).unwrap();
        write(&file, 8192, 8192, 2).unwrap();
        // More than one request's worth at once.
        write(&file, 8 << 20, 3 << 20, 3).unwrap();
        file.sync_data().unwrap();
        let bytes = read(&file, 0, 20480).unwrap();
        let expected: Vec<u8> = [0, 1, 2, 2, 0].iter().flat_map(|value| [*value; 4096]).collect();
        assert!(bytes == expected, "{profile}");
        assert!(
            read(&file, 8 << 20, 3 << 20).unwrap().iter().all(|it| *it == 3),
            "{profile}"
        );
        // Buffered and unaligned, through another handle: the same data at once.
        let buffered = OpenOptions::new()
            .read(true)
            .write(true)
            .open(server.path("disk"))
            .unwrap();
        buffered.write_all_at(b"abc", 5000).unwrap();
        let bytes = read(&file, 4096, 4096).unwrap();
        assert_eq!(&bytes[903..908], [1, b'a', b'b', b'c', 1], "{profile}");
        let mut end = [0; 16];
        assert_eq!(buffered.read_at(&mut end, (64 << 20) - 4).unwrap(), 4);
        assert!(buffered.write_at(&end, 64 << 20).is_err());
        let hole = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        fallocate(&buffered, hole, 4096, 4096).unwrap();
        assert_eq!(read(&file, 4096, 4096).unwrap(), [0; 4096], "{profile}");
        fallocate(&buffered, FallocateFlags::empty(), 0, 64 << 20).unwrap();
        assert!(fallocate(&buffered, FallocateFlags::FALLOC_FL_COLLAPSE_RANGE, 0, 4096).is_err());
        assert_eq!(read(&file, 8192, 4096).unwrap(), [2; 4096], "{profile}");
        let stats = server.stats();
        assert_eq!(stats["backing_errors"], 0, "{stats}");
        assert_eq!(stats["discard"]["bytes"], 4096, "{stats}");
        assert!(stats["flush"]["count"].as_u64().unwrap() >= 1, "{stats}");
    }
}

/// Many threads, each with its own blocks: nothing is lost or mixed up, and every request is counted.
#[test]
fn many_writers() {
    if !can_mount() {
        return;
    }
    for profile in ["zero", "nvme-consumer", "hdd-10k-sas"] {
        let server = Server::start(&[&format!("name=disk,profile={profile},size=16M,write-cache=on")]);
        thread::scope(|scope| {
            for lane in 0..8_u64 {
                let server = &server;
                scope.spawn(move || {
                    let file = server.open("disk");
                    for round in 0..40_u64 {
                        let (block, value) = (round * 7 % 16 * 8 + lane, (round * 8 + lane) as u8);
                        write(&file, block * 4096, 4096, value).unwrap();
                        assert_eq!(read(&file, block * 4096, 4096).unwrap(), [value; 4096]);
                    }
                });
            }
        });
        let stats = server.stats();
        assert_eq!(stats["write"]["count"], 8 * 40, "{stats}");
        assert_eq!(stats["read"]["bytes"], 8 * 40 * 4096, "{stats}");
        assert_eq!(stats["in_flight"], 0, "{stats}");
        assert_eq!(stats["lateness"]["count"], 2 * 8 * 40, "{stats}");
    }
}

/// The times that the program reports are those of the model under the same requests: mean seek and half a turn.
#[test]
fn a_mounted_hard_disk_has_its_service_times() {
    if !can_mount() {
        return;
    }
    let server = Server::start(&["name=disk,profile=hdd-7200-4t,size=100G"]);
    let file = server.open("disk");
    let mut random = bathy_random::Random::new(1);
    for _ in 0..150 {
        read(&file, random.below((100 << 30) / 4096) * 4096, 4096).unwrap();
    }
    let stats = server.stats();
    let service = &stats["read"]["service"];
    let mean_ms = service["sum_ns"].as_f64().unwrap() / service["count"].as_f64().unwrap() / 1e6;
    // 150 draws of a time with a standard deviation of about 3.7 ms: 4 standard errors are 1.2 ms.
    assert!((mean_ms - 12.3).abs() < 1.2, "{mean_ms} ms");
    assert!(stats["work"]["seeks"].as_u64().unwrap() > 145, "{stats}");
    assert!(
        stats["busy_ns"]
            .as_u64()
            .unwrap()
            .abs_diff(service["sum_ns"].as_u64().unwrap())
            < 1000,
        "{stats}"
    );
}
