//! Requests of clients as Ceph prints them, in op histories and logs alike:
//! `osd_op(client.4157.0:22968 2.2 2:422bb82f:::rbd_data.1037b7d03b94.000000000000000b:head [write 3121152~4096] snapc 0=[]
//! ondisk+write+known_if_redirected e22)`.
//!
//! Source: `MOSDOp::print` of Ceph 16 to 20. Names of objects and of attributes are printed as they are: they may hold
//! blanks, colons and brackets.

use memchr::{memmem, memrchr};

use crate::reader::Reason;
use crate::text::{after, hex_of, split_once, u32_of, u64_of, word};

/// A request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OsdOp<'a> {
    /// `client.4157.0:22968`
    pub(crate) request: &'a [u8],
    pub(crate) pg: Pg<'a>,
    /// From the object on.
    pub(crate) rest: &'a [u8],
}

/// A placement group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pg<'a> {
    pub(crate) pool: u32,
    /// Its number in the pool.
    pub(crate) seed: u32,
    /// `2.1f`
    pub(crate) text: &'a [u8],
}

/// What a request is for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Target<'a> {
    /// The object's name, and the list of operations.
    Object { name: &'a [u8], ops: &'a [u8] },
    /// The request was printed before it was decoded: `2.7d6ab878 (undecoded) ondisk+read+known_if_redirected e22`.
    Undecoded { flags: &'a [u8] },
}

impl<'a> OsdOp<'a> {
    /// The request that starts the text. `Ok(None)` for other messages.
    pub(crate) fn parse(text: &'a [u8]) -> Result<Option<Self>, Reason> {
        let Some(rest) = text.strip_prefix(b"osd_op(") else {
            return Ok(None);
        };
        let (request, rest) = word(rest);
        let (pg, rest) = word(rest);
        let pg = Pg::parse(pg).ok_or("the placement group of the request has no pool")?;
        let rest = rest.trim_ascii_start();
        Ok(Some(Self { request, pg, rest }))
    }

    /// What it is for.
    pub(crate) fn target(&self) -> Result<Target<'a>, Reason> {
        if let Some((name, behind)) = object_of(self.rest) {
            let ops = listed(behind).ok_or("the operations of the request do not end")?;
            return Ok(Target::Object { name, ops });
        }
        let flags = after(self.rest, b"(undecoded)").ok_or("the request has no object")?;
        Ok(Target::Undecoded { flags })
    }
}

impl<'a> Pg<'a> {
    /// Reads `2.1f`, or a shard of it in an erasure-coded pool, `2.1fs0`.
    pub(crate) fn parse(text: &'a [u8]) -> Option<Self> {
        let (pool, seed) = split_once(text, b'.')?;
        let digits = seed.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let (seed, shard) = seed.split_at(digits);
        let is_whole = shard.is_empty() || shard.strip_prefix(b"s").and_then(u32_of).is_some();
        is_whole.then_some(Self {
            pool: u32_of(pool)?,
            seed: u32::try_from(hex_of(seed)?).ok()?,
            text: &text[..text.len() - shard.len()],
        })
    }
}

/// Client and number of the request `client.4157.0:22968`.
pub(crate) fn client_of(request: &[u8]) -> Option<(&[u8], u64)> {
    let at = memrchr(b':', request)?;
    let dot = memrchr(b'.', &request[..at])?;
    Some((&request[..dot], u64_of(&request[at + 1..])?))
}

/// The name in `pool:hash:namespace:key:name:snapshot [...`, and the text from the bracket on.
fn object_of(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let (_pool, rest) = split_once(text, b':')?;
    let (hash, rest) = split_once(rest, b':')?;
    let (_namespace, rest) = split_once(rest, b':')?;
    let (_key, rest) = split_once(rest, b':')?;
    if !is_hex(hash) {
        return None;
    }
    // A name may hold ":a [", which looks like a snapshot; so the usual end is looked for first.
    if let Some(at) = memmem::rfind(rest, b":head [") {
        return Some((&rest[..at], &rest[at + b":head ".len()..]));
    }
    // Pieces: no part of a hostile text is searched twice.
    let mut from = 0;
    memmem::find_iter(rest, b" [").find_map(|end| {
        let start = std::mem::replace(&mut from, end);
        let colon = start + memrchr(b':', &rest[start..end])?;
        let snapshot = &rest[colon + 1..end];
        (snapshot == b"snapdir" || is_hex(snapshot)).then(|| (&rest[..colon], &rest[end + 1..]))
    })
}

fn is_hex(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(u8::is_ascii_hexdigit)
}

/// The operations of `[...] snapc 0=[] ...`. As names of attributes may hold brackets, the list ends where what follows it
/// begins; where that is missing, with the bracket that belongs to the first.
fn listed(text: &[u8]) -> Option<&[u8]> {
    let inside = text.strip_prefix(b"[")?;
    match memmem::rfind(inside, b"] snapc ") {
        Some(end) => Some(&inside[..end]),
        None => bracketed(text),
    }
}

/// The content of the bracket that opens at the start of the text, with inner brackets.
fn bracketed(text: &[u8]) -> Option<&[u8]> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn object(text: &str) -> Result<(String, String), Reason> {
        let op = OsdOp::parse(text.as_bytes())?.expect("it is a request");
        let plain = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        match op.target()? {
            Target::Object { name, ops } => Ok((plain(name), plain(ops))),
            Target::Undecoded { flags } => Ok((String::new(), plain(flags))),
        }
    }

    #[test]
    fn requests_are_taken_apart() {
        let text = b"osd_op(client.4157.0:22968 2.2 2:422bb82f:::rbd_data.1037b7d03b94.000000000000000b:head [write \
            3121152~4096 [1@2] in=4096b] snapc 0=[] ondisk+write e22)";
        let op = OsdOp::parse(text).unwrap().unwrap();
        assert_eq!(op.request, b"client.4157.0:22968");
        assert_eq!((op.pg.pool, op.pg.seed), (2, 2));
        let expected = Target::Object {
            name: b"rbd_data.1037b7d03b94.000000000000000b",
            ops: b"write 3121152~4096 [1@2] in=4096b",
        };
        assert_eq!(op.target(), Ok(expected));
        assert_eq!(OsdOp::parse(b"osd_repop(client.4157.0:1 2.2 e22/20)"), Ok(None));
        assert!(OsdOp::parse(b"osd_op(client.4157.0:1 x [read 0~1])").is_err());
    }

    #[test]
    fn objects_and_lists_with_any_name() {
        for (text, name, ops) in [
            ("3:422bb82f:ns::a b: [c:12 [stat] snapc 0=[])", "a b: [c", "stat"),
            ("3:422bb82f:::a:b [c:head [stat] snapc 0=[] e1)", "a:b [c", "stat"),
            (
                "7:42:ns:key:a [b] (c d:head [read 0~4] e2",
                "a [b] (c d",
                "read 0~4",
            ),
            ("7:42:::a:snapdir [delete] e2", "a", "delete"),
            (
                "7:42:::a:head [setxattr x] snapc y (3)] snapc 0=[] e2",
                "a",
                "setxattr x] snapc y (3)",
            ),
            (
                "7:42:::a:head [getxattr [x (3)] snapc 0=[] e2",
                "a",
                "getxattr [x (3)",
            ),
            ("7.2a7f (undecoded) ondisk+read e22)", "", " ondisk+read e22)"),
        ] {
            let found = object(&format!("osd_op(client.1.0:2 3.a {text}"));
            assert_eq!(found, Ok((name.to_owned(), ops.to_owned())), "{text}");
        }
        for (text, reason) in [
            (
                "3:422bb82f:::x:head [read 0~1",
                "the operations of the request do not end",
            ),
            ("3:422bb82f:::x [read 0~1]", "the request has no object"),
            ("x:head [read 0~1]", "the request has no object"),
            ("", "the request has no object"),
        ] {
            assert_eq!(
                object(&format!("osd_op(client.1.0:2 3.a {text}")),
                Err(reason),
                "{text}"
            );
        }
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
        let pg = |text: &'static str| {
            Pg::parse(text.as_bytes()).map(|pg| (pg.pool, pg.seed, std::str::from_utf8(pg.text).unwrap()))
        };
        assert_eq!(pg("2.1f"), Some((2, 0x1f, "2.1f")));
        assert_eq!(pg("12.1fs3"), Some((12, 0x1f, "12.1f")));
        for bad in [
            "2",
            "2.",
            "2.100000000",
            "2.1t0",
            "2.1s",
            "x.1",
            "99999999999999999999.1",
        ] {
            assert_eq!(pg(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_bracket_is_closed_by_its_own() {
        assert_eq!(bracketed(b"[a [b] c] d"), Some(&b"a [b] c"[..]));
        assert_eq!(bracketed(b"]"), None);
        assert_eq!(bracketed(b"x["), None);
    }
}
