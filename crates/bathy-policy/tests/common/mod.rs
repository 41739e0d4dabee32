//! The checked-in traces, as block numbers.

use std::path::PathBuf;

fn read(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/fixtures/traces")
        .join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The 4 KiB blocks that the commands of the VSCSI1 excerpt touch, in order.
fn cloudphysics_excerpt() -> Vec<u64> {
    let field = |record: &[u8], at: usize, len: usize| {
        record[at..at + len]
            .iter()
            .rev()
            .fold(0u64, |value, &byte| (value << 8) | u64::from(byte))
    };
    let data = read("cloudphysics_excerpt.vscsi");
    let records = data.chunks_exact(32);
    records
        .flat_map(|record| {
            let (start, len) = (field(record, 16, 8) * 512, field(record, 4, 4));
            start / 4096..(start + len).div_ceil(4096)
        })
        .collect()
}

fn multi3() -> Vec<u64> {
    let text = String::from_utf8(read("multi3.lirs")).expect("the trace is text");
    text.lines().filter_map(|line| line.trim().parse().ok()).collect()
}

/// Each trace with its name, its references and eight cache sizes from a few lines to most of its blocks.
pub(crate) fn traces() -> Vec<(&'static str, Vec<u64>, [usize; 8])> {
    vec![
        (
            "cloudphysics_excerpt",
            cloudphysics_excerpt(),
            [1, 10, 80, 250, 500, 1000, 2000, 4000],
        ),
        ("multi3", multi3(), [1, 10, 80, 250, 500, 1000, 2000, 4000]),
    ]
}
