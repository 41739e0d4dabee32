//! A source: a directory that is served, with its devices.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use bathy_cache::SourceMode;
use bathy_cache_model::WriteMode;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::device_identity::DeviceIdentity;
use crate::failure::Failure;

/// Names of links in the directory of an OSD.
pub(crate) const NAMES: [&str; 3] = ["block", "block.db", "block.wal"];

/// What a configuration says of a device.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Configured {
    pub(crate) path: PathBuf,
    pub(crate) identity: DeviceIdentity,
}

/// By the name of the link.
pub(crate) type Configuration = BTreeMap<String, Configured>;

/// A directory.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// What it is called; without one, the last component of its path.
    #[serde(default)]
    pub name: Option<String>,
    /// Its absolute path. Bytes that are no UTF-8 are written as Python does: `\\udcff` for 0xff.
    #[serde(deserialize_with = "path")]
    pub dir: PathBuf,
    /// What becomes of writes.
    pub mode: Mode,
    /// Its share of the cache; without one, it has no limit of its own.
    #[serde(default)]
    pub size_bytes: Option<u64>,
    /// What its links `block`, `block.db` and `block.wal` lead to. `None`: it was written before this was configured.
    #[serde(default)]
    pub(crate) devices: Option<Configuration>,
    /// Whether what is encrypted below may be cached as plaintext.
    #[serde(default)]
    pub plaintext: bool,
}

impl Source {
    /// A directory of which no more is known.
    pub(crate) fn at(dir: &Path) -> Self {
        Self {
            name: None,
            dir: dir.to_owned(),
            mode: Mode::PassThrough,
            size_bytes: None,
            devices: None,
            plaintext: false,
        }
    }

    /// What it is called.
    pub fn name(&self) -> String {
        let last = || Some(self.dir.file_name()?.to_string_lossy().into_owned());
        self.name.clone().or_else(last).unwrap_or_default()
    }

    /// Whether it can be served beside others.
    ///
    /// # Errors
    /// If its name or path is not a good one, or another has it.
    pub fn check<'a>(&self, mut others: impl Iterator<Item = &'a Self>) -> Result<(), Failure> {
        check_path(&self.dir)?;
        for (name, device) in self.devices.iter().flatten() {
            check_path(&device.path)?;
            if !NAMES.contains(&name.as_str()) {
                return Err(Failure::new(
                    format!("a device must be one of {} (got {name})", NAMES.join(", ")),
                    "these are the links of an OSD that are served",
                ));
            }
        }
        let name = self.name();
        check_name(&name)?;
        let overlaps = |other: &Self| other.dir.starts_with(&self.dir) || self.dir.starts_with(&other.dir);
        let taken = others.find(|other| overlaps(other) || other.name() == name);
        taken.map_or(Ok(()), |other| {
            let dir = self.dir.display();
            let what = if other.dir == self.dir {
                format!("the directory {dir}")
            } else if overlaps(other) {
                // Each would change files past the other one's cache.
                return Err(Failure::new(
                    format!("the directories {dir} and {} overlap", other.dir.display()),
                    "a source must not lie within another one",
                ));
            } else {
                format!("the name {name}")
            };
            Err(Failure::new(
                format!("{what} is that of two sources"),
                "each source has a directory and a \"name\" of its own",
            ))
        })
    }
}

/// What is done with requests.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// What is read and written enters the cache, as far as it is admitted.
    WriteThrough,
    /// What is read enters the cache; a write updates what is cached.
    WriteAround,
    /// What is read enters the cache; what is written leaves it.
    ReadOnly,
    /// Nothing is cached.
    PassThrough,
}

impl Mode {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::WriteThrough => "write-through",
            Self::WriteAround => "write-around",
            Self::ReadOnly => "read-only",
            Self::PassThrough => "pass-through",
        }
    }

    /// The mode of the engine.
    pub fn in_engine(self) -> SourceMode {
        match self {
            Self::WriteThrough => SourceMode::Cached(WriteMode::Allocate),
            Self::WriteAround => SourceMode::Cached(WriteMode::Update),
            Self::ReadOnly => SourceMode::Cached(WriteMode::Invalidate),
            Self::PassThrough => SourceMode::PassThrough,
        }
    }
}

/// A source that is not understood.
#[derive(Debug)]
pub(crate) struct Unread {
    /// What it seems to be called.
    pub(crate) name: String,
    pub(crate) dir: PathBuf,
    /// With the line.
    pub(crate) problem: String,
}

impl Unread {
    pub(super) fn of(entry: &[u8], number: usize, error: &serde_json::Error) -> Self {
        let entry: Value = serde_json::from_slice(entry).unwrap_or_default();
        let dir = Path::new(entry["dir"].as_str().unwrap_or_default()).to_owned();
        let last = || Some(dir.file_name()?.to_string_lossy().into_owned());
        let name = entry["name"].as_str().map(str::to_owned).or_else(last);
        Self {
            name: name.unwrap_or_else(|| format!("source-{number}")),
            problem: format!("source {number}: {error}"),
            dir,
        }
    }
}

pub(crate) fn check_path(path: &Path) -> Result<(), Failure> {
    if path.is_absolute() {
        return Ok(());
    }
    Err(Failure::new(
        format!("a path must be absolute (got {})", path.display()),
        "write it with a leading /",
    ))
}

pub(super) fn check_name(name: &str) -> Result<(), Failure> {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
    let bytes = name.as_bytes();
    if bytes.len() <= 64 && bytes.iter().all(is_plain) && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
    {
        return Ok(());
    }
    Err(Failure::new(
        format!(
            "a name has 1 to 64 letters, digits, '.', '_' and '-', of which the first is a letter or digit (got {name:?})"
        ),
        "give the source or cache a \"name\"",
    ))
}

fn path<'a, D: Deserializer<'a>>(deserializer: D) -> Result<PathBuf, D::Error> {
    struct Path;

    impl Visitor<'_> for Path {
        type Value = PathBuf;

        fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            out.write_str("a path")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<PathBuf, E> {
            Ok(text.into())
        }

        fn visit_bytes<E: Error>(self, text: &[u8]) -> Result<PathBuf, E> {
            Ok(OsString::from_vec(unescaped(text)).into())
        }
    }
    deserializer.deserialize_byte_buf(Path)
}

/// The bytes that stand as surrogates from U+DC80 to U+DCFF in a text: ED B2 80 to ED B3 BF.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some((&first, after)) = rest.split_first() {
        if let [0xed, high @ (0xb2 | 0xb3), low, ..] = rest {
            bytes.push(0x80 | (high & 1) << 6 | low & 0x3f);
            rest = &rest[3..];
        } else {
            bytes.push(first);
            rest = after;
        }
    }
    bytes
}
