//! Flipped bits in every structure on the SSD, after a clean stop and after a power cut: never a wrong byte.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bathy_cache::format::{SECTOR_BYTES, Superblock};
use bathy_cache::{OpenError, Recovery};
use bathy_policy::PolicyKind;

use crate::common::{
    Cache, LINE_SIZES, MemoryStore, MemoryWitness, Random, UNIT, World, assert_serves_backing,
};

/// Bytes of the backing of a cache with such lines, and its lines.
fn sizes(line: u64) -> (u64, u64) {
    match line {
        16_384 => (512 << 10, 20),
        65_536 => (2 << 20, 20),
        _ => (6 << 20, 16),
    }
}

/// Images of the short form; `BATHY_TORTURE_FLIPS` makes it longer.
fn images() -> u64 {
    let asked = std::env::var("BATHY_TORTURE_FLIPS").ok();
    asked.map_or(1500, |text| text.parse().expect("a number of images"))
}

/// So many requests to a cache.
fn use_it(engine: &Cache, requests: u64, seed: u64) {
    let bytes = engine.file.size_bytes();
    let mut random = Random(seed);
    for _ in 0..requests {
        let offset = random.below(bytes / UNIT) * UNIT;
        let len = ((1 + random.below(4)) * UNIT).min(bytes - offset) as usize;
        let mut data = vec![0; len];
        match random.below(20) {
            0..13 => engine.read(&mut data, offset, 0).expect("the backing works"),
            13..19 => {
                random.fill(&mut data);
                engine
                    .write(&data, offset % (bytes / 4), 0)
                    .expect("the backing works");
            }
            _ => assert!(engine.tidy()),
        }
    }
}

/// A cache that was used, stopped and used again, and its SSD: after another clean stop, or after a power cut that took all
/// that was not flushed, so that lines in marked regions are older than the backing and others are as they were.
fn used(line: u64, is_clean: bool) -> (World, Vec<u8>) {
    let (bytes, lines) = sizes(line);
    let world = World::running(PolicyKind::S3Fifo, line, bytes, lines, 2);
    world.ssd.flushed();
    let engine = world.open().engine;
    use_it(&engine, 400, 1);
    assert!(engine.stop().expect("the backing works"));
    let engine = world.open().engine;
    use_it(&engine, 400, 2);
    if is_clean {
        assert!(engine.stop().expect("the backing works"));
    } else {
        assert!(engine.tidy() && engine.tidy());
        use_it(&engine, 20, 3);
    }
    let ssd = world.ssd.flushed();
    (world, ssd)
}

#[test]
fn flipped_bits_never_make_a_wrong_byte() {
    let of_line = |line: u64| [(line, true), (line, false)];
    for (line, is_clean) in LINE_SIZES.into_iter().flat_map(of_line) {
        let (world, ssd) = used(line, is_clean);
        let backing = world.backing.bytes();
        let superblock = (0..2).filter_map(|place| Superblock::decode(&ssd[place * 4096..][..4096]).ok());
        let superblock = superblock
            .max_by_key(|superblock| superblock.sequence)
            .expect("there is one");
        let layout = superblock.geometry.layout();
        let shards = superblock.geometry.shards;
        let areas = [
            0..4096,
            4096..8192,
            0..8192,
            layout.intent()..layout.intent() + layout.intent_sectors() * SECTOR_BYTES as u64,
            layout.files(0)..layout.files(layout.file_blocks()),
            layout.state(0, 0)..layout.state(shards, 0),
            layout.table(0, 0)..layout.table(shards, 0),
            layout.data(0, 0)..layout.end(),
            0..layout.end(),
        ];
        let mut random = Random(u64::from(is_clean));
        let (mut refused, mut mismatches, mut lines) = (0, 0, 0);
        let of_this = images() / 6;
        for number in 0..of_this {
            // The backing is the same in all, with the same times.
            let damaged = World {
                ssd: MemoryStore::new(ssd.clone()),
                backing: world.backing.clone(),
                witness: Arc::new(MemoryWitness {
                    generation: world.witness.generation.load(Ordering::SeqCst).into(),
                    ..MemoryWitness::default()
                }),
                options: world.options,
                line: world.line,
            };
            let area = &areas[number as usize % areas.len()];
            for _ in 0..1 << random.below(8) {
                damaged
                    .ssd
                    .flip(area.start * 8 + random.below((area.end - area.start) * 8));
            }
            let opened = match damaged.try_open() {
                Ok(opened) => opened,
                Err(OpenError::Superblock(_)) => {
                    refused += 1;
                    continue;
                }
                Err(error) => panic!("{error}"),
            };
            assert!(
                !matches!(opened.recovery, Recovery::Cold(_)),
                "{:?}",
                opened.recovery
            );
            opened.engine.for_each_line(&mut |_| lines += 1);
            if number == 0 {
                eprintln!("lines of {line}: {:?}", opened.recovery);
            }
            let context = format!("image {number} of {area:?}, {:?}", opened.recovery);
            assert_serves_backing(&opened.engine, &backing, line as usize, &context);
            assert_serves_backing(&opened.engine, &backing, UNIT as usize, &context);
            mismatches += opened.engine.counts().mismatches;
            assert_eq!(opened.engine.counts().ssd_errors, 0);
        }
        eprintln!(
            "lines of {line}, clean {is_clean}: {of_this} images, {refused} refused, {mismatches} mismatches, {lines} lines"
        );
        assert!(
            refused > 0 && refused < of_this / 4 && mismatches > of_this / 4,
            "{refused} {mismatches}"
        );
        assert!(lines > of_this, "damage costs single lines");
    }
}
