//! What goes wrong on demand.
//!
//! A fault is written as its kind and restrictions, separated by commas:
//!
//! | text | effect |
//! |---|---|
//! | `slow=10x` | every service takes ten times as long |
//! | `spike=50ms` | a request takes 50 ms longer |
//! | `eio` or `eio=read` | a request fails with EIO, after its normal service time |
//! | `hang` or `hang=write` | a request is not answered until the fault is cleared |
//! | `read-only` | writes and discards fail with EROFS |
//! | `full` | writes fail with ENOSPC |
//! | `flip` or `flip=3` | reads return blocks of 4 KiB with one bit (three bits) flipped |
//!
//! Restrictions: `op=read` (`write`, `flush`, `discard`, `any`), `probability=0.01`, `range=0-4M` (bytes of the disk,
//! the end excluded), `after=7` (so many such requests pass first), `count=5` (that many requests, or blocks), `seed=1`.
//! `slow`, `read-only` and `full` take none, `flip` no `after`.
//!
//! Flipped bits are decided by the seed and the block, so a block reads the same each time until it is written, and all
//! is well again when the fault is cleared: the stored data was never touched. A `probability` of flips is the share of
//! blocks that are bad.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

use bathy_fuse::Errno;
use bathy_random::{Random, mix};
use serde_json::{Value, json};

use crate::units::{parse_bytes, parse_duration_ns};

/// Faults that a disk can have at once.
pub const FAULTS_MAX: usize = 64;
const BLOCK_BYTES: u64 = 4096;
const FLIPPED_BITS_MAX: u64 = 64;

/// The kinds of requests, as faults and counters tell them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpKind {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Flushes (fsync).
    Flush,
    /// Discards (punched holes).
    Discard,
}

impl OpKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Flush, Self::Discard];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Discard => "discard",
        }
    }
}

/// Why a text is not a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultError {
    /// What is wrong.
    pub message: String,
    /// What would be right.
    pub hint: &'static str,
}

impl fmt::Display for FaultError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for FaultError {}

const HINT: &str = "slow=10x | spike=50ms | eio[=read] | hang[=write] | read-only | full | flip[=1], \
                    with op=, probability=, range=0-4M, after=, count=, seed=";

fn wrong(message: impl Into<String>) -> FaultError {
    FaultError {
        message: message.into(),
        hint: HINT,
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Effect {
    Slow(f64),
    Spike(u64),
    Error(Errno),
    Hang,
    Flip(u64),
}

#[derive(Debug, Clone)]
struct Fault {
    id: u64,
    text: String,
    effect: Effect,
    ops: Vec<OpKind>,
    probability: f64,
    range: Option<Range<u64>>,
    /// Requests that pass before the first one that does not.
    passing: u64,
    left: Option<u64>,
    hits: u64,
    seed: u64,
    random: Random,
    /// Flipped bytes that were overwritten since.
    healed: BTreeSet<u64>,
    /// Blocks that were counted as flipped.
    blocks: BTreeSet<u64>,
}

/// What the faults do to a request.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Decision {
    /// It fails.
    pub error: Option<Errno>,
    /// It takes longer.
    pub extra_ns: u64,
    /// It is not answered.
    pub hangs: bool,
}

/// The faults of a disk.
#[derive(Debug, Default)]
pub struct Faults {
    faults: Vec<Fault>,
    last_id: u64,
}

impl Faults {
    /// Add a fault. Returns its number.
    ///
    /// # Errors
    /// Returns an error if the text is not a fault, or if there are too many.
    pub fn add(&mut self, text: &str) -> Result<u64, FaultError> {
        if self.faults.len() >= FAULTS_MAX {
            return Err(wrong(format!("the disk has {FAULTS_MAX} faults already")));
        }
        let mut fault = parse(text)?;
        self.last_id += 1;
        fault.id = self.last_id;
        self.faults.push(fault);
        Ok(self.last_id)
    }

    /// Remove a fault. Returns whether it was there.
    pub fn clear(&mut self, id: u64) -> bool {
        let before = self.faults.len();
        self.faults.retain(|fault| fault.id != id);
        self.faults.len() < before
    }

    /// Remove all faults. Returns how many there were.
    pub fn clear_all(&mut self) -> usize {
        std::mem::take(&mut self.faults).len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.faults.is_empty()
    }

    /// The faults with their numbers and how often each had its effect.
    pub fn to_json(&self) -> Value {
        let faults = self.faults.iter();
        faults
            .map(|it| json!({"id": it.id, "fault": it.text, "hits": it.hits, "left": it.left}))
            .collect()
    }

    /// By how much services are slower.
    pub fn slowdown(&self) -> f64 {
        let factors = self.faults.iter().map(|fault| match fault.effect {
            Effect::Slow(factor) => factor,
            _ => 1.0,
        });
        factors.product()
    }

    /// Whether a request like this would hang still.
    pub fn holds(&self, kind: OpKind, offset: u64, length: u64) -> bool {
        let mut hangs = self.faults.iter().filter(|fault| fault.effect == Effect::Hang);
        hangs.any(|fault| fault.ops.contains(&kind) && fault.covers(offset, length))
    }

    /// What becomes of a request.
    pub fn decide(&mut self, kind: OpKind, offset: u64, length: u64) -> Decision {
        let mut decision = Decision::default();
        for fault in &mut self.faults {
            if matches!(fault.effect, Effect::Slow(_) | Effect::Flip(_))
                || !fault.strikes(kind, offset, length)
            {
                continue;
            }
            match fault.effect {
                Effect::Spike(time_ns) => decision.extra_ns += time_ns,
                Effect::Error(errno) => decision.error = decision.error.or(Some(errno)),
                Effect::Hang => decision.hangs = true,
                Effect::Slow(_) | Effect::Flip(_) => {}
            }
        }
        decision
    }

    /// The flipped bytes of a read: where, and which bits.
    pub fn flips(&mut self, offset: u64, length: u64) -> Vec<(u64, u8)> {
        let mut flips = Vec::new();
        for fault in &mut self.faults {
            if let Effect::Flip(bits) = fault.effect {
                fault.flips(bits, offset, length, &mut flips);
            }
        }
        flips
    }

    /// A range was overwritten: its flipped bits are gone.
    pub fn heal(&mut self, offset: u64, length: u64) {
        for fault in &mut self.faults {
            if let Effect::Flip(bits) = fault.effect {
                for block in offset / BLOCK_BYTES..(offset + length).div_ceil(BLOCK_BYTES) {
                    let bytes = (0..bits).map(|bit| fault.flipped_byte(block, bit).0);
                    let healed: Vec<u64> = bytes
                        .filter(|byte| (offset..offset + length).contains(byte))
                        .collect();
                    fault.healed.extend(healed);
                }
            }
        }
    }
}

impl Fault {
    fn covers(&self, offset: u64, length: u64) -> bool {
        self.range
            .as_ref()
            .is_none_or(|range| offset < range.end && range.start < offset + length)
    }

    fn strikes(&mut self, kind: OpKind, offset: u64, length: u64) -> bool {
        if !self.ops.contains(&kind) || !self.covers(offset, length) {
            return false;
        }
        if self.passing > 0 {
            self.passing -= 1;
            return false;
        }
        let strikes =
            self.left != Some(0) && (self.probability >= 1.0 || self.random.happens(self.probability));
        if strikes {
            self.hits += 1;
            self.left = self.left.map(|left| left - 1);
        }
        strikes
    }

    /// The byte and the bit of one flip in a block.
    fn flipped_byte(&self, block: u64, bit: u64) -> (u64, u8) {
        let place = mix(mix(self.seed ^ block).wrapping_add(bit + 1)) % (BLOCK_BYTES * 8);
        (block * BLOCK_BYTES + place / 8, 1 << (place % 8))
    }

    fn flips(&mut self, bits: u64, offset: u64, length: u64, flips: &mut Vec<(u64, u8)>) {
        let end = offset + length;
        for block in offset / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES) {
            let start = block * BLOCK_BYTES;
            let share = (mix(self.seed.rotate_left(17) ^ mix(block)) >> 11) as f64 / (1_u64 << 53) as f64;
            if share >= self.probability || !self.covers(start, BLOCK_BYTES) {
                continue;
            }
            if !self.blocks.contains(&block) {
                if self.left == Some(0) {
                    continue;
                }
                self.left = self.left.map(|left| left - 1);
                self.blocks.insert(block);
            }
            let before = flips.len();
            for bit in 0..bits {
                let (byte, mask) = self.flipped_byte(block, bit);
                if (offset..end).contains(&byte) && !self.healed.contains(&byte) {
                    flips.push((byte, mask));
                }
            }
            self.hits += u64::from(flips.len() > before);
        }
    }
}

fn parse(text: &str) -> Result<Fault, FaultError> {
    let mut words = text.split(',').map(str::trim);
    let first = words.next().unwrap_or_default();
    let (kind, value) = match first.split_once('=') {
        Some((kind, value)) => (kind.trim(), Some(value.trim())),
        None => (first, None),
    };
    let all = OpKind::ALL.to_vec();
    let (effect, ops, restricted) = match kind {
        "slow" => (Effect::Slow(parse_factor(value)?), all, false),
        "spike" => {
            let time_ns = value.and_then(parse_duration_ns).filter(|&time_ns| time_ns > 0);
            let time_ns = time_ns.ok_or_else(|| wrong("spike needs a duration, as in spike=50ms"))?;
            (Effect::Spike(time_ns), all, true)
        }
        "eio" => (Effect::Error(Errno::EIO), parse_ops(value)?, true),
        "hang" => (Effect::Hang, parse_ops(value)?, true),
        "flip" => (Effect::Flip(parse_bits(value)?), vec![OpKind::Read], true),
        "read-only" => (
            Effect::Error(Errno::EROFS),
            vec![OpKind::Write, OpKind::Discard],
            false,
        ),
        "full" => (Effect::Error(Errno::ENOSPC), vec![OpKind::Write], false),
        _ => return Err(wrong(format!("'{}' is not a kind of fault", shown(kind)))),
    };
    if matches!(kind, "read-only" | "full") && value.is_some() {
        return Err(wrong(format!("{kind} takes no value")));
    }
    let mut fault = Fault {
        id: 0,
        text: text.trim().to_owned(),
        effect,
        ops,
        probability: 1.0,
        range: None,
        passing: 0,
        left: None,
        hits: 0,
        seed: 1,
        random: Random::new(1),
        healed: BTreeSet::new(),
        blocks: BTreeSet::new(),
    };
    for word in words {
        if !restricted {
            return Err(wrong(format!(
                "{kind} takes no restrictions (got '{}')",
                shown(word)
            )));
        }
        restrict(&mut fault, word)?;
    }
    fault.random = Random::new(fault.seed);
    Ok(fault)
}

fn restrict(fault: &mut Fault, word: &str) -> Result<(), FaultError> {
    let (key, value) = word.split_once('=').unwrap_or((word, ""));
    let refused = || wrong(format!("'{}' is not a restriction", shown(word)));
    match key.trim() {
        "op" if !matches!(fault.effect, Effect::Flip(_)) => fault.ops = parse_ops(Some(value.trim()))?,
        "probability" => {
            let probability = value
                .trim()
                .parse::<f64>()
                .ok()
                .filter(|it| (0.0..=1.0).contains(it));
            fault.probability = probability.ok_or_else(refused)?;
        }
        "after" if !matches!(fault.effect, Effect::Flip(_)) => {
            fault.passing = value.trim().parse().map_err(|_| refused())?;
        }
        "count" => fault.left = Some(value.trim().parse().map_err(|_| refused())?),
        "seed" => fault.seed = value.trim().parse().map_err(|_| refused())?,
        "range" => {
            let (start, end) = value.split_once('-').ok_or_else(refused)?;
            let range = parse_bytes(start)
                .zip(parse_bytes(end))
                .filter(|(start, end)| start < end);
            let (start, end) = range.ok_or_else(refused)?;
            fault.range = Some(start..end);
        }
        _ => return Err(refused()),
    }
    Ok(())
}

fn parse_ops(value: Option<&str>) -> Result<Vec<OpKind>, FaultError> {
    match value {
        None | Some("any") => Ok(OpKind::ALL.to_vec()),
        Some(name) => {
            let found = OpKind::ALL.into_iter().find(|kind| kind.name() == name);
            let refused = || {
                wrong(format!(
                    "'{}' is not an operation (read, write, flush, discard, any)",
                    shown(name)
                ))
            };
            Ok(vec![found.ok_or_else(refused)?])
        }
    }
}

fn parse_factor(value: Option<&str>) -> Result<f64, FaultError> {
    let number = value
        .map(|text| text.trim_end_matches(['x', 'X']))
        .and_then(|text| text.parse::<f64>().ok());
    let factor = number.filter(|factor| (1.0..=1e6).contains(factor));
    factor.ok_or_else(|| wrong("slow needs a factor from 1 to 1000000, as in slow=10x"))
}

fn parse_bits(value: Option<&str>) -> Result<u64, FaultError> {
    let bits = value.map_or(Some(1), |text| text.parse::<u64>().ok());
    let bits = bits.filter(|bits| (1..=FLIPPED_BITS_MAX).contains(bits));
    bits.ok_or_else(|| wrong(format!("flip takes from 1 to {FLIPPED_BITS_MAX} bits")))
}

/// The beginning of a text that came from outside, without control characters.
fn shown(text: &str) -> String {
    text.chars()
        .take(40)
        .map(|it| if it.is_control() { '?' } else { it })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn with(text: &str) -> Faults {
        let mut faults = Faults::default();
        faults.add(text).unwrap();
        faults
    }

    #[test]
    fn errors_by_kind_range_and_count() {
        let mut faults = with("eio=read,range=1M-2M,count=2");
        let read = |faults: &mut Faults, offset| faults.decide(OpKind::Read, offset, 4096).error;
        assert_eq!(read(&mut faults, 0), None);
        assert_eq!(faults.decide(OpKind::Write, 1 << 20, 4096).error, None);
        assert_eq!(
            read(&mut faults, (1 << 20) - 4096),
            None,
            "the range begins after this request"
        );
        assert_eq!(read(&mut faults, (1 << 20) - 2048), Some(Errno::EIO));
        assert_eq!(read(&mut faults, 1 << 20), Some(Errno::EIO));
        assert_eq!(read(&mut faults, 1 << 20), None, "the count is used up");
        assert_eq!(
            faults.to_json(),
            json!([{"id": 1, "fault": "eio=read,range=1M-2M,count=2", "hits": 2, "left": 0}])
        );
    }

    #[test]
    fn requests_pass_before_the_first_one_that_fails() {
        let mut faults = with("eio=write,after=2,count=1");
        let mut fails = |kind| faults.decide(kind, 0, 4096).error.is_some();
        assert!(!fails(OpKind::Write) && !fails(OpKind::Read) && !fails(OpKind::Write));
        assert!(!fails(OpKind::Read) && fails(OpKind::Write) && !fails(OpKind::Write));
    }

    #[test]
    fn probability_is_kept_and_repeats_itself() {
        let hits = || {
            let mut faults = with("eio,probability=0.1,seed=3");
            (0..10_000)
                .filter(|it| faults.decide(OpKind::Write, it * 4096, 4096).error.is_some())
                .count()
        };
        assert!((900..1100).contains(&hits()), "{}", hits());
        assert_eq!(hits(), hits());
    }

    #[test]
    fn the_simple_ones() {
        assert!((with("slow=10x").slowdown() - 10.0).abs() < 1e-12);
        assert_eq!(
            with("spike=50ms").decide(OpKind::Flush, 0, 0).extra_ns,
            50_000_000
        );
        assert_eq!(
            with("read-only").decide(OpKind::Write, 0, 1).error,
            Some(Errno::EROFS)
        );
        assert_eq!(
            with("full").decide(OpKind::Write, 0, 1).error,
            Some(Errno::ENOSPC)
        );
        assert_eq!(with("full").decide(OpKind::Read, 0, 1).error, None);
        assert!(with("hang=write").decide(OpKind::Write, 0, 1).hangs);
        assert!(with("hang=write").holds(OpKind::Write, 0, 1));
        assert!(!with("hang=write").holds(OpKind::Read, 0, 1));
    }

    #[test]
    fn flips_stay_until_the_block_is_written() {
        let mut faults = with("flip=2,range=0-8K");
        let flips = faults.flips(0, 16384);
        assert_eq!(flips.len(), 4);
        assert_eq!(faults.flips(0, 16384), flips, "a second read is the same");
        assert!(
            flips
                .iter()
                .all(|(byte, mask)| *byte < 8192 && mask.is_power_of_two())
        );
        faults.heal(0, 4096);
        assert_eq!(faults.flips(0, 16384).len(), 2);
        let mut few = with("flip,probability=0.05,seed=9");
        let bad = (0..10_000)
            .filter(|block| !few.flips(block * 4096, 4096).is_empty())
            .count();
        assert!((400..600).contains(&bad), "{bad}");
        let mut counted = with("flip,count=3");
        assert_eq!(counted.flips(0, 1 << 20).len(), 3);
        assert_eq!(counted.flips(0, 1 << 20).len(), 3);
    }

    #[test]
    fn faults_are_cleared_one_by_one_or_all() {
        let mut faults = with("slow=2");
        assert_eq!(faults.add("full").unwrap(), 2);
        assert!(faults.clear(1) && !faults.clear(1));
        assert_eq!(faults.clear_all(), 1);
        assert!(faults.is_empty());
    }

    #[test]
    fn what_is_not_a_fault_is_refused() {
        for text in [
            "",
            "slow",
            "slow=0",
            "slow=nan",
            "slow=2,op=read",
            "eio=maybe",
            "eio,probability=2",
            "eio,range=4M-0",
            "eio,range=4M",
            "flip=0",
            "flip=1,op=write",
            "spike",
            "spike=0ms",
            "full=1",
            "bang",
            "eio,,",
            "eio,count=-1",
            "eio,after=-1",
            "flip,after=1",
            "power-cut",
        ] {
            assert!(Faults::default().add(text).is_err(), "{text}");
        }
        let mut faults = Faults::default();
        (0..FAULTS_MAX).for_each(|_| assert!(faults.add("slow=1").is_ok()));
        assert!(faults.add("slow=1").is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,60}") {
            let mut faults = Faults::default();
            if faults.add(&text).is_ok() {
                faults.decide(OpKind::Read, u64::MAX / 2, 4096);
                faults.flips(1 << 40, 8192);
            }
        }
    }
}
