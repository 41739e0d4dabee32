//! Service-time models: when does a disk complete a request?
//!
//! A model is a function of the requests, their times and a seed. It has no clock, no threads and no data; the caller
//! says what time it is and asks when something happens next. So the same model runs under a test's virtual time, a
//! million times faster than the disk, and behind a mounted file in real time.
//!
//! ```
//! use bathy_simdisk::model::{Op, Outcome, Request, Settings};
//! use bathy_simdisk::profile::profile;
//! let mut disk = profile("hdd-7200-4t").unwrap().device(&Settings::new(1 << 40, 1));
//! disk.submit(Request::new(7, Op::Read, 123 << 30, 4096), 0);
//! let mut outcomes = Vec::new();
//! while let Some(time_ns) = disk.next_event_ns() {
//!     disk.advance(time_ns, &mut outcomes);
//! }
//! assert!(matches!(outcomes[..], [Outcome::Completed { id: 7, at_ns: 1_000_000.. }]));
//! ```

pub mod flash;
pub mod geometry;
pub mod hdd;
mod read_ahead;
pub mod seek;
mod write_cache;
pub mod zero;

use std::fmt::Debug;

/// Names a request in its outcomes. The caller counts them upwards.
pub type RequestId = u64;

/// What is asked of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Read a range.
    Read,
    /// Write a range; with `durable` it completes when it is on the medium (FUA).
    Write {
        /// Force unit access.
        durable: bool,
    },
    /// Complete when everything that was completed before is on the medium.
    Flush,
    /// Forget a range.
    Discard,
}

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Its name.
    pub id: RequestId,
    /// What is asked.
    pub op: Op,
    /// First byte; 0 for a flush.
    pub offset: u64,
    /// Bytes; 0 for a flush.
    pub length: u64,
    /// Time that the disk spends on it besides: a retry, a recalibration (a fault adds it).
    pub extra_ns: u64,
}

impl Request {
    /// A request without extra time.
    pub fn new(id: RequestId, op: Op, offset: u64, length: u64) -> Self {
        Self {
            id,
            op,
            offset,
            length,
            extra_ns: 0,
        }
    }
}

/// What a disk reports, in the order in which it happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The disk answers the request.
    Completed {
        /// The request.
        id: RequestId,
        /// When.
        at_ns: u64,
    },
    /// The data of the write is on the medium: a power cut does not lose it any more. A write is reported durable
    /// before it completes if its completion promises that, and before the flush that waits for it completes.
    Durable {
        /// The write.
        id: RequestId,
    },
}

/// What a device of a profile is made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// The size of the simulated device. Zones and strokes of a hard disk are scaled to it.
    pub size_bytes: u64,
    /// Seed of what is random (flash latencies).
    pub seed: u64,
    /// Volatile write cache on or off; `None` is the profile's own setting.
    pub write_cache: Option<bool>,
}

impl Settings {
    /// A size and a seed, the rest as the profile has it.
    pub fn new(size_bytes: u64, seed: u64) -> Self {
        Self {
            size_bytes,
            seed,
            write_cache: None,
        }
    }
}

/// What a device did, counted by its model.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Work {
    /// Time that the arm (or the average die) was busy, destaging included.
    pub mechanism_busy_ns: u64,
    /// Movements of the arm to another track, without those of a sequential stream to the next track.
    pub seeks: u64,
    /// Time of these movements.
    pub seek_ns: u64,
    /// Time spent waiting for the sector.
    pub rotation_ns: u64,
    /// Time of data passing under the head.
    pub transfer_ns: u64,
    /// Reads answered from the read-ahead or write cache.
    pub cache_hits: u64,
    /// Bytes read from the medium for requests.
    pub media_read_bytes: u64,
    /// Bytes written to the medium: on flash with what garbage collection rewrites.
    pub media_write_bytes: u64,
    /// Flash blocks erased.
    pub erases: u64,
    /// Share of the rated endurance that is used up.
    pub wear_ratio: f64,
    /// Bytes in a volatile write cache or buffer now.
    pub volatile_bytes: u64,
}

/// A disk's timing.
pub trait Device: Debug + Send {
    /// Take a request at `now_ns`. Times never go backwards between calls.
    fn submit(&mut self, request: Request, now_ns: u64);

    /// When something happens next: an outcome, or a step of the device's own, if nothing is submitted before.
    fn next_event_ns(&self) -> Option<u64>;

    /// Carry out everything up to `now_ns` and append what happened.
    fn advance(&mut self, now_ns: u64, outcomes: &mut Vec<Outcome>);

    /// Every service time from now on takes `factor` times as long (1 is the disk as it should be).
    fn set_slowdown(&mut self, factor: f64);

    /// Lose power: requests in flight and the contents of volatile caches are gone, wear stays.
    fn power_cut(&mut self, now_ns: u64);

    /// What was done so far.
    fn work(&self) -> Work;

    /// Whether a completed write can be lost by a power cut before it is flushed.
    fn is_volatile(&self) -> bool;
}
