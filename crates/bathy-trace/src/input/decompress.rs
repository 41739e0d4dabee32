//! Transparent decompression, chosen by the first bytes and not by the name.
//!
//! Magic numbers: gzip RFC 1952 section 2.3.1, xz "The .xz File Format" 1.2.1 section 2.1.1.1, zstd RFC 8878
//! section 3.1.1. Several streams (frames, members) one after another are one trace, as `cat` of two compressed
//! logs is. The memory of a decoder is bounded, also for a hostile header.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::bufread::MultiGzDecoder;
use lzma_rust2::XzReader;
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];
const XZ_MAGIC: &[u8] = &[0xfd, b'7', b'z', b'X', b'Z', 0];
const ZSTD_MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
const BUFFER_BYTES: usize = 128 << 10;
/// `xz -9` needs 64 MiB; this admits dictionaries of 256 MiB.
const XZ_MEMORY_KIB_MAX: u32 = 272 << 10;
/// The default limit of the zstd program: `--long=27`. The decoder holds up to twice that,
/// and half as much again while it grows.
const ZSTD_WINDOW_BYTES_MAX: u64 = 128 << 20;
/// The decoder refuses more than this in a frame that is not its first.
const ZSTD_WINDOW_BYTES_MAX_NEXT: u64 = 100 << 20;

/// Decompressed bytes and the position in the file that they came from.
pub(crate) struct Input {
    pub(crate) bytes: Box<dyn Read + Send>,
    pub(crate) file_bytes_read: Arc<AtomicU64>,
    pub(crate) file_bytes: Option<u64>,
}

/// Opens a file and looks at its first bytes.
pub(crate) fn open_input(path: &Path) -> io::Result<Input> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "is a directory"));
    }
    let file_bytes = metadata.is_file().then_some(metadata.len());
    let mut input = from_read(Box::new(file))?;
    input.file_bytes = file_bytes;
    Ok(input)
}

/// Wraps any source of bytes.
pub(crate) fn from_read(raw: Box<dyn Read + Send>) -> io::Result<Input> {
    let file_bytes_read = Arc::new(AtomicU64::new(0));
    let counting = Counting {
        raw,
        count: Arc::clone(&file_bytes_read),
    };
    let mut buffered = BufReader::with_capacity(BUFFER_BYTES, Whole::new(counting));
    let head = buffered.fill_buf()?;
    let bytes: Box<dyn Read + Send> = if head.starts_with(GZIP_MAGIC) {
        Box::new(Whole::new(MultiGzDecoder::new(buffered)))
    } else if head.starts_with(XZ_MAGIC) {
        Box::new(Whole::new(XzReader::new_mem_limit(
            buffered,
            true,
            XZ_MEMORY_KIB_MAX,
        )))
    } else if head.starts_with(ZSTD_MAGIC) || is_zstd_skippable(head) {
        Box::new(Whole::new(ZstdFrames::new(buffered)))
    } else {
        Box::new(buffered)
    };
    Ok(Input {
        bytes,
        file_bytes_read,
        file_bytes: None,
    })
}

fn is_zstd_skippable(head: &[u8]) -> bool {
    // A skippable frame alone is no proof of zstd: the magic of a frame must follow it.
    let [first, 0x2a, 0x4d, 0x18, a, b, c, d, rest @ ..] = head else {
        return false;
    };
    let length = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
    first & 0xf0 == 0x50
        && rest
            .get(length..)
            .is_some_and(|next| next.starts_with(ZSTD_MAGIC))
}

struct Counting {
    raw: Box<dyn Read + Send>,
    count: Arc<AtomicU64>,
}

impl Read for Counting {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.raw.read(buffer)?;
        self.count.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(bytes)
    }
}

/// Fills the buffer as far as the source goes: so the magic number is complete even when a pipe hands over one byte at a
/// time, and a stream of a million members of one byte is not a million steps for whoever looks for the end of a line.
struct Whole<R> {
    source: R,
    // A failure behind bytes that were delivered; it comes with the next call.
    failure: Option<io::Error>,
}

impl<R> Whole<R> {
    fn new(source: R) -> Self {
        Self {
            source,
            failure: None,
        }
    }
}

impl<R: Read> Read for Whole<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let mut filled = 0;
        while filled < buffer.len() {
            match self.source.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(bytes) => filled += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if filled > 0 => {
                    self.failure = Some(error);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }
}

/// The header of a zstd frame (RFC 8878, section 3.1.1.1).
struct FrameHeader {
    bytes: [u8; 18],
    length: usize,
    window_bytes: u64,
}

impl FrameHeader {
    /// Reads the header whose magic number has been read.
    fn read(source: &mut impl Read, magic: [u8; 4]) -> io::Result<Self> {
        let mut bytes = [0; 18];
        bytes[..4].copy_from_slice(&magic);
        source.read_exact(&mut bytes[4..5])?;
        let descriptor = bytes[4];
        let single_segment = descriptor & 0x20 != 0;
        let content_at = 5 + usize::from(!single_segment) + [0, 1, 2, 4][usize::from(descriptor & 3)];
        let content_bytes = match descriptor >> 6 {
            0 => usize::from(single_segment),
            field => 1 << field,
        };
        let length = content_at + content_bytes;
        source.read_exact(&mut bytes[5..length])?;
        let window_bytes = if single_segment {
            let mut field = [0; 8];
            field[..content_bytes].copy_from_slice(&bytes[content_at..length]);
            // The field of two bytes starts at 256.
            u64::from_le_bytes(field) + if content_bytes == 2 { 256 } else { 0 }
        } else {
            let base = 1_u64 << (10 + (bytes[5] >> 3));
            base + base / 8 * u64::from(bytes[5] & 7)
        };
        Ok(Self {
            bytes,
            length,
            window_bytes,
        })
    }
}

/// Frames of zstd, one after another, skippable ones left out, checksums compared.
struct ZstdFrames<R> {
    source: R,
    decoder: FrameDecoder,
    in_frame: bool,
}

fn invalid(reason: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

impl<R: BufRead> ZstdFrames<R> {
    fn new(source: R) -> Self {
        Self {
            source,
            decoder: FrameDecoder::new(),
            in_frame: false,
        }
    }

    /// Starts the next frame; false at the end of the input.
    fn next_frame(&mut self) -> io::Result<bool> {
        loop {
            if self.source.fill_buf()?.is_empty() {
                return Ok(false);
            }
            let mut magic = [0; 4];
            self.source.read_exact(&mut magic)?;
            if magic == *ZSTD_MAGIC {
                self.start_frame(magic)?;
                return Ok(true);
            }
            if !matches!(magic, [first, 0x2a, 0x4d, 0x18] if first & 0xf0 == 0x50) {
                return Err(invalid("the bytes after a zstd frame are not a zstd frame"));
            }
            let mut length = [0; 4];
            self.source.read_exact(&mut length)?;
            let length = u64::from(u32::from_le_bytes(length));
            let skipped = io::copy(&mut (&mut self.source).take(length), &mut io::sink())?;
            if skipped < length {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    fn start_frame(&mut self, magic: [u8; 4]) -> io::Result<()> {
        let header = FrameHeader::read(&mut self.source, magic)?;
        // The decoder keeps a whole window and looks at its size only from the second frame on.
        if header.window_bytes > ZSTD_WINDOW_BYTES_MAX {
            return Err(invalid(
                "the zstd window is larger than 128 MiB; compress without --long or with --long=27",
            ));
        }
        if header.window_bytes > ZSTD_WINDOW_BYTES_MAX_NEXT {
            self.decoder = FrameDecoder::new();
        }
        let source = (&header.bytes[..header.length]).chain(&mut self.source);
        self.decoder
            .reset(source)
            .map_err(|error| invalid(error.to_string()))?;
        self.in_frame = true;
        Ok(())
    }

    fn end_frame(&mut self) -> io::Result<()> {
        self.in_frame = false;
        match (
            self.decoder.get_checksum_from_data(),
            self.decoder.get_calculated_checksum(),
        ) {
            (Some(stored), Some(computed)) if stored != computed => {
                Err(invalid("checksum of a zstd frame does not match"))
            }
            _ => Ok(()),
        }
    }
}

impl<R: BufRead> Read for ZstdFrames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if !self.in_frame && !self.next_frame()? {
                return Ok(0);
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                self.decoder
                    .decode_blocks(&mut self.source, BlockDecodingStrategy::UptoBytes(buffer.len()))
                    .map_err(|error| invalid(error.to_string()))?;
            }
            let bytes = self.decoder.read(buffer)?;
            if bytes > 0 {
                return Ok(bytes);
            }
            self.end_frame()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write;

    fn read_all(raw: Vec<u8>) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        from_read(Box::new(io::Cursor::new(raw)))?
            .bytes
            .read_to_end(&mut out)?;
        Ok(out)
    }

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    // `printf 'hello\n' | zstd`: a frame with a checksum.
    const ZSTD_HELLO: &[u8] = &[
        0x28, 0xb5, 0x2f, 0xfd, 0x04, 0x58, 0x31, 0x00, 0x00, b'h', b'e', b'l', b'l', b'o', b'\n', 0x53,
        0x88, 0xbd, 0x91,
    ];

    #[test]
    fn plain_bytes_pass_and_are_counted() {
        let input = from_read(Box::new(io::Cursor::new(b"1,2\n".to_vec()))).unwrap();
        let mut out = String::new();
        let mut bytes = input.bytes;
        bytes.read_to_string(&mut out).unwrap();
        assert_eq!(out, "1,2\n");
        assert_eq!(input.file_bytes_read.load(Ordering::Relaxed), 4);
    }

    #[test]
    fn members_of_gzip_are_one_stream() {
        let mut two = gzip(b"one\n");
        two.extend(gzip(b"two\n"));
        assert_eq!(read_all(two).unwrap(), b"one\ntwo\n");
    }

    #[test]
    fn frames_of_zstd_are_one_stream_and_skippable_ones_are_left_out() {
        let skippable = [0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 9, 9, 9];
        let mut frames = skippable.to_vec();
        frames.extend(ZSTD_HELLO);
        frames.extend(skippable);
        frames.extend(ZSTD_HELLO);
        assert_eq!(read_all(frames).unwrap(), b"hello\nhello\n");
    }

    #[test]
    fn a_zstd_frame_of_any_header_is_read_unless_its_window_is_too_large() {
        // A raw block of one byte, the last of its frame.
        let block = [0x09, 0, 0, b'x'];
        let frame = |header: &[u8]| [ZSTD_MAGIC, header, &block].concat();
        for header in [
            &[0x20, 1][..],
            &[0x00, 0x00],
            &[0x21, 0, 1],
            &[0xa0, 1, 0, 0, 0],
            &[0xe0, 1, 0, 0, 0, 0, 0, 0, 0],
            &[0x00, 0x88],
        ] {
            let mut two = frame(&[0x20, 1]);
            two.extend(frame(header));
            assert_eq!(read_all(two).unwrap(), b"xx", "{header:x?}");
        }
        for header in [
            &[0x00, 0x89][..],
            &[0xe0, 0, 0, 0, 0, 0, 1, 0, 0],
            &[0xa0, 1, 0, 0, 8],
        ] {
            let error = read_all(frame(header)).unwrap_err().to_string();
            assert!(error.contains("larger than 128 MiB"), "{header:x?}: {error}");
        }
    }

    #[test]
    fn a_wrong_checksum_of_zstd_is_noticed() {
        let mut frame = ZSTD_HELLO.to_vec();
        frame[10] = b'E';
        assert!(read_all(frame).unwrap_err().to_string().contains("checksum"));
    }

    #[test]
    fn small_members_are_handed_over_together() {
        let members: Vec<u8> = (0..1000_u32).flat_map(|_| gzip(b"x")).collect();
        let mut bytes = from_read(Box::new(io::Cursor::new(members))).unwrap().bytes;
        assert_eq!(bytes.read(&mut [0; 4096]).unwrap(), 1000);
    }

    #[test]
    fn what_comes_before_the_damage_is_delivered_and_then_the_failure() {
        let mut damaged = gzip(b"good");
        damaged.extend(&gzip(&[7; 1000])[..15]);
        let mut bytes = from_read(Box::new(io::Cursor::new(damaged))).unwrap().bytes;
        let mut buffer = [0; 4];
        assert_eq!(bytes.read(&mut buffer).unwrap(), 4);
        assert_eq!(&buffer, b"good");
        assert!(bytes.read_to_end(&mut Vec::new()).is_err());
    }

    #[test]
    fn truncation_is_an_error() {
        let whole = gzip(&[7; 1000]);
        assert!(read_all(whole[..whole.len() - 9].to_vec()).is_err());
        assert!(read_all(ZSTD_HELLO[..12].to_vec()).is_err());
        assert!(read_all(XZ_MAGIC.to_vec()).is_err());
    }
}
