//! Lists of operations as Ceph prints them: `[set-alloc-hint object_size 4194304 write_size 4194304,write 0~4096 in=4096b]`.
//!
//! Source: `operator<<(ostream&, const OSDOp&)` of Ceph 16 to 20, as recorded in logs and op histories. Flags and what a
//! truncate has changed stand in brackets inside: `write 0~4096 [fadvise_random]`, `write 0~4096 [1@4194304]`.

use crate::event::Op;
use crate::text::{leading_u64, word};

/// The elements of a list in brackets, split at commas outside inner brackets.
pub(crate) struct OpList<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for OpList<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.0.is_empty() {
            return None;
        }
        let mut depth = 0_usize;
        let end = self.0.iter().position(|&byte| {
            match byte {
                b'[' => depth += 1,
                b']' => depth = depth.saturating_sub(1),
                _ => {}
            }
            byte == b',' && depth == 0
        });
        let at = end.unwrap_or(self.0.len());
        let part = &self.0[..at];
        self.0 = self.0.get(at + 1..).unwrap_or(&[]);
        Some(part)
    }
}

/// What a list of operations does as a whole.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Summary {
    /// Write if anything writes, read if anything reads, else other. There are no trims: they are writes.
    pub(crate) op: Op,
    /// Of the first extent that is written; of the first that is read, if nothing is written.
    pub(crate) offset_bytes: Option<u64>,
    /// Of all extents that are written; of all that are read, if nothing is written.
    pub(crate) length_bytes: Option<u64>,
}

impl Summary {
    /// Sums up a list like `set-alloc-hint object_size 4194304 write_size 4194304,write 0~4096 in=4096b`.
    pub(crate) fn of(list: &[u8]) -> Self {
        let mut summary = Self {
            op: Op::Other,
            offset_bytes: None,
            length_bytes: None,
        };
        for part in OpList(list) {
            let (name, rest) = word(part);
            let op = match kind_of(name) {
                Op::Other => continue,
                Op::Read => Op::Read,
                Op::Write | Op::Trim => Op::Write,
            };
            match (op, summary.op) {
                (Op::Read, Op::Write) => continue,
                // What was read or compared before is not what the list writes.
                (Op::Write, Op::Read) => (summary.offset_bytes, summary.length_bytes) = (None, None),
                _ => {}
            }
            summary.op = op;
            if let Some((offset_bytes, length_bytes)) = extent_of(rest) {
                summary.offset_bytes.get_or_insert(offset_bytes);
                let length_before = summary.length_bytes.unwrap_or(0);
                summary.length_bytes = Some(length_before.saturating_add(length_bytes));
            }
        }
        summary
    }

    /// What is known of a request that was printed before it was decoded: `ondisk+read+known_if_redirected`.
    pub(crate) fn of_flags(flags: &[u8]) -> Self {
        let has = |flag: &[u8]| memchr::memmem::find(flags, flag).is_some();
        let op = match (has(b"+write"), has(b"+read")) {
            (true, _) => Op::Write,
            (false, true) => Op::Read,
            (false, false) => Op::Other,
        };
        Self {
            op,
            offset_bytes: None,
            length_bytes: None,
        }
    }
}

/// What an operation does to the data of its object.
pub(crate) fn kind_of(name: &[u8]) -> Op {
    match name {
        b"read" | b"sparse-read" | b"sync_read" | b"cmpext" | b"checksum" => Op::Read,
        b"write" | b"writefull" | b"writesame" | b"write-same" | b"append" | b"create" => Op::Write,
        b"zero" | b"truncate" | b"delete" => Op::Trim,
        _ => Op::Other,
    }
}

/// Offset and length of ` 1069056~4096 …`.
pub(crate) fn extent_of(text: &[u8]) -> Option<(u64, u64)> {
    let (offset_bytes, rest) = leading_u64(text.trim_ascii_start())?;
    let (length_bytes, _) = leading_u64(rest.strip_prefix(b"~")?)?;
    Some((offset_bytes, length_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_summed_up() {
        for (list, op, offset_bytes, length_bytes) in [
            (
                "read 1069056~4096 out=4096b",
                Op::Read,
                Some(1_069_056),
                Some(4096),
            ),
            (
                "set-alloc-hint object_size 4194304 write_size 4194304,write 512~4096 [fadvise_random] in=4096b",
                Op::Write,
                Some(512),
                Some(4096),
            ),
            ("cmpext 0~512,write 0~512 in=512b", Op::Write, Some(0), Some(512)),
            (
                "read 0~8192,write 4096~512 in=512b",
                Op::Write,
                Some(4096),
                Some(512),
            ),
            (
                "write 4096~512,zero 8192~512,read 0~8192",
                Op::Write,
                Some(4096),
                Some(1024),
            ),
            ("read 0~512,stat,cmpext 512~512", Op::Read, Some(0), Some(1024)),
            (
                "write 0~5 [fadvise_a,fadvise_b],write 8~5",
                Op::Write,
                Some(0),
                Some(10),
            ),
            ("sparse-read 0~8192 out=8208b", Op::Read, Some(0), Some(8192)),
            ("truncate 7@4096", Op::Write, None, None),
            ("create,delete", Op::Write, None, None),
            ("zero 4096~512", Op::Write, Some(4096), Some(512)),
            ("call lock.lock in=76b", Op::Other, None, None),
            ("stat out=16b", Op::Other, None, None),
            ("read x~5", Op::Read, None, None),
            (
                "write 0~18446744073709551615,write 0~1",
                Op::Write,
                Some(0),
                Some(u64::MAX),
            ),
            ("", Op::Other, None, None),
        ] {
            let expected = Summary {
                op,
                offset_bytes,
                length_bytes,
            };
            assert_eq!(Summary::of(list.as_bytes()), expected, "{list}");
        }
    }

    #[test]
    fn flags_say_what_an_undecoded_request_does() {
        for (flags, op) in [
            (" ondisk+write+read e28)", Op::Write),
            (" ondisk+read+known_if_redirected e28)", Op::Read),
            ("", Op::Other),
        ] {
            assert_eq!(Summary::of_flags(flags.as_bytes()).op, op, "{flags}");
        }
    }

    #[test]
    fn lists_are_split_outside_brackets() {
        let parts: Vec<_> = OpList(b"write 0~4096 [a,b],call rbd.x in=1b").collect();
        assert_eq!(parts, [&b"write 0~4096 [a,b]"[..], &b"call rbd.x in=1b"[..]]);
    }
}
