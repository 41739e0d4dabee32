//! The locks and atomic numbers of the engine. The unit tests build it with those of `shuttle`, which runs threads one at a
//! time and chooses at each of these who goes on: see [`schedules`](crate::schedules).

#[cfg(test)]
pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard, RwLock, atomic};
#[cfg(not(test))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, RwLock, atomic};
