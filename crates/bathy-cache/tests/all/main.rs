//! The engine against an oracle, the simulator, power cuts, bit flips, failing SSDs and several threads.

mod bit_flips;
mod common;
mod files;
mod many_files;
mod oracle;
mod power_cut;
mod prediction;
mod ssd_errors;
mod threads;
mod tidy;
