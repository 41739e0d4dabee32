//! Mounting, serving until told to stop, and unmounting; also what a killed predecessor left behind.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use fuser::{Config, Filesystem, MountOption, Session, SessionACL};
use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::statvfs::statvfs;
use nix::unistd::{getegid, geteuid};

use crate::front_end::FrontEnd;
use crate::service::FileService;

/// How a mount is made.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// The directory, as an absolute path.
    pub directory: PathBuf,
    /// The program's name: the mount's type is `fuse.<program>`, by which a mount left behind is recognised.
    pub program: &'static str,
    /// Threads that take requests from the kernel.
    pub threads: usize,
    /// Whether these threads go before others ([`prefer_real_time`]), if the system allows it.
    pub real_time: bool,
}

/// Why files cannot be served.
#[derive(Debug)]
pub enum MountError {
    /// The mount point is not an absolute path of a directory, or something else is mounted there.
    MountPoint(String),
    /// The kernel refused, or the connection to it broke.
    Io(io::Error),
}

impl std::fmt::Display for MountError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::MountPoint(problem) => f.write_str(problem),
            Self::Io(error) => write!(f, "FUSE: {error}"),
        }
    }
}

impl std::error::Error for MountError {}

/// The signals that end a program that serves mounts, blocked in this thread and in all threads started after it.
#[derive(Debug)]
pub struct StopSignals(SigSet);

/// Why a program that serves mounts should look what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wakeup {
    /// SIGTERM or SIGINT.
    Stop,
    /// A mount ended, for example because somebody unmounted it.
    MountEnded,
}

impl StopSignals {
    /// Block SIGTERM and SIGINT, to be waited for. Call it before any thread is started.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn block() -> io::Result<Self> {
        let mut signals = SigSet::empty();
        signals.add(Signal::SIGTERM);
        signals.add(Signal::SIGINT);
        // SIGUSR1 tells the waiting thread that a mount ended by itself.
        signals.add(Signal::SIGUSR1);
        signals.thread_block()?;
        Ok(Self(signals))
    }

    /// Wait for the next signal.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn wait(&self) -> io::Result<Wakeup> {
        Ok(match self.0.wait()? {
            Signal::SIGUSR1 => Wakeup::MountEnded,
            _ => Wakeup::Stop,
        })
    }
}

/// A file system that is mounted and served by threads of its own.
#[derive(Debug)]
pub struct Mounted {
    directory: PathBuf,
    thread: thread::JoinHandle<io::Result<()>>,
}

/// Make sure that `options.directory` is a directory that nothing is mounted on, and detach what a killed process of the
/// same program left there. Returns whether there was such a mount: nobody has used the directory by its path since.
///
/// # Errors
/// Returns an error if it is not a directory, or another mount is there.
pub fn claim(options: &MountOptions) -> Result<bool, MountError> {
    detach_stale(&options.directory, options.program)
}

/// Mount `filesystem` on a claimed directory and serve it. The kernel checks permissions by the attributes that it is given.
///
/// # Errors
/// Returns an error if the kernel refuses or there cannot be another thread.
pub fn mount<F: Filesystem>(
    filesystem: F,
    options: &MountOptions,
    flags: &[MountOption],
) -> Result<Mounted, MountError> {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(options.program.to_owned()),
        MountOption::CUSTOM(format!("subtype={}", options.program)),
        MountOption::DefaultPermissions,
    ];
    config.mount_options.extend_from_slice(flags);
    // OSDs run as another user than the program that serves their disks.
    config.acl = SessionACL::All;
    config.n_threads = Some(options.threads.max(1));
    config.clone_fd = options.threads > 1;
    let session = Session::new(filesystem, &options.directory, &config).map_err(MountError::Io)?;
    let real_time = options.real_time;
    let thread = thread::Builder::new()
        .name("fuse-session".to_owned())
        .spawn(move || {
            // The session's threads inherit it.
            let _allowed = real_time && prefer_real_time();
            let ended = session.run();
            let _unsent = nix::sys::signal::kill(nix::unistd::getpid(), Signal::SIGUSR1);
            ended
        })
        .map_err(MountError::Io)?;
    Ok(Mounted {
        directory: options.directory.clone(),
        thread,
    })
}

impl Mounted {
    /// Whether no request will come any more.
    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Unmount. If files are open the mount is detached, so that at least no new user can come; requests for the open ones
    /// go on to be answered. Returns whether none was open.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn unmount(&self) -> io::Result<bool> {
        match umount2(&self.directory, MntFlags::empty()) {
            Ok(()) | Err(nix::errno::Errno::EINVAL) => Ok(true),
            Err(nix::errno::Errno::EBUSY) => {
                umount2(&self.directory, MntFlags::MNT_DETACH)?;
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Wait for the end, at most for `patience`; a detached mount with open files does not end.
    ///
    /// # Errors
    /// Returns the error that ended the session.
    pub fn join_for(self, patience: Duration) -> io::Result<()> {
        const STEP: Duration = Duration::from_millis(5);
        let mut waited = Duration::ZERO;
        while !self.has_ended() {
            if waited >= patience {
                return Ok(());
            }
            thread::sleep(STEP);
            waited += STEP;
        }
        self.thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("a session thread panicked")))
    }
}

/// Mount the files of `service` and serve them until SIGTERM or SIGINT arrives or somebody unmounts.
///
/// `ready` is called once requests can be answered. `stopped` is called when the mount is gone and no request is taken
/// any more. If a file is still open after a signal, the mount is detached and the process has to exit to end the
/// connection; `serve` returns then, too.
///
/// # Errors
/// Returns an error if the directory cannot be mounted on or the connection to the kernel fails.
pub fn serve<S: FileService>(
    service: Arc<S>,
    options: &MountOptions,
    signals: &StopSignals,
    ready: impl FnOnce(),
    stopped: impl FnOnce(),
) -> Result<(), MountError> {
    claim(options)?;
    let front_end = FrontEnd::new(service, geteuid().as_raw(), getegid().as_raw());
    let mounted = mount(front_end, options, &[MountOption::NoAtime])?;
    ready();
    if signals.wait().map_err(MountError::Io)? == Wakeup::Stop {
        mounted.unmount().map_err(MountError::Io)?;
    }
    let ended = mounted.join_for(Duration::from_secs(2));
    stopped();
    ended.map_err(MountError::Io)
}

/// Give this thread, and those that it starts from now on, the lowest real-time priority: it runs as soon as there is
/// something to do, on busy machines too. For threads that stand for hardware and work in short pieces. Returns whether
/// the system allows it (`CAP_SYS_NICE`).
#[must_use]
pub fn prefer_real_time() -> bool {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: the pointer is to a valid structure that the call only reads; 0 is the calling thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_RR, &raw const parameters) == 0 }
}

/// Remove a mount of `program` on `directory` whose process is gone; refuse any other mount.
fn detach_stale(directory: &Path, program: &str) -> Result<bool, MountError> {
    let shown = directory.display();
    if !directory.is_absolute() {
        return Err(MountError::MountPoint(format!(
            "the mount point must be an absolute path (got {shown})"
        )));
    }
    // The directory itself may be dead; the ones above it are not.
    let canonical = match (directory.parent().map(fs::canonicalize), directory.file_name()) {
        (Some(Ok(parent)), Some(name)) => parent.join(name),
        _ => directory.to_owned(),
    };
    let mounts = fs::read_to_string("/proc/self/mountinfo").map_err(MountError::Io)?;
    let own_type = format!("fuse.{program}");
    let mut has_detached = false;
    for (point, kind) in mounts.lines().filter_map(mount_of_line) {
        if Path::new(&point) != canonical {
            continue;
        }
        // Only our own kind is asked: a file system that hangs would hang this process, too. Attributes could come from the
        // kernel's cache for a while; the size of a file system never does.
        let dead = kind == own_type && statvfs(directory) == Err(nix::errno::Errno::ENOTCONN);
        if !dead {
            return Err(MountError::MountPoint(format!(
                "{shown} is already a mount point (type {kind})"
            )));
        }
        umount2(directory, MntFlags::MNT_DETACH).map_err(|error| MountError::Io(error.into()))?;
        has_detached = true;
    }
    match fs::metadata(directory) {
        Ok(metadata) if metadata.is_dir() => Ok(has_detached),
        Ok(_) => Err(MountError::MountPoint(format!("{shown} is not a directory"))),
        Err(error) => Err(MountError::MountPoint(format!("{shown}: {error}"))),
    }
}

/// Mount point and file system type of a line of `/proc/self/mountinfo` (proc(5)).
fn mount_of_line(line: &str) -> Option<(String, &str)> {
    let (before, after) = line.split_once(" - ")?;
    Some((unescape(before.split(' ').nth(4)?), after.split(' ').next()?))
}

/// Undo the octal escapes of space, tab, newline and backslash.
fn unescape(text: &str) -> String {
    let mut rest = text;
    let mut plain = String::with_capacity(text.len());
    while let Some(at) = rest.find('\\') {
        plain.push_str(&rest[..at]);
        let code = rest
            .get(at + 1..at + 4)
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        if let Some(code) = code {
            plain.push(char::from(code));
            rest = &rest[at + 4..];
        } else {
            plain.push('\\');
            rest = &rest[at + 1..];
        }
    }
    plain.push_str(rest);
    plain
}

#[cfg(test)]
mod tests {
    use super::mount_of_line;

    #[test]
    fn mount_points_with_spaces_are_read() {
        let line = r"98 29 0:53 / /mnt/a\040b\134c rw,nosuid shared:3 - fuse.bathy-simdisk bathy-simdisk rw,user_id=0";
        assert_eq!(
            mount_of_line(line),
            Some((r"/mnt/a b\c".to_owned(), "fuse.bathy-simdisk"))
        );
        assert_eq!(mount_of_line("nonsense"), None);
    }
}
