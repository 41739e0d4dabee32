//! Requests that cross a sample boundary: some of their lines are in a sampled region, others are not.
//!
//! Whether a whole request hits is known only of one that lies in one region. To count each region's part as a request
//! of its own overestimates hits, by 4 points where requests are half as long as regions. So a part is counted with the
//! next request like it, of as many lines in the same direction, that lies in one region: imputation by the nearest
//! donor (Kalton, Kasprzyk: The treatment of missing survey data, Survey Methodology 12(1), 1986). The sum of requests
//! stays that of the parts.

use super::split::{LARGE, Piece, SIZE_CLASSES};

/// Parts that wait for a donor. Where there is none, as when all requests cross a boundary, further parts count for themselves.
const MOST_WAITING: f32 = 64.0;

/// The shares of requests that wait for the next request like them.
#[derive(Clone, Debug)]
pub(super) struct CrossingRequests {
    waiting: [[f32; SIZE_CLASSES]; 2],
}

impl Default for CrossingRequests {
    fn default() -> Self {
        Self {
            waiting: [[0.0; SIZE_CLASSES]; 2],
        }
    }
}

impl CrossingRequests {
    /// For how many requests the one that ends in this region with `piece` counts.
    #[inline]
    pub(super) fn weight(&mut self, piece: &Piece) -> f64 {
        if piece.size_class == LARGE {
            return f64::from(piece.region_share);
        }
        let waiting = &mut self.waiting[usize::from(piece.is_write())][usize::from(piece.size_class)];
        if piece.ends_whole_request() {
            return 1.0 + f64::from(std::mem::take(waiting));
        }
        if *waiting >= MOST_WAITING {
            return f64::from(piece.region_share);
        }
        *waiting += piece.region_share;
        0.0
    }
}
