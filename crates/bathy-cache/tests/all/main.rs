//! The engine against an oracle, the simulator, power cuts, bit flips, failing SSDs and several threads, whose histories are
//! searched for an order.

mod answered_first;
mod bit_flips;
mod common;
mod compare;
mod distrust;
mod file_heat;
mod files;
mod full;
mod hang;
mod history;
mod linearizable;
mod live;
mod many_files;
mod no_lock_over_io;
mod one_submission;
mod opening;
mod oracle;
mod page_cache;
mod panics;
mod power_cut;
mod prediction;
mod resize;
mod slow_source;
mod ssd_errors;
mod stage;
mod threads;
mod tidy;
