//! What is answered to the kernel.

use std::io;
use std::time::Duration;

use fuser::{Errno, FileAttr, FileType, FopenFlags, INodeNo, ReplyAttr, ReplyEmpty, ReplyEntry, ReplyXattr};

use crate::inodes::Entry;

/// How long the kernel may answer from what it was told. Its own operations keep that right; the limit is for links of files
/// that are reached by another way.
pub(super) const TTL: Duration = Duration::from_secs(1);
/// How files are opened: every read and write is seen, writes of one file go side by side, and closing one says nothing.
pub(super) const OPENED: FopenFlags = FopenFlags::FOPEN_DIRECT_IO
    .union(FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES)
    .union(FopenFlags::FOPEN_NOFLUSH);

/// How long an entry of a directory may be used without another look. A link in the root is shown as a device as soon as it
/// has the name of one, and the kernel moves what it knows of an entry to its new name.
pub(super) fn entry_ttl(directory: INodeNo, attributes: &FileAttr) -> Duration {
    if directory == INodeNo::ROOT && attributes.kind == FileType::Symlink {
        return Duration::ZERO;
    }
    TTL
}

pub(super) fn errno(error: impl Into<io::Error>) -> Errno {
    error.into().into()
}

pub(super) fn done(reply: ReplyEmpty, result: io::Result<()>) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(error)),
    }
}

pub(super) fn entry(reply: ReplyEntry, ttl: Duration, result: io::Result<Entry>) {
    match result {
        Ok(it) => reply.entry(&ttl, &it.attributes, it.generation),
        Err(error) => reply.error(errno(error)),
    }
}

/// What is answered to who asks for an extended attribute, or for their names.
pub(super) enum Xattr {
    /// Its length, for who has no room for it.
    Length(usize),
    Value(Vec<u8>),
}

pub(super) fn xattr(reply: ReplyXattr, result: io::Result<Xattr>) {
    match result {
        Ok(Xattr::Length(length)) => reply.size(length as u32),
        Ok(Xattr::Value(value)) => reply.data(&value),
        Err(error) => reply.error(errno(error)),
    }
}

pub(super) fn attributes_of(reply: ReplyAttr, result: io::Result<FileAttr>) {
    match result {
        Ok(attributes) => reply.attr(&TTL, &attributes),
        Err(error) => reply.error(errno(error)),
    }
}
