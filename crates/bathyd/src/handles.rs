//! What applications have open.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use bathy_cache::{Events, write_some};
use bathy_fuse::Caller;
use fuser::FileHandle;
use rustix::fs::{OFlags, fdatasync, fsync};
use rustix::io::{ReadWriteFlags, preadv2};

use crate::cache::{CachedFile, FileCache};
use crate::counts::FrontCounts;
use crate::credentials::with_rights_taken;
use crate::descriptors::Permit;
use crate::inodes::Inode;

/// Alignment of direct I/O that every device takes.
const ALIGNMENT: usize = 4096;
/// Alignment below which direct I/O is not tried.
const SECTOR: usize = 512;

/// Descriptors of an open file: one of them for direct I/O.
pub(crate) const OPEN_DESCRIPTORS: usize = 2;

/// An open file. It has a descriptor of its own below: each reports an error of written-back data once, as on the plain
/// directory.
pub(crate) struct OpenFile {
    pub(crate) inode: Arc<Inode>,
    pub(crate) file: File,
    /// For an application that opened it with `O_DIRECT`.
    direct: Option<File>,
    _permit: Permit,
    pub(crate) cached: Option<Arc<dyn CachedFile>>,
    is_durable: bool,
    /// Failed flushes that its owner was told of.
    told: AtomicU64,
    /// Writes go to the page cache below, as on the plain directory.
    is_buffered: bool,
    /// For whom the kernel writes pages of its mappings back.
    pub(crate) opener: Caller,
    counts: Arc<FrontCounts>,
}

impl OpenFile {
    /// `file` was opened with `flags`, those of the application, and the right to [`OPEN_DESCRIPTORS`].
    pub(crate) fn new(
        inode: Arc<Inode>,
        (file, permit): (File, Permit),
        flags: OFlags,
        opener: Caller,
        cache: &dyn FileCache,
        counts: Arc<FrontCounts>,
    ) -> io::Result<Self> {
        let cached = inode.attach(cache, opener.user)?;
        let direct = (cached.is_none() && flags.contains(OFlags::DIRECT))
            .then(|| inode.open(flags_below(flags) | OFlags::DIRECT).ok())
            .flatten();
        let failed = cached.as_ref().map_or(0, |cached| cached.failed_flushes());
        Ok(Self {
            inode,
            file,
            direct,
            _permit: permit,
            cached,
            is_durable: asks_for_durability(flags.bits()),
            told: AtomicU64::new(failed),
            is_buffered: !flags.intersects(OFlags::DSYNC | OFlags::DIRECT),
            opener,
            counts,
        })
    }

    /// As [`Self::read_into`], or `None` if it would have to wait for a device below. What the cache holds may leave it just then,
    /// which is rare and costs one wait.
    pub(crate) fn read_at_hand(&self, offset: u64, buffer: &mut [u8]) -> Option<io::Result<usize>> {
        if let Some(cached) = &self.cached {
            let is_held = cached.holds(offset, buffer.len());
            return is_held.then(|| self.read_into(offset, buffer, &Events::UNHEARD));
        }
        let whole = buffer.len();
        let in_memory = || -> io::Result<usize> {
            let buffer = &mut [IoSliceMut::new(buffer)];
            let read = preadv2(&self.file, buffer, offset, ReadWriteFlags::NOWAIT)?;
            // It ends with the file, or with what is in memory.
            (read == whole)
                .then_some(read)
                .ok_or(io::ErrorKind::WouldBlock.into())
        };
        if self.direct.is_some() {
            return None;
        }
        self.counts
            .pending(|| self.counts.uncached(false, in_memory))
            .ok()
            .map(Ok)
    }

    /// Whether a write has to wait for a device below.
    pub(crate) fn is_written_through(&self) -> bool {
        self.is_durable || self.direct.is_some()
    }

    /// Reads into `buffer`, which is aligned for direct I/O, and returns the bytes read: fewer only at the end of the file.
    /// Copies to the SSD that are made after the bytes are there are a part of the request, which is pending until then.
    pub(crate) fn read_into(&self, offset: u64, buffer: &mut [u8], events: &Events<'_>) -> io::Result<usize> {
        self.counts.pending(|| {
            if let Some(cached) = &self.cached {
                return cached.read(buffer, offset, events);
            }
            (events.waits)();
            self.counts.uncached(false, || self.read_below(buffer, offset))
        })
    }

    fn read_below(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match &self.direct {
            Some(direct) if is_aligned(offset, buffer.len()) => read_full(direct, buffer, offset)
                .or_else(|error| unaligned(error, || read_full(&self.file, buffer, offset))),
            _ => read_full(&self.file, buffer, offset),
        }
    }

    /// Writes `data` with the rights of [`Rights::within`](crate::credentials::Rights::within), and returns how many bytes
    /// were written: an error that comes after some of them comes with the rest. `is_durable`: this write asks for it, as
    /// `pwritev2` with `RWF_DSYNC` does.
    pub(crate) fn write(&self, data: &[u8], offset: u64, is_durable: bool) -> io::Result<usize> {
        self.counts.pending(|| {
            let written = if let Some(cached) = &self.cached {
                cached.write(data, offset, self.is_buffered && !is_durable)?
            } else {
                let write = || with_rights_taken(|| self.write_below(data, offset));
                self.counts.uncached(true, write)?
            };
            // A descriptor below that was opened for it does it by itself.
            let is_done = self.cached.is_none() && self.is_durable;
            if (is_durable || self.is_durable) && !is_done {
                self.sync(true)?;
            }
            Ok(written)
        })
    }

    fn write_below(&self, data: &[u8], offset: u64) -> io::Result<usize> {
        match &self.direct {
            Some(direct) if is_aligned(offset, data.len()) => with_buffer(data.len(), |buffer| {
                buffer.copy_from_slice(data);
                write_some(direct, buffer, offset)
                    .or_else(|error| unaligned(error, || write_some(&self.file, data, offset)))
            }),
            _ => write_some(&self.file, data, offset),
        }
    }

    pub(crate) fn sync(&self, data_only: bool) -> io::Result<()> {
        if let Some(cached) = &self.cached {
            let flushed = cached.flush();
            let failed = cached.failed_flushes();
            // Whoever asked for the flush that failed: these may be writes of this owner that were lost.
            if self.told.swap(failed, Ordering::AcqRel) != failed {
                return flushed.and(Err(rustix::io::Errno::IO.into()));
            }
            flushed?;
            if data_only {
                return Ok(());
            }
        }
        let synced = if data_only {
            fdatasync(&self.file)
        } else {
            fsync(&self.file)
        };
        Ok(synced?)
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.cached = None;
        self.inode.detach();
    }
}

/// Whether flags of an open file, or of a write, ask for durable writes. `O_SYNC` contains `O_DSYNC`; rustix calls the former by both
/// names.
pub(crate) fn asks_for_durability(flags: u32) -> bool {
    flags & libc::O_DSYNC as u32 != 0
}

/// Flags for the descriptor below: the kernel has truncated, and it gives the offset of what is appended.
pub(crate) fn flags_below(flags: OFlags) -> OFlags {
    flags & (OFlags::RDONLY | OFlags::WRONLY | OFlags::RDWR | OFlags::SYNC | OFlags::DSYNC | OFlags::NOATIME)
}

fn is_aligned(offset: u64, length: usize) -> bool {
    offset % SECTOR as u64 == 0 && length % SECTOR == 0
}

/// What direct I/O refuses by its alignment goes through the page cache, such as pages of mappings that are written back.
fn unaligned<T>(error: io::Error, otherwise: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    if error.raw_os_error() == Some(libc::EINVAL) {
        otherwise()
    } else {
        Err(error)
    }
}

fn read_full(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut read = 0;
    while read < buffer.len() {
        match file.read_at(&mut buffer[read..], offset + read as u64) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // The bytes before the error are good; who reads on gets the error.
            Err(_) if read > 0 => break,
            Err(error) => return Err(error),
        }
        // The rest of a direct read that ended inside a sector is not aligned, and is the end.
        if read % SECTOR != 0 {
            break;
        }
    }
    Ok(read)
}

/// Calls `use_it` with this thread's aligned buffer.
pub(crate) fn with_buffer<R>(length: usize, use_it: impl FnOnce(&mut [u8]) -> R) -> R {
    thread_local! {
        static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    BUFFER.with_borrow_mut(|buffer| {
        if buffer.len() < length + ALIGNMENT {
            buffer.resize(length + ALIGNMENT, 0);
        }
        let start = buffer.as_ptr().align_offset(ALIGNMENT);
        use_it(&mut buffer[start..start + length])
    })
}

/// An open directory: where reading goes on is a property of the descriptor, so one reads at a time.
pub(crate) struct OpenDirectory {
    pub(crate) file: Mutex<File>,
    _permit: Permit,
}

impl OpenDirectory {
    pub(crate) fn new(file: File, permit: Permit) -> Self {
        Self {
            file: Mutex::new(file),
            _permit: permit,
        }
    }
}

/// Values by the numbers that the kernel knows them by.
pub(crate) struct Handles<T> {
    open: RwLock<HashMap<u64, Arc<T>>>,
    next: AtomicU64,
}

impl<T> Default for Handles<T> {
    fn default() -> Self {
        Self {
            open: RwLock::default(),
            next: AtomicU64::new(1),
        }
    }
}

impl<T> Handles<T> {
    pub(crate) fn insert(&self, value: T) -> FileHandle {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        open.insert(number, Arc::new(value));
        FileHandle(number)
    }

    pub(crate) fn get(&self, handle: FileHandle) -> rustix::io::Result<Arc<T>> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.get(&handle.0).cloned().ok_or(rustix::io::Errno::BADF)
    }

    pub(crate) fn remove(&self, handle: FileHandle) {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        let removed = open.remove(&handle.0);
        drop(open);
        drop(removed);
    }

    pub(crate) fn len(&self) -> usize {
        self.open.read().unwrap_or_else(PoisonError::into_inner).len()
    }
}
