//! Where a byte of a hard disk is: zone, track, angle.
//!
//! Zones are bands of equal width from the outer to the inner edge; a zone's tracks hold as much as its sustained rate
//! lets pass in a revolution and a track switch. A device that is smaller than the drive keeps the drive's stroke, zones
//! and track length and has fewer tracks: seeks of the whole device are seeks of the whole drive.

/// What a drive's geometry follows from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GeometryFigures {
    /// Time of a revolution.
    pub revolution_ns: u64,
    /// Time to the next track while streaming (head or cylinder switch); the skew between tracks hides just that.
    pub track_switch_ns: u64,
    /// Sustained rate at the outer edge, in bytes a second.
    pub outer_bytes_per_s: f64,
    /// Sustained rate at the inner edge.
    pub inner_bytes_per_s: f64,
    /// Zones.
    pub zones: usize,
}

#[derive(Debug, Clone, Copy)]
struct Zone {
    first_byte: u64,
    bytes: u64,
    track_bytes: u64,
    first_track: u64,
    tracks: u64,
    /// Time at which the zone begins when the whole disk is streamed from its first byte.
    starts_ns: f64,
}

/// The place of a byte.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Place {
    /// Track, counted from the outer edge.
    pub track: u64,
    /// Distance from the outer edge, as a share of the stroke.
    pub stroke: f64,
    /// Angle, in turns from 0 to 1.
    pub angle: f64,
}

/// A device's tracks.
#[derive(Debug, Clone)]
pub struct Geometry {
    figures: GeometryFigures,
    zones: Vec<Zone>,
    size_bytes: u64,
}

impl Geometry {
    /// Lay `size_bytes` out.
    pub fn new(figures: GeometryFigures, size_bytes: u64) -> Self {
        let count = figures.zones.max(1);
        let rates: Vec<f64> = (0..count)
            .map(|index| {
                let inward = if count == 1 {
                    0.0
                } else {
                    index as f64 / (count - 1) as f64
                };
                figures.outer_bytes_per_s + (figures.inner_bytes_per_s - figures.outer_bytes_per_s) * inward
            })
            .collect();
        let total: f64 = rates.iter().sum();
        let pass_ns = (figures.revolution_ns + figures.track_switch_ns) as f64;
        let mut zones = Vec::with_capacity(count);
        let (mut first_byte, mut first_track, mut starts_ns, mut share) = (0, 0, 0.0, 0.0);
        for rate in rates {
            share += rate / total;
            // The last zone ends where the device ends, whatever the rounding.
            let end = if zones.len() + 1 == count {
                size_bytes
            } else {
                ((size_bytes as f64 * share) as u64 / 4096 * 4096).clamp(first_byte, size_bytes)
            };
            let track_bytes = ((rate * pass_ns / 1e9) as u64 / 512 * 512).max(4096);
            let bytes = end - first_byte;
            let tracks = bytes.div_ceil(track_bytes).max(1);
            zones.push(Zone {
                first_byte,
                bytes,
                track_bytes,
                first_track,
                tracks,
                starts_ns,
            });
            first_byte = end;
            first_track += tracks;
            starts_ns += tracks as f64 * pass_ns;
        }
        Self {
            figures,
            zones,
            size_bytes,
        }
    }

    /// The device's size.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Time of a revolution.
    pub fn revolution_ns(&self) -> u64 {
        self.figures.revolution_ns
    }

    fn zone_index(&self, byte: u64) -> usize {
        let after = self.zones.partition_point(|zone| zone.first_byte <= byte);
        let mut index = after.saturating_sub(1);
        // An empty zone of a tiny device holds no byte.
        while index > 0 && self.zones[index].bytes == 0 {
            index -= 1;
        }
        index
    }

    /// Where `byte` is.
    pub fn place(&self, byte: u64) -> Place {
        let index = self.zone_index(byte);
        let zone = &self.zones[index];
        let within = byte - zone.first_byte;
        let (in_zone, in_track) = (within / zone.track_bytes, within % zone.track_bytes);
        let track = zone.first_track + in_zone;
        Place {
            track,
            stroke: self.stroke_in(index, in_zone),
            angle: self.angle(track, in_track as f64 / zone.track_bytes as f64),
        }
    }

    fn stroke_in(&self, zone: usize, track_in_zone: u64) -> f64 {
        (zone as f64 + (track_in_zone as f64 + 0.5) / self.zones[zone].tracks as f64)
            / self.zones.len() as f64
    }

    /// Each track is turned against the one before by what the head needs to get there.
    fn angle(&self, track: u64, share: f64) -> f64 {
        let revolution_ns = self.figures.revolution_ns;
        let skew_ns =
            u128::from(track) * u128::from(self.figures.track_switch_ns) % u128::from(revolution_ns);
        (skew_ns as f64 / revolution_ns as f64 + share).fract()
    }

    /// The sustained rate at `byte`, in bytes a second.
    pub fn rate_bytes_per_s(&self, byte: u64) -> f64 {
        let zone = &self.zones[self.zone_index(byte)];
        zone.track_bytes as f64 * 1e9 / (self.figures.revolution_ns + self.figures.track_switch_ns) as f64
    }

    /// The time from the head's arrival at `byte` to the end of the `length` bytes from there.
    pub fn stream_ns(&self, byte: u64, length: u64) -> f64 {
        if length == 0 {
            return 0.0;
        }
        // The last byte's own passage, so that a range that ends with a track does not pay for the switch after it.
        let last = (byte + length).min(self.size_bytes).max(1) - 1;
        let zone = &self.zones[self.zone_index(last)];
        let passage_ns = self.figures.revolution_ns as f64 / zone.track_bytes as f64;
        self.stream_time_ns(last) + passage_ns - self.stream_time_ns(byte)
    }

    /// When `byte` passes under the head if the whole disk is streamed.
    fn stream_time_ns(&self, byte: u64) -> f64 {
        let zone = &self.zones[self.zone_index(byte)];
        let within = byte - zone.first_byte;
        let revolution_ns = self.figures.revolution_ns as f64;
        let pass_ns = revolution_ns + self.figures.track_switch_ns as f64;
        let in_track = (within % zone.track_bytes) as f64 / zone.track_bytes as f64;
        zone.starts_ns + (within / zone.track_bytes) as f64 * pass_ns + in_track * revolution_ns
    }

    /// How far a stream that starts at `byte` gets in `elapsed_ns`: the first byte that has not passed yet.
    pub fn reach(&self, byte: u64, elapsed_ns: f64) -> u64 {
        if byte >= self.size_bytes {
            return self.size_bytes;
        }
        let until_ns = self.stream_time_ns(byte) + elapsed_ns;
        let after = self.zones.partition_point(|zone| zone.starts_ns <= until_ns);
        let zone = &self.zones[after.saturating_sub(1)];
        let revolution_ns = self.figures.revolution_ns as f64;
        let pass_ns = revolution_ns + self.figures.track_switch_ns as f64;
        let within_ns = until_ns - zone.starts_ns;
        let track = (within_ns / pass_ns).floor();
        let in_track = ((within_ns - track * pass_ns) / revolution_ns).min(1.0);
        // A few nanoseconds of rounding must not lose the byte that ends a request just now.
        let bytes = (track + in_track) * zone.track_bytes as f64 + 0.5;
        (zone.first_byte + (bytes as u64).min(zone.bytes)).clamp(byte, self.size_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIGURES: GeometryFigures = GeometryFigures {
        revolution_ns: 8_333_333,
        track_switch_ns: 900_000,
        outer_bytes_per_s: 171e6,
        inner_bytes_per_s: 86e6,
        zones: 16,
    };

    #[test]
    fn rates_fall_from_the_outer_to_the_inner_edge() {
        let geometry = Geometry::new(FIGURES, 100 << 30);
        assert!((geometry.rate_bytes_per_s(0) / 171e6 - 1.0).abs() < 1e-3);
        assert!((geometry.rate_bytes_per_s((100 << 30) - 1) / 86e6 - 1.0).abs() < 1e-3);
        let stream_ns = geometry.stream_ns(0, 1 << 30);
        assert!(
            ((1_u64 << 30) as f64 / stream_ns / 0.171 - 1.0).abs() < 2e-3,
            "{stream_ns}"
        );
    }

    #[test]
    fn reach_is_the_inverse_of_stream() {
        for size in [64 << 20, 100 << 30_u64] {
            let geometry = Geometry::new(FIGURES, size);
            for index in 0..2000_u64 {
                let byte = (index * 7_919 * 4096) % (size - (8 << 20));
                let length = 4096 * (1 + index * 31 % 1500);
                let reached = geometry.reach(byte, geometry.stream_ns(byte, length));
                assert!(
                    reached.abs_diff(byte + length) <= 1,
                    "{byte} + {length} gives {reached}"
                );
            }
        }
    }

    #[test]
    fn a_stream_over_a_track_boundary_waits_for_no_revolution() {
        let geometry = Geometry::new(FIGURES, 100 << 30);
        let track_bytes = geometry.zones[0].track_bytes;
        let (last, first) = (geometry.place(track_bytes - 512), geometry.place(track_bytes));
        assert_eq!(last.track + 1, first.track);
        let skew = (first.angle - geometry.place(0).angle).rem_euclid(1.0);
        assert!((skew - 900_000.0 / 8_333_333.0).abs() < 1e-9);
    }

    #[test]
    fn places_are_on_the_disk_whatever_its_size() {
        for size in [4096, 1 << 20, 3 << 20, 10 << 30, 1_u64 << 44] {
            let geometry = Geometry::new(FIGURES, size);
            for byte in [0, size / 3, size / 2, size - 1] {
                let place = geometry.place(byte);
                assert!(
                    (0.0..=1.0).contains(&place.stroke) && (0.0..1.0).contains(&place.angle),
                    "{place:?}"
                );
            }
        }
    }
}
