//! `bathy-cache` behind the front end: one engine for the files of all cached directories.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use bathy_cache::{
    BlockStore, CreateOptions, Engine, FileIdentity as EngineIdentity, FileStore, FileWitness, Latencies,
    OpCounts, OpenError, Options, Recovery, SourceStatus, Stamp, Witness, create,
    format::{SuperblockError, UNIT_BYTES, Uuid},
    open, void,
};
use rustix::fs::fstat;
use rustix::io::Errno;
use serde_json::{Value, json};

use crate::cache::{CachedFile, Change, FileCache};
use crate::identity::FileIdentity;
use crate::inodes::Inode;

/// Where a device holds something else, its first MiB says so.
const BLANK_BYTES: usize = 1 << 20;
/// The answer to a question has room for so many files.
const FILES_SHOWN: usize = 100;

/// Where a cache is, and how it is run.
pub(crate) struct EngineCacheOptions {
    /// A device or file; it holds a cache or only zeroes.
    pub(crate) ssd: PathBuf,
    /// A file apart from it, for the generation of its content.
    pub(crate) witness: PathBuf,
    /// Whether the last session is known to have ended cleanly, whatever the SSD says.
    pub(crate) was_clean: bool,
    /// Whether devices are known by what the kernel counts of their writes, and not by a comparison of lines alone.
    pub(crate) has_device_stamps: bool,
    /// How the engine is run.
    pub(crate) engine: Options,
}

/// A cache in use, or why there is none.
pub(crate) struct EngineCache {
    options: EngineCacheOptions,
    began: Instant,
    opened: Result<(Arc<Engine>, String), String>,
}

impl EngineCache {
    /// Opens the cache. If it cannot be used, what the SSD has is made void, as files change without it from now on.
    ///
    /// # Errors
    /// If that cannot be noted.
    pub(crate) fn open(options: EngineCacheOptions) -> io::Result<Self> {
        let ssd = options.ssd.display();
        let opened = open_engine(&options).map_err(|problem| format!("{ssd}: {problem}"));
        match &opened {
            Ok((_, found)) => eprintln!("bathyd: {ssd}: {found}"),
            Err(problem) => {
                eprintln!("bathyd: NOT CACHED: {problem}; directories are served as they are");
                void(&FileWitness::new(options.witness.clone()))?;
            }
        }
        Ok(Self {
            options,
            began: Instant::now(),
            opened,
        })
    }

    fn engine(&self) -> Option<&Arc<Engine>> {
        self.opened.as_ref().ok().map(|(engine, _)| engine)
    }

    /// To be called every few seconds.
    pub(crate) fn tidy(&self) {
        if let Some(engine) = self.engine() {
            let _written = engine.tidy();
        }
    }

    /// Others may use the files without the cache from now on, while some are still served.
    ///
    /// # Errors
    /// If that cannot be noted.
    pub(crate) fn leave(&self) -> io::Result<()> {
        match self.engine() {
            Some(engine) => engine.bypass(),
            None => Ok(()),
        }
    }

    /// Stops, when no file is used any more. Whether the next start finds everything as it was.
    pub(crate) fn stop(&self) -> bool {
        self.engine().is_none_or(|engine| engine.stop().unwrap_or(false))
    }

    /// What is known of the SSD and all directories together. It looks at each cached line.
    pub(crate) fn status(&self) -> Value {
        json!({
            "ssd": self.options.ssd.to_string_lossy(),
            "problem": self.opened.as_ref().err(),
            "found": self.opened.as_ref().ok().map(|(_, found)| found),
            "engine": self.engine().map(|engine| counts(engine)),
        })
    }
}

fn open_engine(options: &EngineCacheOptions) -> Result<(Arc<Engine>, String), String> {
    let failed = |error: &dyn std::fmt::Display| error.to_string();
    let ssd: Arc<dyn BlockStore> = Arc::new(FileStore::open(&options.ssd).map_err(|it| failed(&it))?);
    let witness: Arc<dyn Witness> = Arc::new(FileWitness::new(options.witness.clone()));
    let open_it = || open(Arc::clone(&ssd), Arc::clone(&witness), &options.engine);
    let opened = match open_it() {
        Err(OpenError::Superblock(SuperblockError::NotACache)) if is_blank(&*ssd) => {
            let new = CreateOptions::new(random().map_err(|error| failed(&error))?);
            create(Arc::clone(&ssd), &*witness, &new).map_err(|error| failed(&error))?;
            let opened = open_it().map_err(|error| failed(&error))?;
            return Ok((opened.engine, "new: nothing is cached yet".to_owned()));
        }
        opened => opened.map_err(|error| failed(&error))?,
    };
    if options.was_clean || opened.recovery != Recovery::Clean {
        return Ok((opened.engine, describe(opened.recovery)));
    }
    // The SSD has a clean stop, and the state directory a session after it: the SSD lost what was written to it since.
    drop(opened);
    void(&*witness).map_err(|error| failed(&error))?;
    let opened = open_it().map_err(|error| failed(&error))?;
    Ok((opened.engine, describe(opened.recovery)))
}

fn is_blank(ssd: &dyn BlockStore) -> bool {
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
    /// Sectors written and, in the upper half, discarded since the device is there.
    fn written_sectors(&self) -> Option<u64> {
        const WRITTEN_SECTORS: usize = 6;
        const DISCARDED_SECTORS: usize = 13;
        let (major, minor) = (rustix::fs::major(self.number), rustix::fs::minor(self.number));
        let counters = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
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
        let unknown = || io::Error::other("the kernel has no counters of the device");
        Ok(Stamp {
            modified_ns: Self::boot().ok_or_else(unknown)?,
            changed_ns: self.written_sectors().ok_or_else(unknown)?,
            ..stamp
        })
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
}

impl Source {
    /// `root` is the directory.
    ///
    /// # Errors
    /// If it cannot be asked.
    pub(crate) fn new(cache: Arc<EngineCache>, uuid: Uuid, root: impl AsFd) -> io::Result<Self> {
        let device = fstat(root)?.st_dev;
        Ok(Self { cache, uuid, device })
    }

    fn identity(&self, identity: &FileIdentity) -> Option<EngineIdentity> {
        EngineIdentity::new(self.uuid, &identity.handle_in(self.device)?)
    }
}

impl FileCache for Source {
    fn attach(&self, inode: &Inode) -> io::Result<Option<Arc<dyn CachedFile>>> {
        let identity = FileIdentity::of(&inode.fd)?;
        let (Some(engine), Some(identity)) = (self.cache.engine(), self.identity(&identity)) else {
            return Ok(None);
        };
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
        let file = if self.cache.options.has_device_stamps {
            engine.attach(identity, store)?
        } else {
            // As was asked for: lines of a device are compared with it.
            engine.attach_unchanged(identity, store)?
        };
        let began = self.cache.began;
        Ok(Some(Arc::new(EngineFile { file, began })))
    }

    fn forget(&self, identity: &FileIdentity, change: Change<'_>) -> io::Result<()> {
        match (self.cache.engine(), self.identity(identity)) {
            (Some(engine), Some(identity)) => engine.forget(&identity, change),
            _ => change(),
        }
    }

    fn status(&self) -> Value {
        let sources = self.cache.engine().map(|engine| engine.sources());
        let status = sources.and_then(|all| all.into_iter().find(|it| it.source == self.uuid));
        // A directory of which no file was used yet has no counts.
        status.map_or(Value::Null, |status| reports(&status))
    }

    fn busiest_files(&self) -> Value {
        let Some(engine) = self.cache.engine() else {
            return Value::Null;
        };
        let files = engine.busiest_files(usize::MAX).into_iter();
        let files = files.filter(|file| *file.identity.source() == self.uuid);
        let shown = files.take(FILES_SHOWN).map(|file| {
            let handle = file.identity.handle().iter();
            let handle: Vec<String> = handle.map(|byte| format!("{byte:02x}")).collect();
            json!({
                "handle": handle.concat(),
                "is_in_use": file.is_in_use,
                "reads": direction(&file.counts.reads),
                "writes": direction(&file.counts.writes),
                "last_access_ns": file.counts.last_access_ns,
                "cached_lines": file.cached_lines,
                "cached_bytes": file.cached_bytes,
            })
        });
        shown.collect()
    }
}

/// Whether nobody can open the file for writing, so that what is cached of it stays true.
fn is_refused_to_all(error: &io::Error) -> bool {
    let refusals = [Errno::ROFS, Errno::PERM, Errno::ACCESS, Errno::TXTBSY];
    refusals
        .iter()
        .any(|it| error.raw_os_error() == Some(it.raw_os_error()))
}

fn describe(found: Recovery) -> String {
    match found {
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

fn direction(it: &OpCounts) -> Value {
    json!({
        "requests": it.requests,
        "requests_hit": it.requests_hit,
        "requests_partial": it.requests_partial,
        "bytes": it.bytes,
        "bytes_hit": it.bytes_hit,
    })
}

fn latencies(it: &Latencies) -> Value {
    // Of no request there is no latency.
    if it.requests == 0 {
        return json!({"requests": 0});
    }
    json!({
        "requests": it.requests,
        "latency_ns_mean": it.latency_ns_mean,
        "latency_ns_p50": it.latency_ns_p50,
        "latency_ns_p99": it.latency_ns_p99,
        "latency_ns_p999": it.latency_ns_p999,
        "latency_ns_max": it.latency_ns_max,
    })
}

/// What is counted of a directory since the start.
fn reports(status: &SourceStatus) -> Value {
    let (reads, writes) = (&status.counts.reads, &status.counts.writes);
    json!({
        "io": {
            "cache_read_bytes": reads.bytes_hit,
            "source_read_bytes": reads.bytes - reads.bytes_hit,
            "source_write_bytes": writes.bytes,
        },
        "iops": {
            "read_hits": latencies(&status.read_hits),
            "read_misses": latencies(&status.read_misses),
            "writes": latencies(&status.writes),
        },
        "stats": {"reads": direction(reads), "writes": direction(writes)},
    })
}

/// The counters of an engine.
fn counts(engine: &Engine) -> Value {
    let counts = engine.counts();
    let (mut lines, mut lines_in_memory, mut valid_bytes) = (0_u64, 0_u64, 0_u64);
    engine.for_each_line(&mut |line| {
        lines += 1;
        lines_in_memory += u64::from(line.is_in_memory);
        valid_bytes += u64::from(line.valid_units.count_ones()) * UNIT_BYTES;
    });
    json!({
        "reads": direction(&counts.reads),
        "writes": direction(&counts.writes),
        "source_read_bytes": counts.backing_read_bytes,
        "ssd_write_bytes": counts.flash_write_bytes,
        "ssd_update_bytes": counts.flash_update_bytes,
        "ssd_errors": counts.ssd_errors,
        "mismatches": counts.mismatches,
        "evictions": counts.evictions,
        "refused": counts.refused,
        "changed_files": counts.changed_files,
        "capacity_lines": engine.capacity_lines(),
        "lines": lines,
        "lines_in_memory": lines_in_memory,
        "valid_bytes": valid_bytes,
        "marked_regions": engine.marked_regions(),
        "memory_bytes": engine.memory_bytes(),
        "stage_bytes": engine.stage_bytes(),
        "is_bypassed": engine.is_bypassed(),
    })
}

struct EngineFile {
    file: bathy_cache::CachedFile,
    began: Instant,
}

impl EngineFile {
    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }
}

impl CachedFile for EngineFile {
    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read(buffer, offset, self.now_ns())
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
