//! What the devices of sources were when they were used last: kept in the state directory, apart from the SSD.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use bathy_cache::format::Uuid;

use crate::device_identity::{DeviceIdentity, Likeness};
use crate::state_files::replace_file;

const FILE: &str = "devices.json";

/// See the [module](self).
pub(crate) struct DeviceNotes {
    path: PathBuf,
    /// By source and handle there.
    known: Mutex<BTreeMap<String, DeviceIdentity>>,
}

impl DeviceNotes {
    /// What cannot be read is not known: the devices are compared.
    pub(crate) fn load(state: &Path) -> Self {
        let path = state.join(FILE);
        let known = fs::read(&path).ok();
        let known = known.and_then(|text| serde_json::from_slice(&text).ok());
        Self {
            path,
            known: Mutex::new(known.unwrap_or_default()),
        }
    }

    /// Why what is cached of a device may be another one's; `None` if it is the one that was there, and was there all the time.
    pub(crate) fn doubt(&self, source: &Uuid, handle: &[u8], now: &DeviceIdentity) -> Option<String> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match known.get(&key(source, handle)).map(|known| known.compare(now)) {
            Some(Likeness::Same) => None,
            Some(Likeness::Other(what)) => Some(what),
            Some(Likeness::SameName) => Some("it was away, or the machine was restarted".to_owned()),
            Some(Likeness::Unknown) => Some("it has no name by which it would be known again".to_owned()),
            None => Some("it is not known which device was there before".to_owned()),
        }
    }

    /// Notes durably what a device is, after the cache has noted what that means for its lines. If that cannot be written,
    /// nothing is known of any device at the next start, and all of them are compared: no older note may stay.
    ///
    /// # Errors
    /// If an older note cannot be taken away either.
    pub(crate) fn note(&self, source: &Uuid, handle: &[u8], now: DeviceIdentity) -> io::Result<()> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let key = key(source, handle);
        if known.get(&key) == Some(&now) {
            return Ok(());
        }
        let device = now.to_string();
        let mut changed = known.clone();
        changed.insert(key.clone(), now);
        let written = serde_json::to_vec(&changed).map_err(io::Error::from);
        match written.and_then(|text| replace_file(&self.path, &text)) {
            Ok(()) => *known = changed,
            Err(error) => {
                known.remove(&key);
                remove_file(&self.path)?;
                eprintln!(
                    "bathyd: {}: {error}; it is removed, and all cached lines of {device} and other devices are compared at the next start",
                    self.path.display()
                );
            }
        }
        Ok(())
    }
}

/// Removes a file of ours, durably. It may be gone already.
fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}

fn key(source: &Uuid, handle: &[u8]) -> String {
    let digits = source.iter().map(|byte| format!("{byte:02x}"));
    format!("{} {}", digits.collect::<String>(), handle.escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_noted_is_not_known_and_no_older_note_stays() {
        let state = std::env::temp_dir().join(format!("bathyd-notes-{}", std::process::id()));
        fs::create_dir_all(&state).expect("a directory");
        let of = |name: &str| {
            fs::write(state.join(name), name).expect("a file");
            let file = fs::File::open(state.join(name)).expect("a file");
            DeviceIdentity::of(&file).expect("a file")
        };
        let (first, second) = (of("first"), of("second"));
        let source = Uuid::default();
        let notes = DeviceNotes::load(&state);
        notes.note(&source, b"a", first.clone()).expect("it is written");
        let doubt = |notes: &DeviceNotes, now: &DeviceIdentity| {
            notes
                .doubt(&source, b"a", now)
                .expect("files have no sequence number")
        };
        assert!(doubt(&notes, &first).contains("it was away"));

        // Its new content has no room, as on a full file system.
        fs::create_dir(state.join("devices.new")).expect("a directory");
        notes
            .note(&source, b"a", second.clone())
            .expect("the device is used all the same");
        assert!(!state.join(FILE).exists(), "an older note would be believed");
        for notes in [&notes, &DeviceNotes::load(&state)] {
            for now in [&first, &second] {
                assert!(doubt(notes, now).contains("it is not known which device"));
            }
        }
        fs::remove_dir(state.join("devices.new")).expect("removed");
        notes.note(&source, b"a", second.clone()).expect("it is written");
        assert!(doubt(&DeviceNotes::load(&state), &second).contains("it was away"));
        fs::remove_dir_all(state).expect("removed");
    }
}
