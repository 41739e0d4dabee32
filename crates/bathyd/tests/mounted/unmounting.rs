//! Whenever the mount goes, the directory is plain and complete.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileExt, PermissionsExt};

use nix::mount::{MntFlags, umount2};
use nix::sys::signal::Signal;

use crate::daemon::{Place, is_mounted, is_skipped};

#[test]
fn a_killed_daemon_leaves_the_plain_directory_and_the_next_takes_over() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    let config = place.config("pass-through");
    for round in 0..5 {
        let daemon = place.start(&config);
        let file = File::create(place.dir().join(format!("f{round}"))).expect("a file");
        for block in 0..=round {
            let written = file.write_all_at(&[b'x'; 4096], block * 4096);
            written.expect("written");
        }
        daemon.kill();
        let ask = || {
            fs::metadata(place.dir())
                .map(|it| it.len())
                .map_err(|error| error.raw_os_error())
        };
        let mut asked = ask();
        // What is asked while the kernel takes a ring down is broken off or cancelled.
        while [libc::ECONNABORTED, libc::ECANCELED]
            .map(|it| Err(Some(it)))
            .contains(&asked)
        {
            asked = ask();
        }
        assert_eq!(asked, Err(Some(libc::ENOTCONN)));
        if round % 2 == 0 {
            umount2(&place.dir(), MntFlags::MNT_DETACH).expect("unmounted");
            for earlier in 0..=round {
                let bytes = fs::read(place.dir().join(format!("f{earlier}"))).expect("a file");
                assert_eq!(bytes.len() as u64, (earlier + 1) * 4096);
            }
        }
        // Else the next daemon finds the dead mount.
    }
    place.start(&config).stop();
}

#[test]
fn an_unmount_from_outside_ends_the_daemon() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    let mut daemon = place.start(&place.config("pass-through"));
    fs::write(place.dir().join("a"), "bytes").expect("written");
    umount2(&place.dir(), MntFlags::empty()).expect("unmounted");
    assert_eq!(daemon.wait(), Some(0));
    assert_eq!(fs::read_to_string(place.dir().join("a")).expect("read"), "bytes");
    assert!(!place.path("socket").exists());
}

#[test]
fn what_is_written_right_after_an_unmount_from_outside_is_not_taken_for_what_is_cached() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    File::create(place.path("ssd"))
        .and_then(|ssd| ssd.set_len(64 << 20))
        .expect("an SSD");
    let config = place.config("write-through");
    let path = place.dir().join("a");
    let mut daemon = place.start(&config);
    fs::write(&path, vec![1; 65536]).expect("written");
    assert!(fs::read(&path).expect("read") == vec![1; 65536]);
    // The daemon sees the unmount late.
    daemon.signal(Signal::SIGSTOP);
    while let Err(error) = umount2(&place.dir(), MntFlags::empty()) {
        assert_eq!(error, nix::errno::Errno::EBUSY);
        std::thread::yield_now();
    }
    fs::write(&path, vec![2; 65536]).expect("written");
    daemon.signal(Signal::SIGCONT);
    assert_eq!(daemon.wait(), Some(0));
    let daemon = place.start(&config);
    assert!(fs::read(&path).expect("read") == vec![2; 65536]);
    daemon.stop();
}

#[test]
fn open_files_are_served_until_they_are_closed() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    let mut daemon = place.start(&place.config("pass-through"));
    let path = place.dir().join("a");
    fs::write(&path, "before").expect("written");
    let file = File::options()
        .read(true)
        .write(true)
        .open(&path)
        .expect("a file");
    fs::remove_file(&path).expect("removed");
    daemon.signal(Signal::SIGTERM);
    while is_mounted(&place.dir()) {
        std::thread::yield_now();
    }
    file.write_all_at(b"after!", 0).expect("written");
    let mut text = String::new();
    (&file).read_to_string(&mut text).expect("read");
    assert_eq!(text, "after!");
    drop(file);
    assert_eq!(daemon.wait(), Some(0));
}

#[test]
fn the_socket_is_for_its_owner() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    let daemon = place.start(&place.config("pass-through"));
    let mode = fs::metadata(place.path("socket"))
        .expect("a socket")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(daemon.status()["mode"], "pass-through");
    daemon.stop();
}
