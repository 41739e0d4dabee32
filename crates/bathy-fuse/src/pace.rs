//! Whether requests of a kind are answered so quickly that others may wait for it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// How long requests of a kind took of late. Threads may share it; what they lose of each other's is no matter.
#[derive(Debug, Default)]
pub struct Pace {
    ns_mean: AtomicU64,
    left_to_others: AtomicU32,
}

impl Pace {
    /// About what it costs to leave a request to another thread.
    const SLOW_NS: u64 = 25_000;
    /// So that one that lost its processor does not make all look slow.
    const NS_MAX: u64 = 4 * Self::SLOW_NS;
    /// Of so many slow ones one is carried out here, to see whether they still are.
    const SAMPLE: u32 = 32;

    /// Of requests that look slow until some were quick.
    pub(crate) fn unknown() -> Self {
        Self {
            ns_mean: Self::NS_MAX.into(),
            ..Self::default()
        }
    }

    /// Whether they were quick.
    pub fn is_quick(&self) -> bool {
        self.ns_mean.load(Ordering::Relaxed) <= Self::SLOW_NS
    }

    /// The same, or whether this one is to show if they still are slow.
    pub(crate) fn is_quick_or_sampled(&self) -> bool {
        if self.is_quick() {
            self.left_to_others.store(0, Ordering::Relaxed);
            return true;
        }
        (self.left_to_others.fetch_add(1, Ordering::Relaxed) + 1) % Self::SAMPLE == 0
    }

    /// One took so long.
    pub fn note(&self, took: Duration) {
        let ns = (took.as_nanos() as u64).min(Self::NS_MAX);
        let mean = self.ns_mean.load(Ordering::Relaxed);
        self.ns_mean.store((7 * mean + ns) / 8, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_a_little_quicker_than_the_limit_is_quick() {
        let pace = Pace::unknown();
        (0..100).for_each(|_| pace.note(Duration::from_micros(22)));
        assert!(pace.is_quick());
    }

    #[test]
    fn what_was_slow_is_tried_now_and_then_until_it_is_quick_again() {
        let pace = Pace::unknown();
        let tried = |pace: &Pace| (0..64).filter(|_| pace.is_quick_or_sampled()).count();
        assert!(!pace.is_quick());
        assert_eq!(tried(&pace), 2);
        (0..20).for_each(|_| pace.note(Duration::from_micros(3)));
        assert!(pace.is_quick());
        assert_eq!(tried(&pace), 64);
        // One that lost its processor.
        pace.note(Duration::from_secs(1));
        assert!(pace.is_quick());
        (0..20).for_each(|_| pace.note(Duration::from_micros(90)));
        assert!(!pace.is_quick());
    }
}
