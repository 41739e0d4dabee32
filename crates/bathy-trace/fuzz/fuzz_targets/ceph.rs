//! The formats of Ceph, which have the deepest parsers.
#![no_main]

use bathy_trace::Format;
use bathy_trace_fuzz::exhaust;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for format in [Format::OpHistory, Format::OsdLog, Format::OsdMessages] {
        exhaust(bytes, Some(format));
    }
});
