//! What all that numbers slots has in common.

/// No slot.
pub(crate) const NIL: u32 = u32::MAX;

/// Queues that a slab can have.
pub(crate) const QUEUES: usize = 4;

/// Slots are numbered from here; the numbers below are the anchors of queues.
pub(crate) const FIRST_SLOT: u32 = QUEUES as u32;

/// Keys under a [`DenseIndex`](crate::DenseIndex) for which there is room from the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Universe(pub usize);

/// The seed of a [`HashIndex`](crate::HashIndex). It changes speed, never what a policy decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HashSeed(pub u64);

/// The finaliser of `SplitMix64` (Steele, Lea, Flood, OOPSLA 2014).
#[inline]
pub(crate) fn mix(mut hash: u64) -> u64 {
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

/// Lengthens `values` to `len`, without the spare room that a vector takes when it grows by itself.
#[inline]
pub(crate) fn cover<T: Clone + Default>(values: &mut Vec<T>, len: usize) {
    if values.len() < len {
        values.reserve_exact(len - values.len());
        values.resize(len, T::default());
    }
}
