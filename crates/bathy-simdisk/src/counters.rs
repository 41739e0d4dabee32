//! What a disk did, as its users see it. Times are the model's: what the disk would have taken.

use serde_json::{Map, Value, json};

use crate::fault::OpKind;
use crate::histogram::Histogram;

#[derive(Debug, Default)]
struct PerOp {
    count: u64,
    bytes: u64,
    errors: u64,
    service: Histogram,
}

/// The counters of a disk since it was started.
#[derive(Debug, Default)]
pub struct Counters {
    ops: [PerOp; 4],
    in_flight: u64,
    in_flight_max: u64,
    ticked_ns: u64,
    busy_ns: u64,
    queue_ns: u64,
    lateness: Histogram,
    late_ops: u64,
    power_cuts: u64,
}

impl Counters {
    /// A request arrives.
    pub fn submitted(&mut self, now_ns: u64) {
        self.tick(now_ns);
        self.in_flight += 1;
        self.in_flight_max = self.in_flight_max.max(self.in_flight);
    }

    /// A request that arrived at `submitted_ns` was completed by the model at `at_ns`.
    pub fn completed(&mut self, kind: OpKind, bytes: u64, submitted_ns: u64, at_ns: u64, failed: bool) {
        self.tick(at_ns);
        self.in_flight = self.in_flight.saturating_sub(1);
        let op = &mut self.ops[kind as usize];
        op.service.record(at_ns.saturating_sub(submitted_ns));
        if failed {
            op.errors += 1;
        } else {
            op.count += 1;
            op.bytes += bytes;
        }
    }

    /// A request that hung is submitted anew.
    pub fn released(&mut self, now_ns: u64) {
        self.tick(now_ns);
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// A reply was given so long after the model's time.
    pub fn replied(&mut self, lateness_ns: u64, late_ns: u64) {
        self.lateness.record(lateness_ns);
        self.late_ops += u64::from(lateness_ns > late_ns);
    }

    /// Power was cut: nothing is in flight any more.
    pub fn power_cut(&mut self, now_ns: u64) {
        self.tick(now_ns);
        self.in_flight = 0;
        self.power_cuts += 1;
    }

    /// The sum of the service times of one kind of request.
    pub fn service_ns(&self, kind: OpKind) -> u64 {
        self.ops[kind as usize].service.sum_ns()
    }

    fn tick(&mut self, now_ns: u64) {
        let passed_ns = now_ns.saturating_sub(self.ticked_ns);
        if self.in_flight > 0 {
            self.busy_ns += passed_ns;
            self.queue_ns += passed_ns * self.in_flight;
        }
        self.ticked_ns = self.ticked_ns.max(now_ns);
    }

    /// All counters up to `now_ns`.
    pub fn to_json(&mut self, now_ns: u64) -> Map<String, Value> {
        self.tick(now_ns);
        let mut all = Map::new();
        for kind in OpKind::ALL {
            let op = &self.ops[kind as usize];
            all.insert(
                kind.name().to_owned(),
                json!({"count": op.count, "bytes": op.bytes, "errors": op.errors, "service": op.service.to_json()}),
            );
        }
        all.insert("busy_ns".to_owned(), json!(self.busy_ns));
        all.insert("queue_ns".to_owned(), json!(self.queue_ns));
        all.insert("in_flight".to_owned(), json!(self.in_flight));
        all.insert("in_flight_max".to_owned(), json!(self.in_flight_max));
        all.insert("lateness".to_owned(), self.lateness.to_json());
        all.insert("late_ops".to_owned(), json!(self.late_ops));
        all.insert("power_cuts".to_owned(), json!(self.power_cuts));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_time_and_queue_are_integrals() {
        let mut counters = Counters::default();
        counters.submitted(100);
        counters.submitted(200);
        counters.completed(OpKind::Read, 4096, 100, 400, false);
        counters.completed(OpKind::Write, 512, 200, 500, true);
        counters.submitted(1000);
        counters.completed(OpKind::Read, 4096, 1000, 1100, false);
        let all = counters.to_json(2000);
        assert_eq!(all["busy_ns"], json!(500));
        assert_eq!(all["queue_ns"], json!(100 + 2 * 200 + 100 + 100));
        assert_eq!(all["in_flight_max"], json!(2));
        assert_eq!(all["read"]["bytes"], json!(8192));
        assert_eq!(all["write"]["errors"], json!(1));
        assert_eq!(all["write"]["count"], json!(0));
    }
}
