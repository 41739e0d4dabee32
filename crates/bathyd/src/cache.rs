//! What the front end asks for the bytes of files.

use std::fs::File;
use std::io;
use std::sync::Arc;

use serde_json::Value;

use crate::identity::FileIdentity;

/// A cache for the files of a directory. No fault of the cache is the caller's: what it cannot cache it leaves alone.
pub trait FileCache: Send + Sync + 'static {
    /// The cache of a file that somebody opens, or `None` if this file is not cached. `file` is open for reading and writing,
    /// and nobody writes to the file but through what is returned, for as long as that exists.
    ///
    /// # Errors
    /// If the file is not cached from now on, and the cache cannot keep that for later either: what it has of the file would
    /// be believed when it is stale.
    fn attach(&self, identity: &FileIdentity, file: &Arc<File>) -> io::Result<Option<Arc<dyn CachedFile>>>;

    /// To be called every few seconds.
    fn tidy(&self) {}

    /// Stops, when no attached file is used any more. Whether the next start finds everything as it was.
    fn stop(&self) -> bool {
        true
    }

    /// What is known of it.
    fn status(&self) -> Value {
        Value::Null
    }
}

/// A file whose bytes may be cached. Errors are those of the file, unchanged.
pub trait CachedFile: Send + Sync {
    /// Reads from `offset` on, and returns the bytes read: fewer than asked for only at the end of the file.
    ///
    /// # Errors
    /// If the file cannot be read.
    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes `data` at `offset`; the file grows if it has to.
    ///
    /// # Errors
    /// If the file cannot be written.
    fn write(&self, data: &[u8], offset: u64) -> io::Result<()>;

    /// Makes completed writes durable.
    ///
    /// # Errors
    /// If any of them may be lost.
    fn flush(&self) -> io::Result<()>;

    /// Makes a range read as zeroes, as far as the file reaches.
    ///
    /// # Errors
    /// If the file cannot be written.
    fn discard(&self, offset: u64, length: u64) -> io::Result<()>;

    /// Sets the size.
    ///
    /// # Errors
    /// If the size cannot be changed.
    fn resize(&self, length: u64) -> io::Result<()>;
}

/// Caches nothing: the plain directory.
#[derive(Debug, Default)]
pub struct NoCache;

impl FileCache for NoCache {
    fn attach(&self, _identity: &FileIdentity, _file: &Arc<File>) -> io::Result<Option<Arc<dyn CachedFile>>> {
        Ok(None)
    }
}
