//! Questions, and what is answered.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};

use super::question::parse;
use super::sources::{SourceInfo, Unserved};
use super::{Service, Snapshot, unknown_source};
use crate::failure::Failure;
use crate::reports;

/// Files of a source in an answer, if no other number is asked for.
const FILES_SHOWN: usize = 100;
/// A question for ranges looks at each line of these, a million at most.
const RANGES_BYTES_MAX: u64 = 64 << 30;

impl Service {
    /// Answers a question or carries a command out. `None` if it is not known.
    pub(crate) fn answer(self: &Arc<Self>, question: &Value) -> Option<Result<Value, Failure>> {
        if let Some(query) = question["query"].as_str() {
            return match query {
                "status" => Some(Ok(self.status())),
                "files" => Some(self.files(question)),
                "cached" => Some(self.cached(question)),
                "curve" => Some(Ok(self.curve())),
                _ => None,
            };
        }
        match question["command"].as_str()? {
            "start_source" => Some(self.start_source(question)),
            "stop_source" => Some(self.stop_source(question)),
            "set_mode" => Some(self.set_mode(question)),
            "set_size" => Some(self.set_size(question)),
            "detach" => Some(self.detach(question)),
            "attach" => Some(self.attach(question)),
            "resize" => Some(self.resize(question)),
            _ => None,
        }
    }

    pub(super) fn status(&self) -> Value {
        let Snapshot {
            cache,
            sources,
            unserved,
        } = self.now();
        let mut of_cache = json!({
            "name": self.config.cache.name,
            "ssd": self.config.cache.ssd.to_string_lossy(),
            "problem": null,
            "found": null,
            "attachment": null,
            "engine": null,
            "admission": self.config.cache.admission,
        });
        if let Some(cache) = cache {
            cache.report(&mut of_cache);
        }
        let sources = sources.iter().map(|info| {
            let source = &info.source;
            let (problem, hint) = info.problem().unzip();
            let mut report = json!({
                "name": source.name(),
                "dir": source.dir.to_string_lossy(),
                "mode": source.mode.name(),
                "size_bytes": source.size_bytes,
                "is_served": info.is_served,
                "problem": problem,
                "hint": hint,
                "transport": info.transport,
                "in_use": (info.in_use)(),
                "devices": info.devices.report(),
            });
            let usage = info
                .cached
                .as_ref()
                .and_then(|cached| cached.usage(source.size_bytes));
            reports::source(&mut report, &info.counts, usage);
            report["devices_at_start"] = info
                .cached
                .as_ref()
                .map(|cached| cached.devices_at_start())
                .into();
            report["fetch"] = reports::fetch(info.cached.as_ref().and_then(|cached| cached.fetch()));
            report
        });
        json!({
            "protocol": reports::PROTOCOL,
            "uptime_s": self.began.elapsed().as_secs_f64(),
            "pid": std::process::id(),
            "cache": of_cache,
            "sources": sources.chain(unserved.iter().map(Unserved::report)).collect::<Vec<_>>(),
        })
    }

    pub(super) fn files(&self, question: &Value) -> Result<Value, Failure> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Files {
            source: Option<String>,
            limit: Option<usize>,
        }
        let Files { source, limit } = parse(question)?;
        let mut sources = self.now().sources;
        if let Some(name) = source {
            sources.retain(|info| info.source.name() == name);
            if sources.is_empty() {
                return Err(unknown_source(&name));
            }
        }
        let of_source = |info: &Arc<SourceInfo>| {
            let files = info
                .cached
                .as_ref()
                .map(|cached| cached.busiest_files(limit.unwrap_or(FILES_SHOWN), &info.paths));
            json!({
                "name": info.source.name(),
                "dir": info.source.dir.to_string_lossy(),
                "files": files.unwrap_or_default(),
            })
        };
        Ok(json!({"sources": sources.iter().map(of_source).collect::<Vec<_>>()}))
    }

    pub(super) fn cached(&self, question: &Value) -> Result<Value, Failure> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Cached {
            source: String,
            handle: String,
            ranges: Vec<(u64, u64)>,
        }
        let Cached {
            source,
            handle,
            ranges,
        } = parse(question)?;
        let info = self
            .now()
            .sources
            .into_iter()
            .find(|info| info.source.name() == source);
        let info = info.ok_or_else(|| unknown_source(&source))?;
        let handle = from_hexadecimal(&handle).ok_or_else(|| {
            Failure::new(
                "a handle has two hexadecimal digits for each byte".to_owned(),
                "ask for the files of the source: they have handles",
            )
        })?;
        let lengths = ranges.iter().map(|&(_, length)| length);
        if lengths.fold(0, u64::saturating_add) > RANGES_BYTES_MAX {
            return Err(Failure::new(
                format!("ranges have {} GiB together at most", RANGES_BYTES_MAX >> 30),
                "ask for parts of them",
            ));
        }
        let ranges = ranges
            .iter()
            .map(|&(offset, length)| offset..offset.saturating_add(length));
        let ranges: Vec<_> = ranges.collect();
        let cached = info.cached.as_ref();
        let bytes = cached.and_then(|cached| cached.cached_bytes_in(&handle, &ranges));
        let bytes = bytes.ok_or_else(|| {
            Failure::new(
                format!(
                    "source '{source}': no file with this handle is open, or nothing is cached at the moment"
                ),
                "`bathy cache status` says whether its cache is attached",
            )
        })?;
        Ok(json!({"cached_bytes": bytes}))
    }

    pub(super) fn curve(&self) -> Value {
        let Snapshot { cache, sources, .. } = self.now();
        let mut answer = cache.map_or_else(|| reports::no_curve("nothing is cached"), |cache| cache.curve());
        let of_source = |info: &Arc<SourceInfo>| {
            let nothing = || reports::no_curve("nothing of it is cached");
            let mut curve = info.cached.as_ref().map_or_else(nothing, |cached| cached.curve());
            curve["name"] = json!(info.source.name());
            curve
        };
        answer["sources"] = sources
            .iter()
            .filter(|info| info.is_served)
            .map(of_source)
            .collect();
        answer
    }
}

fn from_hexadecimal(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = text.chars().map(|digit| digit.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    let pairs = digits.chunks_exact(2);
    Some(pairs.map(|pair| (pair[0] << 4 | pair[1]) as u8).collect())
}
