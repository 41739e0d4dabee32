//! Admission: whether a block that missed is worth a write to the SSD.
//!
//! Eviction decides which block leaves; admission decides which block enters, and so how fast the SSD wears out. The
//! driver looks for a hit with [`Policy::touch`](crate::Policy::touch). On a miss it reports the fill level and asks
//! its [`Admission`], and calls [`Policy::access`](crate::Policy::access) only for an admitted block. Time is an
//! argument, so a simulation uses the trace's time.
//!
//! Limits: a filter sees keys and bytes, not data, and decides at the miss; a refused block is not reconsidered before
//! its next miss.

pub mod n_hit;
pub mod stream_bypass;
pub mod write_budget;

pub use n_hit::{NHit, NHitOptions};
pub use stream_bypass::{StreamBypass, StreamBypassOptions};
pub use write_budget::WriteBudget;

/// Decides on blocks that missed. Deterministic; no allocation per call.
pub trait Admission {
    /// Whether `key` may enter. `time_ns` does not go back by much; `bytes` is what would be written to the SSD.
    fn admit(&mut self, key: u64, time_ns: u64, bytes: u64) -> bool;

    /// Reports how full the cache is now. A filter that does not depend on it ignores it.
    fn observe_fill(&mut self, resident_lines: usize, capacity_lines: usize) {
        let _ = (resident_lines, capacity_lines);
    }

    /// Bytes held beyond the value itself.
    fn memory_bytes(&self) -> usize {
        0
    }
}

/// Several filters in a row: a block enters if all admit it. They are asked in order up to the first refusal.
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

    fn observe_fill(&mut self, resident_lines: usize, capacity_lines: usize) {
        self.parts
            .iter_mut()
            .for_each(|part| part.observe_fill(resident_lines, capacity_lines));
    }

    fn memory_bytes(&self) -> usize {
        self.parts.iter().map(|part| part.memory_bytes()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_early_in_the_chain_is_not_counted_later() {
        let n_hit = |threshold| -> Box<dyn Admission + Send> {
            Box::new(NHit::new(NHitOptions {
                threshold,
                fill_trigger: 0.0,
                tracked_keys: 8,
            }))
        };
        let mut chain = AdmissionChain::new(vec![n_hit(2), n_hit(2)]);
        let answers: Vec<bool> = (0..4).map(|_| chain.admit(1, 0, 4096)).collect();
        assert_eq!(
            answers,
            [false, false, false, true],
            "who was admitted is counted anew"
        );
    }
}
