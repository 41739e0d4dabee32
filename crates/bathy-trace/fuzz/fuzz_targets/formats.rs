//! The first byte chooses the format and the options, the others are the trace.
#![no_main]

use bathy_trace_fuzz::{change, choice, exhaust};
use libfuzzer_sys::{fuzz_mutator, fuzz_target};

fuzz_target!(|bytes: &[u8]| {
    if let Some((&byte, trace)) = bytes.split_first() {
        let (format, options) = choice(byte);
        exhaust(trace, Some(format), &options);
    }
});

fuzz_mutator!(|data: &mut [u8], size: usize, size_max: usize, seed: u32| {
    change(data, size, size_max, seed, 1)
});
