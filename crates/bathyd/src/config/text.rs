//! The text of a configuration, of which each source is read by itself.

use std::ops::Range;

use serde::de::IgnoredAny;

/// Where the entries of the list `name` of an object lie in its text, which is JSON.
pub(super) fn entries(text: &[u8], name: &str) -> Vec<Range<usize>> {
    let members = parts(text, 0);
    let is_it = |key: &Range<usize>| {
        serde_json::from_slice::<String>(&text[key.clone()]).is_ok_and(|key| key == name)
    };
    let list = members.chunks_exact(2).find(|member| is_it(&member[0]));
    list.map_or_else(Vec::new, |member| parts(text, member[1].start))
}

/// Where the values lie that are direct parts of the list or object that begins at `start`.
fn parts(text: &[u8], start: usize) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let is_between = |byte: &u8| b" \t\r\n,:".contains(byte);
    let begin = |at: usize| Some(at + text.get(at..)?.iter().position(|byte| !is_between(byte))?);
    let mut at = begin(start).map_or(text.len(), |open| open + 1);
    while let Some(start) = begin(at).filter(|&start| !b"]}".contains(&text[start])) {
        let mut values = serde_json::Deserializer::from_slice(&text[start..]).into_iter::<IgnoredAny>();
        if !matches!(values.next(), Some(Ok(_))) {
            break;
        }
        at = start + values.byte_offset();
        parts.push(start..at);
    }
    parts
}

/// A part of a text, of which an error names line and column as in the whole.
pub(super) fn in_its_place(text: &[u8], part: &Range<usize>) -> Vec<u8> {
    let before = text[..part.start].iter();
    let mut blank: Vec<u8> = before
        .map(|&byte| if byte == b'\n' { byte } else { b' ' })
        .collect();
    blank.extend_from_slice(&text[part.clone()]);
    blank
}
