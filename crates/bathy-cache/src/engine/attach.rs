//! How the use of a file begins and how a file is removed.
//!
//! Who attaches or removes a file has a claim to it, so that nobody else does meanwhile.

use std::io;
use std::sync::{Arc, PoisonError};

use crate::engine::cached_file::CachedFile;
use crate::engine::sample::{DEVICE_LINES, FILE_LINES};
use crate::engine::{Engine, stopped};
use crate::format::FileIdentity;
use crate::index::files::{Beginning, FileState, Files, Found};
use crate::mutant::{Mutant, is_made};
use crate::store::{BlockStore, Stamp, Trust};
use crate::sync::atomic::Ordering;
use crate::sync::{MutexGuard, lock};

/// What the stamp of a file says to who can prove, or not, that nobody else used it.
fn trust_in(store: &dyn BlockStore, is_proven: bool) -> Trust {
    if is_proven { Trust::Stamp } else { store.trust() }
}

/// Whether all changes of a file since its record was written are known, or there were none. Its bytes are durable then, or in
/// marked regions, as those of any file in use: they were durable when it got its stamp, and nobody changed them since.
fn is_as_it_was(found: &Found, now: &Stamp, trust: Trust) -> bool {
    let is_at_rest = || found.record.stamp == Some(*now) && now.has_times() && trust == Trust::Stamp;
    found.record.is_compared && (found.is_checked || is_at_rest())
}

/// The right to attach or remove a file.
struct Claim<'a> {
    engine: &'a Engine,
    identity: FileIdentity,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        lock(&self.engine.files).claimed.remove(&self.identity);
        self.engine.claim_ended.notify_all();
    }
}

impl Engine {
    /// Begins the use of a file that is kept in `store`. Who attaches a file that is in use gets the same, with the store of
    /// the first. The file must change through the cache alone until the engine stops, also while it is not attached. What is
    /// cached of a device since an earlier session is dropped: nothing says that nobody else used it.
    ///
    /// # Errors
    /// Those of the store, and `NotConnected` after the stop.
    pub fn attach(
        self: &Arc<Self>,
        identity: FileIdentity,
        store: Arc<dyn BlockStore>,
    ) -> io::Result<CachedFile> {
        self.attach_if(identity, store, false)
    }

    /// [`Engine::attach`] for a caller who can prove that nobody else changed the file since the last session: what is cached
    /// of a device is kept, if some lines of it that are compared are the same.
    ///
    /// # Errors
    /// Those of [`Engine::attach`].
    pub fn attach_unchanged(
        self: &Arc<Self>,
        identity: FileIdentity,
        store: Arc<dyn BlockStore>,
    ) -> io::Result<CachedFile> {
        self.attach_if(identity, store, true)
    }

    pub(crate) fn attach_if(
        self: &Arc<Self>,
        identity: FileIdentity,
        store: Arc<dyn BlockStore>,
        is_proven: bool,
    ) -> io::Result<CachedFile> {
        // Dropped after the file table is unlocked: that closes its descriptors.
        let _surplus;
        let files = self.unclaimed(&identity)?;
        _surplus = self.take_surplus(&files);
        let file = if let Some(file) = files.in_use(&identity) {
            file
        } else {
            let claim = self.claim(files, identity);
            self.begin_use(&claim.identity, store, is_proven)?
        };
        Ok(CachedFile::new(Arc::clone(self), file))
    }

    /// The file table, when nobody attaches or removes the file.
    fn unclaimed(&self, identity: &FileIdentity) -> io::Result<MutexGuard<'_, Files>> {
        let mut files = lock(&self.files);
        loop {
            if self.is_stopped.load(Ordering::Acquire) {
                return Err(stopped());
            }
            if !files.claimed.contains(identity) || is_made(Mutant::ClaimsAreIgnored) {
                return Ok(files);
            }
            let waited = self.claim_ended.wait(files);
            files = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Nobody else attaches or removes the file until the claim is dropped.
    fn claim(&self, mut files: MutexGuard<'_, Files>, identity: FileIdentity) -> Claim<'_> {
        files.claimed.insert(identity.clone());
        Claim {
            engine: self,
            identity,
        }
    }

    /// Waits until nobody attaches or removes a file, but those of sources that were abandoned. After [`Engine::is_stopped`] nobody
    /// begins to.
    pub(crate) fn wait_for_claims(&self) -> MutexGuard<'_, Files> {
        let is_abandoned = |files: &Files, file: &FileIdentity| {
            let source = files.sources.get(file.source());
            source.is_some_and(|source| source.is_abandoned())
        };
        let mut files = lock(&self.files);
        while !files.claimed.iter().all(|file| is_abandoned(&files, file)) {
            let waited = self.claim_ended.wait(files);
            files = waited.unwrap_or_else(PoisonError::into_inner);
        }
        files
    }

    /// Begins the use of a file that the caller has claimed.
    fn begin_use(
        &self,
        identity: &FileIdentity,
        store: Arc<dyn BlockStore>,
        is_proven: bool,
    ) -> io::Result<Arc<FileState>> {
        // Nothing is cached of a source that was abandoned, and its disk is asked for no more than a size.
        let source = lock(&self.files).source(identity.source());
        let is_bare = || self.is_bypassed() || source.is_abandoned();
        // Where there is nothing that must not be newer than the file, the file need not be durable.
        let mut is_durable = is_bare();
        let mut stamp = if is_durable {
            Stamp {
                size_bytes: store.size_bytes()?,
                ..Stamp::default()
            }
        } else {
            store.look()?
        };
        loop {
            let mut found = if is_bare() { None } else { self.find(identity)? };
            let is_known = |found: &Found| is_as_it_was(found, &stamp, trust_in(&*store, is_proven));
            // Of a new one without bytes nothing is cached that could be newer than what a power cut leaves.
            let is_known = found.as_ref().map_or(stamp.size_bytes == 0, is_known);
            if !is_durable && !is_known {
                stamp = store.stamp()?;
                is_durable = true;
            }
            // The file table is not locked while the file below is asked, whose device may take long to answer.
            let mut beginning = found.as_ref().map_or(Beginning::New, |found| {
                self.beginning_of(found, &stamp, &*store, is_proven)
            });
            let mut files = lock(&self.files);
            if self.is_stopped.load(Ordering::Acquire) {
                return Err(stopped());
            }
            // Meanwhile its slot may have been given to another file, or it is not known any more that nobody used it.
            if found.as_ref().is_some_and(|found| !files.has(found)) {
                continue;
            }
            if found.is_none() && files.is_full() && !is_bare() {
                self.make_room(&mut files);
            }
            let ssd = Some(&*self.ssd).filter(|_| !is_bare());
            let is_dropped = beginning == Beginning::Dropped;
            if is_dropped && stamp.size_bytes >= self.compared_bytes_min && ssd.is_some() {
                beginning = Beginning::Compared;
                if let Some(found) = &mut found {
                    found.record.is_compared = false;
                    found.record.stamp = Some(stamp);
                }
            }
            // Without a place in the table no record of it is written, and no mark at its first write.
            let record_is_gone_by = files.record_is_gone_by(identity).filter(|_| found.is_none());
            let (identity, found) = (identity.clone(), found.as_ref());
            let file = files.begin_use(identity, store, stamp, found, beginning, ssd.is_some());
            match (found, ssd) {
                (Some(found), Some(ssd)) if beginning == Beginning::Compared => {
                    // Before a write takes its stamp away, and a start then believes all of its lines.
                    let noted = files.put(&file, Some(stamp), ssd);
                    if noted.and_then(|()| ssd.flush()).is_err() {
                        self.enter_bypass()?;
                    }
                    drop(files);
                    // The last line of a file has bytes that lie beyond its end.
                    let beyond = stamp.size_bytes / self.line_bytes..u64::MAX;
                    self.drop_lines(found.record.number, beyond);
                    let mut uncompared = lock(&self.uncompared);
                    uncompared.retain(|(_, file)| file.strong_count() > 0);
                    uncompared.push((*file.identity.source(), Arc::downgrade(&file)));
                }
                (Some(found), Some(ssd)) if beginning == Beginning::Dropped => {
                    // The record that makes the old lines void comes first: they are the evidence by which a start after a
                    // power cut finds again that the file was changed.
                    let is_void = file.number != 0
                        && files
                            .put(&file, Some(stamp), ssd)
                            .and_then(|()| ssd.flush())
                            .is_ok();
                    if !is_void {
                        self.enter_bypass()?;
                    }
                    drop(files);
                    self.drop_lines(found.record.number, 0..u64::MAX);
                }
                // If this fails its lines are void after a power cut, and before the first write it is tried again.
                (None, Some(ssd)) => {
                    if file.number != 0 && file.may_have_record.load(Ordering::Acquire) {
                        let _later = files.put(&file, Some(stamp).filter(|_| is_durable), ssd);
                    }
                    drop(files);
                    if record_is_gone_by.is_some_and(|number| ssd.flush_up_to(number).is_err()) {
                        self.enter_bypass()?;
                    }
                }
                // It was let go before it had a record: now that it is used again it is worth one.
                (Some(_), Some(_)) if !file.may_have_record.load(Ordering::Acquire) => {
                    self.is_to_be_flushed(&file);
                }
                _ => {}
            }
            return Ok(file);
        }
    }

    /// The last user of a file leaves, who did nothing with it: of a new one that is empty still nothing stays.
    pub(crate) fn let_go_of_empty(&self, file: &Arc<FileState>) {
        if file.may_have_record.load(Ordering::Acquire) || file.len_bytes() > 0 {
            return;
        }
        let mut files = lock(&self.files);
        // Nobody gets it while the file table is locked.
        if Arc::strong_count(file) == 1 && !file.is_forgotten.load(Ordering::Acquire) {
            files.let_go_of_new(file);
            drop(files);
            if is_made(Mutant::EmptyFilesAreFound) {
                // Others come before the caller is gone.
                let _stopped = self.is_stopped.load(Ordering::Acquire);
            }
        }
    }

    /// The record of a file, if there is one.
    fn find(&self, identity: &FileIdentity) -> io::Result<Option<Found>> {
        if self.is_bypassed() {
            return Ok(None);
        }
        let files = lock(&self.files);
        // An error that passes is not worth the cache.
        let found = files
            .find(identity, &self.ssd)
            .or_else(|_| files.find(identity, &self.ssd));
        found.or_else(|_| {
            // Lines that cannot be told from those of another file must not come back.
            self.enter_bypass()?;
            Ok(None)
        })
    }

    /// How a file of an earlier session begins: dropped, if it was changed without the cache, or may have been.
    fn beginning_of(
        &self,
        found: &Found,
        stamp: &Stamp,
        store: &dyn BlockStore,
        is_proven: bool,
    ) -> Beginning {
        let trust = trust_in(store, is_proven);
        if is_as_it_was(found, stamp, trust) {
            return Beginning::Known;
        }
        match found.record.stamp {
            _ if !found.record.is_compared || trust == Trust::Nothing => return Beginning::Dropped,
            Some(at_rest) if at_rest != *stamp => return Beginning::Dropped,
            _ if !stamp.has_times() && !is_proven => return Beginning::Dropped,
            Some(_) => {}
            None if !self.was_fenced.load(Ordering::Acquire) => return Beginning::Dropped,
            None => {
                // What was beyond the end when it was cut without the cache must not be there when the file grows again.
                let first = stamp.size_bytes / self.line_bytes;
                self.drop_lines(found.record.number, first..u64::MAX);
            }
        }
        let is_file = stamp.has_times() && store.trust() == Trust::Stamp;
        let most = if is_file { FILE_LINES } else { DEVICE_LINES };
        let compared = self.compare_sample(found.record.number, stamp.size_bytes, store, most);
        compared.map_or(Beginning::Dropped, |lines| Beginning::Sampled { lines })
    }

    /// A file is about to be removed: `change` does that. Nothing that is cached of it is served to a file that has its
    /// handle later. Who has it open goes on.
    ///
    /// # Errors
    /// Those of `change`. An error of the SSD only if the generation store fails as well.
    pub fn forget<T>(
        &self,
        identity: &FileIdentity,
        change: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        let files = self.unclaimed(identity)?;
        let file = files.in_use(identity);
        let _claim = self.claim(files, identity.clone());
        let gate = file.as_ref().map(|file| file.gate.write());
        let gate = gate.map(|gate| gate.unwrap_or_else(PoisonError::into_inner));
        let mut removed = None;
        if !self.is_bypassed() {
            let files = lock(&self.files);
            let voided = files.find(identity, &self.ssd).and_then(|found| {
                let gone_by = match &found {
                    Some(found) => files.void(found, &self.ssd)?,
                    None => files.record_is_gone_by(identity),
                };
                Ok((found, gone_by))
            });
            drop(files);
            let result = voided.and_then(|(found, gone_by)| {
                gone_by.map_or(Ok(()), |number| self.ssd.flush_up_to(number))?;
                Ok(found)
            });
            match result {
                Ok(found) => removed = found,
                Err(_) => self.enter_bypass()?,
            }
        }
        // The claim keeps everybody from attaching it meanwhile; the file table is free for other files.
        let result = change();
        let mut files = lock(&self.files);
        if result.is_ok() {
            files.end_use(identity);
        }
        match (&result, &file, &removed) {
            (Err(_), Some(file), Some(_)) => files.restore(file, &self.ssd),
            (_, _, Some(found)) => files.free(found),
            // There is nothing to take back.
            _ => {}
        }
        if let (Ok(_), Some(file)) = (&result, &file) {
            file.is_forgotten.store(true, Ordering::Release);
            // Its blocks are free when its last user leaves: nothing of the engine keeps it open.
            lock(&self.unflushed).remove(&file.number);
        }
        drop(files);
        drop(gate);
        match (file, removed) {
            // Its last user left meanwhile and did not know yet that it is removed.
            (Some(file), _) if result.is_ok() && Arc::strong_count(&file) == 1 => {
                self.drop_lines(file.number, 0..u64::MAX);
            }
            (None, Some(found)) => self.drop_lines(found.record.number, 0..u64::MAX),
            _ => {}
        }
        result
    }
}
