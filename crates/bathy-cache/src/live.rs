//! A cache that leaves its SSD and takes another one while files are in use.
//!
//! Each SSD has an [`Engine`] of its own, and where there is none an engine without a cache passes all on. A switch waits for
//! the requests that are under way, gives each file to the next engine, and lets the requests that came meanwhile go there.
//! So a file has one engine at a time. Before a file is given away the SSD is void and no more written to: what was left
//! on it is never believed, and an SSD that comes back is empty.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, PoisonError, Weak};

use crate::cached_file::CachedFile;
use crate::engine::{Engine, Options, lock, stopped};
use crate::files::{FileIdentity, FileState};
use crate::open::{CreateError, CreateOptions, OpenError, Opened, Recovery, create, open, without_ssd};
use crate::stats::RequestCounts;
use crate::store::BlockStore;
use crate::sync::atomic::Ordering;
use crate::sync::{Mutex, RwLock, RwLockReadGuard};
use crate::witness::{Witness, void};

/// Why an SSD was not taken.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// It cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It cannot be made a cache.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// There is no SSD whose size could be changed.
    #[error("the cache has no SSD, or one that does not answer")]
    NoSsd,
    /// The old SSD could not be left, or a file could not be made durable, which is then served as before.
    #[error("the files cannot be given to another SSD: {0}")]
    Switch(#[from] io::Error),
}

/// See the [module](self). Nothing that is passed to it to be called may use it.
pub struct LiveCache {
    witness: Arc<dyn Witness>,
    options: Options,
    /// Locked by who switches.
    switching: Mutex<()>,
    current: RwLock<Current>,
    handles: Mutex<Vec<Weak<LiveFile>>>,
}

struct Current {
    engine: Arc<Engine>,
    ssd: Option<Arc<dyn BlockStore>>,
    /// Serves files without a cache. Files that were removed go there, as their handles may be others' by now.
    bare: Arc<Engine>,
    /// Such files so far.
    removed: u64,
}

/// A file in use of a [`LiveCache`]: as [`CachedFile`].
pub struct LiveFile {
    identity: FileIdentity,
    store: Arc<dyn BlockStore>,
    is_proven: bool,
    file: RwLock<CachedFile>,
}

impl LiveCache {
    /// Over an engine with its SSD, or without one for now.
    pub fn new(
        engine: Option<(Arc<Engine>, Arc<dyn BlockStore>)>,
        witness: Arc<dyn Witness>,
        options: Options,
    ) -> Self {
        let bare = Arc::new(without_ssd(Arc::clone(&witness), &options));
        let (engine, ssd) = match engine {
            Some((engine, ssd)) => (engine, Some(ssd)),
            None => (Arc::clone(&bare), None),
        };
        Self {
            witness,
            options,
            switching: Mutex::new(()),
            current: RwLock::new(Current {
                engine,
                ssd,
                bare,
                removed: 0,
            }),
            handles: Mutex::default(),
        }
    }

    fn current(&self) -> RwLockReadGuard<'_, Current> {
        self.current.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The engine of now, for questions. Who keeps it keeps its SSD in use.
    pub fn engine(&self) -> Arc<Engine> {
        Arc::clone(&self.current().engine)
    }

    /// Whether there is an SSD.
    pub fn has_ssd(&self) -> bool {
        self.current().ssd.is_some()
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
        let current = self.current();
        let file = current
            .engine
            .attach_if(identity.clone(), Arc::clone(&store), is_proven)?;
        let handle = Arc::new(LiveFile {
            identity,
            store,
            is_proven,
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
        self.current().engine.forget(identity, change)
    }

    /// [`Engine::tidy`].
    pub fn tidy(&self) -> bool {
        self.current().engine.tidy()
    }

    /// [`Engine::bypass`]: the SSD is void and stays in use.
    ///
    /// # Errors
    /// Those of the witness.
    pub fn bypass(&self) -> io::Result<()> {
        self.current().engine.bypass()
    }

    /// [`Engine::stop`].
    ///
    /// # Errors
    /// Those of [`Engine::stop`].
    pub fn stop(&self) -> io::Result<bool> {
        let _alone = lock(&self.switching);
        self.current().engine.stop()
    }

    /// Leaves the SSD: all files are served without a cache, and what the SSD has is void. It can be taken out when this
    /// returns, and when nobody has its [`LiveCache::engine`] any more.
    ///
    /// # Errors
    /// Those of the witness: nothing has changed then. Those of a file that cannot be made durable: the SSD is void and not
    /// used, but still held.
    pub fn detach_ssd(&self) -> io::Result<()> {
        let _alone = lock(&self.switching);
        self.leave_ssd().map(drop)
    }

    fn leave_ssd(&self) -> io::Result<Option<Arc<dyn BlockStore>>> {
        let engine = self.engine();
        engine.bypass()?;
        engine.ssd.close();
        let bare = Arc::clone(&self.current().bare);
        self.switch(bare, None)
    }

    /// Takes an SSD, which begins empty. One that is in use is left before.
    ///
    /// # Errors
    /// If it cannot be opened, or a file cannot be made durable.
    pub fn attach_ssd(&self, ssd: Arc<dyn BlockStore>) -> Result<Recovery, AttachError> {
        let _alone = lock(&self.switching);
        self.leave_ssd()?;
        self.take_ssd(ssd)
    }

    fn take_ssd(&self, ssd: Arc<dyn BlockStore>) -> Result<Recovery, AttachError> {
        // Files were changed without it since it was used last, whichever SSD it is.
        void(&*self.witness)?;
        let Opened { engine, recovery } = open(Arc::clone(&ssd), Arc::clone(&self.witness), &self.options)?;
        if let Err(error) = self.switch(Arc::clone(&engine), Some(ssd)) {
            engine.bypass()?;
            return Err(error.into());
        }
        Ok(recovery)
    }

    /// Makes the SSD a cache anew, of another size or with other options: it begins empty.
    ///
    /// # Errors
    /// If there is no SSD that answers, or it is too small for that, nothing has changed; else the files are served without
    /// a cache.
    pub fn recreate(&self, options: &CreateOptions) -> Result<Recovery, AttachError> {
        let _alone = lock(&self.switching);
        let engine = self.engine();
        let ssd = self.current().ssd.clone();
        let ssd = ssd
            .filter(|_| !engine.ssd.is_given_up())
            .ok_or(AttachError::NoSsd)?;
        options.geometry(engine.ssd.size_bytes().map_err(CreateError::Io)?)?;
        drop(engine);
        self.leave_ssd()?;
        create(Arc::clone(&ssd), &*self.witness, options)?;
        self.take_ssd(ssd)
    }

    /// Gives all files to an engine, or none. Returns the SSD before.
    fn switch(
        &self,
        engine: Arc<Engine>,
        ssd: Option<Arc<dyn BlockStore>>,
    ) -> io::Result<Option<Arc<dyn BlockStore>>> {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if current.engine.is_stopped.load(Ordering::Acquire) {
            return Err(stopped());
        }
        let handles: Vec<Arc<LiveFile>> = lock(&self.handles).iter().filter_map(Weak::upgrade).collect();
        // From here on no request is under way.
        let mut files: Vec<_> = handles
            .iter()
            .map(|handle| handle.file.write().unwrap_or_else(PoisonError::into_inner))
            .collect();
        let mut removed: HashMap<*const FileState, FileIdentity> = HashMap::new();
        let mut given = Vec::new();
        for (handle, file) in handles.iter().zip(&files) {
            let state = file.state();
            let next = if state.is_forgotten.load(Ordering::Acquire) {
                let identity = removed.entry(Arc::as_ptr(state)).or_insert_with(|| {
                    current.removed += 1;
                    FileIdentity::unnamed(*handle.identity.source(), current.removed)
                });
                let store = Arc::clone(&state.store);
                let next = current.bare.attach_if(identity.clone(), store, false)?;
                next.state().is_forgotten.store(true, Ordering::Release);
                next
            } else {
                engine.attach_if(
                    handle.identity.clone(),
                    Arc::clone(&handle.store),
                    handle.is_proven,
                )?
            };
            given.push(next);
        }
        for (file, next) in files.iter_mut().zip(given) {
            let kept = lock(&file.state().flush_error).take();
            if kept.is_some() {
                *lock(&next.state().flush_error) = kept;
            }
            **file = next;
        }
        current.engine = engine;
        Ok(std::mem::replace(&mut current.ssd, ssd))
    }
}

impl LiveFile {
    fn file(&self) -> RwLockReadGuard<'_, CachedFile> {
        self.file.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// [`CachedFile::read`].
    ///
    /// # Errors
    /// Those of [`CachedFile::read`].
    pub fn read(&self, out: &mut [u8], offset: u64, time_ns: u64) -> io::Result<usize> {
        self.file().read(out, offset, time_ns)
    }

    /// [`CachedFile::write`].
    ///
    /// # Errors
    /// Those of [`CachedFile::write`].
    pub fn write(&self, data: &[u8], offset: u64, time_ns: u64) -> io::Result<()> {
        self.file().write(data, offset, time_ns)
    }

    /// [`CachedFile::flush`].
    ///
    /// # Errors
    /// Those of [`CachedFile::flush`].
    pub fn flush(&self) -> io::Result<()> {
        self.file().flush()
    }

    /// [`CachedFile::discard`].
    ///
    /// # Errors
    /// Those of [`CachedFile::discard`].
    pub fn discard<T>(&self, range: Range<u64>, change: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        self.file().discard(range, change)
    }

    /// [`CachedFile::resize`].
    ///
    /// # Errors
    /// Those of [`CachedFile::resize`].
    pub fn resize<T>(&self, size_bytes: u64, change: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        self.file().resize(size_bytes, change)
    }

    /// [`CachedFile::size_bytes`].
    pub fn size_bytes(&self) -> u64 {
        self.file().size_bytes()
    }

    /// [`CachedFile::counts`], since the last SSD was taken or left.
    pub fn counts(&self) -> RequestCounts {
        self.file().counts()
    }
}
