//! The control socket: one JSON object a line in, one a line out.
//!
//! The protocol is described in README.md of this crate. Whoever may connect may do everything; the socket's mode is
//! 0600.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bathy_fuse::answer_connections;
use serde_json::{Value, json};

use crate::disk::{Clock, Disk};
use crate::profile::{PROFILES, Profile};
use crate::store::PowerCut;

const LINE_BYTES_MAX: u64 = 64 << 10;
const DISCARDED_BYTES_MAX: u64 = 16 << 20;
const CONNECTIONS_MAX: usize = 32;

/// What the control commands act on.
#[derive(Debug)]
pub struct Control {
    disks: Vec<Arc<Disk>>,
    clock: Clock,
}

struct Refusal {
    message: String,
    hint: String,
}

impl Refusal {
    fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hint: hint.into(),
        }
    }
}

impl Control {
    /// Control of these disks.
    pub fn new(disks: Vec<Arc<Disk>>, clock: Clock) -> Self {
        Self { disks, clock }
    }

    /// Answer connections, each in its own thread, for as long as the process lives.
    ///
    /// # Errors
    /// Returns an error if there cannot be another thread.
    pub fn start(self: Arc<Self>, listener: UnixListener) -> io::Result<()> {
        answer_connections(listener, "control", CONNECTIONS_MAX, move |stream| {
            self.converse(stream)
        })
    }

    fn converse(&self, stream: UnixStream) -> io::Result<()> {
        let mut writer = stream.try_clone()?;
        let mut reader = BufReader::new(stream);
        let mut line = Vec::new();
        loop {
            line.clear();
            let length = reader
                .by_ref()
                .take(LINE_BYTES_MAX)
                .read_until(b'\n', &mut line)?;
            if length == 0 {
                return Ok(());
            }
            let too_long = length as u64 == LINE_BYTES_MAX && line.last() != Some(&b'\n');
            let answer = if too_long {
                refused(&Refusal::new(
                    format!("a command has at most {LINE_BYTES_MAX} bytes"),
                    "send one object a line",
                ))
            } else {
                self.command(&line)
            };
            let mut text = answer.to_string();
            text.push('\n');
            writer.write_all(text.as_bytes())?;
            if too_long {
                // Closing with unread input would take the answer from the client.
                io::copy(&mut reader.take(DISCARDED_BYTES_MAX), &mut io::sink())?;
                return Ok(());
            }
        }
    }

    /// Carry out one command.
    pub fn command(&self, line: &[u8]) -> Value {
        match self.carry_out(line) {
            Ok(mut answer) => {
                answer["ok"] = json!(true);
                answer
            }
            Err(refusal) => refused(&refusal),
        }
    }

    fn carry_out(&self, line: &[u8]) -> Result<Value, Refusal> {
        let command: Value = serde_json::from_slice(line)
            .map_err(|error| Refusal::new(format!("not JSON: {error}"), r#"for example {"op":"stats"}"#))?;
        match command["op"].as_str() {
            Some("stats") => self.stats(&command),
            Some("faults") => {
                let faults = self.chosen(&command)?.into_iter();
                Ok(
                    json!({"disks": faults.map(|it| json!({"name": it.name(), "faults": it.faults()})).collect::<Value>()}),
                )
            }
            Some("fault") => self.fault(&command),
            Some("power-cut") => self.power_cut(&command),
            Some("power-on") => {
                self.one(&command)?.power_on();
                Ok(json!({}))
            }
            Some("timing") => {
                let on = command["on"].as_bool();
                let on = on.ok_or_else(|| {
                    Refusal::new(
                        "'timing' needs 'on'",
                        r#"{"op":"timing","on":false}, for all disks or one"#,
                    )
                })?;
                self.chosen(&command)?
                    .into_iter()
                    .for_each(|disk| disk.set_timed(on));
                Ok(json!({}))
            }
            Some("profiles") => {
                Ok(json!({"profiles": PROFILES.iter().map(Profile::figures).collect::<Value>()}))
            }
            _ => {
                let known = "stats, faults, fault, power-cut, power-on, timing, profiles";
                Err(Refusal::new(
                    "'op' is missing or not known",
                    format!("one of {known}"),
                ))
            }
        }
    }

    /// The disk that the command names, or all.
    fn chosen(&self, command: &Value) -> Result<Vec<&Arc<Disk>>, Refusal> {
        match &command["disk"] {
            Value::Null => Ok(self.disks.iter().collect()),
            _ => Ok(vec![self.one(command)?]),
        }
    }

    fn one(&self, command: &Value) -> Result<&Arc<Disk>, Refusal> {
        let name = command["disk"].as_str();
        name.and_then(|name| self.disks.iter().find(|disk| disk.name() == name))
            .ok_or_else(|| {
                let names: Vec<&str> = self.disks.iter().map(|disk| disk.name()).collect();
                Refusal::new(
                    "'disk' is missing or not known",
                    format!("one of {}", names.join(", ")),
                )
            })
    }

    fn stats(&self, command: &Value) -> Result<Value, Refusal> {
        let mut disks: Value = self
            .chosen(command)?
            .into_iter()
            .map(|disk| disk.stats())
            .collect();
        if command["buckets"] == json!(false) {
            without_buckets(&mut disks);
        }
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(json!({
            "version": 1,
            "program": env!("CARGO_PKG_VERSION"),
            "pid": std::process::id(),
            "time_ns": unix.as_nanos() as u64,
            "uptime_ns": self.clock.now_ns(),
            "disks": disks,
        }))
    }

    fn fault(&self, command: &Value) -> Result<Value, Refusal> {
        match (&command["add"], &command["clear"]) {
            (Value::String(text), Value::Null) => {
                let added = self.one(command)?.add_fault(text);
                let id = added.map_err(|error| Refusal::new(error.message, error.hint))?;
                Ok(json!({"id": id}))
            }
            (Value::Null, Value::Number(id)) => {
                let disk = self.one(command)?;
                match id.as_u64().map(|id| disk.clear_faults(Some(id))) {
                    Some(1) => Ok(json!({"cleared": 1})),
                    _ => Err(Refusal::new(
                        format!("{} has no fault {id}", disk.name()),
                        "'faults' lists them",
                    )),
                }
            }
            (Value::Null, Value::String(all)) if all == "all" => {
                let cleared: usize = self
                    .chosen(command)?
                    .into_iter()
                    .map(|disk| disk.clear_faults(None))
                    .sum();
                Ok(json!({"cleared": cleared}))
            }
            _ => Err(Refusal::new(
                "'fault' needs either 'add' or 'clear'",
                r#"{"op":"fault","disk":"NAME","add":"slow=10x"}, {"op":"fault","disk":"NAME","clear":1} or "clear":"all""#,
            )),
        }
    }

    fn power_cut(&self, command: &Value) -> Result<Value, Refusal> {
        let disk = self.one(command)?;
        let cut = match command["mode"].as_str() {
            None if command["mode"].is_null() => PowerCut::Tear,
            Some("lose") => PowerCut::Lose,
            Some("reorder") => PowerCut::Reorder,
            Some("tear") => PowerCut::Tear,
            _ => return Err(Refusal::new("'mode' is not known", "one of lose, reorder, tear")),
        };
        let sector_bytes = match &command["sector"] {
            Value::Null => Some(4096),
            value => value.as_u64().filter(|bytes| [512, 4096].contains(bytes)),
        };
        let sector_bytes =
            sector_bytes.ok_or_else(|| Refusal::new("'sector' is not known", "512 or 4096"))?;
        let seed = match &command["seed"] {
            Value::Null => Some(1),
            value => value.as_u64(),
        };
        let seed = seed.ok_or_else(|| Refusal::new("'seed' is not a whole number", "from 0 on"))?;
        let stays_off = command["stay_off"].as_bool().unwrap_or(false);
        let losses = disk
            .power_cut(cut, sector_bytes, seed, stays_off)
            .map_err(|error| {
                Refusal::new(
                    format!("the data file failed: {error}"),
                    "is its file system full?",
                )
            })?;
        Ok(json!({"kept": losses.kept, "lost": losses.lost, "torn": losses.torn}))
    }
}

fn without_buckets(value: &mut Value) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(without_buckets),
        Value::Object(fields) => {
            fields.remove("buckets");
            fields.values_mut().for_each(without_buckets);
        }
        _ => {}
    }
}

fn refused(refusal: &Refusal) -> Value {
    json!({"ok": false, "error": refusal.message, "hint": refusal.hint})
}
