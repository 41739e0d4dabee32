//! A simulated disk in real time: model, data, faults and counters behind one lock, and a thread that waits.
//!
//! A request is given to the model when it arrives, and answered when the model's time for it has come, by the disk's
//! own thread, which sleeps until then. What completes at once (a disk without service times) is answered by the thread
//! that brought it. Answers never wait for the lock with data in hand: what they need is collected under it, the file is
//! read and the kernel is told after it.
//!
//! The way of a request through the kernel and back takes time that no drive takes. A hard disk's replies are given ahead
//! by what it was measured to cost ([`crate::lead`]), so that whoever waits sees the drive's time.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bathy_fuse::{Errno, FileEntry, FileService, REQUEST_BYTES_MAX, Reply, prefer_real_time};
use bathy_random::Random;
use serde_json::{Value, json};

use crate::counters::Counters;
use crate::fault::{Decision, FaultError, Faults, OpKind};
use crate::model::{Device, Op, Outcome, Request, RequestId, Settings};
use crate::profile::{Kind, Profile};
use crate::store::{Backing, Losses, Overlay, Piece, PowerCut};

/// Nanoseconds since the program started.
#[derive(Debug, Clone, Copy)]
pub struct Clock(Instant);

impl Default for Clock {
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl Clock {
    /// The time now.
    pub fn now_ns(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }
}

#[derive(Debug)]
enum Answer {
    Data(Reply<[u8]>),
    Done(Reply<()>),
}

impl Answer {
    fn error(self, errno: Errno) {
        match self {
            Self::Data(reply) => reply.error(errno),
            Self::Done(reply) => reply.error(errno),
        }
    }
}

/// A request as it came.
#[derive(Debug)]
struct Arrival {
    kind: OpKind,
    offset: u64,
    length: u64,
    durable: bool,
    answer: Answer,
}

#[derive(Debug)]
struct Pending {
    arrival: Arrival,
    submitted_ns: u64,
    error: Option<Errno>,
}

/// A request that hangs, with its data.
#[derive(Debug)]
struct Held {
    arrival: Arrival,
    data: Vec<u8>,
}

/// A request whose time has come.
#[derive(Debug)]
struct Finished {
    arrival: Arrival,
    error: Option<Errno>,
    pieces: Vec<Piece>,
    flips: Vec<(u64, u8)>,
}

#[derive(Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "four switches that are independent of each other"
)]
struct State {
    device: Box<dyn Device>,
    overlay: Overlay,
    faults: Faults,
    counters: Counters,
    pending: HashMap<RequestId, Pending>,
    held: Vec<Held>,
    last_id: RequestId,
    powered: bool,
    /// Whether service takes the model's time; without, it takes none.
    timed: bool,
    stopping: bool,
    /// Whether the disk's thread goes before others when its time has come.
    real_time: bool,
    /// How long before the model's time replies are given.
    lead_ns: u64,
    /// The time up to which the model was carried out. With a lead it may be later than now.
    reached_ns: u64,
    /// When the disk's thread wakes up by itself.
    wakes_ns: u64,
    outcomes: Vec<Outcome>,
    /// Errors of the file that holds the data: they are answered as EIO and counted.
    backing_errors: u64,
    /// Writes that were answered and then failed: the next flush must say so.
    lost_writes: u64,
}

/// One simulated disk.
#[derive(Debug)]
pub struct Disk {
    name: String,
    profile: &'static Profile,
    settings: Settings,
    backing: Backing,
    clock: Clock,
    /// Whether completed writes are durable, so that data goes to the file at once.
    direct: bool,
    state: Mutex<State>,
    wake: Condvar,
}

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Disk {
    /// A disk with power on and no faults. It answers nothing that takes time before [`Disk::start`].
    pub fn new(
        name: String,
        profile: &'static Profile,
        settings: &Settings,
        backing: Backing,
        clock: Clock,
    ) -> Self {
        let device = profile.device(settings);
        Self {
            name,
            profile,
            settings: *settings,
            backing,
            clock,
            direct: !device.is_volatile(),
            state: Mutex::new(State {
                device,
                overlay: Overlay::default(),
                faults: Faults::default(),
                counters: Counters::default(),
                pending: HashMap::new(),
                held: Vec::new(),
                last_id: 0,
                powered: true,
                timed: true,
                stopping: false,
                real_time: false,
                lead_ns: 0,
                reached_ns: 0,
                wakes_ns: u64::MAX,
                outcomes: Vec::new(),
                backing_errors: 0,
                lost_writes: 0,
            }),
            wake: Condvar::new(),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Start the thread that waits for the model's times.
    ///
    /// # Errors
    /// Returns an error if there cannot be another thread.
    pub fn start(self: &Arc<Self>) -> io::Result<JoinHandle<()>> {
        let disk = Arc::clone(self);
        thread::Builder::new()
            .name(format!("disk {}", self.name))
            .spawn(move || disk.wait_and_answer())
    }

    /// Stop the thread, answer what is in flight with EIO, and bring what was written to the medium: the disk was told to
    /// spin down, power was not cut.
    ///
    /// # Errors
    /// Returns an error if the file could not be written.
    pub fn stop(&self) -> io::Result<()> {
        let mut state = self.lock();
        state.stopping = true;
        self.wake.notify_all();
        let now_ns = self.clock.now_ns();
        let abandoned = state.abandon();
        state.device.power_cut(now_ns);
        let committed = state.overlay.commit_all(&self.backing);
        drop(state);
        for answer in abandoned {
            answer.error(Errno::EIO);
        }
        committed
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No invariant spans the lock's sections that a panic of another thread could have broken half-way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Now, or the time that the model has reached: its times must not go backwards.
    fn now_ns(&self, state: &State) -> u64 {
        self.clock.now_ns().max(state.reached_ns)
    }

    /// Be a disk that has done nothing yet, whose replies are given `lead_ns` before the model's time.
    pub fn restart_with_lead(&self, lead_ns: u64) {
        let mut state = self.lock();
        state.device = self.profile.device(&self.settings);
        state.counters = Counters::default();
        state.lead_ns = lead_ns;
        state.set_slowdown();
    }

    /// The model's time for all reads so far.
    pub fn read_service_ns(&self) -> u64 {
        self.lock().counters.service_ns(OpKind::Read)
    }

    /// Its size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.settings.size_bytes
    }

    /// Whether its times are those of an arm and platters.
    pub fn is_mechanical(&self) -> bool {
        matches!(self.profile.kind, Kind::Hdd(_))
    }

    fn wait_and_answer(&self) {
        // Without it the kernel may wake this thread 50 µs late, to save wake-ups.
        let _kept = nix::sys::prctl::set_timerslack(1);
        let real_time = prefer_real_time();
        self.lock().real_time = real_time;
        let mut finished = Vec::new();
        let mut state = self.lock();
        while !state.stopping {
            let now_ns = self.now_ns(&state).max(self.clock.now_ns() + state.lead_ns);
            self.collect(&mut state, now_ns, &mut finished);
            if !finished.is_empty() {
                drop(state);
                finished.drain(..).for_each(|it| self.answer(it));
                state = self.lock();
                continue;
            }
            let next_ns = state.device.next_event_ns();
            state.wakes_ns = next_ns.unwrap_or(u64::MAX);
            state = match next_ns {
                None => self.wake.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(next_ns) if next_ns > now_ns => {
                    let patience = Duration::from_nanos(next_ns - now_ns);
                    self.wake
                        .wait_timeout(state, patience)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
                Some(_) => state,
            };
        }
    }

    /// Let the model catch up with the time and collect what it completed.
    fn collect(&self, state: &mut State, now_ns: u64, finished: &mut Vec<Finished>) {
        let mut outcomes = std::mem::take(&mut state.outcomes);
        state.device.advance(now_ns, &mut outcomes);
        state.reached_ns = now_ns;
        for outcome in outcomes.drain(..) {
            match outcome {
                Outcome::Durable { id } => {
                    if state.overlay.commit(id, &self.backing).is_err() {
                        state.backing_errors += 1;
                        state.lost_writes += 1;
                    }
                }
                Outcome::Completed { id, at_ns } => {
                    let Some(Pending {
                        arrival,
                        submitted_ns,
                        mut error,
                    }) = state.pending.remove(&id)
                    else {
                        continue;
                    };
                    let (kind, offset, length) = (arrival.kind, arrival.offset, arrival.length);
                    if (kind == OpKind::Flush || arrival.durable)
                        && std::mem::take(&mut state.lost_writes) > 0
                    {
                        error = Some(Errno::EIO);
                    }
                    state
                        .counters
                        .completed(kind, length, submitted_ns, at_ns, error.is_some());
                    // A reply cannot be given before its request.
                    let due_ns = at_ns.saturating_sub(state.lead_ns).max(submitted_ns);
                    state
                        .counters
                        .replied(self.clock.now_ns().saturating_sub(due_ns), self.profile.late_ns);
                    let reads = kind == OpKind::Read && error.is_none();
                    finished.push(Finished {
                        pieces: if reads {
                            state.overlay.pieces(offset, length)
                        } else {
                            Vec::new()
                        },
                        flips: if reads && !state.faults.is_empty() {
                            state.faults.flips(offset, length)
                        } else {
                            Vec::new()
                        },
                        arrival,
                        error,
                    });
                }
            }
        }
        state.outcomes = outcomes;
    }

    fn answer(&self, finished: Finished) {
        let Finished {
            arrival,
            error,
            pieces,
            flips,
        } = finished;
        if let Some(errno) = error {
            return arrival.answer.error(errno);
        }
        match arrival.answer {
            Answer::Done(reply) => reply.done(),
            Answer::Data(reply) => BUFFER.with_borrow_mut(|buffer| {
                let offset = arrival.offset;
                buffer.resize(arrival.length as usize, 0);
                if self.backing.read(buffer, offset).is_err() {
                    self.lock().backing_errors += 1;
                    return reply.error(Errno::EIO);
                }
                for piece in &pieces {
                    let start = (piece.offset - offset) as usize;
                    buffer[start..start + piece.bytes().len()].copy_from_slice(piece.bytes());
                }
                for (byte, mask) in &flips {
                    buffer[(byte - offset) as usize] ^= mask;
                }
                reply.ok(buffer);
            }),
        }
    }

    /// Take a request in. `data` is what a write writes.
    fn submit(&self, arrival: Arrival, data: &[u8]) {
        let (kind, offset, length) = (arrival.kind, arrival.offset, arrival.length);
        if length > self.settings.size_bytes || offset > self.settings.size_bytes - length {
            return arrival.answer.error(Errno::EINVAL);
        }
        let mut state = self.lock();
        if !state.powered || state.stopping {
            drop(state);
            return arrival.answer.error(Errno::EIO);
        }
        let decision = if state.faults.is_empty() {
            Decision::default()
        } else {
            state.faults.decide(kind, offset, length)
        };
        if decision.hangs {
            let now_ns = self.now_ns(&state);
            let mut finished = Vec::new();
            self.collect(&mut state, now_ns, &mut finished);
            state.counters.submitted(now_ns);
            state.held.push(Held {
                arrival,
                data: data.to_vec(),
            });
            drop(state);
            for it in finished {
                self.answer(it);
            }
            return;
        }
        let mut error = decision.error;
        if error.is_none() && kind == OpKind::Write && self.direct {
            // The model calls it durable when it completes, so nothing has to be kept back.
            drop(state);
            let written = self.backing.write(data, offset);
            state = self.lock();
            if written.is_err() {
                state.backing_errors += 1;
                error = Some(Errno::EIO);
            }
        }
        state.last_id += 1;
        let id = state.last_id;
        if error.is_none() {
            error = self.store(&mut state, id, &arrival, data);
        }
        let now_ns = self.now_ns(&state);
        let mut finished = Vec::new();
        // What was due before this request is completed first: times must not go backwards.
        self.collect(&mut state, now_ns, &mut finished);
        state.counters.submitted(now_ns);
        let op = match kind {
            OpKind::Read => Op::Read,
            OpKind::Write => Op::Write {
                durable: arrival.durable,
            },
            OpKind::Flush => Op::Flush,
            OpKind::Discard => Op::Discard,
        };
        state.pending.insert(
            id,
            Pending {
                arrival,
                submitted_ns: now_ns,
                error,
            },
        );
        let request = Request {
            id,
            op,
            offset,
            length,
            extra_ns: decision.extra_ns,
        };
        state.device.submit(request, now_ns);
        self.collect(&mut state, now_ns, &mut finished);
        let next_ns = state.device.next_event_ns().unwrap_or(u64::MAX);
        if next_ns < state.wakes_ns {
            state.wakes_ns = next_ns;
            self.wake.notify_one();
        }
        drop(state);
        for it in finished {
            self.answer(it);
        }
    }

    /// Carry out what a request does to the data.
    fn store(&self, state: &mut State, id: RequestId, arrival: &Arrival, data: &[u8]) -> Option<Errno> {
        let (offset, length) = (arrival.offset, arrival.length);
        match arrival.kind {
            OpKind::Write => {
                if !self.direct {
                    state.overlay.write(id, offset, data);
                }
                state.faults.heal(offset, length);
            }
            OpKind::Discard => {
                state.overlay.discard(offset, length);
                state.faults.heal(offset, length);
                if self.backing.punch(offset, length).is_err() {
                    state.backing_errors += 1;
                    return Some(Errno::EIO);
                }
            }
            OpKind::Read | OpKind::Flush => {}
        }
        None
    }

    /// Add a fault. Returns its number.
    ///
    /// # Errors
    /// Returns an error if the text is not a fault.
    pub fn add_fault(&self, text: &str) -> Result<u64, FaultError> {
        let mut state = self.lock();
        let id = state.faults.add(text)?;
        state.set_slowdown();
        Ok(id)
    }

    /// Clear one fault, or all. Returns how many there were. Requests that hung for them go on.
    pub fn clear_faults(&self, id: Option<u64>) -> usize {
        let mut state = self.lock();
        let cleared = match id {
            Some(id) => usize::from(state.faults.clear(id)),
            None => state.faults.clear_all(),
        };
        state.set_slowdown();
        let now_ns = self.now_ns(&state);
        let held = std::mem::take(&mut state.held);
        let (still, released): (Vec<Held>, Vec<Held>) = held.into_iter().partition(|it| {
            state
                .faults
                .holds(it.arrival.kind, it.arrival.offset, it.arrival.length)
        });
        state.held = still;
        for _ in &released {
            state.counters.released(now_ns);
        }
        drop(state);
        for Held { arrival, data } in released {
            self.submit(arrival, &data);
        }
        cleared
    }

    /// Let service take the model's time, or none: what fills a disk before it is measured need not wait for it.
    pub fn set_timed(&self, timed: bool) {
        let mut state = self.lock();
        state.timed = timed;
        state.set_slowdown();
    }

    /// The faults that the disk has.
    pub fn faults(&self) -> Value {
        self.lock().faults.to_json()
    }

    /// Cut the power: what is in flight fails, unflushed writes are lost, kept or torn. With `stays_off` everything fails
    /// until [`Disk::power_on`].
    ///
    /// # Errors
    /// Returns an error if the file could not be written.
    pub fn power_cut(
        &self,
        cut: PowerCut,
        sector_bytes: u64,
        seed: u64,
        stays_off: bool,
    ) -> io::Result<Losses> {
        let mut finished = Vec::new();
        let mut state = self.lock();
        let now_ns = self.now_ns(&state);
        self.collect(&mut state, now_ns, &mut finished);
        state.device.power_cut(now_ns);
        state.counters.power_cut(now_ns);
        let abandoned = state.abandon();
        let losses = state
            .overlay
            .power_cut(cut, sector_bytes, &mut Random::new(seed), &self.backing);
        state.powered = !stays_off;
        drop(state);
        for it in finished {
            self.answer(it);
        }
        for answer in abandoned {
            answer.error(Errno::EIO);
        }
        losses
    }

    /// Switch the power on again.
    pub fn power_on(&self) {
        self.lock().powered = true;
    }

    /// Everything that the disk counts.
    pub fn stats(&self) -> Value {
        let mut state = self.lock();
        let mut finished = Vec::new();
        let now_ns = self.now_ns(&state);
        self.collect(&mut state, now_ns, &mut finished);
        let mut all = state.counters.to_json(now_ns);
        let work = state.device.work();
        all.insert("name".to_owned(), json!(self.name));
        all.insert("profile".to_owned(), json!(self.profile.name));
        all.insert("size_bytes".to_owned(), json!(self.settings.size_bytes));
        all.insert("powered".to_owned(), json!(state.powered));
        all.insert("timed".to_owned(), json!(state.timed));
        all.insert("faults".to_owned(), state.faults.to_json());
        all.insert("real_time".to_owned(), json!(state.real_time));
        all.insert("backing_errors".to_owned(), json!(state.backing_errors));
        all.insert("lead_ns".to_owned(), json!(state.lead_ns));
        all.insert("late_threshold_ns".to_owned(), json!(self.profile.late_ns));
        let work = json!({
            "mechanism_busy_ns": work.mechanism_busy_ns,
            "seeks": work.seeks,
            "seek_ns": work.seek_ns,
            "rotation_ns": work.rotation_ns,
            "transfer_ns": work.transfer_ns,
            "cache_hits": work.cache_hits,
            "media_read_bytes": work.media_read_bytes,
            "media_write_bytes": work.media_write_bytes,
            "erases": work.erases,
            "wear_ratio": work.wear_ratio,
            "volatile_bytes": work.volatile_bytes,
        });
        all.insert("work".to_owned(), work);
        drop(state);
        for it in finished {
            self.answer(it);
        }
        Value::Object(all)
    }
}

impl State {
    fn set_slowdown(&mut self) {
        let factor = if self.timed { self.faults.slowdown() } else { 0.0 };
        self.device.set_slowdown(factor);
    }

    /// Take all requests that wait for an answer out.
    fn abandon(&mut self) -> Vec<Answer> {
        let pending = self.pending.drain().map(|(_, it)| it.arrival.answer);
        let held = self.held.drain(..).map(|it| it.arrival.answer);
        pending.chain(held).collect()
    }
}

/// The disks of a mount.
#[derive(Debug)]
pub struct Disks(pub Vec<Arc<Disk>>);

impl Disks {
    fn submit(&self, file: usize, arrival: Arrival, data: &[u8]) {
        match self.0.get(file) {
            Some(disk) => disk.submit(arrival, data),
            None => arrival.answer.error(Errno::ENOENT),
        }
    }
}

impl FileService for Disks {
    fn files(&self) -> Vec<FileEntry> {
        let entries = self.0.iter().map(|disk| FileEntry {
            name: disk.name.clone(),
            size_bytes: disk.size_bytes(),
        });
        entries.collect()
    }

    fn read(&self, file: usize, offset: u64, length: u32, reply: Reply<[u8]>) {
        debug_assert!(length <= REQUEST_BYTES_MAX);
        let arrival = Arrival {
            kind: OpKind::Read,
            offset,
            length: u64::from(length),
            durable: false,
            answer: Answer::Data(reply),
        };
        self.submit(file, arrival, &[]);
    }

    fn write(&self, file: usize, offset: u64, data: &[u8], durable: bool, reply: Reply<()>) {
        let arrival = Arrival {
            kind: OpKind::Write,
            offset,
            length: data.len() as u64,
            durable,
            answer: Answer::Done(reply),
        };
        self.submit(file, arrival, data);
    }

    fn sync(&self, file: usize, reply: Reply<()>) {
        let arrival = Arrival {
            kind: OpKind::Flush,
            offset: 0,
            length: 0,
            durable: false,
            answer: Answer::Done(reply),
        };
        self.submit(file, arrival, &[]);
    }

    fn discard(&self, file: usize, offset: u64, length: u64, reply: Reply<()>) {
        let arrival = Arrival {
            kind: OpKind::Discard,
            offset,
            length,
            durable: false,
            answer: Answer::Done(reply),
        };
        self.submit(file, arrival, &[]);
    }
}
