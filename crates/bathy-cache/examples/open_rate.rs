//! How long the start after a kill takes: the scan of the line table of a large cache, empty and full.
//!
//!     cargo run --release -p bathy-cache --example open_rate DIRECTORY [SIZE_GIB [REPEATS]]
//!
//! The SSD is a sparse file of so many GiB in DIRECTORY, which has room for its table: 2 GiB for 1 TiB. With direct I/O where
//! the file system has it; in a file system in memory it says what the processor can do. One line for each table: its bytes, the
//! lines found, and for each repeat the seconds of the whole start.
#![allow(clippy::print_stdout, reason = "the figures are its output")]

use std::error::Error;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use bathy_cache::format::{BLOCK_BYTES, Record, Superblock, UNITS_MAX};
use bathy_cache::{
    BlockStore, CreateOptions, Engine, FileIdentity, FileStore, GenerationFile, Options, create, inspect,
    open,
};

type Outcome<T> = Result<T, Box<dyn Error>>;

struct Place(PathBuf);

impl Place {
    fn file(&self, name: &str, size_bytes: u64) -> Outcome<PathBuf> {
        let path = self.0.join(name);
        File::create_new(&path)?.set_len(size_bytes)?;
        Ok(path)
    }

    fn witness(&self) -> Arc<GenerationFile> {
        Arc::new(GenerationFile::new(self.0.join("witness")))
    }

    fn ssd(&self) -> Outcome<Arc<FileStore>> {
        Ok(Arc::new(FileStore::open(&self.0.join("ssd"))?))
    }

    /// The engine is as a kill leaves it when it is dropped.
    fn open(&self) -> Outcome<Arc<Engine>> {
        Ok(open(self.ssd()?, self.witness(), &Options::default())?.engine)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _left_to_the_user = std::fs::remove_dir_all(&self.0);
    }
}

/// Fills every slot of the table with a line of the file with this number.
fn fill(ssd: &FileStore, superblock: &Superblock, file: u32) -> Outcome<()> {
    const BLOCKS_AT_ONCE: u64 = 1024;
    let geometry = superblock.geometry;
    let layout = geometry.layout();
    for shard in 0..geometry.shards {
        for first in (0..layout.table_blocks()).step_by(BLOCKS_AT_ONCE as usize) {
            let count = BLOCKS_AT_ONCE.min(layout.table_blocks() - first);
            let mut bytes = vec![0; (count * BLOCK_BYTES) as usize];
            let slots = first as u32 * layout.records_per_block() as u32..geometry.slots;
            for (slot, bytes) in slots.zip(bytes.chunks_exact_mut(layout.record_bytes())) {
                let line = u64::from(shard) * u64::from(geometry.slots) + u64::from(slot);
                let record = Record {
                    key: Some(u64::from(file) << 32 | line),
                    valid: u64::MAX >> (64 - layout.line_units()),
                    generation: superblock.generation,
                    sequence: line + 1,
                    crcs: [7; UNITS_MAX],
                };
                record.encode(&superblock.uuid, layout.record_number(shard, slot), bytes);
            }
            ssd.write(&bytes, layout.table(shard, first))?;
        }
    }
    Ok(())
}

fn measure(place: &Place, what: &str, table_bytes: u64, repeats: usize) -> Outcome<()> {
    let mut seconds = Vec::new();
    let mut lines = 0;
    for _ in 0..repeats {
        let begun = Instant::now();
        let engine = place.open()?;
        seconds.push(format!("{:.3}", begun.elapsed().as_secs_f64()));
        lines = engine.lines().0;
    }
    println!("{what} {table_bytes} {lines} {}", seconds.join(" "));
    Ok(())
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, directory, rest @ ..] = arguments.as_slice() else {
        return Err("usage: open_rate DIRECTORY [SIZE_GIB [REPEATS]]".into());
    };
    let size_gib: u64 = rest.first().map_or(Ok(1024), |text| text.parse())?;
    let repeats: usize = rest.get(1).map_or(Ok(3), |text| text.parse())?;
    let place = Place(Path::new(directory).join(format!("open-rate-{}", std::process::id())));
    std::fs::create_dir(&place.0)?;
    place.file("ssd", size_gib << 30)?;
    let source = place.file("source", 1 << 20)?;
    create(
        place.ssd()?,
        &*place.witness(),
        &CreateOptions::new(*b"open_rate's cach"),
    )?;

    let engine = place.open()?;
    let identity = FileIdentity::new([1; 16], b"source").ok_or("an identity")?;
    let file = engine.attach(identity, Arc::new(FileStore::open(&source)?))?;
    // So that the file is in the table of files.
    file.read(&mut [0; 4096], 0, 1)?;
    let number = file.number();
    drop(file);
    engine.stop()?;
    drop(engine);
    drop(place.open()?);

    let superblock = inspect(place.ssd()?)?;
    let layout = superblock.geometry.layout();
    let table_bytes = u64::from(superblock.geometry.shards) * layout.table_blocks() * BLOCK_BYTES;
    measure(&place, "empty", table_bytes, repeats)?;
    fill(&*place.ssd()?, &superblock, number)?;
    measure(&place, "full", table_bytes, repeats)
}
