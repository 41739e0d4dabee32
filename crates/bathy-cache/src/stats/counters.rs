//! What an engine counts, with the simulator's words.

use crate::store::ssd::SsdWrites;

/// Counts of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpCounts {
    /// Requests.
    pub requests: u64,
    /// Requests served from the cache alone; of writes, those whose lines were all cached.
    pub requests_hit: u64,
    /// Requests of which the cache served a part; of writes, those of which a part of the lines was cached.
    pub requests_partial: u64,
    /// Bytes.
    pub bytes: u64,
    /// Bytes served from the cache; of a write, bytes whose line was cached.
    pub bytes_hit: u64,
}

impl OpCounts {
    pub(crate) fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.requests_hit += other.requests_hit;
        self.requests_partial += other.requests_partial;
        self.bytes += other.bytes;
        self.bytes_hit += other.bytes_hit;
    }
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reads.
    pub reads: OpCounts,
    /// Writes.
    pub writes: OpCounts,
    /// Bytes read from the backing.
    pub backing_read_bytes: u64,
    /// Of these, bytes that nobody asked for.
    pub fetched_ahead_bytes: u64,
    /// Of the bytes fetched ahead, those of lines that are sampled.
    pub ahead_sampled_bytes: u64,
    /// Of these, bytes that were read before they left or were written.
    pub ahead_used_bytes: u64,
    /// Bytes of lines read from the SSD to serve requests.
    pub flash_read_bytes: u64,
    /// Bytes of lines put on the SSD, as the simulator counts them. What was written for that is in [`Counts::ssd_writes`].
    pub flash_write_bytes: u64,
    /// Of these, bytes that writes changed or added in lines on the SSD.
    pub flash_update_bytes: u64,
    /// Lines that gave way to other lines.
    pub evictions: u64,
    /// Files that gave way to others in the full file table.
    pub evicted_files: u64,
    /// Lines that these had, which left with them.
    pub evicted_file_lines: u64,
    /// Times that a request would have brought a line into the cache, and did not: it was kept out by a filter such as that of long runs of
    /// writes, by the size of its source, or by lines in use. Or it would have changed one there, which left as the write budget
    /// was spent.
    pub refused: u64,
    /// Lines whose copy did not match its record, or could not be read. They were read from the backing.
    pub mismatches: u64,
    /// Files that were changed without the cache: their lines were dropped.
    pub changed_files: u64,
    /// Files in use now that cannot be cached, because others in use had all records of the file table when they came.
    pub files_without_room: u64,
    /// Errors of the SSD.
    pub ssd_errors: u64,
    /// All that was written to the SSD.
    pub ssd_writes: SsdWrites,
}

impl Counts {
    /// Adds the counts of a shard, which knows nothing of [`Counts::ssd_writes`].
    pub(crate) fn add(&mut self, other: &Self) {
        self.reads.add(&other.reads);
        self.writes.add(&other.writes);
        self.backing_read_bytes += other.backing_read_bytes;
        self.fetched_ahead_bytes += other.fetched_ahead_bytes;
        self.ahead_sampled_bytes += other.ahead_sampled_bytes;
        self.ahead_used_bytes += other.ahead_used_bytes;
        self.flash_read_bytes += other.flash_read_bytes;
        self.flash_write_bytes += other.flash_write_bytes;
        self.flash_update_bytes += other.flash_update_bytes;
        self.evictions += other.evictions;
        self.evicted_files += other.evicted_files;
        self.evicted_file_lines += other.evicted_file_lines;
        self.refused += other.refused;
        self.mismatches += other.mismatches;
        self.changed_files += other.changed_files;
        self.files_without_room += other.files_without_room;
        self.ssd_errors += other.ssd_errors;
    }
}
