//! The engine against an oracle, the simulator, power cuts, bit flips, failing SSDs and several threads, whose histories are
//! searched for an order.

mod bit_flips;
mod common;
mod compare;
mod files;
mod hang;
mod history;
mod linearizable;
mod live;
mod many_files;
mod oracle;
mod power_cut;
mod prediction;
mod resize;
mod slow_source;
mod ssd_errors;
mod threads;
mod tidy;
