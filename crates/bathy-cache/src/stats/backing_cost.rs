//! What a read of a source costs its disk: a time for the access and a time for each byte, as the reads of misses took.
//!
//! A read that shares the disk with others took some of their time: its latency is divided by the reads of the source that
//! were under way, which is the part of the disk's time that was its own. Latency against bytes is a straight line, fitted by
//! least squares over about the last thousand reads. Where all reads are of one size there is no slope, and that of a fast disk
//! is taken: then the disk counts as one with slow accesses, which is true of a hard disk and hardly matters to flash, whose
//! whole latency is short.
//!
//! Limits: one line for each source. A directory whose files lie on different disks, such as an OSD's `block` and `block.db`,
//! gets a mean of both.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What a source's disk takes for a read.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ReadCost {
    /// For the access.
    pub access_ns: f64,
    /// For each byte.
    pub transfer_ns_per_byte: f64,
    /// Reads that this is known from.
    pub reads: u64,
}

impl ReadCost {
    /// Bytes that are transferred in the time of an access.
    pub fn break_even_bytes(&self) -> u64 {
        (self.access_ns / self.transfer_ns_per_byte) as u64
    }
}

/// A read counts less by this part with each later one.
const DECAY: f64 = 1.0 / 1024.0;
/// As many reads as the first guess is worth.
const GUESS_READS: f64 = 8.0;
/// Reads are of one size if their standard deviation is below a unit of 4 KiB.
const SPREAD_BYTES: f64 = 4096.0;
/// 500 MB/s: of reads of one size.
const TRANSFER_NS_PER_BYTE: f64 = 2.0;
/// 10 GB/s to 20 MB/s; what is beyond comes of chance.
const TRANSFER_NS_PER_BYTE_BOUNDS: (f64, f64) = (0.1, 50.0);
/// 1 us to 1 s.
const ACCESS_NS_BOUNDS: (f64, f64) = (1e3, 1e9);
/// A read that takes longer than so many means counts as these: it waited for something else.
const OUTLIER: f64 = 16.0;
/// An access of the disk that is guessed: a hard disk.
const GUESS_ACCESS_NS: f64 = 8e6;

/// Sums over reads, of which the earlier ones count less.
#[derive(Clone, Copy)]
struct Fit {
    weight: f64,
    bytes: f64,
    ns: f64,
    bytes_squared: f64,
    bytes_ns: f64,
    reads: u64,
}

impl Fit {
    fn guess(break_even_bytes: u64) -> Self {
        let mut fit = Self {
            weight: 0.0,
            bytes: 0.0,
            ns: 0.0,
            bytes_squared: 0.0,
            bytes_ns: 0.0,
            reads: 0,
        };
        let ns_per_byte = GUESS_ACCESS_NS / break_even_bytes.max(1) as f64;
        for bytes in [4096.0, 65_536.0] {
            fit.add(bytes, GUESS_ACCESS_NS + bytes * ns_per_byte, GUESS_READS / 2.0);
        }
        fit
    }

    fn add(&mut self, bytes: f64, ns: f64, weight: f64) {
        self.weight += weight;
        self.bytes += bytes * weight;
        self.ns += ns * weight;
        self.bytes_squared += bytes * bytes * weight;
        self.bytes_ns += bytes * ns * weight;
    }

    fn count(&mut self, bytes: u64, ns: f64) {
        let kept = 1.0 - DECAY;
        for sum in [
            &mut self.weight,
            &mut self.bytes,
            &mut self.ns,
            &mut self.bytes_squared,
            &mut self.bytes_ns,
        ] {
            *sum *= kept;
        }
        let most = OUTLIER * self.ns / self.weight;
        self.add(bytes as f64, ns.min(most), 1.0);
        self.reads += 1;
    }

    fn cost(&self) -> ReadCost {
        let (bytes, ns) = (self.bytes / self.weight, self.ns / self.weight);
        let variance = self.bytes_squared / self.weight - bytes * bytes;
        let slope = if variance < SPREAD_BYTES * SPREAD_BYTES {
            TRANSFER_NS_PER_BYTE
        } else {
            (self.bytes_ns / self.weight - bytes * ns) / variance
        };
        let (least, most) = TRANSFER_NS_PER_BYTE_BOUNDS;
        let transfer_ns_per_byte = slope.clamp(least, most);
        let (least, most) = ACCESS_NS_BOUNDS;
        ReadCost {
            access_ns: (ns - bytes * transfer_ns_per_byte).clamp(least, most),
            transfer_ns_per_byte,
            reads: self.reads,
        }
    }
}

/// See the [module](self).
pub(crate) struct BackingCost {
    fit: Mutex<Fit>,
    under_way: AtomicU32,
    break_even_bytes: AtomicU64,
    is_measured: bool,
}

impl BackingCost {
    /// Not one of `sync`: nobody waits for anything else meanwhile.
    fn fit(&self) -> MutexGuard<'_, Fit> {
        self.fit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `break_even_bytes` is the first guess, or with `is_measured` false the truth.
    pub(crate) fn new(break_even_bytes: u64, is_measured: bool) -> Self {
        Self {
            fit: Mutex::new(Fit::guess(break_even_bytes)),
            under_way: AtomicU32::new(0),
            break_even_bytes: AtomicU64::new(break_even_bytes),
            is_measured,
        }
    }

    /// Carries out a read of so many bytes, and counts it unless it fails.
    pub(crate) fn timed<E>(&self, bytes: usize, read: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let before = self.under_way.fetch_add(1, Ordering::Relaxed) + 1;
        let begun = Instant::now();
        let result = read();
        let elapsed = begun.elapsed();
        let after = self.under_way.fetch_sub(1, Ordering::Relaxed);
        if result.is_ok() && bytes > 0 && self.is_measured {
            self.count(bytes as u64, elapsed, f64::from(before + after) / 2.0);
        }
        result
    }

    fn count(&self, bytes: u64, elapsed: Duration, under_way: f64) {
        let mut fit = self.fit();
        fit.count(bytes, elapsed.as_nanos() as f64 / under_way);
        self.break_even_bytes
            .store(fit.cost().break_even_bytes(), Ordering::Relaxed);
    }

    pub(crate) fn break_even_bytes(&self) -> u64 {
        self.break_even_bytes.load(Ordering::Relaxed)
    }

    /// What was measured, after the first read.
    pub(crate) fn measured(&self) -> Option<ReadCost> {
        let cost = self.fit().cost();
        (cost.reads > 0).then_some(cost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUESS: u64 = 1_200_000;

    /// Reads of these sizes from a disk, now and then with a wait that has nothing to do with it, `under_way` at a time.
    fn measured(access_us: u64, mb_per_s: u64, sizes: &[u64], under_way: u32) -> BackingCost {
        let cost = BackingCost::new(GUESS, true);
        for number in 0..4000_u64 {
            let bytes = sizes[number as usize % sizes.len()];
            // The access takes from half of its time to one and a half.
            let noise = (number * 7919 % 1000) as f64 / 1000.0 + 0.5;
            let mut ns = access_us as f64 * 1e3 * noise + bytes as f64 * 1e3 / mb_per_s as f64;
            if number % 500 == 499 {
                ns = 3e9;
            }
            cost.count(
                bytes,
                Duration::from_nanos(ns as u64 * u64::from(under_way)),
                f64::from(under_way),
            );
        }
        cost
    }

    #[test]
    fn a_hard_disk_and_flash_are_told_apart_however_many_reads_are_under_way() {
        let sizes = [4096, 65_536, 16_384, 8192];
        for under_way in [1, 16] {
            let hdd = measured(8000, 150, &sizes, under_way).break_even_bytes();
            let ssd = measured(100, 500, &sizes, under_way).break_even_bytes();
            assert!(hdd > 400_000, "{hdd}");
            assert!((30_000..90_000).contains(&ssd), "{ssd}");
        }
    }

    #[test]
    fn reads_of_one_size_say_how_long_accesses_are_at_most() {
        assert!(measured(8000, 150, &[65_536], 1).break_even_bytes() > 1_000_000);
        assert!(measured(100, 500, &[65_536], 1).break_even_bytes() < 100_000);
        assert!(measured(100, 500, &[4096], 1).break_even_bytes() < 100_000);
    }

    #[test]
    fn before_the_first_read_and_where_nothing_is_measured_the_guess_holds() {
        let guessed = BackingCost::new(GUESS, true);
        assert_eq!((guessed.break_even_bytes(), guessed.measured()), (GUESS, None));
        let fixed = BackingCost::new(GUESS, false);
        assert_eq!(fixed.timed(4096, || Ok::<_, ()>(())), Ok(()));
        assert_eq!((fixed.break_even_bytes(), fixed.measured()), (GUESS, None));
        assert_eq!(guessed.timed(4096, || Err(())), Err(()));
        assert_eq!(guessed.measured(), None);
        assert_eq!(guessed.timed(4096, || Ok::<_, ()>(())), Ok(()));
        assert_eq!(guessed.measured().map(|cost| cost.reads), Some(1));
        assert_eq!(guessed.under_way.load(Ordering::Relaxed), 0);
    }
}
