//! Operations that end by a deadline, whatever the store does.
//!
//! An operation that is in the kernel cannot be called back. So it works on a buffer of its own, which lives for as long as it
//! does, and its caller goes on without it. A store that can wait for a read with a limit does so
//! ([`BlockStore::read_within`]); all else is done by threads, of which there are as many as there were callers at once.

use std::io;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use crate::aligned::Aligned;
use crate::engine::lock;
use crate::store::BlockStore;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};

type Job = Box<dyn FnOnce() + Send>;

/// A store whose operations end by a deadline. After the first one that did not, all others fail at once: what the store
/// still does late meets nothing newer.
pub(crate) struct Guard {
    store: Arc<dyn BlockStore>,
    /// `None`: callers wait as long as it takes.
    deadline: Option<Duration>,
    /// Nothing is sent to it any more.
    is_closed: AtomicBool,
    /// Threads that wait for work. Who takes one gives it back when its work is done.
    idle: Mutex<Vec<mpsc::Sender<Job>>>,
}

fn hung() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the SSD does not answer")
}

impl Guard {
    pub(crate) fn new(store: Arc<dyn BlockStore>, deadline: Option<Duration>) -> Self {
        Self {
            store,
            deadline,
            is_closed: AtomicBool::new(false),
            idle: Mutex::default(),
        }
    }

    /// Whether an operation did not end by the deadline, or [`Guard::close`] was called.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// All operations fail from now on.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    pub(crate) fn read(&self, len: usize, offset: u64) -> io::Result<Aligned> {
        let within = self.deadline.filter(|_| !self.is_closed());
        let read = within.and_then(|deadline| self.store.read_within(len, offset, deadline));
        if let Some(read) = read {
            return self.noted(read);
        }
        self.run(move |store| {
            let mut bytes = Aligned::new(len);
            store.read(&mut bytes, offset).map(|()| bytes)
        })
    }

    pub(crate) fn write(&self, data: &[u8], offset: u64) -> io::Result<()> {
        if self.deadline.is_none() && !self.is_closed() {
            return self.store.write(data, offset);
        }
        let mut own = Aligned::new(data.len());
        own.copy_from_slice(data);
        self.run(move |store| store.write(&own, offset))
    }

    pub(crate) fn flush(&self) -> io::Result<()> {
        self.run(|store| store.flush())
    }

    pub(crate) fn size_bytes(&self) -> io::Result<u64> {
        self.run(|store| store.size_bytes())
    }

    fn noted<T>(&self, result: io::Result<T>) -> io::Result<T> {
        if matches!(&result, Err(error) if error.kind() == io::ErrorKind::TimedOut) {
            self.close();
        }
        result
    }

    fn run<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&dyn BlockStore) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        if self.is_closed() {
            return Err(hung());
        }
        let Some(deadline) = self.deadline else {
            return operation(&*self.store);
        };
        let (reply, answer) = mpsc::sync_channel(1);
        let store = Arc::clone(&self.store);
        let worker = lock(&self.idle).pop();
        let worker = worker.map_or_else(new_worker, Ok)?;
        let job: Job = Box::new(move || {
            let result = operation(&*store);
            // Who has the answer may be the last to use the store: it is closed, and its lock free, once he has left it.
            drop(store);
            // Nobody may be waiting any more.
            let _ = reply.send(result);
        });
        worker.send(job).map_err(|_| hung())?;
        let result = answer.recv_timeout(deadline).unwrap_or_else(|_| Err(hung()));
        let result = self.noted(result);
        if !self.is_closed() {
            lock(&self.idle).push(worker);
        }
        result
    }
}

/// A thread that works for as long as somebody has this end of the channel, and until its last work is done.
fn new_worker() -> io::Result<mpsc::Sender<Job>> {
    let (worker, jobs) = mpsc::channel::<Job>();
    let work = move || jobs.into_iter().for_each(|job| job());
    thread::Builder::new().name("ssd".to_owned()).spawn(work)?;
    Ok(worker)
}
