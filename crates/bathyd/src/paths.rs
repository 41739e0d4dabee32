//! What a cached file is called: from its handle to a path below the source.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::fstat;

use crate::devices::{Device, Devices};
use crate::identity::{KnownBy, open_handle};

/// Entries of directories that are looked at for files whose names the kernel does not know at the moment.
const ENTRIES_MAX: usize = 200_000;

/// The root of a source, to ask for what is below while it is mounted over.
pub(crate) struct Paths {
    root: File,
    /// The same in its own mount: through that the kernel names what is not below the root, too.
    below: File,
    devices: Arc<Devices>,
}

/// What is known of a file by its handle.
#[derive(Default)]
pub(crate) struct Named {
    /// Below the source; of several links one.
    pub(crate) path: Option<String>,
    pub(crate) is_device: bool,
    pub(crate) size_bytes: Option<u64>,
    /// It has a link, whose name is not known.
    inode: Option<u64>,
}

impl Paths {
    /// `root` is the directory in a mount of this process alone, `below` the same in its own, and `devices` are those of its
    /// links.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(crate) fn new(root: &OwnedFd, below: &File, devices: Arc<Devices>) -> io::Result<Self> {
        // Handles are not opened by a descriptor that is open as a path alone.
        let root = File::open(format!("/proc/self/fd/{}", root.as_raw_fd()))?;
        let below = below.try_clone()?;
        Ok(Self { root, below, devices })
    }

    /// The files of some handles.
    pub(crate) fn named<'a>(&self, handles: impl Iterator<Item = &'a [u8]>) -> Vec<Named> {
        let mut files: Vec<Named> = handles
            .map(|handle| self.name(handle).unwrap_or_default())
            .collect();
        let wanted = files.iter().filter_map(|file| file.inode);
        let found = self.search(wanted.map(|inode| (inode, None)).collect());
        for file in &mut files {
            if let Some(path) = file.inode.and_then(|inode| found.get(&inode)?.as_ref()) {
                file.path = Some(path.to_string_lossy().into_owned());
            }
        }
        files
    }

    fn name(&self, handle: &[u8]) -> io::Result<Named> {
        if let Some(device) = self.device(handle) {
            return Ok(device);
        }
        let fd = match KnownBy::of(handle) {
            Some(KnownBy::Handle(handle)) => open_handle(&self.below, handle)?,
            Some(KnownBy::Device) => {
                return Ok(Named {
                    is_device: true,
                    ..Named::default()
                });
            }
            Some(KnownBy::Inode(inode)) => {
                return Ok(Named {
                    inode: Some(inode),
                    ..Named::default()
                });
            }
            None => return Ok(Named::default()),
        };
        let stat = fstat(&fd)?;
        let mut named = Named {
            size_bytes: Some(stat.st_size as u64),
            ..Named::default()
        };
        if stat.st_nlink > 0 {
            let target = |fd: i32| fs::read_link(format!("/proc/self/fd/{fd}"));
            let (file, root) = (target(fd.as_raw_fd())?, target(self.below.as_raw_fd())?);
            match file.strip_prefix(root) {
                Ok(path) => named.path = Some(path.to_string_lossy().into_owned()),
                Err(_) => named.inode = Some(stat.st_ino),
            }
        }
        Ok(named)
    }

    fn device(&self, handle: &[u8]) -> Option<Named> {
        let of_source = self.root.metadata().map_or(0, |metadata| metadata.dev());
        let is_it = |device: &&Arc<Device>| {
            let identity = device.file_identity(of_source).ok();
            identity
                .and_then(|identity| identity.handle_in(of_source))
                .as_deref()
                == Some(handle)
        };
        let device = self.devices.known().iter().find(is_it)?;
        Some(Named {
            is_device: device.is_block(),
            path: Some(device.name.to_owned()),
            size_bytes: device.size_bytes().ok(),
            inode: None,
        })
    }

    /// Looks for inodes below the root, in no more than so many entries.
    fn search(&self, mut wanted: HashMap<u64, Option<PathBuf>>) -> HashMap<u64, Option<PathBuf>> {
        let top = PathBuf::from(format!("/proc/self/fd/{}", self.root.as_raw_fd()));
        let device = self.root.metadata().map_or(0, |metadata| metadata.dev());
        let (mut missing, mut entries) = (wanted.len(), 0);
        let mut directories = vec![PathBuf::new()];
        while let Some(directory) = directories.pop() {
            let Ok(listed) = fs::read_dir(top.join(&directory)) else {
                continue;
            };
            for entry in listed.flatten() {
                entries += 1;
                if missing == 0 || entries > ENTRIES_MAX {
                    return wanted;
                }
                let path = directory.join(entry.file_name());
                let Ok(metadata) = entry.metadata() else {
                    continue;
                };
                if metadata.dev() != device {
                    continue;
                }
                if metadata.is_dir() {
                    directories.push(path);
                } else if let Some(found @ None) = wanted.get_mut(&metadata.ino()) {
                    *found = Some(path);
                    missing -= 1;
                }
            }
        }
        wanted
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::config::Configuration;
    use crate::config::Source;
    use crate::devices::Place;

    #[test]
    fn inodes_are_found_below_the_root() {
        let dir = std::env::temp_dir().join(format!("bathyd-paths-{}", std::process::id()));
        fs::create_dir_all(dir.join("x/y")).expect("directories");
        fs::write(dir.join("x/y/file"), "bytes").expect("written");
        symlink("..", dir.join("x/up")).expect("a link, which is not followed");
        let root = OwnedFd::from(File::open(&dir).expect("a directory"));
        let below = File::open(&dir).expect("a directory");
        let place = Place::new(&root, &below, &Source::at(&dir)).expect("a place");
        let devices = Devices::open(place, &Configuration::new());
        let paths = Paths::new(&root, &below, Arc::new(devices)).expect("it can be read");
        let inode = fs::metadata(dir.join("x/y/file")).expect("it is there").ino();
        let found = paths.search(HashMap::from([(inode, None), (0, None)]));
        assert_eq!(found[&inode], Some(PathBuf::from("x/y/file")));
        assert_eq!(found[&0], None);
        fs::remove_dir_all(dir).expect("removed");
    }
}
