//! What an SSD holds, and making it a cache.

use std::fs::{File, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use bathy_cache::format::{SuperblockError, Uuid, VERSIONS};
use bathy_cache::{
    BlockStore, CreateError, CreateOptions, FileStore, GenerationFile, GenerationStore, OpenError, create,
    inspect, resize,
};
use bathy_cache_model::{LineSize, MemoryBudget};
use bathy_policy::PolicyKind;
use serde_json::{Value, json};

use crate::cache_size::{size_failure, with_file_of_size};
use crate::config::{Config, memory_hint};
use crate::device_identity::DeviceIdentity;
use crate::failure::Failure;
use crate::random::random;
use crate::state_files::{generation_path, lock_state};

/// Where a device holds something else, its first MiB says so.
const BLANK_BYTES: usize = 1 << 20;

/// How an SSD becomes a cache.
pub(crate) struct Making {
    pub(crate) policy: PolicyKind,
    pub(crate) line: LineSize,
    pub(crate) size_bytes: Option<u64>,
    pub(crate) memory: MemoryBudget,
    /// Whatever it holds.
    pub(crate) is_forced: bool,
}

/// What is known of an SSD without an engine.
pub(crate) struct Found {
    store: Arc<dyn BlockStore>,
    size_bytes: u64,
    cache: Result<bathy_cache::format::Superblock, OpenError>,
    is_blank: bool,
    /// A file system, a partition table or the like.
    holds: Option<String>,
    identity: DeviceIdentity,
}

fn failed(path: &Path, error: &dyn std::fmt::Display, hint: &str) -> Failure {
    Failure::new(format!("{}: {error}", path.display()), hint)
}

/// Opens an SSD for this process alone. Nothing is written.
pub(crate) fn open_alone(path: &Path) -> Result<FileStore, Failure> {
    let metadata = std::fs::metadata(path)
        .map_err(|error| failed(path, &error, "name a block device or a file that exists"))?;
    let kind = metadata.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Err(failed(
            path,
            &"neither a block device nor a file",
            "name the SSD itself",
        ));
    }
    if let Some(device) = loop_device_over(&metadata).filter(|_| kind.is_file()) {
        return Err(failed(
            path,
            &format!("in use: it is behind /dev/{device}"),
            &format!("losetup --detach /dev/{device}, if nobody uses that"),
        ));
    }
    FileStore::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => failed(
            path,
            &"in use by another process, such as bathyd, or by what was sent to it and has not ended",
            "stop the process first",
        ),
        io::ErrorKind::ResourceBusy => failed(
            path,
            &"in use: it is mounted, a part of another device, or another program has it alone",
            "unmount it, or stop who uses it: lsblk shows that",
        ),
        _ => failed(path, &error, "run as root, and name a block device or a file"),
    })
}

/// The name of a loop device over a file.
fn loop_device_over(file: &Metadata) -> Option<String> {
    let devices = std::fs::read_dir("/sys/block").ok()?.flatten();
    devices
        .filter(|device| {
            let path = std::fs::read_to_string(device.path().join("loop/backing_file"));
            let behind = path.and_then(|path| std::fs::metadata(path.trim_end_matches('\n')));
            behind.is_ok_and(|behind| (behind.dev(), behind.ino()) == (file.dev(), file.ino()))
        })
        .find_map(|device| device.file_name().into_string().ok())
}

/// Whether an SSD holds nothing that would say what it is.
fn is_blank(ssd: &dyn BlockStore) -> bool {
    let bytes = ssd.size_bytes().unwrap_or(0).min(BLANK_BYTES as u64) as usize;
    let mut head = vec![0; bytes];
    ssd.read(&mut head, 0).is_ok() && head.iter().all(|&byte| byte == 0)
}

impl Found {
    /// Opens it for this process alone. Nothing is written.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let store: Arc<dyn BlockStore> = Arc::new(open_alone(path)?);
        let unreadable = |error: io::Error| failed(path, &error, "the SSD must be readable");
        Ok(Self {
            size_bytes: store.size_bytes().map_err(unreadable)?,
            cache: inspect(Arc::clone(&store)),
            is_blank: is_blank(&*store),
            holds: held(path),
            identity: File::open(path)
                .and_then(|file| DeviceIdentity::of(&file))
                .map_err(unreadable)?,
            store,
        })
    }

    /// Whether it holds nothing.
    pub(crate) fn is_blank(&self) -> bool {
        self.is_blank
    }

    /// Names the cache that it holds.
    pub(crate) fn uuid(&self) -> Option<Uuid> {
        self.cache.as_ref().ok().map(|found| found.uuid)
    }

    /// Makes it an empty cache, unless it holds something and force is not used.
    pub(crate) fn make(
        self,
        ssd: &Path,
        generations: &GenerationFile,
        making: &Making,
    ) -> Result<(), Failure> {
        if making.size_bytes.is_some_and(|bytes| bytes > self.size_bytes) {
            let problem = format!("it has {} bytes, fewer than --size", self.size_bytes);
            return Err(failed(ssd, &problem, "leave --size out to use all of it"));
        }
        if let Some((problem, hint)) = self.objection(generations).filter(|_| !making.is_forced) {
            return Err(failed(ssd, &problem, hint));
        }
        let cannot_write = |error: &dyn std::fmt::Display| failed(ssd, error, "the SSD must be writable");
        let uuid = random().map_err(|error| cannot_write(&error))?;
        let options = CreateOptions {
            size_bytes: making.size_bytes,
            policy: making.policy,
            line: making.line,
            memory: making.memory,
            ..CreateOptions::new(uuid)
        };
        options.check(self.size_bytes).map_err(|error| match error {
            CreateError::TooSmall(_) => failed(ssd, &error, "a cache needs at least 4 MiB"),
            CreateError::OverBudget(over) => {
                let gib = over.budget_needed().bytes as f64 / f64::from(1 << 30);
                let needed = format!("--memory {:.1}G", (gib * 10.0).ceil() / 10.0);
                failed(ssd, &over, &memory_hint(&over, &needed))
            }
            error => cannot_write(&error),
        })?;
        if !self.is_blank || self.holds.is_some() {
            wipe(&*self.store, self.size_bytes).map_err(|error| cannot_write(&error))?;
        }
        create(Arc::clone(&self.store), generations, &options).map_err(|error| cannot_write(&error))
    }

    fn report(&self) -> Value {
        let found = self.cache.as_ref().ok();
        let uuid = found.map(|found| found.uuid.map(|byte| format!("{byte:02x}")).concat());
        let version = match &self.cache {
            Ok(found) => Some(found.version()),
            Err(OpenError::Superblock(SuperblockError::Version(version))) => Some(*version),
            Err(_) => None,
        };
        json!({
            "is_cache": version.is_some(),
            "uuid": uuid,
            "format": version,
            "size_bytes": self.size_bytes,
            "line_bytes": found.map(|found| found.geometry.line_bytes),
            "capacity_bytes": found.map(|found| found.geometry.slots_total() * found.geometry.line().bytes()),
            "is_clean": found.map(|found| found.is_clean),
            "generation": found.map(|found| found.generation),
            "is_blank": self.is_blank,
            "holds": self.holds,
            "identity": self.identity,
        })
    }

    /// Why it is not made a cache without force.
    fn objection(&self, generations: &GenerationFile) -> Option<(String, &'static str)> {
        const FORCE: &str = "name another device; --force takes it, and what it holds is lost";
        if let Some(holds) = &self.holds {
            return Some((format!("it holds {holds}"), FORCE));
        }
        match &self.cache {
            Ok(found) if generations.load() == Some(found.generation) => Some((
                "it is this cache already".to_owned(),
                "start bathyd; --force makes it anew, and all that is cached is lost",
            )),
            Ok(_) => Some((
                "it is the cache of another state directory, or one that was given up".to_owned(),
                FORCE,
            )),
            Err(OpenError::Superblock(SuperblockError::Version(version))) => Some((
                format!(
                    "it is a cache of format {version}, and this program knows {} and {}",
                    VERSIONS[0], VERSIONS[1]
                ),
                FORCE,
            )),
            Err(_) if !self.is_blank => Some(("it holds something that is not known".to_owned(), FORCE)),
            Err(_) => None,
        }
    }
}

/// What `blkid` finds there, if it is installed: the types of file system and partition table.
fn held(path: &Path) -> Option<String> {
    let mut asked: io::Result<_> = Err(io::ErrorKind::NotFound.into());
    for program in ["blkid", "/usr/sbin/blkid", "/sbin/blkid"] {
        if asked.is_err() {
            asked = Command::new(program)
                .args(["-p", "-o", "export"])
                .arg(path)
                .output();
        }
    }
    let asked = asked.ok()?;
    // 2: nothing is found. 8: signatures of several things.
    match asked.status.code() {
        Some(2) => None,
        Some(8) => Some("signatures of several file systems".to_owned()),
        _ => {
            let text = String::from_utf8_lossy(&asked.stdout).into_owned();
            let types = text.lines().filter_map(|line| {
                let (name, value) = line.split_once('=')?;
                ["TYPE", "PTTYPE"].contains(&name).then(|| value.to_owned())
            });
            types.reduce(|one, other| format!("{one}, {other}"))
        }
    }
}

pub(crate) fn print(report: &Value) -> Result<(), Failure> {
    writeln!(io::stdout(), "{report}")
        .map_err(|error| Failure::new(error.to_string(), "stdout must be writable"))
}

/// `bathyd inspect DEVICE`.
pub(crate) fn run_inspect(path: &Path) -> Result<(), Failure> {
    print(&Found::open(path)?.report())
}

/// `bathyd create CONFIG [--force] [--size BYTES]`: the SSD of a configuration becomes an empty cache.
pub(crate) fn run_create(arguments: &[String]) -> Result<(), Failure> {
    let usage = |problem: &str| {
        Failure::new(
            problem.to_owned(),
            "bathyd create CONFIG.json [--force] [--size BYTES]",
        )
    };
    let (mut path, mut is_forced, mut size_bytes) = (None, false, None);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--force" => is_forced = true,
            "--size" => {
                let bytes = rest.next().and_then(|bytes| bytes.parse::<u64>().ok());
                size_bytes = Some(bytes.ok_or_else(|| usage("--size takes a number of bytes"))?);
            }
            other if other.starts_with('-') || path.is_some() => {
                return Err(usage(&format!("{other} is not known")));
            }
            other => path = Some(Path::new(other)),
        }
    }
    let config = Config::load(path.ok_or_else(|| usage("create needs the path of a configuration"))?)?;
    let _lock = lock_state(&config.state)?;
    let ssd = &config.cache.ssd;
    let found = Found::open(ssd)?;
    let generations = GenerationFile::new(generation_path(&config.state));
    let making = Making {
        policy: config.cache.policy,
        line: config.cache.line_bytes,
        size_bytes,
        memory: config.memory(),
        is_forced,
    };
    found.make(ssd, &generations, &making)?;
    print(&Found::open(ssd)?.report())
}

/// `bathyd resize CONFIG --size BYTES`: a cache that does not run gets another size.
pub(crate) fn run_resize(arguments: &[String]) -> Result<(), Failure> {
    let usage = || {
        Failure::new(
            "resize needs a configuration and a size",
            "bathyd resize CONFIG.json --size BYTES",
        )
    };
    let [path, option, bytes] = arguments else {
        return Err(usage());
    };
    let size_bytes = bytes
        .parse::<u64>()
        .ok()
        .filter(|_| option == "--size")
        .ok_or_else(usage)?;
    let config = Config::load(Path::new(path))?;
    let _lock = lock_state(&config.state)?;
    let ssd = &config.cache.ssd;
    with_file_of_size(ssd, size_bytes, || {
        let found = Found::open(ssd)?;
        resize(Arc::clone(&found.store), size_bytes, config.memory())
            .map_err(|error| size_failure(ssd, &error))
    })?;
    print(&Found::open(ssd)?.report())
}

/// Removes what tells others that it is theirs: it stands at the begin and, of partition tables and arrays, at the end.
fn wipe(store: &dyn BlockStore, size_bytes: u64) -> io::Result<()> {
    let zeroes = vec![0; BLANK_BYTES.min(size_bytes as usize)];
    store.write(&zeroes, 0)?;
    store.write(&zeroes, size_bytes - zeroes.len() as u64)?;
    store.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_that_needs_more_memory_than_it_may_take_is_not_made() {
        let name = format!("bathyd-memory-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).expect("a directory");
        let ssd = directory.join("ssd");
        // Sparse: nothing is written to it.
        let made = File::create(&ssd).and_then(|file| file.set_len(300 << 30));
        made.expect("a sparse file");
        let generations = GenerationFile::new(directory.join("witness"));
        let making = |size_bytes| Making {
            policy: PolicyKind::S3Fifo,
            line: LineSize::new(65_536).expect("a power of two"),
            size_bytes,
            memory: MemoryBudget::of(256 << 20),
            is_forced: false,
        };
        let found = Found::open(&ssd).expect("it can be opened");
        let refused = found
            .make(&ssd, &generations, &making(None))
            .expect_err("it needs more");
        assert!(
            refused.message.contains(" MiB of memory ("),
            "{}",
            refused.message
        );
        assert!(
            refused.message.ends_with("may take 256 MiB"),
            "{}",
            refused.message
        );
        let fits = refused.hint.rsplit_once("--size ").expect("it says what fits").1;
        assert_eq!(refused.hint, format!("--memory 0.5G; or --size {fits}"));
        let found = Found::open(&ssd).expect("it can be opened");
        assert!(found.is_blank, "nothing was written");
        let gib: f64 = fits.split_once('G').expect("GiB").0.parse().expect("a number");
        let fitting = making(Some((gib * f64::from(1 << 30)) as u64));
        found.make(&ssd, &generations, &fitting).expect("it fits");
        std::fs::remove_dir_all(&directory).expect("the test's own");
    }
}
