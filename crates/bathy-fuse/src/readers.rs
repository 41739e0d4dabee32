//! Few threads of a session ask the kernel for requests at a time, and the others wait until one of these has to wait for a
//! device: the leader/followers pattern (Schmidt et al., "Pattern-Oriented Software Architecture", vol. 2).
//!
//! The kernel wakes a sleeping thread for each request, the one that slept longest, although the thread that has just
//! answered would ask for it at once. With many threads that doubles the processor time of a request that is answered from
//! memory; with few, a slow disk gets few requests to put in order. So a thread says when it may have to wait, and another
//! takes its place.

use std::cell::Cell;
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// After this time a thread asks for requests again, called or not: so the end of the mount is seen by all, and waits
/// that nobody announced, of as many threads as ask, keep the next request no longer. It then sleeps until there is a request.
const REST: Duration = Duration::from_millis(100);

/// Who of a session's threads asks for requests.
#[derive(Debug)]
pub struct Readers {
    /// So many ask for requests or answer one without waiting, if there are as many: with fewer than the least another is
    /// called, with more than the most one rests. Between them a wait now and then calls nobody.
    least: usize,
    most: usize,
    /// Threads that do. Changed under the lock.
    ready: AtomicUsize,
    threads: usize,
    /// Of them those that go on after their replies.
    going_on: AtomicUsize,
    resting: Mutex<Resting>,
    called: Condvar,
    rest: Duration,
}

#[derive(Debug, Default)]
struct Resting {
    threads: usize,
    /// Of them those that are called, and count as ready.
    called: usize,
}

impl Readers {
    /// Of so many threads `most` ask for requests, and half as many at least.
    pub fn new(threads: usize, most: usize) -> Self {
        let most = most.max(1);
        Self {
            least: most.div_ceil(2),
            most,
            // A session has one at least.
            ready: AtomicUsize::new(threads.max(1)),
            threads,
            going_on: AtomicUsize::new(0),
            resting: Mutex::default(),
            called: Condvar::new(),
            rest: REST,
        }
    }

    /// All threads do. For sessions whose threads cannot take each other's place.
    pub fn everyone() -> Self {
        Self::new(usize::MAX >> 1, usize::MAX >> 1)
    }

    /// This thread answers a request: to be held until the reply was sent.
    pub fn turn(&self) -> Turn<'_> {
        Turn {
            readers: self,
            is_waiting: Cell::new(false),
            goes_on: Cell::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Resting> {
        self.resting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread is no longer ready.
    fn leave(&self) {
        let mut resting = self.lock();
        let ready = self.ready.fetch_sub(1, Ordering::Relaxed) - 1;
        if ready < self.least && resting.called < resting.threads {
            resting.called += 1;
            self.ready.fetch_add(1, Ordering::Relaxed);
            drop(resting);
            self.called.notify_one();
        }
    }

    /// Waits to be called, if there are enough without this thread.
    fn rest(&self) {
        let mut resting = self.lock();
        if self.ready.load(Ordering::Relaxed) <= self.most {
            return;
        }
        self.ready.fetch_sub(1, Ordering::Relaxed);
        resting.threads += 1;
        let waited = self
            .called
            .wait_timeout_while(resting, self.rest, |it| it.called == 0);
        let (mut resting, _) = waited.unwrap_or_else(PoisonError::into_inner);
        resting.threads -= 1;
        if resting.called > 0 {
            resting.called -= 1;
        } else {
            self.ready.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A request that a thread answers.
#[derive(Debug)]
pub struct Turn<'a> {
    readers: &'a Readers,
    is_waiting: Cell<bool>,
    goes_on: Cell<bool>,
}

impl Turn<'_> {
    /// From now on the request may wait for a device.
    pub fn may_wait(&self) {
        if !self.is_waiting.replace(true) {
            self.readers.leave();
        }
    }

    /// Whether the reply may be sent now, though the request is not done: its thread goes on with it, and who asked need not wait
    /// for that. Fewer than half of the threads do, so that one who asks again after each answer never has them all.
    pub fn may_go_on(&self) -> bool {
        let Readers {
            threads, going_on, ..
        } = self.readers;
        let one_more = |count: usize| Some(count + 1).filter(|count| 2 * count < *threads);
        let goes_on = self.goes_on.get()
            || going_on
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
                .is_ok();
        self.goes_on.set(goes_on);
        goes_on
    }

    /// Ends it, and the thread asks for requests whoever else does: for one of many that came to it at once.
    pub fn end_without_rest(self) {
        self.go_on_no_more();
        self.come_back();
        mem::forget(self);
    }

    fn go_on_no_more(&self) {
        if self.goes_on.get() {
            self.readers.going_on.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn come_back(&self) {
        if self.is_waiting.get() {
            let _unchanged = self.readers.lock();
            self.readers.ready.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let readers = self.readers;
        self.go_on_no_more();
        if thread::panicking() {
            // It asks for nothing more.
            self.may_wait();
            return;
        }
        self.come_back();
        if readers.ready.load(Ordering::Relaxed) > readers.most {
            readers.rest();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::sync::{Arc, mpsc};

    use super::*;

    const FOREVER: Duration = Duration::from_secs(600);
    /// For a thread to run on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// What a request does: may it wait, and until when.
    type Request = Option<Receiver<()>>;

    /// A session of threads that take requests from a queue, and say which thread takes one.
    fn session(threads: usize, most: usize) -> (Arc<Readers>, Sender<Request>, Receiver<usize>) {
        let readers = Arc::new(Readers {
            rest: FOREVER,
            ..Readers::new(threads, most)
        });
        let (send, requests) = channel::<Request>();
        let requests = Arc::new(Mutex::new(requests));
        let (say, said) = mpsc::channel();
        for number in 0..threads {
            let (readers, requests, say) = (Arc::clone(&readers), Arc::clone(&requests), say.clone());
            thread::spawn(move || {
                loop {
                    let Ok(request) = requests.lock().expect("no panic").recv() else {
                        return;
                    };
                    let turn = readers.turn();
                    say.send(number).expect("the test listens");
                    if let Some(until) = request {
                        turn.may_wait();
                        let _over = until.recv();
                    }
                }
            });
        }
        (readers, send, said)
    }

    #[test]
    fn quick_requests_are_answered_by_few_threads() {
        let (readers, send, said) = session(8, 2);
        let quick = || {
            send.send(None).expect("threads run");
            said.recv_timeout(PATIENCE).expect("answered")
        };
        while readers.ready.load(Ordering::Relaxed) > 2 {
            quick();
        }
        let by: HashSet<usize> = (0..200).map(|_| quick()).collect();
        assert!(by.len() <= 2, "{by:?}");
    }

    #[test]
    fn requests_that_wait_are_under_way_on_all_threads_and_keep_no_quick_one() {
        let (readers, send, said) = session(8, 2);
        for _ in 0..50 {
            send.send(None).expect("threads run");
            said.recv().expect("answered");
        }
        let (release, holds): (Vec<_>, Vec<_>) = (0..7).map(|_| channel::<()>()).unzip();
        for hold in holds {
            send.send(Some(hold)).expect("threads run");
            said.recv_timeout(PATIENCE).expect("a thread is called at once");
        }
        for _ in 0..20 {
            send.send(None).expect("threads run");
            said.recv_timeout(PATIENCE).expect("the last thread answers");
        }
        drop(release);
        for _ in 0..20 {
            send.send(None).expect("threads run");
            said.recv_timeout(PATIENCE).expect("answered");
        }
        while readers.ready.load(Ordering::Relaxed) > 2 {
            send.send(None).expect("threads run");
            said.recv().expect("answered");
        }
    }

    #[test]
    fn fewer_than_half_of_the_threads_go_on_after_their_replies() {
        for (threads, most) in [(1, 0), (2, 0), (3, 1), (4, 1), (32, 15)] {
            let readers = Readers::new(threads, threads);
            for _ in 0..2 {
                let turns: Vec<_> = (0..threads).map(|_| readers.turn()).collect();
                let going_on = || turns.iter().filter(|turn| turn.may_go_on()).count();
                assert_eq!((going_on(), going_on()), (most, most), "of {threads}");
                let mut turns = turns;
                turns.swap_remove(0).end_without_rest();
            }
        }
    }

    #[test]
    fn a_thread_that_panicked_is_not_counted_on() {
        let readers = Readers::new(3, 2);
        let panicked = thread::scope(|scope| {
            let turn = || {
                let _turn = readers.turn();
                panic!("on purpose");
            };
            scope.spawn(turn).join().is_err()
        });
        assert!(panicked);
        assert_eq!(readers.ready.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn of_many_requests_that_come_at_once_none_is_rested_after() {
        let readers = Readers {
            rest: FOREVER,
            ..Readers::new(8, 2)
        };
        for _ in 0..1000 {
            let turn = readers.turn();
            turn.may_wait();
            turn.end_without_rest();
        }
        assert_eq!(readers.ready.load(Ordering::Relaxed), 8);
    }

    #[test]
    fn a_thread_that_is_not_called_comes_back_by_itself() {
        let readers = Readers::new(2, 1);
        let begun = std::time::Instant::now();
        drop(readers.turn());
        assert!(begun.elapsed() >= REST);
        assert_eq!(readers.ready.load(Ordering::Relaxed), 2);
        assert_eq!(readers.lock().threads, 0);
    }
}
