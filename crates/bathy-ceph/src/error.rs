//! What can go wrong, for who runs the program.

use std::fmt;

use nix::errno::Errno;

/// An error of a library, or the lack of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// A library cannot be loaded.
    NoLibrary {
        /// Its file name.
        file: &'static str,
        /// The loader's own words.
        reason: String,
    },
    /// A library has no function of this name.
    NoFunction {
        /// The library's file name.
        file: &'static str,
        /// The library's version, by its own word.
        version: String,
        /// The function.
        function: &'static str,
    },
    /// A call has failed.
    Failed {
        /// The function.
        call: &'static str,
        /// What it was called for.
        subject: String,
        /// A number of `errno.h`.
        errno: i32,
    },
    /// A text that no C string can hold.
    HasNul {
        /// The text.
        text: String,
    },
}

impl Error {
    /// The name of an error number: ENOENT.
    pub fn errno_name(errno: i32) -> String {
        match Errno::from_raw(errno) {
            Errno::UnknownErrno => format!("errno {errno}"),
            known => format!("{known:?}"),
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NoLibrary { .. } => "install the client libraries of Ceph: apt install librados2 librbd1",
            Self::NoFunction { .. } => "install the client libraries of Ceph 16 or newer",
            Self::Failed { call, errno, .. } => match (*call, Errno::from_raw(*errno)) {
                ("rados_conf_read_file", _) => "name the configuration of the cluster",
                ("rados_conf_set", _) => "`ceph config help OPTION` says whether there is such an option",
                ("rados_connect", Errno::ETIMEDOUT) => {
                    "check that a monitor of the configuration answers: ceph -s"
                }
                ("rados_connect", _) => "compare client, keyring and configuration: ceph -s",
                ("rados_ioctx_create", Errno::ENOENT) => "ceph osd pool ls has the names of the pools",
                ("rbd_open" | "rbd_open_read_only", Errno::ENOENT) => {
                    "rbd ls POOL has the names of the images"
                }
                (_, Errno::EPERM | Errno::EACCES) => {
                    "an administrator sees the rights of a client with: ceph auth get CLIENT"
                }
                _ => "ceph -s shows what the cluster is doing",
            },
            Self::HasNul { .. } => "leave the character out",
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLibrary { file, reason } => write!(formatter, "{file} cannot be loaded: {reason}"),
            Self::NoFunction {
                file,
                version,
                function,
            } => write!(formatter, "{file} (version {version}) has no function {function}"),
            Self::Failed { call, subject, errno } => {
                let words = Errno::from_raw(*errno).desc();
                write!(
                    formatter,
                    "{subject}: {call} failed with {} ({words})",
                    Self::errno_name(*errno)
                )
            }
            Self::HasNul { text } => write!(formatter, "{text:?} has a NUL character"),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_call_its_subject_and_the_number() {
        let error = Error::Failed {
            call: "rbd_open",
            subject: "image a of pool p".to_owned(),
            errno: 2,
        };
        assert_eq!(
            error.to_string(),
            "image a of pool p: rbd_open failed with ENOENT (No such file or directory)"
        );
        assert!(error.hint().contains("rbd ls"));
        assert_eq!(Error::errno_name(108), "ESHUTDOWN");
        assert_eq!(Error::errno_name(99999), "errno 99999");
    }
}
