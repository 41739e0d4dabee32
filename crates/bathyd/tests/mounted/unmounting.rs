//! Whenever the mount goes, the directory is plain and complete.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::mount::{MntFlags, umount2};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::daemon::{Daemon, Place, is_mounted, is_skipped};

#[test]
fn a_killed_daemon_leaves_the_plain_directory_and_the_next_takes_over() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    let config = place.config("pass-through");
    for round in 0..5 {
        let daemon = place.start(&config);
        let file = File::create(place.dir().join(format!("f{round}"))).expect("a file");
        for block in 0..=round {
            let written = file.write_all_at(&[b'x'; 4096], block * 4096);
            written.expect("written");
        }
        daemon.kill();
        let ask = || {
            fs::metadata(place.dir())
                .map(|it| it.len())
                .map_err(|error| error.raw_os_error())
        };
        let mut asked = ask();
        // What is asked while the kernel takes a ring down is broken off or cancelled.
        while [libc::ECONNABORTED, libc::ECANCELED]
            .map(|it| Err(Some(it)))
            .contains(&asked)
        {
            asked = ask();
        }
        assert_eq!(asked, Err(Some(libc::ENOTCONN)));
        if round % 2 == 0 {
            umount2(&place.dir(), MntFlags::MNT_DETACH).expect("unmounted");
            for earlier in 0..=round {
                let bytes = fs::read(place.dir().join(format!("f{earlier}"))).expect("a file");
                assert_eq!(bytes.len() as u64, (earlier + 1) * 4096);
            }
        }
        // Else the next daemon finds the dead mount.
    }
    place.start(&config).stop();
}

#[test]
fn an_unmount_from_outside_ends_the_daemon() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    let mut daemon = place.start(&place.config("pass-through"));
    fs::write(place.dir().join("a"), "bytes").expect("written");
    umount2(&place.dir(), MntFlags::empty()).expect("unmounted");
    assert_eq!(daemon.wait(), Some(0));
    assert_eq!(fs::read_to_string(place.dir().join("a")).expect("read"), "bytes");
    assert!(!place.path("socket").exists());
}

#[test]
fn what_is_written_right_after_an_unmount_from_outside_is_not_taken_for_what_is_cached() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    place.ssd(64 << 20);
    let config = place.config("write-through");
    let path = place.dir().join("a");
    let mut daemon = place.start(&config);
    fs::write(&path, vec![1; 65536]).expect("written");
    assert!(fs::read(&path).expect("read") == vec![1; 65536]);
    // The daemon sees the unmount late.
    daemon.signal(Signal::SIGSTOP);
    while let Err(error) = umount2(&place.dir(), MntFlags::empty()) {
        assert_eq!(error, nix::errno::Errno::EBUSY);
        std::thread::yield_now();
    }
    fs::write(&path, vec![2; 65536]).expect("written");
    daemon.signal(Signal::SIGCONT);
    assert_eq!(daemon.wait(), Some(0));
    let daemon = place.start(&config);
    assert!(fs::read(&path).expect("read") == vec![2; 65536]);
    daemon.stop();
}

/// Tells the daemon to stop, and waits until the directory is the plain one.
fn terminate(daemon: &Daemon, place: &Place) {
    daemon.signal(Signal::SIGTERM);
    while is_mounted(&place.dir()) {
        std::thread::yield_now();
    }
}

#[test]
fn open_files_are_served_until_they_are_closed() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    let mut daemon = place.start(&place.config("pass-through"));
    let path = place.dir().join("a");
    fs::write(&path, "before").expect("written");
    let file = File::options()
        .read(true)
        .write(true)
        .open(&path)
        .expect("a file");
    fs::remove_file(&path).expect("removed");
    terminate(&daemon, &place);
    file.write_all_at(b"after!", 0).expect("written");
    let mut text = String::new();
    (&file).read_to_string(&mut text).expect("read");
    assert_eq!(text, "after!");
    drop(file);
    assert_eq!(daemon.wait(), Some(0));
}

/// A process in a mount namespace of its own, which has a copy of every mount.
struct Elsewhere(Child);

impl Elsewhere {
    /// `script` is run by a shell there; it says a line when it is where it is to be, and ends with its input.
    fn new(script: &str) -> Self {
        let mut child = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare");
        let said = BufReader::new(child.stdout.take().expect("its output"));
        assert_eq!(said.lines().next().expect("a line").expect("text"), "there");
        Self(child)
    }

    fn end(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().expect("its end").success());
    }
}

#[test]
fn a_copy_of_the_mount_in_another_namespace_keeps_no_daemon_and_no_source() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    let mut daemon = place.start(&place.config("pass-through"));
    fs::write(place.dir().join("a"), "bytes").expect("written");
    let elsewhere = Elsewhere::new("echo there; read end; true");
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.wait(), Some(0));
    elsewhere.end();
    // A source is stopped and started in the same way.
    let daemon = place.start(&place.config("pass-through"));
    let elsewhere = Elsewhere::new("echo there; read end; true");
    let stopped = daemon.tell(&json!({"command": "stop_source", "name": "dir"}));
    assert_eq!(stopped, Ok(json!({"is_draining": false})));
    let source = json!({"dir": place.dir(), "mode": "pass-through"});
    let started = daemon.tell(&json!({"command": "start_source", "source": source}));
    assert_eq!(started, Ok(json!({})));
    assert_eq!(fs::read_to_string(place.dir().join("a")).expect("read"), "bytes");
    elsewhere.end();
    daemon.stop();
}

#[test]
fn files_that_are_open_in_another_namespace_are_served_until_they_are_closed() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    let path = place.dir().join("a");
    let mut daemon = place.start(&place.config("pass-through"));
    fs::write(&path, "before").expect("written");
    let shown = path.display();
    let elsewhere = Elsewhere::new(&format!(
        "exec 5<>{shown}; echo there; read end; printf after! >&5"
    ));
    terminate(&daemon, &place);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(fs::read_to_string(&path).expect("read"), "before");
    elsewhere.end();
    assert_eq!(fs::read_to_string(&path).expect("read"), "after!");
    assert_eq!(daemon.wait(), Some(0));
    // A source is stopped by force alone, and can be started when they are closed.
    let daemon = place.start(&place.config("pass-through"));
    let elsewhere = Elsewhere::new(&format!(
        "exec 5<>{shown}; echo there; read end; printf later! >&5"
    ));
    let stop = |force: bool| daemon.tell(&json!({"command": "stop_source", "name": "dir", "force": force}));
    let refused = stop(false).expect_err("a file is open");
    assert!(refused.contains("dir is in use (1 open files)"), "{refused}");
    assert!(is_mounted(&place.dir()));
    assert_eq!(stop(true), Ok(json!({"is_draining": true})));
    assert!(!is_mounted(&place.dir()));
    let start = json!({"command": "start_source", "source": {"dir": place.dir(), "mode": "pass-through"}});
    let refused = daemon.tell(&start).expect_err("it is still in use");
    assert!(refused.contains("still in use"), "{refused}");
    elsewhere.end();
    while daemon.tell(&start).is_err() {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(fs::read_to_string(&path).expect("read"), "later!");
    daemon.stop();
}

#[test]
fn files_that_are_open_here_are_served_until_they_are_closed_whoever_has_a_copy_of_the_mount() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    let mut daemon = place.start(&place.config("pass-through"));
    let path = place.dir().join("a");
    fs::write(&path, "before").expect("written");
    let elsewhere = Elsewhere::new("echo there; read end; true");
    let file = File::options().write(true).open(&path).expect("a file");
    terminate(&daemon, &place);
    file.write_all_at(b"after!", 0).expect("written");
    drop(file);
    assert_eq!(daemon.wait(), Some(0));
    assert_eq!(fs::read_to_string(&path).expect("read"), "after!");
    elsewhere.end();
}

#[test]
fn what_is_cached_is_never_read_in_another_namespace_after_others_changed_the_plain_directory() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    place.ssd(64 << 20);
    let path = place.dir().join("a");
    let config = place.config("write-through");
    let mut daemon = place.start(&config);
    fs::write(&path, "before").expect("written");
    assert_eq!(fs::read_to_string(&path).expect("read"), "before");
    let copy = place.path("copy");
    let (shown, copied) = (path.display(), copy.display());
    let elsewhere = Elsewhere::new(&format!(
        "exec 5<{shown}; echo there; read end; cat <&5 >{copied}"
    ));
    terminate(&daemon, &place);
    while !place.log().contains("in another mount namespace") {
        std::thread::sleep(Duration::from_millis(5));
    }
    fs::write(&path, "after!").expect("written");
    elsewhere.end();
    assert_eq!(fs::read_to_string(&copy).expect("read"), "after!");
    assert_eq!(daemon.wait(), Some(0));
    let daemon = place.start(&config);
    assert_eq!(fs::read_to_string(&path).expect("read"), "after!");
    daemon.stop();
}

#[test]
fn the_socket_is_for_its_owner() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    let daemon = place.start(&place.config("pass-through"));
    let mode = fs::metadata(place.path("socket"))
        .expect("a socket")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(daemon.status()["mode"], "pass-through");
    daemon.stop();
}
