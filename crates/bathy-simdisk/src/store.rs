//! The data of a disk: a sparse file, and before it the writes that a power cut could still lose.
//!
//! A write that is not on the simulated medium yet is kept in memory (the volatile overlay) and reaches the file when the
//! model says that it is on the medium. So a power cut can lose such writes, keep some and not others, or tear them,
//! and a killed process has lost just what a disk without power has lost. What the file holds is the page cache's
//! business: a crash of the machine that runs the simulation is not simulated.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use bathy_random::Random;
use nix::fcntl::{FallocateFlags, Flock, FlockArg, fallocate};
use nix::sys::memfd::{MFdFlags, memfd_create};

use crate::model::RequestId;

/// The medium.
#[derive(Debug)]
pub struct Backing {
    file: Medium,
}

#[derive(Debug)]
enum Medium {
    Memory(File),
    Locked(Flock<File>),
}

impl Backing {
    /// A medium in memory, zeroes at first.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn memory(size_bytes: u64) -> io::Result<Self> {
        let file = File::from(memfd_create(c"bathy-simdisk", MFdFlags::MFD_CLOEXEC)?);
        file.set_len(size_bytes)?;
        Ok(Self {
            file: Medium::Memory(file),
        })
    }

    /// A medium in a sparse file, which is created if it does not exist. A second user is refused.
    ///
    /// # Errors
    /// Returns an error if the file cannot be opened, is in use, or has another size.
    pub fn open(path: &Path, size_bytes: u64) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)?;
        let file = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| match error {
            nix::errno::Errno::EAGAIN => io::Error::other("another process serves it"),
            error => error.into(),
        })?;
        let length = file.metadata()?.len();
        if length == 0 {
            file.set_len(size_bytes)?;
        } else if length != size_bytes {
            return Err(io::Error::other(format!(
                "it has {length} bytes instead of {size_bytes}"
            )));
        }
        Ok(Self {
            file: Medium::Locked(file),
        })
    }

    fn file(&self) -> &File {
        match &self.file {
            Medium::Memory(file) => file,
            Medium::Locked(file) => file,
        }
    }

    /// Read a range of the medium.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file().read_exact_at(buffer, offset)
    }

    /// Write a range of the medium.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn write(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.file().write_all_at(data, offset)
    }

    /// Make a range zeroes and give its space back.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        fallocate(self.file(), flags, offset as i64, length as i64).map_err(Into::into)
    }
}

/// A piece of an unflushed write, to be laid over what the medium holds.
#[derive(Debug, Clone)]
pub struct Piece {
    /// Where it lies on the disk.
    pub offset: u64,
    data: Arc<[u8]>,
    within: Range<usize>,
}

impl Piece {
    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.data[self.within.clone()]
    }
}

#[derive(Debug)]
struct Record {
    offset: u64,
    data: Arc<[u8]>,
    /// What of it a later write has not made void, as ranges of the disk.
    live: Vec<Range<u64>>,
}

impl Record {
    fn piece(&self, range: &Range<u64>) -> Piece {
        Piece {
            offset: range.start,
            data: Arc::clone(&self.data),
            within: (range.start - self.offset) as usize..(range.end - self.offset) as usize,
        }
    }
}

/// What a power cut does to writes that were not flushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PowerCut {
    /// All of them are lost.
    Lose,
    /// Each is lost or kept, whatever the order in which they were made.
    Reorder,
    /// Each is lost, kept, or kept in some of its sectors only.
    Tear,
}

/// What a power cut did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Losses {
    /// Unflushed writes that are on the medium.
    pub kept: u64,
    /// Unflushed writes that are gone.
    pub lost: u64,
    /// Unflushed writes of which some sectors are gone.
    pub torn: u64,
}

/// Writes that are not on the medium, by age.
#[derive(Debug, Default)]
pub struct Overlay {
    records: BTreeMap<RequestId, Record>,
    by_offset: BTreeSet<(u64, RequestId)>,
    longest: u64,
}

impl Overlay {
    /// Whether nothing is at risk.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Keep a write. Later writes have greater names.
    pub fn write(&mut self, id: RequestId, offset: u64, data: &[u8]) {
        let end = offset + data.len() as u64;
        self.longest = self.longest.max(data.len() as u64);
        self.by_offset.insert((offset, id));
        let record = Record {
            offset,
            data: data.into(),
            live: std::iter::once(offset..end).collect(),
        };
        self.records.insert(id, record);
    }

    fn overlapping(&self, range: &Range<u64>) -> Vec<RequestId> {
        let first = range.start.saturating_sub(self.longest);
        let found = self
            .by_offset
            .range((first, 0)..(range.end, 0))
            .map(|(_, id)| *id);
        let mut ids: Vec<RequestId> = found.filter(|id| self.records.contains_key(id)).collect();
        ids.sort_unstable();
        ids
    }

    /// The pieces that lie in a range, oldest first: a later piece hides an earlier one.
    pub fn pieces(&self, offset: u64, length: u64) -> Vec<Piece> {
        if self.records.is_empty() {
            return Vec::new();
        }
        let range = offset..offset + length;
        let records = self
            .overlapping(&range)
            .into_iter()
            .filter_map(|id| self.records.get(&id));
        records
            .flat_map(|record| {
                record
                    .live
                    .iter()
                    .filter_map(|it| meet(it, &range))
                    .map(|it| record.piece(&it))
            })
            .collect()
    }

    fn remove(&mut self, id: RequestId) -> Option<Record> {
        let record = self.records.remove(&id)?;
        self.by_offset.remove(&(record.offset, id));
        if self.records.is_empty() {
            self.longest = 0;
        }
        Some(record)
    }

    /// A write is on the medium now. Earlier writes to the same place, if they come later, must not undo it.
    ///
    /// # Errors
    /// Returns the error of writing to the file.
    pub fn commit(&mut self, id: RequestId, backing: &Backing) -> io::Result<()> {
        let Some(record) = self.remove(id) else {
            return Ok(());
        };
        for range in &record.live {
            self.cut(range, id);
            backing.write(record.piece(range).bytes(), range.start)?;
        }
        Ok(())
    }

    /// Take a range out of the writes before `before`.
    fn cut(&mut self, range: &Range<u64>, before: RequestId) {
        for id in self.overlapping(range) {
            if let Some(record) = self.records.get_mut(&id).filter(|_| id < before) {
                record.live = record.live.iter().flat_map(|it| without(it, range)).collect();
            }
        }
    }

    /// A write failed: nothing of it remains.
    pub fn forget(&mut self, id: RequestId) {
        self.remove(id);
    }

    /// The range was discarded.
    pub fn discard(&mut self, offset: u64, length: u64) {
        self.cut(&(offset..offset + length), RequestId::MAX);
    }

    /// Everything reaches the medium, as when a drive is told to stop.
    ///
    /// # Errors
    /// Returns the first error of writing to the file.
    pub fn commit_all(&mut self, backing: &Backing) -> io::Result<()> {
        let ids: Vec<RequestId> = self.records.keys().copied().collect();
        ids.into_iter().try_for_each(|id| self.commit(id, backing))
    }

    /// Power is gone: what of the overlay reached the medium is decided by `random`, in units of `sector_bytes`.
    ///
    /// # Errors
    /// Returns the first error of writing to the file.
    pub fn power_cut(
        &mut self,
        cut: PowerCut,
        sector_bytes: u64,
        random: &mut Random,
        backing: &Backing,
    ) -> io::Result<Losses> {
        let mut losses = Losses::default();
        self.by_offset.clear();
        for record in std::mem::take(&mut self.records).into_values() {
            let fate = match cut {
                PowerCut::Lose => 0,
                PowerCut::Reorder => random.below(2) * 2,
                PowerCut::Tear => random.below(3),
            };
            let (mut kept, mut lost) = (0, 0);
            for range in record.live.iter().flat_map(|range| sectors(range, sector_bytes)) {
                if fate == 2 || (fate == 1 && random.happens(0.5)) {
                    backing.write(record.piece(&range).bytes(), range.start)?;
                    kept += 1;
                } else {
                    lost += 1;
                }
            }
            match (kept, lost) {
                (_, 0) => losses.kept += 1,
                (0, _) => losses.lost += 1,
                _ => losses.torn += 1,
            }
        }
        Ok(losses)
    }
}

fn meet(one: &Range<u64>, other: &Range<u64>) -> Option<Range<u64>> {
    let (start, end) = (one.start.max(other.start), one.end.min(other.end));
    (start < end).then_some(start..end)
}

fn without(whole: &Range<u64>, hole: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
    let before = whole.start..whole.end.min(hole.start);
    let after = whole.start.max(hole.end)..whole.end;
    [before, after].into_iter().filter(|it| it.start < it.end)
}

/// Cut a range at multiples of the sector size.
fn sectors(range: &Range<u64>, sector_bytes: u64) -> impl Iterator<Item = Range<u64>> + use<> {
    let (mut start, end) = (range.start, range.end);
    std::iter::from_fn(move || {
        let next = ((start / sector_bytes + 1) * sector_bytes).min(end);
        let sector = start..next;
        start = next;
        (sector.start < sector.end).then_some(sector)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SIZE: usize = 64 << 10;

    fn view(overlay: &Overlay, backing: &Backing) -> Vec<u8> {
        let mut bytes = vec![0; SIZE];
        backing.read(&mut bytes, 0).unwrap();
        for piece in overlay.pieces(0, SIZE as u64) {
            let start = piece.offset as usize;
            bytes[start..start + piece.bytes().len()].copy_from_slice(piece.bytes());
        }
        bytes
    }

    #[derive(Debug, Clone)]
    enum Step {
        Write(u64, u64),
        Commit(usize),
        Discard(u64, u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let range = (0..120_u64, 1..8_u64);
        prop_oneof![
            4 => range.clone().prop_map(|(at, length)| Step::Write(at * 512, length * 512)),
            3 => any::<prop::sample::Index>().prop_map(|index| Step::Commit(index.index(1 << 20))),
            1 => range.prop_map(|(at, length)| Step::Discard(at * 512, length * 512)),
        ]
    }

    proptest! {
        /// Whatever order the medium takes the writes in, reads see the last write; and after a power cut every sector
        /// is one that was written there after its last durable state, or that state.
        #[test]
        fn writes_are_seen_and_cuts_lose_only_what_was_not_durable(
            steps in prop::collection::vec(step(), 1..60),
            seed in any::<u64>(),
            cut in prop_oneof![Just(PowerCut::Lose), Just(PowerCut::Reorder), Just(PowerCut::Tear)],
        ) {
            let backing = Backing::memory(SIZE as u64).unwrap();
            let mut overlay = Overlay::default();
            let mut expected = vec![0_u8; SIZE];
            // For each sector: what may be there after a cut. The first is durable.
            let mut allowed: Vec<Vec<(u64, u8)>> = vec![vec![(0, 0)]; SIZE / 512];
            let mut open: Vec<(u64, u64, u64)> = Vec::new();
            for (index, step) in steps.iter().enumerate() {
                let id = index as u64 + 1;
                match *step {
                    Step::Write(offset, length) => {
                        let value = id as u8;
                        overlay.write(id, offset, &vec![value; length as usize]);
                        expected[offset as usize..(offset + length) as usize].fill(value);
                        open.push((id, offset, length));
                        for sector in &mut allowed[offset as usize / 512..(offset + length) as usize / 512] {
                            sector.push((id, value));
                        }
                    }
                    Step::Commit(index) if !open.is_empty() => {
                        let (id, offset, length) = open.swap_remove(index % open.len());
                        overlay.commit(id, &backing).unwrap();
                        for sector in &mut allowed[offset as usize / 512..(offset + length) as usize / 512] {
                            sector.retain(|it| it.0 >= id);
                        }
                    }
                    Step::Commit(_) => {}
                    Step::Discard(offset, length) => {
                        overlay.discard(offset, length);
                        backing.punch(offset, length).unwrap();
                        expected[offset as usize..(offset + length) as usize].fill(0);
                        for sector in &mut allowed[offset as usize / 512..(offset + length) as usize / 512] {
                            *sector = vec![(id, 0)];
                        }
                    }
                }
                prop_assert_eq!(&view(&overlay, &backing), &expected);
            }
            overlay.power_cut(cut, 512, &mut Random::new(seed), &backing).unwrap();
            prop_assert!(overlay.is_empty());
            let after = view(&overlay, &backing);
            for (sector, bytes) in after.chunks(512).enumerate() {
                prop_assert!(bytes.iter().all(|it| *it == bytes[0]), "sector {} is torn inside", sector);
                let may = allowed[sector].iter().any(|it| it.1 == bytes[0]);
                prop_assert!(may, "sector {} holds {}, may hold {:?}", sector, bytes[0], allowed[sector]);
            }
        }
    }

    #[test]
    fn a_seed_decides_what_is_lost() {
        let outcome = |seed| {
            let backing = Backing::memory(SIZE as u64).unwrap();
            let mut overlay = Overlay::default();
            (0..16).for_each(|id| overlay.write(id + 1, id * 4096, &[7; 4096]));
            let losses = overlay
                .power_cut(PowerCut::Tear, 512, &mut Random::new(seed), &backing)
                .unwrap();
            (losses, view(&overlay, &backing))
        };
        assert_eq!(outcome(5), outcome(5));
        assert_ne!(outcome(5).1, outcome(6).1);
        let losses = outcome(5).0;
        assert_eq!(losses.kept + losses.lost + losses.torn, 16);
        assert!(
            losses.kept > 0 && losses.lost > 0 && losses.torn > 0,
            "{losses:?}"
        );
    }

    #[test]
    fn a_file_is_served_once_and_keeps_its_size() {
        let path = std::env::temp_dir().join(format!("bathy-simdisk-store-{}", std::process::id()));
        let first = Backing::open(&path, 1 << 20).unwrap();
        assert!(
            Backing::open(&path, 1 << 20)
                .unwrap_err()
                .to_string()
                .contains("another process")
        );
        drop(first);
        assert!(
            Backing::open(&path, 2 << 20)
                .unwrap_err()
                .to_string()
                .contains("1048576 bytes")
        );
        std::fs::remove_file(&path).unwrap();
    }
}
