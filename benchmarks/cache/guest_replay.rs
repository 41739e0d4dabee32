//! What runs requests in the guest of `peers_in_guest.py`: `replay run TRACE TARGET`, `replay ask SOCKET LINE`.
//!
//! Built by `rustc` with no crate, and static, so that the guest needs no libraries for it. One request at a time and past
//! the page cache: what a cache does then depends on the order of the requests alone.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Error, Result, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;

const O_DIRECT: i32 = 0o40000;
const ALIGNMENT: usize = 4096;
/// Offset and length in bytes, and 1 for a write: little-endian u64, u32 and u32.
const RECORD_BYTES: usize = 16;

fn run(trace: &str, target: &str) -> Result<()> {
    let trace = std::fs::read(trace)?;
    let records = || {
        trace.chunks_exact(RECORD_BYTES).map(|it| {
            let field =
                |at: usize| u64::from(u32::from_le_bytes([it[at], it[at + 1], it[at + 2], it[at + 3]]));
            (field(0) | field(4) << 32, field(8) as usize, field(12) == 1)
        })
    };
    let longest = records().map(|(_, length, _)| length).max().unwrap_or(0);
    let mut space = vec![0x5a; longest + ALIGNMENT];
    let from = space.as_ptr().align_offset(ALIGNMENT);
    let buffer = &mut space[from..from + longest];
    let file: File = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(O_DIRECT)
        .open(target)?;
    for (offset, length, is_write) in records() {
        let part = &mut buffer[..length];
        let failed = if is_write {
            file.write_all_at(part, offset)
        } else {
            file.read_exact_at(part, offset)
        };
        failed.map_err(|error| Error::other(format!("{length} bytes at {offset} of {target}: {error}")))?;
    }
    Ok(())
}

fn ask(socket: &str, line: &str) -> Result<()> {
    let mut connection = UnixStream::connect(socket)?;
    writeln!(connection, "{line}")?;
    let mut answer = String::new();
    BufReader::new(connection).read_line(&mut answer)?;
    print!("{answer}");
    Ok(())
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let ended = match arguments[..] {
        ["run", trace, target] => run(trace, target),
        ["ask", socket, line] => ask(socket, line),
        _ => Err(Error::other(
            "usage: replay run TRACE TARGET, or replay ask SOCKET LINE",
        )),
    };
    if let Err(error) = ended {
        eprintln!("replay: {error}");
        std::process::exit(1);
    }
}
