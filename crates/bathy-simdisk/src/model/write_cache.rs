//! The volatile write cache of a hard disk: what is in it, and which of it a flush waits for.

use std::collections::BTreeMap;

use super::RequestId;

/// A write that was completed to the host and is not on the medium.
#[derive(Debug, Clone)]
pub(super) struct Dirty {
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) since_ns: u64,
    /// Age of the oldest data that it stands for: it counts for a flush.
    sequence: u64,
    /// The write and those that it replaced.
    ids: Vec<RequestId>,
}

#[derive(Debug)]
struct Flush {
    id: RequestId,
    upto: u64,
}

/// Dirty extents by offset and by age.
#[derive(Debug, Default)]
pub(super) struct WriteCache {
    by_offset: BTreeMap<(u64, u64), Dirty>,
    by_age: BTreeMap<u64, u64>,
    flushes: Vec<Flush>,
    /// What the arm writes now: offset and length. It can still be read from here.
    under_way: Vec<(u64, u64)>,
    bytes: u64,
    sequences: u64,
}

impl WriteCache {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_offset.is_empty()
    }

    pub(super) fn flush_pending(&self) -> bool {
        !self.flushes.is_empty()
    }

    /// Since when the oldest extent is dirty.
    pub(super) fn oldest_ns(&self) -> Option<u64> {
        let mut by_age = self.by_age.iter();
        by_age.find_map(|(sequence, offset)| {
            self.by_offset
                .get(&(*offset, *sequence))
                .map(|dirty| dirty.since_ns)
        })
    }

    /// Whether one extent holds the whole range: a read is answered from it.
    pub(super) fn holds(&self, offset: u64, length: u64) -> bool {
        let before = self.by_offset.range(..=(offset, u64::MAX)).rev().take(4);
        let extents = before.map(|(_, dirty)| (dirty.offset, dirty.length));
        let mut all = extents.chain(self.under_way.iter().copied());
        all.any(|(start, bytes)| start <= offset && offset + length <= start + bytes)
    }

    pub(super) fn insert(&mut self, id: RequestId, offset: u64, length: u64, now_ns: u64) {
        self.sequences += 1;
        // A rewrite of the same extent takes its place; the medium sees only the last one.
        let same = self
            .by_offset
            .range((offset, 0)..=(offset, u64::MAX))
            .find(|(_, it)| it.length == length);
        if let Some((&key, _)) = same {
            if let Some(dirty) = self.by_offset.get_mut(&key) {
                dirty.ids.push(id);
            }
            return;
        }
        let dirty = Dirty {
            offset,
            length,
            since_ns: now_ns,
            sequence: self.sequences,
            ids: vec![id],
        };
        self.bytes += length;
        self.by_age.insert(dirty.sequence, offset);
        self.by_offset.insert((offset, dirty.sequence), dirty);
    }

    /// Extents that the arm may write next: the oldest while a flush waits, otherwise those around the head. Of a run without
    /// a gap it is the first: an arm that began in the midst of one, because that part came by first, would have to come back
    /// for what it left, and would then leave a part of the next run.
    pub(super) fn candidates(&self, head: u64, count: usize) -> Vec<&Dirty> {
        if self.flush_pending() {
            let oldest = self.by_age.iter().take(count);
            let oldest = oldest.filter_map(|(sequence, offset)| self.by_offset.get(&(*offset, *sequence)));
            let (first, others): (Vec<&Dirty>, Vec<&Dirty>) =
                oldest.partition(|it| self.before(it).is_none());
            return if first.is_empty() { others } else { first };
        }
        let above = self.by_offset.range((head, 0)..).take(count / 2);
        let below = self.by_offset.range(..(head, 0)).rev().take(count / 2);
        let around: Vec<&Dirty> = above.chain(below).map(|(_, dirty)| dirty).collect();
        // A run that begins below all that was looked at has the last of these. To offer it twice does no harm.
        let last = around.last().copied();
        let first = around.into_iter().filter(|it| self.before(it).is_none());
        first.chain(last).collect()
    }

    /// The extent that ends where this one begins.
    fn before(&self, extent: &Dirty) -> Option<&Dirty> {
        let (_, before) = self.by_offset.range(..(extent.offset, 0)).next_back()?;
        (before.offset + before.length == extent.offset).then_some(before)
    }

    /// Take the extent and those that follow it without a gap, up to `bytes_max`: one movement of the arm writes them.
    /// They stay part of the cache until [`WriteCache::written`].
    pub(super) fn take_run(&mut self, chosen: (u64, u64), bytes_max: u64) -> Vec<Dirty> {
        let mut run: Vec<Dirty> = self.by_offset.remove(&chosen).into_iter().collect();
        let mut total: u64 = run.iter().map(|dirty| dirty.length).sum();
        while let Some(end) = run.last().map(|dirty| dirty.offset + dirty.length) {
            let next = self.by_offset.range((end, 0)..=(end, u64::MAX)).next();
            let Some((&key, _)) = next.filter(|(_, it)| total + it.length <= bytes_max) else {
                break;
            };
            if let Some(dirty) = self.by_offset.remove(&key) {
                total += dirty.length;
                run.push(dirty);
            }
        }
        self.under_way = run.iter().map(|dirty| (dirty.offset, dirty.length)).collect();
        run
    }

    /// The extents are on the medium. Returns the writes in them and the flushes that have nothing left to wait for.
    pub(super) fn written(&mut self, run: Vec<Dirty>) -> (Vec<RequestId>, Vec<RequestId>) {
        let mut ids = Vec::with_capacity(run.len());
        self.under_way.clear();
        for dirty in run {
            self.bytes -= dirty.length;
            self.by_age.remove(&dirty.sequence);
            ids.extend(dirty.ids);
        }
        let oldest = self.by_age.keys().next().copied().unwrap_or(u64::MAX);
        let (done, waiting) = self.flushes.drain(..).partition(|flush| flush.upto < oldest);
        self.flushes = waiting;
        (ids, done.into_iter().map(|flush: Flush| flush.id).collect())
    }

    /// A flush arrives. Returns whether there is nothing to wait for.
    pub(super) fn flush(&mut self, id: RequestId) -> bool {
        if self.by_age.is_empty() {
            return true;
        }
        self.flushes.push(Flush {
            id,
            upto: self.sequences,
        });
        false
    }
}

impl Dirty {
    pub(super) fn key(&self) -> (u64, u64) {
        (self.offset, self.sequence)
    }
}
