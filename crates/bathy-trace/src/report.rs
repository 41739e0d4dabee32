//! The counts of a reading: I/Os, ignored and bad records, time range, bytes.

use crate::error::BadRecord;

/// Bad records that a report describes; those after them are only counted.
pub const FIRST_ERRORS_MAX: usize = 10;

/// Columns of each kind that [`Columns`] names at most.
pub(crate) const MOST_COLUMNS: usize = 32;

/// The columns of a trace with a header, as it spells them, escaped and cut.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Columns {
    /// What is read.
    pub used: Vec<String>,
    /// What is not known and not looked at.
    pub ignored: Vec<String>,
}

/// Counts of a reading, up to the last batch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadReport {
    /// I/Os delivered.
    pub events: u64,
    /// Records that are well formed but carry no I/O: comments, metadata, other stages of the same I/O, flushes.
    pub records_ignored: u64,
    /// Records that are not well formed and were left out.
    pub records_bad: u64,
    /// The first of them, at most [`FIRST_ERRORS_MAX`].
    pub first_errors: Vec<BadRecord>,
    /// Earliest and latest time of issue; `None` before the first I/O or when the format has no time.
    pub time_ns_range: Option<(u64, u64)>,
    /// I/Os that are earlier than the one before them: more than a few mean that the trace is not in order
    /// of time, as an op history sorted by duration is not.
    pub events_out_of_order: u64,
    /// The columns of a trace with a header.
    pub columns: Columns,
    /// How far the farthest I/O reaches into its RBD data object; 0 where the trace has none. No object is smaller.
    pub object_end_bytes: u64,
    /// Bytes of the trace that have been read, after decompression.
    pub bytes_read: u64,
    /// Bytes of the file that have been read, before decompression.
    pub file_bytes_read: u64,
    /// Size of the file; `None` if it is no regular file.
    pub file_bytes: Option<u64>,
}

impl ReadReport {
    pub(crate) fn add_bad_record(&mut self, bad: BadRecord) {
        self.records_bad += 1;
        if self.first_errors.len() < FIRST_ERRORS_MAX {
            self.first_errors.push(bad);
        }
    }

    /// Accounts for the times of a batch. `time_ns_last` is that of the I/O before the batch.
    pub(crate) fn add_times(&mut self, times_ns: &[u64], time_ns_last: &mut u64) {
        let Some(&first) = times_ns.first() else { return };
        let (mut low, mut high) = self.time_ns_range.unwrap_or((first, first));
        let mut out_of_order = u64::from(first < *time_ns_last);
        for pair in times_ns.windows(2) {
            out_of_order += u64::from(pair[1] < pair[0]);
        }
        for &time_ns in times_ns {
            low = low.min(time_ns);
            high = high.max(time_ns);
        }
        self.events_out_of_order += out_of_order;
        self.time_ns_range = Some((low, high));
        *time_ns_last = times_ns[times_ns.len() - 1];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Position;

    #[test]
    fn only_the_first_errors_are_kept() {
        let mut report = ReadReport::default();
        for line in 0..100 {
            let bad = BadRecord {
                position: Position::Line(line),
                reason: "x",
                excerpt: String::new(),
            };
            report.add_bad_record(bad);
        }
        assert_eq!(report.records_bad, 100);
        assert_eq!(report.first_errors.len(), FIRST_ERRORS_MAX);
        assert_eq!(report.first_errors[9].position, Position::Line(9));
    }

    #[test]
    fn disorder_is_counted_across_batches() {
        let mut report = ReadReport::default();
        let mut last = 0;
        report.add_times(&[5, 7, 6], &mut last);
        report.add_times(&[], &mut last);
        report.add_times(&[4, 9], &mut last);
        assert_eq!(report.time_ns_range, Some((4, 9)));
        assert_eq!(report.events_out_of_order, 2);
    }
}
