"""Records what a run stands on: its environment before and after, and its own row."""

from __future__ import annotations

from collections.abc import Sequence

from bathyscope.errors import BathyscopeError, StoreError, UnreachableError
from bathyscope.host import CephSession, Host
from bathyscope.records import Caveat, EnvironmentFact, Placement, Record, Run
from bathyscope.sources import environment
from bathyscope.sources.base import RawAnswer, save_raw
from bathyscope.spec import Target
from bathyscope.store import RunDirectory

_ASKED_MAX = 16


class Recorder:
    """Writes the tables of the whole run. `wanted`: whether the environment is to be captured."""

    def __init__(
        self, host: Host, session: CephSession | None, target: Target, run: RunDirectory, *, wanted: bool
    ) -> None:
        self._host = host
        self._session = session
        self._target = target
        self._run = run
        self._wanted = wanted

    def environment(
        self, moment: str, caveats: list[Caveat], osds: Sequence[int], fio_version: str | None = None
    ) -> None:
        """Write what the run stands on; what cannot be read is a caveat of the run."""
        run_id = self._run.id
        rows: dict[type[Record], list[Record]] = {}
        if self._wanted:
            try:
                # One OSD of each class speaks for its settings on a large cluster.
                asked = osds if len(osds) <= _ASKED_MAX else [*osds[: _ASKED_MAX // 2], *osds[-_ASKED_MAX // 2 :]]
                answers = environment.collect(self._host, self._session, self._target, asked)
                self._keep_raw(moment, answers)
                rows[EnvironmentFact] = list(environment.parse(run_id, moment, answers))
                if moment == "before" and self._session is not None:
                    rows[Placement] = list(environment.parse_placement(run_id, answers, self._target))
            except (UnreachableError, StoreError):
                raise
            except BathyscopeError as error:
                caveats.append(Caveat(run_id, None, "environment", "note", error.message, "environment"))
        rows[Caveat] = list(caveats)
        self._run.write_run_tables(rows, part=moment)
        if moment == "before":
            facts = {
                (f.subject, f.name): f.value for f in rows.get(EnvironmentFact, []) if isinstance(f, EnvironmentFact)
            }
            self._run.update(versions={**self._run.info.versions, **_versions(facts, fio_version)})
            self.run_row(None)

    def run_row(self, ended_ns: int | None) -> None:
        """Write the row of the table run as the run is now. Raises StoreError."""
        info = self._run.info
        versions = info.versions
        row = Run(
            run_id=info.id,
            plan_name=info.plan_name,
            status=info.status,
            target=self._target.name,
            bathy_version=versions.get("bathy", ""),
            started_ns=info.started_ns,
            ended_ns=ended_ns,
            cluster_fsid=versions.get("fsid"),
            ceph_version=versions.get("ceph"),
            fio_version=versions.get("fio"),
            host_name=versions.get("host"),
            kernel=versions.get("kernel"),
            cpu_count=int(versions["cpu_count"]) if versions.get("cpu_count", "").isdigit() else None,
        )
        self._run.write_run_tables({Run: [row]}, part="run")

    def _keep_raw(self, moment: str, answers: Sequence[RawAnswer]) -> None:
        """Keep the answers verbatim. Raises StoreError: a full disk must not look like a failure of the program."""
        directory = self._run.path / "environment" / moment
        try:
            save_raw(directory, answers)
        except OSError as error:
            raise StoreError(
                f"cannot write {directory}: {error.strerror}", hint="free space there; the run can then be resumed"
            ) from error


def _versions(facts: dict[tuple[str, str], str], fio_version: str | None) -> dict[str, str]:
    """Return the versions that run.json names, as far as they are known."""
    from bathyscope import __version__  # noqa: PLC0415 - the package's root knows the version

    found = {"bathy": __version__, "fio": fio_version or ""}
    for (subject, name), value in facts.items():
        if subject == "cluster" and name in ("fsid", "osd_version"):
            found["ceph" if name == "osd_version" else name] = value
        elif subject.startswith("host "):
            found["host"] = subject.removeprefix("host ")
            if name in ("kernel", "cpu_count"):
                found[name] = value
    return {name: value for name, value in found.items() if value}
