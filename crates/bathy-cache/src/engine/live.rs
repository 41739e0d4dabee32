//! A cache that leaves its SSD, takes one, and gets another size while files are in use.
//!
//! Each time the engine is another one, and where there is no SSD an engine without a cache passes all on. A switch waits for
//! the requests that are under way, gives each file to the next engine, and lets the requests that came meanwhile go there.
//! So a file has one engine at a time. If they do not end in time the switch is given up and nothing has changed: one
//! source that hangs must not keep the others waiting.
//!
//! An SSD is left by a clean stop, if it can be: each file has its stamp by then, and who takes the SSD again finds by these
//! which files were changed without it, as a start does.

use std::collections::{HashMap, HashSet};
use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::engine::cached_file::{CachedFile, Events};
use crate::engine::open::{OpenError, Opened, Recovery, inspect, open, without_ssd};
use crate::engine::options::Options;
use crate::engine::resize::{ResizeError, apply, planned, void_tables};
use crate::engine::{Engine, stopped};
use crate::format::FileIdentity;
use crate::format::Uuid;
use crate::format::generation_store::{GenerationStore, void};
use crate::index::files::{Beginning, FileState};
use crate::stats::RequestCounts;
use crate::store::BlockStore;
use crate::store::ssd::Ssd;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::lock;

/// Requests are kept waiting so long at most for others that are under way.
pub const PAUSE_MAX: Duration = Duration::from_secs(15);
/// Times of files are those of the kernel's last tick, 10 ms ago at most. So that the first write without the cache gives a
/// file another time than its stamp has, the clock must have ticked since.
const TIMESTAMP_TICK: Duration = Duration::from_millis(20);

/// Why the SSD could not be left.
#[derive(Debug, thiserror::Error)]
pub enum DetachError {
    /// Those of these sources, as far as that is known. Nothing has changed.
    #[error("what is under way does not end")]
    Busy(Vec<Uuid>),
    /// A file cannot be asked for its size, the generation store cannot be written, or the cache was stopped. Nothing has changed.
    #[error("the files cannot be served without the SSD: {0}")]
    Io(#[from] io::Error),
    /// By an error of this program. Files are served without an SSD, and what it has is void.
    #[error("the switch of the SSD panicked")]
    Panicked,
}

/// Why an SSD was not taken, or did not get another size.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// It cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// There is no SSD whose size could be changed.
    #[error("the cache has no SSD, or one that does not answer")]
    NoSsd,
    /// The size is not possible, or could not be written.
    #[error(transparent)]
    Resize(#[from] ResizeError),
    /// The one before could not be left, or requests under way do not end.
    #[error(transparent)]
    Detach(#[from] DetachError),
    /// A file could not be made durable.
    #[error("the files cannot be given to the SSD: {0}")]
    Switch(#[from] io::Error),
}

/// See the [module](self). Nothing that is passed to it to be called may use it.
pub struct LiveCache {
    generations: Arc<dyn GenerationStore>,
    options: Options,
    /// Locked by who switches.
    switching: Mutex<()>,
    /// Locked by who switches, and shared by who attaches or removes files.
    current: RwLock<Current>,
    /// That of `current`, for questions, which must not wait for a switch.
    engine: Mutex<Arc<Engine>>,
    handles: Mutex<Vec<Weak<LiveFile>>>,
    /// The content that an SSD was left with cleanly.
    left: Mutex<Option<(Uuid, u64)>>,
    unproven: Arc<Unproven>,
}

struct Current {
    ssd: Option<Arc<dyn BlockStore>>,
    /// Serves files without a cache. Files that were removed go there, as their handles may be others' by now.
    bare: Arc<Engine>,
    /// Such files so far.
    removed: u64,
}

/// Files that were written to without the SSD, of those whose users prove that nobody else changed them: they did.
#[derive(Default)]
struct Unproven(Mutex<HashSet<FileIdentity>>);

/// A file in use of a [`LiveCache`]: as [`CachedFile`].
pub struct LiveFile {
    identity: FileIdentity,
    store: Arc<dyn BlockStore>,
    is_proven: bool,
    /// It is among `unproven`.
    is_noted: AtomicBool,
    unproven: Arc<Unproven>,
    file: RwLock<CachedFile>,
}

/// A file that nobody uses while it is switched.
struct Paused<'a> {
    handle: &'a LiveFile,
    file: RwLockWriteGuard<'a, CachedFile>,
}

impl LiveCache {
    /// Over an engine with its SSD, or without one for now.
    pub fn new(
        engine: Option<(Arc<Engine>, Arc<dyn BlockStore>)>,
        generations: Arc<dyn GenerationStore>,
        options: Options,
    ) -> Self {
        let content = engine.as_ref().map(|(engine, _)| engine.content());
        let bare = Arc::new(without_ssd(
            Arc::clone(&generations),
            &options,
            content.unwrap_or_default(),
        ));
        let (engine, ssd) = match engine {
            Some((engine, ssd)) => (engine, Some(ssd)),
            None => (Arc::clone(&bare), None),
        };
        Self {
            generations,
            options,
            switching: Mutex::new(()),
            current: RwLock::new(Current {
                ssd,
                bare,
                removed: 0,
            }),
            engine: Mutex::new(engine),
            handles: Mutex::default(),
            left: Mutex::default(),
            unproven: Arc::default(),
        }
    }

    /// The engine of now, for questions. Who keeps it keeps its SSD in use.
    pub fn engine(&self) -> Arc<Engine> {
        Arc::clone(&lock(&self.engine))
    }

    /// Uses the engine of now, which stays that meanwhile.
    pub fn with_engine<T>(&self, use_it: impl FnOnce(&Engine) -> T) -> T {
        let _stays = self.current.read();
        use_it(&self.engine())
    }

    /// Names the cache that is or was used last, and the generation of its content: zeroes before the first.
    pub fn content(&self) -> (Uuid, u64) {
        self.engine().content()
    }

    /// Whether the SSD that was used last was left by a clean stop, and could be taken again with what it has.
    pub fn has_left_cleanly(&self) -> bool {
        lock(&self.left).is_some()
    }

    /// Whether there is an SSD.
    pub fn has_ssd(&self) -> bool {
        !Arc::ptr_eq(&self.engine(), &self.current.read().bare)
    }

    /// [`Engine::attach`], or [`Engine::attach_unchanged`] if it is proven that nobody else changed the file.
    ///
    /// # Errors
    /// Those of [`Engine::attach`].
    pub fn attach(
        &self,
        identity: FileIdentity,
        store: Arc<dyn BlockStore>,
        is_proven: bool,
    ) -> io::Result<Arc<LiveFile>> {
        let _stays = self.current.read();
        let is_unchanged = is_proven && !self.unproven.has(&identity);
        let file = self
            .engine()
            .attach_if(identity.clone(), Arc::clone(&store), is_unchanged)?;
        self.unproven.settle(&file);
        let handle = Arc::new(LiveFile {
            identity,
            store,
            is_proven,
            is_noted: AtomicBool::new(false),
            unproven: Arc::clone(&self.unproven),
            file: RwLock::new(file),
        });
        let mut handles = lock(&self.handles);
        if handles.len() == handles.capacity() {
            handles.retain(|handle| handle.strong_count() > 0);
        }
        handles.push(Arc::downgrade(&handle));
        Ok(handle)
    }

    /// [`Engine::forget`].
    ///
    /// # Errors
    /// Those of [`Engine::forget`].
    pub fn forget<T>(
        &self,
        identity: &FileIdentity,
        change: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        self.with_engine(|engine| engine.forget(identity, change))
    }

    /// [`Engine::bypass`]: the SSD is void and stays in use.
    ///
    /// # Errors
    /// Those of the generation store.
    pub fn bypass(&self) -> io::Result<()> {
        self.with_engine(Engine::bypass)
    }

    /// [`Engine::stop`].
    ///
    /// # Errors
    /// Those of [`Engine::stop`].
    pub fn stop(&self) -> io::Result<bool> {
        let _alone = lock(&self.switching);
        self.engine().stop()
    }

    /// Leaves the SSD: all files are served without a cache. It can be taken out when this returns, and when nobody has its
    /// [`LiveCache::engine`] any more. Whether it was left by a clean stop; else what it has is void.
    ///
    /// # Errors
    /// If nothing has changed, such as when requests under way did not end within `pause`; or if it panicked.
    pub fn detach_ssd(&self, pause: Duration) -> Result<bool, DetachError> {
        let _alone = lock(&self.switching);
        self.leave_ssd(pause)
    }

    fn leave_ssd(&self, pause: Duration) -> Result<bool, DetachError> {
        let engine = self.engine();
        if engine.ssd.is_given_up() || engine.has_lost_writes() {
            engine.bypass()?;
        }
        tidy_before(&engine, pause)?;
        self.paused(pause, |current, files| {
            flush_paused(&engine, pause)?;
            let (bare, given) = self.without_ssd(&engine, current, files)?;
            let is_clean = self.stop_for_switch(&engine)?;
            if is_clean {
                thread::sleep(TIMESTAMP_TICK);
            }
            current.bare = Arc::clone(&bare);
            current.ssd = None;
            self.give(files, given, bare);
            Ok(is_clean)
        })?
    }

    /// An engine without an SSD that goes on where another one ends, and all files there. Nothing is switched yet.
    fn without_ssd(
        &self,
        engine: &Engine,
        current: &mut Current,
        files: &[Paused<'_>],
    ) -> io::Result<(Arc<Engine>, Vec<CachedFile>)> {
        let mut bare = without_ssd(Arc::clone(&self.generations), &self.options, engine.content());
        bare.inherit(&engine.legacy());
        let bare = Arc::new(bare);
        let given = attached(files, &bare, &bare, &mut current.removed, |_| false)?;
        Ok((bare, given))
    }

    /// Stops an engine for which there is another one already, and leaves its SSD alone. Whether the stop is a clean one; else
    /// the SSD is void.
    fn stop_for_switch(&self, engine: &Engine) -> io::Result<bool> {
        let (is_clean, _) = engine.stop_and_keep_errors();
        if !is_clean {
            engine.bypass()?;
        }
        engine.ssd.close();
        // Before the next engine takes as much.
        engine.release();
        *lock(&self.left) = is_clean.then(|| engine.content());
        Ok(is_clean)
    }

    /// Takes an SSD. One that is in use is left before. If it is the one that was left, all that was not changed since is
    /// cached; else nothing is.
    ///
    /// # Errors
    /// If it cannot be opened, or a file cannot be made durable. Files are served without a cache then.
    pub fn attach_ssd(&self, ssd: Arc<dyn BlockStore>) -> Result<Recovery, AttachError> {
        let _alone = lock(&self.switching);
        if self.has_ssd() {
            self.leave_ssd(PAUSE_MAX)?;
        }
        let found = inspect(Arc::clone(&ssd))?;
        let left = lock(&self.left).take();
        if !found.is_clean || left != Some((found.uuid, found.generation)) {
            // Files were changed without it since it was used last, whichever SSD it is.
            void(&*self.generations)?;
        }
        let options = Options {
            was_fenced: false,
            ..self.options
        };
        let opened = open(Arc::clone(&ssd), Arc::clone(&self.generations), &options)?;
        let recovery = opened.recovery;
        let mut untaken = Some(opened);
        let taken = self.paused(PAUSE_MAX, |current, files| match untaken.take() {
            Some(opened) => self.take(current, files, &self.engine(), opened, ssd, false),
            None => Ok(()),
        });
        if let (Err(_), Some(opened)) = (&taken, untaken) {
            // Files go on changing without it, and it is not as it was left any more.
            opened.engine.bypass()?;
            opened.engine.ssd.close();
        }
        taken??;
        Ok(recovery)
    }

    /// Gives all files to an engine that was just opened. After an error the SSD is void and nothing has changed.
    fn take(
        &self,
        current: &mut Current,
        files: &mut [Paused<'_>],
        before: &Engine,
        opened: Opened,
        ssd: Arc<dyn BlockStore>,
        are_unchanged: bool,
    ) -> io::Result<()> {
        let Opened { mut engine, .. } = opened;
        if let Some(engine) = Arc::get_mut(&mut engine) {
            engine.inherit(&before.legacy());
        }
        let is_unchanged =
            |handle: &LiveFile| are_unchanged || handle.is_proven && !self.unproven.has(&handle.identity);
        let bare = Arc::clone(&current.bare);
        let given = match attached(files, &engine, &bare, &mut current.removed, is_unchanged) {
            Ok(given) => given,
            Err(error) => {
                engine.bypass()?;
                engine.ssd.close();
                return Err(error);
            }
        };
        current.ssd = Some(ssd);
        self.give(files, given, engine);
        Ok(())
    }

    /// The cache takes so many bytes of its SSD from now on. What is cached stays, apart from what is in the part that goes.
    /// Requests wait while it is stopped and started. Returns the bytes that lines have room for.
    ///
    /// # Errors
    /// If there is no SSD that answers, or the size is not possible, nothing has changed. If the cache could not be stopped
    /// cleanly, or not be started again, or it panicked, files are served without it.
    pub fn resize(&self, size_bytes: u64) -> Result<u64, AttachError> {
        let _alone = lock(&self.switching);
        let engine = self.engine();
        let ssd = self.current.read().ssd.clone();
        let ssd = ssd
            .filter(|_| !engine.ssd.is_given_up())
            .ok_or(AttachError::NoSsd)?;
        let superblock = *lock(&engine.superblock);
        let geometry = planned(&superblock, &engine.ssd, size_bytes, self.options.memory)?;
        void_tables(&superblock.geometry, &geometry, &engine.ssd).map_err(ResizeError::from)?;
        tidy_before(&engine, PAUSE_MAX)?;
        let options = Options {
            was_fenced: engine.was_fenced.load(Ordering::Acquire),
            ..self.options
        };
        self.paused(PAUSE_MAX, |current, files| {
            flush_paused(&engine, PAUSE_MAX)?;
            let (bare, given) = self.without_ssd(&engine, current, files)?;
            let reopened = self.reopened(&engine, &ssd, &options, |ssd| Ok(apply(&geometry, ssd)?));
            current.bare = Arc::clone(&bare);
            let taken = reopened.and_then(|(opened, applied)| {
                let capacity_bytes = opened.engine.capacity_lines() * opened.engine.line_bytes();
                // Nobody could change a file since the stop.
                self.take(current, files, &engine, opened, ssd, true)?;
                applied.map(|()| capacity_bytes)
            });
            if Arc::ptr_eq(&engine, &self.engine()) {
                current.ssd = None;
                self.give(files, given, bare);
            }
            taken
        })
        .map_err(AttachError::from)?
    }

    /// Stops an engine, changes what its SSD holds, and opens it again, whether that could be changed or not.
    fn reopened(
        &self,
        engine: &Engine,
        ssd: &Arc<dyn BlockStore>,
        options: &Options,
        change: impl FnOnce(&Ssd) -> Result<(), AttachError>,
    ) -> Result<(Opened, Result<(), AttachError>), AttachError> {
        if !self.stop_for_switch(engine)? {
            return Err(ResizeError::Unclean.into());
        }
        *lock(&self.left) = None;
        let changed_ssd = options.ssd(Arc::clone(ssd));
        changed_ssd.count_in(&engine.ssd.counts());
        let changed = change(&changed_ssd);
        let opened = open(Arc::clone(ssd), Arc::clone(&self.generations), options);
        if opened.is_err() {
            // Files change without it from now on.
            void(&*self.generations)?;
        }
        Ok((opened?, changed))
    }

    /// Does something while no request is under way, and no file is attached or removed.
    fn paused<T>(
        &self,
        pause: Duration,
        switch: impl FnOnce(&mut Current, &mut [Paused<'_>]) -> T,
    ) -> Result<T, DetachError> {
        let until = Instant::now() + pause;
        let current = self.current.try_write_until(until);
        let mut current = current.ok_or_else(|| DetachError::Busy(self.engine().waited_for()))?;
        if self.engine().is_stopped.load(Ordering::Acquire) {
            return Err(stopped().into());
        }
        let handles: Vec<Arc<LiveFile>> = lock(&self.handles).iter().filter_map(Weak::upgrade).collect();
        let mut files = Vec::new();
        for handle in &handles {
            let file = handle.file.try_write_until(until);
            let file = file.ok_or_else(|| DetachError::Busy(vec![*handle.identity.source()]))?;
            files.push(Paused { handle, file });
        }
        let switched = catch_unwind(AssertUnwindSafe(|| switch(&mut current, &mut files)));
        switched.or_else(|_| {
            self.leave_half_way(&mut current, &mut files)?;
            Err(DetachError::Panicked)
        })
    }

    /// A switch panicked: all files go on without an SSD, whichever engine each of them has by now, and no SSD is believed.
    fn leave_half_way(&self, current: &mut Current, files: &mut [Paused<'_>]) -> io::Result<()> {
        void(&*self.generations)?;
        *lock(&self.left) = None;
        let engine = self.engine();
        engine.begin_bypassed();
        engine.ssd.close();
        let (bare, given) = self.without_ssd(&engine, current, files)?;
        engine.is_stopped.store(true, Ordering::Release);
        current.bare = Arc::clone(&bare);
        current.ssd = None;
        self.give(files, given, bare);
        Ok(())
    }

    /// The switch: from here on requests go to `engine`.
    fn give(&self, files: &mut [Paused<'_>], given: Vec<CachedFile>, engine: Arc<Engine>) {
        for (Paused { handle, file }, next) in files.iter_mut().zip(given) {
            let kept = lock(&file.state().flush_error).take();
            if kept.is_some() {
                *lock(&next.state().flush_error) = kept;
            }
            let failed = file.failed_flushes();
            next.state().failed_flushes.fetch_max(failed, Ordering::AcqRel);
            file.state().give_counts(next.state());
            self.unproven.settle(&next);
            handle.is_noted.store(false, Ordering::Release);
            **file = next;
        }
        *lock(&self.engine) = engine;
    }
}

/// What is made durable before a switch need not be while all requests wait, and a disk that does not answer must not be met
/// then. It goes on if there is not enough time.
fn tidy_before(engine: &Arc<Engine>, pause: Duration) -> Result<(), DetachError> {
    within(engine, 2 * pause, |engine| {
        engine.tidy();
        engine
            .sources()
            .iter()
            .for_each(|source| engine.settle_source(source));
    })
}

/// What was written between [`tidy_before`] and the pause is made durable while all requests wait, so that the stop finds nothing
/// that keeps it. A disk that does not answer costs the others no more than another pause: the switch is given up then.
fn flush_paused(engine: &Arc<Engine>, pause: Duration) -> Result<(), DetachError> {
    within(engine, pause, Engine::flush_all)
}

/// Has a thread do something that may wait for a disk. It goes on if there is not enough time.
fn within(
    engine: &Arc<Engine>,
    limit: Duration,
    work: impl FnOnce(&Engine) + Send + 'static,
) -> Result<(), DetachError> {
    let (done, is_done) = mpsc::sync_channel(1);
    let (engine, looked_at) = (Arc::clone(engine), engine);
    let work = move || {
        work(&engine);
        // Before who waits goes on: the SSD is to be nobody's soon.
        drop(engine);
        done.send(())
    };
    let thread = thread::Builder::new().name("tidy".to_owned()).spawn(work)?;
    match is_done.recv_timeout(limit) {
        Ok(()) => Ok(()),
        Err(RecvTimeoutError::Timeout) => Err(DetachError::Busy(looked_at.waited_for())),
        Err(RecvTimeoutError::Disconnected) => thread
            .join()
            .map_or_else(|panic| resume_unwind(panic), |_| Ok(())),
    }
}

/// Attaches all files to an engine, in their order; removed ones to the one without an SSD.
fn attached(
    files: &[Paused<'_>],
    engine: &Arc<Engine>,
    bare: &Arc<Engine>,
    removed_count: &mut u64,
    is_unchanged: impl Fn(&LiveFile) -> bool,
) -> io::Result<Vec<CachedFile>> {
    let mut removed: HashMap<*const FileState, FileIdentity> = HashMap::new();
    let attach = |Paused { handle, file }: &Paused<'_>| {
        let state = file.state();
        if state.is_forgotten.load(Ordering::Acquire) {
            let identity = removed.entry(Arc::as_ptr(state)).or_insert_with(|| {
                *removed_count += 1;
                FileIdentity::unnamed(*handle.identity.source(), *removed_count)
            });
            let next = bare.attach_if(identity.clone(), Arc::clone(&state.store), false)?;
            next.state().is_forgotten.store(true, Ordering::Release);
            return Ok(next);
        }
        let (identity, store) = (handle.identity.clone(), Arc::clone(&handle.store));
        engine.attach_if(identity, store, is_unchanged(handle))
    };
    files.iter().map(attach).collect()
}

impl Unproven {
    fn has(&self, identity: &FileIdentity) -> bool {
        lock(&self.0).contains(identity)
    }

    /// What an SSD has of a file is as the file is from now on.
    fn settle(&self, file: &CachedFile) {
        if !file.is_bypassed() {
            lock(&self.0).remove(&file.state().identity);
        }
    }
}

impl LiveFile {
    fn file(&self) -> RwLockReadGuard<'_, CachedFile> {
        self.file.read()
    }

    /// The file for a change of it, which is noted if there is no SSD to note it.
    fn file_to_change(&self) -> RwLockReadGuard<'_, CachedFile> {
        let file = self.file();
        if self.is_proven && file.is_bypassed() && !self.is_noted.swap(true, Ordering::AcqRel) {
            lock(&self.unproven.0).insert(self.identity.clone());
        }
        file
    }

    /// [`CachedFile::holds`].
    pub fn holds(&self, offset: u64, len: usize) -> bool {
        // Not while it is switched: who asks does not want to wait.
        self.file.try_read().is_some_and(|file| file.holds(offset, len))
    }

    /// [`CachedFile::read`].
    ///
    /// # Errors
    /// Those of [`CachedFile::read`].
    pub fn read(&self, out: &mut [u8], offset: u64, time_ns: u64) -> io::Result<usize> {
        self.file().read(out, offset, time_ns)
    }

    /// [`CachedFile::read_telling`].
    ///
    /// # Errors
    /// Those of [`CachedFile::read`].
    pub fn read_telling(
        &self,
        out: &mut [u8],
        offset: u64,
        time_ns: u64,
        events: &Events<'_>,
    ) -> io::Result<usize> {
        self.file().read_telling(out, offset, time_ns, events)
    }

    /// [`CachedFile::write`].
    ///
    /// # Errors
    /// Those of [`CachedFile::write`].
    pub fn write(&self, data: &[u8], offset: u64, time_ns: u64) -> io::Result<usize> {
        self.file_to_change().write(data, offset, time_ns)
    }

    /// [`CachedFile::write_buffered`].
    ///
    /// # Errors
    /// Those of [`CachedFile::write`].
    pub fn write_buffered(&self, data: &[u8], offset: u64, time_ns: u64) -> io::Result<usize> {
        self.file_to_change().write_buffered(data, offset, time_ns)
    }

    /// [`CachedFile::flush`].
    ///
    /// # Errors
    /// Those of [`CachedFile::flush`].
    pub fn flush(&self) -> io::Result<()> {
        self.file().flush()
    }

    /// [`CachedFile::failed_flushes`], of all engines that had the file since it was attached.
    pub fn failed_flushes(&self) -> u64 {
        self.file().failed_flushes()
    }

    /// [`CachedFile::discard`].
    ///
    /// # Errors
    /// Those of [`CachedFile::discard`].
    pub fn discard<T>(&self, range: Range<u64>, change: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        self.file_to_change().discard(range, change)
    }

    /// [`CachedFile::resize`].
    ///
    /// # Errors
    /// Those of [`CachedFile::resize`].
    pub fn resize<T>(&self, size_bytes: u64, change: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        self.file_to_change().resize(size_bytes, change)
    }

    /// [`CachedFile::size_bytes`].
    pub fn size_bytes(&self) -> u64 {
        self.file().size_bytes()
    }

    /// [`CachedFile::beginning`], with the engine of now.
    pub fn beginning(&self) -> Beginning {
        self.file().beginning()
    }

    /// [`CachedFile::counts`].
    pub fn counts(&self) -> RequestCounts {
        self.file().counts()
    }
}
