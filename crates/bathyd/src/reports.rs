//! The answers to queries: what is counted, in JSON. What cannot be counted is null, never 0.

use bathy_cache::{Engine, Latencies, MissRatioCurve, OpCounts, Residence, SourceFetch, SourceStatus, Usage};
use serde_json::{Value, json};

use crate::counts::FrontCounts;

/// The version of the protocol of the socket.
pub(crate) const PROTOCOL: u64 = 1;

pub(crate) fn direction(it: &OpCounts) -> Value {
    json!({
        "requests": it.requests,
        "requests_hit": it.requests_hit,
        "requests_partial": it.requests_partial,
        "bytes": it.bytes,
        "bytes_hit": it.bytes_hit,
    })
}

fn latencies(it: &Latencies) -> Value {
    let bounds = (0..).zip(it.buckets);
    let buckets: Value = bounds
        .map(|(bound, requests)| json!([1024_u64 << bound, requests]))
        .collect();
    let mut report = json!({"requests": it.requests, "bytes": it.bytes, "buckets": buckets});
    // Of no request there is no latency.
    if it.requests > 0 {
        for (name, value) in [
            ("latency_ns_mean", json!(it.latency_ns_mean)),
            ("latency_ns_p50", json!(it.latency_ns_p50)),
            ("latency_ns_p99", json!(it.latency_ns_p99)),
            ("latency_ns_p999", json!(it.latency_ns_p999)),
            ("latency_ns_max", json!(it.latency_ns_max)),
        ] {
            report[name] = value;
        }
    }
    report
}

/// What is counted of a source since the start, put into `report`. `cached` is what the cache has of it, with the bytes that
/// it may take and those of a line; `None` of a source that is not cached.
pub(crate) fn source(report: &mut Value, counts: &FrontCounts, cached: Option<(Usage, u64, u64)>) {
    let requests: SourceStatus = counts.requests();
    let (reads, writes) = (&requests.counts.reads, &requests.counts.writes);
    report["io"] = json!({
        "cache_read_bytes": reads.bytes_hit,
        "cache_write_bytes": requests.cache_writes.bytes,
        "source_read_bytes": requests.source_read_bytes,
        "compared_bytes": requests.compared_bytes,
        "source_write_bytes": writes.bytes,
    });
    report["usage"] = cached.map_or(Value::Null, |(usage, capacity_bytes, line_bytes)| {
        json!({
            "capacity_bytes": capacity_bytes,
            "used_bytes": usage.lines * line_bytes,
            "used_bytes_max": usage.lines_max * line_bytes,
            "cached_bytes": usage.cached_bytes,
            "files": usage.files,
            "residence_s_mean": seconds_of(usage.residences, usage.residence_ms / usage.residences.max(1)),
            "residences_sampled": usage.residences,
        })
    });
    report["iops"] = json!({
        "cache": {"reads": latencies(&requests.cache_reads), "writes": latencies(&requests.cache_writes)},
        "source": {"reads": latencies(&requests.source_reads), "writes": latencies(&requests.source_writes)},
    });
    let of_usage = |of: fn(&Usage) -> u64| cached.as_ref().map(|(usage, ..)| of(usage));
    // Attributes and links are not cached here, but by the kernel, which does not count: all that come are misses.
    report["stats"] = json!({
        "files": of_usage(|usage| usage.files),
        "segments_cached": of_usage(|usage| usage.lines_entered),
        "segments_present": of_usage(|usage| usage.lines),
        "segments_uncached": of_usage(|usage| usage.lines_left),
        "reads": direction(reads),
        "writes": direction(writes),
        "attribute_reads": {"hits": null, "misses": counts.attribute_reads.get()},
        "attribute_writes": {"hits": null, "misses": counts.attribute_writes.get()},
        "links": {"cached": null, "hits": null, "misses": counts.link_reads.get()},
        "pending": counts.requests_pending(),
        "bypassed": {"stream": requests.bypassed_by_stream, "error": requests.bypassed_by_error},
    });
}

/// Seconds of so many milliseconds, of which some were measured.
fn seconds_of(measured: u64, ms: u64) -> Value {
    if measured == 0 {
        Value::Null
    } else {
        json!(ms as f64 / 1e3)
    }
}

/// Mean seconds from entering the cache to leaving it.
pub(crate) fn residence_s_mean(it: &Residence) -> Value {
    seconds_of(u64::from(it.lines_left), it.mean_ms)
}

/// From which sample that is, and what it knows of lines that have not left.
pub(crate) fn residence(it: &Residence) -> Value {
    json!({
        "lines_left": it.lines_left,
        "lines_present": it.lines_present,
        "age_s_max": seconds_of(u64::from(it.lines_present), it.oldest_ms),
    })
}

/// What misses of a source fetch; null of one that is not cached.
pub(crate) fn fetch(it: Option<SourceFetch>) -> Value {
    it.map_or(Value::Null, |it| {
        json!({
            "is_adaptive": it.is_adaptive,
            "bytes_min": it.bytes_min,
            "bytes_max": it.bytes_max,
            "access_ns": it.cost.map(|cost| cost.access_ns),
            "transfer_bytes_per_s": it.cost.map(|cost| 1e9 / cost.transfer_ns_per_byte),
            "reads_measured": it.cost.map(|cost| cost.reads),
        })
    })
}

/// The counters of an engine, which go on while it has no SSD.
pub(crate) fn engine(engine: &Engine, has_ssd: bool) -> Value {
    let counts = engine.counts();
    let capacity_lines = if has_ssd { engine.capacity_lines() } else { 0 };
    let (lines, lines_in_memory) = engine.lines();
    let (files, files_max) = engine.files();
    let (need, budget) = engine.memory_need();
    json!({
        "capacity_bytes": capacity_lines * engine.line_bytes(),
        "used_bytes": lines * engine.line_bytes(),
        "cached_bytes": engine.cached_bytes(),
        "capacity_lines": capacity_lines,
        "lines": lines,
        "lines_in_memory": lines_in_memory,
        "line_bytes": has_ssd.then(|| engine.line_bytes()),
        "policy": has_ssd.then(|| engine.policy().name()),
        "stage_bytes": engine.stage_bytes(),
        "memory_bytes": engine.memory_bytes(),
        "memory": {
            "budget_bytes": budget.bytes,
            "planned_bytes": has_ssd.then(|| need.bytes()),
            "index_bytes": has_ssd.then_some(need.index_bytes),
            "stage_bytes": has_ssd.then_some(need.stage_bytes),
            "daemon_bytes": need.daemon_bytes,
        },
        "marked_regions": engine.marked_regions(),
        "is_bypassed": engine.is_bypassed(),
        "reads": direction(&counts.reads),
        "writes": direction(&counts.writes),
        "source_read_bytes": counts.backing_read_bytes,
        "fetched_ahead_bytes": counts.fetched_ahead_bytes,
        "ahead_sampled_bytes": counts.ahead_sampled_bytes,
        "ahead_used_bytes": counts.ahead_used_bytes,
        "ssd_read_bytes": counts.flash_read_bytes,
        "ssd_write_bytes": counts.ssd_writes.bytes(),
        "ssd_writes": {
            "data_bytes": counts.ssd_writes.data_bytes,
            "line_table_bytes": counts.ssd_writes.line_table_bytes,
            "file_table_bytes": counts.ssd_writes.file_table_bytes,
            "intent_bytes": counts.ssd_writes.intent_bytes,
            "state_bytes": counts.ssd_writes.state_bytes,
            "superblock_bytes": counts.ssd_writes.superblock_bytes,
        },
        // As the simulator counts them: what requests brought, without the rest of units that were changed in part.
        "ssd_copied_bytes": counts.flash_write_bytes,
        "ssd_update_bytes": counts.flash_update_bytes,
        "ssd_errors": counts.ssd_errors,
        "mismatches": counts.mismatches,
        "evictions": counts.evictions,
        "file_table": {
            "files": has_ssd.then_some(files),
            "files_max": has_ssd.then_some(files_max),
            "evictions": counts.evicted_files,
            "evicted_lines": counts.evicted_file_lines,
        },
        "refused": counts.refused,
        "changed_files": counts.changed_files,
        "uncompared_bytes": engine.uncompared_bytes(),
        "files_without_room": counts.files_without_room,
    })
}

/// What other sizes would give; `None` before the first reads.
pub(crate) fn curve(curve: Option<MissRatioCurve>) -> Value {
    let Some(curve) = curve else {
        return no_curve("nothing was read since the start, or since its size or content changed");
    };
    let points = curve.points.iter().map(|point| {
        json!({
            "size_bytes": point.size_bytes,
            "hit_ratio": point.hit_ratio,
            "size_ratio": point.size_ratio,
        })
    });
    json!({"curve": {
        "requests": curve.reads,
        "sampled": curve.reads_sampled,
        "sampling_rate": curve.sampling_rate,
        "policy": "lru",
        "points": points.collect::<Value>(),
        // A bound would need several samples.
        "error_bound": null,
    }})
}

/// Why there is no curve.
pub(crate) fn no_curve(reason: &str) -> Value {
    json!({"curve": null, "reason": reason})
}
