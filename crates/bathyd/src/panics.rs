//! A panic is an error of bathyd itself. It ends what it happens in, and what that was done for is trusted no more; all else
//! goes on.
//!
//! Who answers requests catches what panics in them. Around that are libraries, as `fuser`, in whose threads it is done: a panic there ends
//! the thread, and is told to the source whose requests the thread answered by a hook ([`note_uncaught`]), before the request gets its error.

use std::cell::{Cell, RefCell};
use std::io;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::path::Path;
#[cfg(test)]
use std::sync::PoisonError;
use std::sync::{Arc, Once, OnceLock, Weak};
use std::thread;

use rustix::io::Errno;

thread_local! {
    /// In how many of [`caught`] this thread is.
    static CAUGHT: Cell<u32> = const { Cell::new(0) };
    /// Whose requests it answers.
    static SERVED: RefCell<Weak<Containment>> = const { RefCell::new(Weak::new()) };
}

/// Does something: `None` after a panic, of which the log has the place.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Option<T> {
    CAUGHT.set(CAUGHT.get() + 1);
    // What it left in locks and atomic numbers is for the caller to judge.
    let done = catch_unwind(AssertUnwindSafe(work)).ok();
    CAUGHT.set(CAUGHT.get() - 1);
    done
}

/// From now on a panic beside what is [`caught`] distrusts the source whose requests its thread answers.
pub(crate) fn note_uncaught() {
    static BEGUN: Once = Once::new();
    BEGUN.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            before(panic);
            let served = SERVED.try_with(|served| served.try_borrow().ok().and_then(|it| it.upgrade()));
            let Some(served) = served.ok().flatten().filter(|_| CAUGHT.get() == 0) else {
                return;
            };
            // A panic within a hook would end the process. This thread has no lock that is needed for it.
            let noted = thread::Builder::new().name("distrust".to_owned());
            if let Ok(noted) = noted.spawn(move || served.note_panic()) {
                let _logged = noted.join();
            }
        }));
    });
}

/// Where a test makes a panic or another failure: in what is done for a directory, or for the cache of a state directory.
#[cfg(test)]
pub(crate) static ON_PURPOSE: std::sync::Mutex<Vec<(&str, std::path::PathBuf)>> =
    std::sync::Mutex::new(Vec::new());

/// Panics if a test wants it. Once for each time that it does.
#[inline]
pub(crate) fn perhaps(what: &str, of: &Path) {
    assert!(!is_on_purpose(what, of), "on purpose: {what}");
}

/// Whether a test wants this to fail. Once for each time that it does.
#[cfg(test)]
pub(crate) fn is_on_purpose(what: &str, of: &Path) -> bool {
    let mut all = ON_PURPOSE.lock().unwrap_or_else(PoisonError::into_inner);
    let place = all.iter().position(|(other, dir)| *other == what && dir == of);
    place.map(|place| all.swap_remove(place)).is_some()
}

/// Whether a test wants this to fail: there is none.
#[cfg(not(test))]
pub(crate) const fn is_on_purpose(_: &str, _: &Path) -> bool {
    false
}

/// What is done for a source, its requests above all: what of it panics fails alone.
pub(crate) struct Containment {
    distrust: Box<dyn Fn() + Send + Sync>,
    has_panicked: OnceLock<()>,
}

impl Containment {
    /// `distrust` is called after the first panic, before the request is answered.
    pub(crate) fn new(distrust: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            distrust: Box::new(distrust),
            has_panicked: OnceLock::new(),
        }
    }

    /// This thread answers requests of the source, and of no other.
    pub(crate) fn is_served_here(self: &Arc<Self>) {
        SERVED.with_borrow_mut(|served| {
            if served.strong_count() == 0 {
                *served = Arc::downgrade(self);
            }
        });
    }

    /// Does what a request asks for.
    ///
    /// # Errors
    /// Those of `work`; `EIO` after a panic.
    pub(crate) fn contain<T>(&self, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        caught(work).unwrap_or_else(|| {
            self.note_panic();
            Err(Errno::IO.into())
        })
    }

    /// Something that was done for the source panicked.
    pub(crate) fn note_panic(&self) {
        // Others that panic at the same time wait for it.
        self.has_panicked.get_or_init(|| {
            let _logged = caught(&self.distrust);
        });
    }

    /// Whether something panicked.
    pub(crate) fn has_panicked(&self) -> bool {
        self.has_panicked.get().is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::FileExt;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use bathy_cache::Events;
    use bathy_fuse::{claim, mount};
    use fuser::{FileHandle, Filesystem, INodeNo, ReplyAttr, Request};

    use super::*;
    use crate::cache::{CachedFile, Change, FileCache};
    use crate::directory::tests::{Served, THREADS, is_skipped, options};
    use crate::identity::FileIdentity;
    use crate::inodes::Inode;

    /// A cache that has an error: it panics wherever a file is used, apart from reads of its first byte and of its end, and after
    /// the answer to those of its third; and it says of reads of its fourth that it read more than was asked for.
    struct Broken;

    impl FileCache for Broken {
        fn attach(&self, _inode: &Inode) -> io::Result<Option<Arc<dyn CachedFile>>> {
            Ok(Some(Arc::new(Broken)))
        }

        fn forget(&self, _identity: &FileIdentity, _change: Change<'_>) -> io::Result<()> {
            panic!("on purpose")
        }
    }

    impl CachedFile for Broken {
        fn holds(&self, _offset: u64, _length: usize) -> bool {
            false
        }

        fn read(&self, buffer: &mut [u8], offset: u64, events: &Events<'_>) -> io::Result<usize> {
            buffer[0] = 7;
            if offset == 2 {
                (events.served)(&buffer[..1]);
            }
            if offset == 3 {
                return Ok(buffer.len() + 1);
            }
            assert_eq!(offset, 0, "on purpose");
            Ok(1)
        }

        fn write(&self, _data: &[u8], _offset: u64, _is_buffered: bool) -> io::Result<usize> {
            panic!("on purpose")
        }

        fn flush(&self) -> io::Result<()> {
            panic!("on purpose")
        }

        fn failed_flushes(&self) -> u64 {
            0
        }

        fn discard(&self, _offset: u64, _length: u64, _change: Change<'_>) -> io::Result<()> {
            panic!("on purpose")
        }

        fn resize(&self, _length: u64, _change: Change<'_>) -> io::Result<()> {
            panic!("on purpose")
        }
    }

    #[test]
    fn a_request_that_panics_fails_and_all_others_are_answered() {
        if is_skipped() {
            return;
        }
        let dir = std::env::temp_dir().join(format!("bathyd-panics-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a directory");
        fs::write(dir.join("file"), "two bytes and more").expect("written");
        let panics = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&panics);
        let containment = Arc::new(Containment::new(move || {
            counted.fetch_add(1, Ordering::SeqCst);
        }));
        let served = Served::new(&dir, Arc::new(Broken), Arc::clone(&containment));
        let path = dir.join("file");
        let mut file = fs::File::options()
            .read(true)
            .write(true)
            .open(&path)
            .expect("opened");
        assert!(!containment.has_panicked());
        // More often than there are threads.
        for _ in 0..2 * THREADS {
            let failures = [
                file.read_at(&mut [0], 1).err(),
                // What panics is the answer.
                file.read_at(&mut [0], 3).err(),
                file.write(b"it").err(),
                file.sync_all().err(),
                file.set_len(0).err(),
                fs::remove_file(&path).err(),
            ];
            for failure in failures {
                let code = failure.and_then(|error| error.raw_os_error());
                assert_eq!(code, Some(libc::EIO));
            }
            // What comes after the answer fails nobody's request.
            for offset in [0, 2] {
                let mut byte = [0];
                assert_eq!(file.read_at(&mut byte, offset).expect("read"), 1);
                assert_eq!(byte, [7]);
            }
        }
        assert_eq!(panics.load(Ordering::SeqCst), 1, "it is distrusted once");
        assert!(containment.has_panicked() && !served.mounted.has_ended());
        drop(file);
        served.end();
        assert_eq!(fs::read(&path).expect("read"), b"two bytes and more");
        fs::remove_dir_all(dir).expect("removed");
    }

    /// Its requests panic beside what is caught, as if `fuser` did.
    struct Beside(Arc<Containment>, Arc<AtomicBool>);

    impl Filesystem for Beside {
        fn getattr(&self, _: &Request, _: INodeNo, _: Option<FileHandle>, _reply: ReplyAttr) {
            self.0.is_served_here();
            assert!(caught(|| panic!("on purpose")).is_none());
            self.1.store(self.0.has_panicked(), Ordering::SeqCst);
            panic!("on purpose, and not caught");
        }
    }

    #[test]
    fn a_panic_in_a_thread_of_a_session_beside_its_request_distrusts_its_source_before_the_request_fails() {
        if is_skipped() {
            return;
        }
        note_uncaught();
        let dir = std::env::temp_dir().join(format!("bathyd-beside-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a directory");
        let [own, other] = [(); 2].map(|()| Arc::new(Containment::new(|| {})));
        let served = Served::new(&dir, Arc::new(Broken), Arc::clone(&other));
        fs::metadata(&dir).expect("it is served");
        served.end();
        let claim = claim(&options(&dir)).expect("nobody else serves it");
        let is_noted = Arc::new(AtomicBool::new(true));
        let beside = Beside(Arc::clone(&own), Arc::clone(&is_noted));
        let mounted = mount(beside, &claim, &options(&dir), &[]).expect("mounted");
        assert!(fs::metadata(&dir).is_err());
        assert!(own.has_panicked() && !other.has_panicked());
        assert!(
            !is_noted.load(Ordering::SeqCst),
            "what is caught is judged by who catches it"
        );
        mounted.abort();
        let _ended_by_a_panic = mounted.join_for(std::time::Duration::from_secs(60));
        drop(claim);
        fs::remove_dir_all(dir).expect("nothing is mounted");
    }
}
