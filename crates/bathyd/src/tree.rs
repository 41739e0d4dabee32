//! The tree of a source, which bathyd never leaves.
//!
//! bathyd acts with all rights of root for everybody who uses a source, and any of them can write to it. So what it opens is
//! bound three times:
//!
//! - All descriptors below a source come from a mount of bathyd's own: a copy of the source's, which has none of the file
//!   systems that are mounted below it, and no path by which another process could mount one. Through it the kernel opens no
//!   device, runs nothing and follows no link, whatever the mount of the source allows.
//! - A name is opened by `openat2`, beneath its directory, without following a link or crossing a mount.
//! - It is opened as a path first (`O_PATH`), which does nothing to it. Only a regular file or directory is then opened for
//!   more: to open a FIFO would wait, and to open a device would act on it.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, open, openat2, readlinkat};
use rustix::io::{Errno, Result};
use rustix::mount::{OpenTreeFlags, open_tree};

/// As a path, and not what a link leads to.
const AS_PATH: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A name in a directory leads to what is there, and nowhere else.
const WITHIN: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_XDEV);

/// What a link says is followed, and does not leave where it began.
const FOLLOWED_WITHIN: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// `openat2` of what is beneath a directory. For a path with `..` the kernel says `EAGAIN` whenever anything on the machine is
/// renamed or mounted meanwhile, as it cannot tell then whether that led out. Nothing was opened or made, so it is asked again.
fn open_beneath(
    directory: impl AsFd,
    path: &Path,
    flags: OFlags,
    mode: Mode,
    resolve: ResolveFlags,
) -> Result<OwnedFd> {
    until_settled(|| openat2(&directory, path, flags, mode, resolve))
}

fn until_settled<T>(mut open: impl FnMut() -> Result<T>) -> Result<T> {
    const TRIES: usize = 1000;
    for _ in 1..TRIES {
        match open() {
            Err(Errno::AGAIN) => std::thread::yield_now(),
            opened => return opened,
        }
    }
    open()
}

/// A copy of the mount of `directory`, of which that is the root: for this process alone, and without what is mounted below.
///
/// # Errors
/// If the kernel cannot make it: Linux 5.12 (`mount_setattr`) and the capability to mount are needed.
pub(crate) fn private_mount(directory: &File) -> io::Result<OwnedFd> {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    let copy = open_tree(directory, "", flags)?;
    restrict(&copy)?;
    Ok(copy)
}

/// `struct mount_attr` of linux/mount.h.
#[repr(C)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// Nothing is mounted into the mount from elsewhere, and it opens no device, follows no link and runs nothing.
fn restrict(mount: &OwnedFd) -> io::Result<()> {
    restrict_by(|attributes| set_attributes(mount, attributes))
}

/// Linux 5.12 and 5.13 do not know that a mount follows no link, and refuse all for it. They are asked for the rest: that names
/// are opened with `RESOLVE_NO_SYMLINKS`, and only what is a file or directory then, holds without it.
fn restrict_by(set: impl Fn(u64) -> io::Result<()>) -> io::Result<()> {
    const NOSUID: u64 = 0x2;
    const NODEV: u64 = 0x4;
    const NOEXEC: u64 = 0x8;
    const NOSYMFOLLOW: u64 = 0x20_0000;
    let known_to_all = NOSUID | NODEV | NOEXEC;
    match set(known_to_all | NOSYMFOLLOW) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => set(known_to_all),
        done => done,
    }
}

fn set_attributes(mount: &OwnedFd, set: u64) -> io::Result<()> {
    let attributes = MountAttributes {
        set,
        clear: 0,
        propagation: libc::MS_PRIVATE,
        user_namespace: 0,
    };
    // SAFETY: the path is an empty C string, so the mount of the descriptor is meant, which is open as it is borrowed. The
    // kernel reads as many bytes as it is told from the address of a value of this function, which has this layout and size
    // since the call exists.
    let code = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attributes,
            size_of::<MountAttributes>(),
        )
    };
    if code == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// What `name` in `parent` is, as a path: a link itself, and never what is mounted there.
pub(crate) fn open_path(parent: impl AsFd, name: &OsStr) -> Result<OwnedFd> {
    open_beneath(parent, Path::new(name), AS_PATH, Mode::empty(), WITHIN)
}

/// Makes a regular file, which must not be there yet.
pub(crate) fn create(parent: impl AsFd, name: &OsStr, flags: OFlags, mode: Mode) -> Result<File> {
    let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    open_beneath(parent, Path::new(name), flags, mode, WITHIN).map(File::from)
}

/// What is open, as a path.
pub(crate) fn path_of(file: &File) -> Result<OwnedFd> {
    open_again(file, OFlags::PATH).map(OwnedFd::from)
}

/// Opens what is open as a path for more, if it is a regular file or a directory.
///
/// # Errors
/// `EPERM` for anything else, and those of the file system.
pub(crate) fn reopen(path: impl AsFd, flags: OFlags) -> Result<File> {
    match FileType::from_raw_mode(fstat(&path)?.st_mode) {
        FileType::RegularFile | FileType::Directory => open_again(path, flags),
        _ => Err(Errno::PERM),
    }
}

/// Opens what is open as a path for more, whatever it is.
pub(crate) fn open_again(path: impl AsFd, flags: OFlags) -> Result<File> {
    let link = format!("/proc/self/fd/{}", path.as_fd().as_raw_fd());
    open(link, flags | OFlags::CLOEXEC, Mode::empty()).map(File::from)
}

/// Whether a link in `directory`, whose path is `path`, leads to something that is not below it, or not without leaving it on
/// the way. Nothing outside is looked at. What leads nowhere leads to nothing outside. `directory` is not of a
/// [`private_mount`], which follows no link.
pub(crate) fn leads_out(directory: impl AsFd, path: &Path, target: &Path) -> bool {
    let target = match target.strip_prefix(path) {
        Ok(rest) => Path::new(".").join(rest),
        Err(_) => target.to_owned(),
    };
    matches!(
        open_beneath(
            directory,
            &target,
            OFlags::PATH | OFlags::CLOEXEC,
            Mode::empty(),
            FOLLOWED_WITHIN
        ),
        Err(Errno::XDEV | Errno::LOOP)
    )
}

/// What `path` leads to, as a path. What lies below /dev is found there by the links of the system, which only root makes; the
/// way to anything else has no link.
pub(crate) fn open_trusted(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    if path.starts_with(DEV) {
        return open_in_dev(path, DEV_LINKS_MAX);
    }
    openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
}

const DEV: &str = "/dev";
/// A link of a logical volume leads to one of the device mapper, and that to the node.
const DEV_LINKS_MAX: usize = 8;

/// What a path below /dev leads to. Without udev the links of logical volumes are absolute ones (`/dev/vg/lv` to
/// `/dev/mapper/vg-lv` or `/dev/dm-3`), which the kernel takes for a way out: they are followed if they lead to /dev again.
fn open_in_dev(path: &Path, links_max: usize) -> Result<OwnedFd> {
    let dev = open(
        DEV,
        OFlags::PATH | OFlags::CLOEXEC | OFlags::DIRECTORY,
        Mode::empty(),
    )?;
    let in_dev = path.strip_prefix(DEV).map_err(|_| Errno::XDEV)?;
    let open_it = |flags: OFlags| open_beneath(&dev, in_dev, flags, Mode::empty(), FOLLOWED_WITHIN);
    match open_it(OFlags::PATH | OFlags::CLOEXEC) {
        Err(Errno::XDEV) if links_max > 0 => {
            let target = readlinkat(open_it(AS_PATH)?, "", Vec::new()).map_err(|_| Errno::XDEV)?;
            let target = Path::new(OsStr::from_bytes(target.as_bytes()));
            if !target.starts_with(DEV) {
                return Err(Errno::XDEV);
            }
            open_in_dev(target, links_max - 1)
        }
        opened => opened,
    }
}

/// The path to which a link in `directory` with this target leads, as the kernel finds it where no link is on the way.
/// `directory` is not of a [`private_mount`], whose path nobody else knows.
pub(crate) fn resolved(directory: impl AsFd, target: &Path) -> io::Result<PathBuf> {
    if target.is_absolute() {
        return Ok(target.to_owned());
    }
    let link = format!("/proc/self/fd/{}", directory.as_fd().as_raw_fd());
    let mut path = std::fs::read_link(link)?;
    for part in target.components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::{mkdirat, mknodat};
    use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

    use super::*;

    struct Dir(PathBuf);

    impl Dir {
        fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("bathyd-tree-{name}-{}", std::process::id()));
            std::fs::create_dir(&dir).expect("a directory");
            Self(dir)
        }

        fn open(&self) -> File {
            File::open(&self.0).expect("a directory")
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _left = std::fs::remove_dir_all(&self.0);
        }
    }

    fn is_root() -> bool {
        let is_root = rustix::process::geteuid().is_root();
        if !is_root {
            eprintln!("SKIPPED: this test needs root");
        }
        is_root
    }

    #[test]
    fn nothing_but_files_and_directories_is_opened() {
        let dir = Dir::new("kinds");
        let root = dir.open();
        let make = |name: &str, kind| mknodat(&root, name, kind, Mode::RWXU, rustix::fs::makedev(1, 3));
        make("fifo", FileType::Fifo).expect("a FIFO");
        make("socket", FileType::Socket).expect("a socket");
        symlink("fifo", dir.0.join("link")).expect("a link");
        mkdirat(&root, "dir", Mode::RWXU).expect("a directory");
        let again = |name: &str, flags| reopen(open_path(&root, OsStr::new(name))?, flags).map(drop);
        // For writing this would wait for a reader.
        for name in ["fifo", "socket", "link"] {
            assert_eq!(again(name, OFlags::WRONLY), Err(Errno::PERM), "{name}");
        }
        if is_root() {
            make("null", FileType::CharacterDevice).expect("a device");
            assert_eq!(again("null", OFlags::RDWR), Err(Errno::PERM));
        }
        assert_eq!(again("dir", OFlags::RDONLY), Ok(()));
        let made = create(&root, OsStr::new("file"), OFlags::RDWR, Mode::RWXU);
        assert!(made.is_ok());
        assert_eq!(again("file", OFlags::RDWR), Ok(()));
        // What is there already is not opened by who makes a file.
        for name in ["fifo", "link", "file"] {
            let made = create(&root, OsStr::new(name), OFlags::WRONLY, Mode::RWXU);
            assert_eq!(made.map(drop), Err(Errno::EXIST), "{name}");
        }
        for way_out in ["..", "/etc"] {
            let opened = open_path(&root, OsStr::new(way_out));
            assert_eq!(opened.map(drop), Err(Errno::XDEV), "{way_out}");
        }
    }

    #[test]
    fn links_that_lead_out_are_told_from_those_that_do_not() {
        let dir = Dir::new("links");
        let root = dir.open();
        std::fs::write(dir.0.join("file"), "").expect("a file");
        for (name, target) in [
            ("in", "file"),
            ("out", "/etc/passwd"),
            ("up", ".."),
            ("loop", "loop"),
        ] {
            symlink(target, dir.0.join(name)).expect("a link");
        }
        let out = |target: &str| leads_out(&root, &dir.0, Path::new(target));
        for inside in ["file", "in", "missing", "./file"] {
            assert!(!out(inside), "{inside}");
        }
        for outside in ["/dev/null", "../x", "out", "up", "up/x", "loop", "/missing"] {
            assert!(out(outside), "{outside}");
        }
        assert!(!out(&dir.0.join("file").to_string_lossy()));
        assert!(out(&dir.0.join("out").to_string_lossy()));
    }

    #[test]
    fn links_in_dev_are_followed_to_dev_and_nowhere_else() {
        if !is_root() {
            return;
        }
        // As the device mapper makes them where there is no udev.
        let vg = Dir(PathBuf::from(format!("/dev/bathyd-test-{}", std::process::id())));
        std::fs::create_dir(&vg.0).expect("a directory");
        let name = |name: &str| vg.0.join(name);
        for (link, target) in [
            ("lv", name("mapped")),
            ("mapped", "/dev/null".into()),
            ("relative", "../null".into()),
            ("out", "/etc/passwd".into()),
            ("up", "/dev/../etc/passwd".into()),
            ("loop", name("loop")),
        ] {
            symlink(target, name(link)).expect("a link");
        }
        let number = |path: &Path| open_trusted(path).and_then(fstat).map(|stat| stat.st_rdev);
        let null = Ok(rustix::fs::makedev(1, 3));
        for link in ["lv", "mapped", "relative"] {
            assert_eq!(number(&name(link)), null, "{link}");
        }
        for link in ["out", "up", "loop"] {
            let refused = number(&name(link)).expect_err("it does not lead to a device");
            assert!([Errno::XDEV, Errno::LOOP].contains(&refused), "{link}: {refused}");
        }
        assert_eq!(number(&name("missing")), Err(Errno::NOENT));
    }

    #[test]
    fn a_relative_link_leads_from_the_directory_that_has_it() {
        let dir = Dir::new("relative");
        let root = dir.open();
        let (parent, name) = (dir.0.parent().expect("one"), dir.0.file_name().expect("one"));
        let from = |target: &str| resolved(&root, Path::new(target)).expect("a path");
        assert_eq!(from("../x/y"), parent.join("x/y"));
        assert_eq!(from("./file"), dir.0.join("file"));
        assert_eq!(from("a/../b"), dir.0.join("b"));
        assert_eq!(from("../../../../../../../../dev/null"), Path::new("/dev/null"));
        assert_eq!(from("/dev/null"), Path::new("/dev/null"));
        assert_eq!(from(&format!("../{}", name.to_string_lossy())), dir.0);
    }

    #[test]
    fn what_the_kernel_cannot_tell_yet_is_asked_again_but_not_forever() {
        let mut tries = 0;
        let settled = until_settled(|| {
            tries += 1;
            if tries < 1000 {
                Err(Errno::AGAIN)
            } else {
                Ok(tries)
            }
        });
        assert_eq!(settled, Ok(1000));
        let mut tries = 0;
        let never = until_settled(|| {
            tries += 1;
            Err::<(), _>(Errno::AGAIN)
        });
        assert_eq!((never, tries), (Err(Errno::AGAIN), 1000));
        let mut tries = 0;
        let missing = until_settled(|| {
            tries += 1;
            Err::<(), _>(Errno::NOENT)
        });
        assert_eq!((missing, tries), (Err(Errno::NOENT), 1));
    }

    #[test]
    fn renames_elsewhere_do_not_hide_where_a_link_leads() {
        use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
        let (dir, elsewhere) = (Dir::new("beside"), Dir::new("renames"));
        let root = dir.open();
        std::fs::create_dir(dir.0.join("sub")).expect("a directory");
        let (out, within) = (Path::new("sub/../sub/../../x"), Path::new("sub/../sub/../sub"));
        let (ended, renames) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let names = ["one", "other"].map(|name| elsewhere.0.join(name));
                std::fs::write(&names[0], "").expect("a file");
                while !ended.load(Ordering::Relaxed) {
                    let number = renames.fetch_add(1, Ordering::Relaxed);
                    std::fs::rename(&names[number % 2], &names[(number + 1) % 2]).expect("renamed");
                }
            });
            while renames.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            let missed = (0..20_000).filter(|_| !leads_out(&root, &dir.0, out)).count();
            let failed = (0..20_000)
                .filter_map(|_| open_beneath(&root, within, flags, Mode::empty(), FOLLOWED_WITHIN).err());
            let failed = failed.count();
            ended.store(true, Ordering::Relaxed);
            assert_eq!((missed, failed), (0, 0));
        });
    }

    #[test]
    fn kernels_that_do_not_know_mounts_without_links_are_asked_for_the_rest() {
        let asked = std::cell::RefCell::new(Vec::new());
        let of_5_12 = |attributes| {
            asked.borrow_mut().push(attributes);
            if attributes & 0x20_0000 == 0 {
                return Ok(());
            }
            Err(io::Error::from_raw_os_error(libc::EINVAL))
        };
        restrict_by(of_5_12).expect("it is restricted");
        assert_eq!(*asked.borrow(), [0x20_000e, 0xe]);
        let refused = restrict_by(|_| Err(io::Error::from_raw_os_error(libc::EPERM)));
        assert_eq!(
            refused.expect_err("not allowed").raw_os_error(),
            Some(libc::EPERM)
        );
        let never = restrict_by(|_| Err(io::Error::from_raw_os_error(libc::EINVAL)));
        assert_eq!(never.expect_err("unknown").raw_os_error(), Some(libc::EINVAL));
    }

    #[test]
    fn a_mount_of_our_own_opens_no_device_follows_no_link_and_has_nothing_mounted_below() {
        if !is_root() {
            return;
        }
        let dir = Dir::new("mount");
        std::fs::create_dir(dir.0.join("sub")).expect("a directory");
        std::fs::write(dir.0.join("sub/covered"), "").expect("a file");
        symlink("sub", dir.0.join("link")).expect("a link");
        let null = rustix::fs::makedev(1, 3);
        mknodat(dir.open(), "null", FileType::CharacterDevice, Mode::RWXU, null).expect("a device");
        mount("tmpfs", dir.0.join("sub"), "tmpfs", MountFlags::empty(), None).expect("mounted");
        let own = private_mount(&dir.open()).expect("a mount");
        let by = |name: &str| {
            open(
                format!("/proc/self/fd/{}/{name}", own.as_raw_fd()),
                OFlags::RDONLY,
                Mode::empty(),
            )
        };
        let (null, covered, through_link) = (by("null"), by("sub/covered"), by("link/covered"));
        // In the mount itself a name does not lead into what is mounted.
        let crossed = open_path(dir.open(), OsStr::new("sub"));
        unmount(dir.0.join("sub"), UnmountFlags::DETACH).expect("unmounted");
        assert_eq!(null.map(drop), Err(Errno::ACCESS));
        assert!(covered.is_ok());
        assert_eq!(through_link.map(drop), Err(Errno::LOOP));
        assert_eq!(crossed.map(drop), Err(Errno::XDEV));
    }
}
