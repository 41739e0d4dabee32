//! The two kinds of decoder that most formats use: lines of text and binary records of one size.

use memchr::memchr;

use crate::error::Position;
use crate::input::Window;
use crate::reader::{Decoder, Fault, Reason, Sink};
use crate::report::Columns;

/// A format in which each line can be read by itself.
pub(crate) trait LineParser: Send {
    /// Whether the first line of a trace is a header.
    fn is_header(_first: &[u8]) -> bool {
        false
    }

    /// The columns that a header names.
    fn columns(&self) -> Columns {
        Columns::default()
    }

    /// Reads one line, without its end.
    fn line(&mut self, line: &[u8], sink: &mut Sink<'_>) -> Result<(), Reason>;
}

/// Decodes lines that end with `\n` or `\r\n`; the last may have no end.
pub(crate) struct Lines<P> {
    parser: P,
    line: u64,
    record_bytes_max: usize,
    // Inside a line that was too long and has been reported.
    skipping: bool,
}

impl<P: LineParser> Lines<P> {
    pub(crate) fn new(parser: P, record_bytes_max: usize) -> Self {
        Self {
            parser,
            line: 0,
            record_bytes_max,
            skipping: false,
        }
    }

    /// Parses the complete lines that are available, until the batch has `events`.
    #[inline]
    fn decode_available(
        &mut self,
        window: &mut Window,
        sink: &mut Sink<'_>,
        events: usize,
    ) -> Result<(), Fault> {
        let available = window.available();
        let mut at = 0;
        let mut result = Ok(());
        while sink.batch.len() < events {
            let Some(length) = memchr(b'\n', &available[at..]) else {
                break;
            };
            let line = &available[at..at + length];
            at += length + 1;
            if self.skipping {
                self.skipping = false;
                self.line += 1;
                continue;
            }
            result = self.parse(line, sink);
            if result.is_err() {
                break;
            }
        }
        window.consume(at);
        result
    }

    #[inline]
    fn parse(&mut self, line: &[u8], sink: &mut Sink<'_>) -> Result<(), Fault> {
        self.line += 1;
        let text = line.strip_suffix(b"\r").unwrap_or(line);
        if self.line == 1 && P::is_header(text) {
            return Ok(());
        }
        let result = self.parser.line(text, sink);
        result.map_err(|reason| Fault::record(Position::Line(self.line), reason, line))
    }

    fn too_long(&mut self, window: &mut Window) -> Result<(), Fault> {
        let available = window.available();
        let length = available.len();
        let fault = Fault::record(Position::Line(self.line + 1), "the line is too long", available);
        window.consume(length);
        if self.skipping {
            return Ok(());
        }
        self.skipping = true;
        Err(fault)
    }
}

impl<P: LineParser> Decoder for Lines<P> {
    fn columns(&self) -> Columns {
        self.parser.columns()
    }

    fn decode(&mut self, window: &mut Window, sink: &mut Sink<'_>, events: usize) -> Result<(), Fault> {
        loop {
            self.decode_available(window, sink, events)?;
            if sink.batch.len() >= events {
                return Ok(());
            }
            // Only an incomplete line is left.
            if window.available().len() > self.record_bytes_max {
                self.too_long(window)?;
            }
            if window.fill()? {
                continue;
            }
            if window.at_end() {
                break;
            }
        }
        let last = window.available();
        let length = last.len();
        let result = if length > 0 && !self.skipping {
            self.parse(last, sink)
        } else {
            Ok(())
        };
        window.consume(length);
        result
    }
}

/// A format of records of `BYTES` bytes each.
pub(crate) trait RecordParser<const BYTES: usize>: Send {
    /// Reads one record.
    fn record(&mut self, record: &[u8; BYTES], sink: &mut Sink<'_>) -> Result<(), Reason>;
}

/// Decodes records that follow each other without gap.
pub(crate) struct Records<P, const BYTES: usize> {
    parser: P,
}

impl<P: RecordParser<BYTES>, const BYTES: usize> Records<P, BYTES> {
    pub(crate) fn new(parser: P) -> Self {
        Self { parser }
    }
}

impl<P: RecordParser<BYTES>, const BYTES: usize> Decoder for Records<P, BYTES> {
    fn decode(&mut self, window: &mut Window, sink: &mut Sink<'_>, events: usize) -> Result<(), Fault> {
        loop {
            let offset = window.offset();
            let mut consumed = 0;
            let mut fault = None;
            let records = window.available().chunks_exact(BYTES);
            let incomplete = records.remainder().len();
            for record in records {
                if sink.batch.len() >= events {
                    break;
                }
                let record: &[u8; BYTES] = record.try_into().expect("chunks_exact gives chunks of this size");
                consumed += BYTES;
                if let Err(reason) = self.parser.record(record, sink) {
                    let position = Position::Byte(offset + (consumed - BYTES) as u64);
                    fault = Some(Fault::Record {
                        position,
                        reason,
                        excerpt: hex(record),
                    });
                    break;
                }
            }
            window.consume(consumed);
            if let Some(fault) = fault {
                return Err(fault);
            }
            if sink.batch.len() >= events {
                return Ok(());
            }
            if !window.fill()? {
                return match incomplete {
                    0 => Ok(()),
                    bytes => {
                        let position = Position::Byte(window.offset());
                        window.consume(bytes);
                        Err(Fault::Lost {
                            position,
                            reason: "the last record is truncated",
                        })
                    }
                };
            }
        }
    }
}

/// `N` bytes of a record from `at` on.
#[inline]
pub(crate) fn bytes_at<const N: usize>(record: &[u8], at: usize) -> [u8; N] {
    record[at..at + N].try_into().expect("a slice of N bytes")
}

/// The start of a binary record for a message.
pub(crate) fn hex(record: &[u8]) -> String {
    use std::fmt::Write;
    record.iter().take(40).fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
