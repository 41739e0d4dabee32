//! Operations that end by a deadline, whatever the store does.
//!
//! An operation that is in the kernel cannot be called back. So it works on a buffer of its own, which lives for as long as it
//! does, and its caller goes on without it. A store that can wait with a limit does so ([`BlockStore::read_within`],
//! [`BlockStore::write_within`]); all else is done by threads, of which there are as many as there were callers at once.

use std::fmt;
use std::io;
use std::slice;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use bathy_cache_model::Bytes;
use smallvec::SmallVec;

use crate::store::aligned::Aligned;
use crate::store::{BlockStore, Place, PlacesRead, Until, parts_of};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::lock;

/// Who waits sees after this time that another operation was late.
pub(crate) const LOOK_PERIOD: Duration = Duration::from_millis(100);

type Job = Box<dyn FnOnce() + Send>;

/// A store whose operations end by a deadline. After the first one that did not, all others fail at once: what the store
/// still does late meets nothing newer.
pub(crate) struct Guard {
    store: Arc<dyn BlockStore>,
    deadlines: Deadlines,
    /// Nothing is sent to it any more.
    is_closed: AtomicBool,
    /// Threads that wait for work. Who takes one gives it back when its work is done.
    idle: Mutex<Vec<mpsc::Sender<Job>>>,
}

/// After these times nobody waits any more. `None`: as long as it takes.
///
/// Callers that read wait for reads of the SSD, which must take no longer than those of a slow disk. Writes and flushes are
/// waited for by callers that write, open or remove a file or bring lines into the cache, and by a stop. A busy file system below the SSD, or a drive that empties its
/// cache, keeps a write or a flush for seconds and is none the worse for it, so these wait longer: to give the SSD up costs
/// all that is cached. One that does not answer at all is not waited for that long: when a read is late all others end too.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadlines {
    pub(crate) reads: Option<Duration>,
    pub(crate) writes: Option<Duration>,
}

/// What an SSD is asked for.
#[derive(Clone, Copy)]
enum Asked<'a> {
    Read(&'a [Place]),
    Write(Place),
    Flush,
    Size,
}

impl fmt::Display for Asked<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = |place: &Place| format!("{} at byte {}", Bytes(place.len as u64), place.offset);
        match self {
            Self::Read([one]) => write!(out, "a read of {}", place(one)),
            Self::Read(all) => {
                write!(out, "any of {} reads", all.len())?;
                (all.first()).map_or(Ok(()), |first| write!(out, ", the first of {}", place(first)))
            }
            Self::Write(to) => write!(out, "a write of {}", place(to)),
            Self::Flush => write!(out, "a flush"),
            Self::Size => write!(out, "how large it is"),
        }
    }
}

/// Seconds since 1970 as logs have them: `2026-11-28 11:20:03 UTC`.
struct Utc(u64);

impl fmt::Display for Utc {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut days, second) = (self.0 / 86_400, self.0 % 86_400);
        let is_leap = |year: u64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let mut year = 1970;
        while days >= 365 + u64::from(is_leap(year)) {
            days -= 365 + u64::from(is_leap(year));
            year += 1;
        }
        let mut month = 1;
        for length in [
            31,
            28 + u64::from(is_leap(year)),
            31,
            30,
            31,
            30,
            31,
            31,
            30,
            31,
            30,
        ] {
            if days < length {
                break;
            }
            days -= length;
            month += 1;
        }
        let (day, hour, minute) = (days + 1, second / 3600, second / 60 % 60);
        let second = second % 60;
        write!(
            out,
            "{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC"
        )
    }
}

fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the SSD is not used any more")
}

impl Guard {
    pub(crate) fn new(store: Arc<dyn BlockStore>, deadlines: Deadlines) -> Self {
        Self {
            store,
            deadlines,
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

    /// It was waited for until now, in vain.
    fn hung(&self, asked: Asked<'_>, deadline: Duration) -> io::Error {
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let since = Utc(unix.unwrap_or_default().saturating_sub(deadline).as_secs());
        let name = self.store.name();
        let text = format!("{name} has not answered {asked} since {since} ({deadline:?})");
        io::Error::new(io::ErrorKind::TimedOut, text)
    }

    /// What a store says that waited with a limit, in the words of this module. Errors of the device have a number.
    fn said<T>(&self, asked: Asked<'_>, deadline: Duration, result: io::Result<T>) -> io::Result<T> {
        result.map_err(|error| match (error.raw_os_error(), error.kind()) {
            (None, io::ErrorKind::TimedOut) => self.hung(asked, deadline),
            (None, io::ErrorKind::NotConnected) => closed(),
            _ => error,
        })
    }

    /// Reads places, all at once where the store can.
    pub(crate) fn read(&self, places: &[Place]) -> io::Result<PlacesRead> {
        let deadline = self.deadlines.reads;
        let mut bytes = Aligned::to_fill(places.iter().map(|place| place.len).sum());
        if let Some(deadline) = deadline.filter(|_| !self.is_closed()) {
            let is_over = &|| self.is_closed();
            match self
                .store
                .read_within(bytes, places, &Until { deadline, is_over })
            {
                Ok(read) => return self.noted(self.said(Asked::Read(places), deadline, read)),
                Err(given_back) => bytes = given_back,
            }
        }
        let mut ends = SmallVec::new();
        for (place, part) in parts_of(places) {
            let asked = Asked::Read(slice::from_ref(&place));
            let (back, end) = self.run(asked, deadline, move |store| {
                let end = store.read(&mut bytes[part], place.offset);
                Ok((bytes, end))
            })?;
            bytes = back;
            ends.push(end);
        }
        Ok((bytes, ends))
    }

    /// Writes bytes that are its own: where nobody waits any more the operation keeps them. Parts of blocks may be read where
    /// they go: then no read that begins after this finds what was there before.
    pub(crate) fn write(&self, mut data: Aligned, offset: u64, is_read_in_parts: bool) -> io::Result<()> {
        let deadline = self.deadlines.writes;
        let asked = Asked::Write(Place {
            offset,
            len: data.len(),
        });
        let by_thread = self.is_closed() || is_read_in_parts && self.store.leaves_old_pages();
        if let Some(deadline) = deadline.filter(|_| !by_thread) {
            let is_over = &|| self.is_closed();
            match self
                .store
                .write_within(data, offset, &Until { deadline, is_over })
            {
                Ok(written) => return self.noted(self.said(asked, deadline, written)),
                Err(given_back) => data = given_back,
            }
        }
        // The buffer goes back to this thread, which uses it again.
        let written = self.run(asked, deadline, move |store| {
            store.write(&data, offset).map(|()| data)
        });
        written.map(drop)
    }

    pub(crate) fn flush(&self) -> io::Result<()> {
        self.run(Asked::Flush, self.deadlines.writes, |store| store.flush())
    }

    pub(crate) fn size_bytes(&self) -> io::Result<u64> {
        self.run(Asked::Size, self.deadlines.reads, |store| store.size_bytes())
    }

    /// An answer, unless it is late or another operation was.
    fn waited<T>(
        &self,
        answer: &mpsc::Receiver<io::Result<T>>,
        asked: Asked<'_>,
        deadline: Duration,
    ) -> io::Result<T> {
        let end = Instant::now() + deadline;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match answer.recv_timeout(left.min(LOOK_PERIOD)) {
                Ok(result) => return result,
                Err(mpsc::RecvTimeoutError::Timeout) if !self.is_closed() && !left.is_zero() => {}
                Err(_) if self.is_closed() => return Err(closed()),
                Err(mpsc::RecvTimeoutError::Timeout) => return Err(self.hung(asked, deadline)),
                // As after one that is late: nobody knows what it did.
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    self.close();
                    let text = format!("{} panicked when it was asked for {asked}", self.store.name());
                    return Err(io::Error::other(text));
                }
            }
        }
    }

    fn noted<T>(&self, result: io::Result<T>) -> io::Result<T> {
        let is_late =
            |error: &io::Error| error.kind() == io::ErrorKind::TimedOut && error.raw_os_error().is_none();
        if result.as_ref().is_err_and(is_late) {
            self.close();
        }
        result
    }

    fn run<T: Send + 'static>(
        &self,
        asked: Asked<'_>,
        deadline: Option<Duration>,
        operation: impl FnOnce(&dyn BlockStore) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        if self.is_closed() {
            return Err(closed());
        }
        let Some(deadline) = deadline else {
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
        worker.send(job).map_err(|_| closed())?;
        let result = self.noted(self.waited(&answer, asked, deadline));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_and_since_when_is_said_as_people_say_it() {
        let place = |offset| Place { offset, len: 65_536 };
        let two = [place(4096), place(1 << 40)];
        let said = [
            Asked::Read(&two[..1]),
            Asked::Read(&two),
            Asked::Write(place(0)),
            Asked::Flush,
        ];
        assert_eq!(
            said.map(|asked| asked.to_string()),
            [
                "a read of 64 KiB at byte 4096",
                "any of 2 reads, the first of 64 KiB at byte 4096",
                "a write of 64 KiB at byte 0",
                "a flush"
            ]
        );
        let times = [0, 951_782_399, 951_782_400, 1_735_689_599, 1_795_864_803];
        assert_eq!(
            times.map(|time| Utc(time).to_string()),
            [
                "1970-01-01 00:00:00 UTC",
                "2000-02-28 23:59:59 UTC",
                "2000-02-29 00:00:00 UTC",
                "2024-12-31 23:59:59 UTC",
                "2026-11-28 11:20:03 UTC"
            ]
        );
    }
}
