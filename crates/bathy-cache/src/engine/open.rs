//! How a cache begins: made, found clean, found after a power cut, or found to be of no use.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bathy_cache_model::{AdmissionOptions, CacheConfig, LineSize, MemoryBudget, OverBudget};
use bathy_policy::{CachePolicy, Policy, PolicyKind, StateRecord};

use crate::engine::Engine;
use crate::engine::options::Options;
use crate::engine::shard::Shard;
use crate::engine::shard_state::{Model, ShardState, new_model};
use crate::format::generation_store::GenerationStore;
use crate::format::number_of;
use crate::format::{
    BLOCK_BYTES, EXTENTS_MAX, Extent, Geometry, GeometryError, Layout, Record, StateBlock, Superblock,
    SuperblockError, UNIT_BYTES, Uuid,
};
use crate::index::files::Files;
use crate::index::intent::Intent;
use crate::index::table::{Records, Table};
use crate::store::ssd::Area;
use crate::store::ssd::Ssd;
use crate::store::{BlockStore, Stamp};

/// The sizes of a new cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CreateOptions {
    /// Names the cache: random bytes.
    pub uuid: Uuid,
    /// Bytes of the SSD that the cache takes at most; `None`: all of them.
    pub size_bytes: Option<u64>,
    /// Line size: 4 KiB to 256 KiB.
    pub line: LineSize,
    /// Parts with a lock each.
    pub shards: u32,
    /// Bytes of a file that one bit of intent stands for.
    pub region_bytes: u64,
    /// Bits of intent: an eighth of a byte of memory each, and a quarter more for each source that writes.
    pub intent_bits: u64,
    /// One of [`CachePolicy::KINDS`].
    pub policy: PolicyKind,
    /// What it may take of memory when it is run.
    pub memory: MemoryBudget,
}

impl CreateOptions {
    /// Lines of 64 KiB, 16 shards, a million bits for regions of 4 MiB, S3-FIFO.
    ///
    /// # Panics
    /// Never.
    pub fn new(uuid: Uuid) -> Self {
        Self {
            uuid,
            size_bytes: None,
            line: LineSize::new(65_536).expect("a power of two"),
            shards: 16,
            region_bytes: 4 << 20,
            intent_bits: 1 << 20,
            policy: PolicyKind::S3Fifo,
            memory: MemoryBudget::default(),
        }
    }
}

impl CreateOptions {
    /// What a cache is on an SSD of `ssd_bytes`.
    pub(crate) fn geometry(&self, ssd_bytes: u64) -> Result<Geometry, CreateError> {
        if !CachePolicy::KINDS.contains(&self.policy) {
            return Err(CreateError::Policy(self.policy));
        }
        let geometry = Geometry {
            line_bytes: self.line.bytes().min(u64::from(u32::MAX)) as u32,
            shards: self.shards,
            slots: 1,
            region_bytes: self.region_bytes,
            intent_bits: self.intent_bits,
            extents: [Extent::default(); EXTENTS_MAX],
        };
        geometry.with_slots(1).check()?;
        let size_bytes = self.size_bytes.unwrap_or(u64::MAX).min(ssd_bytes);
        let geometry = geometry
            .that_fits(size_bytes)
            .ok_or(CreateError::TooSmall(size_bytes))?;
        self.memory.check(geometry.slots_total(), geometry.line())?;
        Ok(geometry)
    }

    /// Whether a cache can be made on an SSD of `ssd_bytes`.
    ///
    /// # Errors
    /// If it is too small, or the options are not supported.
    pub fn check(&self, ssd_bytes: u64) -> Result<(), CreateError> {
        self.geometry(ssd_bytes).map(|_| ())
    }
}

/// Why a cache was not made.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The SSD is too small for one line of each shard.
    #[error("the SSD is too small for a cache: it has {0} bytes")]
    TooSmall(u64),
    /// It needs more memory than it may take.
    #[error(transparent)]
    OverBudget(#[from] OverBudget),
    /// The policy is not one that a cache runs.
    #[error("a cache runs s3-fifo, clock2q+ or lru (got {0})")]
    Policy(PolicyKind),
    /// A size is not supported.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// The SSD or the generation store failed.
    #[error("the cache cannot be written: {0}")]
    Io(#[from] io::Error),
}

/// Why a cache was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It is no cache of this version.
    #[error("{0}")]
    Superblock(#[from] SuperblockError),
    /// The SSD is smaller than the cache on it.
    #[error("the cache takes {needed_bytes} bytes and the SSD has {ssd_bytes}")]
    SsdTooSmall {
        /// Bytes of the cache.
        needed_bytes: u64,
        /// Bytes of the SSD.
        ssd_bytes: u64,
    },
    /// No superblock could be read, or the generation store failed.
    #[error("the cache cannot be opened: {0}")]
    Io(#[from] io::Error),
}

/// Why nothing of the cache's content was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColdReason {
    /// The generation store has no generation, or another one: the SSD was given up, or it comes from elsewhere.
    Generation,
    /// It has had so many files that numbers for new ones run out.
    Numbers,
}

/// How a cache was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// After a clean stop: every line.
    Clean,
    /// After another: every line whose record is there, apart from those in marked regions. Files that changed since are
    /// found when they are attached.
    Unclean {
        /// Regions that were marked.
        marked_regions: u64,
        /// Lines that were dropped for it.
        dropped_lines: u64,
    },
    /// With nothing.
    Cold(ColdReason),
    /// The SSD cannot be written: files are used without it.
    Bypassed,
}

/// A cache in use.
pub struct Opened {
    /// The cache.
    pub engine: Arc<Engine>,
    /// How it was found.
    pub recovery: Recovery,
}

/// Makes an SSD a cache. What it held is lost. The cache is to be opened then.
///
/// # Errors
/// If the SSD is too small, the options are not supported, or one of both cannot be written.
pub fn create(
    ssd: Arc<dyn BlockStore>,
    generations: &dyn GenerationStore,
    options: &CreateOptions,
) -> Result<(), CreateError> {
    let ssd = Options::default().ssd(ssd);
    let geometry = options.geometry(ssd.size_bytes()?)?;
    let superblock = Superblock {
        uuid: options.uuid,
        sequence: 0,
        generation: generations.load().unwrap_or(0) + 1,
        is_clean: false,
        geometry,
        policy: options.policy,
        next_file: 1,
        stage_slots: geometry.stage_slots(options.memory),
    };
    Intent::new(options.uuid, &geometry).store(&ssd)?;
    ssd.flush()?;
    store_superblocks(superblock, &ssd)?;
    generations.store(superblock.generation)?;
    Ok(())
}

/// Writes a superblock to both places, one after the other, and returns the one that counts.
fn store_superblocks(mut superblock: Superblock, ssd: &Ssd) -> io::Result<Superblock> {
    for _ in 0..2 {
        superblock.sequence += 1;
        let place = superblock.geometry.layout().superblock(superblock.place());
        ssd.write(Area::Superblocks, superblock.encode()[..].into(), place)?;
        ssd.flush()?;
    }
    Ok(superblock)
}

/// The superblock that counts.
pub(crate) fn load_superblock(ssd: &Ssd) -> Result<Superblock, OpenError> {
    let load = |number: u64| -> Result<Superblock, OpenError> {
        let bytes = ssd.read(BLOCK_BYTES as usize, number * BLOCK_BYTES)?;
        Ok(Superblock::decode(&bytes)?)
    };
    match (load(0), load(1)) {
        (Ok(one), Ok(other)) => Ok(if one.sequence > other.sequence { one } else { other }),
        (Ok(one), Err(_)) | (Err(_), Ok(one)) => Ok(one),
        (Err(OpenError::Superblock(SuperblockError::NotACache)), Err(error)) | (Err(error), Err(_)) => {
            Err(error)
        }
    }
}

/// What an SSD says of the cache that it holds. Nothing is written.
///
/// # Errors
/// If it holds no cache of this version, or cannot be read.
pub fn inspect(ssd: Arc<dyn BlockStore>) -> Result<Superblock, OpenError> {
    load_superblock(&Options::default().ssd(ssd))
}

/// Whether an SSD answers again: a block that holds nothing is written, flushed and read back, each within `within`. What the
/// SSD says of its cache.
///
/// # Errors
/// If it does not, or holds no cache of this version.
pub fn probe(ssd: Arc<dyn BlockStore>, within: Duration) -> Result<Superblock, OpenError> {
    let options = Options {
        ssd_deadline: Some(within),
        ssd_write_deadline: Some(within),
        ..Options::default()
    };
    let ssd = options.ssd(ssd);
    let found = load_superblock(&ssd)?;
    let place = found.geometry.layout().scratch();
    let mut bytes = ssd.read(BLOCK_BYTES as usize, place)?;
    // Other bytes than before.
    bytes.iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
    ssd.write(Area::Superblocks, bytes[..].into(), place)?;
    ssd.flush()?;
    if ssd.read(BLOCK_BYTES as usize, place)?[..] != bytes[..] {
        return Err(io::Error::other("the SSD does not keep what is written to it").into());
    }
    Ok(found)
}

/// A cold start comes before numbers run out within a session.
const NEXT_FILE_MAX: u32 = 1 << 31;

/// Whether the content of the cache is of no use.
fn cold_reason(superblock: &Superblock, stored: Option<u64>) -> Option<ColdReason> {
    if stored != Some(superblock.generation) {
        return Some(ColdReason::Generation);
    }
    (superblock.next_file > NEXT_FILE_MAX).then_some(ColdReason::Numbers)
}

/// Opens a cache.
///
/// # Errors
/// If the SSD holds no cache of this version, or the generation store fails. An SSD that can be read but not written is no error: files
/// are used without it.
pub fn open(
    ssd: Arc<dyn BlockStore>,
    generations: Arc<dyn GenerationStore>,
    options: &Options,
) -> Result<Opened, OpenError> {
    let ssd = Arc::new(options.ssd(ssd));
    let ssd_bytes = ssd.size_bytes()?;
    let found = load_superblock(&ssd)?;
    let needed_bytes = found.geometry.layout().end();
    if needed_bytes > ssd_bytes {
        return Err(OpenError::SsdTooSmall {
            needed_bytes,
            ssd_bytes,
        });
    }
    let known = generations.load();
    let cold = cold_reason(&found, known);
    let mut superblock = Superblock {
        is_clean: false,
        stage_slots: found.geometry.stage_slots(options.memory),
        ..found
    };
    if cold.is_some() {
        superblock.generation = found.generation.max(known.unwrap_or(0)) + 1;
        superblock.next_file = 1;
    }
    let opening = Opening {
        ssd: &ssd,
        superblock,
        layout: Arc::new(superblock.geometry.layout()),
        options,
        stage_before: found.slots_in_memory(),
    };
    let prepared = match cold {
        Some(reason) => opening.cold(reason),
        None if found.is_clean => opening.clean(&found),
        None => opening.unclean(),
    };
    // From here on the SSD says that it is in use; nothing went to a file before.
    let stored = prepared.and_then(|prepared| {
        let superblock = Superblock {
            next_file: prepared.files.next_number,
            ..superblock
        };
        Ok((prepared, store_superblocks(superblock, &ssd)?))
    });
    let is_stored = stored.is_ok();
    let (prepared, superblock) = stored.unwrap_or_else(|_| (opening.empty(), superblock));
    let Prepared {
        shards,
        intent,
        files,
        recovery,
    } = prepared;
    if is_stored && known != Some(superblock.generation) {
        // Last, so that a cache that is half made stays cold.
        generations.store(superblock.generation)?;
    }
    let engine = Engine::new(ssd, generations, &superblock, options, shards, intent, files);
    if !is_stored {
        engine.bypass()?;
    }
    Ok(Opened {
        engine: Arc::new(engine),
        recovery,
    })
}

/// An engine that caches nothing. Its files have the numbers of no content, unless one is named.
pub(crate) fn without_ssd(
    generations: Arc<dyn GenerationStore>,
    options: &Options,
    content: (Uuid, u64),
) -> Engine {
    let ssd = Arc::new(options.ssd(Arc::new(NoSsd)));
    ssd.close();
    let superblock = Superblock {
        uuid: content.0,
        sequence: 0,
        generation: content.1,
        is_clean: false,
        geometry: Geometry {
            line_bytes: UNIT_BYTES as u32,
            shards: 1,
            slots: 1,
            region_bytes: 1 << 40,
            intent_bits: 1,
            extents: [Extent::default(); EXTENTS_MAX],
        }
        .with_slots(1),
        policy: PolicyKind::S3Fifo,
        next_file: 1,
        stage_slots: 0,
    };
    let opening = Opening {
        ssd: &ssd,
        superblock,
        layout: Arc::new(superblock.geometry.layout()),
        options,
        stage_before: 0,
    };
    let empty = opening.empty();
    let ssd = Arc::clone(&ssd);
    let Prepared {
        shards,
        intent,
        files,
        ..
    } = empty;
    let engine = Engine::new(ssd, generations, &superblock, options, shards, intent, files);
    engine.begin_bypassed();
    engine
}

/// Where there is no SSD.
struct NoSsd;

fn no_ssd<T>() -> io::Result<T> {
    Err(io::ErrorKind::NotFound.into())
}

impl BlockStore for NoSsd {
    fn read(&self, _buffer: &mut [u8], _offset: u64) -> io::Result<()> {
        no_ssd()
    }

    fn write(&self, _data: &[u8], _offset: u64) -> io::Result<()> {
        no_ssd()
    }

    fn flush(&self) -> io::Result<()> {
        no_ssd()
    }

    fn stamp(&self) -> io::Result<Stamp> {
        no_ssd()
    }

    fn size_bytes(&self) -> io::Result<u64> {
        no_ssd()
    }
}

/// What an engine is made of.
struct Prepared {
    shards: Vec<Shard>,
    intent: Intent,
    files: Files,
    recovery: Recovery,
}

/// What the records of a shard say.
struct Scanned {
    shard: Shard,
    dropped_lines: u64,
    /// The highest number of a file.
    number_max: u32,
}

struct Opening<'a> {
    ssd: &'a Arc<Ssd>,
    superblock: Superblock,
    /// That of the superblock's geometry.
    layout: Arc<Layout>,
    options: &'a Options,
    /// Slots of each shard that were in memory in the session before.
    stage_before: u32,
}

impl Opening<'_> {
    fn new_shard(&self, number: u32) -> Shard {
        let Superblock {
            uuid,
            sequence,
            generation,
            geometry,
            policy,
            ..
        } = self.superblock;
        let budget = self.options.admission.write_budget_bytes_per_day;
        let config = CacheConfig {
            line: geometry.line(),
            unit_bytes: UNIT_BYTES,
            fetch: self.options.fetch_of(geometry.line()),
            write_mode: self.options.write_mode,
            admission: AdmissionOptions {
                // Keys are dealt out evenly.
                write_budget_bytes_per_day: budget.map(|bytes| bytes / u64::from(geometry.shards)),
                ..self.options.admission
            },
        };
        // In small caches no more than about two bytes a line.
        let pending = self
            .options
            .pending_records
            .min((geometry.slots / 64).max(32) as usize);
        // The superblocks of this session are stored with higher sequences than the ones before.
        let session = sequence + 1;
        let layout = || Arc::clone(&self.layout);
        let table = Table::new(geometry.slots, generation, session, layout(), pending);
        let records = Records::new(number, uuid, generation, layout());
        let model = new_model(config, policy, geometry.slots, self.superblock.slots_in_memory());
        let state = ShardState::new(geometry.line_bytes as usize, model, table);
        let ssd = Arc::clone(self.ssd);
        Shard::new(number, uuid, layout(), ssd, records, geometry.line_bytes, state)
    }

    fn new_intent(&self) -> Intent {
        Intent::new(self.superblock.uuid, &self.superblock.geometry)
    }

    fn new_files(&self) -> Files {
        let Superblock {
            uuid,
            generation,
            geometry,
            next_file,
            ..
        } = self.superblock;
        Files::new(
            uuid,
            generation,
            &geometry.layout(),
            geometry.files_max(),
            next_file,
            geometry.slots_total(),
            self.options.new_source(&self.superblock.geometry),
        )
    }

    fn files(&self) -> io::Result<Files> {
        let mut files = self.new_files();
        files.load(self.options.was_fenced, self.ssd)?;
        Ok(files)
    }

    fn empty(&self) -> Prepared {
        Prepared {
            shards: (0..self.superblock.geometry.shards)
                .map(|number| self.new_shard(number))
                .collect(),
            intent: self.new_intent(),
            files: self.new_files(),
            recovery: Recovery::Bypassed,
        }
    }

    /// Records of the old generation are void, so the line table need not be touched.
    fn cold(&self, reason: ColdReason) -> io::Result<Prepared> {
        let empty = self.empty();
        empty.intent.store(self.ssd)?;
        self.ssd.flush()?;
        Ok(Prepared {
            recovery: Recovery::Cold(reason),
            ..empty
        })
    }

    fn clean(&self, found: &Superblock) -> io::Result<Prepared> {
        let files = self.files()?;
        let numbers = files.numbers();
        let prepared = Prepared {
            shards: (0..found.geometry.shards)
                .map(|number| self.clean_shard(number, found.sequence, &numbers))
                .collect::<io::Result<_>>()?,
            intent: self.new_intent(),
            files,
            recovery: Recovery::Clean,
        };
        // A clean stop leaves bits behind that say nothing any more.
        prepared.intent.store(self.ssd)?;
        self.ssd.flush()?;
        Ok(prepared)
    }

    fn clean_shard(&self, number: u32, sequence: u64, numbers: &HashSet<u32>) -> io::Result<Shard> {
        // A state is one of places, which are others with a stage of another size.
        let is_stage_same = self.stage_before == self.superblock.slots_in_memory();
        let state = if is_stage_same {
            self.state(number, sequence)?
        } else {
            None
        };
        if let Some(entries) = state {
            let shard = self.new_shard(number);
            let lines = self.unparked(&shard, entries, numbers);
            if shard.lock().model.import(lines.into_iter()).is_ok() {
                return Ok(shard);
            }
        }
        // Without the state the lines are known by their records.
        let drops = |key| !numbers.contains(&number_of(key));
        Ok(self.scan(number, true, &drops)?.shard)
    }

    /// The state of a shard, if all of it is there.
    fn state(&self, shard: u32, sequence: u64) -> io::Result<Option<Vec<(StateRecord, u64)>>> {
        let layout = &self.layout;
        let mut entries = Vec::new();
        for number in 0..layout.state_blocks() {
            let bytes = self.ssd.read(BLOCK_BYTES as usize, layout.state(shard, number))?;
            let Some(block) = StateBlock::decode(
                layout.line_units(),
                &self.superblock.uuid,
                sequence,
                shard,
                number,
                &bytes,
            ) else {
                return Ok(None);
            };
            entries.extend(block.entries);
            if block.is_last {
                return Ok(Some(entries));
            }
        }
        Ok(None)
    }

    /// The state without the lines of unknown files, and those in memory that cannot be read back.
    fn unparked(
        &self,
        shard: &Shard,
        entries: Vec<(StateRecord, u64)>,
        numbers: &HashSet<u32>,
    ) -> Vec<(StateRecord, u64)> {
        let slots = self.superblock.geometry.slots;
        let stage_start = shard.lock().stage_start;
        let keep = |entry: &(StateRecord, u64)| match *entry {
            (StateRecord::Line { key, .. }, _) if !numbers.contains(&number_of(key)) => false,
            (StateRecord::Line { slot, key, .. }, units) if (stage_start..slots).contains(&slot) => {
                shard.unpark(key, slot, units)
            }
            _ => true,
        };
        entries.into_iter().filter(|entry| keep(entry)).collect()
    }

    fn unclean(&self) -> io::Result<Prepared> {
        let intent = self.new_intent();
        intent.load(self.ssd)?;
        let mut files = self.files()?;
        let numbers = files.numbers();
        let mut shards = Vec::new();
        let mut dropped_lines = 0;
        let drops = |key: u64| intent.is_line_marked(key) || !numbers.contains(&number_of(key));
        for number in 0..self.superblock.geometry.shards {
            let scanned = self.scan(number, false, &drops)?;
            dropped_lines += scanned.dropped_lines;
            // No number that a line has is given again.
            files.next_number = files.next_number.max(scanned.number_max.saturating_add(1));
            shards.push(scanned.shard);
        }
        Ok(Prepared {
            shards,
            recovery: Recovery::Unclean {
                marked_regions: intent.marked(),
                dropped_lines,
            },
            intent,
            files,
        })
    }

    /// Takes the lines of a shard from its records, apart from those that are to be dropped: how many those are.
    fn scan(&self, number: u32, with_memory: bool, drops: &dyn Fn(u64) -> bool) -> io::Result<Scanned> {
        let shard = self.new_shard(number);
        let slots = self.superblock.geometry.slots;
        let (mut lines, mut dropped, mut stale) = (Vec::new(), Vec::new(), Vec::new());
        let stage_start = shard.lock().stage_start;
        let stage_start_before = slots - self.stage_before;
        let mut number_max = 0;
        shard.scan(slots, &mut |slot, record| {
            let Record {
                key: Some(key),
                valid,
                sequence,
                ..
            } = record
            else {
                return;
            };
            number_max = number_max.max(number_of(key));
            // What is in memory lies on the SSD after a clean stop only. Else the records of slots that were there before say
            // what they held at some stop long ago: nobody may believe them later.
            if !with_memory && slot >= stage_start.min(stage_start_before) {
                if slot < stage_start {
                    stale.push(slot);
                }
                return;
            }
            if drops(key) {
                dropped.push(slot);
            } else if valid != 0 {
                lines.push((key, sequence, slot, valid));
            }
        })?;
        // A line that moved may have a record at its old slot too, if the power failed before that was written.
        lines.sort_unstable_by_key(|&(key, sequence, ..)| (key, std::cmp::Reverse(sequence)));
        let dropped_lines = dropped.len() as u64;
        let mut newest = None;
        lines.retain(|&(key, _, slot, _)| {
            let is_newest = newest != Some(key);
            newest = Some(key);
            if !is_newest {
                dropped.push(slot);
            }
            is_newest
        });
        // In the order of slots, in which they came.
        lines.sort_unstable_by_key(|&(_, _, slot, _)| slot);
        lines.retain(|&(key, _, slot, valid)| slot < stage_start || shard.unpark(key, slot, valid));
        for slot in dropped {
            // Before their region's bit can go, this must be on the SSD; it waits as any changed record does.
            shard.change(|state| state.table.put(slot, &Record::default()));
        }
        if !stale.is_empty() {
            for slot in stale {
                shard.change(|state| state.table.put(slot, &Record::default()));
            }
            // Before a superblock says that they are not in memory.
            shard.write_out()?;
            self.ssd.flush()?;
        }
        import_lines(&mut shard.lock().model, &lines);
        Ok(Scanned {
            shard,
            dropped_lines,
            number_max,
        })
    }
}

fn import_lines(model: &mut Model, lines: &[(u64, u64, u32, u64)]) {
    let records = lines.iter().map(|&(key, _, slot, valid)| {
        let record = StateRecord::Line {
            slot,
            key,
            references: 0,
        };
        (record, valid)
    });
    let imported = model.import(records);
    debug_assert!(imported.is_ok(), "slots and keys are there once: {imported:?}");
    debug_assert_eq!(model.policy().len(), lines.len());
}
