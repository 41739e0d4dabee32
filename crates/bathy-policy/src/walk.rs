//! For tests that walk through a policy by hand: references in, what happened out, in one readable line.

use crate::policy::Policy;

/// Each reference as its key, with `+` for a hit, `/k` if the key `k` left, and `^k` if `k` moved from memory to the SSD:
/// `1 2 1+ 3/2`.
pub(crate) fn walk(policy: &mut impl Policy, keys: &[u64]) -> String {
    let step = |&key: &u64| {
        if policy.reference(key).is_some() {
            return format!("{key}+");
        }
        let inserted = policy.insert(key).expect("nothing is pinned");
        let left = inserted
            .victim
            .map_or(String::new(), |victim| format!("/{}", victim.key));
        let moved = inserted
            .promotion
            .map_or(String::new(), |promotion| format!("^{}", promotion.key));
        format!("{key}{left}{moved}")
    };
    keys.iter().map(step).collect::<Vec<_>>().join(" ")
}
