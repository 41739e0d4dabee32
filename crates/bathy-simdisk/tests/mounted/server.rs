//! A running bathy-simdisk with its own directory, unmounted and removed at the end.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::fcntl::OFlag;
use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use serde_json::{Value, json};

static COUNT: AtomicU32 = AtomicU32::new(0);

/// Whether disks can be mounted here.
pub(crate) fn can_mount() -> bool {
    let can = geteuid().is_root()
        && OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/fuse")
            .is_ok();
    if !can {
        eprintln!("SKIPPED: mounting needs root and /dev/fuse");
    }
    can
}

pub(crate) struct Server {
    directory: PathBuf,
    disks: Vec<String>,
    child: Child,
}

impl Server {
    /// Serve disks; `{dir}` in a specification is the server's own directory.
    pub(crate) fn start(disks: &[&str]) -> Self {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("bathy-simdisk-{}-{number}", std::process::id()));
        fs::create_dir_all(directory.join("mnt")).unwrap();
        let place = directory.display().to_string();
        let disks = disks.iter().map(|disk| disk.replace("{dir}", &place)).collect();
        let child = Self::launch(&directory, &disks);
        let mut server = Self {
            directory,
            disks,
            child,
        };
        server.wait_until_ready();
        server
    }

    fn launch(directory: &Path, disks: &Vec<String>) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bathy-simdisk"));
        command
            .arg("--mount")
            .arg(directory.join("mnt"))
            .arg("--control")
            .arg(directory.join("control"));
        for disk in disks {
            command.arg("--disk").arg(disk);
        }
        command
            .arg("--die-with-parent")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    fn wait_until_ready(&mut self) {
        let mut line = String::new();
        BufReader::new(self.child.stderr.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert!(line.contains("serving"), "{line}");
    }

    pub(crate) fn path(&self, disk: &str) -> PathBuf {
        self.directory.join("mnt").join(disk)
    }

    pub(crate) fn mount_point(&self) -> PathBuf {
        self.directory.join("mnt")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.join("control")
    }

    /// Open a disk for direct I/O.
    pub(crate) fn open(&self, disk: &str) -> File {
        OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(OFlag::O_DIRECT.bits())
            .open(self.path(disk))
            .unwrap()
    }

    /// Send a line to the control socket and return the answer.
    pub(crate) fn raw(&self, line: &[u8]) -> Value {
        let mut stream = UnixStream::connect(self.socket()).unwrap();
        stream.write_all(line).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        serde_json::from_str(answer.lines().next().unwrap_or("null")).unwrap()
    }

    pub(crate) fn command(&self, command: &Value) -> Value {
        let answer = self.raw(format!("{command}\n").as_bytes());
        assert_eq!(answer["ok"], json!(true), "{command} gives {answer}");
        answer
    }

    pub(crate) fn fault(&self, text: &str) -> u64 {
        self.command(&json!({"op": "fault", "disk": "disk", "add": text}))["id"]
            .as_u64()
            .unwrap()
    }

    pub(crate) fn clear(&self) {
        self.command(&json!({"op": "fault", "clear": "all"}));
    }

    /// The counters of the first disk.
    pub(crate) fn stats(&self) -> Value {
        self.command(&json!({"op": "stats"}))["disks"][0].clone()
    }

    pub(crate) fn signal(&mut self, signal: Signal) -> ExitStatus {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
        self.child.wait().unwrap()
    }

    /// Start the program again in the same place.
    pub(crate) fn start_again(&mut self) {
        self.child = Self::launch(&self.directory, &self.disks);
        self.wait_until_ready();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.signal(Signal::SIGTERM);
        }
        let _not_mounted = umount2(&self.mount_point(), MntFlags::MNT_DETACH);
        fs::remove_dir_all(&self.directory).unwrap();
    }
}

/// Bytes at an address that direct I/O takes.
pub(crate) struct Aligned {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl Aligned {
    pub(crate) fn new(length: usize, value: u8) -> Self {
        let bytes = vec![value; length + 4096];
        let start = bytes.as_ptr().align_offset(4096);
        Self { bytes, start, length }
    }

    pub(crate) fn get(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.length]
    }

    fn get_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }
}

pub(crate) fn write(file: &File, offset: u64, length: usize, value: u8) -> std::io::Result<()> {
    file.write_all_at(Aligned::new(length, value).get(), offset)
}

pub(crate) fn read(file: &File, offset: u64, length: usize) -> std::io::Result<Vec<u8>> {
    let mut buffer = Aligned::new(length, 0xee);
    file.read_exact_at(buffer.get_mut(), offset)?;
    Ok(buffer.get().to_vec())
}
