//! The directory that is mounted over, and of all mounts there the one that is ours.
//!
//! Whoever can rename a directory on the way to it can lead its path elsewhere at any time. So the path is walked once, without
//! a symbolic link, to the directory that has it, and all that follows begins there. The mount is made on the directory that
//! was opened, by its descriptor, and undone if that is not what its path leads to by then.
//!
//! The directory may be a mount point itself, such as that of an OSD. So its name does not say which mount goes when it is
//! unmounted: if somebody else has unmounted ours, it is the one below. Three things keep that one where it is:
//!
//! - Before each call the name has to lead to a mount of our file system, which is known by its device number. The number is
//!   not given to another one as long as our connection to the kernel lives, which is looked at after the number.
//! - Between look and call ours may still go. A plain unmount then finds the mount below in use, as [`Claim`] has a file
//!   open on it, and is refused. A detaching one is told the mount by a descriptor of its root and not by its name.
//! - What is dead is detached by a descriptor as well, and only if its type is that of our program and our user made it:
//!   `fusermount` gives everybody's mounts the type that they ask for.
//!
//! One race remains: what somebody mounts on top of ours between look and call goes in its place. Nothing that was there
//! before us ever does.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak, mpsc};
use std::thread;
use std::time::Duration;

use fuser::MountOption;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::mount::{MntFlags, umount2};
use nix::sys::statvfs::fstatvfs;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen, move_mount,
};

use crate::abort::Abort;
use crate::device_number::{DeviceNumber, device_number};
use crate::mount_options::{MountError, MountOptions};

/// A directory to be mounted over, for this process alone as long as this or the mount exists.
#[derive(Debug)]
pub struct Claim {
    place: Arc<Place>,
    /// As the kernel names it.
    directory: PathBuf,
    below: Arc<Flock<File>>,
    had_dead_mount: bool,
}

impl Claim {
    /// The directory, by which it is reached when it is mounted over.
    pub fn below(&self) -> &File {
        &self.below
    }

    /// The file systems that are mounted below the directory at this moment.
    ///
    /// # Errors
    /// If the kernel does not list them.
    pub fn mounts_below(&self) -> io::Result<Vec<MountBelow>> {
        mounts_below(&self.directory)
    }

    /// Whether the mount of a killed process was there until now: nobody has used the directory by its path since.
    pub fn had_dead_mount(&self) -> bool {
        self.had_dead_mount
    }
}

/// Make sure that `options.directory` is a directory that no other program serves, and detach what a killed process of the
/// same program left there.
///
/// # Errors
/// Returns an error if it is not a directory, or another process or a FUSE file system serves it.
pub fn claim(options: &MountOptions) -> Result<Claim, MountError> {
    let shown = options.directory.display();
    let refused = |problem: String| MountError::MountPoint(problem);
    if !options.directory.is_absolute() {
        let problem = format!("the mount point must be an absolute path (got {shown})");
        return Err(refused(problem));
    }
    let opened = Place::of(&options.directory).and_then(|place| {
        let (top, had_dead_mount) = detach_dead(&place, options.program)?;
        Ok((place, top, had_dead_mount))
    });
    let (place, top, had_dead_mount) = opened.map_err(|error| match error.kind() {
        io::ErrorKind::NotADirectory => refused(format!("{shown} is not a directory")),
        _ if error.raw_os_error() == Some(libc::ELOOP) => refused(format!(
            "{shown}: a symbolic link is on the way: name it by its path without links"
        )),
        _ => refused(format!("{shown}: {error}")),
    })?;
    if let Some(kind) = top.kind.filter(|kind| is_fuse(kind)) {
        let problem = format!("{shown} is already a mount point (type {kind})");
        return Err(refused(problem));
    }
    let below = File::open(link(&top.root)).map_err(|error| refused(format!("{shown}: {error}")))?;
    // Of two processes that come at once one is refused.
    let below = Flock::lock(below, FlockArg::LockExclusiveNonblock)
        .map_err(|(_, error)| refused(format!("{shown}: another process serves it ({error})")))?;
    Ok(Claim {
        place: Arc::new(place),
        directory: top.directory,
        below: Arc::new(below),
        had_dead_mount,
    })
}

/// A file system that is mounted nowhere yet.
pub(crate) struct Unattached {
    connection: File,
    /// The root of its mount, which goes with this descriptor until it is attached.
    root: OwnedFd,
}

impl Unattached {
    pub(crate) fn new(claim: &Claim, options: &[MountOption]) -> io::Result<Self> {
        let connection = File::options().read(true).write(true).open("/dev/fuse")?;
        let mode = claim.below.metadata()?.permissions().mode();
        let context = fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC)?;
        let set = |key: &str, value: &str| fsconfig_set_string(&context, key, value);
        set("fd", &connection.as_raw_fd().to_string())?;
        set("rootmode", &format!("{mode:o}"))?;
        set("user_id", &nix::unistd::getuid().to_string())?;
        set("group_id", &nix::unistd::getgid().to_string())?;
        fsconfig_set_flag(&context, "allow_other")?;
        let mut flags = MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOSUID;
        for option in options {
            match option {
                MountOption::FSName(name) => set("source", name)?,
                MountOption::Subtype(name) => set("subtype", name)?,
                MountOption::DefaultPermissions => fsconfig_set_flag(&context, "default_permissions")?,
                MountOption::Dev => flags.remove(MountAttrFlags::MOUNT_ATTR_NODEV),
                MountOption::Suid => flags.remove(MountAttrFlags::MOUNT_ATTR_NOSUID),
                MountOption::NoExec => flags.insert(MountAttrFlags::MOUNT_ATTR_NOEXEC),
                MountOption::NoAtime => flags.insert(MountAttrFlags::MOUNT_ATTR_NOATIME),
                MountOption::RO => {
                    fsconfig_set_flag(&context, "ro")?;
                    flags.insert(MountAttrFlags::MOUNT_ATTR_RDONLY);
                }
                MountOption::NoDev | MountOption::NoSuid | MountOption::Exec | MountOption::RW => {}
                other => return Err(io::Error::other(format!("mount option {other:?}"))),
            }
        }
        fsconfig_create(&context)?;
        let root = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, flags)?;
        Ok(Self { connection, root })
    }

    /// The connection to the kernel, for whoever answers its requests.
    pub(crate) fn device(&self) -> io::Result<File> {
        self.connection.try_clone()
    }

    /// What ends the connection.
    pub(crate) fn abort(&self) -> io::Result<Abort> {
        Abort::of(&self.root)
    }

    /// Waits until a request was answered, the size of the file system, which the kernel never keeps.
    ///
    /// # Errors
    /// If it was not within `patience`: whoever asked waits on, until the connection ends.
    pub(crate) fn probe(&self, patience: Duration) -> io::Result<()> {
        let root = self.root.try_clone()?;
        let (say, answer) = mpsc::sync_channel(1);
        let probe = move || {
            let _late = say.send(fstatvfs(&root));
        };
        thread::Builder::new()
            .name("fuse-probe".to_owned())
            .spawn(probe)?;
        let answered = answer.recv_timeout(patience);
        match answered.map_err(|_| io::Error::other("no request is answered"))? {
            Err(error) if DEAD.contains(&error) => Err(error.into()),
            // An error of the file system below is an answer, too.
            _ => Ok(()),
        }
    }

    /// Mounts it over what is claimed. The connection is to be kept until no request is answered any more.
    pub(crate) fn attach(self, claim: &Claim) -> io::Result<(Attached, Arc<File>)> {
        let number = device_number(&self.root)?;
        // Who is not root has no control file system.
        let abort = self.abort().ok();
        let by_descriptors =
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        move_mount(&self.root, "", claim.below(), "", by_descriptors)?;
        let connection = Arc::new(self.connection);
        let attached = Attached {
            place: Arc::clone(&claim.place),
            number,
            connection: Arc::downgrade(&connection),
            abort,
            _below: Arc::clone(&claim.below),
        };
        let now = claim.place.again().and_then(|place| attached.is_on_top(&place));
        if !now.unwrap_or(false) {
            detach(&self.root)?;
            let problem = "it was exchanged for another directory while it was mounted over";
            return Err(io::Error::other(problem));
        }
        Ok((attached, connection))
    }
}

/// Our mount on a directory.
#[derive(Clone, Debug)]
pub(crate) struct Attached {
    place: Arc<Place>,
    number: DeviceNumber,
    /// Weak: when the session has ended, the kernel must see the connection closed.
    connection: Weak<File>,
    abort: Option<Abort>,
    /// Keeps the mount below in use.
    _below: Arc<Flock<File>>,
}

impl Attached {
    pub(crate) fn place(&self) -> &Arc<Place> {
        &self.place
    }

    /// Unmounts unless it is in use. Returns whether it is no more mounted.
    pub(crate) fn unmount_unused(&self) -> io::Result<bool> {
        // The descriptor of the root is closed: it would be a use.
        if self.root()?.is_none() {
            return self.must_be_gone().map(|()| true);
        }
        match umount2(&self.place.path(), MntFlags::UMOUNT_NOFOLLOW) {
            Ok(()) | Err(Errno::EINVAL) => Ok(true),
            // If ours is gone by now, what is in use is below.
            Err(Errno::EBUSY) => Ok(self.root()?.is_none()),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the file system is mounted nowhere in this mount namespace and somebody has it all the same: who uses a
    /// detached mount, or another mount namespace, as who begins one copies all mounts.
    pub(crate) fn is_left(&self) -> bool {
        self.is_connected() && self.is_listed().is_ok_and(|is_listed| !is_listed)
    }

    /// Ends the connection: all its requests fail.
    pub(crate) fn abort(&self) {
        if let Some(abort) = &self.abort {
            abort.now();
        }
    }

    /// Detaches it, whoever uses it.
    pub(crate) fn detach(&self) -> io::Result<()> {
        self.root()?.map_or(Ok(()), |root| detach(&root))
    }

    /// The root of our mount, if the name leads there.
    fn root(&self) -> io::Result<Option<OwnedFd>> {
        let root = match self.place.open() {
            // Who has it in another mount namespace can remove it, and our mount with it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            root => root?,
        };
        let is_numbered = device_number(&root)? == self.number;
        Ok((is_numbered && self.is_connected()).then_some(root))
    }

    /// Whether a place leads to our mount.
    fn is_on_top(&self, place: &Place) -> io::Result<bool> {
        Ok(device_number(place.open()?)? == self.number)
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.connection.upgrade().is_some_and(|connection| {
            let mut asked = [PollFd::new(&connection, PollFlags::empty())];
            let at_once = Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            let answered = poll(&mut asked, Some(&at_once));
            answered.is_ok() && !asked[0].revents().contains(PollFlags::ERR)
        })
    }

    /// Whether it is mounted anywhere in this mount namespace, at the top or below others.
    fn is_listed(&self) -> io::Result<bool> {
        let (major, minor) = self.number;
        let number = format!("{major}:{minor}");
        let mounts = mount_table()?;
        Ok(mounts.lines().any(|line| line.split(' ').nth(2) == Some(&number)))
    }

    /// The name leads elsewhere. If our file system is mounted all the same, something is mounted on it, which must not go.
    fn must_be_gone(&self) -> io::Result<()> {
        if self.is_listed()? && self.is_connected() {
            let shown = self.place.directory.display();
            return Err(io::Error::other(format!(
                "another file system is mounted over {shown}: unmount that first"
            )));
        }
        Ok(())
    }
}

const AS_PATH: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A directory by its name in the directory that has it.
#[derive(Debug)]
pub(crate) struct Place {
    directory: PathBuf,
    parent: OwnedFd,
    name: OsString,
}

impl Place {
    /// Of a path without symbolic links.
    fn of(directory: &Path) -> io::Result<Self> {
        let (Some(parent), Some(name)) = (directory.parent(), directory.file_name()) else {
            return Err(io::Error::other("it has no name"));
        };
        Ok(Self {
            directory: directory.to_owned(),
            parent: openat2(CWD, parent, AS_PATH, Mode::empty(), ResolveFlags::NO_SYMLINKS)?,
            name: name.to_owned(),
        })
    }

    /// As its path leads to it now.
    fn again(&self) -> io::Result<Self> {
        Self::of(&self.directory)
    }

    /// What is there, or is mounted there.
    fn open(&self) -> io::Result<OwnedFd> {
        let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        Ok(openat2(&self.parent, &self.name, AS_PATH, Mode::empty(), within)?)
    }

    /// For calls that take no descriptor.
    fn path(&self) -> PathBuf {
        link(&self.parent).join(&self.name)
    }
}

/// What is open, as a path that leads nowhere else.
fn link(fd: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", fd.as_raw_fd()).into()
}

/// Detaches the mount that has this root; what is below it stays. It may be gone already.
fn detach(root: &OwnedFd) -> io::Result<()> {
    match umount2(&link(root), MntFlags::MNT_DETACH) {
        Ok(()) | Err(Errno::EINVAL) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// What the name of a directory leads to.
pub(crate) struct Top {
    root: OwnedFd,
    directory: PathBuf,
    /// The type of the file system that is mounted there, if one is.
    kind: Option<String>,
    /// Who mounted it, if that is known.
    user: Option<u32>,
}

impl Top {
    fn of(place: &Place) -> io::Result<Self> {
        let root = place.open()?;
        let directory = fs::read_link(link(&root))?;
        let about = fs::read_to_string(format!("/proc/self/fdinfo/{}", root.as_raw_fd()))?;
        let id = about.lines().find_map(|line| line.strip_prefix("mnt_id:"));
        let mounts = mount_table()?;
        let shown = directory.to_string_lossy();
        let mount = mounts.lines().filter_map(mount_of_line);
        let mut mount = mount.filter(|mount| Some(mount.id) == id.map(str::trim) && mount.point == shown);
        let mount = mount.next();
        Ok(Self {
            kind: mount.as_ref().map(|mount| mount.kind.to_owned()),
            user: mount.and_then(|mount| mount.user),
            root,
            directory,
        })
    }
}

/// What the kernel says of a mount without a process. While it takes a ring down, which ends a moment after its process, it
/// breaks off or cancels what is asked.
const DEAD: [Errno; 3] = [Errno::ENOTCONN, Errno::ECONNABORTED, Errno::ECANCELED];

/// Detaches mounts of `program` of this user in a place whose processes are gone. Returns what is there then, and whether
/// there was one.
pub(crate) fn detach_dead(place: &Place, program: &str) -> io::Result<(Top, bool)> {
    let own_kind = format!("fuse.{program}");
    let mut has_detached = false;
    loop {
        let top = Top::of(place)?;
        // Only our own kind is asked: a file system that hangs would hang this process, too. Attributes could come from the
        // kernel's cache for a while; the size of a file system never does.
        let is_dead = top.kind.as_ref() == Some(&own_kind)
            && top.user == Some(nix::unistd::getuid().as_raw())
            && fstatvfs(&top.root).is_err_and(|error| DEAD.contains(&error));
        if !is_dead {
            return Ok((top, has_detached));
        }
        umount2(&link(&top.root), MntFlags::MNT_DETACH)?;
        has_detached = true;
    }
}

/// A file system that is mounted below a directory.
#[derive(Debug)]
pub struct MountBelow {
    /// Where.
    pub point: PathBuf,
    /// Of which type.
    pub kind: String,
    /// It was mounted by somebody else than root, as who can write to a directory may mount a FUSE file system on it.
    pub is_of_user: bool,
}

/// The file systems that are mounted below a directory, whose path has no symbolic links.
///
/// # Errors
/// If the kernel does not list them.
pub fn mounts_below(directory: &Path) -> io::Result<Vec<MountBelow>> {
    let mounts = mount_table()?;
    let mounts = mounts.lines().filter_map(mount_of_line);
    let mounts = mounts.map(|mount| MountBelow {
        point: mount.point.into(),
        kind: mount.kind.to_owned(),
        is_of_user: mount.user.is_some_and(|user| user != 0),
    });
    Ok(mounts
        .filter(|mount| mount.point != directory && mount.point.starts_with(directory))
        .collect())
}

fn is_fuse(kind: &str) -> bool {
    kind == "fuse" || kind.starts_with("fuse.")
}

/// The mounts of this mount namespace. A path need not be UTF-8, and one that is not must not hide the others.
fn mount_table() -> io::Result<String> {
    Ok(String::from_utf8_lossy(&fs::read("/proc/self/mountinfo")?).into_owned())
}

/// A mount.
struct Mount<'a> {
    id: &'a str,
    point: String,
    kind: &'a str,
    /// Of a FUSE file system: who mounted it.
    user: Option<u32>,
}

/// The mount of a line of `/proc/self/mountinfo` (proc(5)).
fn mount_of_line(line: &str) -> Option<Mount<'_>> {
    let (before, after) = line.split_once(" - ")?;
    let (mut fields, mut rest) = (before.split(' '), after.split(' '));
    let kind = rest.next()?;
    // What is mounted is a text of who mounted it; the options are the kernel's, and the last field.
    let mut options = rest.next_back().unwrap_or_default().split(',');
    Some(Mount {
        id: fields.next()?,
        point: unescape(fields.nth(3)?),
        kind,
        user: options.find_map(|option| option.strip_prefix("user_id=")?.parse().ok()),
    })
}

/// Undo the octal escapes of space, tab, newline and backslash.
fn unescape(text: &str) -> String {
    let mut rest = text;
    let mut plain = String::with_capacity(text.len());
    while let Some(at) = rest.find('\\') {
        plain.push_str(&rest[..at]);
        let code = rest
            .get(at + 1..at + 4)
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        if let Some(code) = code {
            plain.push(char::from(code));
            rest = &rest[at + 4..];
        } else {
            plain.push('\\');
            rest = &rest[at + 1..];
        }
    }
    plain.push_str(rest);
    plain
}

#[cfg(test)]
mod tests {
    use super::mount_of_line;

    #[test]
    fn mount_points_with_spaces_are_read() {
        let line = r"98 29 0:53 / /mnt/a\040b\134c rw,nosuid shared:3 - fuse.bathy-simdisk bathy-simdisk rw,user_id=7,group_id=0";
        let mount = mount_of_line(line).expect("a mount");
        assert_eq!((mount.id, &*mount.point), ("98", r"/mnt/a b\c"));
        assert_eq!((mount.kind, mount.user), ("fuse.bathy-simdisk", Some(7)));
        assert!(mount_of_line("nonsense").is_none());
    }
}
