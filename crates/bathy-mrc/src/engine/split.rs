//! From requests to pieces: lines, renumbered, of the sample that any size needs, with the streams among them marked.

use bathy_cache_model::{Part, RequestSplitter};

use super::counts::Totals;
use super::{EngineOptions, TimedIo};
use crate::hash::SamplingHash;
use crate::key_ids::{KeyIds, MOST_KEYS};
use crate::simulate::Fidelity;
use bathy_cache_model::Io;

/// Pieces that are made before the engines run over them: half a megabyte.
pub(super) const PIECES_AT_ONCE: usize = 16_384;

const WRITE: u8 = 1;
const FIRST_TOUCH: u8 = 2;
const REQUEST_END: u8 = 4;
const BYPASSED: u8 = 8;
const WHOLE: u8 = 16;

/// A line of a request, renumbered, with what it touches. 32 bytes, because there are many.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) time_ns: u64,
    pub(super) id: u32,
    /// First byte within the line.
    pub(super) start: u32,
    /// Byte after the last.
    pub(super) end: u32,
    /// With the last piece of a region, the share of the request's lines in the region; else 0.
    pub(super) region_share: f32,
    /// Window that the request counts in.
    pub(super) window: u16,
    /// Samples from this one on hold the line; see [`Splitter::sample_of`].
    pub(super) sample: u16,
    /// Part of the sample that the region is in.
    pub(super) part: u8,
    /// The size class of the request: requests of about as many lines; [`LARGE`] when it is too long for the regions.
    pub(super) size_class: u8,
    flags: u8,
}

const _: () = assert!(size_of::<Piece>() == 32);

impl Piece {
    /// What the cache sees of it: its line has the number as key.
    #[inline]
    pub(super) fn part(&self) -> Part {
        Part {
            key: u64::from(self.id),
            start: self.start,
            end: self.end,
            bypasses: self.flags & BYPASSED != 0,
        }
    }

    #[inline]
    pub(super) fn bytes(&self) -> u32 {
        self.end - self.start
    }

    #[inline]
    pub(super) fn is_write(&self) -> bool {
        self.flags & WRITE != 0
    }

    #[inline]
    pub(super) fn is_first_touch(&self) -> bool {
        self.flags & FIRST_TOUCH != 0
    }

    /// The last piece of the request.
    #[inline]
    pub(super) fn ends_request(&self) -> bool {
        self.flags & REQUEST_END != 0
    }

    /// The last piece of a request that lies in one region.
    #[inline]
    pub(super) fn ends_whole_request(&self) -> bool {
        self.flags & WHOLE != 0
    }
}

/// The [`Piece::size_class`] of requests longer than half a region.
pub(super) const LARGE: u8 = 0;
/// Values of [`Piece::size_class`].
pub(super) const SIZE_CLASSES: usize = 160;

/// Up to 32 lines by their number, then four steps to each power of two.
fn size_class(lines: u64, region_lines: u64) -> u8 {
    if 2 * lines > region_lines {
        return LARGE;
    }
    if lines <= 32 {
        return lines as u8;
    }
    let log = lines.ilog2();
    (32 + 4 * (log - 5) + 1 + ((lines >> (log - 2)) & 3) as u32) as u8
}

/// Splits the requests of one sweep. What it says of a piece is the same for every size.
pub(super) struct Splitter {
    options: EngineOptions,
    /// Everything is simulated, nothing sampled.
    full: bool,
    /// The thresholds of the sizes' samples, each once, increasing.
    thresholds: Vec<u64>,
    ids: KeyIds,
    /// Distinct lines that there are ids for.
    most_lines: u64,
    /// There were more.
    overflowed: bool,
    region_bits: u32,
    hash: SamplingHash,
    /// It sees every request, also those that are not sampled: a sample has no streams.
    requests: RequestSplitter,
    /// Of a sample, the part that each line is in, by id.
    parts: Vec<u8>,
    /// Of each window, everything.
    totals: Vec<Totals>,
}

impl Splitter {
    pub(super) fn new(options: EngineOptions, fidelity: Fidelity, mut thresholds: Vec<u64>) -> Self {
        thresholds.sort_unstable();
        thresholds.dedup();
        Self {
            options,
            full: fidelity == Fidelity::Full,
            thresholds,
            ids: KeyIds::new(),
            most_lines: MOST_KEYS,
            overflowed: false,
            region_bits: options.region_bits(),
            hash: SamplingHash::new(salt(fidelity), options.region_bits()),
            requests: RequestSplitter::new(options.line, options.admission.stream_cutoff),
            parts: Vec::new(),
            totals: vec![Totals::default()],
        }
    }

    /// The number of the sample of a threshold: smaller samples have lower numbers, and larger ones hold them.
    pub(super) fn sample_of(&self, threshold: u64) -> u16 {
        sample_of(&self.thresholds, threshold)
    }

    /// Takes requests until there are [`PIECES_AT_ONCE`] pieces or no more requests; says whether there may be more.
    pub(super) fn fill(
        &mut self,
        requests: &mut impl Iterator<Item = TimedIo>,
        pieces: &mut Vec<Piece>,
    ) -> bool {
        pieces.clear();
        while pieces.len() < PIECES_AT_ONCE && !self.overflowed {
            let Some(request) = requests.next() else {
                return false;
            };
            self.split(request, pieces);
        }
        !self.overflowed
    }

    /// Whether there were more distinct lines than ids; nothing was simulated from there on.
    pub(super) fn overflowed(&self) -> bool {
        self.overflowed
    }

    /// Appends the sampled pieces of a request to `out`.
    fn split(&mut self, request: TimedIo, out: &mut Vec<Piece>) {
        let windows = self.options.windows;
        let window = windows.map_or(0, |windows| windows.index(request.time_ns)) as u16;
        let lines = self.options.line.pieces(request.io).lines();
        // Some of its lines may be known, which near the limit makes no difference worth a look.
        if self.ids.len() as u64 + lines > self.most_lines {
            self.overflowed = true;
            return;
        }
        self.count(request.io, window);
        let mut parts = self.requests.split(request.io);
        let line_share = 1.0 / lines as f64;
        let size_class = size_class(lines, 1 << self.region_bits);
        let mut first_region = None;
        let mut share = 0.0;
        let from = out.len();
        let mut last_region = None;
        while let Some(part) = parts.next() {
            let key = part.key;
            let region = key >> self.region_bits;
            let first_region = *first_region.get_or_insert(region);
            let whole = first_region == region && parts.is_done();
            let hash = if self.full { 0 } else { self.hash.hash(key) };
            let sample = sample_of(&self.thresholds, hash);
            if usize::from(sample) == self.thresholds.len() {
                continue;
            }
            match out[from..].last_mut() {
                Some(before) if last_region == Some(region) => before.region_share = 0.0,
                _ => share = 0.0,
            }
            last_region = Some(region);
            share += line_share;
            let known = self.ids.len();
            let id = self.ids.id(key);
            let first_touch = self.ids.len() > known;
            let replicate = self.hash.replicate(key, hash) as u8;
            if first_touch && !self.full {
                self.parts.push(replicate);
            }
            let flag = |holds: bool, flag: u8| if holds { flag } else { 0 };
            out.push(Piece {
                time_ns: request.time_ns,
                id,
                start: part.start,
                end: part.end,
                region_share: share as f32,
                window,
                sample,
                part: replicate,
                size_class,
                flags: flag(request.io.write, WRITE)
                    | flag(first_touch, FIRST_TOUCH)
                    | flag(part.bypasses, BYPASSED)
                    | flag(whole, WHOLE),
            });
        }
        if let Some(last) = out[from..].last_mut() {
            last.flags |= REQUEST_END;
        }
    }

    fn count(&mut self, io: Io, window: u16) {
        let window = usize::from(window);
        if self.totals.len() <= window {
            self.totals.resize(window + 1, Totals::default());
        }
        let totals = &mut self.totals[window][usize::from(io.write)];
        totals.requests += 1;
        totals.bytes += u64::from(io.length_bytes);
    }

    /// Requests and bytes of each window, sampled or not.
    pub(super) fn totals(&self) -> &[Totals] {
        &self.totals
    }

    /// The part of the sample that each line is in, by id.
    pub(super) fn parts(&self) -> &[u8] {
        &self.parts
    }

    /// Bytes held.
    pub(super) fn memory_bytes(&self) -> usize {
        self.ids.memory_bytes() + self.parts.capacity() + self.requests.memory_bytes()
    }
}

/// The number of the first sample that holds a hash.
#[inline]
fn sample_of(thresholds: &[u64], hash: u64) -> u16 {
    thresholds.partition_point(|&other| other < hash) as u16
}

fn salt(fidelity: Fidelity) -> u64 {
    match fidelity {
        Fidelity::Full => 0,
        Fidelity::Miniature { salt, .. } => salt,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::FetchSize;

    #[test]
    fn requests_are_like_those_of_about_as_many_lines() {
        assert_eq!([1, 2, 31, 32].map(|lines| size_class(lines, 64)), [1, 2, 31, 32]);
        assert_eq!([33, 1 << 20].map(|lines| size_class(lines, 64)), [LARGE; 2]);
        assert_eq!(
            size_class(1, 1),
            LARGE,
            "single lines have no neighbours in their sample"
        );
        let all: Vec<u8> = (1..1u64 << 20).map(|lines| size_class(lines, 1 << 24)).collect();
        assert!(all.windows(2).all(|two| two[0] == two[1] || two[0] + 1 == two[1]));
        assert!(usize::from(size_class(1 << 30, 1 << 32)) < SIZE_CLASSES);
    }

    #[test]
    fn more_lines_than_ids_end_the_splitting_and_are_no_panic() {
        let options = EngineOptions {
            policy: bathy_policy::PolicyKind::Lru,
            memory: None,
            line: crate::LineSize::new(4096).expect("a power of two"),
            unit_bytes: 4096,
            fetch: FetchSize::Fixed(4096),
            write_mode: super::super::WriteMode::Allocate,
            admission: super::super::AdmissionOptions::default(),
            windows: None,
            sample_region_bytes: 0,
        };
        let mut splitter = Splitter::new(options, Fidelity::Full, vec![u64::MAX]);
        splitter.most_lines = 100;
        let request = |line: u64| TimedIo {
            time_ns: 0,
            io: crate::Io {
                offset_bytes: line * 4096,
                length_bytes: 40_960,
                write: false,
                volume: 0,
            },
        };
        let mut pieces = Vec::new();
        assert!(!splitter.fill(&mut (0..10).map(|turn| request(turn * 10)), &mut pieces));
        assert_eq!((pieces.len(), splitter.overflowed()), (100, false));
        let mut more = (0..1000u32).map(|turn| request(u64::from(turn) * 10));
        assert!(!splitter.fill(&mut more, &mut pieces));
        assert_eq!((pieces.len(), splitter.overflowed()), (0, true));
        assert_eq!(more.len(), 999, "the rest is not looked at");
        assert!(!splitter.fill(&mut more, &mut pieces));
        assert_eq!(more.len(), 999);
    }
}
