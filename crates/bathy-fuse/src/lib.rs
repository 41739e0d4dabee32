//! A thin FUSE front end: a flat directory of files whose contents a [`FileService`] serves.
//!
//! The front end knows the kernel's protocol and nothing else. Every request is handed to the service together with a
//! reply, which may be answered at once or later from any thread; the front end itself never waits. All I/O is direct:
//! the service sees each request as the application made it, and nothing is kept in the page cache. Files have fixed
//! names and sizes, like devices: they cannot be created, removed or resized.
//!
//! [`mount`] and its neighbours serve any `fuser::Filesystem`, through the device or over `io_uring` ([`mount_over_ring`]);
//! [`Readers`] and [`Pace`] let few of its threads ask for requests. [`bind_socket`] and [`answer_connections`] are for the
//! socket by which a daemon is asked.
//!
//! [`serve`] mounts, waits for SIGTERM, SIGINT or an unmount from outside, and unmounts. A service is tested without a
//! mount through replies that carry a callback ([`Reply::callback`]).
//!
//! Not here: what the bytes are, how long they take, and any state of a file besides its mode and owner.

mod abort;
mod caller;
mod device_number;
mod front_end;
mod mount;
mod mount_options;
mod mount_point;
mod pace;
mod readers;
mod reply;
mod ring;
mod service;
mod socket;

pub use caller::Caller;
pub use fuser::{Errno, MountOption, WriteFlags};
pub use mount::{Mounted, StopSignals, Wakeup, mount, mount_over_ring, prefer_real_time, serve};
pub use mount_options::{MountError, MountOptions};
pub use mount_point::{Claim, MountBelow, claim, mounts_below};
pub use pace::Pace;
pub use readers::{Readers, Turn};
pub use reply::Reply;
pub use ring::{DataPath, is_ring_offered};
pub use service::{FileEntry, FileService};
pub use socket::{answer_connections, bind_socket};

/// The greatest length of one read or write that reaches a service, in bytes.
pub const REQUEST_BYTES_MAX: u32 = 1 << 20;
