//! The state of a policy as records, so that a cache that starts again decides as if it had never stopped.
//!
//! Records are passed one by one, because a large cache has no room for a second copy of them. What is stored is checked
//! by whoever stores it; an import refuses only what cannot be a state.

use std::fmt;

use crate::policy::Policy;

/// A part of the state of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateRecord {
    /// A resident line. Where order matters, that which leaves first comes first.
    Line {
        /// Its slot.
        slot: u32,
        /// Its key.
        key: u64,
        /// References that count for it.
        references: u8,
    },
    /// A slot that was used before and is free: the one that is used next comes first.
    Free {
        /// The slot.
        slot: u32,
    },
    /// A key that is remembered.
    Ghost {
        /// Its number among the ghosts.
        number: u32,
        /// What it is known by.
        known_by: u64,
    },
    /// Where the next search in each queue begins.
    Hands {
        /// Among the lines on the SSD.
        main: u32,
        /// Among the lines in memory.
        small: u32,
        /// Among the ghosts.
        ghosts: u32,
    },
}

/// Records that are no state of this policy at this size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportError {
    /// A slot, ghost or hand does not exist at this size.
    OutOfRange(StateRecord),
    /// A slot, key or ghost is there twice.
    Duplicate(StateRecord),
}

impl fmt::Display for ImportError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange(record) => {
                write!(formatter, "out of range for a cache of this size: {record:?}")
            }
            Self::Duplicate(record) => write!(formatter, "the slot or key is there twice: {record:?}"),
        }
    }
}

impl std::error::Error for ImportError {}

/// A policy whose state can be stored.
pub trait Durable: Policy {
    /// Passes the state, except for pins, to `emit`. O(capacity).
    fn export(&self, emit: &mut dyn FnMut(StateRecord));

    /// Takes a state over into a new policy of the same size and options. Lines alone are a state too, that of a cache
    /// which was interrupted: they keep their slots, and nothing else is known.
    ///
    /// # Errors
    /// If the records are not a state of this policy at this size. The policy is of no use then.
    ///
    /// # Panics
    /// If the policy is not empty.
    fn import(&mut self, records: &mut dyn Iterator<Item = StateRecord>) -> Result<(), ImportError>;
}
