"""Where objects lie and who has the images, on a real Ceph: what is computed is what the cluster says."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bathyscope.analysis.pg_mapping import seeds
from bathyscope.host.local import LocalHost
from bathyscope.lab.spec import parse_ec
from bathyscope.recording.collect import collect
from bathyscope.recording.scope import ScopeKeeper
from bathyscope.records import PgPlacement, from_table
from bathyscope.sources import SOURCES

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

EC_POOL = "ec-2-1"


@pytest.fixture(scope="module")
def lab(private_lab: Any) -> Iterator[Any]:
    with private_lab("hosts", ["ssd=3"], ec=parse_ec("2+1")) as cluster:
        with cluster.session() as session:
            # No power of two, so that some groups have twice the objects of others.
            coded = {"pool_type": "erasure", "erasure_code_profile": profile(session)}
            for pool, kind in (("odd", {}), ("odd-ec", coded)):
                session.json("mon", "osd pool create", pool=pool, pg_num=12, pgp_num=12, **kind)
        yield cluster


def profile(session: Any) -> str:
    """Return the profile of the lab's erasure-coded pool."""
    (pool,) = (each for each in session.json("mon", "osd dump")["pools"] if each["pool_name"] == EC_POOL)
    return str(pool["erasure_code_profile"])


def names(count: int) -> list[str]:
    """Return names of objects of all lengths, some as images have them, some with other letters."""
    dice = random.Random(211)
    of_images = [f"rbd_data.10ab.{number:016x}" for number in range(count // 4)]
    coded = [f"rbd_data.2.{dice.getrandbits(40):x}.{dice.getrandbits(30):016x}" for _ in range(count // 4)]
    lengths = ["x" * length for length in range(1, 40)]
    return [*of_images, *coded, *lengths, *(f"größe {number} %" for number in range(count - count // 4 * 2 - 39))]


def test_objects_lie_where_the_monitors_say(lab: Any, tools: Any) -> None:
    places = [("rbd", ""), ("odd", ""), ("odd", "tenant"), (EC_POOL, ""), ("odd-ec", "größe")]
    with lab.session() as session:
        tools.wait_for(lambda: not active(session), 60, "active groups")
        keeper = ScopeKeeper(LocalHost(), session, lab.target)
        keeper.refresh()
        source = SOURCES["pg_map"]
        answers = collect(LocalHost(), session, source.plan(keeper.scope))
        rows = from_table(PgPlacement, source.parse(answers, keeper.scope)[PgPlacement])
        said = []
        for pool, namespace in places:
            groups = {row.seed: row for row in rows if row.pool == pool}
            found = seeds(names(100), namespace, len(groups))
            for name, seed in zip(names(100), found, strict=True):
                answer = session.json("mon", "osd map", pool=pool, object=name, nspace=namespace)
                said.append(answer)
                group = groups[int(seed)]
                assert answer["pgid"] == f"{group.pool_id}.{group.seed:x}", answer
                acting = [osd for osd in answer["acting"] if osd != answer["acting_primary"]]
                assert group.acting.split() == [str(osd) for osd in (answer["acting_primary"], *acting)]
                assert group.osd == answer["acting_primary"]
    assert len(said) == 500
    keep(answers, said)


def active(session: Any) -> list[str]:
    """Return the groups that are not active."""
    groups = session.json("mgr", "pg dump", dumpcontents=["pgs_brief"])
    listed = groups["pg_stats"] if isinstance(groups, dict) else groups
    return [group["pgid"] for group in listed if "active" not in group["state"] or "unknown" in group["state"]]


def keep(answers: Any, said: Any) -> None:
    """Keep the answers as tests/fixtures/pg_map has them, where BATHY_RECORD says so."""
    if place := os.environ.get("BATHY_RECORD"):
        directory = Path(place)
        directory.mkdir(parents=True, exist_ok=True)
        for answer in answers:
            about = {
                "label": answer.label, "argv": answer.argv, "environment": [], "exit_code": answer.exit_code,
                "started_ns": answer.started_ns, "ended_ns": answer.ended_ns, "files": [],
            }  # fmt: skip
            (directory / f"{answer.label}.json").write_text(json.dumps(about, indent=1) + "\n")
            (directory / f"{answer.label}.stdout").write_bytes(answer.stdout)
        kept = ("pool", "objname", "pgid", "acting", "acting_primary")
        (directory / "osd_map.json").write_text(json.dumps([{key: each[key] for key in kept} for each in said]))
