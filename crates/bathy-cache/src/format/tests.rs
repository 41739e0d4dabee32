//! Round trips, hostile bytes, and the bytes of versions 3 and 4.

use std::fmt::Write;

use bathy_policy::{CachePolicy, PolicyKind, StateRecord};
use proptest::prelude::*;

use super::sealed::{Kind, put_u16, put_u32, seal, words};
use super::*;
use crate::store::Stamp;

const UUID: Uuid = *b"0123456789abcdef";

fn geometry() -> impl Strategy<Value = Geometry> {
    (12u32..19, 1u32..1025, 1u32..1 << 30, 18u32..41, 1u64..1 << 32).prop_map(
        |(line, shards, slots, region, intent_bits)| {
            Geometry {
                line_bytes: 1 << line,
                shards,
                slots,
                region_bytes: 1 << region,
                intent_bits,
                extents: [Extent::default(); EXTENTS_MAX],
            }
            .with_slots(slots)
        },
    )
}

fn superblock() -> impl Strategy<Value = Superblock> {
    let numbers = any::<[u64; 3]>();
    (
        any::<Uuid>(),
        numbers,
        any::<bool>(),
        0..CachePolicy::KINDS.len(),
        geometry(),
    )
        .prop_map(
            |(uuid, [sequence, generation, next_file], is_clean, policy, geometry)| Superblock {
                uuid,
                sequence: sequence >> 40,
                generation,
                is_clean,
                geometry,
                policy: CachePolicy::KINDS[policy],
                next_file: next_file as u32,
                stage_slots: (next_file >> 32) as u32,
            },
        )
}

fn file_record() -> impl Strategy<Value = FileRecord> {
    let handle = prop::collection::vec(any::<u8>(), 0..=HANDLE_BYTES_MAX);
    let stamp = prop::option::of(any::<[u64; 4]>());
    (any::<Uuid>(), handle, 1u32.., any::<u64>(), stamp, any::<bool>()).prop_map(
        |(source, handle, number, generation, stamp, is_compared)| FileRecord {
            identity: FileIdentity::new(source, &handle).expect("it is short enough"),
            number,
            generation,
            is_compared,
            stamp: stamp.map(|[size_bytes, id, modified_ns, changed_ns]| Stamp {
                size_bytes,
                id,
                modified_ns,
                changed_ns,
            }),
        },
    )
}

/// Units of lines with the smaller records and entries, and with the larger ones.
fn line_units() -> impl Strategy<Value = usize> {
    prop::sample::select(vec![4, 16, 32, 64])
}

fn record(line_units: usize) -> impl Strategy<Value = Record> {
    let crcs = prop::collection::vec(any::<u32>(), line_units);
    (any::<Option<u64>>(), any::<[u64; 3]>(), crcs).prop_map(
        move |(key, [valid, generation, sequence], of_units)| {
            let mut crcs = [0; UNITS_MAX];
            crcs[..line_units].copy_from_slice(&of_units);
            Record {
                key,
                valid: valid >> (64 - line_units),
                generation,
                sequence,
                crcs,
            }
        },
    )
}

/// The bytes of a record.
fn encoded(record: &Record, line_units: usize, number: u64) -> Vec<u8> {
    let mut bytes = vec![0xa5; record_bytes(line_units)];
    record.encode(&UUID, number, &mut bytes);
    bytes
}

fn state_record(line_units: usize) -> impl Strategy<Value = (StateRecord, u64)> {
    prop_oneof![
        (any::<u32>(), any::<u64>(), any::<u8>(), any::<u64>()).prop_map(
            move |(slot, key, references, units)| {
                let line = StateRecord::Line {
                    slot,
                    key,
                    references,
                };
                (line, units >> (64 - line_units))
            }
        ),
        any::<u32>().prop_map(|slot| (StateRecord::Free { slot }, 0)),
        (any::<u32>(), any::<u64>())
            .prop_map(|(number, known_by)| (StateRecord::Ghost { number, known_by }, 0)),
        any::<[u32; 3]>().prop_map(|[main, small, ghosts]| (StateRecord::Hands { main, small, ghosts }, 0)),
    ]
}

/// Makes the seal of arbitrary bytes right, as a hostile writer can.
fn sealed(mut bytes: Vec<u8>, words: &[u64]) -> Vec<u8> {
    seal(&mut bytes, words);
    bytes
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded_and_no_flipped_bit_is_overlooked(
        superblock in superblock(), file in file_record(), slot: u32, is_last: bool,
        (line_units, record, entries) in line_units().prop_flat_map(|units| (
            Just(units), record(units), prop::collection::vec(state_record(units), 0..=entries_per_block(units)),
        )),
        regions in prop::collection::btree_set(0..REGIONS_PER_SECTOR, 0..50), number: u64, bit: usize,
    ) {
        let flipped = |bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            let bit = bit % (bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            bytes
        };
        let bytes = superblock.encode();
        prop_assert_eq!(Superblock::decode(&bytes), Ok(superblock));
        prop_assert!(Superblock::decode(&flipped(&bytes)).is_err());

        let bytes = encoded(&record, line_units, number);
        prop_assert_eq!(Record::decode(&UUID, number, &bytes), Some(Record { key: record.key, ..record }));
        prop_assert_eq!(Record::decode(&UUID, number, &flipped(&bytes)), None);
        prop_assert_eq!(Record::decode(&UUID, number ^ 1, &bytes), None, "of another slot");
        prop_assert_eq!(Record::decode(b"another cache...", number, &bytes), None);

        let bytes = FileRecord::encode(Some(&file), &UUID, slot);
        prop_assert_eq!(FileRecord::decode(&UUID, slot, &bytes), Some(file));
        prop_assert_eq!(FileRecord::decode(&UUID, slot, &flipped(&bytes)), None);
        prop_assert_eq!(FileRecord::decode(&UUID, slot ^ 1, &bytes), None, "of another slot");
        prop_assert_eq!(FileRecord::decode(&UUID, slot, &FileRecord::encode(None, &UUID, slot)), None);

        let state = StateBlock { entries, is_last };
        let bytes = state.encode(line_units, &UUID, 5, 1, 2);
        prop_assert_eq!(StateBlock::decode(line_units, &UUID, 5, 1, 2, &bytes), Some(state));
        prop_assert_eq!(StateBlock::decode(line_units, &UUID, 5, 1, 2, &flipped(&bytes)), None);
        prop_assert_eq!(StateBlock::decode(line_units, &UUID, 6, 1, 2, &bytes), None, "of another stop");

        let bytes = encode_intent(&UUID, number, |region| regions.contains(&region));
        prop_assert_eq!(decode_intent(&UUID, number, &bytes), Some(regions.into_iter().collect()));
        prop_assert_eq!(decode_intent(&UUID, number, &flipped(&bytes)), None);
    }

    #[test]
    fn hostile_bytes_are_refused_or_read_and_never_panic(
        noise in prop::collection::vec(any::<u8>(), 4096..4097), magic: bool, version: bool,
    ) {
        let mut block = noise.clone();
        if magic {
            block[8..16].copy_from_slice(b"BathyCch");
        }
        if version {
            put_u32(&mut block, 16, VERSIONS[usize::from(noise[0]) % VERSIONS.len()]);
        }
        let mut uuid = Uuid::default();
        uuid.copy_from_slice(&block[24..40]);
        let _ = Superblock::decode(&block);
        if let Ok(superblock) = Superblock::decode(&sealed(block, &words(Kind::Superblock, &uuid, 0))) {
            prop_assert_eq!(superblock.geometry.check(), Ok(()));
            prop_assert!(superblock.geometry.layout().end() > 0);
        }
        for bytes in [128, 512] {
            let _ = Record::decode(&UUID, 3, &sealed(noise[..bytes].to_vec(), &words(Kind::Record, &UUID, 3)));
        }
        let _ = FileRecord::decode(&UUID, 3, &sealed(noise[..256].to_vec(), &words(Kind::File, &UUID, 3)));
        let mut empty_or_not = noise[..256].to_vec();
        put_u16(&mut empty_or_not, 4, 1);
        put_u16(&mut empty_or_not, 6, u16::from(noise[300]));
        let file = FileRecord::decode(&UUID, 3, &sealed(empty_or_not, &words(Kind::File, &UUID, 3)));
        prop_assert!(file.is_none_or(|file| file.number != 0 && file.identity.handle().len() <= HANDLE_BYTES_MAX));
        let _ = decode_intent(&UUID, 3, &sealed(noise[..512].to_vec(), &words(Kind::Intent, &UUID, 3)));
        let [kind, high, low, shard] = words(Kind::State, &UUID, 1);
        for line_units in [16, 64] {
            let _ = StateBlock::decode(line_units, &UUID, 5, 1, 2, &sealed(noise.clone(), &[kind, high, low, shard, 2, 5]));
        }
        for len in [0, 1, 127, 4095] {
            let _ = Superblock::decode(&noise[..len]);
            let _ = Record::decode(&UUID, 3, &noise[..len]);
            let _ = FileRecord::decode(&UUID, 3, &noise[..len]);
            let _ = decode_intent(&UUID, 3, &noise[..len]);
            let _ = StateBlock::decode(16, &UUID, 5, 1, 2, &noise[..len]);
        }
    }
}

/// The rows of 16 bytes that are not zero.
fn dump(name: &str, bytes: &[u8]) -> String {
    let mut text = String::new();
    for (number, row) in bytes
        .chunks(16)
        .enumerate()
        .filter(|(_, row)| row.iter().any(|&byte| byte != 0))
    {
        writeln!(text, "{name} {:04x} {row:02x?}", number * 16).expect("a string takes all");
    }
    text
}

#[test]
fn the_bytes_of_versions_3_and_4_stay_what_they_are() {
    bytes_stay(3, 65_536);
    bytes_stay(4, 262_144);
}

/// A superblock of one version with the lines of the other is a damaged one, and one of another version is named.
#[test]
fn a_version_has_its_line_sizes() {
    let superblock = |line_bytes| {
        let blank = Geometry {
            line_bytes,
            shards: 2,
            slots: 0,
            region_bytes: 1 << 20,
            intent_bits: 64,
            extents: [Extent::default(); EXTENTS_MAX],
        };
        Superblock {
            uuid: UUID,
            sequence: 1,
            generation: 1,
            is_clean: true,
            geometry: blank.with_slots(9),
            policy: PolicyKind::S3Fifo,
            next_file: 1,
            stage_slots: 0,
        }
    };
    let decoded = |line_bytes, version| {
        let mut bytes = superblock(line_bytes).encode();
        put_u32(&mut bytes, 16, version);
        Superblock::decode(&sealed(bytes, &words(Kind::Superblock, &UUID, 0)))
    };
    for (line_bytes, version, other) in [(16_384, 3, 4), (65_536, 3, 4), (131_072, 4, 3), (262_144, 4, 3)] {
        let superblock = superblock(line_bytes);
        assert_eq!(superblock.version(), version);
        assert_eq!(decoded(line_bytes, version), Ok(superblock));
        assert_eq!(decoded(line_bytes, other), Err(SuperblockError::Damaged));
    }
    let refused = decoded(65_536, 5).expect_err("of a later version");
    assert_eq!(
        refused.to_string(),
        "its format is version 5, and this program knows versions 3 and 4"
    );
}

fn bytes_stay(version: u32, line_bytes: u32) {
    let line_units = line_bytes as usize / 4096;
    let geometry = Geometry {
        line_bytes,
        shards: 16,
        slots: 0,
        region_bytes: 4 << 20,
        intent_bits: 5000,
        extents: [Extent::default(); EXTENTS_MAX],
    };
    // It grew, and was made a little smaller.
    let geometry = geometry
        .with_slots(900)
        .resized(u64::from(line_bytes) * 20_800)
        .expect("there is room");
    let geometry = geometry
        .resized(u64::from(line_bytes) * 19_200)
        .expect("there is room");
    let superblock = Superblock {
        uuid: UUID,
        sequence: 7,
        generation: 3,
        is_clean: true,
        geometry,
        policy: PolicyKind::Clock2QPlus,
        next_file: 14,
        stage_slots: 0,
    };
    let record = Record {
        key: Some(0x0102_0304),
        valid: 1 << (line_units - 1) | 1,
        generation: 3,
        sequence: 0x0800_0000_0009,
        crcs: std::array::from_fn(|unit| if unit < line_units { unit as u32 + 100 } else { 0 }),
    };
    let file = FileRecord {
        identity: FileIdentity::new(*b"a source's uuid.", &[7; 12]).expect("it is short enough"),
        is_compared: true,
        number: 14,
        generation: 3,
        stamp: Some(Stamp {
            size_bytes: 5 << 30,
            id: 11,
            modified_ns: 12,
            changed_ns: 13,
        }),
    };
    let line = StateRecord::Line {
        slot: 5,
        key: 6,
        references: 2,
    };
    let ghost = StateRecord::Ghost {
        number: 9,
        known_by: 0xff_0000_0001,
    };
    let hands = StateRecord::Hands {
        main: 1,
        small: 2,
        ghosts: 3,
    };
    let state = StateBlock {
        entries: vec![
            (line, 0xf0f0 << (line_units - 16)),
            (StateRecord::Free { slot: 8 }, 0),
            (ghost, 0),
            (hands, 0),
        ],
        is_last: true,
    };
    let layout = geometry.layout();
    let places = format!(
        "layout intent {:#x} files {:#x} state {:#x} table {:#x} data {:#x} {:#x} end {:#x} record {:#x}\nunit crc {:#x}\n",
        layout.intent(),
        layout.files(2),
        layout.state(1, 2),
        layout.table(1, 2),
        layout.data(1, 2),
        layout.data(1, 902),
        layout.end(),
        layout.record_number(1, 2),
        UnitSeed::new(&UUID, 4).crc(2, &[9; 4096]),
    );
    let bytes = [
        dump("superblock", &superblock.encode()),
        dump(
            "record",
            &encoded(&record, line_units, layout.record_number(1, 2)),
        ),
        dump("empty", &encoded(&Record::default(), line_units, 0)),
        dump("file", &FileRecord::encode(Some(&file), &UUID, 5)),
        dump("no file", &FileRecord::encode(None, &UUID, 0)),
        dump("intent", &encode_intent(&UUID, 1, |region| region % 1000 == 3)),
        dump("state", &state.encode(line_units, &UUID, 7, 1, 2)),
        places,
    ]
    .concat();
    assert_eq!(superblock.version(), version);
    let golden = format!("{}/tests/golden/format-{version}.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("BATHY_UPDATE_GOLDEN").is_some() {
        std::fs::write(&golden, &bytes).expect("the golden file can be written");
    }
    let expected = std::fs::read_to_string(&golden).expect("the golden file");
    assert!(
        bytes == expected,
        "the format on the SSD has changed: that is another VERSION, with its own golden file.\n{bytes}"
    );
}
