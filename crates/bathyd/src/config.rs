//! The configuration: one JSON file for each cache.

use std::path::{Path, PathBuf};

use bathy_cache_model::WriteMode;
use serde::Deserialize;

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
    /// Directories that are served.
    pub sources: Vec<Source>,
    /// Threads for each source.
    #[serde(default = "default_threads")]
    pub threads: usize,
}

/// The SSD.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// A device or file; it holds a cache or only zeroes.
    pub ssd: PathBuf,
    /// What becomes of what was being written when a session was killed.
    #[serde(default)]
    pub after_unclean: AfterUnclean,
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
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// Its absolute path.
    pub dir: PathBuf,
    /// What becomes of writes.
    pub mode: Mode,
}

/// What is done with requests.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// What is read and written enters the cache.
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

    /// The mode of the engine, or `None` without one.
    pub fn write_mode(self) -> Option<WriteMode> {
        match self {
            Self::WriteThrough => Some(WriteMode::Allocate),
            Self::WriteAround => Some(WriteMode::Update),
            Self::ReadOnly => Some(WriteMode::Invalidate),
            Self::PassThrough => None,
        }
    }
}

fn default_threads() -> usize {
    2
}

/// An error that ends the program, and what to do about it.
#[derive(Debug)]
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
        let paths = [&self.socket, &self.state, &self.cache.ssd];
        let dirs = self.sources.iter().map(|source| &source.dir);
        if let Some(path) = paths.into_iter().chain(dirs).find(|path| !path.is_absolute()) {
            return Err(Failure::new(
                format!("a path must be absolute (got {})", path.display()),
                "write it with a leading /",
            ));
        }
        if self.sources.is_empty() {
            return Err(Failure::new("there is no source", "name at least one directory"));
        }
        let mut modes = self.sources.iter().filter_map(|source| source.mode.write_mode());
        let first = modes.next();
        if modes.any(|mode| Some(mode) != first) {
            return Err(Failure::new(
                "cached sources of one cache have one mode in this version",
                "set the same mode, or pass-through, or give each a cache of its own",
            ));
        }
        for (number, source) in self.sources.iter().enumerate() {
            if self.sources[..number].iter().any(|it| it.dir == source.dir) {
                let dir = source.dir.display();
                return Err(Failure::new(
                    format!("{dir} is named twice"),
                    "name each directory once",
                ));
            }
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
    fn what_is_not_understood_is_refused() {
        let with = |sources: &str| {
            parse(&format!(
                r#"{{"socket": "/s", "state": "/t", "cache": {{"ssd": "/u"}}, "sources": [{sources}]}}"#
            ))
        };
        let source = r#"{"dir": "/d", "mode": "write-through"}"#;
        let config = with(source).expect("a configuration");
        assert_eq!(
            (config.threads, config.cache.after_unclean),
            (2, AfterUnclean::Cold)
        );
        let other = r#"{"dir": "/e", "mode": "read-only"}"#;
        for (sources, problem) in [
            ("", "there is no source"),
            (&*format!("{source}, {source}"), "named twice"),
            (&*format!("{source}, {other}"), "one mode"),
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
