//! A `bathyd` in a directory of its own.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// Says why a test cannot run here, or nothing.
pub(crate) fn is_skipped() -> bool {
    let missing = if !nix::unistd::geteuid().is_root() {
        "root"
    } else if File::options().read(true).write(true).open("/dev/fuse").is_err() {
        "/dev/fuse"
    } else {
        return false;
    };
    eprintln!("SKIPPED: this test needs {missing}");
    true
}

/// The number of operations of a model test.
pub(crate) fn operations(default: u64) -> u64 {
    let asked = std::env::var("BATHY_TORTURE_OPS").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// A directory for a test, with the parts of a daemon.
pub(crate) struct Place {
    path: PathBuf,
}

impl Place {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("bathyd-test-{}-{number}", std::process::id()));
        for part in ["", "dir", "bare", "state"] {
            fs::create_dir_all(path.join(part)).expect("a directory for the test");
        }
        Self { path }
    }

    pub(crate) fn path(&self, part: &str) -> PathBuf {
        self.path.join(part)
    }

    /// The directory that is served.
    pub(crate) fn dir(&self) -> PathBuf {
        self.path("dir")
    }

    /// A configuration of the directory in a mode, as a value to be changed.
    pub(crate) fn config(&self, mode: &str) -> Value {
        json!({
            "socket": self.path("socket"),
            "state": self.path("state"),
            "cache": {"ssd": self.path("ssd")},
            "sources": [{"dir": self.dir(), "mode": mode}],
        })
    }

    fn command(&self, config: &Value) -> Command {
        let path = self.path("config.json");
        fs::write(&path, config.to_string()).expect("a configuration");
        let mut command = Command::new(env!("CARGO_BIN_EXE_bathyd"));
        command.arg(path).stdin(Stdio::null());
        command
    }

    /// A daemon that ends at once.
    pub(crate) fn refused(&self, config: &Value) -> Output {
        self.command(config).output().expect("the program runs")
    }

    /// A daemon that serves.
    pub(crate) fn start(&self, config: &Value) -> Daemon {
        let child = self
            .command(config)
            .stderr(File::create(self.path("log")).expect("a log"))
            .spawn()
            .expect("the program starts");
        let mut daemon = Daemon {
            child,
            socket: self.path("socket"),
            dir: self.dir(),
        };
        // A dead mount and a socket of a daemon that was killed are there already.
        while !self.log().contains("bathyd: serving") {
            let ended = daemon.child.try_wait().expect("a child");
            assert!(ended.is_none(), "bathyd ended: {}", self.log());
            thread::sleep(Duration::from_millis(10));
        }
        daemon
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        while is_mounted(&self.dir()) && umount2(&self.dir(), MntFlags::MNT_DETACH).is_ok() {}
        if !is_mounted(&self.dir()) {
            let _left = fs::remove_dir_all(&self.path);
        }
    }
}

pub(crate) fn is_mounted(dir: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    mounts.lines().any(|line| line.split(' ').nth(4) == dir.to_str())
}

/// A daemon that serves a directory.
pub(crate) struct Daemon {
    child: Child,
    socket: PathBuf,
    dir: PathBuf,
}

impl Daemon {
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).expect("a pid"));
        kill(pid, signal).expect("the daemon lives");
    }

    pub(crate) fn wait(&mut self) -> Option<i32> {
        self.child.wait().expect("a child").code()
    }

    /// Stops it as systemd does.
    pub(crate) fn stop(mut self) {
        self.signal(Signal::SIGTERM);
        assert_eq!(self.wait(), Some(0));
        assert!(!is_mounted(&self.dir));
    }

    /// Kills it. The mount is dead, and stays.
    pub(crate) fn kill(mut self) {
        self.signal(Signal::SIGKILL);
        self.wait();
        assert!(is_mounted(&self.dir));
    }

    /// The answer to the query `status` for the only source, with that for the cache.
    pub(crate) fn status(&self) -> Value {
        let answer = self.ask("status");
        let mut source = answer["sources"][0].clone();
        source["cache"] = answer["cache"].clone();
        source
    }

    /// The answer to a query.
    pub(crate) fn ask(&self, query: &str) -> Value {
        let mut stream = UnixStream::connect(&self.socket).expect("a socket");
        let question = format!("{}\n", json!({"query": query}));
        stream.write_all(question.as_bytes()).expect("asked");
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).expect("answered");
        let answer: Value = serde_json::from_str(&line).expect("JSON");
        answer["answer"].clone()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _waited = self.child.wait();
    }
}

/// Numbers that are the same each time.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Vec<u8> {
        let (start, step) = (self.below(256) as u8, self.below(127) as u8 * 2 + 1);
        (0..length)
            .map(|index| start.wrapping_add((index as u8).wrapping_mul(step)))
            .collect()
    }
}
