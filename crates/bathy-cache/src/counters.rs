//! What an engine counts, with the simulator's words.

/// Counts of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpCounts {
    /// Requests.
    pub requests: u64,
    /// Requests served from the cache alone; of writes, those whose lines were all cached.
    pub requests_hit: u64,
    /// Bytes.
    pub bytes: u64,
    /// Bytes served from the cache; of a write, bytes whose line was cached.
    pub bytes_hit: u64,
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
    /// Bytes of lines written to the SSD.
    pub flash_write_bytes: u64,
    /// Of these, bytes that writes changed or added in lines on the SSD.
    pub flash_update_bytes: u64,
    /// Lines evicted.
    pub evictions: u64,
    /// Lines that admission refused.
    pub refused: u64,
    /// Lines whose copy did not match its record, or could not be read. They were read from the backing.
    pub mismatches: u64,
    /// Files that were changed without the cache: their lines were dropped.
    pub changed_files: u64,
    /// Errors of the SSD.
    pub ssd_errors: u64,
}

impl Counts {
    /// Adds the counts of another part.
    pub(crate) fn add(&mut self, other: &Self) {
        for (into, from) in [(&mut self.reads, &other.reads), (&mut self.writes, &other.writes)] {
            into.requests += from.requests;
            into.requests_hit += from.requests_hit;
            into.bytes += from.bytes;
            into.bytes_hit += from.bytes_hit;
        }
        self.backing_read_bytes += other.backing_read_bytes;
        self.flash_write_bytes += other.flash_write_bytes;
        self.flash_update_bytes += other.flash_update_bytes;
        self.evictions += other.evictions;
        self.refused += other.refused;
        self.mismatches += other.mismatches;
        self.changed_files += other.changed_files;
        self.ssd_errors += other.ssd_errors;
    }
}
