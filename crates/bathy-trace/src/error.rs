//! The errors of reading a trace, with file and position.

use std::fmt;
use std::path::PathBuf;

use crate::format::Format;

/// Where in the (decompressed) trace something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    /// Line of a text format, from 1.
    Line(u64),
    /// Byte of a binary or JSON format, from 0.
    Byte(u64),
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(line) => write!(f, "line {line}"),
            Self::Byte(byte) => write!(f, "byte {byte}"),
        }
    }
}

/// A record that is not what its format says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRecord {
    /// Where it starts.
    pub position: Position,
    /// What is wrong with it.
    pub reason: &'static str,
    /// How it begins, in printable ASCII with all else escaped; at most 80 characters.
    pub excerpt: String,
}

impl fmt::Display for BadRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.position, self.reason)?;
        if !self.excerpt.is_empty() {
            write!(f, ": {}", self.excerpt)?;
        }
        Ok(())
    }
}

/// Why a trace cannot be read (on).
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The operating system or the decompressor failed.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The failure.
        source: std::io::Error,
    },
    /// The format is not recognised from name or content.
    #[error("{path}: the trace format is not recognised; it must be given, one of {known}", path = path.display(), known = Format::known())]
    UnknownFormat {
        /// The file.
        path: PathBuf,
    },
    /// A name that is no format.
    #[error("trace format must be one of {known} (got {name:?})", known = Format::known())]
    FormatName {
        /// The name.
        name: String,
    },
    /// The head of the trace is not that of its format.
    #[error("{path}: not a trace in the {format} format: {reason}", path = path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// The format that was asked for or detected.
        format: Format,
        /// What is wrong.
        reason: String,
    },
    /// A bad record, with [`OnBadRecord::Stop`](crate::OnBadRecord::Stop).
    #[error("{path}: {record}", path = path.display())]
    BadRecord {
        /// The file.
        path: PathBuf,
        /// The record.
        record: BadRecord,
    },
    /// An option is outside its range.
    #[error("{0}")]
    Option(&'static str),
}

/// The start of a record for a message. What is not printable ASCII is escaped: a file may hold anything, and a terminal
/// obeys it.
pub(crate) fn excerpt(record: &[u8]) -> String {
    const CHARACTERS_MAX: usize = 80;
    let escaped = record
        .iter()
        .take(CHARACTERS_MAX)
        .flat_map(|byte| byte.escape_ascii());
    escaped.take(CHARACTERS_MAX).map(char::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_is_short_and_printable() {
        assert_eq!(excerpt(b"a\tb\x00\xff"), r"a\tb\x00\xff");
        assert_eq!(excerpt(&[b'x'; 500]).len(), 80);
        let all: Vec<u8> = (0..=255).collect();
        let parts = all.chunks(16).map(excerpt);
        assert!(
            parts
                .into_iter()
                .all(|part| part.len() <= 80 && part.chars().all(|c| matches!(c, ' '..='~')))
        );
    }

    #[test]
    fn a_bad_record_says_where() {
        let record = BadRecord {
            position: Position::Line(7),
            reason: "no offset",
            excerpt: "a,b".into(),
        };
        assert_eq!(record.to_string(), "line 7: no offset: a,b");
    }
}
