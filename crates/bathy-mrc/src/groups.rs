//! Profiles by group (OSD, image, pool, node) and by line size, in one pass over a mixed trace.

use std::collections::BTreeMap;

use crate::pipeline::{Pipeline, Stage};
use crate::profile::Profile;
use crate::tracker::TrackerOptions;
use bathy_cache_model::{Io, LineSize};

/// A request and the group whose cache it would go through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupedIo {
    /// The group's number, `u32::MAX` for requests of unknown group.
    pub group: u32,
    /// The request.
    pub io: Io,
}

/// One profile for each group.
#[derive(Clone, Debug)]
pub struct GroupedProfiles {
    options: TrackerOptions,
    line: LineSize,
    profiles: BTreeMap<u32, Profile>,
}

impl GroupedProfiles {
    /// No group yet; each gets a profile of these options at its first request.
    pub fn new(options: TrackerOptions, line: LineSize) -> Self {
        Self {
            options,
            line,
            profiles: BTreeMap::new(),
        }
    }

    /// References requests, each in the cache of its group. Neighbours of the same group are taken together, so requests
    /// that are sorted by group, in order within each, take least time.
    pub fn access(&mut self, requests: &[GroupedIo]) {
        for requests in requests.chunk_by(|one, next| one.group == next.group) {
            self.access_in(requests[0].group, requests);
        }
    }

    /// References requests in the cache of one group, whatever theirs is.
    fn access_in(&mut self, group: u32, requests: &[GroupedIo]) {
        let (options, line) = (self.options, self.line);
        self.profiles
            .entry(group)
            .or_insert_with(|| Profile::new(options, line))
            .access_ios(requests.iter().map(|request| request.io));
    }

    /// The profiles by group number.
    pub fn profiles(&self) -> &BTreeMap<u32, Profile> {
        &self.profiles
    }

    /// Joins the groups of the piece of trace that follows; see [`Profile::join`].
    pub fn join(&mut self, later: Self) {
        for (group, profile) in later.profiles {
            match self.profiles.entry(group) {
                std::collections::btree_map::Entry::Vacant(place) => {
                    place.insert(profile);
                }
                std::collections::btree_map::Entry::Occupied(mut place) => place.get_mut().join(profile),
            }
        }
    }

    /// Bytes held.
    pub fn memory_bytes(&self) -> usize {
        self.profiles.values().map(Profile::memory_bytes).sum()
    }
}

/// The same requests at several line sizes.
#[derive(Clone, Debug, Default)]
pub struct LineSweep {
    sets: Vec<GroupedProfiles>,
    /// All requests count in group 0.
    one_group: bool,
}

impl LineSweep {
    /// One set of groups for each line size.
    pub fn new(options: TrackerOptions, lines: &[LineSize]) -> Self {
        Self {
            sets: lines
                .iter()
                .map(|&line| GroupedProfiles::new(options, line))
                .collect(),
            one_group: false,
        }
    }

    /// As [`LineSweep::new`], for profiles of all groups together, as group 0.
    pub fn of_whole(options: TrackerOptions, lines: &[LineSize]) -> Self {
        Self {
            one_group: true,
            ..Self::new(options, lines)
        }
    }

    /// Samples aligned regions of so many bytes together, at every line size; before the first request.
    #[must_use]
    pub fn in_regions(mut self, region_bytes: u64) -> Self {
        for set in &mut self.sets {
            let lines = region_bytes / set.line.bytes();
            set.options.group_bits = lines.checked_ilog2().unwrap_or(0);
        }
        self
    }

    /// Adds a stage for each line size to `pipeline`. They take the batches of `parent` whose requests `requests` finds.
    pub fn add_to<'a, T: Send + Sync>(
        &'a mut self,
        pipeline: &mut Pipeline<'a, T>,
        parent: Option<Stage>,
        requests: impl Fn(&T) -> &[GroupedIo] + Copy + Send + 'a,
    ) {
        let one_group = self.one_group;
        for set in &mut self.sets {
            pipeline.add(parent, move |batch| {
                let requests = requests(batch);
                if one_group {
                    set.access_in(0, requests);
                } else {
                    set.access(requests);
                }
                None
            });
        }
    }

    /// The sets, in the order of the line sizes.
    pub fn sets(&self) -> &[GroupedProfiles] {
        &self.sets
    }

    /// Gives the profiles away, in the order of the line sizes and by group number; what comes later makes new ones.
    pub fn take_profiles(&mut self) -> Vec<(LineSize, BTreeMap<u32, Profile>)> {
        let take = |set: &mut GroupedProfiles| (set.line, std::mem::take(&mut set.profiles));
        self.sets.iter_mut().map(take).collect()
    }

    /// Bytes held.
    pub fn memory_bytes(&self) -> usize {
        self.sets.iter().map(GroupedProfiles::memory_bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ops, Sampling, Unit};

    fn requests() -> Vec<GroupedIo> {
        (0..20_000u64)
            .map(|step| {
                let random = crate::hash::mix64(step);
                let io = Io {
                    offset_bytes: (random % 3000) * 4096,
                    length_bytes: 4096 << ((random >> 40) % 5),
                    write: random >> 60 == 0,
                    volume: (random >> 50) as u32 % 2,
                };
                GroupedIo {
                    group: (random >> 20) as u32 % 3,
                    io,
                }
            })
            .collect()
    }

    #[test]
    fn a_mixed_pass_equals_a_pass_for_each_group_and_line() {
        let options = TrackerOptions::new(Sampling::Size(500));
        let lines = [4096, 16_384, 65_536].map(|bytes| LineSize::new(bytes).expect("valid"));
        let requests = requests();
        let mut sweep = LineSweep::new(options, &lines);
        let mut whole = LineSweep::of_whole(options, &lines);
        let mut pipeline = Pipeline::new(4);
        sweep.add_to(&mut pipeline, None, |batch: &&[GroupedIo]| batch);
        whole.add_to(&mut pipeline, None, |batch: &&[GroupedIo]| batch);
        pipeline.run(requests.chunks(999), 2);
        let sizes = [10, 100, 1000, 3000];
        for (set, line) in sweep.sets().iter().zip(lines) {
            for (&group, profile) in set.profiles() {
                let mut alone = Profile::new(options, line);
                requests
                    .iter()
                    .filter(|r| r.group == group)
                    .for_each(|r| alone.access_io(r.io));
                for unit in [Unit::Lines, Unit::Requests, Unit::Bytes] {
                    assert_eq!(
                        profile.curve(&sizes, unit, Ops::All),
                        alone.curve(&sizes, unit, Ops::All)
                    );
                }
            }
            assert_eq!(set.profiles().len(), 3);
        }
        for (set, line) in whole.sets().iter().zip(lines) {
            let mut alone = Profile::new(options, line);
            alone.access_ios(requests.iter().map(|request| request.io));
            let curve = alone.curve(&sizes, Unit::Requests, Ops::All);
            assert_eq!(set.profiles()[&0].curve(&sizes, Unit::Requests, Ops::All), curve);
        }
    }
}
