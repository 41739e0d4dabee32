//! Writes the corpora that the targets of `fuzz/` start from: the samples of the tests and the seeds of the fuzzer.
//!
//! ```text
//! cargo run --example fuzz_corpus
//! ```
//!
//! One file per sample and target under `fuzz/corpus`; each is the start of a sample, as libFuzzer does best with
//! small inputs. What earlier runs of the fuzzer found stays.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use bathy_trace::Format;

/// Longest seed.
const BYTES_MAX: usize = 4096;

fn main() -> io::Result<()> {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let samples = crate_folder.join("../../tests/fixtures/traces");
    let seeds = crate_folder.join("fuzz/seeds");
    let corpus = crate_folder.join("fuzz/corpus");
    for (number, format) in Format::ALL.iter().enumerate() {
        let name = format.name();
        for path in files(&samples.join(name))?
            .into_iter()
            .chain(files(&seeds.join(name))?)
        {
            let trace = start_of(&path)?;
            // The first byte of the target `formats` is the number of the format.
            write(
                &corpus.join("formats"),
                name,
                &path,
                &[&[number as u8], &trace[..]].concat(),
            )?;
            write(&corpus.join("detect"), name, &path, &trace)?;
            if matches!(format, Format::OpHistory | Format::OsdLog | Format::OsdMessages) {
                write(&corpus.join("ceph"), name, &path, &trace)?;
            }
        }
    }
    let csv = Format::ALL
        .iter()
        .position(|&format| format == Format::Csv)
        .unwrap_or(0);
    for path in files(&seeds.join("compressed"))? {
        let trace = start_of(&path)?;
        write(
            &corpus.join("formats"),
            "compressed",
            &path,
            &[&[csv as u8], &trace[..]].concat(),
        )?;
        write(&corpus.join("detect"), "compressed", &path, &trace)?;
    }
    Ok(())
}

fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect()
}

fn start_of(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = fs::read(path)?;
    bytes.truncate(BYTES_MAX);
    Ok(bytes)
}

fn write(folder: &Path, format: &str, sample: &Path, bytes: &[u8]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let name = sample.file_name().expect("a sample has a name").to_string_lossy();
    fs::write(folder.join(format!("{format}-{name}")), bytes)
}
