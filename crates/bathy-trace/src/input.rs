//! Bytes of a trace: from a file, decompressed on the way, in a window that a decoder looks into.

pub(crate) mod decompress;
pub(crate) mod window;

pub(crate) use decompress::{Input, open_input};
pub(crate) use window::Window;
