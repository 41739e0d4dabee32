//! Which requests an image gets, one after the other, whatever the cluster does with them.

use bathy_random::Random;

use crate::failure::Failure;
use crate::plan::{Direction, Pattern, Plan, RequestKind};
use crate::zipf::Zipf;

/// A request of one image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Which image.
    pub image: u32,
    /// Which of the plan's kinds.
    pub kind: u32,
    /// What it does.
    pub direction: Direction,
    /// Where it begins.
    pub offset: u64,
    /// How long it is.
    pub bytes: u32,
}

/// The requests of one image, without end.
pub struct Requests {
    image: u32,
    kinds: Vec<Kind>,
    weights: f64,
    pattern: Pattern,
    offset: u64,
    size: u64,
    /// Where a sequential load goes on, in the working set.
    cursor: u64,
    random: Random,
}

struct Kind {
    about: RequestKind,
    /// Weights of this one and of those before it.
    up_to: f64,
    zipf: Option<(Zipf, u64)>,
}

impl Requests {
    /// The requests of the image number `image`, which has `image_bytes`.
    ///
    /// # Errors
    /// If the working set does not fit into the image, or a request not into the working set.
    pub fn new(plan: &Plan, image: u32, image_bytes: u64) -> Result<Self, Failure> {
        let rest = image_bytes.saturating_sub(plan.offset_bytes);
        let size = plan.working_set_bytes.unwrap_or(rest);
        let longest = plan
            .requests
            .iter()
            .map(|kind| kind.block_bytes)
            .max()
            .unwrap_or(0);
        if size > rest || plan.offset_bytes % 512 != 0 {
            return Err(Failure::new(
                format!(
                    "a working set of {size} bytes from {} on must lie in the image, which has {image_bytes} bytes, \
                     and begin at a multiple of 512",
                    plan.offset_bytes
                ),
                "make working_set_bytes or offset_bytes smaller",
            ));
        }
        if longest > size {
            return Err(Failure::new(
                format!("a request of {longest} bytes is longer than the working set, {size} bytes"),
                "make block_bytes smaller, or the working set larger",
            ));
        }
        let mut weights = 0.0;
        let kinds = plan.requests.iter().map(|about| {
            weights += about.weight;
            let zipf = match plan.pattern {
                Pattern::Zipf { theta } if about.block_bytes > 0 => {
                    let blocks = size / about.block_bytes;
                    Some((Zipf::new(blocks, theta), step_between_ranks(blocks)))
                }
                _ => None,
            };
            Kind {
                about: *about,
                up_to: weights,
                zipf,
            }
        });
        Ok(Self {
            image,
            kinds: kinds.collect(),
            weights,
            pattern: plan.pattern,
            offset: plan.offset_bytes,
            size,
            cursor: 0,
            random: Random::of_stream(plan.seed, u64::from(image)),
        })
    }

    /// How much of the image they touch.
    pub fn working_set_bytes(&self) -> u64 {
        self.size
    }

    /// The next request.
    pub fn next_request(&mut self) -> Request {
        let at = if self.kinds.len() == 1 {
            0.0
        } else {
            self.random.unit() * self.weights
        };
        let index = self.kinds.partition_point(|kind| kind.up_to <= at);
        let index = index.min(self.kinds.len() - 1);
        let about = self.kinds[index].about;
        let start = if about.block_bytes == 0 {
            0
        } else {
            self.offset + self.start(index)
        };
        Request {
            image: self.image,
            kind: index as u32,
            direction: about.direction,
            offset: start,
            bytes: about.block_bytes as u32,
        }
    }

    fn start(&mut self, kind: usize) -> u64 {
        let block_bytes = self.kinds[kind].about.block_bytes;
        let blocks = self.size / block_bytes;
        match self.pattern {
            Pattern::Random => self.random.below(blocks) * block_bytes,
            Pattern::Sequential => {
                let start = if self.cursor + block_bytes > self.size {
                    0
                } else {
                    self.cursor
                };
                self.cursor = start + block_bytes;
                start
            }
            Pattern::Zipf { .. } => {
                let Some((zipf, step)) = &self.kinds[kind].zipf else {
                    unreachable!("each kind with a size has one");
                };
                let rank = zipf.rank(&mut self.random);
                (u128::from(rank) * u128::from(*step) % u128::from(blocks)) as u64 * block_bytes
            }
            Pattern::HotSet { space, requests } => {
                let hot = ((blocks as f64 * space).round() as u64).clamp(1, blocks);
                let is_hot = hot == blocks || self.random.unit() < requests;
                let block = if is_hot {
                    self.random.below(hot)
                } else {
                    hot + self.random.below(blocks - hot)
                };
                block * block_bytes
            }
        }
    }
}

/// Ranks are scattered by steps of about the golden ratio of all, with no divisor in common: each block has one rank.
fn step_between_ranks(blocks: u64) -> u64 {
    let near = (blocks as f64 * 0.618_033_988_749_895) as u64;
    let divisor = |mut a: u64, mut b: u64| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let steps = near.max(1)..=blocks;
    steps
        .into_iter()
        .find(|&step| divisor(step, blocks) == 1)
        .unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use proptest::prelude::*;

    use super::*;

    fn requests(pattern: &str, kinds: &str, working_set: u64, offset: u64, size: u64) -> Requests {
        let text = format!(
            r#"{{"target": {{"null": {{"image_bytes": 1}}}}, "arrival": {{"closed": {{"queue_depth": 1}}}},
                "pattern": {pattern}, "requests": [{kinds}], "working_set_bytes": {working_set},
                "offset_bytes": {offset}, "duration_s": 1}}"#
        );
        let plan = Plan::parse(text.as_bytes()).expect("a plan");
        Requests::new(&plan, 3, size).unwrap_or_else(|failure| panic!("{failure}"))
    }

    const READ_4K: &str = r#"{"direction": "read", "block_bytes": 4096}"#;

    #[test]
    fn a_sequential_load_touches_each_block_once_and_begins_again() {
        let mut all = requests("\"sequential\"", READ_4K, 40_960, 8192, 1 << 20);
        let offsets: Vec<u64> = (0..12).map(|_| all.next_request().offset).collect();
        let expected: Vec<u64> = (0..12).map(|index| 8192 + index % 10 * 4096).collect();
        assert_eq!(offsets, expected);
    }

    #[test]
    fn a_hot_set_gets_its_share() {
        let mut all = requests(
            r#"{"hot-set": {"space": 0.1, "requests": 0.9}}"#,
            READ_4K,
            4_096_000,
            0,
            1 << 30,
        );
        let hot = (0..10_000)
            .filter(|_| all.next_request().offset < 409_600)
            .count();
        assert!((8_900..9_100).contains(&hot), "{hot}");
    }

    #[test]
    fn the_hottest_blocks_of_zipf_lie_apart_and_every_block_has_a_rank() {
        let mut all = requests(r#"{"zipf": {"theta": 0.99}}"#, READ_4K, 4096 * 1000, 0, 1 << 30);
        let mut seen: HashMap<u64, u32> = HashMap::new();
        for _ in 0..200_000 {
            *seen.entry(all.next_request().offset / 4096).or_default() += 1;
        }
        let mut hottest: Vec<(u64, u32)> = seen.into_iter().collect();
        hottest.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
        // The weights of 1,000 ranks sum up to 7.7.
        assert!((24_000..28_000).contains(&hottest[0].1), "{:?}", hottest[0]);
        assert!(hottest[0].0.abs_diff(hottest[1].0) > 100);
        for blocks in [1_u64, 2, 3, 10, 97, 1000] {
            let step = step_between_ranks(blocks);
            let places: HashSet<u64> = (0..blocks).map(|rank| rank * step % blocks).collect();
            assert_eq!(places.len() as u64, blocks);
        }
    }

    #[test]
    fn weights_make_the_mix() {
        let kinds = r#"{"direction": "read", "block_bytes": 4096, "weight": 7},
                       {"direction": "write", "block_bytes": 8192, "weight": 2},
                       {"direction": "flush", "weight": 1}"#;
        let mut all = requests("\"random\"", kinds, 1 << 20, 0, 1 << 20);
        let mut count = [0_u32; 3];
        for _ in 0..10_000 {
            let request = all.next_request();
            count[request.kind as usize] += 1;
            assert_eq!(request.bytes, [4096, 8192, 0][request.kind as usize]);
        }
        for (seen, expected) in count.into_iter().zip([7_000_u32, 2_000, 1_000]) {
            assert!(seen.abs_diff(expected) < 150, "{count:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn every_request_lies_in_the_working_set_at_a_multiple_of_its_size(
            pattern in prop::sample::select(vec![
                r#""random""#, r#""sequential""#, r#"{"zipf": {"theta": 1.2}}"#,
                r#"{"hot-set": {"space": 0.01, "requests": 0.5}}"#,
            ]),
            sizes in prop::collection::vec(1_u64..64, 1..4),
            spare in 0_u64..300,
            offset in 0_u64..100,
        ) {
            let kinds: Vec<String> = sizes.iter()
                .map(|size| format!(r#"{{"direction": "write", "block_bytes": {}}}"#, size * 512)).collect();
            let working_set = (sizes.iter().max().unwrap() + spare) * 512;
            let mut all = requests(pattern, &kinds.join(","), working_set, offset * 512, 1 << 30);
            for _ in 0..200 {
                let request = all.next_request();
                let start = request.offset - offset * 512;
                prop_assert!(start + u64::from(request.bytes) <= working_set);
                if pattern != r#""sequential""# {
                    prop_assert_eq!(start % u64::from(request.bytes), 0);
                }
                prop_assert_eq!(u64::from(request.bytes), sizes[request.kind as usize] * 512);
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let text = r#"{"target": {"null": {"image_bytes": 1}}, "arrival": {"closed": {"queue_depth": 1}},
            "requests": [{"direction": "read", "block_bytes": 8192}], "duration_s": 1}"#;
        let plan = Plan::parse(text.as_bytes()).expect("a plan");
        let refused = Requests::new(&plan, 0, 4096).err().map(|failure| failure.message);
        assert!(refused.is_some_and(|it| it.contains("longer than the working set, 4096 bytes")));
    }
}
