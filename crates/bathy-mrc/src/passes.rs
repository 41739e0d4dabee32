//! One pass of a mixed trace through everything that wants it: profiles, or cache engines, of the whole and of groups.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::engine::{EngineSweep, Pieces, TimedIo};
use crate::groups::{GroupedIo, LineSweep};
use crate::pipeline::Pipeline;
use bathy_cache_model::Io;

/// Requests of a batch at most.
const MOST_REQUESTS: usize = 16_384;

/// Bytes that the requests of a batch read and write at most, but for a single one of more: what is made of a batch
/// grows with its lines.
const MOST_BYTES: u64 = 256 << 20;

/// Batches that are held for the slowest stage.
const WINDOW: usize = 4;

/// Stages for each thread, so that the last to end is not far behind.
const STAGES_PER_THREAD: usize = 2;

/// Sweeps that have stages of their own: the whole trace at some line sizes and policies comes first.
const FEW_SWEEPS: usize = 16;

/// Requests with their groups, and when they were issued.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    requests: Vec<GroupedIo>,
    /// As long as `requests`.
    times_ns: Vec<u64>,
    bytes: u64,
}

impl Batch {
    /// Appends a request.
    #[inline]
    pub fn push(&mut self, request: GroupedIo, time_ns: u64) {
        self.bytes += u64::from(request.io.length_bytes);
        self.requests.push(request);
        self.times_ns.push(time_ns);
    }

    /// Whether the batch is to be handed on.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.requests.len() >= MOST_REQUESTS || self.bytes >= MOST_BYTES
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// The requests.
    pub fn requests(&self) -> &[GroupedIo] {
        &self.requests
    }
}

/// Requests that are in memory, as columns of equal length.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// When each was issued.
    pub time_ns: &'a [u64],
    /// First byte.
    pub offset_bytes: &'a [u64],
    /// Bytes.
    pub length_bytes: &'a [u32],
    /// 0 reads, 1 writes, others are left out.
    pub op: &'a [u8],
    /// Volume.
    pub volume: &'a [u32],
    /// Group.
    pub group: &'a [u32],
}

impl<'a> Rows<'a> {
    /// The requests and their times; rows that are neither reads nor writes, or empty, are left out.
    fn requests(self) -> impl Iterator<Item = (GroupedIo, u64)> + Send + 'a {
        (0..self.offset_bytes.len()).filter_map(move |row| {
            let (op, length_bytes) = (self.op[row], self.length_bytes[row]);
            let io = Io {
                offset_bytes: self.offset_bytes[row],
                length_bytes,
                write: op == 1,
                volume: self.volume[row],
            };
            let group = self.group[row];
            (op <= 1 && length_bytes > 0).then(|| (GroupedIo { group, io }, self.time_ns[row]))
        })
    }

    /// The same in batches.
    pub fn batches(self) -> impl Iterator<Item = Batch> + Send + 'a {
        let mut requests = self.requests();
        std::iter::from_fn(move || {
            let mut batch = Batch::default();
            while !batch.is_full() {
                let Some((request, time_ns)) = requests.next() else {
                    break;
                };
                batch.push(request, time_ns);
            }
            (!batch.is_empty()).then_some(batch)
        })
    }
}

/// The group of the requests whose own is not among those chosen.
pub const OTHERS: u32 = u32::MAX - 1;

/// Profiles of the whole trace, of its groups, or of both, at every line size.
#[derive(Debug, Default)]
pub struct ProfileSet {
    /// Of the whole.
    pub whole: Option<LineSweep>,
    /// Of each group.
    pub groups: Option<LineSweep>,
    /// The groups that have profiles, when not all have; the rest has one as [`OTHERS`].
    pub chosen: Option<HashSet<u32>>,
    /// Groups beyond which none is profiled any more, because each takes memory. All are counted.
    pub most_groups: Option<usize>,
    /// Requests of each group, reads and writes.
    pub counts: BTreeMap<u32, [u64; 2]>,
}

/// What passes between the stages of a [`ProfileSet`].
enum Profiled {
    Batch(Batch),
    /// The same by group, in order within each.
    ByGroup(Vec<GroupedIo>),
}

impl Profiled {
    fn requests(&self) -> &[GroupedIo] {
        match self {
            Self::Batch(batch) => &batch.requests,
            Self::ByGroup(requests) => requests,
        }
    }
}

impl ProfileSet {
    /// Gives every request to the profiles of the whole and of its group, each line size a stage of its own.
    pub fn run(&mut self, batches: impl Iterator<Item = Batch> + Send, threads: usize) {
        let mut pipeline = Pipeline::new(WINDOW);
        if let Some(groups) = &mut self.groups {
            let (chosen, counts) = (&self.chosen, &mut self.counts);
            let most = self.most_groups.unwrap_or(usize::MAX);
            let sorted = pipeline.add(None, move |step: &Profiled| {
                let mut requests = step.requests().to_vec();
                if let Some(chosen) = chosen {
                    for request in requests
                        .iter_mut()
                        .filter(|request| !chosen.contains(&request.group))
                    {
                        request.group = OTHERS;
                    }
                }
                requests.sort_by_key(|request| request.group);
                for of_group in requests.chunk_by(|one, next| one.group == next.group) {
                    let counts = counts.entry(of_group[0].group).or_default();
                    for request in of_group {
                        counts[usize::from(request.io.write)] += 1;
                    }
                }
                (counts.len() <= most).then_some(Profiled::ByGroup(requests))
            });
            groups.add_to(&mut pipeline, Some(sorted), Profiled::requests);
        }
        if let Some(whole) = &mut self.whole {
            whole.add_to(&mut pipeline, None, Profiled::requests);
        }
        pipeline.run(batches.map(Profiled::Batch), threads);
    }

    /// Bytes held.
    pub fn memory_bytes(&self) -> usize {
        let sweeps = self.whole.iter().chain(&self.groups);
        sweeps.map(LineSweep::memory_bytes).sum()
    }
}

/// Which requests a sweep gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Share {
    /// All.
    Whole,
    /// Those of a group.
    Group(u32),
    /// Those of every group without a sweep of its own.
    Others,
}

/// Cache engines of any policy, at several sizes each, over the whole trace and over its groups.
#[derive(Default)]
pub struct EngineSet {
    /// Each with the slot of its share.
    sweeps: Vec<(usize, EngineSweep)>,
    slots: HashMap<Share, usize>,
}

/// What passes between the stages of an [`EngineSet`].
enum Routed {
    Batch(Batch),
    /// The requests of each slot.
    Slots(Vec<Vec<TimedIo>>),
    /// The requests of one sweep, split.
    Pieces(Pieces),
}

impl Routed {
    fn of_slot(&self, slot: usize) -> &[TimedIo] {
        match self {
            Self::Slots(slots) => &slots[slot],
            Self::Batch(_) | Self::Pieces(_) => &[],
        }
    }

    fn pieces(&self) -> &Pieces {
        match self {
            Self::Pieces(pieces) => pieces,
            Self::Batch(_) | Self::Slots(_) => unreachable!("engines follow a splitter"),
        }
    }
}

/// Who gets which requests.
struct Router {
    slots: usize,
    whole: Option<usize>,
    groups: HashMap<u32, usize>,
    others: Option<usize>,
}

impl Router {
    fn new(slots: &HashMap<Share, usize>) -> Self {
        let of_group = |(share, &slot): (&Share, &usize)| match share {
            Share::Group(group) => Some((*group, slot)),
            Share::Whole | Share::Others => None,
        };
        Self {
            slots: slots.len(),
            whole: slots.get(&Share::Whole).copied(),
            groups: slots.iter().filter_map(of_group).collect(),
            others: slots.get(&Share::Others).copied(),
        }
    }

    fn route(&self, batch: &Batch) -> Vec<Vec<TimedIo>> {
        let mut requests = vec![Vec::new(); self.slots];
        for (request, &time_ns) in batch.requests.iter().zip(&batch.times_ns) {
            let timed = TimedIo {
                time_ns,
                io: request.io,
            };
            if let Some(slot) = self.whole {
                requests[slot].push(timed);
            }
            if let Some(slot) = self.groups.get(&request.group).copied().or(self.others) {
                requests[slot].push(timed);
            }
        }
        requests
    }
}

impl EngineSet {
    /// Adds a sweep and returns its number.
    pub fn add(&mut self, share: Share, sweep: EngineSweep) -> usize {
        let next = self.slots.len();
        let slot = *self.slots.entry(share).or_insert(next);
        self.sweeps.push((slot, sweep));
        self.sweeps.len() - 1
    }

    /// The sweep of a number.
    pub fn get(&self, number: usize) -> Option<&EngineSweep> {
        self.sweeps.get(number).map(|(_, sweep)| sweep)
    }

    /// Whether the trace has more distinct lines than a sweep has numbers for.
    pub fn overflowed(&self) -> bool {
        self.sweeps.iter().any(|(_, sweep)| sweep.overflowed())
    }

    /// Bytes held.
    pub fn memory_bytes(&self) -> usize {
        self.sweeps.iter().map(|(_, sweep)| sweep.memory_bytes()).sum()
    }

    /// Gives every request to its engines. Of few sweeps each has stages of its own for its sizes; of many, of which
    /// most see little of each batch, several share a stage.
    pub fn run(&mut self, batches: impl Iterator<Item = Batch> + Send, threads: usize) {
        let router = Router::new(&self.slots);
        let stages = STAGES_PER_THREAD * threads;
        let mut pipeline = Pipeline::new(WINDOW);
        let routed = pipeline.add(None, move |step: &Routed| match step {
            Routed::Batch(batch) => Some(Routed::Slots(router.route(batch))),
            Routed::Slots(_) | Routed::Pieces(_) => None,
        });
        let few = FEW_SWEEPS.min(self.sweeps.len());
        let (few, many) = self.sweeps.split_at_mut(few);
        for (slot, sweep) in few {
            let slot = *slot;
            sweep.add_to(
                &mut pipeline,
                routed,
                move |step| step.of_slot(slot),
                stages,
                Routed::Pieces,
                Routed::pieces,
            );
        }
        let mut shares: Vec<Vec<&mut (usize, EngineSweep)>> = (0..stages).map(|_| Vec::new()).collect();
        for (index, sweep) in many.iter_mut().enumerate() {
            shares[index % stages].push(sweep);
        }
        for mut share in shares.into_iter().filter(|share| !share.is_empty()) {
            pipeline.add(Some(routed), move |step| {
                for (slot, sweep) in &mut share {
                    sweep.access(step.of_slot(*slot).iter().copied());
                }
                None
            });
        }
        pipeline.run(batches.map(Routed::Batch), threads);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LineSize, Ops, Sampling, TrackerOptions};

    fn batches() -> impl Iterator<Item = Batch> + Send {
        (0..20u32).map(|_| {
            let mut batch = Batch::default();
            for group in 0..1000u32 {
                // The first groups have most requests.
                for request in 0..=(100 / (1 + u64::from(group))) {
                    let io = Io {
                        offset_bytes: request * 4096,
                        length_bytes: 4096,
                        write: request % 4 == 3,
                        volume: group,
                    };
                    batch.push(GroupedIo { group, io }, 0);
                }
            }
            batch
        })
    }

    #[test]
    fn of_many_groups_all_are_counted_few_are_profiled_and_the_rest_is_one() {
        let sweep = || {
            let line = LineSize::new(4096).expect("valid");
            LineSweep::new(TrackerOptions::new(Sampling::Size(64)), &[line])
        };
        let mut first = ProfileSet {
            groups: Some(sweep()),
            most_groups: Some(50),
            ..ProfileSet::default()
        };
        first.run(batches(), 2);
        assert_eq!(first.counts.len(), 1000);
        assert_eq!((first.counts[&0], first.counts[&999]), ([1520, 500], [20, 0]));
        assert!(first.groups.expect("given").sets()[0].profiles().len() <= 50);
        let mut second = ProfileSet {
            groups: Some(sweep()),
            chosen: Some(HashSet::from([0, 7])),
            ..ProfileSet::default()
        };
        second.run(batches(), 2);
        let groups = second.groups.expect("given");
        let profiles = groups.sets()[0].profiles();
        assert_eq!(profiles.keys().copied().collect::<Vec<_>>(), [0, 7, OTHERS]);
        let requests: u64 = first.counts.values().flatten().sum();
        let profiled: u64 = profiles
            .values()
            .map(|profile| profile.requests_total(Ops::All))
            .sum();
        assert_eq!(profiled, requests);
        assert_eq!(
            profiles[&7].requests_total(Ops::All),
            first.counts[&7].iter().sum::<u64>()
        );
    }
}
