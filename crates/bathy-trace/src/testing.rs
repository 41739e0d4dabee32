//! Short ways to read bytes in unit tests.

use std::path::Path;

use crate::batch::EventBatch;
use crate::event::IoEvent;
use crate::format::Format;
use crate::names::NameTables;
use crate::open::open_bytes;
use crate::options::{OnBadRecord, OpenOptions};
use crate::report::ReadReport;

/// Reads everything; a bad record is a failure of the test.
pub(crate) fn read_all(format: Format, bytes: &[u8]) -> Vec<IoEvent> {
    names_of(format, bytes).0
}

/// Reads everything, with the names.
pub(crate) fn names_of(format: Format, bytes: &[u8]) -> (Vec<IoEvent>, NameTables) {
    let (events, names, _) = read_with(format, bytes, &OpenOptions::default());
    (events, names)
}

/// Reads everything, leaving out bad records.
pub(crate) fn read_skipping(format: Format, bytes: &[u8]) -> (Vec<IoEvent>, ReadReport) {
    let options = OpenOptions {
        on_bad_record: OnBadRecord::Skip,
        ..OpenOptions::default()
    };
    let (events, _, report) = read_with(format, bytes, &options);
    (events, report)
}

/// Reads everything with options. The batches are small, so that every reader is interrupted often.
pub(crate) fn read_with(
    format: Format,
    bytes: &[u8],
    options: &OpenOptions,
) -> (Vec<IoEvent>, NameTables, ReadReport) {
    let options = OpenOptions {
        batch_events: 3,
        ..options.clone()
    };
    let mut reader = open_bytes(Path::new("test"), bytes.to_vec(), Some(format), &options).unwrap();
    let mut batch = EventBatch::new();
    let mut events = Vec::new();
    while reader.next_batch(&mut batch).unwrap() > 0 {
        events.extend(batch.iter());
    }
    assert_eq!(reader.report().events, events.len() as u64);
    (events, reader.names().clone(), reader.report().clone())
}

/// The message of the error that opening gives.
pub(crate) fn open_error(format: Format, bytes: &[u8]) -> String {
    match open_bytes(
        Path::new("test"),
        bytes.to_vec(),
        Some(format),
        &OpenOptions::default(),
    ) {
        Ok(_) => panic!("opening must fail"),
        Err(error) => error.to_string(),
    }
}
