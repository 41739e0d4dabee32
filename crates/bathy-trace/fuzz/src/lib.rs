//! What the fuzz targets share: how an input is read, and how it is changed.

#[path = "../../tests/mutate/mod.rs"]
mod mutate;

use std::path::Path;

use bathy_trace::{
    BlockStage, EventBatch, Format, OnBadRecord, OpenOptions, OsdLogOptions, OsdLogReader, OsdOpBatch, OtherObjects,
    open_bytes,
};

use mutate::{Random, mutate};

/// The format and the options that the first byte of an input chooses.
pub fn choice(byte: u8) -> (Format, OpenOptions) {
    let formats = Format::ALL.len();
    let format = Format::ALL[usize::from(byte) % formats];
    let others = usize::from(byte) / formats;
    let options = OpenOptions {
        block_stage: [BlockStage::Queue, BlockStage::Issue, BlockStage::Complete][others % 3],
        other_objects: if others % 2 == 0 {
            OtherObjects::Hash
        } else {
            OtherObjects::Ignore
        },
        ..options()
    };
    (format, options)
}

/// Small limits, which small inputs can reach.
pub fn options() -> OpenOptions {
    OpenOptions {
        on_bad_record: OnBadRecord::Skip,
        batch_events: 7,
        record_bytes_max: 1024,
        names_max: 16,
        ..OpenOptions::default()
    }
}

/// Reads everything and checks what holds for any input.
pub fn exhaust(bytes: &[u8], format: Option<Format>, options: &OpenOptions) {
    let Ok(mut reader) = open_bytes(Path::new("osd.1.fuzz"), bytes.to_vec(), format, options) else {
        return;
    };
    let mut batch = EventBatch::new();
    while let Ok(1..) = reader.next_batch(&mut batch) {
        for event in batch.iter() {
            assert!(event.length_bytes > 0);
            assert!(
                event
                    .offset_bytes
                    .checked_add(u64::from(event.length_bytes))
                    .is_some()
            );
        }
    }
    assert!(reader.names().volumes.len() <= options.names_max);
}

/// Reads a log of an OSD as operations.
pub fn exhaust_ops(bytes: &[u8]) {
    let options = OsdLogOptions {
        batch_ops: 7,
        line_bytes_max: 1024,
        ..OsdLogOptions::default()
    };
    let Ok(mut reader) = OsdLogReader::open_bytes(Path::new("osd.1.fuzz"), bytes.to_vec(), &options) else {
        return;
    };
    let mut batch = OsdOpBatch::default();
    while let Ok(true) = reader.next_batch(&mut batch) {
        assert_eq!(batch.object_name.iter().count(), batch.len());
    }
}

/// Changes the first `size` bytes of `data`, half of the time as libFuzzer does, half of the time as a trace. The first
/// `kept` bytes are no part of the trace. Returns the new size.
pub fn change(data: &mut [u8], size: usize, size_max: usize, seed: u32, kept: usize) -> usize {
    if size < kept || seed % 2 == 0 {
        return libfuzzer_sys::fuzzer_mutate(data, size, size_max);
    }
    let mut trace = data[kept..size].to_vec();
    let other = trace.clone();
    mutate(&mut trace, &other, &mut Random(u64::from(seed)));
    trace.truncate(size_max - kept);
    data[kept..kept + trace.len()].copy_from_slice(&trace);
    kept + trace.len()
}
