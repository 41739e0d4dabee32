//! A source is claimed, unless it must not be served.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use bathy_cache::FileSystem;
use bathy_fuse::{Claim, MountBelow, MountOptions, claim};
use rustix::fs::OFlags;

use crate::config;
use crate::failure::Failure;
use crate::tree;

const PROGRAM: &str = "bathyd";

/// A source that nobody else serves.
pub(super) struct ClaimedSource {
    pub(super) source: config::Source,
    pub(super) options: MountOptions,
    pub(super) claim: Claim,
}

/// [`claim_source`], or what a test has in its place.
pub(super) type ClaimSource = fn(config::Source, usize) -> Result<ClaimedSource, Failure>;

pub(super) fn claim_source(source: config::Source, threads: usize) -> Result<ClaimedSource, Failure> {
    let directory: PathBuf = source.dir.clone();
    let options = MountOptions {
        directory,
        program: PROGRAM,
        threads,
        real_time: false,
    };
    let shown = source.dir.display();
    let claim = claim(&options).map_err(|error| {
        Failure::new(
            format!("{shown}: {error}"),
            "a source is a directory, or the mount point of a local file system, that no other program serves",
        )
    })?;
    let kind = FileSystem::of(claim.below()).unwrap_or(FileSystem::Local);
    if kind != FileSystem::Local {
        return Err(Failure::new(
            format!("{shown} is on {kind}"),
            "choose a directory on a local file system, such as XFS, ext4 or tmpfs",
        ));
    }
    if is_osd(&source.dir) && !is_activated(claim.below()) {
        return Err(Failure::new(
            format!("{shown}: ceph-volume has not activated the OSD"),
            format!("when it has: bathy cache source start {}", source.name()),
        ));
    }
    check_mounts_below(&source, &claim)?;
    Ok(ClaimedSource {
        source,
        options,
        claim,
    })
}

/// Refuses a source below which file systems are mounted: users of the source would find the directories that these cover, and
/// write to them, past the cache of another daemon if that serves them. What anybody can mount there must not keep others from
/// the source: that is only returned.
pub(super) fn check_mounts_below(source: &config::Source, claim: &Claim) -> Result<Vec<MountBelow>, Failure> {
    let dir = source.dir.display();
    let failed = |error: io::Error| Failure::new(format!("{dir}: {error}"), "/proc must be mounted");
    let (of_users, others): (Vec<_>, Vec<_>) = claim
        .mounts_below()
        .map_err(failed)?
        .into_iter()
        .partition(|mount| mount.is_of_user);
    let Some(MountBelow { point, kind, .. }) = others.first() else {
        return Ok(of_users);
    };
    Err(Failure::new(
        format!(
            "{dir}: a file system is mounted below it, on {} ({kind})",
            point.display()
        ),
        "unmount it, or make sources of directories without mounts below them",
    ))
}

/// Whether a directory is where ceph-volume lays the files of an OSD.
fn is_osd(dir: &Path) -> bool {
    let number = dir.file_name().and_then(|name| name.to_str()?.rsplit_once('-'));
    dir.parent() == Some(Path::new("/var/lib/ceph/osd"))
        && number.is_some_and(|(_, number)| number.parse::<u32>().is_ok())
}

/// Whether they are there. To mount over the directory before would hide the cache from the OSD: ceph-volume mounts over it. Of
/// an OSD of `BlueStore` it writes the files first, and then makes the link to its device.
fn is_activated(directory: &File) -> bool {
    const TYPE_BYTES_MAX: u64 = 64;
    let is_there = |name: &str| tree::open_path(directory, OsStr::new(name)).is_ok();
    let kind = tree::open_path(directory, OsStr::new("type"))
        .and_then(|file| tree::reopen(file, OFlags::RDONLY))
        .map_or_else(
            |_| String::new(),
            |file| {
                let mut text = Vec::new();
                let _unread = file.take(TYPE_BYTES_MAX).read_to_end(&mut text);
                String::from_utf8_lossy(&text).into_owned()
            },
        );
    is_there("whoami") && (kind.trim() != "bluestore" || is_there("block"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn an_osd_is_activated_when_its_files_are_there_and_the_link_to_its_device_where_it_has_one() {
        let dir = std::env::temp_dir().join(format!("bathyd-activated-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a directory");
        let opened = File::open(&dir).expect("a directory");
        assert!(!is_activated(&opened));
        fs::write(dir.join("type"), "bluestore\n").expect("written");
        fs::write(dir.join("whoami"), "3\n").expect("written");
        assert!(!is_activated(&opened), "the link to its device is yet to come");
        // Its device need not be there.
        symlink("/dev/missing", dir.join("block")).expect("a link");
        assert!(is_activated(&opened));
        fs::remove_file(dir.join("block")).expect("removed");
        fs::write(dir.join("type"), "filestore\n").expect("written");
        assert!(is_activated(&opened));
        fs::remove_file(dir.join("type")).expect("removed");
        assert!(is_activated(&opened), "an OSD of before types were written");
        fs::remove_dir_all(dir).expect("removed");
    }
}
