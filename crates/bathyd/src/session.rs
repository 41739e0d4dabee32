//! What is kept of a session in the state directory, apart from the SSD: that it is under way, and which source is which.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use bathy_cache::format::Uuid;
use serde::{Deserialize, Serialize};

use crate::random::random;
use crate::state_files::replace_file;

const FILE: &str = "session.json";

/// A session of a cache. It is under way until [`Session::end`], also when the process is killed.
pub(crate) struct Session {
    path: PathBuf,
    was_clean: bool,
    kept: Kept,
}

#[derive(Default, Deserialize, Serialize)]
struct Kept {
    is_in_use: bool,
    /// By the bytes of the directory's path.
    sources: BTreeMap<String, Uuid>,
}

impl Session {
    /// Notes durably that a session begins. What cannot be read counts as a session that was killed, of unknown sources.
    pub(crate) fn begin(state: &Path) -> io::Result<Self> {
        let path = state.join(FILE);
        let kept = fs::read(&path)
            .ok()
            .and_then(|text| serde_json::from_slice::<Kept>(&text).ok());
        let was_clean = kept.as_ref().is_some_and(|kept| !kept.is_in_use);
        let kept = Kept {
            is_in_use: true,
            ..kept.unwrap_or_default()
        };
        let session = Self {
            path,
            was_clean,
            kept,
        };
        session.store()?;
        Ok(session)
    }

    /// Whether the session before was ended.
    pub(crate) fn was_clean(&self) -> bool {
        self.was_clean
    }

    /// By what the files of a directory are known: made when it is first asked for.
    pub(crate) fn source(&mut self, dir: &Path) -> io::Result<Uuid> {
        if let Some(uuid) = self.kept.sources.get(&key(dir)) {
            return Ok(*uuid);
        }
        let uuid = random()?;
        self.kept.sources.insert(key(dir), uuid);
        self.store()?;
        Ok(uuid)
    }

    /// A directory is used without the cache: what is cached of it is never found again.
    pub(crate) fn forget_source(&mut self, dir: &Path) -> io::Result<()> {
        match self.kept.sources.remove(&key(dir)) {
            Some(_) => self.store(),
            None => Ok(()),
        }
    }

    /// The cache was stopped cleanly.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        self.kept.is_in_use = false;
        self.store()
    }

    fn store(&self) -> io::Result<()> {
        replace_file(&self.path, &serde_json::to_vec(&self.kept)?)
    }
}

fn key(dir: &Path) -> String {
    dir.as_os_str().as_encoded_bytes().escape_ascii().to_string()
}
