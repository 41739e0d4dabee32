//! What the front end counts of a source, cached or not.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bathy_cache::{ServedRequest, SourceCounts, SourceStatus};

/// Counts since the start.
#[derive(Default)]
pub(crate) struct FrontCounts {
    /// Shared with the engine, which counts the requests that pass through it.
    requests: Arc<Mutex<SourceCounts>>,
    pub(crate) attribute_reads: Count,
    pub(crate) attribute_writes: Count,
    pub(crate) link_reads: Count,
    pending: AtomicU64,
}

/// A count.
#[derive(Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl FrontCounts {
    /// `requests` is where an engine counts what passes through it.
    pub(crate) fn new(requests: Arc<Mutex<SourceCounts>>) -> Self {
        Self {
            requests,
            ..Self::default()
        }
    }

    /// Carries a read or write out, which is pending meanwhile.
    pub(crate) fn pending<R>(&self, request: impl FnOnce() -> R) -> R {
        self.pending.fetch_add(1, Ordering::Relaxed);
        let result = request();
        self.pending.fetch_sub(1, Ordering::Relaxed);
        result
    }

    /// Carries a request out that no engine sees, and counts it with the bytes that it returns.
    pub(crate) fn uncached(
        &self,
        is_write: bool,
        request: impl FnOnce() -> io::Result<usize>,
    ) -> io::Result<usize> {
        let begun = Instant::now();
        let bytes = request()?;
        if bytes > 0 {
            let served = ServedRequest {
                is_write,
                bytes: bytes as u64,
                latency_ns: begun.elapsed().as_nanos() as u64,
                ..ServedRequest::default()
            };
            let mut counts = self.lock();
            counts.count(&served);
            if !is_write {
                counts.count_source_read(served.bytes);
            }
        }
        Ok(bytes)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, SourceCounts> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn requests(&self) -> SourceStatus {
        self.lock().status()
    }

    /// Reads and writes that are under way.
    pub(crate) fn requests_pending(&self) -> u64 {
        self.pending.load(Ordering::Relaxed)
    }
}
