"""A recording: what the sources said over time, and what asking them cost."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

from bathyscope.errors import AnalysisError
from bathyscope.run_kinds.base import RunKind
from bathyscope.store import RunDirectory, Segment
from bathyscope.units import format_seconds

if TYPE_CHECKING:
    from bathyscope.analysis.activity.shape import Question
    from bathyscope.records import RawAnswer
    from bathyscope.records.blocks import HeatMap
    from bathyscope.records.collect_finding import CollectFinding
    from bathyscope.records.recording_finding import RecordingFinding, SourceRecording


# What is said first comes first; the page and `bathy analyze` have all of them.
_FIRST = ("devices", "clients", "osds", "nodes", "pools", "balance", "timeline")
_IMAGES_PICTURED = 3


def _finding(run: RunDirectory) -> CollectFinding:
    """Return what limited the clients, every view of the recording, who did how much when, and how it went."""
    from bathyscope.analysis.activity import VIEWS, heat
    from bathyscope.records.collect_finding import CollectFinding
    from bathyscope.store import duck
    from bathyscope.window.recording import account_of, part_of, question_of, views_of

    whole, load, why_no_load, next_step = question_of(run), None, "", ""
    try:
        load = account_of(run, part_of(run, None, None))
    except AnalysisError as error:
        why_no_load, next_step = error.message, error.hint or ""
    names = [name for name, view in VIEWS.items() if not view.of_image]
    names.sort(key=lambda name: _FIRST.index(name) if name in _FIRST else len(_FIRST))
    return CollectFinding(
        run.id,
        whole.target,
        whole.start_ns,
        whole.end_ns,
        views_of(run, names, whole),
        (
            *heat.build(duck.query_all([run], heat.queries(whole)), whole),
            *_inside_images(run, whole),
        ),
        _recording(run),
        load,
        why_no_load,
        next_step,
    )


def _inside_images(run: RunDirectory, whole: Question) -> Iterator[HeatMap]:
    """Yield the pictures of the busiest images whose objects were seen one by one, by offset and time."""
    from bathyscope.analysis.activity import image_heat
    from bathyscope.store import duck
    from bathyscope.window.recording import view_of

    images = duck.query([run], image_heat.top_images(whole, _IMAGES_PICTURED))["image_id"].to_pylist()
    for number, image_id in enumerate(images):
        view = view_of(run, "image", dataclasses.replace(whole, image=image_id))
        yield from (dataclasses.replace(heat_map, name=f"{heat_map.name}-{number}") for heat_map in view.heat_maps)


def _recording(run: RunDirectory) -> RecordingFinding:
    """Return how the recording went; `periods_s` of the run's context are the planned periods by source."""
    from bathyscope.analysis.recording import build
    from bathyscope.records import Collection
    from bathyscope.store import duck

    # A day of a few OSDs has tens of millions of rows, and only the intervals matter.
    intervals = duck.query([run], "SELECT DISTINCT daemon, at_ns, duration_ns FROM perf_counter")
    tables = {"collection": run.table(Collection), "perf_counter": intervals}
    return build(tables, run.info.started_ns, run.info.ended_ns, run.info.context.get("periods_s"))


def _describe(run: RunDirectory) -> list[tuple[str, object]]:
    finding = _recording(run)
    rows: list[tuple[str, object]] = [(f"source {source.source}", _sentence(source)) for source in finding.sources]
    absent = sorted({absence.daemon for absence in finding.absences})
    return [*rows, ("absent for a time", ", ".join(absent))] if absent else rows


def _sentence(source: SourceRecording) -> str:
    longest_ns = max((gap.end_ns - gap.start_ns for gap in source.gaps), default=0)
    longest = format_seconds(longest_ns / 1e9)
    gaps = f"{len(source.gaps)} gaps, the longest {longest}" if len(source.gaps) > 1 else f"one gap of {longest}"
    return (
        f"{source.collection_count} collections, {source.failure_count} without success, {source.missed_count} missed; "
        f"{gaps if source.gaps else 'no gap'}; {source.wall_ratio:.1%} of the time spent asking"
    )


def _continue_hint(run_id: str) -> str:
    return f"what was recorded until then is kept: `bathy runs show {run_id}`; a new recording is a new run"


def _reparse(run: RunDirectory) -> str:
    from bathyscope.recording.segment import parse_segment
    from bathyscope.sources import SOURCES

    joined = (run.path / "tables").is_dir()
    # One that was rolled up has no raw answers any more, and its rows are what is left.
    segments = [segment for segment in run.segments().values() if segment.raw_sources()]
    # Nothing is replaced before everything was read once.
    for segment in segments:
        parse_segment(_raw(segment), SOURCES)
    for segment in segments:
        with run.replace_segment(segment.name) as writer:
            for record, table in parse_segment(_raw(segment), SOURCES).items():
                writer.table(record, table)
            writer.commit()
    if joined:
        run.compact()
    return "1 segment was parsed again" if len(segments) == 1 else f"{len(segments)} segments were parsed again"


def _raw(segment: Segment) -> dict[str, list[RawAnswer]]:
    return {source: segment.raw(source) for source in segment.raw_sources()}


KIND = RunKind("collect", _finding, _describe, _continue_hint, _reparse)
