//! Sizes and durations as people write them. Sizes are binary, as in all of Bathyscope: 4K is 4096 bytes.

/// Bytes of "4096", "4K", "1.5G", "100GiB".
pub fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text
        .find(|it: char| !it.is_ascii_digit() && it != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let power = match unit
        .trim()
        .to_ascii_lowercase()
        .trim_end_matches('b')
        .trim_end_matches('i')
    {
        "" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        _ => return None,
    };
    let value = number.parse::<f64>().ok()? * 1024_f64.powi(power);
    (value.fract() == 0.0 && value <= (1_u64 << 60) as f64).then_some(value as u64)
}

/// Nanoseconds of "50ms", "2s", "100us", "500ns"; a bare number is seconds.
pub fn parse_duration_ns(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text
        .find(|it: char| !it.is_ascii_digit() && it != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit_ns = match unit.trim() {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "" | "s" => 1e9,
        "m" | "min" => 60e9,
        _ => return None,
    };
    let value = number.parse::<f64>().ok()? * unit_ns;
    (value <= 1e15).then_some(value as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_binary() {
        assert_eq!(parse_bytes("4K"), Some(4096));
        assert_eq!(parse_bytes("1.5 GiB"), Some(3 << 29));
        assert_eq!(parse_bytes("512"), Some(512));
        assert_eq!(parse_bytes("100GB"), Some(100 << 30));
        for wrong in ["", "G", "-1", "1.3", "5X", "1e9", "9999999T", "nan", "4Ki4"] {
            assert_eq!(parse_bytes(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(parse_duration_ns("50ms"), Some(50_000_000));
        assert_eq!(parse_duration_ns("1.5"), Some(1_500_000_000));
        for wrong in ["", "ms", "-1s", "1h2", "99999999999s"] {
            assert_eq!(parse_duration_ns(wrong), None, "{wrong}");
        }
    }
}
