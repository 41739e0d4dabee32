//! Kinds of file systems, by the number that `statfs` gives: what may be cached, and where a request may wait for another program.

use std::io;
use std::os::fd::AsFd;

use nix::sys::statfs::fstatfs;

/// Of what kind a file system is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystem {
    /// On devices of this machine, or in its memory.
    Local,
    /// Of the kernel: `proc`, `sysfs` and the like. Their files do not keep what is written.
    Kernel,
    /// Of a server, or shared with other machines: files change without a sign.
    Network,
    /// Served by a program.
    Fuse,
}

/// `linux/magic.h`, and the headers of the file systems.
const KERNEL: [u32; 15] = [
    0x9fa0,
    0x6265_6572,
    0x0027_e0eb,
    0x6367_7270,
    0x6462_6720,
    0x7472_6163,
    0x1cd1,
    0xcafe_4a11,
    0x7363_6673,
    0x6265_6570,
    0xde5e_81e4,
    0x6165_676c,
    0x6573_5543,
    0x4249_4e4d,
    0x1980_0202,
];
const NETWORK: [u32; 14] = [
    0x6969,
    0xff53_4d42,
    0xfe53_4d42,
    0x517b,
    0x00c3_6400,
    0x0102_1997,
    0x5346_414f,
    0x6b41_4653,
    0x0116_1970,
    0x7461_636f,
    0x0bd0_0bd0,
    0x1983_0326,
    0x4750_4653,
    0x786f_4256,
];
const FUSE: u32 = 0x6573_5546;

impl FileSystem {
    /// The kind of the file system of what is open.
    ///
    /// # Errors
    /// If it cannot be asked.
    pub fn of(opened: impl AsFd) -> io::Result<Self> {
        Ok(Self::numbered(fstatfs(opened)?.filesystem_type().0 as u32))
    }

    fn numbered(number: u32) -> Self {
        match number {
            FUSE => Self::Fuse,
            number if NETWORK.contains(&number) => Self::Network,
            number if KERNEL.contains(&number) => Self::Kernel,
            _ => Self::Local,
        }
    }
}

/// In words.
impl std::fmt::Display for FileSystem {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::Local => "a local file system",
            Self::Kernel => "a file system of the kernel, such as proc",
            Self::Network => "a network file system",
            Self::Fuse => "a FUSE file system",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn file_systems_of_the_kernel_and_of_programs_are_told_from_local_ones() {
        let of =
            |path: &str| FileSystem::of(File::open(path).expect("a directory")).expect("it can be asked");
        assert_eq!(
            (of("/proc"), of("/sys")),
            (FileSystem::Kernel, FileSystem::Kernel)
        );
        assert_eq!(of("/"), FileSystem::Local);
        assert_eq!(FileSystem::numbered(0x6573_5546), FileSystem::Fuse);
        for nfs_or_ceph in [0x6969, 0x00c3_6400] {
            assert_eq!(FileSystem::numbered(nfs_or_ceph), FileSystem::Network);
        }
    }
}
