//! What carries out reads and writes without a session.

use std::io;

use fuser::WriteFlags;

use crate::caller::Caller;

/// Reads and writes of open files, which do not pass through the `Filesystem`.
pub trait DataPath: Send + Sync + 'static {
    /// As [`Self::read`], in the thread that takes all requests of a processor: `None` if it would have to wait for a slow
    /// device.
    fn read_at_hand(&self, handle: u64, offset: u64, buffer: &mut [u8]) -> Option<io::Result<usize>>;

    /// Whether writes have to wait for a device.
    fn is_written_through(&self, handle: u64) -> bool;

    /// Reads into `buffer`, which is aligned to pages, and returns the bytes read: fewer only at the end of the file.
    ///
    /// # Errors
    /// The application gets the error.
    fn read(&self, handle: u64, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes `data` for `caller`, and returns how many bytes were written, from the first one on. `is_durable`: they are when this
    /// returns, whatever the file was opened for.
    ///
    /// # Errors
    /// The application gets the error. Nothing was written.
    fn write(
        &self,
        caller: Caller,
        handle: u64,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
        is_durable: bool,
    ) -> io::Result<usize>;
}
