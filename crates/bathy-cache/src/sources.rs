//! Sources: what becomes of their requests, how much of the cache they may have, and how one is left while others are served.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use bathy_cache_model::{FetchSize, WriteMode};

use crate::backing_cost::{BackingCost, ReadCost};
use crate::curve::{CurveOptions, MissRatioCurve, OnlineCurve};
use crate::engine::{Engine, Options, lock};
use crate::files::{FileState, number_of};
use crate::format::Uuid;
use crate::residency::Usage;
use crate::stats::SourceCounts;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU8, Ordering};

/// What becomes of the requests of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceMode {
    /// What is read is cached, and writes do as it says.
    Cached(WriteMode),
    /// Nothing enters the cache, and what is written leaves it.
    PassThrough,
}

/// A source of which files are or were cached.
pub(crate) struct Source {
    /// By which `Residency` knows it.
    pub(crate) number: u16,
    pub(crate) counts: Arc<Mutex<SourceCounts>>,
    pub(crate) cost: Arc<BackingCost>,
    pub(crate) curve: Arc<OnlineCurve>,
    mode: AtomicU8,
}

/// How a source begins.
#[derive(Clone, Copy)]
pub(crate) struct NewSource {
    write_mode: WriteMode,
    break_even_bytes: u64,
    is_backing_measured: bool,
    pub(crate) curve: CurveOptions,
}

impl NewSource {
    pub(crate) fn of(options: &Options, curve: CurveOptions) -> Self {
        let (break_even_bytes, is_adaptive) = match options.fetch {
            FetchSize::Adaptive { break_even_bytes } => (break_even_bytes, true),
            FetchSize::Fixed(_) => (0, false),
        };
        Self {
            write_mode: options.write_mode,
            break_even_bytes,
            is_backing_measured: is_adaptive && options.is_backing_measured,
            curve,
        }
    }
}

/// What misses of a source fetch at the moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SourceFetch {
    /// Whether the size is adaptive.
    pub is_adaptive: bool,
    /// The smallest fetch size of a shard.
    pub bytes_min: u64,
    /// The largest one: each shard measures for itself how neighbours are used.
    pub bytes_max: u64,
    /// What the disk takes for a read, if it is measured and there was one.
    pub cost: Option<ReadCost>,
}

const ABANDONED: u8 = 4;

fn code(mode: SourceMode) -> u8 {
    match mode {
        SourceMode::Cached(WriteMode::Allocate) => 0,
        SourceMode::Cached(WriteMode::Update) => 1,
        SourceMode::Cached(WriteMode::Invalidate) => 2,
        SourceMode::PassThrough => 3,
    }
}

impl Source {
    pub(crate) fn new(number: u16, new: NewSource) -> Self {
        Self {
            number,
            counts: Arc::default(),
            cost: Arc::new(BackingCost::new(new.break_even_bytes, new.is_backing_measured)),
            curve: Arc::new(OnlineCurve::of_source(new.curve)),
            mode: AtomicU8::new(code(SourceMode::Cached(new.write_mode))),
        }
    }

    /// The same source under another number of `Residency`, with the same counts and a curve of what keys mean there.
    pub(crate) fn numbered(&self, number: u16, curve: &Arc<OnlineCurve>) -> Self {
        Self {
            number,
            counts: Arc::clone(&self.counts),
            cost: Arc::clone(&self.cost),
            curve: Arc::clone(curve),
            mode: AtomicU8::new(self.mode.load(Ordering::Acquire)),
        }
    }

    /// Whether what is read enters the cache.
    pub(crate) fn is_read_cached(&self) -> bool {
        self.mode.load(Ordering::Acquire) < code(SourceMode::PassThrough)
    }

    /// What becomes of a write.
    pub(crate) fn write_mode(&self) -> WriteMode {
        match self.mode.load(Ordering::Acquire) {
            0 => WriteMode::Allocate,
            1 => WriteMode::Update,
            _ => WriteMode::Invalidate,
        }
    }

    /// Its files may be changed without the cache, which has nothing more to do with them.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.mode.load(Ordering::Acquire) == ABANDONED
    }
}

impl Engine {
    /// A curve, of at most so many lines, goes on if this is the cache that it is of. Without an SSD it waits for the next one.
    pub(crate) fn let_curve_go_on(&self, curve: &OnlineCurve, lines_max: Option<u64>) {
        if self.is_bypassed() {
            return;
        }
        let all = lock(&self.files).new_source.curve;
        let lines_max = lines_max.unwrap_or(u64::MAX);
        curve.go_on(CurveOptions {
            capacity_lines: lines_max.min(all.capacity_lines),
            ..all
        });
    }

    /// The counts of a source since the start, and as they go on.
    pub fn source_counts(&self, source: &Uuid) -> Arc<Mutex<SourceCounts>> {
        Arc::clone(&lock(&self.files).source(source).counts)
    }

    /// What the cache has of a source.
    pub fn usage(&self, source: &Uuid) -> Usage {
        let source = lock(&self.files).source(source);
        self.residency.of_source(source.number)
    }

    /// What LRU caches of a quarter to eight times its share, for the source alone, would have served. `None` before the first
    /// reads.
    pub fn source_curve(&self, source: &Uuid) -> Option<MissRatioCurve> {
        let source = lock(&self.files).source(source);
        source.curve.now()
    }

    /// What misses of a source fetch.
    pub fn fetch(&self, source: &Uuid) -> SourceFetch {
        let source = lock(&self.files).source(source);
        let break_even_bytes = source.cost.break_even_bytes();
        let of_shards = self
            .shards
            .iter()
            .map(|shard| lock(shard).model.fetch_bytes(break_even_bytes));
        let (bytes_min, bytes_max) = of_shards.fold((u64::MAX, 0), |(least, most), bytes| {
            (least.min(bytes), most.max(bytes))
        });
        SourceFetch {
            is_adaptive: self.is_fetch_adaptive,
            bytes_min,
            bytes_max,
            cost: source.cost.measured(),
        }
    }

    /// Changes what becomes of the requests of a source from now on. A source begins with [`Options::write_mode`].
    ///
    /// [`Options::write_mode`]: crate::Options::write_mode
    pub fn set_mode(&self, source: &Uuid, mode: SourceMode) {
        let source = lock(&self.files).source(source);
        source.mode.store(code(mode), Ordering::Release);
    }

    /// Limits the lines of a source: beyond so many bytes a newcomer takes the place of another of its own lines. Each shard
    /// may have one more. `None` is no limit. What is too much leaves now. With less than [`Engine::size_bytes_min`] most
    /// newcomers would search a whole shard for a line that is not there.
    pub fn set_size(&self, source: &Uuid, size_bytes: Option<u64>) {
        let source = lock(&self.files).source(source);
        let lines_max = size_bytes.map(|bytes| bytes / self.line_bytes);
        self.residency.set_limit(source.number, lines_max);
        self.let_curve_go_on(&source.curve, lines_max);
        let mut leaves = true;
        while leaves && self.residency.is_over(source.number) {
            leaves = false;
            for shard in &self.shards {
                leaves |=
                    self.residency.is_over(source.number) && lock(shard).make_room_in(source.number, None);
            }
        }
    }

    /// The least limit of a source that makes sense: a line in each shard.
    pub fn size_bytes_min(&self) -> u64 {
        self.shards.len() as u64 * self.line_bytes
    }

    /// A source is about to be served no more. Files that nobody writes to at the moment become durable and get their stamps
    /// while nobody can change them without the cache.
    pub fn settle_source(&self, source: &Uuid) {
        let _alone = lock(&self.tidying);
        for file in self.unflushed_of(source) {
            if self.make_durable(&file, || file.store.flush()).is_some() {
                self.settle(&file);
            }
        }
    }

    fn unflushed_of(&self, source: &Uuid) -> Vec<Arc<FileState>> {
        let unflushed = lock(&self.unflushed);
        let files = unflushed.values().filter(|file| file.identity.source() == source);
        files.cloned().collect()
    }

    /// Nobody uses files of the source any more, and others may have changed them by now: what was not settled before is
    /// dropped, and a file that is attached later is compared with its stamp, as after a start. So is one of another source
    /// that was not attached since the start and has no stamp: it is not known any more that nobody used it.
    ///
    /// # Errors
    /// An error of the SSD only if the witness fails as well.
    pub fn leave_source(&self, source: &Uuid) -> io::Result<()> {
        let _alone = lock(&self.tidying);
        for file in self.unflushed_of(source) {
            let _kept_for_nobody = self.make_durable(&file, || file.store.flush());
            self.forget(&file.identity, || Ok(()))?;
            self.drop_lines(file.number, 0..u64::MAX);
            lock(&self.unflushed).remove(&file.number);
        }
        let mut files = lock(&self.files);
        let number = files.source(source).number;
        files.uncheck(number);
        files.end_use_of(source);
        drop(files);
        self.set_unfenced()
    }

    /// It is not known that nobody wrote to files since the last session: what was not attached since and has no stamp is
    /// dropped, durably, as a later start would not know it either.
    ///
    /// # Errors
    /// An error of the SSD only if the witness fails as well.
    pub fn set_unfenced(&self) -> io::Result<()> {
        let mut files = lock(&self.files);
        if !self.was_fenced.swap(false, Ordering::AcqRel) || self.is_bypassed() {
            return Ok(());
        }
        let removed = files.unstamped(&self.ssd).and_then(|slots| {
            let numbers: HashSet<u32> = slots.iter().map(|&slot| files.number_in(slot)).collect();
            files.remove(&slots, &self.ssd)?;
            self.ssd.flush()?;
            Ok(numbers)
        });
        match removed {
            Ok(numbers) if numbers.is_empty() => Ok(()),
            Ok(numbers) => {
                self.drop_matching(&|key| numbers.contains(&number_of(key)));
                Ok(())
            }
            Err(_) => self.enter_bypass(),
        }
    }

    /// Others may change the files of the source from now on while some of them are still in use here: these are used without
    /// the cache. The source must have another uuid the next time, as what the SSD has of this one is not made void.
    pub fn abandon_source(&self, source: &Uuid) {
        let number = {
            let source = lock(&self.files).source(source);
            source.mode.store(ABANDONED, Ordering::Release);
            // It is kept for those who have files open, and its curve for nobody.
            source.curve.empty();
            source.number
        };
        let residency = Arc::clone(&self.residency);
        self.drop_matching(&|key| residency.is_of_source(key, number));
    }
}
