//! How long a request of a hard disk is on its way through this machine: the time by which replies are given ahead.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Instant;

use bathy_random::Random;
use nix::fcntl::OFlag;

use crate::disk::Disk;

const READS: usize = 25;
/// A 24th part of a revolution at 7,200 rpm. Where the way takes longer the machine is busy, and will not be later.
const LEAD_MAX_NS: u64 = 350_000;

/// Measure how much longer random reads of a disk that nobody uses yet take, seen from `path` on the mount, than by the
/// disk's model: the lead in nanoseconds. Processors sleep between the reads, as they do between those of a load with
/// one request in flight. The median is taken.
///
/// # Errors
/// Returns an error if the disk cannot be read.
pub fn measure(disk: &Disk, path: &Path) -> io::Result<u64> {
    // The kernel answers nothing from a cache: the mount is of direct I/O.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(OFlag::O_CLOEXEC.bits())
        .open(path)?;
    let mut places = Random::new(1);
    let mut block = [0; 4096];
    let mut excess_ns = Vec::with_capacity(READS);
    for _ in 0..READS {
        let offset = places.below(disk.size_bytes() / 4096) * 4096;
        let (before_ns, began) = (disk.read_service_ns(), Instant::now());
        file.read_exact_at(&mut block, offset)?;
        let taken_ns = began.elapsed().as_nanos() as u64;
        excess_ns.push(taken_ns.saturating_sub(disk.read_service_ns() - before_ns));
    }
    excess_ns.sort_unstable();
    Ok(excess_ns[READS / 2].min(LEAD_MAX_NS))
}
