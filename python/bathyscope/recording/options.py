"""Run-time options of daemons that are changed for a while: written down first, and put back exactly as they were.

An override of `config set` lives in the daemon's process: it wins over the cluster's configuration, which is left
alone, and is forgotten at the daemon's next start at the latest.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bathyscope.errors import BusyError, ClusterError, ParseError, UnreachableError
from bathyscope.host import CephRequest, CephSession, answer_json
from bathyscope.recording.journal import Change, Journal, changed_by
from bathyscope.sources import op_history

OPTION_KINDS = ("mon_option", "osd_option")

# What a command to a daemon that is down, or that is not known any more, comes back with.
_GONE = (-errno.ENXIO, -errno.ENOENT, -errno.ENOTCONN, -errno.ECONNREFUSED)
_TIMEOUT_S = 30.0
# By default an OSD keeps 20 operations of 600 s.
_RUN_SIZE_LEAST, _RUN_DURATION_S_MOST = 500, 30


def overrides(session: CephSession, daemons: Sequence[str], options: Sequence[str]) -> dict[str, dict[str, str | None]]:
    """Return daemon → option → the run-time override that is in force, None where there is none.

    A daemon that does not answer for every option is left out.
    """
    asked = [(daemon, option) for daemon in daemons for option in options]
    answers = session.commands(
        [
            CephRequest(
                f"override-{option}-{daemon}",
                daemon,
                (("prefix", "config diff get"), ("var", option), ("format", "json")),
                timeout_s=_TIMEOUT_S,
            )
            for daemon, option in asked
        ]
    )
    options_by_daemon: dict[str, dict[str, str | None]] = {}
    for (daemon, option), answer in zip(asked, answers, strict=True):
        with contextlib.suppress(ClusterError, AttributeError):
            levels = ((answer_json(answer) or {}).get("diff") or {}).get(option) or {}
            value = levels.get("override")
            options_by_daemon.setdefault(daemon, {})[option] = None if value is None else str(value)
    return {daemon: values for daemon, values in options_by_daemon.items() if len(values) == len(options)}


def enlarge_history(
    session: CephSession, journal: Journal, osds: Iterable[int], size: int, duration_s: int
) -> dict[int, BusyError]:
    """Let the OSDs keep `size` ops of the last `duration_s`. An OSD that refuses is left as it is.

    So is one that another run has changed and not put back yet: what is found there is not what was there before.
    These are returned, each with the reason. Runs of other machines and users have journals elsewhere; they are known
    by what they set.
    """
    with journal.alone():
        taken = _taken(journal)
        old = overrides(session, [f"osd.{osd}" for osd in osds], op_history.OPTIONS)
        # After a kill what is found is what we set ourselves; what was there before stands in the journal already.
        ours = {_place(change) for change in journal.pending() if change.kind in OPTION_KINDS}
        busy: dict[str, BusyError] = {}
        each = []
        for daemon, options in old.items():
            new = [option for option in options if (daemon, option) not in ours]
            if (run_id := taken.get(daemon)) is not None:
                busy[daemon] = changed_by(run_id, f"enlarged the op history of {daemon}")
            elif len(new) == len(options) and _is_enlarged(options):
                busy[daemon] = _taken_elsewhere(daemon, options)
            else:
                each += [{"daemon": daemon, "option": option, "value": options[option]} for option in new]
        journal.will_change_all("osd_option", each)
    session.commands(op_history.resize([_number(daemon) for daemon in old if daemon not in busy], size, duration_s))
    return {_number(daemon): error for daemon, error in busy.items()}


def _number(daemon: str) -> int:
    return int(daemon.removeprefix("osd."))


def _taken_elsewhere(daemon: str, options: Mapping[str, str | None]) -> BusyError:
    size, duration_s = (options[name] for name in op_history.OPTIONS)
    return BusyError(
        f"{daemon} keeps {size} operations of {duration_s} s, as a run sets it; none of here has",
        hint="wait until a run of another machine or user has ended; if there is none: "
        + "; ".join(f"ceph tell {daemon} config unset {name}" for name in op_history.OPTIONS),
    )


def _is_enlarged(options: Mapping[str, str | None]) -> bool:
    """Return whether overrides look like those of a run: a large history of a few seconds."""
    size, duration_s = (options[name] or "" for name in op_history.OPTIONS)
    is_large = size.isdigit() and int(size) >= _RUN_SIZE_LEAST
    return is_large and duration_s.isdigit() and int(duration_s) <= _RUN_DURATION_S_MOST


def _taken(journal: Journal) -> dict[str, str]:
    """Return the daemons with options that other runs have changed on this cluster, each with such a run."""
    return {
        str(change.details["daemon"]): other.run_id
        for other in journal.others()
        for change in other.pending()
        if change.kind == "osd_option"
    }


def restore(session: CephSession, changes: Sequence[Change]) -> dict[int, str]:
    """Put options back, side by side. Returns change number → why it could not be done, for those where it could not.

    An option that was never set, or has been put back by somebody else, counts as restored also where the key may not
    set it. So does one whose daemon is not there any more. Raises UnreachableError.
    """
    # One restoring for each option, that of the oldest change.
    oldest: dict[tuple[str, str], Change] = {}
    for change in sorted(changes, key=lambda change: change.number):
        oldest.setdefault(_place(change), change)
    requests = [_restoring(change) for change in oldest.values()]
    failed = {}
    for change, request, answer in zip(oldest.values(), requests, session.commands(requests), strict=True):
        if answer.exit_code in (0, *_GONE):
            continue
        try:
            answer_json(answer)
        except ClusterError as error:
            # A daemon that hangs keeps its override; one that is down has lost it with its process.
            undone = request.daemon in _down(session) if answer.timed_out else _is_back(session, change)
            if not undone:
                failed[change.number] = f"{request.daemon}: {error.message}"
    return failed


def _is_back(session: CephSession, change: Change) -> bool:
    """Return whether an option is known to be as it was before the change. Raises UnreachableError."""
    daemon, option = _place(change)
    try:
        return overrides(session, [daemon], [option]).get(daemon) == {option: change.details.get("value")}
    except UnreachableError:
        raise
    except (ClusterError, ParseError):
        return False


def _down(session: CephSession) -> set[str]:
    """Return the OSDs that the monitors call down."""
    osds = (session.json("mon", "osd dump") or {}).get("osds", [])
    return {f"osd.{osd['osd']}" for osd in osds if not osd.get("up")}


def _place(change: Change) -> tuple[str, str]:
    return str(change.details["daemon"]), str(change.details["option"])


def _restoring(change: Change) -> CephRequest:
    """Return the command that puts a run-time override back to what it was."""
    (daemon, option), value = _place(change), change.details.get("value")
    if value is None:
        words: tuple[tuple[str, Any], ...] = (("prefix", "config unset"), ("var", option))
    else:
        words = (("prefix", "config set"), ("var", option), ("val", [str(value)]))
    return CephRequest(f"restore-{option}-{daemon}", daemon, words, timeout_s=_TIMEOUT_S)
