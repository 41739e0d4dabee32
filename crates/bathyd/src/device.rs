//! What an SSD holds, and making it a cache.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use bathy_cache::format::{SuperblockError, Uuid, VERSION};
use bathy_cache::{
    BlockStore, CreateError, CreateOptions, FileStore, FileWitness, OpenError, Witness, create, inspect,
    resize,
};
use bathy_policy::PolicyKind;
use serde_json::{Value, json};

use crate::attachment::{size_failure, with_file_of_size};
use crate::config::{Config, Failure};
use crate::engine_cache::{BLANK_BYTES, is_blank, random};

/// How an SSD becomes a cache.
pub(crate) struct Making {
    pub(crate) policy: PolicyKind,
    pub(crate) size_bytes: Option<u64>,
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
}

fn failed(path: &Path, error: &dyn std::fmt::Display, hint: &str) -> Failure {
    Failure::new(format!("{}: {error}", path.display()), hint)
}

impl Found {
    /// Opens it for this process alone. Nothing is written.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let kind = std::fs::metadata(path)
            .map_err(|error| failed(path, &error, "name a block device or a file that exists"))?
            .file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(failed(
                path,
                &"neither a block device nor a file",
                "name the SSD itself",
            ));
        }
        if kind.is_block_device() {
            // The kernel refuses what is mounted, or part of a device that is in use.
            let opened = File::options().read(true).custom_flags(libc::O_EXCL).open(path);
            opened.map_err(|error| {
                failed(
                    path,
                    &format!("in use ({error})"),
                    "unmount it, or stop who uses it: lsblk shows that",
                )
            })?;
        }
        let store = FileStore::open(path).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => failed(
                path,
                &"in use by another process, such as bathyd",
                "stop it first",
            ),
            _ => failed(path, &error, "run as root, and name a block device or a file"),
        })?;
        let store: Arc<dyn BlockStore> = Arc::new(store);
        let unreadable = |error: io::Error| failed(path, &error, "the SSD must be readable");
        Ok(Self {
            size_bytes: store.size_bytes().map_err(unreadable)?,
            cache: inspect(Arc::clone(&store)),
            is_blank: is_blank(&*store),
            holds: held(path),
            store,
        })
    }

    /// Names the cache that it holds.
    pub(crate) fn uuid(&self) -> Option<Uuid> {
        self.cache.as_ref().ok().map(|found| found.uuid)
    }

    /// Makes it an empty cache, unless it holds something and force is not used.
    pub(crate) fn make(self, ssd: &Path, witness: &FileWitness, making: &Making) -> Result<(), Failure> {
        if making.size_bytes.is_some_and(|bytes| bytes > self.size_bytes) {
            let problem = format!("it has {} bytes, fewer than --size", self.size_bytes);
            return Err(failed(ssd, &problem, "leave --size out to use all of it"));
        }
        if let Some((problem, hint)) = self.objection(witness).filter(|_| !making.is_forced) {
            return Err(failed(ssd, &problem, hint));
        }
        let cannot_write = |error: &dyn std::fmt::Display| failed(ssd, error, "the SSD must be writable");
        let uuid = random().map_err(|error| cannot_write(&error))?;
        let options = CreateOptions {
            size_bytes: making.size_bytes,
            policy: making.policy,
            ..CreateOptions::new(uuid)
        };
        options.check(self.size_bytes).map_err(|error| match error {
            CreateError::TooSmall(_) => failed(ssd, &error, "a cache needs at least 4 MiB"),
            error => cannot_write(&error),
        })?;
        if !self.is_blank || self.holds.is_some() {
            wipe(&*self.store, self.size_bytes).map_err(|error| cannot_write(&error))?;
        }
        create(Arc::clone(&self.store), witness, &options).map_err(|error| cannot_write(&error))
    }

    fn report(&self) -> Value {
        let found = self.cache.as_ref().ok();
        let uuid = found.map(|found| found.uuid.map(|byte| format!("{byte:02x}")).concat());
        let version = match &self.cache {
            Ok(_) => Some(VERSION),
            Err(OpenError::Superblock(SuperblockError::Version(version))) => Some(*version),
            Err(_) => None,
        };
        json!({
            "is_cache": version.is_some(),
            "uuid": uuid,
            "format": version,
            "size_bytes": self.size_bytes,
            "capacity_bytes": found.map(|found| found.geometry.slots_total() * found.geometry.line().bytes()),
            "is_clean": found.map(|found| found.is_clean),
            "generation": found.map(|found| found.generation),
            "is_blank": self.is_blank,
            "holds": self.holds,
        })
    }

    /// Why it is not made a cache without force.
    fn objection(&self, witness: &FileWitness) -> Option<(String, &'static str)> {
        const FORCE: &str = "name another device; --force takes it, and what it holds is lost";
        if let Some(holds) = &self.holds {
            return Some((format!("it holds {holds}"), FORCE));
        }
        match &self.cache {
            Ok(found) if witness.load() == Some(found.generation) => Some((
                "it is this cache already".to_owned(),
                "start bathyd; --force makes it anew, and all that is cached is lost",
            )),
            Ok(_) => Some((
                "it is the cache of another state directory, or one that was given up".to_owned(),
                FORCE,
            )),
            Err(OpenError::Superblock(SuperblockError::Version(version))) => Some((
                format!("it is a cache of format {version}, and this program knows {VERSION}"),
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

fn print(report: &Value) -> Result<(), Failure> {
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
    let _lock = crate::daemon::lock_state(&config.state)?;
    let ssd = &config.cache.ssd;
    let found = Found::open(ssd)?;
    let witness = FileWitness::new(crate::service::witness_path(&config.state));
    let making = Making {
        policy: config.cache.policy,
        size_bytes,
        is_forced,
    };
    found.make(ssd, &witness, &making)?;
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
    let _lock = crate::daemon::lock_state(&config.state)?;
    let ssd = &config.cache.ssd;
    with_file_of_size(ssd, size_bytes, || {
        let found = Found::open(ssd)?;
        resize(Arc::clone(&found.store), size_bytes).map_err(|error| size_failure(ssd, &error))
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
