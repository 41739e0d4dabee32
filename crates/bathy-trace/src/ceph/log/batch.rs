//! Operations as columns.

use super::LogOp;
use crate::ceph::op_list::Summary;
use crate::event::Op;
use crate::reader::Reason;

/// A batch is full when its texts have as much, so that long names cannot make it large.
const TEXT_BYTES_MAX: usize = 16 << 20;

/// A value that is not known, in a column of numbers.
const NONE: i64 = i64::MIN;

/// A column of texts: text `i` is `bytes[offsets[i]..offsets[i + 1]]`, and UTF-8.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Texts {
    /// One more than there are texts, beginning with 0.
    pub offsets: Vec<i32>,
    /// All texts one after another.
    pub bytes: Vec<u8>,
}

impl Default for Texts {
    fn default() -> Self {
        Self {
            offsets: vec![0],
            bytes: Vec::new(),
        }
    }
}

impl Texts {
    fn clear(&mut self) {
        self.offsets.truncate(1);
        self.bytes.clear();
    }

    fn push(&mut self, text: &[u8]) {
        match std::str::from_utf8(text) {
            Ok(_) => self.bytes.extend_from_slice(text),
            Err(_) => self
                .bytes
                .extend_from_slice(String::from_utf8_lossy(text).as_bytes()),
        }
        self.end();
    }

    /// Ends the text whose bytes have been appended. A batch is full long before 2 GiB.
    fn end(&mut self) {
        self.offsets.push(self.bytes.len() as i32);
    }

    /// The texts in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.offsets.windows(2).map(|ends| {
            let text = &self.bytes[ends[0] as usize..ends[1] as usize];
            std::str::from_utf8(text).expect("only whole texts are appended")
        })
    }
}

/// Operations as columns of equal length; `i64::MIN` stands for what is not known, and so does an empty text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OsdOpBatch {
    /// When the OSD began to receive the operation, since the Unix epoch.
    pub started_ns: Vec<i64>,
    /// From there to the reply.
    pub duration_ns: Vec<i64>,
    /// Number of the OSD.
    pub osd: Vec<i64>,
    /// Number of the pool.
    pub pool_id: Vec<i64>,
    /// Offset of the first extent in the object.
    pub offset_bytes: Vec<i64>,
    /// Length of all extents.
    pub length_bytes: Vec<i64>,
    /// Result of the reply; below 0 the number of an error.
    pub result: Vec<i64>,
    /// 0 read, 1 write, 2 other.
    pub op: Vec<i8>,
    /// `client.4157`
    pub client: Texts,
    /// Address of the client without its nonce.
    pub client_address: Texts,
    /// `2.1f`
    pub pg: Texts,
    /// Name of the object.
    pub object_name: Texts,
}

impl OsdOpBatch {
    /// Number of operations.
    pub fn len(&self) -> usize {
        self.op.len()
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.op.is_empty()
    }

    /// Forgets the operations and keeps the memory.
    pub fn clear(&mut self) {
        for column in [
            &mut self.started_ns,
            &mut self.duration_ns,
            &mut self.osd,
            &mut self.pool_id,
            &mut self.offset_bytes,
            &mut self.length_bytes,
            &mut self.result,
        ] {
            column.clear();
        }
        self.op.clear();
        for texts in [
            &mut self.client,
            &mut self.client_address,
            &mut self.pg,
            &mut self.object_name,
        ] {
            texts.clear();
        }
    }

    pub(crate) fn is_full(&self, ops: usize) -> bool {
        let text_bytes =
            self.object_name.bytes.len() + self.client.bytes.len() + self.client_address.bytes.len();
        self.len() >= ops || text_bytes >= TEXT_BYTES_MAX
    }

    /// Appends an operation with a placement group whole or not at all.
    pub(super) fn push(&mut self, op: &LogOp<'_>, (pool, seed): (u32, u32)) -> Result<(), Reason> {
        let summary = Summary::of(op.ops);
        let number = |value: Option<u64>| {
            value.map_or(Ok(NONE), |value| {
                i64::try_from(value).map_err(|_| "a time or an extent is 2^63 or more")
            })
        };
        let (started_ns, duration_ns) = (number(Some(op.started_ns))?, number(Some(op.duration_ns))?);
        let (offset_bytes, length_bytes) = (number(summary.offset_bytes)?, number(summary.length_bytes)?);
        self.started_ns.push(started_ns);
        self.duration_ns.push(duration_ns);
        self.osd.push(op.osd.map_or(NONE, i64::from));
        self.pool_id.push(i64::from(pool));
        self.offset_bytes.push(offset_bytes);
        self.length_bytes.push(length_bytes);
        self.result.push(op.result.map_or(NONE, i64::from));
        self.op.push(match summary.op {
            Op::Read => 0,
            Op::Write | Op::Trim => 1,
            Op::Other => 2,
        });
        self.client.push(op.client);
        self.client_address.push(without_nonce(op.address));
        push_pg(&mut self.pg, pool, seed);
        self.object_name.push(op.object);
        Ok(())
    }
}

/// `10.0.0.1:0` of `10.0.0.1:0/493084813`, and of `[v2:10.0.0.1:0/5,v1:10.0.0.1:0/5]`.
fn without_nonce(address: &[u8]) -> &[u8] {
    let end = memchr::memchr(b'/', address).unwrap_or(address.len());
    let first = &address[..end];
    let inner = first.strip_prefix(b"[v").map_or(first, |_| &first[1..]);
    inner
        .strip_prefix(b"v2:")
        .or_else(|| inner.strip_prefix(b"v1:"))
        .unwrap_or(inner)
}

fn push_pg(texts: &mut Texts, pool: u32, seed: u32) {
    use std::io::Write;
    // Writing to a vector cannot fail.
    let _ = write!(texts.bytes, "{pool}.{seed:x}");
    texts.end();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_without_nonce() {
        for (address, expected) in [
            ("10.0.0.1:0/493084813", "10.0.0.1:0"),
            ("v1:10.0.0.1:0/4", "10.0.0.1:0"),
            ("[v2:10.0.0.1:0/5,v1:10.0.0.1:0/5]", "10.0.0.1:0"),
            ("v2:[fe80::1]:0/4", "[fe80::1]:0"),
            ("[fe80::1]:0/4", "[fe80::1]:0"),
            ("", ""),
        ] {
            assert_eq!(
                without_nonce(address.as_bytes()),
                expected.as_bytes(),
                "{address}"
            );
        }
    }

    #[test]
    fn a_column_of_texts_is_utf_8() {
        let mut texts = Texts::default();
        for text in [&b"a"[..], b"", b"x\xffy"] {
            texts.push(text);
        }
        push_pg(&mut texts, 2, 0x1f);
        assert_eq!(texts.iter().collect::<Vec<_>>(), ["a", "", "x\u{fffd}y", "2.1f"]);
        texts.clear();
        assert_eq!(texts, Texts::default());
    }
}
