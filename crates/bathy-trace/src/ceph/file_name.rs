//! What the name of a file says.

use std::path::Path;

use crate::text::leading_u64;

/// 3 for `ceph-osd.3.log.1.gz`, `osd.3.json` and the like.
pub(crate) fn osd_of_name(path: &Path) -> Option<u32> {
    let name = path.file_name()?.as_encoded_bytes();
    let at = memchr::memmem::find(name, b"osd.")?;
    let (number, rest) = leading_u64(&name[at + 4..])?;
    (rest.is_empty() || rest[0] == b'.').then(|| u32::try_from(number).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_give_the_osd() {
        for (name, osd) in [
            ("/var/log/ceph/ceph-osd.3.log", Some(3)),
            ("osd.12.json.gz", Some(12)),
            ("osd.7", Some(7)),
            ("osd.7x", None),
            ("osd.log", None),
            ("ops.json", None),
        ] {
            assert_eq!(osd_of_name(Path::new(name)), osd, "{name}");
        }
    }
}
