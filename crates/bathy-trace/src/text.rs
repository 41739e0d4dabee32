//! Numbers and times in text, read from bytes without allocation.

/// A decimal number that is the whole field.
#[inline]
pub(crate) fn u64_of(field: &[u8]) -> Option<u64> {
    let (value, rest) = leading_u64(field)?;
    rest.is_empty().then_some(value)
}

/// A decimal number below 2^32 that is the whole field.
#[inline]
pub(crate) fn u32_of(field: &[u8]) -> Option<u32> {
    u64_of(field).and_then(|value| u32::try_from(value).ok())
}

/// A hexadecimal number, with or without `0x`, that is the whole field.
pub(crate) fn hex_of(field: &[u8]) -> Option<u64> {
    let digits = field.strip_prefix(b"0x").unwrap_or(field);
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0, |value, &digit| {
        Some((value << 4) | u64::from(hex_digit(digit)?))
    })
}

fn hex_digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// A decimal number at the start, and what follows it; `None` without a digit or beyond 2^64.
#[inline]
pub(crate) fn leading_u64(text: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0_u64;
    let mut at = 0;
    while let Some(chunk) = text.get(at..at + 8) {
        let (part, count) = eight_digits(chunk.try_into().expect("eight bytes"));
        // Up to 16 digits cannot overflow.
        value = if at < 16 {
            value * POWERS_OF_TEN[count] + part
        } else {
            value.checked_mul(POWERS_OF_TEN[count])?.checked_add(part)?
        };
        at += count;
        if count < 8 {
            return (at > 0).then(|| (value, &text[at..]));
        }
    }
    while at < text.len() {
        let digit = text[at].wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
        at += 1;
    }
    (at > 0).then(|| (value, &text[at..]))
}

const POWERS_OF_TEN: [u64; 9] = [
    1,
    10,
    100,
    1_000,
    10_000,
    100_000,
    1_000_000,
    10_000_000,
    100_000_000,
];

/// The number that the leading digits of eight bytes make, and how many digits these are.
///
/// All bytes are worked on at once in a register (D. Lemire, "Quickly parsing eight digits", 2018).
#[inline]
fn eight_digits(chunk: [u8; 8]) -> (u64, usize) {
    const EACH: u64 = 0x0101_0101_0101_0101;
    // The first character is the lowest byte. Digits become 0 to 9.
    let digits = u64::from_le_bytes(chunk) ^ (EACH * 0x30);
    // The high bit of a byte says that it is above 9. A carry can only spoil bytes behind one that is.
    let others = (digits.wrapping_add(EACH * 0x76) | digits) & (EACH * 0x80);
    let count = others.trailing_zeros() as usize / 8;
    if count == 0 {
        return (0, 0);
    }
    // What is behind the digits is shifted out; zeros come in before them.
    let digits = digits << (64 - 8 * count);
    let pairs = (digits.wrapping_mul(10 * 0x100 + 1) >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs.wrapping_mul(100 * 0x1_0000 + 1) >> 16) & 0x0000_ffff_0000_ffff;
    (fours.wrapping_mul(10_000 * 0x1_0000_0000 + 1) >> 32, count)
}

/// A decimal number with or without a fraction, times 10^`exponent`, cut to a whole; the whole field.
#[inline]
pub(crate) fn scaled_of(field: &[u8], exponent: u32) -> Option<u64> {
    let (value, rest) = leading_scaled(field, exponent)?;
    rest.is_empty().then_some(value)
}

/// Like [`scaled_of`], at the start of a text.
#[inline]
pub(crate) fn leading_scaled(text: &[u8], exponent: u32) -> Option<(u64, &[u8])> {
    let (whole, rest) = leading_u64(text)?;
    let value = whole.checked_mul(10_u64.checked_pow(exponent)?)?;
    let Some(fraction) = rest.strip_prefix(b".") else {
        return Some((value, rest));
    };
    let digits = fraction.iter().take_while(|digit| digit.is_ascii_digit()).count();
    let mut scale = 10_u64.pow(exponent);
    let mut part = 0;
    for digit in &fraction[..digits] {
        scale /= 10;
        part += scale * u64::from(digit - b'0');
    }
    Some((value.checked_add(part)?, &fraction[digits..]))
}

/// A calendar time as Ceph prints it, `2026-11-21T01:02:03.123456+0000` (also with a blank for the `T`, and
/// without a zone, which is then taken for UTC), as nanoseconds since the Unix epoch, and what follows it.
pub(crate) fn leading_timestamp(text: &[u8]) -> Option<(u64, &[u8])> {
    let (year, rest) = digits(text, 4)?;
    let (month, rest) = digits(rest.strip_prefix(b"-")?, 2)?;
    let (day, rest) = digits(rest.strip_prefix(b"-")?, 2)?;
    let rest = rest.strip_prefix(b"T").or_else(|| rest.strip_prefix(b" "))?;
    let (hour, rest) = digits(rest, 2)?;
    let (minute, rest) = digits(rest.strip_prefix(b":")?, 2)?;
    let (seconds_ns, rest) = leading_scaled(rest.strip_prefix(b":")?, 9)?;
    if !(1970..=2400).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    if hour > 23 || minute > 59 || seconds_ns > 61_000_000_000 {
        return None;
    }
    let (zone_minutes, rest) = zone(rest);
    let minutes = (days_since_epoch(year, month, day) * 24 + hour) * 60 + minute;
    let local_ns = (minutes as u64)
        .checked_mul(60_000_000_000)?
        .checked_add(seconds_ns)?;
    let zone_ns = zone_minutes.unsigned_abs() * 60_000_000_000;
    let time_ns = if zone_minutes < 0 {
        local_ns.checked_add(zone_ns)
    } else {
        local_ns.checked_sub(zone_ns)
    };
    Some((time_ns?, rest))
}

fn digits(text: &[u8], count: usize) -> Option<(i64, &[u8])> {
    let (head, rest) = text.split_at_checked(count)?;
    Some((u64_of(head)? as i64, rest))
}

/// `Z`, `+hhmm` or `+hh:mm` in minutes east of UTC.
fn zone(text: &[u8]) -> (i64, &[u8]) {
    let sign = match text.first() {
        Some(b'Z') => return (0, &text[1..]),
        Some(b'+') => 1,
        Some(b'-') => -1,
        _ => return (0, text),
    };
    let parsed = digits(&text[1..], 2).and_then(|(hours, rest)| {
        let (minutes, rest) = digits(rest.strip_prefix(b":").unwrap_or(rest), 2)?;
        Some((sign * (hours * 60 + minutes), rest))
    });
    parsed.unwrap_or((0, text))
}

/// Days from 1970-01-01 in the proleptic Gregorian calendar, by counting in eras of 400 years that start in
/// March (H. Hinnant, "chrono-Compatible Low-Level Date Algorithms").
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year / 400;
    let year_of_era = year % 400;
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The text without blanks at both ends.
pub(crate) fn trim(text: &[u8]) -> &[u8] {
    text.trim_ascii()
}

/// The text up to `end` and the text behind it.
#[inline]
pub(crate) fn split_once(text: &[u8], end: u8) -> Option<(&[u8], &[u8])> {
    let at = memchr::memchr(end, text)?;
    Some((&text[..at], &text[at + 1..]))
}

/// The next word and the text behind it; the word is empty at the end of the text.
#[inline]
pub(crate) fn word(text: &[u8]) -> (&[u8], &[u8]) {
    let text = text.trim_ascii_start();
    let length = text
        .iter()
        .position(u8::is_ascii_whitespace)
        .unwrap_or(text.len());
    text.split_at(length)
}

/// The text behind the first `needle`.
pub(crate) fn after<'a>(text: &'a [u8], needle: &[u8]) -> Option<&'a [u8]> {
    let at = memchr::memmem::find(text, needle)?;
    Some(&text[at + needle.len()..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_up_to_the_last_that_fits() {
        assert_eq!(u64_of(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(u64_of(b"00000000000000000000000000000007"), Some(7));
        for bad in [
            "",
            "-1",
            "1 ",
            "+1",
            "1.0",
            "18446744073709551616",
            "99999999999999999999999",
            "1e3",
        ] {
            assert_eq!(u64_of(bad.as_bytes()), None, "{bad:?}");
        }
        assert_eq!(u32_of(b"4294967295"), Some(u32::MAX));
        assert_eq!(u32_of(b"4294967296"), None);
        assert_eq!(leading_u64(b"12,3"), Some((12, &b",3"[..])));
    }

    #[test]
    fn numbers_of_every_length_and_surrounding() {
        for digits in 1..=19 {
            let number = 10_u64.pow(digits) / 7 * 3 + u64::from(digits);
            for behind in [
                "",
                ",",
                ",1",
                "\u{ff}9999999",
                "/00000000",
                ":00000000",
                " 123456789",
            ] {
                let text = format!("{number}{behind}");
                assert_eq!(
                    leading_u64(text.as_bytes()),
                    Some((number, behind.as_bytes())),
                    "{text}"
                );
            }
        }
    }

    #[test]
    fn hexadecimal_numbers() {
        assert_eq!(hex_of(b"000000000000000b"), Some(11));
        assert_eq!(hex_of(b"0xFFffffffffffffff"), Some(u64::MAX));
        for bad in ["", "0x", "g", "00000000000000000"] {
            assert_eq!(hex_of(bad.as_bytes()), None, "{bad:?}");
        }
    }

    #[test]
    fn fractions_are_cut_and_never_rounded_up() {
        assert_eq!(scaled_of(b"0.000598", 9), Some(598_000));
        assert_eq!(scaled_of(b"5.1234567899", 9), Some(5_123_456_789));
        assert_eq!(scaled_of(b"7", 9), Some(7_000_000_000));
        assert_eq!(scaled_of(b"1.5", 0), Some(1));
        assert_eq!(scaled_of(b".5", 9), None);
        assert_eq!(scaled_of(b"99999999999.0", 9), None);
    }

    #[test]
    fn timestamps_agree_with_the_calendar() {
        // `date -d 2026-11-21T01:02:03Z +%s`
        let expected = 1_795_222_923_000_000_000 + 123_456_000;
        for text in [
            "2026-11-21T01:02:03.123456+0000",
            "2026-11-21T01:02:03.123456Z",
            "2026-11-21 01:02:03.123456",
            "2026-11-21T03:32:03.123456+0230",
            "2026-11-20T20:02:03.123456-05:00",
        ] {
            assert_eq!(
                leading_timestamp(text.as_bytes()),
                Some((expected, &b""[..])),
                "{text}"
            );
        }
        assert_eq!(
            leading_timestamp(b"1970-01-01T00:00:00Z x"),
            Some((0, &b" x"[..]))
        );
        // `date -d 2024-02-29T23:59:60Z`: a leap day, and a leap second that runs into the next day.
        assert_eq!(
            leading_timestamp(b"2024-02-29T23:59:60Z").map(|(time_ns, _)| time_ns),
            Some(1_709_251_200_000_000_000)
        );
        for bad in [
            "",
            "2026-11-21",
            "2026-13-21T01:02:03",
            "1969-01-01T00:00:00",
            "1970-01-01T00:00:00+0100",
        ] {
            assert_eq!(leading_timestamp(bad.as_bytes()), None, "{bad:?}");
        }
    }

    #[test]
    fn words_are_split_at_blanks() {
        assert_eq!(word(b"  ab\tc "), (&b"ab"[..], &b"\tc "[..]));
        assert_eq!(word(b"  "), (&b""[..], &b""[..]));
        assert_eq!(after(b"a lat 5", b" lat "), Some(&b"5"[..]));
    }
}
