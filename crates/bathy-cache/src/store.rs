//! What lies below a cache: a range of bytes that keeps what was flushed.
//!
//! An SSD has one size. A file grows by writes beyond its end, whose gap reads as zeros.

pub(crate) mod aligned;
pub(crate) mod file_store;
pub(crate) mod file_system;
pub(crate) mod guard;
pub(crate) mod held_for_moments;
pub(crate) mod ssd;
pub(crate) mod timed_io;

use std::io;
use std::ops::Range;
use std::time::Duration;

use smallvec::SmallVec;

use crate::store::aligned::Aligned;

/// By what an unchanged file is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Size.
    pub size_bytes: u64,
    /// Inode number of a file, number of a device.
    pub id: u64,
    /// When its bytes last changed.
    pub modified_ns: u64,
    /// When its bytes or its inode last changed.
    pub changed_ns: u64,
}

impl Stamp {
    /// Whether times say if it was changed. Those of a device do not.
    pub fn has_times(&self) -> bool {
        self.modified_ns != 0
    }
}

/// What an unchanged [`Stamp`] says of a store that was used in an earlier session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// The bytes are as they were.
    #[default]
    Stamp,
    /// Who changes them need not change it, so some lines are compared besides: a device can be changed from below.
    Sample,
    /// Nothing: the store may be another one.
    Nothing,
}

/// Until when an operation is waited for.
pub struct Until<'a> {
    /// From its begin; of several, from the last end of one of them: a store that answers slowly does not hang.
    pub deadline: Duration,
    /// Whether nobody waits any more, which is asked now and then.
    pub is_over: &'a dyn Fn() -> bool,
}

/// A place of a store that is read.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Where it begins.
    pub offset: u64,
    /// Its bytes.
    pub len: usize,
}

/// Places with the parts of a buffer that they are read to, one after the other.
pub fn parts_of(places: &[Place]) -> impl Iterator<Item = (Place, Range<usize>)> {
    places.iter().scan(0, |end, &place| {
        let start = *end;
        *end += place.len;
        Some((place, start..*end))
    })
}

/// The bytes of places, one after the other, and for each of them whether it could be read.
pub type PlacesRead = (Aligned, SmallVec<[io::Result<()>; 2]>);

/// A file, device or stand-in. A write is durable once a flush that began after its end has succeeded; until then a power
/// cut may lose it, keep it, or keep some of its sectors of 512 bytes.
///
/// This is the seam for asynchronous I/O: a worker with a ring of its own implements the same operations.
pub trait BlockStore: Send + Sync {
    /// Fills `buffer` from `offset` on.
    ///
    /// # Errors
    /// If any byte cannot be read, also beyond the end.
    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// [`BlockStore::read`] of all these places at once to `bytes`, one behind the other ([`parts_of`]), that ends with `TimedOut` when
    /// no place was read for as long as the deadline, or soon after it is over, with `NotConnected`. Gives `bytes` back if the store
    /// cannot do this, and a thread is needed for it.
    ///
    /// # Errors
    /// The outer one is `bytes`. The inner one is that of all places.
    fn read_within(
        &self,
        bytes: Aligned,
        places: &[Place],
        until: &Until<'_>,
    ) -> Result<io::Result<PlacesRead>, Aligned> {
        let _ = (places, until);
        Err(bytes)
    }

    /// [`BlockStore::write`] that ends as [`BlockStore::read_within`] does.
    ///
    /// # Errors
    /// The outer one is `data`, of which nothing or a part may be written.
    fn write_within(&self, data: Aligned, offset: u64, until: &Until<'_>) -> Result<io::Result<()>, Aligned> {
        let _ = (offset, until);
        Err(data)
    }

    /// Whether [`BlockStore::write_within`] may leave bytes of before to reads of less than a block that come after it.
    fn leaves_old_pages(&self) -> bool {
        false
    }

    /// Writes `data` at `offset`. After an error each sector may have its old or its new bytes.
    ///
    /// # Errors
    /// If any byte cannot be written.
    fn write(&self, data: &[u8], offset: u64) -> io::Result<()>;

    /// [`BlockStore::write`] for a caller who can go on after a part: how many bytes from the first one on were written. Of an
    /// error behind some bytes nothing is said; it comes with the rest.
    ///
    /// # Errors
    /// If nothing can be written. Each sector may have its old or its new bytes then.
    fn write_some(&self, data: &[u8], offset: u64) -> io::Result<usize> {
        self.write(data, offset).map(|()| data.len())
    }

    /// [`BlockStore::write_some`] for an application that asked for no more than the bare file gives it: the bytes may lie in the page
    /// cache, where reads find them, until a flush or the system writes them.
    ///
    /// # Errors
    /// Those of [`BlockStore::write_some`]; others come with the flush.
    fn write_some_buffered(&self, data: &[u8], offset: u64) -> io::Result<usize> {
        self.write_some(data, offset)
    }

    /// Makes completed writes durable (`fdatasync`).
    ///
    /// # Errors
    /// If any of them may be lost.
    fn flush(&self) -> io::Result<()>;

    /// What it is now, durably, with all of its bytes: nobody's power cut sets them or its times back.
    ///
    /// # Errors
    /// If it cannot be asked, or made durable.
    fn stamp(&self) -> io::Result<Stamp>;

    /// What it is now for who looks at it. A power cut may set its bytes and its times back, and not both of them.
    ///
    /// # Errors
    /// If it cannot be asked.
    fn look(&self) -> io::Result<Stamp> {
        self.stamp()
    }

    /// What its stamp is worth.
    fn trust(&self) -> Trust {
        Trust::Stamp
    }

    /// Its size. It need not be durable.
    ///
    /// # Errors
    /// If it cannot be asked.
    fn size_bytes(&self) -> io::Result<u64>;

    /// What people know it by.
    fn name(&self) -> String {
        "the store".to_owned()
    }
}
