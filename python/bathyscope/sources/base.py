"""What every source offers: plan (pure), collect (effects), parse (pure).

A source plans requests; the collector runs them and keeps every answer verbatim as a `RawAnswer`; the
source parses raw answers to records. Since parse sees nothing but raw answers, it is tested on recorded
ones, and a run can be parsed again years later.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bathyscope.errors import ParseError
from bathyscope.host import CephRequest, CephSession, Completed, Host, ProcessRequest, Request


@dataclasses.dataclass(frozen=True, slots=True)
class RawAnswer:
    """One answer as it lies in a run's raw/ directory: what was asked, and every byte that came back."""

    label: str
    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    exit_code: int
    stdout: bytes
    stderr: bytes
    started_ns: int
    ended_ns: int
    files: tuple[tuple[str, bytes], ...] = ()

    def json(self) -> Any:
        """Return stdout as JSON. Raises ParseError with the label and the first bytes."""
        try:
            return json.loads(self.stdout)
        except (ValueError, RecursionError) as error:
            start = self.stdout[:60].decode(errors="replace")
            raise ParseError(f"{self.label} did not answer with JSON: {error}; it begins: {start!r}") from error


def describe(request: Request) -> tuple[str, ...]:
    """Return a request as the command line that a person would type for it."""
    if isinstance(request, CephRequest):
        words = [f"{key}={value}" if key != "prefix" else str(value) for key, value in request.command]
        return ("ceph", *(() if request.daemon in ("mon", "mgr") else ("tell", request.daemon)), *words)
    prefix = ("chroot", request.root) if request.root else ()
    return (*prefix, *request.argv)


def to_raw(completed: Completed, files: Iterable[tuple[str, bytes]] = ()) -> RawAnswer:
    """Return what a host answered as a raw answer."""
    request = completed.request
    return RawAnswer(
        label=request.label,
        argv=describe(request),
        environment=request.environment if isinstance(request, ProcessRequest) else (),
        exit_code=completed.exit_code,
        stdout=completed.stdout,
        stderr=completed.stderr,
        started_ns=completed.started_ns,
        ended_ns=completed.ended_ns,
        files=tuple(files),
    )


def collect(host: Host, session: CephSession | None, requests: Sequence[Request]) -> list[RawAnswer]:
    """Run `requests` (processes in order, cluster commands side by side) and return their raw answers."""
    answers: dict[int, RawAnswer] = {}
    ceph = [(i, r) for i, r in enumerate(requests) if isinstance(r, CephRequest)]
    if ceph:
        if session is None:
            raise ParseError("a cluster command was planned without a cluster session")
        for (i, _), completed in zip(ceph, session.commands([r for _, r in ceph]), strict=True):
            answers[i] = to_raw(completed)
    for i, request in enumerate(requests):
        if isinstance(request, ProcessRequest):
            answers[i] = to_raw(host.run(request))
    return [answers[i] for i in range(len(requests))]


def save_raw(directory: Path, answers: Iterable[RawAnswer]) -> None:
    """Write raw answers into `directory`: LABEL.json (what was asked), LABEL.stdout, LABEL.stderr, LABEL.files/…"""
    directory.mkdir(parents=True, exist_ok=True)
    for answer in answers:
        about = {
            "label": answer.label,
            "argv": list(answer.argv),
            "environment": [list(pair) for pair in answer.environment],
            "exit_code": answer.exit_code,
            "started_ns": answer.started_ns,
            "ended_ns": answer.ended_ns,
            "files": [name for name, _ in answer.files],
        }
        (directory / f"{answer.label}.json").write_text(json.dumps(about, indent=1) + "\n")
        (directory / f"{answer.label}.stdout").write_bytes(answer.stdout)
        if answer.stderr:
            (directory / f"{answer.label}.stderr").write_bytes(answer.stderr)
        for name, content in answer.files:
            path = directory / f"{answer.label}.files" / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)


def load_raw(directory: Path) -> list[RawAnswer]:
    """Return the raw answers that `save_raw` wrote, in the order of their start. Raises ParseError."""
    answers = []
    for path in sorted(directory.glob("*.json")):
        try:
            about = json.loads(path.read_text())
            stderr = path.with_suffix(".stderr")
            answers.append(
                RawAnswer(
                    label=about["label"],
                    argv=tuple(about["argv"]),
                    environment=tuple((k, v) for k, v in about["environment"]),
                    exit_code=about["exit_code"],
                    stdout=path.with_suffix(".stdout").read_bytes(),
                    stderr=stderr.read_bytes() if stderr.exists() else b"",
                    started_ns=about["started_ns"],
                    ended_ns=about["ended_ns"],
                    files=tuple((n, (directory / f"{about['label']}.files" / n).read_bytes()) for n in about["files"]),
                )
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ParseError(f"raw answer {path.name} cannot be read: {error}") from error
    return sorted(answers, key=lambda a: (a.started_ns, a.label))
