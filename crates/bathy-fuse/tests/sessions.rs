//! Mounts over `/dev/fuse`. Needs root; else the tests say that they were skipped.

use std::fs;
use std::time::{Duration, Instant};

use bathy_fuse::{MountOptions, claim, mount};
use fuser::{FileHandle, Filesystem, INodeNo, ReplyAttr, Request};

/// What hangs is found by this, and nothing is measured.
const PATIENCE: Duration = Duration::from_secs(60);

/// A directory whose threads panic when they are asked what it is.
struct Broken;

impl Filesystem for Broken {
    fn getattr(&self, _request: &Request, _inode: INodeNo, _handle: Option<FileHandle>, _reply: ReplyAttr) {
        panic!("on purpose");
    }
}

#[test]
fn when_threads_of_a_session_panic_their_requests_fail_and_no_mount_is_left_half_served() {
    if !nix::unistd::geteuid().is_root() || fs::File::open("/dev/fuse").is_err() {
        eprintln!("SKIPPED: this test needs root and /dev/fuse");
        return;
    }
    // SAFETY: nothing is called: a process whose mount ends is told so by this signal.
    unsafe { libc::signal(libc::SIGUSR1, libc::SIG_IGN) };
    let directory = std::env::temp_dir().join(format!("bathy-fuse-sessions-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("a directory");
    fs::write(directory.join("plain"), "below").expect("written");
    let options = MountOptions {
        directory: directory.clone(),
        program: "bathy-fuse-test",
        threads: 4,
        real_time: false,
    };
    let claim = claim(&options).expect("nobody else serves it");
    let mounted = mount(Broken, &claim, &options, &[]).expect("mounted");
    let began = Instant::now();
    while !mounted.has_ended() {
        assert!(began.elapsed() < PATIENCE, "it is served by nobody");
        // An answer, whichever it is.
        let _failed = fs::metadata(&directory);
    }
    assert_eq!(
        fs::read(directory.join("plain")).expect("the plain directory"),
        b"below"
    );
    let error = mounted.join_for(PATIENCE).expect_err("it says why");
    assert!(error.to_string().contains("panicked"), "{error}");
    drop(claim);
    fs::remove_dir_all(directory).expect("nothing is mounted");
}
