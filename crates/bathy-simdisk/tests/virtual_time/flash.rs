//! Flash devices have about the figures of their data sheets.

use bathy_random::Random;
use bathy_simdisk::model::{Device, Op};

use crate::host::{Measured, device, run};

const SIZE: u64 = 64 << 30;

fn random_io(disk: &mut dyn Device, writes: bool, depth: usize, count: usize) -> Measured {
    let mut random = Random::new(3);
    let op = if writes {
        Op::Write { durable: false }
    } else {
        Op::Read
    };
    run(disk, depth, count, 1_000, |_| {
        (op, random.below(SIZE / 4096) * 4096, 4096)
    })
}

fn sequential(disk: &mut dyn Device, op: Op, bytes: u64) -> f64 {
    let length = 1 << 20;
    let measured = run(disk, 16, (bytes / length) as usize, 1_000, |index| {
        (op, index as u64 * length % SIZE, length)
    });
    measured.per_second() * length as f64
}

fn about(measured: f64, stated: f64, what: &str) {
    eprintln!("{what}: {measured:.4e}, stated {stated:.4e}");
    assert!(
        (measured / stated - 1.0).abs() < 0.2,
        "{what}: {measured} instead of about {stated}"
    );
}

const WRITE: Op = Op::Write { durable: false };

#[test]
fn a_data_centre_nvme_has_its_data_sheet() {
    let fresh = || device("nvme-dc", SIZE, None);
    about(
        random_io(&mut *fresh(), false, 1, 20_000).mean_ns(),
        77e3,
        "read latency",
    );
    about(
        random_io(&mut *fresh(), true, 1, 20_000).mean_ns(),
        18e3,
        "write latency",
    );
    about(
        random_io(&mut *fresh(), false, 256, 400_000).per_second(),
        637e3,
        "random reads",
    );
    about(
        sequential(&mut *fresh(), Op::Read, 4 << 30),
        3.2e9,
        "sequential reads",
    );
    about(
        sequential(&mut *fresh(), WRITE, 8 << 30),
        2.0e9,
        "sequential writes",
    );
}

#[test]
fn a_sata_ssd_has_its_data_sheet() {
    let fresh = || device("ssd-sata", SIZE, None);
    about(
        random_io(&mut *fresh(), false, 32, 100_000).per_second(),
        95e3,
        "random reads",
    );
    about(
        sequential(&mut *fresh(), Op::Read, 2 << 30),
        560e6,
        "sequential reads",
    );
    about(
        sequential(&mut *fresh(), WRITE, 2 << 30),
        510e6,
        "sequential writes",
    );
}

#[test]
fn random_writes_are_fast_at_first_and_slow_for_long() {
    let mut disk = device("nvme-dc", SIZE, None);
    let burst = random_io(&mut *disk, true, 64, 200_000).per_second();
    // Sixteen GiB of burst in larger requests, then the sustained rate.
    let mut random = Random::new(4);
    run(&mut *disk, 64, 40_000, 1_000, |_| {
        (WRITE, random.below(SIZE >> 20) << 20, 512 << 10)
    });
    let before = disk.work().wear_ratio;
    let sustained = random_io(&mut *disk, true, 64, 200_000).per_second();
    eprintln!("burst {burst:.0}, sustained {sustained:.0}");
    about(sustained, 81_500.0, "sustained random writes");
    assert!(burst > 3.0 * sustained);
    assert!(disk.work().wear_ratio > before && disk.work().erases > 0);
}

#[test]
fn writes_make_the_tail_of_the_reads() {
    let quiet = random_io(&mut *device("nvme-dc", SIZE, None), false, 4, 50_000);
    let mut random = Random::new(6);
    let mut disk = device("nvme-dc", SIZE, None);
    let mixed = run(&mut *disk, 4, 100_000, 1_000, |index| {
        let offset = random.below(SIZE / 4096) * 4096;
        if index % 2 == 0 {
            (Op::Read, offset, 4096)
        } else {
            (WRITE, offset, 4096)
        }
    });
    assert!(quiet.quantile_ns(0.5) < 90_000 && quiet.quantile_ns(0.9999) > 500_000);
    assert!(mixed.quantile_ns(0.95) > quiet.quantile_ns(0.95));
}

#[test]
fn a_flush_costs_a_program_without_power_loss_protection() {
    let flushes = |name| {
        let mut disk = device(name, SIZE, None);
        run(&mut *disk, 1, 2_000, 1_000, |index| {
            if index % 2 == 0 {
                (WRITE, index as u64 * 4096, 4096)
            } else {
                (Op::Flush, 0, 0)
            }
        })
    };
    assert!(flushes("nvme-consumer").mean_ns() * 2.0 > 800_000.0);
    assert!(flushes("nvme-dc").mean_ns() * 2.0 < 60_000.0);
}
