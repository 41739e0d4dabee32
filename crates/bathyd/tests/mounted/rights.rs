//! The same is done by the same user on the mount and on the bare directory, and ends alike: results, owners, modes, ACLs, sizes.

use std::ffi::CString;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, XattrFlags,
    chmod, chownat, copy_file_range, fallocate, ftruncate, linkat, mkdir, mknodat, open, statvfs, utimensat,
};
use rustix::io::Errno;
use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};

use crate::daemon::{Loop, Place, is_skipped};

/// The group of the files.
const GROUP: u32 = 2000;
const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

/// Who does something.
#[derive(Clone, Copy)]
pub(crate) struct Actor {
    name: &'static str,
    user: u32,
    groups: &'static [u32],
}

const ROOT: Actor = Actor {
    name: "root",
    user: 0,
    groups: &[],
};
const MEMBER: Actor = Actor {
    name: "a member of the group",
    user: 1001,
    groups: &[GROUP],
};
pub(crate) const STRANGER: Actor = Actor {
    name: "a stranger",
    user: 1002,
    groups: &[],
};
const ACTORS: [Actor; 3] = [ROOT, MEMBER, STRANGER];

impl Actor {
    /// Does something with his user, groups and mask.
    pub(crate) fn act<T: Send>(self, mask: u32, action: impl FnOnce() -> T + Send) -> T {
        let acting = || {
            // These hold for this thread alone.
            unshare(CloneFlags::CLONE_FS).expect("a mask of its own");
            rustix::process::umask(Mode::from_raw_mode(mask));
            let groups: Vec<Gid> = self.groups.iter().copied().map(Gid::from_raw).collect();
            set_thread_groups(&groups).expect("root");
            set_thread_gid(Gid::from_raw(self.user)).expect("root");
            set_thread_uid(rustix::fs::Uid::from_raw(self.user)).expect("root");
            action()
        };
        thread::scope(|scope| scope.spawn(acting).join().expect("no panic"))
    }
}

type Outcome = Result<String, Errno>;
type Action = fn(&Path) -> Outcome;

fn done(result: Result<(), Errno>) -> Outcome {
    result.map(|()| String::new())
}

fn opened(path: PathBuf, flags: OFlags, mode: u32) -> Result<File, Errno> {
    open(path, flags | OFlags::CLOEXEC, Mode::from_raw_mode(mode)).map(File::from)
}

fn written(file: &File, offset: u64) -> Outcome {
    let written = file.write_at(&[7; 100], offset);
    let number = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    written.map(|bytes| bytes.to_string()).map_err(number)
}

fn allocated(at: &Path, mode: FallocateFlags) -> Outcome {
    let file = opened(at.join("f"), OFlags::WRONLY, 0)?;
    done(fallocate(file, mode, 4096, 8192))
}

/// An ACL as the kernel takes it: tag, permissions and number of each entry.
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, number) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(number.to_le_bytes());
    }
    bytes
}

/// With an entry for another user.
fn acl_of_three() -> Vec<u8> {
    const NOBODY: u32 = u32::MAX;
    acl(&[
        (1, 7, NOBODY),
        (2, 6, 1003),
        (4, 7, NOBODY),
        (0x10, 7, NOBODY),
        (0x20, 5, NOBODY),
    ])
}

fn set(path: PathBuf, name: &str, value: &[u8]) -> Outcome {
    done(rustix::fs::lsetxattr(path, name, value, XattrFlags::empty()))
}

fn names(path: &Path) -> Outcome {
    let mut names = [0_u8; 4096];
    let length = rustix::fs::llistxattr(path, &mut names[..])?;
    let asked = rustix::fs::llistxattr_query(path)?;
    assert_eq!(length, asked, "{}", path.display());
    let names = String::from_utf8_lossy(&names[..length]).into_owned();
    let mut names: Vec<&str> = names.split('\0').collect();
    names.sort_unstable();
    Ok(names.join(" "))
}

/// Changes of a file `f` that may have set-user-id and set-group-id bits.
const CHANGES: &[(&str, Action)] = &[
    ("write", |at| {
        written(&opened(at.join("f"), OFlags::WRONLY, 0)?, 10)
    }),
    ("append", |at| {
        written(&opened(at.join("f"), OFlags::WRONLY | OFlags::APPEND, 0)?, 0)
    }),
    ("write without effect", |at| {
        let file = opened(at.join("f"), OFlags::WRONLY, 0)?;
        Ok(file.write_at(&[], 0).is_ok().to_string())
    }),
    ("cut", |at| {
        done(ftruncate(opened(at.join("f"), OFlags::WRONLY, 0)?, 10))
    }),
    ("cut to its length", |at| {
        done(ftruncate(opened(at.join("f"), OFlags::WRONLY, 0)?, 8192))
    }),
    ("cut at open", |at| {
        opened(at.join("f"), OFlags::WRONLY | OFlags::TRUNC, 0).map(|_| String::new())
    }),
    ("allocate", |at| allocated(at, FallocateFlags::empty())),
    ("allocate beyond the end", |at| {
        allocated(at, FallocateFlags::KEEP_SIZE)
    }),
    ("punch", |at| {
        allocated(at, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE)
    }),
    ("zero", |at| allocated(at, FallocateFlags::ZERO_RANGE)),
    ("copy into it", |at| {
        let from = opened(at.join("source"), OFlags::RDONLY, 0)?;
        let to = opened(at.join("f"), OFlags::WRONLY, 0)?;
        let copied = copy_file_range(from, None, to, None, 5000)?;
        Ok(copied.to_string())
    }),
    ("give to the own group", |at| {
        let own = rustix::process::getegid();
        done(chownat(CWD, at.join("f"), None, Some(own), AtFlags::empty()))
    }),
    ("give to its group", |at| {
        let group = Some(Gid::from_raw(GROUP));
        done(chownat(CWD, at.join("f"), None, group, AtFlags::empty()))
    }),
    ("set its mode", |at| {
        done(chmod(at.join("f"), Mode::from_raw_mode(0o6775)))
    }),
    ("set an ACL", |at| set(at.join("f"), ACCESS, &acl_of_three())),
    ("remove the ACL", |at| {
        done(rustix::fs::removexattr(at.join("f"), ACCESS))
    }),
    ("set an attribute", |at| set(at.join("f"), "user.x", b"value")),
    ("touch", |at| {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_NOW,
        };
        let times = Timestamps {
            last_access: now,
            last_modification: now,
        };
        done(utimensat(CWD, at.join("f"), &times, AtFlags::empty()))
    }),
    ("link", |at| {
        done(linkat(CWD, at.join("f"), CWD, at.join("other"), AtFlags::empty()))
    }),
];

/// Other things, in the same directory.
const ACTIONS: &[(&str, Action)] = &[
    ("create in a directory of the group", |at| {
        opened(at.join("group/new"), OFlags::CREATE | OFlags::WRONLY, 0o6775).map(|_| String::new())
    }),
    ("make a directory in a directory of the group", |at| {
        done(mkdir(at.join("group/new"), Mode::from_raw_mode(0o2775)))
    }),
    ("make a pipe in a directory of the group", |at| {
        let mode = Mode::from_raw_mode(0o2775);
        done(mknodat(CWD, at.join("group/new"), FileType::Fifo, mode, 0))
    }),
    ("create under a default ACL", |at| {
        opened(at.join("inherited/new"), OFlags::CREATE | OFlags::WRONLY, 0o666).map(|_| String::new())
    }),
    ("make a directory under a default ACL", |at| {
        done(mkdir(at.join("inherited/new"), Mode::from_raw_mode(0o777)))
    }),
    ("make a pipe under a default ACL", |at| {
        let mode = Mode::from_raw_mode(0o666);
        done(mknodat(CWD, at.join("inherited/new"), FileType::Fifo, mode, 0))
    }),
    ("create", |at| {
        opened(
            at.join("new"),
            OFlags::CREATE | OFlags::EXCL | OFlags::RDWR,
            0o666,
        )
        .map(|_| String::new())
    }),
    ("make a symbolic link", |at| {
        done(rustix::fs::symlink("f", at.join("new")))
    }),
    ("make a device", |at| {
        let (mode, number) = (Mode::from_raw_mode(0o666), rustix::fs::makedev(1, 3));
        done(mknodat(
            CWD,
            at.join("new"),
            FileType::CharacterDevice,
            mode,
            number,
        ))
    }),
    ("make a whiteout", |at| {
        let mode = Mode::from_raw_mode(0o666);
        done(mknodat(CWD, at.join("new"), FileType::CharacterDevice, mode, 0))
    }),
    ("remove from a sticky directory", |at| {
        done(rustix::fs::unlink(at.join("sticky/theirs")))
    }),
    ("rename in a sticky directory", |at| {
        done(rustix::fs::rename(
            at.join("sticky/theirs"),
            at.join("sticky/new"),
        ))
    }),
    ("rename over something in a sticky directory", |at| {
        opened(at.join("sticky/own"), OFlags::CREATE | OFlags::WRONLY, 0o600)?;
        done(rustix::fs::rename(
            at.join("sticky/own"),
            at.join("sticky/theirs"),
        ))
    }),
    ("write in a sticky directory", |at| {
        written(
            &opened(at.join("sticky/theirs"), OFlags::WRONLY | OFlags::CREATE, 0o600)?,
            0,
        )
    }),
    ("link to what cannot be read", |at| {
        done(linkat(
            CWD,
            at.join("secret"),
            CWD,
            at.join("new"),
            AtFlags::empty(),
        ))
    }),
    ("link to what can be written", |at| {
        done(linkat(
            CWD,
            at.join("source"),
            CWD,
            at.join("new"),
            AtFlags::empty(),
        ))
    }),
    ("link to a program that acts as its owner", |at| {
        done(linkat(
            CWD,
            at.join("program"),
            CWD,
            at.join("new"),
            AtFlags::empty(),
        ))
    }),
    ("link to a symbolic link", |at| {
        done(linkat(
            CWD,
            at.join("link"),
            CWD,
            at.join("new"),
            AtFlags::empty(),
        ))
    }),
    ("read what cannot be read", |at| {
        opened(at.join("secret"), OFlags::RDONLY, 0).map(|_| String::new())
    }),
    ("read without a trace", |at| {
        opened(at.join("source"), OFlags::RDONLY | OFlags::NOATIME, 0).map(|_| String::new())
    }),
    ("enter", |at| {
        opened(at.join("closed/f"), OFlags::RDONLY, 0).map(|_| String::new())
    }),
    ("list attributes", |at| names(&at.join("tagged"))),
    ("list attributes of a directory", |at| {
        names(&at.join("inherited"))
    }),
    ("get a trusted attribute", |at| {
        let mut value = [0_u8; 10];
        let length = rustix::fs::getxattr(at.join("tagged"), "trusted.x", &mut value[..])?;
        Ok(length.to_string())
    }),
    ("set a trusted attribute", |at| {
        set(at.join("tagged"), "trusted.y", b"value")
    }),
    ("remove a trusted attribute", |at| {
        done(rustix::fs::removexattr(at.join("tagged"), "trusted.x"))
    }),
    ("set a security attribute", |at| {
        set(at.join("tagged"), "security.y", b"value")
    }),
    ("set an attribute of a sticky directory", |at| {
        set(at.join("sticky"), "user.x", b"value")
    }),
    ("set an attribute of a symbolic link", |at| {
        set(at.join("link"), "user.x", b"value")
    }),
    ("set a default ACL", |at| {
        set(at.join("group"), DEFAULT, &acl_of_three())
    }),
];

/// What the actions find.
fn prepare(at: &Path, owner: u32, mode: u32, is_one_file: bool) {
    let make = |name: &str, owner: u32, mode: u32| {
        let path = at.join(name);
        fs::write(&path, [1; 8192]).expect("written");
        chown(&path, Some(owner), Some(GROUP)).expect("root");
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("root");
    };
    let directory = |name: &str, mode: u32| {
        let path = at.join(name);
        fs::create_dir(&path).expect("root");
        chown(&path, None, Some(GROUP)).expect("root");
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("root");
    };
    directory("", 0o777);
    make("f", owner, mode);
    make("source", 0, 0o666);
    if is_one_file {
        return;
    }
    make("secret", 0, 0o600);
    make("program", 0, 0o4777);
    make("tagged", 0, 0o666);
    symlink("f", at.join("link")).expect("root");
    for (name, mode) in [
        ("group", 0o2777),
        ("sticky", 0o1777),
        ("closed", 0o700),
        ("inherited", 0o777),
    ] {
        directory(name, mode);
    }
    make("sticky/theirs", 1003, 0o666);
    make("closed/f", 0, 0o666);
    for (name, attribute, value) in [
        ("tagged", "trusted.x", &b"value"[..]),
        ("tagged", "user.x", b"value"),
        ("inherited", DEFAULT, &acl_of_three()),
    ] {
        set(at.join(name), attribute, value).expect("root");
    }
}

/// All that can be seen of what is there but times.
fn describe(at: &Path, text: &mut String) {
    let mut entries: Vec<PathBuf> = fs::read_dir(at)
        .expect("a directory")
        .map(|it| it.expect("an entry").path())
        .collect();
    entries.sort();
    for path in entries {
        let is = fs::symlink_metadata(&path).expect("attributes");
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        write!(
            text,
            "{name} {:o} {}:{} links {}",
            is.mode(),
            is.uid(),
            is.gid(),
            if is.is_dir() { 0 } else { is.nlink() }
        )
        .expect("a string");
        if is.is_file() {
            write!(text, " {} bytes", is.size()).expect("a string");
        }
        for attribute in [ACCESS, DEFAULT] {
            let mut value = [0_u8; 100];
            if let Ok(length) = rustix::fs::lgetxattr(&path, attribute, &mut value[..]) {
                write!(text, " {:?}", &value[..length]).expect("a string");
            }
        }
        writeln!(text).expect("a string");
        if is.is_dir() {
            describe(&path, text);
        }
    }
}

/// What comes of an action in a tree.
fn outcome(root: &Path, actor: Actor, file: Option<(u32, u32)>, action: Action) -> String {
    let at = root.join("case");
    let (owner, mode) = file.unwrap_or((0, 0o644));
    prepare(&at, owner, mode, file.is_some());
    let result = actor.act(0o027, || action(&at));
    let mut text = format!("{result:?}\n");
    describe(&at, &mut text);
    fs::remove_dir_all(at).expect("root");
    text
}

#[test]
fn a_user_may_do_and_gets_on_the_mount_what_he_may_and_gets_on_the_bare_directory() {
    if is_skipped() {
        return;
    }
    for mode in ["pass-through", "write-through"] {
        let place = Place::new();
        place.ssd(8 << 20);
        let daemon = place.start(&place.config(mode));
        let mut differences = String::new();
        let mut compare = |name: &str, actor: Actor, file: Option<(u32, u32)>, action: Action| {
            let [mounted, bare] =
                [place.dir(), place.path("bare")].map(|root| outcome(&root, actor, file, action));
            if mounted != bare {
                let lines = mounted
                    .lines()
                    .zip(bare.lines())
                    .filter(|(one, other)| one != other);
                let (one, other) = lines.last().unwrap_or((&mounted, &bare));
                writeln!(
                    differences,
                    "{mode}: {name} by {}, {file:?}: {one}; bare: {other}",
                    actor.name
                )
                .expect("a string");
            }
        };
        for actor in ACTORS {
            for (name, action) in CHANGES {
                for owner in [0, actor.user] {
                    // The second one its group may not execute.
                    for mode in [0o6777, 0o6767] {
                        if owner != 0 || actor.user == 0 || mode == 0o6777 || name.starts_with("write") {
                            compare(name, actor, Some((owner, mode)), *action);
                        }
                    }
                }
            }
            // How files are read and written makes no difference to these.
            for (name, action) in ACTIONS.iter().filter(|_| mode == "write-through") {
                compare(name, actor, None, *action);
            }
        }
        daemon.stop();
        assert!(differences.is_empty(), "{differences}");
    }
}

#[test]
fn the_groups_of_who_starts_the_daemon_are_nobodys_rights() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    let daemon = place.start_in_group(&place.config("pass-through"), GROUP);
    // Its group may not execute the file: the set-group-id bit stays for members alone.
    let file = Some((STRANGER.user, 0o6767));
    for (name, action) in CHANGES {
        let [mounted, bare] =
            [place.dir(), place.path("bare")].map(|root| outcome(&root, STRANGER, file, *action));
        assert_eq!(mounted, bare, "{name}");
    }
    daemon.stop();
}

/// A file system of little room, in which a directory is served.
struct Small {
    place: Place,
    device: Loop,
}

impl Small {
    /// Made with this feature of ext4, and mounted with an option.
    fn new(feature: &str, option: Option<&str>) -> Option<Self> {
        let place = Place::new();
        let image = place.path("image");
        File::create(&image)
            .and_then(|file| file.set_len(48 << 20))
            .expect("an image");
        let device = Loop::new(&image)?;
        // A quarter is left for root. Without a journal blocks are free at once.
        let features = format!("^has_journal{feature}");
        let made = Command::new("mkfs.ext4")
            .args(["-q", "-m", "25", "-O", &features, &device.0])
            .status();
        if !made.is_ok_and(|status| status.success()) {
            eprintln!("SKIPPED: this test needs mkfs.ext4");
            return None;
        }
        fs::create_dir(place.path("below")).expect("a directory");
        if let Err(error) = mount(
            Some(device.0.as_str()),
            &place.path("below"),
            Some("ext4"),
            MsFlags::empty(),
            option,
        ) {
            assert!(option.is_some(), "{error}");
            eprintln!("SKIPPED: this test needs a kernel with {option:?} for ext4");
            return None;
        }
        for name in ["dir", "bare"] {
            let path = place.path("below").join(name);
            fs::create_dir(&path).expect("a directory");
            fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("root");
        }
        Some(Self { place, device })
    }

    fn set_quota(&self, user: u32, bytes: u64) {
        let limits = libc::dqblk {
            // In KiB.
            dqb_bhardlimit: bytes >> 10,
            dqb_bsoftlimit: 0,
            dqb_curspace: 0,
            dqb_ihardlimit: 0,
            dqb_isoftlimit: 0,
            dqb_curinodes: 0,
            dqb_btime: 0,
            dqb_itime: 0,
            dqb_valid: libc::QIF_BLIMITS,
        };
        let device = CString::new(self.device.0.as_str()).expect("no zero in it");
        // SAFETY: the string ends with a zero, and the kernel reads a structure of this layout from an address of this function.
        let code = unsafe {
            libc::quotactl(
                libc::QCMD(libc::Q_SETQUOTA, libc::USRQUOTA),
                device.as_ptr(),
                user as i32,
                (&raw const limits).cast_mut().cast(),
            )
        };
        assert_eq!(code, 0, "{}", std::io::Error::last_os_error());
    }

    /// What filling the file system ends with, and the blocks of 1 KiB that are free then, on the mount and on the bare
    /// directory.
    fn filled(&self, actor: Actor, fill: Action) -> [(Outcome, u64); 2] {
        ["dir", "bare"].map(|root| {
            let at = self.below().join(root);
            let free = || statvfs(self.below().join("bare")).expect("asked").f_bfree;
            let before = free();
            let filled = actor.act(0, || fill(&at));
            let left = free();
            fs::remove_file(at.join("fill")).expect("root");
            // The first entry of a user lets the file of the quotas grow by a block or two.
            while free() + 8 < before {
                thread::sleep(Duration::from_millis(5));
            }
            (filled, left)
        })
    }

    fn below(&self) -> PathBuf {
        self.place.path("below")
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        while umount2(&self.below().join("dir"), MntFlags::MNT_DETACH).is_ok() {}
        let _unmounted = umount2(&self.below(), MntFlags::MNT_DETACH);
    }
}

/// How a file takes all space that its writer may take.
const FILLS: &[(&str, Action)] = &[
    ("writes", |at| {
        let file = opened(at.join("fill"), OFlags::CREATE | OFlags::WRONLY, 0o600)?;
        let data = vec![1; 64 << 10];
        let mut end = 0;
        loop {
            match file.write_at(&data, end) {
                Ok(written) => end += written as u64,
                Err(error) => return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
            }
        }
    }),
    ("allocations", |at| {
        let file = opened(at.join("fill"), OFlags::CREATE | OFlags::WRONLY, 0o600)?;
        let mut length = 1 << 20;
        let mut end = 0;
        loop {
            match fallocate(&file, FallocateFlags::empty(), end, length) {
                Ok(()) => end += length,
                Err(Errno::NOSPC) if length > 4096 => length /= 2,
                Err(error) => return Err(error),
            }
        }
    }),
];

#[test]
fn blocks_that_are_left_for_root_are_left_by_others() {
    if is_skipped() {
        return;
    }
    let Some(small) = Small::new("", None) else { return };
    small.place.ssd(8 << 20);
    for mode in ["pass-through", "write-through"] {
        let mut config = small.place.config(mode);
        config["sources"][0]["dir"] = small.below().join("dir").to_string_lossy().into();
        let daemon = small.place.start(&config);
        for actor in [STRANGER, ROOT] {
            for (name, fill) in FILLS {
                let [mounted, bare] = small.filled(actor, *fill).map(|(filled, left)| {
                    assert_eq!(filled, Err(Errno::NOSPC), "{mode}, {name}");
                    left
                });
                // What a file takes for itself depends on how it came to its blocks.
                assert!(
                    mounted.abs_diff(bare) < 300,
                    "{mode}: {name} of {} leave {mounted} blocks free, {bare} on the bare directory",
                    actor.name,
                );
                assert_eq!(
                    mounted > 5000,
                    actor.user != 0,
                    "{mode}: {name} of {}: {mounted}",
                    actor.name,
                );
            }
        }
        daemon.stop();
    }
}

#[test]
fn a_user_takes_no_more_than_his_quota() {
    const QUOTA_BYTES: u64 = 8 << 20;
    if is_skipped() {
        return;
    }
    let Some(small) = Small::new(",quota", Some("usrquota")) else {
        return;
    };
    small.place.ssd(8 << 20);
    small.set_quota(STRANGER.user, QUOTA_BYTES);
    for mode in ["pass-through", "write-through"] {
        let mut config = small.place.config(mode);
        config["sources"][0]["dir"] = small.below().join("dir").to_string_lossy().into();
        let daemon = small.place.start(&config);
        for (name, fill) in FILLS {
            for (actor, end) in [(STRANGER, Errno::DQUOT), (MEMBER, Errno::NOSPC)] {
                let [mounted, bare] = small.filled(actor, *fill);
                assert_eq!((&mounted.0, &bare.0), (&Err(end), &Err(end)), "{mode}, {name}");
                let differs = mounted.1.abs_diff(bare.1);
                assert!(
                    differs < 300,
                    "{mode}: {name} of {}: {mounted:?}, {bare:?}",
                    actor.name
                );
            }
        }
        daemon.stop();
    }
}
