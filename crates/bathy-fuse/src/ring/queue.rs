//! A queue of the kernel: the requests of one processor, taken and answered through an `io_uring`.

use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fuser::{Errno, WriteFlags};
use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue, opcode, types};

use super::DataPath;
use super::buffers::{Buffers, Entry};
use super::protocol::{
    IN_HEADER_BYTES, InHeader, OUT_HEADER_BYTES, OutHeader, READ, Transfer, WRITE, destroy,
};

/// Requests of a queue that are under way at a time; more wait in the kernel.
const ENTRIES: usize = 16;
/// `FUSE_IO_URING_CMD_REGISTER`: here are the buffers of an entry, fetch a request.
const REGISTER: u32 = 1;
/// `FUSE_IO_URING_CMD_COMMIT_AND_FETCH`: here is a reply, fetch another request.
const COMMIT_AND_FETCH: u32 = 2;
/// The device among the ring's registered files.
const DEVICE: types::Fixed = types::Fixed(0);
/// The session's socket among the ring's registered files.
const SESSION: types::Fixed = types::Fixed(1);
/// Marks the completion of a receive; others carry the index of an entry.
const RECEIVED: u64 = u64::MAX;
/// In the number of a request that is passed on: the rest is the index of its entry. No number of the kernel's has it.
const PASSED_ON: u64 = 1 << 63;

pub(super) struct Queue {
    /// Before the buffers, so that it is dropped before them.
    ring: IoUring<Entry128, cqueue::Entry>,
    buffers: Buffers,
    /// Where the session's next reply is received.
    reply: Box<[u8]>,
    session: File,
    session_threads: usize,
    number: u16,
    service: Arc<dyn DataPath>,
    /// Entries that the kernel has not given up.
    live_entries: usize,
    /// Requests that the session has.
    passed_on: usize,
    reads: Pace,
    writes: Pace,
    completed: Vec<(u64, i32)>,
}

impl Queue {
    /// The queue of a number over `device`. `session` is our end of the socket of a session with `session_threads`.
    pub(super) fn new(
        number: u16,
        device: BorrowedFd<'_>,
        session: File,
        session_threads: usize,
        payload_bytes: usize,
        service: Arc<dyn DataPath>,
    ) -> io::Result<Self> {
        let mut builder = IoUring::builder();
        builder
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_submit_all();
        // Each entry, and the receive, has at most one command under way.
        let ring = builder.build(2 * ENTRIES as u32)?;
        ring.submitter()
            .register_files(&[device.as_raw_fd(), session.as_raw_fd()])?;
        Ok(Self {
            ring,
            buffers: Buffers::new(ENTRIES, payload_bytes)?,
            reply: vec![0; OUT_HEADER_BYTES + payload_bytes].into(),
            session,
            session_threads,
            number,
            service,
            live_entries: 0,
            passed_on: 0,
            reads: Pace::default(),
            writes: Pace::default(),
            completed: Vec::with_capacity(2 * ENTRIES),
        })
    }

    /// Serves until the connection ends.
    pub(super) fn serve(mut self) -> io::Result<()> {
        for index in 0..ENTRIES {
            self.submit(index, REGISTER, 0)?;
            self.live_entries += 1;
        }
        self.receive()?;
        let mut is_connected = true;
        let mut result = Ok(());
        loop {
            match self.ring.submit_and_wait(1) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                submitted => drop(submitted?),
            }
            let mut completed = std::mem::take(&mut self.completed);
            completed.extend(self.ring.completion().map(|it| (it.user_data(), it.result())));
            let mut left = completed.len();
            for (what, code) in completed.drain(..) {
                left -= 1;
                match (what, usize::try_from(code)) {
                    // All threads of the session have ended.
                    (RECEIVED, Err(_) | Ok(0)) => return result,
                    (RECEIVED, Ok(length)) => {
                        self.pass_back(length)?;
                        self.receive()?;
                    }
                    (index, Ok(_)) => self.take(index as usize, left)?,
                    (_, Err(_)) => {
                        self.live_entries -= 1;
                        if ![-libc::ENOTCONN, -libc::ECONNABORTED].contains(&code) {
                            result = Err(io::Error::from_raw_os_error(-code));
                        }
                    }
                }
            }
            self.completed = completed;
            if self.live_entries == 0 && is_connected {
                is_connected = false;
                for _ in 0..self.session_threads {
                    self.session.write_all(&destroy())?;
                }
            }
        }
    }

    fn submit(&mut self, index: usize, command: u32, commit_id: u64) -> io::Result<()> {
        /// Where `len` stands in `struct io_uring_sqe`, in units of its own size.
        const LEN: usize = 24 / size_of::<u32>();
        // `struct fuse_uring_cmd_req`: flags, commit id, queue.
        let mut request = [0; 80];
        request[8..16].copy_from_slice(&commit_id.to_ne_bytes());
        request[16..18].copy_from_slice(&self.number.to_ne_bytes());
        let mut entry = opcode::UringCmd80::new(DEVICE, command)
            .cmd(request)
            .addr(Some(self.buffers.vectors_address(index)))
            .build()
            .user_data(index as u64);
        // SAFETY: an `Entry128` is 128 bytes that begin with `struct io_uring_sqe` and are integers only; `len`, the number of
        // vectors, is a u32 at byte 24, for which the crate has no setter here.
        unsafe { (&raw mut entry).cast::<u32>().add(LEN).write(2) };
        // SAFETY: vectors and buffers live until the ring is gone. No reference to them is alive, so the kernel may read
        // the reply, and may write the next request until the command completes.
        self.push(&unsafe { Submission::new(entry) })
    }

    fn receive(&mut self) -> io::Result<()> {
        let receive = opcode::Recv::new(SESSION, self.reply.as_mut_ptr(), self.reply.len() as u32);
        let entry = Entry128::from(receive.build()).user_data(RECEIVED);
        // SAFETY: the buffer lives until the ring is gone, and nothing refers to it before the completion.
        self.push(&unsafe { Submission::new(entry) })
    }

    fn push(&mut self, submission: &Submission) -> io::Result<()> {
        // SAFETY: by the contract of `Submission::new` what the entry points to is valid until it completes.
        let pushed = unsafe { self.ring.submission().push(&submission.0) };
        pushed.map_err(|_full| io::Error::other("the ring is full"))
    }

    /// A request has arrived, with others behind it: answers it, or passes it on.
    fn take(&mut self, index: usize, others: usize) -> io::Result<()> {
        // SAFETY: the kernel has just completed the entry's command.
        let mut entry = unsafe { self.buffers.entry(index) };
        let commit_id = entry.commit_id();
        let header = InHeader::of(entry.in_header());
        let is_alone = others == 0 && self.passed_on == 0;
        let service = &*self.service;
        let wanted = Transfer::of(entry.arguments());
        let work = match header.opcode {
            READ if service.is_at_hand(wanted.handle, wanted.offset, wanted.length) => {
                Some((&mut self.reads, read as Work))
            }
            WRITE if !service.is_written_through(wanted.handle) => Some((&mut self.writes, write as Work)),
            _ => None,
        };
        let work =
            work.and_then(|(pace, work)| (is_alone || pace.is_quick_or_sampled()).then_some((pace, work)));
        if work.is_none() && pass_on(&mut self.session, &mut entry, header, index).is_ok() {
            self.passed_on += 1;
            return Ok(());
        }
        let begun = Instant::now();
        let done = match (&work, header.opcode) {
            (Some((_, work)), _) => work(service, wanted, entry.payload),
            // It could not be passed on, for want of memory for the message: others wait here then, which an end of the queue
            // would make them do for ever.
            (None, READ) => read(service, wanted, entry.payload),
            (None, WRITE) => write(service, wanted, entry.payload),
            (None, _) => Err(io::Error::from_raw_os_error(libc::EIO)),
        };
        let (error, length) = match done {
            Ok(length) => (0, length),
            Err(error) => (-Errno::from(error).code(), 0),
        };
        if let Some((pace, _)) = work {
            pace.note(begun.elapsed());
        }
        let unique = header.unique;
        entry.set_reply(OutHeader { error, unique }.bytes(length), length);
        self.submit(index, COMMIT_AND_FETCH, commit_id)
    }

    /// The session has answered a request that was passed on.
    fn pass_back(&mut self, length: usize) -> io::Result<()> {
        let header = OutHeader::of(&self.reply);
        if header.unique & PASSED_ON == 0 {
            // The thanks for `destroy`.
            return Ok(());
        }
        self.passed_on -= 1;
        let index = (header.unique & !PASSED_ON) as usize;
        // SAFETY: the entry has this request, so the kernel has completed its command, and it was not committed: a session
        // answers each request once.
        let mut entry = unsafe { self.buffers.entry(index) };
        let commit_id = entry.commit_id();
        let payload = &self.reply[OUT_HEADER_BYTES..length];
        entry.payload[..payload.len()].copy_from_slice(payload);
        let unique = InHeader::of(entry.in_header()).unique;
        let header = OutHeader { unique, ..header };
        entry.set_reply(header.bytes(payload.len()), payload.len());
        self.submit(index, COMMIT_AND_FETCH, commit_id)
    }
}

/// How long requests of a kind take in the thread of the queue, where all others wait for them.
#[derive(Default)]
struct Pace {
    ns_mean: u64,
    passed_on: u32,
}

impl Pace {
    /// About what it costs to pass a request on.
    const SLOW_NS: u64 = 25_000;
    /// So that one that lost its processor does not make all look slow.
    const NS_MAX: u64 = 4 * Self::SLOW_NS;
    /// Of so many slow ones one is carried out here, to see whether they still are.
    const SAMPLE: u32 = 32;

    fn is_quick_or_sampled(&mut self) -> bool {
        self.passed_on = if self.ns_mean <= Self::SLOW_NS {
            0
        } else {
            (self.passed_on + 1) % Self::SAMPLE
        };
        self.passed_on == 0
    }

    fn note(&mut self, took: Duration) {
        let ns = (took.as_nanos() as u64).min(Self::NS_MAX);
        self.ns_mean = (7 * self.ns_mean + ns) / 8;
    }
}

/// An entry for the submission queue.
struct Submission(Entry128);

impl Submission {
    /// # Safety
    /// What the entry points to is valid, and left alone, until the entry completes or the ring is gone.
    unsafe fn new(entry: Entry128) -> Self {
        Self(entry)
    }
}

/// Carries out a request on its payload, and returns the bytes of the reply there.
type Work = fn(&dyn DataPath, Transfer, &mut [u8]) -> io::Result<usize>;

fn read(service: &dyn DataPath, wanted: Transfer, payload: &mut [u8]) -> io::Result<usize> {
    let buffer = payload.get_mut(..wanted.length);
    let buffer = buffer.ok_or(io::ErrorKind::InvalidInput)?;
    caught(|| service.read(wanted.handle, wanted.offset, buffer))
}

/// The reply is `struct fuse_write_out`.
fn write(service: &dyn DataPath, given: Transfer, payload: &mut [u8]) -> io::Result<usize> {
    const REPLY_BYTES: usize = 8;
    let data = payload.get(..given.length);
    let data = data.ok_or(io::ErrorKind::InvalidInput)?;
    let flags = WriteFlags::from_bits_retain(given.flags);
    caught(|| service.write(given.handle, given.offset, data, flags))?;
    payload[..REPLY_BYTES].fill(0);
    payload[..4].copy_from_slice(&(given.length as u32).to_ne_bytes());
    Ok(REPLY_BYTES)
}

/// A request that is never answered hangs its application, so one that panics is answered.
fn caught<T>(work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(io::Error::other("a panic")))
}

/// Hands a request to the session, in one message as from the device.
fn pass_on(session: &mut File, entry: &mut Entry<'_>, header: InHeader, index: usize) -> io::Result<()> {
    let payload_length = entry.payload_length();
    // The kernel puts only the first, fixed argument into the header.
    let fixed_length = header.length - IN_HEADER_BYTES - payload_length;
    let mut renumbered = [0; IN_HEADER_BYTES];
    renumbered.copy_from_slice(entry.in_header());
    InHeader::renumber(&mut renumbered, PASSED_ON | index as u64);
    let parts = [
        IoSlice::new(&renumbered),
        IoSlice::new(&entry.arguments()[..fixed_length]),
        IoSlice::new(&entry.payload[..payload_length]),
    ];
    // A message is sent whole or not at all.
    session.write_vectored(&parts).map(|_whole| ())
}
