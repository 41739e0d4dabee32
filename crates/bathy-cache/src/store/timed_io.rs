//! Reads and writes that are waited for only so long, without another thread: by `io_uring`, which costs what `pread` costs.
//!
//! Each thread has a ring of its own, in which there is what one caller waits for.

#![allow(unsafe_code)]

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::time::Instant;

use io_uring::{IoUring, opcode, squeue, types};
use smallvec::{SmallVec, smallvec};

use crate::store::aligned::Aligned;
use crate::store::guard::LOOK_PERIOD;
use crate::store::{Place, PlacesRead, Until, parts_of};

/// Operations that are under way at once: eight lines, each in four parts. Of more places these come one batch after the other.
const OPERATIONS_MAX: usize = 32;

/// Flags of `io_uring_enter`, which the library keeps to itself.
const GETEVENTS: u32 = 1 << 0;
const EXT_ARG: u32 = 1 << 3;

thread_local! {
    /// `None` where the system has no rings, or does not let us have any.
    static RING: RefCell<Option<IoUring>> = RefCell::new(new_ring());
}

fn new_ring() -> Option<IoUring> {
    let one_thread = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .build(OPERATIONS_MAX as u32);
    // Before Linux 6.1.
    let ring = one_thread.or_else(|_| IoUring::new(OPERATIONS_MAX as u32)).ok()?;
    ring.params().is_feature_ext_arg().then_some(ring)
}

/// Reads places to `bytes`, as many as possible at once, or fails with `TimedOut`, or with `NotConnected` when it is over. Gives them
/// back if another way must be taken.
pub(crate) fn read(
    file: &File,
    bytes: Aligned,
    places: &[Place],
    until: &Until<'_>,
) -> Result<io::Result<PlacesRead>, Aligned> {
    let fd = types::Fd(file.as_raw_fd());
    let entry = |bytes: &mut [u8], offset| {
        opcode::Read::new(fd, bytes.as_mut_ptr(), bytes.len() as u32)
            .offset(offset)
            .build()
    };
    carry_out(bytes, places, until, entry)
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
    let entry = |bytes: &mut [u8], offset| {
        opcode::Write::new(fd, bytes.as_ptr(), bytes.len() as u32)
            .offset(offset)
            .build()
    };
    let place = Place {
        offset,
        len: bytes.len(),
    };
    let written = carry_out(bytes, &[place], until, entry)?;
    Ok(written.and_then(|(_, ends)| ends.into_iter().collect()))
}

/// Does with the part of `bytes` of each place what `entry` makes of it and of where the place begins.
fn carry_out(
    bytes: Aligned,
    places: &[Place],
    until: &Until<'_>,
    entry: impl Fn(&mut [u8], u64) -> squeue::Entry,
) -> Result<io::Result<PlacesRead>, Aligned> {
    // What the kernel says of an operation is as long as this.
    if i32::try_from(bytes.len()).is_err() {
        return Err(bytes);
    }
    RING.with_borrow_mut(|slot| {
        let Some(ring) = slot.take() else {
            return Err(bytes);
        };
        // What the kernel may use is not freed, by a panic neither: then this thread has no ring any more.
        let (mut ring, mut bytes) = (ManuallyDrop::new(ring), ManuallyDrop::new(bytes));
        let mut counts: SmallVec<[i32; 2]> = smallvec![0; places.len()];
        let mut parts = parts_of(places);
        for counts in counts.chunks_mut(OPERATIONS_MAX) {
            for (number, (place, part)) in parts.by_ref().take(counts.len()).enumerate() {
                let entry = entry(&mut bytes[part], place.offset).user_data(number as u64);
                // SAFETY: the memory is that of `bytes`, which stays where it is: it is given back after all operations have
                // ended, and is never freed if that was not waited for. The same holds for the ring, in which the kernel would
                // note the end. Each operation has a part of it to itself, and nothing else here looks at it meanwhile.
                let pushed = unsafe { ring.submission().push(&entry) };
                pushed.expect("the ring was empty, and has room for as many");
            }
            match wait(&mut ring, counts, until) {
                Ok(()) => {}
                Err(Unended::NothingUnderWay) => {
                    drop(ManuallyDrop::into_inner(ring));
                    *slot = new_ring();
                    return Err(ManuallyDrop::into_inner(bytes));
                }
                Err(Unended::UnderWay(error)) => {
                    *slot = new_ring();
                    return Ok(Err(error));
                }
            }
        }
        *slot = Some(ManuallyDrop::into_inner(ring));
        let bytes = ManuallyDrop::into_inner(bytes);
        // A part of it: whoever comes next does all of it again.
        if (counts.iter().zip(places)).any(|(&count, place)| count >= 0 && count != place.len as i32) {
            return Err(bytes);
        }
        let end = |count: i32| {
            (count >= 0)
                .then_some(())
                .ok_or_else(|| io::Error::from_raw_os_error(-count))
        };
        let ends = counts.into_iter().map(end).collect();
        Ok(Ok((bytes, ends)))
    })
}

/// Why operations have not all ended.
enum Unended {
    /// The kernel is short of something for now: it has not taken those that are left, and the others have ended.
    NothingUnderWay,
    /// Some may be.
    UnderWay(io::Error),
}

/// Waits until all that was pushed has ended, and notes what the kernel says of each.
fn wait(ring: &mut IoUring, counts: &mut [i32], until: &Until<'_>) -> Result<(), Unended> {
    let mut end = Instant::now() + until.deadline;
    let mut not_ended = counts.len();
    let mut is_short = false;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let timeout = types::Timespec::from(left.min(LOOK_PERIOD));
        let args = types::SubmitArgs::new().timespec(&timeout);
        let not_taken = ring.submission().len();
        let submitter = ring.submitter();
        let entered = if is_short {
            let taken = (not_ended - not_taken) as u32;
            // SAFETY: nothing is handed over, and `args` is what the flags say, and lives until this returns.
            unsafe { submitter.enter(0, taken, GETEVENTS | EXT_ARG, Some(&args)) }
        } else {
            submitter.submit_with_args(not_ended, &args)
        };
        let before = not_ended;
        for done in ring.completion() {
            counts[done.user_data() as usize] = done.result();
            not_ended -= 1;
        }
        if not_ended == 0 {
            return Ok(());
        }
        let has_answered = not_ended < before;
        if has_answered {
            end = Instant::now() + until.deadline;
        }
        let not_taken = ring.submission().len();
        let error = match entered {
            _ if left.is_zero() && !has_answered => io::ErrorKind::TimedOut.into(),
            _ if (until.is_over)() => io::ErrorKind::NotConnected.into(),
            Err(error) if !is_passing(&error) && (is_short || not_taken == 0 || not_taken == not_ended) => {
                error
            }
            // Asked to take the others it would fail at once, and end none of those that it has taken.
            Err(error) if !is_passing(&error) => {
                is_short = true;
                continue;
            }
            _ if is_short && not_taken == not_ended => return Err(Unended::NothingUnderWay),
            _ => continue,
        };
        return Err(if not_taken == not_ended {
            Unended::NothingUnderWay
        } else {
            Unended::UnderWay(error)
        });
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

    fn one(offset: u64, len: usize) -> [Place; 1] {
        [Place { offset, len }]
    }

    /// A pipe that nobody writes to stands for a device that does not answer.
    #[test]
    fn a_read_that_does_not_end_is_left_alone_and_the_next_ones_work() {
        let (reader, mut writer) = io::pipe().expect("a pipe");
        let pipe = File::from(OwnedFd::from(reader));
        let soon = Until {
            deadline: Duration::from_millis(20),
            ..PATIENT
        };
        let Ok(hung) = read(&pipe, Aligned::new(8192), &[one(0, 4096)[0]; 2], &soon) else {
            eprintln!("there are no rings here");
            return;
        };
        let error = hung.err().expect("nothing was written");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let others_gave_up = Until {
            is_over: &|| true,
            ..PATIENT
        };
        let left = read(&pipe, Aligned::new(4096), &one(0, 4096), &others_gave_up)
            .ok()
            .expect("rings work");
        let error = left.err().expect("nothing was written");
        assert_eq!(error.kind(), io::ErrorKind::NotConnected);
        // The late end of the first reads must not pass for that of another.
        writer.write_all(&[7; 12_288]).expect("there is room");
        let own = File::open("/proc/self/exe").expect("the program");
        let mut expected = [0; 4096];
        std::os::unix::fs::FileExt::read_exact_at(&own, &mut expected, 8192).expect("it is longer");
        for _ in 0..10 {
            let read = read(&own, Aligned::new(4096), &one(8192, 4096), &PATIENT);
            let (bytes, _) = read.ok().expect("rings work").expect("the file works");
            assert!(bytes[..] == expected);
        }
        let beyond = read(&own, Aligned::new(4096), &one(1 << 60, 4096), &PATIENT);
        assert!(beyond.is_err() || beyond.is_ok_and(|read| read.is_ok_and(|(_, ends)| ends[0].is_err())));
    }

    /// A device that ends one operation after the other does not hang, however long all of them take.
    #[test]
    fn the_deadline_is_that_of_the_next_end() {
        const LEN: usize = 512;
        let (reader, writer) = io::pipe().expect("a pipe");
        let pipe = File::from(OwnedFd::from(reader));
        // One operation ends each time that this is asked.
        let is_over = || {
            (&writer).write_all(&[7; LEN]).expect("there is room");
            false
        };
        let until = Until {
            deadline: 10 * LOOK_PERIOD,
            is_over: &is_over,
        };
        let places = [one(0, LEN)[0]; 16];
        let begun = Instant::now();
        let Ok(read) = read(&pipe, Aligned::new(places.len() * LEN), &places, &until) else {
            eprintln!("there are no rings here");
            return;
        };
        let (bytes, ends) = read.expect("each ended soon after the one before");
        assert!(ends.iter().all(Result::is_ok) && bytes.iter().all(|&it| it == 7));
        assert!(begun.elapsed() > until.deadline);
    }

    /// A kernel that takes nothing from another thread stands for one that is short of something.
    #[test]
    fn what_was_taken_before_the_kernel_is_short_is_waited_for() {
        const LEN: usize = 512;
        let (reader, writer) = io::pipe().expect("a pipe");
        let pipe = File::from(OwnedFd::from(reader));
        let mut bytes = ManuallyDrop::new(Aligned::new(4 * LEN));
        let mut entries = (0u64..).zip(bytes.chunks_exact_mut(LEN)).map(|(number, part)| {
            let fd = types::Fd(pipe.as_raw_fd());
            let read = opcode::Read::new(fd, part.as_mut_ptr(), LEN as u32);
            read.build().user_data(number)
        });
        let Ok(mut ring) = IoUring::builder().setup_single_issuer().build(4) else {
            eprintln!("there are no rings here, or none of one thread");
            return;
        };
        let mut push = |ring: &mut IoUring, count| {
            for entry in entries.by_ref().take(count) {
                // SAFETY: `bytes` is never freed, and each operation has a part of it to itself.
                unsafe { ring.submission().push(&entry) }.expect("there is room");
            }
        };
        push(&mut ring, 2);
        ring.submit().expect("there is memory");
        push(&mut ring, 2);
        let asked = std::sync::atomic::AtomicUsize::new(0);
        let is_over = || {
            if asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 2 {
                (&writer).write_all(&[7; 2 * LEN]).expect("there is room");
            }
            false
        };
        let mut counts = [0; 4];
        let begun = Instant::now();
        let other = || {
            let until = Until {
                is_over: &is_over,
                ..PATIENT
            };
            wait(&mut ring, &mut counts, &until)
        };
        let waited = std::thread::scope(|scope| scope.spawn(other).join()).expect("no panic");
        assert!(matches!(waited, Err(Unended::NothingUnderWay)));
        assert_eq!(counts, [LEN as i32, LEN as i32, 0, 0]);
        assert!(begun.elapsed() >= LOOK_PERIOD, "it was asked all the time");
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
            read(&pipe, Aligned::new(4096), &one(0, 4096), &panics).is_ok()
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
            if let Ok(read) = read(&own, Aligned::new(4096), &one(8192, 4096), &PATIENT) {
                assert!(read.expect("the file works").0[..] == expected);
            }
        }
    }

    #[test]
    fn places_are_read_at_once_each_to_its_part_and_fail_each_by_itself() {
        let own = File::open("/proc/self/exe").expect("the program");
        let mut expected = vec![0; 1 << 20];
        std::os::unix::fs::FileExt::read_exact_at(&own, &mut expected, 0).expect("it is longer");
        // From the last one on, more than are under way at once, of different lengths.
        let mut places: Vec<Place> = (0..=3 * OPERATIONS_MAX)
            .map(|number| Place {
                offset: (expected.len() - (number + 1) * 8192) as u64,
                len: 512 * (1 + number % 16),
            })
            .collect();
        let len = |places: &[Place]| places.iter().map(|place| place.len).sum();
        let Ok(read_all) = read(&own, Aligned::new(len(&places)), &places, &PATIENT) else {
            eprintln!("there are no rings here");
            return;
        };
        let (bytes, ends) = read_all.expect("the file works");
        assert!(ends.iter().all(Result::is_ok) && ends.len() == places.len());
        for (place, part) in parts_of(&places) {
            assert!(bytes[part] == expected[place.offset as usize..][..place.len]);
        }
        // The kernel takes no such offset.
        places[OPERATIONS_MAX].offset = u64::MAX / 2;
        let read_others = read(&own, Aligned::new(len(&places)), &places, &PATIENT);
        let (bytes, ends) = read_others.ok().expect("rings work").expect("the file works");
        let failed: Vec<_> = (0..ends.len()).filter(|&it| ends[it].is_err()).collect();
        assert_eq!(failed, [OPERATIONS_MAX]);
        for (number, (place, part)) in parts_of(&places).enumerate() {
            assert!(
                number == OPERATIONS_MAX || bytes[part] == expected[place.offset as usize..][..place.len]
            );
        }
        // One that ends with the file is read by another way, and all others with it.
        places[3].offset = own.metadata().expect("a file").len() - 100;
        places[3].len = 512;
        assert!(read(&own, Aligned::new(len(&places)), &places, &PATIENT).is_err());
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
        let bytes = read(&file, Aligned::new(12_288), &one(0, 12_288), &PATIENT)
            .ok()
            .expect("rings work");
        let (bytes, _) = bytes.expect("the file works");
        assert!(bytes[..4096].iter().all(|&it| it == 0) && bytes[4096..].iter().all(|&it| it == 7));
        let other = File::open("/proc/self/exe").expect("the program");
        let refused = write(&other, Aligned::new(4096), 0, &PATIENT);
        assert!(
            refused.is_ok_and(|written| written.is_err()),
            "it is not open for writing"
        );
    }
}
