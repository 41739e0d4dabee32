//! Random operations on the mount and on a bare directory: each ends alike, and so do both trees.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps, Uid, XattrFlags,
    chmodat, chownat, copy_file_range, fallocate, ftruncate, linkat, mknodat, open, renameat_with, seek,
    utimensat,
};
use rustix::io::Errno;

use crate::daemon::{Place, Random, is_skipped, operations};

const NAMES: [&str; 6] = ["a", "b", "c", "d", "block", "a name with spaces and ü"];
const FILE_BYTES_MAX: u64 = 96 << 10;

/// One tree, with files that stay open after they were removed.
struct Tree {
    root: PathBuf,
    kept: Vec<File>,
}

/// What an operation says: what it found, or the number of its error.
type Outcome = Result<Vec<u8>, Errno>;

fn path(random: &mut Random) -> PathBuf {
    let mut path = PathBuf::new();
    for _ in 0..=random.below(2) {
        path.push(NAMES[random.below(NAMES.len() as u64) as usize]);
    }
    path
}

impl Tree {
    fn file(&self, path: &Path, flags: OFlags) -> Result<File, Errno> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = File::from(open(self.root.join(path), flags, Mode::from_raw_mode(0o644))?);
        let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
        if is_file { Ok(file) } else { Err(Errno::ISDIR) }
    }

    fn carry_out(&mut self, random: &mut Random) -> Outcome {
        let (first, second) = (path(random), path(random));
        let at = self.root.join(&first);
        let other = self.root.join(&second);
        let (offset, length) = (random.below(FILE_BYTES_MAX), random.below(20_000));
        let nothing = |result: Result<(), Errno>| result.map(|()| Vec::new());
        let std = |result: std::io::Result<()>| {
            let number = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
            result.map(|()| Vec::new()).map_err(number)
        };
        match random.below(26) {
            0 | 1 => std(fs::create_dir(&at)),
            2 => std(fs::remove_dir(&at)),
            3 => std(fs::remove_file(&at)),
            4 => std(std::os::unix::fs::symlink(
                NAMES[offset as usize % NAMES.len()],
                &at,
            )),
            5 => nothing(linkat(CWD, &at, CWD, &other, AtFlags::empty())),
            6 | 7 => {
                let flags = [
                    RenameFlags::empty(),
                    RenameFlags::NOREPLACE,
                    RenameFlags::EXCHANGE,
                ];
                nothing(renameat_with(CWD, &at, CWD, &other, flags[offset as usize % 3]))
            }
            8 => {
                let kind = [rustix::fs::FileType::Fifo, rustix::fs::FileType::Socket][offset as usize % 2];
                nothing(mknodat(CWD, &at, kind, Mode::from_raw_mode(0o640), 0))
            }
            9 => nothing(chmodat(
                CWD,
                &at,
                Mode::from_raw_mode(offset as u32 % 0o10000),
                AtFlags::empty(),
            )),
            10 => {
                let (user, group) = (Uid::from_raw(offset as u32 % 3), Gid::from_raw(length as u32 % 3));
                nothing(chownat(
                    CWD,
                    &at,
                    Some(user),
                    Some(group),
                    AtFlags::SYMLINK_NOFOLLOW,
                ))
            }
            11 => {
                let times = Timestamps {
                    last_access: Timespec {
                        tv_sec: offset as i64 - 9000,
                        tv_nsec: length as i64,
                    },
                    last_modification: Timespec {
                        tv_sec: length as i64,
                        tv_nsec: offset as i64,
                    },
                };
                nothing(utimensat(CWD, &at, &times, AtFlags::SYMLINK_NOFOLLOW))
            }
            12 => {
                let (name, value) = (["user.one", "user.two"][offset as usize % 2], random.bytes(40));
                nothing(rustix::fs::lsetxattr(&at, name, &value, XattrFlags::empty()))
            }
            13 => nothing(rustix::fs::lremovexattr(&at, "user.one")),
            14..=17 => {
                let appends = if offset % 3 == 0 {
                    OFlags::APPEND
                } else {
                    OFlags::empty()
                };
                let file = self.file(&first, OFlags::CREATE | OFlags::WRONLY | appends)?;
                std(file.write_all_at(&random.bytes(length as usize), offset))
            }
            18 => {
                let file = self.file(&first, OFlags::RDWR)?;
                nothing(ftruncate(&file, offset))
            }
            19 => {
                let truncated = self.file(&first, OFlags::WRONLY | OFlags::TRUNC | OFlags::CREATE)?;
                std(truncated.sync_all())
            }
            20 => {
                let modes = [
                    FallocateFlags::empty(),
                    FallocateFlags::KEEP_SIZE,
                    FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE,
                    FallocateFlags::ZERO_RANGE,
                ];
                let file = self.file(&first, OFlags::WRONLY)?;
                nothing(fallocate(&file, modes[length as usize % 4], offset, length + 1))
            }
            21 => {
                let file = self.file(&first, OFlags::RDONLY)?;
                let end = seek(&file, rustix::fs::SeekFrom::End(0))?;
                let hole = seek(&file, rustix::fs::SeekFrom::Hole(offset));
                // Where a hole begins is the file system's affair; that none begins in the middle of nothing is not.
                Ok(vec![u8::from(hole.is_ok_and(|hole| hole <= end))])
            }
            22 => {
                let (from, to) = (
                    self.file(&first, OFlags::RDONLY)?,
                    self.file(&second, OFlags::WRONLY)?,
                );
                let (mut from_at, mut to_at) = (0, offset);
                // As often as it takes: a short copy is right everywhere.
                let mut left = length as usize;
                while left > 0 {
                    match copy_file_range(&from, Some(&mut from_at), &to, Some(&mut to_at), left)? {
                        0 => break,
                        copied => left -= copied,
                    }
                }
                Ok(left.to_le_bytes().to_vec())
            }
            23 => {
                self.kept.push(self.file(&first, OFlags::RDWR)?);
                if self.kept.len() > 4 {
                    self.kept.remove(0);
                }
                Ok(Vec::new())
            }
            24 => match self.kept.last() {
                Some(file) => std(file.write_all_at(&random.bytes(length as usize), offset)),
                None => Ok(Vec::new()),
            },
            _ => {
                let direct = offset % 2 == 0;
                let file = self.file(&first, if direct { OFlags::DIRECT } else { OFlags::empty() })?;
                // Aligned, also in memory, for direct I/O.
                let mut bytes = vec![0; 40960];
                let start = bytes.as_ptr().align_offset(4096);
                let bytes = &mut bytes[start..start + 32768];
                let read = file.read_at(bytes, offset & !4095).map_err(|_| Errno::IO)?;
                Ok(bytes[..read].to_vec())
            }
        }
    }
}

/// All that can be seen of a tree. Times of change and of directories are those of when it happened, and left out.
fn describe(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut numbers: BTreeMap<u64, PathBuf> = BTreeMap::new();
    let mut waiting = vec![PathBuf::new()];
    while let Some(directory) = waiting.pop() {
        let entries = fs::read_dir(root.join(&directory)).expect("a directory");
        let mut names: Vec<OsString> = entries.map(|it| it.expect("an entry").file_name()).collect();
        names.sort();
        for name in names {
            let path = directory.join(name);
            let at = root.join(&path);
            let is = fs::symlink_metadata(&at).expect("attributes");
            let first = numbers.entry(is.ino()).or_insert_with(|| path.clone()).clone();
            let links = if is.is_dir() { 0 } else { is.nlink() };
            let mut text = format!(
                "{:o} {}:{} links {links} of {}",
                is.mode(),
                is.uid(),
                is.gid(),
                first.display()
            );
            if is.is_file() {
                let bytes = fs::read(&at).expect("bytes");
                write!(text, " {} bytes {:x}", is.size(), checksum(&bytes)).expect("a string");
                for name in ["user.one", "user.two"] {
                    let mut value = [0_u8; 64];
                    let length = rustix::fs::lgetxattr(&at, name, &mut value[..]).ok();
                    write!(text, " {:?}", length.map(|length| checksum(&value[..length]))).expect("a string");
                }
            } else if is.is_symlink() {
                write!(text, " {}", fs::read_link(&at).expect("a link").display()).expect("a string");
            } else if is.is_dir() {
                waiting.push(path.clone());
            }
            found.insert(path, text);
        }
    }
    found
}

fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, &byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

#[test]
fn the_mount_does_what_the_bare_directory_does() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    let daemon = place.start(&place.config("pass-through"));
    let [mut mounted, mut bare] = [place.dir(), place.path("bare")].map(|root| Tree {
        root,
        kept: Vec::new(),
    });
    let mut succeeded = 0_u64;
    let total = operations(20_000);
    for seed in 0..total {
        let [on_mount, on_bare] =
            [&mut mounted, &mut bare].map(|tree| tree.carry_out(&mut Random::new(seed + 1)));
        assert!(
            on_mount == on_bare,
            "operation {seed}: {:?} on the mount, {:?} on the bare directory",
            on_mount.map(|it| it.len()),
            on_bare.map(|it| it.len())
        );
        succeeded += u64::from(on_bare.is_ok());
        if seed % 1000 == 999 {
            assert_eq!(
                describe(&mounted.root),
                describe(&bare.root),
                "after operation {seed}"
            );
        }
    }
    // A test in which nearly everything fails would show nothing.
    assert!(
        succeeded > total / 5,
        "{succeeded} of {total} operations succeeded"
    );
    mounted.kept.clear();
    let seen = describe(&mounted.root);
    daemon.stop();
    assert_eq!(describe(&mounted.root), seen, "what is below is what was shown");
}

#[test]
fn a_change_by_somebody_else_clears_the_set_id_bits() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    let daemon = place.start(&place.config("pass-through"));
    for (program, arguments) in [
        ("dd", &["if=/dev/zero", "bs=1", "count=1", "conv=notrunc"][..]),
        ("truncate", &["--size=5"][..]),
    ] {
        let modes = [place.dir(), place.path("bare")].map(|root| {
            let path = root.join(program);
            fs::write(&path, "bytes and more").expect("written");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).expect("a mode");
            let prefix = if program == "dd" { "of=" } else { "" };
            let changed = Command::new(program)
                .args(arguments)
                .arg(format!("{prefix}{}", path.display()))
                .stderr(Stdio::null())
                .uid(65534)
                .gid(65534)
                .status();
            assert!(changed.expect("it runs").success());
            fs::metadata(&path).expect("attributes").mode() & 0o7777
        });
        assert_eq!(modes, [0o777, 0o777], "{program}");
    }
    daemon.stop();
}
