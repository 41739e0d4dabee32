//! Whether what is stored somewhere is encrypted on the way to its disk.
//!
//! The SSD of a cache gets the bytes that applications read and write. If their disk is encrypted and the SSD is not, it would
//! hold as plaintext what was never to be stored as such.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, StatxAttributes, StatxFlags, fstat, statx};

use crate::device_identity::number_text;

const BY_NUMBER: &str = "/sys/dev/block";
/// As the kernel names what `cryptsetup` maps: CRYPT-LUKS2-…, CRYPT-PLAIN-….
const CRYPT: &str = "CRYPT-";
/// Devices over devices; more are none that anybody makes.
const DEPTH_MAX: usize = 16;

/// What encrypts the device of this number, itself or below: logical volumes, arrays, parts and loop devices lie on others.
pub(crate) fn of_device(number: u64) -> Option<String> {
    of_listed(&Path::new(BY_NUMBER).join(number_text(number)), DEPTH_MAX)
}

/// What encrypts the file system of this file or directory, or the directory itself.
pub(crate) fn of_file(file: impl AsFd) -> io::Result<Option<String>> {
    let about = statx(&file, "", AtFlags::EMPTY_PATH, StatxFlags::empty())?;
    if about.stx_attributes.contains(StatxAttributes::ENCRYPTED) {
        return Ok(Some("the encryption of its file system (fscrypt)".to_owned()));
    }
    Ok(of_file_system(fstat(&file)?.st_dev, DEPTH_MAX))
}

/// What encrypts a block device, or the file system of a file.
pub(crate) fn of_path(path: &Path) -> io::Result<Option<String>> {
    let metadata = fs::metadata(path)?;
    if metadata.file_type().is_block_device() {
        return Ok(of_device(metadata.rdev()));
    }
    Ok(of_file_system(metadata.dev(), DEPTH_MAX))
}

fn of_file_system(number: u64, depth: usize) -> Option<String> {
    let listed = Path::new(BY_NUMBER).join(number_text(number));
    if listed.exists() {
        return of_listed(&listed, depth);
    }
    // That of a file system of several devices, such as btrfs, is none of a device.
    let mounts = fs::read("/proc/self/mountinfo").ok()?;
    let source = source_of(&String::from_utf8_lossy(&mounts), &number_text(number))?;
    let metadata = fs::metadata(source).ok()?;
    let device = metadata.file_type().is_block_device().then(|| metadata.rdev())?;
    of_listed(&Path::new(BY_NUMBER).join(number_text(device)), depth)
}

/// The device of the file system with this number, of lines as in `/proc/self/mountinfo` (proc(5)).
fn source_of(mounts: &str, number: &str) -> Option<PathBuf> {
    let line = mounts
        .lines()
        .find(|line| line.split(' ').nth(2) == Some(number))?;
    let (_, after) = line.split_once(" - ")?;
    let source = after.split(' ').nth(1)?;
    source.starts_with("/dev/").then(|| PathBuf::from(source))
}

fn of_listed(attributes: &Path, depth: usize) -> Option<String> {
    let depth = depth.checked_sub(1)?;
    let text = |name: &str| fs::read_to_string(attributes.join(name)).ok();
    if let Some(uuid) = text("dm/uuid").filter(|uuid| uuid.starts_with(CRYPT)) {
        let name = text("dm/name").unwrap_or(uuid);
        return Some(format!("dm-crypt ({})", name.trim()));
    }
    if attributes.join("partition").exists() {
        return of_listed(&attributes.join(".."), depth);
    }
    if let Some(file) = text("loop/backing_file") {
        let metadata = fs::metadata(file.trim_end_matches('\n')).ok();
        return metadata.and_then(|metadata| of_file_system(metadata.dev(), depth));
    }
    let below = fs::read_dir(attributes.join("slaves")).ok()?;
    below.flatten().find_map(|one| of_listed(&one.path(), depth))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_encrypts_is_found_below_logical_volumes_and_parts() {
        let root = std::env::temp_dir().join(format!("bathyd-crypt-{}", std::process::id()));
        let make = |name: &str, files: &[(&str, &str)], below: &[&str]| {
            let device = root.join(name);
            fs::create_dir_all(device.join("slaves")).expect("directories");
            for (file, text) in files {
                fs::create_dir_all(device.join(file).parent().expect("one")).expect("directories");
                fs::write(device.join(file), text).expect("written");
            }
            for one in below {
                symlink(root.join(one), device.join("slaves").join(one)).expect("a link");
            }
        };
        make("sda", &[], &[]);
        make("sda/sda1", &[("partition", "1\n")], &[]);
        make(
            "dm-0",
            &[("dm/uuid", "CRYPT-LUKS2-5-osd\n"), ("dm/name", "osd-key\n")],
            &["sda"],
        );
        make("dm-1", &[("dm/uuid", "LVM-abc\n")], &["dm-0"]);
        make("dm-2", &[("dm/uuid", "LVM-abd\n")], &["sda"]);
        make("md0", &[], &["dm-2", "dm-1"]);
        make("md0/md0p1", &[("partition", "1\n")], &[]);
        make("dm-3", &[("dm/uuid", "LVM-loop\n")], &["dm-3"]);
        let of = |name: &str| of_listed(&root.join(name), DEPTH_MAX);
        let crypt = Some("dm-crypt (osd-key)".to_owned());
        for encrypted in ["dm-0", "dm-1", "md0", "md0/md0p1"] {
            assert_eq!(of(encrypted), crypt, "{encrypted}");
        }
        for plain in ["sda", "sda/sda1", "dm-2", "dm-3", "missing"] {
            assert_eq!(of(plain), None, "{plain}");
        }
        fs::remove_dir_all(root).expect("removed");
    }

    #[test]
    fn the_device_of_a_file_system_is_that_of_its_mount() {
        let mounts = "23 1 0:21 / / rw - btrfs /dev/mapper/root rw\n24 23 0:5 / /tmp rw,nosuid shared:1 - tmpfs tmpfs rw\n";
        assert_eq!(source_of(mounts, "0:21"), Some(PathBuf::from("/dev/mapper/root")));
        assert_eq!(source_of(mounts, "0:5"), None);
        assert_eq!(source_of(mounts, "0:2"), None);
    }
}
