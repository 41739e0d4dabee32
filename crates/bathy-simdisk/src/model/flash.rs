//! Flash: dies that read, program and erase behind channels and an interface, with a write buffer before them.
//!
//! A read waits for its die, takes the die's read time, and passes the channel and the interface. A program that is
//! under way on the die is suspended for it, which costs a little; so writes make the tail of the reads. Writes go to
//! the buffer and are acknowledged there; the buffer drains by whole pages to the dies in turn. When it is full, writes
//! wait for the dies: that is the sustained rate. How much the dies have to program for a byte of the host depends on
//! what is free: fresh or rested devices take a burst at full speed, after it garbage collection (or the end of an SLC
//! cache) multiplies the work, most for random writes.
//!
//! With power-loss protection the buffer is as good as the flash: a flush has nothing to do. Without it a flush programs
//! what is buffered, the last page only partly filled.
//!
//! Limits: no mapping table, so where data lies does not depend on when it was written; discards do not make garbage
//! collection cheaper; read disturb, refresh and thermal throttling are left out.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use bathy_random::Random;

use super::{Device, Op, Outcome, Request, RequestId, Settings, Work};

/// What a flash device's service times follow from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FlashFigures {
    /// Channels.
    pub channels: usize,
    /// Dies of a channel.
    pub dies_per_channel: usize,
    /// Bytes that a die reads at once; neighbouring pages lie on different dies.
    pub page_bytes: u64,
    /// Bytes that a die programs at once: a page of each plane and bit.
    pub program_bytes: u64,
    /// Read time of a die.
    pub read_ns: u64,
    /// Program time of a die.
    pub program_ns: u64,
    /// Erase time of a block.
    pub erase_ns: u64,
    /// Bytes of an erase block (all planes).
    pub block_bytes: u64,
    /// What a read pays for suspending a program.
    pub suspend_ns: u64,
    /// Rate of a channel, in bytes a second.
    pub channel_bytes_per_s: f64,
    /// Rate of the interface.
    pub interface_bytes_per_s: f64,
    /// Time of the interface that a command takes besides its data.
    pub interface_command_ns: u64,
    /// Controller and protocol, for a read.
    pub read_overhead_ns: u64,
    /// Controller and protocol, for a write into the buffer.
    pub write_overhead_ns: u64,
    /// Bytes of the write buffer.
    pub buffer_bytes: u64,
    /// Whether capacitors save the buffer when power is lost.
    pub power_loss_protection: bool,
    /// Bytes that can be written at full speed after rest.
    pub burst_bytes: u64,
    /// Bytes of that which come back in a second of rest.
    pub burst_recovery_bytes_per_s: f64,
    /// How much longer programming takes for sequential writes when the burst is used up.
    pub sustained_sequential_factor: f64,
    /// The same for random writes: about their write amplification.
    pub sustained_random_factor: f64,
    /// Spread of a die's read times: standard deviation of their logarithm.
    pub read_spread: f64,
    /// Share of operations that take longer by [`FlashFigures::tail_ns`] (retries, erases that cannot be suspended).
    pub tail_probability: f64,
    /// How much longer.
    pub tail_ns: u64,
    /// Bytes that may be written in the device's life (TBW).
    pub endurance_bytes: f64,
}

/// A partly filled page is programmed if nothing follows for so long.
const IDLE_PROGRAM_NS: u64 = 5_000_000;

#[derive(Debug, Clone, Copy, Default)]
struct Die {
    reads_until_ns: u64,
    programs_until_ns: u64,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// Durable comes before completed at the same time.
    Durable(Vec<RequestId>),
    Complete(RequestId),
    /// Program the open page if it is still the one of this number.
    ProgramIdle(u64),
}

/// See the [module](self).
#[derive(Debug)]
pub struct Flash {
    figures: FlashFigures,
    random: Random,
    slowdown: f64,
    buffers_writes: bool,
    dies: Vec<Die>,
    channels_until_ns: Vec<u64>,
    interface_until_ns: u64,
    next_die: usize,
    /// Bytes that are programmed and when: they leave the buffer then.
    draining: VecDeque<(u64, u64)>,
    buffered_bytes: u64,
    admitted_until_ns: u64,
    open_bytes: u64,
    open_ids: Vec<RequestId>,
    open_page: u64,
    programmed_until_ns: u64,
    stream_end: u64,
    burst_left: f64,
    burst_since_ns: u64,
    programmed_bytes: f64,
    die_busy_ns: u64,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    work: Work,
}

impl Flash {
    /// A fresh device.
    pub fn new(figures: FlashFigures, settings: &Settings) -> Self {
        Self {
            figures,
            random: Random::new(settings.seed),
            slowdown: 1.0,
            buffers_writes: settings.write_cache.unwrap_or(true) || figures.power_loss_protection,
            dies: vec![Die::default(); figures.channels * figures.dies_per_channel],
            channels_until_ns: vec![0; figures.channels],
            interface_until_ns: 0,
            next_die: 0,
            draining: VecDeque::new(),
            buffered_bytes: 0,
            admitted_until_ns: 0,
            open_bytes: 0,
            open_ids: Vec::new(),
            open_page: 0,
            programmed_until_ns: 0,
            stream_end: 0,
            burst_left: figures.burst_bytes as f64,
            burst_since_ns: 0,
            programmed_bytes: 0.0,
            die_busy_ns: 0,
            events: BinaryHeap::new(),
            work: Work::default(),
        }
    }

    fn scaled(&self, time_ns: f64) -> u64 {
        (time_ns * self.slowdown) as u64
    }

    fn tail_ns(&mut self) -> f64 {
        if self.random.happens(self.figures.tail_probability) {
            self.figures.tail_ns as f64 * (0.5 + self.random.unit())
        } else {
            0.0
        }
    }

    /// Pass the interface: not before `ready_ns`, and behind the data of the commands that came before.
    fn interface_ns(&mut self, begin_ns: u64, ready_ns: u64, bytes: u64) -> u64 {
        let data_ns = bytes as f64 * 1e9 / self.figures.interface_bytes_per_s;
        let transfer_ns = self.scaled(data_ns + self.figures.interface_command_ns as f64);
        pass(&mut self.interface_until_ns, begin_ns, ready_ns, transfer_ns)
    }

    fn read(&mut self, request: &Request, now_ns: u64) -> u64 {
        let begin_ns = now_ns + self.scaled(self.figures.read_overhead_ns as f64) + request.extra_ns;
        let end_byte = request.offset + request.length;
        let mut last_ns = begin_ns;
        let mut byte = request.offset;
        while byte < end_byte {
            let page = byte / self.figures.page_bytes;
            let next = ((page + 1) * self.figures.page_bytes).min(end_byte);
            last_ns = last_ns.max(self.read_page(page, next - byte, begin_ns));
            byte = next;
        }
        self.work.media_read_bytes += request.length;
        self.interface_ns(begin_ns, last_ns, request.length)
    }

    fn read_page(&mut self, page: u64, bytes: u64, begin_ns: u64) -> u64 {
        let index = (page % self.dies.len() as u64) as usize;
        let spread = (self.random.normal() * self.figures.read_spread).exp();
        let mut service_ns = self.figures.read_ns as f64 * spread + self.tail_ns();
        let start_ns = begin_ns.max(self.dies[index].reads_until_ns);
        let suspends = self.dies[index].programs_until_ns > start_ns;
        if suspends {
            service_ns += self.figures.suspend_ns as f64;
        }
        let service_ns = self.scaled(service_ns);
        let die = &mut self.dies[index];
        die.reads_until_ns = start_ns + service_ns;
        if suspends {
            die.programs_until_ns += service_ns;
        }
        self.die_busy_ns += service_ns;
        let transfer_ns = self.scaled(bytes as f64 * 1e9 / self.figures.channel_bytes_per_s);
        let read_ns = self.dies[index].reads_until_ns;
        let channel = &mut self.channels_until_ns[index % self.figures.channels];
        pass(channel, begin_ns, read_ns, transfer_ns)
    }

    /// Take a write into the buffer. Returns when it has its place there.
    fn admit(&mut self, request: &Request, now_ns: u64) -> u64 {
        let arrived_ns = self.interface_ns(now_ns, now_ns, request.length);
        let mut admitted_ns = arrived_ns.max(self.admitted_until_ns);
        while let Some(&(ends_ns, bytes)) = self.draining.front() {
            if ends_ns > admitted_ns && self.buffered_bytes + request.length <= self.figures.buffer_bytes {
                break;
            }
            self.draining.pop_front();
            self.buffered_bytes -= bytes;
            admitted_ns = admitted_ns.max(ends_ns);
        }
        self.admitted_until_ns = admitted_ns;
        self.buffered_bytes += request.length;
        let sequential = request.offset == self.stream_end;
        self.stream_end = request.offset + request.length;
        let factor = self.program_factor(request.length, sequential, admitted_ns);
        self.open_bytes += request.length;
        self.open_ids.push(request.id);
        while self.open_bytes >= self.figures.program_bytes {
            self.program(self.figures.program_bytes, factor, admitted_ns);
        }
        if self.open_bytes > 0 && self.is_volatile() {
            self.events.push(Reverse((
                admitted_ns + IDLE_PROGRAM_NS,
                Event::ProgramIdle(self.open_page),
            )));
        }
        admitted_ns + self.scaled(self.figures.write_overhead_ns as f64)
    }

    /// How often a byte of the host is programmed now; takes it from the burst.
    fn program_factor(&mut self, bytes: u64, sequential: bool, now_ns: u64) -> f64 {
        let rested_ns = now_ns.saturating_sub(self.burst_since_ns.max(self.programmed_until_ns));
        let recovered = rested_ns as f64 / 1e9 * self.figures.burst_recovery_bytes_per_s;
        self.burst_left = (self.burst_left + recovered).min(self.figures.burst_bytes as f64) - bytes as f64;
        self.burst_since_ns = now_ns;
        if self.burst_left >= 0.0 {
            return 1.0;
        }
        self.burst_left = 0.0;
        if sequential {
            self.figures.sustained_sequential_factor
        } else {
            self.figures.sustained_random_factor
        }
    }

    /// Program `bytes` of the open page on the next die.
    fn program(&mut self, bytes: u64, factor: f64, now_ns: u64) {
        let taken = bytes.min(self.open_bytes);
        let erases_ns = self.figures.erase_ns as f64 * self.figures.program_bytes as f64
            / self.figures.block_bytes as f64;
        let service_ns = (self.figures.program_ns as f64 + erases_ns) * factor + self.tail_ns();
        let service_ns = self.scaled(service_ns);
        let index = self.next_die;
        self.next_die = (index + 1) % self.dies.len();
        let die = &mut self.dies[index];
        let start_ns = now_ns.max(die.programs_until_ns).max(die.reads_until_ns);
        let ends_ns = start_ns + service_ns;
        die.programs_until_ns = ends_ns;
        self.die_busy_ns += service_ns;
        self.programmed_until_ns = self.programmed_until_ns.max(ends_ns);
        // A partly filled page costs a whole one.
        self.programmed_bytes += self.figures.program_bytes as f64 * factor;
        self.open_bytes -= taken;
        self.open_page += 1;
        self.draining.push_back((ends_ns, taken));
        if self.open_bytes == 0 || self.open_ids.len() > 1 {
            // The last write may go on in the next page; the ones before it are in this one or in earlier ones.
            let keep = usize::from(self.open_bytes > 0);
            let whole = self.open_ids.len() - keep;
            let ids: Vec<RequestId> = self.open_ids.drain(..whole).collect();
            if !ids.is_empty() {
                self.events
                    .push(Reverse((self.programmed_until_ns, Event::Durable(ids))));
            }
        }
    }

    /// Program what is buffered, the last page partly filled. Returns when all of it is on flash.
    fn program_all(&mut self, now_ns: u64) -> u64 {
        if self.open_bytes > 0 {
            let factor = self.program_factor(0, true, now_ns);
            self.program(self.figures.program_bytes, factor, now_ns);
        }
        self.programmed_until_ns.max(now_ns)
    }
}

/// Pass a shared link that is busy until `until_ns`. Data that is ready late does not keep the link for itself: what came
/// after it and is ready earlier goes first.
fn pass(until_ns: &mut u64, begin_ns: u64, ready_ns: u64, transfer_ns: u64) -> u64 {
    *until_ns = (*until_ns).max(begin_ns) + transfer_ns;
    (*until_ns).max(ready_ns + transfer_ns)
}

impl Device for Flash {
    fn submit(&mut self, request: Request, now_ns: u64) {
        let at_ns = match request.op {
            Op::Read => self.read(&request, now_ns),
            Op::Write { durable } => {
                let accepted_ns = self.admit(&request, now_ns) + request.extra_ns;
                if self.is_volatile() && (durable || !self.buffers_writes) {
                    self.program_all(accepted_ns)
                } else {
                    let tail_ns = self.tail_ns();
                    accepted_ns + self.scaled(tail_ns)
                }
            }
            Op::Flush => {
                let overhead_ns = self.scaled(self.figures.write_overhead_ns as f64) + request.extra_ns;
                if self.is_volatile() {
                    self.program_all(now_ns) + overhead_ns
                } else {
                    now_ns + overhead_ns
                }
            }
            Op::Discard => now_ns + self.scaled(self.figures.write_overhead_ns as f64) + request.extra_ns,
        };
        self.events.push(Reverse((at_ns, Event::Complete(request.id))));
    }

    fn next_event_ns(&self) -> Option<u64> {
        self.events.peek().map(|Reverse((at_ns, _))| *at_ns)
    }

    fn advance(&mut self, now_ns: u64, outcomes: &mut Vec<Outcome>) {
        while self.next_event_ns().is_some_and(|at_ns| at_ns <= now_ns) {
            let Some(Reverse((at_ns, event))) = self.events.pop() else {
                return;
            };
            match event {
                Event::Durable(ids) => outcomes.extend(ids.into_iter().map(|id| Outcome::Durable { id })),
                Event::Complete(id) => outcomes.push(Outcome::Completed { id, at_ns }),
                Event::ProgramIdle(page) => {
                    if page == self.open_page && self.open_bytes > 0 {
                        self.program_all(at_ns);
                    }
                }
            }
        }
    }

    fn set_slowdown(&mut self, factor: f64) {
        self.slowdown = factor;
    }

    fn power_cut(&mut self, now_ns: u64) {
        self.events.clear();
        self.draining.clear();
        self.buffered_bytes = 0;
        self.open_bytes = 0;
        self.open_ids.clear();
        self.open_page += 1;
        self.interface_until_ns = now_ns;
        self.admitted_until_ns = now_ns;
        self.programmed_until_ns = now_ns;
        self.channels_until_ns.fill(now_ns);
        self.dies.fill(Die {
            reads_until_ns: now_ns,
            programs_until_ns: now_ns,
        });
    }

    fn work(&self) -> Work {
        Work {
            mechanism_busy_ns: self.die_busy_ns / self.dies.len().max(1) as u64,
            media_write_bytes: self.programmed_bytes as u64,
            erases: (self.programmed_bytes / self.figures.block_bytes as f64) as u64,
            wear_ratio: self.programmed_bytes / self.figures.endurance_bytes,
            volatile_bytes: if self.is_volatile() {
                self.buffered_bytes
            } else {
                0
            },
            ..self.work
        }
    }

    fn is_volatile(&self) -> bool {
        !self.figures.power_loss_protection
    }
}
