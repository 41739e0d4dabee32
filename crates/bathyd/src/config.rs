//! The configuration: one JSON file for each cache.

use std::path::{Path, PathBuf};

use bathy_cache::format::UNIT_BYTES;
use bathy_cache::{Options, SourceMode};
use bathy_cache_model::{AdmissionOptions, FetchSize, StreamCutoff, WriteMode};
use bathy_policy::{CachePolicy, PolicyKind};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

/// What is cached, and where.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The Unix socket that answers questions.
    pub socket: PathBuf,
    /// A directory for what is kept apart from the SSD. It exists.
    pub state: PathBuf,
    /// The cache.
    pub cache: Cache,
    /// Directories that are served from the start; others can follow.
    #[serde(default)]
    pub sources: Vec<Source>,
    /// Threads for each source: so many of its requests wait for a disk at a time.
    #[serde(default = "default_threads")]
    pub threads: usize,
    /// How requests come from the kernel.
    #[serde(default)]
    pub transport: Transport,
}

/// How requests come from the kernel.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// Through `/dev/fuse`.
    Dev,
    /// Over `io_uring` where the kernel offers it (`fuse.enable_uring`) and requests are answered over it.
    #[default]
    Auto,
    /// Over `io_uring`, or not at all.
    Ring,
}

/// The SSD.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// What it is called in reports.
    #[serde(default)]
    pub name: Option<String>,
    /// A device or file; it holds a cache or only zeroes.
    pub ssd: PathBuf,
    /// Whether it is left alone until somebody attaches it.
    #[serde(default)]
    pub is_detached: bool,
    /// What becomes of what was being written when a session was killed.
    #[serde(default)]
    pub after_unclean: AfterUnclean,
    /// Which lines stay, of a cache that is made anew; one that exists keeps its own.
    #[serde(default = "default_policy", deserialize_with = "policy")]
    pub policy: PolicyKind,
    /// What a miss fetches: "adaptive", or blocks of so many bytes.
    #[serde(default, deserialize_with = "fetch")]
    pub fetch: Fetch,
    /// What may enter it.
    #[serde(default)]
    pub admission: Admission,
}

/// What may enter a cache; all that is read or written, as far as nothing is set.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Admission {
    /// At the n-th miss, once the cache is 80 % full.
    #[serde(default)]
    pub n_hit: Option<u8>,
    /// Runs of requests, each of which begins where the last one ended, go past if they are longer.
    #[serde(default)]
    pub stream_cutoff_bytes: Option<u64>,
    /// Only writes make such a run.
    #[serde(default)]
    pub is_stream_of_writes: bool,
    /// Bytes that may be written to the SSD in a day.
    #[serde(default)]
    pub write_budget_bytes_per_day: Option<u64>,
}

impl Default for Admission {
    /// Long runs of writes go past: the log of an OSD's database, which nobody reads while it runs, and what is restored or
    /// copied. A copy of it would cost every write of an OSD, wear the SSD, and take the place of what is read.
    fn default() -> Self {
        Self {
            n_hit: None,
            stream_cutoff_bytes: Some(256 << 10),
            is_stream_of_writes: true,
            write_budget_bytes_per_day: None,
        }
    }
}

impl Admission {
    fn check(&self) -> Result<(), Failure> {
        let problem = match *self {
            Self {
                n_hit: Some(0..=1), ..
            } => "n_hit must be at least 2",
            Self {
                stream_cutoff_bytes: Some(0),
                ..
            } => "stream_cutoff_bytes must be greater than 0",
            Self {
                write_budget_bytes_per_day: Some(0),
                ..
            } => "write_budget_bytes_per_day must be greater than 0",
            Self {
                stream_cutoff_bytes: None,
                is_stream_of_writes: true,
                ..
            } => "is_stream_of_writes needs stream_cutoff_bytes",
            _ => return Ok(()),
        };
        Err(Failure::new(
            format!("cache.admission: {problem}"),
            "leave out what is not to be limited",
        ))
    }

    /// The options of an engine.
    pub fn options(self) -> AdmissionOptions {
        AdmissionOptions {
            n_hit: self.n_hit,
            stream_cutoff: self.stream_cutoff_bytes.map(|bytes| StreamCutoff {
                bytes,
                is_of_writes: self.is_stream_of_writes,
            }),
            write_budget_bytes_per_day: self.write_budget_bytes_per_day,
        }
    }
}

/// What a miss fetches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fetch {
    /// Blocks of the size that costs the disk least, as it is measured.
    #[default]
    Adaptive,
    /// Blocks of so many bytes.
    Fixed(u64),
}

impl Fetch {
    /// The options of an engine that fetches so.
    pub fn options(self) -> Options {
        let options = Options::default();
        match self {
            Self::Adaptive => options,
            Self::Fixed(bytes) => Options {
                fetch: FetchSize::Fixed(bytes),
                ..options
            },
        }
    }
}

fn fetch<'a, D: Deserializer<'a>>(deserializer: D) -> Result<Fetch, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Given {
        Bytes(u64),
        Other(serde_json::Value),
    }
    // The lines of a cache that bathyd makes.
    const LINE_BYTES: u64 = 64 << 10;
    match Given::deserialize(deserializer)? {
        Given::Bytes(bytes) if bytes.is_power_of_two() && (UNIT_BYTES..=LINE_BYTES).contains(&bytes) => {
            Ok(Fetch::Fixed(bytes))
        }
        Given::Other(word) if word == "adaptive" => Ok(Fetch::Adaptive),
        Given::Bytes(bytes) => Err(bytes.to_string()),
        Given::Other(word) => Err(word.to_string()),
    }
    .map_err(|given| {
        Error::custom(format!(
            "fetch must be \"adaptive\" or a power of two from {UNIT_BYTES} to {LINE_BYTES} bytes (got {given})"
        ))
    })
}

fn default_policy() -> PolicyKind {
    CachePolicy::KINDS[0]
}

fn policy<'a, D: Deserializer<'a>>(deserializer: D) -> Result<PolicyKind, D::Error> {
    let name = String::deserialize(deserializer)?;
    let found = CachePolicy::KINDS.into_iter().find(|kind| kind.name() == name);
    let names = CachePolicy::KINDS.map(PolicyKind::name).join(", ");
    found.ok_or_else(|| Error::custom(format!("policy must be one of {names} (got {name:?})")))
}

/// What becomes of the lines of files and devices of which it cannot be shown that nobody changed them without the cache.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum AfterUnclean {
    /// They are dropped.
    #[default]
    Cold,
    /// Some are compared with the file: another file is found, a single changed block is not.
    Verify,
}

/// A directory.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// What it is called; without one, the last component of its path.
    #[serde(default)]
    pub name: Option<String>,
    /// Its absolute path.
    pub dir: PathBuf,
    /// What becomes of writes.
    pub mode: Mode,
    /// Its share of the cache; without one, it has no limit of its own.
    #[serde(default)]
    pub size_bytes: Option<u64>,
}

impl Source {
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
        let name = self.name();
        check_name(&name)?;
        let taken = others.find(|other| other.dir == self.dir || other.name() == name);
        taken.map_or(Ok(()), |other| {
            let what = if other.dir == self.dir {
                format!("the directory {}", self.dir.display())
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

pub(crate) fn check_path(path: &Path) -> Result<(), Failure> {
    if path.is_absolute() {
        return Ok(());
    }
    Err(Failure::new(
        format!("a path must be absolute (got {})", path.display()),
        "write it with a leading /",
    ))
}

fn check_name(name: &str) -> Result<(), Failure> {
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

/// A thread waits for the disk, so that a disk has at most as many requests to put in order as there are threads.
fn default_threads() -> usize {
    32
}

/// An error that ends the program, and what to do about it.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub hint: String,
}

impl Failure {
    /// A failure.
    pub fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hint: hint.into(),
        }
    }
}

impl Config {
    /// Reads and checks a configuration.
    ///
    /// # Errors
    /// If it cannot be read, is not understood, or asks for what is not supported.
    pub fn load(path: &Path) -> Result<Self, Failure> {
        let shown = path.display();
        let text = std::fs::read(path)
            .map_err(|error| Failure::new(format!("{shown}: {error}"), "name the configuration file"))?;
        let config: Self = serde_json::from_slice(&text).map_err(|error| {
            Failure::new(
                format!("{shown}: {error}"),
                "README.md of bathyd describes the fields",
            )
        })?;
        config.check().map(|()| config)
    }

    fn check(&self) -> Result<(), Failure> {
        for path in [&self.socket, &self.state, &self.cache.ssd] {
            check_path(path)?;
        }
        self.cache.name.as_deref().map_or(Ok(()), check_name)?;
        self.cache.admission.check()?;
        for (number, source) in self.sources.iter().enumerate() {
            source.check(self.sources[..number].iter())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        let config: Config = serde_json::from_str(text).map_err(|error| error.to_string())?;
        config.check().map_err(|failure| failure.message)?;
        Ok(config)
    }

    #[test]
    fn a_policy_is_one_that_a_cache_runs() {
        let with = |policy: &str| {
            parse(&format!(
                r#"{{"socket": "/s", "state": "/t",
                    "cache": {{"ssd": "/u", "policy": "{policy}"}},
                    "sources": [{{"dir": "/d", "mode": "write-through"}}]}}"#
            ))
            .map(|config| config.cache.policy)
        };
        assert_eq!(with("lru"), Ok(PolicyKind::Lru));
        assert_eq!(with("s3-fifo"), Ok(default_policy()));
        let refused = with("arc").err().unwrap_or_default();
        assert!(
            refused.contains("one of s3-fifo, clock2q+, lru (got \"arc\")"),
            "{refused}"
        );
    }

    #[test]
    fn without_a_word_long_runs_of_writes_go_past_and_with_one_it_is_as_said() {
        let with = |admission: &str| {
            let config = parse(&format!(
                r#"{{"socket": "/s", "state": "/t", "cache": {{"ssd": "/u"{admission}}}, "sources": []}}"#
            ));
            config.map(|config| config.cache.admission.options())
        };
        let stream = |bytes, is_of_writes| Some(StreamCutoff { bytes, is_of_writes });
        let all = AdmissionOptions::default();
        let runs = AdmissionOptions {
            stream_cutoff: stream(256 << 10, true),
            ..all
        };
        assert_eq!(with(""), Ok(runs));
        assert_eq!(with(r#", "admission": {}"#), Ok(all));
        let said = AdmissionOptions {
            n_hit: Some(2),
            stream_cutoff: stream(5, false),
            write_budget_bytes_per_day: Some(7),
        };
        let words =
            r#", "admission": {"n_hit": 2, "stream_cutoff_bytes": 5, "write_budget_bytes_per_day": 7}"#;
        assert_eq!(with(words), Ok(said));
        assert!(with(r#", "admission": {"bypass": 1}"#).is_err());
        for wrong in [
            r#""n_hit": 1"#,
            r#""n_hit": 256"#,
            r#""stream_cutoff_bytes": 0"#,
            r#""write_budget_bytes_per_day": 0"#,
            r#""is_stream_of_writes": true"#,
        ] {
            assert!(
                with(&format!(r#", "admission": {{{wrong}}}"#)).is_err(),
                "{wrong}"
            );
        }
    }

    #[test]
    fn a_fetch_size_is_adaptive_or_fits_a_line() {
        let with = |fetch: &str| {
            let config = parse(&format!(
                r#"{{"socket": "/s", "state": "/t", "cache": {{"ssd": "/u"{fetch}}}, "sources": []}}"#
            ));
            config.map(|config| config.cache.fetch)
        };
        assert_eq!(with(""), Ok(Fetch::Adaptive));
        assert_eq!(with(r#", "fetch": "adaptive""#), Ok(Fetch::Adaptive));
        assert_eq!(with(r#", "fetch": 16384"#), Ok(Fetch::Fixed(16_384)));
        for wrong in ["12000", "2048", "131072", "\"64K\"", "-4096"] {
            let refused = with(&format!(r#", "fetch": {wrong}"#)).err().unwrap_or_default();
            assert!(
                refused.contains("a power of two from 4096 to 65536 bytes (got "),
                "{wrong}: {refused}"
            );
        }
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        let with = |sources: &str| {
            parse(&format!(
                r#"{{"socket": "/s", "state": "/t", "cache": {{"ssd": "/u"}}, "sources": [{sources}]}}"#
            ))
        };
        let source = r#"{"dir": "/d", "mode": "write-through"}"#;
        let config = with(source).expect("a configuration");
        assert_eq!(
            (config.threads, config.cache.after_unclean, config.transport),
            (32, AfterUnclean::Cold, Transport::Auto)
        );
        assert!(with(r#"{"dir": "/d", "mode": "read-only", "name": "a.b-c_1", "size_bytes": 5}"#).is_ok());
        let other = r#"{"dir": "/e", "mode": "read-only"}"#;
        assert!(with("").expect("a configuration").sources.is_empty());
        let both = with(&format!("{source}, {other}")).expect("a configuration");
        assert_eq!([both.sources[0].name(), both.sources[1].name()], ["d", "e"]);
        for (sources, problem) in [
            (&*format!("{source}, {source}"), "the directory /d is that of two"),
            (
                &*format!("{source}, {}", other.replace("/e", "/e/d")),
                "the name d is that of two",
            ),
            (r#"{"dir": "/", "mode": "read-only"}"#, "a name has 1 to 64"),
            (
                r#"{"dir": "/d", "mode": "read-only", "name": ".."}"#,
                "a name has 1 to 64",
            ),
            (r#"{"dir": "d", "mode": "pass-through"}"#, "absolute"),
            (r#"{"dir": "/d", "mode": "write-back"}"#, "unknown variant"),
            (
                r#"{"dir": "/d", "mode": "read-only", "size": 1}"#,
                "unknown field",
            ),
        ] {
            let refused = with(sources).err().unwrap_or_default();
            assert!(refused.contains(problem), "{sources}: {refused}");
        }
    }
}
