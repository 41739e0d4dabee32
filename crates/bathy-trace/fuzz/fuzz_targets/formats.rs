//! The first byte chooses the format, the others are the trace.
#![no_main]

use bathy_trace::Format;
use bathy_trace_fuzz::exhaust;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Some((&choice, trace)) = bytes.split_first() {
        exhaust(trace, Some(Format::ALL[usize::from(choice) % Format::ALL.len()]));
    }
});
