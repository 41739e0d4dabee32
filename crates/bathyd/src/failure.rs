//! What goes wrong, for who runs the program.

/// An error that ends the program, and what to do about it.
#[derive(Clone, Debug)]
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
