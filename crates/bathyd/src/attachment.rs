//! What becomes of the SSD while directories are served: it is detached, attached, given another size, and comes back by itself
//! after it failed.
//!
//! An SSD that was given up (`bathy-cache` says when) is left at once, and tried again after a wait that doubles while it goes
//! wrong again: a stall of a shared device passes, and a cache that it ends for good is a poor one. So is one that is missing.
//! What it holds is void by then, so it begins empty. Its lock is held by what was sent to it and has not ended, so it can be
//! opened again only when nothing late can reach it any more.

mod changes;

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// The first try comes after this time.
const WAIT_MIN: Duration = Duration::from_secs(10);
/// And no later one after more. An SSD that was used so long begins with the first wait again.
const WAIT_MAX: Duration = Duration::from_secs(600);
enum State {
    Used {
        since: Instant,
    },
    /// Nobody tries it until it is attached.
    Detached,
    /// It failed, and is tried again.
    Failed {
        problem: String,
        next_try: Instant,
    },
}

struct Inner {
    state: State,
    path: PathBuf,
    /// How it was found when it was attached last.
    found: Option<String>,
    times_left: u64,
    last_reason: Option<String>,
    wait: Duration,
    /// An SSD that failed could not be left, and is left when this has come.
    leave_after: Option<Instant>,
    /// The stop has begun: nothing is tried any more.
    is_over: bool,
}

/// See the [module](self).
pub(crate) struct Attachment {
    inner: Mutex<Inner>,
    /// Locked by who changes which SSD is used.
    changing: Mutex<()>,
}

impl Attachment {
    fn new(path: PathBuf, state: State, found: Option<String>, reason: Option<String>) -> Self {
        Self {
            inner: Mutex::new(Inner {
                state,
                path,
                found,
                times_left: 0,
                last_reason: reason,
                wait: WAIT_MIN,
                leave_after: None,
                is_over: false,
            }),
            changing: Mutex::new(()),
        }
    }

    pub(crate) fn used(path: PathBuf, found: String) -> Self {
        Self::new(
            path,
            State::Used {
                since: Instant::now(),
            },
            Some(found),
            None,
        )
    }

    pub(crate) fn detached(path: PathBuf) -> Self {
        Self::new(path, State::Detached, None, None)
    }

    pub(crate) fn missing(path: PathBuf, problem: String) -> Self {
        let next_try = Instant::now() + WAIT_MIN;
        let state = State::Failed {
            problem: problem.clone(),
            next_try,
        };
        Self::new(path, state, None, Some(problem))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_used(&self) -> bool {
        matches!(self.lock().state, State::Used { .. })
    }

    /// To change which SSD is used: `None` if somebody does. What a panic left is whole: which SSD there is says the cache.
    fn try_change(&self) -> Option<MutexGuard<'_, ()>> {
        match self.changing.try_lock() {
            Ok(alone) => Some(alone),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// No SSD is attached from now on. Waits for who does that now.
    pub(crate) fn end(&self) -> MutexGuard<'_, ()> {
        self.lock().is_over = true;
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn report(&self, report: &mut Value) {
        let inner = self.lock();
        let (state, problem, next_try_s) = match &inner.state {
            State::Used { .. } => ("attached", None, None),
            State::Detached => ("detached", None, None),
            State::Failed { problem, next_try } => {
                let left = next_try.saturating_duration_since(Instant::now());
                ("waiting", Some(problem), Some(left.as_secs_f64()))
            }
        };
        report["ssd"] = json!(inner.path.to_string_lossy());
        report["found"] = json!(inner.found);
        report["problem"] = json!(problem);
        report["attachment"] = json!({
            "state": state,
            "times_given_up": inner.times_left,
            "last_reason": inner.last_reason,
            "next_try_s": next_try_s,
        });
    }

    fn set_used(&self, found: &str) {
        let mut inner = self.lock();
        eprintln!("bathyd: {}: attached; {found}", inner.path.display());
        inner.state = State::Used {
            since: Instant::now(),
        };
        inner.found = Some(found.to_owned());
        inner.leave_after = None;
    }

    /// It failed: when it is tried again.
    fn set_failed(&self, problem: String, was_used: bool) {
        let mut inner = self.lock();
        if let State::Used { since } = inner.state {
            if since.elapsed() >= WAIT_MAX {
                inner.wait = WAIT_MIN;
            }
        }
        let wait = inner.wait;
        let what = if was_used {
            "given up"
        } else {
            "cannot be attached"
        };
        eprintln!(
            "bathyd: {}: {what}: {problem}; directories are served without it; next try in {} s",
            inner.path.display(),
            wait.as_secs()
        );
        inner.times_left += u64::from(was_used);
        inner.last_reason = Some(problem.clone());
        inner.wait = (2 * wait).min(WAIT_MAX);
        inner.state = State::Failed {
            problem,
            next_try: Instant::now() + wait,
        };
    }
}
