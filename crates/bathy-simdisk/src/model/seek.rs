//! The time of a seek as a function of its distance.
//!
//! Ruemmler and Wilkes, An introduction to disk drive modeling, IEEE Computer 27(3), 1994: short seeks are spent
//! accelerating and settling and take `a + b·√d`, long ones coast and take `c + e·d`. Here the two meet with the same
//! slope, which leaves three free parameters; they are fitted to the three figures that manuals state: track to track,
//! average and full stroke. The average is the one that the manuals define: weighted over all pairs of cylinders, not
//! the time of a third of the stroke.

/// Seek times that a manual states.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SeekFigures {
    /// To the next track.
    pub track_ms: f64,
    /// Mean over all pairs of cylinders.
    pub average_ms: f64,
    /// From the first to the last cylinder.
    pub full_stroke_ms: f64,
}

/// A fitted curve over distances as shares of the full stroke.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SeekCurve {
    /// Time of the shortest seek, in ns.
    base_ns: f64,
    /// Factor of the square root, in ns.
    root_ns: f64,
    /// Where the line begins, as a share of the stroke.
    knee: f64,
    /// Slope of the line, in ns for the full stroke.
    slope_ns: f64,
}

impl SeekCurve {
    /// Fit a curve.
    ///
    /// With `g = (average − track) / (full stroke − track)` a knee exists for `1/3 < g < 8/15`: a pure line has the mean
    /// 1/3, a pure root 8/15.
    ///
    /// # Panics
    /// If no curve of this form has these figures.
    pub fn fit(figures: SeekFigures) -> Self {
        let range_ms = figures.full_stroke_ms - figures.track_ms;
        let wanted = (figures.average_ms - figures.track_ms) / range_ms;
        assert!(
            range_ms > 0.0 && wanted > 1.0 / 3.0 && wanted < 8.0 / 15.0,
            "no seek curve has the figures {figures:?}"
        );
        let (mut low, mut high) = (1e-9, 1.0);
        for _ in 0..200 {
            let knee = f64::midpoint(low, high);
            if mean_of_unit_curve(knee) < wanted {
                low = knee;
            } else {
                high = knee;
            }
        }
        let knee = f64::midpoint(low, high);
        let root_ms = range_ms * unit_root(knee);
        Self {
            base_ns: figures.track_ms * 1e6,
            root_ns: root_ms * 1e6,
            knee,
            slope_ns: root_ms * 1e6 / (2.0 * knee.sqrt()),
        }
    }

    /// The time of a seek over `distance`, a share of the full stroke; 0 for no distance.
    pub fn time_ns(&self, distance: f64) -> f64 {
        if distance <= 0.0 {
            0.0
        } else if distance <= self.knee {
            self.base_ns + self.root_ns * distance.sqrt()
        } else {
            self.base_ns + self.root_ns * self.knee.sqrt() + self.slope_ns * (distance - self.knee)
        }
    }
}

/// The factor of the root for a curve from 0 to 1 with this knee: at 1 it is `b·(knee + 1) / (2·√knee)`.
fn unit_root(knee: f64) -> f64 {
    2.0 * knee.sqrt() / (knee + 1.0)
}

/// The mean of that curve over all pairs of positions, whose distances have the density `2·(1 − x)`.
fn mean_of_unit_curve(knee: f64) -> f64 {
    let root = unit_root(knee);
    let slope = root / (2.0 * knee.sqrt());
    // ∫ 2(1−x)·b√x over 0..k, then ∫ 2(1−x)·(b√k + s(x−k)) over k..1.
    let below = root * (4.0 / 3.0 * knee.powf(1.5) - 4.0 / 5.0 * knee.powf(2.5));
    let rest = 1.0 - knee;
    below + root * knee.sqrt() * rest * rest + slope * rest.powi(3) / 3.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_curve_has_the_figures_of_the_manual() {
        for (track_ms, average_ms, full_stroke_ms) in [(0.5, 8.2, 16.0), (0.2, 4.0, 8.1), (1.0, 12.0, 24.0)] {
            let curve = SeekCurve::fit(SeekFigures {
                track_ms,
                average_ms,
                full_stroke_ms,
            });
            let steps = 100_000;
            let mean_ns: f64 = (0..steps)
                .map(|step| (f64::from(step) + 0.5) / f64::from(steps))
                .map(|x| 2.0 * (1.0 - x) * curve.time_ns(x) / f64::from(steps))
                .sum();
            assert!((mean_ns / 1e6 / average_ms - 1.0).abs() < 1e-4, "{mean_ns}");
            assert!((curve.time_ns(1.0) / 1e6 / full_stroke_ms - 1.0).abs() < 1e-9);
            assert!((curve.time_ns(1e-12) / 1e6 / track_ms - 1.0).abs() < 1e-2);
            let step = 1e-7;
            let before = curve.time_ns(curve.knee) - curve.time_ns(curve.knee - step);
            let after = curve.time_ns(curve.knee + step) - curve.time_ns(curve.knee);
            assert!(
                (before / after - 1.0).abs() < 1e-3,
                "the slope jumps: {before} {after}"
            );
        }
    }
}
