//! The number by which the kernel knows a mounted file system.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, StatxFlags, statx};

/// Major and minor number.
pub(crate) type DeviceNumber = (u32, u32);

/// The number of the file system, for which the file system itself is not asked: it may be ours, or dead.
pub(crate) fn device_number(fd: impl AsFd) -> io::Result<DeviceNumber> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = statx(fd, "", flags, StatxFlags::empty())?;
    Ok((stat.stx_dev_major, stat.stx_dev_minor))
}
