//! The least that a FUSE daemon can do: one file, served from another one. The yardstick of `benchmarks/simdisk` and
//! `benchmarks/cache`.
//!
//!     passthrough DIRECTORY FILE [THREADS [normal]]
//!
//! Its threads have real-time priority, as those of the programs that it is compared with, or the normal one.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::process::ExitCode;
use std::sync::Arc;

use bathy_fuse::{Errno, FileEntry, FileService, MountOptions, Reply, StopSignals, serve};

struct Passthrough {
    file: File,
    size_bytes: u64,
}

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl FileService for Passthrough {
    fn files(&self) -> Vec<FileEntry> {
        vec![FileEntry {
            name: "disk".to_owned(),
            size_bytes: self.size_bytes,
        }]
    }

    fn read(&self, _file: usize, offset: u64, length: u32, reply: Reply<[u8]>) {
        BUFFER.with_borrow_mut(|buffer| {
            buffer.resize(length as usize, 0);
            match self.file.read_exact_at(buffer, offset) {
                Ok(()) => reply.ok(buffer),
                Err(_) => reply.error(Errno::EIO),
            }
        });
    }

    fn write(&self, _file: usize, offset: u64, data: &[u8], _durable: bool, reply: Reply<()>) {
        match self.file.write_all_at(data, offset) {
            Ok(()) => reply.done(),
            Err(_) => reply.error(Errno::EIO),
        }
    }

    fn sync(&self, _file: usize, reply: Reply<()>) {
        reply.done();
    }

    fn discard(&self, _file: usize, _offset: u64, _length: u64, reply: Reply<()>) {
        reply.error(Errno::EOPNOTSUPP);
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, directory, path, rest @ ..] = arguments.as_slice() else {
        eprintln!("usage: passthrough DIRECTORY FILE [THREADS [normal]]");
        return ExitCode::from(2);
    };
    let threads = rest.first().and_then(|text| text.parse().ok()).unwrap_or(2);
    let opened = OpenOptions::new().read(true).write(true).open(path);
    let served = opened.and_then(|file| {
        let size_bytes = file.metadata()?.len();
        let options = MountOptions {
            directory: directory.into(),
            program: "bathy-passthrough",
            threads,
            real_time: rest.get(1).is_none_or(|text| text != "normal"),
        };
        let signals = StopSignals::block()?;
        let service = Arc::new(Passthrough { file, size_bytes });
        serve(service, &options, &signals, || eprintln!("ready"), || {}).map_err(std::io::Error::other)
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}
