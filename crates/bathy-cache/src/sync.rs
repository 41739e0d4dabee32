//! The locks and atomic numbers of the engine. The unit tests build it with those of `shuttle`, which runs threads one at a
//! time and chooses at each of these who goes on: see [`schedules`](crate::engine::schedules).

#[cfg(test)]
pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard, RwLock, atomic};
#[cfg(not(test))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, RwLock, atomic};

use std::sync::{PoisonError, TryLockError, TryLockResult};
use std::thread;

/// Whether a thread panicked while it had the lock: what it changed may be half changed.
pub(crate) fn is_poisoned<T: ?Sized>(mutex: &Mutex<T>) -> bool {
    mutex.lock().is_err()
}

/// What a panic of another thread left behind is still consistent enough to be read; lines are verified when served.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The same of a lock that is not waited for: `None` if somebody has it.
pub(crate) fn if_free<G>(tried: TryLockResult<G>) -> Option<G> {
    match tried {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Calls this if its thread panics before it is dropped, to end what was begun. It is made before locks that this takes, so that
/// they are let go before.
pub(crate) struct OnPanic<F: FnMut()>(pub(crate) F);

impl<F: FnMut()> Drop for OnPanic<F> {
    #[inline]
    fn drop(&mut self) {
        if thread::panicking() {
            (self.0)();
        }
    }
}
