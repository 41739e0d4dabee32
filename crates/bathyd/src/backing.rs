//! The files below a cache, written to with the rights of who asked for it.

use std::io;

use bathy_cache::{BlockStore, FileStore, Stamp};

use crate::credentials::with_rights_taken;

/// A file whose blocks are taken by its writers: what is left in a file system may be left for some of them alone.
pub(crate) struct WrittenByCallers(pub(crate) FileStore);

impl BlockStore for WrittenByCallers {
    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read(buffer, offset)
    }

    fn write(&self, data: &[u8], offset: u64) -> io::Result<()> {
        with_rights_taken(|| self.0.write(data, offset))
    }

    fn write_some(&self, data: &[u8], offset: u64) -> io::Result<usize> {
        with_rights_taken(|| self.0.write_some(data, offset))
    }

    fn write_some_buffered(&self, data: &[u8], offset: u64) -> io::Result<usize> {
        with_rights_taken(|| self.0.write_some_buffered(data, offset))
    }

    fn flush(&self) -> io::Result<()> {
        self.0.flush()
    }

    fn stamp(&self) -> io::Result<Stamp> {
        self.0.stamp()
    }

    fn look(&self) -> io::Result<Stamp> {
        self.0.look()
    }

    fn size_bytes(&self) -> io::Result<u64> {
        self.0.size_bytes()
    }
}
