//! Escapes in strings.

use memchr::memchr;

use crate::text::hex_of;

/// Resolves escapes; an invalid one stays as it is, and half of a surrogate pair becomes U+FFFD.
pub(crate) fn unescape(raw: &[u8], text: &mut Vec<u8>) {
    let mut rest = raw;
    while let Some(at) = memchr(b'\\', rest) {
        text.extend_from_slice(&rest[..at]);
        let escape = rest.get(at + 1).copied();
        let mut used = 2;
        match escape {
            Some(b'n') => text.push(b'\n'),
            Some(b't') => text.push(b'\t'),
            Some(b'r') => text.push(b'\r'),
            Some(b'b') => text.push(8),
            Some(b'f') => text.push(12),
            Some(b'u') => {
                let (character, length) = escaped_character(&rest[at..]);
                text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                used = length;
            }
            Some(other) => text.push(other),
            None => {}
        }
        rest = rest.get(at + used..).unwrap_or(&[]);
    }
    text.extend_from_slice(rest);
}

/// The character of `\u0041` or of a pair as `\ud83d\ude00` at the start of the text, and the length of what names it.
fn escaped_character(text: &[u8]) -> (char, usize) {
    let unit = |at: usize| {
        let digits = text.get(at..)?.strip_prefix(b"\\u")?.get(..4)?;
        hex_of(digits).map(|unit| unit as u32)
    };
    let first = unit(0);
    if let (Some(high @ 0xd800..=0xdbff), Some(low @ 0xdc00..=0xdfff)) = (first, unit(6)) {
        let code = 0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00);
        return (char::from_u32(code).unwrap_or('\u{fffd}'), 12);
    }
    (first.and_then(char::from_u32).unwrap_or('\u{fffd}'), 6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes() {
        let mut text = Vec::new();
        unescape(br#"a\"b\\c\/d\u0041\n\ud800"#, &mut text);
        assert_eq!(String::from_utf8(text).unwrap(), "a\"b\\c/dA\n\u{fffd}");
        let mut text = Vec::new();
        unescape(br"\ud83d\ude00\ud83dx\ude00\ud83d", &mut text);
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "\u{1f600}\u{fffd}x\u{fffd}\u{fffd}"
        );
        let mut text = Vec::new();
        unescape(br"\", &mut text);
        unescape(br"\u12", &mut text);
        assert_eq!(String::from_utf8(text).unwrap(), "\u{fffd}");
    }
}
