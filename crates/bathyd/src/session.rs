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

#[derive(Clone, Default, Deserialize, Serialize)]
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
        let mut session = Self {
            path,
            was_clean,
            kept: Kept::default(),
        };
        session.keep(kept)?;
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
        let (uuid, mut kept) = (random()?, self.kept.clone());
        kept.sources.insert(key(dir), uuid);
        self.keep(kept)?;
        Ok(uuid)
    }

    /// A directory is used without the cache: what is cached of it is never found again.
    pub(crate) fn forget_source(&mut self, dir: &Path) -> io::Result<()> {
        let mut kept = self.kept.clone();
        match kept.sources.remove(&key(dir)) {
            Some(_) => self.keep(kept),
            None => Ok(()),
        }
    }

    /// The cache was stopped cleanly.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        self.keep(Kept {
            is_in_use: false,
            ..self.kept.clone()
        })
    }

    /// What counts is what is on the disk: after an error, or a panic, it is as it was, and whoever asks again writes it again.
    fn keep(&mut self, kept: Kept) -> io::Result<()> {
        replace_file(&self.path, &serde_json::to_vec(&kept)?)?;
        self.kept = kept;
        Ok(())
    }
}

fn key(dir: &Path) -> String {
    dir.as_os_str().as_encoded_bytes().escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_written_is_written_by_who_asks_again() {
        let state = std::env::temp_dir().join(format!("bathyd-session-{}", std::process::id()));
        fs::create_dir_all(&state).expect("a directory");
        let (dir, mut session) = (Path::new("/dir"), Session::begin(&state).expect("begun"));
        let uuid = session.source(dir).expect("written");
        fs::rename(&state, state.with_extension("away")).expect("moved");
        session.forget_source(dir).expect_err("it cannot be written");
        fs::rename(state.with_extension("away"), &state).expect("moved back");
        session.forget_source(dir).expect("written");
        drop(session);
        let mut next = Session::begin(&state).expect("begun");
        assert_ne!(next.source(dir).expect("written"), uuid);
        fs::remove_dir_all(state).expect("removed");
    }
}
