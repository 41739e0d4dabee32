//! The entries of a directory.

use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::sync::PoisonError;

use fuser::{FileHandle, FileType, INodeNo, ReplyDirectory, ReplyDirectoryPlus};
use rustix::fs::{RawDir, RawDirEntry, SeekFrom, seek};

use super::Directory;
use super::replies::{TTL, entry_ttl};
use crate::attributes;

const DIRECTORY_BUFFER_BYTES: usize = 16 << 10;

impl Directory {
    /// Calls `take` with the entries of a directory from `offset` on, until it says that there is enough.
    fn each_entry(
        &self,
        handle: FileHandle,
        offset: u64,
        take: &mut dyn FnMut(&RawDirEntry<'_>) -> bool,
    ) -> io::Result<()> {
        let directory = self.directories.get(handle)?;
        let directory = directory.file.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// Puts the entries from `offset` on into `reply`, as many as it has room for.
    pub(super) fn list(
        &self,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        reply: &mut ReplyDirectory,
    ) -> io::Result<()> {
        let parent = self.inodes.get(inode)?;
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
    }

    /// As [`Directory::list`], with the attributes of each, for a user.
    pub(super) fn list_with_attributes(
        &self,
        user: u32,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        reply: &mut ReplyDirectoryPlus,
    ) -> io::Result<()> {
        let (mut told, mut is_empty, mut failed) = (Vec::new(), true, None);
        let parent = self.inodes.get(inode)?;
        let read = self.each_entry(handle, offset, &mut |entry| {
            let (name, next) = (name_of(entry), entry.next_entry_cookie());
            if name == "." || name == ".." {
                // The kernel takes no more than number and kind of these two.
                let mut it = match parent.entry() {
                    Ok(it) => it,
                    Err(error) => {
                        failed = Some(error);
                        return true;
                    }
                };
                it.attributes.ino = INodeNo(entry.ino());
                let is_full = reply.add(it.attributes.ino, next, name, &TTL, &it.attributes, it.generation);
                is_empty &= is_full;
                return is_full;
            }
            let found = match self.inodes.look_up(&parent, name, user) {
                Ok(found) => found,
                // It was removed meanwhile.
                Err(rustix::io::Errno::NOENT) => return false,
                Err(error) => {
                    failed = Some(error);
                    return true;
                }
            };
            let it = found.entry;
            let ttl = entry_ttl(inode, &it.attributes);
            let is_full = reply.add(it.attributes.ino, next, name, &ttl, &it.attributes, it.generation);
            if !is_full {
                told.push(found);
            }
            is_empty &= is_full;
            is_full
        });
        // What cannot be shown is not left out: what is before it is listed, and then comes the error.
        match failed.filter(|_| is_empty) {
            Some(error) => return Err(error.into()),
            None => read?,
        }
        // After an error the kernel is told of none of them.
        for found in told {
            let _told = found.tell();
        }
        Ok(())
    }
}

fn name_of<'a>(entry: &'a RawDirEntry<'_>) -> &'a OsStr {
    OsStr::from_bytes(entry.file_name().to_bytes())
}
