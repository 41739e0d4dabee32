//! Results as JSON lines, which a thread of their own writes: the load does not wait for who reads them.

use std::io::Write;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use bathy_ceph::Error;
use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

use crate::account::{ByDirection, Counts, Fault, Figures, Second, Total};
use crate::plan::Direction;
use crate::verify::{self, Verified};

/// How many values it takes until the sample's maximum is an upper bound of the percentile at 95 %.
const PERCENTILES: [(&str, f64, u64); 4] = [
    ("p50", 50.0, 5),
    ("p99", 99.0, 299),
    ("p99.9", 99.9, 2_995),
    ("p99.99", 99.99, 29_956),
];

/// A line of the results.
pub enum Line {
    /// What is known before the load.
    Start(Value),
    /// A second that is over.
    Second(Box<Second>),
    /// The end.
    Total(Box<Total>, Value),
}

/// Writes lines on a thread of its own.
pub struct Report {
    sender: Sender<Line>,
    writer: JoinHandle<std::io::Result<()>>,
}

impl Report {
    /// Write to `out`.
    pub fn to(mut out: impl Write + Send + 'static) -> Self {
        let (sender, lines) = channel::<Line>();
        let writer = std::thread::spawn(move || {
            for line in lines {
                writeln!(out, "{}", value(line))?;
                out.flush()?;
            }
            Ok(())
        });
        Self { sender, writer }
    }

    /// Write a line. False: nobody reads them any more.
    pub fn write(&self, line: Line) -> bool {
        self.sender.send(line).is_ok()
    }

    /// Wait until all is written.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn finish(self) -> std::io::Result<()> {
        drop(self.sender);
        let written = self.writer.join();
        written.unwrap_or_else(|_| Err(std::io::Error::other("the thread that writes has ended")))
    }
}

fn value(line: Line) -> Value {
    match line {
        Line::Start(value) => value,
        Line::Second(second) => json!({
            "type": "second",
            "second": second.second,
            "requests": counts(&second.counts),
            "directions": directions(&second.directions),
        }),
        Line::Total(total, more) => {
            let mut value = json!({
                "type": "total",
                "requests": counts(&total.counts),
                "directions": directions(&total.directions),
                "completed": completed(&total),
                "lateness_ns": histogram(&total.lateness, 0),
                "in_flight_max": total.in_flight_max,
                "never_completed": total.never_completed,
                "measured_s": total.measured_ns as f64 / 1e9,
                "verified": total.verified.as_ref().map(verified),
            });
            if let (Some(value), Value::Object(more)) = (value.as_object_mut(), more) {
                value.extend(more);
            }
            value
        }
    }
}

fn counts(counts: &Counts) -> Value {
    json!({
        "scheduled": counts.scheduled,
        "sent": counts.sent,
        "not_sent": counts.scheduled - counts.sent,
        "held": counts.held,
    })
}

fn verified(verified: &Verified) -> Value {
    let named = verified.named.iter().map(|mismatch| {
        let fault = match mismatch.fault {
            verify::Fault::Zero => "zero",
            verify::Fault::NoStamp => "no_stamp",
            verify::Fault::Checksum => "checksum",
            verify::Fault::WrongPlace => "wrong_place",
            verify::Fault::Stale => "stale",
        };
        json!({
            "image": mismatch.image,
            "offset": mismatch.offset,
            "object": mismatch.object,
            "fault": fault,
        })
    });
    json!({
        "blocks": verified.blocks,
        "mismatches": verified.mismatches,
        "named": named.collect::<Vec<_>>(),
    })
}

fn by_direction<T>(values: impl IntoIterator<Item = Option<T>>, value: impl Fn(T) -> Value) -> Value {
    let named = Direction::ALL.iter().zip(values);
    let entries = named.filter_map(|(direction, it)| it.map(|it| (direction.name().to_owned(), value(it))));
    Value::Object(entries.collect())
}

fn completed(total: &Total) -> Value {
    let values = total
        .completed
        .iter()
        .map(|&(count, bytes)| (count > 0).then_some((count, bytes)));
    by_direction(values, |(count, bytes)| json!({"count": count, "bytes": bytes}))
}

fn directions(directions: &ByDirection) -> Value {
    by_direction(directions.iter().map(Option::as_ref), figures)
}

fn figures(figures: &Figures) -> Value {
    let failed_count = figures.failed.values().sum();
    json!({
        "count": figures.from_intended.len(),
        "bytes": figures.bytes,
        "failed": failed(figures),
        "latency_from_intended_ns": histogram(&figures.from_intended, failed_count),
        "latency_from_submission_ns": histogram(&figures.from_submission, failed_count),
    })
}

fn failed(figures: &Figures) -> Value {
    let named = figures.failed.iter().map(|(fault, count)| {
        let name = match fault {
            Fault::Errno(errno) => Error::errno_name(*errno),
            Fault::Deadline => "deadline".to_owned(),
            Fault::NotSent => "not_sent".to_owned(),
        };
        (name, json!(count))
    });
    Value::Object(named.collect())
}

/// Mean and extremes of the values, those percentiles that the count resolves, and the buckets as pairs of upper end and
/// count.
///
/// Percentiles are of the values and of `failed_count` others that were slower than any: null where one falls among these.
/// Without them the tail would be that of the requests that went well.
fn histogram(values: &Histogram<u64>, failed_count: u64) -> Value {
    let all = values.len() + failed_count;
    let mut value = Map::new();
    if !values.is_empty() {
        value.insert("mean".to_owned(), json!(values.mean()));
        value.insert("stddev".to_owned(), json!(values.stdev()));
        value.insert("min".to_owned(), json!(values.min()));
        value.insert("max".to_owned(), json!(values.max()));
    }
    for (name, percentile, _) in PERCENTILES.into_iter().filter(|&(_, _, least)| all >= least) {
        // One hundred thousandth, so that rounding does not make the rank one more than it is.
        let rank = ((percentile / 100.0 * all as f64 - 1e-5).ceil() as u64).max(1);
        // Half a value below its end: whole numbers of values do not survive a division.
        let at = (rank <= values.len())
            .then(|| values.value_at_quantile((rank as f64 - 0.5) / values.len() as f64));
        value.insert(name.to_owned(), json!(at));
    }
    let buckets = values
        .iter_recorded()
        .map(|bucket| json!([bucket.value_iterated_to(), bucket.count_at_value()]));
    value.insert("buckets".to_owned(), buckets.collect());
    Value::Object(value)
}

#[cfg(test)]
mod tests {
    use super::histogram;
    use crate::account::latencies;

    #[test]
    fn what_failed_is_slower_than_all_that_did_not() {
        let mut values = latencies();
        for value in 1..=950 {
            values.record(value * 1000).unwrap();
        }
        let about = |value: &serde_json::Value, microseconds: f64| {
            (value.as_f64().unwrap() / 1000.0 / microseconds - 1.0).abs() < 0.01
        };
        let alone = histogram(&values, 0);
        assert!(about(&alone["p50"], 475.0) && about(&alone["p99"], 941.0));
        // Of 1,000 the median is the 500th, and the 990th is one of the fifty that failed.
        let with_failed = histogram(&values, 50);
        assert!(about(&with_failed["p50"], 500.0));
        assert!(with_failed["p99"].is_null() && with_failed.get("p99").is_some());
        assert!(with_failed.get("p99.9").is_none(), "a thousand do not resolve it");
        let none = histogram(&latencies(), 5);
        assert!(none["p50"].is_null() && none.get("mean").is_none());
    }
}
