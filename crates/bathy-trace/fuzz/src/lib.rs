//! What the fuzz targets share.

use std::path::Path;

use bathy_trace::{EventBatch, Format, OnBadRecord, OpenOptions, open_bytes};

/// Reads everything with small limits and checks what holds for any input.
pub fn exhaust(bytes: &[u8], format: Option<Format>) {
    let options = OpenOptions {
        on_bad_record: OnBadRecord::Skip,
        batch_events: 7,
        record_bytes_max: 1024,
        names_max: 16,
        ..OpenOptions::default()
    };
    let Ok(mut reader) = open_bytes(Path::new("fuzz"), bytes.to_vec(), format, &options) else { return };
    let mut batch = EventBatch::new();
    while let Ok(1..) = reader.next_batch(&mut batch) {
        for event in batch.iter() {
            assert!(event.length_bytes > 0);
            assert!(event.offset_bytes.checked_add(u64::from(event.length_bytes)).is_some());
        }
    }
}
