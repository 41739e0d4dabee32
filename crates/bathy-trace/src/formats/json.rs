//! Tokens of JSON text from a moving window, without building the document.

use std::io;

use memchr::{memchr, memchr2};

use crate::input::Window;
use crate::reader::Reason;

/// A token; strings and numbers are in [`Lexer::text`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Token {
    Open { array: bool },
    Close { array: bool },
    Comma,
    Colon,
    String,
    Number,
    Literal,
    End,
}

/// Why there is no token.
pub(crate) enum LexError {
    /// The text is not JSON; the bad part is consumed.
    Bad(Reason),
    Io(io::Error),
}

impl From<io::Error> for LexError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Cuts a window into tokens.
#[derive(Default)]
pub(crate) struct Lexer {
    /// The content of the last string (without escapes) or number.
    pub(crate) text: Vec<u8>,
}

impl Lexer {
    /// Consumes the next token and the blanks before it.
    pub(crate) fn next(&mut self, window: &mut Window) -> Result<Token, LexError> {
        let first = loop {
            let available = window.available();
            let blanks = available
                .iter()
                .take_while(|byte| byte.is_ascii_whitespace())
                .count();
            let first = available.get(blanks).copied();
            window.consume(blanks);
            match first {
                Some(first) => break first,
                None if window.fill()? => {}
                None => return Ok(Token::End),
            }
        };
        let token = match first {
            b'{' | b'[' => Token::Open { array: first == b'[' },
            b'}' | b']' => Token::Close { array: first == b']' },
            b',' => Token::Comma,
            b':' => Token::Colon,
            b'"' => return self.string(window),
            _ => return self.word(window),
        };
        window.consume(1);
        Ok(token)
    }

    fn string(&mut self, window: &mut Window) -> Result<Token, LexError> {
        let mut at = 1;
        let end = loop {
            let available = window.available();
            match memchr2(b'"', b'\\', available.get(at..).unwrap_or(&[])) {
                Some(found) if available[at + found] == b'"' => break at + found,
                Some(found) => at += found + 2,
                None => {
                    at = at.max(available.len());
                    if !window.fill()? {
                        let reason = "a string does not end, or is too long";
                        return Err(Self::skip(window, reason));
                    }
                }
            }
        };
        let raw = &window.available()[1..end];
        self.text.clear();
        if memchr(b'\\', raw).is_none() {
            self.text.extend_from_slice(raw);
        } else {
            unescape(raw, &mut self.text);
        }
        window.consume(end + 1);
        Ok(Token::String)
    }

    /// A number or a literal: everything up to a delimiter.
    fn word(&mut self, window: &mut Window) -> Result<Token, LexError> {
        let is_part =
            |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'+' | b'-' | b'.');
        let length = loop {
            let available = window.available();
            let length = available.iter().take_while(|byte| is_part(byte)).count();
            if length < available.len() || !window.fill()? {
                break length;
            }
        };
        if length == 0 {
            window.consume(1);
            return Err(LexError::Bad("there is a character that is not JSON"));
        }
        self.text.clear();
        self.text.extend_from_slice(&window.available()[..length]);
        window.consume(length);
        match self.text.first() {
            Some(b'0'..=b'9' | b'-') => Ok(Token::Number),
            _ if matches!(self.text.as_slice(), b"true" | b"false" | b"null") => Ok(Token::Literal),
            _ => Err(LexError::Bad("there is a word that is not JSON")),
        }
    }

    fn skip(window: &mut Window, reason: Reason) -> LexError {
        let length = window.available().len();
        window.consume(length);
        LexError::Bad(reason)
    }
}

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
        crate::text::hex_of(digits).map(|unit| unit as u32)
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
