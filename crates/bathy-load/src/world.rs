//! What a load stands on: a clock and a target together, so that simulated time is a world of its own.

use std::ops::Range;
use std::sync::Arc;

use crate::requests::Request;

/// The memory of a request. It goes with it to the target and comes back with its completion.
#[derive(Clone, Debug)]
pub enum Memory {
    /// A flush needs none.
    None,
    /// What this request alone has.
    Own(Vec<u8>),
    /// A part of what many requests write.
    Shared(Arc<[u8]>, Range<usize>),
}

impl Memory {
    /// What a write writes.
    pub fn data(&self) -> &[u8] {
        match self {
            Self::None => &[],
            Self::Own(memory) => memory,
            Self::Shared(memory, part) => &memory[part.clone()],
        }
    }

    /// What a read fills.
    pub fn memory(&mut self) -> &mut [u8] {
        match self {
            Self::Own(memory) => memory,
            Self::None | Self::Shared(..) => &mut [],
        }
    }
}

/// A request that has completed.
#[derive(Debug)]
pub struct Done {
    /// The number that it was submitted with.
    pub slot: u32,
    /// When it completed, by the world's clock.
    pub at_ns: u64,
    /// How: an error is a number of `errno.h`.
    pub result: Result<(), i32>,
    /// Its memory.
    pub memory: Memory,
}

/// A clock and a target.
pub trait World {
    /// The load begins: the clock is at 0.
    fn begin(&mut self);

    /// Nanoseconds since the load began.
    fn now_ns(&self) -> u64;

    /// Give a request to the target. This does not wait for it.
    fn submit(&mut self, slot: u32, request: &Request, memory: Memory);

    /// Add to `done` what has completed.
    fn take(&mut self, done: &mut Vec<Done>);

    /// What holds this part of an image, by a name that finds it.
    fn object(&self, _image: u32, _offset: u64) -> Option<String> {
        None
    }

    /// Return at `until_ns`, or soon after. With `for_completion`, return as soon as anything can be taken.
    fn wait(&mut self, until_ns: u64, for_completion: bool);
}
