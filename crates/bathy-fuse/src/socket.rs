//! The Unix socket of a daemon: who asks is its owner, each connection has a thread, and there are not too many.

use std::fs;
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
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
    // A connection has its place for as long as this is shared with it, and gives it back however it ends, by a panic too.
    let (converse, places) = (Arc::new(converse), Arc::new(()));
    let accept = move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else {
                // Out of file descriptors, most likely; a busy loop would not give any back.
                thread::sleep(Duration::from_millis(100));
                continue;
            };
            if Arc::strong_count(&places) > connections_max {
                continue;
            }
            let (converse, place) = (Arc::clone(&converse), Arc::clone(&places));
            let _no_thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
                let _broken = converse(stream);
                drop(place);
            });
        }
    };
    thread::Builder::new().name(name.to_owned()).spawn(accept)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::time::Instant;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn conversations_that_panic_give_their_places_back() {
        let path = std::env::temp_dir().join(format!("bathy-fuse-socket-{}", std::process::id()));
        let listener = bind_socket(&path).expect("nobody listens there");
        answer_connections(listener, "test", 2, |mut stream| {
            let mut word = [0; 4];
            stream.read_exact(&mut word)?;
            assert_ne!(&word, b"fail", "on purpose");
            stream.write_all(&word)
        })
        .expect("a thread");
        // What comes back: nothing, if there is no place for it or it panics.
        let say = |word: &[u8]| {
            let mut stream = UnixStream::connect(&path).expect("somebody listens");
            let mut answer = Vec::new();
            let _no_place = stream
                .write_all(word)
                .and_then(|()| stream.read_to_end(&mut answer).map(drop));
            answer
        };
        for _ in 0..4 {
            assert!(say(b"fail").is_empty());
        }
        let began = Instant::now();
        while say(b"well") != b"well" {
            assert!(began.elapsed() < PATIENCE, "the socket is silent");
            thread::yield_now();
        }
        fs::remove_file(path).expect("removed");
    }
}
