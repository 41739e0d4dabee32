"""Which OSDs hold each placement group: `pg dump pgs_brief`, for where objects lie that nobody touched.

The statistics of placement groups (`pg_stats`) say it only of groups that did something.
"""

from __future__ import annotations

from collections.abc import Sequence

from bathyscope.fields import as_int, parsing
from bathyscope.host import Request
from bathyscope.records import PgPlacement, RawAnswer, Record, Tables
from bathyscope.sources import pg_stats
from bathyscope.sources.shape import Columns, Source, ask
from bathyscope.spec.scope import Scope

_LABEL = "pg_map"


class PgMap:
    """`pg dump pgs_brief`: one look at all placement groups."""

    name = "pg_map"
    records: tuple[type[Record], ...] = (PgPlacement,)
    period_s = 600.0
    timeout_s = 60.0
    differences = False

    def plan(self, scope: Scope) -> Sequence[Request]:
        """Return the one request."""
        if scope.target.kind == "disk":
            return []
        return [ask(_LABEL, "mgr", "pg dump", self.timeout_s, dumpcontents=["pgs_brief"])]

    def parse(self, answers: Sequence[RawAnswer], scope: Scope) -> Tables:
        """Return a row for each group of each look."""
        columns = Columns(PgPlacement)
        names = {number: name for name, number in scope.pools.items()}
        for answer in answers:
            if answer.label != _LABEL or answer.exit_code != 0:
                continue
            for group in pg_stats.groups(answer):
                with parsing(_LABEL):
                    pool, _, seed = str(group["pgid"]).partition(".")
                    has_primary = as_int(group["acting_primary"]) >= 0
                    acting = pg_stats.acting(group) if has_primary else []
                    columns.add(
                        at_ns=answer.ended_ns,
                        pool=names.get(as_int(pool), pool),
                        pool_id=as_int(pool),
                        seed=int(seed, 16),
                        osd=acting[0] if has_primary else None,
                        acting=" ".join(map(str, acting)),
                    )
        return {PgPlacement: columns.table()}


SOURCE: Source = PgMap()
