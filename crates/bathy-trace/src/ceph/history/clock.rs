//! The times in a history.

use crate::json::cursor::{Bad, Cursor};
use crate::text::leading_timestamp;

/// Reads times. Most are of the second of the one before, of which only the microseconds are read.
#[derive(Default)]
pub(crate) struct Clock {
    /// "2026-11-21T02:20:23." and "+0000".
    second: Option<([u8; 20], [u8; 5])>,
    second_ns: i64,
}

impl Clock {
    /// The time that stands at the cursor, in nanoseconds since the Unix epoch.
    #[inline]
    pub(crate) fn read(&mut self, cursor: &mut Cursor<'_>) -> Result<i64, Bad> {
        let start = cursor.at();
        let text = cursor.string("a time is not a string")?;
        self.ns(&text).ok_or((start, "a time has an unknown form"))
    }

    #[inline]
    fn ns(&mut self, text: &[u8]) -> Option<i64> {
        let Ok(text): Result<&[u8; 31], _> = text.try_into() else {
            return whole_time_ns(text);
        };
        let (head, tail) = text.split_first_chunk::<20>()?;
        let (digits, zone) = tail.split_first_chunk::<6>()?;
        if !digits.iter().all(u8::is_ascii_digit) {
            return whole_time_ns(text);
        }
        let microseconds = digits
            .iter()
            .fold(0_i64, |value, digit| value * 10 + i64::from(digit - b'0'));
        let is_known = self
            .second
            .as_ref()
            .is_some_and(|(known, known_zone)| known == head && known_zone == zone);
        if !is_known {
            self.second_ns = whole_time_ns(text)? - microseconds * 1000;
            self.second = Some((*head, zone.try_into().ok()?));
        }
        self.second_ns.checked_add(microseconds * 1000)
    }
}

fn whole_time_ns(text: &[u8]) -> Option<i64> {
    let (ns, rest) = leading_timestamp(text)?;
    i64::try_from(ns).ok().filter(|_| rest.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: i64 = 1_795_222_923_000_000_000;

    #[test]
    fn times_of_the_same_and_of_another_second() {
        let mut clock = Clock::default();
        for (text, expected) in [
            ("2026-11-21T01:02:03.000001+0000", Some(SECOND_NS + 1000)),
            ("2026-11-21T01:02:03.999999+0000", Some(SECOND_NS + 999_999_000)),
            ("2026-11-21T01:02:04.000001+0000", Some(SECOND_NS + 1_000_001_000)),
            (
                "2026-11-21T01:02:03.000001+0100",
                Some(SECOND_NS - 3_599_999_999_000),
            ),
            // Nautilus
            ("2026-11-21 01:02:03.000001", Some(SECOND_NS + 1000)),
            ("2026-11-21T01:02:03.00000x+0000", None),
            ("0.000000", None),
            ("", None),
        ] {
            assert_eq!(clock.ns(text.as_bytes()), expected, "{text}");
        }
    }
}
