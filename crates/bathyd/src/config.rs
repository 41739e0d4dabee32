//! The configuration: one JSON file for each cache.

mod cache;
mod source;
mod text;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use bathy_cache_model::MemoryBudget;
use nix::fcntl::{Flock, FlockArg};
use serde::de::{Error, IgnoredAny};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

pub(crate) use cache::memory_hint;
pub use cache::{AfterUnclean, Cache, Fetch};
use source::check_name;
pub(crate) use source::{Configuration, Configured, NAMES, Unread, check_path};
pub use source::{Mode, Source};
use text::{entries, in_its_place};

use crate::failure::Failure;
use crate::state_files::{check_own_place, replace_file};

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
    #[serde(default, deserialize_with = "read_one_by_one")]
    pub sources: Vec<Source>,
    /// Entries among the sources that are not understood: they keep no other from being served.
    #[serde(skip)]
    pub(crate) unread: Vec<Unread>,
    /// Threads for each source: so many of its requests wait for a disk at a time.
    #[serde(default = "default_threads", deserialize_with = "threads")]
    pub threads: usize,
    /// Seconds after which a source whose disk does not answer keeps the others from their start no more. It is served when
    /// the disk answers.
    #[serde(default = "default_limit", deserialize_with = "start_limit")]
    pub start_limit_s: u64,
    /// Seconds after which a disk that does not answer keeps the others from a clean stop no more: what is not durable by then is
    /// dropped before sources are unmounted, and what is cached of its source after as long again.
    #[serde(default = "default_limit", deserialize_with = "stop_limit")]
    pub stop_limit_s: u64,
    /// How requests come from the kernel.
    #[serde(default)]
    pub transport: Transport,
    /// Where it was read from.
    #[serde(skip)]
    pub path: PathBuf,
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

/// What to do about what is not understood.
pub(crate) fn not_understood(problem: String) -> Failure {
    Failure::new(problem, "README.md of bathyd describes the fields")
}

/// Sources are a list; [`Config::parse`] reads its entries.
fn read_one_by_one<'a, D: Deserializer<'a>>(deserializer: D) -> Result<Vec<Source>, D::Error> {
    Vec::<IgnoredAny>::deserialize(deserializer).map(|_| Vec::new())
}

/// A thread waits for the disk, so that a disk has at most as many requests to put in order as there are threads.
fn default_threads() -> usize {
    32
}

/// Longer than a hard disk takes to spin up, or a busy one to make its file system durable.
fn default_limit() -> u64 {
    30
}

fn threads<'a, D: Deserializer<'a>>(deserializer: D) -> Result<usize, D::Error> {
    const MOST: u64 = 1024;
    at_most("threads", MOST, deserializer).map(|count| count as usize)
}

const HOUR_S: u64 = 3600;

fn start_limit<'a, D: Deserializer<'a>>(deserializer: D) -> Result<u64, D::Error> {
    at_most("start_limit_s", HOUR_S, deserializer)
}

fn stop_limit<'a, D: Deserializer<'a>>(deserializer: D) -> Result<u64, D::Error> {
    let seconds = at_most("stop_limit_s", HOUR_S, deserializer)?;
    // With none no disk answers in time, and each stop would lose all that is cached.
    let problem = || D::Error::custom(format!("stop_limit_s must be at least 1 (got {seconds})"));
    Some(seconds).filter(|&seconds| seconds > 0).ok_or_else(problem)
}

/// A number that is added to others later, or so many of something are made.
fn at_most<'a, D: Deserializer<'a>>(name: &str, most: u64, deserializer: D) -> Result<u64, D::Error> {
    let number = u64::deserialize(deserializer)?;
    let problem = || D::Error::custom(format!("{name} must be at most {most} (got {number})"));
    Some(number).filter(|&number| number <= most).ok_or_else(problem)
}

impl Config {
    /// Memory that the daemon may take, and the threads whose buffers are in it: those of its sources, or of one that is to come.
    pub fn memory(&self) -> MemoryBudget {
        self.cache
            .memory((self.threads * self.sources.len().max(1)) as u64)
    }

    /// Reads and checks a configuration.
    ///
    /// # Errors
    /// If it cannot be read, is not understood, or asks for what is not supported.
    pub fn load(path: &Path) -> Result<Self, Failure> {
        let shown = path.display();
        let text = std::fs::read(path)
            .map_err(|error| Failure::new(format!("{shown}: {error}"), "name the configuration file"))?;
        let config = Self::parse(&text).map_err(|error| not_understood(format!("{shown}: {error}")))?;
        config.check()?;
        check_own_place(path, false)?;
        check_own_place(&config.cache.ssd, false)?;
        check_own_place(&config.socket, true)?;
        check_own_place(&config.state.join("lock"), true)?;
        Ok(Self {
            path: path.to_owned(),
            ..config
        })
    }

    /// Each source stands or falls alone.
    fn parse(text: &[u8]) -> serde_json::Result<Self> {
        let mut config: Self = serde_json::from_slice(text)?;
        for (number, entry) in (1..).zip(entries(text, "sources")) {
            match serde_json::from_slice(&in_its_place(text, &entry)) {
                Ok(source) => config.sources.push(source),
                Err(error) => config.unread.push(Unread::of(&text[entry], number, &error)),
            }
        }
        Ok(config)
    }

    /// Writes down what the links of a source lead to, where its configuration does not say that yet.
    ///
    /// # Errors
    /// If the file cannot be changed.
    pub(crate) fn add_devices(&self, dir: &Path, devices: &Configuration) -> io::Result<()> {
        // Who changes the file has this lock; `bathy` waits for it.
        let parent = File::open(self.path.parent().unwrap_or(Path::new("/")))?;
        let _lock = Flock::lock(parent, FlockArg::LockExclusiveNonblock)
            .map_err(|(_, error)| io::Error::from(error))?;
        let mut document: Value = serde_json::from_slice(&std::fs::read(&self.path)?)?;
        let sources = document["sources"].as_array_mut().into_iter().flatten();
        let is_it = |source: &&mut Value| source["dir"].as_str().map(Path::new) == Some(dir);
        let Some(source) = sources.into_iter().find(is_it) else {
            return Err(io::Error::other("it has no such source any more"));
        };
        if source["devices"].is_null() {
            source["devices"] = serde_json::to_value(devices)?;
            let mut text = serde_json::to_vec_pretty(&document)?;
            text.push(b'\n');
            replace_file(&self.path, &text)?;
        }
        Ok(())
    }

    fn check(&self) -> Result<(), Failure> {
        for path in [&self.socket, &self.state, &self.cache.ssd] {
            check_path(path)?;
        }
        self.cache.name.as_deref().map_or(Ok(()), check_name)?;
        self.cache.admission.check()?;
        let line_bytes = self.cache.line_bytes.bytes();
        if let Fetch::Fixed(bytes) = self.cache.fetch {
            if bytes > line_bytes {
                return Err(Failure::new(
                    format!("cache.fetch must be at most a line, {line_bytes} bytes (got {bytes})"),
                    "make it smaller, or leave it out: it is adaptive then",
                ));
            }
        }
        if self.cache.memory_bytes == Some(0) {
            return Err(Failure::new(
                "cache.memory_bytes must be greater than 0",
                "leave it out for the smaller of 4 GiB and a quarter of the machine's memory",
            ));
        }
        // Sources are checked one by one: a bad one keeps no other from being served.
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    pub(super) fn parse(text: &str) -> Result<Config, String> {
        let config = Config::parse(text.as_bytes()).map_err(|error| error.to_string())?;
        config.check().map_err(|failure| failure.message)?;
        if let Some(unread) = config.unread.first() {
            return Err(unread.problem.clone());
        }
        for (number, source) in config.sources.iter().enumerate() {
            let checked = source.check(config.sources[..number].iter());
            checked.map_err(|failure| failure.message)?;
        }
        Ok(config)
    }

    #[test]
    fn a_path_has_any_bytes_and_a_damaged_text_names_its_line() {
        let with = |dir: &str| {
            let text = format!(
                "{{\"socket\": \"/s\", \"state\": \"/t\", \"cache\": {{\"ssd\": \"/u\"}},\n\"sources\": [{{\"dir\": {dir},\n\"name\": \"a\", \"mode\": \"read-only\"}}]}}"
            );
            parse(&text).map(|config| config.sources[0].dir.clone().into_os_string().into_vec())
        };
        assert_eq!(with(r#""/ä/b""#), Ok("/ä/b".as_bytes().to_vec()));
        assert_eq!(with(r#""/\udcff\udc80x""#), Ok(b"/\xff\x80x".to_vec()));
        let damaged = with("7").err().unwrap_or_default();
        assert!(damaged.contains("line 2"), "{damaged}");
    }

    #[test]
    fn a_source_that_is_not_understood_is_named_with_its_line_and_keeps_no_other_from_being_read() {
        let text = r#"{"socket": "/s", "state": "/t",
            "a\"sources": [1], "threads": 4, "cache": {"ssd": "/u", "name": "]}"},
            "sources" : [
                {"dir": "/a]\"", "mode": "read-only"},
                {"dir": "/b", "mode": "read-only",
                 "size_bytes": "5"},
                7, {"dir": "/\udcff", "name": "c", "mode": "read-only"} ,
                {"mode": "read-only"}]}"#;
        // A field that nobody knows ends all.
        let unknown = Config::parse(text.as_bytes())
            .err()
            .map(|error| error.to_string());
        assert!(unknown.is_some_and(|error| error.contains("unknown field")));
        let config = Config::parse(text.replace(r#""a\"sources": [1], "#, "").as_bytes());
        let config = config.expect("it is JSON");
        let dirs: Vec<_> = config.sources.iter().map(|source| source.dir.clone()).collect();
        let odd = OsString::from_vec(b"/\xff".to_vec());
        assert_eq!(dirs, [PathBuf::from("/a]\""), PathBuf::from(odd)]);
        let of = |unread: &Unread| (unread.name.clone(), unread.dir.clone());
        assert_eq!(
            config.unread.iter().map(of).collect::<Vec<_>>(),
            [
                ("b".to_owned(), PathBuf::from("/b")),
                ("source-3".to_owned(), PathBuf::new()),
                ("source-5".to_owned(), PathBuf::new()),
            ]
        );
        for (unread, problem, line) in [
            (&config.unread[0], "source 2: invalid type: string \"5\"", 6),
            (&config.unread[1], "source 3: invalid type: integer `7`", 7),
            (&config.unread[2], "source 5: missing field `dir`", 8),
        ] {
            let said = &unread.problem;
            assert!(said.starts_with(problem), "{said}");
            assert!(said.contains(&format!(" at line {line} column ")), "{said}");
        }
    }

    #[test]
    fn a_number_that_could_not_be_worked_with_is_refused_with_its_line() {
        let with = |field: &str| {
            let text = format!(
                "{{\"socket\": \"/s\", \"state\": \"/t\",\n {field},\n \"cache\": {{\"ssd\": \"/u\"}}}}"
            );
            parse(&text).map(|config| (config.threads, config.start_limit_s, config.stop_limit_s))
        };
        assert_eq!(with(r#""threads": 1024"#), Ok((1024, 30, 30)));
        assert_eq!(with(r#""start_limit_s": 3600"#), Ok((32, 3600, 30)));
        assert_eq!(with(r#""stop_limit_s": 1"#), Ok((32, 30, 1)));
        for (field, problem) in [
            (r#""threads": 1025"#, "threads must be at most 1024 (got 1025)"),
            (
                r#""start_limit_s": 18446744073709551615"#,
                "start_limit_s must be at most 3600 (got 18446744073709551615)",
            ),
            (
                r#""stop_limit_s": 3601"#,
                "stop_limit_s must be at most 3600 (got 3601)",
            ),
            (r#""stop_limit_s": 0"#, "stop_limit_s must be at least 1 (got 0)"),
            (r#""start_limit_s": -1"#, "invalid value: integer `-1`"),
            (
                r#""start_limit_s": 1e300"#,
                "invalid type: floating point `1e+300`",
            ),
        ] {
            let refused = with(field).err().unwrap_or_default();
            assert!(
                refused.contains(problem) && refused.contains(" at line 2 column "),
                "{refused}"
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
            (
                &*format!("{source}, {}", other.replace("/e", "/d/e")),
                "the directories /d/e and /d overlap",
            ),
            (
                &*format!("{}, {source}", other.replace("/e", "/d/e")),
                "the directories /d and /d/e overlap",
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
