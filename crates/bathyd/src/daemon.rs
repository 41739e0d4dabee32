//! From the configuration to mounts, and back.

use std::io;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use bathy_fuse::{StopSignals, Wakeup, bind_socket};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::config::Config;
use crate::device;
use crate::devices_command::run_devices;
use crate::failure::Failure;
use crate::panics::{caught, note_uncaught};
use crate::service::Service;
use crate::state_files::lock_state;
use crate::status;
use crate::systemd::notify;

/// A power cut costs the lines of regions that were written since the round before the last.
const TIDY_PERIOD: Duration = Duration::from_secs(5);

/// Carry out the program with its arguments, without its name, and return the exit code: 0 done, 2 error.
pub fn main(arguments: &[String]) -> u8 {
    let result = match arguments {
        [path]
            if !path.starts_with('-')
                && !["create", "devices", "inspect", "resize"].contains(&path.as_str()) =>
        {
            run(Path::new(path))
        }
        [command, rest @ ..] if command == "create" => device::run_create(rest),
        [command, rest @ ..] if command == "resize" => device::run_resize(rest),
        [command, path, dir] if command == "devices" => run_devices(Path::new(path), Path::new(dir)),
        [command, path] if command == "inspect" => device::run_inspect(Path::new(path)),
        _ => Err(Failure::new(
            "bathyd needs the path of its configuration, and nothing else",
            "bathyd CONFIG.json; or bathyd create CONFIG.json, bathyd resize CONFIG.json --size BYTES, bathyd devices CONFIG.json DIR, bathyd inspect DEVICE",
        )),
    };
    match result {
        Ok(()) => 0,
        Err(failure) => {
            eprintln!("bathyd: {}\nhint: {}", failure.message, failure.hint);
            2
        }
    }
}

fn run(path: &Path) -> Result<(), Failure> {
    let config = Config::load(path)?;
    if !rustix::process::geteuid().is_root() {
        return Err(Failure::new(
            "bathyd must run as root",
            "it acts for all users of a directory; start it with systemd or sudo",
        ));
    }
    let system = |what: &str, error: io::Error| {
        Failure::new(format!("{what}: {error}"), "the system refuses what bathyd needs")
    };
    // Those of who starts bathyd must not decide what is done for others: see `credentials`.
    rustix::thread::set_thread_groups(&[]).map_err(|error| system("groups", error.into()))?;
    let signals = StopSignals::block().map_err(|error| system("signals", error))?;
    note_uncaught();
    raise_file_limit();
    let _lock = lock_state(&config.state)?;
    let socket = config.socket.clone();
    let listener = bind_socket(&socket).map_err(|error| {
        let message = format!("{}: {error}", socket.display());
        Failure::new(
            message,
            "name a path in a directory that exists, for this cache alone",
        )
    })?;
    let service = Service::begin(config).inspect_err(|_| drop(std::fs::remove_file(&socket)))?;
    // From here on directories are mounted: without a thread that it needs it stops as by a signal.
    let begun = begin_threads(&service, listener, signals, socket.clone());
    if begun.is_ok() {
        notify("READY=1");
        eprintln!("bathyd: serving {} directories", service.served());
    }
    let (wakeups, refused) = begun.map_or_else(
        |error| (mpsc::channel().1, Err(system("threads", error))),
        |wakeups| (wakeups, Ok(())),
    );
    wait(&wakeups, &service);
    notify("STOPPING=1");
    let ended = service.end();
    drop(std::fs::remove_file(&socket));
    refused.and(ended)
}

/// Begins to answer questions, to tidy and to hear signals, which it returns.
fn begin_threads(
    service: &Arc<Service>,
    listener: UnixListener,
    signals: StopSignals,
    socket: PathBuf,
) -> io::Result<Receiver<io::Result<Wakeup>>> {
    let asked = Arc::clone(service);
    let answer = move |question: &serde_json::Value| asked.answer(question);
    status::start(listener, Arc::new(answer))?;
    let tidied = Arc::clone(service);
    let tidy = move || loop {
        thread::sleep(TIDY_PERIOD);
        let _logged = caught(|| tidied.tidy());
    };
    thread::Builder::new().name("tidy".to_owned()).spawn(tidy)?;
    receive(signals, socket)
}

/// Receives signals in a thread of its own, so that a second one to stop ends the process whatever the others wait for. It
/// ends then as if it was killed, which costs the cache some lines.
fn receive(signals: StopSignals, socket: PathBuf) -> io::Result<Receiver<io::Result<Wakeup>>> {
    let (tell, wakeups) = mpsc::channel();
    let forward = move || {
        let mut is_told = false;
        loop {
            let wakeup = signals.wait();
            let is_stop = matches!(wakeup, Ok(Wakeup::Stop));
            if is_told && is_stop {
                drop(std::fs::remove_file(&socket));
                std::process::exit(0);
            }
            is_told |= is_stop;
            if tell.send(wakeup).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(forward)?;
    Ok(wakeups)
}

/// Waits until all mounts have ended: by a signal, or because somebody unmounts. Where no signal can be heard any more, as the thread
/// that waits for them is gone, they are unmounted at once: nobody could stop it later but by a kill.
pub(crate) fn wait(wakeups: &Receiver<io::Result<Wakeup>>, service: &Arc<Service>) {
    let (mut soon, mut is_deaf) = (0_u32, false);
    // What panics is tried again.
    while !caught(|| service.reap()).unwrap_or(false) {
        let period = Duration::from_millis(if soon > 0 { 10 } else { 1000 });
        soon = soon.saturating_sub(1);
        let heard = if is_deaf {
            thread::sleep(period);
            Err(RecvTimeoutError::Timeout)
        } else {
            wakeups.recv_timeout(period)
        };
        match heard {
            // The signal comes right before the end, and one may stand for several.
            Ok(Ok(Wakeup::MountEnded)) => soon = 100,
            Err(RecvTimeoutError::Timeout) => {}
            Ok(Ok(Wakeup::Stop)) => {
                let _logged = caught(|| service.unmount_all());
            }
            Ok(Err(_)) | Err(RecvTimeoutError::Disconnected) => {
                eprintln!("bathyd: no signal is heard any more: it stops");
                is_deaf = true;
                let _logged = caught(|| service.unmount_all());
            }
        }
    }
}

/// Open files take descriptors: as many as the system allows this process, which is the unit's to say.
fn raise_file_limit() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _refused = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}
