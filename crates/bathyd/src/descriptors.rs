//! The descriptors of a source: how many it may have, and which of its inodes have one at the moment.
//!
//! A process has so many descriptors, and all sources of the daemon share them. What a source cannot do without (open files and
//! directories, inodes that cannot be opened again) it gets up to its share, so that one user's files leave those of other
//! sources alone. Within a source each user has a share as well: the more they have, the more must be left for others. Inodes
//! that are merely known to the kernel are opened again by their handles, and a bounded number of these descriptors is kept.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bathy_cache::NEW_FILES_MAX;
use rustix::io::{Errno, Result};
use rustix::process::{Resource, getrlimit};

use crate::identity::{file_handle, open_handle};

/// For the daemon itself: the SSD, its sockets, what each request opens for a moment, and two for each new file that is closed
/// and waits to be made durable.
const RESERVED: usize = 256 + 2 * NEW_FILES_MAX;
/// A source keeps no more descriptors of inodes that it could open again.
const KEPT_MAX: usize = 4096;
/// A user gets more while he has at most so many times what is left: one alone four fifths of what there is, and each who comes
/// later as much of what is left then (Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet switches").
const TIMES_LEFT: usize = 4;
/// Whose descriptors count as those of the daemon: nobody asks for them.
const NOBODY: u32 = 0;

/// Sources of this process, which share its descriptors.
static SOURCES: AtomicUsize = AtomicUsize::new(0);

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Those of a source.
pub(crate) struct Descriptors {
    /// The root, to open handles by. `None` if the file system has no handles that can be opened.
    root: Option<File>,
    /// What the process may have, and the sources do not take from the daemon.
    all: usize,
    taken: Mutex<Taken>,
    /// Inodes that were given a descriptor to be kept, the oldest one first.
    kept: Mutex<VecDeque<Weak<Slot>>>,
}

/// Descriptors that were permitted.
#[derive(Default)]
struct Taken {
    all: usize,
    /// By users who have some.
    of_users: HashMap<u32, usize>,
}

/// The right to have some descriptors open.
pub(crate) struct Permit {
    source: Arc<Descriptors>,
    user: u32,
    count: usize,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut taken = lock(&self.source.taken);
        taken.all -= self.count;
        if let Entry::Occupied(mut own) = taken.of_users.entry(self.user) {
            *own.get_mut() -= self.count;
            if *own.get() == 0 {
                own.remove();
            }
        }
    }
}

/// The descriptor (`O_PATH`) of an inode.
pub(crate) struct Slot {
    held: Mutex<Held>,
    /// It was used since its turn to be closed came last.
    is_recent: AtomicBool,
    source: Arc<Descriptors>,
}

enum Held {
    /// To be opened by its handle.
    Closed(Box<[u8]>),
    /// It may be closed when others need room.
    Kept(Arc<OwnedFd>, Box<[u8]>),
    /// It stays.
    Pinned {
        fd: Arc<OwnedFd>,
        _permit: Option<Permit>,
    },
    /// The inode is no more.
    Gone,
}

impl Descriptors {
    /// For a source with this root, which is open with `O_PATH`.
    pub(crate) fn new(root: &OwnedFd) -> Self {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        Self::with_limit(root, usize::try_from(limit).unwrap_or(usize::MAX))
    }

    fn with_limit(root: &OwnedFd, limit: usize) -> Self {
        SOURCES.fetch_add(1, Ordering::Relaxed);
        // A handle is not opened by a descriptor that is open as a path alone.
        let readable = File::open(format!("/proc/self/fd/{}", root.as_raw_fd())).ok();
        let opens = |readable: &File| {
            let handle = file_handle(root);
            handle.is_some_and(|handle| open_handle(readable, &handle).is_ok())
        };
        Self {
            root: readable.filter(opens),
            all: limit.saturating_sub(RESERVED).max(limit / 2),
            taken: Mutex::default(),
            kept: Mutex::default(),
        }
    }

    fn share(&self) -> usize {
        self.all / SOURCES.load(Ordering::Relaxed).max(1)
    }

    /// A quarter of the share is for descriptors that may be closed.
    fn kept_max(&self) -> usize {
        (self.share() / 4).min(KEPT_MAX)
    }

    /// So many more descriptors, which the caller opens now for a user.
    ///
    /// # Errors
    /// `ENFILE` if the source has as many as it may, or the user so many that too few are left for others.
    pub(crate) fn permit(self: &Arc<Self>, user: u32, count: usize) -> Result<Permit> {
        let most = self.share() - self.kept_max();
        let mut taken = lock(&self.taken);
        let left = most.checked_sub(taken.all + count).ok_or(Errno::NFILE)?;
        let own = taken.of_users.get(&user).copied().unwrap_or(0);
        if own > TIMES_LEFT * left {
            return Err(Errno::NFILE);
        }
        taken.all += count;
        taken.of_users.insert(user, own + count);
        Ok(Permit {
            source: Arc::clone(self),
            user,
            count,
        })
    }

    /// The handle of an inode that can be opened by it again.
    pub(crate) fn handle(&self, fd: &OwnedFd) -> Option<Box<[u8]>> {
        self.root.as_ref()?;
        Some(file_handle(fd)?.into())
    }

    fn open(&self, handle: &[u8]) -> Result<OwnedFd> {
        let root = self.root.as_ref().ok_or(Errno::STALE)?;
        open_handle(root, handle).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }

    /// Closes what nobody used for longest, if there are too many.
    fn note_kept(&self, slot: &Arc<Slot>) {
        let mut kept = lock(&self.kept);
        kept.push_back(Arc::downgrade(slot));
        let mut closed = Vec::new();
        // Each has a second chance.
        for _ in 0..2 * kept.len() {
            if kept.len() <= self.kept_max() {
                break;
            }
            let Some(oldest) = kept.pop_front() else { break };
            let Some(oldest) = oldest.upgrade() else { continue };
            if oldest.is_recent.swap(false, Ordering::Relaxed) {
                kept.push_back(Arc::downgrade(&oldest));
            } else {
                closed.push(oldest);
            }
        }
        drop(kept);
        for slot in closed {
            slot.close();
        }
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        SOURCES.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Slot {
    /// Of an inode that is open with `fd` for a user. One that has a handle may be closed and is opened again.
    ///
    /// # Errors
    /// If it has to stay open, and the source may have no more descriptors.
    pub(crate) fn new(
        source: &Arc<Descriptors>,
        fd: OwnedFd,
        handle: Option<Box<[u8]>>,
        user: u32,
    ) -> Result<Arc<Self>> {
        let is_kept = handle.is_some();
        let held = match handle {
            Some(handle) => Held::Kept(Arc::new(fd), handle),
            None => Held::Pinned {
                fd: Arc::new(fd),
                _permit: Some(source.permit(user, 1)?),
            },
        };
        let slot = Arc::new(Self::holding(source, held));
        if is_kept {
            source.note_kept(&slot);
        }
        Ok(slot)
    }

    /// Of the root, which needs no permission.
    pub(crate) fn of_root(source: &Arc<Descriptors>, fd: OwnedFd) -> Arc<Self> {
        let held = Held::Pinned {
            fd: Arc::new(fd),
            _permit: None,
        };
        Arc::new(Self::holding(source, held))
    }

    fn holding(source: &Arc<Descriptors>, held: Held) -> Self {
        Self {
            held: Mutex::new(held),
            is_recent: AtomicBool::new(false),
            source: Arc::clone(source),
        }
    }

    /// The descriptor.
    ///
    /// # Errors
    /// If it cannot be opened, because the inode is no more or there are no descriptors.
    pub(crate) fn fd(self: &Arc<Self>) -> Result<Arc<OwnedFd>> {
        let mut held = lock(&self.held);
        let handle = match &mut *held {
            Held::Kept(fd, _) => {
                self.is_recent.store(true, Ordering::Relaxed);
                return Ok(Arc::clone(fd));
            }
            Held::Pinned { fd, .. } => return Ok(Arc::clone(fd)),
            Held::Gone => return Err(Errno::STALE),
            Held::Closed(handle) => handle,
        };
        let fd = Arc::new(self.source.open(handle)?);
        let handle = std::mem::take(handle);
        *held = Held::Kept(Arc::clone(&fd), handle);
        drop(held);
        self.source.note_kept(self);
        Ok(fd)
    }

    /// As [`Descriptors::permit`].
    pub(crate) fn permit(&self, user: u32, count: usize) -> Result<Permit> {
        self.source.permit(user, count)
    }

    fn close(&self) {
        let mut held = lock(&self.held);
        if let Held::Kept(_, handle) = &mut *held {
            let handle = std::mem::take(handle);
            *held = Held::Closed(handle);
        }
    }

    /// The inode has no name any more and somebody has it open: its descriptor stays, and its number is not used again.
    /// If there is no descriptor for that, its users find out when they ask for it.
    pub(crate) fn pin(&self, fd: Arc<OwnedFd>) {
        let mut held = lock(&self.held);
        if !matches!(*held, Held::Pinned { .. }) {
            if let Ok(permit) = self.source.permit(NOBODY, 1) {
                *held = Held::Pinned {
                    fd,
                    _permit: Some(permit),
                };
            }
        }
    }

    /// The inode has no name any more and nobody has it open: nothing keeps its blocks.
    pub(crate) fn let_go(&self) {
        let before = std::mem::replace(&mut *lock(&self.held), Held::Gone);
        // Frees its blocks, which takes time.
        drop(before);
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{Mode, OFlags, fstat, open};

    use super::*;

    #[test]
    fn few_descriptors_are_kept_every_inode_is_found_again_and_what_must_be_open_has_a_share() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: this test needs root");
            return;
        }
        let dir = std::env::temp_dir().join(format!("bathyd-descriptors-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let path = |path: &std::path::Path| open(path, OFlags::PATH, Mode::empty()).expect("it is there");
        let source = Descriptors::with_limit(&path(&dir), 2 * RESERVED);
        let source = Arc::new(source);
        if source.root.is_none() {
            eprintln!("SKIPPED: this test needs a file system with handles");
            return;
        }
        let known: Vec<_> = (0..200)
            .map(|number| {
                let name = dir.join(number.to_string());
                std::fs::write(&name, []).expect("written");
                let fd = path(&name);
                let inode = fstat(&fd).expect("asked").st_ino;
                let handle = source.handle(&fd);
                assert!(handle.is_some());
                (Slot::new(&source, fd, handle, NOBODY).expect("kept"), inode)
            })
            .collect();
        for _ in 0..2 {
            for (slot, inode) in &known {
                assert_eq!(fstat(slot.fd().expect("opened")).expect("asked").st_ino, *inode);
            }
            let is_kept = |slot: &Slot| matches!(*lock(&slot.held), Held::Kept(..));
            let kept = known.iter().filter(|(slot, _)| is_kept(slot)).count();
            assert!((1..=source.kept_max()).contains(&kept), "{kept} are kept");
        }
        // A removed inode is not taken for another one, and one that was let go keeps nothing.
        std::fs::remove_file(dir.join("0")).expect("removed");
        std::fs::write(dir.join("0"), []).expect("written");
        let (removed, _) = &known[0];
        removed.close();
        assert_eq!(removed.fd().err(), Some(Errno::STALE));
        known[1].0.let_go();
        assert_eq!(known[1].0.fd().err(), Some(Errno::STALE));
        std::fs::remove_dir_all(dir).expect("removed");

        let most = source.share() - source.kept_max();
        let permit = source.permit(7, most).expect("its share");
        assert_eq!(source.permit(8, 1).err(), Some(Errno::NFILE));
        drop(permit);
        // One who takes all that he gets, and those who come after him.
        let mut permits = Vec::new();
        let counts: Vec<usize> = (1..5)
            .map(|user| {
                let before = permits.len();
                permits.extend(std::iter::from_fn(|| source.permit(user, 1).ok()));
                permits.len() - before
            })
            .collect();
        assert!(
            (4 * most / 5..=4 * most / 5 + 1).contains(&counts[0]),
            "{counts:?} of {most}"
        );
        assert!(counts.windows(2).all(|two| two[1] > two[0] / 6), "{counts:?}");
        drop(permits);
        assert!(lock(&source.taken).of_users.is_empty() && source.permit(1, most).is_ok());
    }
}
