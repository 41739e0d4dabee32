//! A queue of a fixed number of lines: places with a hand, as in CLOCK.

use crate::places::PlaceIndex;
use crate::slots::NIL;

/// Consecutive places, used in turn.
#[derive(Debug, Clone)]
pub(super) struct Ring {
    pub(super) start: u32,
    pub(super) places: u32,
    /// Places that hold something; not kept of ghosts.
    pub(super) len: u32,
    /// The place whose turn it is, counted from `start`.
    pub(super) hand: u32,
    /// Places from this one on were never used, counted from `start`. Until all were, the hand rests.
    pub(super) fresh: u32,
    /// The first place that was given back, or [`NIL`]; the others follow through [`PlaceIndex::noted`].
    pub(super) hole: u32,
}

impl Ring {
    pub(super) fn new(start: usize, places: usize) -> Self {
        Self {
            start: start as u32,
            places: places as u32,
            len: 0,
            hand: 0,
            fresh: 0,
            hole: NIL,
        }
    }

    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.len < self.places
    }

    /// The place at the hand, which moves on.
    #[inline]
    pub(super) fn turn(&mut self) -> u32 {
        let place = self.start + self.hand;
        self.hand = if self.hand + 1 == self.places {
            0
        } else {
            self.hand + 1
        };
        place
    }

    /// Takes a place that holds nothing, if there is one.
    #[inline]
    pub(super) fn take_free(&mut self, index: &impl PlaceIndex) -> Option<u32> {
        if !self.has_room() {
            return None;
        }
        self.len += 1;
        if self.hole != NIL {
            let place = self.hole;
            self.hole = index.noted(place);
            return Some(place);
        }
        self.fresh += 1;
        Some(self.start + self.fresh - 1)
    }

    /// Gives a place back.
    pub(super) fn give_back(&mut self, index: &mut impl PlaceIndex, place: u32) {
        index.note(place, self.hole);
        self.hole = place;
        self.len -= 1;
    }

    /// How many places were used after this one.
    #[inline]
    pub(super) fn age(&self, place: u32) -> u32 {
        let next = if self.fresh < self.places {
            self.fresh
        } else {
            self.hand
        };
        let (place, newest) = (place - self.start, next + self.places - 1);
        let age = newest - place;
        if age >= self.places {
            age - self.places
        } else {
            age
        }
    }
}
