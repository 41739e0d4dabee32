"""What a run takes on disk: a hundred steps whose histories are as full as they get stay below 50 MB."""

from __future__ import annotations

import dataclasses
import datetime
import json
import random
import shutil
from pathlib import Path
from typing import Any

from bathyscope.bench import judging, run_records
from bathyscope.records import Collection, RawAnswer
from bathyscope.sources import op_history
from bathyscope.store import RunDirectory, Workspace
from bathyscope.store.segment import Segment

RECORDED = Path(__file__).parents[2] / "fixtures" / "runs" / "pacific"
# A step is a segment of its own, so that a hundred take five times the room of twenty.
STEPS, LIMIT_BYTES = 20, 50_000_000 // 5
# Two for each pair of load and wait of ten seconds, as `proc` reads while a step of the ladder runs.
READINGS, OPS = 72, 1000


def test_a_run_of_a_hundred_steps_takes_less_than_50_mb(tmp_path: Path) -> None:
    """Its steps are a recorded one with as many readings and ops as a step of ten seconds on busy OSDs has.

    On a real cluster (16.2, three OSDs, the ladder on RADOS and RBD) a step took 720 kB before histories were kept
    without durations.
    """
    run_id = json.loads((RECORDED / "run.json").read_text())["id"]
    source = RunDirectory(Path(shutil.copytree(RECORDED, tmp_path / run_id)))
    step = _long_step(source)
    judged = judging.judge(step)
    costs = [Collection(judged.row.started_ns, "proc", 1000, 1, 0, 5000, success=True, problem=None)] * 85
    with Workspace(tmp_path / "ws").create_run(
        kind="bench", name="room", spec_text="", started_ns=1, target={}, versions={}, context={}, step_count=STEPS
    ) as run:
        for index in range(STEPS):
            run_records.write_step(run, dataclasses.replace(step, index=index), judged, costs, "start-1")
        run.compact()
        taken = sum(file.stat().st_size for file in run.path.rglob("*") if file.is_file())
    assert judged.tables.keys()
    assert LIMIT_BYTES / 10 < taken < LIMIT_BYTES
    # What a file system rounds up to blocks is counted as well.
    blocks = sum(file.stat().st_blocks * 512 for file in run.path.rglob("*") if file.is_file())
    assert blocks < 1.3 * LIMIT_BYTES


def _long_step(run: RunDirectory) -> judging.StepAnswers:
    """Return a recorded step on RBD with the readings and histories of a longer one."""
    starts = {name: segment for name, segment in run.segments().items() if name.startswith("start-")}
    scopes = {name: run_records._scope(segment) for name, segment in starts.items()}
    segment: Segment = max(run.step_segments().values(), key=lambda s: len(s.raw("op_history")))
    step = run_records._stored_step(segment, scopes)
    generator = random.Random(1)
    answers = {source: list(given) for source, given in step.answers.items()}
    (first, *_) = answers["proc"]
    answers["proc"] = [_later(first, number, generator) for number in range(READINGS)]
    (history, *_) = answers["op_history"]
    osds = range(op_history.FULL_OSDS_MAX)
    answers["op_history"] = [
        _full(dataclasses.replace(history, label=f"op_history-osd.{osd}"), generator) for osd in osds
    ]
    return dataclasses.replace(step, answers=answers)


def _later(reading: RawAnswer, number: int, generator: random.Random) -> RawAnswer:
    """Return a reading of /proc with other numbers: every longer number has grown by something."""
    files = []
    for path, content in reading.files:
        words = [
            str(int(word) + number * generator.randrange(200)).encode() if word.isdigit() and len(word) > 3 else word
            for word in content.split(b" ")
        ]
        files.append((path, b" ".join(words)))
    later_ns = number * 200_000_000
    return dataclasses.replace(
        reading, files=tuple(files), started_ns=reading.started_ns + later_ns, ended_ns=reading.ended_ns + later_ns
    )


def _full(answer: RawAnswer, generator: random.Random) -> RawAnswer:
    """Return a full history of an OSD as it answers: ops like the recorded ones at other times, of other objects."""
    history = answer.json()
    known: list[Any] = [op for op in history["ops"] if op["description"].startswith(("osd_op(", "osd_repop("))]
    ops = []
    for number in range(OPS):
        op = json.loads(json.dumps(known[number % len(known)]))
        moment = datetime.datetime.fromisoformat(op["initiated_at"]) + datetime.timedelta(microseconds=4000 * number)
        op["initiated_at"] = moment.isoformat()
        op["age"], op["duration"] = generator.random() * 4, generator.random() / 10
        op["description"] = op["description"].replace(":head", f"{generator.getrandbits(40):x}:head")
        for event in op["type_data"]["events"]:
            moment += datetime.timedelta(microseconds=generator.randrange(1000))
            event["time"], event["duration"] = moment.isoformat(), generator.random() / 1000
        ops.append(op)
    text = json.dumps({**history, "size": OPS, "ops": ops}, separators=(",", ":"))
    return op_history.compact(dataclasses.replace(answer, stdout=text.encode()))
