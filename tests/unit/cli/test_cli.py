"""The frame around the verbs: how they are found, how a run is interrupted, what happens when the reader goes away."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from bathyscope.interruption import interruptible


def bathy(*words: str, **options) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "bathyscope.cli", *words], **options)


def test_an_unknown_verb_is_refused_and_the_nearest_is_named() -> None:
    ended = bathy("benhc", stderr=subprocess.PIPE)
    _, stderr = ended.communicate(timeout=60)
    assert ended.returncode == 2
    assert b"bench" in stderr


def test_a_module_that_is_no_verb_is_no_command() -> None:
    for name in ("options", "talk", "bench_progress", "nonsense"):
        ended = bathy(name, stderr=subprocess.PIPE)
        _, stderr = ended.communicate(timeout=60)
        assert ended.returncode == 2
        assert b"No such command" in stderr


_OTHER_TABLE = ("-o", "csv", "--table", "x")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("compare", "a", "b", "--table", "x"), "--table is for --output csv (got --output table)"),
        (("top", "--table", "x", "--once", "-o", "json"), "--table is for --output csv (got --output json)"),
        (("top", "-o", "csv", "--table", "x"), "--table is for --once"),
        (("analyze", "--list", "-o", "csv", "--table", "x"), "this is one table (got --table x)"),
        (("analyze", "-v", "osds", *_OTHER_TABLE), "--table must be one of osds (got 'x')"),
        (("top", "osds", "--once", *_OTHER_TABLE), "--table must be one of osds (got 'x')"),
        (("compare", "a", "b", *_OTHER_TABLE), "--table must be one of steps, differences (got 'x')"),
        (("bench", "run", "--dry-run", *_OTHER_TABLE), "--table must be one of commands, changes (got 'x')"),
        (("study", "vm-fleet", "--dry-run", *_OTHER_TABLE), "--table must be one of commands, changes (got 'x')"),
        (("size", "no-file", *_OTHER_TABLE), "--table must be one of points (got 'x')"),
        (("size", "no-file", "--by", "osd", "-o", "csv", "--table", "split"), "one of points, groups (got 'split')"),
        (("analyze", "--report", "x.gif"), "--report must end in .html, .png or .svg (got x.gif)"),
    ],
)
def test_what_could_not_be_printed_is_refused_before_the_work(words: tuple[str, ...], why: str) -> None:
    ended = bathy(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    stdout, stderr = ended.communicate(timeout=60)
    assert (ended.returncode, stdout) == (2, b"")
    assert why in " ".join(stderr.decode().split())


_WRITER = """
import sys
import typer
from bathyscope import cli
from bathyscope.commands import demo

def talkative(code: int) -> None:
    for number in range(100_000):
        print("line", number)
    sys.stderr.write("end\\n")
    raise typer.Exit(code)

demo.register = lambda app: app.command("demo")(talkative)
cli.main()
"""


@pytest.mark.parametrize("code", [0, 1])
def test_a_reader_that_goes_away_is_no_error_and_the_exit_code_is_the_verbs(code: int) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", _WRITER, "demo", str(code)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert writer.stdout is not None
    assert writer.stderr is not None
    assert writer.stdout.readline() == b"line 0\n"
    writer.stdout.close()
    assert writer.stderr.read() == b"end\n"
    assert writer.wait(60) == code


@pytest.mark.parametrize("words", [("--help",), ("--version",), ("lab", "up", "--help")])
def test_help_into_a_closed_pipe_ends_quietly(words: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    ended = bathy(*words, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    _, stderr = ended.communicate(timeout=60)
    assert (ended.returncode, stderr) == (0, b"")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_what_is_said_is_read_at_once(unbuffered: str) -> None:
    script = (
        "import sys\nfrom bathyscope import cli\nfrom bathyscope.commands import demo\n"
        "from bathyscope.commands.talk import say\n"
        "demo.register = lambda app: app.command('demo')(lambda: (say('working'), sys.stdin.read()))\ncli.main()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, "demo"], stdin=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )  # fmt: skip
    assert process.stderr is not None
    assert process.stderr.readline() == b"working\n"
    assert process.poll() is None
    process.communicate(timeout=60)
    assert process.returncode == 0


_CLEANING = """
import sys, time
from bathyscope.interruption import interruptible
with interruptible():
    try:
        print("ready", flush=True)
        time.sleep(60)
    finally:
        print("cleaning", flush=True)
        sys.stdin.readline()
        print("clean", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_interrupts_and_later_ones_do_not_stop_the_clean_up(number: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _CLEANING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(number)
    assert process.stdout.readline() == b"cleaning\n"
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    stdout, stderr = process.communicate(b"\n", timeout=60)
    assert stdout == b"clean\n"
    assert b"still cleaning up" in stderr
    assert stderr.endswith(b"bathy: interrupted\n")
    assert process.returncode == 128 + number


def test_a_signal_that_the_parent_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interruptible():
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_handlers_are_put_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    with interruptible():
        assert signal.getsignal(signal.SIGTERM) != before[1]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before
