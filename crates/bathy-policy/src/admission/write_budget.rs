//! A write budget: so many bytes a day are written to the SSD, and evenly.
//!
//! As "dynamic random admission" in Berg and others: The `CacheLib` caching engine, OSDI 2020: newcomers of the SSD are thinned
//! by a probability that follows what they would write, so that what is written reaches the budget and does not exceed it. The
//! random numbers are a sequence of their own, so a simulation draws what a cache draws.
//!
//! Changes of lines on the SSD come first: they are thinned only when the budget is overdrawn, as a line whose change is not
//! written must leave. Limits: what was written before a restart is not known after it.

const DAY_S: f64 = 86_400.0;
/// The probability is set anew this often.
const PERIOD_S: f64 = 60.0;
/// The rate of what newcomers would write is that of about this time.
const SMOOTHING_S: f64 = 900.0;
/// What the budget is ahead or behind is made good in this time, and it is overdrawn by what this time has at most.
const HORIZON_S: f64 = 3600.0;
const SHARE_MIN: f64 = 1.0 / 4096.0;

/// See the [module](self).
#[derive(Debug, Clone)]
pub struct WriteBudget {
    bytes_per_s: f64,
    began_ns: Option<u64>,
    /// Seconds from the first request to the last.
    elapsed_s: f64,
    written_bytes: f64,
    /// The part of the newcomers that is admitted.
    share: f64,
    /// Since `elapsed_s` was this: what newcomers would have written, and what changes wrote.
    window: (f64, f64, f64),
    newcomers_bytes_per_s: f64,
    changes_bytes_per_s: f64,
    random: u64,
}

impl WriteBudget {
    /// A budget of `bytes_per_day`, of which at most a day's can be saved up. At any time at most what the time since the first
    /// request has, and that of an hour more, was written, and the last line.
    pub fn new(bytes_per_day: u64) -> Self {
        Self {
            bytes_per_s: bytes_per_day as f64 / DAY_S,
            began_ns: None,
            elapsed_s: 0.0,
            written_bytes: 0.0,
            share: 1.0,
            window: (0.0, 0.0, 0.0),
            newcomers_bytes_per_s: 0.0,
            changes_bytes_per_s: 0.0,
            random: 0,
        }
    }

    /// Bytes that may be written until the horizon.
    fn rest_bytes(&self) -> f64 {
        self.bytes_per_s * (self.elapsed_s + HORIZON_S) - self.written_bytes
    }

    /// Time does not go back by much; if it does it stands still.
    fn advance(&mut self, time_ns: u64) {
        let began_ns = *self.began_ns.get_or_insert(time_ns);
        let elapsed_s = time_ns.saturating_sub(began_ns) as f64 / 1e9;
        self.elapsed_s = self.elapsed_s.max(elapsed_s);
        let (since_s, newcomers, changes) = self.window;
        let span_s = self.elapsed_s - since_s;
        if span_s < PERIOD_S {
            return;
        }
        let weight = span_s / (span_s + SMOOTHING_S);
        self.newcomers_bytes_per_s += weight * (newcomers / span_s - self.newcomers_bytes_per_s);
        self.changes_bytes_per_s += weight * (changes / span_s - self.changes_bytes_per_s);
        let unsaved = self.bytes_per_s * (self.elapsed_s - DAY_S);
        self.written_bytes = self.written_bytes.max(unsaved);
        let rest = self.rest_bytes() / HORIZON_S - self.changes_bytes_per_s;
        self.share = if rest < self.newcomers_bytes_per_s {
            (rest / self.newcomers_bytes_per_s).max(SHARE_MIN)
        } else {
            1.0
        };
        self.window = (self.elapsed_s, 0.0, 0.0);
    }

    /// Whether a newcomer may cause writes. Its bytes are reported to [`WriteBudget::on_newcomer`].
    pub fn draw(&mut self, time_ns: u64) -> bool {
        self.advance(time_ns);
        // A sequence of Weyl, mixed as in `SplitMix64`.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let drawn = (crate::slots::mix(self.random) >> 11) as f64 / (1u64 << 53) as f64;
        drawn < self.share && self.rest_bytes() > 0.0
    }

    /// So many bytes are written for a newcomer that was drawn.
    pub fn on_newcomer(&mut self, bytes: u64) {
        self.written_bytes += bytes as f64;
        self.window.1 += bytes as f64 / self.share;
    }

    /// Whether so many bytes of a line on the SSD may be written, which then they are.
    pub fn admit_change(&mut self, time_ns: u64, bytes: u64) -> bool {
        self.advance(time_ns);
        let admits = self.rest_bytes() > 0.0;
        // A change that is refused writes nothing: it takes no part of the budget from newcomers.
        if admits {
            self.written_bytes += bytes as f64;
            self.window.2 += bytes as f64;
        }
        admits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Newcomers of 64 KiB every second for so long, and changes of `change` bytes: what was written of each.
    fn written(budget: &mut WriteBudget, seconds: std::ops::Range<u64>, change: u64) -> (u64, u64) {
        let (mut newcomers, mut changes) = (0, 0);
        for second in seconds {
            let time_ns = second * 1_000_000_000;
            if change > 0 && budget.admit_change(time_ns, change) {
                changes += change;
            }
            if budget.draw(time_ns) {
                budget.on_newcomer(65_536);
                newcomers += 65_536;
            }
        }
        (newcomers, changes)
    }

    #[test]
    fn each_part_of_a_day_gets_its_share_of_the_budget() {
        let mut budget = WriteBudget::new(1 << 30);
        for part in 0..8 {
            let (newcomers, _) = written(&mut budget, part * 10_800..(part + 1) * 10_800, 0);
            let share = newcomers as f64 / (1u64 << 27) as f64;
            // The first one has the horizon's as well.
            let most = if part == 0 { 1.35 } else { 1.1 };
            assert!((0.9..most).contains(&share), "part {part}: {share}");
        }
    }

    #[test]
    fn changes_come_first_and_what_is_left_goes_to_newcomers() {
        let day = 0..86_400;
        let (newcomers, changes) = written(&mut WriteBudget::new(1 << 30), day.clone(), 8192);
        assert_eq!(changes, 86_400 * 8192);
        let sum = (newcomers + changes) as f64 / (1u64 << 30) as f64;
        assert!((0.95..1.05).contains(&sum), "{sum}");
        // Changes alone are more than there is.
        let (newcomers, changes) = written(&mut WriteBudget::new(1 << 28), day, 8192);
        let sum = (newcomers + changes) as f64 / (1u64 << 28) as f64;
        assert!((0.95..1.05).contains(&sum), "{sum}");
        assert!(newcomers < changes / 10);
    }

    #[test]
    fn changes_that_are_refused_take_nothing_from_newcomers() {
        // Twelve times what newcomers would write, and for an hour changes of 84 times as much as that.
        let mut budget = WriteBudget::new(1 << 36);
        written(&mut budget, 0..3600, 64 << 20);
        let (newcomers, _) = written(&mut budget, 3600..2 * 3600, 0);
        let share = newcomers as f64 / (3600.0 * 65_536.0);
        assert!(share > 0.5, "{share}");
    }

    #[test]
    fn what_is_not_used_is_saved_for_a_day_and_time_that_goes_back_stands_still() {
        let mut budget = WriteBudget::new(86_400);
        assert!(budget.admit_change(0, 3600));
        assert!(!budget.admit_change(0, 1), "all of the horizon");
        assert!(budget.admit_change(1_000_000_000, 1), "a byte a second");
        let later_ns = 10 * 86_400_000_000_000;
        assert!(
            budget.admit_change(later_ns, 86_400 + 3599),
            "a day and the horizon"
        );
        assert!(budget.admit_change(later_ns - 1_000_000_000, 1));
        assert!(!budget.admit_change(later_ns, 1));
    }
}
