//! Stream bypass: long sequential runs go past the cache.
//!
//! A table of the current streams, as bcache keeps one (Linux, Documentation/admin-guide/bcache.rst,
//! `sequential_cutoff`): 128 streams, the least recently extended one is replaced. A reference that continues a stream
//! whose run is long enough goes past the cache. Hits extend streams too, so a run over partly cached blocks counts.
//! Small requests within one line add to the run, but a line never counts for more than its size, however often it
//! is read.
//!
//! A stream depends on the requests alone and not on the content of the cache. So a simulation of several cache sizes
//! needs one detector, and a simulation of a sample must pass it the whole stream.
//!
//! Limits: keys must be line numbers, with a volume's number in the upper bits: neighbouring lines have neighbouring
//! keys. Renumbered or hashed keys have no streams. It does not suit a cache that is to speed up sequential readers
//! (backups, VM boot), or a backing device on which a random read costs little more than a sequential one.

/// The parameters of [`StreamBypass`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamBypassOptions {
    /// Streams that are followed at once.
    pub streams: usize,
    /// The longest run that still enters the cache, in bytes.
    pub cutoff_bytes: u64,
    /// Bytes of a line: the most that one key adds to a run.
    pub line_bytes: u64,
}

impl Default for StreamBypassOptions {
    fn default() -> Self {
        Self {
            streams: 128,
            cutoff_bytes: 1 << 20,
            line_bytes: 65_536,
        }
    }
}

/// See the [module](self).
#[derive(Debug, Clone)]
pub struct StreamBypass {
    /// The key that would continue each stream. Apart from the rest, so that the search reads a kilobyte.
    next_keys: Vec<u64>,
    /// Bytes of the lines before the one that each stream is in.
    lines_before_bytes: Vec<u64>,
    /// Bytes of the line that each stream is in.
    last_line_bytes: Vec<u64>,
    extended_at: Vec<u64>,
    references: u64,
    options: StreamBypassOptions,
}

impl StreamBypass {
    /// A detector without any stream yet.
    ///
    /// # Panics
    /// If `streams` is 0.
    pub fn new(options: StreamBypassOptions) -> Self {
        assert!(options.streams >= 1, "streams must be at least 1 (got 0)");
        Self {
            next_keys: vec![u64::MAX; options.streams],
            lines_before_bytes: vec![0; options.streams],
            last_line_bytes: vec![0; options.streams],
            extended_at: vec![0; options.streams],
            references: 0,
            options,
        }
    }

    /// Notes a reference, hit or miss, of `bytes` of the line, and returns whether its run goes past the cache.
    pub fn passes_by(&mut self, key: u64, bytes: u64) -> bool {
        self.run_with(key, bytes) > self.options.cutoff_bytes
    }

    /// Notes a reference and returns the run that it belongs to, its own bytes included.
    fn run_with(&mut self, key: u64, bytes: u64) -> u64 {
        self.references += 1;
        let next_key = key.wrapping_add(1);
        let continued = self.next_keys.iter().position(|&next| next == key);
        // The line that a stream has just read, again: small reads within one line. The stream stays where it is.
        let repeated = || {
            self.next_keys
                .iter()
                .position(|&next| next == next_key && next != 0)
        };
        let stream = if let Some(stream) = continued {
            self.next_keys[stream] = next_key;
            self.lines_before_bytes[stream] += self.last_line_bytes[stream];
            self.last_line_bytes[stream] = 0;
            stream
        } else if let Some(stream) = repeated() {
            stream
        } else {
            let oldest = (0..self.extended_at.len())
                .min_by_key(|&stream| self.extended_at[stream])
                .unwrap_or(0);
            self.next_keys[oldest] = next_key;
            self.lines_before_bytes[oldest] = 0;
            self.last_line_bytes[oldest] = 0;
            oldest
        };
        self.extended_at[stream] = self.references;
        let in_line = &mut self.last_line_bytes[stream];
        *in_line = in_line.saturating_add(bytes).min(self.options.line_bytes);
        self.lines_before_bytes[stream] + *in_line
    }

    /// Bytes held beyond the value itself.
    pub fn memory_bytes(&self) -> usize {
        let arrays = [
            &self.next_keys,
            &self.lines_before_bytes,
            &self.last_line_bytes,
            &self.extended_at,
        ];
        arrays
            .iter()
            .map(|array| array.capacity() * size_of::<u64>())
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: u64 = 65_536;

    #[test]
    fn a_run_is_refused_once_it_is_longer_than_the_cutoff() {
        let mut bypass = StreamBypass::new(StreamBypassOptions::default());
        let refused_from = (0..64u64).find(|&line| bypass.passes_by(1000 + line, LINE));
        assert_eq!(
            refused_from,
            Some(16),
            "16 lines of 64 KiB are exactly the cutoff of 1 MiB"
        );
        assert!(!bypass.passes_by(5000, LINE), "elsewhere a new run begins");
    }

    #[test]
    fn interleaved_streams_are_separate_up_to_the_number_followed() {
        let refused = |readers: u64| {
            let mut bypass = StreamBypass::new(StreamBypassOptions::default());
            let references =
                (0..40u64).flat_map(|line| (0..readers).map(move |reader| (reader << 40) | line));
            references.filter(|&key| bypass.passes_by(key, LINE)).count() as u64
        };
        assert_eq!(
            refused(128),
            128 * 24,
            "of 40 lines each, 16 are below the cutoff"
        );
        assert_eq!(
            refused(129),
            0,
            "one reader too many in turn and every stream is replaced before it goes on"
        );
    }

    #[test]
    fn repeats_of_a_line_do_not_extend_a_run() {
        let mut bypass = StreamBypass::new(StreamBypassOptions {
            streams: 2,
            cutoff_bytes: 3 * LINE,
            line_bytes: LINE,
        });
        assert!(!bypass.passes_by(10, LINE));
        assert!(!bypass.passes_by(11, LINE));
        assert!(!bypass.passes_by(12, LINE));
        assert!(!bypass.passes_by(12, LINE), "the same line again is no further");
        assert!(bypass.passes_by(13, LINE));
    }

    #[test]
    fn small_reads_one_after_the_other_are_a_run_of_their_bytes() {
        let mut bypass = StreamBypass::new(StreamBypassOptions::default());
        let refused_from = (0..1024u64).find(|&page| bypass.passes_by(page / 16, 4096));
        assert_eq!(
            refused_from,
            Some(256),
            "256 pages of 4 KiB are exactly the cutoff"
        );
    }
}
