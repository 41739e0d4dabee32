//! A window of bytes that moves over a stream.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Input;

const WINDOW_BYTES: usize = 256 << 10;

/// Bytes `start..end` of `buffer` are those not yet consumed. The buffer grows only when a decoder asks for a
/// record that is longer than it, and never beyond `bytes_max`.
pub(crate) struct Window {
    bytes: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    offset: u64,
    bytes_max: usize,
    at_end: bool,
    // A failure that waits for the reader, which knows what to do with it.
    deferred: Option<io::Error>,
    file_bytes_read: Arc<AtomicU64>,
    file_bytes: Option<u64>,
}

impl Window {
    /// A window that can hold a record of `record_bytes_max` and one byte.
    pub(crate) fn new(input: Input, record_bytes_max: usize) -> Self {
        let bytes_max = (record_bytes_max + 1).max(WINDOW_BYTES);
        Self {
            bytes: input.bytes,
            buffer: vec![0; WINDOW_BYTES],
            start: 0,
            end: 0,
            offset: 0,
            bytes_max,
            at_end: false,
            deferred: None,
            file_bytes_read: input.file_bytes_read,
            file_bytes: input.file_bytes,
        }
    }

    /// What can be looked at without reading.
    #[inline]
    pub(crate) fn available(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Position of the first available byte in the stream.
    #[inline]
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// True when there is nothing after [`Window::available`].
    #[inline]
    pub(crate) fn at_end(&self) -> bool {
        self.at_end
    }

    /// True when no more bytes fit before some are consumed.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.end - self.start >= self.bytes_max
    }

    /// Moves the start of the window.
    #[inline]
    pub(crate) fn consume(&mut self, bytes: usize) {
        assert!(bytes <= self.end - self.start, "cannot consume what is not there");
        self.start += bytes;
        self.offset += bytes as u64;
    }

    /// Reads more. Returns false when there is no more, or no room for more.
    pub(crate) fn fill(&mut self) -> io::Result<bool> {
        if let Some(error) = self.deferred.take() {
            self.at_end = true;
            return Err(error);
        }
        if self.at_end || self.is_full() {
            return Ok(false);
        }
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.buffer.len() {
            let bytes = (2 * self.buffer.len()).min(self.bytes_max);
            self.buffer.resize(bytes, 0);
        }
        loop {
            match self.bytes.read(&mut self.buffer[self.end..]) {
                Ok(0) => {
                    self.at_end = true;
                    return Ok(false);
                }
                Ok(bytes) => {
                    self.end += bytes;
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.at_end = true;
                    return Err(error);
                }
            }
        }
    }

    /// Reads until `bytes` are available or the stream ends.
    pub(crate) fn fill_to(&mut self, bytes: usize) -> io::Result<()> {
        while self.end - self.start < bytes && self.fill()? {}
        Ok(())
    }

    /// Like [`Window::fill_to`], but a failure comes with the next reading.
    pub(crate) fn fill_head(&mut self, bytes: usize) {
        if let Err(error) = self.fill_to(bytes) {
            self.at_end = false;
            self.deferred = Some(error);
        }
    }

    pub(crate) fn file_bytes_read(&self) -> u64 {
        self.file_bytes_read.load(Ordering::Relaxed)
    }

    pub(crate) fn file_bytes(&self) -> Option<u64> {
        self.file_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::decompress::from_read;

    fn window(bytes: Vec<u8>, record_bytes_max: usize) -> Window {
        Window::new(
            from_read(Box::new(io::Cursor::new(bytes))).unwrap(),
            record_bytes_max,
        )
    }

    #[test]
    fn every_byte_passes_once_at_its_offset() {
        let data: Vec<u8> = (0..1_000_003_u32).map(|i| (i * 7 % 251) as u8).collect();
        let mut window = window(data.clone(), 1024);
        let mut seen = Vec::new();
        loop {
            let take = window.available().len().min(77_777);
            if take == 0 && !window.fill().unwrap() {
                break;
            }
            assert_eq!(window.offset(), seen.len() as u64);
            seen.extend_from_slice(&window.available()[..take]);
            window.consume(take);
        }
        assert!(seen == data);
        assert!(window.at_end());
    }

    #[test]
    fn the_window_grows_up_to_its_limit() {
        let mut window = window(vec![1; 2 << 20], 1 << 20);
        while window.fill().unwrap() {}
        assert!(!window.at_end() && window.is_full());
        assert_eq!(window.available().len(), (1 << 20) + 1);
        window.consume(1);
        assert!(window.fill().unwrap());
    }
}
