//! CSV with a header that names the columns, in any order, then one I/O a line.
//!
//! | column | meaning | when absent or empty |
//! |---|---|---|
//! | `offset_bytes` or `offset_sectors` | first byte (sectors are 512 bytes) | must be there |
//! | `length_bytes` or `length_sectors` | length | 4096 bytes |
//! | `time_ns`, `time_us`, `time_ms` or `time_s` | time of issue, a fraction is allowed | 0 |
//! | `op` | `read`, `write`, `trim`, `other`, their first letters, or 0 1 2 3; case does not matter | read |
//! | `volume`, `image`, `disk`, `vm` or `device` | name of the image, device or file | unknown |
//! | `osd` | number, also as `osd.3` | unknown |
//! | `pool` | number of the pool | unknown |
//! | `pool_name` | name of the pool; excludes `pool` | unknown |
//! | `latency_ns`, `latency_us`, `latency_ms` or `latency_s` | from issue to completion | unknown |
//!
//! Other columns are ignored. Fields are separated by comma, semicolon or tab, whichever the header uses. A field
//! may be in double quotes, with `""` for a quote inside (RFC 4180), but may not contain a line end. Lines that
//! start with `#` and empty lines are comments. UTF-8 with or without a byte order mark.

use crate::decode::LineParser;
use crate::error::excerpt;
use crate::event::{IoEvent, Op, latency_ns_saturating};
use crate::reader::{Reason, Sink};
use crate::report::{Columns, MOST_COLUMNS};
use crate::text::{leading_scaled, leading_u64, trim};

type ColumnTest = fn(&Column) -> bool;

/// What to do with a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Ignored,
    /// The exponent of ten that makes it nanoseconds.
    Time(u32),
    /// Bytes of its unit.
    Offset(u64),
    /// Bytes of its unit.
    Length(u64),
    Op,
    Volume,
    Osd,
    Pool,
    PoolName,
    /// The exponent of ten that makes it nanoseconds.
    Latency(u32),
}

const KNOWN: &[(&str, Column)] = &[
    ("time_ns", Column::Time(0)),
    ("time_us", Column::Time(3)),
    ("time_ms", Column::Time(6)),
    ("time_s", Column::Time(9)),
    ("offset_bytes", Column::Offset(1)),
    ("offset_sectors", Column::Offset(512)),
    ("length_bytes", Column::Length(1)),
    ("length_sectors", Column::Length(512)),
    ("op", Column::Op),
    ("volume", Column::Volume),
    ("image", Column::Volume),
    ("disk", Column::Volume),
    ("vm", Column::Volume),
    ("device", Column::Volume),
    ("osd", Column::Osd),
    ("pool", Column::Pool),
    ("pool_name", Column::PoolName),
    ("latency_ns", Column::Latency(0)),
    ("latency_us", Column::Latency(3)),
    ("latency_ms", Column::Latency(6)),
    ("latency_s", Column::Latency(9)),
];

/// Reads lines by the plan that the header gave.
#[derive(Debug)]
pub(crate) struct Csv {
    columns: Vec<Column>,
    /// As the header has them, for the report.
    names: Vec<String>,
    delimiter: u8,
    header_passed: bool,
    unquoted: Vec<u8>,
}

impl Csv {
    /// Plans from the head of a file.
    pub(crate) fn from_head(head: &[u8]) -> Result<Self, String> {
        let line = head
            .split(|&byte| byte == b'\n')
            .find(|line| !is_comment(line))
            .ok_or("there is no header line")?;
        let line = trim(without_mark(line));
        let delimiter = *[b',', b';', b'\t']
            .iter()
            .max_by_key(|&&delimiter| (memchr::memchr_iter(delimiter, line).count(), delimiter == b','))
            .expect("three delimiters");
        let names = || line.split(|&byte| byte == delimiter).map(column_name);
        let columns: Vec<_> = names().map(column_of).collect();
        let names: Vec<_> = names().map(excerpt).collect();
        let count = |wanted: ColumnTest| columns.iter().filter(|column| wanted(column)).count();
        if count(|column| matches!(column, Column::Offset(_))) == 0 {
            return Err("its header has no column offset_bytes (or offset_sectors)".into());
        }
        let kinds: [(&str, ColumnTest); 8] = [
            ("offset", |column| matches!(column, Column::Offset(_))),
            ("length", |column| matches!(column, Column::Length(_))),
            ("time", |column| matches!(column, Column::Time(_))),
            ("latency", |column| matches!(column, Column::Latency(_))),
            ("op", |column| *column == Column::Op),
            ("volume", |column| *column == Column::Volume),
            ("osd", |column| *column == Column::Osd),
            ("pool", |column| matches!(column, Column::Pool | Column::PoolName)),
        ];
        match kinds.iter().find(|(_, wanted)| count(*wanted) > 1) {
            Some((name, wanted)) => {
                let of_kind = columns.iter().zip(&names).filter(|(column, _)| wanted(column));
                let found: Vec<_> = of_kind.map(|(_, name)| name.as_str()).collect();
                Err(format!(
                    "its header has more than one column for the {name}: {}",
                    found.join(", ")
                ))
            }
            None => Ok(Self {
                columns,
                names,
                delimiter,
                header_passed: false,
                unquoted: Vec::new(),
            }),
        }
    }

    /// The field up to the next delimiter, without quotes, and whether more fields follow.
    #[inline]
    fn text_field<'line: 'text, 'text>(
        line: &'line [u8],
        delimiter: u8,
        unquoted: &'text mut Vec<u8>,
    ) -> Result<(&'text [u8], Option<&'line [u8]>), Reason> {
        if line.first() == Some(&b'"') {
            return quoted_field(line, delimiter, unquoted);
        }
        match line.iter().position(|&byte| byte == delimiter) {
            Some(at) => Ok((&line[..at], Some(&line[at + 1..]))),
            None => Ok((line, None)),
        }
    }
}

fn column_name(field: &[u8]) -> &[u8] {
    let name = trim(field);
    name.strip_prefix(b"\"")
        .and_then(|name| name.strip_suffix(b"\""))
        .unwrap_or(name)
}

fn column_of(name: &[u8]) -> Column {
    let known = KNOWN
        .iter()
        .find(|(known, _)| known.as_bytes().eq_ignore_ascii_case(name));
    known.map_or(Column::Ignored, |&(_, column)| column)
}

fn without_mark(line: &[u8]) -> &[u8] {
    line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line)
}

#[inline]
fn is_comment(line: &[u8]) -> bool {
    match line.first() {
        Some(b'0'..=b'9') => false,
        None => true,
        Some(_) => matches!(trim(without_mark(line)).first(), None | Some(b'#')),
    }
}

fn quoted_field<'line: 'text, 'text>(
    line: &'line [u8],
    delimiter: u8,
    unquoted: &'text mut Vec<u8>,
) -> Result<(&'text [u8], Option<&'line [u8]>), Reason> {
    unquoted.clear();
    let mut at = 1;
    loop {
        let length = memchr::memchr(b'"', &line[at..]).ok_or("a quoted field does not end")?;
        unquoted.extend_from_slice(&line[at..at + length]);
        at += length + 1;
        match line.get(at) {
            Some(b'"') => {
                unquoted.push(b'"');
                at += 1;
            }
            None => return Ok((unquoted, None)),
            Some(&byte) if byte == delimiter => return Ok((unquoted, Some(&line[at + 1..]))),
            Some(_) => return Err("there is text between the end of a quoted field and the next delimiter"),
        }
    }
}

/// A field that is a number: its value (`None` if empty) and what follows its delimiter.
#[inline]
fn number_field(
    line: &[u8],
    delimiter: u8,
    exponent: u32,
    reason: Reason,
) -> Result<(Option<u64>, Option<&[u8]>), Reason> {
    if let Some((value, rest)) = leading_u64(line) {
        match rest.first() {
            Some(&byte) if byte == delimiter && exponent == 0 => return Ok((Some(value), Some(&rest[1..]))),
            None if exponent == 0 => return Ok((Some(value), None)),
            _ => {}
        }
    }
    slow_number_field(line, delimiter, exponent, reason)
}

fn slow_number_field(
    line: &[u8],
    delimiter: u8,
    exponent: u32,
    reason: Reason,
) -> Result<(Option<u64>, Option<&[u8]>), Reason> {
    let (field, rest) = match line.iter().position(|&byte| byte == delimiter) {
        Some(at) => (&line[..at], Some(&line[at + 1..])),
        None => (line, None),
    };
    let field = trim(field);
    let field = field
        .strip_prefix(b"\"")
        .and_then(|field| field.strip_suffix(b"\""))
        .unwrap_or(field);
    if field.is_empty() {
        return Ok((None, rest));
    }
    match leading_scaled(field, exponent) {
        Some((value, b"")) => Ok((Some(value), rest)),
        _ => Err(reason),
    }
}

fn op_of(field: &[u8]) -> Result<Op, Reason> {
    let field = trim(field);
    match field {
        b"0" | b"r" | b"R" | b"" => Ok(Op::Read),
        b"1" | b"w" | b"W" => Ok(Op::Write),
        b"2" | b"t" | b"T" => Ok(Op::Trim),
        b"3" | b"o" | b"O" => Ok(Op::Other),
        _ => [Op::Read, Op::Write, Op::Trim, Op::Other]
            .into_iter()
            .find(|op| op.name().as_bytes().eq_ignore_ascii_case(field))
            .ok_or("the operation is none of read, write, trim and other"),
    }
}

fn id_of(value: Option<u64>, reason: Reason) -> Result<u32, Reason> {
    match value {
        None => Ok(crate::UNKNOWN),
        Some(value) => u32::try_from(value).map_err(|_| reason),
    }
}

impl LineParser for Csv {
    fn columns(&self) -> Columns {
        let of = |used: bool| {
            let named = self.columns.iter().zip(&self.names);
            let these = named.filter(|&(column, _)| (*column != Column::Ignored) == used);
            these.map(|(_, name)| name.clone()).take(MOST_COLUMNS).collect()
        };
        Columns {
            used: of(true),
            ignored: of(false),
        }
    }

    #[inline]
    fn line(&mut self, line: &[u8], sink: &mut Sink<'_>) -> Result<(), Reason> {
        if is_comment(line) {
            return Ok(());
        }
        if !self.header_passed {
            self.header_passed = true;
            return Ok(());
        }
        let mut event = IoEvent::new(Op::Read, 0, 0);
        let mut length_bytes = 4096;
        let mut rest = Some(line);
        for &column in &self.columns {
            let Some(field) = rest else {
                return Err("there are fewer fields than columns");
            };
            let delimiter = self.delimiter;
            match column {
                Column::Offset(unit) => {
                    let (value, next) = number_field(field, delimiter, 0, "the offset is not a number")?;
                    let value = value.ok_or("there is no offset")?;
                    event.offset_bytes = value.checked_mul(unit).ok_or("the offset is too large")?;
                    rest = next;
                }
                Column::Length(unit) => {
                    let (value, next) = number_field(field, delimiter, 0, "the length is not a number")?;
                    if let Some(value) = value {
                        length_bytes = value.checked_mul(unit).ok_or("the length is too large")?;
                    }
                    rest = next;
                }
                Column::Time(exponent) => {
                    let (value, next) = number_field(field, delimiter, exponent, "the time is not a number")?;
                    event.time_ns = value.unwrap_or(0);
                    rest = next;
                }
                Column::Latency(exponent) => {
                    let (value, next) =
                        number_field(field, delimiter, exponent, "the latency is not a number")?;
                    event.latency_ns = latency_ns_saturating(value.unwrap_or(0));
                    rest = next;
                }
                Column::Pool => {
                    let reason = "the pool is not a number; a column of names is called pool_name";
                    let (value, next) = number_field(field, delimiter, 0, reason)?;
                    event.pool = id_of(value, reason)?;
                    rest = next;
                }
                Column::Osd => {
                    let reason = "the OSD is not a number";
                    let field = field.strip_prefix(b"osd.").unwrap_or(field);
                    let (value, next) = number_field(field, delimiter, 0, reason)?;
                    event.osd = id_of(value, reason)?;
                    rest = next;
                }
                Column::Op => {
                    let (text, next) = Self::text_field(field, delimiter, &mut self.unquoted)?;
                    event.op = op_of(text)?;
                    rest = next;
                }
                Column::Volume => {
                    let (text, next) = Self::text_field(field, delimiter, &mut self.unquoted)?;
                    if !text.is_empty() {
                        event.volume = sink.volume(text)?;
                    }
                    rest = next;
                }
                Column::PoolName => {
                    let (text, next) = Self::text_field(field, delimiter, &mut self.unquoted)?;
                    if !text.is_empty() {
                        event.pool = sink.pool(text)?;
                    }
                    rest = next;
                }
                Column::Ignored => {
                    rest = Self::text_field(field, delimiter, &mut self.unquoted)?.1;
                }
            }
        }
        if rest.is_some() {
            return Err("there are more fields than columns");
        }
        sink.push(event, length_bytes)
    }
}

/// True when the line could be the header of this format.
pub(crate) fn is_header(head: &[u8]) -> bool {
    Csv::from_head(head).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{names_of, open_error, read_all, read_skipping};
    use crate::{Format, UNKNOWN};

    #[test]
    fn columns_may_be_in_any_order_and_unit() {
        let text = b"\xef\xbb\xbf# made by hand\nlatency_us;x;OP;offset_sectors;time_s;volume;osd;pool;length_bytes\n\
            250.5;-;W;8;1.5;a;osd.3;2;512\n\
            \n\
            ;;read;0;;;;;\n";
        let events = read_all(Format::Csv, text);
        assert_eq!(
            events,
            [
                IoEvent {
                    time_ns: 1_500_000_000,
                    offset_bytes: 4096,
                    length_bytes: 512,
                    op: Op::Write,
                    volume: 0,
                    osd: 3,
                    pool: 2,
                    latency_ns: 250_500,
                },
                IoEvent::new(Op::Read, 0, 4096),
            ]
        );
    }

    #[test]
    fn names_may_be_quoted() {
        let text = b"volume,pool_name,offset_bytes\n\"a,\"\"b\"\"\",rbd,0\r\nplain,rbd,1\n,\"\",2\n";
        let (events, names) = names_of(Format::Csv, text);
        assert_eq!(names.volumes.iter().collect::<Vec<_>>(), ["a,\"b\"", "plain"]);
        assert_eq!(names.pools.iter().collect::<Vec<_>>(), ["rbd"]);
        let ids: Vec<_> = events.iter().map(|event| (event.volume, event.pool)).collect();
        assert_eq!(ids, [(0, 0), (1, 0), (UNKNOWN, UNKNOWN)]);
    }

    #[test]
    fn every_bad_line_is_reported_with_its_number() {
        let text = b"time_ns,op,offset_bytes,osd\n1,r,0,0\n1,r\n1,r,0,0,0\nx,r,0,0\n1,z,0,0\n1,r,,0\n\
            1,r,0,4294967296\n1,r,18446744073709551615,0\n1,\"r,0,0\n1,\"r\"x,0,0\n2,r,5,1\n";
        let (events, report) = read_skipping(Format::Csv, text);
        assert_eq!(events.len(), 2);
        let errors: Vec<_> = report
            .first_errors
            .iter()
            .map(|bad| format!("{}: {}", bad.position, bad.reason))
            .collect();
        assert_eq!(
            errors,
            [
                "line 3: there are fewer fields than columns",
                "line 4: there are more fields than columns",
                "line 5: the time is not a number",
                "line 6: the operation is none of read, write, trim and other",
                "line 7: there is no offset",
                "line 8: the OSD is not a number",
                "line 9: the extent ends beyond 2^64",
                "line 10: a quoted field does not end",
                "line 11: there is text between the end of a quoted field and the next delimiter",
            ]
        );
        assert_eq!(report.time_ns_range, Some((1, 2)));
    }

    #[test]
    fn a_length_that_no_request_has_is_bad() {
        let text = b"op,offset_bytes,length_bytes\nr,0,0\nw,0,0\nt,0,0\nr,0,268435457\nw,0,4294967296\nt,0,4294967296\n\
            r,0,268435456\nt,0,4294967295\n";
        let (events, report) = read_skipping(Format::Csv, text);
        let lengths: Vec<_> = events.iter().map(|event| event.length_bytes).collect();
        assert_eq!(lengths, [1 << 28, u32::MAX]);
        assert_eq!((report.records_bad, report.records_ignored), (6, 0));
        assert_eq!(report.first_errors[0].reason, "the length is 0");
        assert!(report.first_errors[3].reason.contains("256 MiB"));
    }

    #[test]
    fn columns_are_reported_as_the_header_has_them() {
        for name in ["volume", "image", "Disk", "vm", "device"] {
            let text = format!("{name},offset_bytes,\x1b[31m\na,0,1\n");
            let (events, report) = read_skipping(Format::Csv, text.as_bytes());
            assert_eq!(events[0].volume, 0, "{name}");
            assert_eq!(report.columns.used, [name, "offset_bytes"]);
            assert_eq!(report.columns.ignored, [r"\x1b[31m"]);
        }
    }

    #[test]
    fn a_header_that_cannot_be_used_is_refused() {
        assert!(open_error(Format::Csv, b"time_ns,op\n1,r\n").contains("no column offset_bytes"));
        assert!(
            open_error(Format::Csv, b"time_ns,time_us,offset_bytes\n")
                .contains("more than one column for the time")
        );
        assert!(open_error(Format::Csv, b"# only\n").contains("no header"));
    }
}
