//! What is known of sources: of those that are served, and of others.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bathy_fuse::Mounted;
use serde_json::{Value, json};

use crate::config::{self, Mode, not_understood};
use crate::counts::FrontCounts;
use crate::devices::Devices;
use crate::engine_cache::Source;
use crate::failure::Failure;
use crate::panics::{Containment, perhaps};
use crate::paths::Paths;

/// A mount without users ends in this time.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is known of a source while it is served.
#[derive(Clone)]
pub(super) struct SourceInfo {
    pub(super) source: config::Source,
    /// `None` in a source that began in pass-through mode: none of its files is known to the cache.
    pub(super) cached: Option<Arc<Source>>,
    pub(super) counts: Arc<FrontCounts>,
    pub(super) devices: Arc<Devices>,
    /// What of it is encrypted, so that the SSD must be.
    pub(super) secret: Option<String>,
    pub(super) paths: Arc<Paths>,
    pub(super) in_use: Arc<dyn Fn() -> Value + Send + Sync>,
    pub(super) containment: Arc<Containment>,
    pub(super) transport: &'static str,
    pub(super) is_served: bool,
}

impl SourceInfo {
    /// In all mount namespaces.
    pub(super) fn open_files(&self) -> u64 {
        (self.in_use)()["open_files"].as_u64().unwrap_or(0)
    }

    /// What is wrong with it while it is served, and what to do.
    pub(super) fn problem(&self) -> Option<(String, String)> {
        if self.containment.has_panicked() {
            let name = self.source.name();
            return Some((
                "what was done for it panicked, which is an error of bathyd: it is served without the cache since"
                    .to_owned(),
                format!(
                    "report what the log of bathyd says of it; with an empty cache again: bathy cache source stop {name}, then bathy cache source start {name}"
                ),
            ));
        }
        let problem = self.devices.problem()?;
        Some((problem, self.devices.hint()))
    }

    /// Whether its files get stamps: not while it is mounted nowhere, or may be. This waits for no switch of the SSD.
    pub(super) fn set_stamped(&self, is_stamped: bool) {
        if let Some((cache, uuid)) = self.cached.as_ref().map(|cached| cached.in_cache()) {
            cache.engine().set_stamped(uuid, is_stamped);
        }
    }

    /// What is at rest becomes durable and gets its stamps, which takes as long as the file system below does.
    pub(super) fn settle(&self) {
        if let Some((cache, uuid)) = self.cached.as_ref().map(|cached| cached.in_cache()) {
            let _distrusted = self.containment.contain(|| {
                perhaps("settle", &self.source.dir);
                cache.with_engine(|engine| engine.settle_source(uuid));
                Ok(())
            });
        }
    }
}

/// A directory that is served.
pub(super) struct ServedDirectory {
    pub(super) info: Arc<SourceInfo>,
    pub(super) mounted: Mounted,
    /// When it was first seen that no request comes any more.
    pub(super) cut_off: OnceLock<Instant>,
    /// Held for as long as the directory is served.
    pub(super) _locks: Vec<File>,
}

impl ServedDirectory {
    pub(super) fn dir(&self) -> std::path::Display<'_> {
        self.info.source.dir.display()
    }

    /// Ends what is mounted nowhere here any more, if nobody has a file of it open wherever it is left. Returns whether
    /// nobody uses it.
    pub(super) fn end_unless_used(&self) -> bool {
        if !self.mounted.is_left() {
            return true;
        }
        let is_unused = self.info.open_files() == 0;
        if is_unused {
            self.mounted.abort();
        }
        is_unused
    }

    /// Since when no request comes any more. What came before may be under way, as its disk does not answer.
    pub(super) fn cut_off_since(&self) -> Option<Instant> {
        let is_cut_off = self.mounted.is_cut_off();
        is_cut_off.then(|| *self.cut_off.get_or_init(Instant::now))
    }

    /// Waits until it is over, at most for some seconds: whether it is. Else requests are under way.
    pub(super) fn end(self) -> bool {
        let dir = self.info.source.dir.clone();
        self.mounted.join_for(PATIENCE).unwrap_or_else(|error| {
            eprintln!("bathyd: {}: {error}", dir.display());
            true
        })
    }
}

/// A source that could not be served, and why.
#[derive(Clone)]
pub(super) struct Unserved {
    pub(super) name: String,
    pub(super) dir: PathBuf,
    /// `None` of one that is not understood.
    pub(super) mode: Option<Mode>,
    pub(super) size_bytes: Option<u64>,
    pub(super) failure: Failure,
}

impl Unserved {
    pub(super) fn new(source: &config::Source, failure: Failure) -> Self {
        Self {
            name: source.name(),
            dir: source.dir.clone(),
            mode: Some(source.mode),
            size_bytes: source.size_bytes,
            failure,
        }
    }

    pub(super) fn unread(entry: &config::Unread, config: &Path) -> Self {
        Self {
            name: entry.name.clone(),
            dir: entry.dir.clone(),
            mode: None,
            size_bytes: None,
            failure: not_understood(format!("{}: {}", config.display(), entry.problem)),
        }
    }

    pub(super) fn log(&self) {
        let Failure { message, hint } = &self.failure;
        eprintln!("bathyd: NOT SERVED: {message}\nhint: {hint}");
    }

    pub(super) fn report(&self) -> Value {
        json!({
            "name": self.name,
            "dir": self.dir.to_string_lossy(),
            "mode": self.mode.map(Mode::name),
            "size_bytes": self.size_bytes,
            "is_served": false,
            "problem": self.failure.message,
            "hint": self.failure.hint,
        })
    }
}

/// A source that is served no more.
pub(super) struct Leaving {
    pub(super) info: Arc<SourceInfo>,
    pub(super) since: Instant,
}

impl Leaving {
    pub(super) fn new(info: &Arc<SourceInfo>) -> Self {
        Self {
            info: Arc::clone(info),
            since: Instant::now(),
        }
    }
}
