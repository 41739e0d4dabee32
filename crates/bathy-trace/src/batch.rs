//! A batch of I/Os as columns, in vectors that are reused from batch to batch.

use crate::event::{IoEvent, Op};

/// I/Os as columns of equal length. The readers append to it and never leave the columns unequal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventBatch {
    time_ns: Vec<u64>,
    offset_bytes: Vec<u64>,
    length_bytes: Vec<u32>,
    op: Vec<Op>,
    volume: Vec<u32>,
    osd: Vec<u32>,
    pool: Vec<u32>,
    latency_ns: Vec<u32>,
}

impl EventBatch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty batch with room for `events` I/Os.
    pub fn with_capacity(events: usize) -> Self {
        Self {
            time_ns: Vec::with_capacity(events),
            offset_bytes: Vec::with_capacity(events),
            length_bytes: Vec::with_capacity(events),
            op: Vec::with_capacity(events),
            volume: Vec::with_capacity(events),
            osd: Vec::with_capacity(events),
            pool: Vec::with_capacity(events),
            latency_ns: Vec::with_capacity(events),
        }
    }

    /// Number of I/Os.
    #[inline]
    pub fn len(&self) -> usize {
        self.latency_ns.len()
    }

    /// True when there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.latency_ns.is_empty()
    }

    /// Forgets the I/Os and keeps the memory.
    pub fn clear(&mut self) {
        self.time_ns.clear();
        self.offset_bytes.clear();
        self.length_bytes.clear();
        self.op.clear();
        self.volume.clear();
        self.osd.clear();
        self.pool.clear();
        self.latency_ns.clear();
    }

    /// Appends one I/O.
    #[inline]
    pub fn push(&mut self, event: IoEvent) {
        self.time_ns.push(event.time_ns);
        self.offset_bytes.push(event.offset_bytes);
        self.length_bytes.push(event.length_bytes);
        self.op.push(event.op);
        self.volume.push(event.volume);
        self.osd.push(event.osd);
        self.pool.push(event.pool);
        self.latency_ns.push(event.latency_ns);
    }

    /// The I/O at `index`.
    ///
    /// # Panics
    /// When `index` is not below [`EventBatch::len`].
    #[inline]
    pub fn get(&self, index: usize) -> IoEvent {
        IoEvent {
            time_ns: self.time_ns[index],
            offset_bytes: self.offset_bytes[index],
            length_bytes: self.length_bytes[index],
            op: self.op[index],
            volume: self.volume[index],
            osd: self.osd[index],
            pool: self.pool[index],
            latency_ns: self.latency_ns[index],
        }
    }

    /// The I/Os in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = IoEvent> + '_ {
        (0..self.len()).map(|index| self.get(index))
    }

    /// Times of issue.
    pub fn time_ns(&self) -> &[u64] {
        &self.time_ns
    }

    /// First bytes.
    pub fn offset_bytes(&self) -> &[u64] {
        &self.offset_bytes
    }

    /// Lengths.
    pub fn length_bytes(&self) -> &[u32] {
        &self.length_bytes
    }

    /// Operations.
    pub fn op(&self) -> &[Op] {
        &self.op
    }

    /// Indices of volumes.
    pub fn volume(&self) -> &[u32] {
        &self.volume
    }

    /// OSD numbers.
    pub fn osd(&self) -> &[u32] {
        &self.osd
    }

    /// Pool numbers.
    pub fn pool(&self) -> &[u32] {
        &self.pool
    }

    /// Times from issue to completion.
    pub fn latency_ns(&self) -> &[u32] {
        &self.latency_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_pushed_comes_back() {
        let mut batch = EventBatch::with_capacity(2);
        let first = IoEvent {
            time_ns: 7,
            volume: 3,
            ..IoEvent::new(Op::Write, 4096, 512)
        };
        let second = IoEvent {
            latency_ns: 9,
            osd: 1,
            pool: 2,
            ..IoEvent::new(Op::Trim, 0, 1)
        };
        batch.push(first);
        batch.push(second);
        assert_eq!(batch.iter().collect::<Vec<_>>(), [first, second]);
        batch.clear();
        assert!(batch.is_empty());
    }
}
