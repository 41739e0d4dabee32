//! FUSE over `io_uring`: requests are taken from the kernel and answered without a system call for each, in a thread on the
//! processor of the application.
//!
//! Reads and writes are carried out by a [`DataPath`]: those that are quick where they arrive, others by threads that may wait.
//! All other requests go to an ordinary `fuser::Filesystem`: for each queue there is a session of it, at the other end of a
//! socket that stands in for the device. What the kernel still sends through the device (INIT, FORGET, INTERRUPT) goes to one
//! more such session.
//!
//! A queue without its thread would be filled by the kernel for ever, as it sends the requests of a processor nowhere else. So
//! whatever ends of all this, by an error or a panic, ends the connection: each request fails at once.
//!
//! The kernel decides for each connection when it begins: it offers the ring in INIT, and once that is accepted it holds
//! requests back until each processor's queue has an entry. So everything that can fail is made before INIT is answered.

mod buffers;
mod data_path;
mod pool;
mod protocol;
mod queue;
mod transfer;

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, mpsc};
use std::thread;

use fuser::{Config, Filesystem, Session};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, setsockopt, socketpair, sockopt::SndBuf};
use nix::unistd::Pid;

use crate::abort::Abort;
pub use data_path::DataPath;
use pool::Pool;
use protocol::{BATCH_FORGET, FORGET, InHeader};
use queue::{MESSAGE_BYTES_MAX, Queue};

/// The kernel wants a reader of the device to have room for the longest payload and this, in bytes.
const DEVICE_HEADERS_BYTES_MAX: usize = 4096;
/// What the socket of a session may hold, in bytes, where the system allows it.
const SOCKET_BYTES: usize = 4 * MESSAGE_BYTES_MAX;

/// Threads of the session of a queue, at least: so many of its requests wait for a disk at a time, beside reads and writes.
const QUEUE_THREADS_MIN: usize = 4;

/// Whether the kernel offers rings to connections that begin now.
pub fn is_ring_offered() -> bool {
    fs::read("/sys/module/fuse/parameters/enable_uring").is_ok_and(|text| text.starts_with(b"Y"))
}

/// A session of a file system, and our end of its socket.
struct Peer<F: Filesystem> {
    socket: File,
    session: Session<F>,
}

impl<F: Filesystem> Peer<F> {
    /// Makes a session and returns its reply to `init`.
    fn new(filesystem: F, init: &[u8], config: &Config) -> io::Result<(Self, Vec<u8>)> {
        let kind = (AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC);
        let (ours, theirs) = socketpair(kind.0, kind.1, None, kind.2)?;
        for end in [&ours, &theirs] {
            // It gets what the system allows, which is enough for a message.
            setsockopt(end, SndBuf, &SOCKET_BYTES)?;
        }
        let mut socket = File::from(ours);
        socket.write_all(init)?;
        let session = Session::from_fd(filesystem, theirs, config.acl, config.clone())?;
        let mut reply = vec![0; 4096];
        let length = socket.read(&mut reply)?;
        reply.truncate(length);
        Ok((Self { socket, session }, reply))
    }
}

/// Accepts the connection of `device` and returns what serves it until the end.
pub(crate) fn begin<F: Filesystem + Clone>(
    filesystem: &F,
    data: &Arc<dyn DataPath>,
    mut device: File,
    abort: Abort,
    config: &Config,
) -> io::Result<impl FnOnce() -> io::Result<()> + Send + 'static> {
    if !is_ring_offered() {
        return Err(io::Error::other(
            "the kernel does not offer it (fuse.enable_uring)",
        ));
    }
    let mut init = vec![0; 8192];
    let length = retrying(|| device.read(&mut init))?;
    init.truncate(length);
    if !protocol::offers_ring(&init) {
        return Err(io::Error::other(
            "the kernel does not offer it to this connection",
        ));
    }
    // The threads of a session share its end of the socket.
    let mut shared = config.clone();
    shared.clone_fd = false;
    // Little comes through the device.
    let mut single = shared.clone();
    single.n_threads = Some(1);
    // The queues share the threads; each has some, as it cannot use those of others.
    let session_threads = config
        .n_threads
        .unwrap_or(1)
        .div_ceil(usize::from(processors()?))
        .max(QUEUE_THREADS_MIN);
    shared.n_threads = Some(session_threads);
    let (first, mut reply) = Peer::new(filesystem.clone(), &init, &single)?;
    let payload_bytes = protocol::accept_ring(&mut reply)?;

    let pool = Pool::new(config.n_threads.unwrap_or(1), data)?;
    let spawn = |name: String, work: Box<dyn FnOnce() -> io::Result<()> + Send>| {
        let abort = AtEnd(abort.clone());
        thread::Builder::new().name(name).spawn(move || {
            let _abort = abort;
            work()
        })
    };
    let (mut queues, mut sessions) = (Vec::new(), Vec::new());
    let mut gates = Vec::new();
    for number in 0..processors()? {
        let (Peer { socket, session }, _reply) = Peer::new(filesystem.clone(), &init, &shared)?;
        let name = format!("fuse-meta-{number}");
        sessions.push(spawn(name, Box::new(|| session.run()))?);
        let (device, data, jobs) = (device.try_clone()?, Arc::clone(data), pool.jobs());
        let (made, is_made) = mpsc::channel();
        let (open, gate) = mpsc::channel::<()>();
        let (abort, name) = (abort.clone(), format!("fuse-ring-{number}"));
        let work = move || {
            stay_on(number);
            let queue = Queue::new(
                number,
                device.as_fd(),
                socket,
                session_threads,
                payload_bytes,
                data,
                jobs,
            );
            drop(device);
            let (queue, result) = match queue {
                Ok(queue) => (Some(queue), Ok(())),
                Err(error) => (None, Err(error)),
            };
            let _nobody_waits = made.send(result);
            match (queue, gate.recv()) {
                (Some(mut queue), Ok(())) => {
                    // Dropped before the queue: nothing refers to its memory then.
                    let _abort = AtEnd(abort);
                    queue.serve().map_err(|error| {
                        io::Error::new(error.kind(), format!("io_uring of processor {number}: {error}"))
                    })
                }
                _ => Ok(()),
            }
        };
        queues.push(spawn(name, Box::new(work))?);
        is_made.recv().map_err(io::Error::other)??;
        gates.push(open);
    }
    device.write_all(&reply)?;
    for gate in gates {
        gate.send(()).map_err(io::Error::other)?;
    }
    let Peer { socket, session } = first;
    sessions.push(spawn("fuse-device".to_owned(), Box::new(|| session.run()))?);
    Ok(move || {
        let ended = pump(&mut device, socket, payload_bytes + DEVICE_HEADERS_BYTES_MAX);
        abort.now();
        // An error of a queue comes first: it makes its session end with one.
        let workers = queues.into_iter().chain(sessions);
        let results = workers.map(|worker| {
            let result = worker.join();
            result.unwrap_or_else(|_| Err(io::Error::other("a thread of it panicked")))
        });
        // Each is waited for.
        let results: Vec<_> = results.collect();
        drop(pool);
        results.into_iter().fold(Ok(()), Result::and).and(ended)
    })
}

/// Ends the connection when a thread ends that the others cannot do without, however it does.
struct AtEnd(Abort);

impl Drop for AtEnd {
    fn drop(&mut self) {
        self.0.now();
    }
}

/// Passes on what still comes through the device, until the connection ends.
fn pump(device: &mut File, mut session: File, bytes_max: usize) -> io::Result<()> {
    let mut buffer = vec![0; bytes_max];
    let ended = loop {
        let length = match retrying(|| device.read(&mut buffer)) {
            Ok(length) => length,
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => break Ok(()),
            Err(error) => break Err(error),
        };
        for part in protocol::split(&buffer[..length], MESSAGE_BYTES_MAX / 2) {
            session.write_all(&part)?;
        }
        if ![FORGET, BATCH_FORGET].contains(&InHeader::of(&buffer).opcode) {
            let length = session.read(&mut buffer)?;
            // The reply to an interrupt finds no request here.
            let _unknown = device.write(&buffer[..length]);
        }
    };
    session.write_all(&protocol::destroy())?;
    ended
}

/// What the kernel says when a request was withdrawn before it was read is no end.
fn retrying(mut read: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match read() {
            Err(error)
                if [libc::ENOENT, libc::EINTR, libc::EAGAIN]
                    .map(Some)
                    .contains(&error.raw_os_error()) => {}
            result => return result,
        }
    }
}

/// The kernel puts a request into the queue of the application's processor.
fn stay_on(processor: u16) {
    let mut set = CpuSet::new();
    // One that is off takes no requests either.
    let _off = set
        .set(processor.into())
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &set));
}

/// How many processors there can be: the kernel wants a queue for each.
fn processors() -> io::Result<u16> {
    let text = fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let count = count_of_ranges(text.trim());
    count.ok_or_else(|| io::Error::other(format!("processors {text:?}")))
}

/// The numbers in a list such as `0-3,8`.
fn count_of_ranges(text: &str) -> Option<u16> {
    let counts = text.split(',').map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        (last.parse::<u16>().ok()? + 1).checked_sub(first.parse().ok()?)
    });
    counts.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_counted() {
        for (text, count) in [
            ("0", Some(1)),
            ("0-127", Some(128)),
            ("0-3,8", Some(5)),
            ("", None),
            ("3-1", None),
        ] {
            assert_eq!(count_of_ranges(text), count, "{text}");
        }
    }

    #[test]
    fn the_ring_is_accepted_with_room_for_the_longest_request() {
        let mut reply = vec![0; 80];
        reply[16 + 20..16 + 24].copy_from_slice(&(1_u32 << 20).to_ne_bytes());
        reply[16 + 28..16 + 30].copy_from_slice(&300_u16.to_ne_bytes());
        assert_eq!(protocol::accept_ring(&mut reply).expect("accepted"), 300 * 4096);
        let flags = |at: usize| protocol::u32_at(&reply, 16 + at);
        assert_eq!((flags(12), flags(32)), (1 << 30, 1 << 9));
        reply[4..8].copy_from_slice(&(-5_i32).to_ne_bytes());
        assert!(protocol::accept_ring(&mut reply).is_err());
        assert!(protocol::accept_ring(&mut [0; 24]).is_err());
    }
}
