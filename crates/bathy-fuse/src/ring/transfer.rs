//! Carrying out reads and writes on the entries of a queue.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use fuser::{Errno, WriteFlags};

use super::buffers::Entry;
use super::data_path::DataPath;
use super::protocol::{InHeader, OutHeader, Transfer};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    Read,
    Write,
}

/// Carries out the request of an entry and writes the reply there, also if that panics: a request that is never answered hangs its
/// application, and the queue waits for each of them. Returns how long it took.
pub(super) fn carry_out(service: &dyn DataPath, work: Work, entry: &mut Entry<'_>) -> Duration {
    let begun = Instant::now();
    let done = caught(|| {
        let asked = Transfer::of(entry.arguments());
        match work {
            Work::Read => {
                let buffer = part(entry.payload, asked.length)?;
                service.read(asked.handle, asked.offset, buffer)
            }
            Work::Write => {
                let caller = InHeader::of(entry.in_header()).caller;
                let data = part(entry.payload, asked.length)?;
                let flags = WriteFlags::from_bits_retain(asked.flags);
                let bytes = service.write(
                    caller,
                    asked.handle,
                    asked.offset,
                    data,
                    flags,
                    asked.is_durable(),
                )?;
                Ok(written(bytes, entry.payload))
            }
        }
    });
    reply(entry, done);
    begun.elapsed()
}

/// Carries out a read if it need not wait for a file below. Returns how long it took.
pub(super) fn read_at_hand(service: &dyn DataPath, entry: &mut Entry<'_>) -> Option<Duration> {
    let begun = Instant::now();
    let asked = Transfer::of(entry.arguments());
    let buffer = entry.payload.get_mut(..asked.length)?;
    let done = caught(|| {
        service
            .read_at_hand(asked.handle, asked.offset, buffer)
            .transpose()
    });
    reply(entry, done.transpose()?);
    Some(begun.elapsed())
}

/// Writes a reply: the bytes of it that are in the payload, or an error.
pub(super) fn reply(entry: &mut Entry<'_>, done: io::Result<usize>) {
    let (error, bytes) = match done {
        Ok(bytes) => (0, bytes),
        Err(error) => (-Errno::from(error).code(), 0),
    };
    let unique = InHeader::of(entry.in_header()).unique;
    entry.set_reply(OutHeader { error, unique }.bytes(bytes), bytes);
}

fn part(payload: &mut [u8], length: usize) -> io::Result<&mut [u8]> {
    payload
        .get_mut(..length)
        .ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// Puts `struct fuse_write_out` there, and returns its bytes.
fn written(length: usize, payload: &mut [u8]) -> usize {
    const REPLY_BYTES: usize = 8;
    payload[..REPLY_BYTES].fill(0);
    payload[..4].copy_from_slice(&(length as u32).to_ne_bytes());
    REPLY_BYTES
}

fn caught<T>(work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(io::Error::other("a panic")))
}
