//! A write budget: at most so many bytes a day are written to the SSD.
//!
//! A token bucket (Turner: New directions in communications, IEEE Communications Magazine 24(10), 1986). The need for
//! one, as "dynamic random admission" with a daily budget: Berg and others: The `CacheLib` caching engine, OSDI 2020.
//! Theirs admits at random, so that the budget is spent evenly; this one is first come, first served, which is
//! deterministic.
//!
//! Limits: it should not be the only filter. A scan that begins with a full bucket spends all of it; put n-hit or the
//! stream bypass in front.

use crate::admission::Admission;

const NS_PER_DAY: u128 = 86_400_000_000_000;

/// See the [module](self).
#[derive(Debug, Clone)]
pub struct WriteBudget {
    bytes_per_day: u64,
    /// Tokens in units of a byte divided by the nanoseconds of a day, so that no fraction is lost however often the
    /// bucket is filled.
    tokens: u128,
    burst: u128,
    filled_at_ns: Option<u64>,
}

impl WriteBudget {
    /// A budget of `bytes_per_day`, of which at most `burst_bytes` can be saved up; the bucket starts full.
    /// Over any span of `d` days at most `bytes_per_day * d + burst_bytes` are admitted, new lines and changes together.
    pub fn new(bytes_per_day: u64, burst_bytes: u64) -> Self {
        let burst = u128::from(burst_bytes) * NS_PER_DAY;
        Self {
            bytes_per_day,
            tokens: burst,
            burst,
            filled_at_ns: None,
        }
    }

    fn pay(&mut self, time_ns: u64, bytes: u64) -> bool {
        // Time that goes back, as it does between merged traces, adds nothing and is not counted twice.
        let filled_at_ns = self.filled_at_ns.unwrap_or(time_ns);
        let elapsed_ns = time_ns.saturating_sub(filled_at_ns);
        self.filled_at_ns = Some(filled_at_ns.max(time_ns));
        let income = u128::from(elapsed_ns) * u128::from(self.bytes_per_day);
        self.tokens = self.tokens.saturating_add(income).min(self.burst);
        let price = u128::from(bytes) * NS_PER_DAY;
        let affordable = price <= self.tokens;
        if affordable {
            self.tokens -= price;
        }
        affordable
    }
}

impl Admission for WriteBudget {
    fn admit(&mut self, _key: u64, time_ns: u64, bytes: u64) -> bool {
        self.pay(time_ns, bytes)
    }

    fn admit_update(&mut self, time_ns: u64, bytes: u64) -> bool {
        self.pay(time_ns, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_admits_its_budget_and_the_burst_and_no_byte_more() {
        // 4 KiB every 10 ms for a day against 1 GiB a day with 64 MiB saved up.
        let mut budget = WriteBudget::new(1 << 30, 64 << 20);
        let admitted: u64 = (0..8_640_000u64)
            .map(|i| u64::from(budget.admit(i, i * 10_000_000, 4096)) * 4096)
            .sum();
        let limit = (1u64 << 30) + (64 << 20);
        assert!(
            admitted <= limit && admitted > limit - 2 * 4096,
            "{admitted} of {limit}"
        );
    }

    #[test]
    fn idle_time_saves_up_to_the_burst_and_time_going_back_earns_nothing() {
        let mut budget = WriteBudget::new(86_400, 10);
        assert!(budget.admit(0, 1_000_000_000_000, 10));
        assert!(
            !budget.admit(0, 1_000_500_000_000, 1),
            "half a second is half a byte"
        );
        assert!(
            budget.admit(0, 1_001_000_000_000, 1),
            "and a second is one, nothing was rounded away"
        );
        assert!(
            budget.admit(0, 2_000_000_000_000, 10),
            "1,000 s would be 1,000 bytes; the burst caps it"
        );
        assert!(!budget.admit(0, 1_000_000_000_000, 1));
        assert!(
            !budget.admit(0, 2_000_000_000_000, 1),
            "the way back to where time had been is not paid again"
        );
    }
}
