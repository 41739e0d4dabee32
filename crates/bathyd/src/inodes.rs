//! The inodes that the kernel knows.
//!
//! The kernel knows an inode by a number and a generation, and keeps what it knows until it says that it has forgotten it.
//! Where the file system has handles, an inode is opened by its handle again, and the handle says which inode it is, also when
//! its number is used again. Then the new inode has the number with another generation, and the kernel gives the old one up.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use fuser::{FileAttr, FileType, Generation, INodeNo};
use rustix::fs::{AtFlags, OFlags, Stat, fstat};
use rustix::io::{Errno, Result};

use crate::attributes;
use crate::cache::{CachedFile, FileCache};
use crate::descriptors::{Descriptors, Permit, Slot};
use crate::devices::{Device, Devices};
use crate::tree;

/// Numbers of inodes that cannot be shown by their own: those of other file systems below, and a number 1.
const FIRST_OWN_NUMBER: u64 = 1 << 62;

/// An inode.
pub(crate) struct Inode {
    pub(crate) number: u64,
    generation: Generation,
    slot: Arc<Slot>,
    key: Arc<Key>,
    /// What a link of an OSD leads to, which is shown as a file.
    pub(crate) device: Option<Arc<Device>>,
    attached: Mutex<Attached>,
}

/// What is one inode.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    device: u64,
    number: u64,
    /// It is shown as a file. The device node itself is another inode to the kernel.
    is_device: bool,
    /// Tells it from the next one with its number.
    handle: Option<Box<[u8]>>,
}

/// Descriptors that a cache has of a file.
const ATTACHED_DESCRIPTORS: usize = 2;

#[derive(Default)]
struct Attached {
    users: usize,
    file: Option<(Arc<dyn CachedFile>, Permit)>,
    /// It has no name any more.
    is_removed: bool,
}

/// An inode as the kernel is told of it.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) attributes: FileAttr,
    pub(crate) generation: Generation,
}

/// An inode that the kernel is about to be told of: unless it is, it has not been.
pub(crate) struct Told<'a> {
    pub(crate) inode: Arc<Inode>,
    pub(crate) entry: Entry,
    counted: Counted<'a>,
}

impl Told<'_> {
    /// The kernel is told now.
    pub(crate) fn tell(self) -> Entry {
        mem::forget(self.counted);
        self.entry
    }
}

/// It is counted that the kernel was told of an inode.
struct Counted<'a> {
    inodes: &'a Inodes,
    number: u64,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.inodes.forget(self.number, 1);
    }
}

impl Inode {
    pub(crate) fn is_root(&self) -> bool {
        self.number == INodeNo::ROOT.0
    }

    /// It, open with `O_PATH`.
    ///
    /// # Errors
    /// `ESTALE` if it is no more.
    pub(crate) fn fd(&self) -> Result<Arc<OwnedFd>> {
        self.slot.fd()
    }

    /// Whether it is a block device that is shown as a file of its size.
    pub(crate) fn is_device(&self) -> bool {
        self.device.as_ref().is_some_and(|device| device.is_block())
    }

    /// Opens it anew.
    pub(crate) fn open(&self, flags: OFlags) -> Result<File> {
        match &self.device {
            Some(device) => device.reopen(flags),
            None => tree::reopen(self.fd()?, flags),
        }
    }

    pub(crate) fn attributes(&self) -> Result<FileAttr> {
        let stat = fstat(self.fd()?)?;
        // The kernel has a number of its own for the root alone.
        let number = if self.is_root() { stat.st_ino } else { self.number };
        let mut attributes = attributes::of_stat(number, &stat);
        if let Some(device) = self.device.as_ref().filter(|device| device.is_block()) {
            attributes.kind = FileType::RegularFile;
            attributes.size = device.size_bytes()?;
            attributes.blocks = attributes.size / 512;
            attributes.rdev = 0;
        }
        Ok(attributes)
    }

    /// As it is now, for the kernel.
    pub(crate) fn entry(&self) -> Result<Entry> {
        Ok(Entry {
            attributes: self.attributes()?,
            generation: self.generation,
        })
    }

    /// So many more descriptors of its source, which the caller opens now for a user.
    ///
    /// # Errors
    /// If the source or the user has as many as it may.
    pub(crate) fn permit(&self, user: u32, count: usize) -> Result<Permit> {
        self.slot.permit(user, count)
    }

    /// The file's cache, if it has one, for a user who has to [`Inode::detach`] later unless this fails.
    pub(crate) fn attach(&self, cache: &dyn FileCache, user: u32) -> io::Result<Option<Arc<dyn CachedFile>>> {
        let mut attached = self.attached.lock().unwrap_or_else(PoisonError::into_inner);
        // Also for a later user: a program that ran can be written to when it has ended.
        if attached.file.is_none() {
            let permit = self.permit(user, ATTACHED_DESCRIPTORS)?;
            attached.file = cache.attach(self)?.map(|file| (file, permit));
        }
        attached.users += 1;
        Ok(attached.file.as_ref().map(|(file, _)| Arc::clone(file)))
    }

    pub(crate) fn detach(&self) {
        let mut attached = self.attached.lock().unwrap_or_else(PoisonError::into_inner);
        attached.users -= 1;
        if attached.users == 0 {
            let closed = attached.file.take();
            let is_removed = attached.is_removed;
            drop(attached);
            drop(closed);
            if is_removed {
                self.slot.let_go();
            }
        }
    }

    /// Its last name is gone. Who has it open goes on.
    fn set_removed(&self, fd: OwnedFd, is_file: bool) {
        if !is_file {
            // It takes no room, and may be in use without being open here: as a working directory, or as a pipe.
            return self.slot.pin(Arc::new(fd));
        }
        let mut attached = self.attached.lock().unwrap_or_else(PoisonError::into_inner);
        attached.is_removed = true;
        if attached.users > 0 {
            self.slot.pin(Arc::new(fd));
        } else {
            self.slot.let_go();
        }
    }
}

/// What is open with a descriptor as a path, also of a symbolic link: for calls that take no descriptor of this kind.
pub(crate) fn path_of(fd: impl AsFd) -> PathBuf {
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()).into()
}

/// The inodes that the kernel knows, and how often it was told of each.
pub(crate) struct Inodes {
    root: Arc<Inode>,
    devices: Arc<Devices>,
    descriptors: Arc<Descriptors>,
    known: RwLock<Known>,
}

struct Known {
    by_number: HashMap<u64, (Arc<Inode>, u64)>,
    by_key: HashMap<Arc<Key>, u64>,
    next_own_number: u64,
}

impl Inodes {
    /// `root` is the directory, open with `O_PATH`, and `devices` are those of its links.
    pub(crate) fn new(root: OwnedFd, devices: Arc<Devices>) -> Result<Self> {
        let descriptors = Arc::new(Descriptors::new(&root));
        let key = Key::of(&descriptors, &root, &fstat(&root)?, None);
        let root = Arc::new(Inode {
            number: INodeNo::ROOT.0,
            generation: Generation(0),
            slot: Slot::of_root(&descriptors, root),
            key: Arc::new(key),
            device: None,
            attached: Mutex::default(),
        });
        Ok(Self {
            devices,
            descriptors,
            known: RwLock::new(Known {
                by_number: HashMap::from([(root.number, (Arc::clone(&root), 1))]),
                by_key: HashMap::from([(Arc::clone(&root.key), root.number)]),
                next_own_number: FIRST_OWN_NUMBER,
            }),
            root,
        })
    }

    pub(crate) fn root(&self) -> &Arc<Inode> {
        &self.root
    }

    pub(crate) fn get(&self, number: INodeNo) -> Result<Arc<Inode>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known
            .by_number
            .get(&number.0)
            .map(|(inode, _)| Arc::clone(inode))
            .ok_or(Errno::STALE)
    }

    /// The number of inodes that the kernel knows.
    pub(crate) fn len(&self) -> usize {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.by_number.len()
    }

    /// What `name` in `parent` is, of which the kernel is to be told for a user.
    pub(crate) fn look_up(&self, parent: &Inode, name: &OsStr, user: u32) -> Result<Told<'_>> {
        let fd = tree::open_path(parent.fd()?, name)?;
        let device = parent.is_root().then(|| self.devices.behind(name, &fd)).flatten();
        match device {
            Some(device) => {
                let node = device.node.try_clone().map_err(|_| Errno::MFILE)?;
                self.know(node, Some(device), user)
            }
            None => self.know(fd, None, user),
        }
    }

    /// The device to which a link in the root leads that is shown as a file.
    pub(crate) fn device_behind(&self, parent: &Inode, name: &OsStr) -> Option<Arc<Device>> {
        parent.is_root().then(|| self.devices.behind_name(name)).flatten()
    }

    /// The inode of `fd` (`O_PATH`), of which the kernel is to be told for a user.
    pub(crate) fn know(&self, fd: OwnedFd, device: Option<Arc<Device>>, user: u32) -> Result<Told<'_>> {
        let stat = fstat(&fd)?;
        let key = Arc::new(Key::of(&self.descriptors, &fd, &stat, device.as_deref()));
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let number = known.by_key.get(&key).copied();
        let found = number.and_then(|number| known.by_number.get_mut(&number));
        let inode = if let Some((inode, times)) = found {
            *times += 1;
            Arc::clone(inode)
        } else {
            let is_own = device.is_some()
                || key.device != self.root.key.device
                || stat.st_ino <= 1
                || stat.st_ino >= FIRST_OWN_NUMBER;
            let number = if is_own {
                known.next_own_number += 1;
                known.next_own_number
            } else {
                stat.st_ino
            };
            let slot = Slot::new(&self.descriptors, fd, key.handle.clone(), user)?;
            // One that is no more, of which the kernel has yet to say that it forgot it.
            let replaced = known.by_number.remove(&number);
            let (generation, times) = replaced.as_ref().map_or((0, 0), |(inode, times)| {
                known.by_key.remove(&inode.key);
                (inode.generation.0 + 1, *times)
            });
            let inode = Arc::new(Inode {
                number,
                generation: Generation(generation),
                slot,
                key: Arc::clone(&key),
                device,
                attached: Mutex::default(),
            });
            known.by_key.insert(key, number);
            known.by_number.insert(number, (Arc::clone(&inode), times + 1));
            drop(known);
            drop(replaced);
            return self.count(inode);
        };
        drop(known);
        self.count(inode)
    }

    /// Of an inode that was just counted once more.
    fn count(&self, inode: Arc<Inode>) -> Result<Told<'_>> {
        let counted = Counted {
            inodes: self,
            number: inode.number,
        };
        Ok(Told {
            entry: inode.entry()?,
            inode,
            counted,
        })
    }

    /// What is open with `fd` (`O_PATH`) has lost its last name.
    pub(crate) fn removed(&self, fd: OwnedFd) {
        let Ok(stat) = fstat(&fd) else { return };
        let key = Key::of(&self.descriptors, &fd, &stat, None);
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let number = known.by_key.get(&key);
        let inode = number.and_then(|number| Some(Arc::clone(&known.by_number.get(number)?.0)));
        drop(known);
        if let Some(inode) = inode {
            let is_file = attributes::kind(stat.st_mode) == FileType::RegularFile;
            inode.set_removed(fd, is_file);
        }
    }

    /// The kernel forgets that it was told of an inode so many times.
    pub(crate) fn forget(&self, number: u64, times: u64) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let Some((inode, left)) = known.by_number.get_mut(&number) else {
            return;
        };
        *left = left.saturating_sub(times);
        if *left > 0 || inode.is_root() {
            return;
        }
        let key = Arc::clone(&inode.key);
        let removed = known.by_number.remove(&number);
        known.by_key.remove(&key);
        drop(known);
        // Closing the last descriptor of a removed file frees its blocks, which takes time.
        drop(removed);
    }
}

impl Key {
    fn of(descriptors: &Descriptors, fd: &OwnedFd, stat: &Stat, device: Option<&Device>) -> Self {
        Self {
            device: stat.st_dev,
            number: stat.st_ino,
            is_device: device.is_some_and(Device::is_block),
            // That of a device lies in another file system.
            handle: if device.is_some() {
                None
            } else {
                descriptors.handle(fd)
            },
        }
    }
}

/// Flags for calls on the descriptor itself.
pub(crate) const ITSELF: AtFlags = AtFlags::EMPTY_PATH;
