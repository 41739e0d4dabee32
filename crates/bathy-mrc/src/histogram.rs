//! Weighted histogram of stack distances.

/// How finely distances are resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// One bucket per distance: exact at every cache size; eight bytes per distinct line.
    Exact,
    /// Exact below 2,048, then 1,024 buckets per power of two: a size is off by less than 0.1 %.
    LogLinear,
}

const PRECISION_BITS: u32 = 10;

impl Resolution {
    #[inline]
    fn bucket(self, distance: u64) -> usize {
        if self == Self::Exact || distance < (2 << PRECISION_BITS) {
            return distance as usize;
        }
        let exponent = distance.ilog2() - PRECISION_BITS;
        ((u64::from(exponent) << PRECISION_BITS) + (distance >> exponent)) as usize
    }

    /// Smallest distance of a bucket.
    fn lower_bound(self, bucket: usize) -> u64 {
        let bucket = bucket as u64;
        if self == Self::Exact || bucket < (2 << PRECISION_BITS) {
            return bucket;
        }
        let exponent = (bucket >> PRECISION_BITS) - 1;
        ((bucket & ((1 << PRECISION_BITS) - 1)) | (1 << PRECISION_BITS)) << exponent
    }
}

/// Weights by distance, and the weight of first touches (cold misses) apart.
#[derive(Clone, Debug, PartialEq)]
pub struct DistanceHistogram {
    resolution: Resolution,
    weights: Vec<f64>,
    cold: f64,
}

impl DistanceHistogram {
    /// An empty histogram.
    pub fn new(resolution: Resolution) -> Self {
        Self {
            resolution,
            weights: Vec::new(),
            cold: 0.0,
        }
    }

    /// Adds a reuse at `distance`.
    #[inline]
    pub fn add(&mut self, distance: u64, weight: f64) {
        let bucket = self.resolution.bucket(distance);
        if bucket >= self.weights.len() {
            self.weights.resize(bucket + 1, 0.0);
        }
        self.weights[bucket] += weight;
    }

    /// Adds a first touch.
    #[inline]
    pub fn add_cold(&mut self, weight: f64) {
        self.cold += weight;
    }

    /// Adds `distance` or, without one, a first touch.
    #[inline]
    pub fn add_option(&mut self, distance: Option<u64>, weight: f64) {
        match distance {
            Some(distance) => self.add(distance, weight),
            None => self.add_cold(weight),
        }
    }

    /// A first touch of a piece of trace turned out to be a reuse of a line of the piece before.
    pub fn move_from_cold(&mut self, distance: u64, weight: f64) {
        self.cold -= weight;
        self.add(distance, weight);
    }

    /// Weight of first touches. Joining fixed-size samples subtracts one estimate from another, hence the bound.
    pub fn cold(&self) -> f64 {
        self.cold.max(0.0)
    }

    /// Weight of everything recorded.
    pub fn total(&self) -> f64 {
        self.weights.iter().sum::<f64>() + self.cold
    }

    /// Adds another histogram of the same resolution.
    ///
    /// # Panics
    /// When the resolutions differ, which would lose precision silently.
    pub fn merge(&mut self, other: &Self) {
        assert_eq!(
            self.resolution, other.resolution,
            "histograms of different resolution"
        );
        if self.weights.len() < other.weights.len() {
            self.weights.resize(other.weights.len(), 0.0);
        }
        for (mine, theirs) in self.weights.iter_mut().zip(&other.weights) {
            *mine += theirs;
        }
        self.cold += other.cold;
    }

    /// Weight that misses in a cache of each of `sizes` lines (ascending or not), first touches included.
    /// Within a bucket wider than one distance the weight is spread evenly.
    pub fn miss_weights(&self, sizes: &[u64]) -> Vec<f64> {
        let mut suffix = vec![0.0; self.weights.len() + 1];
        for bucket in (0..self.weights.len()).rev() {
            suffix[bucket] = suffix[bucket + 1] + self.weights[bucket];
        }
        sizes
            .iter()
            .map(|&size| self.cold() + self.reuse_misses(size, &suffix))
            .collect()
    }

    fn reuse_misses(&self, size: u64, suffix: &[f64]) -> f64 {
        let bucket = self.resolution.bucket(size);
        if bucket >= self.weights.len() {
            return 0.0;
        }
        let lower = self.resolution.lower_bound(bucket);
        let width = self.resolution.lower_bound(bucket + 1) - lower;
        let hit_share = (size - lower) as f64 / width as f64;
        suffix[bucket] - hit_share * self.weights[bucket]
    }

    /// Bytes held.
    pub fn memory_bytes(&self) -> usize {
        self.weights.capacity() * size_of::<f64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn buckets_are_ordered_and_narrow(distance in 0u64..1 << 45) {
            let r = Resolution::LogLinear;
            let bucket = r.bucket(distance);
            let (low, high) = (r.lower_bound(bucket), r.lower_bound(bucket + 1));
            prop_assert!(low <= distance && distance < high);
            prop_assert!((high - low) * 1024 <= low.max(1024));
        }

        #[test]
        fn both_resolutions_agree_below_2048(
            distances in prop::collection::vec(0u64..2048, 1..200), size in 0u64..2100
        ) {
            let mut exact = DistanceHistogram::new(Resolution::Exact);
            let mut coarse = DistanceHistogram::new(Resolution::LogLinear);
            for &distance in &distances {
                exact.add(distance, 1.0);
                coarse.add(distance, 1.0);
            }
            let expected = distances.iter().filter(|&&d| d >= size).count() as f64;
            prop_assert_eq!(exact.miss_weights(&[size]), vec![expected]);
            prop_assert_eq!(coarse.miss_weights(&[size]), vec![expected]);
        }
    }
}
