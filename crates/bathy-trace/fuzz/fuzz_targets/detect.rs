//! Any bytes, as a file of unknown format: decompression, detection, and whatever reader they lead to.
#![no_main]

use bathy_trace_fuzz::{change, exhaust, options};
use libfuzzer_sys::{fuzz_mutator, fuzz_target};

fuzz_target!(|bytes: &[u8]| exhaust(bytes, None, &options()));

fuzz_mutator!(|data: &mut [u8], size: usize, size_max: usize, seed: u32| {
    change(data, size, size_max, seed, 0)
});
