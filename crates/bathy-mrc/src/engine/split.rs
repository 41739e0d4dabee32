//! From requests to pieces: lines, renumbered, of the sample that any size needs, with the streams among them marked.

use bathy_policy::StreamBypass;
use bathy_policy::admission::StreamBypassOptions;

use super::{EngineOptions, TimedIo};
use crate::hash::{DEFAULT_STRATA_BITS, SamplingHash};
use crate::key_ids::KeyIds;
use crate::simulate::Fidelity;

/// A line of a request, renumbered, with what it touches.
#[derive(Clone, Copy, Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "facts of a piece that have nothing to do with each other"
)]
pub(super) struct Piece {
    pub(super) key: u64,
    pub(super) hash: u64,
    pub(super) time_ns: u64,
    /// Sub-blocks touched.
    pub(super) touched: u64,
    /// Sub-blocks covered whole.
    pub(super) covered: u64,
    pub(super) id: u32,
    pub(super) bytes: u32,
    /// Window that the request counts in.
    pub(super) window: u32,
    /// The region that is sampled whole.
    pub(super) region: u64,
    /// With the last piece of a region, the share of the request's lines in the region; else 0.
    pub(super) region_share: f64,
    pub(super) write: bool,
    pub(super) first_touch: bool,
    /// The last piece of the request.
    pub(super) request_end: bool,
    /// Part of a stream that goes past the cache: not admitted at a miss.
    pub(super) bypassed: bool,
}

/// Splits the requests of one sweep. What it says of a piece is the same for every size.
pub(super) struct Splitter {
    options: EngineOptions,
    /// Everything is simulated, nothing sampled.
    full: bool,
    /// That of the largest sample among the sizes.
    threshold: u64,
    ids: KeyIds,
    region_bits: u32,
    hash: SamplingHash,
    /// It sees every piece, also those that are not sampled: a sample has no streams.
    streams: Option<StreamBypass>,
}

impl Splitter {
    pub(super) fn new(options: EngineOptions, fidelity: Fidelity, threshold: u64) -> Self {
        let streams = options.admission.stream_cutoff_bytes.map(|cutoff_bytes| {
            StreamBypass::new(StreamBypassOptions {
                cutoff_bytes,
                line_bytes: options.line.bytes(),
                ..StreamBypassOptions::default()
            })
        });
        Self {
            options,
            full: fidelity == Fidelity::Full,
            threshold,
            ids: KeyIds::new(),
            region_bits: options.region_bits(),
            hash: SamplingHash::new(salt(fidelity), DEFAULT_STRATA_BITS, options.region_bits()),
            streams,
        }
    }

    /// Appends the sampled pieces of a request to `pieces`.
    pub(super) fn split(&mut self, request: TimedIo, out: &mut Vec<Piece>) {
        let fetch_shift = self.options.fetch_bytes.trailing_zeros();
        let mut pieces = self.options.line.pieces(request.io);
        let line_share = 1.0 / pieces.lines() as f64;
        let mut share = 0.0;
        let from = out.len();
        let window = self
            .options
            .windows
            .map_or(0, |windows| windows.index(request.time_ns));
        loop {
            let (start, end) = pieces.peek_range();
            let Some((key, bytes)) = pieces.next() else { break };
            let bypassed = self
                .streams
                .as_mut()
                .is_some_and(|streams| streams.passes_by(key, u64::from(bytes)));
            let region = key >> self.region_bits;
            let hash = if self.full { 0 } else { self.hash.hash(key) };
            if hash > self.threshold {
                continue;
            }
            match out[from..].last_mut() {
                Some(before) if before.region == region => before.region_share = 0.0,
                _ => share = 0.0,
            }
            share += line_share;
            let known = self.ids.len();
            let id = self.ids.id(key);
            out.push(Piece {
                key,
                hash,
                time_ns: request.time_ns,
                touched: bits(start >> fetch_shift, (end - 1) >> fetch_shift),
                covered: covered(start, end, fetch_shift),
                id,
                bytes,
                window,
                region,
                region_share: share,
                write: request.io.write,
                first_touch: self.ids.len() > known,
                request_end: false,
                bypassed,
            });
        }
        if let Some(last) = out[from..].last_mut() {
            last.request_end = true;
        }
    }
}

fn salt(fidelity: Fidelity) -> u64 {
    match fidelity {
        Fidelity::Full => 0,
        Fidelity::Miniature { salt, .. } => salt,
    }
}

/// The bits `first..=last`.
fn bits(first: u32, last: u32) -> u64 {
    (u64::MAX >> (63 - (last - first))) << first
}

/// Sub-blocks that `start..end` covers whole.
fn covered(start: u32, end: u32, fetch_shift: u32) -> u64 {
    let first = start.div_ceil(1 << fetch_shift);
    let after = end >> fetch_shift;
    if after > first { bits(first, after - 1) } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sub_block_masks() {
        assert_eq!(bits(0, 63), u64::MAX);
        assert_eq!(bits(2, 3), 0b1100);
        assert_eq!(covered(0, 65_536, 12), 0xffff);
        assert_eq!(covered(1, 8192, 12), 0b10);
        assert_eq!(covered(100, 200, 12), 0);
    }
}
