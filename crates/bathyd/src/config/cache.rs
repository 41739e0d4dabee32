//! The cache: its SSD, its lines, and what may enter them.

use std::path::PathBuf;

use bathy_cache::format::{UNIT_BYTES, Uuid};
use bathy_cache::{CreateOptions, Options};
use bathy_cache_model::{AdmissionOptions, FetchSize, LineSize, MemoryBudget, OverBudget, StreamCutoff};
use bathy_policy::{CachePolicy, PolicyKind};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use crate::failure::Failure;

/// The SSD.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// What it is called in reports.
    #[serde(default)]
    pub name: Option<String>,
    /// A device or file. It holds a cache: a start makes none.
    pub ssd: PathBuf,
    /// Whether it is left alone until somebody attaches it.
    #[serde(default)]
    pub is_detached: bool,
    /// What becomes of what was being written when a session was killed.
    #[serde(default)]
    pub after_unclean: AfterUnclean,
    /// Which lines stay, of a cache that is made anew; one that exists keeps its own.
    #[serde(default = "default_policy", deserialize_with = "policy")]
    pub policy: PolicyKind,
    /// Bytes of a line, of a cache that is made anew; one that exists keeps its own.
    #[serde(default = "default_line", deserialize_with = "line")]
    pub line_bytes: LineSize,
    /// What a miss fetches: "adaptive", or blocks of so many bytes.
    #[serde(default, deserialize_with = "fetch")]
    pub fetch: Fetch,
    /// What may enter it.
    #[serde(default)]
    pub admission: Admission,
    /// Memory that the daemon may take; without it the smaller of 4 GiB and a quarter of the machine's, in steps of 64 MiB.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
}

impl Cache {
    /// Memory that the daemon may take, which has so many threads.
    pub(super) fn memory(&self, threads: u64) -> MemoryBudget {
        let machine = || machine_memory_bytes(&std::fs::read_to_string("/proc/meminfo").ok()?);
        let bytes = self.memory_bytes.or_else(|| machine().map(default_memory_bytes));
        MemoryBudget {
            threads,
            ..bytes.map_or(MemoryBudget::default(), MemoryBudget::of)
        }
    }
}

/// What the daemon of a machine may take by default. Another kernel has a little more or less of the same memory: the cache's
/// slots in memory follow from this, and with others the policy begins anew and what only memory had is lost.
fn default_memory_bytes(machine_bytes: u64) -> u64 {
    const STEP: u64 = 64 << 20;
    let quarter = (machine_bytes / 4 / STEP * STEP).max(STEP);
    quarter.min(MemoryBudget::default().bytes)
}

/// The memory of a machine, as `/proc/meminfo` has it.
fn machine_memory_bytes(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

/// What to do about a cache that needs more memory than it may take: `needed` gives it what it needs.
pub(crate) fn memory_hint(over: &OverBudget, needed: &str) -> String {
    let fits = over.size_bytes_that_fits() as f64 / f64::from(1 << 30);
    match (fits * 10.0).floor() / 10.0 {
        fits if fits > 0.0 => format!("{needed}; or --size {fits:.1}G, the largest cache that fits"),
        _ => format!("{needed}: no cache fits so little memory"),
    }
}

/// What may enter a cache; all that is read or written, as far as nothing is set.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Admission {
    /// At the n-th miss, once the cache is 80 % full.
    #[serde(default)]
    pub n_hit: Option<u8>,
    /// Runs of requests, each of which begins where the last one ended, go past if they are longer.
    #[serde(default)]
    pub stream_cutoff_bytes: Option<u64>,
    /// Only writes make such a run.
    #[serde(default)]
    pub is_stream_of_writes: bool,
    /// Bytes that may be written to the SSD in a day.
    #[serde(default)]
    pub write_budget_bytes_per_day: Option<u64>,
}

impl Default for Admission {
    /// Long runs of writes go past: the log of an OSD's database, which nobody reads while it runs, and what is restored or
    /// copied. A copy of it would cost every write of an OSD, wear the SSD, and take the place of what is read.
    fn default() -> Self {
        Self {
            n_hit: None,
            stream_cutoff_bytes: Some(256 << 10),
            is_stream_of_writes: true,
            write_budget_bytes_per_day: None,
        }
    }
}

impl Admission {
    pub(super) fn check(&self) -> Result<(), Failure> {
        let problem = match *self {
            Self {
                n_hit: Some(0..=1), ..
            } => "n_hit must be at least 2",
            Self {
                stream_cutoff_bytes: Some(0),
                ..
            } => "stream_cutoff_bytes must be greater than 0",
            Self {
                write_budget_bytes_per_day: Some(0),
                ..
            } => "write_budget_bytes_per_day must be greater than 0",
            Self {
                stream_cutoff_bytes: None,
                is_stream_of_writes: true,
                ..
            } => "is_stream_of_writes needs stream_cutoff_bytes",
            _ => return Ok(()),
        };
        Err(Failure::new(
            format!("cache.admission: {problem}"),
            "leave out what is not to be limited",
        ))
    }

    /// The options of an engine.
    pub fn options(self) -> AdmissionOptions {
        AdmissionOptions {
            n_hit: self.n_hit,
            stream_cutoff: self.stream_cutoff_bytes.map(|bytes| StreamCutoff {
                bytes,
                is_of_writes: self.is_stream_of_writes,
            }),
            write_budget_bytes_per_day: self.write_budget_bytes_per_day,
        }
    }
}

/// What a miss fetches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fetch {
    /// Blocks of the size that costs the disk least, as it is measured.
    #[default]
    Adaptive,
    /// Blocks of so many bytes.
    Fixed(u64),
}

impl Fetch {
    /// The options of an engine that fetches so.
    pub fn options(self) -> Options {
        let options = Options::default();
        match self {
            Self::Adaptive => options,
            Self::Fixed(bytes) => Options {
                fetch: FetchSize::Fixed(bytes),
                ..options
            },
        }
    }
}

fn fetch<'a, D: Deserializer<'a>>(deserializer: D) -> Result<Fetch, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Given {
        Bytes(u64),
        Other(serde_json::Value),
    }
    const LINE_BYTES: u64 = LINE_SIZES[LINE_SIZES.len() - 1];
    match Given::deserialize(deserializer)? {
        Given::Bytes(bytes) if bytes.is_power_of_two() && (UNIT_BYTES..=LINE_BYTES).contains(&bytes) => {
            Ok(Fetch::Fixed(bytes))
        }
        Given::Other(word) if word == "adaptive" => Ok(Fetch::Adaptive),
        Given::Bytes(bytes) => Err(bytes.to_string()),
        Given::Other(word) => Err(word.to_string()),
    }
    .map_err(|given| {
        Error::custom(format!(
            "fetch must be \"adaptive\" or a power of two from {UNIT_BYTES} to {LINE_BYTES} bytes (got {given})"
        ))
    })
}

/// The line sizes that a cache is made with.
const LINE_SIZES: [u64; 3] = [16 << 10, 64 << 10, 256 << 10];

fn default_line() -> LineSize {
    CreateOptions::new(Uuid::default()).line
}

fn line<'a, D: Deserializer<'a>>(deserializer: D) -> Result<LineSize, D::Error> {
    let given = serde_json::Value::deserialize(deserializer)?;
    let bytes = given.as_u64().filter(|bytes| LINE_SIZES.contains(bytes));
    bytes.and_then(LineSize::new).ok_or_else(|| {
        let sizes = LINE_SIZES.map(|bytes| bytes.to_string()).join(", ");
        Error::custom(format!("line_bytes must be one of {sizes} (got {given})"))
    })
}

fn default_policy() -> PolicyKind {
    CachePolicy::KINDS[0]
}

fn policy<'a, D: Deserializer<'a>>(deserializer: D) -> Result<PolicyKind, D::Error> {
    let name = String::deserialize(deserializer)?;
    let found = CachePolicy::KINDS.into_iter().find(|kind| kind.name() == name);
    let names = CachePolicy::KINDS.map(PolicyKind::name).join(", ");
    found.ok_or_else(|| Error::custom(format!("policy must be one of {names} (got {name:?})")))
}

/// What becomes of the lines of files and devices of which it cannot be shown that nobody changed them without the cache.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum AfterUnclean {
    /// They are dropped.
    #[default]
    Cold,
    /// Some are compared with the file: another file is found, a single changed block is not.
    Verify,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::parse;

    #[test]
    fn a_policy_is_one_that_a_cache_runs() {
        let with = |policy: &str| {
            parse(&format!(
                r#"{{"socket": "/s", "state": "/t",
                    "cache": {{"ssd": "/u", "policy": "{policy}"}},
                    "sources": [{{"dir": "/d", "mode": "write-through"}}]}}"#
            ))
            .map(|config| config.cache.policy)
        };
        assert_eq!(with("lru"), Ok(PolicyKind::Lru));
        assert_eq!(with("s3-fifo"), Ok(default_policy()));
        let refused = with("arc").err().unwrap_or_default();
        assert!(
            refused.contains("one of s3-fifo, clock2q+, lru (got \"arc\")"),
            "{refused}"
        );
    }

    #[test]
    fn without_a_word_long_runs_of_writes_go_past_and_with_one_it_is_as_said() {
        let with = |admission: &str| {
            let config = parse(&format!(
                r#"{{"socket": "/s", "state": "/t", "cache": {{"ssd": "/u"{admission}}}, "sources": []}}"#
            ));
            config.map(|config| config.cache.admission.options())
        };
        let stream = |bytes, is_of_writes| Some(StreamCutoff { bytes, is_of_writes });
        let all = AdmissionOptions::default();
        let runs = AdmissionOptions {
            stream_cutoff: stream(256 << 10, true),
            ..all
        };
        assert_eq!(with(""), Ok(runs));
        assert_eq!(with(r#", "admission": {}"#), Ok(all));
        let said = AdmissionOptions {
            n_hit: Some(2),
            stream_cutoff: stream(5, false),
            write_budget_bytes_per_day: Some(7),
        };
        let words =
            r#", "admission": {"n_hit": 2, "stream_cutoff_bytes": 5, "write_budget_bytes_per_day": 7}"#;
        assert_eq!(with(words), Ok(said));
        assert!(with(r#", "admission": {"bypass": 1}"#).is_err());
        for wrong in [
            r#""n_hit": 1"#,
            r#""n_hit": 256"#,
            r#""stream_cutoff_bytes": 0"#,
            r#""write_budget_bytes_per_day": 0"#,
            r#""is_stream_of_writes": true"#,
        ] {
            assert!(
                with(&format!(r#", "admission": {{{wrong}}}"#)).is_err(),
                "{wrong}"
            );
        }
    }

    #[test]
    fn a_line_has_16_64_or_256_kib() {
        let with = |line: &str| {
            let config = parse(&format!(
                r#"{{"socket": "/s", "state": "/t", "cache": {{"ssd": "/u"{line}}}, "sources": []}}"#
            ));
            config.map(|config| config.cache.line_bytes.bytes())
        };
        assert_eq!(with(""), Ok(65_536));
        for bytes in [16_384, 65_536, 262_144] {
            assert_eq!(with(&format!(r#", "line_bytes": {bytes}"#)), Ok(bytes));
        }
        for wrong in ["4096", "32768", "131072", "1048576", "0", "-1", "\"64K\""] {
            let refused = with(&format!(r#", "line_bytes": {wrong}"#))
                .err()
                .unwrap_or_default();
            assert!(
                refused.contains("line_bytes must be one of 16384, 65536, 262144 (got "),
                "{wrong}: {refused}"
            );
        }
        let refused = with(r#", "line_bytes": 16384, "fetch": 65536"#)
            .err()
            .unwrap_or_default();
        assert_eq!(
            refused,
            "cache.fetch must be at most a line, 16384 bytes (got 65536)"
        );
        assert_eq!(with(r#", "line_bytes": 262144, "fetch": 262144"#), Ok(262_144));
    }

    #[test]
    fn memory_is_as_said_or_a_quarter_of_the_machine_and_4_gib_at_most() {
        let with = |memory: &str| {
            let config = parse(&format!(
                r#"{{"socket": "/s", "state": "/t", "cache": {{"ssd": "/u"{memory}}}, "sources": []}}"#
            ));
            config.map(|config| config.memory().bytes)
        };
        assert_eq!(with(r#", "memory_bytes": 9000000000"#), Ok(9_000_000_000));
        let own = with("").unwrap_or_default();
        assert!(own > 0 && own <= 4 << 30, "{own}");
        assert!(with(r#", "memory_bytes": 0"#).is_err());
        // The threads of all sources, or of the first one to come.
        let threads = |sources: &str| {
            let config = parse(&format!(
                r#"{{"socket": "/s", "state": "/t", "cache": {{"ssd": "/u"}}, "threads": 5, "sources": [{sources}]}}"#
            ));
            config.map(|config| config.memory().threads)
        };
        let source = |dir: &str| format!(r#"{{"dir": "{dir}", "mode": "write-through"}}"#);
        assert_eq!(threads(""), Ok(5));
        assert_eq!(threads(&format!("{}, {}", source("/a"), source("/b"))), Ok(10));
        let text = "MemTotal:        8042168 kB\nMemFree:         1 kB\n";
        assert_eq!(machine_memory_bytes(text), Some(8_042_168 << 10));
        assert_eq!(machine_memory_bytes("MemFree: 1 kB\n"), None);
        // As after an update of the kernel.
        let of_kib = |kib: u64| default_memory_bytes(kib << 10) >> 20;
        assert_eq!([8_042_168, 8_029_996, 8_051_332].map(of_kib), [1920; 3]);
        assert_eq!([100_000, 1 << 30].map(of_kib), [64, 4096]);
    }

    #[test]
    fn who_needs_more_memory_hears_how_much_and_what_fits() {
        let line = bathy_cache_model::LineSize::new(65_536).expect("a power of two");
        let hint = |budget: u64| {
            let over = MemoryBudget::of(budget).check((8 << 40) / 65_536, line);
            memory_hint(&over.expect_err("it does not fit"), "--memory 9G")
        };
        assert_eq!(
            hint(4 << 30),
            "--memory 9G; or --size 3925.3G, the largest cache that fits"
        );
        assert_eq!(hint(1 << 20), "--memory 9G: no cache fits so little memory");
    }

    #[test]
    fn a_fetch_size_is_adaptive_or_fits_a_line() {
        let with = |fetch: &str| {
            let config = parse(&format!(
                r#"{{"socket": "/s", "state": "/t", "cache": {{"ssd": "/u"{fetch}}}, "sources": []}}"#
            ));
            config.map(|config| config.cache.fetch)
        };
        assert_eq!(with(""), Ok(Fetch::Adaptive));
        assert_eq!(with(r#", "fetch": "adaptive""#), Ok(Fetch::Adaptive));
        assert_eq!(with(r#", "fetch": 16384"#), Ok(Fetch::Fixed(16_384)));
        for wrong in ["12000", "2048", "524288", "\"64K\"", "-4096"] {
            let refused = with(&format!(r#", "fetch": {wrong}"#)).err().unwrap_or_default();
            assert!(
                refused.contains("a power of two from 4096 to 262144 bytes (got "),
                "{wrong}: {refused}"
            );
        }
    }
}
