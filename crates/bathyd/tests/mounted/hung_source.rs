//! A source whose disk does not answer keeps no other from being served, and is served when it answers.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::daemon::{Daemon, Loop, Place, is_mounted, is_skipped};
use crate::ssd_faults::FailingSsd;

/// A file system on a disk that does not answer when it is told so.
struct HungFileSystem {
    dir: PathBuf,
    fault: Value,
    /// Of its files where they are not served.
    device: u64,
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
        // Its journal hangs only if it is asked for.
        let options = Some("commit=300");
        mount(Some(&*device.0), &dir, kind, MsFlags::empty(), options).expect("mounted");
        Some(Self {
            device: fs::metadata(&dir).expect("mounted").dev(),
            dir,
            fault: Value::Null,
            _device: device,
            disk,
        })
    }

    /// What is to be made durable waits from now on, and there is something.
    fn hang(&mut self) {
        fs::write(self.dir.join("file"), "not durable yet").expect("written");
        self.hang_now();
    }

    fn hang_now(&mut self) {
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

/// What takes longer than this never happens.
const PATIENCE: Duration = Duration::from_secs(300);

const KEPT: &[u8] = b"cached";

/// Changes the file, which need not be durable.
fn write_to(file: &Path, bytes: &[u8]) {
    let file = File::options().write(true).open(file).expect("a file");
    file.write_all_at(bytes, 0).expect("written");
}

/// Reads the file `kept` of a source: whether the cache served it.
fn is_hit(daemon: &Daemon, dir: &Path) -> bool {
    let name = dir.file_name().and_then(|name| name.to_str()).expect("a name");
    let hits = || source(daemon, name)["stats"]["reads"]["requests_hit"].as_u64();
    let before = hits().expect("a count");
    assert_eq!(fs::read(dir.join("kept")).expect("served"), KEPT);
    hits().expect("a count") > before
}

/// A daemon of two sources, of which a file is cached, and its configuration. One is on a disk that can hang. `None` where that
/// cannot be made.
fn warm() -> Option<(Place, HungFileSystem, Daemon, Value)> {
    if is_skipped() {
        return None;
    }
    let place = Place::new();
    place.ssd(16 << 20);
    let hung = HungFileSystem::new(&place)?;
    let mut config = place.config("write-through");
    let dirs = [&hung.dir, &place.path("bare")];
    config["sources"] = json!(dirs.map(|dir| json!({"dir": dir, "mode": "write-through"})));
    // Others need less, on a busy machine too.
    config["stop_limit_s"] = json!(3);
    for dir in dirs {
        fs::write(dir.join("kept"), KEPT).expect("written");
    }
    let daemon = place.start(&config);
    for dir in dirs {
        assert!(!is_hit(&daemon, dir) && is_hit(&daemon, dir));
    }
    Some((place, hung, daemon, config))
}

/// Stops the daemon while the disk hangs. The stop must be a clean one for the other source, and the hung one begins anew.
fn stop_without(place: &Place, mut hung: HungFileSystem, mut daemon: Daemon, config: &Value) {
    daemon.signal(Signal::SIGTERM);
    // The last that it does. The kernel keeps what waits for the disk.
    wait_until(|| !place.path("socket").exists());
    assert!(
        place.log().contains("dir: its disk does not answer"),
        "{}",
        place.log()
    );
    hung.answer();
    assert_eq!(daemon.wait(), Some(0));
    let daemon = place.start(config);
    let found = daemon.ask("status")["cache"]["found"].clone();
    assert!(
        found.as_str().is_some_and(|it| it.starts_with("clean")),
        "{found}"
    );
    assert!(!is_hit(&daemon, &hung.dir) && is_hit(&daemon, &hung.dir));
    assert!(is_hit(&daemon, &place.path("bare")));
    daemon.stop();
}

fn wait_until(mut happens: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !happens() {
        assert!(Instant::now() < until, "it does not happen");
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

#[test]
fn a_stop_does_not_wait_for_a_source_that_hangs_when_it_is_left_and_is_a_clean_one_for_the_others() {
    let Some((place, mut hung, daemon, config)) = warm() else {
        return;
    };
    // What was written is neither settled before the unmount nor made durable after it.
    hung.hang();
    stop_without(&place, hung, daemon, &config);
}

#[test]
fn a_source_whose_disk_hangs_is_stopped_by_force_and_started_again_when_it_answers() {
    let Some((place, mut hung, daemon, _config)) = warm() else {
        return;
    };
    write_to(&hung.dir.join("kept"), KEPT);
    hung.hang_now();
    thread::scope(|scope| {
        let ((tell, told), daemon) = (mpsc::channel(), &daemon);
        let stop = json!({"command": "stop_source", "name": "dir", "force": true});
        scope.spawn(move || tell.send(daemon.tell(&stop)));
        let stopped = told.recv_timeout(PATIENCE);
        let is_plain = fs::metadata(&hung.dir).is_ok_and(|dir| dir.dev() == hung.device);
        hung.answer();
        stopped.expect("it does not wait for the disk").expect("stopped");
        assert!(is_plain);
    });
    let again = json!({"command": "start_source", "source": {"dir": hung.dir, "mode": "write-through"}});
    wait_until(|| daemon.tell(&again).is_ok());
    assert!(!is_hit(&daemon, &hung.dir) && is_hit(&daemon, &hung.dir));
    assert!(is_hit(&daemon, &place.path("bare")));
    daemon.stop();
}

#[test]
fn what_is_settled_after_the_unmount_and_was_changed_by_others_is_not_served_later() {
    let Some((place, mut hung, mut daemon, config)) = warm() else {
        return;
    };
    let kept = hung.dir.join("kept");
    write_to(&kept, KEPT);
    wait_until(|| is_hit(&daemon, &hung.dir));
    hung.hang_now();
    daemon.signal(Signal::SIGTERM);
    wait_until(|| fs::metadata(&hung.dir).is_ok_and(|dir| dir.dev() == hung.device));
    write_to(&kept, b"others");
    // Who settles it has waited for this.
    hung.answer();
    assert_eq!(daemon.wait(), Some(0));
    let daemon = place.start(&config);
    assert_eq!(fs::read(&kept).expect("served"), b"others");
    assert!(is_hit(&daemon, &place.path("bare")));
    daemon.stop();
}

#[test]
fn a_stop_does_not_wait_for_a_request_that_hangs_and_is_a_clean_one_for_the_others() {
    let Some((place, mut hung, daemon, config)) = warm() else {
        return;
    };
    hung.hang_now();
    let dir = hung.dir.clone();
    let asked = thread::spawn(move || {
        fs::create_dir(dir.join("made"))?;
        File::open(&dir)?.sync_all()
    });
    // It does not only wait for the SSD for a moment.
    let mut looks = 0;
    wait_until(|| {
        looks = if daemon.waits_for_a_disk() { looks + 1 } else { 0 };
        looks == 100
    });
    assert!(!asked.is_finished());
    stop_without(&place, hung, daemon, &config);
    // It got its answer from the kernel.
    asked.join().expect("no panic").expect_err("nobody knows");
}
