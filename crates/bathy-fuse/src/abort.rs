//! Ending a connection to the kernel, whoever waits for it.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use crate::device_number::device_number;

/// Ends a connection: all its requests fail at once, those under way too.
///
/// The kernel has a file for that in a control file system, which is mounted here for nobody else to see, as it need not be
/// mounted anywhere. The file is opened when the connection begins: it is that of this connection for ever, and works when
/// the mount is detached and no path leads to it.
#[derive(Clone, Debug)]
pub(crate) struct Abort(Arc<File>);

impl Abort {
    /// Of the connection of the file system that has this root.
    pub(crate) fn of(root: impl AsFd) -> io::Result<Self> {
        let (_, minor) = device_number(root)?;
        let context = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(&context)?;
        let attributes = MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOSUID;
        let control = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let file = openat(&control, format!("{minor}/abort"), flags, Mode::empty())?;
        Ok(Self(Arc::new(file.into())))
    }

    /// Ends the connection, if it has not ended.
    pub(crate) fn now(&self) {
        // Of one that has ended nothing is left to be done.
        let _over = (&*self.0).write_all(b"1");
    }
}
