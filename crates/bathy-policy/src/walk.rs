//! For tests that walk through a policy by hand: references in, what happened out, in one readable line.

use crate::policy::Policy;

/// Each reference as its key, with `+` for a hit and `/k` for each key `k` that left: `1 2 1+ 3/2`.
pub(crate) fn walk(policy: &mut impl Policy, keys: &[u64]) -> String {
    let mut steps = Vec::new();
    for &key in keys {
        let mut step = key.to_string();
        let mut left = String::new();
        if policy
            .access_with(key, &mut |evicted| left += &format!("/{evicted}"))
            .is_hit()
        {
            step.push('+');
        }
        steps.push(step + &left);
    }
    steps.join(" ")
}
