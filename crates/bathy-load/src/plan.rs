//! What is asked for: the plan that the program reads.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;

use bathy_trace::{Format, TraceError};
use serde::Deserialize;

use crate::failure::Failure;
use crate::verify::{BLOCK_BYTES, BLOCK_NUMBER_BYTES};

/// Requests in flight at most, where the plan has no number.
const IN_FLIGHT_DEFAULT: u64 = 16_384;
/// A plan with more has no sense, and their slots alone are 100 MB.
const IN_FLIGHT_MAX: u64 = 1_000_000;
/// A second's requests: some times more than one thread sends.
const RATE_MAX: f64 = 2e6;
const IMAGES_MAX: f64 = 4096.0;
const KINDS_MAX: usize = 64;
const DAY_S: f64 = 86_400.0;
/// An option of librados that would end requests that we count as waiting.
const OSD_TIMEOUT: &str = "rados_osd_op_timeout";

/// A load.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Where the requests go.
    pub target: TargetPlan,
    /// When they start.
    pub arrival: Arrival,
    /// What they are, by weight; nothing in a replay.
    #[serde(default)]
    pub requests: Vec<RequestKind>,
    /// Which blocks they touch.
    #[serde(default)]
    pub pattern: Pattern,
    /// The first byte that the load touches, in each image.
    #[serde(default)]
    pub offset_bytes: u64,
    /// How much it touches from there on; the rest of the image where it is not given.
    pub working_set_bytes: Option<u64>,
    /// Seconds of load before what is measured.
    #[serde(default)]
    pub ramp_s: f64,
    /// Seconds that are measured.
    pub duration_s: f64,
    /// So many requests and no more, ramp included.
    pub request_count: Option<u64>,
    /// A request that has not completed so many seconds after its intended start has failed.
    #[serde(default = "default_deadline")]
    pub deadline_s: f64,
    /// Requests in flight at most.
    pub in_flight_max: Option<u64>,
    /// Memory for data in flight, and for what `verify` remembers.
    #[serde(default = "default_memory")]
    pub memory_bytes_max: u64,
    /// How small the data that are written can be compressed: 2 is to half of their size.
    #[serde(default = "one")]
    pub compression_ratio: f64,
    /// Whether what is read is checked.
    #[serde(default)]
    pub verify: Verify,
    /// The same seed gives the same load.
    #[serde(default = "one_seed")]
    pub seed: u64,
}

/// Whether what is read is checked.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Verify {
    /// It is not.
    #[default]
    Off,
    /// It is; what this load has not written may be zero.
    On,
    /// It is; all of the working set has been written by such a load before.
    Filled,
}

/// Where requests go.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum TargetPlan {
    /// Nowhere: each completes at once. Shows what the program itself costs.
    Null(NullPlan),
    /// To images of a pool, through librbd.
    Rbd(RbdPlan),
}

/// Images that are none.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NullPlan {
    /// How many.
    #[serde(default = "one_image")]
    pub images: usize,
    /// Size of each.
    pub image_bytes: u64,
}

/// Images of a pool.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RbdPlan {
    /// The configuration of the cluster; Ceph's default where it is not given.
    pub conf: Option<PathBuf>,
    /// The client's whole name.
    #[serde(default = "default_client")]
    pub client: String,
    /// The client's keyring; that of the configuration where it is not given.
    pub keyring: Option<PathBuf>,
    /// The pool.
    pub pool: String,
    /// A namespace of the pool.
    #[serde(default)]
    pub namespace: String,
    /// The images, which exist.
    pub images: Vec<String>,
    /// Seconds that connecting may take, that opening the images may take, and closing them.
    #[serde(default = "default_connect")]
    pub connect_timeout_s: u32,
    /// Options of the client, which come after the configuration.
    #[serde(default)]
    pub options: BTreeMap<String, String>,
}

/// When requests start.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Arrival {
    /// An open loop: when the schedule says.
    Open(Schedule),
    /// When they did in a recorded trace, which also says what they are.
    Replay(ReplayPlan),
    /// A closed loop: when another one has completed.
    Closed {
        /// Requests in flight, for each image.
        queue_depth: u32,
    },
}

/// A recorded trace as a load.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplayPlan {
    /// The file.
    pub trace: PathBuf,
    /// Its format, where content and name do not show it.
    format: Option<String>,
    /// How much faster than it was recorded.
    #[serde(default = "one")]
    pub speed: f64,
    /// Names of the volumes that are replayed, one for each image; without them, volumes have images in the order in which
    /// they appear.
    #[serde(default)]
    pub volumes: Vec<String>,
    /// What to do with requests that reach beyond the end of their image.
    #[serde(default)]
    pub beyond_end: BeyondEnd,
    /// Of the RBD images of a trace of OSDs: bytes of an object.
    #[serde(default = "default_object")]
    pub object_bytes: u64,
}

/// What to do with requests that reach beyond the end of their image.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum BeyondEnd {
    /// The load is refused.
    #[default]
    Refuse,
    /// They begin at the remainder of their offset by the image's size.
    Wrap,
}

impl ReplayPlan {
    /// The format, if it is stated.
    ///
    /// # Errors
    /// If there is none of this name.
    pub fn format(&self) -> Result<Option<Format>, TraceError> {
        self.format.as_deref().map(str::parse).transpose()
    }
}

/// The arrivals of an open loop.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// How they follow each other.
    pub process: Process,
    /// The rate of the whole load; this or the next.
    pub rate_iops: Option<f64>,
    /// The rate of each image.
    pub rate_iops_per_image: Option<f64>,
    /// They come in bursts.
    pub bursts: Option<Bursts>,
}

/// How arrivals follow each other.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Process {
    /// At equal distances, image after image.
    Constant,
    /// Independently of each other, each for an image by chance: a Poisson process, as the sum of many users makes it.
    Poisson,
}

/// Arrivals for a time, then none for a time, again and again. The rate is the mean over both.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bursts {
    /// Seconds with arrivals.
    pub on_s: f64,
    /// Seconds without.
    pub off_s: f64,
}

/// One kind of request.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestKind {
    /// What it does.
    pub direction: Direction,
    /// How much; 0 for flushes.
    #[serde(default)]
    pub block_bytes: u64,
    /// How often, beside the weights of the others.
    #[serde(default = "one")]
    pub weight: f64,
}

/// What a request does.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// It reads.
    Read,
    /// It writes.
    Write,
    /// It makes durable what was written.
    Flush,
}

impl Direction {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Flush];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
        }
    }
}

/// Which blocks of the working set of an image requests touch. A block is as long as the request.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Pattern {
    /// Each block with the same probability.
    #[default]
    Random,
    /// One after the other, and again from the first.
    Sequential,
    /// By Zipf's distribution; the hot blocks lie scattered.
    Zipf {
        /// Its exponent: 0.99 is usual.
        theta: f64,
    },
    /// A part of the working set, its first, gets more than its share.
    HotSet {
        /// Share of the working set that is hot.
        space: f64,
        /// Share of the requests that it gets.
        requests: f64,
    },
}

fn default_object() -> u64 {
    4 << 20
}

fn default_deadline() -> f64 {
    30.0
}

fn default_memory() -> u64 {
    1 << 30
}

fn default_connect() -> u32 {
    30
}

fn default_client() -> String {
    "client.admin".to_owned()
}

fn one() -> f64 {
    1.0
}

fn one_seed() -> u64 {
    1
}

fn one_image() -> usize {
    1
}

fn refuse<T>(message: String, hint: &str) -> Result<T, Failure> {
    Err(Failure::new(message, hint))
}

fn within(name: &str, value: f64, least: f64, most: f64) -> Result<(), Failure> {
    if value >= least && value <= most {
        return Ok(());
    }
    refuse(
        format!("{name} must be from {least} to {most} (got {value})"),
        "change it in the plan",
    )
}

impl Plan {
    /// Read and check a plan.
    ///
    /// # Errors
    /// If it is not understood, or asks for what is not possible.
    pub fn parse(text: &[u8]) -> Result<Self, Failure> {
        let plan: Self = serde_json::from_slice(text).map_err(|error| {
            Failure::new(
                format!("the plan is not understood: {error}"),
                "bathy-load --help has the keys of a plan, and an example",
            )
        })?;
        plan.check()?;
        Ok(plan)
    }

    fn check(&self) -> Result<(), Failure> {
        within("ramp_s", self.ramp_s, 0.0, DAY_S)?;
        within("duration_s", self.duration_s, 0.001, 30.0 * DAY_S)?;
        within("deadline_s", self.deadline_s, 0.001, 3600.0)?;
        within("compression_ratio", self.compression_ratio, 1.0, 100.0)?;
        if let Some(most) = self.in_flight_max {
            within("in_flight_max", most as f64, 1.0, IN_FLIGHT_MAX as f64)?;
        }
        self.check_requests()?;
        match self.pattern {
            Pattern::Random | Pattern::Sequential => {}
            Pattern::Zipf { theta } => within("theta", theta, 0.01, 10.0)?,
            Pattern::HotSet { space, requests } => {
                within("space", space, 0.0001, 1.0)?;
                within("requests", requests, 0.0, 1.0)?;
            }
        }
        if let TargetPlan::Rbd(rbd) = &self.target {
            rbd.check()?;
        }
        let images = self.images();
        within("images", images as f64, 1.0, IMAGES_MAX)?;
        self.check_arrival(images)?;
        let working_sets = self.working_set_bytes.unwrap_or(0).saturating_mul(images as u64);
        self.check_memory(images, working_sets)
    }

    fn check_arrival(&self, images: usize) -> Result<(), Failure> {
        let schedule = match &self.arrival {
            &Arrival::Closed { queue_depth } => {
                let depth = f64::from(queue_depth);
                within("queue_depth", depth, 1.0, 65_536.0)?;
                return within(
                    "queue_depth x images",
                    depth * images as f64,
                    1.0,
                    IN_FLIGHT_MAX as f64,
                );
            }
            Arrival::Replay(replay) => return self.check_replay(replay, images),
            Arrival::Open(schedule) => schedule,
        };
        match (schedule.rate_iops, schedule.rate_iops_per_image) {
            (Some(rate), None) => within("rate_iops", rate, 0.001, RATE_MAX)?,
            (None, Some(rate)) => {
                within("rate_iops_per_image", rate, 0.001, RATE_MAX)?;
                within(
                    "rate_iops_per_image x images",
                    rate * images as f64,
                    0.001,
                    RATE_MAX,
                )?;
            }
            _ => {
                return refuse(
                    "an open arrival has either rate_iops or rate_iops_per_image".to_owned(),
                    "rate_iops is the rate of the whole load, rate_iops_per_image that of one image",
                );
            }
        }
        if let Some(bursts) = schedule.bursts {
            within("on_s", bursts.on_s, 0.000_001, DAY_S)?;
            within("off_s", bursts.off_s, 0.0, DAY_S)?;
            let in_burst = Self::rate_iops(schedule, images) * (1.0 + bursts.off_s / bursts.on_s);
            within("the rate within bursts", in_burst, 0.001, RATE_MAX)?;
        }
        Ok(())
    }

    fn check_replay(&self, replay: &ReplayPlan, images: usize) -> Result<(), Failure> {
        within("speed", replay.speed, 0.001, 1e6)?;
        within("volumes", replay.volumes.len() as f64, 0.0, images as f64)?;
        let is_whole = self.offset_bytes == 0 && self.working_set_bytes.is_none();
        if !self.requests.is_empty()
            || !is_whole
            || self.pattern != Pattern::Random
            || self.verify != Verify::Off
        {
            return refuse(
                "a replay has no requests, pattern, offset_bytes, working_set_bytes and verify of its own"
                    .to_owned(),
                "leave them out: the trace says what is read and written",
            );
        }
        Ok(())
    }

    /// Refuse a load that needs more memory than it may take; `working_set_bytes` is what it touches, of all images together.
    ///
    /// # Errors
    /// If it does.
    pub fn check_memory(&self, images: usize, working_set_bytes: u64) -> Result<(), Failure> {
        // What is not verified writes from memory that all share.
        let with_memory = self
            .requests
            .iter()
            .filter(|kind| kind.direction == Direction::Read || self.verify != Verify::Off);
        let longest = with_memory.map(|kind| kind.block_bytes).max();
        // An open loop holds requests back that have no room.
        let at_once = match &self.arrival {
            &Arrival::Closed { queue_depth } => {
                (u64::from(queue_depth) * images as u64).min(self.in_flight_max(images))
            }
            Arrival::Open(_) | Arrival::Replay(_) => 1,
        };
        let data_bytes = at_once * longest.unwrap_or(0);
        let verify_bytes = self.verify_bytes(working_set_bytes);
        if data_bytes.saturating_add(verify_bytes) <= self.memory_bytes_max {
            return Ok(());
        }
        refuse(
            format!(
                "the load needs {data_bytes} bytes of memory for data and {verify_bytes} for the blocks that verify \
                 remembers; memory_bytes_max is {}",
                self.memory_bytes_max
            ),
            "make queue_depth, block_bytes or working_set_bytes smaller, or memory_bytes_max larger",
        )
    }

    /// What verifying a working set takes: only who reads what it writes itself has to remember it.
    pub fn verify_bytes(&self, working_set_bytes: u64) -> u64 {
        let has = |direction| self.requests.iter().any(|kind| kind.direction == direction);
        if self.verify == Verify::Off || !has(Direction::Read) || !has(Direction::Write) {
            return 0;
        }
        working_set_bytes / BLOCK_BYTES * BLOCK_NUMBER_BYTES
    }

    fn check_requests(&self) -> Result<(), Failure> {
        if self.requests.is_empty() && self.replay().is_none() {
            return refuse(
                "requests is empty".to_owned(),
                r#""requests": [{"direction": "read", "block_bytes": 4096}]"#,
            );
        }
        if self.requests.len() > KINDS_MAX {
            return refuse(
                format!(
                    "requests has {} kinds, and may have {KINDS_MAX}",
                    self.requests.len()
                ),
                "leave out those with the least weight",
            );
        }
        let is_split = |bytes: u64| bytes % BLOCK_BYTES != 0;
        let sizes = self.requests.iter().map(|kind| kind.block_bytes);
        if self.verify != Verify::Off && sizes.chain([self.offset_bytes]).any(is_split) {
            return refuse(
                format!("with verify, block_bytes and offset_bytes must be multiples of {BLOCK_BYTES}"),
                "change them in the plan, or leave verify out",
            );
        }
        for kind in &self.requests {
            within("weight", kind.weight, 1e-6, 1e6)?;
            let is_flush = kind.direction == Direction::Flush;
            let is_size = kind.block_bytes % 512 == 0 && kind.block_bytes > 0 && kind.block_bytes <= 32 << 20;
            if is_flush != (kind.block_bytes == 0) || !(is_flush || is_size) {
                return refuse(
                    format!(
                        "block_bytes must be a multiple of 512 up to 32 MiB, and 0 for flushes (got {} for a {})",
                        kind.block_bytes,
                        kind.direction.name()
                    ),
                    "change it in the plan",
                );
            }
        }
        Ok(())
    }

    /// The rate of an open loop.
    pub fn rate_iops(schedule: &Schedule, images: usize) -> f64 {
        let of_images = schedule.rate_iops_per_image.map(|rate| rate * images as f64);
        schedule
            .rate_iops
            .or(of_images)
            .expect("checked: it has one of them")
    }

    /// Requests in flight at most.
    pub fn in_flight_max(&self, images: usize) -> u64 {
        let depth = match &self.arrival {
            &Arrival::Closed { queue_depth } => u64::from(queue_depth) * images as u64,
            Arrival::Open(_) | Arrival::Replay(_) => 0,
        };
        self.in_flight_max.unwrap_or(IN_FLIGHT_DEFAULT.max(depth))
    }

    /// The trace that is replayed, if one is.
    pub fn replay(&self) -> Option<&ReplayPlan> {
        match &self.arrival {
            Arrival::Replay(replay) => Some(replay),
            Arrival::Open(_) | Arrival::Closed { .. } => None,
        }
    }

    /// How many images there are.
    pub fn images(&self) -> usize {
        match &self.target {
            TargetPlan::Null(null) => null.images,
            TargetPlan::Rbd(rbd) => rbd.images.len(),
        }
    }

    /// The images, by names that no other image of the cluster has.
    pub fn image_names(&self) -> Vec<String> {
        match &self.target {
            TargetPlan::Null(null) => (0..null.images).map(|index| index.to_string()).collect(),
            TargetPlan::Rbd(rbd) => {
                let names = rbd.images.iter();
                names
                    .map(|image| format!("{}/{}/{image}", rbd.pool, rbd.namespace))
                    .collect()
            }
        }
    }

    /// Whether anything is written.
    pub fn writes(&self) -> bool {
        self.requests.iter().any(|kind| kind.direction != Direction::Read)
    }
}

impl RbdPlan {
    fn check(&self) -> Result<(), Failure> {
        within(
            "connect_timeout_s",
            f64::from(self.connect_timeout_s),
            1.0,
            3600.0,
        )?;
        let mut seen = HashSet::new();
        if let Some(image) = self.images.iter().find(|&image| !seen.insert(image)) {
            return refuse(
                format!("the image {image} is named twice"),
                "name each image once: two users of an image fight for its lock",
            );
        }
        // As Ceph compares them.
        let is_timeout = |name: &&String| name.replace([' ', '-'], "_") == OSD_TIMEOUT;
        match self.options.keys().find(is_timeout) {
            None => Ok(()),
            Some(name) => refuse(
                format!(
                    "{name} is not for loads: it would end requests that may be carried out all the same"
                ),
                "deadline_s says when a request has failed",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = r#"{
        "target": {"null": {"image_bytes": 1048576}},
        "arrival": {"open": {"process": "poisson", "rate_iops": 100}},
        "requests": [{"direction": "read", "block_bytes": 4096, "weight": 7},
                     {"direction": "write", "block_bytes": 65536, "weight": 3}],
        "duration_s": 10
    }"#;

    #[test]
    fn what_is_not_said_has_a_default() {
        let plan = Plan::parse(PLAN.as_bytes()).expect("a plan");
        assert_eq!((plan.seed, plan.deadline_s, plan.ramp_s), (1, 30.0, 0.0));
        assert_eq!(plan.in_flight_max(1), 16_384);
        assert!(plan.writes());
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_name_and_value() {
        for (from, to, problem) in [
            (
                "\"duration_s\": 10",
                "\"duration\": 10",
                "unknown field `duration`",
            ),
            (
                "\"duration_s\": 10",
                "\"duration_s\": 0",
                "duration_s must be from",
            ),
            ("4096", "4097", "got 4097 for a read"),
            ("\"write\"", "\"flush\"", "got 65536 for a flush"),
            ("\"rate_iops\": 100", "\"rate_iops\": 0", "rate_iops must be from"),
            (
                "\"rate_iops\": 100",
                "\"rate_iops\": 1, \"rate_iops_per_image\": 1",
                "either rate_iops or",
            ),
            ("poisson", "pareto", "unknown variant `pareto`"),
            ("\"weight\": 7", "\"weight\": -1", "weight must be from"),
            ("\"weight\": 7", "\"weight\": 1e999", "out of range"),
            (
                "{\"null\": {\"image_bytes\": 1048576}}",
                "{\"rbd\": {\"pool\": \"p\", \"images\": [\"a\", \"b\", \"a\"]}}",
                "the image a is named twice",
            ),
        ] {
            let text = PLAN.replacen(from, to, 1);
            assert_ne!(text, PLAN);
            let refused = Plan::parse(text.as_bytes()).err().map(|failure| failure.message);
            assert!(
                refused.as_deref().is_some_and(|it| it.contains(problem)),
                "{to}: {refused:?}"
            );
        }
    }

    fn changed(changes: &[(&str, &str)]) -> Result<Plan, Failure> {
        let mut plan: serde_json::Value = serde_json::from_str(PLAN).expect("JSON");
        for &(key, value) in changes {
            plan[key] = serde_json::from_str(value).expect("JSON");
        }
        Plan::parse(plan.to_string().as_bytes())
    }

    #[test]
    fn what_no_machine_could_do_is_refused_before_anything_is_opened() {
        const WRITES: (&str, &str) = ("requests", r#"[{"direction": "write", "block_bytes": 4194304}]"#);
        let refuses = |changes: &[(&str, &str)], problem: &str| {
            let refused = changed(changes).err().map(|failure| failure.message);
            assert!(
                refused.as_deref().is_some_and(|it| it.contains(problem)),
                "{changes:?}: {refused:?}"
            );
        };
        let images = |count: u32| format!(r#"{{"null": {{"image_bytes": 1048576, "images": {count}}}}}"#);
        refuses(&[("target", &images(4097))], "images must be from 1 to 4096");
        let each = r#"{"open": {"process": "constant", "rate_iops_per_image": 1e5}}"#;
        refuses(
            &[("target", &images(64)), ("arrival", each)],
            "rate_iops_per_image x images must be from 0.001 to 2000000 (got 6400000)",
        );
        let bursts = r#"{"open": {"process": "constant", "rate_iops": 100, "bursts": {"on_s": 0.5, "off_s": 49999.5}}}"#;
        refuses(
            &[("arrival", bursts)],
            "the rate within bursts must be from 0.001 to 2000000 (got 10000000)",
        );
        let deep = r#"{"closed": {"queue_depth": 65536}}"#;
        refuses(
            &[("target", &images(4096)), ("arrival", deep)],
            "queue_depth x images must be from 1 to 1000000",
        );
        let depth = ("arrival", r#"{"closed": {"queue_depth": 512}}"#);
        let reads = r#"[{"direction": "read", "block_bytes": 4194304}]"#;
        refuses(
            &[depth, ("requests", reads)],
            "needs 2147483648 bytes of memory for data and 0 for",
        );
        let verify = [("verify", "\"on\""), ("working_set_bytes", "1099511627776")];
        refuses(
            &verify,
            "and 2147483648 for the blocks that verify remembers; memory_bytes_max is 1073741824",
        );
        let many = vec![r#"{"direction": "read", "block_bytes": 512}"#; 65].join(", ");
        refuses(
            &[("requests", &format!("[{many}]"))],
            "requests has 65 kinds, and may have 64",
        );
        let option = r#"{"rbd": {"pool": "p", "images": ["a"], "options": {"rados osd-op timeout": "30"}}}"#;
        refuses(&[("target", option)], "rados osd-op timeout is not for loads");
        // Only who reads what it writes remembers blocks, and what is not verified is written from one memory.
        assert!(changed(&[WRITES, depth]).is_ok());
        assert!(changed(&[WRITES, verify[0], verify[1]]).is_ok());
    }
}
