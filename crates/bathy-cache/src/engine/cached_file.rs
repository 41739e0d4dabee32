//! Requests to a file: which locks are taken, and in which order backing and SSD are written.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use bathy_cache_model::{Backing, Part, WriteMode, WritePlan};
use smallvec::SmallVec;

use crate::curve::{OnlineCurve, Read};
use crate::engine::shard::{Fetched, Shard, SsdCopy};
use crate::engine::shard_state::{Fetch, Hit, HitEnd, copy_units, overlap, runs};
use crate::engine::{Engine, Streams, stopped};
use crate::format::UNIT_BYTES;
use crate::format::first_key;
use crate::index::files::{Beginning, FileState};
use crate::mutant::{Mutant, is_made};
use crate::stats::{RequestCounts, ServedRequest, SourceCounts};
use crate::store::aligned::Aligned;
use crate::sync::atomic::Ordering;
use crate::sync::{OnPanic, if_free, lock};

/// Lines of a request that are planned together, their data read from the SSD by one submission, and from the backing by one read where they are
/// neighbours. None of them gives way to another meanwhile.
const LINES_AT_ONCE: usize = 8;
/// What a read has fetched is held in memory until it was answered and the SSD has it: up to so much, the lines of a request of 1 MiB, of
/// which one may have a part of its first and of its last.
const HELD_BYTES_MAX: u64 = (1 << 20) + (256 << 10);

/// What a read tells while it is under way.
pub struct Events<'a> {
    /// The backing is about to be read, or another request to be waited for.
    pub waits: &'a dyn Fn(),
    /// All bytes are there, these. What is done after this are copies to the SSD, for which nobody need wait: what they have
    /// is served from memory until they have ended. It is not called if there are none.
    pub served: &'a dyn Fn(&[u8]),
}

impl Events<'static> {
    /// Told to nobody.
    pub const UNHEARD: Self = Self {
        waits: &|| {},
        served: &|_| {},
    };
}

/// A part whose read is under way.
struct Reading<'a, 'p> {
    shard: &'a Shard,
    part: &'p Part,
    /// Where the part is among what was asked for.
    place: Range<usize>,
    /// What is to be read from the SSD.
    hit: Option<Hit>,
    /// What is to be read from the backing.
    fetch: Fetch,
    /// If more is read than the part: the line, when it was.
    line: Option<Aligned>,
}

/// Reads whose hits and fills end with them.
struct Readings<'a, 'p>(SmallVec<[Reading<'a, 'p>; 2]>);

impl Drop for Readings<'_, '_> {
    fn drop(&mut self) {
        for Reading {
            shard,
            part,
            hit,
            fetch,
            ..
        } in &self.0
        {
            let fill = fetch.fill.map(|(fill, _)| fill);
            match (hit, fill) {
                (None, None) => {}
                (None, Some(fill)) if !thread::panicking() => shard.end_fill(part.key, fill),
                (hit, fill) => shard.abort(part.key, hit.iter().map(|hit| hit.ticket).chain(fill)),
            }
        }
    }
}

/// Copies to the SSD that a read leaves for later.
struct Copies<'a> {
    file: &'a CachedFile,
    left: VecDeque<(&'a Shard, SsdCopy)>,
}

impl<'a> Copies<'a> {
    fn new(file: &'a CachedFile) -> Self {
        let left = VecDeque::new();
        Self { file, left }
    }

    fn make(&mut self) {
        while let Some((shard, copy)) = self.left.pop_front() {
            let begun = Instant::now();
            let copied = shard.make(&copy);
            self.file.count_copy(begun, copied);
        }
    }
}

impl Drop for Copies<'_> {
    /// There are none left unless a thread panics.
    fn drop(&mut self) {
        for (shard, copy) in &self.left {
            shard.abandon(copy);
        }
    }
}

/// A file that is cached. The file is used until all of these are dropped; its lines stay.
pub struct CachedFile {
    engine: Arc<Engine>,
    file: Arc<FileState>,
}

impl CachedFile {
    pub(crate) fn new(engine: Arc<Engine>, file: Arc<FileState>) -> Self {
        Self { engine, file }
    }

    pub(crate) fn state(&self) -> &Arc<FileState> {
        &self.file
    }

    /// Its size.
    pub fn size_bytes(&self) -> u64 {
        self.file.len_bytes()
    }

    /// The number of its lines in [`Engine::for_each_line`]; 0 if it is not cached.
    pub fn number(&self) -> u32 {
        self.file.number
    }

    /// What became of its lines when its use began.
    pub fn beginning(&self) -> Beginning {
        self.file.beginning
    }

    /// Whether there is no SSD, or one that was given up.
    pub(crate) fn is_bypassed(&self) -> bool {
        self.engine.is_bypassed()
    }

    fn is_cached(&self) -> bool {
        self.file.number != 0 && !self.engine.is_bypassed() && !self.file.source.is_abandoned()
    }

    /// Whether a read asks the cache.
    fn is_read_cached(&self) -> bool {
        self.is_cached() && !self.engine.ssd.is_given_up() && self.file.source.is_read_cached()
    }

    /// In which its requests are counted.
    fn curves(&self) -> [&OnlineCurve; 2] {
        [&self.engine.curve, &self.file.source.curve]
    }

    /// Whether what is cached of a part is known to be what the file has.
    fn is_compared(&self, part: &Part) -> bool {
        self.file.is_compared(part.key - first_key(self.file.number))
    }

    fn check_running(&self) -> io::Result<()> {
        if self.engine.is_stopped.load(Ordering::Acquire) {
            return Err(stopped());
        }
        Ok(())
    }

    /// Whether a read, if it came now, would be served by the cache alone. It counts as nothing, and may be untrue at once.
    pub fn holds(&self, offset: u64, len: usize) -> bool {
        let rest = self.file.len_bytes().saturating_sub(offset);
        let len = rest.min(len as u64).min(u64::from(u32::MAX)) as u32;
        let first = first_key(self.file.number);
        let mut parts = self.engine.splitter.look_from(first, offset, len);
        len == 0
            || self.is_read_cached()
                && parts.all(|part| {
                    self.is_compared(&part) && self.engine.shard(part.key).lock().model.holds(&part)
                })
    }

    /// Reads up to the end of the file: how many bytes. `time_ns` does not go back by much.
    ///
    /// # Errors
    /// Those of the backing, unchanged. No error of the SSD.
    pub fn read(&self, out: &mut [u8], offset: u64, time_ns: u64) -> io::Result<usize> {
        self.read_telling(out, offset, time_ns, &Events::UNHEARD)
    }

    /// As [`CachedFile::read`], and tells what happens.
    ///
    /// # Errors
    /// Those of [`CachedFile::read`].
    pub fn read_telling(
        &self,
        out: &mut [u8],
        offset: u64,
        time_ns: u64,
        events: &Events<'_>,
    ) -> io::Result<usize> {
        let begun = Instant::now();
        let _gate = if let Some(gate) = if_free(self.file.gate.try_read()) {
            gate
        } else {
            (events.waits)();
            self.file.gate.read().unwrap_or_else(PoisonError::into_inner)
        };
        self.check_running()?;
        let rest = self.file.len_bytes().saturating_sub(offset);
        let len = rest.min(out.len() as u64).min(u64::from(u32::MAX)) as usize;
        let out = &mut out[..len];
        if len == 0 {
            return Ok(0);
        }
        self.engine.ssd.set_time(time_ns);
        let Some(parts) = self.split(offset, len, false).filter(|_| self.is_read_cached()) else {
            self.read_backing(out, offset, events.waits)?;
            self.count(begun, false, (len, 0), time_ns);
            self.count_unused();
            return Ok(len);
        };
        let mut copies = Copies::new(self);
        let read = self.read_parts(&parts, time_ns, out, events.waits, &mut copies);
        if let Ok(bytes_hit) = read {
            self.count(begun, false, (len, bytes_hit), time_ns);
            if bytes_hit < len as u64 && parts.iter().any(|part| part.bypasses) {
                self.count_in(|counts| counts.bypassed_by_stream += 1);
            }
            if !copies.left.is_empty() {
                (events.served)(out);
            }
        }
        copies.make();
        read.map(|_| len)
    }

    /// The bytes that the cache served.
    fn read_parts<'a>(
        &'a self,
        parts: &[Part],
        time_ns: u64,
        mut out: &mut [u8],
        waits: &dyn Fn(),
        copies: &mut Copies<'a>,
    ) -> io::Result<u64> {
        let mut bytes_hit = 0;
        for parts in parts.chunks(LINES_AT_ONCE) {
            if (copies.left.len() + parts.len()) as u64 * self.engine.line_bytes > HELD_BYTES_MAX {
                // Of the lines before.
                copies.make();
            }
            let bytes: usize = parts.iter().map(|part| part.bytes() as usize).sum();
            let (now, rest) = out.split_at_mut(bytes);
            out = rest;
            bytes_hit += self.read_lines(parts, time_ns, now, waits, copies)?;
        }
        Ok(bytes_hit)
    }

    /// Reads so many parts that all are planned before the SSD and the backing are read: the data of the one by one submission, the other once
    /// for neighbours, where nothing is read but what was asked for. The bytes that the cache served.
    fn read_lines<'a>(
        &'a self,
        parts: &[Part],
        time_ns: u64,
        out: &mut [u8],
        waits: &dyn Fn(),
        copies: &mut Copies<'a>,
    ) -> io::Result<u64> {
        let bytes = out.len() as u64;
        let mut readings = Readings(SmallVec::new());
        let mut at = 0;
        for part in parts {
            let place = at..at + part.bytes() as usize;
            at = place.end;
            let reading = self.begin_read(part, place, time_ns, out, copies);
            if reading.hit.is_some() || reading.fetch.units != 0 {
                readings.0.push(reading);
            }
        }
        self.read_hits(&mut readings.0, time_ns, out, copies);
        readings.0.retain(|reading| reading.fetch.units != 0);
        if readings.0.is_empty() {
            return Ok(bytes);
        }
        // Asked after the fills were planned: a write that made the file longer is over, or takes its units from them.
        let len_bytes = self.file.len_bytes();
        let mut ranges = SmallVec::<[Range<usize>; 2]>::new();
        for reading in readings.0.iter().filter(|it| it.line.is_none()) {
            if !self.is_within_part(reading, len_bytes) {
                continue;
            }
            for run in runs(reading.fetch.units) {
                let bytes = overlap(reading.part, &run);
                let start = reading.place.start + bytes.start - reading.part.start as usize;
                let range = start..start + bytes.len();
                match ranges.last_mut() {
                    Some(last) if last.end == range.start => last.end = range.end,
                    _ => ranges.push(range),
                }
            }
        }
        let offset = self.line_start(&parts[0]) + u64::from(parts[0].start);
        for range in ranges {
            let start = offset + range.start as u64;
            self.read_backing(&mut out[range], start, waits)?;
        }
        let mut bytes_missed = 0;
        for reading in &mut readings.0 {
            let out = &mut out[reading.place.clone()];
            if reading.line.is_none() && !self.is_within_part(reading, len_bytes) {
                let mut line = Aligned::to_fill(self.engine.line_bytes as usize);
                if self.read_line(reading, len_bytes, &mut line, out, waits).is_err() {
                    // The error may lie in what was read besides.
                    for run in runs(reading.fetch.units) {
                        let bytes = overlap(reading.part, &run);
                        let start = self.line_start(reading.part) + bytes.start as u64;
                        let from = reading.part.start as usize;
                        self.read_backing(&mut out[bytes.start - from..bytes.end - from], start, waits)?;
                    }
                    bytes_missed += out.len() as u64;
                    continue;
                }
                reading.line = Some(line);
            }
            bytes_missed += self.keep(reading, out, copies);
        }
        Ok(bytes - bytes_missed)
    }

    /// Looks a part up and copies what memory has.
    fn begin_read<'a, 'p>(
        &'a self,
        part: &'p Part,
        place: Range<usize>,
        time_ns: u64,
        out: &mut [u8],
        copies: &mut Copies<'a>,
    ) -> Reading<'a, 'p> {
        let is_compared = self.is_compared(part);
        let mut reading = Reading {
            shard: self.engine.shard(part.key),
            part,
            place,
            hit: None,
            fetch: Fetch {
                units: units_of(part),
                ..Fetch::default()
            },
            line: None,
        };
        let backing = self.backing(part);
        let read = Read {
            units: reading.fetch.units,
            there: below(backing.line_end.div_ceil(UNIT_BYTES as u32)),
            break_even_bytes: backing.break_even_bytes,
            // What is not compared yet is read past the cache.
            allocates: !part.bypasses && is_compared,
        };
        for curve in self.curves() {
            curve.read(part.key, read);
        }
        if is_compared {
            self.plan_read(&mut reading, backing, time_ns, out, copies);
        }
        reading
    }

    fn plan_read<'a>(
        &self,
        reading: &mut Reading<'a, '_>,
        backing: Backing,
        time_ns: u64,
        out: &mut [u8],
        copies: &mut Copies<'a>,
    ) {
        let (shard, part) = (reading.shard, reading.part);
        let out = &mut out[reading.place.clone()];
        if is_made(Mutant::FillReadsBeforeItsTicket) {
            reading.fetch.units = units_of(part);
            let mut line = Aligned::to_fill(self.engine.line_bytes as usize);
            let read = self.read_line(reading, self.file.len_bytes(), &mut line, out, &|| {});
            reading.line = read.is_ok().then_some(line);
        }
        let later = &mut |moved| copies.left.push_back((shard, SsdCopy::Move(moved)));
        (reading.hit, reading.fetch) = shard.plan_read(backing, part, time_ns, out, later);
        reading.line = reading.line.take().filter(|_| reading.fetch.fill.is_some());
    }

    /// Reads what is on the SSD. What was written to or dropped meanwhile, or is damaged, is planned anew.
    fn read_hits<'a>(
        &self,
        readings: &mut [Reading<'a, '_>],
        time_ns: u64,
        out: &mut [u8],
        copies: &mut Copies<'a>,
    ) {
        loop {
            let loaded = {
                let found = readings.iter().filter_map(|it| Some((it, it.hit.as_ref()?)));
                let (found, hits): (SmallVec<[_; 2]>, SmallVec<[_; 2]>) =
                    found.map(|(it, hit)| (it, (it.shard, hit))).unzip();
                if hits.is_empty() {
                    return;
                }
                Shard::load_hits(&hits, |number, run, data| {
                    let Reading { part, place, .. } = found[number];
                    copy_units(part, run, data, &mut out[place.clone()]);
                })
            };
            let with_hits = readings.iter_mut().filter(|it| it.hit.is_some());
            for (reading, loaded) in with_hits.zip(&loaded) {
                let is_hit = |hit: &Hit| reading.shard.end_hit(hit, loaded, &reading.fetch);
                let end = reading.hit.as_ref().map(is_hit);
                reading.hit = None;
                if end == Some(HitEnd::Again) {
                    reading.fetch = Fetch::default();
                    self.plan_read(reading, self.backing(reading.part), time_ns, out, copies);
                }
            }
        }
    }

    /// What was fetched is there: what a fill keeps of it, memory has now, and the SSD will have by `copies`. The bytes of the
    /// part that the cache did not have.
    fn keep<'a>(&self, reading: &mut Reading<'a, '_>, out: &[u8], copies: &mut Copies<'a>) -> u64 {
        let (shard, part) = (reading.shard, reading.part);
        let Some(fill) = reading.fetch.fill else {
            let read = runs(reading.fetch.units)
                .map(|run| overlap(part, &run).len() as u64)
                .sum();
            shard.lock().counts.backing_read_bytes += read;
            return read;
        };
        let begun = Instant::now();
        let fetched = match reading.line.take() {
            Some(line) => Fetched::Line(line),
            None => Fetched::Part(part, out),
        };
        let (copied, copy) = shard.fill(part.key, fill, reading.fetch.units, fetched);
        reading.fetch.fill = None;
        copies.left.extend(copy.map(|copy| (shard, copy)));
        let read = u64::from(reading.fetch.units.count_ones()) * UNIT_BYTES;
        shard.lock().counts.backing_read_bytes += read;
        self.count_copy(begun, copied);
        // A unit that the request covers in part counts as if it were covered whole, as in the simulator.
        u64::from(part.bytes()).min(read - reading.fetch.ahead_bytes)
    }

    fn line_start(&self, part: &Part) -> u64 {
        (part.key - first_key(self.file.number)) * self.engine.line_bytes
    }

    /// Whether all that is to be read of a line was asked for, in a file of this length.
    fn is_within_part(&self, reading: &Reading<'_, '_>, len_bytes: u64) -> bool {
        let (part, units) = (reading.part, reading.fetch.units);
        let start = units.trailing_zeros() as usize * UNIT_BYTES as usize;
        let end = u64::from(u64::BITS - units.leading_zeros()) * UNIT_BYTES;
        let end = end.min(len_bytes.saturating_sub(self.line_start(part)));
        reading.fetch.fill.is_none() || part.start as usize <= start && end <= u64::from(part.end)
    }

    /// What is known of the backing of a part: with it, the bytes of the part's line that the file has.
    fn backing(&self, part: &Part) -> Backing {
        let bytes = self.file.len_bytes().saturating_sub(self.line_start(part));
        Backing {
            break_even_bytes: self.file.source.cost.break_even_bytes(),
            line_end: bytes.min(self.engine.line_bytes) as u32,
        }
    }

    fn read_backing(&self, out: &mut [u8], offset: u64, waits: &dyn Fn()) -> io::Result<()> {
        waits();
        let cost = &self.file.source.cost;
        cost.timed(out.len(), || self.file.store.read(out, offset))?;
        self.count_in(|counts| counts.count_source_read(out.len() as u64));
        Ok(())
    }

    /// Reads the units of a fetch into `line`, and what the part touches of them into `out`.
    fn read_line(
        &self,
        reading: &Reading<'_, '_>,
        len_bytes: u64,
        line: &mut Aligned,
        out: &mut [u8],
        waits: &dyn Fn(),
    ) -> io::Result<()> {
        let line_start = self.line_start(reading.part);
        let unit = UNIT_BYTES as usize;
        for run in runs(reading.fetch.units) {
            let start = line_start + run.start as u64 * UNIT_BYTES;
            // What lies beyond the end is zero, as which it would be read if the file grew.
            let len = len_bytes.saturating_sub(start).min((run.len() * unit) as u64) as usize;
            let data = &mut line[run.start * unit..run.end * unit];
            data[len..].fill(0);
            self.read_backing(&mut data[..len], start, waits)?;
            copy_units(reading.part, run, data, out);
        }
        Ok(())
    }

    /// Writes `data`; beyond the end the file grows. Returns how many bytes were written, from the first one on: fewer than all
    /// if the backing failed after some, and then the error comes with the rest. When this returns the backing has them;
    /// durable they are after [`CachedFile::flush`].
    ///
    /// # Errors
    /// Those of the backing, unchanged, if nothing was written, and `InvalidInput` at the end of the address space. An error of the SSD only if the
    /// generations fails as well: then nothing could keep a stale SSD from being believed later.
    pub fn write(&self, data: &[u8], offset: u64, time_ns: u64) -> io::Result<usize> {
        self.write_by(
            |data| self.file.store.write_some(data, offset),
            data,
            offset,
            time_ns,
        )
    }

    /// [`CachedFile::write`] by [`BlockStore::write_some_buffered`].
    ///
    /// # Errors
    /// Those of [`CachedFile::write`].
    pub fn write_buffered(&self, data: &[u8], offset: u64, time_ns: u64) -> io::Result<usize> {
        let write = |data: &[u8]| self.file.store.write_some_buffered(data, offset);
        self.write_by(write, data, offset, time_ns)
    }

    fn write_by(
        &self,
        write: impl Fn(&[u8]) -> io::Result<usize>,
        data: &[u8],
        offset: u64,
        time_ns: u64,
    ) -> io::Result<usize> {
        let end = offset.checked_add(data.len() as u64);
        let end = end.ok_or(io::ErrorKind::InvalidInput)?;
        if data.is_empty() {
            return Ok(0);
        }
        self.engine.ssd.set_time(time_ns);
        let gate = self.file.gate.read().unwrap_or_else(PoisonError::into_inner);
        self.check_running()?;
        let Some(parts) = self.split(offset, data.len(), true) else {
            drop(gate);
            // Keys end here. No real file comes so far.
            return self.change(offset..end, Some(end.max(self.size_bytes())), || {
                self.file.store.write(data, offset).map(|()| data.len())
            });
        };
        let Some(bits) = self.begin_change(&(offset..end))? else {
            let begun = Instant::now();
            let written = write(data);
            self.after_write(offset, &written);
            let written = written?;
            self.count(begun, true, (written, 0), time_ns);
            self.count_unused();
            return Ok(written);
        };
        let mode = self.file.source.write_mode();
        let plan = |part: &Part| {
            let mode = if self.is_compared(part) {
                mode
            } else {
                WriteMode::Invalidate
            };
            let plan = self.engine.shard(part.key).begin_write(part, mode, time_ns);
            for curve in self.curves() {
                match mode {
                    WriteMode::Invalidate => curve.forget(part.key),
                    _ => curve.write(
                        part.key,
                        whole_units_of(part),
                        mode == WriteMode::Allocate && !part.bypasses,
                    ),
                }
            }
            plan
        };
        let plans = RefCell::new(SmallVec::<[WritePlan; 2]>::new());
        let ended = OnPanic(|| {
            for (part, plan) in parts.iter().zip(&*plans.borrow()) {
                self.engine.shard(part.key).abort(part.key, [plan.ticket]);
            }
            self.after_write(offset, &Err(io::ErrorKind::Other.into()));
            self.end_change(&bits);
        });
        for part in &parts {
            let plan = plan(part);
            plans.borrow_mut().push(plan);
        }
        let plans = plans.borrow();
        let begun = Instant::now();
        let mut written = if is_made(Mutant::CopyBeforeTheBacking) {
            Ok(data.len())
        } else {
            write(data)
        };
        let below = begun.elapsed();
        // Before the lines have it: see `read_lines`.
        if !is_made(Mutant::LengthAfterTheLines) {
            self.after_write(offset, &written);
        }
        let (mut rest, mut bytes_hit) = (data, 0);
        // Of a line that got a part of its bytes nothing is kept.
        let mut left = *written.as_ref().unwrap_or(&0);
        for (part, plan) in parts.iter().zip(&*plans) {
            let (of_part, others) = rest.split_at(part.bytes() as usize);
            rest = others;
            let is_written = of_part.len() <= left;
            left = left.saturating_sub(of_part.len());
            let of_part = is_written.then_some(of_part);
            let begun = Instant::now();
            let copied = self.engine.shard(part.key).finish_write(part, plan, of_part);
            self.count_copy(begun, copied);
            bytes_hit += u64::from(part.bytes()) * u64::from(plan.was_cached);
        }
        if is_made(Mutant::CopyBeforeTheBacking) {
            written = write(data);
        }
        if is_made(Mutant::LengthAfterTheLines) {
            self.after_write(offset, &written);
        }
        drop(ended);
        self.end_change(&bits);
        let written = written?;
        self.count_for(below, true, (written, bytes_hit), time_ns);
        let went_past = |(part, plan): (&Part, &WritePlan)| part.bypasses && plan.slot.is_none();
        if mode == WriteMode::Allocate && parts.iter().zip(&*plans).any(went_past) {
            self.count_in(|counts| counts.bypassed_by_stream += 1);
        }
        Ok(written)
    }

    /// Counts a request that was served, with its bytes and those that the cache served.
    fn count(&self, begun: Instant, is_write: bool, bytes: (usize, u64), time_ns: u64) {
        self.count_for(begun.elapsed(), is_write, bytes, time_ns);
    }

    fn count_for(&self, latency: Duration, is_write: bool, (bytes, bytes_hit): (usize, u64), time_ns: u64) {
        self.file.count(&ServedRequest {
            is_write,
            bytes: bytes as u64,
            bytes_hit,
            time_ns,
            latency_ns: latency.as_nanos() as u64,
        });
    }

    fn count_in(&self, count: impl FnOnce(&mut SourceCounts)) {
        count(&mut lock(&self.file.source.counts));
    }

    /// Counts a copy to the cache, if there was one.
    fn count_copy(&self, begun: Instant, bytes: u64) {
        if bytes > 0 {
            self.count_in(|counts| counts.count_copy(bytes, begun.elapsed().as_nanos() as u64));
        }
    }

    /// Counts a request that could not use the cache, if that is because of the SSD.
    fn count_unused(&self) {
        if self.engine.is_bypassed() || self.engine.ssd.is_given_up() {
            self.count_in(|counts| counts.bypassed_by_error += 1);
        }
    }

    fn after_write(&self, offset: u64, written: &io::Result<usize>) {
        let end = match written {
            Ok(written) => offset + *written as u64,
            // It may have grown.
            Err(_) => self.file.store.size_bytes().unwrap_or(0),
        };
        self.file.len_bytes.fetch_max(end, Ordering::AcqRel);
    }

    /// The file is about to change in a range: the bits of intent that are durable now. `None` if it is not cached.
    fn begin_change(&self, range: &Range<u64>) -> io::Result<Option<Vec<u64>>> {
        if self.engine.ssd.is_given_up() {
            self.engine.enter_bypass()?;
        }
        if !self.is_cached() {
            return Ok(None);
        }
        let marked = self.engine.note_use(&self.file).and_then(|noted| {
            let bits = self.engine.intent.bits_of(self.file.number, range);
            let (source, may_wait) = (self.file.source.number, &self.file.marks_may_wait);
            self.engine
                .intent
                .begin(&bits, source, &self.engine.ssd, may_wait)?;
            let ended = self.engine.end_note_of_use(&self.file, noted);
            ended.inspect_err(|_| self.engine.intent.end(&bits))?;
            Ok(bits)
        });
        if marked.is_err() {
            self.engine.enter_bypass()?;
        }
        Ok(marked.ok())
    }

    /// The change is over, on the backing and in the cache, or failed.
    fn end_change(&self, bits: &[u64]) {
        // Before the bits are idle, so that the flush that they are taken back after is one of this file.
        self.file.is_recent.store(true, Ordering::Release);
        // A removed file has no record by which a line of it could be believed, so its bytes need not be durable.
        if !self.file.is_forgotten.load(Ordering::Acquire) {
            self.engine.is_to_be_flushed(&self.file);
        }
        self.engine.intent.end(bits);
    }

    /// A range of the file is about to be changed by other means than a write, such as a punched hole or a clone: `change`
    /// does that. The file may grow to the end of the range. No other request to the file is under way meanwhile.
    ///
    /// # Errors
    /// Those of `change`. An error of the SSD only if the generation store fails as well.
    pub fn discard<T>(&self, range: Range<u64>, change: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        self.change(range, None, change)
    }

    /// The file is about to get another size: `change` does that.
    ///
    /// # Errors
    /// Those of `change`. An error of the SSD only if the generation store fails as well.
    pub fn resize<T>(&self, size_bytes: u64, change: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        // All that lies beyond the smaller size: what is cut off, or what is new and was perhaps cut off before.
        self.change(size_bytes..u64::MAX, Some(size_bytes), change)
    }

    fn change<T>(
        &self,
        range: Range<u64>,
        size_bytes: Option<u64>,
        change: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        let _gate = self.file.gate.write().unwrap_or_else(PoisonError::into_inner);
        self.check_running()?;
        let (start, end) = match size_bytes {
            Some(size_bytes) => {
                let (one, other) = (size_bytes, self.size_bytes());
                (range.start.min(one.min(other)), one.max(other))
            }
            None => (range.start, range.end),
        };
        // Times change even if no byte does.
        let bits = self.begin_change(&(start..end))?;
        if bits.is_some() {
            let lines = start / self.engine.line_bytes..end.div_ceil(self.engine.line_bytes);
            self.engine.drop_lines(self.file.number, lines);
        }
        let end = |size_bytes: Option<u64>| {
            let asked = || self.file.store.size_bytes().unwrap_or_else(|_| self.size_bytes());
            let size_bytes = size_bytes.unwrap_or_else(asked);
            self.file.len_bytes.store(size_bytes, Ordering::Release);
            if let Some(bits) = &bits {
                self.end_change(bits);
            }
        };
        let ended = OnPanic(|| end(None));
        let result = change();
        drop(ended);
        end(size_bytes.filter(|_| result.is_ok()));
        result
    }

    /// Makes all writes to this file durable that were acknowledged before.
    ///
    /// # Errors
    /// Those of the backing, unchanged; one of an earlier [`Engine::tidy`] too.
    pub fn flush(&self) -> io::Result<()> {
        self.check_running()?;
        self.engine.flush(&self.file)
    }

    /// Flushes of this file that failed, whoever asked for them. A flush that succeeds says nothing of writes that an earlier one
    /// lost: the kernel reports these once. So who has the file open compares this with what it was before.
    pub fn failed_flushes(&self) -> u64 {
        self.file.failed_flushes.load(Ordering::Acquire)
    }

    /// The file is about to be removed: [`Engine::forget`].
    ///
    /// # Errors
    /// Those of `change`. An error of the SSD only if the generation store fails as well.
    pub fn forget<T>(&self, change: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        self.engine.forget(&self.file.identity, change)
    }

    /// What was counted of it since the start, or since it was last forgotten for busier files.
    pub fn counts(&self) -> RequestCounts {
        self.file.counts()
    }

    /// Whether the next start would drop the line of this byte if the power failed now.
    pub fn is_marked(&self, offset: u64) -> bool {
        let key = first_key(self.file.number) + offset / self.engine.line_bytes;
        self.engine.intent.is_line_marked(key)
    }

    /// The parts of a request, which is not empty. `None` if it goes beyond the last key of a file.
    fn split(&self, offset: u64, len: usize, is_write: bool) -> Option<SmallVec<[Part; 2]>> {
        let last = (offset + len as u64 - 1) / self.engine.line_bytes;
        if last > u64::from(u32::MAX) || len > u32::MAX as usize {
            return None;
        }
        let (first, len) = (first_key(self.file.number), len as u32);
        let streams = self.engine.streams.as_ref();
        let are_seen = |streams: &&Streams| (is_write || streams.has_reads) && self.is_cached();
        Some(match streams.filter(are_seen) {
            Some(streams) => lock(&streams.splitter).split_from(first, offset, len).collect(),
            None => self.engine.splitter.look_from(first, offset, len).collect(),
        })
    }
}

/// The units that a part touches.
fn units_of(part: &Part) -> u64 {
    let unit = UNIT_BYTES as u32;
    below(part.end.div_ceil(unit)) & !below(part.start / unit)
}

/// The units that a part covers.
fn whole_units_of(part: &Part) -> u64 {
    let unit = UNIT_BYTES as u32;
    below(part.end / unit) & !below(part.start.div_ceil(unit))
}

fn below(units: u32) -> u64 {
    1_u64.checked_shl(units).map_or(u64::MAX, |bit| bit - 1)
}

impl Drop for CachedFile {
    fn drop(&mut self) {
        // The last of a removed file takes its lines along. Tidying may hold the file too; then they leave by and by.
        let is_last = Arc::strong_count(&self.file) == 1 && self.check_running().is_ok();
        if is_last && self.file.is_forgotten.load(Ordering::Acquire) {
            self.engine.drop_lines(self.file.number, 0..u64::MAX);
        } else if is_last {
            self.engine.let_go_of_empty(&self.file);
        }
    }
}
