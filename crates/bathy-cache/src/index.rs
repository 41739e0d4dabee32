//! What a cache knows of files and lines: which files there are, where they may differ from the SSD, and the records of lines.

pub(crate) mod files;
pub(crate) mod heat;
pub(crate) mod intent;
pub(crate) mod source;
pub(crate) mod table;
