//! A host in virtual time that keeps a number of requests in flight.

use std::collections::HashMap;

use bathy_simdisk::model::{Device, Op, Outcome, Request, Settings};
use bathy_simdisk::profile::profile;

/// What a load measured.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    pub(crate) latencies_ns: Vec<u64>,
    pub(crate) elapsed_ns: u64,
}

impl Measured {
    pub(crate) fn mean_ns(&self) -> f64 {
        self.latencies_ns.iter().sum::<u64>() as f64 / self.latencies_ns.len() as f64
    }

    pub(crate) fn per_second(&self) -> f64 {
        self.latencies_ns.len() as f64 * 1e9 / self.elapsed_ns as f64
    }

    pub(crate) fn quantile_ns(&self, quantile: f64) -> u64 {
        let mut sorted = self.latencies_ns.clone();
        sorted.sort_unstable();
        sorted[((sorted.len() - 1) as f64 * quantile) as usize]
    }
}

pub(crate) fn device(name: &str, size_bytes: u64, write_cache: Option<bool>) -> Box<dyn Device> {
    let settings = Settings {
        write_cache,
        ..Settings::new(size_bytes, 1)
    };
    profile(name).unwrap().device(&settings)
}

/// Run `count` requests, `depth` at a time; each next one comes `think_ns` after a completion.
pub(crate) fn run(
    device: &mut dyn Device,
    depth: usize,
    count: usize,
    think_ns: u64,
    mut next: impl FnMut(usize) -> (Op, u64, u64),
) -> Measured {
    let begin_ns = device.next_event_ns().unwrap_or(0);
    let mut now_ns = begin_ns;
    let mut measured = Measured::default();
    let mut submitted: HashMap<u64, u64> = HashMap::new();
    let mut arrivals: Vec<u64> = vec![now_ns; depth.min(count)];
    let mut sent = 0;
    let mut outcomes = Vec::new();
    while measured.latencies_ns.len() < count {
        arrivals.sort_unstable_by(|one, other| other.cmp(one));
        let arrives_ns = arrivals
            .last()
            .copied()
            .filter(|_| sent < count)
            .unwrap_or(u64::MAX);
        let event_ns = device.next_event_ns().unwrap_or(u64::MAX);
        assert!(
            arrives_ns.min(event_ns) < u64::MAX,
            "{} requests are never answered",
            submitted.len()
        );
        now_ns = now_ns.max(arrives_ns.min(event_ns));
        if event_ns <= arrives_ns {
            device.advance(now_ns, &mut outcomes);
        } else {
            arrivals.pop();
            let (op, offset, length) = next(sent);
            sent += 1;
            submitted.insert(sent as u64, now_ns);
            device.submit(Request::new(sent as u64, op, offset, length), now_ns);
        }
        for outcome in outcomes.drain(..) {
            if let Outcome::Completed { id, at_ns } = outcome {
                let since_ns = submitted.remove(&id).expect("a request is answered once");
                assert!(at_ns >= since_ns && at_ns <= now_ns);
                measured.latencies_ns.push(at_ns - since_ns);
                measured.elapsed_ns = at_ns - begin_ns;
                arrivals.push(at_ns + think_ns);
            }
        }
    }
    measured
}
