//! A file or block device, for one user at a time.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg, OFlag, PosixFadviseAdvice, posix_fadvise};
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};

use crate::store::aligned::{ALIGNMENT, Aligned, is_aligned};
use crate::store::file_system::FileSystem;
use crate::store::held_for_moments::wait_for_moments;
use crate::store::timed_io;
use crate::store::{BlockStore, Place, PlacesRead, Stamp, Until, parts_of};
use crate::sync::atomic::{AtomicBool, Ordering};

/// A [`BlockStore`] over a file or block device, with direct I/O where the file system and the request allow it.
///
/// Direct and buffered I/O meet in one file: what is not aligned goes through the page cache, and so do writes of applications that
/// do ([`BlockStore::write_some_buffered`]). Both see the same bytes. A direct read has the dirty pages of its range written first, and a
/// direct write besides drops the pages of its range before and after (`kiocb_write_and_wait`, `kiocb_invalidate_pages`,
/// `kiocb_invalidate_post_direct_write`). No page comes in between: a buffered write has the lock of the inode for itself, which a
/// direct write shares until it ends, as all here wait for theirs; and a read that fills a page from what a direct write is about to
/// replace is one at the same time, whose page is dropped after it. What flushes says of durability holds for both: `fdatasync`
/// writes dirty pages before it empties the write cache of the device, and a power cut before takes any of the writes since, whichever
/// way they went. An error of a page that the system wrote back is told by the next flush.
pub struct FileStore {
    path: PathBuf,
    /// For what is not aligned, and where direct I/O is not supported.
    buffered: File,
    direct: Option<File>,
    is_device: bool,
    /// Its file system has no device that could keep a read waiting.
    is_in_memory: bool,
    /// Its file system may wait for another program or machine while a request is handed over, and for locks that such a wait
    /// holds: no ring is handed a request that is to end in time.
    may_block: bool,
    /// Something was written to the page cache since the last flush.
    may_be_dirty: AtomicBool,
    /// Held for as long as the store exists.
    _lock: Option<Flock<File>>,
}

impl FileStore {
    /// Opens a file or device that exists and locks it (`flock`). A device is held alone (`O_EXCL`) besides: the kernel
    /// neither mounts it nor makes it a part of another one meanwhile. Who has a device for a moment is waited for.
    ///
    /// # Errors
    /// If it cannot be opened, the system uses it (`ResourceBusy`), or another user has locked it (`WouldBlock`).
    pub fn open(path: &Path) -> io::Result<Self> {
        // Of a file the flag has no meaning without `O_CREAT`.
        let is_device = std::fs::metadata(path)?.file_type().is_block_device();
        let alone = if is_device { OFlag::O_EXCL } else { OFlag::empty() };
        let is_held = |error: &io::Error| {
            let held = [io::ErrorKind::ResourceBusy, io::ErrorKind::WouldBlock];
            is_device && held.contains(&error.kind())
        };
        wait_for_moments(|| Self::open_locked(path, alone), is_held)
    }

    fn open_locked(path: &Path, alone: OFlag) -> io::Result<Self> {
        let store = Self::open_with(path, alone)?;
        // Small reads go through the page cache, beside direct writes. Read ahead, it could keep a block of before such a write.
        let _advice = posix_fadvise(&store.buffered, 0, 0, PosixFadviseAdvice::POSIX_FADV_RANDOM);
        let lock = Flock::lock(store.buffered.try_clone()?, FlockArg::LockExclusiveNonblock)
            .map_err(|(_, error)| io::Error::from(error))?;
        Ok(Self {
            _lock: Some(lock),
            ..store
        })
    }

    /// Opens a file or device that exists. For a front end that keeps other users away by its own means.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open_unlocked(path: &Path) -> io::Result<Self> {
        Self::open_with(path, OFlag::empty())
    }

    fn open_with(path: &Path, once: OFlag) -> io::Result<Self> {
        let open = |flags: OFlag| {
            OpenOptions::new()
                .read(true)
                .write(true)
                .custom_flags(flags.bits())
                .open(path)
        };
        // Who has a device alone has it by one descriptor.
        let buffered = open(OFlag::O_CLOEXEC | once)?;
        let is_device = buffered.metadata()?.file_type().is_block_device();
        // Some file systems do not support it.
        let direct = open(OFlag::O_CLOEXEC | OFlag::O_DIRECT).ok();
        let is_in_memory = fstatfs(&buffered).is_ok_and(|it| it.filesystem_type() == TMPFS_MAGIC);
        let may_block = !matches!(FileSystem::of(&buffered), Ok(FileSystem::Local));
        Ok(Self {
            path: path.to_path_buf(),
            buffered,
            direct,
            is_device,
            is_in_memory: is_in_memory && !is_device,
            may_block: may_block && !is_device,
            may_be_dirty: AtomicBool::new(false),
            _lock: None,
        })
    }

    /// Whether aligned requests go past the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// Calls `write` with the descriptor for `data` and the bytes, aligned if it is the one for direct I/O.
    fn with_aligned<T>(
        &self,
        data: &[u8],
        offset: u64,
        write: impl FnOnce(&File, &[u8]) -> io::Result<T>,
    ) -> io::Result<T> {
        let Some(direct) = self.direct_for(data.len(), offset) else {
            return write(&self.buffered, data);
        };
        if is_aligned(data, offset) {
            return write(direct, data);
        }
        let mut aligned = Aligned::to_fill(data.len());
        aligned.copy_from_slice(data);
        write(direct, &aligned)
    }

    fn direct_for(&self, len: usize, offset: u64) -> Option<&File> {
        let fits = len % ALIGNMENT == 0 && offset % ALIGNMENT as u64 == 0;
        self.direct.as_ref().filter(|_| fits)
    }
}

/// Writes `data` up to the first error, which is returned if it comes before the first byte: how many bytes were written.
///
/// # Errors
/// If nothing can be written.
pub fn write_some(file: &File, data: &[u8], offset: u64) -> io::Result<usize> {
    let mut written = 0;
    while written < data.len() {
        match file.write_at(&data[written..], offset + written as u64) {
            Ok(0) if written == 0 => return Err(io::ErrorKind::WriteZero.into()),
            Ok(0) => break,
            Ok(more) => written += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) if written > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(written)
}

impl BlockStore for FileStore {
    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        // A direct read would wait until the dirty pages of its range are written.
        let is_direct = !self.may_be_dirty.load(Ordering::Relaxed);
        let Some(direct) = self.direct_for(buffer.len(), offset).filter(|_| is_direct) else {
            return self.buffered.read_exact_at(buffer, offset);
        };
        if is_aligned(buffer, offset) {
            return direct.read_exact_at(buffer, offset);
        }
        let mut aligned = Aligned::to_fill(buffer.len());
        direct.read_exact_at(&mut aligned, offset)?;
        buffer.copy_from_slice(&aligned);
        Ok(())
    }

    fn read_within(
        &self,
        mut bytes: Aligned,
        places: &[Place],
        until: &Until<'_>,
    ) -> Result<io::Result<PlacesRead>, Aligned> {
        if self.is_in_memory {
            let read = |(place, part): (Place, _)| self.read(&mut bytes[part], place.offset);
            let ends = parts_of(places).map(read).collect();
            return Ok(Ok((bytes, ends)));
        }
        if self.may_block {
            return Err(bytes);
        }
        let are_aligned = places
            .iter()
            .all(|it| self.direct_for(it.len, it.offset).is_some());
        let direct = self.direct.as_ref().filter(|_| are_aligned);
        timed_io::read(direct.unwrap_or(&self.buffered), bytes, places, until)
    }

    fn write_within(&self, data: Aligned, offset: u64, until: &Until<'_>) -> Result<io::Result<()>, Aligned> {
        if self.is_in_memory {
            return Ok(self.write(&data, offset));
        }
        if self.may_block {
            return Err(data);
        }
        match self.direct_for(data.len(), offset) {
            Some(direct) => timed_io::write(direct, data, offset, until),
            None => Err(data),
        }
    }

    /// Reads of less than a block go through the page cache, and direct writes past it. One that the kernel ends for its caller
    /// (`pwrite`) drops the pages of its range before and after, and waits for those that are being read. One that ends by
    /// itself, as all of `io_uring` do, does so for files, but for a device before alone (`blkdev_direct_write`): a page
    /// that is read meanwhile keeps the bytes of before.
    fn leaves_old_pages(&self) -> bool {
        self.is_device && self.is_direct()
    }

    fn write(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.with_aligned(data, offset, |file, data| file.write_all_at(data, offset))
    }

    fn write_some(&self, data: &[u8], offset: u64) -> io::Result<usize> {
        self.with_aligned(data, offset, |file, data| write_some(file, data, offset))
    }

    fn write_some_buffered(&self, data: &[u8], offset: u64) -> io::Result<usize> {
        let written = write_some(&self.buffered, data, offset);
        self.may_be_dirty.store(true, Ordering::Relaxed);
        written
    }

    fn flush(&self) -> io::Result<()> {
        self.may_be_dirty.store(false, Ordering::Relaxed);
        // That of one descriptor is that of the file, and each of them is told of its write errors. A second one would empty the
        // write cache of the device once more.
        self.buffered.sync_data()
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn size_bytes(&self) -> io::Result<u64> {
        if self.is_device {
            return (&self.buffered).seek(SeekFrom::End(0));
        }
        Ok(self.buffered.metadata()?.len())
    }

    fn stamp(&self) -> io::Result<Stamp> {
        self.may_be_dirty.store(false, Ordering::Relaxed);
        // A flush leaves the times in memory. Each descriptor is told of a lost write once: that of flushes may not miss one
        // because who asks for a stamp was told.
        self.direct.as_ref().unwrap_or(&self.buffered).sync_all()?;
        self.look()
    }

    fn look(&self) -> io::Result<Stamp> {
        let metadata = self.buffered.metadata()?;
        if self.is_device {
            // The inode is that of the device node, and its times say nothing of the bytes.
            return Ok(Stamp {
                size_bytes: self.size_bytes()?,
                id: metadata.rdev(),
                ..Stamp::default()
            });
        }
        let nanoseconds =
            |seconds: i64, rest: i64| (seconds as u64).wrapping_mul(1_000_000_000) + rest as u64;
        Ok(Stamp {
            size_bytes: metadata.len(),
            id: metadata.ino(),
            modified_ns: nanoseconds(metadata.mtime(), metadata.mtime_nsec()),
            changed_ns: nanoseconds(metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}
