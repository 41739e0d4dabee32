"""What every RBD image did between one look and the next: the manager's own `rbd perf image counters`.

The OSDs count the operations of each image while somebody asks for them; the first answer comes some 10 s after the
first question, and a minute after the last one they stop. Counts are totals since then, so a row is a difference. All
pools are asked at once: asked for one pool, the manager leaves out images whose data lies in another pool (16.2 to
20.2.3), and answers nothing at all to the first question of all pools.

At most 64 images are named in an answer, the busiest of the last seconds in one order (`sort_by`); an OSD itself keeps
256 of them, as a weighted sample. So all six orders are asked, and an image that is in none of them has no row until it
is: that row is as long as it was not named. The manager reads the OSDs' reports once in `mgr_stats_period` and
drops what comes twice within a second. So counts are those of the busiest images, a few per mille too small, and late
by two periods. A write to a clone, which first asks whether its object is there, is a read as well. Clients are not
told apart. `bathyscope`'s own manager module (`mgr_counters`) has none of these limits. What could not be counted,
because another manager took over, is in `uncounted`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from bathyscope.fields import as_dict, as_int, as_list, parsing
from bathyscope.host import Request
from bathyscope.records import ImageIo, RawAnswer, Record, Tables, Uncounted
from bathyscope.sources.mgr_counters import may_count
from bathyscope.sources.shape import Columns, Source, ask
from bathyscope.spec.scope import Scope

_LABEL = "rbd_perf"
_ORDERS = ("write_ops", "read_ops", "write_bytes", "read_bytes", "write_latency", "read_latency")
# Images in one answer at most.
_NAMED_MAX = 64

# (pool, namespace, image)
_Name = tuple[str, str, str]
_Totals = tuple[int, ...]


class ImageCounters:
    """`rbd perf image counters` of all pools, in every order."""

    name = "image_counters"
    records: tuple[type[Record], ...] = (ImageIo, Uncounted)
    period_s = 5.0
    timeout_s = 15.0
    differences = True

    def plan(self, scope: Scope) -> Sequence[Request]:
        """Return one request for each order; none where our own module counts."""
        if scope.target.kind == "disk" or may_count(scope):
            return []
        return [
            ask(f"{_LABEL}-{order}", "mgr", "rbd perf image counters", self.timeout_s, sort_by=order)
            for order in _ORDERS
        ]

    def parse(self, answers: Sequence[RawAnswer], scope: Scope) -> Tables:  # noqa: ARG002 - the shape of a source
        """Return a row for each image that counted something between two looks.

        An image that no look has named before has counted all of its total since the first look, if that one had room
        for all images: nobody had asked before it, or all that were counted until then were named in it.
        """
        columns, uncounted = Columns(ImageIo), Columns(Uncounted)
        # Image → when it was named last, and its totals then.
        last: dict[_Name, tuple[int, _Totals]] = {}
        before_ns: int | None = None
        all_named = False
        for at_ns, totals in _looks(answers):
            is_new = _is_new_manager(totals, last)
            if before_ns is not None and is_new:
                reason = "the manager began to count again: another one took over"
                uncounted.add(source=self.name, at_ns=at_ns, duration_ns=at_ns - before_ns, reason=reason)
            for name, now in totals.items():
                named_ns, before = last.get(name, (before_ns, (0,) * len(now) if all_named else now))
                # The totals begin again after a minute without a question, and after a failover.
                grown = tuple(new - old for new, old in zip(now, before, strict=True))
                grown = now if is_new or min(grown) < 0 else grown
                if named_ns is not None and at_ns > named_ns and any(grown):
                    _add(columns, name, (at_ns, at_ns - named_ns), grown)
            all_named = all_named if before_ns is not None else len(totals) < _NAMED_MAX
            last |= {name: (at_ns, now) for name, now in totals.items()}
            before_ns = at_ns
        return {ImageIo: columns.table(), Uncounted: uncounted.table()}


SOURCE: Source = ImageCounters()


def _is_new_manager(totals: Mapping[_Name, _Totals], known: Mapping[_Name, tuple[int, _Totals]]) -> bool:
    """Return whether most totals are smaller than before. A single one is that of an image that was long idle."""
    both = [name for name in totals if name in known]
    smaller = sum(any(new < old for new, old in zip(totals[name], known[name][1], strict=True)) for name in both)
    return 2 * smaller > len(both)


def _add(columns: Columns, name: _Name, when: tuple[int, int], grown: _Totals) -> None:
    pool, namespace, image = name
    writes, reads, write_bytes, read_bytes, write_ns, read_ns = grown
    columns.add(
        at_ns=when[0],
        duration_ns=when[1],
        pool=pool,
        namespace=namespace,
        image=image,
        image_id=None,
        client=None,
        client_address=None,
        read_count=reads,
        write_count=writes,
        read_bytes=read_bytes,
        write_bytes=write_bytes,
        read_latency_ns_sum=read_ns,
        write_latency_ns_sum=write_ns,
    )


def _looks(answers: Sequence[RawAnswer]) -> Iterator[tuple[int, dict[_Name, _Totals]]]:
    """Yield (time, image → totals) of each look: it ends when an order is asked again. Raises ParseError."""
    asked: set[str] = set()
    at_ns = 0
    totals: dict[_Name, _Totals] = {}
    for answer in answers:
        if not answer.label.startswith(f"{_LABEL}-"):
            continue
        if answer.label in asked:
            if at_ns:
                yield at_ns, totals
            asked, at_ns, totals = set(), 0, {}
        asked.add(answer.label)
        if answer.exit_code == 0:
            at_ns = at_ns or answer.ended_ns
            with parsing(answer.label):
                for name, counted in _images(answer):
                    # The orders are asked one after the other, and a report may come in between.
                    totals[name] = max(totals.get(name, counted), counted)
    if at_ns:
        yield at_ns, totals


def _images(answer: RawAnswer) -> Iterator[tuple[_Name, _Totals]]:
    """Yield (image, totals) of {"pool_descriptors": {"0": "rbd/ns"}, "counters": [{"0/image": [6 numbers]}]}.

    Raises what reading foreign values raises.
    """
    value = as_dict(answer.json())
    named = [str(name) for name in as_list(value["counter_descriptors"])]
    places = [named.index(order) for order in _ORDERS]
    pools = {str(index): str(descriptor) for index, descriptor in as_dict(value["pool_descriptors"]).items()}
    for entry in as_list(value["counters"]):
        for descriptor, numbers in as_dict(entry).items():
            index, _, image = str(descriptor).partition("/")
            # A pool's name holds no slash.
            pool, _, namespace = pools[index].partition("/")
            yield (pool, namespace, image), tuple(as_int(as_list(numbers)[index]) for index in places)
