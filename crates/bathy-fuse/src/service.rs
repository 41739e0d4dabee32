//! What the front end serves.

use crate::reply::Reply;

/// A file of the mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileEntry {
    /// Its name in the mounted directory.
    pub name: String,
    /// Its size, which never changes.
    pub size_bytes: u64,
}

/// The files of a mount and the I/O on them.
///
/// A file is named by its index in [`FileService::files`]. Methods are called from several threads at once and must not
/// block for longer than a copy of the data takes: keep the reply and answer it later. Offsets and lengths are within
/// the file, lengths are greater than 0 and at most [`crate::REQUEST_BYTES_MAX`] for reads and writes.
pub trait FileService: Send + Sync + 'static {
    /// The files; asked once.
    fn files(&self) -> Vec<FileEntry>;

    /// Read `length` bytes at `offset`; the reply takes exactly as many.
    fn read(&self, file: usize, offset: u64, length: u32, reply: Reply<[u8]>);

    /// Write `data` at `offset`. With `durable` the data must be on stable storage before the reply (`O_DSYNC`).
    fn write(&self, file: usize, offset: u64, data: &[u8], durable: bool, reply: Reply<()>);

    /// Reply when every write that was answered before this call is on stable storage (`fsync`, `fdatasync`).
    fn sync(&self, file: usize, reply: Reply<()>);

    /// Forget a range, which then reads as zeroes (`fallocate` that punches a hole or zeroes a range).
    fn discard(&self, file: usize, offset: u64, length: u64, reply: Reply<()>);
}
