//! By what a file is known again after a restart.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use rustix::fs::{FileType, Stat, fstat};

use crate::device_identity::listed_name;

const HANDLE_BYTES_MAX: usize = 128;

/// A file or device. A file that is removed and another that gets its inode number differ, where the file system has file
/// handles; elsewhere they are told apart by the inode number alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum FileIdentity {
    /// Device of the file system, and the file handle: inode number and generation in the form of the file system.
    Handle(u64, Vec<u8>),
    /// Device of the file system, and inode number.
    Inode(u64, u64),
    /// A block device, by its number.
    Device(u64),
    /// A file elsewhere to which a link of this name leads: its handle there.
    Linked(&'static str, Vec<u8>),
}

impl FileIdentity {
    /// The identity of what is open.
    ///
    /// # Errors
    /// If it cannot be asked.
    pub(crate) fn of(fd: impl AsFd) -> rustix::io::Result<Self> {
        let stat: Stat = fstat(&fd)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice {
            return Ok(Self::Device(stat.st_rdev));
        }
        Ok(match file_handle(fd) {
            Some(handle) => Self::Handle(stat.st_dev, handle),
            None => Self::Inode(stat.st_dev, stat.st_ino),
        })
    }
}

impl FileIdentity {
    /// The same file, as it is known where a link of this name leads to it from another file system.
    pub(crate) fn linked_as(self, name: &'static str) -> Self {
        match self {
            Self::Handle(_, handle) => Self::Linked(name, handle),
            Self::Inode(_, inode) => Self::Linked(name, inode.to_le_bytes().to_vec()),
            other => other,
        }
    }

    /// The bytes by which a file of the file system on `device`, or a device, is known after a restart, when file systems
    /// may have other numbers. `None` for a file of another file system.
    pub(crate) fn handle_in(&self, device: u64) -> Option<Vec<u8>> {
        let named = |kind: u8, bytes: &[u8]| [&[kind][..], bytes].concat();
        match self {
            Self::Handle(on, handle) => (*on == device).then(|| named(HANDLE, handle)),
            Self::Inode(on, inode) => (*on == device).then(|| named(INODE, &inode.to_le_bytes())),
            Self::Device(number) => Some(match listed_name(*number) {
                // With its kind it is a handle.
                Some(name) if name.len() < HANDLE_BYTES_MAX => named(NAMED_DEVICE, name.as_bytes()),
                _ => named(DEVICE, &number.to_le_bytes()),
            }),
            Self::Linked(name, handle) => Some(named(LINKED, &[name.as_bytes(), &[0], handle].concat())),
        }
    }
}

const HANDLE: u8 = 0;
const INODE: u8 = 1;
const DEVICE: u8 = 2;
const NAMED_DEVICE: u8 = 3;
const LINKED: u8 = 4;

/// What the bytes of [`FileIdentity::handle_in`] say.
pub(crate) enum KnownBy<'a> {
    /// Type and bytes of a file handle.
    Handle(&'a [u8]),
    Inode(u64),
    /// What a link leads to.
    Device,
}

impl<'a> KnownBy<'a> {
    pub(crate) fn of(bytes: &'a [u8]) -> Option<Self> {
        let (&kind, rest) = bytes.split_first()?;
        let number = || Some(u64::from_le_bytes(rest.try_into().ok()?));
        match kind {
            HANDLE => Some(Self::Handle(rest)),
            INODE => number().map(Self::Inode),
            DEVICE | NAMED_DEVICE | LINKED => Some(Self::Device),
            _ => None,
        }
    }
}

/// A file handle with room for its bytes.
#[repr(C)]
struct Handle {
    head: libc::file_handle,
    bytes: [u8; HANDLE_BYTES_MAX],
}

/// Opens the file of a handle, as a path, in the file system of `root`.
///
/// # Errors
/// If there is no such file any more.
pub(crate) fn open_handle(root: &File, named: &[u8]) -> io::Result<OwnedFd> {
    let (kind, bytes) = named.split_at_checked(4).ok_or(io::ErrorKind::InvalidInput)?;
    let mut handle = Handle {
        head: libc::file_handle {
            handle_bytes: bytes.len() as u32,
            handle_type: i32::from_le_bytes(kind.try_into().map_err(io::Error::other)?),
            f_handle: [],
        },
        bytes: [0; HANDLE_BYTES_MAX],
    };
    let room = handle
        .bytes
        .get_mut(..bytes.len())
        .ok_or(io::ErrorKind::InvalidInput)?;
    room.copy_from_slice(bytes);
    // SAFETY: `root` is open. The kernel reads the head and `handle_bytes` bytes from `f_handle` on, which has no size and
    // alignment 1 or 4: `bytes` begins there and has room for all of them. The pointer is to a value of this function.
    let fd = unsafe {
        libc::open_by_handle_at(
            root.as_raw_fd(),
            (&raw mut handle).cast(),
            libc::O_PATH | libc::O_CLOEXEC,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just opened the descriptor, which nobody else knows.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Type and bytes of the file handle.
pub(crate) fn file_handle(fd: impl AsFd) -> Option<Vec<u8>> {
    let mut handle = Handle {
        head: libc::file_handle {
            handle_bytes: HANDLE_BYTES_MAX as u32,
            handle_type: 0,
            f_handle: [],
        },
        bytes: [0; HANDLE_BYTES_MAX],
    };
    let mut mount = 0;
    // SAFETY: the path is an empty C string, so the descriptor itself is meant, and it is open as `fd` is borrowed. The kernel
    // writes at most `handle_bytes` bytes from `f_handle` on, which has no size and alignment 1 or 4: `bytes` begins at or
    // after it, and `Handle` has room for all of them. Both pointers are to values of this function.
    let code = unsafe {
        libc::name_to_handle_at(
            fd.as_fd().as_raw_fd(),
            c"".as_ptr(),
            (&raw mut handle).cast(),
            &raw mut mount,
            libc::AT_EMPTY_PATH,
        )
    };
    let length = handle.head.handle_bytes as usize;
    (code == 0 && length <= HANDLE_BYTES_MAX).then(|| {
        let mut named = handle.head.handle_type.to_le_bytes().to_vec();
        named.extend_from_slice(&handle.bytes[..length]);
        named
    })
}
