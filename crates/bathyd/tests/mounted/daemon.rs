//! A `bathyd` in a directory of its own.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
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

/// How the kernel is asked for requests: `BATHYD_TRANSPORT`, or through `/dev/fuse`.
fn transport() -> String {
    std::env::var("BATHYD_TRANSPORT").unwrap_or("dev".to_owned())
}

/// The number of operations of a model test.
pub(crate) fn operations(default: u64) -> u64 {
    asked("BATHY_TORTURE_OPS", default)
}

/// The number in an environment variable that makes a test longer.
pub(crate) fn asked(variable: &str, default: u64) -> u64 {
    let asked = std::env::var(variable).ok();
    asked.map_or(default, |text| text.parse().expect("a number"))
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

    /// The SSD of its configurations, with so many bytes that say nothing.
    pub(crate) fn ssd(&self, bytes: u64) -> File {
        let ssd = File::create(self.path("ssd")).expect("an SSD");
        ssd.set_len(bytes).expect("a size");
        ssd
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
            // What is counted must not depend on how quick the disk is; see also `adaptive`.
            "cache": {"ssd": self.path("ssd"), "fetch": 4096},
            "sources": [{"dir": self.dir(), "mode": mode}],
            "transport": transport(),
        })
    }

    /// [`Place::config`] with the default fetch size, which depends on what reads of the source cost.
    pub(crate) fn adaptive(&self, mode: &str) -> Value {
        let mut config = self.config(mode);
        config["cache"]["fetch"] = "adaptive".into();
        config
    }

    fn command(&self, config: &Value) -> Command {
        self.written(config);
        self.command_as_written()
    }

    fn command_as_written(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bathyd"));
        command.arg(self.path("config.json")).stdin(Stdio::null());
        command
    }

    /// A daemon that ends at once.
    pub(crate) fn refused(&self, config: &Value) -> Output {
        self.command(config).output().expect("the program runs")
    }

    /// The program with other arguments than a configuration: what it says on stdout, or on stderr with the exit code 2.
    pub(crate) fn run(arguments: &[&str]) -> Result<Value, String> {
        let output = Command::new(env!("CARGO_BIN_EXE_bathyd"))
            .args(arguments)
            .output();
        let output = output.expect("the program runs");
        if output.status.success() {
            return Ok(serde_json::from_slice(&output.stdout).expect("JSON"));
        }
        assert_eq!(output.status.code(), Some(2));
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// A configuration, in a file.
    pub(crate) fn written(&self, config: &Value) -> String {
        let path = self.path("config.json");
        fs::write(&path, config.to_string()).expect("a configuration");
        path.to_string_lossy().into_owned()
    }

    /// A daemon that may not serve yet. An SSD that holds nothing is made a cache before, as an operator does it.
    pub(crate) fn spawn(&self, config: &Value) -> Daemon {
        if config["cache"]["ssd"]
            .as_str()
            .is_some_and(|ssd| is_blank(Path::new(ssd)))
        {
            // What keeps it from being made is for the daemon to say.
            let _made = Self::run(&["create", &self.written(config)]);
        }
        self.spawn_as_it_is(config)
    }

    /// [`Place::spawn`] with the SSD as it is.
    pub(crate) fn spawn_as_it_is(&self, config: &Value) -> Daemon {
        self.written(config);
        self.spawn_written()
    }

    /// A daemon of the configuration that was written last.
    fn spawn_written(&self) -> Daemon {
        self.spawned(self.command_as_written())
    }

    /// The same in a mount namespace of its own: nobody else sees its mounts, but through [`Daemon::root`].
    pub(crate) fn spawn_apart(&self) -> Daemon {
        let mut command = Command::new("unshare");
        command.args(["--mount", env!("CARGO_BIN_EXE_bathyd")]);
        command.arg(self.path("config.json")).stdin(Stdio::null());
        self.spawned(command)
    }

    fn spawned(&self, mut command: Command) -> Daemon {
        let child = command
            .stderr(File::create(self.path("log")).expect("a log"))
            .spawn()
            .expect("the program starts");
        Daemon {
            child,
            socket: self.path("socket"),
            dir: self.dir(),
        }
    }

    /// A daemon that serves.
    pub(crate) fn start(&self, config: &Value) -> Daemon {
        self.serving(self.spawn(config))
    }

    /// A daemon that serves and may have so many descriptors.
    pub(crate) fn start_with_descriptors(&self, config: &Value, count: u64) -> Daemon {
        let mut command = Command::new("sh");
        command
            .args(["-c", &format!("ulimit -n {count} && exec \"$0\" \"$1\"")])
            .arg(env!("CARGO_BIN_EXE_bathyd"))
            .arg(self.written(config))
            .stdin(Stdio::null());
        self.serving(self.spawned(command))
    }

    /// A daemon that serves and was started by a member of another group.
    pub(crate) fn start_in_group(&self, config: &Value, group: u32) -> Daemon {
        let mut command = Command::new("setpriv");
        command
            .args(["--groups", &group.to_string(), env!("CARGO_BIN_EXE_bathyd")])
            .arg(self.written(config))
            .stdin(Stdio::null());
        self.serving(self.spawned(command))
    }

    /// Waits until a daemon serves.
    pub(crate) fn serving(&self, mut daemon: Daemon) -> Daemon {
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

/// Whether an SSD holds nothing that would keep it from being made a cache.
fn is_blank(ssd: &Path) -> bool {
    let mut head = Vec::new();
    let read = File::open(ssd).and_then(|file| file.take(1 << 20).read_to_end(&mut head));
    read.is_ok() && !head.is_empty() && head.iter().all(|&byte| byte == 0)
}

/// Whether a daemon serves the directory, or was killed while it did.
pub(crate) fn is_mounted(dir: &Path) -> bool {
    mounts_on(dir).iter().any(|kind| kind == "fuse.bathyd")
}

/// The types of the file systems that are mounted on a directory, the lowest one first.
pub(crate) fn mounts_on(dir: &Path) -> Vec<String> {
    // Not every path is text.
    let mounts = fs::read("/proc/self/mountinfo").expect("mounts");
    let mounts = String::from_utf8_lossy(&mounts);
    let on_it = mounts
        .lines()
        .filter(|line| line.split(' ').nth(4) == dir.to_str());
    let kinds = on_it.map(|line| line.split_once(" - ").expect("a mount").1);
    kinds
        .map(|kind| kind.split(' ').next().expect("a type").to_owned())
        .collect()
}

/// A daemon that serves a directory.
pub(crate) struct Daemon {
    child: Child,
    socket: PathBuf,
    dir: PathBuf,
}

impl Daemon {
    /// The root directory of its mount namespace.
    pub(crate) fn root(&self) -> PathBuf {
        format!("/proc/{}/root", self.child.id()).into()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).expect("a pid"));
        kill(pid, signal).expect("the daemon lives");
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_some()
    }

    /// Whether one of its threads waits in the kernel as for a disk.
    pub(crate) fn waits_for_a_disk(&self) -> bool {
        let threads = fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("the daemon lives");
        let states = threads.map(|thread| fs::read_to_string(thread.expect("a thread").path().join("stat")));
        let is_waiting = |stat: String| stat.rsplit(") ").next().is_some_and(|it| it.starts_with('D'));
        states.flatten().any(is_waiting)
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
    pub(crate) fn kill(self) {
        let dir = self.dir.clone();
        self.end();
        assert!(is_mounted(&dir));
    }

    /// Kills it wherever it is in its start.
    pub(crate) fn end(mut self) {
        self.signal(Signal::SIGKILL);
        self.wait();
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
        self.tell(&json!({"query": query})).expect("it is known")
    }

    /// The answer to a question or command, or the error with its hint.
    pub(crate) fn tell(&self, question: &Value) -> Result<Value, String> {
        let answer = exchange(&self.socket, question);
        if answer["ok"] == true {
            return Ok(answer["answer"].clone());
        }
        Err(format!("{}\nhint: {}", answer["error"], answer["hint"]))
    }
}

/// What a socket answers to a line of JSON.
pub(crate) fn exchange(socket: &Path, question: &Value) -> Value {
    let mut stream = UnixStream::connect(socket).expect("a socket");
    stream
        .write_all(format!("{question}\n").as_bytes())
        .expect("asked");
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).expect("answered");
    serde_json::from_str(&line).expect("JSON")
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _waited = self.child.wait();
    }
}

/// A loop device over a file, for as long as it exists.
pub(crate) struct Loop(pub(crate) String, PathBuf);

impl Loop {
    pub(crate) fn new(file: &Path) -> Option<Self> {
        let made = Command::new("losetup")
            .args(["--find", "--show"])
            .arg(file)
            .output()
            .ok()?;
        let name = String::from_utf8(made.stdout).ok()?.trim().to_owned();
        let device = (made.status.success() && !name.is_empty()).then(|| Self(name, file.to_owned()));
        if device.is_none() {
            eprintln!("SKIPPED: this test needs a loop device");
        }
        device
    }
}

impl Drop for Loop {
    /// Detach it, if the test has it still: one that a test detached can be that of another program by now.
    fn drop(&mut self) {
        let name = self.0.trim_start_matches("/dev/");
        let file = fs::read_to_string(format!("/sys/block/{name}/loop/backing_file"));
        if file.is_ok_and(|it| Path::new(it.trim_end()).parent() == self.1.parent()) {
            let _detached = Command::new("losetup").args(["--detach", &self.0]).status();
        }
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
