//! Mutations that know how traces are made: lines, fields, numbers, records, compression.
//!
//! Shared by the bounded fuzzing of the ordinary tests and by the mutator of the coverage-guided fuzzer.

use std::io::{Read, Write};
use std::ops::Range;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

/// No mutation makes a trace longer than this.
const BYTES_MAX: usize = 64 << 10;

/// What the parsers look for, and what breaks them.
const WORDS: &[&[u8]] = &[
    b"\n",
    b"\r\n",
    b",",
    b"\"",
    b"\"\"",
    b"[",
    b"]",
    b" [",
    b"] v",
    b"{",
    b"}",
    b"\\",
    b"\\u12",
    b" ",
    b"~",
    b"@",
    b":",
    b":head",
    b" + ",
    b"-1",
    b"\0",
    b"\xff\xff\xff\xff",
    b"\x07tae",
    b"\x08tae",
    b"eat\x08",
    b"osd_op(",
    b" log_op_stats ",
    b" lat ",
    b" <== client.",
    b"==== osd_op(",
    b"--> ",
    b" -- osd_op_reply(",
    b"rbd_data.1.0000000000000001",
    b"\"description\":\"",
    b"\"initiated_at\":\"2026-11-21T01:02:03.0+0000\"",
    b"2026-11-21T01:02:03.0+0000",
];

/// Numbers at which a width, a sign or a unit ends.
const NUMBERS: &[u64] = &[
    0,
    1,
    0xff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    1 << 32,
    (1 << 48) - 1,
    1 << 55,
    u64::MAX / 4096,
    i64::MAX as u64,
    u64::MAX,
];

/// A generator of pseudo-random numbers (splitmix64): the same on every machine.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`, 0 for a limit of 0.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

/// Changes a trace in a few places; what is compressed is changed inside as a rule. Pieces of `other` may come in.
pub(crate) fn mutate(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    match gunzip(bytes).filter(|_| random.below(4) > 0) {
        Some(mut plain) => {
            change(&mut plain, other, random);
            *bytes = gzip(&plain, random);
        }
        None => change(bytes, other, random),
    }
    if random.below(32) == 0 {
        let at = random.below(bytes.len() + 1);
        // Two members are one trace, and a member may be cut.
        let behind = bytes.split_off(at);
        *bytes = [gzip(bytes, random), gzip(&behind, random)].concat();
        let at = bytes.len() - random.below(4) * random.below(20).min(bytes.len() / 4);
        bytes.truncate(at);
    }
    bytes.truncate(BYTES_MAX);
}

fn gunzip(bytes: &[u8]) -> Option<Vec<u8>> {
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return None;
    }
    let mut plain = Vec::new();
    GzDecoder::new(bytes)
        .take(BYTES_MAX as u64)
        .read_to_end(&mut plain)
        .ok()?;
    Some(plain)
}

fn gzip(plain: &[u8], random: &mut Random) -> Vec<u8> {
    let level = Compression::new(random.below(3) as u32);
    let mut encoder = GzEncoder::new(Vec::new(), level);
    encoder.write_all(plain).expect("writing to memory does not fail");
    encoder.finish().expect("writing to memory does not fail")
}

fn change(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    for _ in 0..=random.below(6) {
        let at = random.below(bytes.len() + 1);
        match random.below(14) {
            0 => bytes.truncate(at),
            1 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            2 if at < bytes.len() => bytes[at] = random.next() as u8,
            3 | 4 => insert(bytes, at, random.of(WORDS)),
            5 => {
                let end = (at + random.below(40)).min(bytes.len());
                bytes.drain(at..end);
            }
            6 => {
                let end = (at + random.below(200)).min(bytes.len());
                let copy = bytes[at..end].to_vec();
                let to = random.below(bytes.len() + 1);
                insert(bytes, to, &copy);
            }
            7 | 8 => replace_number(bytes, at, random),
            9 => {
                let line = line_at(bytes, at);
                let copy = bytes[line.clone()].repeat(1 + random.below(20));
                insert(bytes, line.end, &copy);
            }
            10 => {
                let line = line_at(bytes, at);
                let moved: Vec<u8> = bytes.drain(line).collect();
                let to = line_at(bytes, random.below(bytes.len() + 1)).start;
                insert(bytes, to, &moved);
            }
            11 => overwrite_number(bytes, at, random),
            12 => {
                let start = random.below(other.len());
                let end = (start + random.below(300)).min(other.len());
                insert(bytes, at, &other[start..end]);
            }
            _ => {
                let end = (at + 1 + random.below(3)).min(bytes.len());
                let many = bytes[at..end].repeat(random.below(1500));
                insert(bytes, at, &many);
            }
        }
        // Repetitions of repetitions would grow without bound.
        bytes.truncate(BYTES_MAX);
    }
}

fn insert(bytes: &mut Vec<u8>, at: usize, what: &[u8]) {
    bytes.splice(at..at, what.iter().copied());
}

/// The line around a position, with its end.
fn line_at(bytes: &[u8], at: usize) -> Range<usize> {
    let is_end = |byte: &u8| *byte == b'\n';
    let start = bytes[..at].iter().rposition(is_end).map_or(0, |end| end + 1);
    let end = bytes[at..]
        .iter()
        .position(is_end)
        .map_or(bytes.len(), |length| at + length + 1);
    start..end
}

/// Writes another number over the next one in decimal.
fn replace_number(bytes: &mut Vec<u8>, at: usize, random: &mut Random) {
    let Some(start) = bytes[at..].iter().position(u8::is_ascii_digit) else {
        return;
    };
    let start = at + start;
    let digits = bytes[start..]
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let number = random.of(NUMBERS);
    let text = match random.below(8) {
        0 => format!("{number}0"),
        1 => format!("{number:030}"),
        2 => format!("0.{number}"),
        3 => (random.next() >> random.below(64)).to_string(),
        _ => number.to_string(),
    };
    bytes.splice(start..start + digits, text.into_bytes());
}

/// Writes a number over the bytes of a record, mostly where a field of one starts.
fn overwrite_number(bytes: &mut [u8], at: usize, random: &mut Random) {
    let at = if random.below(4) == 0 { at } else { at & !3 };
    let number = random.of(NUMBERS).wrapping_sub(random.below(2) as u64);
    let width = random.of(&[1, 2, 4, 8]);
    let mut field = number.to_le_bytes();
    if random.below(4) == 0 {
        field[..width].reverse();
    }
    for (byte, new) in bytes.iter_mut().skip(at).zip(&field[..width]) {
        *byte = *new;
    }
}
