//! What the socket reports equals what was done.

use std::ffi::CString;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};

use serde_json::{Value, json};

use crate::daemon::{Daemon, Place, is_skipped};

const UNIT: u64 = 4096;
const LINE: u64 = 16 * UNIT;

fn source(daemon: &Daemon, number: usize) -> Value {
    daemon.ask("status")["sources"][number].clone()
}

fn open(path: &std::path::Path) -> File {
    File::options().read(true).write(true).open(path).expect("a file")
}

/// Requests and bytes of one direction of one place, whose buckets and latencies fit them.
fn counted(report: &Value, place: &str, direction: &str) -> (u64, u64) {
    let of = &report["iops"][place][direction];
    let requests = of["requests"].as_u64().expect("a count");
    let buckets = of["buckets"].as_array().expect("buckets");
    assert_eq!(
        (buckets.len(), &buckets[0][0], &buckets[24][0]),
        (25, &json!(1024), &json!(1_u64 << 34))
    );
    let counts: Vec<u64> = buckets
        .iter()
        .map(|it| it[1].as_u64().expect("a count"))
        .collect();
    assert!(counts.is_sorted() && counts[24] == requests, "{of}");
    assert_eq!(of["latency_ns_p99"].is_null(), requests == 0, "{of}");
    if requests > 0 {
        assert!(
            of["latency_ns_p50"].as_u64() > Some(0)
                && of["latency_ns_p50"].as_u64() <= of["latency_ns_max"].as_u64()
        );
    }
    (requests, of["bytes"].as_u64().expect("a count"))
}

#[test]
fn what_is_cached_of_ranges_of_a_file_is_reported() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    place.ssd(64 << 20);
    fs::write(place.dir().join("block"), vec![2; 1 << 20]).expect("written");
    let daemon = place.start(&place.config("write-through"));
    let file = open(&place.dir().join("block"));
    // Three units of a line, over its end into the next one.
    file.write_all_at(&[3; 3 * UNIT as usize], 6 * LINE - UNIT)
        .expect("written");
    let known = daemon.ask("files")["sources"][0].clone();
    let (name, handle) = (known["name"].clone(), known["files"][0]["handle"].clone());
    let ask = |handle: &Value, ranges: Value| {
        let question = json!({"query": "cached", "source": name, "handle": handle, "ranges": ranges});
        daemon
            .tell(&question)
            .map(|answer| answer["cached_bytes"].clone())
    };
    let ranges = json!([
        [6 * LINE - UNIT, 3 * UNIT],
        [0, 1_u64 << 20],
        [6 * LINE, UNIT],
        // A part of a unit counts as one.
        [6 * LINE + UNIT + 7, 1],
        [6 * LINE + 2 * UNIT, LINE],
        // Nothing, and what lies beyond the end.
        [6 * LINE, 0],
        [1 << 20, 1_u64 << 30],
        [5 * LINE, 1_u64 << 30],
        [u64::MAX, 9],
    ]);
    let cached = [3, 3, 1, 1, 0, 0, 0, 3, 0].map(|units| units * UNIT);
    assert_eq!(ask(&handle, ranges).expect("it is open"), json!(cached));
    for unknown in ["", "00", "0", "zz", "+f", "µµ", "1é0"] {
        ask(&json!(unknown), json!([[0, UNIT]])).expect_err(unknown);
    }
    ask(&handle, json!([[0]])).expect_err("a range has a length");
    let error = ask(&handle, json!([[0, u64::MAX], [0, u64::MAX]])).expect_err("it would take long");
    assert!(error.contains("64 GiB"), "{error}");
}

#[test]
fn what_is_reported_of_a_source_is_what_was_done() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    place.ssd(64 << 20);
    fs::create_dir(place.dir().join("sub")).expect("a directory");
    fs::write(place.dir().join("sub/a"), vec![1; 1 << 20]).expect("written");
    fs::write(place.dir().join("b"), vec![2; 1 << 20]).expect("written");
    let mut config = place.config("write-through");
    // What is asked for alone, so that each read is a miss, a hit or both as it is meant to be.
    config["cache"]["fetch"] = json!(UNIT);
    config["cache"]["name"] = json!("fast");
    config["sources"][0]["name"] = json!("osd.3");
    let daemon = place.start(&config);
    let [a, b] = ["sub/a", "b"].map(|name| open(&place.dir().join(name)));
    let mut unit = vec![0; UNIT as usize];
    let mut two = vec![0; 2 * UNIT as usize];
    // Of "a": a miss, a hit, a read of which half is cached. Of "b": a write of three units in a line, and a hit.
    a.read_exact_at(&mut unit, 0).expect("read");
    a.read_exact_at(&mut unit, 0).expect("read");
    a.read_exact_at(&mut two, 0).expect("read");
    b.write_all_at(&[3; 3 * UNIT as usize], 5 * LINE)
        .expect("written");
    b.read_exact_at(&mut unit, 5 * LINE + UNIT).expect("read");
    let report = source(&daemon, 0);
    assert_eq!(
        (&report["name"], &report["is_served"]),
        (&json!("osd.3"), &json!(true))
    );
    assert_eq!(
        report["io"],
        json!({
            "cache_read_bytes": 3 * UNIT, "cache_write_bytes": 5 * UNIT,
            "source_read_bytes": 2 * UNIT, "source_write_bytes": 3 * UNIT, "compared_bytes": 0,
        })
    );
    assert_eq!(counted(&report, "cache", "reads"), (2, 2 * UNIT));
    assert_eq!(counted(&report, "source", "reads"), (2, 3 * UNIT));
    assert_eq!(counted(&report, "cache", "writes"), (3, 5 * UNIT));
    assert_eq!(counted(&report, "source", "writes"), (1, 3 * UNIT));
    let usage = &report["usage"];
    assert_eq!(
        [
            &usage["used_bytes"],
            &usage["used_bytes_max"],
            &usage["cached_bytes"],
            &usage["files"]
        ],
        [&json!(2 * LINE), &json!(2 * LINE), &json!(5 * UNIT), &json!(2)]
    );
    let stats = &report["stats"];
    assert_eq!(
        [
            &stats["segments_cached"],
            &stats["segments_present"],
            &stats["segments_uncached"],
            &stats["pending"]
        ],
        [&json!(2), &json!(2), &json!(0), &json!(0)]
    );
    assert_eq!(
        (
            &stats["reads"]["requests"],
            &stats["reads"]["requests_hit"],
            &stats["reads"]["requests_partial"]
        ),
        (&json!(4), &json!(2), &json!(1))
    );
    let status = daemon.ask("status");
    let (cache, engine) = (&status["cache"], &status["cache"]["engine"]);
    assert_eq!((&status["protocol"], &cache["name"]), (&json!(1), &json!("fast")));
    assert_eq!(
        [
            &engine["lines"],
            &engine["used_bytes"],
            &engine["line_bytes"],
            &engine["policy"]
        ],
        [&json!(2), &json!(2 * LINE), &json!(LINE), &json!("s3-fifo")]
    );
    assert_eq!(usage["capacity_bytes"], engine["capacity_bytes"]);

    let curves = daemon.ask("curve");
    assert_eq!(curves["sources"][0]["name"], "osd.3");
    for curve in [&curves["curve"], &curves["sources"][0]["curve"]] {
        assert_eq!((&curve["requests"], &curve["sampled"]), (&json!(4), &json!(4)));
        let points = curve["points"].as_array().expect("points");
        let current = points
            .iter()
            .find(|point| point["size_ratio"] == 1.0)
            .expect("the present size");
        // Of four reads of lines two found all they needed.
        assert_eq!(
            (&current["size_bytes"], &current["hit_ratio"]),
            (&engine["capacity_bytes"], &json!(0.5))
        );
    }

    let files = daemon.ask("files")["sources"][0]["files"].clone();
    let of = |path: &str| {
        let files = files.as_array().expect("files");
        files
            .iter()
            .find(|file| file["path"] == path)
            .cloned()
            .unwrap_or_else(|| panic!("{path}: {files:?}"))
    };
    assert_eq!(
        (files.as_array().map(Vec::len), &files[0]["path"]),
        (Some(2), &json!("sub/a"))
    );
    let file = of("b");
    assert_eq!(
        [
            &file["size_bytes"],
            &file["cached_lines"],
            &file["cached_bytes"],
            &file["is_in_use"],
            &file["is_device"]
        ],
        [
            &json!(1 << 20),
            &json!(1),
            &json!(3 * UNIT),
            &json!(true),
            &json!(false)
        ]
    );
    assert_eq!(
        (&file["reads"]["requests"], &file["writes"]["requests"]),
        (&json!(1), &json!(1))
    );
    let ago = file["last_access_s_ago"].as_f64().expect("seconds");
    assert!((0.0..600.0).contains(&ago), "{ago}");

    // Of a removed file that is open the path is not known; its lines leave with the last user.
    fs::remove_file(place.dir().join("sub/a")).expect("removed");
    let files = daemon.ask("files")["sources"][0]["files"].clone();
    assert!(
        files
            .as_array()
            .expect("files")
            .iter()
            .all(|file| file["path"] != "sub/a")
    );
    drop(a);
    while source(&daemon, 0)["in_use"]["open_files"] != 1 {
        std::thread::yield_now();
    }
    let report = source(&daemon, 0);
    assert_eq!(
        [
            &report["usage"]["files"],
            &report["usage"]["used_bytes"],
            &report["usage"]["used_bytes_max"]
        ],
        [&json!(1), &json!(LINE), &json!(2 * LINE)]
    );
    assert_eq!(
        [
            &report["stats"]["segments_present"],
            &report["stats"]["segments_uncached"]
        ],
        [&json!(1), &json!(1)]
    );
    drop(b);
    daemon.stop();

    // What a start finds is there, and did not come since.
    let daemon = place.start(&config);
    let report = source(&daemon, 0);
    assert_eq!(
        [
            &report["usage"]["files"],
            &report["usage"]["used_bytes"],
            &report["usage"]["cached_bytes"]
        ],
        [&json!(1), &json!(LINE), &json!(3 * UNIT)]
    );
    assert_eq!(report["stats"]["segments_cached"], 0);
    assert_eq!(counted(&report, "cache", "reads"), (0, 0));
    daemon.stop();
}

#[test]
fn a_file_is_named_as_it_is_called_now() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    place.ssd(16 << 20);
    fs::create_dir_all(place.dir().join("x/y")).expect("directories");
    let path = place.dir().join("x/y/deep");
    fs::write(&path, vec![1; 1 << 16]).expect("written");
    let daemon = place.start(&place.config("write-through"));
    fs::read(&path).expect("read");
    fs::rename(&path, place.dir().join("x/moved")).expect("renamed");
    let files = daemon.ask("files")["sources"][0]["files"].clone();
    assert_eq!(
        (files.as_array().map(Vec::len), &files[0]["path"]),
        (Some(1), &json!("x/moved"))
    );
    let only = |name: &str| daemon.tell(&json!({"query": "files", "source": name, "limit": 0}));
    assert_eq!(
        only("dir").expect("it is served")["sources"][0]["files"],
        json!([])
    );
    assert!(only("other").expect_err("it is not served").contains("hint"));
    daemon.stop();
}

#[test]
fn attributes_and_links_are_counted() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    fs::write(place.dir().join("a"), "bytes").expect("written");
    symlink("a", place.dir().join("link")).expect("a link");
    let daemon = place.start(&place.config("pass-through"));
    let file = open(&place.dir().join("a"));
    let misses = |what: &str| {
        source(&daemon, 0)["stats"][what]["misses"]
            .as_u64()
            .expect("a count")
    };
    let before = ["attribute_reads", "attribute_writes"].map(misses);
    let name = CString::new("user.test").expect("a name");
    let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
    let mut is_supported = true;
    for number in 0..7_u8 {
        // SAFETY: the descriptor is open, the name is a C string, and the value is a byte that lives as long as the call.
        let set = unsafe { libc::fsetxattr(fd, name.as_ptr(), (&raw const number).cast(), 1, 0) };
        is_supported &= set == 0;
    }
    let mut value = [0_u8; 8];
    for _ in 0..5 {
        // SAFETY: as above, and the value has room for as many bytes as are asked for.
        unsafe { libc::fgetxattr(fd, name.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
    }
    let after = ["attribute_reads", "attribute_writes"].map(misses);
    if is_supported {
        assert_eq!([after[0] - before[0], after[1] - before[1]], [5, 7]);
    }
    for _ in 0..3 {
        fs::read_link(place.dir().join("link")).expect("a link");
    }
    assert_eq!(misses("links"), 3);
    let stats = source(&daemon, 0)["stats"].clone();
    assert!(stats["attribute_reads"]["hits"].is_null() && stats["links"]["cached"].is_null());
    // What passes through is counted as well.
    file.write_all_at(&[1; 100], 0).expect("written");
    file.read_exact_at(&mut [0; 50], 0).expect("read");
    let report = source(&daemon, 0);
    assert_eq!(
        (
            counted(&report, "source", "reads"),
            counted(&report, "source", "writes")
        ),
        ((1, 50), (1, 100))
    );
    assert_eq!(
        (&report["usage"], &report["stats"]["segments_present"]),
        (&Value::Null, &Value::Null)
    );
    drop(file);
    daemon.stop();
}

#[test]
fn requests_come_over_the_ring_where_the_kernel_offers_it_unless_it_is_said_otherwise() {
    if is_skipped() {
        return;
    }
    let place = Place::new();
    place.ssd(8 << 20);
    fs::write(place.dir().join("file"), vec![7; 3 * UNIT as usize]).expect("a file");
    let mut config = place.config("write-through");
    config.as_object_mut().expect("an object").remove("transport");
    let daemon = place.start(&config);
    let expected = if bathy_fuse::is_ring_offered() {
        "ring"
    } else {
        "dev"
    };
    assert_eq!(source(&daemon, 0)["transport"], expected);
    for _ in 0..2 {
        let read = fs::read(place.dir().join("file")).expect("it is served");
        assert_eq!(read, vec![7; 3 * UNIT as usize]);
    }
}
