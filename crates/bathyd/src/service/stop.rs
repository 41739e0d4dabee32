//! Sources are served no more: one, or all at the end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use super::sources::{Leaving, ServedDirectory, SourceInfo};
use super::{Service, cannot_note, place_of};
use crate::apart::{apart, each_apart};
use crate::config;
use crate::failure::Failure;
use crate::panics::{caught, perhaps};
use crate::systemd::notify;

/// So long a file may count as open that was closed.
const CLOSING_MAX: Duration = Duration::from_millis(200);

/// Waits until no file is open, for a moment: one that was just closed counts until the kernel says so.
fn wait_for_closes(sources: &[Arc<SourceInfo>]) {
    let until = Instant::now() + CLOSING_MAX;
    while sources.iter().any(|one| one.open_files() > 0) && Instant::now() < until {
        thread::sleep(Duration::from_millis(5));
    }
}

fn panicked<T>() -> io::Result<T> {
    Err(io::Error::other("it panicked"))
}

impl Service {
    /// Takes note of mounts that ended. Returns whether there is nothing left to serve because they were ended, and not
    /// because nothing was to be served. No source begins any more then.
    pub(crate) fn reap(self: &Arc<Self>) -> bool {
        let _alone = self.change();
        let mut state = self.lock();
        let all = std::mem::take(&mut state.served);
        let (ended, served): (Vec<_>, Vec<_>) = all.into_iter().partition(|one| one.mounted.has_ended());
        state.served = served;
        state.draining.retain(|one| !one.mounted.has_ended());
        let (has_one_ended, is_stopping) = (!ended.is_empty(), self.is_stopping.load(Ordering::Acquire));
        for one in ended {
            // A stop or somebody else unmounted it, and others may have changed files since.
            one.info.set_stamped(false);
            state.leaving.push(Leaving::new(&one.info));
            self.leave_apart(one);
        }
        // Not of those that nobody stopped: on a kernel before 5.8 the list of mounts may lack one while others change.
        let stopped = state.served.iter().filter(|_| is_stopping);
        for one in stopped.chain(&state.draining) {
            let _panicked = caught(|| one.end_unless_used());
        }
        let is_late = |since: Instant| since.elapsed() >= self.stop_limit();
        // Of the others something that somebody asked for hangs, and nobody waits for it any more.
        let is_waited_for =
            |one: &&ServedDirectory| !(is_stopping && one.cut_off_since().is_some_and(is_late));
        let is_served = (state.served.iter().chain(&state.draining))
            .filter(is_waited_for)
            .count()
            > 0;
        state.has_ended |= has_one_ended && !is_served;
        let is_left = state.leaving.iter().all(|one| is_stopping && is_late(one.since));
        if is_served || !(state.has_ended || is_stopping) || !is_left {
            return false;
        }
        let left: Vec<_> = state.leaving.drain(..).map(|one| one.info).collect();
        // Their locks stay: what hangs may change files yet.
        let hung = state.served.iter().chain(&state.draining);
        let late: Vec<_> = left
            .into_iter()
            .chain(hung.map(|one| Arc::clone(&one.info)))
            .collect();
        drop(state);
        for info in late {
            eprintln!(
                "bathyd: {}: its disk does not answer: the cache is stopped without it, and has nothing of it afterwards",
                info.source.dir.display()
            );
            if let Some(cached) = &info.cached {
                self.disown(&info.source.dir, cached);
            }
        }
        self.is_stopping.store(true, Ordering::Release);
        true
    }

    /// A stop waits so long for files to become durable before it unmounts; what is not by then is dropped from the cache.
    fn stop_limit(&self) -> Duration {
        Duration::from_secs(self.config.stop_limit_s)
    }

    /// As [`Self::leave`], but nobody waits for its disk.
    fn leave_apart(self: &Arc<Self>, one: ServedDirectory) {
        let service = Arc::clone(self);
        let leave = move || {
            if let Err(error) = service.leave(one) {
                eprintln!("bathyd: {error}");
            }
        };
        if let Err(error) = apart("leave", leave) {
            // It counts as one whose disk does not answer.
            eprintln!("bathyd: a thread: {error}");
        }
    }

    /// Waits for the end of a mount among [`State::leaving`], and drops what is not known of its files any more.
    pub(super) fn leave(&self, one: ServedDirectory) -> io::Result<()> {
        let info = Arc::clone(&one.info);
        if !one.end() {
            eprintln!(
                "bathyd: {}: what is under way does not end: what is cached of it is lost",
                info.source.dir.display()
            );
            if let Some(cached) = &info.cached {
                self.disown(&info.source.dir, cached);
            }
        }
        let left = info.containment.contain(|| {
            perhaps("leave", &info.source.dir);
            let in_cache = info.cached.as_ref().map(|cached| cached.in_cache());
            Ok(in_cache.map_or(Ok(()), |(live, uuid)| {
                live.with_engine(|engine| engine.leave_source(uuid))
            }))
        });
        // After a panic it is distrusted: no start will find what is cached of it.
        let noted = left.map_or(Ok(()), |left| self.noted(&info.source, left));
        let mut state = self.lock();
        (state.leaving).retain(|leaving| leaving.info.source.dir != info.source.dir);
        noted
    }

    /// An error of the cache at the end of a source. It ends nothing else, but the next start must believe nothing.
    pub(super) fn noted(&self, source: &config::Source, result: io::Result<()>) -> io::Result<()> {
        result.map_err(|error| {
            self.is_unsound.store(true, Ordering::Release);
            io::Error::new(error.kind(), format!("{}: {error}", source.dir.display()))
        })
    }

    /// All mounts are to end. Those with open files are detached, and served until these are closed; those that cannot be
    /// unmounted are served until that is done from outside.
    pub(crate) fn unmount_all(&self) {
        // With this no other source begins.
        self.is_stopping.store(true, Ordering::Release);
        let served = {
            // One that begins is waited for.
            let _alone = self.change();
            let state = self.lock();
            let served = state.served.iter().map(|one| Arc::clone(&one.info));
            served.collect::<Vec<_>>()
        };
        wait_for_closes(&served);
        // Before others can change files. What is written to after this is dropped when its source is left; so is what is not
        // settled in time.
        each_apart("settle", served.clone(), self.stop_limit(), |info| info.settle());
        let _alone = self.change();
        // New users will find the directory itself: what is cached must not be read once they can change files.
        self.leave_cache(served.into_iter().filter(|info| info.open_files() > 0).collect());
        let mut in_use = Vec::new();
        let state = self.lock();
        for one in state.served.iter().filter(|one| !one.mounted.has_ended()) {
            let unmounted = caught(|| {
                perhaps("unmount", &one.info.source.dir);
                // Who settles it still, or tidies, comes too late.
                one.info.set_stamped(false);
                one.mounted.unmount()
            });
            match unmounted.unwrap_or_else(panicked) {
                // Who has no file open, and waits for what hangs, say, gets an error.
                Ok(is_unused) if one.end_unless_used() && (is_unused || one.mounted.is_cut_off()) => {}
                Ok(is_unused) => {
                    let place = if is_unused {
                        " in another mount namespace"
                    } else {
                        ""
                    };
                    eprintln!(
                        "bathyd: {}: files are open{place}; they are served until they are closed, or until a second signal",
                        one.dir()
                    );
                    in_use.push(Arc::clone(&one.info));
                }
                Err(error) => eprintln!(
                    "bathyd: {}: {error}; it is served until a second signal",
                    one.dir()
                ),
            }
        }
        drop(state);
        if !in_use.is_empty() {
            notify(&format!(
                "STATUS={} directories are plain ones again; files that are open in them are served until they are closed",
                in_use.len()
            ));
        }
        self.leave_cache(in_use);
    }

    /// The cache is used no more for the sake of these sources.
    pub(super) fn leave_cache(&self, sources: Vec<Arc<SourceInfo>>) {
        let cache = self.lock().cache.clone();
        for info in sources {
            let left = caught(|| {
                perhaps("leave the cache", &info.source.dir);
                cache.as_ref().map_or(Ok(()), |cache| cache.leave())
            });
            let left = left.unwrap_or_else(panicked);
            if let Err(error) = self.noted(&info.source, left) {
                eprintln!("bathyd: {error}");
            }
        }
    }

    /// Stops the cache, when nothing is served any more.
    ///
    /// # Errors
    /// If it cannot be noted.
    pub(crate) fn end(&self) -> Result<(), Failure> {
        let cache = self.lock().cache.take();
        let is_sound = !self.is_unsound.load(Ordering::Acquire);
        // Else it ends as by a kill: the next start compares stamps.
        if is_sound && cache.is_none_or(|cache| caught(|| cache.stop()).unwrap_or(false)) {
            return self.session().end().map_err(|error| cannot_note(&error));
        }
        eprintln!("bathyd: the cache was not stopped cleanly");
        Ok(())
    }

    /// Ends the mount of a source. Whether nothing of it was in use; else, by force, it is served to those who have files open.
    pub(super) fn stop(self: &Arc<Self>, name: &str, force: bool) -> Result<bool, Failure> {
        let failed = |error: &io::Error| Failure::new(format!("{name}: {error}"), "see the log of bathyd");
        let alone = self.running()?;
        let mut state = self.lock();
        let known = state.unserved.len() + state.starting.len();
        state.unserved.retain(|one| one.name != name);
        (state.starting).retain(|one| one.failure.is_none() || one.source.name() != name);
        if state.unserved.len() + state.starting.len() < known {
            // Nobody uses it. If its disk answers later it is not served.
            return Ok(true);
        }
        drop(state);
        let (_, info) = self.served_as(name)?;
        drop(alone);
        wait_for_closes(std::slice::from_ref(&info));
        if !force {
            // Before others can change files. What is written to after this is dropped when it is left.
            info.settle();
        }
        let alone = self.running()?;
        let mut state = self.lock();
        let place = place_of(&state, name)?;
        let one = &state.served[place];
        // The mount here does not know of files that are open in other mount namespaces.
        one.info.set_stamped(false);
        let is_closed = one.info.open_files() == 0;
        let unmounted = if is_closed {
            one.mounted.unmount_unused()
        } else {
            Ok(false)
        };
        // Else it is served on.
        one.info.set_stamped(!matches!(unmounted, Ok(true)));
        if unmounted.map_err(|error| failed(&error))? {
            one.end_unless_used();
            let one = state.served.remove(place);
            state.leaving.push(Leaving::new(&one.info));
            drop(state);
            drop(alone);
            if force {
                self.leave_apart(one);
            } else {
                self.leave(one).map_err(|error| failed(&error))?;
            }
            return Ok(true);
        }
        if !force {
            let open_files = one.info.open_files();
            return Err(Failure::new(
                format!("{name} is in use ({open_files} open files)"),
                "stop who uses it, such as the OSD; or force it: open files are then served until they are closed, and what is cached of the source is lost",
            ));
        }
        // From here on new users find the directory itself: what is cached must never be found again.
        let info = Arc::clone(&one.info);
        drop(state);
        let forgotten = self.session().forget_source(&info.source.dir);
        forgotten.map_err(|error| failed(&error))?;
        if let Some((live, uuid)) = info.cached.as_ref().map(|cached| cached.in_cache()) {
            live.with_engine(|engine| engine.abandon_source(uuid));
        }
        let mut state = self.lock();
        let one = state.served.remove(place);
        let unmounted = one.mounted.unmount();
        let is_left = one.mounted.is_left();
        state.draining.push(one);
        Ok(unmounted.map_err(|error| failed(&error))? && !is_left)
    }
}
