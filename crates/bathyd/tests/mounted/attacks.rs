//! What somebody who can write to a source, or mount below it, tries against bathyd, which acts as root.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, PermissionsExt, lchown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use serde_json::{Value, json};

use crate::bad_input::lock_as_an_osd;
use crate::daemon::{Daemon, Loop, Place, is_skipped};
use crate::rights::STRANGER;

const BLOCK_BYTES: usize = 4 << 20;

/// A mount, for as long as it exists.
struct Mounted(PathBuf);

impl Mounted {
    fn tmpfs(on: &Path, flags: MsFlags) -> Self {
        mount(Some("tmpfs"), on, Some("tmpfs"), flags, None::<&str>).expect("mounted");
        Self(on.to_owned())
    }

    fn bind(from: &Path, on: &Path) -> Self {
        mount(Some(from), on, None::<&str>, MsFlags::MS_BIND, None::<&str>).expect("mounted");
        Self(on.to_owned())
    }

    fn shared(self) -> Self {
        mount(
            None::<&str>,
            &self.0,
            None::<&str>,
            MsFlags::MS_SHARED,
            None::<&str>,
        )
        .expect("shared");
        self
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _gone = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}

/// A loop device over a file of this byte.
fn device(place: &Place, name: &str, byte: u8) -> Option<Loop> {
    let path = place.path(name);
    fs::write(&path, vec![byte; BLOCK_BYTES]).expect("a disk");
    Loop::new(&path)
}

/// [`device`] to which the link `block` of the source leads.
fn device_of_block(place: &Place) -> Option<Loop> {
    let own = device(place, "own", 1)?;
    symlink(&own.0, place.dir().join("block")).expect("a link");
    Some(own)
}

fn open_for_both(path: &Path) -> File {
    let file = File::options().read(true).write(true).open(path);
    file.expect("it opens")
}

fn first_byte(path: &Path) -> u8 {
    let mut byte = [0];
    let file = File::open(path).expect("it opens");
    file.read_exact_at(&mut byte, 0).expect("read");
    byte[0]
}

/// A configuration whose source has these devices, as its links lead now.
fn with_devices(place: &Place, mode: &str) -> Value {
    let mut config = place.config(mode);
    let written = place.written(&config);
    let listed = Place::run(&["devices", &written, &place.dir().to_string_lossy()]).expect("it is listed");
    let devices = listed["devices"].as_array().expect("a list");
    let devices: serde_json::Map<_, _> = devices
        .iter()
        .map(|device| {
            (
                device["name"].as_str().expect("a name").to_owned(),
                device["configured"].clone(),
            )
        })
        .collect();
    config["sources"][0]["devices"] = devices.into();
    config
}

/// What the status says against a device of the only source.
fn problem(daemon: &Daemon, name: &str) -> Option<String> {
    let status = daemon.status();
    let devices = status["devices"].as_array().cloned().unwrap_or_default();
    let device = devices.into_iter().find(|device| device["name"] == name)?;
    Some(device["problem"].as_str()?.to_owned())
}

fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).expect("it is there").is_symlink()
}

#[test]
fn what_is_mounted_below_is_not_reached_and_gets_no_other_options() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    let (bare, sub) = (place.path("bare"), place.dir().join("sub"));
    // Who has the tree in another place mounts there, and the mount comes to the source as well.
    let _source = Mounted::tmpfs(&place.dir(), MsFlags::empty()).shared();
    fs::create_dir(&sub).expect("a directory");
    fs::write(sub.join("covered"), "covered").expect("written");
    let _bare = Mounted::bind(&place.dir(), &bare);
    let below_ours = File::open(&bare).expect("a directory");
    let daemon = place.start(&place.config("write-through"));
    let restricted = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    let bare_sub = format!("/proc/self/fd/{}/sub", below_ours.as_raw_fd());
    let below = Mounted::tmpfs(Path::new(&bare_sub), restricted);
    let program = below.0.join("id");
    fs::copy("/usr/bin/id", &program).expect("a program");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).expect("set-user-id");
    mknod(
        &below.0.join("null"),
        SFlag::S_IFCHR,
        Mode::from_bits_truncate(0o666),
        makedev(1, 3),
    )
    .expect("a device");
    let ran = Command::new(sub.join("id")).arg("-u").uid(65534).output();
    assert!(ran.is_err(), "the program was run: {ran:?}");
    assert!(File::open(sub.join("null")).is_err(), "the device was opened");
    // The directory of the source itself is there, as it is.
    assert_eq!(fs::read_to_string(sub.join("covered")).expect("read"), "covered");
    drop(below);
    daemon.stop();
}

#[test]
fn a_source_with_a_file_system_below_is_refused() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    let sub = place.dir().join("sub");
    fs::create_dir(&sub).expect("a directory");
    let below = Mounted::tmpfs(&sub, MsFlags::MS_NOSUID);
    let mut daemon = place.spawn(&place.config("pass-through"));
    while !daemon.has_ended() && !place.log().contains("bathyd: serving") {
        thread::sleep(Duration::from_millis(10));
    }
    let said = place.log();
    assert!(daemon.has_ended(), "it is served: {said}");
    assert_eq!(daemon.wait(), Some(2), "{said}");
    let named = format!("{} (tmpfs)", sub.display());
    assert!(said.contains(&named) && said.contains("\nhint: "), "{said}");
    drop(below);
    place.start(&place.config("pass-through")).stop();
}

#[test]
fn links_that_others_could_make_are_not_followed() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    let Some(host) = device(&place, "host", 7) else {
        return;
    };
    let outside = File::create(place.path("outside")).expect("a file");
    nix::unistd::mkfifo(&place.path("fifo"), Mode::S_IRWXU).expect("a FIFO");
    symlink(place.path("outside"), place.dir().join("fsid")).expect("a link");
    symlink(&host.0, place.dir().join("block")).expect("a link");
    symlink(place.path("fifo"), place.dir().join("block.db")).expect("a link");
    symlink("inside", place.dir().join("block.wal")).expect("a link");
    fs::write(place.dir().join("inside"), "inside").expect("written");
    // As of before devices were configured, in a directory that everybody can write to, or in which a user made the links;
    // and with a word that there are none.
    let mut none = place.config("write-through");
    none["sources"][0]["devices"] = json!({});
    let before = place.config("write-through");
    for (mode, user, config) in [(0o777, 0, &before), (0o1777, 65534, &before), (0o755, 0, &none)] {
        fs::set_permissions(place.dir(), fs::Permissions::from_mode(mode)).expect("set");
        for name in ["block", "block.db"] {
            lchown(place.dir().join(name), Some(user), None).expect("a user's");
        }
        let daemon = place.start(config);
        assert!(lock_as_an_osd(&outside), "what the link fsid leads to is locked");
        for name in ["block", "block.db", "block.wal", "fsid"] {
            assert!(
                is_link(&place.dir().join(name)),
                "{name} is shown as something else"
            );
        }
        for (name, target) in [("block", host.0.clone()), ("block.db", "fifo".to_owned())] {
            let problem = problem(&daemon, name).expect("it is named");
            assert!(problem.contains(&target), "{problem}");
            assert!(place.log().contains(&problem), "{}", place.log());
        }
        assert_eq!(problem(&daemon, "block.wal"), None);
        assert_eq!(
            fs::read_to_string(place.dir().join("block.wal")).expect("read"),
            "inside"
        );
        daemon.stop();
    }
    assert_eq!(first_byte(Path::new(&host.0)), 7);
}

#[test]
fn a_link_of_a_user_to_what_never_answers_keeps_no_source_from_being_served() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    let hung = place.path("hung");
    fs::create_dir(&hung).expect("a directory");
    // Of a user, who answers nothing.
    let connection = File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .expect("root");
    let data = format!(
        "fd={},rootmode=40755,user_id=65534,group_id=65534,allow_other",
        connection.as_raw_fd()
    );
    mount(Some("hung"), &hung, Some("fuse"), MsFlags::empty(), Some(&*data)).expect("mounted");
    let hung = Mounted(hung);
    symlink(hung.0.join("device"), place.dir().join("block")).expect("a link");
    lchown(place.dir().join("block"), Some(65534), None).expect("a user's");
    fs::set_permissions(place.dir(), fs::Permissions::from_mode(0o1777)).expect("set");
    let daemon = place.spawn(&place.config("write-through"));
    let is_served = (0..1000).any(|_| {
        thread::sleep(Duration::from_millis(10));
        place.log().contains("bathyd: serving")
    });
    // Who waits for it is let go.
    drop(connection);
    assert!(is_served, "{}", place.log());
    assert!(
        place.log().contains("the link is not the directory's owner's"),
        "{}",
        place.log()
    );
    daemon.stop();
}

#[test]
fn a_link_that_is_swapped_never_shows_another_device() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    let (Some(own), Some(host)) = (device(&place, "own", 1), device(&place, "host", 7)) else {
        return;
    };
    let _source = Mounted::tmpfs(&place.dir(), MsFlags::empty());
    let _bare = Mounted::bind(&place.dir(), &place.path("bare"));
    let (link, bare) = (place.dir().join("block"), place.path("bare"));
    symlink(&own.0, &link).expect("a link");
    let daemon = place.start(&with_devices(&place, "write-through"));
    assert!(!is_link(&link));
    assert_eq!(first_byte(&link), 1);

    // By who has the bare directory, as fast as it goes.
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for target in [&host.0, &own.0].into_iter().cycle() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                symlink(target, bare.join("new")).expect("a link");
                fs::rename(bare.join("new"), bare.join("block")).expect("swapped");
            }
        });
        for _ in 0..500 {
            // The kernel would follow the link itself.
            let opened = rustix::fs::open(
                &link,
                rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOFOLLOW,
                rustix::fs::Mode::empty(),
            );
            if let Ok(file) = opened.map(File::from) {
                let mut byte = [0];
                file.read_exact_at(&mut byte, 0).expect("read");
                assert_eq!(byte, [1]);
                file.write_all_at(&[1], 1).expect("written");
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(fs::read(place.path("host")).expect("read"), vec![7; BLOCK_BYTES]);

    // Through the mount.
    let lead = |to: &str| {
        symlink(to, place.dir().join("new")).expect("a link");
        fs::rename(place.dir().join("new"), &link).expect("swapped");
    };
    lead(&host.0);
    assert!(is_link(&link));
    let problem_now = problem(&daemon, "block").expect("it is named");
    assert!(problem_now.contains(&host.0), "{problem_now}");
    lead(&own.0);
    assert!(!is_link(&link));
    assert_eq!((first_byte(&link), problem(&daemon, "block")), (1, None));

    // By another name in /dev, as a logical volume has one that leads to its node.
    let volume = Removed(PathBuf::from(format!(
        "/dev/bathyd-mounted-{}",
        std::process::id()
    )));
    fs::create_dir(&volume.0).expect("a directory");
    let alias = volume.0.join("lv");
    symlink(&own.0, &alias).expect("a link");
    lead(&alias.to_string_lossy());
    assert!(!is_link(&link), "{:?}", problem(&daemon, "block"));
    assert_eq!((first_byte(&link), problem(&daemon, "block")), (1, None));
    let said = format!("block leads to {}, another name of {} ", alias.display(), own.0);
    assert!(place.log().contains(&said), "{}", place.log());
    fs::remove_file(&alias).expect("removed");
    symlink(&host.0, &alias).expect("a link");
    lead(&alias.to_string_lossy());
    assert!(is_link(&link), "another device has the name now");
    daemon.stop();
}

/// A directory that is removed at the end.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _gone = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_loop_device_over_another_file_is_another_device() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    let Some(own) = device_of_block(&place) else {
        return;
    };
    let config = with_devices(&place, "write-through");
    let daemon = place.start(&config);
    assert_eq!(first_byte(&place.dir().join("block")), 1);
    daemon.stop();
    fs::write(place.path("other"), vec![2; BLOCK_BYTES]).expect("a disk");
    let losetup = |arguments: &[&str]| {
        Command::new("losetup")
            .args(arguments)
            .status()
            .is_ok_and(|it| it.success())
    };
    assert!(losetup(&["--detach", &own.0]));
    let other = place.path("other").to_string_lossy().into_owned();
    let is_attached = losetup(&[&own.0, &other]);
    let daemon = place.start(&config);
    let named = problem(&daemon, "block").expect("it is named");
    assert!(is_link(&place.dir().join("block")), "another device is served");
    assert!(
        named.contains("not the device of the configuration") && is_attached,
        "{named}"
    );
    daemon.stop();
}

#[test]
fn a_configuration_of_before_gets_the_devices_that_its_links_lead_to_and_keeps_them() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    let (Some(own), Some(host)) = (device(&place, "own", 1), device(&place, "host", 7)) else {
        return;
    };
    symlink(&own.0, place.dir().join("block")).expect("a link");
    place.start(&place.config("write-through")).stop();
    assert!(
        place.log().contains("is written to the configuration"),
        "{}",
        place.log()
    );
    let written = fs::read_to_string(place.path("config.json")).expect("a configuration");
    let config: Value = serde_json::from_str(&written).expect("JSON");
    let configured = &config["sources"][0]["devices"]["block"];
    assert_eq!(configured["path"], json!(own.0));
    assert_eq!(
        configured["identity"]["backing"]["path"],
        json!(place.path("own").to_string_lossy())
    );
    fs::remove_file(place.dir().join("block")).expect("removed");
    symlink(&host.0, place.dir().join("block")).expect("a link");
    let daemon = place.start(&config);
    assert!(is_link(&place.dir().join("block")));
    assert!(problem(&daemon, "block").expect("it is named").contains(&host.0));
    daemon.stop();
    assert_eq!(
        fs::read_to_string(place.path("config.json")).expect("read"),
        config.to_string()
    );
}

#[test]
fn a_configuration_of_before_is_completed_when_all_links_can_be_looked_at_and_relative_ones_lead_from_their_directory()
 {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    let Some(own) = device_of_block(&place) else {
        return;
    };
    // Beside the directory, and not there yet.
    symlink("../db", place.dir().join("block.db")).expect("a link");
    let config = place.config("write-through");
    let daemon = place.start(&config);
    assert!(!is_link(&place.dir().join("block")), "what is there is served");
    let missing = place.path("db").to_string_lossy().into_owned();
    let named = problem(&daemon, "block.db").expect("it is named");
    assert!(named.contains(&missing), "{named}");
    daemon.stop();
    let written = || fs::read_to_string(place.path("config.json")).expect("a configuration");
    assert_eq!(written(), config.to_string(), "an incomplete list is for good");

    fs::write(place.path("db"), vec![2; BLOCK_BYTES]).expect("a disk");
    place.start(&config).stop();
    let config: Value = serde_json::from_str(&written()).expect("JSON");
    let devices = &config["sources"][0]["devices"];
    assert_eq!(devices["block"]["path"], json!(own.0), "{devices}");
    assert_eq!(devices["block.db"]["path"], json!(missing), "{devices}");
    let daemon = place.start(&config);
    for (name, byte) in [("block", 1), ("block.db", 2)] {
        assert!(!is_link(&place.dir().join(name)), "{name} is not served");
        assert_eq!(first_byte(&place.dir().join(name)), byte);
    }
    daemon.stop();
}

#[test]
fn a_block_that_is_a_link_to_a_file_is_served_through_the_cache() {
    if is_skipped() {
        return;
    }
    for is_elsewhere in [false, true] {
        let place = Place::new();
        let elsewhere = is_elsewhere.then(|| Mounted::tmpfs(&place.path("bare"), MsFlags::empty()));
        let data = place.path("bare").join("data");
        fs::write(&data, vec![1; BLOCK_BYTES]).expect("written");
        symlink(&data, place.dir().join("block")).expect("a link");
        place.ssd(64 << 20);
        let daemon = place.start(&with_devices(&place, "write-through"));
        let link = place.dir().join("block");
        assert!(!is_link(&link), "it is a link to a file that goes past the cache");
        let file = open_for_both(&link);
        assert!(lock_as_an_osd(&file));
        let past = open_for_both(&data);
        assert!(!lock_as_an_osd(&past), "an OSD could be started past the mount");
        drop(past);
        file.write_all_at(&[2; 4096], 0).expect("written");
        let mut block = [0; 4096];
        for _ in 0..2 {
            for offset in (0..BLOCK_BYTES as u64).step_by(4096) {
                file.read_exact_at(&mut block, offset).expect("read");
                assert_eq!(block[0], if offset == 0 { 2 } else { 1 });
            }
        }
        let hits = daemon.status()["cache"]["engine"]["reads"]["bytes_hit"].clone();
        assert!(hits.as_u64() >= Some(BLOCK_BYTES as u64), "{hits}");
        let files = daemon.ask("files")["sources"][0]["files"].clone();
        assert_eq!(files[0]["path"], json!("block"));
        drop(file);
        daemon.stop();
        assert_eq!(fs::read(&data).expect("read")[..2], [2, 2]);
        drop(elsewhere);
    }
}

#[test]
fn a_device_that_grew_is_read_and_written_to_its_new_end() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    let Some(own) = device_of_block(&place) else {
        return;
    };
    place.ssd(64 << 20);
    let daemon = place.start(&with_devices(&place, "write-through"));
    let link = place.dir().join("block");
    let file = open_for_both(&link);
    assert_eq!(first_byte(&link), 1);
    let disk = File::options()
        .write(true)
        .open(place.path("own"))
        .expect("the disk");
    disk.write_all_at(&vec![3; BLOCK_BYTES], BLOCK_BYTES as u64)
        .expect("it grew");
    let told = Command::new("losetup").args(["--set-capacity", &own.0]).status();
    assert!(told.is_ok_and(|status| status.success()));
    let mut last = [0; 4096];
    let at = 2 * BLOCK_BYTES as u64 - 4096;
    assert_eq!(
        file.read_at(&mut last, at).expect("read"),
        4096,
        "a read ends where the device did"
    );
    assert_eq!(last, [3; 4096]);
    // One that begins before the old end and ends behind it.
    let mut over = vec![0; 8192];
    file.read_exact_at(&mut over, BLOCK_BYTES as u64 - 4096)
        .expect("read");
    assert_eq!((over[0], over[8191]), (1, 3));
    file.write_all_at(&[4; 4096], at).expect("written");
    file.sync_all().expect("durable");
    assert_eq!(
        fs::metadata(&link).expect("it is there").len(),
        2 * BLOCK_BYTES as u64
    );
    file.read_exact_at(&mut last, at).expect("read");
    assert_eq!(last, [4; 4096]);
    drop(file);
    daemon.stop();
    let mut found = [0; 4096];
    let disk = File::open(place.path("own")).expect("the disk");
    disk.read_exact_at(&mut found, at).expect("read");
    assert_eq!(found, [4; 4096]);
}

#[test]
fn a_write_over_the_end_of_a_device_says_how_much_was_written() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    let Some(own) = device_of_block(&place) else {
        return;
    };
    place.ssd(64 << 20);
    let over_the_end = |path: &Path| {
        let written = open_for_both(path).write_at(&[5; 8192], BLOCK_BYTES as u64 - 4096);
        written.map_err(|error| error.raw_os_error())
    };
    let bare = over_the_end(Path::new(&own.0));
    assert_eq!(bare, Ok(4096));
    let daemon = place.start(&with_devices(&place, "write-through"));
    assert_eq!(over_the_end(&place.dir().join("block")), bare);
    daemon.stop();
}

#[test]
fn who_can_swap_a_name_past_the_mount_opens_nothing_that_he_may_not() {
    const TRIES: usize = 3000;
    if is_skipped() {
        return;
    }
    let place = Place::new();
    let _source = Mounted::tmpfs(&place.dir(), MsFlags::empty());
    fs::set_permissions(place.dir(), fs::Permissions::from_mode(0o777)).expect("set");
    let _bare = Mounted::bind(&place.dir(), &place.path("bare"));
    let bare = place.path("bare");
    let secret = bare.join("secret");
    fs::write(&secret, "secret").expect("written");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).expect("set");
    let daemon = place.start(&place.config("pass-through"));
    // The kernel knows a name for a second, so each is tried once.
    let tried = AtomicUsize::new(0);
    let opened = thread::scope(|scope| {
        scope.spawn(|| {
            while let number @ ..TRIES = tried.load(Ordering::Relaxed) {
                let name = bare.join(number.to_string());
                let _there_is_another = fs::hard_link(&secret, &name);
                let _there_is_none = fs::remove_file(&name);
            }
        });
        STRANGER.act(0, || {
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(false);
            let mut count = 0;
            for number in 0..TRIES {
                let opened = options.open(place.dir().join(number.to_string()));
                let is_secret = |file: File| file.metadata().is_ok_and(|it| it.len() > 0);
                count += usize::from(opened.is_ok_and(is_secret));
                tried.fetch_add(1, Ordering::Relaxed);
            }
            count
        })
    });
    assert_eq!(opened, 0, "a file that is root's alone was opened");
    daemon.stop();
}

#[test]
fn what_its_disk_keeps_encrypted_is_not_cached_as_plaintext_unless_that_is_said() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    let disk = place.path("disk");
    File::create(&disk)
        .and_then(|file| file.set_len(64 << 20))
        .expect("a disk");
    let Some(disk) = Loop::new(&disk) else { return };
    let does = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output();
        output.is_ok_and(|output| output.status.success())
    };
    if !does("mkfs.ext4", &["-q", "-O", "encrypt", &disk.0]) {
        eprintln!("SKIPPED: this test needs mkfs.ext4");
        return;
    }
    let bare = place.path("bare");
    mount(
        Some(&*disk.0),
        &bare,
        Some("ext4"),
        MsFlags::empty(),
        None::<&str>,
    )
    .expect("mounted");
    let mounted = Mounted(bare.clone());
    let secret = bare.join("secret");
    fs::create_dir(&secret).expect("a directory");
    // Without the key nobody reads it, but it is known to be encrypted.
    if !does(
        "e4crypt",
        &["set_policy", "0123456789abcdef", &secret.to_string_lossy()],
    ) {
        eprintln!("SKIPPED: this test needs e4crypt and a kernel with fscrypt");
        return;
    }
    place.ssd(16 << 20);
    let with = |mode: &str, plaintext: bool| {
        let mut config = place.config(mode);
        config["sources"][0]["dir"] = json!(secret);
        config["sources"][0]["plaintext"] = json!(plaintext);
        config
    };
    let output = place.refused(&with("write-through", false));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("is encrypted by") && said.contains("hint: "),
        "{said}"
    );
    assert!(said.contains("--plaintext"), "{said}");
    for (mode, plaintext) in [("write-through", true), ("pass-through", false)] {
        place.start(&with(mode, plaintext)).stop();
    }
    // What is not cached yet may not become that while it is served, either.
    let daemon = place.start(&with("pass-through", false));
    let set = json!({"command": "set_mode", "name": "secret", "mode": "read-only"});
    let refused = daemon.tell(&set).expect_err("it would be plaintext");
    assert!(refused.contains("is encrypted by"), "{refused}");
    assert_eq!(daemon.status()["mode"], json!("pass-through"));
    daemon.stop();
    drop(mounted);
}
