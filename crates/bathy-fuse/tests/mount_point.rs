//! Who can rename the directories on the way to a mount point leads no mount and no unmount to another place. Needs root and
//! `/dev/fuse`.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bathy_fuse::{MountOptions, claim, mount};
use fuser::Filesystem;
use nix::mount::{MntFlags, MsFlags, umount2};

const PROGRAM: &str = "bathy-point-test";
const OWN_KIND: &str = "fuse.bathy-point-test";

struct Empty;

impl Filesystem for Empty {}

/// `way/point`, which belongs to others.
struct Ways(PathBuf);

impl Ways {
    fn new() -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if !nix::unistd::geteuid().is_root() || File::open("/dev/fuse").is_err() {
            eprintln!("SKIPPED: this test needs root and /dev/fuse");
            return None;
        }
        // A process whose mount ends is told so by this signal.
        // SAFETY: nothing is called when it comes.
        unsafe { libc::signal(libc::SIGUSR1, libc::SIG_IGN) };
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let ways =
            Self(std::env::temp_dir().join(format!("bathy-point-test-{}-{number}", std::process::id())));
        ways.make("way");
        Some(ways)
    }

    fn make(&self, way: &str) {
        fs::create_dir_all(self.point(way)).expect("a directory for the test");
    }

    fn point(&self, way: &str) -> PathBuf {
        self.0.join(way).join("point")
    }

    fn rename(&self, from: &str, to: &str) {
        fs::rename(self.0.join(from), self.0.join(to)).expect("renamed");
    }

    fn options(&self) -> MountOptions {
        MountOptions {
            directory: self.point("way"),
            program: PROGRAM,
            threads: 1,
            real_time: false,
        }
    }

    fn mounts(&self, way: &str) -> Vec<String> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
        let on_it = mounts
            .lines()
            .filter(|line| line.split(' ').nth(4) == self.point(way).to_str());
        let kinds = on_it.map(|line| line.split_once(" - ").expect("a mount").1);
        kinds
            .map(|kind| kind.split(' ').next().expect("a type").to_owned())
            .collect()
    }
}

impl Drop for Ways {
    fn drop(&mut self) {
        for way in ["way", "other"] {
            while umount2(&self.point(way), MntFlags::MNT_DETACH).is_ok() {}
        }
        let _left = fs::remove_dir_all(&self.0);
    }
}

fn mount_kind(kind: &str, on: &Path, data: Option<&str>) {
    nix::mount::mount(Some(kind), on, Some(kind), MsFlags::empty(), data).expect("mounted");
}

#[test]
fn a_directory_that_was_exchanged_is_not_mounted_over() {
    let Some(ways) = Ways::new() else { return };
    let options = ways.options();
    let claimed = claim(&options).expect("nobody else serves it");
    ways.rename("way", "other");
    ways.make("way");
    let mounted = mount(Empty, &claimed, &options, &[]);
    assert!(
        mounted.is_err_and(|error| error.to_string().contains("exchanged for another directory")),
        "{:?} {:?}",
        ways.mounts("other"),
        ways.mounts("way")
    );
    assert_eq!((ways.mounts("way"), ways.mounts("other")), (vec![], vec![]));
}

#[test]
fn our_mount_goes_wherever_its_directory_was_moved_and_no_other_does() {
    let Some(ways) = Ways::new() else { return };
    let options = ways.options();
    let claimed = claim(&options).expect("nobody else serves it");
    let mounted = mount(Empty, &claimed, &options, &[]).expect("mounted");
    assert_eq!(ways.mounts("way"), [OWN_KIND]);
    ways.rename("way", "other");
    ways.make("way");
    mount_kind("tmpfs", &ways.point("way"), None);
    assert!(mounted.unmount().expect("it is there"), "nobody uses it");
    assert_eq!(
        (ways.mounts("way"), ways.mounts("other")),
        (vec!["tmpfs".to_owned()], vec![])
    );
    mounted.join_for(Duration::from_secs(60)).expect("it ends");
}

#[test]
fn a_path_with_a_symbolic_link_is_refused() {
    let Some(ways) = Ways::new() else { return };
    let options = ways.options();
    let refused = |what: &str| {
        let error = claim(&options).expect_err(what).to_string();
        assert!(error.contains("a symbolic link is on the way"), "{what}: {error}");
    };
    ways.rename("way", "other");
    symlink("other", ways.0.join("way")).expect("a link");
    refused("above the directory");
    fs::remove_file(ways.0.join("way")).expect("removed");
    fs::create_dir(ways.0.join("way")).expect("a directory");
    symlink("../other/point", ways.point("way")).expect("a link");
    refused("the directory itself");
}

#[test]
fn a_dead_mount_that_another_user_made_is_not_ours() {
    let Some(ways) = Ways::new() else { return };
    let options = ways.options();
    // As `fusermount` mounts it for a user, where /etc/fuse.conf lets them say `allow_other`.
    let dead_mount_of = |user: u32| {
        let device = File::options()
            .read(true)
            .write(true)
            .open("/dev/fuse")
            .expect("root");
        let data = format!(
            "fd={},rootmode=40755,user_id={user},group_id={user},allow_other,subtype={PROGRAM}",
            device.as_raw_fd()
        );
        mount_kind("fuse", &ways.point("way"), Some(&data));
    };
    dead_mount_of(65534);
    let error = claim(&options).expect_err("it keeps nobody out").to_string();
    assert!(error.contains("already a mount point"), "{error}");
    assert_eq!(ways.mounts("way"), [OWN_KIND]);
    umount2(&ways.point("way"), MntFlags::MNT_DETACH).expect("unmounted");
    dead_mount_of(0);
    assert!(claim(&options).expect("it is detached").had_dead_mount());
    assert_eq!(ways.mounts("way"), [""; 0]);
}
