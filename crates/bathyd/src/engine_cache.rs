//! `bathy-cache` behind the front end: one file of one directory is cached.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bathy_cache::{
    BlockStore, CreateOptions, Engine, FileStore, FileWitness, Latencies, OpenError, Opened, Options,
    Recovery, Witness, create,
    format::{SuperblockError, Uuid},
    open,
};
use rustix::fs::{FallocateFlags, FileType, Mode, OFlags, fallocate, fstat, ftruncate, openat};
use serde_json::{Value, json};

use crate::cache::{CachedFile, FileCache};
use crate::identity::FileIdentity;
use crate::inodes::follow;

/// Where a device holds something else, its first MiB says so.
const BLANK_BYTES: usize = 1 << 20;
/// The file's bytes that are made zero at once.
const ZEROES: &[u8] = &[0; 256 << 10];

/// Which file is cached, and where.
#[derive(Debug)]
pub struct EngineCacheOptions {
    /// A device or file; it holds a cache or only zeroes.
    pub ssd: PathBuf,
    /// A file apart from it, for the generation of its content.
    pub witness: PathBuf,
    /// The directory's absolute path.
    pub directory: PathBuf,
    /// The name in it of the file, or of the link to the device, that is cached.
    pub file: OsString,
    /// A file apart from the SSD, for what a device had been written to at a clean stop.
    pub stamp: PathBuf,
    /// A file apart from the SSD, for the name that the directory has in the cache.
    pub source: PathBuf,
    /// Whether nobody can have used the directory since the last session ended, if that did not end cleanly.
    pub was_fenced: bool,
    /// How the cache is run.
    pub engine: Options,
}

/// A [`FileCache`] of one file.
pub struct EngineCache {
    options: EngineCacheOptions,
    root: OwnedFd,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    engine: Option<Arc<Engine>>,
    file: Option<(FileIdentity, Arc<EngineFile>)>,
    found: Option<String>,
    /// Why nothing is cached.
    problem: Option<String>,
}

impl EngineCache {
    /// `root` is the directory, open with `O_PATH`. The SSD is opened when the file is.
    pub fn new(root: OwnedFd, options: EngineCacheOptions) -> Self {
        Self {
            options,
            root,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file that is to be cached, if it is there.
    fn chosen(&self) -> Option<FileIdentity> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let name = &self.options.file;
        let mut fd = openat(&self.root, name, flags, Mode::empty()).ok()?;
        if FileType::from_raw_mode(fstat(&fd).ok()?.st_mode) == FileType::Symlink {
            fd = follow(&self.root, name, &self.options.directory)?;
        }
        FileIdentity::of(&fd).ok()
    }

    /// `file` is the one that will be cached. Returns how the cache was found, too.
    fn open_engine(&self, file: &File) -> Result<(Arc<Engine>, String), String> {
        let ssd_name = self.options.ssd.display();
        let failed = |error: &dyn std::fmt::Display| format!("{ssd_name}: {error}");
        let ssd: Arc<dyn BlockStore> =
            Arc::new(FileStore::open(&self.options.ssd).map_err(|it| failed(&it))?);
        let witness: Arc<dyn Witness> = Arc::new(FileWitness::new(self.options.witness.clone()));
        let open_it = || open(Arc::clone(&ssd), Arc::clone(&witness), &self.options.engine);
        let opened = match open_it() {
            Err(OpenError::Superblock(SuperblockError::NotACache)) if is_blank(&*ssd) => None,
            opened => Some(opened),
        };
        let is_new = opened.is_none();
        let opened = if let Some(opened) = opened {
            opened
        } else {
            let options = CreateOptions::new(random().map_err(|error| failed(&error))?);
            create(Arc::clone(&ssd), &*witness, &options).map_err(|error| failed(&error))?;
            open_it()
        };
        let Opened { engine, recovery } = opened.map_err(|error| failed(&error))?;
        if is_new {
            return Ok((engine, "new: nothing is cached yet".to_owned()));
        }
        let stamp = std::fs::read_to_string(&self.options.stamp).ok();
        // It is of one stop and one start.
        drop(std::fs::remove_file(&self.options.stamp));
        let is_plausible = match recovery {
            Recovery::Clean => !is_device(file) || (stamp.is_some() && stamp == device_stamp(file)),
            Recovery::Unclean { .. } => self.options.was_fenced,
            Recovery::Cold(_) | Recovery::Bypassed => true,
        };
        if is_plausible {
            return Ok((engine, describe(recovery)));
        }
        drop(engine);
        make_void(&self.options.witness).map_err(|error| failed(&error))?;
        let Opened { engine, .. } = open_it().map_err(|error| failed(&error))?;
        Ok((
            engine,
            "cold, nothing is cached: the directory may have been used without the cache".to_owned(),
        ))
    }

    /// Makes `file` the one that is cached.
    fn begin(
        &self,
        state: &mut State,
        identity: &FileIdentity,
        file: &Arc<File>,
    ) -> Result<Arc<EngineFile>, String> {
        let engine = if let Some(engine) = &state.engine {
            Arc::clone(engine)
        } else {
            let (engine, found) = self.open_engine(file)?;
            eprintln!("bathyd: {}: {found}", self.options.ssd.display());
            state.found = Some(found);
            state.engine = Some(Arc::clone(&engine));
            engine
        };
        let source = source_uuid(&self.options.source, &self.options.directory);
        let source = source.map_err(|error| format!("{}: {error}", self.options.source.display()))?;
        let known_as = bathy_cache::FileIdentity::new(source, &identity.durable())
            .ok_or("the handles of this file system are too long")?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let store = FileStore::open(Path::new(&path));
        let store = store.map_err(|error| format!("the file cannot be locked: {error}"))?;
        let cached = engine.attach(known_as, Arc::new(store));
        let cached = cached.map_err(|error| format!("the file cannot be cached: {error}"))?;
        Ok(Arc::new(EngineFile {
            cached,
            file: Arc::clone(file),
            began: Instant::now(),
        }))
    }
}

/// The name that a directory has in the cache: another directory with files of the same handles has another one.
fn source_uuid(path: &Path, directory: &Path) -> io::Result<Uuid> {
    let kept = std::fs::read(path).unwrap_or_default();
    let named = directory.as_os_str().as_encoded_bytes();
    if let Some((uuid, rest)) = kept.split_first_chunk() {
        if rest == named {
            return Ok(*uuid);
        }
    }
    let uuid: Uuid = random()?;
    std::fs::write(path, [&uuid, named].concat())?;
    Ok(uuid)
}

/// Files are used without their cache from now on: what the SSD has of them is void for every later start.
pub(crate) fn make_void(witness: &Path) -> io::Result<()> {
    let witness = FileWitness::new(witness.to_owned());
    witness.store(witness.load().unwrap_or(0) + 1)
}

fn is_device(file: &File) -> bool {
    fstat(file).is_ok_and(|it| FileType::from_raw_mode(it.st_mode) == FileType::BlockDevice)
}

/// How much was written to a device and discarded since the machine was started, and which start that was: who uses the device
/// without the cache changes it. A file has its times for that.
fn device_stamp(file: &File) -> Option<String> {
    const WRITTEN_SECTORS: usize = 6;
    const DISCARDED_SECTORS: usize = 13;
    let number = fstat(file).ok()?.st_rdev;
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let counters = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
    let counters: Vec<&str> = counters.split_whitespace().collect();
    let written = counters.get(WRITTEN_SECTORS)?;
    // Older kernels do not count discards.
    let discarded = counters.get(DISCARDED_SECTORS).unwrap_or(&"0");
    let boot = boot_id()?;
    Some(format!("{boot} {major}:{minor} {written} {discarded}"))
}

/// Names the time since the machine was started.
pub(crate) fn boot_id() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned())
}

fn is_blank(ssd: &dyn BlockStore) -> bool {
    let bytes = ssd.size_bytes().unwrap_or(0).min(BLANK_BYTES as u64) as usize;
    let mut head = vec![0; bytes];
    ssd.read(&mut head, 0).is_ok() && head.iter().all(|&byte| byte == 0)
}

fn random<const BYTES: usize>() -> io::Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

impl FileCache for EngineCache {
    fn attach(&self, identity: &FileIdentity, file: &Arc<File>) -> io::Result<Option<Arc<dyn CachedFile>>> {
        let mut state = self.state();
        if let Some((known, cached)) = &state.file {
            if known == identity {
                return Ok(Some(Arc::clone(cached) as Arc<dyn CachedFile>));
            }
        }
        if self.chosen().as_ref() != Some(identity) {
            return Ok(None);
        }
        // Another file has the name now. Who has this one open goes on; later users find it under other names, uncached.
        if let Some((_, before)) = state.file.take() {
            before.cached.forget(|| Ok(()))?;
        }
        match self.begin(&mut state, identity, file) {
            Ok(cached) => {
                state.file = Some((identity.clone(), Arc::clone(&cached)));
                state.problem = None;
                Ok(Some(cached))
            }
            Err(problem) => {
                eprintln!("bathyd: NOT CACHED: {problem}; the directory is served as it is");
                state.problem = Some(problem);
                // What the SSD has of it is stale from now on.
                if let Some(engine) = state.engine.take() {
                    engine.bypass()?;
                }
                make_void(&self.options.witness)?;
                Ok(None)
            }
        }
    }

    fn tidy(&self) {
        let engine = self.state().engine.clone();
        if let Some(engine) = engine {
            let _written = engine.tidy();
        }
    }

    fn stop(&self) -> bool {
        let mut state = self.state();
        let Some(engine) = state.engine.take() else {
            return true;
        };
        let is_clean = engine.stop().unwrap_or(false);
        let device = state.file.take().filter(|(_, file)| is_device(&file.file));
        match device.and_then(|(_, file)| device_stamp(&file.file)) {
            Some(stamp) if is_clean => std::fs::write(&self.options.stamp, stamp).is_ok(),
            _ => is_clean,
        }
    }

    fn status(&self) -> Value {
        let state = self.state();
        let ssd = self.options.ssd.to_string_lossy();
        json!({
            "ssd": ssd,
            "file": self.options.file.to_string_lossy(),
            "problem": state.problem,
            "found": state.found,
            "engine": state.engine.as_deref().map(counts),
        })
    }
}

fn describe(found: Recovery) -> String {
    match found {
        Recovery::Clean => "clean: all that was cached is cached".to_owned(),
        Recovery::Unclean {
            marked_regions,
            dropped_lines,
        } => format!(
            "not stopped cleanly: {dropped_lines} lines in {marked_regions} regions that were being written are dropped, \
             all others are cached"
        ),
        Recovery::Cold(reason) => format!("cold, nothing is cached ({reason:?})"),
        Recovery::Bypassed => "the SSD cannot be written: the cache is bypassed".to_owned(),
    }
}

/// The counters of an engine.
fn counts(engine: &Engine) -> Value {
    let counts = engine.counts();
    let direction = |it: &bathy_cache::OpCounts| json!({"requests": it.requests, "requests_hit": it.requests_hit, "requests_partial": it.requests_partial, "bytes": it.bytes, "bytes_hit": it.bytes_hit});
    let (mut lines, mut lines_in_memory, mut valid_bytes) = (0_u64, 0_u64, 0_u64);
    engine.for_each_line(&mut |line| {
        lines += 1;
        lines_in_memory += u64::from(line.is_in_memory);
        valid_bytes += u64::from(line.valid_units.count_ones()) * bathy_cache::format::UNIT_BYTES;
    });
    let sources = engine.sources();
    let latencies: Vec<_> = sources
        .iter()
        .map(|it| json!({"read_hits": latency(&it.read_hits), "read_misses": latency(&it.read_misses), "writes": latency(&it.writes)}))
        .collect();
    json!({
        "latencies": latencies.first(),
        "reads": direction(&counts.reads),
        "writes": direction(&counts.writes),
        "source_read_bytes": counts.backing_read_bytes,
        "ssd_write_bytes": counts.flash_write_bytes,
        "ssd_update_bytes": counts.flash_update_bytes,
        "ssd_errors": counts.ssd_errors,
        "mismatches": counts.mismatches,
        "changed_files": counts.changed_files,
        "evictions": counts.evictions,
        "refused": counts.refused,
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

fn latency(of: &Latencies) -> Value {
    json!({
        "requests": of.requests,
        "latency_ns_mean": of.latency_ns_mean,
        "latency_ns_p50": of.latency_ns_p50,
        "latency_ns_p99": of.latency_ns_p99,
        "latency_ns_p999": of.latency_ns_p999,
        "latency_ns_max": of.latency_ns_max,
    })
}

/// The file that is cached.
struct EngineFile {
    cached: bathy_cache::CachedFile,
    file: Arc<File>,
    began: Instant,
}

impl EngineFile {
    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }
}

impl CachedFile for EngineFile {
    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.cached.read(buffer, offset, self.now_ns())
    }

    fn write(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.cached.write(data, offset, self.now_ns())
    }

    fn flush(&self) -> io::Result<()> {
        self.cached.flush()
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        let end = offset.saturating_add(length).min(self.cached.size_bytes());
        if offset >= end {
            return Ok(());
        }
        let punch = || {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            Ok(fallocate(&self.file, flags, offset, end - offset)?)
        };
        match self.cached.discard(offset..end, punch) {
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {}
            punched => return punched,
        }
        let mut at = offset;
        while at < end {
            let length = (end - at).min(ZEROES.len() as u64) as usize;
            self.write(&ZEROES[..length], at)?;
            at += length as u64;
        }
        Ok(())
    }

    fn resize(&self, length: u64) -> io::Result<()> {
        self.cached.resize(length, || Ok(ftruncate(&self.file, length)?))
    }
}
