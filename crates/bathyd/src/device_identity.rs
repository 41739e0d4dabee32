//! What tells a block device, or a file that stands in for one, from every other.
//!
//! A number (major:minor) and a path name a place: what is there can be another disk after a restart, or as soon as a loop
//! device is attached to another file. The names that last are the uuid of a mapped device, the world-wide name and the serial
//! number of a disk, and the file behind a loop device. The kernel's sequence number tells two disks in one place apart for as
//! long as the machine runs (Linux 5.15).

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::{SeekFrom, seek};
use serde::{Deserialize, Serialize};

/// Where the kernel lists block devices by number.
const BY_NUMBER: &str = "/sys/dev/block";
const LOOP_MAJOR: u32 = 7;

/// What is known of a block device, or of a regular file. See the [module](self).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeviceIdentity {
    /// No part of what tells it from others: a device grows.
    pub(crate) size_bytes: u64,
    /// Of a regular file: where it lies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) file: Option<FileId>,
    /// Of a device: major:minor, at this moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) number: Option<String>,
    /// Of a mapped device, such as a logical volume, or an array; of a partition: its disk's, like the next two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) uuid: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) wwid: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) serial: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) partition: Option<Partition>,
    /// Of a loop device: the file behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) backing: Option<FileId>,
    /// The kernel's number of this appearance of the disk: no other disk has it until the machine is restarted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) diskseq: Option<u64>,
    /// The start of the machine in which numbers of devices and `diskseq` are true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) boot_id: Option<String>,
}

/// A regular file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileId {
    /// The number (major:minor) of its file system, at this moment.
    pub(crate) device: String,
    pub(crate) inode: u64,
    /// As the kernel shows it: for people, and in place of the number after a restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) path: Option<String>,
}

/// A part of a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Partition {
    pub(crate) number: u32,
    pub(crate) start_sector: u64,
}

/// How what is there now compares with what was known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Likeness {
    /// The same, and it was there all the time: the kernel's sequence number says so.
    Same,
    /// It has the same lasting name, but it may have been away, or no sequence number is known.
    SameName,
    /// Nothing that lasts is known of it, and the machine was restarted, or the kernel has no sequence numbers.
    Unknown,
    /// Another one: what differs, as text for people.
    Other(String),
}

impl DeviceIdentity {
    /// The identity of an open block device or regular file. While it is open, its number stays that of this one.
    ///
    /// # Errors
    /// If it is neither, or cannot be asked.
    pub(crate) fn of(file: &File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        let kind = metadata.file_type();
        let size_bytes = if kind.is_block_device() {
            seek(file, SeekFrom::End(0))?
        } else {
            metadata.len()
        };
        let unknown = Self {
            size_bytes,
            boot_id: boot_id(),
            ..Self::nameless()
        };
        if kind.is_file() {
            let path = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok();
            return Ok(Self {
                file: Some(FileId {
                    device: number_text(metadata.dev()),
                    inode: metadata.ino(),
                    path: path.map(|path| path.to_string_lossy().into_owned()),
                }),
                ..unknown
            });
        }
        if !kind.is_block_device() {
            return Err(io::Error::other("neither a block device nor a regular file"));
        }
        let number = metadata.rdev();
        let named = Self::listed(&Path::new(BY_NUMBER).join(number_text(number)));
        let is_loop = rustix::fs::major(number) == LOOP_MAJOR;
        Ok(Self {
            number: Some(number_text(number)),
            backing: if is_loop { behind_loop(file)? } else { None },
            size_bytes,
            boot_id: unknown.boot_id,
            ..named
        })
    }

    /// What the kernel lists of a device without opening it: no size, and not the file behind a loop device.
    fn listed(attributes: &Path) -> Self {
        let text = |name: &str| {
            let text = fs::read_to_string(attributes.join(name)).ok()?;
            Some(text.trim().to_owned()).filter(|text| !text.is_empty())
        };
        let number = |name: &str| text(name)?.parse::<u64>().ok();
        let partition = number("partition").map(|of_disk| Partition {
            number: of_disk as u32,
            start_sector: number("start").unwrap_or(0),
        });
        let disk = if partition.is_some() { "../" } else { "" };
        let of_disk = |names: &[&str]| names.iter().find_map(|name| text(&format!("{disk}{name}")));
        Self {
            uuid: of_disk(&["dm/uuid", "md/uuid"]),
            wwid: of_disk(&["wwid", "device/wwid"]),
            serial: of_disk(&["serial", "device/serial"]).or_else(|| {
                let page = fs::read(attributes.join(format!("{disk}device/vpd_pg80"))).ok()?;
                serial_of_page(&page)
            }),
            diskseq: of_disk(&["diskseq"]).and_then(|text| text.parse().ok()),
            partition,
            ..Self::nameless()
        }
    }

    fn nameless() -> Self {
        Self {
            size_bytes: 0,
            file: None,
            number: None,
            uuid: None,
            wwid: None,
            serial: None,
            partition: None,
            backing: None,
            diskseq: None,
            boot_id: None,
        }
    }

    /// What it is called whatever number it has this time, or `None` if nothing of it lasts.
    pub(crate) fn lasting_name(&self) -> Option<String> {
        let file = self.backing.as_ref().or(self.file.as_ref());
        let name = self
            .uuid
            .clone()
            .or_else(|| self.wwid.clone())
            .or_else(|| Some(format!("serial number {}", self.serial.as_ref()?)))
            .or_else(|| file.map(ToString::to_string))?;
        Some(match &self.partition {
            Some(partition) => format!("{name} partition {}", partition.number),
            None => name,
        })
    }

    /// How `now` compares with this one, which was known before. Sizes are not compared.
    pub(crate) fn compare(&self, now: &Self) -> Likeness {
        let is_same_boot = self.boot_id.is_some() && self.boot_id == now.boot_id;
        if self.file.is_some() != now.file.is_some() {
            return Likeness::Other(format!("it was {}, and is {}", self.kind(), now.kind()));
        }
        let names = [
            ("uuid", &self.uuid, &now.uuid),
            ("world-wide name", &self.wwid, &now.wwid),
            ("serial number", &self.serial, &now.serial),
        ];
        for (what, known, now) in names {
            // What one of both does not say, a kernel or driver may have begun or ceased to say.
            if let (Some(known), Some(now)) = (known, now) {
                if known != now {
                    return Likeness::Other(format!("its {what} was {known}, and is {now}"));
                }
            }
        }
        if self.partition != now.partition {
            return Likeness::Other("it is another part of the disk".to_owned());
        }
        let files = [(&self.file, &now.file), (&self.backing, &now.backing)];
        for (known, now) in files {
            if let (Some(known), Some(now)) = (known, now) {
                if !known.is(now, is_same_boot) {
                    return Likeness::Other(format!("it was {known}, and is {now}"));
                }
            }
        }
        if is_same_boot && self.diskseq.is_some() && self.diskseq == now.diskseq {
            return Likeness::Same;
        }
        let is_named = names
            .iter()
            .any(|(_, known, now)| known.is_some() && now.is_some())
            || files.iter().any(|(known, now)| known.is_some() && now.is_some());
        if is_named {
            return Likeness::SameName;
        }
        if is_same_boot && self.diskseq.is_some() && now.diskseq.is_some() {
            return Likeness::Other("the disk was removed, and what is there came later".to_owned());
        }
        Likeness::Unknown
    }

    fn kind(&self) -> &'static str {
        match &self.file {
            Some(_) => "a file",
            None => "a block device",
        }
    }
}

/// Names it for people.
impl fmt::Display for DeviceIdentity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.lasting_name(), &self.number) {
            (Some(name), _) => out.write_str(&name),
            (None, Some(number)) => write!(out, "the device {number}, which has no name that lasts"),
            (None, None) => out.write_str(self.kind()),
        }
    }
}

impl FileId {
    /// Numbers of file systems may be other ones after a restart; the path stands in for them then.
    fn is(&self, now: &Self, is_same_boot: bool) -> bool {
        let is_same_place =
            self.device == now.device || !is_same_boot && self.path.is_some() && self.path == now.path;
        self.inode == now.inode && is_same_place
    }
}

impl fmt::Display for FileId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, inode, path } = self;
        match path {
            Some(path) => write!(out, "the file {path} (inode {inode} on {device})"),
            None => write!(out, "the file with inode {inode} on {device}"),
        }
    }
}

/// The sequence number of the disk that has this number now.
pub(crate) fn diskseq_of(number: u64) -> Option<u64> {
    DeviceIdentity::listed(&Path::new(BY_NUMBER).join(number_text(number))).diskseq
}

/// The lasting name of the device with this number, as far as the kernel lists it without opening the device.
pub(crate) fn listed_name(number: u64) -> Option<String> {
    DeviceIdentity::listed(&Path::new(BY_NUMBER).join(number_text(number))).lasting_name()
}

/// Names the time since the machine was started.
pub(crate) fn boot_id() -> Option<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned())
}

pub(crate) fn number_text(number: u64) -> String {
    format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number))
}

/// The serial number in the page 0x80 of a SCSI disk: it stands after four bytes, of which the last two are its length.
fn serial_of_page(page: &[u8]) -> Option<String> {
    let length = u16::from_be_bytes([*page.get(2)?, *page.get(3)?]);
    let text = String::from_utf8_lossy(page.get(4..4 + usize::from(length))?).into_owned();
    Some(text.trim_matches([' ', '\0']).to_owned()).filter(|text| !text.is_empty())
}

/// The file behind a loop device, by the kernel: its path may be another file's by now. `None` if there is none.
fn behind_loop(device: &File) -> io::Result<Option<FileId>> {
    const LOOP_GET_STATUS64: libc::Ioctl = 0x4c05;
    // `struct loop_info64` of linux/loop.h: 232 bytes, of which the first 16 are device and inode of the file.
    let mut status = [0_u64; 29];
    // SAFETY: `device` is open. The kernel writes one `struct loop_info64` of 232 bytes, which has 64-bit alignment, to the
    // address, which is that of 29 times 8 bytes of this function. Another driver refuses the number.
    let code = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64, status.as_mut_ptr()) };
    if code != 0 {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::ENXIO | libc::ENOTTY | libc::EINVAL) => Ok(None),
            _ => Err(error),
        };
    }
    let number = number_text(device.metadata()?.rdev());
    let path = Path::new(BY_NUMBER).join(number).join("loop/backing_file");
    let path = fs::read_to_string(path).ok();
    Ok(Some(FileId {
        device: number_text(status[0]),
        inode: status[1],
        path: path.map(|path| path.trim_end_matches('\n').to_owned()),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(wwid: &str, diskseq: u64) -> DeviceIdentity {
        DeviceIdentity {
            number: Some("8:0".to_owned()),
            wwid: Some(wwid.to_owned()),
            diskseq: Some(diskseq),
            boot_id: Some("a".to_owned()),
            ..DeviceIdentity::nameless()
        }
    }

    fn file_id(device: &str, inode: u64, path: &str) -> FileId {
        FileId {
            device: device.to_owned(),
            inode,
            path: Some(path.to_owned()),
        }
    }

    fn is_other(likeness: &Likeness) -> bool {
        matches!(likeness, Likeness::Other(_))
    }

    #[test]
    fn a_disk_is_known_by_its_name_and_not_by_its_number() {
        let known = disk("naa.1", 7);
        assert_eq!(known.compare(&known), Likeness::Same);
        let grown = DeviceIdentity {
            size_bytes: 5,
            ..known.clone()
        };
        assert_eq!(known.compare(&grown), Likeness::Same);
        let moved = DeviceIdentity {
            number: Some("8:16".to_owned()),
            ..disk("naa.1", 9)
        };
        assert_eq!(known.compare(&moved), Likeness::SameName);
        let Likeness::Other(what) = known.compare(&disk("naa.2", 7)) else {
            panic!("it is another disk");
        };
        assert_eq!(what, "its world-wide name was naa.1, and is naa.2");
        let part = DeviceIdentity {
            partition: Some(Partition {
                number: 1,
                start_sector: 2048,
            }),
            ..known.clone()
        };
        assert!(is_other(&known.compare(&part)));
        // A name that only one of both has proves nothing.
        let mut unnamed = disk("", 9);
        unnamed.wwid = None;
        assert!(is_other(&known.compare(&unnamed)));
        unnamed.boot_id = Some("b".to_owned());
        assert_eq!(known.compare(&unnamed), Likeness::Unknown);
    }

    #[test]
    fn a_disk_without_a_name_is_known_until_it_goes_or_the_machine_restarts() {
        let mut known = disk("", 7);
        known.wwid = None;
        assert_eq!(known.compare(&known), Likeness::Same);
        let later = DeviceIdentity {
            diskseq: Some(8),
            ..known.clone()
        };
        assert!(is_other(&known.compare(&later)));
        let restarted = DeviceIdentity {
            boot_id: Some("b".to_owned()),
            ..known.clone()
        };
        assert_eq!(known.compare(&restarted), Likeness::Unknown);
        assert_eq!(known.lasting_name(), None);
    }

    #[test]
    fn a_loop_device_is_known_by_the_file_behind_it() {
        let over = |inode, device: &str, boot: &str| DeviceIdentity {
            number: Some("7:3".to_owned()),
            backing: Some(file_id(device, inode, "/srv/disk")),
            diskseq: Some(inode),
            boot_id: Some(boot.to_owned()),
            ..DeviceIdentity::nameless()
        };
        let known = over(12, "8:1", "a");
        assert_eq!(known.compare(&over(12, "8:1", "a")), Likeness::Same);
        assert!(is_other(&known.compare(&over(13, "8:1", "a"))));
        assert!(is_other(&known.compare(&over(12, "8:2", "a"))));
        // Numbers of file systems change with a restart, paths do not.
        assert_eq!(known.compare(&over(12, "8:2", "b")), Likeness::SameName);
        assert!(is_other(&known.compare(&over(13, "8:2", "b"))));
    }

    #[test]
    fn names_are_read_where_the_kernel_has_them() {
        let root = std::env::temp_dir().join(format!("bathyd-devices-{}", std::process::id()));
        let part = root.join("disk/part");
        fs::create_dir_all(&part).expect("directories");
        fs::create_dir_all(root.join("disk/device")).expect("directories");
        let write =
            |name: &str, bytes: &[u8]| fs::write(root.join("disk").join(name), bytes).expect("written");
        write("wwid", b"\n");
        write("device/wwid", b"naa.5000\n");
        write("device/vpd_pg80", b"\0\x80\0\x06 S123 ");
        write("diskseq", b"31\n");
        write("part/partition", b"2\n");
        write("part/start", b"4096\n");
        let disk = DeviceIdentity::listed(&root.join("disk"));
        assert_eq!(
            (
                disk.wwid.as_deref(),
                disk.serial.as_deref(),
                disk.diskseq,
                disk.partition
            ),
            (Some("naa.5000"), Some("S123"), Some(31), None)
        );
        let listed = DeviceIdentity::listed(&part);
        assert_eq!(listed.lasting_name().as_deref(), Some("naa.5000 partition 2"));
        assert_eq!(
            (listed.diskseq, listed.partition.map(|it| it.start_sector)),
            (Some(31), Some(4096))
        );
        fs::remove_dir_all(root).expect("removed");
    }

    #[test]
    fn what_is_stored_is_read_again_and_a_file_is_known_by_its_inode() {
        let path = std::env::temp_dir().join(format!("bathyd-file-{}", std::process::id()));
        fs::write(&path, [1; 5000]).expect("written");
        let known = DeviceIdentity::of(&File::open(&path).expect("a file")).expect("a file");
        let text = serde_json::to_string(&known).expect("JSON");
        assert_eq!(
            serde_json::from_str::<DeviceIdentity>(&text).expect("as written"),
            known
        );
        assert_eq!(known.size_bytes, 5000);
        let again = DeviceIdentity::of(&File::open(&path).expect("a file")).expect("a file");
        assert_eq!(known.compare(&again), Likeness::SameName);
        let held = File::open(&path).expect("the first one keeps its inode");
        fs::remove_file(&path).expect("removed");
        fs::write(&path, [1; 5000]).expect("another one");
        let other = DeviceIdentity::of(&File::open(&path).expect("a file")).expect("a file");
        assert!(is_other(&known.compare(&other)));
        assert!(DeviceIdentity::of(&File::open("/dev/null").expect("a device")).is_err());
        fs::remove_file(path).expect("removed");
        drop(held);
    }
}
