//! `bathy-cache` behind the front end: one engine for the files of all cached directories.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use bathy_cache::{
    BlockStore, CreateOptions, Engine, FileIdentity as EngineIdentity, FileStore, FileWitness, LiveCache,
    LiveFile, OpenError, Options, Recovery, SourceFetch, Stamp, Usage, Witness, create,
    format::{SuperblockError, Uuid},
    inspect, open, void,
};
use bathy_policy::PolicyKind;
use rustix::fs::{fstat, syncfs};
use rustix::io::Errno;
use serde_json::{Value, json};

use crate::attachment::Attachment;
use crate::cache::{CachedFile, Change, FileCache};
use crate::identity::FileIdentity;
use crate::inodes::Inode;
use crate::paths::Paths;
use crate::reports;

/// Where a device holds something else, its first MiB says so.
pub(crate) const BLANK_BYTES: usize = 1 << 20;
const NO_SSD: &str = "the cache has no SSD at the moment";

/// Where a cache is, and how it is run.
pub(crate) struct EngineCacheOptions {
    /// The cache's, if the configuration has one.
    pub(crate) name: Option<String>,
    /// A device or file; it holds a cache or only zeroes.
    pub(crate) ssd: PathBuf,
    /// A file apart from it, for the generation of its content.
    pub(crate) witness: PathBuf,
    /// Whether the SSD is to be left alone until somebody attaches it.
    pub(crate) is_detached: bool,
    /// Whether the last session is known to have ended cleanly, whatever the SSD says.
    pub(crate) was_clean: bool,
    /// Whether devices are known by what the kernel counts of their writes, and not by a comparison of lines alone.
    pub(crate) has_device_stamps: bool,
    /// The policy of a new cache.
    pub(crate) policy: PolicyKind,
    /// How the engine is run.
    pub(crate) engine: Options,
}

/// A cache in use, with its SSD or without one for now.
pub(crate) struct EngineCache {
    pub(crate) options: EngineCacheOptions,
    began: Instant,
    pub(crate) live: LiveCache,
    pub(crate) attachment: Attachment,
    /// The directories of sources.
    roots: Mutex<Vec<Weak<File>>>,
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
        if !matches!(&opened, Some(Ok(_))) && has_witness(&options.witness) {
            // Without one the next start believes no SSD either.
            void(&FileWitness::new(options.witness.clone()))?;
        }
        let witness: Arc<dyn Witness> = Arc::new(FileWitness::new(options.witness.clone()));
        let (used, attachment) = match opened {
            Some(Ok((engine, ssd, found))) => {
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
            live: LiveCache::new(used, witness, options.engine),
            options,
            began: Instant::now(),
            attachment,
            roots: Mutex::default(),
        })
    }

    /// Makes the times of files durable that were written to without the SSD, before it is believed again: `fdatasync` need not
    /// do that, and after a power cut such a file would look as if nobody had written to it.
    ///
    /// # Errors
    /// Those of a file system.
    pub(crate) fn make_times_durable(&self) -> io::Result<()> {
        let mut roots = self.roots.lock().unwrap_or_else(PoisonError::into_inner);
        roots.retain(|root| root.strong_count() > 0);
        let used: Vec<_> = roots.iter().filter_map(Weak::upgrade).collect();
        drop(roots);
        used.iter().try_for_each(|root| Ok(syncfs(&**root)?))
    }

    /// To be called every few seconds.
    pub(crate) fn tidy(self: &Arc<Self>) {
        let _written = self.live.tidy();
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
        !self.live.has_left_cleanly() || void(&FileWitness::new(self.options.witness.clone())).is_ok()
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
pub(crate) fn has_witness(path: &Path) -> bool {
    std::fs::symlink_metadata(path)
        .err()
        .is_none_or(|error| error.kind() != io::ErrorKind::NotFound)
}

type OpenedEngine = (Arc<Engine>, Arc<dyn BlockStore>, String);

fn open_engine(options: &EngineCacheOptions) -> Result<OpenedEngine, String> {
    let failed = |error: &dyn std::fmt::Display| error.to_string();
    let ssd = own_store(&options.ssd, options)?;
    let witness: Arc<dyn Witness> = Arc::new(FileWitness::new(options.witness.clone()));
    let open_it = || open(Arc::clone(&ssd), Arc::clone(&witness), &options.engine);
    if make_if_blank(&ssd, &*witness, options.policy)? {
        let opened = open_it().map_err(|error| failed(&error))?;
        return Ok((opened.engine, ssd, NEW.to_owned()));
    }
    let opened = open_it().map_err(|error| failed(&error))?;
    if options.was_clean || opened.recovery != Recovery::Clean {
        let found = describe(opened.recovery, &opened.engine);
        return Ok((opened.engine, ssd, found));
    }
    // The SSD has a clean stop, and the state directory a session after it: the SSD lost what was written to it since.
    drop(opened);
    void(&*witness).map_err(|error| failed(&error))?;
    let opened = open_it().map_err(|error| failed(&error))?;
    let found = describe(opened.recovery, &opened.engine);
    Ok((opened.engine, ssd, found))
}

/// Opens the SSD of the configuration, unless it is the cache of another state directory.
pub(crate) fn own_store(path: &Path, options: &EngineCacheOptions) -> Result<Arc<dyn BlockStore>, String> {
    let ssd: Arc<dyn BlockStore> = Arc::new(FileStore::open(path).map_err(|error| error.to_string())?);
    if !has_witness(&options.witness) && inspect(Arc::clone(&ssd)).is_ok() {
        return Err(
            "it is the cache of another state directory; `bathyd create --force` takes it".to_owned(),
        );
    }
    Ok(ssd)
}

/// Makes an SSD that holds nothing a cache: whether it was one.
pub(crate) fn make_if_blank(
    ssd: &Arc<dyn BlockStore>,
    witness: &dyn Witness,
    policy: PolicyKind,
) -> Result<bool, String> {
    let failed = |error: &dyn std::fmt::Display| error.to_string();
    let is_new = matches!(
        inspect(Arc::clone(ssd)),
        Err(OpenError::Superblock(SuperblockError::NotACache))
    ) && is_blank(&**ssd);
    if is_new {
        let new = CreateOptions {
            policy,
            ..CreateOptions::new(random().map_err(|error| failed(&error))?)
        };
        create(Arc::clone(ssd), witness, &new).map_err(|error| failed(&error))?;
    }
    Ok(is_new)
}

pub(crate) fn is_blank(ssd: &dyn BlockStore) -> bool {
    let bytes = ssd.size_bytes().unwrap_or(0).min(BLANK_BYTES as u64) as usize;
    let mut head = vec![0; bytes];
    ssd.read(&mut head, 0).is_ok() && head.iter().all(|&byte| byte == 0)
}

pub(crate) fn random<const BYTES: usize>() -> io::Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// A device whose stamp has what the kernel counts of its writes: who uses it without the cache changes that.
struct CountedDevice {
    store: FileStore,
    number: u64,
}

impl CountedDevice {
    /// Sectors written and, in the upper half, discarded since the device is there; `None` if they are not counted.
    fn written_sectors(&self) -> Option<u64> {
        const WRITTEN_SECTORS: usize = 6;
        const DISCARDED_SECTORS: usize = 13;
        let (major, minor) = (rustix::fs::major(self.number), rustix::fs::minor(self.number));
        let attributes = format!("/sys/dev/block/{major}:{minor}");
        let read = |name: &str| std::fs::read_to_string(format!("{attributes}/{name}")).ok();
        // A device for which this is switched off counts nothing, and that of a partition is its disk's.
        let is_counted = read("queue/iostats").or_else(|| read("../queue/iostats"))?;
        if is_counted.trim() != "1" {
            return None;
        }
        let counters = read("stat")?;
        let counters: Vec<&str> = counters.split_whitespace().collect();
        let written: u64 = counters.get(WRITTEN_SECTORS)?.parse().ok()?;
        // Older kernels do not count discards.
        let discarded: u64 = counters.get(DISCARDED_SECTORS).unwrap_or(&"0").parse().ok()?;
        Some(written.wrapping_add(discarded.rotate_left(32)))
    }

    /// Names the time since the machine was started: a half of 128 random bits, and never 0, which would say that there are
    /// no times.
    fn boot() -> Option<u64> {
        let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let digits = id.trim().replace('-', "");
        Some(u64::from_str_radix(digits.get(..16)?, 16).ok()? | 1)
    }
}

impl BlockStore for CountedDevice {
    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.store.read(buffer, offset)
    }

    fn write(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.store.write(data, offset)
    }

    fn flush(&self) -> io::Result<()> {
        self.store.flush()
    }

    fn stamp(&self) -> io::Result<Stamp> {
        let stamp = self.store.stamp()?;
        let times = Self::boot().zip(self.written_sectors());
        // Without counters there is nothing by which a change would be known: the device is compared.
        Ok(times.map_or(stamp, |(boot, written)| Stamp {
            modified_ns: boot,
            changed_ns: written,
            ..stamp
        }))
    }

    fn size_bytes(&self) -> io::Result<u64> {
        self.store.size_bytes()
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
}

impl Source {
    /// `root` is the directory.
    ///
    /// # Errors
    /// If it cannot be asked, or its file system not be made durable.
    pub(crate) fn new(cache: Arc<EngineCache>, uuid: Uuid, root: impl AsFd) -> io::Result<Self> {
        let device = fstat(&root)?.st_dev;
        // A descriptor that is open as a path alone makes nothing durable.
        let root = File::open(format!("/proc/self/fd/{}", root.as_fd().as_raw_fd()))?;
        // See `make_times_durable`.
        syncfs(&root)?;
        let root = Arc::new(root);
        let mut roots = cache.roots.lock().unwrap_or_else(PoisonError::into_inner);
        roots.push(Arc::downgrade(&root));
        drop(roots);
        Ok(Self {
            cache,
            uuid,
            device,
            _root: root,
            devices: Mutex::default(),
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

    fn identity(&self, identity: &FileIdentity) -> Option<EngineIdentity> {
        EngineIdentity::new(self.uuid, &identity.handle_in(self.device)?)
    }
}

impl FileCache for Source {
    fn attach(&self, inode: &Inode) -> io::Result<Option<Arc<dyn CachedFile>>> {
        let identity = FileIdentity::of(&inode.fd)?;
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
        let store = match FileStore::open_unlocked(&inode.path()) {
            Ok(store) => store,
            Err(error) if is_refused_to_all(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let store: Arc<dyn BlockStore> = if inode.is_device && self.cache.options.has_device_stamps {
            let number = fstat(&inode.fd)?.st_rdev;
            Arc::new(CountedDevice { store, number })
        } else {
            Arc::new(store)
        };
        // Without stamps, as was asked for, lines of a device are compared with it.
        let is_proven = !self.cache.options.has_device_stamps;
        let file = self.cache.live.attach(identity, store, is_proven)?;
        let began = self.cache.began;
        Ok(Some(Arc::new(EngineFile { file, began })))
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

pub(crate) const NEW: &str = "empty: nothing is cached yet";

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
}

impl EngineFile {
    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }
}

impl CachedFile for EngineFile {
    fn holds(&self, offset: u64, length: usize) -> bool {
        self.file.holds(offset, length)
    }

    fn read(&self, buffer: &mut [u8], offset: u64, announce: &dyn Fn()) -> io::Result<usize> {
        self.file.read_announced(buffer, offset, self.now_ns(), announce)
    }

    fn write(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.file.write(data, offset, self.now_ns())
    }

    fn flush(&self) -> io::Result<()> {
        self.file.flush()
    }

    fn discard(&self, offset: u64, length: u64, change: Change<'_>) -> io::Result<()> {
        self.file.discard(offset..offset.saturating_add(length), change)
    }

    fn resize(&self, length: u64, change: Change<'_>) -> io::Result<()> {
        self.file.resize(length, change)
    }
}
