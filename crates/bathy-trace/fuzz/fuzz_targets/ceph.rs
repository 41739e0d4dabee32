//! The formats of Ceph, which have the deepest parsers.
#![no_main]

use bathy_trace::{Format, OpTable};
use bathy_trace_fuzz::{change, exhaust, exhaust_ops, options};
use libfuzzer_sys::{fuzz_mutator, fuzz_target};

fuzz_target!(|bytes: &[u8]| {
    for format in [Format::OpHistory, Format::OsdLog, Format::OsdMessages] {
        exhaust(bytes, Some(format), &options());
    }
    let mut table = OpTable::new(None);
    if table.add(1, bytes, 0, None).is_ok() {
        table.rows();
    }
    exhaust_ops(bytes);
});

fuzz_mutator!(|data: &mut [u8], size: usize, size_max: usize, seed: u32| {
    change(data, size, size_max, seed, 0)
});
