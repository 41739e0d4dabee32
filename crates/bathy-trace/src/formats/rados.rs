//! Operations on RADOS objects as Ceph prints them: `osd_op(...)`, `[read 0~4096,...]`, and object names.
//!
//! Sources: `MOSDOp::print`, `MOSDOpReply::print` and `operator<<(ostream&, const OSDOp&)` of Ceph 16 to 20, as
//! recorded in the logs and op histories of 16.2; RBD object names from `doc/dev/rbd-layering.rst` and `librbd`:
//! `rbd_data.<image id>.<16 hex digits>`, with the number of the image's pool before the id when the data is in
//! a pool of its own; `CephFS` data objects are `<inode hex>.<8 hex digits>`.
//!
//! The byte in the image is `object number * object size + offset in the object`, which holds for default striping
//! (`stripe_count` 1). Zero, truncate and delete become trims: what they cut off is no longer worth caching.

use crate::event::{IoEvent, Op};
use crate::options::{OpenOptions, OtherObjects};
use crate::reader::{Reason, Sink};
use crate::text::{after, hex_of, leading_u64, split_once, u32_of, u64_of, word};

/// Objects that are not RBD data get this many places in the volume of their kind.
const HASH_BITS: u32 = 30;

/// How objects become places.
#[derive(Clone)]
pub(crate) struct ObjectMap {
    object_size_bytes: u64,
    other_objects: OtherObjects,
}

/// Where an object lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) volume: u32,
    pub(crate) start_bytes: u64,
}

/// An object of an RBD image: image id and number.
fn rbd_data(name: &[u8]) -> Option<(&[u8], u64)> {
    let rest = name.strip_prefix(b"rbd_data.")?;
    let at = memchr::memrchr(b'.', rest)?;
    let (image, number) = (&rest[..at], &rest[at + 1..]);
    if number.len() != 16 {
        return None;
    }
    let number = hex_of(number)?;
    let image = match split_once(image, b'.') {
        Some((pool, image)) => {
            u32_of(pool)?;
            image
        }
        None => image,
    };
    (!image.is_empty() && !image.contains(&b'.')).then_some((image, number))
}

fn is_cephfs_data(name: &[u8]) -> bool {
    split_once(name, b'.')
        .is_some_and(|(inode, block)| block.len() == 8 && hex_of(inode).is_some() && hex_of(block).is_some())
}

/// FNV-1a of 64 bits with a final mix (splitmix64), so that the low bits are good: stable across runs and machines.
fn hash(name: &[u8]) -> u64 {
    let fnv = name.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mixed = (fnv ^ (fnv >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

impl ObjectMap {
    pub(crate) fn new(options: &OpenOptions) -> Self {
        Self {
            object_size_bytes: options.object_size_bytes,
            other_objects: options.other_objects,
        }
    }

    /// The place of an object; `None` if it is to be ignored.
    fn place(&self, name: &[u8], sink: &mut Sink<'_>) -> Result<Option<Place>, Reason> {
        let (volume, number) = match (rbd_data(name), self.other_objects) {
            (Some((image, number)), _) => (image, number),
            (None, OtherObjects::Ignore) => return Ok(None),
            (None, OtherObjects::Hash) => {
                let kind: &[u8] = if is_cephfs_data(name) { b"cephfs" } else { b"other" };
                (kind, hash(name) & ((1 << HASH_BITS) - 1))
            }
        };
        let start_bytes = number
            .checked_mul(self.object_size_bytes)
            .ok_or("the object number is too large")?;
        Ok(Some(Place {
            volume: sink.volume(volume)?,
            start_bytes,
        }))
    }

    /// Appends the I/Os of a list like `[set-alloc-hint object_size 4194304 write_size 4194304,write 0~4096
    /// in=4096b]`. `base` has what is common to them. A list without an I/O counts as ignored.
    pub(crate) fn push_ops(
        &self,
        object: &[u8],
        list: &[u8],
        base: IoEvent,
        sink: &mut Sink<'_>,
    ) -> Result<(), Reason> {
        let mut place = None;
        let mut pushed = false;
        for part in OpList(list) {
            let Some((op, offset, length_bytes)) = self.extent(part)? else {
                continue;
            };
            // An empty object is written by `writefull 0~0`, and read by `read 0~0`.
            if length_bytes == 0 {
                continue;
            }
            if place.is_none() {
                place = self.place(object, sink)?;
            }
            let Some(place) = place else { break };
            if op != Op::Trim && rbd_data(object).is_some() {
                sink.note_object_end(offset.saturating_add(length_bytes));
            }
            let offset_bytes = place
                .start_bytes
                .checked_add(offset)
                .ok_or("the offset is too large")?;
            sink.push(
                IoEvent {
                    op,
                    offset_bytes,
                    volume: place.volume,
                    ..base
                },
                length_bytes,
            )?;
            pushed = true;
        }
        if !pushed {
            sink.ignore();
        }
        Ok(())
    }

    /// Operation, offset in the object and length of one element of the list; `None` when it moves no data.
    fn extent(&self, part: &[u8]) -> Result<Option<(Op, u64, u64)>, Reason> {
        let (name, rest) = word(part);
        let op = match name {
            b"truncate" => {
                // `truncate 1024` or, with a sequence number, `truncate 7@1024`: to the end of the object.
                let text = word(rest).0;
                let text = split_once(text, b'@').map_or(text, |(_, size)| size);
                let (offset, _) = leading_u64(text).ok_or("the size of a truncate is not a number")?;
                return Ok(Some((
                    Op::Trim,
                    offset,
                    self.object_size_bytes.saturating_sub(offset),
                )));
            }
            b"delete" => return Ok(Some((Op::Trim, 0, self.object_size_bytes))),
            b"create" => return Ok(None),
            name => kind_of(name),
        };
        if op == Op::Other {
            return Ok(None);
        }
        let (offset, length_bytes) = extent_of(rest).ok_or("an extent has no offset or no length")?;
        Ok(Some((op, offset, length_bytes)))
    }
}

/// The elements of a list in brackets, split at commas outside inner brackets.
struct OpList<'a>(&'a [u8]);

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

/// The content of the bracket that opens at the start of the text, with inner brackets.
pub(crate) fn bracketed(text: &[u8]) -> Option<&[u8]> {
    let mut depth = 0_usize;
    for (at, &byte) in text.iter().enumerate() {
        match byte {
            b'[' => depth += 1,
            b']' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(&text[1..at]);
                }
            }
            _ if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

/// A request as `osd_op(client.4157.0:22968 2.2 2:422bb82f:::rbd_data.1037b7d03b94.000000000000000b:head [write
/// 3121152~4096] snapc 0=[] ondisk+write+known_if_redirected e22)`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OsdOp<'a> {
    /// `client.4157.0:22968`
    pub(crate) request: &'a [u8],
    pub(crate) pool: u32,
    /// The placement group in its pool.
    pub(crate) seed: u32,
    pub(crate) object: &'a [u8],
    pub(crate) ops: &'a [u8],
}

impl<'a> OsdOp<'a> {
    /// The request that starts the text. `Ok(None)` for other messages and for requests that are printed undecoded.
    pub(crate) fn parse(text: &'a [u8]) -> Result<Option<Self>, Reason> {
        let Some(rest) = text.strip_prefix(b"osd_op(") else {
            return Ok(None);
        };
        let (request, rest) = word(rest);
        let (pg, rest) = word(rest);
        let (pool, seed) = pg_of(pg).ok_or("the placement group of the request has no pool")?;
        let rest = rest.trim_ascii_start();
        // `pool:hash:namespace:key:name:snap`, where the name may contain blanks and colons.
        let undecoded = "the request has no object";
        let Some((object, behind)) = object_of(rest) else {
            return match after(rest, b"(undecoded)") {
                Some(_) => Ok(None),
                None => Err(undecoded),
            };
        };
        let ops = bracketed(behind).ok_or("the operations of the request do not end")?;
        Ok(Some(Self {
            request,
            pool,
            seed,
            object,
            ops,
        }))
    }
}

/// Client and number of the request `client.4157.0:22968`.
pub(crate) fn client_of(request: &[u8]) -> Option<(&[u8], u64)> {
    let at = memchr::memrchr(b':', request)?;
    let dot = memchr::memrchr(b'.', &request[..at])?;
    Some((&request[..dot], u64_of(&request[at + 1..])?))
}

/// Pool and number of the placement group `2.1f`, or of a shard of it, `2.1fs0`.
pub(crate) fn pg_of(text: &[u8]) -> Option<(u32, u32)> {
    let (pool, seed) = split_once(text, b'.')?;
    let seed = split_once(seed, b's').map_or(seed, |(seed, _)| seed);
    Some((u32_of(pool)?, u32::try_from(hex_of(seed)?).ok()?))
}

/// What a list of operations does as a whole, as the op histories of this project are summed up too.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Summary {
    /// Write if anything writes, read if anything reads, else other. There are no trims: they are writes.
    pub(crate) op: Op,
    /// Of the first extent.
    pub(crate) offset_bytes: Option<u64>,
    /// Of all extents.
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
            let op = kind_of(name);
            match (op, summary.op) {
                (Op::Write | Op::Trim, _) => summary.op = Op::Write,
                (Op::Read, Op::Other) => summary.op = Op::Read,
                _ => {}
            }
            if op == Op::Other {
                continue;
            }
            if let Some((offset_bytes, length_bytes)) = extent_of(rest) {
                summary.offset_bytes.get_or_insert(offset_bytes);
                let length_before = summary.length_bytes.unwrap_or(0);
                summary.length_bytes = Some(length_before.saturating_add(length_bytes));
            }
        }
        summary
    }
}

/// What an operation does to the data of its object.
fn kind_of(name: &[u8]) -> Op {
    match name {
        b"read" | b"sparse-read" | b"sync_read" | b"cmpext" | b"checksum" => Op::Read,
        b"write" | b"writefull" | b"writesame" | b"write-same" | b"append" | b"create" => Op::Write,
        b"zero" | b"truncate" | b"delete" => Op::Trim,
        _ => Op::Other,
    }
}

/// Offset and length of ` 1069056~4096 …`.
fn extent_of(text: &[u8]) -> Option<(u64, u64)> {
    let (offset_bytes, rest) = leading_u64(text.trim_ascii_start())?;
    let (length_bytes, _) = leading_u64(rest.strip_prefix(b"~")?)?;
    Some((offset_bytes, length_bytes))
}

/// The name of `2:422bb82f:::rbd_data.x.0:head [...` and the text from the bracket on.
fn object_of(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let (_pool, rest) = split_once(text, b':')?;
    let (hash, rest) = split_once(rest, b':')?;
    if hash.len() != 8 || hex_of(hash).is_none() {
        return None;
    }
    let (_namespace, rest) = split_once(rest, b':')?;
    let (_key, rest) = split_once(rest, b':')?;
    // The operations start at the first " [" that follows ":head" or ":<snapshot>".
    let mut from = 0;
    // The last colon so far: no part of a hostile line is searched twice.
    let mut colon = None;
    loop {
        let at = from + memchr::memmem::find(&rest[from..], b" [")?;
        colon = memchr::memrchr(b':', &rest[from..at])
            .map(|behind| from + behind)
            .or(colon);
        if let Some(colon) = colon {
            let snap = &rest[colon + 1..at];
            if snap == b"head" || snap == b"snapdir" || hex_of(snap).is_some() {
                return Some((&rest[..colon], &rest[at + 1..]));
            }
        }
        from = at + 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_rbd_objects() {
        let image: &[u8] = b"1037b7d03b94";
        assert_eq!(
            rbd_data(b"rbd_data.1037b7d03b94.000000000000000b"),
            Some((image, 11))
        );
        assert_eq!(
            rbd_data(b"rbd_data.3.1037b7d03b94.00000000000000ff"),
            Some((image, 255))
        );
        for bad in [
            "rbd_data.1037.0b",
            "rbd_header.1037b7d03b94",
            "rbd_data.x.y.z.0000000000000001",
            "rbd_data..0000000000000001",
        ] {
            assert_eq!(rbd_data(bad.as_bytes()), None, "{bad}");
        }
        assert!(is_cephfs_data(b"10000000000.00000001"));
        assert!(!is_cephfs_data(b"benchmark_data_host_1_object2"));
    }

    #[test]
    fn requests_are_taken_apart() {
        let op = OsdOp::parse(b"osd_op(client.4157.0:22968 2.2 2:422bb82f:::rbd_data.1037b7d03b94.000000000000000b:head [write 3121152~4096 [1@2] in=4096b] snapc 0=[] ondisk+write e22)");
        let expected = OsdOp {
            request: b"client.4157.0:22968",
            pool: 2,
            seed: 2,
            object: b"rbd_data.1037b7d03b94.000000000000000b",
            ops: b"write 3121152~4096 [1@2] in=4096b",
        };
        assert_eq!(op, Ok(Some(expected)));
        let op = OsdOp::parse(b"osd_op(client.1.0:2 3.a 3:422bb82f:ns::a b: [c:12 [stat] snapc 0=[])")
            .unwrap()
            .unwrap();
        assert_eq!((op.object, op.ops), (&b"a b: [c"[..], &b"stat"[..]));
        assert_eq!(
            OsdOp::parse(b"osd_op(client.4499.0:175 2.18 2.7d6ab878 (undecoded) ondisk+read e22)"),
            Ok(None)
        );
        assert_eq!(OsdOp::parse(b"osd_repop(client.4157.0:1 2.2 e22/20)"), Ok(None));
        assert!(OsdOp::parse(b"osd_op(client.4157.0:1 x [read 0~1])").is_err());
        assert!(OsdOp::parse(b"osd_op(client.4157.0:1 2.2 2:422bb82f:::x:head [read 0~1").is_err());
    }

    #[test]
    fn names_of_requests_and_placement_groups() {
        assert_eq!(
            client_of(b"client.4157.0:22968"),
            Some((&b"client.4157"[..], 22968))
        );
        assert_eq!(client_of(b"mds.0.5:12"), Some((&b"mds.0"[..], 12)));
        assert_eq!(client_of(b"client:1"), None);
        assert_eq!(client_of(b"client.1.0"), None);
        assert_eq!(pg_of(b"2.1f"), Some((2, 0x1f)));
        assert_eq!(pg_of(b"12.1fs3"), Some((12, 0x1f)));
        assert_eq!(pg_of(b"2"), None);
        assert_eq!(pg_of(b"2.100000000"), None);
    }

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
            ("cmpext 0~512,write 0~512 in=512b", Op::Write, Some(0), Some(1024)),
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
    fn lists_are_split_outside_brackets() {
        let parts: Vec<_> = OpList(b"write 0~4096 [a,b],call rbd.x in=1b").collect();
        assert_eq!(parts, [&b"write 0~4096 [a,b]"[..], &b"call rbd.x in=1b"[..]]);
        assert_eq!(bracketed(b"[a [b] c] d"), Some(&b"a [b] c"[..]));
        assert_eq!(bracketed(b"]"), None);
        assert_eq!(bracketed(b"x["), None);
    }

    #[test]
    fn elements_that_move_data() {
        let map = ObjectMap::new(&OpenOptions::default());
        let whole = 4 << 20;
        for (text, expected) in [
            ("read 1069056~4096 out=4096b", Some((Op::Read, 1_069_056, 4096))),
            ("sparse-read 0~8192", Some((Op::Read, 0, 8192))),
            ("writefull 0~22", Some((Op::Write, 0, 22))),
            ("zero 4096~512", Some((Op::Trim, 4096, 512))),
            ("truncate 1048576", Some((Op::Trim, 1 << 20, whole - (1 << 20)))),
            ("truncate 7@1048576", Some((Op::Trim, 1 << 20, whole - (1 << 20)))),
            ("delete", Some((Op::Trim, 0, whole))),
            ("set-alloc-hint object_size 4194304 write_size 4194304", None),
            ("omap-get-vals", None),
            ("", None),
        ] {
            assert_eq!(map.extent(text.as_bytes()), Ok(expected), "{text}");
        }
        assert!(map.extent(b"read 5").is_err());
        assert!(map.extent(b"write x~5").is_err());
    }
}
