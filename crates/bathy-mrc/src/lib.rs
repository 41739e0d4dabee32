//! Miss-ratio curves: exact stack distance, SHARDS, miniature and full simulation.

pub mod hash;
pub mod histogram;
pub mod stack;
