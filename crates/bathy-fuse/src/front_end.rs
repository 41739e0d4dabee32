//! The kernel's protocol on one side, a [`FileService`] on the other.

use std::ffi::OsStr;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use fuser::{
    AccessFlags, BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use crate::REQUEST_BYTES_MAX;
use crate::reply::Reply;
use crate::service::{FileEntry, FileService};

/// Names and attributes of a mount change only through this front end, so the kernel may keep them.
const TTL: Duration = Duration::from_secs(3600);
/// Requests of asynchronous direct I/O are background requests to the kernel; the devices have deeper queues than the
/// kernel's default of 12.
const BACKGROUND_REQUESTS_MAX: u16 = 4096;
const BLOCK_BYTES: u32 = 4096;

pub(crate) struct FrontEnd<S> {
    service: Arc<S>,
    files: Vec<FileEntry>,
    attributes: Mutex<Vec<FileAttr>>,
}

impl<S: FileService> FrontEnd<S> {
    pub(crate) fn new(service: Arc<S>, user: u32, group: u32) -> Self {
        let files = service.files();
        let now = SystemTime::now();
        let attribute = |inode: u64, size: u64, kind, perm| FileAttr {
            ino: INodeNo(inode),
            size,
            blocks: size / 512,
            atime: now,
            mtime: now,
            ctime: now,
            crtime: now,
            kind,
            perm,
            nlink: 1,
            uid: user,
            gid: group,
            rdev: 0,
            blksize: BLOCK_BYTES,
            flags: 0,
        };
        let mut attributes = vec![attribute(1, 0, FileType::Directory, 0o755)];
        for (index, file) in files.iter().enumerate() {
            attributes.push(attribute(
                index as u64 + 2,
                file.size_bytes,
                FileType::RegularFile,
                0o600,
            ));
        }
        Self {
            service,
            files,
            attributes: Mutex::new(attributes),
        }
    }

    /// The root is inode 1, the first file inode 2.
    fn file(&self, inode: INodeNo) -> Option<usize> {
        let index = usize::try_from(inode.0.checked_sub(2)?).ok()?;
        (index < self.files.len()).then_some(index)
    }

    fn attribute(&self, inode: INodeNo) -> Option<FileAttr> {
        let index = usize::try_from(inode.0.checked_sub(1)?).ok()?;
        self.attributes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(index)
            .copied()
    }
}

impl<S: FileService> Filesystem for FrontEnd<S> {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Asynchronous direct I/O lets one process have many requests in flight; the rest only saves round trips.
        for flag in [
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
            InitFlags::FUSE_NO_OPENDIR_SUPPORT,
        ] {
            let _unsupported = config.add_capabilities(flag);
        }
        if let Err(nearest) = config.set_max_write(REQUEST_BYTES_MAX) {
            let _limited = config.set_max_write(nearest);
        }
        if let Err(nearest) = config.set_max_readahead(REQUEST_BYTES_MAX) {
            let _limited = config.set_max_readahead(nearest);
        }
        let _accepted = config.set_max_background(BACKGROUND_REQUESTS_MAX);
        let _accepted = config.set_congestion_threshold(BACKGROUND_REQUESTS_MAX);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self
            .files
            .iter()
            .position(|file| parent.0 == 1 && name == file.name.as_str());
        match found.and_then(|index| self.attribute(INodeNo(index as u64 + 2))) {
            Some(attribute) => reply.entry(&TTL, &attribute, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _request: &Request, inode: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        match self.attribute(inode) {
            Some(attribute) => reply.attr(&TTL, &attribute),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn setattr(
        &self,
        _request: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        user: Option<u32>,
        group: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut attributes = self.attributes.lock().unwrap_or_else(PoisonError::into_inner);
        let index = inode
            .0
            .checked_sub(1)
            .and_then(|index| usize::try_from(index).ok());
        let Some(attribute) = index.and_then(|index| attributes.get_mut(index)) else {
            return reply.error(Errno::ENOENT);
        };
        if size.is_some_and(|size| size != attribute.size) {
            return reply.error(Errno::EINVAL);
        }
        if let Some(mode) = mode {
            attribute.perm = (mode & 0o7777) as u16;
        }
        attribute.uid = user.unwrap_or(attribute.uid);
        attribute.gid = group.unwrap_or(attribute.gid);
        match mtime {
            Some(TimeOrNow::SpecificTime(time)) => attribute.mtime = time,
            Some(TimeOrNow::Now) => attribute.mtime = SystemTime::now(),
            None => {}
        }
        let changed = *attribute;
        drop(attributes);
        reply.attr(&TTL, &changed);
    }

    fn readdir(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if inode.0 != 1 {
            return reply.error(Errno::ENOTDIR);
        }
        let dots = [(1, FileType::Directory, "."), (1, FileType::Directory, "..")];
        let files = self.files.iter().enumerate();
        let files = files.map(|(index, file)| (index as u64 + 2, FileType::RegularFile, file.name.as_str()));
        for (index, (inode, kind, name)) in dots.into_iter().chain(files).enumerate() {
            if index as u64 >= offset && reply.add(INodeNo(inode), index as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn open(&self, _request: &Request, inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        if self.file(inode).is_none() {
            return reply.error(Errno::EISDIR);
        }
        let flags = FopenFlags::FOPEN_DIRECT_IO
            | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
            | FopenFlags::FOPEN_NOFLUSH;
        reply.opened(FileHandle(0), flags);
    }

    fn read(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let Some(file) = self.file(inode) else {
            return reply.error(Errno::EISDIR);
        };
        let left = self.files[file].size_bytes.saturating_sub(offset);
        let length = u64::from(size.min(REQUEST_BYTES_MAX)).min(left) as u32;
        if length == 0 {
            return reply.data(&[]);
        }
        self.service.read(file, offset, length, Reply::data(reply));
    }

    fn write(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let Some(file) = self.file(inode) else {
            return reply.error(Errno::EISDIR);
        };
        let left = self.files[file].size_bytes.saturating_sub(offset);
        let length = (data.len() as u64).min(left) as usize;
        if length == 0 {
            match data {
                [] => reply.written(0),
                _ => reply.error(Errno::ENOSPC),
            }
            return;
        }
        // O_SYNC contains the bit of O_DSYNC.
        let durable = flags.0 & libc::O_DSYNC != 0;
        self.service.write(
            file,
            offset,
            &data[..length],
            durable,
            Reply::written(reply, length as u32),
        );
    }

    fn fsync(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        _data_only: bool,
        reply: ReplyEmpty,
    ) {
        match self.file(inode) {
            Some(file) => self.service.sync(file, Reply::empty(reply)),
            None => reply.ok(),
        }
    }

    fn fallocate(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let Some(file) = self.file(inode) else {
            return reply.error(Errno::EISDIR);
        };
        let size = self.files[file].size_bytes;
        let Some(end) = offset
            .checked_add(length)
            .filter(|&end| end <= size && length > 0)
        else {
            // A hole may be punched beyond the end, where nothing is; space beyond the end cannot be had.
            let beyond = mode & libc::FALLOC_FL_KEEP_SIZE != 0 && offset >= size;
            if beyond {
                reply.ok();
            } else {
                reply.error(Errno::ENOSPC);
            }
            return;
        };
        match mode & !libc::FALLOC_FL_KEEP_SIZE {
            // All space of a device exists already.
            0 => reply.ok(),
            libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE => {
                self.service
                    .discard(file, offset, end - offset, Reply::empty(reply));
            }
            _ => reply.error(Errno::EOPNOTSUPP),
        }
    }

    fn access(&self, _request: &Request, _inode: INodeNo, _mask: AccessFlags, reply: ReplyEmpty) {
        reply.ok();
    }

    fn statfs(&self, _request: &Request, _inode: INodeNo, reply: ReplyStatfs) {
        let blocks = self
            .files
            .iter()
            .map(|file| file.size_bytes / u64::from(BLOCK_BYTES))
            .sum();
        reply.statfs(
            blocks,
            0,
            0,
            self.files.len() as u64,
            0,
            BLOCK_BYTES,
            255,
            BLOCK_BYTES,
        );
    }
}
