//! Any bytes, as a file of unknown format: decompression, detection, and whatever reader they lead to.
#![no_main]

use bathy_trace_fuzz::exhaust;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| exhaust(bytes, None));
