//! What a mount is asked for, and why there is none.

use std::io;
use std::path::PathBuf;

/// How a mount is made.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// The directory, as an absolute path.
    pub directory: PathBuf,
    /// The program's name: the mount's type is `fuse.<program>`, by which a mount left behind is recognised.
    pub program: &'static str,
    /// Threads that take requests from the kernel.
    pub threads: usize,
    /// Whether these threads go before others ([`prefer_real_time`]), if the system allows it.
    pub real_time: bool,
}

/// Why files cannot be served.
#[derive(Debug)]
pub enum MountError {
    /// The mount point is not an absolute path of a directory, or another program serves it.
    MountPoint(String),
    /// The kernel refused, or the connection to it broke.
    Io(io::Error),
}

impl std::fmt::Display for MountError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::MountPoint(problem) => f.write_str(problem),
            Self::Io(error) => write!(f, "FUSE: {error}"),
        }
    }
}

impl std::error::Error for MountError {}
