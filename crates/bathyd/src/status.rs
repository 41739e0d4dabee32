//! The status socket: one JSON object a line in, one a line out.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::Duration;

use bathy_fuse::answer_connections;
use serde_json::{Value, json};

const LINE_BYTES_MAX: u64 = 4 << 10;
const CONNECTIONS_MAX: usize = 16;
/// A client that says nothing does not keep its connection.
const PATIENCE: Duration = Duration::from_secs(60);

/// Answers the query of a name, if it knows it.
pub(crate) type Answer = dyn Fn(&str) -> Option<Value> + Send + Sync;

/// Answer connections for as long as the process lives.
pub(crate) fn start(listener: UnixListener, answer: Arc<Answer>) -> io::Result<()> {
    answer_connections(listener, "status", CONNECTIONS_MAX, move |stream| {
        converse(&stream, &*answer)
    })
}

fn converse(stream: &UnixStream, answer: &Answer) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut writer = stream;
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        reader
            .by_ref()
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut line)?;
        if line.last() != Some(&b'\n') {
            // The end, or a line that is too long.
            return Ok(());
        }
        let mut text = reply(&line, answer).to_string();
        text.push('\n');
        writer.write_all(text.as_bytes())?;
    }
}

fn reply(line: &[u8], answer: &Answer) -> Value {
    let query: Option<Value> = serde_json::from_slice(line).ok();
    let found = query
        .as_ref()
        .and_then(|it| it["query"].as_str())
        .and_then(answer);
    found.map_or_else(
        || json!({"ok": false, "error": "'query' is missing or not known", "hint": r#"for example {"query":"status"}"#}),
        |found| json!({"ok": true, "answer": found}),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_answered_and_others_refused() {
        let answer = |query: &str| (query == "status").then(|| json!({"up": 1}));
        assert_eq!(reply(br#"{"query":"status"}"#, &answer)["answer"]["up"], 1);
        for line in [
            &b"nonsense"[..],
            b"{}",
            br#"{"query":"other"}"#,
            br#"{"query":7}"#,
        ] {
            assert_eq!(reply(line, &answer)["ok"], false);
        }
    }
}
