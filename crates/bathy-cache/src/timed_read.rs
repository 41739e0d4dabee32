//! A read that is waited for only so long, without another thread: by `io_uring`, which costs what `pread` costs.
//!
//! Each thread has a ring of its own with one read in it at most.

#![allow(unsafe_code)]

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::mem::forget;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use io_uring::{IoUring, opcode, types};

use crate::aligned::Aligned;

thread_local! {
    /// `None` where the system has no rings, or does not let us have any.
    static RING: RefCell<Option<IoUring>> = RefCell::new(new_ring());
}

fn new_ring() -> Option<IoUring> {
    let one_thread = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .build(1);
    // Before Linux 6.1.
    let ring = one_thread.or_else(|_| IoUring::new(1)).ok()?;
    ring.params().is_feature_ext_arg().then_some(ring)
}

/// Fills `bytes` from `offset` on, or fails with `TimedOut`. `None` if another way must be taken.
pub(crate) fn read(
    file: &File,
    mut bytes: Aligned,
    offset: u64,
    deadline: Duration,
) -> Option<io::Result<Aligned>> {
    RING.with_borrow_mut(|slot| {
        let ring = slot.as_mut()?;
        let len = u32::try_from(bytes.len()).ok()?;
        let read = opcode::Read::new(types::Fd(file.as_raw_fd()), bytes.as_mut_ptr(), len);
        // SAFETY: the memory is that of `bytes`, which stays where it is: it is given back after the read has ended, and is
        // never freed if that was not waited for. The same holds for the ring, in which the kernel would note the end.
        unsafe { ring.submission().push(&read.offset(offset).build()) }.ok()?;
        match wait(ring, deadline) {
            Ok(count) if count == len as i32 => Some(Ok(bytes)),
            Ok(error) if error < 0 => Some(Err(io::Error::from_raw_os_error(-error))),
            // A part of it: whoever comes next asks for the rest.
            Ok(_) => None,
            Err(error) => {
                forget((slot.take(), bytes));
                *slot = new_ring();
                Some(Err(error))
            }
        }
    })
}

/// The result of the read, as the kernel gives it. After an error the read may be under way.
fn wait(ring: &mut IoUring, deadline: Duration) -> io::Result<i32> {
    let end = Instant::now() + deadline;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let timeout = types::Timespec::from(left);
        let entered = ring
            .submitter()
            .submit_with_args(1, &types::SubmitArgs::new().timespec(&timeout));
        if let Some(done) = ring.completion().next() {
            return Ok(done.result());
        }
        match entered {
            _ if left.is_zero() => return Err(io::ErrorKind::TimedOut.into()),
            Err(error) if !is_passing(&error) => return Err(error),
            _ => {}
        }
    }
}

/// A signal, or the end of the time.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::TimedOut)
        || error.raw_os_error() == Some(nix::libc::ETIME)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::OwnedFd;

    use super::*;

    /// A pipe that nobody writes to stands for a device that does not answer.
    #[test]
    fn a_read_that_does_not_end_is_left_alone_and_the_next_ones_work() {
        let (reader, mut writer) = io::pipe().expect("a pipe");
        let pipe = File::from(OwnedFd::from(reader));
        let Some(hung) = read(&pipe, Aligned::new(4096), 0, Duration::from_millis(20)) else {
            eprintln!("there are no rings here");
            return;
        };
        let error = hung.err().expect("nothing was written");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        // The late end of the first read must not pass for that of another.
        writer.write_all(&[7; 4096]).expect("there is room");
        let own = File::open("/proc/self/exe").expect("the program");
        let mut expected = [0; 4096];
        std::os::unix::fs::FileExt::read_exact_at(&own, &mut expected, 8192).expect("it is longer");
        for _ in 0..10 {
            let read = read(&own, Aligned::new(4096), 8192, Duration::from_secs(60));
            let bytes = read.expect("rings work").expect("the file works");
            assert!(bytes[..] == expected);
        }
        let beyond = read(&own, Aligned::new(4096), 1 << 60, Duration::from_secs(60));
        assert!(beyond.is_none_or(|read| read.is_err()));
    }
}
