//! `bathyd devices`: what the links of a directory lead to.

use std::fs::File;
use std::io;
use std::path::Path;

use bathy_fuse::mounts_below;
use serde_json::json;

use crate::config::{Config, Source};
use crate::device::print;
use crate::devices::{Link, Place};
use crate::failure::Failure;
use crate::plaintext::{encrypted, is_encrypted};
use crate::tree;

/// For somebody to look at before a configuration names it.
pub(crate) fn run_devices(config: &Path, dir: &Path) -> Result<(), Failure> {
    let config = Config::load(config)?;
    let failed = |error: io::Error| {
        Failure::new(
            format!("{}: {error}", dir.display()),
            "run as root, and name a directory that exists",
        )
    };
    let directory = File::open(dir).map_err(failed)?;
    let root = tree::private_mount(&directory).map_err(failed)?;
    let source = Source::at(dir);
    let links = Place::new(&root, &directory, &source).map_err(failed)?.links();
    // One that is left out here would be left out of the configuration.
    let links: Vec<_> = links
        .into_iter()
        .collect::<Result<_, _>>()
        .map_err(|problem| failed(io::Error::other(problem)))?;
    let found = encrypted(
        &directory,
        links.iter().filter_map(|link| link.found.as_ref().ok()),
    );
    let below = mounts_below(dir).map_err(failed)?.into_iter();
    let below: Vec<_> = below
        .map(|mount| format!("{} ({})", mount.point.display(), mount.kind))
        .collect();
    print(&json!({
        "devices": links.iter().map(Link::report).collect::<Vec<_>>(),
        "encrypted": found.filter(|_| !is_encrypted(&config.cache.ssd)),
        "mounts_below": below,
    }))
}
