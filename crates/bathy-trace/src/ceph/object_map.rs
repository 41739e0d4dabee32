//! Where the data of RADOS objects lies in an image.
//!
//! Names of RBD objects from `doc/dev/rbd-layering.rst` and `librbd`: `rbd_data.<image id>.<16 hex digits>`, with the number
//! of the image's pool before the id when the data is in a pool of its own; `CephFS` data objects are
//! `<inode hex>.<8 hex digits>`.
//!
//! The byte in the image is `object number * object size + offset in the object`, which holds for default striping
//! (`stripe_count` 1). Zero, truncate and delete become trims: what they cut off is no longer worth caching.

use super::op_list::{OpList, extent_of, kind_of};
use crate::event::{IoEvent, Op};
use crate::options::{OpenOptions, OtherObjects};
use crate::reader::{Reason, Sink};
use crate::text::{hex_of, leading_u64, split_once, u32_of, word};

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
