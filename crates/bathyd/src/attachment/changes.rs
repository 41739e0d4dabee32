//! The SSD is left, tried again, attached, and given another size.

use std::path::{Path, PathBuf};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use bathy_cache::format::Uuid;
use bathy_cache::{AttachError, DetachError, GenerationFile, PAUSE_MAX, probe};

use super::{State, WAIT_MAX};
use crate::apart::apart;
use crate::cache_size::{size_failure, with_file_of_size};
use crate::device::{Found, Making};
use crate::engine_cache::{EngineCache, describe, own_store, why_not_opened};
use crate::failure::Failure;
use crate::panics::{caught, perhaps};

/// Requests are kept waiting so long at most for others that are under way, when nobody has asked for the switch.
const PAUSE_BY_ITSELF: Duration = Duration::from_secs(1);
/// An SSD that needs longer for a write, a flush or a read is not tried further.
const PROBE_MAX: Duration = Duration::from_secs(2);

fn in_use(what: &str) -> Failure {
    Failure::new(what.to_owned(), "wait a moment and repeat it")
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
            let Some(_alone) = cache.attachment.try_change() else {
                return;
            };
            if cache.attachment.is_used() {
                cache.leave_failed();
            } else {
                cache.try_again();
            }
        };
        if let Err(error) = apart("ssd", look) {
            eprintln!("bathyd: the SSD is not looked after: {error}");
        }
    }

    fn leave_failed(&self) {
        let reason = self.live.engine().ssd_problem();
        let left = caught(|| self.live.detach_ssd(PAUSE_BY_ITSELF));
        match left.unwrap_or(Err(DetachError::Panicked)) {
            // However it was.
            _ if !self.live.has_ssd() => {
                let reason = reason.unwrap_or_else(|| "it cannot be written".to_owned());
                self.attachment.set_failed(reason, true);
            }
            // Until then requests pass it by, so there is no hurry; and each try keeps requests waiting.
            left => {
                let mut inner = self.attachment.lock();
                let wait = inner.wait;
                inner.leave_after = Some(Instant::now() + wait);
                inner.wait = (2 * wait).min(WAIT_MAX);
                let error = left.err().map_or_else(String::new, |error| self.shown(&error));
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
        let taken = caught(|| self.take(&path));
        match taken.unwrap_or_else(|| Err("what was to attach it panicked".to_owned())) {
            Ok(found) => self.attachment.set_used(&found),
            Err(problem) => self
                .attachment
                .set_failed(format!("{}: {problem}", path.display()), false),
        }
    }

    /// Attaches the SSD as a start does: how it was found.
    fn take(&self, path: &Path) -> Result<String, String> {
        let failed = |error: &dyn std::fmt::Display| error.to_string();
        perhaps("take", &self.options.generations);
        let ssd = own_store(path, &self.options)?;
        probe(Arc::clone(&ssd), PROBE_MAX).map_err(|error| why_not_opened(&error, &self.options))?;
        self.make_times_durable().map_err(|error| failed(&error))?;
        let attached = self.live.attach_ssd(ssd);
        let recovery = attached.map_err(|error| match error {
            AttachError::Detach(error) => self.shown(&error),
            error => failed(&error),
        })?;
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
        Ok(describe(recovery, &engine))
    }

    /// `detach`: directories are served without the SSD until it is attached. Whether what it has can be used again.
    pub(crate) fn detach(&self) -> Result<bool, Failure> {
        let _alone = self.alone()?;
        if self.attachment.is_used() {
            let engine = self.live.engine();
            let left = self.live.detach_ssd(PAUSE_MAX);
            if let Some(error) = left.as_ref().err().filter(|_| self.live.has_ssd()) {
                return Err(self.detach_failure(error));
            }
            let is_clean = *left.as_ref().unwrap_or(&false);
            let mut inner = self.attachment.lock();
            inner.state = State::Detached;
            inner.found = None;
            let path = inner.path.display();
            if is_clean {
                eprintln!("bathyd: {path}: detached");
            } else {
                let failed = left.err().map(|error| self.shown(&error));
                let reason = failed.or_else(|| engine.ssd_problem());
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

    /// The path of the SSD.
    pub(crate) fn ssd_path(&self) -> PathBuf {
        self.attachment.lock().path.clone()
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
        let own = self.ssd_path();
        let path = path.map_or_else(|| own.clone(), Path::to_path_buf);
        let found = Found::open(&path)?;
        // What its own SSD holds, if it is not empty, is said by who opens it.
        if path != own || is_forced || found.is_blank() {
            self.make_or_know(found, &path, is_forced)?;
        } else {
            drop(found);
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
    fn make_or_know(&self, found: Found, path: &Path, is_forced: bool) -> Result<(), Failure> {
        let (last, _): (Uuid, u64) = self.live.content();
        if found.uuid() == Some(last) && last != Uuid::default() {
            return Ok(());
        }
        let generations = GenerationFile::new(self.options.generations.clone());
        found.make(
            path,
            &generations,
            &Making {
                policy: self.options.policy,
                line: self.options.line,
                size_bytes: None,
                memory: self.options.engine.memory,
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
                .map_err(|error| self.resize_failure(&path, &error))
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
        let alone = self.attachment.try_change();
        let alone = alone.ok_or_else(|| in_use("the SSD is being attached or left at the moment"))?;
        if self.attachment.lock().is_over {
            return Err(Failure::new("bathyd is stopping", "start it again"));
        }
        Ok(alone)
    }

    /// With the sources whose disks do not answer.
    pub(crate) fn shown(&self, error: &DetachError) -> String {
        match error {
            DetachError::Busy(sources) => format!("{error}: {} does not answer", self.disks_of(sources)),
            _ => error.to_string(),
        }
    }

    fn detach_failure(&self, error: &DetachError) -> Failure {
        let hint = match error {
            DetachError::Busy(_) => "look at that disk, and repeat it when it answers",
            DetachError::Io(_) => "see the log of bathyd",
            DetachError::Panicked => "the log of bathyd says where: report it",
        };
        Failure::new(self.shown(error), hint)
    }

    fn resize_failure(&self, path: &Path, error: &AttachError) -> Failure {
        match error {
            AttachError::Detach(error) => self.detach_failure(error),
            AttachError::Resize(error) => size_failure(path, error),
            _ => Failure::new(
                format!("{}: {error}", path.display()),
                "bathy cache status says what becomes of the SSD",
            ),
        }
    }
}
