//! A claimed source is served.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, OnceLock, PoisonError};

use bathy_cache::wait_for_moments;
use bathy_fuse::{
    Claim, DataPath, MountBelow, MountError, MountOption, MountOptions, Mounted, is_ring_offered, mount,
    mount_over_ring,
};
use nix::fcntl::{FcntlArg, fcntl};
use rustix::fs::{OFlags, StatVfsMountFlags, fstatvfs};
use rustix::io::Errno;

use super::claimed::{ClaimedSource, check_mounts_below};
use super::commands::check_size;
use super::sources::{Leaving, ServedDirectory, SourceInfo};
use super::{Service, cannot_note};
use crate::apart::apart;
use crate::cache::{FileCache, NoCache};
use crate::config::{self, AfterUnclean, Mode, Transport};
use crate::counts::FrontCounts;
use crate::devices::{Adopted, Devices, Place};
use crate::directory::Directory;
use crate::engine_cache::{Source, compare};
use crate::failure::Failure;
use crate::panics::{Containment, caught, is_on_purpose};
use crate::paths::Paths;
use crate::plaintext::{encrypted, is_encrypted, plaintext_failure};
use crate::starts::StartNumber;
use crate::tree;

/// Files of an OSD that it locks while it runs, on which whoever serves its directory has a lock as well.
const LOCKED_NAMES: [&str; 4] = ["fsid", "block", "block.db", "block.wal"];

impl Service {
    pub(super) fn serve(
        self: &Arc<Self>,
        number: StartNumber,
        claimed: ClaimedSource,
    ) -> Result<(), Failure> {
        let ClaimedSource {
            source,
            options,
            claim,
        } = claimed;
        let dir = source.dir.display().to_string();
        let failed =
            |error: &dyn std::fmt::Display, hint: &str| Failure::new(format!("{dir}: {error}"), hint);
        let unreadable = |error: &dyn std::fmt::Display| failed(error, "the directory must be readable");
        let root = tree::private_mount(claim.below()).map_err(|error| {
            failed(
                &format!("no mount of its own: {error}"),
                "Linux 5.12 and CAP_SYS_ADMIN are needed; the mount must not be unbindable",
            )
        })?;
        let place = Place::new(&root, claim.below(), &source).map_err(|error| unreadable(&error))?;
        let source = self.with_devices(source, &place);
        let configured = source.devices.clone().unwrap_or_default();
        let devices = Arc::new(Devices::open(place, &configured));
        let secret = self.kept_secret(&source, claim.below(), &devices)?;
        let locks = lock_below(&root, &devices).map_err(|(name, error)| {
            failed(
                &format!("{name} is in use by another process ({error})"),
                "stop the OSD first",
            )
        })?;
        let flags = mount_flags(claim.below()).map_err(|error| unreadable(&error))?;
        let paths =
            Paths::new(&root, claim.below(), Arc::clone(&devices)).map_err(|error| unreadable(&error))?;
        let cached = if source.mode == Mode::PassThrough {
            let forgotten = self.session().forget_source(&source.dir);
            forgotten.map_err(|error| cannot_note(&error))?;
            None
        } else {
            let cache = self.open_cache(false)?;
            let uuid = self.session().source(&source.dir);
            let uuid = uuid.map_err(|error| cannot_note(&error))?;
            let cached = Source::new(cache, uuid, &root, &source.dir).map_err(|error| unreadable(&error))?;
            let (live, uuid) = cached.in_cache();
            live.with_engine(|engine| {
                check_size(engine, source.size_bytes)?;
                if !claim.had_dead_mount() && self.config.cache.after_unclean == AfterUnclean::Cold {
                    engine.set_unfenced().map_err(|error| cannot_note(&error))?;
                }
                engine.set_mode(uuid, source.mode.in_engine());
                engine.set_size(uuid, source.size_bytes);
                Ok::<(), Failure>(())
            })?;
            Some(Arc::new(cached))
        };
        let requests = cached.as_ref().map(|cached| cached.in_cache());
        let requests = requests.map(|(live, uuid)| live.with_engine(|engine| engine.source_counts(uuid)));
        let counts = Arc::new(FrontCounts::new(requests.unwrap_or_default()));
        let files: Arc<dyn FileCache> = match &cached {
            Some(cached) => Arc::clone(cached) as Arc<dyn FileCache>,
            None => Arc::new(NoCache),
        };
        let (service, dir_of_source, in_cache) = (Arc::downgrade(self), source.dir.clone(), cached.clone());
        let containment = Arc::new(Containment::new(move || {
            if let Some(service) = service.upgrade() {
                service.distrust(&dir_of_source, in_cache.as_deref());
            }
        }));
        let directory = Directory::new(
            root,
            Arc::clone(&devices),
            files,
            Arc::clone(&counts),
            Arc::clone(&containment),
        );
        let directory = directory.map_err(|error| unreadable(&error))?;
        if let Some(cached) = &cached {
            // Without a thread for it what is not compared is not used.
            let (cached, contained) = (Arc::downgrade(cached), Arc::downgrade(&containment));
            let dir = source.dir.clone();
            apart("compare", move || compare(&cached, &dir, &contained))
                .map_err(|error| unreadable(&error))?;
        }
        // From here on no disk is waited for.
        let alone = self.running()?;
        if !self.lock().starting.iter().any(|one| one.number == number) {
            let problem = format!("{dir}: it was stopped before it was served");
            return Err(Failure::new(problem, "start it again"));
        }
        let in_use = Arc::new(directory.status());
        // Another daemon may have mounted below since the claim.
        if !is_on_purpose("find mounts below", &source.dir) {
            check_mounts_below(&source, &claim)?;
        }
        if let Some((live, uuid)) = cached.as_ref().map(|cached| cached.in_cache()) {
            // Not since it was unmounted, if it was served before.
            live.engine().set_stamped(uuid, true);
        }
        let transport = self.config.transport;
        let (transport, mounted) =
            mount_over(transport, directory, &claim, &options, &flags).map_err(|error| {
                if transport == Transport::Ring {
                    failed(
                        &format!("io_uring: {error}"),
                        "Linux 6.14 with fuse.enable_uring=1, or \"transport\": \"auto\"",
                    )
                } else {
                    failed(&error, "FUSE must be available: modprobe fuse")
                }
            })?;
        let checked = check_mounts_below(&source, &claim);
        let one = ServedDirectory {
            info: Arc::new(SourceInfo {
                source,
                cached,
                counts,
                devices,
                secret,
                paths: Arc::new(paths),
                in_use,
                containment,
                transport,
                is_served: true,
            }),
            mounted,
            cut_off: OnceLock::new(),
            _locks: locks,
        };
        // Or just now. If it mounts from now on, its path does not lead to its mount, and it is refused there.
        let of_users = match checked {
            Ok(of_users) => of_users,
            Err(failure) => {
                if let Err(error) = self.withdraw(alone, one) {
                    eprintln!("bathyd: {error}");
                }
                return Err(failure);
            }
        };
        for MountBelow { point, kind, .. } in of_users {
            let point = point.display();
            eprintln!("bathyd: {dir}: what is mounted on {point} ({kind}) is not served");
        }
        let mut state = self.lock();
        state.has_ended = false;
        state.served.push(one);
        Ok(())
    }

    /// Ends a source at once that is mounted and must not be served. Users may have opened files of it by then, so the cache takes
    /// note as of any end.
    pub(super) fn withdraw(&self, alone: MutexGuard<'_, ()>, one: ServedDirectory) -> io::Result<()> {
        one.info.set_stamped(false);
        let _detached = one.mounted.unmount();
        one.mounted.abort();
        self.lock().leaving.push(Leaving::new(&one.info));
        drop(alone);
        self.leave(one)
    }

    /// The source with its devices: those of the configuration, or, where that was written before there was a word of them,
    /// those that its links lead to now. They are written down when all of them could be looked at, so that no link is taken at
    /// its word again, and none is left out for ever because its device was away for a moment.
    pub(super) fn with_devices(&self, source: config::Source, place: &Place) -> config::Source {
        if source.devices.is_some() {
            return source;
        }
        let Adopted {
            devices: adopted,
            left_out,
            unseen,
        } = place.adopt();
        let dir = source.dir.display();
        for problem in left_out {
            eprintln!("bathyd: {dir}: NOT SERVED: {problem}\nhint: {}", place.hint());
        }
        for problem in &unseen {
            eprintln!(
                "bathyd: {dir}: NOT SERVED: {problem}; its links are not written to the configuration yet\nhint: {}",
                place.hint()
            );
        }
        let written = unseen.is_empty().then(|| {
            // Other sources are started at the same time, and the lock of the file is not waited for.
            let _alone = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
            self.config.add_devices(&source.dir, &adopted)
        });
        match written {
            None => {}
            Some(Ok(())) => {
                for (name, device) in &adopted {
                    eprintln!(
                        "bathyd: {dir}: {name} leads to {} ({}): that is written to the configuration",
                        device.path.display(),
                        device.identity
                    );
                }
            }
            Some(Err(error)) => eprintln!(
                "bathyd: {dir}: {}: what its links lead to cannot be written down ({error})",
                self.config.path.display()
            ),
        }
        config::Source {
            devices: Some(adopted),
            ..source
        }
    }

    /// After a panic in what was done for a source: nothing that is cached of it is believed any more, now and at later starts. It
    /// is served on, without the cache.
    pub(super) fn distrust(&self, dir: &Path, cached: Option<&Source>) {
        eprintln!(
            "bathyd: {}: what was done for it panicked, which is an error of bathyd: {}",
            dir.display(),
            cached.map_or("it is served on", |_| "it is served on, without the cache")
        );
        if let Some(cached) = cached {
            self.disown(dir, cached);
        }
    }

    /// No start will find what is cached of a source, and this process uses it no more.
    pub(super) fn disown(&self, dir: &Path, cached: &Source) {
        let (live, uuid) = cached.in_cache();
        let forgotten = self.session().forget_source(dir);
        let distrusted = caught(|| live.with_engine(|engine| engine.distrust_source(uuid)));
        // If it panics again, more than the source is broken.
        let distrusted = distrusted.unwrap_or_else(|| live.bypass());
        if let Err(error) = forgotten.and(distrusted) {
            eprintln!("bathyd: {}: {error}", dir.display());
            self.is_unsound.store(true, Ordering::Release);
        }
    }

    /// What of a source is encrypted and must not lie on the SSD as plaintext, which this one does not do.
    ///
    /// # Errors
    /// If this one does.
    pub(super) fn kept_secret(
        &self,
        source: &config::Source,
        directory: &File,
        devices: &Devices,
    ) -> Result<Option<String>, Failure> {
        if source.mode == Mode::PassThrough || source.plaintext {
            return Ok(None);
        }
        let found = encrypted(directory, devices.known().iter().map(AsRef::as_ref));
        let cache = self.lock().cache.clone();
        let ssd = cache.map_or_else(|| self.config.cache.ssd.clone(), |cache| cache.ssd_path());
        match found {
            Some(found) if !is_encrypted(&ssd) => Err(plaintext_failure(source, &found, &ssd)),
            found => Ok(found),
        }
    }
}

/// Mounts by a transport, and says which it is.
fn mount_over(
    transport: Transport,
    directory: Directory,
    claim: &Claim,
    options: &MountOptions,
    flags: &[MountOption],
) -> Result<(&'static str, Mounted), MountError> {
    if transport == Transport::Ring || transport == Transport::Auto && is_ring_offered() {
        let data: Arc<dyn DataPath> = Arc::new(directory.clone());
        match mount_over_ring(&directory, &data, claim, options, flags) {
            Ok(mounted) => return Ok(("ring", mounted)),
            Err(error) if transport == Transport::Ring => return Err(error),
            Err(error) => {
                let dir = options.directory.display();
                eprintln!("bathyd: {dir}: served through /dev/fuse, as io_uring fails: {error}");
            }
        }
    }
    let directory = directory.in_one_session(options.threads);
    Ok(("dev", mount(directory, claim, options, flags)?))
}

/// What holds for mounts of the file system below holds for the one over it.
fn mount_flags(directory: &File) -> rustix::io::Result<Vec<MountOption>> {
    let below = fstatvfs(directory)?.f_flag;
    let choose = |flag, yes: MountOption, no: MountOption| if below.contains(flag) { yes } else { no };
    Ok(vec![
        choose(StatVfsMountFlags::NODEV, MountOption::NoDev, MountOption::Dev),
        choose(StatVfsMountFlags::NOSUID, MountOption::NoSuid, MountOption::Suid),
        choose(StatVfsMountFlags::NOEXEC, MountOption::NoExec, MountOption::Exec),
        choose(StatVfsMountFlags::RDONLY, MountOption::RO, MountOption::RW),
    ])
}

/// Locks what an OSD locks while it runs: none runs below, and none is started past the mount. A link is followed to a device
/// of the configuration alone: anybody who can write to the directory can make one.
fn lock_below(root: &OwnedFd, devices: &Devices) -> Result<Vec<File>, (&'static str, io::Error)> {
    let mut locks = Vec::new();
    for name in LOCKED_NAMES {
        let device = devices.behind_name(OsStr::new(name));
        let opened = match &device {
            // Nobody mounts it, or makes it a part of another device, while it is served.
            Some(device) if device.is_block() => match wait_for_moments(
                || device.reopen(OFlags::RDWR | OFlags::EXCL),
                |&error| error == Errno::BUSY,
            ) {
                Err(error @ Errno::BUSY) => return Err((name, error.into())),
                opened => opened,
            },
            Some(device) => device.reopen(OFlags::RDWR),
            None => tree::open_path(root, OsStr::new(name)).and_then(|file| tree::reopen(file, OFlags::RDWR)),
        };
        // What is not there, or no file, is locked by nobody.
        let Ok(file) = opened else {
            continue;
        };
        let lock = libc::flock {
            l_type: libc::F_WRLCK as i16,
            l_whence: libc::SEEK_SET as i16,
            l_start: 0,
            l_len: 0,
            l_pid: 0,
        };
        match fcntl(&file, FcntlArg::F_OFD_SETLK(&lock)) {
            Err(error @ (nix::errno::Errno::EAGAIN | nix::errno::Errno::EACCES)) => {
                return Err((name, error.into()));
            }
            // A file system without locks cannot be asked.
            _ => locks.push(file),
        }
    }
    Ok(locks)
}
