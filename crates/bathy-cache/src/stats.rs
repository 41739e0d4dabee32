//! What is counted of each file and each source since the start.
//!
//! Files in use are all counted. Of those that were closed a bounded number is remembered, the ones with the most requests:
//! a file that is not among them may have been used, and begins at 0 when it is opened again.

use std::collections::HashMap;

use hdrhistogram::Histogram;

use crate::counters::OpCounts;
use crate::files::FileIdentity;
use crate::format::Uuid;

/// Closed files that are remembered at most.
const REMEMBERED_MAX: usize = 1024;

/// Counts of a file or source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// Reads.
    pub reads: OpCounts,
    /// Writes.
    pub writes: OpCounts,
    /// The greatest time that a request came with; 0 if none came.
    pub last_access_ns: u64,
}

impl RequestCounts {
    pub(crate) fn count(&mut self, served: &Served) {
        let &Served {
            is_write,
            bytes,
            bytes_hit,
            time_ns,
            ..
        } = served;
        let counts = if is_write {
            &mut self.writes
        } else {
            &mut self.reads
        };
        counts.requests += 1;
        counts.requests_hit += u64::from(bytes_hit == bytes);
        counts.requests_partial += u64::from(0 < bytes_hit && bytes_hit < bytes);
        counts.bytes += bytes;
        counts.bytes_hit += bytes_hit;
        self.last_access_ns = self.last_access_ns.max(time_ns);
    }

    /// Reads and writes.
    pub fn requests(&self) -> u64 {
        self.reads.requests + self.writes.requests
    }
}

/// A file that was used since the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileStatus {
    /// The file.
    pub identity: FileIdentity,
    /// Whether it is attached, or was written to just before.
    pub is_in_use: bool,
    /// Since the start, if it is in use or was not forgotten for busier ones.
    pub counts: RequestCounts,
    /// Its lines in the cache.
    pub cached_lines: u64,
    /// Bytes of their valid units.
    pub cached_bytes: u64,
}

/// A source that was used since the start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SourceStatus {
    /// Names it.
    pub source: Uuid,
    /// Since the start, all of its files.
    pub counts: RequestCounts,
    /// Of reads that were served from the cache alone.
    pub read_hits: Latencies,
    /// Of other reads.
    pub read_misses: Latencies,
    /// Of writes, hits and misses.
    pub writes: Latencies,
}

/// How long the requests of a kind took in the engine since the start, waiting for other requests included. Percentiles
/// are exact to 1 %. Requests that failed are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Latencies {
    /// Requests. If there are few the high percentiles are those of single requests.
    pub requests: u64,
    /// Mean.
    pub latency_ns_mean: f64,
    /// Median.
    pub latency_ns_p50: u64,
    /// 99th percentile.
    pub latency_ns_p99: u64,
    /// 99.9th percentile.
    pub latency_ns_p999: u64,
    /// Greatest.
    pub latency_ns_max: u64,
}

impl Latencies {
    fn new(histogram: &Histogram<u64>) -> Self {
        Self {
            requests: histogram.len(),
            latency_ns_mean: histogram.mean(),
            latency_ns_p50: histogram.value_at_quantile(0.5),
            latency_ns_p99: histogram.value_at_quantile(0.99),
            latency_ns_p999: histogram.value_at_quantile(0.999),
            latency_ns_max: histogram.max(),
        }
    }
}

/// A request that was served.
#[derive(Clone, Copy)]
pub(crate) struct Served {
    pub(crate) is_write: bool,
    pub(crate) bytes: u64,
    pub(crate) bytes_hit: u64,
    /// The time that it came with.
    pub(crate) time_ns: u64,
    pub(crate) latency_ns: u64,
}

/// What is counted of a source.
pub(crate) struct SourceCounts {
    pub(crate) counts: RequestCounts,
    read_hits: Histogram<u64>,
    read_misses: Histogram<u64>,
    writes: Histogram<u64>,
}

/// Longer latencies count as this: an hour.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;

impl Default for SourceCounts {
    fn default() -> Self {
        let histogram = || Histogram::new_with_bounds(1, LATENCY_NS_MAX, 2).expect("the bounds are in order");
        Self {
            counts: RequestCounts::default(),
            read_hits: histogram(),
            read_misses: histogram(),
            writes: histogram(),
        }
    }
}

impl SourceCounts {
    pub(crate) fn count(&mut self, served: &Served) {
        self.counts.count(served);
        let histogram = match (served.is_write, served.bytes_hit == served.bytes) {
            (true, _) => &mut self.writes,
            (false, true) => &mut self.read_hits,
            (false, false) => &mut self.read_misses,
        };
        histogram.saturating_record(served.latency_ns);
    }

    pub(crate) fn status(&self, source: Uuid) -> SourceStatus {
        SourceStatus {
            source,
            counts: self.counts,
            read_hits: Latencies::new(&self.read_hits),
            read_misses: Latencies::new(&self.read_misses),
            writes: Latencies::new(&self.writes),
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let histograms = [&self.read_hits, &self.read_misses, &self.writes];
        let buckets: usize = histograms.map(Histogram::distinct_values).iter().sum();
        size_of::<Self>() + buckets * size_of::<u64>()
    }
}

/// What is remembered of closed files, with their numbers.
#[derive(Default)]
pub(crate) struct Closed(HashMap<FileIdentity, (u32, RequestCounts)>);

impl Closed {
    pub(crate) fn remember(&mut self, identity: FileIdentity, number: u32, counts: RequestCounts) {
        if self.0.len() >= REMEMBERED_MAX {
            let mut requests: Vec<u64> = self.0.values().map(|(_, counts)| counts.requests()).collect();
            let (_, &mut median, _) = requests.select_nth_unstable(REMEMBERED_MAX / 2);
            let mut equal = REMEMBERED_MAX / 4;
            self.0.retain(|_, (_, counts)| {
                // Where most are equal, some of these are kept.
                let is_kept = counts.requests() == median && equal > 0;
                equal -= usize::from(is_kept);
                is_kept || counts.requests() > median
            });
        }
        self.0.insert(identity, (number, counts));
    }

    /// The counts with which a file goes on.
    pub(crate) fn take(&mut self, identity: &FileIdentity) -> RequestCounts {
        self.0
            .remove(identity)
            .map(|(_, counts)| counts)
            .unwrap_or_default()
    }

    /// Each with its number.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&FileIdentity, u32, RequestCounts)> {
        let files = self.0.iter();
        files.map(|(identity, &(number, counts))| (identity, number, counts))
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.0.capacity() * (size_of::<(FileIdentity, (u32, RequestCounts))>() + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_are_remembered_and_no_more_than_there_is_room_for() {
        let identity = |number: u32| FileIdentity::new([0; 16], &number.to_le_bytes()).expect("it is short");
        for most in [100_000, 1] {
            let mut closed = Closed::default();
            for number in 0..5000 {
                let mut counts = RequestCounts::default();
                // The busy ones come early.
                counts.reads.requests = if number < 300 { most } else { 1 };
                closed.remember(identity(number), number, counts);
                assert!(closed.all().count() <= REMEMBERED_MAX);
            }
            assert!(closed.all().count() > REMEMBERED_MAX / 8);
            let busy = (0..300).filter(|&number| closed.take(&identity(number)).requests() > 1);
            assert_eq!(busy.count(), if most > 1 { 300 } else { 0 });
        }
    }
}
