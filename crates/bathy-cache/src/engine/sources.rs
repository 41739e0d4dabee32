//! Sources: what becomes of their requests, how much of the cache they may have, and how one is left while others are served.

use std::cell::Cell;
use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use crate::curve::{CurveOptions, MissRatioCurve, OnlineCurve};
use crate::engine::Engine;
use crate::engine::shard_state::{Left, ShardState};
use crate::format::Uuid;
use crate::format::number_of;
use crate::index::files::FileState;
use crate::index::source::SourceMode;
use crate::stats::SourceCounts;
use crate::stats::backing_cost::ReadCost;
use crate::stats::residency::Usage;
use crate::sync::Mutex;
use crate::sync::atomic::Ordering;
use crate::sync::lock;

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
            .map(|shard| shard.lock().model.fetch_bytes(break_even_bytes));
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
        source.set_mode(mode);
    }

    /// Limits the lines of a source: beyond so many bytes a newcomer takes the place of another of its own lines, and is not cached
    /// while all of these are in use. Each shard may have one more. `None` is no limit. What is too much leaves now, and what of it is in use when that has
    /// ended. With less than [`Engine::size_bytes_min`] most
    /// newcomers would search a whole shard for a line that is not there.
    pub fn set_size(&self, source: &Uuid, size_bytes: Option<u64>) {
        let source = lock(&self.files).source(source);
        let lines_max = size_bytes.map(|bytes| bytes / self.line_bytes);
        self.residency.set_limit(source.number, lines_max);
        self.let_curve_go_on(&source.curve, lines_max);
        let mut leaves = true;
        let over = || self.residency.lines_over(source.number);
        let goes_on = || !self.is_stopped.load(Ordering::Acquire) && over() > 0;
        // A stop that begins now stores what it finds.
        while leaves && goes_on() {
            leaves = false;
            for shard in &self.shards {
                let change = |state: &mut ShardState| state.make_room_in(source.number, None);
                leaves |= goes_on() && shard.change(change) == Left::ALine;
            }
        }
        if goes_on() {
            // All that are left are in use. Those that are forgotten keep their places until that has ended.
            let left = Cell::new(over());
            self.drop_matching(&|key| {
                let leaves = left.get() > 0 && self.residency.is_of_source(key, source.number);
                left.set(left.get() - u64::from(leaves));
                leaves
            });
        }
    }

    /// The least limit of a source that makes sense: a line in each shard.
    pub fn size_bytes_min(&self) -> u64 {
        self.shards.len() as u64 * self.line_bytes
    }

    /// A source is about to be served no more. Files that nobody writes to at the moment become durable and get their stamps
    /// while nobody can change them without the cache.
    pub fn settle_source(&self, source: &Uuid) {
        let tidied = lock(&self.files).source(source);
        if tidied.is_abandoned() {
            // Its disk may not answer, and nothing of it is believed.
            return;
        }
        let _alone = lock(&tidied.tidying);
        for file in self.unflushed_of(source) {
            if self.make_durable(&file, || file.store.flush()).is_some() {
                self.settle(&file);
            }
        }
    }

    /// Whether files of the source get stamps from now on, whichever engine it has later. Not any more before others may change
    /// them without the cache, who waits for a disk meanwhile: a stamp that is taken later would vouch for what they write. Files
    /// without one are for [`Engine::leave_source`] to drop; a stop before that is no clean one.
    pub fn set_stamped(&self, source: &Uuid, is_stamped: bool) {
        let source = lock(&self.files).source(source);
        source.set_stamped(is_stamped);
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
    /// An error of the SSD only if the generation store fails as well.
    pub fn leave_source(&self, source: &Uuid) -> io::Result<()> {
        let left = lock(&self.files).source(source);
        let alone = lock(&left.tidying);
        for file in self.unflushed_of(source) {
            if !left.is_abandoned() {
                let _kept_for_nobody = self.make_durable(&file, || file.store.flush());
            }
            if left.is_abandoned() {
                // Perhaps meanwhile. Nothing of it is believed, and nobody waits for this any more. What has no stamp is
                // not known any more, as below: this may be the last source that is left.
                drop(alone);
                return self.set_unfenced();
            }
            self.forget(&file.identity, || Ok(()))?;
            self.drop_lines(file.number, 0..u64::MAX);
            lock(&self.unflushed).remove(&file.number);
        }
        let mut files = lock(&self.files);
        files.uncheck(left.number);
        files.end_use_of(source);
        drop(files);
        self.set_unfenced()
    }

    /// It is not known that nobody wrote to files since the last session: what was not attached since and has no stamp is
    /// dropped, durably, as a later start would not know it either.
    ///
    /// # Errors
    /// An error of the SSD only if the generation store fails as well.
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
            source.abandon();
            // It is kept for those who have files open, and its curve for nobody.
            source.curve.empty();
            source.number
        };
        let residency = Arc::clone(&self.residency);
        self.drop_matching(&|key| residency.is_of_source(key, number));
    }

    /// A request to a file of the source panicked, so nobody knows what became of it: as [`Engine::abandon_source`]. If it
    /// panicked while it changed what all sources share, the SSD is given up before.
    ///
    /// # Errors
    /// An error of the SSD only if the generation store fails as well.
    pub fn distrust_source(&self, source: &Uuid) -> io::Result<()> {
        if self.is_poisoned() {
            lock(&self.files).source(source).abandon();
            return self.enter_bypass();
        }
        self.abandon_source(source);
        Ok(())
    }
}
