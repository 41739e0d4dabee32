//! Mounting, serving until told to stop, and unmounting.

use std::fs::{self, File};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fuser::{Config, Filesystem, MountOption, Session, SessionACL};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{getegid, geteuid};

use crate::front_end::FrontEnd;
use crate::mount_options::{MountError, MountOptions};
use crate::mount_point::{self, Attached, Claim, Unattached, claim};
use crate::ring::{self, DataPath};
use crate::service::FileService;

/// A ring that has answered nothing after this time is not used. The file system below may be busy.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);
/// So long its threads are waited for then.
const END_PATIENCE: Duration = Duration::from_secs(1);

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
    attached: Attached,
    thread: JoinHandle<io::Result<()>>,
}

/// Mount `filesystem` on a claimed directory and serve it. The kernel checks permissions by the attributes that it is given.
///
/// # Errors
/// Returns an error if the kernel refuses or there cannot be another thread. Nothing is mounted then.
pub fn mount<F: Filesystem>(
    filesystem: F,
    claim: &Claim,
    options: &MountOptions,
    flags: &[MountOption],
) -> Result<Mounted, MountError> {
    let config = session_config(options, flags);
    mount_with(claim, options, &config, |unattached| {
        let device = unattached.device()?;
        // The session knows no mount, so it unmounts none.
        let session = Session::from_fd(filesystem, device.into(), config.acl, config.clone())?;
        Ok(move || session.run())
    })
}

/// As [`mount`], over `io_uring` (see [`crate::DataPath`]), for root.
///
/// # Errors
/// Returns an error if the kernel does not offer it, refuses, or answers no request over it, and if there cannot be another
/// thread. Nothing is mounted then.
pub fn mount_over_ring<F: Filesystem + Clone>(
    filesystem: &F,
    data: &Arc<dyn DataPath>,
    claim: &Claim,
    options: &MountOptions,
    flags: &[MountOption],
) -> Result<Mounted, MountError> {
    let config = session_config(options, flags);
    mount_with(claim, options, &config, |unattached| {
        let (device, abort) = (unattached.device()?, unattached.abort()?);
        let run = ring::begin(filesystem, data, device, abort.clone(), &config)?;
        // What the kernel says of a ring that it does not take comes too late to be waited for.
        if let Err(error) = unattached.probe(ANSWER_PATIENCE) {
            abort.now();
            // What has failed says more than that nothing was answered. A thread may wait for the file system below.
            let (say, ended) = mpsc::sync_channel(1);
            // If there can be no thread, what it would run is dropped, and ends.
            thread::Builder::new().spawn(move || say.send(run()))?;
            let ended = ended.recv_timeout(END_PATIENCE).unwrap_or(Ok(()));
            return Err(ended.err().unwrap_or(error));
        }
        Ok(run)
    })
}

/// Mounts what `begin` makes ready to be served. A directory is mounted over when requests are answered and not before: a
/// program that is killed in its start leaves the directory as it was.
fn mount_with<R: FnOnce() -> io::Result<()> + Send + 'static>(
    claim: &Claim,
    options: &MountOptions,
    config: &Config,
    begin: impl FnOnce(&Unattached) -> io::Result<R>,
) -> Result<Mounted, MountError> {
    let start = || {
        let unattached = Unattached::new(claim, &config.mount_options)?;
        let run = begin(&unattached)?;
        let (attach, attached) = mpsc::sync_channel(1);
        let thread = serve_when_attached(options, attached, run)?;
        let (attached, connection) = unattached.attach(claim)?;
        let _listens = attach.send((attached.clone(), connection));
        Ok(Mounted { attached, thread })
    };
    start().map_err(MountError::Io)
}

fn session_config(options: &MountOptions, flags: &[MountOption]) -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(options.program.to_owned()),
        MountOption::Subtype(options.program.to_owned()),
        MountOption::DefaultPermissions,
    ];
    config.mount_options.extend_from_slice(flags);
    // OSDs run as another user than the program that serves their disks.
    config.acl = SessionACL::All;
    config.n_threads = Some(options.threads.max(1));
    config.clone_fd = options.threads > 1;
    config
}

/// A thread that serves until the end what is attached. It is there before: a mount without one would be dead.
fn serve_when_attached(
    options: &MountOptions,
    attached: mpsc::Receiver<(Attached, Arc<File>)>,
    run: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> io::Result<JoinHandle<io::Result<()>>> {
    let (real_time, program) = (options.real_time, options.program);
    thread::Builder::new()
        .name("fuse-session".to_owned())
        .spawn(move || {
            let Ok((attached, connection)) = attached.recv() else {
                return Ok(());
            };
            // The session's threads inherit it.
            let _allowed = real_time && prefer_real_time();
            let panicked = |_| Err(io::Error::other("a session thread panicked"));
            let ended = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(panicked);
            if ended.is_err() {
                // Others of its threads may go on, while nobody counts on them any more.
                attached.abort();
            }
            // Unless it was unmounted, the end was a failure or an abort: the mount is dead now.
            drop(connection);
            let _plain = mount_point::detach_dead(attached.place(), program);
            let _unsent = nix::sys::signal::kill(nix::unistd::getpid(), Signal::SIGUSR1);
            ended
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
    /// Returns the error of the system call, or one that says that another file system is mounted on this one.
    pub fn unmount(&self) -> io::Result<bool> {
        let is_unused = self.unmount_unused()?;
        if !is_unused {
            self.attached.detach()?;
        }
        Ok(is_unused)
    }

    /// Unmount if no file is open. Returns whether that is so; else nothing happens.
    ///
    /// # Errors
    /// As of [`Self::unmount`].
    pub fn unmount_unused(&self) -> io::Result<bool> {
        self.attached.unmount_unused()
    }

    /// Whether it is mounted nowhere in this mount namespace and requests may come all the same: from users of the detached
    /// mount, or of a copy in another mount namespace, such as that of a container that was started meanwhile.
    pub fn is_left(&self) -> bool {
        !self.has_ended() && self.attached.is_left()
    }

    /// Whether the connection to the kernel has ended: no request comes any more, and what came before may be under way.
    pub fn is_cut_off(&self) -> bool {
        !self.attached.is_connected()
    }

    /// End the connection to the kernel: all requests fail, wherever it is mounted. Only root can.
    pub fn abort(&self) {
        self.attached.abort();
    }

    /// Wait for the end, at most for `patience`: whether it came. A detached mount with open files does not end, nor one of which a
    /// request is under way.
    ///
    /// # Errors
    /// Returns the error that ended the session.
    pub fn join_for(self, patience: Duration) -> io::Result<bool> {
        const STEP: Duration = Duration::from_millis(5);
        let mut waited = Duration::ZERO;
        while !self.has_ended() {
            if waited >= patience {
                return Ok(false);
            }
            thread::sleep(STEP);
            waited += STEP;
        }
        self.thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("a session thread panicked")))
            .map(|()| true)
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
    // Links on the way are those of who starts the program.
    let directory = fs::canonicalize(&options.directory).unwrap_or_else(|_| options.directory.clone());
    let claim = claim(&MountOptions {
        directory,
        ..options.clone()
    })?;
    let front_end = FrontEnd::new(service, geteuid().as_raw(), getegid().as_raw());
    let mounted = mount(front_end, &claim, options, &[MountOption::NoAtime])?;
    ready();
    if signals.wait().map_err(MountError::Io)? == Wakeup::Stop {
        mounted.unmount().map_err(MountError::Io)?;
    }
    let ended = mounted.join_for(Duration::from_secs(2));
    stopped();
    ended.map(drop).map_err(MountError::Io)
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
