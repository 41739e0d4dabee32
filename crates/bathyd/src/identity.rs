//! By what a file is known again after a restart.

use std::os::fd::{AsFd, AsRawFd};

use rustix::fs::{FileType, Stat, fstat};

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
    /// The bytes by which a file of the file system on `device`, or a device, is known after a restart, when file systems
    /// may have other numbers. `None` for a file of another file system.
    pub(crate) fn handle_in(&self, device: u64) -> Option<Vec<u8>> {
        let named = |kind: u8, bytes: &[u8]| [&[kind][..], bytes].concat();
        match self {
            Self::Handle(on, handle) => (*on == device).then(|| named(0, handle)),
            Self::Inode(on, inode) => (*on == device).then(|| named(1, &inode.to_le_bytes())),
            Self::Device(number) => Some(named(2, &number.to_le_bytes())),
        }
    }
}

/// Type and bytes of the file handle.
fn file_handle(fd: impl AsFd) -> Option<Vec<u8>> {
    #[repr(C)]
    struct Handle {
        head: libc::file_handle,
        bytes: [u8; HANDLE_BYTES_MAX],
    }
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
