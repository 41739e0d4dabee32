//! The policies by name, and the two ways to make one: in a `Box`, or passed to a visitor compiled for its type.

use std::fmt;
use std::str::FromStr;

use crate::index::{DenseIndex, HashIndex, KeyIndex};
use crate::policy::{Policy, check_capacity};
use crate::slots::{HashSeed, Universe};
use crate::{Arc, Clock, Fifo, Lirs, Lru, Sieve, StagedFifo, StagedOptions, TwoQ, WTinyLfu};

/// A policy's name. `Display` and `FromStr` use the lower-case names of [`PolicyKind::ALL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PolicyKind {
    /// [`Lru`]
    Lru,
    /// [`Fifo`]
    Fifo,
    /// [`Clock`]
    Clock,
    /// [`Sieve`]
    Sieve,
    /// [`TwoQ`]
    TwoQ,
    /// [`Arc`]
    Arc,
    /// [`Lirs`]
    Lirs,
    /// [`StagedFifo`]
    S3Fifo,
    /// [`StagedFifo`] with a correlation window
    Clock2QPlus,
    /// [`WTinyLfu`]
    WTinyLfu,
}

impl PolicyKind {
    /// Every policy, in the order in which lists show them.
    pub const ALL: [Self; 10] = [
        Self::Lru,
        Self::Fifo,
        Self::Clock,
        Self::Sieve,
        Self::TwoQ,
        Self::Arc,
        Self::Lirs,
        Self::S3Fifo,
        Self::Clock2QPlus,
        Self::WTinyLfu,
    ];

    /// The name in commands and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lru => "lru",
            Self::Fifo => "fifo",
            Self::Clock => "clock",
            Self::Sieve => "sieve",
            Self::TwoQ => "2q",
            Self::Arc => "arc",
            Self::Lirs => "lirs",
            Self::S3Fifo => "s3-fifo",
            Self::Clock2QPlus => "clock2q+",
            Self::WTinyLfu => "w-tinylfu",
        }
    }

    /// Whether the policy keeps its newcomers in memory.
    pub fn has_stage(self) -> bool {
        matches!(self, Self::S3Fifo | Self::Clock2QPlus)
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// A policy name that does not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsePolicyKindError {
    name: String,
}

impl fmt::Display for ParsePolicyKindError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = PolicyKind::ALL.map(PolicyKind::name).join(", ");
        write!(formatter, "policy must be one of {names} (got {:?})", self.name)
    }
}

impl std::error::Error for ParsePolicyKindError {}

impl FromStr for PolicyKind {
    type Err = ParsePolicyKindError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let wanted = name.to_ascii_lowercase();
        let found = Self::ALL.into_iter().find(|kind| kind.name() == wanted);
        found.ok_or_else(|| ParsePolicyKindError {
            name: name.to_owned(),
        })
    }
}

/// The parameters of the policies that have any.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PolicyOptions {
    /// The share of the lines that [`PolicyKind::has_stage`] policies keep in memory: their small queue, at least one line
    /// unless there is only one. The default is that of the papers.
    pub stage_ratio: f64,
}

impl Default for PolicyOptions {
    fn default() -> Self {
        Self { stage_ratio: 0.1 }
    }
}

impl PolicyOptions {
    /// Lines in memory of a cache of `capacity` with a stage.
    fn memory_lines(self, capacity: usize) -> usize {
        let ratio = self.stage_ratio;
        assert!(
            (0.0..1.0).contains(&ratio),
            "stage_ratio must be at least 0 and below 1 (got {ratio})"
        );
        ((capacity as f64 * ratio).round() as usize)
            .max(1)
            .min(capacity - 1)
    }
}

/// Code that is compiled once for each policy. A loop over a trace in `visit` has no dynamic calls.
pub trait PolicyVisitor {
    /// What the visit returns.
    type Output;
    /// Called once with the policy, new and empty.
    fn visit<P: Policy + Send + 'static>(self, policy: P) -> Self::Output;
}

/// Makes a policy and passes it to `visitor`.
///
/// With `universe` keys are small numbers, mostly below it, and a [`DenseIndex`] is used; otherwise any key goes into a
/// [`HashIndex`].
///
/// # Panics
/// If `capacity` is 0 or above 2^30 lines, or an option is outside its range.
pub fn visit_policy<V: PolicyVisitor>(
    kind: PolicyKind,
    capacity: usize,
    universe: Option<usize>,
    options: PolicyOptions,
    visitor: V,
) -> V::Output {
    match universe {
        Some(keys) => visit_with_index::<DenseIndex, V>(kind, capacity, Universe(keys), options, visitor),
        None => visit_with_index::<HashIndex, V>(kind, capacity, HashSeed::default(), options, visitor),
    }
}

fn visit_with_index<I, V>(
    kind: PolicyKind,
    capacity: usize,
    config: I::Config,
    options: PolicyOptions,
    visitor: V,
) -> V::Output
where
    I: KeyIndex + Send + 'static,
    V: PolicyVisitor,
{
    // Checked before it is counted in.
    check_capacity(capacity);
    let memory = options.memory_lines(capacity);
    match kind {
        PolicyKind::Lru => visitor.visit(Lru::<I>::new(capacity, config)),
        PolicyKind::Fifo => visitor.visit(Fifo::<I>::new(capacity, config)),
        PolicyKind::Clock => visitor.visit(Clock::<I>::new(capacity, config)),
        PolicyKind::Sieve => visitor.visit(Sieve::<I>::new(capacity, config)),
        PolicyKind::TwoQ => visitor.visit(TwoQ::<I>::new(capacity, config)),
        PolicyKind::Arc => visitor.visit(Arc::<I>::new(capacity, config)),
        PolicyKind::Lirs => visitor.visit(Lirs::<I>::new(capacity, config)),
        PolicyKind::S3Fifo => {
            let options = StagedOptions::s3_fifo(capacity, memory);
            visitor.visit(StagedFifo::<I::Places>::new(capacity, config, options))
        }
        PolicyKind::Clock2QPlus => {
            let options = StagedOptions::clock2q_plus(capacity, memory);
            visitor.visit(StagedFifo::<I::Places>::new(capacity, config, options))
        }
        PolicyKind::WTinyLfu => visitor.visit(WTinyLfu::<I>::new(capacity, config)),
    }
}

/// Makes a policy behind a `Box`. See [`visit_policy`] for `universe` and panics.
pub fn build(
    kind: PolicyKind,
    capacity: usize,
    universe: Option<usize>,
    options: PolicyOptions,
) -> Box<dyn Policy + Send> {
    struct Boxed;
    impl PolicyVisitor for Boxed {
        type Output = Box<dyn Policy + Send>;
        fn visit<P: Policy + Send + 'static>(self, policy: P) -> Self::Output {
            Box::new(policy)
        }
    }
    visit_policy(kind, capacity, universe, options, Boxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_a_wrong_one_lists_the_right_ones() {
        for kind in PolicyKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        let error = "lur".parse::<PolicyKind>().expect_err("there is no such policy");
        let text = error.to_string();
        assert!(text.starts_with("policy must be one of lru, fifo,") && text.ends_with("(got \"lur\")"));
    }
}
