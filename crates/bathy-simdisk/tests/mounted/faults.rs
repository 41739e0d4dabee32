//! Faults come on demand, are listed, and go without a trace.

use std::io;
use std::thread;

use serde_json::json;

use crate::server::{Server, can_mount, read, write};

fn errno(result: io::Result<impl std::fmt::Debug>) -> i32 {
    result.unwrap_err().raw_os_error().unwrap()
}

#[test]
fn errors_and_their_end() {
    if !can_mount() {
        return;
    }
    let server = Server::start(&[
        "name=disk,profile=zero,size=16M",
        "name=other,profile=zero,size=16M",
    ]);
    let file = server.open("disk");
    write(&file, 0, 8192, 7).unwrap();
    let first = server.fault("eio=read,range=4K-8K");
    assert_eq!(errno(read(&file, 4096, 4096)), 5);
    assert_eq!(read(&file, 0, 4096).unwrap(), [7; 4096]);
    assert_eq!(read(&server.open("other"), 4096, 4096).unwrap(), [0; 4096]);
    server.fault("full");
    assert_eq!(errno(write(&file, 0, 4096, 8)), 28);
    let listed = server.command(&json!({"op": "faults", "disk": "disk"}));
    assert_eq!(
        listed["disks"][0]["faults"][0],
        json!({"id": first, "fault": "eio=read,range=4K-8K", "hits": 1, "left": null})
    );
    server.command(&json!({"op": "fault", "disk": "disk", "clear": first}));
    assert_eq!(read(&file, 4096, 4096).unwrap(), [7; 4096]);
    assert_eq!(errno(write(&file, 0, 4096, 8)), 28);
    server.clear();
    server.fault("read-only");
    assert_eq!(errno(write(&file, 0, 4096, 8)), 30);
    server.clear();
    server.fault("eio=flush,count=1");
    assert_eq!(errno(file.sync_data()), 5);
    file.sync_data().unwrap();
    server.clear();
    assert_eq!(
        read(&file, 0, 8192).unwrap(),
        [7; 8192],
        "what failed has changed nothing"
    );
    let stats = server.stats();
    assert_eq!(
        (&stats["read"]["errors"], &stats["write"]["errors"]),
        (&json!(1), &json!(3)),
        "{stats}"
    );
}

#[test]
fn flipped_bits_are_the_same_each_time_and_gone_when_cleared() {
    if !can_mount() {
        return;
    }
    let server = Server::start(&["name=disk,profile=hdd-10k-sas,size=16M"]);
    let file = server.open("disk");
    write(&file, 0, 16384, 0).unwrap();
    server.fault("flip,range=4K-8K");
    let bytes = read(&file, 0, 16384).unwrap();
    assert_eq!(bytes.iter().map(|it| it.count_ones()).sum::<u32>(), 1);
    assert_eq!(read(&file, 0, 16384).unwrap(), bytes);
    server.clear();
    assert_eq!(read(&file, 0, 16384).unwrap(), [0; 16384]);
}

#[test]
fn a_hanging_request_goes_on_when_the_fault_is_cleared() {
    if !can_mount() {
        return;
    }
    let server = Server::start(&["name=disk,profile=nvme-consumer,size=16M"]);
    server.fault("hang=write");
    thread::scope(|scope| {
        let writer = scope.spawn(|| write(&server.open("disk"), 0, 4096, 9));
        while server.stats()["in_flight"] != 1 {
            thread::yield_now();
        }
        // Reads go on meanwhile.
        assert_eq!(read(&server.open("disk"), 0, 4096).unwrap(), [0; 4096]);
        assert!(!writer.is_finished());
        server.clear();
        writer.join().unwrap().unwrap();
    });
    assert_eq!(read(&server.open("disk"), 0, 4096).unwrap(), [9; 4096]);
}

#[test]
fn a_slow_disk_and_spikes_show_in_the_service_times() {
    if !can_mount() {
        return;
    }
    let server = Server::start(&["name=disk,profile=hdd-7200-4t,size=100G"]);
    let file = server.open("disk");
    server.fault("slow=5x");
    server.fault("spike=100ms,op=read,count=1");
    for index in 0..10_u64 {
        read(&file, index * 7 % 10 * (9 << 30), 4096).unwrap();
    }
    let service = server.stats()["read"]["service"].clone();
    let mean_ms = service["sum_ns"].as_f64().unwrap() / 10.0 / 1e6;
    assert!((30.0..110.0).contains(&mean_ms), "{mean_ms}");
    assert!(service["max_ns"].as_u64().unwrap() >= 100_000_000, "{service}");
}

#[test]
fn a_power_cut_loses_what_was_not_flushed() {
    if !can_mount() {
        return;
    }
    let server = Server::start(&["name=disk,profile=hdd-7200-4t,size=1G,backing={dir}/data"]);
    let file = server.open("disk");
    for block in 0..32_u64 {
        write(&file, block << 20, 4096, 1).unwrap();
    }
    file.sync_data().unwrap();
    // So slow that nothing leaves the write cache before the cut, except the one that the arm is at.
    server.fault("slow=1000x");
    for block in 0..32_u64 {
        write(&file, block << 20, 4096, 2).unwrap();
    }
    assert_eq!(read(&file, 0, 4096).unwrap(), [2; 4096]);
    let cut = server.command(&json!({"op": "power-cut", "disk": "disk", "mode": "tear", "sector": 512, "seed": 4, "stay_off": true}));
    let count = |key: &str| cut[key].as_u64().unwrap();
    assert!(count("kept") + count("lost") + count("torn") >= 31, "{cut}");
    assert!(
        count("kept") > 0 && count("lost") > 0 && count("torn") > 0,
        "{cut}"
    );
    assert_eq!(errno(read(&file, 0, 4096)), 5);
    server.command(&json!({"op": "power-on", "disk": "disk"}));
    server.clear();
    let (mut kept, mut lost, mut torn) = (0, 0, 0);
    for block in 0..32_u64 {
        let bytes = read(&file, block << 20, 4096).unwrap();
        assert!(
            bytes
                .chunks(512)
                .all(|sector| sector == [1; 512] || sector == [2; 512]),
            "block {block}"
        );
        match bytes.chunks(512).filter(|sector| sector[0] == 2).count() {
            8 => kept += 1,
            0 => lost += 1,
            _ => torn += 1,
        }
    }
    assert!(
        kept >= count("kept") && lost == count("lost") && torn == count("torn"),
        "{cut}: {kept} {lost} {torn}"
    );
    assert_eq!(server.stats()["power_cuts"], 1);
}

#[test]
fn the_control_socket_takes_nonsense() {
    if !can_mount() {
        return;
    }
    let server = Server::start(&["name=disk,profile=zero,size=16M"]);
    let long = vec![b'['; 70 << 10];
    for line in [
        &b"nonsense\n"[..],
        b"\n",
        b"{}\n",
        b"[]\n",
        b"{\"op\":7}\n",
        b"{\"op\":\"stats\",\"disk\":\"x\"}\n",
        b"\xff\xfe\n",
        b"{\"op\":\"fault\",\"disk\":\"disk\"}\n",
        b"{\"op\":\"fault\",\"disk\":\"disk\",\"clear\":99}\n",
        b"{\"op\":\"fault\",\"disk\":\"disk\",\"clear\":-1}\n",
        b"{\"op\":\"fault\",\"disk\":\"disk\",\"add\":\"slow=-1\"}\n",
        b"{\"op\":\"power-cut\",\"disk\":\"disk\",\"sector\":0}\n",
        b"{\"op\":\"power-cut\",\"disk\":\"disk\",\"mode\":7}\n",
        b"{\"op\":\"power-cut\",\"disk\":\"disk\",\"seed\":1.5}\n",
        &long,
    ] {
        let answer = server.raw(line);
        assert_eq!(answer["ok"], json!(false), "{answer}");
        assert!(
            !answer["error"].as_str().unwrap().is_empty() && !answer["hint"].as_str().unwrap().is_empty()
        );
    }
    assert_eq!(
        server.command(&json!({"op": "profiles"}))["profiles"][0]["name"],
        "hdd-7200-4t"
    );
    assert_eq!(server.stats()["read"]["count"], 0);
}
