//! A world in simulated time, and loads on it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use bathy_load::account::{Second, Total};
use bathy_load::engine::Engine;
use bathy_load::plan::{Direction, Plan};
use bathy_load::requests::Request;
use bathy_load::world::{Done, Memory, World};

pub(crate) const SECOND_NS: u64 = 1_000_000_000;
pub(crate) const IMAGE_BYTES: u64 = 1 << 30;

/// What becomes of the request number `n`, submitted at a time: when it completes, and how; None is never.
type Model = Box<dyn FnMut(u64, u64) -> Option<(u64, Result<(), i32>)>>;

pub(crate) struct Simulated {
    pub(crate) now_ns: u64,
    /// What sending one request takes.
    pub(crate) submit_ns: u64,
    /// How much too long each wait is.
    pub(crate) oversleeps_ns: u64,
    model: Model,
    pub(crate) submitted: Vec<(u64, Request)>,
    waiting: BinaryHeap<Reverse<(u64, u64, u32)>>,
    results: Vec<(Result<(), i32>, Option<Memory>)>,
    in_flight: HashMap<u32, usize>,
    /// Most requests that it had at once.
    pub(crate) in_flight_max: usize,
    /// Of one image.
    pub(crate) of_an_image_max: usize,
    /// Blocks of 4 KiB, if it keeps data.
    pub(crate) disk: Option<HashMap<(u32, u64), Vec<u8>>>,
    /// Of so many writes one is lost.
    pub(crate) loses: Option<u64>,
}

impl Simulated {
    pub(crate) fn new(model: impl FnMut(u64, u64) -> Option<(u64, Result<(), i32>)> + 'static) -> Self {
        Self {
            now_ns: 0,
            submit_ns: 0,
            oversleeps_ns: 0,
            model: Box::new(model),
            submitted: Vec::new(),
            waiting: BinaryHeap::new(),
            results: Vec::new(),
            in_flight: HashMap::new(),
            in_flight_max: 0,
            of_an_image_max: 0,
            disk: None,
            loses: None,
        }
    }
}

impl World for Simulated {
    fn begin(&mut self) {}

    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn submit(&mut self, slot: u32, request: &Request, memory: Memory) {
        let number = self.submitted.len() as u64;
        self.submitted.push((self.now_ns, *request));
        if let Some((at_ns, result)) = (self.model)(number, self.now_ns) {
            self.results.push((result, Some(memory)));
            self.waiting.push(Reverse((at_ns, number, slot)));
        } else {
            self.results.push((Ok(()), None));
        }
        let of_image = self.in_flight.entry(request.image).or_default();
        *of_image += 1;
        self.of_an_image_max = self.of_an_image_max.max(*of_image);
        self.in_flight_max = self.in_flight_max.max(self.in_flight.values().sum());
        self.now_ns += self.submit_ns;
    }

    fn object(&self, image: u32, offset: u64) -> Option<String> {
        Some(format!("object.{image}.{offset}"))
    }

    fn take(&mut self, done: &mut Vec<Done>) {
        while let Some(&Reverse((at_ns, number, slot))) = self.waiting.peek() {
            if at_ns > self.now_ns {
                return;
            }
            self.waiting.pop();
            let (result, memory) = &mut self.results[number as usize];
            let mut memory = memory.take().expect("it completes once");
            let request = self.submitted[number as usize].1;
            *self.in_flight.entry(request.image).or_default() -= 1;
            let lost = self.loses.is_some_and(|each| number % each == each - 1);
            if let Some(disk) = self.disk.as_mut().filter(|_| result.is_ok()) {
                for block in 0..u64::from(request.bytes) / 4096 {
                    let key = (request.image, request.offset / 4096 + block);
                    let part = block as usize * 4096..(block as usize + 1) * 4096;
                    if request.direction == Direction::Read {
                        let data = disk.get(&key).map_or(&[0; 4096][..], Vec::as_slice);
                        memory.memory()[part].copy_from_slice(data);
                    } else if !lost {
                        disk.insert(key, memory.data()[part].to_vec());
                    }
                }
            }
            done.push(Done {
                slot,
                at_ns,
                result: *result,
                memory,
            });
        }
    }

    fn wait(&mut self, until_ns: u64, for_completion: bool) {
        let next_ns = self.waiting.peek().map(|Reverse((at_ns, ..))| *at_ns);
        let wakes_ns = if for_completion {
            until_ns.min(next_ns.unwrap_or(u64::MAX))
        } else {
            until_ns
        };
        assert!(wakes_ns < u64::MAX, "the load would sleep for ever");
        if wakes_ns > self.now_ns {
            self.now_ns = wakes_ns + self.oversleeps_ns;
        }
    }
}

/// A plan of reads of 4 KiB.
pub(crate) fn plan(arrival: &str, more: &str) -> Plan {
    plan_of(r#"{"direction": "read", "block_bytes": 4096}"#, arrival, more)
}

pub(crate) fn plan_of(requests: &str, arrival: &str, more: &str) -> Plan {
    parsed(&format!(
        r#"{{"target": {{"null": {{"image_bytes": {IMAGE_BYTES}}}}}, "arrival": {arrival},
            "requests": [{requests}], {more}}}"#
    ))
}

pub(crate) fn parsed(text: &str) -> Plan {
    Plan::parse(text.as_bytes()).unwrap_or_else(|failure| panic!("{failure}: {text}"))
}

pub(crate) fn load(plan: &Plan, images: usize, world: &mut Simulated) -> (Total, Vec<Second>) {
    let mut seconds = Vec::new();
    let engine = Engine::new(plan, None, &vec![IMAGE_BYTES; images], world);
    let total = engine
        .unwrap_or_else(|failure| panic!("{failure}"))
        .run(&mut |second| seconds.push(second));
    (total, seconds)
}

/// A target that answers after 1 ms, but not in the first second of each ten.
#[allow(clippy::unnecessary_wraps, reason = "it is a model")]
pub(crate) fn stalls(_: u64, now_ns: u64) -> Option<(u64, Result<(), i32>)> {
    let at_ns = now_ns + 1_000_000;
    let in_ten_ns = at_ns % (10 * SECOND_NS);
    Some((at_ns + SECOND_NS.saturating_sub(in_ten_ns), Ok(())))
}

/// Fails sometimes, never answers sometimes, and completes in any order.
pub(crate) fn disorder(seed: u64, now_ns: u64, number: u64) -> Option<(u64, Result<(), i32>)> {
    let chance = (number ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let at_ns = now_ns + chance % 20_000_000;
    match chance % 64 {
        0 => None,
        1 => Some((at_ns, Err(5))),
        _ => Some((at_ns, Ok(()))),
    }
}
