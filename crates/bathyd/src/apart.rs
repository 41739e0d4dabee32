//! What may wait for the disk of a source is done by a thread of its own: it must keep nobody else's source waiting.

use std::io;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::panics::caught;

/// Does something in a thread.
///
/// # Errors
/// If there is no thread for it: it is not done then.
pub(crate) fn apart(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    // A panic ends this work alone, and the log has it.
    let work = move || {
        let _panicked = caught(work);
    };
    thread::Builder::new().name(name.to_owned()).spawn(work).map(drop)
}

/// Does something with each of several, at the same time, and waits for it until some time is over: those with which it was done
/// by then. With the others it may be done later.
pub(crate) fn each_apart<T: Clone + Send + 'static>(
    name: &str,
    all: Vec<T>,
    limit: Duration,
    work: impl Fn(T) + Clone + Send + 'static,
) -> Vec<T> {
    let until = Instant::now() + limit;
    let (done, is_done) = mpsc::channel();
    for one in all {
        let (work, done) = (work.clone(), done.clone());
        let _never_done = apart(name, move || {
            work(one.clone());
            let _too_late = done.send(one);
        });
    }
    drop(done);
    let mut in_time = Vec::new();
    while let Ok(one) = is_done.recv_timeout(until.saturating_duration_since(Instant::now())) {
        in_time.push(one);
    }
    in_time
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn who_does_not_end_or_panics_keeps_nobody_waiting_for_longer_than_the_limit() {
        let (release, released) = mpsc::channel::<()>();
        let (released, (ended, has_ended)) = (Arc::new(Mutex::new(released)), mpsc::channel());
        let work = move |number: u32| match number {
            1 => {
                let _ended = released.lock().expect("nobody else waits").recv();
                ended.send(number).expect("the test listens");
            }
            2 => panic!("on purpose"),
            _ => {}
        };
        let mut in_time = each_apart("test", vec![0, 1, 2, 3], Duration::from_millis(300), work);
        in_time.sort_unstable();
        assert_eq!(in_time, [0, 3]);
        release.send(()).expect("it waits");
        assert_eq!(has_ended.recv_timeout(PATIENCE), Ok(1));
        let never_waits = each_apart("test", vec![4], PATIENCE, |_| panic!("on purpose"));
        assert_eq!(never_waits, [0; 0]);
    }
}
