//! Connections over `io_uring`, without a daemon. Needs root and `fuse.enable_uring=1`; else the tests say that they were skipped.

use std::ffi::{CString, OsStr};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use bathy_fuse::{
    Caller, DataPath, MountOptions, Mounted, WriteFlags, claim, is_ring_offered, mount_over_ring,
};
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, OpenFlags, ReplyAttr,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyXattr, Request,
};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

/// What hangs is found by this, and nothing is measured.
const PATIENCE: Duration = Duration::from_secs(60);
const BLOCK: usize = 4096;
const VALUE_BYTES: usize = 64 << 10;
static VALUE: [u8; VALUE_BYTES] = [7; VALUE_BYTES];

/// A directory with one file, `file`.
#[derive(Clone)]
struct OneFile;

impl OneFile {
    fn attributes(inode: INodeNo) -> FileAttr {
        let is_root = inode.0 == 1;
        FileAttr {
            ino: inode,
            size: 1 << 30,
            blocks: 0,
            atime: SystemTime::UNIX_EPOCH,
            mtime: SystemTime::UNIX_EPOCH,
            ctime: SystemTime::UNIX_EPOCH,
            crtime: SystemTime::UNIX_EPOCH,
            kind: if is_root {
                FileType::Directory
            } else {
                FileType::RegularFile
            },
            perm: 0o755,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: BLOCK as u32,
            flags: 0,
        }
    }
}

impl Filesystem for OneFile {
    fn lookup(&self, _request: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == "file" {
            reply.entry(&Duration::ZERO, &Self::attributes(INodeNo(2)), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _request: &Request, inode: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&Duration::ZERO, &Self::attributes(inode));
    }

    fn open(&self, _request: &Request, _inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(
            FileHandle(1),
            FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES,
        );
    }

    fn getxattr(&self, _request: &Request, _inode: INodeNo, _name: &OsStr, size: u32, reply: ReplyXattr) {
        if size == 0 {
            reply.size(VALUE_BYTES as u32);
        } else {
            reply.data(&VALUE);
        }
    }

    fn setxattr(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _name: &OsStr,
        value: &[u8],
        _flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        // So that others come meanwhile.
        thread::sleep(Duration::from_millis(2));
        if value == VALUE {
            reply.ok();
        } else {
            reply.error(Errno::EIO);
        }
    }
}

/// Each block holds its number. Odd blocks are not at hand, and their reads wait until they are let go.
#[derive(Default)]
struct Blocks {
    /// A thread that takes requests panics at the next write.
    is_broken: AtomicBool,
    waiting: AtomicUsize,
    is_let_go: Mutex<bool>,
    let_go: Condvar,
}

impl Blocks {
    fn fill(offset: u64, buffer: &mut [u8]) -> usize {
        buffer.fill((offset / BLOCK as u64) as u8);
        buffer.len()
    }
}

impl DataPath for Blocks {
    fn read_at_hand(&self, _handle: u64, offset: u64, buffer: &mut [u8]) -> Option<io::Result<usize>> {
        let is_even = (offset / BLOCK as u64) % 2 == 0;
        is_even.then(|| Ok(Self::fill(offset, buffer)))
    }

    fn is_written_through(&self, _handle: u64) -> bool {
        assert!(
            !self.is_broken.load(Ordering::Acquire),
            "the test breaks this thread"
        );
        false
    }

    fn read(&self, _handle: u64, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        if (offset / BLOCK as u64) % 2 != 0 {
            self.waiting.fetch_add(1, Ordering::AcqRel);
            let is_let_go = self.is_let_go.lock().expect("nobody panics with it");
            drop(
                self.let_go
                    .wait_while(is_let_go, |it| !*it)
                    .expect("nobody panics with it"),
            );
        }
        Ok(Self::fill(offset, buffer))
    }

    fn write(
        &self,
        _caller: Caller,
        _handle: u64,
        _offset: u64,
        data: &[u8],
        _flags: WriteFlags,
        _is_durable: bool,
    ) -> io::Result<usize> {
        Ok(data.len())
    }
}

/// A mount over a directory of its own, if the kernel offers the ring.
fn options(threads: usize) -> Option<MountOptions> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    if !nix::unistd::geteuid().is_root() || !is_ring_offered() {
        eprintln!("SKIPPED: this test needs root and fuse.enable_uring=1");
        return None;
    }
    // A process whose mount ends is told so by this signal.
    // SAFETY: nothing is called when it comes.
    unsafe { libc::signal(libc::SIGUSR1, libc::SIG_IGN) };
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let directory = std::env::temp_dir().join(format!("bathy-ring-test-{}-{number}", std::process::id()));
    fs::create_dir_all(&directory).expect("a directory for the test");
    Some(MountOptions {
        directory,
        program: "bathy-ring-test",
        threads,
        real_time: false,
    })
}

struct Place {
    directory: PathBuf,
    blocks: Arc<Blocks>,
    mounted: Option<Mounted>,
}

impl Place {
    fn new(threads: usize) -> Option<Self> {
        let options = options(threads)?;
        let directory = options.directory.clone();
        let blocks = Arc::new(Blocks::default());
        let data: Arc<dyn DataPath> = Arc::clone(&blocks) as Arc<dyn DataPath>;
        let claim = claim(&options).expect("a directory of its own");
        let mounted = mount_over_ring(&OneFile, &data, &claim, &options, &[]).expect("it is offered");
        Some(Self {
            directory,
            blocks,
            mounted: Some(mounted),
        })
    }

    fn open(&self) -> File {
        let options = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_DIRECT)
            .clone();
        options.open(self.directory.join("file")).expect("it is there")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        *self.blocks.is_let_go.lock().expect("nobody panics with it") = true;
        self.blocks.let_go.notify_all();
        if let Some(mounted) = self.mounted.take() {
            let _gone = mounted.unmount();
            let _ended = mounted.join_for(PATIENCE);
        }
        let _left = fs::remove_dir(&self.directory);
    }
}

fn stay_on(processor: usize) {
    let mut set = CpuSet::new();
    set.set(processor).expect("a processor");
    sched_setaffinity(Pid::from_raw(0), &set).expect("the processor is on");
}

fn read(file: &File, block: u64) -> io::Result<()> {
    let mut bytes = [0; BLOCK];
    file.read_exact_at(&mut bytes, block * BLOCK as u64)?;
    assert_eq!(bytes, [block as u8; BLOCK]);
    Ok(())
}

/// Runs `work` in a thread, whose result comes.
fn start<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> mpsc::Receiver<T> {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || drop(tell.send(work())));
    told
}

fn set_value(path: &Path) -> i32 {
    let path = CString::new(path.as_os_str().as_bytes()).expect("no zero in it");
    // SAFETY: the strings end with a zero, and the value is as long as is said.
    unsafe {
        libc::setxattr(
            path.as_ptr(),
            c"user.value".as_ptr(),
            VALUE.as_ptr().cast(),
            VALUE_BYTES,
            0,
        )
    }
}

fn get_value(path: &Path) -> Vec<u8> {
    let path = CString::new(path.as_os_str().as_bytes()).expect("no zero in it");
    let mut value = vec![0_u8; VALUE_BYTES];
    // SAFETY: the strings end with a zero, and the buffer is as long as is said.
    let bytes = unsafe {
        libc::getxattr(
            path.as_ptr(),
            c"user.value".as_ptr(),
            value.as_mut_ptr().cast(),
            VALUE_BYTES,
        )
    };
    value.truncate(usize::try_from(bytes).unwrap_or(0));
    value
}

/// A directory whose size nobody says until it is let go.
#[derive(Clone, Default)]
struct Silent(Arc<(Mutex<bool>, Condvar)>);

impl Filesystem for Silent {
    fn statfs(&self, _request: &Request, _inode: INodeNo, reply: ReplyStatfs) {
        let (is_let_go, let_go) = &*self.0;
        let held = is_let_go.lock().expect("nobody panics with it");
        drop(let_go.wait_while(held, |it| !*it).expect("nobody panics with it"));
        reply.error(Errno::EIO);
    }
}

#[test]
fn a_ring_that_answers_nothing_is_not_used_and_leaves_the_directory_as_it_was() {
    let Some(options) = options(4) else { return };
    let claim = claim(&options).expect("a directory of its own");
    let data: Arc<dyn DataPath> = Arc::new(Blocks::default());
    let silent = Silent::default();
    let begun = Instant::now();
    let Err(error) = mount_over_ring(&silent, &data, &claim, &options, &[]) else {
        panic!("it is used")
    };
    assert!(error.to_string().contains("no request is answered"), "{error}");
    assert!(begun.elapsed() < PATIENCE);
    // The plain directory: it can be removed.
    fs::remove_dir(&options.directory).expect("nothing is mounted");
    let (is_let_go, let_go) = &*silent.0;
    *is_let_go.lock().expect("nobody panics with it") = true;
    let_go.notify_all();
}

#[test]
fn when_a_thread_of_a_queue_dies_all_requests_fail_and_the_mount_ends() {
    let Some(mut place) = Place::new(4) else { return };
    let readers: Vec<_> = (0..8)
        .map(|number| {
            let file = place.open();
            start(move || {
                stay_on(number % thread::available_parallelism().map_or(1, usize::from));
                // One of each four waits for a device.
                let block = if number % 4 == 3 { 1 } else { 2 };
                loop {
                    if let Err(error) = read(&file, block) {
                        return error;
                    }
                }
            })
        })
        .collect();
    while place.blocks.waiting.load(Ordering::Acquire) < 2 {
        thread::yield_now();
    }
    let file = place.open();
    // Writes wait for a thread until some were seen to be quick, and are looked at after that.
    let blocks = Arc::clone(&place.blocks);
    let writer = start(move || {
        stay_on(0);
        for count in 0.. {
            blocks.is_broken.store(count > 100, Ordering::Release);
            if let Err(error) = file.write_all_at(&[0; BLOCK], 0) {
                return error;
            }
        }
        unreachable!("it is written until an error")
    });
    // The last one while the kernel takes the queue down.
    let aborted = [libc::ECONNABORTED, libc::ENOTCONN, libc::ECANCELED].map(Some);
    for told in readers.into_iter().chain([writer]) {
        let error = told.recv_timeout(PATIENCE).expect("an error, and not no answer");
        assert!(aborted.contains(&error.raw_os_error()), "{error}");
    }
    // What waits for a device is waited for.
    *place.blocks.is_let_go.lock().expect("nobody panics with it") = true;
    place.blocks.let_go.notify_all();
    let mounted = place.mounted.take().expect("it was mounted");
    let ended = mounted.join_for(PATIENCE).expect_err("it says why");
    assert!(ended.to_string().contains("panicked"), "{ended}");
    assert_eq!(
        fs::read_dir(&place.directory)
            .expect("the plain directory")
            .count(),
        0
    );
}

#[test]
fn reads_that_wait_for_a_device_do_not_hold_up_others_of_the_same_processor() {
    const MISSES: usize = 8;
    let Some(place) = Place::new(MISSES) else { return };
    let misses: Vec<_> = (0..MISSES)
        .map(|_| {
            let file = place.open();
            start(move || {
                stay_on(0);
                read(&file, 1)
            })
        })
        .collect();
    while place.blocks.waiting.load(Ordering::Acquire) < MISSES {
        thread::yield_now();
    }
    let file = place.open();
    let hits = start(move || {
        stay_on(0);
        (0..1000).try_for_each(|_| read(&file, 2))
    });
    hits.recv_timeout(PATIENCE)
        .expect("they wait for nobody")
        .expect("they are read");
    assert!(misses.iter().all(|miss| miss.try_recv().is_err()));
    *place.blocks.is_let_go.lock().expect("nobody panics with it") = true;
    place.blocks.let_go.notify_all();
    for miss in misses {
        miss.recv_timeout(PATIENCE)
            .expect("it was let go")
            .expect("it is read");
    }
}

#[test]
fn long_messages_that_the_socket_has_no_room_for_wait_for_it() {
    let Some(place) = Place::new(1) else { return };
    // Each thread of a processor has one under way: together they are more than a socket holds.
    let path = place.directory.join("file");
    let writers: Vec<_> = (0..40)
        .map(|number| {
            let path = path.clone();
            start(move || {
                stay_on(0);
                (0..5).all(|_| {
                    if number % 2 == 0 {
                        set_value(&path) == 0
                    } else {
                        get_value(&path) == VALUE
                    }
                })
            })
        })
        .collect();
    for told in writers {
        assert!(told.recv_timeout(PATIENCE).expect("it does not hang"));
    }
}
