//! Which format is it?

use std::path::Path;

use crate::format::Format;
use crate::formats::{csv, vscsi};

/// The format of a trace that starts with `head`, or `None` when neither content nor name tells it.
pub(crate) fn detect(path: &Path, head: &[u8]) -> Option<Format> {
    by_content(head).or_else(|| by_name(path))
}

fn by_content(head: &[u8]) -> Option<Format> {
    match vscsi::version(head) {
        Some(1) => return Some(Format::Vscsi1),
        Some(2) => return Some(Format::Vscsi2),
        _ => {}
    }
    if csv::is_header(head) {
        return Some(Format::Csv);
    }
    None
}

fn by_name(path: &Path) -> Option<Format> {
    let name = path.file_name()?.to_str()?.to_ascii_lowercase();
    let stem = [".gz", ".xz", ".zst"]
        .iter()
        .find_map(|end| name.strip_suffix(end))
        .unwrap_or(&name);
    if stem.ends_with(".u32") || is_cloud_physics(stem) {
        return Some(Format::RawU32);
    }
    None
}

/// `w106.trace` and the like.
fn is_cloud_physics(stem: &str) -> bool {
    let number = stem
        .strip_prefix('w')
        .and_then(|rest| rest.strip_suffix(".trace"));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}
