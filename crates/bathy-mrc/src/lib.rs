//! Miss-ratio curves: exact stack distance, SHARDS, miniature and full simulation.
