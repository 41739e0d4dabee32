//! Work in several threads on a stream of batches that each stage must see in order.
//!
//! Curves are made by stages with a state: one for each line size, cache size or half of an algorithm. Each must take
//! the batches in order, but stages do not wait for each other: a free thread takes the stage that lags most and has
//! a batch before it. A stage may make new batches for others, its children, so that what they share is done once.
//! Only a few batches are held for the slowest stage, so memory is bounded.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Looks at the schedule before a thread sleeps: some tens of microseconds, about what waking it up would take. None when
/// there are more threads than processors, which would wait for the one that only looks.
fn spins(threads: usize) -> u32 {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    if threads <= processors { 20_000 } else { 0 }
}

/// The number of a stage, by which others take what it makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stage(usize);

type Work<'a, T> = Box<dyn FnMut(&T) -> Option<T> + Send + 'a>;

/// Stages, and who takes whose batches.
pub struct Pipeline<'a, T> {
    stages: Vec<Work<'a, T>>,
    /// Whose batches each stage takes, those of the source without one.
    parents: Vec<Option<Stage>>,
    /// Batches that a stage may be ahead of the slowest of its children.
    window: usize,
}

impl<'a, T: Send + Sync> Pipeline<'a, T> {
    /// A pipeline without stages, in which `window` batches of each stage, and of the source, are held for the slowest
    /// that takes them: more even out the times that batches take, and cost memory.
    pub fn new(window: usize) -> Self {
        Self {
            stages: Vec::new(),
            parents: Vec::new(),
            window: window.max(1),
        }
    }

    /// Adds a stage that takes each batch of `parent`, or of the source, and may make one for its own children. What
    /// it makes without having children is dropped.
    pub fn add(&mut self, parent: Option<Stage>, work: impl FnMut(&T) -> Option<T> + Send + 'a) -> Stage {
        self.stages.push(Box::new(work));
        self.parents.push(parent);
        Stage(self.stages.len() - 1)
    }

    /// Gives every batch of `source` to the stages and returns when all are done with all.
    ///
    /// # Panics
    /// When a stage does.
    pub fn run(self, source: impl Iterator<Item = T> + Send, threads: usize) {
        if threads <= 1 {
            self.run_alone(source);
            return;
        }
        let Self {
            stages,
            parents,
            window,
        } = self;
        let stages: Vec<Mutex<Work<'a, T>>> = stages.into_iter().map(Mutex::new).collect();
        let schedule = Shared {
            schedule: Mutex::new(Schedule::new(&parents, window)),
            changes: AtomicU64::new(0),
            changed: Condvar::new(),
            spins: spins(threads),
        };
        let source = Mutex::new(source);
        std::thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(|| schedule.serve(&source, &stages));
            }
            schedule.serve(&source, &stages);
        });
    }

    fn run_alone(mut self, source: impl Iterator<Item = T>) {
        for batch in source {
            // Children are added after their parents, so one round in order sees every batch made before its takers.
            let mut made: Vec<Option<T>> = Vec::with_capacity(self.stages.len() + 1);
            made.push(Some(batch));
            for (work, &parent) in self.stages.iter_mut().zip(&self.parents) {
                let output = made[stream_of(parent)].as_ref().and_then(work);
                made.push(output);
            }
        }
    }
}

/// The stream of the source is 0, that of a stage its number plus 1.
fn stream_of(parent: Option<Stage>) -> usize {
    parent.map_or(0, |Stage(stage)| stage + 1)
}

/// Batches that were made and not yet taken by all who must.
struct Stream<T> {
    batches: VecDeque<Arc<T>>,
    /// Batches that went before.
    gone: u64,
    takers: Vec<usize>,
    window: usize,
}

impl<T> Stream<T> {
    fn get(&self, position: u64) -> Option<&Arc<T>> {
        self.batches.get((position - self.gone) as usize)
    }

    fn is_full(&self) -> bool {
        self.batches.len() >= self.window
    }
}

#[derive(Clone, Copy)]
struct Progress {
    parent: usize,
    /// Batches taken from the parent's stream.
    taken: u64,
    running: bool,
}

/// What a thread is to do next.
enum Task<T> {
    /// Ask the source for a batch.
    Pull,
    /// Give a batch to a stage.
    Work(usize, Arc<T>),
}

struct Schedule<T> {
    streams: Vec<Stream<T>>,
    progress: Vec<Progress>,
    /// Stages that can run, those that lag most first.
    ready: BTreeSet<(u64, usize)>,
    pulling: bool,
    source_ended: bool,
    running: usize,
    failed: bool,
}

impl<T> Schedule<T> {
    fn new(parents: &[Option<Stage>], window: usize) -> Self {
        let stream = || Stream {
            batches: VecDeque::new(),
            gone: 0,
            takers: Vec::new(),
            window,
        };
        let mut streams: Vec<Stream<T>> = (0..=parents.len()).map(|_| stream()).collect();
        let mut progress = Vec::new();
        for (stage, &parent) in parents.iter().enumerate() {
            let parent = stream_of(parent);
            streams[parent].takers.push(stage);
            progress.push(Progress {
                parent,
                taken: 0,
                running: false,
            });
        }
        Self {
            streams,
            progress,
            ready: BTreeSet::new(),
            pulling: false,
            source_ended: false,
            running: 0,
            failed: false,
        }
    }

    /// The stage that ran in this thread before goes on while it can, since the cache holds what it works on; else the
    /// one that lags most, and a new batch when there is none.
    fn next(&mut self, before: Option<usize>) -> Option<Task<T>> {
        let again = before.map(|stage| (self.progress[stage].taken, stage));
        let again = again.filter(|entry| self.ready.remove(entry));
        if let Some((taken, stage)) = again.or_else(|| self.ready.pop_first()) {
            let progress = &mut self.progress[stage];
            let batch = self.streams[progress.parent].get(taken)?;
            progress.running = true;
            self.running += 1;
            return Some(Task::Work(stage, Arc::clone(batch)));
        }
        if self.pulling || self.source_ended || self.streams[0].is_full() {
            return None;
        }
        self.pulling = true;
        Some(Task::Pull)
    }

    /// Nothing runs, nothing can, and nothing will: of the stages that have a batch before them, one without children
    /// or with room in their streams can always run.
    fn is_done(&self) -> bool {
        self.failed || (self.source_ended && !self.pulling && self.running == 0 && self.ready.is_empty())
    }

    fn pulled(&mut self, batch: Option<T>) {
        self.pulling = false;
        match batch {
            Some(batch) => self.append(0, batch),
            None => self.source_ended = true,
        }
    }

    fn worked(&mut self, stage: usize, made: Option<T>) {
        self.running -= 1;
        let progress = &mut self.progress[stage];
        progress.running = false;
        progress.taken += 1;
        let parent = progress.parent;
        if let Some(batch) = made {
            self.append(stage + 1, batch);
        }
        self.drop_taken(parent);
        self.refresh(stage);
    }

    fn append(&mut self, stream: usize, batch: T) {
        if self.streams[stream].takers.is_empty() {
            return;
        }
        self.streams[stream].batches.push_back(Arc::new(batch));
        for index in 0..self.streams[stream].takers.len() {
            let stage = self.streams[stream].takers[index];
            self.refresh(stage);
        }
    }

    /// Drops the batches that all have taken, which may make room for the stage that makes them.
    fn drop_taken(&mut self, stream: usize) {
        let takers = &self.streams[stream].takers;
        let slowest = takers.iter().map(|&stage| self.progress[stage].taken).min();
        let slowest = slowest.unwrap_or(u64::MAX);
        let was_full = self.streams[stream].is_full();
        let batches = &mut self.streams[stream];
        while batches.gone < slowest && batches.batches.pop_front().is_some() {
            batches.gone += 1;
        }
        if was_full && stream > 0 && !self.streams[stream].is_full() {
            self.refresh(stream - 1);
        }
    }

    fn refresh(&mut self, stage: usize) {
        let progress = self.progress[stage];
        let has_batch = self.streams[progress.parent].get(progress.taken).is_some();
        if has_batch && !progress.running && !self.streams[stage + 1].is_full() {
            self.ready.insert((progress.taken, stage));
        }
    }
}

struct Shared<T> {
    schedule: Mutex<Schedule<T>>,
    /// Counts the changes of the schedule, for threads that wait without sleeping.
    changes: AtomicU64,
    changed: Condvar,
    spins: u32,
}

impl<T: Send + Sync> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, Schedule<T>> {
        // A panic of a stage happens outside the lock and is reported through `failed`.
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, source: &Mutex<impl Iterator<Item = T>>, stages: &[Mutex<Work<'_, T>>]) {
        let mut schedule = self.lock();
        let mut before = None;
        loop {
            if schedule.is_done() {
                self.announce();
                return;
            }
            let Some(task) = schedule.next(before) else {
                schedule = self.wait(schedule);
                continue;
            };
            drop(schedule);
            let alarm = Alarm(self);
            match task {
                Task::Pull => {
                    let batch = source.lock().unwrap_or_else(PoisonError::into_inner).next();
                    schedule = self.lock();
                    schedule.pulled(batch);
                }
                Task::Work(stage, batch) => {
                    before = Some(stage);
                    let mut work = stages[stage].lock().unwrap_or_else(PoisonError::into_inner);
                    let made = work(&batch);
                    drop((work, batch));
                    schedule = self.lock();
                    schedule.worked(stage, made);
                }
            }
            std::mem::forget(alarm);
            self.announce();
        }
    }

    /// Called with the schedule locked, after it was changed.
    fn announce(&self) {
        self.changes.fetch_add(1, Ordering::Release);
        self.changed.notify_all();
    }

    /// Waits for a change, which mostly comes sooner than a sleeping thread would wake up.
    fn wait<'a>(&'a self, schedule: MutexGuard<'a, Schedule<T>>) -> MutexGuard<'a, Schedule<T>> {
        let seen = self.changes.load(Ordering::Acquire);
        drop(schedule);
        for _ in 0..self.spins {
            std::hint::spin_loop();
            if self.changes.load(Ordering::Acquire) != seen {
                return self.lock();
            }
        }
        let mut schedule = self.lock();
        while self.changes.load(Ordering::Acquire) == seen {
            schedule = self
                .changed
                .wait(schedule)
                .unwrap_or_else(PoisonError::into_inner);
        }
        schedule
    }
}

/// Dropped only by a panic: the other threads must not wait for what will never come.
struct Alarm<'a, T: Send + Sync>(&'a Shared<T>);

impl<T: Send + Sync> Drop for Alarm<'_, T> {
    fn drop(&mut self) {
        let mut schedule = self.0.lock();
        schedule.failed = true;
        self.0.announce();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    /// Two doublers with three sums each, and a sum of the source.
    fn sums(threads: usize, count: u64) -> Vec<Vec<u64>> {
        let mut seen = vec![Vec::new(); 7];
        let mut pipeline = Pipeline::new(4);
        let (first, rest) = seen.split_at_mut(1);
        let alone = &mut first[0];
        pipeline.add(None, move |&batch: &u64| {
            alone.push(batch);
            None
        });
        for (factor, takers) in [2, 3].into_iter().zip(rest.chunks_mut(3)) {
            let parent = pipeline.add(None, move |&batch| Some(batch * factor));
            for (index, taker) in takers.iter_mut().enumerate() {
                pipeline.add(Some(parent), move |&batch| {
                    if (batch + index as u64) % 5 == 0 {
                        std::thread::yield_now();
                    }
                    taker.push(batch);
                    None
                });
            }
        }
        pipeline.run(0..count, threads);
        seen
    }

    #[test]
    fn every_worker_sees_every_batch_in_order() {
        for count in [0, 1, 3, 500] {
            for threads in [1, 2, 3, 8] {
                for (index, seen) in sums(threads, count).into_iter().enumerate() {
                    let factor = [1, 2, 2, 2, 3, 3, 3][index];
                    let expected: Vec<u64> = (0..count).map(|batch| batch * factor).collect();
                    assert_eq!(seen, expected, "stage {index} of {threads} threads");
                }
            }
        }
    }

    #[test]
    fn a_slow_worker_holds_the_source_back() {
        let (pulled, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let mut pipeline = Pipeline::new(4);
        pipeline.add(None, |_: &usize| None);
        pipeline.add(None, |&batch| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            assert!(pulled.load(Ordering::SeqCst) <= batch + 4 + 1);
            done.fetch_add(1, Ordering::SeqCst);
            None
        });
        let source = (0..40).inspect(|_| {
            pulled.fetch_add(1, Ordering::SeqCst);
        });
        pipeline.run(source, 2);
        assert_eq!(done.load(Ordering::SeqCst), 40);
    }

    #[test]
    fn without_workers_the_source_is_emptied() {
        for threads in [1, 2] {
            let mut pulled = 0;
            Pipeline::<u32>::new(4).run((0..100).inspect(|_| pulled += 1), threads);
            assert_eq!(pulled, 100);
        }
    }

    #[test]
    fn a_panic_ends_all_threads() {
        for threads in [1, 2, 4] {
            let result = std::panic::catch_unwind(|| {
                let mut pipeline = Pipeline::new(4);
                pipeline.add(None, |&batch: &u32| {
                    assert!(batch < 7, "as planned");
                    None
                });
                pipeline.add(None, |_| None);
                pipeline.run(0..1000, threads);
            });
            assert!(result.is_err());
        }
    }
}
