//! A device, and by what a change of it without the cache is noticed.
//!
//! A device has no times. Its stamp is what the kernel counts of writes to it since the machine started, and what can be known of
//! changes from below: the file behind a loop device has times, and who merges a snapshot puts another device below a logical
//! volume. What changes it in an array, or in a virtual machine's host, is not seen here. So a stamp that is the same is believed
//! with a sample of lines only, and a device that may be another one is not believed at all.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use bathy_cache::{BlockStore, FileStore, Stamp, Trust};

use crate::device_identity::boot_id;

pub(crate) struct CountedDevice {
    store: FileStore,
    number: u64,
    trust: Trust,
    /// It was written to here: a counter of its writes that is 0 counts nothing.
    is_written: AtomicBool,
}

impl CountedDevice {
    pub(crate) fn new(store: FileStore, number: u64, trust: Trust) -> Self {
        Self {
            store,
            number,
            trust,
            is_written: AtomicBool::new(false),
        }
    }

    /// A stamp of the store, with what is known of changes.
    fn signed(&self, stamp: Stamp) -> Stamp {
        // Without counters there is nothing by which a change would be known: the device is compared.
        let is_written = self.is_written.load(Ordering::Relaxed);
        let signs = signs(self.number, &self.attributes(), is_written);
        signs.map_or(stamp, |(id, modified_ns, changed_ns)| Stamp {
            id,
            modified_ns,
            changed_ns,
            ..stamp
        })
    }

    fn attributes(&self) -> PathBuf {
        let (major, minor) = (rustix::fs::major(self.number), rustix::fs::minor(self.number));
        PathBuf::from(format!("/sys/dev/block/{major}:{minor}"))
    }
}

fn read(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// The attributes of the disk of a partition, and those of any other device itself: what is above it in the tree of the kernel
/// may be another disk (that of `mmcblk0boot0` is `mmcblk0`).
fn disk_of(attributes: &Path) -> Option<PathBuf> {
    if attributes.join("partition").exists() {
        return fs::canonicalize(attributes.join("..")).ok();
    }
    Some(attributes.to_owned())
}

/// What a device counts of its I/O since it is there.
struct Sectors {
    read: u64,
    written: u64,
    discarded: u64,
}

impl Sectors {
    /// `None` if they are not counted.
    fn of(attributes: &Path) -> Option<Self> {
        const READ: usize = 2;
        const WRITTEN: usize = 6;
        const DISCARDED: usize = 13;
        // A device for which this is switched off counts nothing.
        if read(&disk_of(attributes)?.join("queue/iostats"))? != "1" {
            return None;
        }
        let counters = read(&attributes.join("stat"))?;
        let counters: Vec<&str> = counters.split_whitespace().collect();
        Some(Self {
            read: counters.get(READ)?.parse().ok()?,
            written: counters.get(WRITTEN)?.parse().ok()?,
            // Older kernels do not count discards.
            discarded: counters.get(DISCARDED).unwrap_or(&"0").parse().ok()?,
        })
    }

    /// Whether the driver counts: some count nothing, whatever the queue says. Who asks has read from the device, and
    /// written to it if `is_written`.
    fn are_counted(&self, is_written: bool) -> bool {
        self.written > 0 || self.read > 0 && !is_written
    }

    /// Sectors written and, in the upper half, discarded.
    fn changed(&self) -> u64 {
        self.written.wrapping_add(self.discarded.rotate_left(32))
    }
}

/// What was written to the disk of a partition past all of its partitions: what the disk counts of its own.
fn written_past_partitions(attributes: &Path) -> Option<u64> {
    if !attributes.join("partition").exists() {
        return Some(0);
    }
    let disk = disk_of(attributes)?;
    let mut past = Sectors::of(&disk)?.changed();
    for entry in fs::read_dir(&disk).ok()?.flatten() {
        if entry.path().join("partition").exists() {
            past = past.wrapping_sub(Sectors::of(&entry.path())?.changed());
        }
    }
    Some(past)
}

/// Counters of a disk and its partitions are read one after the other, and others are written to meanwhile: what is the same
/// twice was read at rest. `None` if that does not happen.
fn settled<T: PartialEq>(mut count: impl FnMut() -> Option<T>) -> Option<T> {
    const TRIES: usize = 1000;
    let mut last = count()?;
    for _ in 0..TRIES {
        let next = count()?;
        if next == last {
            return Some(next);
        }
        last = next;
    }
    None
}

/// The devices below a mapped one or an array, by name and by the kernel's sequence number, with those below them.
fn devices_below(attributes: &Path, found: &mut Vec<(String, Option<String>)>) {
    let Ok(below) = fs::read_dir(attributes.join("slaves")) else {
        return;
    };
    let mut below: Vec<PathBuf> = below.flatten().map(|entry| entry.path()).collect();
    below.sort();
    for path in below {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        found.push((name.unwrap_or_default(), read(&path.join("diskseq"))));
        devices_below(&path, found);
    }
}

/// Size and times of the file behind a loop device, nothing for other devices; `None` if the file is not known.
fn times_behind(attributes: &Path) -> Option<Vec<i64>> {
    let Some(path) = read(&attributes.join("loop/backing_file")) else {
        return Some(Vec::new());
    };
    let file = fs::metadata(path).ok()?;
    Some(vec![
        file.st_size() as i64,
        file.st_mtime(),
        file.st_mtime_nsec(),
        file.st_ctime(),
        file.st_ctime_nsec(),
    ])
}

/// Names the time since the machine was started: a half of 128 random bits, and never 0, which would say that there are no
/// times.
fn boot() -> Option<u64> {
    let digits = boot_id()?.replace('-', "");
    Some(u64::from_str_radix(digits.get(..16)?, 16).ok()? | 1)
}

/// The parts of a stamp that are no sizes: what is below, the time since the machine was started, and what was written.
fn signs(number: u64, attributes: &Path, is_written: bool) -> Option<(u64, u64, u64)> {
    let disk = disk_of(attributes)?;
    let mut below = Vec::new();
    devices_below(&disk, &mut below);
    let mut hash = DefaultHasher::new();
    let past = settled(|| written_past_partitions(attributes))?;
    (number, past, below, times_behind(&disk)?).hash(&mut hash);
    let sectors = Sectors::of(attributes)?;
    if !sectors.are_counted(is_written) {
        return None;
    }
    Some((hash.finish(), boot()?, sectors.changed()))
}

impl BlockStore for CountedDevice {
    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.store.read(buffer, offset)
    }

    fn write(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.is_written.store(true, Ordering::Relaxed);
        self.store.write(data, offset)
    }

    fn write_some(&self, data: &[u8], offset: u64) -> io::Result<usize> {
        self.is_written.store(true, Ordering::Relaxed);
        self.store.write_some(data, offset)
    }

    fn flush(&self) -> io::Result<()> {
        self.store.flush()
    }

    fn stamp(&self) -> io::Result<Stamp> {
        self.store.stamp().map(|stamp| self.signed(stamp))
    }

    fn look(&self) -> io::Result<Stamp> {
        self.store.look().map(|stamp| self.signed(stamp))
    }

    fn size_bytes(&self) -> io::Result<u64> {
        self.store.size_bytes()
    }

    fn trust(&self) -> Trust {
        self.trust
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Attributes as the kernel shows them, in a directory of this test.
    struct Attributes(PathBuf);

    impl Attributes {
        fn new(test: &str) -> Self {
            let root = std::env::temp_dir().join(format!("bathyd-counted-{}-{test}", std::process::id()));
            fs::create_dir_all(root.join("disk/slaves")).expect("directories");
            fs::create_dir_all(root.join("disk/part1")).expect("directories");
            // A disk that the kernel lists below another one.
            fs::create_dir_all(root.join("disk/boot0/slaves")).expect("directories");
            fs::create_dir_all(root.join("disk/part2")).expect("directories");
            fs::create_dir_all(root.join("disk/queue")).expect("directories");
            fs::create_dir_all(root.join("leaf")).expect("directories");
            let found = Self(root);
            for (name, text) in [
                ("disk/queue/iostats", "1\n"),
                ("disk/part1/partition", "1\n"),
                ("disk/part2/partition", "2\n"),
                ("leaf/diskseq", "7\n"),
            ] {
                found.write(name, text);
            }
            for (name, sectors) in [("disk", 50), ("disk/part1", 20), ("disk/part2", 30)] {
                found.set_written(name, sectors);
            }
            found
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.0.join(name), text).expect("written");
        }

        fn set_written(&self, name: &str, sectors: u64) {
            self.write(
                &format!("{name}/stat"),
                &format!("1 2 3 4 5 6 {sectors} 8 9 10 11 12 13 0 15\n"),
            );
        }

        fn signs(&self) -> Option<(u64, u64, u64)> {
            signs(9, &self.0.join("disk/part1"), true)
        }
    }

    impl Drop for Attributes {
        fn drop(&mut self) {
            let _gone = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn whatever_changes_a_device_or_what_is_below_it_changes_its_stamp_and_its_neighbours_do_not() {
        let device = Attributes::new("stamp");
        let known = device.signs().expect("it is counted");
        assert_eq!(device.signs(), Some(known));
        device.set_written("disk/part2", 35);
        device.set_written("disk", 55);
        assert_eq!(device.signs(), Some(known), "another partition was written to");
        device.set_written("disk", 56);
        assert_ne!(device.signs(), Some(known), "the whole disk was written to");
        device.set_written("disk", 55);
        device.set_written("disk/part1", 20);
        assert_eq!(device.signs(), Some(known));
        std::os::unix::fs::symlink(device.0.join("leaf"), device.0.join("disk/slaves/leaf")).expect("a link");
        let mapped = device.signs();
        assert_ne!(mapped, Some(known), "something is below it");
        device.write("leaf/diskseq", "8\n");
        assert_ne!(device.signs(), mapped, "another one is below it");
        device.write("disk/queue/iostats", "0\n");
        assert_eq!(device.signs(), None, "nothing is counted");
    }

    #[test]
    fn a_device_whose_counters_count_nothing_is_not_known_to_be_unchanged() {
        let device = Attributes::new("nothing");
        let signs = |is_written| signs(9, &device.0.join("disk/part1"), is_written);
        let counting = |read: u64, written: u64| {
            let text = format!("1 2 {read} 4 5 6 {written} 8 9 10 11 12 13 0 15\n");
            device.write("disk/part1/stat", &text);
        };
        counting(0, 0);
        assert_eq!((signs(false), signs(true)), (None, None));
        counting(8, 0);
        assert!(signs(false).is_some(), "it was only read");
        assert_eq!(signs(true), None, "its writes are not counted");
        counting(0, 8);
        assert!(signs(true).is_some());
    }

    #[test]
    fn what_is_above_a_device_in_the_tree_says_nothing_of_it_unless_it_is_a_partition() {
        let device = Attributes::new("above");
        device.set_written("disk/boot0", 7);
        // That of the disk above.
        device.write("disk/queue/iostats", "1\n");
        let signs = || signs(9, &device.0.join("disk/boot0"), true);
        assert_eq!(signs(), None, "it is not known whether it counts");
        fs::create_dir_all(device.0.join("disk/boot0/queue")).expect("a directory");
        device.write("disk/boot0/queue/iostats", "1\n");
        let known = signs();
        assert!(known.is_some());
        device.set_written("disk", 500);
        device.write("disk/queue/iostats", "0\n");
        assert_eq!(signs(), known);
    }

    #[test]
    fn counters_are_read_until_two_agree_but_not_forever() {
        // Others are written to until the third look is over.
        let mut looks = [5, 6, 7, 7].into_iter();
        assert_eq!(settled(|| looks.next()), Some(7));
        assert_eq!(looks.next(), None);
        let mut count = 0;
        let never = settled(|| {
            count += 1;
            Some(count)
        });
        assert_eq!((never, count), (None, 1001));
        assert_eq!(settled(|| None::<u64>), None);
    }

    #[test]
    fn the_file_behind_a_loop_device_is_known_by_its_times() {
        let device = Attributes::new("loop");
        let file = device.0.join("file");
        fs::create_dir_all(device.0.join("disk/loop")).expect("a directory");
        device.write("disk/loop/backing_file", &format!("{}\n", file.display()));
        assert_eq!(device.signs(), None, "it is not known");
        fs::write(&file, "one").expect("written");
        let known = device.signs().expect("it has times");
        let times = fs::FileTimes::new().set_modified(std::time::SystemTime::UNIX_EPOCH);
        fs::File::options()
            .write(true)
            .open(&file)
            .and_then(|file| file.set_times(times))
            .expect("set");
        assert_ne!(device.signs(), Some(known));
    }
}
