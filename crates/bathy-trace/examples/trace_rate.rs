//! Reads traces and prints the rate and a hash of the events, so that the work cannot be optimised away and two
//! readers of the same trace can be compared.
//!
//! ```text
//! cargo run --release --example trace_rate -- [--format NAME] [--skip] [--repeat N] FILE...
//! ```
//!
//! Prints one line per file on stdout: format, events, MB (of the trace, after decompression), MB/s, million events
//! per second, hash. The rate includes opening and, where the file is not in the page cache, the disk.

use std::io::{Write, stdout};
use std::process::ExitCode;
use std::time::Instant;

use bathy_trace::{EventBatch, Format, OnBadRecord, OpenOptions, ReadReport, TraceError, open};

fn main() -> ExitCode {
    if cfg!(debug_assertions) {
        eprintln!("warning: a debug build; rates say nothing");
    }
    let mut format = None;
    let mut options = OpenOptions::default();
    let mut repeat = 1;
    let mut paths = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--format" => match arguments.next().unwrap_or_default().parse::<Format>() {
                Ok(named) => format = Some(named),
                Err(error) => return fail(&error),
            },
            "--skip" => options.on_bad_record = OnBadRecord::Skip,
            "--repeat" => {
                repeat = arguments
                    .next()
                    .and_then(|count| count.parse().ok())
                    .unwrap_or(1)
                    .max(1);
            }
            _ => paths.push(argument),
        }
    }
    for path in &paths {
        let mut best_seconds = f64::INFINITY;
        let mut result = None;
        for _ in 0..repeat {
            let start = Instant::now();
            match read(path, format, &options) {
                Ok(read) => result = Some(read),
                Err(error) => return fail(&error),
            }
            best_seconds = best_seconds.min(start.elapsed().as_secs_f64());
        }
        let Some((format, report, hash)) = result else {
            continue;
        };
        print_line(path, format, &report, hash, best_seconds);
    }
    ExitCode::SUCCESS
}

fn fail(error: &TraceError) -> ExitCode {
    eprintln!("error: {error}");
    ExitCode::from(2)
}

fn print_line(path: &str, format: Format, report: &ReadReport, hash: u64, seconds: f64) {
    let megabytes = report.bytes_read as f64 / 1e6;
    let rate = megabytes / seconds;
    let events_rate = report.events as f64 / seconds / 1e6;
    let line = format!(
        "{path}: {format}, {} events, {} bad, {} ignored, {megabytes:.1} MB, {rate:.0} MB/s, {events_rate:.1} M events/s, \
         hash {hash:016x}",
        report.events, report.records_bad, report.records_ignored
    );
    // A closed pipe is no failure of the measurement.
    let _ = writeln!(stdout(), "{line}");
    for bad in &report.first_errors {
        eprintln!("{path}: {bad}");
    }
}

fn read(
    path: &str,
    format: Option<Format>,
    options: &OpenOptions,
) -> Result<(Format, ReadReport, u64), TraceError> {
    let mut reader = open(path, format, options)?;
    let mut batch = EventBatch::with_capacity(options.batch_events);
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    while reader.next_batch(&mut batch)? > 0 {
        for event in batch.iter() {
            let words = [
                event.time_ns,
                event.offset_bytes,
                (u64::from(event.length_bytes) << 8) | event.op as u64,
                (u64::from(event.volume) << 32) | u64::from(event.osd),
                (u64::from(event.pool) << 32) | u64::from(event.latency_ns),
            ];
            for word in words {
                hash = (hash.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            }
        }
    }
    Ok((reader.format(), reader.report().clone(), hash))
}
