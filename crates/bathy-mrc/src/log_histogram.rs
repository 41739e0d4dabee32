//! Latencies or lengths in buckets of equal relative width.
//!
//! `hdrhistogram` would do, but its buckets are fixed by decimal digits: the length that 99 % of the requests do not
//! exceed, which the regions of a sample are chosen by, would be another one.

const SUB_BITS: u32 = 5;

/// Buckets of 1/32 of a power of two: a value is known to 1.6 %.
#[derive(Clone, Debug)]
pub struct LogHistogram {
    counts: Vec<u64>,
}

impl Default for LogHistogram {
    fn default() -> Self {
        Self {
            counts: vec![0; Self::bucket(u32::MAX) + 1],
        }
    }
}

impl LogHistogram {
    fn bucket(value: u32) -> usize {
        let exponent = value
            .checked_ilog2()
            .map_or(0, |log| log.saturating_sub(SUB_BITS));
        ((exponent << SUB_BITS) + (value >> exponent)) as usize
    }

    /// Counts a value; 0 means that it is not known.
    #[inline]
    pub fn add(&mut self, value: u32) {
        if value > 0 {
            self.counts[Self::bucket(value)] += 1;
        }
    }

    /// The value that a share of the values does not exceed, to the width of a bucket; 0 when there are none.
    pub fn quantile(&self, share: f64) -> f64 {
        let (values, counts) = self.buckets();
        let wanted = share * counts.iter().sum::<f64>();
        let mut below = 0.0;
        let reached = counts.iter().position(|count| {
            below += count;
            below >= wanted
        });
        reached
            .and_then(|bucket| values.get(bucket))
            .copied()
            .unwrap_or(0.0)
    }

    /// Middle and count of each bucket that holds anything, in order.
    pub fn buckets(&self) -> (Vec<f64>, Vec<f64>) {
        let middle = |bucket: usize| {
            let exponent = (bucket >> SUB_BITS).saturating_sub(1);
            let mantissa = bucket - (exponent << SUB_BITS);
            (mantissa as f64 + 0.5) * (1u64 << exponent) as f64 - 0.5
        };
        self.counts
            .iter()
            .enumerate()
            .filter(|&(_, &count)| count > 0)
            .map(|(bucket, &count)| (middle(bucket), count as f64))
            .unzip()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_value_is_known_to_the_half_of_a_bucket(value in 1u32..) {
            let mut histogram = LogHistogram::default();
            histogram.add(value);
            let (middles, counts) = histogram.buckets();
            prop_assert_eq!(counts, vec![1.0]);
            prop_assert!((middles[0] - f64::from(value)).abs() <= f64::from(value) / 64.0);
        }
    }

    #[test]
    fn a_quantile_is_the_value_that_so_many_do_not_exceed() {
        let mut histogram = LogHistogram::default();
        assert!(histogram.quantile(0.5) <= 0.0);
        (0..100).for_each(|value| histogram.add(if value < 99 { 10 } else { 1000 }));
        assert!((histogram.quantile(0.99) - 10.0).abs() < 1e-9);
        assert!(histogram.quantile(0.999) > 900.0);
    }
}
