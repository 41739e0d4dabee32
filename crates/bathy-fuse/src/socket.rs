//! The Unix socket of a daemon: who asks is its owner, each connection has a thread, and there are not too many.

use std::fs;
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::stat::{Mode, umask};

/// Bind the socket, for its owner alone. A socket that a killed process left is replaced, a living one is refused.
///
/// # Errors
/// If the path is in use or cannot be bound.
pub fn bind_socket(path: &Path) -> io::Result<UnixListener> {
    if fs::symlink_metadata(path).is_ok() {
        match UnixStream::connect(path) {
            Ok(_) => return Err(io::Error::other("another process listens on it")),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path)?,
            Err(error) => return Err(error),
        }
    }
    // The mode must be right from the start; nobody else creates files at this time.
    let before = umask(Mode::from_bits_truncate(0o177));
    let bound = UnixListener::bind(path);
    umask(before);
    bound
}

/// Have each connection answered by `converse` in a thread called `name`, for as long as the process lives. At most
/// `connections_max` are answered at a time; others are closed.
///
/// # Errors
/// If there cannot be another thread.
pub fn answer_connections(
    listener: UnixListener,
    name: &'static str,
    connections_max: usize,
    converse: impl Fn(UnixStream) -> io::Result<()> + Send + Sync + 'static,
) -> io::Result<()> {
    let (converse, connections) = (Arc::new(converse), Arc::new(AtomicUsize::new(0)));
    let accept = move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else {
                // Out of file descriptors, most likely; a busy loop would not give any back.
                thread::sleep(Duration::from_millis(100));
                continue;
            };
            if connections.fetch_add(1, Ordering::Relaxed) >= connections_max {
                connections.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let (converse, counted) = (Arc::clone(&converse), Arc::clone(&connections));
            let answering = thread::Builder::new().name(name.to_owned()).spawn(move || {
                let _broken = converse(stream);
                counted.fetch_sub(1, Ordering::Relaxed);
            });
            if answering.is_err() {
                connections.fetch_sub(1, Ordering::Relaxed);
            }
        }
    };
    thread::Builder::new().name(name.to_owned()).spawn(accept)?;
    Ok(())
}
