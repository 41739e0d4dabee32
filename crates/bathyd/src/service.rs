//! The sources that are served, and what is asked and told of them while they are.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use bathy_cache::{Engine, FileWitness, Options, void};
use bathy_fuse::{
    Claim, DataPath, MountError, MountOption, MountOptions, Mounted, claim, is_ring_offered, mount,
    mount_over_ring,
};
use nix::fcntl::{FcntlArg, fcntl};
use rustix::fs::{Mode as FileMode, OFlags, StatVfsMountFlags, fstatvfs, openat, readlinkat};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::cache::{FileCache, NoCache};
use crate::config::{self, AfterUnclean, Config, Failure, Mode, Transport};
use crate::counts::FrontCounts;
use crate::directory::Directory;
use crate::engine_cache::{EngineCache, EngineCacheOptions, Source};
use crate::paths::Paths;
use crate::reports;
use crate::session::Session;

const PROGRAM: &str = "bathyd";
/// In the state directory: the generation of the content of the SSD.
const GENERATION_FILE: &str = "generation";
/// Files of an OSD that it locks while it runs, on which whoever serves its directory has a lock as well.
const LOCKED_NAMES: [&str; 4] = ["fsid", "block", "block.db", "block.wal"];
/// Files of a source in an answer, if no other number is asked for.
const FILES_SHOWN: usize = 100;
/// A question for ranges looks at each line of these, a million at most.
const RANGES_BYTES_MAX: u64 = 64 << 30;
/// A mount without users ends in this time.
const PATIENCE: Duration = Duration::from_secs(5);
/// So long a file may count as open that was closed.
const CLOSING_MAX: Duration = Duration::from_millis(200);
/// A stop waits so long for files to become durable before it unmounts; what is not by then is dropped from the cache.
const SETTLING_MAX: Duration = Duration::from_secs(30);

/// What is known of a source while it is served.
#[derive(Clone)]
struct About {
    source: config::Source,
    /// `None` in a source that began in pass-through mode: none of its files is known to the cache.
    cached: Option<Arc<Source>>,
    counts: Arc<FrontCounts>,
    paths: Arc<Paths>,
    in_use: Arc<dyn Fn() -> Value + Send + Sync>,
    transport: &'static str,
    is_served: bool,
}

impl About {
    /// In all mount namespaces.
    fn open_files(&self) -> u64 {
        (self.in_use)()["open_files"].as_u64().unwrap_or(0)
    }

    /// What is at rest becomes durable and gets its stamps, which takes as long as the file system below does.
    fn settle(&self) {
        if let Some((cache, uuid)) = self.cached.as_ref().map(|cached| cached.in_cache()) {
            cache.with_engine(|engine| engine.settle_source(uuid));
        }
    }
}

/// Waits until no file is open, for a moment: one that was just closed counts until the kernel says so.
fn wait_for_closes(sources: &[Arc<About>]) {
    let until = Instant::now() + CLOSING_MAX;
    while sources.iter().any(|one| one.open_files() > 0) && Instant::now() < until {
        thread::sleep(Duration::from_millis(5));
    }
}

/// A directory that is served.
struct Served {
    about: Arc<About>,
    mounted: Mounted,
    /// Held for as long as the directory is served.
    _locks: Vec<File>,
}

impl Served {
    fn dir(&self) -> std::path::Display<'_> {
        self.about.source.dir.display()
    }

    /// Ends what is mounted nowhere here any more, if nobody has a file of it open wherever it is left. Returns whether
    /// nobody uses it.
    fn end_unless_used(&self) -> bool {
        if !self.mounted.is_left() {
            return true;
        }
        let is_unused = self.about.open_files() == 0;
        if is_unused {
            self.mounted.abort();
        }
        is_unused
    }

    /// Waits until it is over, at most for some seconds.
    fn end(self) {
        let dir = self.about.source.dir.clone();
        if let Err(error) = self.mounted.join_for(PATIENCE) {
            eprintln!("bathyd: {}: {error}", dir.display());
        }
    }
}

/// What there is at one moment.
struct Now {
    cache: Option<Arc<EngineCache>>,
    /// Those that are served, and those that are left but for open files.
    sources: Vec<Arc<About>>,
    unserved: Vec<(config::Source, Failure)>,
}

/// What is served changes while [`Service::changing`] is locked.
struct State {
    session: Session,
    /// Opened when the first source needs it.
    cache: Option<Arc<EngineCache>>,
    served: Vec<Served>,
    /// Unmounted by force: they are served to those who have files of them open.
    draining: Vec<Served>,
    /// Unmounted, and the cache is about to take note of it.
    leaving: Vec<config::Source>,
    /// Could not be served at the start, and why. A command can start them later.
    unserved: Vec<(config::Source, Failure)>,
}

/// See the [module](self).
pub(crate) struct Service {
    config: Config,
    began: Instant,
    /// Locked by who changes which sources are served, and how: before the state.
    changing: Mutex<()>,
    /// Locked for moments, and never while the SSD or a switch is waited for, nor a source but for its unmount: these must keep
    /// nobody from a question.
    state: Mutex<State>,
    is_stopping: AtomicBool,
    /// What others may have changed could not be kept from being believed: the stop must not be a clean one.
    is_unsound: AtomicBool,
}

/// A source that nobody else serves.
struct Claimed {
    source: config::Source,
    options: MountOptions,
    claim: Claim,
}

/// Where the generation of the content of the SSD is kept.
pub(crate) fn witness_path(state: &Path) -> PathBuf {
    state.join(GENERATION_FILE)
}

fn cannot_note(error: &io::Error) -> Failure {
    Failure::new(
        format!("the state directory: {error}"),
        "the system refuses what bathyd needs",
    )
}

impl Service {
    /// Serves the sources of a configuration. Those that cannot be served are named in the log and in the status: the disk
    /// of one must not keep the others from being served.
    ///
    /// # Errors
    /// If there are sources and none of them can be served.
    pub(crate) fn begin(config: Config) -> Result<Self, Failure> {
        let (mut claimed, mut unserved) = (Vec::new(), Vec::new());
        for source in &config.sources {
            match claim_source(source.clone(), config.threads) {
                Ok(one) => claimed.push(one),
                Err(failure) => unserved.push((source.clone(), failure)),
            }
        }
        if claimed.is_empty() && !unserved.is_empty() {
            return Err(unserved.swap_remove(0).1);
        }
        let session = Session::begin(&config.state).map_err(|error| cannot_note(&error))?;
        let service = Self {
            config,
            began: Instant::now(),
            changing: Mutex::new(()),
            state: Mutex::new(State {
                session,
                cache: None,
                served: Vec::new(),
                draining: Vec::new(),
                leaving: Vec::new(),
                unserved,
            }),
            is_stopping: AtomicBool::new(false),
            is_unsound: AtomicBool::new(false),
        };
        let is_cached = |source: &config::Source| source.mode != Mode::PassThrough;
        let sources = &service.config.sources;
        // A source whose disk is away for now must find its lines when it is there again.
        if sources.is_empty() || sources.iter().any(is_cached) {
            let was_fenced = claimed
                .iter()
                .all(|one| one.claim.had_dead_mount() || !is_cached(&one.source));
            service.open_cache(was_fenced)?;
        } else {
            let witness = FileWitness::new(witness_path(&service.config.state));
            void(&witness).map_err(|error| cannot_note(&error))?;
        }
        for one in claimed {
            let source = one.source.clone();
            if let Err(failure) = service.serve(one) {
                service.lock().unserved.push((source, failure));
            }
        }
        let state = service.lock();
        let failed = state.unserved.first().map(|(_, failure)| failure.clone());
        if let Some(failure) = failed.filter(|_| state.served.is_empty()) {
            drop(state);
            service.end()?;
            return Err(failure);
        }
        for (_, Failure { message, hint }) in &state.unserved {
            eprintln!("bathyd: NOT SERVED: {message}\nhint: {hint}");
        }
        drop(state);
        Ok(service)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for who changes sources. Nobody else does until the guard is dropped.
    fn change(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open_cache(&self, was_fenced: bool) -> Result<Arc<EngineCache>, Failure> {
        let state = self.lock();
        if let Some(cache) = &state.cache {
            return Ok(Arc::clone(cache));
        }
        let was_clean = state.session.was_clean();
        drop(state);
        let is_strict = self.config.cache.after_unclean == AfterUnclean::Cold;
        let options = EngineCacheOptions {
            name: self.config.cache.name.clone(),
            ssd: self.config.cache.ssd.clone(),
            witness: witness_path(&self.config.state),
            is_detached: self.config.cache.is_detached,
            was_clean,
            has_device_stamps: is_strict,
            policy: self.config.cache.policy,
            engine: Options {
                admission: self.config.cache.admission.options(),
                was_fenced: was_fenced || !is_strict,
                ..self.config.cache.fetch.options()
            },
        };
        let cache = Arc::new(EngineCache::open(options).map_err(|error| cannot_note(&error))?);
        Ok(Arc::clone(self.lock().cache.insert(cache)))
    }

    /// The number of sources that are served.
    pub(crate) fn served(&self) -> usize {
        self.lock().served.len()
    }

    /// To be called every few seconds.
    pub(crate) fn tidy(&self) {
        let cache = self.lock().cache.clone();
        if let Some(cache) = cache {
            cache.tidy();
        }
    }

    /// Compares some of what the cache has with files that others may have changed: the bytes read. `None`: there is nothing.
    pub(crate) fn compare_next(&self) -> Option<u64> {
        let cache = self.lock().cache.clone();
        cache?.live.with_engine(Engine::compare_next)
    }

    fn serve(&self, claimed: Claimed) -> Result<(), Failure> {
        let Claimed {
            source,
            options,
            claim,
        } = claimed;
        let dir = source.dir.display().to_string();
        let failed =
            |error: &dyn std::fmt::Display, hint: &str| Failure::new(format!("{dir}: {error}"), hint);
        let unreadable = |error: &dyn std::fmt::Display| failed(error, "the directory must be readable");
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(claim.below(), ".", flags, FileMode::empty());
        let root = root.map_err(|error| unreadable(&error))?;
        let locks = lock_below(&root).map_err(|(name, error)| {
            failed(
                &format!("{name} is in use by another process ({error})"),
                "stop the OSD first",
            )
        })?;
        let flags = mount_flags(&root).map_err(|error| unreadable(&error))?;
        let paths = Paths::new(&root, source.dir.clone()).map_err(|error| unreadable(&error))?;
        let cached = if source.mode == Mode::PassThrough {
            let forgotten = self.lock().session.forget_source(&source.dir);
            forgotten.map_err(|error| cannot_note(&error))?;
            None
        } else {
            let cache = self.open_cache(false)?;
            let uuid = self.lock().session.source(&source.dir);
            let uuid = uuid.map_err(|error| cannot_note(&error))?;
            let cached = Source::new(cache, uuid, &root).map_err(|error| unreadable(&error))?;
            let (live, uuid) = cached.in_cache();
            live.with_engine(|engine| {
                check_size(engine, source.size_bytes)?;
                if !claim.had_dead_mount() && self.config.cache.after_unclean == AfterUnclean::Cold {
                    engine.set_unfenced().map_err(|error| cannot_note(&error))?;
                }
                engine.set_mode(uuid, source.mode.in_engine());
                engine.set_size(uuid, source.size_bytes);
                Ok::<(), Failure>(())
            })?;
            Some(Arc::new(cached))
        };
        let requests = cached.as_ref().map(|cached| cached.in_cache());
        let requests = requests.map(|(live, uuid)| live.with_engine(|engine| engine.source_counts(uuid)));
        let counts = Arc::new(FrontCounts::new(requests.unwrap_or_default()));
        let files: Arc<dyn FileCache> = match &cached {
            Some(cached) => Arc::clone(cached) as Arc<dyn FileCache>,
            None => Arc::new(NoCache),
        };
        let directory = Directory::new(root, source.dir.clone(), files, Arc::clone(&counts));
        let directory = directory.map_err(|error| unreadable(&error))?;
        let in_use = Arc::new(directory.status());
        let transport = self.config.transport;
        let (transport, mounted) =
            mount_over(transport, directory, &claim, &options, &flags).map_err(|error| {
                if transport == Transport::Ring {
                    failed(
                        &format!("io_uring: {error}"),
                        "Linux 6.14 with fuse.enable_uring=1, or \"transport\": \"auto\"",
                    )
                } else {
                    failed(&error, "FUSE must be available: modprobe fuse")
                }
            })?;
        let mut state = self.lock();
        state.unserved.retain(|(unserved, _)| unserved.dir != source.dir);
        state.served.push(Served {
            about: Arc::new(About {
                source,
                cached,
                counts,
                paths: Arc::new(paths),
                in_use,
                transport,
                is_served: true,
            }),
            mounted,
            _locks: locks,
        });
        Ok(())
    }

    /// Takes note of mounts that ended. Returns whether there is nothing left to serve because they were ended, and not
    /// because nothing was to be served. No source begins any more then.
    pub(crate) fn reap(&self) -> bool {
        let alone = self.change();
        let mut state = self.lock();
        let all = std::mem::take(&mut state.served);
        let (ended, served): (Vec<_>, Vec<_>) = all.into_iter().partition(|one| one.mounted.has_ended());
        state.served = served;
        state.draining.retain(|one| !one.mounted.has_ended());
        // Not of those that nobody stopped: on a kernel before 5.8 the list of mounts may lack one while others change.
        let is_stopping = self.is_stopping.load(Ordering::Acquire);
        let stopped = state.served.iter().filter(|_| is_stopping);
        for one in stopped.chain(&state.draining) {
            one.end_unless_used();
        }
        let sources = ended.iter().map(|one| one.about.source.clone());
        state.leaving.extend(sources);
        drop(state);
        drop(alone);
        let had_ended = !ended.is_empty();
        for one in ended {
            // A stop or somebody else unmounted it, and others may have changed files since.
            if let Err(error) = self.leave(one) {
                eprintln!("bathyd: {error}");
            }
        }
        let _alone = self.change();
        let state = self.lock();
        let is_over = state.served.is_empty()
            && state.draining.is_empty()
            && state.leaving.is_empty()
            && (had_ended || self.is_stopping.load(Ordering::Acquire));
        self.is_stopping.fetch_or(is_over, Ordering::AcqRel);
        is_over
    }

    /// Waits for the end of a mount among [`State::leaving`], and drops what is not known of its files any more.
    fn leave(&self, one: Served) -> io::Result<()> {
        let about = Arc::clone(&one.about);
        one.end();
        let in_cache = about.cached.as_ref().map(|cached| cached.in_cache());
        let left = in_cache.map_or(Ok(()), |(live, uuid)| {
            live.with_engine(|engine| engine.leave_source(uuid))
        });
        let mut state = self.lock();
        state.leaving.retain(|source| source.dir != about.source.dir);
        drop(state);
        self.noted(&about.source, left)
    }

    /// An error of the cache at the end of a source. It ends nothing else, but the next start must believe nothing.
    fn noted(&self, source: &config::Source, result: io::Result<()>) -> io::Result<()> {
        result.map_err(|error| {
            self.is_unsound.store(true, Ordering::Release);
            io::Error::new(error.kind(), format!("{}: {error}", source.dir.display()))
        })
    }

    /// All mounts are to end. Those with open files are detached, and served until these are closed; those that cannot be
    /// unmounted are served until that is done from outside.
    pub(crate) fn unmount_all(&self) {
        // With this no other source begins.
        self.is_stopping.store(true, Ordering::Release);
        let served = {
            // One that begins is waited for.
            let _alone = self.change();
            let state = self.lock();
            let served = state.served.iter().map(|one| Arc::clone(&one.about));
            served.collect::<Vec<_>>()
        };
        wait_for_closes(&served);
        // Before others can change files. What is written to after this is dropped when its source is left.
        let (settles, is_settled) = mpsc::channel::<()>();
        let settling = served.clone();
        let settle = move || {
            for about in &settling {
                about.settle();
            }
            drop(settles);
        };
        // Without a thread nothing is settled, which costs lines.
        if thread::Builder::new()
            .name("settle".to_owned())
            .spawn(settle)
            .is_ok()
        {
            let _over_or_late = is_settled.recv_timeout(SETTLING_MAX);
        }
        let _alone = self.change();
        // New users will find the directory itself: what is cached must not be read once they can change files.
        self.leave_cache(
            served
                .into_iter()
                .filter(|about| about.open_files() > 0)
                .collect(),
        );
        let mut in_use = Vec::new();
        let state = self.lock();
        for one in state.served.iter().filter(|one| !one.mounted.has_ended()) {
            match one.mounted.unmount() {
                Ok(is_unused) if is_unused && one.end_unless_used() => {}
                Ok(is_unused) => {
                    let place = if is_unused {
                        " in another mount namespace"
                    } else {
                        ""
                    };
                    eprintln!(
                        "bathyd: {}: files are open{place}; they are served until they are closed, or until a second signal",
                        one.dir()
                    );
                    in_use.push(Arc::clone(&one.about));
                }
                Err(error) => eprintln!(
                    "bathyd: {}: {error}; it is served until a second signal",
                    one.dir()
                ),
            }
        }
        drop(state);
        self.leave_cache(in_use);
    }

    /// The cache is used no more for the sake of these sources.
    fn leave_cache(&self, sources: Vec<Arc<About>>) {
        let cache = self.lock().cache.clone();
        for about in sources {
            let left = cache.as_ref().map_or(Ok(()), |cache| cache.leave());
            if let Err(error) = self.noted(&about.source, left) {
                eprintln!("bathyd: {error}");
            }
        }
    }

    /// Stops the cache, when nothing is served any more.
    ///
    /// # Errors
    /// If it cannot be noted.
    pub(crate) fn end(&self) -> Result<(), Failure> {
        let cache = self.lock().cache.take();
        let is_sound = !self.is_unsound.load(Ordering::Acquire);
        // Else it ends as by a kill: the next start compares stamps.
        if is_sound && cache.is_none_or(|cache| cache.stop()) {
            return self.lock().session.end().map_err(|error| cannot_note(&error));
        }
        eprintln!("bathyd: the cache was not stopped cleanly");
        Ok(())
    }

    /// Answers a question or carries a command out. `None` if it is not known.
    pub(crate) fn answer(&self, question: &Value) -> Option<Result<Value, Failure>> {
        if let Some(query) = question["query"].as_str() {
            return match query {
                "status" => Some(Ok(self.status())),
                "files" => Some(self.files(question)),
                "cached" => Some(self.cached(question)),
                "curve" => Some(Ok(self.curve())),
                _ => None,
            };
        }
        match question["command"].as_str()? {
            "start_source" => Some(self.start_source(question)),
            "stop_source" => Some(self.stop_source(question)),
            "set_mode" => Some(self.set_mode(question)),
            "set_size" => Some(self.set_size(question)),
            "detach" => Some(self.detach(question)),
            "attach" => Some(self.attach(question)),
            "resize" => Some(self.resize(question)),
            _ => None,
        }
    }

    fn now(&self) -> Now {
        let state = self.lock();
        let draining = state.draining.iter().map(|one| {
            Arc::new(About {
                is_served: false,
                ..(*one.about).clone()
            })
        });
        let served = state.served.iter().map(|one| Arc::clone(&one.about));
        Now {
            cache: state.cache.clone(),
            sources: served.chain(draining).collect(),
            unserved: state.unserved.clone(),
        }
    }

    fn status(&self) -> Value {
        let Now {
            cache,
            sources,
            unserved,
        } = self.now();
        let mut of_cache = json!({
            "name": self.config.cache.name,
            "ssd": self.config.cache.ssd.to_string_lossy(),
            "problem": null,
            "found": null,
            "attachment": null,
            "engine": null,
            "admission": self.config.cache.admission,
        });
        if let Some(cache) = cache {
            cache.report(&mut of_cache);
        }
        let sources = sources.iter().map(|about| {
            let source = &about.source;
            let mut report = json!({
                "name": source.name(),
                "dir": source.dir.to_string_lossy(),
                "mode": source.mode.name(),
                "size_bytes": source.size_bytes,
                "is_served": about.is_served,
                "problem": null,
                "transport": about.transport,
                "in_use": (about.in_use)(),
            });
            let usage = about
                .cached
                .as_ref()
                .and_then(|cached| cached.usage(source.size_bytes));
            reports::source(&mut report, &about.counts, usage);
            report["fetch"] = reports::fetch(about.cached.as_ref().and_then(|cached| cached.fetch()));
            report
        });
        let unserved = unserved.iter().map(|(source, failure)| {
            json!({
                "name": source.name(),
                "dir": source.dir.to_string_lossy(),
                "mode": source.mode.name(),
                "size_bytes": source.size_bytes,
                "is_served": false,
                "problem": failure.message,
                "hint": failure.hint,
            })
        });
        json!({
            "protocol": reports::PROTOCOL,
            "uptime_s": self.began.elapsed().as_secs_f64(),
            "pid": std::process::id(),
            "cache": of_cache,
            "sources": sources.chain(unserved).collect::<Vec<_>>(),
        })
    }

    fn files(&self, question: &Value) -> Result<Value, Failure> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Files {
            source: Option<String>,
            limit: Option<usize>,
        }
        let Files { source, limit } = parse(question)?;
        let mut sources = self.now().sources;
        if let Some(name) = source {
            sources.retain(|about| about.source.name() == name);
            if sources.is_empty() {
                return Err(unknown_source(&name));
            }
        }
        let of_source = |about: &Arc<About>| {
            let files = about
                .cached
                .as_ref()
                .map(|cached| cached.busiest_files(limit.unwrap_or(FILES_SHOWN), &about.paths));
            json!({
                "name": about.source.name(),
                "dir": about.source.dir.to_string_lossy(),
                "files": files.unwrap_or_default(),
            })
        };
        Ok(json!({"sources": sources.iter().map(of_source).collect::<Vec<_>>()}))
    }

    fn cached(&self, question: &Value) -> Result<Value, Failure> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Cached {
            source: String,
            handle: String,
            ranges: Vec<(u64, u64)>,
        }
        let Cached {
            source,
            handle,
            ranges,
        } = parse(question)?;
        let about = self
            .now()
            .sources
            .into_iter()
            .find(|about| about.source.name() == source);
        let about = about.ok_or_else(|| unknown_source(&source))?;
        let handle = from_hexadecimal(&handle).ok_or_else(|| {
            Failure::new(
                "a handle has two hexadecimal digits for each byte".to_owned(),
                "ask for the files of the source: they have handles",
            )
        })?;
        let lengths = ranges.iter().map(|&(_, length)| length);
        if lengths.fold(0, u64::saturating_add) > RANGES_BYTES_MAX {
            return Err(Failure::new(
                format!("ranges have {} GiB together at most", RANGES_BYTES_MAX >> 30),
                "ask for parts of them",
            ));
        }
        let ranges = ranges
            .iter()
            .map(|&(offset, length)| offset..offset.saturating_add(length));
        let ranges: Vec<_> = ranges.collect();
        let cached = about.cached.as_ref();
        let bytes = cached.and_then(|cached| cached.cached_bytes_in(&handle, &ranges));
        let bytes = bytes.ok_or_else(|| {
            Failure::new(
                format!(
                    "source '{source}': no file with this handle is open, or nothing is cached at the moment"
                ),
                "`bathy cache status` says whether its cache is attached",
            )
        })?;
        Ok(json!({"cached_bytes": bytes}))
    }

    fn curve(&self) -> Value {
        let Now { cache, sources, .. } = self.now();
        let mut answer = cache.map_or_else(|| reports::no_curve("nothing is cached"), |cache| cache.curve());
        let of_source = |about: &Arc<About>| {
            let nothing = || reports::no_curve("nothing of it is cached");
            let mut curve = about
                .cached
                .as_ref()
                .map_or_else(nothing, |cached| cached.curve());
            curve["name"] = json!(about.source.name());
            curve
        };
        answer["sources"] = sources
            .iter()
            .filter(|about| about.is_served)
            .map(of_source)
            .collect();
        answer
    }

    fn start_source(&self, question: &Value) -> Result<Value, Failure> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Start {
            source: config::Source,
        }
        let Start { source } = parse(question)?;
        self.start(source)?;
        Ok(json!({}))
    }

    fn start(&self, source: config::Source) -> Result<(), Failure> {
        let _alone = self.running()?;
        let mut state = self.lock();
        source.check(state.served.iter().map(|one| &one.about.source))?;
        // Who has files of it open would change them without the cache that is to serve the others.
        state.draining.retain(|one| !one.mounted.has_ended());
        let draining = state.draining.iter().map(|one| &one.about.source);
        let mut ending = draining.chain(&state.leaving);
        if ending.any(|other| other.dir == source.dir || other.name() == source.name()) {
            return Err(Failure::new(
                format!(
                    "{} was stopped and is still in use: files are open or not yet flushed",
                    source.name()
                ),
                r#"close its files; start it when {"query":"status"} does not name it any more"#,
            ));
        }
        drop(state);
        let claimed = claim_source(source, self.config.threads)?;
        self.serve(claimed)
    }

    /// [`Service::change`], unless all is about to end.
    fn running(&self) -> Result<MutexGuard<'_, ()>, Failure> {
        let alone = self.change();
        self.check_running()?;
        Ok(alone)
    }

    fn check_running(&self) -> Result<(), Failure> {
        if self.is_stopping.load(Ordering::Acquire) {
            return Err(Failure::new("bathyd is stopping", "start it again"));
        }
        Ok(())
    }

    /// A source that is served, and its place among these for as long as nobody changes them.
    fn served_as(&self, name: &str) -> Result<(usize, Arc<About>), Failure> {
        let state = self.lock();
        let place = place_of(&state, name)?;
        Ok((place, Arc::clone(&state.served[place].about)))
    }

    fn stop_source(&self, question: &Value) -> Result<Value, Failure> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Stop {
            name: String,
            #[serde(default)]
            force: bool,
        }
        let Stop { name, force } = parse(question)?;
        let is_unused = self.stop(&name, force)?;
        Ok(json!({"is_draining": !is_unused}))
    }

    /// Ends the mount of a source. Whether nothing of it was in use; else, by force, it is served to those who have files open.
    fn stop(&self, name: &str, force: bool) -> Result<bool, Failure> {
        let failed = |error: &io::Error| Failure::new(format!("{name}: {error}"), "see the log of bathyd");
        let alone = self.running()?;
        let mut state = self.lock();
        let is_failed = |(source, _): &(config::Source, Failure)| source.name() == name;
        if let Some(place) = state.unserved.iter().position(is_failed) {
            // Nobody uses it.
            state.unserved.remove(place);
            return Ok(true);
        }
        drop(state);
        let (_, about) = self.served_as(name)?;
        drop(alone);
        // Before others can change files. What is written to after this is dropped when it is left.
        wait_for_closes(std::slice::from_ref(&about));
        about.settle();
        let alone = self.running()?;
        let mut state = self.lock();
        let place = place_of(&state, name)?;
        let one = &state.served[place];
        // The mount here does not know of files that are open in other mount namespaces.
        let is_closed = one.about.open_files() == 0;
        if is_closed && one.mounted.unmount_unused().map_err(|error| failed(&error))? {
            one.end_unless_used();
            let one = state.served.remove(place);
            state.leaving.push(one.about.source.clone());
            drop(state);
            drop(alone);
            self.leave(one).map_err(|error| failed(&error))?;
            return Ok(true);
        }
        if !force {
            let open_files = one.about.open_files();
            return Err(Failure::new(
                format!("{name} is in use ({open_files} open files)"),
                "stop who uses it, such as the OSD; or force it: open files are then served until they are closed, and what is cached of the source is lost",
            ));
        }
        // From here on new users find the directory itself: what is cached must never be found again.
        let about = Arc::clone(&one.about);
        state
            .session
            .forget_source(&about.source.dir)
            .map_err(|error| failed(&error))?;
        drop(state);
        if let Some((live, uuid)) = about.cached.as_ref().map(|cached| cached.in_cache()) {
            live.with_engine(|engine| engine.abandon_source(uuid));
        }
        let mut state = self.lock();
        let one = state.served.remove(place);
        let unmounted = one.mounted.unmount();
        let is_left = one.mounted.is_left();
        state.draining.push(one);
        Ok(unmounted.map_err(|error| failed(&error))? && !is_left)
    }

    /// The cache, to change its SSD.
    fn to_change(&self) -> Result<Arc<EngineCache>, Failure> {
        self.check_running()?;
        self.lock().cache.clone().ok_or_else(|| {
            Failure::new(
                "the cache is not used: all sources are in the mode \"pass-through\"",
                "it is when a source gets another mode, or at the next start",
            )
        })
    }

    fn detach(&self, question: &Value) -> Result<Value, Failure> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Detach {}
        let Detach {} = parse(question)?;
        let is_kept = self.to_change()?.detach()?;
        Ok(json!({"is_content_kept": is_kept}))
    }

    fn attach(&self, question: &Value) -> Result<Value, Failure> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Attach {
            ssd: Option<PathBuf>,
            #[serde(default)]
            force: bool,
        }
        let Attach { ssd, force } = parse(question)?;
        if let Some(ssd) = &ssd {
            config::check_path(ssd)?;
        }
        let (ssd, found) = self.to_change()?.attach(ssd.as_deref(), force)?;
        Ok(json!({"ssd": ssd.to_string_lossy(), "found": found}))
    }

    fn resize(&self, question: &Value) -> Result<Value, Failure> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Resize {
            size_bytes: u64,
        }
        let Resize { size_bytes } = parse(question)?;
        let capacity_bytes = self.to_change()?.resize(size_bytes)?;
        Ok(json!({"capacity_bytes": capacity_bytes}))
    }

    fn set_mode(&self, question: &Value) -> Result<Value, Failure> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct SetMode {
            name: String,
            mode: Mode,
        }
        let SetMode { name, mode } = parse(question)?;
        let alone = self.running()?;
        let (place, about) = self.served_as(&name)?;
        let source = config::Source {
            mode,
            ..about.source.clone()
        };
        let Some(cached) = &about.cached else {
            if mode != Mode::PassThrough {
                // The cache knows none of its files: it is served anew, which takes a moment without users.
                drop(alone);
                self.stop(&name, false)?;
                self.start(source)
                    .map_err(|failure| match self.start(about.source.clone()) {
                        Ok(()) => failure,
                        Err(other) => Failure::new(
                            format!("{}; and as it was before: {}", failure.message, other.message),
                            format!("{name} is served no more; start it again: {}", failure.hint),
                        ),
                    })?;
            }
            return Ok(json!({}));
        };
        let (live, uuid) = cached.in_cache();
        live.with_engine(|engine| engine.set_mode(uuid, mode.in_engine()));
        self.lock().served[place].about = Arc::new(About {
            source,
            ..(*about).clone()
        });
        Ok(json!({}))
    }

    fn set_size(&self, question: &Value) -> Result<Value, Failure> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct SetSize {
            name: String,
            // Required: null is no limit, and a field that is left out by mistake is not.
            #[serde(deserialize_with = "Option::deserialize")]
            size_bytes: Option<u64>,
        }
        let SetSize { name, size_bytes } = parse(question)?;
        let _alone = self.running()?;
        let (place, about) = self.served_as(&name)?;
        if let Some((live, uuid)) = about.cached.as_ref().map(|cached| cached.in_cache()) {
            live.with_engine(|engine| {
                check_size(engine, size_bytes)?;
                engine.set_size(uuid, size_bytes);
                Ok::<(), Failure>(())
            })?;
        }
        self.lock().served[place].about = Arc::new(About {
            source: config::Source {
                size_bytes,
                ..about.source.clone()
            },
            ..(*about).clone()
        });
        Ok(json!({}))
    }
}

/// The fields of a question or command, apart from the one that says which it is.
fn parse<T: DeserializeOwned>(question: &Value) -> Result<T, Failure> {
    let mut fields = question.clone();
    if let Some(fields) = fields.as_object_mut() {
        fields.retain(|name, _| name != "query" && name != "command");
    }
    T::deserialize(fields).map_err(|error| {
        Failure::new(
            error.to_string(),
            "README.md of bathyd describes the questions and commands",
        )
    })
}

/// Whether a name is a link to something other than a device: those are files of their own above the mount.
fn is_linked_file(root: &OwnedFd, name: &str, opened: &File) -> bool {
    let is_link = readlinkat(root, name, Vec::new()).is_ok();
    is_link
        && !opened
            .metadata()
            .is_ok_and(|about| about.file_type().is_block_device())
}

fn from_hexadecimal(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = text.chars().map(|digit| digit.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    let pairs = digits.chunks_exact(2);
    Some(pairs.map(|pair| (pair[0] << 4 | pair[1]) as u8).collect())
}

/// Whether a limit leaves a source room to be cached in.
fn check_size(engine: &Engine, size_bytes: Option<u64>) -> Result<(), Failure> {
    // Without an SSD the parts of the cache are not known.
    let least = if engine.is_bypassed() {
        0
    } else {
        engine.size_bytes_min()
    };
    match size_bytes {
        Some(bytes) if bytes < least => Err(Failure::new(
            format!("size_bytes must be at least {least}, a line in each part of the cache (got {bytes})"),
            "leave it out for no limit; the mode \"pass-through\" caches nothing",
        )),
        _ => Ok(()),
    }
}

fn place_of(state: &State, name: &str) -> Result<usize, Failure> {
    let place = state
        .served
        .iter()
        .position(|one| one.about.source.name() == name);
    place.ok_or_else(|| unknown_source(name))
}

fn unknown_source(name: &str) -> Failure {
    Failure::new(
        format!("no source {name:?} is served"),
        r#"{"query":"status"} names those that are"#,
    )
}

fn claim_source(source: config::Source, threads: usize) -> Result<Claimed, Failure> {
    let directory: PathBuf = source.dir.clone();
    let options = MountOptions {
        directory,
        program: PROGRAM,
        threads,
        real_time: false,
    };
    let claim = claim(&options).map_err(|error| {
        Failure::new(
            format!("{}: {error}", source.dir.display()),
            "a source is a directory, or the mount point of a local file system, that no other program serves",
        )
    })?;
    Ok(Claimed {
        source,
        options,
        claim,
    })
}

/// Mounts by a transport, and says which it is.
fn mount_over(
    transport: Transport,
    directory: Directory,
    claim: &Claim,
    options: &MountOptions,
    flags: &[MountOption],
) -> Result<(&'static str, Mounted), MountError> {
    if transport == Transport::Ring || transport == Transport::Auto && is_ring_offered() {
        let data: Arc<dyn DataPath> = Arc::new(directory.clone());
        match mount_over_ring(&directory, &data, claim, options, flags) {
            Ok(mounted) => return Ok(("ring", mounted)),
            Err(error) if transport == Transport::Ring => return Err(error),
            Err(error) => {
                let dir = options.directory.display();
                eprintln!("bathyd: {dir}: served through /dev/fuse, as io_uring fails: {error}");
            }
        }
    }
    let directory = directory.in_one_session(options.threads);
    Ok(("dev", mount(directory, claim, options, flags)?))
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
            // It is the same file above the mount, where the OSD takes the lock itself.
            _ if is_linked_file(root, name, &file) => {}
            // A file system without locks cannot be asked.
            _ => locks.push(file),
        }
    }
    Ok(locks)
}
