//! Admission: whether a block that missed is worth a write to the SSD at all.
//!
//! Eviction decides what leaves; admission decides what enters, which is what wears an SSD out. The driver asks
//! after a miss and before [`Policy::access`]; a hit is looked for with [`Policy::touch`]. [`access_admitted`] is that
//! sequence. Time is an argument, so a simulation uses the trace's time.

pub mod n_hit;
pub mod stream_bypass;
pub mod write_budget;

pub use n_hit::{NHit, NHitOptions};
pub use stream_bypass::{StreamBypass, StreamBypassOptions};
pub use write_budget::WriteBudget;

use crate::policy::{Access, EvictionSink, Policy};

/// Decides on blocks that missed. Deterministic; no allocation per call.
pub trait Admission {
    /// Whether `key` may enter. `time_ns` does not go back by much; `bytes` is what would be written to the SSD.
    fn admit(&mut self, key: u64, time_ns: u64, bytes: u64) -> bool;

    /// Whether so many bytes of a line that is cached may be written to the SSD: what was missing of it, or what a write
    /// changes. If not, the driver leaves the missing part out or drops the line. Only a budget says no.
    fn admit_update(&mut self, time_ns: u64, bytes: u64) -> bool {
        let _ = (time_ns, bytes);
        true
    }

    /// A reference that was a hit. Only what follows streams needs to know.
    fn saw_hit(&mut self, key: u64, bytes: u64) {
        let _ = (key, bytes);
    }

    /// How full the cache is now. Only what depends on it needs to know; call it as often as is cheap.
    fn observe_fill(&mut self, resident_lines: usize, capacity_lines: usize) {
        let _ = (resident_lines, capacity_lines);
    }

    /// Bytes held beyond the value itself.
    fn memory_bytes(&self) -> usize {
        0
    }

    /// The name in commands and results.
    fn name(&self) -> &'static str;
}

/// References `key` with an admission policy in front: the one sequence that simulator and cache engine share.
///
/// A hit is a hit whatever `admission` thinks. On a miss it is told how full the cache is and asked; `time_ns` and
/// `bytes` are as in [`Admission::admit`]. `sink` hears what leaves, as in [`Policy::access_with`].
#[inline]
pub fn access_admitted<P, A, S>(
    policy: &mut P,
    admission: &mut A,
    key: u64,
    time_ns: u64,
    bytes: u64,
    sink: &mut S,
) -> Access
where
    P: Policy,
    A: Admission + ?Sized,
    S: EvictionSink + ?Sized,
{
    if policy.touch(key) {
        admission.saw_hit(key, bytes);
        return Access::Hit;
    }
    admission.observe_fill(policy.len(), policy.capacity());
    if !admission.admit(key, time_ns, bytes) {
        return Access::Miss { inserted: false };
    }
    policy.access_with(key, sink)
}

/// Everything enters: the right choice while the SSD is not worn out by it, and the yardstick for the others.
#[derive(Debug, Clone, Copy, Default)]
pub struct AdmitAll;

impl Admission for AdmitAll {
    #[inline]
    fn admit(&mut self, _key: u64, _time_ns: u64, _bytes: u64) -> bool {
        true
    }

    fn name(&self) -> &'static str {
        "none"
    }
}

/// Several in a row: what all admit enters. They are asked in order and the first refusal ends it, so what pays out
/// a budget belongs last.
#[derive(Default)]
pub struct AdmissionChain {
    parts: Vec<Box<dyn Admission + Send>>,
}

impl AdmissionChain {
    /// A chain that asks `parts` in their order. An empty one admits everything.
    pub fn new(parts: Vec<Box<dyn Admission + Send>>) -> Self {
        Self { parts }
    }
}

impl Admission for AdmissionChain {
    fn admit(&mut self, key: u64, time_ns: u64, bytes: u64) -> bool {
        self.parts.iter_mut().all(|part| part.admit(key, time_ns, bytes))
    }

    fn admit_update(&mut self, time_ns: u64, bytes: u64) -> bool {
        self.parts
            .iter_mut()
            .all(|part| part.admit_update(time_ns, bytes))
    }

    fn saw_hit(&mut self, key: u64, bytes: u64) {
        self.parts.iter_mut().for_each(|part| part.saw_hit(key, bytes));
    }

    fn observe_fill(&mut self, resident_lines: usize, capacity_lines: usize) {
        self.parts
            .iter_mut()
            .for_each(|part| part.observe_fill(resident_lines, capacity_lines));
    }

    fn memory_bytes(&self) -> usize {
        self.parts.iter().map(|part| part.memory_bytes()).sum()
    }

    fn name(&self) -> &'static str {
        "chain"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{HashIndex, HashSeed};
    use crate::{Lru, NoSink};

    #[test]
    fn a_refused_block_stays_out_and_a_resident_one_needs_no_admission() {
        let mut lru = Lru::<HashIndex>::new(4, HashSeed(0));
        let mut n_hit = NHit::new(NHitOptions {
            threshold: 2,
            fill_trigger: 0.5,
            tracked_keys: 8,
        });
        let mut access = |key| access_admitted(&mut lru, &mut n_hit, key, 0, 4096, &mut NoSink);
        let (refused, entered) = (Access::Miss { inserted: false }, Access::Miss { inserted: true });
        assert_eq!(
            [1, 2].map(&mut access),
            [entered; 2],
            "up to half the lines everything enters"
        );
        assert_eq!(
            [3, 1, 3, 3].map(&mut access),
            [refused, Access::Hit, entered, Access::Hit]
        );
    }

    #[test]
    fn a_refusal_early_in_the_chain_spends_nothing_later() {
        let n_hit = NHit::new(NHitOptions {
            threshold: 2,
            fill_trigger: 0.0,
            tracked_keys: 8,
        });
        let mut chain = AdmissionChain::new(vec![Box::new(n_hit), Box::new(WriteBudget::new(86_400, 4096))]);
        assert!(!chain.admit(1, 0, 4096), "first miss");
        assert!(
            chain.admit(1, 0, 4096),
            "second miss, and the budget's burst is untouched"
        );
        assert!(!chain.admit(2, 0, 4096));
        assert!(!chain.admit(2, 0, 4096), "second miss, but the budget is spent");
    }
}
