//! Operations of clients, as the logs of OSDs say them: one row for each request, however many parts it has.
//!
//! Lines that cannot be read are counted and left out. A reply whose request was not seen makes no row: without the arrival
//! there is no latency.

use std::io;
use std::path::{Path, PathBuf};

use super::line::{time_and_thread, time_of};
use super::{Forms, LogOp, LogOps, Next, OsdOpBatch};
use crate::ceph::file_name::osd_of_name;
use crate::error::{BadRecord, Position, TraceError};
use crate::format::Format;
use crate::input::{Input, Window, decompress, open_input};
use crate::reader::Reason;
use crate::report::FIRST_ERRORS_MAX;

/// What is looked at to see whether a file is a log, and when it begins.
const HEAD_BYTES: usize = 64 << 10;
/// A call of [`OsdLogReader::next_batch`] ends after as much, even without an operation.
const STEP_BYTES: u64 = 64 << 20;

/// The options of an [`OsdLogReader`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OsdLogOptions {
    /// OSD that wrote the files, for lines that do not name it. Otherwise a name like `ceph-osd.3.log` says it.
    pub osd: Option<u32>,
    /// Only operations that began at or after it.
    pub since_ns: Option<u64>,
    /// Only operations that began before it.
    pub until_ns: Option<u64>,
    /// Operations in a batch. Default 65,536.
    pub batch_ops: usize,
    /// Longest line; a longer one is bad. Default 1 MiB. Bounds the memory of the reader.
    pub line_bytes_max: usize,
}

impl Default for OsdLogOptions {
    fn default() -> Self {
        Self {
            osd: None,
            since_ns: None,
            until_ns: None,
            batch_ops: 65_536,
            line_bytes_max: 1 << 20,
        }
    }
}

/// Counts of a reading, up to the last batch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OsdLogReport {
    /// Operations delivered.
    pub ops: u64,
    /// Of these, read from `log_op_stats` lines.
    pub ops_of_stats: u64,
    /// Operations that began outside of the time asked for.
    pub ops_outside: u64,
    /// Replies that made no row: the operation has a row from its `log_op_stats` line, or it began before the log.
    pub replies_left_out: u64,
    /// Requests that were forgotten because too many waited for their reply.
    pub requests_forgotten: u64,
    /// Lines that should be an operation and cannot be read, and damaged compressed streams.
    pub lines_bad: u64,
    /// The first of them, with their files.
    pub first_errors: Vec<String>,
    /// Bytes of the logs, after decompression.
    pub bytes_read: u64,
    /// Bytes of the files, before decompression.
    pub file_bytes_read: u64,
}

/// A log that is to be read.
struct LogFile {
    path: PathBuf,
    osd: Option<u32>,
    first_ns: u64,
}

/// The log that is being read.
struct OpenLog {
    path: PathBuf,
    window: Window,
}

/// Reads logs of OSDs, plain or compressed, batch by batch in bounded memory.
pub struct OsdLogReader {
    files: std::vec::IntoIter<LogFile>,
    log: Option<OpenLog>,
    ops: LogOps,
    report: OsdLogReport,
    options: OsdLogOptions,
    // Of the logs before the one that is being read.
    bytes_before: u64,
    file_bytes_before: u64,
}

impl OsdLogReader {
    /// Looks at the start of every file. The files of an OSD are read in the order of their first lines, whatever the
    /// order given: a request and its reply may be in two of a rotated set. Empty files are left out.
    ///
    /// # Errors
    /// When a file cannot be opened, or none of its first lines is one of a Ceph daemon.
    pub fn open(paths: &[PathBuf], options: &OsdLogOptions) -> Result<Self, TraceError> {
        let mut files = Vec::with_capacity(paths.len());
        for path in paths {
            let input = open_input(path).map_err(|source| io_error(path, source))?;
            if let Some(first_ns) = first_time(path, input, options.line_bytes_max)? {
                files.push(LogFile {
                    path: path.clone(),
                    osd: options.osd.or_else(|| osd_of_name(path)),
                    first_ns,
                });
            }
        }
        files.sort_by_key(|file| (file.osd, file.first_ns));
        Ok(Self::new(files, options))
    }

    /// Reads one log that is in memory. `path` stands in messages, and its file name may say the OSD.
    ///
    /// # Errors
    /// As [`OsdLogReader::open`].
    pub fn open_bytes(path: &Path, bytes: Vec<u8>, options: &OsdLogOptions) -> Result<Self, TraceError> {
        let input = decompress::from_read(Box::new(io::Cursor::new(bytes)))
            .map_err(|source| io_error(path, source))?;
        let mut reader = Self::new(Vec::new(), options);
        reader.begin(path.to_owned(), options.osd.or_else(|| osd_of_name(path)), input);
        Ok(reader)
    }

    fn new(files: Vec<LogFile>, options: &OsdLogOptions) -> Self {
        Self {
            files: files.into_iter(),
            log: None,
            ops: LogOps::new(Forms::Both, options.line_bytes_max),
            report: OsdLogReport::default(),
            options: options.clone(),
            bytes_before: 0,
            file_bytes_before: 0,
        }
    }

    fn begin(&mut self, path: PathBuf, osd: Option<u32>, input: Input) {
        self.ops.begin(osd);
        let window = Window::new(input, self.options.line_bytes_max);
        self.log = Some(OpenLog { path, window });
    }

    /// Replaces the content of `out` by the next operations, which may be none; false at the end of the last log.
    ///
    /// # Errors
    /// When reading fails. A compressed stream that is damaged or cut ends its log and is counted.
    pub fn next_batch(&mut self, out: &mut OsdOpBatch) -> Result<bool, TraceError> {
        out.clear();
        let end_bytes = self.report.bytes_read.saturating_add(STEP_BYTES);
        while !out.is_full(self.options.batch_ops) && self.report.bytes_read < end_bytes {
            if self.log.is_none() {
                let Some(file) = self.files.next() else {
                    return Ok(!out.is_empty());
                };
                let input = open_input(&file.path).map_err(|source| io_error(&file.path, source))?;
                self.begin(file.path, file.osd, input);
            }
            self.step(out)?;
        }
        Ok(true)
    }

    /// Counts up to the last batch.
    pub fn report(&self) -> &OsdLogReport {
        &self.report
    }

    /// Takes what is next in the log.
    fn step(&mut self, out: &mut OsdOpBatch) -> Result<(), TraceError> {
        let Some(OpenLog { path, window }) = &mut self.log else {
            return Ok(());
        };
        let report = &mut self.report;
        let mut ends = false;
        let bad = match self.ops.next(window) {
            Ok(Next::Op(line, op)) => {
                let taken = report.take(&op, &self.options, out);
                taken.err().map(|reason| line.bad(reason))
            }
            Ok(Next::Bad(record)) => Some(record),
            Ok(Next::Nothing) => None,
            Ok(Next::End) => {
                ends = true;
                None
            }
            Err(source) => {
                let is_damaged = matches!(
                    source.kind(),
                    io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput | io::ErrorKind::UnexpectedEof
                );
                if !is_damaged {
                    return Err(io_error(path, source));
                }
                ends = true;
                Some(BadRecord {
                    position: Position::Byte(window.offset()),
                    reason: "the compressed data is damaged or truncated from here on",
                    excerpt: String::new(),
                })
            }
        };
        if let Some(record) = bad {
            report.bad(path, &record);
        }
        self.ops.settle(window);
        report.requests_forgotten = self.ops.requests_forgotten;
        report.bytes_read = self.bytes_before + window.offset();
        report.file_bytes_read = self.file_bytes_before + window.file_bytes_read();
        if ends {
            self.log = None;
            (self.bytes_before, self.file_bytes_before) = (report.bytes_read, report.file_bytes_read);
        }
        Ok(())
    }
}

impl OsdLogReport {
    /// Makes a row of an operation, or counts why not.
    fn take(&mut self, op: &LogOp<'_>, options: &OsdLogOptions, out: &mut OsdOpBatch) -> Result<(), Reason> {
        let Some(pg) = op.pg else {
            self.replies_left_out += 1;
            return Ok(());
        };
        let is_wanted = options.since_ns.is_none_or(|since_ns| op.started_ns >= since_ns)
            && options.until_ns.is_none_or(|until_ns| op.started_ns < until_ns);
        if !is_wanted {
            self.ops_outside += 1;
            return Ok(());
        }
        out.push(op, pg)?;
        self.ops += 1;
        self.ops_of_stats += u64::from(op.result.is_none());
        Ok(())
    }

    fn bad(&mut self, path: &Path, record: &BadRecord) {
        self.lines_bad += 1;
        if self.first_errors.len() < FIRST_ERRORS_MAX {
            self.first_errors.push(format!("{}: {record}", path.display()));
        }
    }
}

fn io_error(path: &Path, source: io::Error) -> TraceError {
    TraceError::Io {
        path: path.to_owned(),
        source,
    }
}

/// The time of the first line that has one; `None` for an empty file.
fn first_time(path: &Path, input: Input, line_bytes_max: usize) -> Result<Option<u64>, TraceError> {
    let mut window = Window::new(input, line_bytes_max.max(HEAD_BYTES));
    let filled = window.fill_to(HEAD_BYTES);
    let head = &window.available()[..window.available().len().min(HEAD_BYTES)];
    let time_ns = memchr::memchr_iter(b'-', head)
        .find_map(|at| time_and_thread(&head[at.checked_sub(4)?..]))
        .or_else(|| head.split(|&byte| byte == b'\n').find_map(time_of_journald));
    match (time_ns, filled) {
        (Some(time_ns), _) => Ok(Some(time_ns)),
        (None, Err(source)) => Err(io_error(path, source)),
        (None, Ok(())) if head.is_empty() => Ok(None),
        (None, Ok(())) => Err(TraceError::Header {
            path: path.to_owned(),
            format: Format::OsdLog,
            reason: "none of its first lines has the time and the thread of a Ceph daemon".to_owned(),
        }),
    }
}

/// The time of a line whose own time and thread Ceph gave to journald, as `journalctl -o short-iso` prints it.
fn time_of_journald(line: &[u8]) -> Option<u64> {
    memchr::memmem::find(line, b" ceph-osd[")?;
    time_of(line)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::io::Write as _;

    use super::*;

    const STATS_LINE: &str = "2026-11-21T01:02:03.500+0000 7f5445fe36c0 15 osd.7 pg_epoch: 22 pg[2.b( v 22'2407 \
        (0'0,22'2407] active+clean] log_op_stats osd_op(client.4499.0:175 2.1bs0 \
        2:d447dd18:::rbd_data.1037b7d03b94.0000000000000001:head [set-alloc-hint object_size 4194304 write_size \
        4194304,write 4096~512 [fadvise_random] in=512b] snapc 0=[] RETRY=1 ondisk+write e22) v8 inb 512 outb 0 lat \
        0.000598\n";

    fn request(tid: u64) -> String {
        format!(
            "2026-11-21T01:02:03.000+0000 7f545bfff6c0  1 -- [v2:127.0.0.1:6800/1,v1:127.0.0.1:6801/1] <== client.4499 \
             127.0.0.1:0/49 68 ==== osd_op(client.4499.0:{tid} 2.1b 2.7d6ab878 (undecoded) ondisk+read e22) v8 ==== \
             247+0+0 (crc 0 0 0) 0x55 con 0x56\n"
        )
    }

    fn reply(tid: u64, text: &str) -> String {
        format!(
            "2026-11-21T01:02:03.504+0000 7f545bfff6c0  1 -- [v2:127.0.0.1:6800/1,v1:127.0.0.1:6801/1] --> \
             127.0.0.1:0/49 -- osd_op_reply({tid} rbd_data.1037b7d03b94.00000000000000fc {text}) v8 -- 0x1 con 0x2\n"
        )
    }

    const DONE: &str = "[read 1069056~4096 out=4096b] v0'0 uv4156 ondisk = 0";

    fn read_with(text: &str, options: &OsdLogOptions) -> (OsdOpBatch, OsdLogReport) {
        let path = Path::new("ceph-osd.3.log");
        let mut reader = OsdLogReader::open_bytes(path, text.as_bytes().to_vec(), options).unwrap();
        let mut batch = OsdOpBatch::default();
        let mut all = OsdOpBatch::default();
        while reader.next_batch(&mut batch).unwrap() {
            assert!(batch.len() <= options.batch_ops);
            for (to, from) in [
                (&mut all.started_ns, &batch.started_ns),
                (&mut all.duration_ns, &batch.duration_ns),
                (&mut all.osd, &batch.osd),
                (&mut all.offset_bytes, &batch.offset_bytes),
                (&mut all.length_bytes, &batch.length_bytes),
                (&mut all.result, &batch.result),
            ] {
                to.extend(from);
            }
            all.op.extend(&batch.op);
            assert_eq!(batch.object_name.iter().count(), batch.len());
        }
        assert_eq!(reader.report().ops, all.op.len() as u64);
        (all, reader.report().clone())
    }

    fn read(text: &str) -> (OsdOpBatch, OsdLogReport) {
        read_with(text, &OsdLogOptions::default())
    }

    fn first_batch(text: &str) -> OsdOpBatch {
        let path = Path::new("ceph-osd.3.log");
        let mut reader =
            OsdLogReader::open_bytes(path, text.as_bytes().to_vec(), &OsdLogOptions::default()).unwrap();
        let mut batch = OsdOpBatch::default();
        assert!(reader.next_batch(&mut batch).unwrap());
        batch
    }

    #[test]
    fn statistics_are_one_operation() {
        let batch = first_batch(STATS_LINE);
        assert_eq!(batch.started_ns, [1_795_222_923_500_000_000 - 598_000]);
        assert_eq!(batch.duration_ns, [598_000]);
        assert_eq!(batch.osd, [7], "the line knows better than the file's name");
        assert_eq!((batch.pool_id[0], batch.op[0]), (2, 1));
        assert_eq!((batch.offset_bytes[0], batch.length_bytes[0]), (4096, 512));
        assert_eq!(batch.result, [i64::MIN]);
        let texts = [
            &batch.client,
            &batch.client_address,
            &batch.pg,
            &batch.object_name,
        ];
        assert_eq!(
            texts.map(|texts| texts.iter().next().unwrap()),
            [
                "client.4499",
                "",
                "2.1b",
                "rbd_data.1037b7d03b94.0000000000000001"
            ]
        );
    }

    #[test]
    fn messages_are_joined() {
        let batch = first_batch(&(request(175) + &reply(175, DONE)));
        assert_eq!(batch.started_ns, [1_795_222_923_000_000_000]);
        assert_eq!(batch.duration_ns, [504_000_000]);
        assert_eq!(
            (batch.osd[0], batch.pool_id[0], batch.op[0], batch.result[0]),
            (3, 2, 0, 0)
        );
        assert_eq!((batch.offset_bytes[0], batch.length_bytes[0]), (1_069_056, 4096));
        let texts = [
            &batch.client,
            &batch.client_address,
            &batch.pg,
            &batch.object_name,
        ];
        assert_eq!(
            texts.map(|texts| texts.iter().next().unwrap()),
            [
                "client.4499",
                "127.0.0.1:0",
                "2.1b",
                "rbd_data.1037b7d03b94.00000000000000fc"
            ]
        );
    }

    #[test]
    fn what_is_logged_in_both_forms_counts_once() {
        let gone = "[read 0~4096] v0'0 uv0 ondisk = -2 ((2) No such file or directory)";
        let text = [
            reply(174, DONE),
            request(175),
            request(176),
            STATS_LINE.to_owned(),
            reply(175, DONE),
            reply(176, gone),
        ];
        let (batch, report) = read(&text.concat());
        assert_eq!(batch.result, [i64::MIN, -2]);
        assert_eq!(
            (report.ops, report.ops_of_stats, report.replies_left_out),
            (2, 1, 2)
        );
        let with_address = first_batch(&(request(175) + STATS_LINE));
        assert_eq!(with_address.client_address.iter().next(), Some("127.0.0.1:0"));
    }

    #[test]
    fn other_lines_and_cut_ones_are_left_out() {
        let mut text = String::new();
        for number in 0..5000 {
            let _ = writeln!(
                text,
                "2026-11-21T01:02:03.500+0000 7f5445fe36c0 10 osd.7 22 dequeue_op 0x{number:x} osd_op(client.1.0:7 2.b x) finish"
            );
            if number % 10 == 0 {
                text += STATS_LINE;
            }
        }
        text += &STATS_LINE[..STATS_LINE.len() - 5];
        for batch_ops in [1, 7, 65_536] {
            let options = OsdLogOptions {
                batch_ops,
                ..OsdLogOptions::default()
            };
            let (batch, report) = read_with(&text, &options);
            assert_eq!((batch.len(), report.lines_bad), (500, 0));
            assert_eq!(report.bytes_read, text.len() as u64);
        }
    }

    #[test]
    fn bad_lines_are_counted_with_their_place() {
        let text = STATS_LINE.replace("lat 0", "lat x") + STATS_LINE + &reply(1, "oops");
        let (batch, report) = read(&text);
        assert_eq!((batch.len(), report.lines_bad), (1, 2));
        assert!(
            report.first_errors[0].starts_with("ceph-osd.3.log: line 1: the latency is not a number: 2026-"),
            "{:?}",
            report.first_errors
        );
        assert!(
            report.first_errors[1].contains("line 3: the reply has no list"),
            "{:?}",
            report.first_errors
        );
    }

    #[test]
    fn a_line_that_is_too_long_is_passed_over() {
        let options = OsdLogOptions {
            line_bytes_max: 1000,
            ..OsdLogOptions::default()
        };
        let text = format!(
            "{STATS_LINE}{}{}\n{STATS_LINE}",
            "x".repeat(1 << 20),
            STATS_LINE.trim_end()
        );
        let (batch, report) = read_with(&text, &options);
        assert_eq!((batch.len(), report.lines_bad), (2, 1));
    }

    #[test]
    fn a_span_of_time_may_be_chosen() {
        let text = request(175) + &reply(175, DONE) + STATS_LINE;
        let at_ns = 1_795_222_923_100_000_000;
        for (since_ns, until_ns, started) in [(Some(at_ns), None, 1), (None, Some(at_ns), 0)] {
            let options = OsdLogOptions {
                since_ns,
                until_ns,
                ..OsdLogOptions::default()
            };
            let (batch, report) = read_with(&text, &options);
            assert_eq!((batch.len(), report.ops_outside), (1, 1));
            assert_eq!(batch.op[0], started);
        }
    }

    #[test]
    fn what_is_a_log() {
        let first = |text: &str| {
            let input = decompress::from_read(Box::new(io::Cursor::new(text.as_bytes().to_vec()))).unwrap();
            first_time(Path::new("x"), input, 1 << 20).ok()
        };
        let at_ns = Some(Some(1_795_222_923_500_000_000));
        assert_eq!(first(&format!("the end of a line\n{STATS_LINE}")), at_ns);
        assert_eq!(
            first(&format!("Nov 21 01:02:03 node1 ceph-osd[7]: {STATS_LINE}")),
            at_ns
        );
        let journald = "2026-11-21T01:02:03.500000+0000 node1 ceph-osd[7]: osd.7 22 tick\n";
        assert_eq!(first(journald), at_ns);
        assert_eq!(first(&journald.replace("ceph-osd", "sshd")), None);
        assert_eq!(first(""), Some(None));
        assert_eq!(first("time_ns,offset_bytes\n1,0\n"), None);
    }

    #[test]
    fn a_rotated_set_is_read_in_the_order_of_time() {
        let folder = std::env::temp_dir().join(format!("osd-ops-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let names = ["ceph-osd.3.log", "ceph-osd.3.log.1.gz", "empty.log"];
        let paths = names.map(|name| folder.join(name));
        std::fs::write(&paths[0], reply(175, DONE)).unwrap();
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(request(175).as_bytes()).unwrap();
        std::fs::write(&paths[1], gz.finish().unwrap()).unwrap();
        std::fs::write(&paths[2], "").unwrap();
        let mut reader = OsdLogReader::open(&paths, &OsdLogOptions::default()).unwrap();
        let mut batch = OsdOpBatch::default();
        assert!(reader.next_batch(&mut batch).unwrap());
        assert_eq!(batch.duration_ns, [504_000_000]);
        assert!(!reader.next_batch(&mut batch).unwrap());
        let file_bytes: u64 = paths.iter().map(|path| path.metadata().unwrap().len()).sum();
        assert_eq!(reader.report().file_bytes_read, file_bytes);

        std::fs::write(&paths[2], "time_ns,offset_bytes\n1,0\n").unwrap();
        let error = OsdLogReader::open(&paths, &OsdLogOptions::default())
            .err()
            .unwrap();
        assert!(
            error
                .to_string()
                .contains("empty.log: not a trace in the osd-log format"),
            "{error}"
        );
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
