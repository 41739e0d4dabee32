//! A sector of the intent bitmap: the seal, four reserved bytes, and one bit for each region.

use super::sealed::{Kind, Uuid, is_sealed, seal, words};

/// What a power cut writes whole or not at all.
pub const SECTOR_BYTES: usize = 512;
const HEADER_BYTES: usize = 8;
/// Regions that one sector stands for.
pub const REGIONS_PER_SECTOR: u64 = (SECTOR_BYTES - HEADER_BYTES) as u64 * 8;

/// Encodes sector `number` with the bits that `is_marked` gives for its regions, counted from 0.
pub fn encode_intent(uuid: &Uuid, number: u64, is_marked: impl Fn(u64) -> bool) -> [u8; SECTOR_BYTES] {
    let mut sector = [0; SECTOR_BYTES];
    for (region, bit) in (0..REGIONS_PER_SECTOR).map(|region| (region, u8::from(is_marked(region)))) {
        sector[HEADER_BYTES + (region / 8) as usize] |= bit << (region % 8);
    }
    seal(&mut sector, &words(Kind::Intent, uuid, number));
    sector
}

/// The marked regions of sector `number`, counted from 0; `None` if it is damaged, when any may be marked.
pub fn decode_intent(uuid: &Uuid, number: u64, sector: &[u8]) -> Option<Vec<u64>> {
    if sector.len() != SECTOR_BYTES || !is_sealed(sector, &words(Kind::Intent, uuid, number)) {
        return None;
    }
    let is_marked = |region: &u64| sector[HEADER_BYTES + (region / 8) as usize] >> (region % 8) & 1 == 1;
    Some((0..REGIONS_PER_SECTOR).filter(is_marked).collect())
}
