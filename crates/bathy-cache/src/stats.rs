//! What is counted of each file and each source since the start.
//!
//! Files in use are all counted. Of those that were closed a bounded number is remembered, the ones with the most requests:
//! a file that is not among them may have been used, and begins at 0 when it is opened again.

pub(crate) mod backing_cost;
pub(crate) mod counters;
pub(crate) mod residency;

use std::collections::HashMap;

use hdrhistogram::Histogram;

use crate::format::FileIdentity;
use crate::stats::counters::OpCounts;
use crate::stats::residency::Residence;

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
    pub(crate) fn count(&mut self, served: &ServedRequest) {
        let &ServedRequest {
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
    /// How long its lines stay.
    pub residence: Residence,
}

/// A source.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SourceStatus {
    /// Since the start, all of its files.
    pub counts: RequestCounts,
    /// Of reads that were served from the cache alone.
    pub cache_reads: Latencies,
    /// Of copies of what was read or written to the cache, be it to the SSD or to memory.
    pub cache_writes: Latencies,
    /// Of other reads: of the whole request, of which the cache may have served a part.
    pub source_reads: Latencies,
    /// Of writes to the file below, without what the cache does with them.
    pub source_writes: Latencies,
    /// Bytes read from the files below: of whole units where they are kept, so that it can be more than requests asked for.
    pub source_read_bytes: u64,
    /// Other bytes read from the files below, to compare them with what the cache has.
    pub compared_bytes: u64,
    /// Requests that went past the cache because of a sequential stream.
    pub bypassed_by_stream: u64,
    /// Requests that went past the cache because the SSD was given up.
    pub bypassed_by_error: u64,
}

/// The upper bounds of [`Latencies::buckets`]: powers of two from 1,024 ns to 2^34 ns, 17 s.
pub const LATENCY_BOUNDS: usize = 25;
const FIRST_BOUND_LOG2: u32 = 10;

/// How long something took, since the start, waiting for other requests included. Percentiles are exact to 1 %. What failed is
/// not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Latencies {
    /// Requests. If there are few the high percentiles are those of single requests.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
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
    /// Requests that took at most `1024 << n` ns, exactly. Those that took longer than the last bound are in none.
    pub buckets: [u64; LATENCY_BOUNDS],
}

/// What [`Latencies`] are made of. Before the first request it takes no memory to speak of.
#[derive(Default)]
struct LatencyCounts {
    histogram: Option<Histogram<u64>>,
    bytes: u64,
    sum_ns: u64,
    /// Requests by the first bound that they are not above.
    buckets: [u64; LATENCY_BOUNDS],
}

/// For the percentiles longer latencies count as this: 137 s.
const LATENCY_NS_MAX: u64 = 1 << 37;

impl LatencyCounts {
    fn count(&mut self, bytes: u64, latency_ns: u64) {
        let new = || Histogram::new_with_bounds(1, LATENCY_NS_MAX, 2).expect("the bounds are in order");
        self.histogram
            .get_or_insert_with(new)
            .saturating_record(latency_ns);
        self.bytes += bytes;
        self.sum_ns = self.sum_ns.saturating_add(latency_ns);
        let log2 = u64::BITS - latency_ns.saturating_sub(1).leading_zeros();
        let bucket = log2.saturating_sub(FIRST_BOUND_LOG2) as usize;
        if let Some(requests) = self.buckets.get_mut(bucket) {
            *requests += 1;
        }
    }

    fn latencies(&self) -> Latencies {
        let Some(histogram) = &self.histogram else {
            return Latencies::default();
        };
        let mut buckets = self.buckets;
        for bound in 1..buckets.len() {
            buckets[bound] += buckets[bound - 1];
        }
        Latencies {
            requests: histogram.len(),
            bytes: self.bytes,
            latency_ns_mean: self.sum_ns as f64 / histogram.len() as f64,
            latency_ns_p50: histogram.value_at_quantile(0.5),
            latency_ns_p99: histogram.value_at_quantile(0.99),
            latency_ns_p999: histogram.value_at_quantile(0.999),
            latency_ns_max: histogram.max(),
            buckets,
        }
    }

    fn memory_bytes(&self) -> usize {
        self.histogram.as_ref().map_or(0, Histogram::distinct_values) * size_of::<u64>()
    }
}

/// A request that was served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServedRequest {
    /// Whether it was a write.
    pub is_write: bool,
    /// Bytes.
    pub bytes: u64,
    /// Bytes served from the cache; of a write, bytes whose line was cached.
    pub bytes_hit: u64,
    /// The time that it came with.
    pub time_ns: u64,
    /// Of a read how long it took, of a write how long the file below took.
    pub latency_ns: u64,
}

/// What is counted of a source.
#[derive(Default)]
pub struct SourceCounts {
    pub(crate) counts: RequestCounts,
    cache_reads: LatencyCounts,
    cache_writes: LatencyCounts,
    source_reads: LatencyCounts,
    source_writes: LatencyCounts,
    source_read_bytes: u64,
    compared_bytes: u64,
    pub(crate) bypassed_by_stream: u64,
    pub(crate) bypassed_by_error: u64,
}

impl SourceCounts {
    /// Counts a request.
    pub fn count(&mut self, served: &ServedRequest) {
        self.counts.count(served);
        let latencies = match (served.is_write, served.bytes_hit == served.bytes) {
            (true, _) => &mut self.source_writes,
            (false, true) => &mut self.cache_reads,
            (false, false) => &mut self.source_reads,
        };
        latencies.count(served.bytes, served.latency_ns);
    }

    /// Counts bytes that were read from a file below.
    pub fn count_source_read(&mut self, bytes: u64) {
        self.source_read_bytes += bytes;
    }

    /// Counts bytes that were read from a file below to be compared.
    pub(crate) fn count_comparison(&mut self, bytes: u64) {
        self.compared_bytes += bytes;
    }

    /// Counts a copy to the cache.
    pub(crate) fn count_copy(&mut self, bytes: u64, latency_ns: u64) {
        self.cache_writes.count(bytes, latency_ns);
    }

    /// What was counted.
    pub fn status(&self) -> SourceStatus {
        SourceStatus {
            counts: self.counts,
            cache_reads: self.cache_reads.latencies(),
            cache_writes: self.cache_writes.latencies(),
            source_reads: self.source_reads.latencies(),
            source_writes: self.source_writes.latencies(),
            source_read_bytes: self.source_read_bytes,
            compared_bytes: self.compared_bytes,
            bypassed_by_stream: self.bypassed_by_stream,
            bypassed_by_error: self.bypassed_by_error,
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let latencies = [
            &self.cache_reads,
            &self.cache_writes,
            &self.source_reads,
            &self.source_writes,
        ];
        size_of::<Self>() + latencies.map(LatencyCounts::memory_bytes).iter().sum::<usize>()
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

    /// Numbers are those of other files from now on.
    pub(crate) fn forget_numbers(&mut self) {
        self.0.values_mut().for_each(|(number, _)| *number = 0);
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
    fn a_latency_is_in_the_buckets_of_all_bounds_that_it_is_not_above() {
        let mut counts = LatencyCounts::default();
        assert_eq!(counts.latencies(), Latencies::default());
        for latency_ns in [0, 1024, 1025, 2048, 1 << 34, (1 << 34) + 1] {
            counts.count(4096, latency_ns);
        }
        let latencies = counts.latencies();
        assert_eq!((latencies.requests, latencies.bytes), (6, 6 * 4096));
        assert_eq!(latencies.buckets[..3], [2, 4, 4]);
        assert_eq!(latencies.buckets[LATENCY_BOUNDS - 2..], [4, 5]);
        let sum = 1024 + 1025 + 2048 + (2_u64 << 34) + 1;
        assert!((latencies.latency_ns_mean - sum as f64 / 6.0).abs() < 1.0);
    }

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
