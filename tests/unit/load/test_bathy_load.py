"""The program of the crate bathy-load as a package has it; its counts and its times are tested there."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bathyscope.host.process import own_program

PLAN = {
    "target": {"null": {"image_bytes": 1 << 30, "images": 3}},
    "arrival": {"open": {"process": "constant", "rate_iops": 500}},
    "requests": [{"direction": "read", "block_bytes": 4096}],
    "duration_s": 0.5,
}


def run(*words: str, plan: dict[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
    argv = own_program("bathyscope.bathy_load", *words)
    return subprocess.run(argv, input=json.dumps(plan), capture_output=True, text=True, timeout=60, check=False)


def test_a_load_that_goes_nowhere_is_counted_whole() -> None:
    ended = run(plan=PLAN)
    assert (ended.returncode, ended.stderr) == (0, "")
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [lines[0]["type"], lines[-1]["type"]] == ["start", "total"]
    assert {line["type"] for line in lines[1:-1]} == {"second"}
    assert lines[-1]["requests"] == {"scheduled": 250, "sent": 250, "not_sent": 0, "held": 0}
    reads = lines[-1]["directions"]["read"]
    assert (reads["count"], reads["bytes"], reads["failed"]) == (250, 250 * 4096, {})
    for kind in ("latency_from_intended_ns", "latency_from_submission_ns"):
        assert sum(count for _, count in reads[kind]["buckets"]) == 250
        # So few do not resolve the slowest of a thousand.
        assert "p50" in reads[kind]
        assert "p99.9" not in reads[kind]
    assert all(seconds > 0 for seconds in lines[-1]["processor_s"].values())


def test_a_recorded_trace_is_replayed_and_what_is_left_out_is_counted(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("time_ms,op,offset_bytes,length_bytes\n100,read,0,4096\n150,trim,0,4096\n200,write,4096,512\n")
    replay = {"target": PLAN["target"], "duration_s": 60}
    ended = run(plan={**replay, "arrival": {"replay": {"trace": str(trace)}}})
    assert (ended.returncode, ended.stderr) == (0, "")
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    counts = {
        "requests": 2,
        "trims": 1,
        "others": 0,
        "without_image": 0,
        "bad_records": 0,
        "after_end": 0,
        "wrapped": 0,
    }
    assert lines[0]["replay"] == counts
    assert {name: figures["bytes"] for name, figures in lines[-1]["directions"].items()} == {"read": 4096, "write": 512}
    # It ends with the trace.
    assert 0.1 <= lines[-1]["measured_s"] < 60
    ended = run(plan={**replay, "arrival": {"replay": {"trace": str(tmp_path / "none.csv")}}})
    assert (ended.returncode, "none.csv" in ended.stderr) == (2, True)


@pytest.mark.parametrize(
    ("words", "plan", "message"),
    [
        (("--bogus",), None, "'--bogus' is not an option"),
        (("a", "b"), None, "'b' is one argument too many"),
        (("/nowhere/plan.json",), None, "/nowhere/plan.json"),
        ((), {**PLAN, "duraton_s": 3}, "unknown field `duraton_s`"),
        ((), {**PLAN, "working_set_bytes": 2 << 30}, "must lie in the image"),
    ],
)
def test_what_cannot_be_done_is_said_with_a_hint(words: tuple[str, ...], plan: Any, message: str) -> None:
    ended = run(*words, plan=plan)
    assert ended.returncode == 2
    assert message in ended.stderr
    assert ended.stderr.startswith("bathy-load: ")
    assert "\nhint: " in ended.stderr


def test_the_example_of_the_help_is_a_plan() -> None:
    ended = run("--help")
    assert ended.returncode == 0
    start = ended.stdout.index('{"target"')
    example, _ = json.JSONDecoder().raw_decode(ended.stdout[start:])
    ended = run(plan={**example, "target": {"null": {"image_bytes": 1 << 20}}, "duration_s": 0.01, "ramp_s": 0})
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_at_once(number: signal.Signals) -> None:
    argv = own_program("bathyscope.bathy_load")
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({**PLAN, "duration_s": 600}))
        process.stdin.close()
        assert json.loads(process.stdout.readline())["type"] == "start"
        process.send_signal(number)
        assert process.wait(30) == -number
