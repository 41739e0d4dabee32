//! The front end: a directory, served over itself.
//!
//! All that is below is reached through descriptors, never by a path through the mount. The kernel checks permissions
//! (`default_permissions`) and keeps locks: everybody who uses the directory comes through this one mount, so locks that the
//! kernel keeps for it hold for all of them, be they of processes, of open files or `flock`, and waiting for one takes no
//! thread here. Who passes by the mount is kept out by the daemon's own locks below.

mod listing;
mod replies;
mod requests;
#[cfg(test)]
pub(crate) mod tests;

use std::cell::Cell;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Instant;

use bathy_cache::Events;
use bathy_fuse::{Caller, DataPath, Pace, Readers, Turn};
use fuser::{FileAttr, FileHandle, FileType, INodeNo, TimeOrNow, WriteFlags};
use rustix::fs::{
    AtFlags, FallocateFlags, Gid, Mode, OFlags, SeekFrom, Timestamps, Uid, chmodat, chownat, copy_file_range,
    fallocate, fstat, ftruncate, seek, utimensat,
};
use serde_json::{Value, json};

use crate::attributes::{self, timespec};
use crate::cache::{Change, FileCache};
use crate::counts::FrontCounts;
use crate::credentials::Rights;
use crate::descriptors::Permit;
use crate::devices::Devices;
use crate::handles::{Handles, OPEN_DESCRIPTORS, OpenDirectory, OpenFile, flags_below};
use crate::identity::FileIdentity;
use crate::inodes::{Entry, ITSELF, Inode, Inodes, path_of};
use crate::panics::Containment;
use crate::tree;

/// A copy takes one of few threads; the kernel goes on with the rest.
const COPY_BYTES_MAX: u64 = 16 << 20;
/// Threads that ask for requests at a time, where each can take any: more answer no more hits, and cost wake-ups.
const READERS: RangeInclusive<usize> = 2..=4;

const DEFAULT_ACL: &str = "system.posix_acl_default";
/// A directory, served over itself. Clones serve the same one.
#[derive(Clone)]
pub(crate) struct Directory {
    inodes: Arc<Inodes>,
    files: Arc<Handles<OpenFile>>,
    directories: Arc<Handles<OpenDirectory>>,
    cache: Arc<dyn FileCache>,
    counts: Arc<FrontCounts>,
    containment: Arc<Containment>,
    readers: Arc<Readers>,
    /// Of reads that the cache answers alone.
    hits: Arc<Pace>,
}

impl Directory {
    /// `root` is the directory in a mount of this process alone; `devices` are those of its links, and `cache` has the bytes of
    /// its files; requests are counted in `counts`, and panics of theirs end in `containment`.
    ///
    /// # Errors
    /// If the directory cannot be asked.
    pub(crate) fn new(
        root: OwnedFd,
        devices: Arc<Devices>,
        cache: Arc<dyn FileCache>,
        counts: Arc<FrontCounts>,
        containment: Arc<Containment>,
    ) -> io::Result<Self> {
        // The kernel sends modes with the caller's mask applied. Threads of a process share one mask.
        rustix::process::umask(Mode::empty());
        Ok(Self {
            inodes: Arc::new(Inodes::new(root, devices)?),
            files: Arc::default(),
            directories: Arc::default(),
            cache,
            counts,
            containment,
            readers: Arc::new(Readers::everyone()),
            hits: Arc::default(),
        })
    }

    /// To be served by one session of so many threads.
    pub(crate) fn in_one_session(self, threads: usize) -> Self {
        let processors = available_parallelism().map_or(1, usize::from);
        let most = processors.clamp(*READERS.start(), *READERS.end());
        Self {
            readers: Arc::new(Readers::new(threads, most)),
            ..self
        }
    }

    /// Begins a request that may wait for a device; held until it is answered.
    fn waiting(&self) -> Turn<'_> {
        let turn = self.readers.turn();
        turn.may_wait();
        turn
    }

    /// Answers a request that may wait for a device.
    fn answer(&self, answer: impl FnOnce()) {
        let _turn = self.waiting();
        self.survive(answer);
    }

    /// What panics beside the work that a request asks for ends no thread of the session either: it would not be replaced. The
    /// kernel gets `EIO` for a reply that is dropped.
    fn survive(&self, answer: impl FnOnce()) {
        let _failed = self.contain(|| {
            answer();
            Ok(())
        });
    }

    /// Carries out a request: `EIO` if that panics.
    fn contain<T>(&self, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        self.containment.is_served_here();
        self.containment.contain(work)
    }

    /// Says what is in use, for as long as the front end is mounted.
    pub(crate) fn status(&self) -> impl Fn() -> Value + Send + Sync + 'static {
        // Weak: files are used until the mount ends, not until nobody asks any more.
        let (inodes, files) = (Arc::downgrade(&self.inodes), Arc::downgrade(&self.files));
        move || {
            let inodes = inodes.upgrade().map_or(0, |inodes| inodes.len());
            let files = files.upgrade().map_or(0, |files| files.len());
            json!({"inodes": inodes, "open_files": files})
        }
    }

    fn opened(
        &self,
        caller: Caller,
        inode: Arc<Inode>,
        file: (File, Permit),
        flags: OFlags,
    ) -> io::Result<FileHandle> {
        let opened = OpenFile::new(inode, file, flags, caller, &*self.cache, Arc::clone(&self.counts))?;
        Ok(self.files.insert(opened))
    }

    /// An entry that was just made, as it is and not as devices of an OSD are shown.
    fn made(&self, caller: Caller, parent: &Inode, name: &OsStr) -> io::Result<Entry> {
        let made = tree::open_path(parent.fd()?, name)?;
        Ok(self.inodes.know(made, None, caller.user)?.tell())
    }

    fn change(&self, caller: Caller, number: INodeNo, changes: &Changes) -> io::Result<FileAttr> {
        let inode = self.inodes.get(number)?;
        if changes.user.is_some() || changes.group.is_some() {
            let (user, group) = (changes.user.map(Uid::from_raw), changes.group.map(Gid::from_raw));
            let _acting = Rights::permitted(caller, mode_of(inode.fd()?)?).take();
            chownat(inode.fd()?, "", user, group, ITSELF)?;
        }
        if let Some(mode) = changes.mode {
            let fd = inode.fd()?;
            chmodat(
                rustix::fs::CWD,
                path_of(&fd),
                Mode::from_raw_mode(mode & 0o7777),
                AtFlags::empty(),
            )?;
        }
        if let Some(size) = changes.size {
            self.resize(caller, &inode, size, changes.handle)?;
        }
        if changes.atime.is_some() || changes.mtime.is_some() {
            let times = Timestamps {
                last_access: timespec(changes.atime),
                last_modification: timespec(changes.mtime),
            };
            utimensat(inode.fd()?, "", &times, ITSELF)?;
        }
        Ok(inode.attributes()?)
    }

    fn resize(&self, caller: Caller, inode: &Inode, size: u64, handle: Option<FileHandle>) -> io::Result<()> {
        if inode.is_device() {
            let is_size = inode.attributes()?.size == size;
            return if is_size {
                Ok(())
            } else {
                Err(rustix::io::Errno::INVAL.into())
            };
        }
        let rights = Rights::of(caller, mode_of(inode.fd()?)?);
        let cached = inode.attach(&*self.cache, caller.user)?;
        let cut = |file: &File| {
            let _acting = rights.take();
            ftruncate(file, size)
        };
        let mut change = || {
            let changed = match handle {
                Some(handle) => self.files.get(handle).and_then(|open| cut(&open.file)),
                None => inode.open(OFlags::WRONLY).and_then(|file| cut(&file)),
            };
            Ok(changed?)
        };
        let resized = match &cached {
            Some(cached) => cached.resize(size, &mut change),
            None => change(),
        };
        drop(cached);
        inode.detach();
        resized
    }

    fn open_file(&self, caller: Caller, number: INodeNo, flags: OFlags) -> io::Result<FileHandle> {
        let inode = self.inodes.get(number)?;
        let permit = inode.permit(caller.user, OPEN_DESCRIPTORS)?;
        let file = inode.open(flags_below(flags))?;
        self.opened(caller, inode, (file, permit), flags)
    }

    fn create_file(
        &self,
        caller: Caller,
        parent: INodeNo,
        name: &OsStr,
        masked: (u32, u32),
        flags: OFlags,
    ) -> io::Result<(Entry, FileHandle)> {
        let parent = self.inodes.get(parent)?;
        let mode = mode_of_new(&parent, masked)?;
        let (directory, permit) = (parent.fd()?, parent.permit(caller.user, OPEN_DESCRIPTORS)?);
        let made = {
            let _acting = Rights::permitted(caller, mode).take();
            tree::create(&directory, name, flags_below(flags), mode)
        };
        let file = match made {
            // Somebody has made it past the mount since the kernel looked. Who may open it has not been asked: the kernel
            // looks again.
            Err(rustix::io::Errno::EXIST) if !flags.contains(OFlags::EXCL) => Err(rustix::io::Errno::STALE),
            made => made,
        }?;
        // By the descriptor: the name may lead elsewhere by now.
        let made = self.inodes.know(tree::path_of(&file)?, None, caller.user)?;
        let handle = self.opened(caller, Arc::clone(&made.inode), (file, permit), flags)?;
        Ok((made.tell(), handle))
    }

    fn read_file(
        &self,
        open: &OpenFile,
        offset: u64,
        buffer: &mut [u8],
        turn: &Turn<'_>,
        served: &dyn Fn(&[u8]),
    ) -> io::Result<usize> {
        // The SSD may be slow too.
        if !self.hits.is_quick() {
            turn.may_wait();
        }
        let (begun, is_hit) = (Instant::now(), Cell::new(true));
        let events = Events {
            waits: &|| {
                is_hit.set(false);
                turn.may_wait();
            },
            served,
        };
        let read = open.read_into(offset, buffer, &events);
        if is_hit.get() {
            self.hits.note(begun.elapsed());
        }
        read
    }

    /// Writes `data`, and returns how many bytes were written.
    fn write_file(
        &self,
        caller: Caller,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
        is_durable: bool,
    ) -> io::Result<usize> {
        let open = self.files.get(handle)?;
        let is_of_mapping = flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let caller = if is_of_mapping { open.opener } else { caller };
        // The kernel says whether set-id bits go, which the file system below does at the write.
        let loses_set_id = flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        let mode = if loses_set_id {
            mode_of(&open.file)?
        } else {
            Mode::empty()
        };
        let rights = Rights::of(caller, mode).keeping_set_id(!loses_set_id);
        let mut written = 0;
        loop {
            let rights = rights.clone();
            written += rights.within(|| open.write(&data[written..], offset + written as u64, is_durable))?;
            // Of pages that it writes back the kernel notices errors alone.
            if written == data.len() || !is_of_mapping {
                return Ok(written);
            }
        }
    }

    fn allocate(
        &self,
        caller: Caller,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: FallocateFlags,
    ) -> io::Result<()> {
        let known = FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE;
        if !known.contains(mode) {
            // What moves bytes the kernel does not pass on.
            return Err(rustix::io::Errno::OPNOTSUPP.into());
        }
        let open = self.files.get(handle)?;
        if open.inode.is_device() {
            return allocate_on_device(&open, offset, length, mode);
        }
        let rights = Rights::of(caller, mode_of(&open.file)?);
        let mut change = || {
            let _acting = rights.take();
            Ok(fallocate(&open.file, mode, offset, length)?)
        };
        match &open.cached {
            Some(cached) => cached.discard(offset, length, &mut change),
            None => change(),
        }
    }

    /// Removes what `name` in `parent` is by `change`. If that is the last link of a file, the cache forgets the file first.
    fn remove(&self, parent: &Inode, name: &OsStr, change: Change<'_>) -> io::Result<()> {
        // What cannot be opened is not there, which `change` reports.
        let Ok(fd) = tree::open_path(parent.fd()?, name) else {
            return change();
        };
        // The kernel has locked the directory and the file: neither name nor links change meanwhile.
        let stat = fstat(&fd)?;
        let kind = attributes::kind(stat.st_mode);
        let is_last = stat.st_nlink <= 1 || kind == FileType::Directory;
        if is_last && kind == FileType::RegularFile {
            self.cache.forget(&FileIdentity::of(&fd)?, change)?;
        } else {
            change()?;
        }
        if is_last {
            self.inodes.removed(fd);
        }
        Ok(())
    }

    fn seek_data(&self, handle: FileHandle, offset: u64, whence: i32) -> io::Result<u64> {
        let open = self.files.get(handle)?;
        let to = match whence {
            libc::SEEK_DATA => SeekFrom::Data(offset),
            libc::SEEK_HOLE => SeekFrom::Hole(offset),
            _ => return Err(rustix::io::Errno::INVAL.into()),
        };
        if !open.inode.is_device() {
            return Ok(seek(&open.file, to)?);
        }
        // A device is data from begin to end.
        let size = open.inode.attributes()?.size;
        if offset >= size {
            return Err(rustix::io::Errno::NXIO.into());
        }
        Ok(if whence == libc::SEEK_DATA { offset } else { size })
    }

    fn copy(
        &self,
        caller: Caller,
        from: (FileHandle, u64),
        to: (FileHandle, u64),
        length: u64,
    ) -> io::Result<u32> {
        let (input, output) = (self.files.get(from.0)?, self.files.get(to.0)?);
        if output.cached.is_some() || output.inode.is_device() || input.inode.is_device() {
            // The kernel reads and writes instead, which passes through the cache.
            return Err(rustix::io::Errno::OPNOTSUPP.into());
        }
        let (mut from, mut to) = (from.1, to.1);
        let length = length.min(COPY_BYTES_MAX) as usize;
        let _acting = Rights::of(caller, mode_of(&output.file)?).take();
        let copied = copy_file_range(&input.file, Some(&mut from), &output.file, Some(&mut to), length)?;
        Ok(copied as u32)
    }
}

/// What is to be changed of an inode.
struct Changes {
    mode: Option<u32>,
    user: Option<u32>,
    group: Option<u32>,
    size: Option<u64>,
    atime: Option<TimeOrNow>,
    mtime: Option<TimeOrNow>,
    handle: Option<FileHandle>,
}

fn mode_of(fd: impl AsFd) -> rustix::io::Result<Mode> {
    Ok(Mode::from_raw_mode(fstat(fd)?.st_mode))
}

/// The mode of what is made in `parent`: without the bits of the caller's mask, unless the ACL for new files says what they
/// may be.
fn mode_of_new(parent: &Inode, (mode, mask): (u32, u32)) -> rustix::io::Result<Mode> {
    let parent = parent.fd()?;
    let has_default_acl = || {
        let length = rustix::fs::getxattr_query(path_of(&parent), DEFAULT_ACL);
        length.is_ok_and(|length| length > 0)
    };
    let mask = if mask & mode != 0 && has_default_acl() {
        0
    } else {
        mask
    };
    Ok(Mode::from_raw_mode(mode & 0o7777 & !mask))
}

/// All space of a device exists. Its holes are zeroes, and end where it ends. The kernel keeps all other writes to the device
/// waiting meanwhile: who wants a larger hole than one that takes a few seconds writes the zeroes himself.
fn allocate_on_device(open: &OpenFile, offset: u64, length: u64, mode: FallocateFlags) -> io::Result<()> {
    const HOLE_BYTES_MAX: u64 = 256 << 20;
    const ZEROES: &[u8] = &[0; 256 << 10];
    let size = open.inode.attributes()?.size;
    let end = offset.checked_add(length).ok_or(rustix::io::Errno::FBIG)?;
    if end > size && !mode.contains(FallocateFlags::KEEP_SIZE) {
        return Err(rustix::io::Errno::NOSPC.into());
    }
    if mode.intersects(FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE) {
        let mut at = offset;
        if end.min(size).saturating_sub(at) > HOLE_BYTES_MAX {
            return Err(rustix::io::Errno::OPNOTSUPP.into());
        }
        while at < end.min(size) {
            let length = (end.min(size) - at).min(ZEROES.len() as u64);
            at += open.write(&ZEROES[..length as usize], at, false)? as u64;
        }
    }
    Ok(())
}

impl DataPath for Directory {
    fn read_at_hand(&self, handle: u64, offset: u64, buffer: &mut [u8]) -> Option<io::Result<usize>> {
        let open = self.files.get(FileHandle(handle)).ok()?;
        let read = self.contain(|| Ok(open.read_at_hand(offset, buffer)));
        read.unwrap_or_else(|error| Some(Err(error)))
    }

    fn is_written_through(&self, handle: u64) -> bool {
        let open = self.files.get(FileHandle(handle));
        open.is_ok_and(|open| open.is_written_through())
    }

    fn read(&self, handle: u64, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.contain(|| {
            let open = self.files.get(FileHandle(handle))?;
            open.read_into(offset, buffer, &Events::UNHEARD)
        })
    }

    fn write(
        &self,
        caller: Caller,
        handle: u64,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
        is_durable: bool,
    ) -> io::Result<usize> {
        self.contain(|| self.write_file(caller, FileHandle(handle), offset, data, flags, is_durable))
    }
}
