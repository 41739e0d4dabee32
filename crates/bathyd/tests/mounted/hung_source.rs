//! A source whose disk does not answer keeps no other from being served, and is served when it answers.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::daemon::{Daemon, Loop, Place, is_mounted, is_skipped};
use crate::ssd_faults::FailingSsd;

/// A file system on a disk that does not answer when it is told so.
struct HungFileSystem {
    dir: PathBuf,
    fault: Value,
    // Fields are dropped in this order: below an unmounted disk a device is not known as ours, and would stay.
    _device: Loop,
    disk: FailingSsd,
}

impl HungFileSystem {
    fn new(place: &Place) -> Option<Self> {
        let disk = FailingSsd::new(place);
        let device = Loop::new(&disk.path())?;
        let made = Command::new("mkfs.ext4").args(["-q", &device.0]).status();
        if !made.is_ok_and(|made| made.success()) {
            eprintln!("SKIPPED: this test needs mkfs.ext4");
            return None;
        }
        let dir = place.dir();
        let kind = Some("ext4");
        mount(Some(&*device.0), &dir, kind, MsFlags::empty(), None::<&str>).expect("mounted");
        Some(Self {
            dir,
            fault: Value::Null,
            _device: device,
            disk,
        })
    }

    /// What is to be made durable waits from now on, and there is something.
    fn hang(&mut self) {
        fs::write(self.dir.join("file"), "not durable yet").expect("written");
        let question = json!({"op": "fault", "disk": "ssd", "add": "hang=write"});
        self.fault = self.disk.ask(&question)["id"].clone();
    }

    fn answer(&mut self) {
        if !self.fault.is_null() {
            let fault = self.fault.take();
            self.disk
                .ask(&json!({"op": "fault", "disk": "ssd", "clear": fault}));
        }
    }
}

impl Drop for HungFileSystem {
    fn drop(&mut self) {
        self.answer();
        while umount2(&self.dir, MntFlags::UMOUNT_NOFOLLOW).is_ok() {}
    }
}

fn source(daemon: &Daemon, name: &str) -> Value {
    let status = daemon.ask("status");
    let sources = status["sources"].as_array().expect("sources");
    let found = sources.iter().find(|source| source["name"] == name);
    found.cloned().unwrap_or(Value::Null)
}

fn wait_until(mut happens: impl FnMut() -> bool) {
    while !happens() {
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_source_whose_disk_hangs_keeps_no_other_from_being_served_and_is_served_when_it_answers() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    let other = place.path("bare");
    fs::write(other.join("file"), "here").expect("written");
    place.ssd(16 << 20);
    let Some(mut hung) = HungFileSystem::new(&place) else {
        return;
    };
    let mut config = place.config("write-through");
    let first = config["sources"][0].clone();
    config["sources"] = json!([first, {"dir": other, "mode": "write-through"}]);
    config["start_limit_s"] = json!(1);
    hung.hang();
    let daemon = place.start(&config);
    assert_eq!(fs::read(other.join("file")).expect("served"), b"here");
    assert!(is_mounted(&other));
    let of_hung = source(&daemon, "dir");
    assert_eq!(of_hung["is_served"], false, "{of_hung}");
    let problem = of_hung["problem"].as_str().expect("a text");
    assert!(problem.contains("does not answer yet"), "{problem}");
    assert!(place.log().contains(problem), "{}", place.log());
    // It cannot be started twice, and others are started and stopped beside it.
    let tell = |command: &str, with: Value| {
        let mut question = with;
        question["command"] = json!(command);
        daemon.tell(&question)
    };
    let again = tell("start_source", json!({"source": first})).expect_err("it is about to start");
    assert!(again.contains("does not answer yet"), "{again}");
    let namesake = json!({"source": {"dir": place.path("state"), "name": "dir", "mode": "read-only"}});
    let namesake = tell("start_source", namesake).expect_err("its name is taken");
    assert!(namesake.contains("the name dir"), "{namesake}");
    tell("stop_source", json!({"name": "bare"})).expect("nobody uses it");
    let second = json!({"source": {"dir": other, "mode": "write-through"}});
    tell("start_source", second).expect("its disk answers");
    hung.answer();
    wait_until(|| source(&daemon, "dir")["is_served"] == true);
    assert_eq!(
        fs::read(place.dir().join("file")).expect("served"),
        b"not durable yet"
    );
    assert!(source(&daemon, "dir")["problem"].is_null());

    // By a command, and given up before its disk answers.
    tell("stop_source", json!({"name": "dir"})).expect("nobody uses it");
    hung.hang();
    let late = tell("start_source", json!({"source": first})).expect_err("it does not answer");
    assert!(late.contains("does not answer yet"), "{late}");
    assert_eq!(source(&daemon, "dir")["is_served"], false);
    tell("stop_source", json!({"name": "dir"})).expect("it is given up");
    hung.answer();
    let start = || tell("start_source", json!({"source": first}));
    // Until the thread that waited has let it go.
    wait_until(|| start().is_ok());
    daemon.stop();
}

#[test]
fn a_source_that_hangs_when_it_is_left_keeps_no_signal_from_being_heard() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    let other = place.path("bare");
    place.ssd(16 << 20);
    let Some(mut hung) = HungFileSystem::new(&place) else {
        return;
    };
    let mut config = place.config("write-through");
    let first = config["sources"][0].clone();
    config["sources"] = json!([first, {"dir": other, "mode": "pass-through"}]);
    let mut daemon = place.start(&config);
    hung.hang();
    // Somebody else unmounts it.
    umount2(&hung.dir, MntFlags::UMOUNT_NOFOLLOW).expect("nobody uses it");
    wait_until(|| source(&daemon, "dir").is_null());
    assert!(is_mounted(&other));
    daemon.signal(Signal::SIGTERM);
    wait_until(|| !is_mounted(&other));
    hung.answer();
    assert_eq!(daemon.wait(), Some(0));
}
