//! What is encrypted below must not lie on the SSD as plaintext.

use std::fs::File;
use std::path::Path;

use crate::config::Source;
use crate::devices::Device;
use crate::encryption;
use crate::failure::Failure;

/// What of a source is encrypted, and by what.
pub(crate) fn encrypted<'a>(
    directory: &File,
    mut devices: impl Iterator<Item = &'a Device>,
) -> Option<String> {
    let of_device = devices.find_map(|device| {
        let by = device.encryption()?;
        Some(format!("{} is encrypted by {by}", device.name))
    });
    // Where it cannot be known, nothing says that it is.
    let of_directory = || {
        Some(format!(
            "the directory is encrypted by {}",
            encryption::of_file(directory).ok()??
        ))
    };
    of_device.or_else(of_directory)
}

pub(crate) fn is_encrypted(ssd: &Path) -> bool {
    encryption::of_path(ssd).is_ok_and(|found| found.is_some())
}

pub(crate) fn plaintext_failure(source: &Source, found: &str, ssd: &Path) -> Failure {
    let (dir, name) = (source.dir.display(), source.name());
    Failure::new(
        format!(
            "{dir}: {found}, and the cache would hold it as plaintext on {}",
            ssd.display()
        ),
        format!(
            "make the cache on an encrypted device (cryptsetup), or allow it: bathy cache source set {name} --plaintext"
        ),
    )
}
