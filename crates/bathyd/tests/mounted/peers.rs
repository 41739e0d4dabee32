//! Test programs of others, where they are installed: `cargo install pjdfstest fsx`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use bathy_fuse::is_ring_offered;

use crate::daemon::{Place, is_skipped, operations};

/// Results of pjdfstest that differ between mount and bare directory, each with its reason.
const JUSTIFIED: &str = include_str!("pjdfstest-differences.txt");

const PJDFSTEST: &str = r#"
[features]
posix_fallocate = {}
rename_ctime = {}
utimensat = {}
utime_now = {}
[settings]
naptime = 0.01
allow_remount = false
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
"#;

const FSX: &str = r"
flen = 1048576
[opsize]
min = 1
max = 65536
align = 1
[weights]
close_open = 1
read = 10
write = 10
mapread = 10
mapwrite = 10
invalidate = 1
truncate = 3
fsync = 1
fdatasync = 1
posix_fallocate = 2
punch_hole = 3
sendfile = 2
copy_file_range = 3
";

fn is_missing(program: &str) -> bool {
    let asked = Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .status();
    if asked.is_err() {
        eprintln!("SKIPPED: {program} is not installed (cargo install {program})");
    }
    asked.is_err()
}

/// The lines "test result" of pjdfstest in a directory.
fn pjdfstest(place: &Place, directory: &Path) -> BTreeSet<String> {
    let config = place.path("pjdfstest.toml");
    fs::write(&config, PJDFSTEST).expect("a configuration");
    let output = Command::new("pjdfstest")
        .current_dir("/")
        .arg("-c")
        .arg(config)
        .arg("-p")
        .arg(directory)
        .output()
        .expect("pjdfstest runs");
    let results = ["ok", "FAILED", "skipped"];
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let (name, result) = (words.next()?, words.next_back()?);
            (name.contains("::") && results.contains(&result)).then(|| format!("{name} {result}"))
        })
        .collect()
}

/// A place with an SSD for the cache.
fn with_ssd(bytes: u64) -> Place {
    let place = Place::new();
    place.ssd(bytes);
    place
}

#[test]
fn pjdfstest_says_of_the_mount_what_it_says_of_the_bare_directory() {
    if is_skipped() || is_missing("pjdfstest") {
        return;
    }
    // What reads and writes data goes over the ring, so its requests are of interest with and without a cache.
    let ring = ["pass-through", "write-through"].map(|mode| (mode, Some("ring")));
    let ring = if is_ring_offered() { &ring[..] } else { &[] };
    let all = [("pass-through", None), ("write-through", None)];
    for &(mode, transport) in all.iter().chain(ring) {
        let place = with_ssd(16 << 20);
        let mut config = place.config(mode);
        if let Some(transport) = transport {
            config["transport"] = transport.into();
        }
        // The tests' users go through it.
        let daemon = place.start(&config);
        let [mounted, bare] =
            [place.dir(), place.path("bare")].map(|directory| pjdfstest(&place, &directory));
        daemon.stop();
        assert!(bare.len() > 300, "pjdfstest printed {} results", bare.len());
        let differences: BTreeSet<_> = mounted.difference(&bare).cloned().collect();
        let justified: BTreeSet<_> = JUSTIFIED
            .lines()
            .filter(|line| line.contains("::"))
            .map(|line| line.split(" # ").next().unwrap_or_default().to_owned())
            .collect();
        let unexplained: Vec<_> = differences.difference(&justified).collect();
        let transport = &config["transport"];
        assert!(unexplained.is_empty(), "{mode}, {transport}: {unexplained:?}");
        eprintln!(
            "{mode}, {transport}: {} results, {} differences",
            bare.len(),
            differences.len()
        );
    }
}

/// Runs fsx in the mount, with `align`ed requests, and with `O_DIRECT` if they are.
fn fsx(mode: &str, align: u64) {
    let place = with_ssd(16 << 20);
    let is_direct = align > 1;
    let library = is_direct.then(|| {
        let library = place.path("direct.so");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mounted/direct.c");
        let mut compiler = Command::new("cc");
        compiler
            .args(["-shared", "-fPIC", "-o"])
            .arg(&library)
            .arg(source);
        assert!(compiler.status().expect("a C compiler").success());
        library
    });
    let config = place.path("fsx.toml");
    let mut settings = FSX.to_owned();
    if is_direct {
        // Where requests are aligned fsx allocates nothing at all now and then, which is an error of the caller.
        settings = settings.replace("align = 1\n", &format!("align = {align}\n"));
        settings = settings.replace("posix_fallocate = 2\n", "");
    }
    fs::write(&config, settings).expect("a configuration");
    let daemon = place.start(&place.adaptive(mode));
    // It keeps its mappings, of which a process may have 65,530.
    let (total, at_once) = (operations(2_000), 50_000);
    for done in (0..total).step_by(at_once as usize) {
        let mut command = Command::new("fsx");
        if let Some(library) = &library {
            command.env("LD_PRELOAD", library);
        }
        let output = command
            .arg("-q")
            .args(["-S", &(11 + done).to_string()])
            .args(["-N", &at_once.min(total - done).to_string()])
            .arg("-f")
            .arg(&config)
            .arg("-P")
            .arg(place.path("state"))
            .arg(place.dir().join(if is_direct { "direct" } else { "f" }))
            .output()
            .expect("fsx runs");
        let said =
            String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && said.contains("A-OK") && !said.contains("ld.so"),
            "after {done}: {said}"
        );
        if total > at_once {
            eprintln!(
                "fsx, {mode}, aligned to {align}: {} operations",
                (done + at_once).min(total)
            );
        }
    }
    if mode != "pass-through" {
        let engine = daemon.status()["cache"]["engine"].clone();
        assert!(engine["reads"]["requests_hit"].as_u64() > Some(0), "{engine}");
        assert_eq!(
            (&engine["mismatches"], &engine["is_bypassed"]),
            (&0.into(), &false.into())
        );
    }
    daemon.stop();
}

#[test]
fn fsx_finds_nothing() {
    if is_skipped() || is_missing("fsx") {
        return;
    }
    fsx("write-through", 1);
    fsx("pass-through", 1);
}

#[test]
fn fsx_with_direct_io_finds_nothing() {
    if is_skipped() || is_missing("fsx") {
        return;
    }
    fsx("write-through", 4096);
    fsx("pass-through", 4096);
}

#[test]
fn fio_verifies_what_it_wrote_after_clean_stops_and_kills() {
    if is_skipped() || is_missing("fio") {
        return;
    }
    let place = with_ssd(6 << 20);
    let fio = |round: u64, verifies: bool| {
        let mut command = Command::new("fio");
        // More than the SSD has room for.
        command.args([
            "--name=v",
            "--size=8m",
            "--rw=randwrite",
            "--verify=crc32c",
            "--verify_fatal=1",
        ]);
        command.args(["--ioengine=libaio", "--iodepth=8", "--fallocate=none"]);
        command.arg(format!("--filename={}", place.dir().join("f").display()));
        command.arg(format!("--bs={}", if round % 3 == 0 { "64k" } else { "4k" }));
        command.arg(format!("--direct={}", round % 2));
        command.arg(format!("--randseed={}", round + 1));
        command.arg(if verifies {
            "--verify_only=1"
        } else {
            "--do_verify=0"
        });
        // Where it writes the state of a verification.
        let output = command
            .current_dir(place.path("state"))
            .output()
            .expect("fio runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "round {round}, verifies: {verifies}: {said}"
        );
    };
    let mut warm_bytes = 0;
    let mut daemon = place.start(&place.config("write-through"));
    for round in 0..12 {
        fio(round, false);
        if round % 3 == 2 {
            daemon.stop();
        } else {
            daemon.kill();
        }
        let mode = ["write-through", "write-around", "read-only"][(round / 2 % 3) as usize];
        daemon = place.start(&place.config(mode));
        for _ in 0..2 {
            fio(round, true);
        }
        let engine = daemon.status()["cache"]["engine"].clone();
        warm_bytes += engine["reads"]["bytes_hit"].as_u64().expect("a count");
    }
    daemon.stop();
    assert!(warm_bytes > 0);
}
