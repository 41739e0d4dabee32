//! The inodes that the kernel knows, each pinned by a descriptor.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use fuser::{FileAttr, FileType, INodeNo};
use rustix::fs::{AtFlags, Mode, OFlags, fstat, openat, readlinkat, seek};
use rustix::io::{Errno, Result};

use crate::attributes;
use crate::cache::{CachedFile, FileCache};

/// Names under which an OSD (`BlueStore`) has links to its devices.
const DEVICE_NAMES: [&str; 3] = ["block", "block.db", "block.wal"];
/// Numbers of inodes that cannot be shown by their own: those of other file systems below, and a number 1.
const FIRST_OWN_NUMBER: u64 = 1 << 62;

/// An inode. The descriptor (`O_PATH`) keeps its number from being used again for as long as the kernel knows it.
pub(crate) struct Inode {
    pub(crate) number: u64,
    pub(crate) fd: OwnedFd,
    key: Key,
    /// A block device that is shown as a file of its size.
    pub(crate) is_device: bool,
    attached: Mutex<Attached>,
}

type Key = (u64, u64);

#[derive(Default)]
struct Attached {
    users: usize,
    file: Option<Arc<dyn CachedFile>>,
}

impl Inode {
    pub(crate) fn is_root(&self) -> bool {
        self.number == INodeNo::ROOT.0
    }

    /// The inode itself as a path, also of a symbolic link: for calls that take no descriptor of this kind.
    pub(crate) fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.fd.as_raw_fd()).into()
    }

    /// Opens it anew.
    pub(crate) fn open(&self, flags: OFlags) -> Result<File> {
        rustix::fs::open(self.path(), flags | OFlags::CLOEXEC, Mode::empty()).map(File::from)
    }

    pub(crate) fn attributes(&self) -> Result<FileAttr> {
        let stat = fstat(&self.fd)?;
        // The kernel has a number of its own for the root alone.
        let number = if self.is_root() { stat.st_ino } else { self.number };
        let mut attributes = attributes::of_stat(number, &stat);
        if self.is_device {
            attributes.kind = FileType::RegularFile;
            attributes.size = seek(self.open(OFlags::RDONLY)?, rustix::fs::SeekFrom::End(0))?;
            attributes.blocks = attributes.size / 512;
            attributes.rdev = 0;
        }
        Ok(attributes)
    }

    /// The file's cache, if it has one, for a user who has to [`Inode::detach`] later unless this fails.
    pub(crate) fn attach(&self, cache: &dyn FileCache) -> io::Result<Option<Arc<dyn CachedFile>>> {
        let mut attached = self.attached.lock().unwrap_or_else(PoisonError::into_inner);
        // Also for a later user: a program that ran can be written to when it has ended.
        if attached.file.is_none() {
            attached.file = cache.attach(self)?;
        }
        attached.users += 1;
        Ok(attached.file.clone())
    }

    pub(crate) fn detach(&self) {
        let mut attached = self.attached.lock().unwrap_or_else(PoisonError::into_inner);
        attached.users -= 1;
        if attached.users == 0 {
            attached.file = None;
        }
    }
}

/// The inodes that the kernel knows, and how often it was told of each.
pub(crate) struct Inodes {
    root: Arc<Inode>,
    /// The directory's path, through which this process must not go: it would wait for itself.
    path: PathBuf,
    known: RwLock<Known>,
}

struct Known {
    by_number: HashMap<u64, (Arc<Inode>, u64)>,
    by_key: HashMap<Key, u64>,
    next_own_number: u64,
}

impl Inodes {
    /// `root` is the directory, open with `O_PATH`; `path` is where it is mounted over.
    pub(crate) fn new(root: OwnedFd, path: PathBuf) -> Result<Self> {
        let stat = fstat(&root)?;
        let root = Arc::new(Inode {
            number: INodeNo::ROOT.0,
            fd: root,
            key: (stat.st_dev, stat.st_ino),
            is_device: false,
            attached: Mutex::default(),
        });
        Ok(Self {
            path,
            known: RwLock::new(Known {
                by_number: HashMap::from([(root.number, (Arc::clone(&root), 1))]),
                by_key: HashMap::from([(root.key, root.number)]),
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

    /// What `name` in `parent` is, once more known to the kernel.
    pub(crate) fn look_up(&self, parent: &Inode, name: &OsStr) -> Result<(Arc<Inode>, FileAttr)> {
        let fd = openat(
            &parent.fd,
            name,
            OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        if let Some(device) = self.device_behind(parent, name) {
            return self.know(device, true);
        }
        self.know(fd, false)
    }

    /// The block device to which a link in the root with one of the names of [`DEVICE_NAMES`] leads.
    pub(crate) fn device_behind(&self, parent: &Inode, name: &OsStr) -> Option<OwnedFd> {
        if !parent.is_root() || !DEVICE_NAMES.iter().any(|device| name == *device) {
            return None;
        }
        let fd = follow(&parent.fd, name, &self.path)?;
        let mode = fstat(&fd).ok()?.st_mode;
        (attributes::kind(mode) == FileType::BlockDevice).then_some(fd)
    }

    /// The inode of `fd` (`O_PATH`), once more known to the kernel.
    pub(crate) fn know(&self, fd: OwnedFd, is_device: bool) -> Result<(Arc<Inode>, FileAttr)> {
        let stat = fstat(&fd)?;
        // A device that is shown as a file and the same device node itself are two inodes to the kernel.
        let key = (stat.st_dev ^ (u64::from(is_device) << 63), stat.st_ino);
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let number = known.by_key.get(&key).copied();
        let found = number.and_then(|number| known.by_number.get_mut(&number));
        let inode = if let Some((inode, times)) = found {
            *times += 1;
            Arc::clone(inode)
        } else {
            let is_own = key.0 != self.root.key.0 || stat.st_ino <= 1 || stat.st_ino >= FIRST_OWN_NUMBER;
            let number = if is_own {
                known.next_own_number += 1;
                known.next_own_number
            } else {
                stat.st_ino
            };
            let inode = Arc::new(Inode {
                number,
                fd,
                key,
                is_device,
                attached: Mutex::default(),
            });
            known.by_key.insert(key, number);
            known.by_number.insert(number, (Arc::clone(&inode), 1));
            inode
        };
        drop(known);
        match inode.attributes() {
            Ok(attributes) => Ok((inode, attributes)),
            Err(error) => {
                self.forget(inode.number, 1);
                Err(error)
            }
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
        let key = inode.key;
        let removed = known.by_number.remove(&number);
        known.by_key.remove(&key);
        drop(known);
        // Closing the last descriptor of a removed file frees its blocks, which takes time.
        drop(removed);
    }
}

/// Where the symbolic link `name` in `root` leads, unless that is `path`: this process would wait for itself there.
fn follow(root: impl AsFd, name: &OsStr, path: &Path) -> Option<OwnedFd> {
    let root = root.as_fd();
    let target = readlinkat(root, name, Vec::new()).ok()?;
    let target = Path::new(OsStr::from_bytes(target.as_bytes()));
    if target.starts_with(path) {
        return None;
    }
    openat(root, target, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// The devices to which links in `root` lead that are shown as files; `path` is where it is mounted over.
pub(crate) fn device_links(root: impl AsFd, path: &Path) -> impl Iterator<Item = (&'static str, OwnedFd)> {
    DEVICE_NAMES
        .into_iter()
        .filter_map(move |name| Some((name, follow(&root, OsStr::new(name), path)?)))
}

/// Flags for calls on the descriptor itself.
pub(crate) const ITSELF: AtFlags = AtFlags::EMPTY_PATH;
