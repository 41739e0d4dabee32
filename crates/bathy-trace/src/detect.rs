//! Detection of the format. Content is tested first, from the surest sign to the weakest; the name decides where the
//! content has no sign (bare numbers in binary).

use std::path::Path;

use memchr::memmem;

use crate::format::Format;
use crate::formats::{blkparse, blktrace, csv, fio, vscsi};
use crate::text::{scaled_of, trim, u64_of};

type LineTest = fn(&[u8]) -> bool;

/// Lines of a text that must agree.
const LINES: usize = 20;

/// The format of a trace that starts with `head`, or `None` when neither content nor name shows it.
pub(crate) fn detect(path: &Path, head: &[u8]) -> Option<Format> {
    by_magic(head).or_else(|| by_name(path)).or_else(|| {
        if is_text(head) {
            by_lines(head)
        } else {
            by_records(head)
        }
    })
}

fn by_magic(head: &[u8]) -> Option<Format> {
    if blktrace::is_blktrace(head) {
        return Some(Format::Blktrace);
    }
    match fio::version(head) {
        Some(2) => return Some(Format::FioV2),
        Some(3) => return Some(Format::FioV3),
        _ => {}
    }
    let start = head.trim_ascii_start();
    let json = start.starts_with(b"{") || start.starts_with(b"[");
    if json
        && [
            &b"\"description\""[..],
            b"\"initiated_at\"",
            b"\"ops\"",
            b"\"Ops\"",
        ]
        .iter()
        .any(|key| memmem::find(head, key).is_some())
    {
        return Some(Format::OpHistory);
    }
    // A log at debug_osd 15 may hold messages too; its own lines say more.
    if memmem::find(head, b" log_op_stats osd_op(").is_some() {
        return Some(Format::OsdLog);
    }
    if memmem::find(head, b" -- osd_op_reply(").is_some() {
        return Some(Format::OsdMessages);
    }
    None
}

fn by_name(path: &Path) -> Option<Format> {
    let name = path.file_name()?.to_str()?.to_ascii_lowercase();
    let stem = [".gz", ".xz", ".zst"]
        .iter()
        .find_map(|end| name.strip_suffix(end))
        .unwrap_or(&name);
    if stem.contains("oraclegeneral") {
        Some(Format::OracleGeneral)
    } else if stem.rsplit_once('.').is_some_and(|(_, end)| end == "u32") || is_cloud_physics(stem) {
        Some(Format::RawU32)
    } else {
        None
    }
}

/// `w106.trace` and the like.
fn is_cloud_physics(stem: &str) -> bool {
    let number = stem
        .strip_prefix('w')
        .and_then(|rest| rest.strip_suffix(".trace"));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

fn by_records(head: &[u8]) -> Option<Format> {
    match vscsi::version(head)? {
        1 => Some(Format::Vscsi1),
        _ => Some(Format::Vscsi2),
    }
}

fn is_text(head: &[u8]) -> bool {
    !head.is_empty()
        && !head
            .iter()
            .any(|&byte| byte < b' ' && !byte.is_ascii_whitespace())
}

/// Whole lines at the start; the last is left out if it may be cut.
fn lines(head: &[u8]) -> Vec<&[u8]> {
    let mut lines: Vec<_> = head
        .split(|&byte| byte == b'\n')
        .map(trim)
        .take(LINES + 1)
        .collect();
    if lines.len() > 1 {
        lines.pop();
    }
    lines.retain(|line| !line.is_empty());
    lines
}

fn by_lines(head: &[u8]) -> Option<Format> {
    if csv::is_header(head) {
        return Some(Format::Csv);
    }
    let lines = lines(head);
    let first_of_data = usize::from(lines.len() > 1 && lines[0].first().is_some_and(u8::is_ascii_alphabetic));
    let data = &lines[first_of_data.min(lines.len())..];
    if data.is_empty() {
        return None;
    }
    // Notes may stand before the first event.
    if data.iter().any(|line| blkparse::is_event(line)) {
        return Some(Format::Blkparse);
    }
    let tests: [(Format, LineTest); 6] = [
        (Format::Msr, is_msr),
        (Format::Alibaba, is_alibaba),
        (Format::Spc, is_spc),
        (Format::Tencent, is_tencent),
        (Format::Arc, is_arc),
        (Format::Lirs, is_lirs),
    ];
    tests
        .into_iter()
        .find(|(_, test)| data.iter().all(|line| test(line)))
        .map(|(format, _)| format)
}

fn fields(line: &[u8]) -> Vec<&[u8]> {
    line.split(|&byte| byte == b',').map(trim).take(16).collect()
}

fn are_numbers(fields: &[&[u8]]) -> bool {
    fields.iter().all(|field| u64_of(field).is_some())
}

fn is_msr(line: &[u8]) -> bool {
    matches!(fields(line).as_slice(), [time, _, disk, op, offset, size, response]
        if are_numbers(&[time, disk, offset, size, response])
            && (op.eq_ignore_ascii_case(b"read") || op.eq_ignore_ascii_case(b"write")))
}

fn is_alibaba(line: &[u8]) -> bool {
    matches!(fields(line).as_slice(), [device, b"R" | b"W", offset, length, time]
        if are_numbers(&[device, offset, length, time]))
}

fn is_spc(line: &[u8]) -> bool {
    matches!(fields(line).as_slice(), [unit, block, size, b"R" | b"r" | b"W" | b"w", time, ..]
        if are_numbers(&[unit, block, size]) && scaled_of(time, 9).is_some())
}

fn is_tencent(line: &[u8]) -> bool {
    matches!(fields(line).as_slice(), [time, offset, size, b"0" | b"1", volume]
        if are_numbers(&[time, offset, size, volume]))
}

fn is_arc(line: &[u8]) -> bool {
    let words: Vec<_> = line
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
        .take(5)
        .collect();
    words.len() == 4 && are_numbers(&words)
}

fn is_lirs(line: &[u8]) -> bool {
    line == b"*" || u64_of(line).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, head: &[u8]) -> Option<Format> {
        detect(Path::new(name), head)
    }

    #[test]
    fn what_has_no_sign_is_not_guessed() {
        assert_eq!(of("x", b""), None);
        assert_eq!(of("x", b"hello world\n"), None);
        assert_eq!(of("x.json", b"{\"a\":1}"), None);
        assert_eq!(of("x.bin", &[1, 0, 0, 0, 2, 0, 0, 0]), None);
        assert_eq!(of("x.csv", b"1,2,3\n"), None);
    }

    #[test]
    fn names_decide_for_bare_numbers() {
        assert_eq!(of("w106.trace.xz", &[1, 0, 0, 0]), Some(Format::RawU32));
        assert_eq!(of("a.u32", &[1, 0, 0, 0]), Some(Format::RawU32));
        assert_eq!(
            of("msr_hm_0.oracleGeneral.zst", &[0; 24]),
            Some(Format::OracleGeneral)
        );
        assert_eq!(of("wx.trace", &[1, 0, 0, 0]), None);
    }

    #[test]
    fn notes_may_stand_before_the_events_of_blkparse() {
        let text = b"#Maj,Mn CPU SeqNo Seconds PID Evt Typ Sector +Len Description\n#------ ---\n\
            259,0 3 1 0.000000000 1867 A W 746579600 + 8 <- (253,3) 578805392\n";
        assert_eq!(of("x", text), Some(Format::Blkparse));
    }

    #[test]
    fn similar_texts_are_distinguished() {
        assert_eq!(
            of("x", b"419,W,8792731648,16384,1577808144360767\n"),
            Some(Format::Alibaba)
        );
        assert_eq!(
            of("x", b"1538323200,12910952,128,0,1063\n"),
            Some(Format::Tencent)
        );
        assert_eq!(of("x", b"0,20941264,8192,W,0.551706\n"), Some(Format::Spc));
        assert_eq!(of("x", b"5\n*\n6\n"), Some(Format::Lirs));
        assert_eq!(of("x", b"5 1 0 0\n6 2 0 1"), Some(Format::Arc));
    }
}
