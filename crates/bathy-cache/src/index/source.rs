//! A source: what becomes of its requests, and what is known of it.

use std::sync::Arc;

use bathy_cache_model::WriteMode;

use crate::curve::{CurveOptions, OnlineCurve};
use crate::stats::SourceCounts;
use crate::stats::backing_cost::BackingCost;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU8, Ordering};

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
    /// Its files get stamps. Shared by all engines that have the source.
    is_stamped: Arc<AtomicBool>,
    /// Locked by who makes its files durable, whatever the disk takes for that. The bits of its marks that it needs no more as soon
    /// as records that wait are on the SSD.
    pub(crate) tidying: Mutex<Vec<u64>>,
}

/// How a source begins.
#[derive(Clone, Copy)]
pub(crate) struct NewSource {
    pub(crate) write_mode: WriteMode,
    /// The first guess for its disk.
    pub(crate) break_even_bytes: u64,
    pub(crate) is_backing_measured: bool,
    pub(crate) curve: CurveOptions,
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
            is_stamped: Arc::new(AtomicBool::new(true)),
            tidying: Mutex::default(),
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
            is_stamped: Arc::clone(&self.is_stamped),
            tidying: Mutex::default(),
        }
    }

    /// One that was abandoned stays so.
    pub(crate) fn set_mode(&self, mode: SourceMode) {
        let change = |now| (now != ABANDONED).then_some(code(mode));
        let _unchanged = self
            .mode
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, change);
    }

    /// Its files may be changed without the cache from now on.
    pub(crate) fn abandon(&self) {
        self.mode.store(ABANDONED, Ordering::Release);
    }

    /// See [`Engine::set_stamped`](crate::Engine::set_stamped).
    pub(crate) fn set_stamped(&self, is_stamped: bool) {
        self.is_stamped.store(is_stamped, Ordering::SeqCst);
    }

    /// Whether a stamp that was taken before this is asked was taken while nobody could change a file without the cache.
    pub(crate) fn is_stamped(&self) -> bool {
        self.is_stamped.load(Ordering::SeqCst)
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
