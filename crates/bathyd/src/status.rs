//! The status socket: one JSON object a line in, one a line out.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::Duration;

use bathy_fuse::answer_connections;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::panics::caught;

/// A command has a path, whose length may be 4 KiB.
const LINE_BYTES_MAX: u64 = 16 << 10;
const CONNECTIONS_MAX: usize = 16;
/// A client that says nothing does not keep its connection.
const PATIENCE: Duration = Duration::from_secs(60);

/// Answers a question, if it knows it.
pub(crate) type Answer = dyn Fn(&Value) -> Option<Result<Value, Failure>> + Send + Sync;

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
    let question: Option<Value> = serde_json::from_slice(line).ok();
    let unknown = || {
        Err(Failure::new(
            "'query' or 'command' is missing or not known",
            r#"for example {"query":"status"}"#,
        ))
    };
    let panicked = || {
        Some(Err(Failure::new(
            "an error of bathyd itself: what was to answer panicked",
            "the log of bathyd says where: report it",
        )))
    };
    let answered = question.and_then(|question| caught(|| answer(&question)).unwrap_or_else(panicked));
    match answered.unwrap_or_else(unknown) {
        Ok(answer) => json!({"ok": true, "answer": answer}),
        Err(Failure { message, hint }) => json!({"ok": false, "error": message, "hint": hint}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_answered_and_others_refused() {
        let answer = |question: &Value| match question["query"].as_str()? {
            "status" => Some(Ok(json!({"up": 1}))),
            "panics" => panic!("on purpose"),
            "broken" => Some(Err(Failure::new("it is broken", "mend it"))),
            _ => None,
        };
        assert_eq!(reply(br#"{"query":"status"}"#, &answer)["answer"]["up"], 1);
        assert_eq!(
            reply(br#"{"query":"broken"}"#, &answer),
            json!({"ok": false, "error": "it is broken", "hint": "mend it"})
        );
        let panicked = &reply(br#"{"query":"panics"}"#, &answer)["error"];
        assert!(
            panicked.as_str().is_some_and(|text| text.contains("panicked")),
            "{panicked}"
        );
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
