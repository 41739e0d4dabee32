//! Threads for reads and writes that may have to wait for a device, so that the requests of a processor do not wait for them.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use super::buffers::Buffers;
use super::data_path::DataPath;
use super::transfer::{self, Work};

/// A request of a queue, which has its entry until the job is done.
pub(super) struct Job {
    pub(super) work: Work,
    pub(super) buffers: Arc<Buffers>,
    pub(super) index: usize,
    pub(super) back: Arc<Returns>,
}

/// A request that was carried out; its reply is in the entry.
pub(super) struct Done {
    pub(super) index: usize,
    pub(super) work: Work,
    pub(super) took: Duration,
}

/// Where the requests of a queue come back to.
pub(super) struct Returns {
    done: Mutex<Vec<Done>>,
    /// Can be read when something has come back.
    event: File,
}

impl Returns {
    pub(super) fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC)?;
        Ok(Self {
            done: Mutex::default(),
            event: event.into(),
        })
    }

    pub(super) fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// What has come back. Before that the event is to be read.
    pub(super) fn take(&self) -> Vec<Done> {
        std::mem::take(&mut *self.lock())
    }

    fn put(&self, done: Done) {
        let mut all = self.lock();
        let is_first = all.is_empty();
        all.push(done);
        drop(all);
        if is_first {
            // Adding one to a counter fails when it is full, which it never is.
            let _added = (&self.event).write_all(&1_u64.to_ne_bytes());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Done>> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    is_over: bool,
}

/// Where the threads find jobs.
#[derive(Default)]
pub(super) struct Jobs {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

impl Jobs {
    pub(super) fn add(&self, job: Job) {
        self.lock().jobs.push_back(job);
        self.changed.notify_one();
    }

    fn next(&self) -> Option<Job> {
        let mut waiting = self.lock();
        loop {
            if let Some(job) = waiting.jobs.pop_front() {
                return Some(job);
            }
            if waiting.is_over {
                return None;
            }
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The threads. They end, when this is dropped, with the last job.
pub(super) struct Pool {
    jobs: Arc<Jobs>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Pool {
    pub(super) fn new(threads: usize, service: &Arc<dyn DataPath>) -> io::Result<Self> {
        let mut pool = Self {
            jobs: Arc::default(),
            threads: Vec::new(),
        };
        for number in 0..threads {
            let (jobs, service) = (Arc::clone(&pool.jobs), Arc::clone(service));
            let work = move || {
                while let Some(job) = jobs.next() {
                    // SAFETY: the queue has left the entry to the job, and the kernel waits for the reply.
                    let mut entry = unsafe { job.buffers.entry(job.index) };
                    let took = transfer::carry_out(&*service, job.work, &mut entry);
                    job.back.put(Done {
                        index: job.index,
                        work: job.work,
                        took,
                    });
                }
            };
            let thread = thread::Builder::new().name(format!("fuse-wait-{number}"));
            pool.threads.push(thread.spawn(work)?);
        }
        Ok(pool)
    }

    pub(super) fn jobs(&self) -> Arc<Jobs> {
        Arc::clone(&self.jobs)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.jobs.lock().is_over = true;
        self.jobs.changed.notify_all();
        for thread in self.threads.drain(..) {
            // What panics in a job is caught there.
            let _ended = thread.join();
        }
    }
}
