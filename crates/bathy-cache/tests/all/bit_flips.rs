//! Flipped bits in every structure on the SSD, after a clean stop and after a power cut: never a wrong byte.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bathy_cache::format::{SECTOR_BYTES, Superblock};
use bathy_cache::{OpenError, Recovery};

use crate::common::{Cache, LINE, MemoryStore, MemoryWitness, Random, UNIT, World, assert_serves_backing};

const BYTES: u64 = 512 << 10;

/// Images of the short form; `BATHY_TORTURE_FLIPS` makes it longer.
fn images() -> u64 {
    let asked = std::env::var("BATHY_TORTURE_FLIPS").ok();
    asked.map_or(1500, |text| text.parse().expect("a number of images"))
}

/// Requests to a cache that is opened for them.
fn session(world: &World, seed: u64) -> Cache {
    let engine = world.open().engine;
    let mut random = Random(seed);
    for _ in 0..400 {
        let offset = random.below(BYTES / UNIT) * UNIT;
        let len = ((1 + random.below(4)) * UNIT).min(BYTES - offset) as usize;
        let mut data = vec![0; len];
        match random.below(20) {
            0..13 => engine.read(&mut data, offset, 0).expect("the backing works"),
            13..19 => {
                random.fill(&mut data);
                engine
                    .write(&data, offset % (BYTES / 2), 0)
                    .expect("the backing works");
            }
            _ => assert!(engine.tidy()),
        }
    }
    engine
}

/// A cache that was used, stopped and used again, and its SSD: after another clean stop, or after a power cut that took all
/// that was not flushed, so that lines in marked regions are older than the backing.
fn used(is_clean: bool) -> (World, Vec<u8>) {
    let world = World::new(BYTES, 20, 2);
    world.ssd.flushed();
    assert!(session(&world, 1).stop().expect("the backing works"));
    let engine = session(&world, 2);
    if is_clean {
        assert!(engine.stop().expect("the backing works"));
    }
    let ssd = world.ssd.flushed();
    (world, ssd)
}

#[test]
fn flipped_bits_never_make_a_wrong_byte() {
    for is_clean in [true, false] {
        let (world, ssd) = used(is_clean);
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
        let of_this = images() / 2;
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
            let context = format!("image {number} of {area:?}, {:?}", opened.recovery);
            assert_serves_backing(&opened.engine, &backing, LINE as usize, &context);
            assert_serves_backing(&opened.engine, &backing, UNIT as usize, &context);
            mismatches += opened.engine.counts().mismatches;
            assert_eq!(opened.engine.counts().ssd_errors, 0);
        }
        eprintln!(
            "clean {is_clean}: {of_this} images, {refused} refused, {mismatches} mismatches, {lines} lines"
        );
        assert!(
            refused > 0 && refused < of_this / 4 && mismatches > of_this / 4,
            "{refused} {mismatches}"
        );
        assert!(lines > of_this * 4, "damage costs single lines");
    }
}
