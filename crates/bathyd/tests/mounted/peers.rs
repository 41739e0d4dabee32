//! Test programs of others, where they are installed: `cargo install pjdfstest fsx`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

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
min = 0
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

#[test]
fn pjdfstest_says_of_the_mount_what_it_says_of_the_bare_directory() {
    if is_skipped() || is_missing("pjdfstest") {
        return;
    }
    let place = Place::new();
    // The tests' users go through it.
    let daemon = place.start(&place.config("pass-through"));
    let [mounted, bare] = [place.dir(), place.path("bare")].map(|directory| pjdfstest(&place, &directory));
    daemon.stop();
    assert!(bare.len() > 300, "pjdfstest printed {} results", bare.len());
    let differences: BTreeSet<_> = mounted.difference(&bare).cloned().collect();
    let justified: BTreeSet<_> = JUSTIFIED
        .lines()
        .filter(|line| line.contains("::"))
        .map(|line| line.split(" # ").next().unwrap_or_default().to_owned())
        .collect();
    let unexplained: Vec<_> = differences.difference(&justified).collect();
    assert!(unexplained.is_empty(), "{unexplained:?}");
}

#[test]
fn fsx_finds_nothing() {
    if is_skipped() || is_missing("fsx") {
        return;
    }
    let place = Place::new();
    let config = place.path("fsx.toml");
    fs::write(&config, FSX).expect("a configuration");
    let daemon = place.start(&place.config("pass-through"));
    let output = Command::new("fsx")
        .args(["-q", "-S", "11", "-N"])
        .arg(operations(2_000).to_string())
        .arg("-f")
        .arg(config)
        .arg("-P")
        .arg(place.path("state"))
        .arg(place.dir().join("f"))
        .output()
        .expect("fsx runs");
    let said =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("A-OK"), "{said}");
    daemon.stop();
}
