//! Another size of a cache: the file that it may be in, and why it does not get it.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use bathy_cache::{FileStore, OpenError, ResizeError, inspect};
use rustix::fs::{FallocateFlags, fallocate};

use crate::config::memory_hint;
use crate::failure::Failure;

/// Why a cache did not get another size.
pub(crate) fn size_failure(path: &Path, error: &ResizeError) -> Failure {
    let hint = match error {
        ResizeError::OverBudget(over) => {
            let needed = over.budget_needed().bytes;
            let hint = memory_hint(
                over,
                &format!("\"memory_bytes\": {needed} of \"cache\" in its configuration"),
            );
            return Failure::new(format!("{}: {over}", path.display()), hint);
        }
        ResizeError::Beyond { .. } => "name a size that the device has",
        ResizeError::DoesNotFit(_) => {
            "a cache needs at least 4 MiB; one that grew often is made anew: bathy cache create --force"
        }
        ResizeError::Unclean => "start the cache and stop it, or resize it while it runs",
        ResizeError::Open(OpenError::Superblock(_)) => "name a cache; bathyd inspect says what it holds",
        ResizeError::Open(_) => "the SSD must be readable and writable",
    };
    Failure::new(format!("{}: {error}", path.display()), hint)
}

/// Does something for which a cache in a file needs another size of the file. A larger file has its space before, as a full
/// file system must not meet the cache; a smaller one loses its end after.
pub(crate) fn with_file_of_size<T>(
    path: &Path,
    size_bytes: u64,
    resize: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let failed = |error: &dyn std::fmt::Display| {
        Failure::new(format!("{}: {error}", path.display()), "choose another --size")
    };
    let metadata = std::fs::metadata(path).map_err(|error| failed(&error))?;
    if !metadata.is_file() {
        return resize();
    }
    let file = File::options()
        .write(true)
        .open(path)
        .map_err(|error| failed(&error))?;
    let grown = (size_bytes > metadata.len()).then(|| {
        let added = size_bytes - metadata.len();
        fallocate(file.as_fd(), FallocateFlags::empty(), metadata.len(), added).map_err(io::Error::from)
    });
    if let Some(Err(error)) = grown {
        let _what_was_added = file.set_len(metadata.len());
        return Err(failed(&error));
    }
    let result = resize();
    let end = match &result {
        Ok(_) => size_bytes,
        // It may have its new size all the same, if it could not be opened again.
        Err(_) if end_of_cache(path).is_some_and(|end| end <= metadata.len()) => metadata.len(),
        Err(_) => return result,
    };
    // What is beyond belongs to no cache; if it stays it is but room.
    let _cut = file.set_len(end);
    result
}

/// Where the cache in a file ends, if there is one.
fn end_of_cache(path: &Path) -> Option<u64> {
    let store = FileStore::open_unlocked(path).ok()?;
    let found = inspect(Arc::new(store)).ok()?;
    Some(found.geometry.layout().end())
}
