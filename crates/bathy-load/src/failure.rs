//! What ends the program, for who runs it.

use std::fmt;

/// An error, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub hint: String,
}

impl Failure {
    /// A failure.
    pub fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hint: hint.into(),
        }
    }
}

impl From<bathy_ceph::Error> for Failure {
    fn from(error: bathy_ceph::Error) -> Self {
        Self::new(error.to_string(), error.hint())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}\nhint: {}", self.message, self.hint)
    }
}
