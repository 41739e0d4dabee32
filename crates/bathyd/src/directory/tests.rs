//! Directories that are served in this process.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use bathy_cache::Events;
use bathy_fuse::{Claim, MountOptions, Mounted, claim, mount};
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo, ReplyAttr, ReplyDirectory,
    ReplyEntry, Request,
};
use serde_json::Value;

use super::Directory;
use crate::cache::{CachedFile, Change, FileCache, NoCache};
use crate::config::Source;
use crate::counts::FrontCounts;
use crate::devices::{Devices, Place};
use crate::identity::FileIdentity;
use crate::inodes::Inode;
use crate::panics::Containment;
use crate::tree;

pub(crate) const THREADS: usize = 8;
/// Whoever takes longer than this hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether nothing can be mounted.
pub(crate) fn is_skipped() -> bool {
    if !rustix::process::geteuid().is_root() || File::open("/dev/fuse").is_err() {
        eprintln!("SKIPPED: this test needs root and /dev/fuse");
        return true;
    }
    // SAFETY: nothing is called: a process whose mount ends is told so by this signal.
    unsafe { libc::signal(libc::SIGUSR1, libc::SIG_IGN) };
    false
}

/// A directory that is served.
pub(crate) struct Served {
    pub(crate) mounted: Mounted,
    status: Box<dyn Fn() -> Value>,
    _claim: Claim,
}

pub(crate) fn options(dir: &Path) -> MountOptions {
    MountOptions {
        directory: dir.to_owned(),
        program: "bathyd",
        threads: THREADS,
        real_time: false,
    }
}

impl Served {
    pub(crate) fn new(dir: &Path, cache: Arc<dyn FileCache>, containment: Arc<Containment>) -> Self {
        let options = options(dir);
        let claim = claim(&options).expect("nobody else serves it");
        let root = tree::private_mount(claim.below()).expect("a mount");
        let place = Place::new(&root, claim.below(), &Source::at(dir)).expect("a directory");
        let devices = Arc::new(Devices::open(place, &BTreeMap::new()));
        let counts = Arc::new(FrontCounts::new(Arc::default()));
        let directory = Directory::new(root, devices, cache, counts, containment);
        let directory = directory.expect("a directory").in_one_session(THREADS);
        let status = Box::new(directory.status());
        let mounted = mount(directory, &claim, &options, &[]).expect("mounted");
        Self {
            mounted,
            status,
            _claim: claim,
        }
    }

    /// Inodes that the kernel was told of.
    fn inodes(&self) -> u64 {
        (self.status)()["inodes"].as_u64().expect("a number")
    }

    /// Ends it: no thread of it has ended before.
    pub(crate) fn end(self) {
        while !self.mounted.unmount_unused().expect("it can be unmounted") {
            thread::sleep(Duration::from_millis(5));
        }
        let ended = self.mounted.join_for(PATIENCE);
        ended.expect("no thread has ended before");
    }
}

fn uncontained() -> Arc<Containment> {
    Arc::new(Containment::new(|| {}))
}

fn scratch(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("bathyd-{name}-{}", std::process::id()));
    fs::create_dir_all(&dir).expect("a directory");
    dir
}

/// Whose first flush loses writes, of which the kernel below tells once.
#[derive(Default)]
struct Losing {
    flushes: AtomicU64,
}

impl FileCache for Arc<Losing> {
    fn attach(&self, _inode: &Inode) -> io::Result<Option<Arc<dyn CachedFile>>> {
        Ok(Some(Arc::new(LosingFile(Arc::clone(self)))))
    }

    fn forget(&self, _identity: &FileIdentity, change: Change<'_>) -> io::Result<()> {
        change()
    }
}

struct LosingFile(Arc<Losing>);

impl CachedFile for LosingFile {
    fn holds(&self, _offset: u64, _length: usize) -> bool {
        true
    }

    fn read(&self, _buffer: &mut [u8], _offset: u64, _events: &Events<'_>) -> io::Result<usize> {
        Ok(0)
    }

    fn write(&self, data: &[u8], _offset: u64, _is_buffered: bool) -> io::Result<usize> {
        Ok(data.len())
    }

    fn flush(&self) -> io::Result<()> {
        match self.0.flushes.fetch_add(1, Ordering::SeqCst) {
            0 => Err(io::Error::from_raw_os_error(libc::EDQUOT)),
            _ => Ok(()),
        }
    }

    fn failed_flushes(&self) -> u64 {
        self.0.flushes.load(Ordering::SeqCst).min(1)
    }

    fn discard(&self, _offset: u64, _length: u64, change: Change<'_>) -> io::Result<()> {
        change()
    }

    fn resize(&self, _length: u64, change: Change<'_>) -> io::Result<()> {
        change()
    }
}

#[test]
fn each_who_has_a_file_open_hears_once_of_writes_that_were_lost() {
    if is_skipped() {
        return;
    }
    let dir = scratch("losing");
    fs::write(dir.join("file"), "some bytes").expect("written");
    let served = Served::new(&dir, Arc::new(Arc::new(Losing::default())), uncontained());
    let open = || {
        File::options()
            .write(true)
            .open(dir.join("file"))
            .expect("opened")
    };
    let files = [open(), open(), open()];
    let codes = |synced: fn(&File) -> io::Result<()>| {
        files
            .each_ref()
            .map(|file| synced(file).err().and_then(|error| error.raw_os_error()))
    };
    assert_eq!(
        codes(File::sync_data),
        [Some(libc::EDQUOT), Some(libc::EIO), Some(libc::EIO)]
    );
    assert_eq!(codes(File::sync_all), [None; 3]);
    // Who comes later has lost nothing.
    assert!(open().sync_data().is_ok());
    drop(files);
    served.end();
    fs::remove_dir_all(dir).expect("removed");
}

const BLOCK: u64 = 4096;

/// A file over an SSD that takes no copy before it is let go. The cache has the first block, and each read of another is copied.
#[derive(Default)]
struct Slow {
    copies: Mutex<Copies>,
    changed: Condvar,
}

#[derive(Default)]
struct Copies {
    under_way: usize,
    /// So many were at once.
    most: usize,
    are_let_go: bool,
}

impl Slow {
    fn copy(&self) {
        let mut copies = self.copies.lock().expect("no panic");
        copies.under_way += 1;
        copies.most = copies.most.max(copies.under_way);
        self.changed.notify_all();
        let waited = self.changed.wait_while(copies, |it| !it.are_let_go);
        waited.expect("no panic").under_way -= 1;
    }

    fn wait_for_copies(&self, count: usize) {
        let copies = self.copies.lock().expect("no panic");
        let waited = self
            .changed
            .wait_timeout_while(copies, PATIENCE, |it| it.under_way < count);
        assert!(!waited.expect("no panic").1.timed_out());
    }

    fn let_go(&self) {
        self.copies.lock().expect("no panic").are_let_go = true;
        self.changed.notify_all();
    }
}

impl FileCache for Arc<Slow> {
    fn attach(&self, _inode: &Inode) -> io::Result<Option<Arc<dyn CachedFile>>> {
        Ok(Some(Arc::new(Arc::clone(self))))
    }

    fn forget(&self, _identity: &FileIdentity, change: Change<'_>) -> io::Result<()> {
        change()
    }
}

impl CachedFile for Arc<Slow> {
    fn holds(&self, offset: u64, _length: usize) -> bool {
        offset == 0
    }

    fn read(&self, buffer: &mut [u8], offset: u64, events: &Events<'_>) -> io::Result<usize> {
        buffer.fill((offset / BLOCK) as u8);
        if offset > 0 {
            (events.waits)();
            (events.served)(buffer);
            self.copy();
        }
        Ok(buffer.len())
    }

    fn write(&self, data: &[u8], _offset: u64, _is_buffered: bool) -> io::Result<usize> {
        Ok(data.len())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn failed_flushes(&self) -> u64 {
        0
    }

    fn discard(&self, _offset: u64, _length: u64, change: Change<'_>) -> io::Result<()> {
        change()
    }

    fn resize(&self, _length: u64, change: Change<'_>) -> io::Result<()> {
        change()
    }
}

#[test]
fn while_a_slow_ssd_takes_the_copies_of_one_reader_the_hits_of_another_are_answered() {
    const BLOCKS: u64 = 2 * THREADS as u64;
    const HITS: u64 = 300;
    if is_skipped() {
        return;
    }
    let dir = scratch("slow");
    fs::write(dir.join("file"), vec![0; (BLOCKS * BLOCK) as usize]).expect("written");
    let slow = Arc::new(Slow::default());
    let served = Served::new(&dir, Arc::new(Arc::clone(&slow)), uncontained());
    let file = File::open(dir.join("file")).expect("opened");
    let read = |block: u64| {
        let mut bytes = [0xff; BLOCK as usize];
        file.read_exact_at(&mut bytes, block * BLOCK)
            .expect("it is served");
        assert!(bytes.iter().all(|&byte| u64::from(byte) == block));
    };
    thread::scope(|scope| {
        let (read, (tell, told)) = (&read, mpsc::channel());
        scope.spawn(move || (1..BLOCKS).for_each(read));
        // Those that were answered before, and one that the reader waits for.
        slow.wait_for_copies(THREADS / 2);
        scope.spawn(move || {
            (0..HITS).for_each(|_| read(0));
            tell.send(()).expect("the test listens");
        });
        let answered = told.recv_timeout(PATIENCE);
        slow.let_go();
        answered.expect("no hit waits for a copy");
    });
    assert_eq!(slow.copies.lock().expect("no panic").most, THREADS / 2);
    drop(file);
    served.end();
    fs::remove_dir_all(dir).expect("removed");
}

/// A file system with a directory `sub` of a few files, which cannot be read to its end.
struct Failing;

const SUB: u64 = 2;
const FILES: [&str; 3] = ["a", "b", "c"];

fn attributes(inode: INodeNo) -> FileAttr {
    let is_directory = inode.0 <= SUB;
    let (kind, perm) = if is_directory {
        (FileType::Directory, 0o755)
    } else {
        (FileType::RegularFile, 0o644)
    };
    FileAttr {
        ino: inode,
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind,
        perm,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl Filesystem for Failing {
    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = match parent.0 {
            1 => (name == "sub").then_some(SUB),
            _ => (SUB + 1..)
                .zip(FILES)
                .find(|(_, file)| name == *file)
                .map(|(inode, _)| inode),
        };
        match found {
            Some(inode) => reply.entry(&Duration::ZERO, &attributes(INodeNo(inode)), Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _request: &Request, inode: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&Duration::ZERO, &attributes(inode));
    }

    fn readdir(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if offset > 0 {
            return reply.error(Errno::EIO);
        }
        for (number, file) in (1..).zip(FILES) {
            let _has_room = reply.add(INodeNo(SUB + number), number, FileType::RegularFile, file);
        }
        reply.ok();
    }
}

#[test]
fn of_a_listing_that_fails_half_way_the_kernel_was_told_nothing() {
    if is_skipped() {
        return;
    }
    let dir = scratch("listing");
    let below = options(&dir);
    let claimed = claim(&below).expect("nobody else serves it");
    let failing = mount(Failing, &claimed, &below, &[]).expect("mounted");
    let served = Served::new(&dir.join("sub"), Arc::new(NoCache), uncontained());
    let before = served.inodes();
    for _ in 0..3 {
        let listed = fs::read_dir(dir.join("sub")).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let failed = listed.err().and_then(|error| error.raw_os_error());
        assert_eq!(failed, Some(libc::EIO));
        // No request tells the daemon to forget any.
        assert_eq!(served.inodes(), before);
    }
    served.end();
    while !failing.unmount_unused().expect("it can be unmounted") {
        thread::sleep(Duration::from_millis(5));
    }
    drop(claimed);
    fs::remove_dir_all(dir).expect("removed");
}

/// A cache that has no room for any file.
struct Full;

impl FileCache for Full {
    fn attach(&self, _inode: &Inode) -> io::Result<Option<Arc<dyn CachedFile>>> {
        Err(rustix::io::Errno::NFILE.into())
    }

    fn forget(&self, _identity: &FileIdentity, change: Change<'_>) -> io::Result<()> {
        change()
    }
}

#[test]
fn of_a_new_file_that_could_not_be_opened_the_kernel_was_told_nothing() {
    if is_skipped() {
        return;
    }
    let dir = scratch("creation");
    let served = Served::new(&dir, Arc::new(Full), uncontained());
    let before = served.inodes();
    let failed = File::create(dir.join("file")).err();
    assert_eq!(failed.and_then(|error| error.raw_os_error()), Some(libc::ENFILE));
    assert_eq!(served.inodes(), before);
    served.end();
    fs::remove_dir_all(dir).expect("removed");
}
