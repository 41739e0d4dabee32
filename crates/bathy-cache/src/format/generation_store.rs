//! A number kept apart from the SSD.
//!
//! Why: while the SSD cannot be written, the backing is, and the SSD cannot be told. Should it come back later with all its
//! lines, they are stale. So the generation of its content is kept here as well, and what an SSD holds is good only if both
//! agree. Who can no longer write the SSD raises the number here, before the backing gets another write.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::sealed::{get_u64, is_sealed, put_u64, seal};

/// Keeps one generation, durably, on another device than the SSD.
pub trait GenerationStore: Send + Sync {
    /// The generation, if there is one that can be read.
    fn load(&self) -> Option<u64>;

    /// Replaces it; durable when this returns.
    ///
    /// # Errors
    /// If it may not be durable.
    fn store(&self, generation: u64) -> io::Result<()>;
}

/// Where no generation store is to be read: a generation that no content has, because content has at least the next one after it.
const UNKNOWN: u64 = 1 << 63;

/// Files are used without their cache from now on: what an SSD has of them is void for every later start. To be called before,
/// by whoever serves a source without its engine, such as after a start that failed.
///
/// # Errors
/// Those of the generation store: the SSD may be believed later then, and its files must not be changed.
pub fn void(generations: &dyn GenerationStore) -> io::Result<()> {
    // One that cannot be read now may be readable later.
    generations.store(generations.load().map_or(UNKNOWN, |generation| generation + 1))
}

/// A [`GenerationStore`] in a small file, replaced whole.
pub struct GenerationFile {
    path: PathBuf,
}

const BYTES: usize = 16;
const SEAL: u64 = 0x7769_746e_6573_7331;

impl GenerationFile {
    /// In the file `path`, which need not exist; its directory does.
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    fn directory(&self) -> &Path {
        match self.path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        }
    }
}

impl GenerationStore for GenerationFile {
    fn load(&self) -> Option<u64> {
        let bytes = fs::read(&self.path).ok()?;
        (bytes.len() == BYTES && is_sealed(&bytes, &[SEAL])).then(|| get_u64(&bytes, 8))
    }

    fn store(&self, generation: u64) -> io::Result<()> {
        let mut bytes = [0; BYTES];
        put_u64(&mut bytes, 8, generation);
        seal(&mut bytes, &[SEAL]);
        let mut new = self.path.clone().into_os_string();
        new.push(".new");
        // For its owner alone, whatever the umask.
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&new)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&new, &self.path)?;
        File::open(self.directory())?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn it_keeps_a_generation_and_a_damaged_file_has_none() {
        let directory = std::env::temp_dir().join(format!("bathy-generation-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory for the test");
        let generations = GenerationFile::new(directory.join("w"));
        assert_eq!(generations.load(), None);
        generations.store(7).expect("stored");
        let mode = fs::metadata(directory.join("w"))
            .expect("there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        generations.store(9).expect("replaced");
        assert_eq!(generations.load(), Some(9));
        let mut bytes = fs::read(&generations.path).expect("the file");
        for byte in 0..bytes.len() {
            bytes[byte] ^= 4;
            fs::write(&generations.path, &bytes).expect("damaged");
            assert_eq!(generations.load(), None);
            bytes[byte] ^= 4;
        }
        fs::remove_dir_all(&directory).expect("removed");
    }
}
