//! `bathy-cache` behind the front end: one engine for the files of all cached directories.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use bathy_cache::{
    Beginning, BlockStore, Engine, Events, FileIdentity as EngineIdentity, FileStore, GenerationFile,
    GenerationStore, LiveCache, LiveFile, OpenError, Options, PAUSE_MAX, Recovery, SourceFetch, Trust, Usage,
    format::{SuperblockError, Uuid},
    inspect, open, void,
};
use bathy_cache_model::LineSize;
use bathy_policy::PolicyKind;
use rustix::fs::{fstat, syncfs};
use rustix::io::Errno;
use serde_json::{Value, json};

use crate::apart::each_apart;
use crate::attachment::Attachment;
use crate::backing::WrittenByCallers;
use crate::cache::{CachedFile, Change, FileCache};
use crate::counted_device::CountedDevice;
use crate::device::open_alone;
use crate::device_identity::DeviceIdentity;
use crate::device_notes::DeviceNotes;
use crate::devices::Device;
use crate::identity::FileIdentity;
use crate::inodes::{Inode, path_of};
use crate::panics::{Containment, caught, perhaps};
use crate::paths::Paths;
use crate::reports;

/// So often a source is asked whether there is something to compare.
const COMPARE_PERIOD: Duration = Duration::from_secs(5);
/// So long the disks of sources are waited for before what is known of the others is tidied.
const TIDYING_MAX: Duration = Duration::from_secs(5);
const NO_SSD: &str = "the cache has no SSD at the moment";

/// Where a cache is, and how it is run.
pub(crate) struct EngineCacheOptions {
    /// The cache's, if the configuration has one.
    pub(crate) name: Option<String>,
    /// A device or file. It holds a cache: a start makes none.
    pub(crate) ssd: PathBuf,
    /// A file apart from it, for the generation of its content.
    pub(crate) generations: PathBuf,
    /// Whether the SSD is to be left alone until somebody attaches it.
    pub(crate) is_detached: bool,
    /// Whether the last session is known to have ended cleanly, whatever the SSD says.
    pub(crate) was_clean: bool,
    /// Whether devices are known by what the kernel counts of their writes, and not by a comparison of lines alone.
    pub(crate) has_device_stamps: bool,
    /// The policy of a new cache.
    pub(crate) policy: PolicyKind,
    /// Its lines.
    pub(crate) line: LineSize,
    /// How the engine is run.
    pub(crate) engine: Options,
}

/// A cache in use, with its SSD or without one for now.
pub(crate) struct EngineCache {
    pub(crate) options: EngineCacheOptions,
    began: Instant,
    pub(crate) live: LiveCache,
    pub(crate) attachment: Attachment,
    /// What the devices of sources were.
    notes: DeviceNotes,
    roots: Mutex<Vec<Root>>,
}

/// The directory of a source.
struct Root {
    file: Weak<File>,
    uuid: Uuid,
    path: PathBuf,
}

impl EngineCache {
    /// The curve of all that is cached.
    pub(crate) fn curve(&self) -> Value {
        if !self.attachment.is_used() {
            return reports::no_curve(NO_SSD);
        }
        reports::curve(self.live.engine().curve())
    }

    /// Opens the cache. If it cannot be used, or is to be left alone, what the SSD has is made void, as files change without it
    /// from now on.
    ///
    /// # Errors
    /// If that cannot be noted.
    pub(crate) fn open(options: EngineCacheOptions) -> io::Result<Self> {
        let path = options.ssd.clone();
        let opened = if options.is_detached {
            eprintln!(
                "bathyd: {}: detached; directories are served as they are",
                path.display()
            );
            None
        } else {
            Some(open_engine(&options).map_err(|problem| format!("{}: {problem}", path.display())))
        };
        if !matches!(&opened, Some(Ok(_))) && has_generation(&options.generations) {
            // Without one the next start believes no SSD either.
            void(&GenerationFile::new(options.generations.clone()))?;
        }
        let notes = DeviceNotes::load(options.generations.parent().unwrap_or(Path::new("/")));
        let generations: Arc<dyn GenerationStore> =
            Arc::new(GenerationFile::new(options.generations.clone()));
        let (used, attachment) = match opened {
            Some(Ok((engine, ssd, found))) => {
                let (need, budget) = engine.memory_need();
                if need.bytes() > budget.bytes {
                    // It was made with another budget, or by a version that had none. It is of use all the same.
                    eprintln!(
                        "bathyd: {}: it needs {} bytes of memory, more than the {} that it may take (cache.memory_bytes)",
                        path.display(),
                        need.bytes(),
                        budget.bytes
                    );
                }
                eprintln!("bathyd: {}: {found}", path.display());
                (Some((engine, ssd)), Attachment::used(path, found))
            }
            Some(Err(problem)) => {
                eprintln!("bathyd: NOT CACHED: {problem}; directories are served as they are");
                (None, Attachment::missing(path, problem))
            }
            None => (None, Attachment::detached(path)),
        };
        Ok(Self {
            live: LiveCache::new(used, generations, options.engine),
            options,
            began: Instant::now(),
            attachment,
            notes,
            roots: Mutex::default(),
        })
    }

    /// Makes the times of files durable that were written to without the SSD, before it is believed again: `fdatasync` need not
    /// do that, and after a power cut such a file would look as if nobody had written to it.
    ///
    /// # Errors
    /// Those of a file system, and if one does not answer in time.
    pub(crate) fn make_times_durable(&self) -> io::Result<()> {
        let roots = self.roots();
        let used = roots
            .iter()
            .filter_map(|root| Some((root.uuid, root.file.upgrade()?)));
        let used: Vec<_> = used.collect();
        drop(roots);
        let mut late: Vec<Uuid> = used.iter().map(|(uuid, _)| *uuid).collect();
        let failed = Arc::new(OnceLock::new());
        let failures = Arc::clone(&failed);
        let in_time = each_apart("sync", used, PAUSE_MAX, move |(_, root): (Uuid, Arc<File>)| {
            if let Err(error) = syncfs(&*root) {
                let _another_one = failures.set(error);
            }
        });
        if let Some(&error) = failed.get() {
            return Err(error.into());
        }
        if in_time.len() == late.len() {
            return Ok(());
        }
        late.retain(|uuid| in_time.iter().all(|(other, _)| other != uuid));
        let problem = format!("{} does not answer", self.disks_of(&late));
        Err(io::Error::new(io::ErrorKind::TimedOut, problem))
    }

    /// Those that are used.
    fn roots(&self) -> MutexGuard<'_, Vec<Root>> {
        let mut roots = self.roots.lock().unwrap_or_else(PoisonError::into_inner);
        roots.retain(|root| root.file.strong_count() > 0);
        roots
    }

    /// Names the disks of sources.
    pub(crate) fn disks_of(&self, sources: &[Uuid]) -> String {
        let roots = self.roots();
        let of_sources = roots.iter().filter(|root| sources.contains(&root.uuid));
        let paths: Vec<_> = of_sources.map(|root| root.path.display().to_string()).collect();
        match &paths[..] {
            [] => "a disk below".to_owned(),
            paths => format!("the disk of {}", paths.join(" or ")),
        }
    }

    /// To be called every few seconds. What is done for a source is done within `contained`, by a thread of its own; after a panic
    /// in the rest, or while what all share was being changed, the SSD is given up.
    pub(crate) fn tidy(self: &Arc<Self>, contained: impl Fn(&Uuid, &dyn Fn()) + Clone + Send + 'static) {
        let engine = self.live.engine();
        let tidied = Arc::clone(&engine);
        let tidy_source = move |uuid| contained(&uuid, &|| tidied.tidy_source(&uuid));
        each_apart("tidy", engine.sources(), TIDYING_MAX, tidy_source);
        let tidied = caught(|| {
            perhaps("tidy", &self.options.generations);
            engine.tidy_shared()
        });
        // If the generation store fails, it is tried again the next time; writes are refused until then.
        let _left = if tidied.is_none() {
            engine.bypass()
        } else {
            engine.bypass_if_poisoned()
        };
        drop(engine);
        self.look_after_ssd();
    }

    /// Others may use the files without the cache from now on, while some are still served.
    ///
    /// # Errors
    /// If that cannot be noted.
    pub(crate) fn leave(&self) -> io::Result<()> {
        let _no_longer_tried = self.attachment.end();
        self.live.bypass()
    }

    /// Stops, when no file is used any more. Whether the next start believes nothing that is not so.
    pub(crate) fn stop(&self) -> bool {
        let _no_longer_tried = self.attachment.end();
        if self.attachment.is_used() {
            return self.live.stop().unwrap_or(false);
        }
        let _nothing_to_store = self.live.stop();
        // What was left cleanly has stamps, but a device need not have.
        !self.live.has_left_cleanly() || void(&GenerationFile::new(self.options.generations.clone())).is_ok()
    }

    /// What is known of the SSD and all directories together, put into `report`.
    pub(crate) fn report(&self, report: &mut Value) {
        self.attachment.report(report);
        // Before the first SSD there is nothing to count.
        let is_used = self.attachment.is_used();
        if is_used || self.live.content() != Default::default() {
            report["engine"] = reports::engine(&self.live.engine(), is_used);
        }
    }

    /// Seconds since a time that a request came with.
    fn seconds_since(&self, time_ns: u64) -> f64 {
        self.began.elapsed().as_secs_f64() - Duration::from_nanos(time_ns).as_secs_f64()
    }
}

/// Whether this state directory ever had a cache. One that cannot be read counts.
pub(crate) fn has_generation(path: &Path) -> bool {
    std::fs::symlink_metadata(path)
        .err()
        .is_none_or(|error| error.kind() != io::ErrorKind::NotFound)
}

type OpenedEngine = (Arc<Engine>, Arc<dyn BlockStore>, String);

fn open_engine(options: &EngineCacheOptions) -> Result<OpenedEngine, String> {
    let ssd = own_store(&options.ssd, options)?;
    let generations: Arc<dyn GenerationStore> = Arc::new(GenerationFile::new(options.generations.clone()));
    let open_it = || {
        let opened = open(Arc::clone(&ssd), Arc::clone(&generations), &options.engine);
        opened.map_err(|error| why_not_opened(&error, options))
    };
    let opened = open_it()?;
    if options.was_clean || opened.recovery != Recovery::Clean {
        let found = describe(opened.recovery, &opened.engine);
        return Ok((opened.engine, ssd, found));
    }
    // The SSD has a clean stop, and the state directory a session after it: the SSD lost what was written to it since.
    drop(opened);
    void(&*generations).map_err(|error| error.to_string())?;
    let opened = open_it()?;
    let found = describe(opened.recovery, &opened.engine);
    Ok((opened.engine, ssd, found))
}

/// Opens the SSD of the configuration, unless it is the cache of another state directory.
pub(crate) fn own_store(path: &Path, options: &EngineCacheOptions) -> Result<Arc<dyn BlockStore>, String> {
    let ssd: Arc<dyn BlockStore> = Arc::new(open_alone(path).map_err(|failure| failure.message)?);
    if !has_generation(&options.generations) && inspect(Arc::clone(&ssd)).is_ok() {
        return Err(
            "it is the cache of another state directory; `bathyd create --force` takes it".to_owned(),
        );
    }
    Ok(ssd)
}

/// Why an SSD was not opened. No start makes it a cache: what looks empty may be a new disk that somebody has a plan for.
pub(crate) fn why_not_opened(error: &OpenError, options: &EngineCacheOptions) -> String {
    let name = options.name.as_deref().unwrap_or("NAME");
    match error {
        OpenError::Superblock(SuperblockError::NotACache) => {
            format!("it holds no cache; `bathy cache attach {name}` makes one of it if it is empty")
        }
        error => error.to_string(),
    }
}

/// A cached directory.
pub(crate) struct Source {
    cache: Arc<EngineCache>,
    uuid: Uuid,
    /// The device of its file system: handles of others below it may be equal.
    device: u64,
    _root: Arc<File>,
    /// The numbers of devices that are cached, by handle: disks may claim the same name.
    devices: Mutex<HashMap<Box<[u8]>, u64>>,
    /// What became of the lines of devices that were cached before, for the status.
    beginnings: Mutex<BTreeMap<Box<[u8]>, Value>>,
}

impl Source {
    /// `root` is the directory, and `path` its name.
    ///
    /// # Errors
    /// If it cannot be asked, or its file system not be made durable.
    pub(crate) fn new(cache: Arc<EngineCache>, uuid: Uuid, root: impl AsFd, path: &Path) -> io::Result<Self> {
        let device = fstat(&root)?.st_dev;
        // A descriptor that is open as a path alone makes nothing durable.
        let root = File::open(format!("/proc/self/fd/{}", root.as_fd().as_raw_fd()))?;
        // See `make_times_durable`.
        syncfs(&root)?;
        let root = Arc::new(root);
        cache.roots().push(Root {
            file: Arc::downgrade(&root),
            uuid,
            path: path.to_owned(),
        });
        Ok(Self {
            cache,
            uuid,
            device,
            _root: root,
            devices: Mutex::default(),
            beginnings: Mutex::default(),
        })
    }

    /// The cache and what names the source there.
    pub(crate) fn in_cache(&self) -> (&LiveCache, &Uuid) {
        (&self.cache.live, &self.uuid)
    }

    /// The engine of an SSD that is used now, for questions.
    fn in_engine(&self) -> Option<(Arc<Engine>, &Uuid)> {
        let is_used = self.cache.attachment.is_used();
        is_used.then(|| (self.cache.live.engine(), &self.uuid))
    }

    /// What the cache has of the directory, the bytes that it may take, and those of a line.
    pub(crate) fn usage(&self, size_bytes: Option<u64>) -> Option<(Usage, u64, u64)> {
        let (engine, uuid) = self.in_engine()?;
        let all_bytes = engine.capacity_lines() * engine.line_bytes();
        let capacity_bytes = size_bytes.map_or(all_bytes, |bytes| bytes.min(all_bytes));
        Some((engine.usage(uuid), capacity_bytes, engine.line_bytes()))
    }

    /// The curve of the directory, as if it had a cache of its own.
    pub(crate) fn curve(&self) -> Value {
        self.in_engine().map_or_else(
            || reports::no_curve(NO_SSD),
            |(engine, uuid)| reports::curve(engine.source_curve(uuid)),
        )
    }

    /// What its misses fetch.
    pub(crate) fn fetch(&self) -> Option<SourceFetch> {
        self.in_engine().map(|(engine, uuid)| engine.fetch(uuid))
    }

    /// The busiest files, at most so many, which takes a look at each cached line.
    pub(crate) fn busiest_files(&self, most: usize, paths: &Paths) -> Vec<Value> {
        let Some((engine, uuid)) = self.in_engine() else {
            return Vec::new();
        };
        let mut files = engine.busiest_files(usize::MAX);
        files.retain(|file| file.identity.source() == uuid);
        files.truncate(most);
        let named = paths.named(files.iter().map(|file| file.identity.handle()));
        let shown = files.iter().zip(named).map(|(file, named)| {
            let handle = file.identity.handle().iter();
            let handle: Vec<String> = handle.map(|byte| format!("{byte:02x}")).collect();
            let last_access_ns = Some(file.counts.last_access_ns).filter(|_| file.counts.requests() > 0);
            json!({
                "path": named.path,
                "handle": handle.concat(),
                "is_in_use": file.is_in_use,
                "is_device": named.is_device,
                "size_bytes": named.size_bytes,
                "reads": reports::direction(&file.counts.reads),
                "writes": reports::direction(&file.counts.writes),
                "last_access_s_ago": last_access_ns.map(|time_ns| self.cache.seconds_since(time_ns)),
                "residence_s_mean": reports::residence_s_mean(&file.residence),
                "residence": reports::residence(&file.residence),
                "cached_lines": file.cached_lines,
                "cached_bytes": file.cached_bytes,
            })
        });
        shown.collect()
    }

    /// Bytes that are cached of each of these ranges of an open file, which is named as in [`Source::busiest_files`].
    pub(crate) fn cached_bytes_in(&self, handle: &[u8], ranges: &[Range<u64>]) -> Option<Vec<u64>> {
        let (engine, uuid) = self.in_engine()?;
        engine.cached_bytes_in(&EngineIdentity::new(*uuid, handle)?, ranges)
    }

    /// Devices of which something was cached when their use began.
    pub(crate) fn devices_at_start(&self) -> Vec<Value> {
        let beginnings = self.beginnings.lock().unwrap_or_else(PoisonError::into_inner);
        beginnings
            .values()
            .filter(|one| !one.is_null())
            .cloned()
            .collect()
    }

    /// Says once what became of the lines of a device, and notes which one it is.
    fn note_beginning(
        &self,
        handle: Box<[u8]>,
        now: DeviceIdentity,
        beginning: Beginning,
        doubt: Option<String>,
    ) -> io::Result<()> {
        let mut beginnings = self.beginnings.lock().unwrap_or_else(PoisonError::into_inner);
        if beginnings.contains_key(&handle) {
            return Ok(());
        }
        let doubt = doubt.unwrap_or_else(|| {
            "its size, what the kernel counts of its writes, or what is below it, is not as it was, or a compared line differs".to_owned()
        });
        let shown = now.to_string();
        let (lines, what, reason) = match beginning {
            Beginning::New | Beginning::Known => (None, "kept", None),
            Beginning::Sampled { lines } => (Some(lines), "sampled", None),
            Beginning::Compared => (None, "compared", Some(doubt)),
            Beginning::Dropped => (None, "dropped", Some(doubt)),
        };
        match (lines, &reason) {
            (Some(lines), _) => eprintln!(
                "bathyd: {shown}: {lines} cached lines are the device's; all that is cached of it is kept"
            ),
            (_, Some(reason)) if what == "compared" => {
                eprintln!(
                    "bathyd: {shown}: all cached lines are compared with the device before they are used: {reason}"
                );
            }
            (_, Some(reason)) => eprintln!("bathyd: {shown}: all cached lines are dropped: {reason}"),
            _ => {}
        }
        let report = json!({"device": shown, "at_start": what, "sampled_lines": lines, "reason": reason});
        let is_known = matches!(beginning, Beginning::New | Beginning::Known);
        self.cache.notes.note(&self.uuid, &handle, now)?;
        beginnings.insert(handle, if is_known { Value::Null } else { report });
        Ok(())
    }

    fn in_use(&self, file: Arc<LiveFile>, device: Option<Arc<Device>>) -> Arc<dyn CachedFile> {
        let began = self.cache.began;
        Arc::new(EngineFile { file, began, device })
    }

    fn identity(&self, identity: &FileIdentity) -> Option<EngineIdentity> {
        EngineIdentity::new(self.uuid, &identity.handle_in(self.device)?)
    }
}

/// Compares what the cache has of changed files of a source, of a directory, with them, for as long as it is there and nothing
/// panics. It leaves three quarters of the time of its disk to others.
pub(crate) fn compare(source: &Weak<Source>, dir: &Path, containment: &Weak<Containment>) {
    while let Some((of, containment)) = source.upgrade().zip(containment.upgrade()) {
        let began = Instant::now();
        let (live, uuid) = of.in_cache();
        let compared = containment.contain(|| {
            perhaps("compare", dir);
            Ok(live.with_engine(|engine| engine.compare_next_of(uuid)))
        });
        drop((of, containment));
        thread::sleep(match compared {
            Ok(Some(0)) => Duration::ZERO,
            Ok(Some(_)) => 3 * began.elapsed(),
            Ok(None) => COMPARE_PERIOD,
            Err(_) => return,
        });
    }
}

impl FileCache for Source {
    fn attach(&self, inode: &Inode) -> io::Result<Option<Arc<dyn CachedFile>>> {
        let identity = match &inode.device {
            Some(device) => device.file_identity(self.device)?,
            None => FileIdentity::of(inode.fd()?)?,
        };
        let number = match &identity {
            FileIdentity::Device(number) => Some(*number),
            _ => None,
        };
        let Some(identity) = self.identity(&identity) else {
            return Ok(None);
        };
        if let Some(number) = number {
            let mut devices = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
            if *devices.entry(identity.handle().into()).or_insert(number) != number {
                eprintln!(
                    "bathyd: two devices have one name by which they would be known again: one is not cached"
                );
                return Ok(None);
            }
        }
        let fd = inode.fd()?;
        let store = match FileStore::open_unlocked(&path_of(&fd)) {
            Ok(store) => store,
            Err(error) if is_refused_to_all(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let Some(device) = inode.device.clone().filter(|_| inode.is_device()) else {
            let store: Arc<dyn BlockStore> = Arc::new(WrittenByCallers(store));
            let file = self.cache.live.attach(identity, store, false)?;
            return Ok(Some(self.in_use(file, None)));
        };
        device.check()?;
        let now = device.identity().clone();
        let handle: Box<[u8]> = identity.handle().into();
        let doubt = self.cache.notes.doubt(&self.uuid, &handle, &now);
        // Without stamps, as was asked for, lines of a device are compared with it.
        let has_stamps = self.cache.options.has_device_stamps;
        let trust = if doubt.is_some() {
            Trust::Nothing
        } else {
            Trust::Sample
        };
        let store: Arc<dyn BlockStore> = if has_stamps {
            Arc::new(CountedDevice::new(store, device.number(), trust))
        } else {
            Arc::new(WrittenByCallers(store))
        };
        let is_proven = !has_stamps && doubt.is_none();
        let file = self.cache.live.attach(identity, store, is_proven)?;
        self.note_beginning(handle, now, file.beginning(), doubt)?;
        Ok(Some(self.in_use(file, Some(device))))
    }

    fn forget(&self, identity: &FileIdentity, change: Change<'_>) -> io::Result<()> {
        match self.identity(identity) {
            Some(identity) => self.cache.live.forget(&identity, change),
            None => change(),
        }
    }
}

/// Whether nobody can open the file for writing, so that what is cached of it stays true.
fn is_refused_to_all(error: &io::Error) -> bool {
    let refusals = [Errno::ROFS, Errno::PERM, Errno::ACCESS, Errno::TXTBSY];
    refusals
        .iter()
        .any(|it| error.raw_os_error() == Some(it.raw_os_error()))
}

const NEW: &str = "empty: nothing is cached yet";

pub(crate) fn describe(recovery: Recovery, engine: &Engine) -> String {
    match recovery {
        // It was never written to, or all of it is gone: which of both is no difference.
        Recovery::Unclean { dropped_lines: 0, .. } if engine.lines().0 == 0 => NEW.to_owned(),
        Recovery::Clean => "clean: all that was cached is cached".to_owned(),
        Recovery::Unclean {
            marked_regions,
            dropped_lines,
        } => format!(
            "not stopped cleanly: {dropped_lines} lines in {marked_regions} regions that were being written are dropped; \
             each file is checked when it is opened"
        ),
        Recovery::Cold(reason) => format!("cold, nothing is cached ({reason:?})"),
        Recovery::Bypassed => "the SSD cannot be written: the cache is bypassed".to_owned(),
    }
}

struct EngineFile {
    file: Arc<LiveFile>,
    began: Instant,
    /// A block device, which may grow without a word.
    device: Option<Arc<Device>>,
}

impl EngineFile {
    /// Before what lies up to `end` is asked for: if the device has more than was known, that is known from here on.
    fn grow(&self, end: u64) -> io::Result<()> {
        let Some(device) = self.device.as_ref().filter(|_| end > self.file.size_bytes()) else {
            return Ok(());
        };
        let size_bytes = device.size_bytes()?;
        if size_bytes > self.file.size_bytes() {
            self.file.resize(size_bytes, || Ok(()))?;
        }
        Ok(())
    }

    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }
}

impl CachedFile for EngineFile {
    fn holds(&self, offset: u64, length: usize) -> bool {
        self.file.holds(offset, length)
    }

    fn read(&self, buffer: &mut [u8], offset: u64, events: &Events<'_>) -> io::Result<usize> {
        self.grow(offset.saturating_add(buffer.len() as u64))?;
        self.file.read_telling(buffer, offset, self.now_ns(), events)
    }

    fn write(&self, data: &[u8], offset: u64, is_buffered: bool) -> io::Result<usize> {
        self.grow(offset.saturating_add(data.len() as u64))?;
        // What a device counts of its writes is asked when they are there.
        if is_buffered && self.device.is_none() {
            return self.file.write_buffered(data, offset, self.now_ns());
        }
        self.file.write(data, offset, self.now_ns())
    }

    fn flush(&self) -> io::Result<()> {
        self.file.flush()
    }

    fn failed_flushes(&self) -> u64 {
        self.file.failed_flushes()
    }

    fn discard(&self, offset: u64, length: u64, change: Change<'_>) -> io::Result<()> {
        self.file.discard(offset..offset.saturating_add(length), change)
    }

    fn resize(&self, length: u64, change: Change<'_>) -> io::Result<()> {
        self.file.resize(length, change)
    }
}
