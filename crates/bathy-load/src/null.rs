//! The target that is none: each request completes at once. What a load on it takes is what this program takes.

use std::time::{Duration, Instant};

use crate::requests::Request;
use crate::world::{Done, Memory, World};

/// Real time and no target.
pub struct Null {
    start: Instant,
    done: Vec<Done>,
}

impl Null {
    /// Time begins now.
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
            done: Vec::new(),
        }
    }
}

impl Default for Null {
    fn default() -> Self {
        Self::new()
    }
}

impl World for Null {
    fn begin(&mut self) {
        self.start = Instant::now();
    }

    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn submit(&mut self, slot: u32, _request: &Request, memory: Memory) {
        let at_ns = self.now_ns();
        self.done.push(Done {
            slot,
            at_ns,
            result: Ok(()),
            memory,
        });
    }

    fn take(&mut self, done: &mut Vec<Done>) {
        done.append(&mut self.done);
    }

    fn wait(&mut self, until_ns: u64, for_completion: bool) {
        if !for_completion || self.done.is_empty() {
            std::thread::sleep(Duration::from_nanos(until_ns.saturating_sub(self.now_ns())));
        }
    }
}
