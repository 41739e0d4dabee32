//! From the configuration to mounts, and back.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bathy_cache::{FileWitness, Options, void};
use bathy_fuse::{MountOption, MountOptions, Mounted, StopSignals, Wakeup, bind_socket, claim, mount};
use nix::fcntl::{FcntlArg, Flock, FlockArg, fcntl};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rustix::fs::{Mode as FileMode, OFlags, StatVfsMountFlags, fstatvfs, openat};
use serde_json::{Value, json};

use crate::cache::{FileCache, NoCache};
use crate::config::{self, AfterUnclean, Config, Failure, Mode};
use crate::directory::Directory;
use crate::engine_cache::{EngineCache, EngineCacheOptions, Source};
use crate::session::Session;
use crate::status;

const PROGRAM: &str = "bathyd";
/// In the state directory: the generation of the content of the SSD.
const GENERATION_FILE: &str = "generation";
/// A power cut costs the lines of regions that were written since the round before the last.
const TIDY_PERIOD: Duration = Duration::from_secs(5);
/// Files of an OSD that it locks while it runs, on which whoever serves its directory has a lock as well.
const LOCKED_NAMES: [&str; 4] = ["fsid", "block", "block.db", "block.wal"];
const FILES_MAX: u64 = 1 << 20;

/// A directory that is served.
struct Served {
    dir: String,
    mode: &'static str,
    cache: Arc<dyn FileCache>,
    in_use: Arc<dyn Fn() -> Value + Send + Sync>,
    mounted: Mounted,
    /// Held for as long as the directory is served.
    _locks: Vec<File>,
}

/// Carry out the program with its arguments, without its name, and return the exit code: 0 done, 2 error.
pub fn main(arguments: &[String]) -> u8 {
    let result = match arguments {
        [path] if !path.starts_with('-') => run(Path::new(path)),
        _ => Err(Failure::new(
            "bathyd needs the path of its configuration, and nothing else",
            "bathyd /etc/bathyscope/NAME.json",
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
    let signals = StopSignals::block().map_err(|error| system("signals", error))?;
    raise_file_limit();
    let _lock = lock_state(&config.state)?;
    let listener = bind_socket(&config.socket).map_err(|error| {
        let message = format!("{}: {error}", config.socket.display());
        Failure::new(
            message,
            "name a path in a directory that exists, for this cache alone",
        )
    })?;
    let cannot_note = |error| system("the state directory", error);
    let witness = config.state.join(GENERATION_FILE);
    let claimed = claim_all(&config)?;
    let mut session = Session::begin(&config.state).map_err(cannot_note)?;
    for source in config.sources.iter().filter(|it| it.mode == Mode::PassThrough) {
        session.forget_source(&source.dir).map_err(cannot_note)?;
    }
    let mode = config.sources.iter().find_map(|source| source.mode.write_mode());
    let cache = if let Some(write_mode) = mode {
        let is_strict = config.cache.after_unclean == AfterUnclean::Cold;
        let was_fenced = claimed
            .iter()
            .all(|one| one.had_dead_mount || one.source.mode == Mode::PassThrough);
        let options = EngineCacheOptions {
            ssd: config.cache.ssd.clone(),
            witness,
            was_clean: session.was_clean(),
            has_device_stamps: is_strict,
            engine: Options {
                write_mode,
                was_fenced: was_fenced || !is_strict,
                ..Options::default()
            },
        };
        Some(Arc::new(EngineCache::open(options).map_err(cannot_note)?))
    } else {
        void(&FileWitness::new(witness)).map_err(cannot_note)?;
        None
    };
    let mut served = Vec::new();
    for one in claimed {
        match serve(one, cache.as_ref(), &mut session) {
            Ok(one) => served.push(one),
            Err(failure) => {
                for one in served {
                    drop(one.mounted.unmount());
                }
                if cache.is_none_or(|cache| cache.stop()) {
                    session.end().map_err(cannot_note)?;
                }
                drop(std::fs::remove_file(&config.socket));
                return Err(failure);
            }
        }
    }
    let began = Instant::now();
    let reports: Vec<_> = served
        .iter()
        .map(|one| {
            (
                one.dir.clone(),
                one.mode,
                Arc::clone(&one.cache),
                Arc::clone(&one.in_use),
            )
        })
        .collect();
    let reported = cache.clone();
    let report = move |query: &str| -> Option<Value> {
        let of_each = |ask: &dyn Fn(&dyn FileCache) -> Value| -> Value {
            let sources = reports.iter().map(|(dir, mode, cache, in_use)| {
                let mut of_one = json!({"dir": dir, "mode": mode, "in_use": in_use()});
                of_one[query] = ask(&**cache);
                of_one
            });
            sources.collect()
        };
        match query {
            "status" => Some(json!({
                "uptime_s": began.elapsed().as_secs_f64(),
                "cache": reported.as_ref().map(|cache| cache.status()),
                "sources": of_each(&|cache| cache.status()),
            })),
            "files" => Some(json!({"sources": of_each(&|cache| cache.busiest_files())})),
            _ => None,
        }
    };
    status::start(listener, Arc::new(report)).map_err(|error| system("status socket", error))?;
    if let Some(cache) = cache.clone() {
        let tidy = move || loop {
            thread::sleep(TIDY_PERIOD);
            cache.tidy();
        };
        thread::Builder::new()
            .name("tidy".to_owned())
            .spawn(tidy)
            .map_err(|error| system("threads", error))?;
    }
    notify("READY=1");
    eprintln!("bathyd: serving {} directories", served.len());
    let is_clean = wait(&signals, &served, cache.as_deref()).map_err(|error| system("signals", error))?;
    notify("STOPPING=1");
    if is_clean {
        for one in served {
            // Its threads are done, or it was never mounted again.
            if let Err(error) = one.mounted.join_for(Duration::from_secs(2)) {
                eprintln!("bathyd: {}: {error}", one.dir);
            }
        }
        if cache.is_none_or(|cache| cache.stop()) {
            session.end().map_err(cannot_note)?;
        } else {
            eprintln!("bathyd: the cache was not stopped cleanly");
        }
    }
    drop(std::fs::remove_file(&config.socket));
    Ok(())
}

/// Wait until all mounts have ended: by a signal, or because somebody unmounts. Returns whether that is so; if files stay open
/// and another signal comes, it is not, and the process ends as if it was killed, which costs the cache some lines.
fn wait(signals: &StopSignals, served: &[Served], cache: Option<&EngineCache>) -> io::Result<bool> {
    let mut is_stopping = false;
    loop {
        if served.iter().all(|one| one.mounted.has_ended()) {
            return Ok(true);
        }
        match signals.wait()? {
            // The signal comes right before the end, and one may stand for several.
            Wakeup::MountEnded => {
                for _ in 0..100 {
                    if served.iter().all(|one| one.mounted.has_ended()) {
                        break;
                    }
                    thread::sleep(Duration::from_millis(10));
                }
            }
            Wakeup::Stop if is_stopping => return Ok(false),
            Wakeup::Stop => {
                is_stopping = true;
                for one in served.iter().filter(|one| !one.mounted.has_ended()) {
                    if !one.mounted.unmount()? {
                        eprintln!(
                            "bathyd: {}: files are open; they are served until they are closed, or until a second signal",
                            one.dir
                        );
                        // New users find the directory itself.
                        cache.map_or(Ok(()), EngineCache::leave)?;
                    }
                }
            }
        }
    }
}

/// A directory that nothing is mounted on.
struct Claimed<'a> {
    source: &'a config::Source,
    options: MountOptions,
    /// The mount of a killed session was there until now, so nobody has used the directory by its path since.
    had_dead_mount: bool,
}

fn claim_all<'a>(config: &'a Config) -> Result<Vec<Claimed<'a>>, Failure> {
    let claim_one = |source: &'a config::Source| {
        let dir = &source.dir;
        let options = MountOptions {
            directory: dir.clone(),
            program: PROGRAM,
            threads: config.threads,
            real_time: false,
        };
        let had_dead_mount = claim(&options).map_err(|error| {
            Failure::new(
                format!("{}: {error}", dir.display()),
                "a source is a directory that nothing is mounted on; unmount it, or name another",
            )
        })?;
        Ok(Claimed {
            source,
            options,
            had_dead_mount,
        })
    };
    config.sources.iter().map(claim_one).collect()
}

fn serve(
    claimed: Claimed<'_>,
    cache: Option<&Arc<EngineCache>>,
    session: &mut Session,
) -> Result<Served, Failure> {
    let Claimed { source, options, .. } = claimed;
    let dir = source.dir.display().to_string();
    let failed = |error: &dyn std::fmt::Display, hint: &str| Failure::new(format!("{dir}: {error}"), hint);
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(&source.dir, flags, FileMode::empty());
    let root = root.map_err(|error| failed(&error, "the directory must be readable"))?;
    let locks = lock_below(&root).map_err(|(name, error)| {
        failed(
            &format!("{name} is in use by another process ({error})"),
            "stop the OSD first",
        )
    })?;
    let flags = mount_flags(&root).map_err(|error| failed(&error, "the directory must be readable"))?;
    let cache: Arc<dyn FileCache> = match cache.filter(|_| source.mode != Mode::PassThrough) {
        Some(cache) => {
            let uuid = session.source(&source.dir);
            let uuid = uuid.map_err(|error| failed(&error, "the state directory must be writable"))?;
            let source = Source::new(Arc::clone(cache), uuid, &root);
            Arc::new(source.map_err(|error| failed(&error, "the directory must be readable"))?)
        }
        None => Arc::new(NoCache),
    };
    let directory = Directory::new(root, source.dir.clone(), Arc::clone(&cache));
    let directory = directory.map_err(|error| failed(&error, "the directory must be readable"))?;
    let in_use = Arc::new(directory.status());
    let mounted = mount(directory, &options, &flags);
    let mounted = mounted.map_err(|error| failed(&error, "FUSE must be available: modprobe fuse"))?;
    Ok(Served {
        mode: source.mode.name(),
        dir,
        cache,
        in_use,
        mounted,
        _locks: locks,
    })
}

/// What holds for mounts of the file system below holds for the one over it.
fn mount_flags(root: &OwnedFd) -> rustix::io::Result<Vec<MountOption>> {
    let below = fstatvfs(root)?.f_flag;
    let choose = |flag, yes: MountOption, no: MountOption| if below.contains(flag) { yes } else { no };
    Ok(vec![
        choose(StatVfsMountFlags::NODEV, MountOption::NoDev, MountOption::Dev),
        choose(StatVfsMountFlags::NOSUID, MountOption::NoSuid, MountOption::Suid),
        choose(StatVfsMountFlags::NOEXEC, MountOption::NoExec, MountOption::Exec),
        choose(StatVfsMountFlags::RDONLY, MountOption::RO, MountOption::RW),
    ])
}

/// Locks what an OSD locks while it runs: none runs below, and none is started past the mount.
fn lock_below(root: &OwnedFd) -> Result<Vec<File>, (&'static str, io::Error)> {
    let mut locks = Vec::new();
    for name in LOCKED_NAMES {
        let opened = openat(root, name, OFlags::RDWR | OFlags::CLOEXEC, FileMode::empty());
        // What is not there, or no file, is locked by nobody.
        let Ok(file) = opened.map(File::from) else {
            continue;
        };
        let lock = libc::flock {
            l_type: libc::F_WRLCK as i16,
            l_whence: libc::SEEK_SET as i16,
            l_start: 0,
            l_len: 0,
            l_pid: 0,
        };
        match fcntl(&file, FcntlArg::F_OFD_SETLK(&lock)) {
            Err(error @ (nix::errno::Errno::EAGAIN | nix::errno::Errno::EACCES)) => {
                return Err((name, error.into()));
            }
            // A file system without locks cannot be asked.
            _ => locks.push(file),
        }
    }
    Ok(locks)
}

fn lock_state(state: &Path) -> Result<Flock<File>, Failure> {
    let path = state.join("lock");
    let shown = path.display().to_string();
    let hint = "'state' is a directory that exists, for one bathyd alone";
    let file = File::create(&path).map_err(|error| Failure::new(format!("{shown}: {error}"), hint))?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock)
        .map_err(|(_, error)| Failure::new(format!("{shown}: another bathyd uses it ({error})"), hint))
}

/// Each inode that the kernel knows takes a descriptor.
fn raise_file_limit() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let wanted = FILES_MAX.max(hard);
        if setrlimit(Resource::RLIMIT_NOFILE, wanted, wanted).is_err() {
            let _refused = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
        }
    }
}

/// Tells systemd, if it asked to be told (`sd_notify(3)`).
fn notify(state: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let sent = UnixDatagram::unbound().and_then(|socket| {
        use std::os::linux::net::SocketAddrExt;
        use std::os::unix::ffi::OsStrExt;
        let address = match path.as_bytes().strip_prefix(b"@") {
            Some(name) => std::os::unix::net::SocketAddr::from_abstract_name(name)?,
            None => std::os::unix::net::SocketAddr::from_pathname(&path)?,
        };
        socket.send_to_addr(state.as_bytes(), &address)
    });
    if let Err(error) = sent {
        eprintln!("bathyd: systemd cannot be told: {error}");
    }
}
