//! `bathy-cache` behind the front end. Today's engine has one backing of a fixed size: one file of one directory is cached.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

use bathy_cache::{
    BlockStore, CreateOptions, Engine, FileStore, FileWitness, OpenError, Options, Recovery, Witness, create,
    format::SuperblockError, open,
};
use rustix::fs::{FileType, Mode, OFlags, fstat, ftruncate, openat};
use serde_json::{Value, json};

use crate::cache::{CachedFile, FileCache};
use crate::handles::read_full;
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

    fn open_engine(&self, file: &Arc<File>) -> Result<(Engine, String), String> {
        let ssd_name = self.options.ssd.display();
        let failed = |error: &dyn std::fmt::Display| format!("{ssd_name}: {error}");
        let ssd: Arc<dyn BlockStore> =
            Arc::new(FileStore::open(&self.options.ssd).map_err(|it| failed(&it))?);
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let backing = FileStore::open(Path::new(&path));
        let backing: Arc<dyn BlockStore> =
            Arc::new(backing.map_err(|error| format!("the file cannot be locked: {error}"))?);
        let witness: Arc<dyn Witness> = Arc::new(FileWitness::new(self.options.witness.clone()));
        let open_it = || {
            open(
                Arc::clone(&ssd),
                Arc::clone(&backing),
                Arc::clone(&witness),
                &self.options.engine,
            )
        };
        let opened = match open_it() {
            Err(OpenError::Superblock(SuperblockError::NotACache)) if is_blank(&*ssd) => None,
            // It is a cache, and too small a one for what is cached now.
            Err(OpenError::BackingTooLarge(_)) => None,
            opened => Some(opened),
        };
        let is_new = opened.is_none();
        let opened = if let Some(opened) = opened {
            opened
        } else {
            let options = CreateOptions::new(random().map_err(|error| failed(&error))?);
            create(Arc::clone(&ssd), &*backing, &*witness, &options).map_err(|error| failed(&error))?;
            open_it()
        };
        let opened = opened.map_err(|error| failed(&error))?;
        if is_new {
            return Ok((opened.engine, "new: nothing is cached yet".to_owned()));
        }
        let stamp = std::fs::read_to_string(&self.options.stamp).ok();
        // It is of one stop and one start.
        drop(std::fs::remove_file(&self.options.stamp));
        let is_plausible = match opened.recovery {
            Recovery::Clean => !is_device(file) || (stamp.is_some() && stamp == device_stamp(file)),
            Recovery::Unclean { .. } => self.options.was_fenced,
            Recovery::Cold(_) | Recovery::Bypassed => true,
        };
        if is_plausible {
            return Ok((opened.engine, describe(opened.recovery)));
        }
        drop(opened);
        make_void(&self.options.witness).map_err(|error| failed(&error))?;
        let opened = open_it().map_err(|error| failed(&error))?;
        Ok((
            opened.engine,
            "cold, nothing is cached: the directory may have been used without the cache".to_owned(),
        ))
    }
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
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, cached)) = &state.file {
            if known == identity && cached.is_cached() {
                return Ok(Some(Arc::clone(cached) as Arc<dyn CachedFile>));
            }
        }
        let size = rustix::fs::seek(file, rustix::fs::SeekFrom::End(0))?;
        if size == 0 || self.chosen().as_ref() != Some(identity) {
            return Ok(None);
        }
        // Another file has the name now, or the size is another one.
        if let Some((_, before)) = state.file.take() {
            before.leave()?;
        }
        match self.open_engine(file) {
            Ok((engine, found)) => {
                eprintln!("bathyd: {}: {}", self.options.ssd.display(), found);
                let cached = Arc::new(EngineFile {
                    engine: RwLock::new(Some(engine)),
                    file: Arc::clone(file),
                    size_bytes: size,
                    began: Instant::now(),
                });
                state.file = Some((identity.clone(), Arc::clone(&cached)));
                state.found = Some(found);
                state.problem = None;
                Ok(Some(cached))
            }
            Err(problem) => {
                eprintln!("bathyd: NOT CACHED: {problem}; the directory is served as it is");
                state.problem = Some(problem);
                make_void(&self.options.witness)?;
                Ok(None)
            }
        }
    }

    fn tidy(&self) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let file = state.file.as_ref().map(|(_, file)| Arc::clone(file));
        drop(state);
        if let Some(file) = file {
            let engine = file.engine.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(engine) = &*engine {
                let _written = engine.tidy();
            }
        }
    }

    fn stop(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((_, file)) = state.file.take() else {
            return true;
        };
        let engine = file.engine.write().unwrap_or_else(PoisonError::into_inner).take();
        let is_clean = engine.is_none_or(|engine| engine.stop().unwrap_or(false));
        if let Some(stamp) = device_stamp(&file.file).filter(|_| is_clean && is_device(&file.file)) {
            return std::fs::write(&self.options.stamp, stamp).is_ok();
        }
        is_clean
    }

    fn status(&self) -> Value {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let ssd = self.options.ssd.to_string_lossy();
        let mut status = json!({
            "ssd": ssd,
            "file": self.options.file.to_string_lossy(),
            "problem": state.problem,
            "found": state.found,
        });
        if let Some((_, file)) = &state.file {
            let engine = file.engine.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(engine) = &*engine {
                status["engine"] = counts(engine);
            }
        }
        status
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
    let direction = |it: &bathy_cache::OpCounts| json!({"requests": it.requests, "requests_hit": it.requests_hit, "bytes": it.bytes, "bytes_hit": it.bytes_hit});
    let (mut lines, mut lines_in_memory, mut valid_bytes) = (0_u64, 0_u64, 0_u64);
    engine.for_each_line(&mut |line| {
        lines += 1;
        lines_in_memory += u64::from(line.is_in_memory);
        valid_bytes += u64::from(line.valid_units.count_ones()) * bathy_cache::format::UNIT_BYTES;
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

/// The file that is cached. Without an engine it is a plain file: after its size was changed, and after a stop.
struct EngineFile {
    engine: RwLock<Option<Engine>>,
    file: Arc<File>,
    size_bytes: u64,
    began: Instant,
}

impl EngineFile {
    fn is_cached(&self) -> bool {
        let engine = self.engine.read().unwrap_or_else(PoisonError::into_inner);
        engine.is_some()
    }

    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// Goes on without the cache, whose content is void first. When nobody has the file open any more, it is cached anew.
    fn leave(&self) -> io::Result<()> {
        let mut engine = self.engine.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(left) = &*engine {
            left.bypass()?;
            left.flush()?;
        }
        *engine = None;
        Ok(())
    }
}

impl CachedFile for EngineFile {
    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let engine = self.engine.read().unwrap_or_else(PoisonError::into_inner);
        let Some(engine) = &*engine else {
            return read_full(&self.file, buffer, offset);
        };
        let left = self.size_bytes.saturating_sub(offset);
        let length = (buffer.len() as u64).min(left) as usize;
        engine.read(&mut buffer[..length], offset, self.now_ns())?;
        Ok(length)
    }

    fn write(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let fits = offset
            .checked_add(data.len() as u64)
            .is_some_and(|end| end <= self.size_bytes);
        if !fits {
            self.leave()?;
        }
        let engine = self.engine.read().unwrap_or_else(PoisonError::into_inner);
        match &*engine {
            Some(engine) => engine.write(data, offset, self.now_ns()),
            None => self.file.write_all_at(data, offset),
        }
    }

    fn flush(&self) -> io::Result<()> {
        let engine = self.engine.read().unwrap_or_else(PoisonError::into_inner);
        match &*engine {
            Some(engine) => engine.flush(),
            None => self.file.sync_data(),
        }
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        let size = rustix::fs::seek(&self.file, rustix::fs::SeekFrom::End(0))?;
        let end = offset.saturating_add(length).min(size);
        let mut at = offset;
        while at < end {
            let length = (end - at).min(ZEROES.len() as u64) as usize;
            self.write(&ZEROES[..length], at)?;
            at += length as u64;
        }
        Ok(())
    }

    fn resize(&self, length: u64) -> io::Result<()> {
        if length != self.size_bytes {
            self.leave()?;
        }
        Ok(ftruncate(&self.file, length)?)
    }
}
