//! Eviction and admission policies: single-threaded, deterministic, each citing its paper.
