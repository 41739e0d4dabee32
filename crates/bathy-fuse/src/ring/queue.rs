//! A queue of the kernel: the requests of one processor, taken and answered through an `io_uring`.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue, opcode, types};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, sendmsg};

use super::buffers::{Buffers, Entry};
use super::data_path::DataPath;
use super::pool::{Job, Jobs, Returns};
use super::protocol::{
    IN_HEADER_BYTES, InHeader, OUT_HEADER_BYTES, OutHeader, READ, RING_PART_BYTES, Transfer, WRITE,
    bound_reply, destroy,
};
use super::transfer::{self, Work};
use crate::pace::Pace;

/// Requests of a queue that are under way at a time; more wait in the kernel, those too that need not wait for a device. So
/// there are more than a processor's applications send to a slow disk at once. Memory is taken by those in use.
const ENTRIES: usize = 64;
/// `FUSE_IO_URING_CMD_REGISTER`: here are the buffers of an entry, fetch a request.
const REGISTER: u32 = 1;
/// `FUSE_IO_URING_CMD_COMMIT_AND_FETCH`: here is a reply, fetch another request.
const COMMIT_AND_FETCH: u32 = 2;
/// The device among the ring's registered files.
const DEVICE: types::Fixed = types::Fixed(0);
/// The session's socket among the ring's registered files.
const SESSION: types::Fixed = types::Fixed(1);
/// The event of [`Returns`] among the ring's registered files.
const EVENT: types::Fixed = types::Fixed(2);
/// Marks the completion of a receive; others carry the index of an entry.
const RECEIVED: u64 = u64::MAX;
/// Marks that requests have come back from the pool.
const RETURNED: u64 = u64::MAX - 1;
/// In the number of a request that is passed on: the rest is the index of its entry. No number of the kernel's has it.
const PASSED_ON: u64 = 1 << 63;
/// The greatest message between queue and session, in bytes: the value of an extended attribute with its name, or a part of a
/// directory. The kernel allocates most of a message in one piece, which fails for long ones when memory is fragmented.
pub(super) const MESSAGE_BYTES_MAX: usize = 128 << 10;

pub(super) struct Queue {
    /// Before the buffers, so that it is dropped before them.
    ring: IoUring<Entry128, cqueue::Entry>,
    buffers: Arc<Buffers>,
    /// Where the session's next reply is received.
    reply: Box<[u8]>,
    /// Where the counter of the event is read to.
    events: Box<[u8; 8]>,
    session: File,
    session_threads: usize,
    number: u16,
    service: Arc<dyn DataPath>,
    jobs: Arc<Jobs>,
    returns: Arc<Returns>,
    /// The last command of each entry, with the number of the request that it answers.
    commands: [(u32, u64); ENTRIES],
    /// Entries that the kernel has not given up.
    live_entries: usize,
    /// Requests that the session has.
    passed_on: usize,
    /// Requests that the pool has.
    waiting: usize,
    /// Entries whose requests the socket of the session had no room for.
    unsent: VecDeque<usize>,
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
        jobs: Arc<Jobs>,
    ) -> io::Result<Self> {
        let mut builder = IoUring::builder();
        builder
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_submit_all();
        // Each entry, the receive and the event have at most one command under way.
        let ring = builder.build(2 * ENTRIES as u32)?;
        let returns = Returns::new()?;
        let event = returns.event().as_raw_fd();
        ring.submitter()
            .register_files(&[device.as_raw_fd(), session.as_raw_fd(), event])?;
        Ok(Self {
            ring,
            buffers: Arc::new(Buffers::new(ENTRIES, payload_bytes)?),
            reply: vec![0; MESSAGE_BYTES_MAX].into(),
            events: Box::default(),
            session,
            session_threads,
            number,
            service,
            jobs,
            returns: Arc::new(returns),
            commands: [(REGISTER, 0); ENTRIES],
            live_entries: 0,
            passed_on: 0,
            waiting: 0,
            unsent: VecDeque::new(),
            reads: Pace::default(),
            writes: Pace::unknown(),
            completed: Vec::with_capacity(2 * ENTRIES),
        })
    }

    /// Serves until the connection ends. After an error the connection must be ended: the kernel goes on to put requests of
    /// this processor into the queue, and those under way are never answered.
    pub(super) fn serve(&mut self) -> io::Result<()> {
        for index in 0..ENTRIES {
            self.submit(index)?;
            self.live_entries += 1;
        }
        self.receive()?;
        self.await_event()?;
        let mut is_connected = true;
        loop {
            self.enter()?;
            let mut completed = std::mem::take(&mut self.completed);
            completed.extend(self.ring.completion().map(|it| (it.user_data(), it.result())));
            let mut left = completed.len();
            for (what, code) in completed.drain(..) {
                left -= 1;
                match (what, usize::try_from(code)) {
                    // All threads of the session have ended.
                    (RECEIVED, Err(_) | Ok(0)) if !is_connected => return Ok(()),
                    (RECEIVED, Err(_) | Ok(0)) => return Err(io::Error::other("the session has ended")),
                    (RECEIVED, Ok(length)) => {
                        self.pass_back(length)?;
                        self.receive()?;
                    }
                    (RETURNED, Ok(_)) => {
                        for done in self.returns.take() {
                            self.waiting -= 1;
                            if done.work == Work::Write {
                                self.writes.note(done.took);
                            }
                            self.commit(done.index)?;
                        }
                        self.await_event()?;
                    }
                    (RETURNED, Err(_)) => return Err(io::Error::from_raw_os_error(-code)),
                    (index, Ok(_)) => self.take(index as usize, left)?,
                    (index, Err(_)) => self.failed(index as usize, Errno::from_raw(-code))?,
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

    /// Submits what is to be submitted and waits for something to complete.
    fn enter(&self) -> io::Result<()> {
        /// How long memory that the kernel lacks is waited for.
        const PAUSE: Duration = Duration::from_millis(1);
        let entered = self.ring.submit_and_wait(1);
        match entered.map_err(|error| error.raw_os_error()) {
            Ok(_) | Err(Some(libc::EINTR)) => {}
            // What was not submitted is submitted the next time.
            Err(Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM)) => thread::sleep(PAUSE),
            Err(code) => return Err(io::Error::from_raw_os_error(code.unwrap_or(libc::EIO))),
        }
        Ok(())
    }

    /// The kernel did not take a command of an entry.
    fn failed(&mut self, index: usize, error: Errno) -> io::Result<()> {
        match error {
            Errno::EINTR | Errno::EAGAIN | Errno::ENOMEM => self.submit(index),
            // The connection has ended.
            Errno::ENOTCONN | Errno::ECONNABORTED => {
                self.live_entries -= 1;
                Ok(())
            }
            _ => Err(error.into()),
        }
    }

    /// Tells the kernel that the reply is in the entry.
    fn commit(&mut self, index: usize) -> io::Result<()> {
        // SAFETY: who had the entry has put the reply there, and gives it back to be committed.
        let commit_id = unsafe { self.buffers.entry(index) }.commit_id();
        self.commands[index] = (COMMIT_AND_FETCH, commit_id);
        self.submit(index)
    }

    /// Submits the command of an entry.
    fn submit(&mut self, index: usize) -> io::Result<()> {
        /// Where `len` stands in `struct io_uring_sqe`, in units of its own size.
        const LEN: usize = 24 / size_of::<u32>();
        let (command, commit_id) = self.commands[index];
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

    fn await_event(&mut self) -> io::Result<()> {
        let read = opcode::Read::new(EVENT, self.events.as_mut_ptr(), self.events.len() as u32);
        let entry = Entry128::from(read.build()).user_data(RETURNED);
        // SAFETY: the buffer lives until the ring is gone, and nothing ever refers to it.
        self.push(&unsafe { Submission::new(entry) })
    }

    fn push(&mut self, submission: &Submission) -> io::Result<()> {
        // SAFETY: by the contract of `Submission::new` what the entry points to is valid until it completes.
        let pushed = unsafe { self.ring.submission().push(&submission.0) };
        pushed.map_err(|_full| io::Error::other("the ring is full"))
    }

    /// A request has arrived, with others behind it: answers it, or leaves it to who may wait.
    fn take(&mut self, index: usize, others: usize) -> io::Result<()> {
        // SAFETY: the kernel has just completed the entry's command.
        let mut entry = unsafe { self.buffers.entry(index) };
        let service = &*self.service;
        let work = match InHeader::of(entry.in_header()).opcode {
            READ => {
                let is_alone = others == 0 && self.passed_on == 0 && self.waiting == 0;
                // It waits for the SSD at most, so all others may wait for it now and then.
                if self.reads.is_quick_or_sampled() || is_alone {
                    if let Some(took) = transfer::read_at_hand(service, &mut entry) {
                        self.reads.note(took);
                        return self.commit(index);
                    }
                }
                Work::Read
            }
            WRITE => {
                let asked = Transfer::of(entry.arguments());
                let may_wait = asked.is_durable() || service.is_written_through(asked.handle);
                if self.writes.is_quick() && !may_wait {
                    self.writes
                        .note(transfer::carry_out(service, Work::Write, &mut entry));
                    return self.commit(index);
                }
                Work::Write
            }
            _ => return self.pass_on(index),
        };
        self.waiting += 1;
        self.jobs.add(Job {
            work,
            buffers: Arc::clone(&self.buffers),
            index,
            back: Arc::clone(&self.returns),
        });
        Ok(())
    }

    /// Hands the request of an entry to the session.
    fn pass_on(&mut self, index: usize) -> io::Result<()> {
        // SAFETY: the queue has the entry, whose request has just arrived or is among those that were not sent.
        let mut entry = unsafe { self.buffers.entry(index) };
        match send(&self.session, &mut entry, index) {
            Ok(()) => self.passed_on += 1,
            // There is room again when the session has answered another one.
            Err(Errno::EAGAIN | Errno::ENOBUFS | Errno::ENOMEM) if self.passed_on > 0 => {
                self.unsent.push_back(index);
            }
            Err(Errno::EPIPE | Errno::ECONNRESET) => return Err(io::Error::other("the session has ended")),
            Err(error) => {
                transfer::reply(&mut entry, Err(error.into()));
                return self.commit(index);
            }
        }
        Ok(())
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
        let payload = &self.reply[OUT_HEADER_BYTES..length];
        entry.payload[..payload.len()].copy_from_slice(payload);
        let unique = InHeader::of(entry.in_header()).unique;
        let header = OutHeader { unique, ..header };
        entry.set_reply(header.bytes(payload.len()), payload.len());
        self.commit(index)?;
        for index in std::mem::take(&mut self.unsent) {
            self.pass_on(index)?;
        }
        Ok(())
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

/// Sends a request to a session, in one message as from the device. It never waits: the session could wait for us to take its
/// replies.
fn send(session: &File, entry: &mut Entry<'_>, index: usize) -> nix::Result<()> {
    let payload_length = entry.payload_length();
    let mut header = [0; IN_HEADER_BYTES];
    header.copy_from_slice(entry.in_header());
    let about = InHeader::of(&header);
    InHeader::renumber(&mut header, PASSED_ON | index as u64);
    // The kernel puts only the first, fixed argument into the header.
    let fixed_length = about.length - IN_HEADER_BYTES - payload_length;
    let mut fixed = [0; RING_PART_BYTES];
    fixed.copy_from_slice(entry.arguments());
    bound_reply(about.opcode, &mut fixed);
    let parts = [
        IoSlice::new(&header),
        IoSlice::new(&fixed[..fixed_length]),
        IoSlice::new(&entry.payload[..payload_length]),
    ];
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    // A message is sent whole or not at all.
    sendmsg::<()>(session.as_raw_fd(), &parts, &[], flags, None).map(|_whole| ())
}
