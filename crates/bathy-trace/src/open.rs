//! From a path to a reader.

use std::io::Cursor;
use std::path::Path;

use crate::ceph::file_name::osd_of_name;
use crate::ceph::{history, log};
use crate::decode::{LineParser, Lines, RecordParser, Records};
use crate::detect::detect;
use crate::error::TraceError;
use crate::format::Format;
use crate::formats::{blkparse, blktrace, blocks, cloud, csv, fio, oracle, raw_u32, spc, vscsi};
use crate::input::{Input, Window, decompress, open_input};
use crate::options::OpenOptions;
use crate::reader::{Decoder, Reader, TraceReader};

/// Bytes at the start of a trace that detection and headers may use.
const HEAD_BYTES: usize = 64 << 10;
const BLOCK_BYTES_DEFAULT: u32 = 4096;

/// Opens a trace. Compressed files (gzip, xz, zstd) are decompressed on the way, whatever their name.
///
/// Without a `format` it is detected from content and name.
///
/// # Errors
/// When the file cannot be opened, its format is not recognised, its head is not that of the format, or an option is
/// outside its range.
pub fn open(
    path: impl AsRef<Path>,
    format: Option<Format>,
    options: &OpenOptions,
) -> Result<Box<dyn TraceReader + Send>, TraceError> {
    let path = path.as_ref();
    let input = open_input(path).map_err(|source| TraceError::Io {
        path: path.to_owned(),
        source,
    })?;
    open_from(path, input, format, options)
}

/// Opens a trace that is in memory. `path` stands in messages, and its file name helps detection.
///
/// # Errors
/// As [`open`].
pub fn open_bytes(
    path: &Path,
    bytes: Vec<u8>,
    format: Option<Format>,
    options: &OpenOptions,
) -> Result<Box<dyn TraceReader + Send>, TraceError> {
    let input = decompress::from_read(Box::new(Cursor::new(bytes))).map_err(|source| TraceError::Io {
        path: path.to_owned(),
        source,
    })?;
    open_from(path, input, format, options)
}

fn open_from(
    path: &Path,
    input: Input,
    format: Option<Format>,
    options: &OpenOptions,
) -> Result<Box<dyn TraceReader + Send>, TraceError> {
    options.check()?;
    let mut window = Window::new(input, options.record_bytes_max);
    // A stream that breaks within the head is reported by the reader, at its place and by its policy.
    window.fill_head(HEAD_BYTES);
    let format = match format {
        Some(format) => format,
        None => detect(
            path,
            &window.available()[..window.available().len().min(HEAD_BYTES)],
        )
        .ok_or_else(|| TraceError::UnknownFormat {
            path: path.to_owned(),
        })?,
    };
    Opening {
        path,
        format,
        window,
        options,
    }
    .reader()
}

struct Opening<'a> {
    path: &'a Path,
    format: Format,
    window: Window,
    options: &'a OpenOptions,
}

impl Opening<'_> {
    fn reader(self) -> Result<Box<dyn TraceReader + Send>, TraceError> {
        let block_bytes = self.options.block_bytes.unwrap_or(BLOCK_BYTES_DEFAULT);
        Ok(match self.format {
            Format::OpHistory => {
                let decoder = history::stream::OpHistory::new(self.options, self.osd());
                self.decoder(decoder)
            }
            Format::OsdLog => self.osd_log(log::Forms::Statistics),
            Format::OsdMessages => self.osd_log(log::Forms::Messages),
            Format::Blkparse => {
                let parser = blkparse::Blkparse::new(self.options.block_stage);
                self.lines(parser)
            }
            Format::Blktrace => {
                let decoder = blktrace::Blktrace::new(self.options.block_stage);
                self.decoder(decoder)
            }
            Format::FioV2 => self.fio(2)?,
            Format::FioV3 => self.fio(3)?,
            Format::Vscsi1 => self.records(vscsi::V1),
            Format::Vscsi2 => self.records(vscsi::V2),
            Format::OracleGeneral => {
                if block_bytes >= 1 << 16 {
                    return Err(TraceError::Option(
                        "block_bytes must be below 64 KiB for oracle-general",
                    ));
                }
                self.records(oracle::OracleGeneral { block_bytes })
            }
            Format::Msr => self.lines(cloud::Msr::new()),
            Format::Spc => self.lines(spc::Spc),
            Format::Alibaba => self.lines(cloud::Alibaba),
            Format::Tencent => self.lines(cloud::Tencent),
            Format::Arc => self.lines(blocks::Arc { block_bytes }),
            Format::Lirs => self.lines(blocks::Lirs { block_bytes }),
            Format::RawU32 => self.records(raw_u32::RawU32 { block_bytes }),
            Format::Csv => {
                let parser = csv::Csv::from_head(self.window.available())
                    .map_err(|reason| self.header_error(reason))?;
                self.lines(parser)
            }
        })
    }

    /// The OSD that the file is from, by option or file name.
    fn osd(&self) -> Option<u32> {
        self.options.osd.or_else(|| osd_of_name(self.path))
    }

    fn osd_log(self, forms: log::Forms) -> Box<dyn TraceReader + Send> {
        let decoder = log::stream::OsdLog::new(self.options, forms, self.osd());
        self.decoder(decoder)
    }

    fn fio(self, version: u8) -> Result<Box<dyn TraceReader + Send>, TraceError> {
        if fio::version(self.window.available()) != Some(version) {
            let reason = format!("its first line is not \"fio version {version} iolog\"");
            return Err(self.header_error(reason));
        }
        Ok(self.lines(fio::Fio::new(version)))
    }

    fn header_error(&self, reason: String) -> TraceError {
        TraceError::Header {
            path: self.path.to_owned(),
            format: self.format,
            reason,
        }
    }

    fn lines<P: LineParser + 'static>(self, parser: P) -> Box<dyn TraceReader + Send> {
        let decoder = Lines::new(parser, self.options.record_bytes_max);
        self.decoder(decoder)
    }

    fn records<P: RecordParser<BYTES> + 'static, const BYTES: usize>(
        self,
        parser: P,
    ) -> Box<dyn TraceReader + Send> {
        self.decoder(Records::new(parser))
    }

    fn decoder<D: Decoder + 'static>(self, decoder: D) -> Box<dyn TraceReader + Send> {
        Box::new(Reader::new(
            self.path,
            self.format,
            self.window,
            decoder,
            self.options,
        ))
    }
}
