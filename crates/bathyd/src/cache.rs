//! What the front end asks for the bytes of files.

use std::io;
use std::sync::Arc;

use bathy_cache::Events;

use crate::identity::FileIdentity;
use crate::inodes::Inode;

/// A change of a file by other means than a write.
pub(crate) type Change<'a> = &'a mut dyn FnMut() -> io::Result<()>;

/// The cache of the files of a directory. No fault of the cache is the caller's: what it cannot cache it leaves alone.
pub(crate) trait FileCache: Send + Sync + 'static {
    /// The cache of a file that somebody opens, or `None` if this file is not cached. While it is cached, nobody writes to the
    /// file but through what is returned.
    ///
    /// # Errors
    /// If what the cache has of the file could become stale because the file cannot be opened now.
    fn attach(&self, inode: &Inode) -> io::Result<Option<Arc<dyn CachedFile>>>;

    /// The last link of a file goes by `change`.
    ///
    /// # Errors
    /// Those of `change`, and if the cache could serve the removed bytes to a file that gets the same handle later.
    fn forget(&self, identity: &FileIdentity, change: Change<'_>) -> io::Result<()>;
}

/// A file whose bytes may be cached. Errors are those of the file, unchanged.
pub(crate) trait CachedFile: Send + Sync {
    /// Whether a read, if it came now, would not have to wait for the file.
    fn holds(&self, offset: u64, length: usize) -> bool;

    /// Reads from `offset` on, and returns the bytes read: fewer than asked for only at the end of the file. Who is told that all
    /// bytes are there can be answered then.
    fn read(&self, buffer: &mut [u8], offset: u64, events: &Events<'_>) -> io::Result<usize>;

    /// Writes `data` at `offset`, and returns how many bytes were written; the file grows if it has to. Buffered they may lie in
    /// the page cache of the file until they are flushed.
    fn write(&self, data: &[u8], offset: u64, is_buffered: bool) -> io::Result<usize>;

    /// Makes completed writes durable.
    fn flush(&self) -> io::Result<()>;

    /// Flushes that failed so far, whoever asked: one that succeeds says nothing of writes that were lost before.
    fn failed_flushes(&self) -> u64;

    /// `change` changes bytes in a range or takes space for it, up to which the file may grow.
    fn discard(&self, offset: u64, length: u64, change: Change<'_>) -> io::Result<()>;

    /// `change` sets the size.
    fn resize(&self, length: u64, change: Change<'_>) -> io::Result<()>;
}

/// Caches nothing: the plain directory.
pub(crate) struct NoCache;

impl FileCache for NoCache {
    fn attach(&self, _inode: &Inode) -> io::Result<Option<Arc<dyn CachedFile>>> {
        Ok(None)
    }

    fn forget(&self, _identity: &FileIdentity, change: Change<'_>) -> io::Result<()> {
        change()
    }
}
