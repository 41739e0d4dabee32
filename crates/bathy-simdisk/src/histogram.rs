//! A histogram of durations with buckets of an eighth of an octave: percentiles are exact to 9 %.

use serde_json::{Value, json};

const STEPS: u64 = 8;
const BUCKETS: usize = (64 - 2) * STEPS as usize;

/// Counts durations.
#[derive(Debug, Clone)]
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    sum_ns: u64,
    max_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: vec![0; BUCKETS],
            count: 0,
            sum_ns: 0,
            max_ns: 0,
        }
    }
}

impl Histogram {
    /// Count one duration.
    pub fn record(&mut self, value_ns: u64) {
        self.counts[bucket(value_ns)] += 1;
        self.count += 1;
        self.sum_ns = self.sum_ns.saturating_add(value_ns);
        self.max_ns = self.max_ns.max(value_ns);
    }

    /// The sum of the durations.
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// The upper end of the bucket in which the share `quantile` of the durations is reached; 0 if there are none.
    pub fn quantile_ns(&self, quantile: f64) -> u64 {
        let wanted = (self.count as f64 * quantile).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if *count > 0 && seen >= wanted {
                return upper_ns(index).min(self.max_ns);
            }
        }
        0
    }

    /// Count, sum, greatest value, percentiles and the buckets as pairs of upper end and count.
    pub fn to_json(&self) -> Value {
        let buckets = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        let buckets: Vec<Value> = buckets
            .map(|(index, count)| json!([upper_ns(index), count]))
            .collect();
        json!({
            "count": self.count,
            "sum_ns": self.sum_ns,
            "max_ns": self.max_ns,
            "p50_ns": self.quantile_ns(0.5),
            "p99_ns": self.quantile_ns(0.99),
            "p999_ns": self.quantile_ns(0.999),
            "buckets": buckets,
        })
    }
}

/// Values below 8 have a bucket each; above, each octave has eight.
fn bucket(value_ns: u64) -> usize {
    if value_ns < STEPS {
        return value_ns as usize;
    }
    let octave = u64::from(value_ns.ilog2()) - 3;
    ((octave + 1) * STEPS + (value_ns >> octave) - STEPS) as usize
}

fn upper_ns(index: usize) -> u64 {
    let index = index as u64;
    if index < STEPS {
        return index;
    }
    let octave = index / STEPS - 1;
    let first = STEPS + index % STEPS;
    (((u128::from(first) + 1) << octave) - 1).min(u128::from(u64::MAX)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_in_its_bucket() {
        let mut before = None;
        for value in (0..2000).chain((0..61).map(|bit| 1_u64 << bit)).chain([u64::MAX]) {
            let upper = upper_ns(bucket(value));
            assert!(
                upper >= value && upper as f64 <= value as f64 * 1.126,
                "{value}: {upper}"
            );
            if let Some(last) = before.filter(|&last| last < value) {
                assert!(upper_ns(bucket(last)) <= upper);
            }
            before = Some(value);
        }
    }

    #[test]
    fn quantiles_of_an_even_spread() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile_ns(0.5), 0);
        (1..=1000).for_each(|value| histogram.record(value * 1000));
        assert!((histogram.quantile_ns(0.5) as f64 / 500e3 - 1.0).abs() < 0.13);
        assert_eq!(histogram.quantile_ns(1.0), 1_000_000);
    }
}
