//! fio's I/O logs, versions 2 and 3 (`write_iolog`).
//!
//! The first line is `fio version 2 iolog` or `fio version 3 iolog`. Then `filename action`, with `add`, `open` or
//! `close`, and `filename action offset length`, with `read`, `write`, `trim`, `sync`, `datasync` or (version 2)
//! `wait`. Version 3 puts a time before each. Source: fio(1), "Trace file format v2" and "v3"; that the time of
//! version 3 is in microseconds is in `log_io_u` of fio's `iolog.c` and seen in logs of fio 3.33.
//!
//! Version 2 has no times but waits (`offset` is the microseconds since the wait before): they are added up, so
//! I/Os between two waits have the same time. Each file is a volume. Names with blanks work: the fields are
//! taken from the end.

use crate::decode::LineParser;
use crate::event::{IoEvent, Op};
use crate::reader::{Reason, Sink};
use crate::text::{trim, u64_of, word};

/// The version in the first line of a log.
pub(crate) fn version(head: &[u8]) -> Option<u8> {
    let line = head.split(|&byte| byte == b'\n').next()?;
    match trim(line) {
        b"fio version 2 iolog" => Some(2),
        b"fio version 3 iolog" => Some(3),
        _ => None,
    }
}

/// Version 2 or 3.
pub(crate) struct Fio {
    version: u8,
    time_us: u64,
}

impl Fio {
    pub(crate) fn new(version: u8) -> Self {
        Self { version, time_us: 0 }
    }

    fn wait(&mut self, wait_us: u64, sink: &mut Sink<'_>) -> Result<(), Reason> {
        if self.version != 2 {
            return Err("a wait is not allowed in version 3");
        }
        self.time_us = self
            .time_us
            .checked_add(wait_us)
            .ok_or("the waits are too long")?;
        sink.ignore();
        Ok(())
    }
}

/// The text before the last word, and that word.
fn last_word(text: &[u8]) -> (&[u8], &[u8]) {
    let text = text.trim_ascii_end();
    let start = text
        .iter()
        .rposition(u8::is_ascii_whitespace)
        .map_or(0, |at| at + 1);
    (&text[..start], &text[start..])
}

impl LineParser for Fio {
    fn is_header(_first: &[u8]) -> bool {
        true
    }

    fn line(&mut self, line: &[u8], sink: &mut Sink<'_>) -> Result<(), Reason> {
        let mut rest = trim(line);
        if rest.is_empty() {
            return Ok(());
        }
        if self.version == 3 {
            let (time, behind) = word(rest);
            self.time_us = u64_of(time).ok_or("the time is not a number")?;
            rest = behind;
        }
        let (before, last) = last_word(rest);
        if matches!(last, b"add" | b"open" | b"close") {
            sink.ignore();
            return Ok(());
        }
        let length_bytes = u64_of(last).ok_or("the length is not a number")?;
        let (before, offset) = last_word(before);
        let offset_bytes = u64_of(offset).ok_or("the offset is not a number")?;
        let (name, action) = last_word(before);
        let name = trim(name);
        if name.is_empty() {
            return Err("there is no file name");
        }
        let op = match action {
            b"read" => Op::Read,
            b"write" => Op::Write,
            b"trim" => Op::Trim,
            b"wait" => return self.wait(offset_bytes, sink),
            b"sync" | b"datasync" | b"sync_file_range" => {
                sink.ignore();
                return Ok(());
            }
            _ => return Err("the action is none of those of fio"),
        };
        let volume = sink.volume(name)?;
        let time_ns = self.time_us.checked_mul(1000).ok_or("the time is too large")?;
        sink.push(
            IoEvent {
                time_ns,
                volume,
                ..IoEvent::new(op, offset_bytes, 0)
            },
            length_bytes,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;
    use crate::testing::{names_of, open_error, read_skipping};

    #[test]
    fn version_2_adds_up_its_waits() {
        let text = b"fio version 2 iolog\n/a b add\n/a b open\n/a b write 4096 512\n/a b wait 200 0\n\
            /dev/c read 0 4096\n/dev/c wait 300 0\n/dev/c sync 0 0\n/dev/c trim 512 1024\n/a b close\n";
        let (events, names) = names_of(Format::FioV2, text);
        assert_eq!(names.volumes.iter().collect::<Vec<_>>(), ["/a b", "/dev/c"]);
        let expected = [
            IoEvent {
                volume: 0,
                ..IoEvent::new(Op::Write, 4096, 512)
            },
            IoEvent {
                volume: 1,
                time_ns: 200_000,
                ..IoEvent::new(Op::Read, 0, 4096)
            },
            IoEvent {
                volume: 1,
                time_ns: 500_000,
                ..IoEvent::new(Op::Trim, 512, 1024)
            },
        ];
        assert_eq!(events, expected);
    }

    #[test]
    fn version_3_has_times() {
        let text =
            b"fio version 3 iolog\n189 /f add\n272 /f open\n276 /f read 0 4096\n1431 /f write 45056 4096\n";
        let (events, _) = names_of(Format::FioV3, text);
        assert_eq!(
            events.iter().map(|event| event.time_ns).collect::<Vec<_>>(),
            [276_000, 1_431_000]
        );
        let (events, report) = read_skipping(
            Format::FioV3,
            b"fio version 3 iolog\nx /f read 0 1\n1 /f wait 5 0\n1 /f sing 0 1\n2 read 0 1\n",
        );
        assert_eq!((events.len(), report.records_bad), (0, 4));
    }

    #[test]
    fn the_versions_are_not_confused() {
        assert!(open_error(Format::FioV2, b"fio version 3 iolog\n").contains("first line"));
        assert!(open_error(Format::FioV3, b"").contains("first line"));
    }
}
