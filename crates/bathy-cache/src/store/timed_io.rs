//! Reads and writes that are waited for only so long, without another thread: by `io_uring`, which costs what `pread` costs.
//!
//! Each thread has a ring of its own with one operation in it at most.

#![allow(unsafe_code)]

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::time::Instant;

use io_uring::{IoUring, opcode, squeue, types};

use crate::store::Until;
use crate::store::aligned::Aligned;
use crate::store::guard::LOOK_PERIOD;

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

/// Fills `bytes` from `offset` on, or fails with `TimedOut`, or with `NotConnected` when it is over. Gives them back if another
/// way must be taken.
pub(crate) fn read(
    file: &File,
    bytes: Aligned,
    offset: u64,
    until: &Until<'_>,
) -> Result<io::Result<Aligned>, Aligned> {
    let fd = types::Fd(file.as_raw_fd());
    let entry = |bytes: &mut Aligned, len| {
        opcode::Read::new(fd, bytes.as_mut_ptr(), len)
            .offset(offset)
            .build()
    };
    carry_out(bytes, until, entry)
}

/// Writes `bytes` at `offset`, or fails as [`read`] does. Gives them back if another way must be taken: then nothing or a part
/// is written.
pub(crate) fn write(
    file: &File,
    bytes: Aligned,
    offset: u64,
    until: &Until<'_>,
) -> Result<io::Result<()>, Aligned> {
    let fd = types::Fd(file.as_raw_fd());
    let entry = |bytes: &mut Aligned, len| opcode::Write::new(fd, bytes.as_ptr(), len).offset(offset).build();
    carry_out(bytes, until, entry).map(|written| written.map(drop))
}

/// Does with all of `bytes` what `entry` makes of them and their length.
fn carry_out(
    bytes: Aligned,
    until: &Until<'_>,
    entry: impl FnOnce(&mut Aligned, u32) -> squeue::Entry,
) -> Result<io::Result<Aligned>, Aligned> {
    let Ok(len) = u32::try_from(bytes.len()) else {
        return Err(bytes);
    };
    RING.with_borrow_mut(|slot| {
        let Some(ring) = slot.take() else {
            return Err(bytes);
        };
        // What the kernel may use is not freed, by a panic neither: then this thread has no ring any more.
        let (mut ring, mut bytes) = (ManuallyDrop::new(ring), ManuallyDrop::new(bytes));
        let entry = entry(&mut bytes, len);
        // SAFETY: the memory is that of `bytes`, which stays where it is: it is given back after the operation has ended, and
        // is never freed if that was not waited for. The same holds for the ring, in which the kernel would note the end.
        if unsafe { ring.submission().push(&entry) }.is_err() {
            *slot = Some(ManuallyDrop::into_inner(ring));
            return Err(ManuallyDrop::into_inner(bytes));
        }
        let result = match wait(&mut ring, until) {
            Ok(result) => result,
            // The kernel is short of something for now, and has not taken it.
            Err(_) if !ring.submission().is_empty() => {
                drop(ManuallyDrop::into_inner(ring));
                *slot = new_ring();
                return Err(ManuallyDrop::into_inner(bytes));
            }
            Err(error) => {
                *slot = new_ring();
                return Ok(Err(error));
            }
        };
        *slot = Some(ManuallyDrop::into_inner(ring));
        let bytes = ManuallyDrop::into_inner(bytes);
        match result {
            count if count == len as i32 => Ok(Ok(bytes)),
            error if error < 0 => Ok(Err(io::Error::from_raw_os_error(-error))),
            // A part of it: whoever comes next does all of it again.
            _ => Err(bytes),
        }
    })
}

/// The result of the operation, as the kernel gives it. After an error it may be under way.
fn wait(ring: &mut IoUring, until: &Until<'_>) -> io::Result<i32> {
    let end = Instant::now() + until.deadline;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let timeout = types::Timespec::from(left.min(LOOK_PERIOD));
        let entered = ring
            .submitter()
            .submit_with_args(1, &types::SubmitArgs::new().timespec(&timeout));
        if let Some(done) = ring.completion().next() {
            return Ok(done.result());
        }
        match entered {
            _ if left.is_zero() => return Err(io::ErrorKind::TimedOut.into()),
            _ if (until.is_over)() => return Err(io::ErrorKind::NotConnected.into()),
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
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::time::Duration;

    use super::*;

    const PATIENT: Until<'static> = Until {
        deadline: Duration::from_secs(60),
        is_over: &|| false,
    };

    /// A pipe that nobody writes to stands for a device that does not answer.
    #[test]
    fn a_read_that_does_not_end_is_left_alone_and_the_next_ones_work() {
        let (reader, mut writer) = io::pipe().expect("a pipe");
        let pipe = File::from(OwnedFd::from(reader));
        let soon = Until {
            deadline: Duration::from_millis(20),
            ..PATIENT
        };
        let Ok(hung) = read(&pipe, Aligned::new(4096), 0, &soon) else {
            eprintln!("there are no rings here");
            return;
        };
        let error = hung.err().expect("nothing was written");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let others_gave_up = Until {
            is_over: &|| true,
            ..PATIENT
        };
        let left = read(&pipe, Aligned::new(4096), 0, &others_gave_up)
            .ok()
            .expect("rings work");
        let error = left.err().expect("nothing was written");
        assert_eq!(error.kind(), io::ErrorKind::NotConnected);
        // The late end of the first reads must not pass for that of another.
        writer.write_all(&[7; 8192]).expect("there is room");
        let own = File::open("/proc/self/exe").expect("the program");
        let mut expected = [0; 4096];
        std::os::unix::fs::FileExt::read_exact_at(&own, &mut expected, 8192).expect("it is longer");
        for _ in 0..10 {
            let read = read(&own, Aligned::new(4096), 8192, &PATIENT);
            let bytes = read.ok().expect("rings work").expect("the file works");
            assert!(bytes[..] == expected);
        }
        let beyond = read(&own, Aligned::new(4096), 1 << 60, &PATIENT);
        assert!(beyond.is_err() || beyond.is_ok_and(|read| read.is_err()));
    }

    #[test]
    fn a_panic_while_a_read_is_under_way_leaves_the_kernel_what_it_uses() {
        let (reader, mut writer) = io::pipe().expect("a pipe");
        let pipe = File::from(OwnedFd::from(reader));
        let panics = Until {
            is_over: &|| panic!("on purpose"),
            ..PATIENT
        };
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            read(&pipe, Aligned::new(4096), 0, &panics).is_ok()
        }));
        if panicked.is_ok() {
            eprintln!("there are no rings here");
            return;
        }
        writer.write_all(&[7; 4096]).expect("there is room");
        let own = File::open("/proc/self/exe").expect("the program");
        let mut expected = [0; 4096];
        std::os::unix::fs::FileExt::read_exact_at(&own, &mut expected, 8192).expect("it is longer");
        for _ in 0..10 {
            // The end of the first read must not pass for that of another.
            if let Ok(read) = read(&own, Aligned::new(4096), 8192, &PATIENT) {
                assert!(read.expect("the file works")[..] == expected);
            }
        }
    }

    #[test]
    fn what_is_written_is_read_back_and_an_error_is_one() {
        let path = std::env::temp_dir().join(format!("bathy-timed-io-{}", std::process::id()));
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path);
        let file = file.expect("the directory is writable");
        std::fs::remove_file(&path).expect("it is there");
        let mut bytes = Aligned::new(8192);
        bytes.fill(7);
        let Ok(written) = write(&file, bytes, 4096, &PATIENT) else {
            eprintln!("there are no rings here");
            return;
        };
        written.expect("there is room");
        let bytes = read(&file, Aligned::new(12_288), 0, &PATIENT)
            .ok()
            .expect("rings work");
        let bytes = bytes.expect("the file works");
        assert!(bytes[..4096].iter().all(|&it| it == 0) && bytes[4096..].iter().all(|&it| it == 7));
        let other = File::open("/proc/self/exe").expect("the program");
        let refused = write(&other, Aligned::new(4096), 0, &PATIENT);
        assert!(
            refused.is_ok_and(|written| written.is_err()),
            "it is not open for writing"
        );
    }
}
