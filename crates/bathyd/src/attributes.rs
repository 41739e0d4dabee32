//! Attributes as the kernel wants them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};
use rustix::fs::{Stat, Timespec, UTIME_NOW, UTIME_OMIT};

/// The kind of a file by its mode. What is of no known kind is shown as a regular file.
pub(crate) fn kind(mode: u32) -> FileType {
    kind_of(rustix::fs::FileType::from_raw_mode(mode))
}

pub(crate) fn kind_of(kind: rustix::fs::FileType) -> FileType {
    use rustix::fs::FileType as Below;
    match kind {
        Below::Directory => FileType::Directory,
        Below::Symlink => FileType::Symlink,
        Below::Fifo => FileType::NamedPipe,
        Below::Socket => FileType::Socket,
        Below::CharacterDevice => FileType::CharDevice,
        Below::BlockDevice => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

pub(crate) fn of_stat(inode: u64, stat: &Stat) -> FileAttr {
    FileAttr {
        ino: INodeNo(inode),
        size: stat.st_size as u64,
        blocks: stat.st_blocks as u64,
        atime: time(stat.st_atime, stat.st_atime_nsec as u32),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec as u32),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec as u32),
        crtime: UNIX_EPOCH,
        kind: kind(stat.st_mode),
        perm: (stat.st_mode & 0o7777) as u16,
        nlink: stat.st_nlink as u32,
        uid: stat.st_uid,
        gid: stat.st_gid,
        // Both encodings put the first 12 bits of the major number and the first 20 of the minor at the same places.
        rdev: stat.st_rdev as u32,
        blksize: stat.st_blksize as u32,
        flags: 0,
    }
}

fn time(seconds: i64, nanoseconds: u32) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let second = if seconds < 0 {
        UNIX_EPOCH - whole
    } else {
        UNIX_EPOCH + whole
    };
    second + Duration::from_nanos(nanoseconds.into())
}

/// A time to be set, which is "now" and "as it is" too.
pub(crate) fn timespec(time: Option<TimeOrNow>) -> Timespec {
    let special = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
    let time = match time {
        None => return special(UTIME_OMIT),
        Some(TimeOrNow::Now) => return special(UTIME_NOW),
        Some(TimeOrNow::SpecificTime(time)) => time,
    };
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => Timespec {
            tv_sec: after.as_secs() as i64,
            tv_nsec: after.subsec_nanos().into(),
        },
        Err(error) => {
            let before = error.duration();
            let borrowed = i64::from(before.subsec_nanos() > 0);
            Timespec {
                tv_sec: -(before.as_secs() as i64) - borrowed,
                tv_nsec: borrowed * 1_000_000_000 - i64::from(before.subsec_nanos()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_come_back_as_they_were() {
        for (seconds, nanoseconds) in [(-2, 0), (-2, 5), (-1, 999_999_999), (0, 0), (7, 1)] {
            let set = timespec(Some(TimeOrNow::SpecificTime(time(seconds, nanoseconds))));
            assert_eq!((set.tv_sec, set.tv_nsec), (seconds, i64::from(nanoseconds)));
        }
    }
}
