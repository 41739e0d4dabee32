//! Tokens of JSON text from a moving window, without building the document.

use std::io;

use memchr::{memchr, memchr2};

use super::escapes::unescape;
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
    /// While it is there, each token is appended to it as it stands.
    pub(crate) copy: Option<Vec<u8>>,
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
            // What they keep apart stays apart.
            if let Some(copy) = self.copy.as_mut().filter(|_| blanks > 0) {
                copy.push(b' ');
            }
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
        self.consume(window, 1);
        Ok(token)
    }

    fn consume(&mut self, window: &mut Window, bytes: usize) {
        if let Some(copy) = &mut self.copy {
            copy.extend_from_slice(&window.available()[..bytes]);
        }
        window.consume(bytes);
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
        self.consume(window, end + 1);
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
        self.consume(window, length);
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
