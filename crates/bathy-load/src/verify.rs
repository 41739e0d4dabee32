//! Whether what is read is what was written.
//!
//! Each block of 4 KiB that is written carries a stamp: which load wrote it, for which image and offset, the number of the
//! write, and a checksum over all of it. A block that is read must be such a block, for its own place; one that this load
//! is not known to have written may be anything that has no stamp. Of this load's blocks it must be no older than the
//! first of the newest writes that were in flight together and have all ended when the read was sent: any of these may be
//! the last. On a block that is written without a pause, nothing newer is asked for.

use std::collections::hash_map::Entry;
use std::time::{SystemTime, UNIX_EPOCH};

use bathy_random::Random;
use rustc_hash::FxHashMap;

use crate::plan::{Direction, Plan, Verify};
use crate::requests::Request;

/// A stamp stands at the start of each block of this size.
pub const BLOCK_BYTES: u64 = 4096;
/// What is remembered of each.
pub const BLOCK_NUMBER_BYTES: u64 = 8;
/// "bathyldb".
const MAGIC: u64 = 0x6264_6c79_6874_6162;
const CHECKSUM: usize = 40;
const STAMP_BYTES: usize = 44;
/// Mismatches that are named; all are counted.
const NAMED_MAX: usize = 100;

/// What is wrong with a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It was written and is zero, or must have been written and is zero.
    Zero,
    /// It has no stamp, and was written or must have been.
    NoStamp,
    /// It has a stamp, and other data.
    Checksum,
    /// It is a block of another image or offset.
    WrongPlace,
    /// A later write of it had ended before it was read.
    Stale,
}

/// A block that is not what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Which image of the plan.
    pub image: u32,
    /// Where in it.
    pub offset: u64,
    /// What is wrong.
    pub fault: Fault,
    /// What the target calls the object that holds it.
    pub object: Option<String>,
}

/// What was checked.
#[derive(Clone, Debug, Default)]
pub struct Verified {
    /// Blocks that were read.
    pub blocks: u64,
    /// Those that were wrong.
    pub mismatches: u64,
    /// The first of them.
    pub named: Vec<Mismatch>,
}

/// What must be known of a request until it has completed.
#[derive(Clone, Debug, Default)]
pub enum Expected {
    /// Nothing.
    #[default]
    Nothing,
    /// That it is written.
    Write,
    /// For each block of a read the number of the write that it must have at least; 0 is none.
    Read(Box<[u64]>),
}

/// Writes of one block that are in flight together.
#[derive(Clone, Copy, Debug)]
struct Writes {
    in_flight: u32,
    /// The first of them.
    first: u64,
    /// One of them has failed: nobody knows whether it was carried out.
    has_failed: bool,
}

/// Stamps what is written and checks what is read.
pub struct Verifier {
    must_be_written: bool,
    load: u64,
    images: Vec<u64>,
    /// The first block of the working sets.
    first_block: u64,
    /// By image and block of its working set: the block has this write of this load, or a later one. Empty where nothing is
    /// read, or nothing written. A table, because a map that grew to many blocks would be copied, and the load would wait.
    at_least: Vec<Vec<u64>>,
    /// By image and block.
    in_flight: FxHashMap<(u32, u64), Writes>,
    writes: u64,
    verified: Verified,
}

impl Verifier {
    /// A verifier for a plan that asks for one, and for images with these working sets.
    pub fn new(plan: &Plan, working_sets: impl Iterator<Item = u64>) -> Option<Self> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let images = plan.image_names().into_iter();
        let table = |bytes| vec![0; (plan.verify_bytes(bytes) / BLOCK_NUMBER_BYTES) as usize];
        (plan.verify != Verify::Off).then(|| Self {
            must_be_written: plan.verify == Verify::Filled,
            load: Random::of_stream(plan.seed, now.as_nanos() as u64).next_u64(),
            images: images.map(|name| identity(&name)).collect(),
            first_block: plan.offset_bytes / BLOCK_BYTES,
            at_least: working_sets.map(table).collect(),
            in_flight: FxHashMap::default(),
            writes: 0,
            verified: Verified::default(),
        })
    }

    /// A request is about to be sent: stamp what it writes, and note what it must read.
    pub fn send(&mut self, request: &Request, memory: &mut [u8]) -> Expected {
        match request.direction {
            Direction::Flush => Expected::Nothing,
            Direction::Read => Expected::Read(keys(request).map(|key| self.at_least(key)).collect()),
            Direction::Write => {
                self.writes += 1;
                let parts = memory.chunks_exact_mut(BLOCK_BYTES as usize);
                for (part, key) in parts.zip(keys(request)) {
                    let block = self.in_flight.entry(key).or_insert(Writes {
                        in_flight: 0,
                        first: self.writes,
                        has_failed: false,
                    });
                    block.in_flight += 1;
                    let image = self.images[request.image as usize];
                    let words = [MAGIC, self.load, image, key.1 * BLOCK_BYTES, self.writes];
                    for (bytes, word) in part.chunks_exact_mut(8).zip(words) {
                        bytes.copy_from_slice(&word.to_le_bytes());
                    }
                    let checksum = checksum(part).to_le_bytes();
                    part[CHECKSUM..STAMP_BYTES].copy_from_slice(&checksum);
                }
                Expected::Write
            }
        }
    }

    fn at_least(&self, (image, block): (u32, u64)) -> u64 {
        let of_image = &self.at_least[image as usize];
        let block = (block - self.first_block) as usize;
        of_image.get(block).copied().unwrap_or(0)
    }

    /// A request has come back from the target.
    pub fn completed(&mut self, request: &Request, expected: &Expected, is_ok: bool, memory: &[u8]) {
        match expected {
            Expected::Write => keys(request).for_each(|key| self.written(key, is_ok)),
            Expected::Read(at_least) if is_ok => {
                let parts = memory.chunks_exact(BLOCK_BYTES as usize);
                for ((part, (image, block)), &at_least) in parts.zip(keys(request)).zip(at_least) {
                    let offset = block * BLOCK_BYTES;
                    self.verified.blocks += 1;
                    if let Some(fault) = self.fault(part, image, offset, at_least) {
                        self.verified.mismatches += 1;
                        if self.verified.named.len() < NAMED_MAX {
                            self.verified.named.push(Mismatch {
                                image,
                                offset,
                                fault,
                                object: None,
                            });
                        }
                    }
                }
            }
            Expected::Nothing | Expected::Read(_) => {}
        }
    }

    fn written(&mut self, key: (u32, u64), is_ok: bool) {
        let Entry::Occupied(mut entry) = self.in_flight.entry(key) else {
            unreachable!("a write that completes was sent");
        };
        let block = entry.get_mut();
        block.in_flight -= 1;
        block.has_failed |= !is_ok;
        if block.in_flight > 0 {
            return;
        }
        let Writes {
            first, has_failed, ..
        } = entry.remove();
        let of_image = &mut self.at_least[key.0 as usize];
        let at_least = of_image.get_mut((key.1 - self.first_block) as usize);
        if let Some(at_least) = at_least.filter(|_| !has_failed) {
            *at_least = first;
        }
    }

    fn fault(&self, part: &[u8], image: u32, offset: u64, at_least: u64) -> Option<Fault> {
        let word = |index: usize| {
            let bytes = part[index * 8..][..8].try_into();
            u64::from_le_bytes(bytes.expect("eight bytes"))
        };
        if part.iter().all(|&byte| byte == 0) {
            return (self.must_be_written || at_least > 0).then_some(Fault::Zero);
        }
        if word(0) != MAGIC {
            return (self.must_be_written || at_least > 0).then_some(Fault::NoStamp);
        }
        if part[CHECKSUM..STAMP_BYTES] != checksum(part).to_le_bytes() {
            return Some(Fault::Checksum);
        }
        if (word(2), word(3)) != (self.images[image as usize], offset) {
            return Some(Fault::WrongPlace);
        }
        // What another load wrote is older than all that this one did.
        let number = if word(1) == self.load { word(4) } else { 0 };
        (number < at_least).then_some(Fault::Stale)
    }

    /// What was checked; `object` has the names of objects, by image and offset.
    pub fn finish(mut self, object: impl Fn(u32, u64) -> Option<String>) -> Verified {
        for mismatch in &mut self.verified.named {
            mismatch.object = object(mismatch.image, mismatch.offset);
        }
        self.verified
    }
}

fn keys(request: &Request) -> impl Iterator<Item = (u32, u64)> + use<> {
    let first = request.offset / BLOCK_BYTES;
    let image = request.image;
    (first..first + u64::from(request.bytes) / BLOCK_BYTES).map(move |block| (image, block))
}

fn checksum(part: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&part[..CHECKSUM]), &part[STAMP_BYTES..])
}

/// A number for the name of an image (FNV-1a): the same in every load.
fn identity(name: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    name.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}
