//! Threads with descriptors of their own read and write the same bytes through the mount at once: what each saw is as if one
//! request had been carried out after the other. `bathy-cache` has the tests of the search itself.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicU64;
use std::thread;

use crate::daemon::{Place, Random, is_skipped, operations};
use crate::history::{CELL, History, Request, check, record};

const THREADS: u64 = 4;
const REQUESTS_IN_PART: u64 = 500;
const FILE_BYTES: u64 = 2 << 20;

#[test]
fn what_threads_see_through_the_mount_is_as_if_one_request_came_after_the_other() {
    if is_skipped() {
        return;
    }
    for mode in ["write-through", "write-around", "read-only"] {
        let place = Place::new();
        // Room for half of the lines of a file.
        place.ssd(2 << 20);
        let daemon = place.start(&place.adaptive(mode));
        let mut seen = 0;
        for part in 0..operations(12_000) / (THREADS * REQUESTS_IN_PART * 3) {
            let path = place.dir().join(format!("f{part}"));
            let made = File::create(&path).expect("a file");
            made.set_len(FILE_BYTES).expect("a size");
            let clock = AtomicU64::new(0);
            let histories: Vec<History> = thread::scope(|scope| {
                let run = |thread| {
                    let (path, clock) = (&path, &clock);
                    move || {
                        let mut options = File::options();
                        let file = options.read(true).write(true).open(path).expect("the file");
                        let mut random = Random::new(part << 8 | thread);
                        let mut carry_out = |request: Request<'_>, offset| match request {
                            Request::Read(out) => file.read_exact_at(out, offset).expect("read"),
                            Request::Write(data) => file.write_all_at(data, offset).expect("written"),
                        };
                        let cells = FILE_BYTES / CELL as u64;
                        let mut below = |end| random.below(end);
                        record(
                            clock,
                            thread,
                            REQUESTS_IN_PART,
                            cells,
                            &mut below,
                            true,
                            &mut carry_out,
                        )
                    }
                };
                let running: Vec<_> = (0..THREADS).map(|thread| scope.spawn(run(thread))).collect();
                running
                    .into_iter()
                    .map(|it| it.join().expect("no request fails"))
                    .collect()
            });
            seen += check(&histories);
            std::fs::remove_file(&path).expect("removed");
        }
        let engine = daemon.status()["cache"]["engine"].clone();
        assert!(engine["reads"]["requests_hit"].as_u64() > Some(0), "{engine}");
        assert!(engine["evictions"].as_u64() > Some(0), "{engine}");
        eprintln!("{mode}: {seen} operations on cells");
        daemon.stop();
    }
}
