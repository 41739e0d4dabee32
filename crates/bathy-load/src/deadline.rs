//! Calls of a library that may never return.

use std::sync::mpsc;
use std::time::Duration;

/// What `call` returns, or None when it takes longer than `limit`: its thread is left behind then, and the process can
/// only end without the exit handlers of the library.
pub(crate) fn within<T: Send + 'static>(
    limit: Duration,
    call: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (sender, receiver) = mpsc::channel();
    let _detached = std::thread::spawn(move || sender.send(call()));
    receiver.recv_timeout(limit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_returns_is_returned_and_what_hangs_is_left() {
        assert_eq!(within(Duration::from_secs(60), || 7), Some(7));
        let (_open, never) = mpsc::channel::<()>();
        assert!(within(Duration::from_millis(1), move || never.recv().is_ok()).is_none());
    }
}
