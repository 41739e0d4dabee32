//! Readers of block I/O traces: every format becomes one stream of `IoEvent`.
