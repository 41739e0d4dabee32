//! What becomes of the SSD while directories are served: it is detached, attached, given another size, and comes back by itself
//! after it failed.
//!
//! An SSD that was given up (`bathy-cache` says when) is left at once, and tried again after a wait that doubles while it goes
//! wrong again: a stall of a shared device passes, and a cache that it ends for good is a poor one. So is one that is missing.
//! What it holds is void by then, so it begins empty. Its lock is held by what was sent to it and has not ended, so it can be
//! opened again only when nothing late can reach it any more.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use bathy_cache::format::Uuid;
use bathy_cache::{
    AttachError, DetachError, FileStore, FileWitness, OpenError, PAUSE_MAX, ResizeError, inspect, probe,
};
use rustix::fs::{FallocateFlags, fallocate};
use serde_json::{Value, json};

use crate::config::Failure;
use crate::device::{Found, Making};
use crate::engine_cache::{EngineCache, NEW, describe, make_if_blank, own_store};

/// The first try comes after this time.
const WAIT_MIN: Duration = Duration::from_secs(10);
/// And no later one after more. An SSD that was used so long begins with the first wait again.
const WAIT_MAX: Duration = Duration::from_secs(600);
/// Requests are kept waiting so long at most for others that are under way, when nobody has asked for the switch.
const PAUSE_BY_ITSELF: Duration = Duration::from_secs(1);
/// An SSD that needs longer for a write, a flush or a read is not tried further.
const PROBE_MAX: Duration = Duration::from_secs(2);

enum State {
    Used {
        since: Instant,
    },
    /// Nobody tries it until it is attached.
    Detached,
    /// It failed, and is tried again.
    Failed {
        problem: String,
        next_try: Instant,
    },
}

struct Inner {
    state: State,
    path: PathBuf,
    /// How it was found when it was attached last.
    found: Option<String>,
    times_left: u64,
    last_reason: Option<String>,
    wait: Duration,
    /// An SSD that failed could not be left, and is left when this has come.
    leave_after: Option<Instant>,
    /// The stop has begun: nothing is tried any more.
    is_over: bool,
}

/// See the [module](self).
pub(crate) struct Attachment {
    inner: Mutex<Inner>,
    /// Locked by who changes which SSD is used.
    changing: Mutex<()>,
}

fn in_use(what: &str) -> Failure {
    Failure::new(what.to_owned(), "wait a moment and repeat it")
}

impl Attachment {
    fn new(path: PathBuf, state: State, found: Option<String>, reason: Option<String>) -> Self {
        Self {
            inner: Mutex::new(Inner {
                state,
                path,
                found,
                times_left: 0,
                last_reason: reason,
                wait: WAIT_MIN,
                leave_after: None,
                is_over: false,
            }),
            changing: Mutex::new(()),
        }
    }

    pub(crate) fn used(path: PathBuf, found: String) -> Self {
        Self::new(
            path,
            State::Used {
                since: Instant::now(),
            },
            Some(found),
            None,
        )
    }

    pub(crate) fn detached(path: PathBuf) -> Self {
        Self::new(path, State::Detached, None, None)
    }

    pub(crate) fn missing(path: PathBuf, problem: String) -> Self {
        let next_try = Instant::now() + WAIT_MIN;
        let state = State::Failed {
            problem: problem.clone(),
            next_try,
        };
        Self::new(path, state, None, Some(problem))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_used(&self) -> bool {
        matches!(self.lock().state, State::Used { .. })
    }

    /// No SSD is attached from now on. Waits for who does that now.
    pub(crate) fn end(&self) -> MutexGuard<'_, ()> {
        self.lock().is_over = true;
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn report(&self, report: &mut Value) {
        let inner = self.lock();
        let (state, problem, next_try_s) = match &inner.state {
            State::Used { .. } => ("attached", None, None),
            State::Detached => ("detached", None, None),
            State::Failed { problem, next_try } => {
                let left = next_try.saturating_duration_since(Instant::now());
                ("waiting", Some(problem), Some(left.as_secs_f64()))
            }
        };
        report["ssd"] = json!(inner.path.to_string_lossy());
        report["found"] = json!(inner.found);
        report["problem"] = json!(problem);
        report["attachment"] = json!({
            "state": state,
            "times_given_up": inner.times_left,
            "last_reason": inner.last_reason,
            "next_try_s": next_try_s,
        });
    }

    fn set_used(&self, found: &str) {
        let mut inner = self.lock();
        eprintln!("bathyd: {}: attached; {found}", inner.path.display());
        inner.state = State::Used {
            since: Instant::now(),
        };
        inner.found = Some(found.to_owned());
        inner.leave_after = None;
    }

    /// It failed: when it is tried again.
    fn set_failed(&self, problem: String, was_used: bool) {
        let mut inner = self.lock();
        if let State::Used { since } = inner.state {
            if since.elapsed() >= WAIT_MAX {
                inner.wait = WAIT_MIN;
            }
        }
        let wait = inner.wait;
        let what = if was_used {
            "given up"
        } else {
            "cannot be attached"
        };
        eprintln!(
            "bathyd: {}: {what}: {problem}; directories are served without it; next try in {} s",
            inner.path.display(),
            wait.as_secs()
        );
        inner.times_left += u64::from(was_used);
        inner.last_reason = Some(problem.clone());
        inner.wait = (2 * wait).min(WAIT_MAX);
        inner.state = State::Failed {
            problem,
            next_try: Instant::now() + wait,
        };
    }
}

impl EngineCache {
    /// Leaves an SSD that was given up, and tries one that is missing when its time has come. It takes as long as it takes, so
    /// it is done by a thread of its own.
    pub(crate) fn look_after_ssd(self: &Arc<Self>) {
        let inner = self.attachment.lock();
        let is_due = match inner.state {
            State::Used { .. } => {
                let is_due = inner.leave_after.is_none_or(|time| time <= Instant::now());
                is_due && self.live.engine().is_bypassed()
            }
            State::Detached => false,
            State::Failed { next_try, .. } => next_try <= Instant::now(),
        };
        if !is_due || inner.is_over {
            return;
        }
        drop(inner);
        let cache = Arc::clone(self);
        let look = move || {
            let Ok(_alone) = cache.attachment.changing.try_lock() else {
                return;
            };
            if cache.attachment.is_used() {
                cache.leave_failed();
            } else {
                cache.try_again();
            }
        };
        if let Err(error) = thread::Builder::new().name("ssd".to_owned()).spawn(look) {
            eprintln!("bathyd: the SSD is not looked after: {error}");
        }
    }

    fn leave_failed(&self) {
        let reason = self.live.engine().ssd_problem();
        match self.live.detach_ssd(PAUSE_BY_ITSELF) {
            Ok(_) => {
                let reason = reason.unwrap_or_else(|| "it cannot be written".to_owned());
                self.attachment.set_failed(reason, true);
            }
            // Until then requests pass it by, so there is no hurry; and each try keeps requests waiting.
            Err(error) => {
                let mut inner = self.attachment.lock();
                let wait = inner.wait;
                inner.leave_after = Some(Instant::now() + wait);
                inner.wait = (2 * wait).min(WAIT_MAX);
                eprintln!(
                    "bathyd: the SSD is given up and cannot be left yet: {error}; next try in {} s",
                    wait.as_secs()
                );
            }
        }
    }

    fn try_again(&self) {
        let path = {
            let inner = self.attachment.lock();
            if inner.is_over || !matches!(inner.state, State::Failed { .. }) {
                return;
            }
            inner.path.clone()
        };
        match self.take(&path) {
            Ok(found) => self.attachment.set_used(&found),
            Err(problem) => self
                .attachment
                .set_failed(format!("{}: {problem}", path.display()), false),
        }
    }

    /// Attaches the SSD as a start does: how it was found.
    fn take(&self, path: &Path) -> Result<String, String> {
        let failed = |error: &dyn std::fmt::Display| error.to_string();
        let ssd = own_store(path, &self.options).map_err(|error| match path.try_exists() {
            Ok(true) => format!("{error}; it is used by another process, or has not answered yet"),
            _ => error,
        })?;
        let witness = FileWitness::new(self.options.witness.clone());
        let is_new = make_if_blank(&ssd, &witness, self.options.policy)?;
        probe(Arc::clone(&ssd), PROBE_MAX).map_err(|error| failed(&error))?;
        self.make_times_durable().map_err(|error| failed(&error))?;
        let recovery = self.live.attach_ssd(ssd).map_err(|error| failed(&error))?;
        let engine = self.live.engine();
        if engine.is_bypassed() {
            let problem = engine
                .ssd_problem()
                .unwrap_or_else(|| describe(recovery, &engine));
            drop(engine);
            // Else its lock would keep every later try from it.
            if let Err(error) = self.live.detach_ssd(PAUSE_BY_ITSELF) {
                eprintln!("bathyd: {}: cannot be left: {error}", path.display());
            }
            return Err(problem);
        }
        Ok(if is_new {
            NEW.to_owned()
        } else {
            describe(recovery, &engine)
        })
    }

    /// `detach`: directories are served without the SSD until it is attached. Whether what it has can be used again.
    pub(crate) fn detach(&self) -> Result<bool, Failure> {
        let _alone = self.alone()?;
        if self.attachment.is_used() {
            let engine = self.live.engine();
            let is_clean = self
                .live
                .detach_ssd(PAUSE_MAX)
                .map_err(|error| detach_failure(&error))?;
            let mut inner = self.attachment.lock();
            inner.state = State::Detached;
            inner.found = None;
            let path = inner.path.display();
            if is_clean {
                eprintln!("bathyd: {path}: detached");
            } else {
                let reason = engine.ssd_problem();
                let reason = reason.unwrap_or_else(|| "a file below lost writes".to_owned());
                eprintln!("bathyd: {path}: detached, and what it has cannot be used again: {reason}");
                inner.last_reason = Some(reason);
            }
            return Ok(is_clean);
        }
        let mut inner = self.attachment.lock();
        if matches!(inner.state, State::Detached) {
            return Err(Failure::new(
                "the cache has no SSD: it is detached already",
                self.command("attach"),
            ));
        }
        // It failed: it is tried no more.
        inner.state = State::Detached;
        Ok(false)
    }

    /// `attach`: the SSD that was detached, or another one. Its path, and how it was found.
    pub(crate) fn attach(&self, path: Option<&Path>, is_forced: bool) -> Result<(PathBuf, String), Failure> {
        let _alone = self.alone()?;
        if self.attachment.is_used() {
            return Err(Failure::new(
                "the cache has its SSD",
                format!(
                    "to take another one, detach this one first: {}",
                    self.command("detach")
                ),
            ));
        }
        let own = self.attachment.lock().path.clone();
        let path = path.map_or_else(|| own.clone(), Path::to_path_buf);
        if path != own || is_forced {
            self.make_or_know(&path, is_forced)?;
        }
        let found = self.take(&path).map_err(|problem| {
            Failure::new(
                format!("{}: {problem}", path.display()),
                "the directories are served without a cache, as before",
            )
        })?;
        self.attachment.lock().path.clone_from(&path);
        self.attachment.set_used(&found);
        Ok((path, found))
    }

    /// Another path is that of the SSD before under another name, or of one that is empty and becomes a cache.
    fn make_or_know(&self, path: &Path, is_forced: bool) -> Result<(), Failure> {
        let found = Found::open(path)?;
        let (last, _): (Uuid, u64) = self.live.content();
        if found.uuid() == Some(last) && last != Uuid::default() {
            return Ok(());
        }
        let witness = FileWitness::new(self.options.witness.clone());
        found.make(
            path,
            &witness,
            &Making {
                policy: self.options.policy,
                size_bytes: None,
                is_forced,
            },
        )
    }

    /// `resize`: the cache takes so many bytes of its SSD; a file gets that size. The bytes that lines have room for.
    pub(crate) fn resize(&self, size_bytes: u64) -> Result<u64, Failure> {
        let _alone = self.alone()?;
        let path = self.attachment.lock().path.clone();
        if !self.attachment.is_used() {
            return Err(Failure::new(
                "the cache has no SSD",
                format!("attach it first: {}", self.command("attach")),
            ));
        }
        let resized = with_file_of_size(&path, size_bytes, || {
            self.live
                .resize(size_bytes)
                .map_err(|error| resize_failure(&path, &error))
        });
        if self.live.has_ssd() {
            return resized;
        }
        let failure = resized.err().unwrap_or_else(|| in_use("the SSD was left"));
        self.attachment.set_failed(failure.message.clone(), true);
        Err(failure)
    }

    /// A command of `bathy` for this cache.
    fn command(&self, verb: &str) -> String {
        let name = self.options.name.as_deref().unwrap_or("NAME");
        format!("bathy cache {verb} {name}")
    }

    fn alone(&self) -> Result<MutexGuard<'_, ()>, Failure> {
        let alone = self.attachment.changing.try_lock();
        let alone = alone.map_err(|_| in_use("the SSD is being attached or left at the moment"))?;
        if self.attachment.lock().is_over {
            return Err(Failure::new("bathyd is stopping", "start it again"));
        }
        Ok(alone)
    }
}

fn detach_failure(error: &DetachError) -> Failure {
    let hint = match error {
        DetachError::Busy => "a directory below does not answer: look at its disk, and repeat it",
        DetachError::Io(_) => "see the log of bathyd",
    };
    Failure::new(error.to_string(), hint)
}

fn resize_failure(path: &Path, error: &AttachError) -> Failure {
    match error {
        AttachError::Detach(error) => detach_failure(error),
        AttachError::Resize(error) => size_failure(path, error),
        _ => Failure::new(
            format!("{}: {error}", path.display()),
            "bathy cache status says what becomes of the SSD",
        ),
    }
}

/// Why a cache did not get another size.
pub(crate) fn size_failure(path: &Path, error: &ResizeError) -> Failure {
    let hint = match error {
        ResizeError::Beyond { .. } => "name a size that the device has",
        ResizeError::DoesNotFit(_) => {
            "a cache needs at least 4 MiB; one that grew often is made anew: bathy cache create --force"
        }
        ResizeError::Unclean => "start the cache and stop it, or resize it while it runs",
        ResizeError::Open(OpenError::Superblock(_)) => "name a cache; bathyd inspect says what it holds",
        ResizeError::Open(_) => "the SSD must be readable and writable",
    };
    Failure::new(format!("{}: {error}", path.display()), hint)
}

/// Does something for which a cache in a file needs another size of the file. A larger file has its space before, as a full
/// file system must not meet the cache; a smaller one loses its end after.
pub(crate) fn with_file_of_size<T>(
    path: &Path,
    size_bytes: u64,
    resize: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let failed = |error: &dyn std::fmt::Display| {
        Failure::new(format!("{}: {error}", path.display()), "choose another --size")
    };
    let metadata = std::fs::metadata(path).map_err(|error| failed(&error))?;
    if !metadata.is_file() {
        return resize();
    }
    let file = File::options()
        .write(true)
        .open(path)
        .map_err(|error| failed(&error))?;
    let grown = (size_bytes > metadata.len()).then(|| {
        let added = size_bytes - metadata.len();
        fallocate(file.as_fd(), FallocateFlags::empty(), metadata.len(), added).map_err(io::Error::from)
    });
    if let Some(Err(error)) = grown {
        let _what_was_added = file.set_len(metadata.len());
        return Err(failed(&error));
    }
    let result = resize();
    let end = match &result {
        Ok(_) => size_bytes,
        // It may have its new size all the same, if it could not be opened again.
        Err(_) if end_of_cache(path).is_some_and(|end| end <= metadata.len()) => metadata.len(),
        Err(_) => return result,
    };
    // What is beyond belongs to no cache; if it stays it is but room.
    let _cut = file.set_len(end);
    result
}

/// Where the cache in a file ends, if there is one.
fn end_of_cache(path: &Path) -> Option<u64> {
    let store = FileStore::open_unlocked(path).ok()?;
    let found = inspect(Arc::new(store)).ok()?;
    Some(found.geometry.layout().end())
}
