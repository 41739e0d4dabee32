//! Starts of sources, each in a thread of its own: a disk that does not answer must keep nobody else's source waiting.

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use crate::apart::apart;
use crate::config::Source;
use crate::failure::Failure;
use crate::panics::{caught, is_on_purpose};

/// Tells a start of a source from later ones of the same.
pub(crate) type StartNumber = usize;

/// What is told of the source of a directory.
pub(crate) type Told<T> = (PathBuf, Result<T, Failure>);

/// A source that is about to be served.
pub(crate) struct Starting {
    pub(crate) number: StartNumber,
    pub(crate) source: Source,
    /// What is said of it until it is served: that it is late, or why it was not served before.
    pub(crate) failure: Option<Failure>,
    /// Nobody waits for it.
    pub(crate) is_late: bool,
}

impl Starting {
    pub(crate) fn new(number: StartNumber, source: &Source) -> Self {
        Self {
            number,
            source: source.clone(),
            failure: None,
            is_late: false,
        }
    }
}

/// Starts a source in a thread.
pub(crate) fn start_apart(source: &Source, start: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let refused = is_on_purpose("no thread", &source.dir).then(|| Err(io::ErrorKind::WouldBlock.into()));
    refused.unwrap_or_else(|| apart("start", start)).map_err(|error| {
        let message = format!("{}: a thread: {error}", source.dir.display());
        Failure::new(message, "the system refuses what bathyd needs")
    })
}

/// A panic in what is done for a source is the source's failure, and nobody else's.
pub(crate) fn without_panic<T>(
    source: &Source,
    work: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    caught(work).unwrap_or_else(|| {
        Err(Failure::new(
            format!(
                "{}: an error of bathyd itself: a thread that was to serve it panicked",
                source.dir.display()
            ),
            "the log of bathyd says where: report it",
        ))
    })
}

/// Waits for what is told of sources: as long as it takes for one that does not fail, unless there `has_one` already, and for
/// the others until some time is over. Those of which nothing was told are left.
pub(crate) fn wait_for_starts<T>(
    pending: &mut Vec<Source>,
    limit: Duration,
    mut has_one: bool,
    told: &Receiver<Told<T>>,
    take: &mut impl FnMut(Source, Result<T, Failure>),
) {
    let until = Instant::now() + limit;
    while !pending.is_empty() {
        let one = if has_one {
            let left = until.saturating_duration_since(Instant::now());
            told.recv_timeout(left).ok()
        } else {
            told.recv().ok()
        };
        let Some(one) = one else { return };
        has_one |= one.1.is_ok();
        take_told(pending, [one], take);
    }
}

/// Takes what was told of sources.
pub(crate) fn take_told<T>(
    pending: &mut Vec<Source>,
    told: impl IntoIterator<Item = Told<T>>,
    take: &mut impl FnMut(Source, Result<T, Failure>),
) {
    for (dir, result) in told {
        if let Some(place) = pending.iter().position(|source| source.dir == dir) {
            take(pending.remove(place), result);
        }
    }
}

/// What is said of a source whose disk does not answer.
pub(crate) fn late(source: &Source) -> Failure {
    Failure::new(
        format!("{}: it does not answer yet", source.dir.display()),
        format!(
            "look at its disk: it is served when that answers; or give it up: bathy cache source stop {}",
            source.name()
        ),
    )
}
