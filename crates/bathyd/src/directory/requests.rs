//! The requests of the kernel.

use std::cell::Cell;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, SystemTime};

use bathy_fuse::Caller;
use fuser::{
    BsdFileFlags, CopyFileRangeFlags, FileHandle, Filesystem, FopenFlags, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus,
    ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow,
    WriteFlags,
};
use rustix::fs::{
    AtFlags, FallocateFlags, Mode, OFlags, XattrFlags, fstatvfs, fsync, linkat, mkdirat, mknodat, readlinkat,
    renameat_with, symlinkat, unlinkat,
};

use super::replies::{OPENED, TTL, Xattr, attributes_of, done, entry, entry_ttl, errno, xattr};
use super::{Changes, Directory, mode_of, mode_of_new};
use crate::credentials::Rights;
use crate::handles::{OpenDirectory, asks_for_durability, with_buffer};
use crate::inodes::{ITSELF, path_of};

const TRANSFER_BYTES_MAX: u32 = 1 << 20;
/// Asynchronous direct I/O is made of background requests; the kernel's default of 12 would limit the queue depth.
const BACKGROUND_REQUESTS_MAX: u16 = 4096;
/// The kernel lists no more names of extended attributes of a file (`XATTR_LIST_MAX`).
const NAMES_BYTES_MAX: usize = 64 << 10;

/// The names of extended attributes that a caller may see.
fn visible_names(names: &[u8], caller: Caller) -> Vec<u8> {
    let is_visible = |name: &&[u8]| caller.user == 0 || !name.starts_with(b"trusted.");
    let names = names.split_inclusive(|&byte| byte == 0).filter(is_visible);
    names.collect::<Vec<_>>().concat()
}

fn open_flags(flags: i32) -> OFlags {
    OFlags::from_bits_retain(flags as u32)
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
            // See `mode_of_new`.
            InitFlags::FUSE_DONT_MASK,
        ] {
            let _unsupported = config.add_capabilities(flag);
        }
        let _limited = config.set_max_write(TRANSFER_BYTES_MAX);
        let _accepted = config.set_max_background(BACKGROUND_REQUESTS_MAX);
        let _accepted = config.set_congestion_threshold(BACKGROUND_REQUESTS_MAX);
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.answer(|| {
            self.counts.attribute_reads.one();
            let found = self.contain(|| {
                let parent = self.inodes.get(parent)?;
                Ok(self.inodes.look_up(&parent, name, request.uid())?.tell())
            });
            let ttl = found
                .as_ref()
                .map_or(TTL, |found| entry_ttl(parent, &found.attributes));
            entry(reply, ttl, found);
        });
    }

    fn forget(&self, _request: &Request, inode: INodeNo, times: u64) {
        let turn = self.waiting();
        // Nobody waits for an answer.
        let _panicked = self.contain(|| {
            self.inodes.forget(inode.0, times);
            Ok(())
        });
        // The next one of many may have come with it.
        turn.end_without_rest();
    }

    fn getattr(&self, _request: &Request, inode: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        self.answer(|| {
            self.counts.attribute_reads.one();
            let asked = self.contain(|| Ok(self.inodes.get(inode)?.attributes()?));
            attributes_of(reply, asked);
        });
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
        self.answer(|| {
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
            let changed = self.contain(|| self.change(Caller::of(request), inode, &changes));
            attributes_of(reply, changed);
        });
    }

    fn readlink(&self, _request: &Request, inode: INodeNo, reply: ReplyData) {
        self.answer(|| {
            self.counts.link_reads.one();
            let target = self.contain(|| Ok(readlinkat(self.inodes.get(inode)?.fd()?, "", Vec::new())?));
            match target {
                Ok(target) => reply.data(target.as_bytes()),
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        mask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        self.answer(|| {
            let made = self.contain(|| {
                let parent = self.inodes.get(parent)?;
                let kind = rustix::fs::FileType::from_raw_mode(mode);
                let (mode, fd) = (mode_of_new(&parent, (mode, mask))?, parent.fd()?);
                let acting = Rights::permitted(Caller::of(request), mode).take();
                mknodat(fd, name, kind, mode, device.into())?;
                drop(acting);
                self.made(Caller::of(request), &parent, name)
            });
            entry(reply, TTL, made);
        });
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        mask: u32,
        reply: ReplyEntry,
    ) {
        self.answer(|| {
            let made = self.contain(|| {
                let parent = self.inodes.get(parent)?;
                let (mode, fd) = (mode_of_new(&parent, (mode, mask))?, parent.fd()?);
                let acting = Rights::permitted(Caller::of(request), mode).take();
                mkdirat(fd, name, mode)?;
                drop(acting);
                self.made(Caller::of(request), &parent, name)
            });
            entry(reply, TTL, made);
        });
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.answer(|| {
            let removed = self.contain(|| {
                let parent = self.inodes.get(parent)?;
                let mut change = || Ok(unlinkat(parent.fd()?, name, AtFlags::empty())?);
                self.remove(&parent, name, &mut change)
            });
            done(reply, removed);
        });
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.answer(|| {
            let removed = self.contain(|| {
                let parent = self.inodes.get(parent)?;
                let mut change = || Ok(unlinkat(parent.fd()?, name, AtFlags::REMOVEDIR)?);
                self.remove(&parent, name, &mut change)
            });
            done(reply, removed);
        });
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        self.answer(|| {
            let made = self.contain(|| {
                let parent = self.inodes.get(parent)?;
                let acting = Rights::permitted(Caller::of(request), Mode::empty()).take();
                symlinkat(target, parent.fd()?, name)?;
                drop(acting);
                self.made(Caller::of(request), &parent, name)
            });
            entry(reply, Duration::ZERO, made);
        });
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        self.answer(|| {
            let renamed = self.contain(|| {
                let (from, to) = (self.inodes.get(parent)?, self.inodes.get(new_parent)?);
                let flags = rustix::fs::RenameFlags::from_bits_retain(flags.bits());
                let rights = Rights::permitted(Caller::of(request), Mode::empty());
                let mut change = || {
                    let _acting = rights.take();
                    Ok(renameat_with(from.fd()?, name, to.fd()?, new_name, flags)?)
                };
                // What has the new name loses it, unless it gets the old one.
                if flags.contains(rustix::fs::RenameFlags::EXCHANGE) {
                    return change();
                }
                self.remove(&to, new_name, &mut change)
            });
            done(reply, renamed);
        });
    }

    fn link(&self, request: &Request, inode: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.answer(|| {
            let made = self.contain(|| {
                let (inode, parent) = (self.inodes.get(inode)?, self.inodes.get(parent)?);
                if inode.is_device() {
                    return Err(rustix::io::Errno::PERM.into());
                }
                let acting = Rights::permitted(Caller::of(request), Mode::empty()).take();
                linkat(inode.fd()?, "", parent.fd()?, name, ITSELF)?;
                drop(acting);
                self.made(Caller::of(request), &parent, name)
            });
            entry(reply, TTL, made);
        });
    }

    fn open(&self, request: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        self.answer(|| {
            let opened = self.contain(|| self.open_file(Caller::of(request), inode, open_flags(flags.0)));
            match opened {
                Ok(handle) => reply.opened(handle, OPENED),
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        mask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        self.answer(|| {
            let (caller, masked) = (Caller::of(request), (mode, mask));
            let created = self.contain(|| self.create_file(caller, parent, name, masked, open_flags(flags)));
            match created {
                Ok((it, handle)) => reply.created(&TTL, &it.attributes, it.generation, handle, OPENED),
                Err(error) => reply.error(errno(error)),
            }
        });
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
        let (turn, reply) = (self.readers.turn(), Cell::new(Some(reply)));
        self.survive(|| {
            with_buffer(size as usize, |buffer| {
                // Before copies to the SSD are made, unless many threads make some: then who asked waits for his.
                let answer = |bytes: &[u8]| {
                    if turn.may_go_on()
                        && let Some(reply) = reply.take()
                    {
                        reply.data(bytes);
                    }
                };
                let read = self.contain(|| {
                    let open = self.files.get(handle)?;
                    self.read_file(&open, offset, buffer, &turn, &answer)
                });
                match (read, reply.take()) {
                    (Ok(read), Some(reply)) => reply.data(&buffer[..read]),
                    (Err(error), Some(reply)) => reply.error(errno(error)),
                    (_, None) => {}
                }
            });
        });
    }

    fn write(
        &self,
        request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.answer(|| {
            let caller = Caller::of(request);
            // Those of the open file, and of this write.
            let is_durable = asks_for_durability(flags.0 as u32);
            let written =
                self.contain(|| self.write_file(caller, handle, offset, data, write_flags, is_durable));
            match written {
                Ok(written) => reply.written(written as u32),
                Err(error) => reply.error(errno(error)),
            }
        });
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
        self.answer(|| {
            let removed = self.contain(|| {
                self.files.remove(handle);
                Ok(())
            });
            done(reply, removed);
        });
    }

    fn fsync(
        &self,
        _request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        self.answer(|| {
            let synced = self.contain(|| self.files.get(handle)?.sync(data_only));
            done(reply, synced);
        });
    }

    fn opendir(&self, request: &Request, inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        self.answer(|| {
            let opened = self.contain(|| {
                let inode = self.inodes.get(inode)?;
                let permit = inode.permit(request.uid(), 1)?;
                let file = inode.open(OFlags::RDONLY | OFlags::DIRECTORY)?;
                Ok(self.directories.insert(OpenDirectory::new(file, permit)))
            });
            match opened {
                Ok(handle) => reply.opened(handle, FopenFlags::empty()),
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    fn readdir(
        &self,
        _request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        self.answer(|| {
            let read = self.contain(|| self.list(inode, handle, offset, &mut reply));
            match read {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    fn readdirplus(
        &self,
        request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        self.answer(|| {
            let read =
                self.contain(|| self.list_with_attributes(request.uid(), inode, handle, offset, &mut reply));
            match read {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    fn releasedir(
        &self,
        _request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.answer(|| {
            let removed = self.contain(|| {
                self.directories.remove(handle);
                Ok(())
            });
            done(reply, removed);
        });
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        _data_only: bool,
        reply: ReplyEmpty,
    ) {
        self.answer(|| {
            let synced = self.contain(|| {
                let directory = self.directories.get(handle)?;
                let file = directory.file.lock().unwrap_or_else(PoisonError::into_inner);
                Ok(fsync(&*file)?)
            });
            done(reply, synced);
        });
    }

    fn statfs(&self, _request: &Request, inode: INodeNo, reply: ReplyStatfs) {
        self.answer(|| {
            let asked = self.contain(|| {
                let inode = self.inodes.get(inode);
                let inode = inode.unwrap_or_else(|_| Arc::clone(self.inodes.root()));
                Ok(fstatvfs(inode.fd()?)?)
            });
            match asked {
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
        });
    }

    fn setxattr(
        &self,
        request: &Request,
        inode: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        self.answer(|| {
            self.counts.attribute_writes.one();
            let flags = XattrFlags::from_bits_retain(flags as u32);
            let set = self.contain(|| {
                let fd = self.inodes.get(inode)?.fd()?;
                let _acting = Rights::permitted(Caller::of(request), mode_of(&fd)?).take();
                Ok(rustix::fs::setxattr(path_of(&fd), name, value, flags)?)
            });
            done(reply, set);
        });
    }

    fn getxattr(&self, _request: &Request, inode: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        self.answer(|| {
            self.counts.attribute_reads.one();
            let asked = self.contain(|| {
                let fd = self.inodes.get(inode)?.fd()?;
                if size == 0 {
                    return Ok(Xattr::Length(rustix::fs::getxattr_query(path_of(&fd), name)?));
                }
                let mut value = vec![0; size as usize];
                let length = rustix::fs::getxattr(path_of(&fd), name, &mut value)?;
                value.truncate(length);
                Ok(Xattr::Value(value))
            });
            xattr(reply, asked);
        });
    }

    fn listxattr(&self, request: &Request, inode: INodeNo, size: u32, reply: ReplyXattr) {
        self.answer(|| {
            self.counts.attribute_reads.one();
            let listed = self.contain(|| {
                let fd = self.inodes.get(inode)?.fd()?;
                let mut names = vec![0; NAMES_BYTES_MAX];
                let length = rustix::fs::listxattr(path_of(&fd), &mut names)?;
                let names = visible_names(&names[..length], Caller::of(request));
                if size != 0 && names.len() > size as usize {
                    return Err(rustix::io::Errno::RANGE.into());
                }
                Ok(if size == 0 {
                    Xattr::Length(names.len())
                } else {
                    Xattr::Value(names)
                })
            });
            xattr(reply, listed);
        });
    }

    fn removexattr(&self, request: &Request, inode: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.answer(|| {
            self.counts.attribute_writes.one();
            let removed = self.contain(|| {
                let fd = self.inodes.get(inode)?.fd()?;
                let _acting = Rights::permitted(Caller::of(request), mode_of(&fd)?).take();
                Ok(rustix::fs::removexattr(path_of(&fd), name)?)
            });
            done(reply, removed);
        });
    }

    fn fallocate(
        &self,
        request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        self.answer(|| {
            let mode = FallocateFlags::from_bits_retain(mode as u32);
            let caller = Caller::of(request);
            let allocated = self.contain(|| self.allocate(caller, handle, offset, length, mode));
            done(reply, allocated);
        });
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
        self.answer(|| {
            let found = self.contain(|| self.seek_data(handle, offset as u64, whence));
            match found {
                Ok(found) => reply.offset(found as i64),
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    fn copy_file_range(
        &self,
        request: &Request,
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
        self.answer(|| {
            let (from, to) = ((handle_in, offset_in), (handle_out, offset_out));
            let copied = self.contain(|| self.copy(Caller::of(request), from, to, length));
            match copied {
                Ok(copied) => reply.written(copied),
                Err(error) => reply.error(errno(error)),
            }
        });
    }
}
