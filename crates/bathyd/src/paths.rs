//! What a cached file is called: from its handle to a path below the source.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use rustix::fs::{OFlags, fstat, seek};

use crate::identity::{FileIdentity, KnownBy, open_handle};
use crate::inodes::device_links;

/// Entries of directories that are looked at for files whose names the kernel does not know at the moment.
const ENTRIES_MAX: usize = 200_000;

/// The root of a source, to ask for what is below while it is mounted over.
pub(crate) struct Paths {
    root: File,
    dir: PathBuf,
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
    /// `root` is the directory, and `dir` its path.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(crate) fn new(root: &OwnedFd, dir: PathBuf) -> io::Result<Self> {
        // Handles are not opened by a descriptor that is open as a path alone.
        let root = File::open(format!("/proc/self/fd/{}", root.as_raw_fd()))?;
        Ok(Self { root, dir })
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
        let fd = match KnownBy::of(handle) {
            Some(KnownBy::Handle(handle)) => open_handle(&self.root, handle)?,
            Some(KnownBy::Device(handle)) => return Ok(self.device(handle)),
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
            let (file, root) = (target(fd.as_raw_fd())?, target(self.root.as_raw_fd())?);
            match file.strip_prefix(root) {
                Ok(path) => named.path = Some(path.to_string_lossy().into_owned()),
                Err(_) => named.inode = Some(stat.st_ino),
            }
        }
        Ok(named)
    }

    fn device(&self, handle: &[u8]) -> Named {
        let mut named = Named {
            is_device: true,
            ..Named::default()
        };
        for (name, fd) in device_links(&self.root, &self.dir) {
            let is_it = |number| {
                FileIdentity::Device(number)
                    .handle_in(0)
                    .is_some_and(|one| one == handle)
            };
            if fstat(&fd).is_ok_and(|stat| is_it(stat.st_rdev)) {
                named.path = Some(name.to_owned());
                let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
                let device =
                    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, rustix::fs::Mode::empty());
                named.size_bytes = device.and_then(|fd| seek(fd, rustix::fs::SeekFrom::End(0))).ok();
            }
        }
        named
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

    #[test]
    fn inodes_are_found_below_the_root() {
        let dir = std::env::temp_dir().join(format!("bathyd-paths-{}", std::process::id()));
        fs::create_dir_all(dir.join("x/y")).expect("directories");
        fs::write(dir.join("x/y/file"), "bytes").expect("written");
        symlink("..", dir.join("x/up")).expect("a link, which is not followed");
        let root = OwnedFd::from(File::open(&dir).expect("a directory"));
        let paths = Paths::new(&root, dir.clone()).expect("it can be read");
        let inode = fs::metadata(dir.join("x/y/file")).expect("it is there").ino();
        let found = paths.search(HashMap::from([(inode, None), (0, None)]));
        assert_eq!(found[&inode], Some(PathBuf::from("x/y/file")));
        assert_eq!(found[&0], None);
        fs::remove_dir_all(dir).expect("removed");
    }
}
