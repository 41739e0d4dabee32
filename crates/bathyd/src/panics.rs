//! A panic is an error of bathyd itself. It ends what it happens in, and what that was done for is trusted no more; all else
//! goes on.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::OnceLock;
#[cfg(test)]
use std::sync::PoisonError;

use rustix::io::Errno;

/// Does something: `None` after a panic, of which the log has the place.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Option<T> {
    // What it left in locks and atomic numbers is for the caller to judge.
    catch_unwind(AssertUnwindSafe(work)).ok()
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
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bathy_cache::Events;

    use super::*;
    use crate::cache::{CachedFile, Change, FileCache};
    use crate::directory::tests::{Served, THREADS, is_skipped};
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
}
