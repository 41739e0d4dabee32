//! A cursor over JSON that is in memory as a whole: values are read or stepped over where they stand, nothing is built.
//!
//! What is stepped over is checked for its structure, so that a document that was cut is found out; its numbers are not
//! checked digit by digit. Nothing recurses, and no nesting needs memory.

use std::borrow::Cow;

use memchr::memchr2;

use super::escapes::unescape;
use crate::reader::Reason;

/// Where the text is not what was expected, and why.
pub(crate) type Bad = (usize, Reason);

const DEPTH_MAX: u32 = 64;

const ENDS: Reason = "the JSON ends too early";

/// A place in a text.
#[derive(Clone, Copy)]
pub(crate) struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    /// The place, for a message.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// The next byte that is no blank, which stays.
    #[inline]
    pub(crate) fn peek(&mut self) -> Result<u8, Bad> {
        loop {
            match self.text.get(self.at) {
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.at += 1,
                Some(&byte) => return Ok(byte),
                None => return Err((self.at, ENDS)),
            }
        }
    }

    /// Steps over `byte` when it is the next that is no blank.
    #[inline]
    pub(crate) fn take(&mut self, byte: u8) -> Result<bool, Bad> {
        let found = self.peek()? == byte;
        self.at += usize::from(found);
        Ok(found)
    }

    #[inline]
    fn expect(&mut self, byte: u8, reason: Reason) -> Result<(), Bad> {
        if self.take(byte)? {
            Ok(())
        } else {
            Err((self.at, reason))
        }
    }

    /// Nothing but blanks may be left.
    pub(crate) fn end(&mut self) -> Result<(), Bad> {
        match self.peek() {
            Ok(_) => Err((self.at, "something follows the JSON")),
            Err(_) => Ok(()),
        }
    }

    /// Enters an object; its members are given by [`Self::member`].
    pub(crate) fn object(&mut self, reason: Reason) -> Result<Members, Bad> {
        self.expect(b'{', reason)?;
        Ok(Members { first: true })
    }

    /// The key of the next member of an object; its value follows. `None` at the end, which is stepped over.
    #[inline]
    pub(crate) fn member(&mut self, members: &mut Members) -> Result<Option<Cow<'a, [u8]>>, Bad> {
        if self.take(b'}')? {
            return Ok(None);
        }
        if !std::mem::take(&mut members.first) {
            self.expect(b',', "a comma is missing in an object")?;
        }
        let key = self.string("a key of an object is not a string")?;
        self.expect(b':', "a colon is missing in an object")?;
        Ok(Some(key))
    }

    /// Enters an array; [`Self::element`] says whether there is another element.
    pub(crate) fn array(&mut self, reason: Reason) -> Result<Members, Bad> {
        self.expect(b'[', reason)?;
        Ok(Members { first: true })
    }

    /// Whether an element of an array follows. The end is stepped over.
    #[inline]
    pub(crate) fn element(&mut self, members: &mut Members) -> Result<bool, Bad> {
        if self.take(b']')? {
            return Ok(false);
        }
        if !std::mem::take(&mut members.first) {
            self.expect(b',', "a comma is missing in a list")?;
        }
        Ok(true)
    }

    /// A string without its escapes.
    #[inline]
    pub(crate) fn string(&mut self, reason: Reason) -> Result<Cow<'a, [u8]>, Bad> {
        self.expect(b'"', reason)?;
        let start = self.at;
        let escaped = self.step_over_string()?;
        let raw = &self.text[start..self.at - 1];
        if !escaped {
            return Ok(Cow::Borrowed(raw));
        }
        let mut plain = Vec::with_capacity(raw.len());
        unescape(raw, &mut plain);
        Ok(Cow::Owned(plain))
    }

    /// Steps over the rest of a string, behind its first quote. Returns whether it has escapes.
    #[inline]
    fn step_over_string(&mut self) -> Result<bool, Bad> {
        let start = self.at;
        let mut escaped = false;
        while let Some(found) = memchr2(b'"', b'\\', self.text.get(self.at..).unwrap_or_default()) {
            self.at += found + 1;
            if self.text[self.at - 1] == b'"' {
                return Ok(escaped);
            }
            escaped = true;
            self.at += 1;
        }
        Err((start, "a string does not end"))
    }

    /// A number, `true`, `false`, `null`, or what else stands in their place.
    #[inline]
    fn word(&mut self) -> Result<&'a [u8], Bad> {
        let rest = &self.text[self.at..];
        let length = rest
            .iter()
            .take_while(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'-' | b'+' | b'a'..=b'z' | b'A'..=b'Z'))
            .count();
        if length == 0 {
            return Err((self.at, "there is a character that is not JSON"));
        }
        self.at += length;
        Ok(&rest[..length])
    }

    /// A number, or a string that holds one.
    pub(crate) fn number(&mut self, reason: Reason) -> Result<f64, Bad> {
        let start = self.at;
        let text = match self.peek()? {
            b'"' => self.string(reason)?,
            _ => Cow::Borrowed(self.word()?),
        };
        let number = std::str::from_utf8(&text)
            .ok()
            .and_then(|text| text.parse::<f64>().ok());
        number.filter(|number| number.is_finite()).ok_or((start, reason))
    }

    /// Like [`Self::number`], cut to a whole one.
    pub(crate) fn integer(&mut self, reason: Reason) -> Result<i64, Bad> {
        let start = self.at;
        let number = self.number(reason)?;
        // Sizes and durations: far below 2^53, where every whole number is exact.
        if number.abs() < 9.0e15 {
            Ok(number as i64)
        } else {
            Err((start, reason))
        }
    }

    /// Steps over a value of any kind.
    pub(crate) fn skip(&mut self) -> Result<(), Bad> {
        // A bit for each open bracket, the innermost lowest: 1 for an object.
        let (mut open, mut depth) = (0_u64, 0);
        loop {
            let first = self.peek()?;
            let is_object = first == b'{';
            let mut value_ended = true;
            match first {
                b'"' => {
                    self.at += 1;
                    self.step_over_string()?;
                }
                b'{' | b'[' => {
                    if depth == DEPTH_MAX {
                        return Err((self.at, "the JSON is nested too deeply"));
                    }
                    self.at += 1;
                    if !self.take(if is_object { b'}' } else { b']' })? {
                        (open, depth) = ((open << 1) | u64::from(is_object), depth + 1);
                        value_ended = false;
                    }
                }
                _ => {
                    self.word()?;
                }
            }
            while value_ended {
                if depth == 0 {
                    return Ok(());
                }
                if self.take(if open & 1 == 1 { b'}' } else { b']' })? {
                    (open, depth) = (open >> 1, depth - 1);
                } else {
                    self.expect(b',', "a comma is missing")?;
                    value_ended = false;
                }
            }
            if open & 1 == 1 {
                self.expect(b'"', "a key of an object is not a string")?;
                self.step_over_string()?;
                self.expect(b':', "a colon is missing in an object")?;
            }
        }
    }
}

/// How far an object or an array was read.
pub(crate) struct Members {
    first: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skipped(text: &str) -> Result<usize, Reason> {
        let mut cursor = Cursor::new(text.as_bytes());
        cursor.skip().map(|()| cursor.at()).map_err(|(_, reason)| reason)
    }

    #[test]
    fn a_value_of_any_kind_is_stepped_over() {
        for value in [
            "1.5e-3",
            "null",
            r#""a\"]}""#,
            "[]",
            "{ }",
            r#"{"a":[1,{"b":"]"},[]],"c":{}}"#,
            "[[ [1 , 2 ]\n, {\"x\" : -0} ] ]",
        ] {
            assert_eq!(skipped(&format!(" {value},7")), Ok(value.len() + 1), "{value}");
            // Whatever is cut is found out.
            if value.starts_with(['[', '{', '"']) {
                for end in 0..value.len() {
                    assert!(skipped(&value[..end]).is_err(), "{}", &value[..end]);
                }
            }
        }
        for bad in [
            "[1 2]",
            "{1:2}",
            r#"{"a" 1}"#,
            "[}",
            r#"{"a":1]"#,
            "[,]",
            "%",
            r#"{"a":1,}"#,
        ] {
            assert!(skipped(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn nesting_has_a_limit() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert_eq!(skipped(&nested(64)), Ok(128));
        assert_eq!(skipped(&nested(65)), Err("the JSON is nested too deeply"));
        assert!(skipped(&"[{\"a\":".repeat(100_000)).is_err());
    }

    #[test]
    fn members_and_elements() {
        let mut cursor = Cursor::new(br#" { "a\u0062" : [ 1 , "2" ] , "c" : {} } "#);
        let mut members = cursor.object("").unwrap();
        assert_eq!(cursor.member(&mut members).unwrap().as_deref(), Some(&b"ab"[..]));
        let mut elements = cursor.array("").unwrap();
        let mut numbers = Vec::new();
        while cursor.element(&mut elements).unwrap() {
            numbers.push(cursor.integer("").unwrap());
        }
        assert_eq!(numbers, [1, 2]);
        assert_eq!(cursor.member(&mut members).unwrap().as_deref(), Some(&b"c"[..]));
        cursor.skip().unwrap();
        assert_eq!(cursor.member(&mut members), Ok(None));
        cursor.end().unwrap();
        for bad in ["1e400", "-", "\"x\"", "nan", "true", "[]"] {
            assert_eq!(
                Cursor::new(bad.as_bytes())
                    .number("no number")
                    .map_err(|bad| bad.1)
                    .err(),
                Some(match bad {
                    "[]" => "there is a character that is not JSON",
                    _ => "no number",
                }),
                "{bad}"
            );
        }
    }
}
