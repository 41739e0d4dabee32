//! For tests that walk through a policy by hand: references in, what happened out, in one readable line.

use crate::policy::Policy;

/// Each reference as its key, with `+` for a hit and `/k` for each key `k` that left: `1 2 1+ 3/2`.
pub(crate) fn walk(policy: &mut impl Policy, keys: &[u64]) -> String {
    let mut steps = Vec::new();
    for &key in keys {
        let mut left = Vec::new();
        let access = policy.access_with(key, &mut |evicted| left.push(evicted));
        let hit = if access.is_hit() { "+" } else { "" };
        let left: String = left
            .iter()
            .map(|key: &u64| ["/", &key.to_string()].concat())
            .collect();
        steps.push(format!("{key}{hit}{left}"));
    }
    steps.join(" ")
}
