//! The front end: a directory, served over itself.
//!
//! All that is below is reached through descriptors, never by a path through the mount. The kernel checks permissions
//! (`default_permissions`) and keeps locks: everybody who uses the directory comes through this one mount, so locks that the
//! kernel keeps for it hold for all of them, be they of processes, of open files or `flock`, and waiting for one takes no
//! thread here. Who passes by the mount is kept out by the daemon's own locks below.

use std::cell::Cell;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::available_parallelism;
use std::time::{Duration, Instant, SystemTime};

use bathy_fuse::{DataPath, Pace, Readers, Turn};
use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::{
    AtFlags, FallocateFlags, Gid, Mode, OFlags, RawDir, RawDirEntry, SeekFrom, Timestamps, Uid, XattrFlags,
    chmodat, chownat, copy_file_range, fallocate, fstat, fstatvfs, fsync, ftruncate, linkat, mkdirat,
    mknodat, openat, readlinkat, renameat_with, seek, symlinkat, unlinkat, utimensat,
};
use serde_json::{Value, json};

use crate::attributes::{self, timespec};
use crate::cache::{Change, FileCache};
use crate::counts::FrontCounts;
use crate::credentials::ActingAs;
use crate::handles::{Handles, OpenDirectory, OpenFile, flags_below, with_buffer};
use crate::identity::FileIdentity;
use crate::inodes::{ITSELF, Inode, Inodes};

/// How long the kernel may answer from what it was told. Its own operations keep that right; the limit is for links of files
/// that are reached by another way.
const TTL: Duration = Duration::from_secs(1);
/// Numbers of inodes are used again only when the kernel has forgotten them.
const GENERATION: Generation = Generation(0);
const DIRECTORY_BUFFER_BYTES: usize = 16 << 10;
const TRANSFER_BYTES_MAX: u32 = 1 << 20;
/// A copy takes one of few threads; the kernel goes on with the rest.
const COPY_BYTES_MAX: u64 = 16 << 20;
/// Asynchronous direct I/O is made of background requests; the kernel's default of 12 would limit the queue depth.
const BACKGROUND_REQUESTS_MAX: u16 = 4096;
/// Threads that ask for requests at a time, where each can take any: more answer no more hits, and cost wake-ups.
const READERS: RangeInclusive<usize> = 2..=4;

/// A directory, served over itself. Clones serve the same one.
#[derive(Clone)]
pub(crate) struct Directory {
    inodes: Arc<Inodes>,
    files: Arc<Handles<OpenFile>>,
    directories: Arc<Handles<OpenDirectory>>,
    cache: Arc<dyn FileCache>,
    counts: Arc<FrontCounts>,
    readers: Arc<Readers>,
    /// Of reads that the cache answers alone.
    hits: Arc<Pace>,
}

impl Directory {
    /// `root` is the directory, open with `O_PATH` before anything is mounted over it; `path` is its absolute path, and
    /// `cache` has the bytes of its files; requests are counted in `counts`.
    ///
    /// # Errors
    /// If the directory cannot be asked.
    pub(crate) fn new(
        root: OwnedFd,
        path: PathBuf,
        cache: Arc<dyn FileCache>,
        counts: Arc<FrontCounts>,
    ) -> io::Result<Self> {
        // The kernel sends modes with the caller's mask applied. Threads of a process share one mask.
        rustix::process::umask(Mode::empty());
        Ok(Self {
            inodes: Arc::new(Inodes::new(root, path)?),
            files: Arc::default(),
            directories: Arc::default(),
            cache,
            counts,
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

    fn opened(&self, inode: Arc<Inode>, file: File, flags: OFlags) -> io::Result<FileHandle> {
        let opened = OpenFile::new(inode, file, flags, &*self.cache, Arc::clone(&self.counts))?;
        Ok(self.files.insert(opened))
    }

    /// An entry that was just made, as it is and not as devices of an OSD are shown.
    fn made(&self, parent: &Inode, name: &OsStr) -> io::Result<FileAttr> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = openat(&parent.fd, name, flags, Mode::empty())?;
        Ok(self.inodes.know(fd, false)?.1)
    }

    fn change(&self, caller: u32, number: INodeNo, changes: &Changes) -> io::Result<FileAttr> {
        let inode = self.inodes.get(number)?;
        if changes.user.is_some() || changes.group.is_some() {
            let (user, group) = (changes.user.map(Uid::from_raw), changes.group.map(Gid::from_raw));
            chownat(&inode.fd, "", user, group, ITSELF)?;
        }
        if let Some(mode) = changes.mode {
            let path = inode.path();
            chmodat(
                rustix::fs::CWD,
                path,
                Mode::from_raw_mode(mode & 0o7777),
                AtFlags::empty(),
            )?;
        }
        if let Some(size) = changes.size {
            self.resize(&inode, size, changes.handle)?;
            if caller != 0 {
                clear_set_id(&inode)?;
            }
        }
        if changes.atime.is_some() || changes.mtime.is_some() {
            let times = Timestamps {
                last_access: timespec(changes.atime),
                last_modification: timespec(changes.mtime),
            };
            utimensat(&inode.fd, "", &times, ITSELF)?;
        }
        Ok(inode.attributes()?)
    }

    fn resize(&self, inode: &Inode, size: u64, handle: Option<FileHandle>) -> io::Result<()> {
        if inode.is_device {
            let is_size = inode.attributes()?.size == size;
            return if is_size {
                Ok(())
            } else {
                Err(rustix::io::Errno::INVAL.into())
            };
        }
        let cached = inode.attach(&*self.cache)?;
        let mut change = || {
            let changed = match handle {
                Some(handle) => self
                    .files
                    .get(handle)
                    .and_then(|open| ftruncate(&open.file, size)),
                None => inode.open(OFlags::WRONLY).and_then(|file| ftruncate(file, size)),
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

    fn open_file(&self, number: INodeNo, flags: OFlags) -> io::Result<FileHandle> {
        let inode = self.inodes.get(number)?;
        let file = inode.open(flags_below(flags))?;
        self.opened(inode, file, flags)
    }

    fn create_file(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        flags: OFlags,
    ) -> io::Result<(FileAttr, FileHandle)> {
        let parent = self.inodes.get(parent)?;
        let create = OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | flags & OFlags::EXCL;
        let made = {
            let _acting = ActingAs::caller(request);
            openat(
                &parent.fd,
                name,
                create | flags_below(flags),
                Mode::from_raw_mode(mode & 0o7777),
            )?
        };
        let file = File::from(made);
        // By the descriptor: the name may lead elsewhere by now.
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        let fd = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let (inode, mut attributes) = self.inodes.know(fd, false)?;
        // It was there already, which the kernel did not know; its cache must know that it is cut.
        if flags.contains(OFlags::TRUNC) && attributes.size > 0 {
            self.resize(&inode, 0, None)?;
            attributes = inode.attributes()?;
        }
        Ok((attributes, self.opened(inode, file, flags)?))
    }

    fn read_file(
        &self,
        open: &OpenFile,
        offset: u64,
        buffer: &mut [u8],
        turn: &Turn<'_>,
    ) -> io::Result<usize> {
        // The SSD may be slow too.
        if !self.hits.is_quick() {
            turn.may_wait();
        }
        let (begun, is_hit) = (Instant::now(), Cell::new(true));
        let read = open.read_into(offset, buffer, &|| {
            is_hit.set(false);
            turn.may_wait();
        });
        if is_hit.get() {
            self.hits.note(begun.elapsed());
        }
        read
    }

    fn write_file(&self, handle: FileHandle, offset: u64, data: &[u8], flags: WriteFlags) -> io::Result<()> {
        let open = self.files.get(handle)?;
        open.write(data, offset)?;
        if flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
            clear_set_id(&open.inode)?;
        }
        Ok(())
    }

    fn allocate(&self, handle: FileHandle, offset: u64, length: u64, mode: FallocateFlags) -> io::Result<()> {
        let known = FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE;
        if !known.contains(mode) {
            // What moves bytes the kernel does not pass on.
            return Err(rustix::io::Errno::OPNOTSUPP.into());
        }
        let open = self.files.get(handle)?;
        if open.inode.is_device {
            return allocate_on_device(&open, offset, length, mode);
        }
        let mut change = || Ok(fallocate(&open.file, mode, offset, length)?);
        match &open.cached {
            Some(cached) => cached.discard(offset, length, &mut change),
            None => change(),
        }
    }

    /// Removes what `name` in `parent` is by `change`. If that is the last link of a file, the cache forgets the file first.
    fn remove(&self, parent: &Inode, name: &OsStr, change: Change<'_>) -> io::Result<()> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // What cannot be opened is not there, which `change` reports.
        let Ok(fd) = openat(&parent.fd, name, flags, Mode::empty()) else {
            return change();
        };
        // The kernel has locked the directory and the file: neither name nor links change meanwhile.
        let stat = fstat(&fd)?;
        if attributes::kind(stat.st_mode) != FileType::RegularFile || stat.st_nlink > 1 {
            return change();
        }
        self.cache.forget(&FileIdentity::of(&fd)?, change)
    }

    fn seek_data(&self, handle: FileHandle, offset: u64, whence: i32) -> io::Result<u64> {
        let open = self.files.get(handle)?;
        let to = match whence {
            libc::SEEK_DATA => SeekFrom::Data(offset),
            libc::SEEK_HOLE => SeekFrom::Hole(offset),
            _ => return Err(rustix::io::Errno::INVAL.into()),
        };
        if !open.inode.is_device {
            return Ok(seek(&open.file, to)?);
        }
        // A device is data from begin to end.
        let size = open.inode.attributes()?.size;
        if offset >= size {
            return Err(rustix::io::Errno::NXIO.into());
        }
        Ok(if whence == libc::SEEK_DATA { offset } else { size })
    }

    fn copy(&self, from: (FileHandle, u64), to: (FileHandle, u64), length: u64) -> io::Result<u32> {
        let (input, output) = (self.files.get(from.0)?, self.files.get(to.0)?);
        if output.cached.is_some() || output.inode.is_device || input.inode.is_device {
            // The kernel reads and writes instead, which passes through the cache.
            return Err(rustix::io::Errno::OPNOTSUPP.into());
        }
        let (mut from, mut to) = (from.1, to.1);
        let length = length.min(COPY_BYTES_MAX) as usize;
        let copied = copy_file_range(&input.file, Some(&mut from), &output.file, Some(&mut to), length)?;
        Ok(copied as u32)
    }

    /// Calls `take` with the entries of a directory from `offset` on, until it says that there is enough.
    fn each_entry(
        &self,
        handle: FileHandle,
        offset: u64,
        take: &mut dyn FnMut(&RawDirEntry<'_>) -> bool,
    ) -> io::Result<()> {
        let directory = self.directories.get(handle)?;
        let directory = directory.0.lock().unwrap_or_else(PoisonError::into_inner);
        seek(&*directory, SeekFrom::Start(offset))?;
        let mut buffer = [MaybeUninit::<u8>::uninit(); DIRECTORY_BUFFER_BYTES];
        let mut entries = RawDir::new(&*directory, &mut buffer);
        while let Some(entry) = entries.next() {
            if take(&entry?) {
                break;
            }
        }
        Ok(())
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

/// Clears the set-user-id bit, and the set-group-id bit of what its group may execute: the file was changed by somebody who
/// may not keep them.
fn clear_set_id(inode: &Inode) -> io::Result<()> {
    const SET_USER: u16 = 0o4000;
    const SET_GROUP: u16 = 0o2000;
    const GROUP_EXECUTES: u16 = 0o0010;
    let attributes = inode.attributes()?;
    let mut kept = attributes.perm & !SET_USER;
    if kept & GROUP_EXECUTES != 0 {
        kept &= !SET_GROUP;
    }
    if attributes.kind == FileType::RegularFile && kept != attributes.perm {
        let mode = Mode::from_raw_mode(kept.into());
        chmodat(rustix::fs::CWD, inode.path(), mode, AtFlags::empty())?;
    }
    Ok(())
}

/// All space of a device exists. Its holes are zeroes, and end where it ends.
fn allocate_on_device(open: &OpenFile, offset: u64, length: u64, mode: FallocateFlags) -> io::Result<()> {
    const ZEROES: &[u8] = &[0; 256 << 10];
    let size = open.inode.attributes()?.size;
    let end = offset.checked_add(length).ok_or(rustix::io::Errno::FBIG)?;
    if end > size && !mode.contains(FallocateFlags::KEEP_SIZE) {
        return Err(rustix::io::Errno::NOSPC.into());
    }
    if mode.intersects(FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE) {
        let mut at = offset;
        while at < end.min(size) {
            let length = (end.min(size) - at).min(ZEROES.len() as u64);
            open.write(&ZEROES[..length as usize], at)?;
            at += length;
        }
    }
    Ok(())
}

fn errno(error: impl Into<io::Error>) -> Errno {
    error.into().into()
}

fn done(reply: ReplyEmpty, result: Result<(), impl Into<io::Error>>) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(error)),
    }
}

fn entry(reply: ReplyEntry, ttl: Duration, result: Result<FileAttr, impl Into<io::Error>>) {
    match result {
        Ok(attributes) => reply.entry(&ttl, &attributes, GENERATION),
        Err(error) => reply.error(errno(error)),
    }
}

fn value(reply: ReplyXattr, size: u32, ask: impl Fn(&mut [u8]) -> rustix::io::Result<usize>) {
    // Of an empty buffer the kernel is asked for the size.
    let mut buffer = vec![0; size as usize];
    match ask(&mut buffer) {
        Ok(length) if size == 0 => reply.size(length as u32),
        Ok(length) => reply.data(&buffer[..length]),
        Err(error) => reply.error(errno(error)),
    }
}

fn open_flags(flags: i32) -> OFlags {
    OFlags::from_bits_retain(flags as u32)
}

impl DataPath for Directory {
    fn read_at_hand(&self, handle: u64, offset: u64, buffer: &mut [u8]) -> Option<io::Result<usize>> {
        let open = self.files.get(FileHandle(handle)).ok()?;
        open.read_at_hand(offset, buffer)
    }

    fn is_written_through(&self, handle: u64) -> bool {
        let open = self.files.get(FileHandle(handle));
        open.is_ok_and(|open| open.is_written_through())
    }

    fn read(&self, handle: u64, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.files
            .get(FileHandle(handle))?
            .read_into(offset, buffer, &|| {})
    }

    fn write(&self, handle: u64, offset: u64, data: &[u8], flags: WriteFlags) -> io::Result<()> {
        self.write_file(FileHandle(handle), offset, data, flags)
    }
}

impl Filesystem for Directory {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        for flag in [
            InitFlags::FUSE_ASYNC_DIO,
            // Mappings of files that are read and written directly; since Linux 6.6.
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            // Else the kernel would ask for security.capability before each write.
            InitFlags::FUSE_HANDLE_KILLPRIV_V2,
            InitFlags::FUSE_POSIX_ACL,
        ] {
            let _unsupported = config.add_capabilities(flag);
        }
        let _limited = config.set_max_write(TRANSFER_BYTES_MAX);
        let _accepted = config.set_max_background(BACKGROUND_REQUESTS_MAX);
        let _accepted = config.set_congestion_threshold(BACKGROUND_REQUESTS_MAX);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let _turn = self.waiting();
        self.counts.attribute_reads.one();
        let found = self.inodes.get(parent);
        let found = found.and_then(|parent| self.inodes.look_up(&parent, name));
        entry(reply, TTL, found.map(|(_, attributes)| attributes));
    }

    fn forget(&self, _request: &Request, inode: INodeNo, times: u64) {
        let turn = self.waiting();
        self.inodes.forget(inode.0, times);
        // The next one of many may have come with it.
        turn.end_without_rest();
    }

    fn getattr(&self, _request: &Request, inode: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        let _turn = self.waiting();
        self.counts.attribute_reads.one();
        match self.inodes.get(inode).and_then(|inode| inode.attributes()) {
            Ok(attributes) => reply.attr(&TTL, &attributes),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn setattr(
        &self,
        request: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        user: Option<u32>,
        group: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let _turn = self.waiting();
        self.counts.attribute_writes.one();
        let changes = Changes {
            mode,
            user,
            group,
            size,
            atime,
            mtime,
            handle,
        };
        match self.change(request.uid(), inode, &changes) {
            Ok(attributes) => reply.attr(&TTL, &attributes),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn readlink(&self, _request: &Request, inode: INodeNo, reply: ReplyData) {
        let _turn = self.waiting();
        self.counts.link_reads.one();
        let target = self.inodes.get(inode);
        match target.and_then(|inode| readlinkat(&inode.fd, "", Vec::new())) {
            Ok(target) => reply.data(target.as_bytes()),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let _turn = self.waiting();
        let make = || -> io::Result<FileAttr> {
            let parent = self.inodes.get(parent)?;
            let kind = rustix::fs::FileType::from_raw_mode(mode);
            let acting = ActingAs::caller(request);
            // Whether the caller may make a device the kernel has checked, and the thread as the caller may not.
            let is_device = matches!(
                attributes::kind_of(kind),
                FileType::BlockDevice | FileType::CharDevice
            );
            let acting = acting.filter(|_| !is_device);
            mknodat(
                &parent.fd,
                name,
                kind,
                Mode::from_raw_mode(mode & 0o7777),
                device.into(),
            )?;
            if is_device {
                let (user, group) = (Uid::from_raw(request.uid()), Gid::from_raw(request.gid()));
                chownat(
                    &parent.fd,
                    name,
                    Some(user),
                    Some(group),
                    AtFlags::SYMLINK_NOFOLLOW,
                )?;
            }
            drop(acting);
            self.made(&parent, name)
        };
        entry(reply, TTL, make());
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let _turn = self.waiting();
        let make = || -> io::Result<FileAttr> {
            let parent = self.inodes.get(parent)?;
            let acting = ActingAs::caller(request);
            mkdirat(&parent.fd, name, Mode::from_raw_mode(mode & 0o7777))?;
            drop(acting);
            self.made(&parent, name)
        };
        entry(reply, TTL, make());
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _turn = self.waiting();
        let parent = self.inodes.get(parent);
        done(
            reply,
            parent.map_err(io::Error::from).and_then(|parent| {
                self.remove(&parent, name, &mut || {
                    Ok(unlinkat(&parent.fd, name, AtFlags::empty())?)
                })
            }),
        );
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _turn = self.waiting();
        let parent = self.inodes.get(parent);
        done(
            reply,
            parent.and_then(|parent| unlinkat(&parent.fd, name, AtFlags::REMOVEDIR)),
        );
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let _turn = self.waiting();
        let make = || -> io::Result<FileAttr> {
            let parent = self.inodes.get(parent)?;
            let acting = ActingAs::caller(request);
            symlinkat(target, &parent.fd, name)?;
            drop(acting);
            self.made(&parent, name)
        };
        // The next look may show it as a device: see `Inodes::device_behind`.
        entry(reply, Duration::ZERO, make());
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let _turn = self.waiting();
        let rename = || {
            let (from, to) = (self.inodes.get(parent)?, self.inodes.get(new_parent)?);
            let flags = rustix::fs::RenameFlags::from_bits_retain(flags.bits());
            let mut change = || Ok(renameat_with(&from.fd, name, &to.fd, new_name, flags)?);
            // What has the new name loses it, unless it gets the old one.
            if flags.contains(rustix::fs::RenameFlags::EXCHANGE) {
                return change();
            }
            self.remove(&to, new_name, &mut change)
        };
        done(reply, rename());
    }

    fn link(&self, _request: &Request, inode: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let _turn = self.waiting();
        let make = || -> io::Result<FileAttr> {
            let (inode, parent) = (self.inodes.get(inode)?, self.inodes.get(parent)?);
            if inode.is_device {
                return Err(rustix::io::Errno::PERM.into());
            }
            linkat(&inode.fd, "", &parent.fd, name, ITSELF)?;
            self.made(&parent, name)
        };
        entry(reply, TTL, make());
    }

    fn open(&self, _request: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let _turn = self.waiting();
        match self.open_file(inode, open_flags(flags.0)) {
            Ok(handle) => reply.opened(handle, OPENED),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let _turn = self.waiting();
        match self.create_file(request, parent, name, mode, open_flags(flags)) {
            Ok((attributes, handle)) => reply.created(&TTL, &attributes, GENERATION, handle, OPENED),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn read(
        &self,
        _request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let turn = self.readers.turn();
        let open = match self.files.get(handle) {
            Ok(open) => open,
            Err(error) => return reply.error(errno(error)),
        };
        with_buffer(size as usize, |buffer| {
            match self.read_file(&open, offset, buffer, &turn) {
                Ok(read) => reply.data(&buffer[..read]),
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    fn write(
        &self,
        _request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let _turn = self.waiting();
        match self.write_file(handle, offset, data, write_flags) {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn release(
        &self,
        _request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let _turn = self.waiting();
        self.files.remove(handle);
        reply.ok();
    }

    fn fsync(
        &self,
        _request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        let _turn = self.waiting();
        let open = self.files.get(handle).map_err(io::Error::from);
        done(reply, open.and_then(|open| open.sync(data_only)));
    }

    fn opendir(&self, _request: &Request, inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let _turn = self.waiting();
        let opened = self.inodes.get(inode);
        let opened = opened.and_then(|inode| inode.open(OFlags::RDONLY | OFlags::DIRECTORY));
        match opened {
            Ok(file) => {
                let handle = self.directories.insert(OpenDirectory(Mutex::new(file)));
                reply.opened(handle, FopenFlags::empty());
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    fn readdir(
        &self,
        _request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let _turn = self.waiting();
        let parent = self.inodes.get(inode);
        let read = parent.map_err(io::Error::from).and_then(|parent| {
            self.each_entry(handle, offset, &mut |entry| {
                let name = name_of(entry);
                let is_device = entry.file_type() == rustix::fs::FileType::Symlink
                    && self.inodes.device_behind(&parent, name).is_some();
                let kind = if is_device {
                    FileType::RegularFile
                } else {
                    attributes::kind_of(entry.file_type())
                };
                reply.add(INodeNo(entry.ino()), entry.next_entry_cookie(), kind, name)
            })
        });
        match read {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn readdirplus(
        &self,
        _request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let _turn = self.waiting();
        let parent = self.inodes.get(inode);
        let read = parent.map_err(io::Error::from).and_then(|parent| {
            self.each_entry(handle, offset, &mut |entry| {
                let (name, next) = (name_of(entry), entry.next_entry_cookie());
                if name == "." || name == ".." {
                    // The kernel takes no more than number and kind of these two.
                    let Ok(mut attributes) = parent.attributes() else {
                        return true;
                    };
                    attributes.ino = INodeNo(entry.ino());
                    return reply.add(INodeNo(entry.ino()), next, name, &TTL, &attributes, GENERATION);
                }
                let Ok((found, attributes)) = self.inodes.look_up(&parent, name) else {
                    // It was removed meanwhile.
                    return false;
                };
                let is_full = reply.add(attributes.ino, next, name, &TTL, &attributes, GENERATION);
                if is_full {
                    self.inodes.forget(found.number, 1);
                }
                is_full
            })
        });
        match read {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn releasedir(
        &self,
        _request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        let _turn = self.waiting();
        self.directories.remove(handle);
        reply.ok();
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        _data_only: bool,
        reply: ReplyEmpty,
    ) {
        let _turn = self.waiting();
        let synced = self.directories.get(handle).and_then(|directory| {
            let file = directory.0.lock().unwrap_or_else(PoisonError::into_inner);
            fsync(&*file)
        });
        done(reply, synced);
    }

    fn statfs(&self, _request: &Request, inode: INodeNo, reply: ReplyStatfs) {
        let _turn = self.waiting();
        let inode = self
            .inodes
            .get(inode)
            .unwrap_or_else(|_| Arc::clone(self.inodes.root()));
        match fstatvfs(&inode.fd) {
            Ok(it) => reply.statfs(
                it.f_blocks,
                it.f_bfree,
                it.f_bavail,
                it.f_files,
                it.f_ffree,
                it.f_bsize as u32,
                it.f_namemax as u32,
                it.f_frsize as u32,
            ),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn setxattr(
        &self,
        _request: &Request,
        inode: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let _turn = self.waiting();
        self.counts.attribute_writes.one();
        let flags = XattrFlags::from_bits_retain(flags as u32);
        let inode = self.inodes.get(inode);
        done(
            reply,
            inode.and_then(|inode| rustix::fs::setxattr(inode.path(), name, value, flags)),
        );
    }

    fn getxattr(&self, _request: &Request, inode: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let _turn = self.waiting();
        self.counts.attribute_reads.one();
        let inode = self.inodes.get(inode);
        value(reply, size, |buffer| {
            let path = inode.as_ref().map_err(|error| *error)?.path();
            match buffer {
                [] => rustix::fs::getxattr_query(path, name),
                _ => rustix::fs::getxattr(path, name, buffer),
            }
        });
    }

    fn listxattr(&self, _request: &Request, inode: INodeNo, size: u32, reply: ReplyXattr) {
        let _turn = self.waiting();
        self.counts.attribute_reads.one();
        let inode = self.inodes.get(inode);
        value(reply, size, |buffer| {
            let path = inode.as_ref().map_err(|error| *error)?.path();
            match buffer {
                [] => rustix::fs::listxattr_query(path),
                _ => rustix::fs::listxattr(path, buffer),
            }
        });
    }

    fn removexattr(&self, _request: &Request, inode: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _turn = self.waiting();
        self.counts.attribute_writes.one();
        let inode = self.inodes.get(inode);
        done(
            reply,
            inode.and_then(|inode| rustix::fs::removexattr(inode.path(), name)),
        );
    }

    fn fallocate(
        &self,
        _request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let _turn = self.waiting();
        let mode = FallocateFlags::from_bits_retain(mode as u32);
        done(reply, self.allocate(handle, offset, length, mode));
    }

    fn lseek(
        &self,
        _request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let _turn = self.waiting();
        match self.seek_data(handle, offset as u64, whence) {
            Ok(found) => reply.offset(found as i64),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn copy_file_range(
        &self,
        _request: &Request,
        _inode_in: INodeNo,
        handle_in: FileHandle,
        offset_in: u64,
        _inode_out: INodeNo,
        handle_out: FileHandle,
        offset_out: u64,
        length: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let _turn = self.waiting();
        match self.copy((handle_in, offset_in), (handle_out, offset_out), length) {
            Ok(copied) => reply.written(copied),
            Err(error) => reply.error(errno(error)),
        }
    }
}

/// How files are opened: every read and write is seen, writes of one file go side by side, and closing one says nothing.
const OPENED: FopenFlags = FopenFlags::FOPEN_DIRECT_IO
    .union(FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES)
    .union(FopenFlags::FOPEN_NOFLUSH);

fn name_of<'a>(entry: &'a RawDirEntry<'_>) -> &'a OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(entry.file_name().to_bytes())
}
