//! How the program ends, and how it begins after a bad end.

use std::fs;
use std::process::Command;

use nix::sys::signal::Signal;

use crate::server::{Server, can_mount, read, write};

fn is_mounted(server: &Server) -> bool {
    fs::read_to_string("/proc/self/mountinfo")
        .unwrap()
        .contains(server.mount_point().to_str().unwrap())
}

#[test]
fn signals_unmount_and_keep_the_data() {
    if !can_mount() {
        return;
    }
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut server = Server::start(&["name=disk,profile=hdd-7200-4t,size=1G,backing={dir}/data"]);
        write(&server.open("disk"), 1 << 20, 8192, 5).unwrap();
        assert_eq!(server.signal(signal).code(), Some(0));
        assert!(!is_mounted(&server) && !server.socket().exists());
        server.start_again();
        assert_eq!(read(&server.open("disk"), 1 << 20, 8192).unwrap(), [5; 8192]);
    }
}

#[test]
fn a_disk_in_use_does_not_keep_the_program_alive() {
    if !can_mount() {
        return;
    }
    let mut server = Server::start(&["name=disk,profile=zero,size=1M"]);
    let file = server.open("disk");
    assert_eq!(server.signal(Signal::SIGTERM).code(), Some(0));
    assert!(!is_mounted(&server));
    assert!(read(&file, 0, 4096).is_err());
}

#[test]
fn somebody_else_may_unmount() {
    if !can_mount() {
        return;
    }
    let mut server = Server::start(&["name=disk,profile=zero,size=1M"]);
    assert!(
        Command::new("umount")
            .arg(server.mount_point())
            .status()
            .unwrap()
            .success()
    );
    // A signal that comes after the end is as good as one before it.
    assert_eq!(server.signal(Signal::SIGTERM).code(), Some(0));
}

#[test]
fn after_kill_9_it_starts_again_with_what_was_flushed() {
    if !can_mount() {
        return;
    }
    let mut server = Server::start(&["name=disk,profile=hdd-7200-4t,size=1G,backing={dir}/data"]);
    let file = server.open("disk");
    write(&file, 0, 4096, 1).unwrap();
    file.sync_data().unwrap();
    server.fault("slow=1000x");
    write(&file, 0, 4096, 2).unwrap();
    server.signal(Signal::SIGKILL);
    assert!(is_mounted(&server) && fs::metadata(server.mount_point()).is_err());
    drop(file);
    server.start_again();
    // The write that was not flushed is lost, as when a real disk loses its power, or was just being written.
    let bytes = read(&server.open("disk"), 0, 4096).unwrap();
    assert!(bytes == [1; 4096] || bytes == [2; 4096]);
    assert_eq!(server.stats()["faults"], serde_json::json!([]));
}

#[test]
fn a_second_server_is_refused() {
    if !can_mount() {
        return;
    }
    let server = Server::start(&["name=disk,profile=zero,size=1M,backing={dir}/data"]);
    let place = server.mount_point().parent().unwrap().display().to_string();
    for (arguments, words) in [
        (
            [
                "--mount",
                "{p}/mnt",
                "--control",
                "{p}/other",
                "--disk",
                "name=a,profile=zero,size=1M",
            ],
            "already a mount point",
        ),
        (
            [
                "--mount",
                "{p}/mnt",
                "--control",
                "{p}/control",
                "--disk",
                "name=a,profile=zero,size=1M",
            ],
            "another process",
        ),
        (
            [
                "--mount",
                "{p}/no",
                "--control",
                "{p}/other",
                "--disk",
                "name=a,profile=zero,size=1M",
            ],
            "No such file",
        ),
        (
            [
                "--mount",
                "{p}/mnt",
                "--control",
                "{p}/other",
                "--disk",
                "name=a,profile=zero,size=1M,backing={p}/data",
            ],
            "another process",
        ),
        (
            [
                "--mount",
                "mnt",
                "--control",
                "{p}/other",
                "--disk",
                "name=a,profile=zero,size=1M",
            ],
            "absolute",
        ),
    ] {
        let arguments = arguments.map(|it| it.replace("{p}", &place));
        let ended = Command::new(env!("CARGO_BIN_EXE_bathy-simdisk"))
            .args(&arguments)
            .output()
            .unwrap();
        let talk = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(2), "{talk}");
        assert!(
            talk.contains(words) && talk.contains("hint: "),
            "{arguments:?}: {talk}"
        );
    }
    assert_eq!(
        read(&server.open("disk"), 0, 4096).unwrap(),
        [0; 4096],
        "the first one goes on"
    );
}
