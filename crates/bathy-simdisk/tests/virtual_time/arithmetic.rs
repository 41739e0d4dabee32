//! A simulated hard disk takes the time that arithmetic on its figures says.

use bathy_random::Random;
use bathy_simdisk::model::Op;
use bathy_simdisk::model::hdd::{Hdd, HddFigures};
use bathy_simdisk::model::{Device, Settings};
use bathy_simdisk::profile::{Kind, profile};

use crate::host::{device, run};

const SIZE: u64 = 100 << 30;
const PROFILES: [&str; 3] = ["hdd-7200-4t", "hdd-7200-16t", "hdd-10k-sas"];
/// The host's own time between a completion and its next request.
const THINK_NS: u64 = 10_000;

fn figures(name: &str) -> HddFigures {
    match profile(name).unwrap().kind {
        Kind::Hdd(figures) => figures,
        _ => unreachable!("a hard disk"),
    }
}

/// Mean seek + half a turn + transfer + command overhead for random reads in the first `share` of the disk.
fn expected_random_read_ns(name: &str, share: f64, length: u64) -> f64 {
    let figures = figures(name);
    let disk = Hdd::new(figures, &Settings::new(SIZE, 1));
    let points = 2_000_u64;
    let at = |index: u64| (SIZE as f64 * share * (index as f64 + 0.5) / points as f64) as u64 / 4096 * 4096;
    let strokes: Vec<f64> = (0..points)
        .map(|index| disk.geometry().place(at(index)).stroke)
        .collect();
    let mut seek_ns = 0.0;
    for one in &strokes {
        for other in &strokes {
            seek_ns += disk.seek_curve().time_ns((one - other).abs());
        }
    }
    seek_ns /= (points * points) as f64;
    let transfer_ns = (0..points)
        .map(|index| disk.geometry().stream_ns(at(index), length))
        .sum::<f64>()
        / points as f64;
    seek_ns + figures.geometry.revolution_ns as f64 / 2.0 + transfer_ns + figures.command_overhead_ns as f64
}

fn random_reads(disk: &mut dyn Device, share: f64, depth: usize, count: usize) -> crate::host::Measured {
    let mut random = Random::new(11);
    let blocks = (SIZE as f64 * share) as u64 / 4096;
    run(disk, depth, count, THINK_NS, |_| {
        (Op::Read, random.below(blocks) * 4096, 4096)
    })
}

fn assert_within(measured: f64, expected: f64, tolerance: f64, what: &str) {
    let off = measured / expected - 1.0;
    eprintln!(
        "{what}: measured {measured:.4e}, expected {expected:.4e}, off by {:.2} %",
        off * 100.0
    );
    assert!(off.abs() < tolerance, "{what}: {measured} instead of {expected}");
}

#[test]
fn random_reads_take_mean_seek_and_half_a_turn_and_transfer() {
    for name in PROFILES {
        let measured = random_reads(&mut *device(name, SIZE, None), 1.0, 1, 40_000);
        assert_within(
            measured.mean_ns(),
            expected_random_read_ns(name, 1.0, 4096),
            0.02,
            name,
        );
    }
}

#[test]
fn short_stroked_random_reads_seek_less() {
    for name in PROFILES {
        let measured = random_reads(&mut *device(name, SIZE, None), 0.1, 1, 40_000);
        assert_within(
            measured.mean_ns(),
            expected_random_read_ns(name, 0.1, 4096),
            0.03,
            name,
        );
        let whole = expected_random_read_ns(name, 1.0, 4096);
        assert!(
            measured.mean_ns() < whole * 0.8,
            "{} is not much less than {whole}",
            measured.mean_ns()
        );
    }
}

#[test]
fn sequential_reads_have_the_rate_of_their_zone() {
    for name in PROFILES {
        for (depth, length) in [(1, 128 << 10), (1, 1 << 20), (8, 256 << 10)] {
            for start in [0, SIZE / 2, SIZE - (1 << 30)] {
                let mut disk = device(name, SIZE, None);
                let count = (768 << 20) / length;
                let measured = run(&mut *disk, depth, count as usize, THINK_NS, |index| {
                    (Op::Read, start + index as u64 * length, length)
                });
                let rate = measured.per_second() * length as f64;
                let geometry = figures(name);
                let middle = Hdd::new(geometry, &Settings::new(SIZE, 1))
                    .geometry()
                    .rate_bytes_per_s(start + (384 << 20));
                assert_within(
                    rate,
                    middle,
                    0.02,
                    &format!("{name} depth {depth} {length} at {start}"),
                );
            }
        }
    }
}

#[test]
fn without_write_cache_a_sequential_write_takes_a_revolution() {
    for name in PROFILES {
        let mut disk = device(name, SIZE, Some(false));
        // A write and its fsync, which has nothing to do.
        let measured = run(&mut *disk, 1, 4_000, THINK_NS, |index| {
            if index % 2 == 0 {
                (Op::Write { durable: false }, index as u64 / 2 * 4096, 4096)
            } else {
                (Op::Flush, 0, 0)
            }
        });
        let revolutions = 1e9 / figures(name).geometry.revolution_ns as f64;
        assert_within(measured.per_second() / 2.0, revolutions, 0.03, name);
    }
}

#[test]
fn a_stream_of_writes_keeps_its_rate_if_some_of_them_are_late() {
    let stream = |name: &str, late_every: usize, late_by: usize| {
        let mut order: Vec<u64> = (0..10_000).collect();
        // The first one before the cache is full, when the arm is close behind the host.
        for index in (17..order.len() - late_by).step_by(late_every) {
            let late = order.remove(index);
            order.insert(index + late_by, late);
        }
        let mut disk = device(name, SIZE, Some(true));
        let write = |index: usize| (Op::Write { durable: false }, order[index] << 16, 1 << 16);
        let measured = run(&mut *disk, 64, order.len(), 100_000, write);
        (measured.per_second(), disk.work().seeks)
    };
    for name in PROFILES {
        let (in_order, seeks) = stream(name, 1000, 0);
        assert_eq!(seeks, 0, "{name}");
        for late_by in [40, 200] {
            let (late, seeks) = stream(name, 1000, late_by);
            assert_within(late, in_order, 0.05, &format!("{name}, late by {late_by}"));
            // There and back for each of the ten.
            assert!(seeks <= 30, "{name}, late by {late_by}: {seeks} seeks");
        }
    }
}

#[test]
fn a_write_cache_hides_the_revolutions_until_it_is_flushed() {
    let mut disk = device("hdd-7200-4t", SIZE, Some(true));
    let cached = run(&mut *disk, 1, 2_000, THINK_NS, |index| {
        (Op::Write { durable: false }, index as u64 * 4096, 4096)
    });
    assert!(cached.quantile_ns(0.99) < 100_000, "{}", cached.quantile_ns(0.99));
    let mut disk = device("hdd-7200-4t", SIZE, Some(true));
    let flushed = run(&mut *disk, 1, 2_000, THINK_NS, |index| {
        if index % 2 == 0 {
            (Op::Write { durable: false }, index as u64 / 2 * 4096, 4096)
        } else {
            (Op::Flush, 0, 0)
        }
    });
    assert_within(flushed.per_second() / 2.0, 120.0, 0.03, "write and flush");
    let mut disk = device("hdd-7200-4t", SIZE, Some(true));
    let durable = run(&mut *disk, 1, 1_000, THINK_NS, |index| {
        (Op::Write { durable: true }, index as u64 * 4096, 4096)
    });
    assert_within(durable.per_second(), 120.0, 0.03, "FUA");
}

/// The Seagate Exos X16 data sheet states 170 IOPS at depth 16, about twice those of depth 1 (see `model::hdd`); from depth
/// 32 between 2 and 3 times are expected.
#[test]
fn a_deep_queue_gains_what_drives_gain() {
    for name in PROFILES {
        let one = random_reads(&mut *device(name, SIZE, None), 1.0, 1, 10_000).per_second();
        let deep = random_reads(&mut *device(name, SIZE, None), 1.0, 32, 40_000).per_second();
        eprintln!(
            "{name}: {one:.0} IOPS at depth 1, {deep:.0} at 32, {:.2} times",
            deep / one
        );
        assert!((2.0..3.0).contains(&(deep / one)), "{name}: {}", deep / one);
    }
    let sixteen = random_reads(&mut *device("hdd-7200-16t", SIZE, None), 1.0, 16, 40_000);
    eprintln!("hdd-7200-16t at depth 16: {:.0} IOPS", sixteen.per_second());
    assert_within(sixteen.per_second(), 170.0, 0.1, "Exos X16 at depth 16");
}

#[test]
fn ageing_bounds_the_wait_in_a_deep_queue() {
    let measured = random_reads(&mut *device("hdd-7200-4t", SIZE, None), 1.0, 32, 40_000);
    eprintln!(
        "p99 {} ms, max {} ms",
        measured.quantile_ns(0.99) / 1_000_000,
        measured.quantile_ns(1.0) / 1_000_000
    );
    assert!(measured.quantile_ns(1.0) < 1_500_000_000);
}

#[test]
fn scattered_cached_writes_are_written_in_a_good_order() {
    let mut random = Random::new(5);
    let mut disk = device("hdd-7200-4t", SIZE, Some(true));
    // More than the cache holds, so that the arm sets the pace.
    let measured = run(&mut *disk, 4, 40_000, THINK_NS, |_| {
        (
            Op::Write { durable: false },
            random.below(SIZE / 4096) * 4096,
            4096,
        )
    });
    let unordered = 1e9 / (expected_random_read_ns("hdd-7200-4t", 1.0, 4096) + 500_000.0);
    let last: u64 = measured.latencies_ns[30_000..].iter().sum();
    let rate = 4.0 * 10_000.0 * 1e9 / last as f64;
    eprintln!("{rate:.0} IOPS from the cache, {unordered:.0} one by one");
    assert!((2.0..5.0).contains(&(rate / unordered)));
}

#[test]
fn a_slower_disk_is_slower_by_the_factor() {
    let mut disk = device("hdd-7200-4t", SIZE, None);
    disk.set_slowdown(10.0);
    let measured = random_reads(&mut *disk, 1.0, 1, 5_000);
    assert_within(
        measured.mean_ns(),
        10.0 * expected_random_read_ns("hdd-7200-4t", 1.0, 4096),
        0.02,
        "slow=10x",
    );
}

#[test]
fn work_adds_up_to_the_busy_time() {
    let mut disk = device("hdd-7200-4t", SIZE, None);
    let measured = random_reads(&mut *disk, 1.0, 1, 2_000);
    let work = disk.work();
    let parts = work.seek_ns + work.rotation_ns + work.transfer_ns;
    assert!(
        work.mechanism_busy_ns.abs_diff(parts + 2_000 * 20_000) < 2_000 * 2_000,
        "{work:?}"
    );
    assert!(work.mechanism_busy_ns <= measured.elapsed_ns);
    assert!(
        work.seeks > 1_990 && work.media_read_bytes == 2_000 * 4096,
        "{work:?}"
    );
}
