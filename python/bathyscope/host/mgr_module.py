"""A module of ceph-mgr: who does how much I/O, counted by the OSDs with dynamic perf queries.

It runs inside ceph-mgr of Ceph 14.2.5 to 20.2 under that mgr's Python (>= 3.6), installed as
MGR_MODULE_PATH/bathyscope/module.py beside an __init__.py that imports `Module`. Standard library and mgr_module only;
nothing of bathyscope is importable there. It only counts: what the counts mean is read from its answers by
sources/mgr_counters.py.

What an OSD counts for a query is moved out of the mgr by each get, so the module drains its queries in every
mgr_stats_period, whether anybody asks or not, and keeps running totals. A reader takes the difference of two looks.

What it costs is bounded everywhere:
  - an OSD matches two short expressions for each operation of a client (about 1 us), and nothing while nobody has
    asked for ASKED_S;
  - each drain holds the mgr's interpreter: after one that took longer than GET_S the next is later;
  - there are at most KEYS_MAX keys. Beyond that the zones are dropped, then new keys are counted in one row.

Every expression ends with an empty group, (?:). OSDs share the state of queries with equal expressions, so that
another module's `limit` would hold for these ones too, even after its query is gone. A `limit` is not used: it keeps a
random sample of the keys, not the first ones.
"""

# Python 3.6 must be able to read this.
# ruff: noqa: UP006, UP035, UP045
import errno
import json
import re
import threading
import time
import uuid
from collections import Counter
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

from mgr_module import MgrModule

try:
    # 20.2 wants a registry of its own for each module.
    from mgr_module import CLICommandBase

    CLI = CLICommandBase.make_registry_subtype("BathyscopeCLI")
except ImportError:
    CLI = None

# Raised with every change of this file: `bathy mgr status` compares it with that of the installed file.
VERSION = 3

# "ops" and "latency" are of all operations, each once. "read_ops" counts those that read and write as well: a write to
# a clone, which first asks whether its object is there, would be a read too.
COUNTERS = ("write_ops", "ops", "write_bytes", "read_bytes", "write_latency", "latency")
IMAGE_CLIENT, OSD_POOL, ZONES = "image_client", "osd_pool", "zones"
OTHER = "other"

KEYS_MAX = 20000
KEY_IDLE_S = 600.0
ASKED_S = 120.0
ZOOM_S = 60.0
ZOOM_IMAGES_MAX = 16
ZONES_MAX = 256
# Of the 16 hexadecimal digits of an object's number.
DIGITS_MIN, DIGITS_MAX = 12, 16
# With a prefix: how many digits more than it, 4096 zones.
PREFIX_DIGITS_MAX = 3

GET_S = 0.1
QUIET_GET_S = 0.05
PERIOD_MIN_S, PERIOD_MAX_S = 1.0, 60.0

# OSDs before it can crash when they report a query (https://tracker.ceph.com/issues/41891).
RELEASE_MIN = (14, 2, 5)

# A group takes printable ASCII and nothing else. RADOS takes any bytes for the name of an object or a namespace, from
# any client that may write to a pool; the mgr makes Python text of every group, and ends with SIGSEGV where the bytes
# are no UTF-8 (16.2 to 20.2). What does not match is not counted by this query, and a namespace is matched whole: cut
# off at the first other byte, it would be taken for another one.
# An OSD matches them for every operation of a client, so what is not needed is not matched: for image x client these
# take 0.7 us of one processor, where matching names to their ends took 1.1 us (libstdc++ of GCC 12, -O2). Names of
# objects are up to 2 KiB long, so what is matched of them has a length: librbd's ids have 14 digits at most.
NUMBER = "^([0-9]+)(?:)"
NAMESPACE = "^([ -~]*)$(?:)"
# client.4157, mgr.4123: a client by its number, another one by its kind, too.
CLIENT = r"^(?:client|([a-z]+))\.([0-9]+)(?:)"
# 10.0.0.1:0/123, [fd00::1]:0/123, on some releases after "v1:" or "v2:"; one of IPv6 begins with its bracket.
ADDRESS = r"^(?:v[12]:)?(\[[0-9a-f:.]+|[0-9.]+)(?:)"
# rbd_data.IMAGE.OBJECT, or rbd_data.POOL.IMAGE.OBJECT: with the pool of its header where its data is in another one.
IMAGE = r"^rbd_data\.(?:([0-9]{1,18})\.)?([0-9a-f]{1,32})\.(?:)"
ZONE = r"^rbd_data\.(?:([0-9]{1,18})\.)?(%s)\.(%s[0-9a-f]{%d})(?:)"

Key = Tuple[Any, ...]


def query(*expressions: Tuple[str, str]) -> Dict[str, Any]:
    """Return the query with these (type, expression) as its key."""
    return {
        "key_descriptor": [{"type": kind, "regex": expression} for kind, expression in expressions],
        "performance_counter_descriptors": list(COUNTERS),
    }


def image_client_key(parts: List[List[str]]) -> Key:
    """Return (client, address, pool id, namespace, pool id of the header or -1, image id)."""
    client, address, pool, namespace, image = parts
    kind, number = client
    name = (kind or "client") + "." + number
    return name, address[0].lstrip("["), int(pool[0]), namespace[0], int(image[0] or -1), image[1]


def osd_pool_key(parts: List[List[str]]) -> Key:
    """Return (OSD, pool id)."""
    return int(parts[0][0]), int(parts[1][0])


def zone_key(parts: List[List[str]]) -> Key:
    """Return (pool id of the header, image id, OSD, first digits of the objects' numbers)."""
    pool, osd, image = parts
    return int(image[0] or pool[0]), image[1], int(osd[0]), image[2]


def writes_and_reads(values: List[int]) -> List[int]:
    """Return writes, reads, their bytes and their latencies of the values of COUNTERS; what is no write is a read."""
    writes, ops, write_bytes, read_bytes, write_latency, latency = values
    return [writes, ops - writes, write_bytes, read_bytes, write_latency, latency - write_latency]


ALWAYS = {
    IMAGE_CLIENT: query(
        ("client_id", CLIENT),
        ("client_address", ADDRESS),
        ("pool_id", NUMBER),
        ("namespace", NAMESPACE),
        ("object_name", IMAGE),
    ),
    OSD_POOL: query(("osd_id", NUMBER), ("pool_id", NUMBER)),
}
KEY_OF: Dict[str, Callable[[List[List[str]]], Key]] = {
    IMAGE_CLIENT: image_client_key,
    OSD_POOL: osd_pool_key,
    ZONES: zone_key,
}
OTHER_KEY: Dict[str, Key] = {IMAGE_CLIENT: (OTHER, "", -1, "", -1, ""), OSD_POOL: (-1, -1)}


class Counted:
    """What one query has counted since it was registered: running totals by key."""

    def __init__(self, query_id: int, now_s: float) -> None:
        self.query_id = query_id
        self.registered_s = now_s
        # key -> [six totals, created, last active]
        self.totals = {}  # type: Dict[Key, List[float]]

    def add(self, key: Key, values: List[int], now_s: float) -> None:
        """Add what a key has counted since the last drain."""
        total = self.totals.setdefault(key, [0, 0, 0, 0, 0, 0, now_s, now_s])
        for index, value in enumerate(values):
            total[index] += value
        total[7] = now_s

    def forget_idle(self, now_s: float) -> None:
        """Forget the keys that have counted nothing for long."""
        for key in [key for key, total in self.totals.items() if now_s - total[7] > KEY_IDLE_S]:
            del self.totals[key]

    def answer(self, now_s: float) -> Dict[str, Any]:
        """Return the totals as they are handed out."""
        rows = [[*key, round(now_s - total[6], 3), *total[:6]] for key, total in self.totals.items()]
        return {"registered_age_s": round(now_s - self.registered_s, 3), "rows": rows}


class Zoom:
    """Which images are counted by zones, and until when. Raises ValueError for what cannot be asked."""

    def __init__(self, images: str, digits: int, prefix: str, until_s: float) -> None:
        self.images = tuple(sorted(set(filter(None, re.split("[,; ]+", images)))))
        if not 1 <= len(self.images) <= ZOOM_IMAGES_MAX or not re.fullmatch("[0-9a-f|]{1,600}", "|".join(self.images)):
            raise ValueError(f"images must be 1 to {ZOOM_IMAGES_MAX} ids of images, with commas between them")
        if not DIGITS_MIN <= digits <= DIGITS_MAX:
            raise ValueError(f"digits must be {DIGITS_MIN} to {DIGITS_MAX}")
        if not re.fullmatch("[0-9a-f]*", prefix) or (prefix and not 0 < digits - len(prefix) <= PREFIX_DIGITS_MAX):
            raise ValueError(f"within must be hexadecimal, with 1 to {PREFIX_DIGITS_MAX} digits fewer than digits")
        self.asked = self.images, digits, prefix
        # Becomes fewer where that makes too many zones.
        self.digits = digits
        self.prefix = prefix
        self.until_s = until_s

    def query(self) -> Dict[str, Any]:
        """Return the query that counts the zones."""
        expression = ZONE % ("|".join(self.images), self.prefix, self.digits - len(self.prefix))
        return query(("pool_id", NUMBER), ("osd_id", NUMBER), ("object_name", expression))

    def is_too_fine(self, keys: Iterable[Key]) -> bool:
        """Return whether an image has too many zones."""
        zones = Counter(image for image, _ in {(key[1], key[3]) for key in keys})
        return not self.prefix and self.digits > DIGITS_MIN and max(zones.values(), default=0) > ZONES_MAX


def release_of(text: str) -> Optional[Tuple[int, ...]]:
    """Return (16, 2, 15) from "ceph version 16.2.15 (...) pacific (stable)"; None when there is no version in it."""
    found = re.search(r"(\d+)\.(\d+)\.(\d+)", text)
    return tuple(int(part) for part in found.groups()) if found else None


class Module(MgrModule):  # type: ignore[misc]
    """Registers the queries, drains them, answers commands.

    The mgr calls `serve` in one thread and commands in others; one lock holds for all that they share.
    """

    COMMANDS = [  # noqa: RUF012 - the mgr extends it
        {"cmd": "bathyscope status", "desc": "What the module bathyscope counts, and what that costs", "perm": "r"},
        {"cmd": "bathyscope counters", "desc": "Running totals of I/O by image, client, OSD and zone", "perm": "r"},
        {
            # "prefix" is the name of the command itself, so that of zones is "within".
            "cmd": "bathyscope zoom name=images,type=CephString name=digits,type=CephInt "
            "name=within,type=CephString,req=false",
            "desc": "Count zones of these images for a minute",
            "perm": "r",
        },
    ]
    NOTIFY_TYPES = []  # type: List[Any]  # noqa: RUF012
    if CLI is not None:
        CLICommand = CLI

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        # Totals of another instance (another mgr, or this one restarted) cannot be compared with those of this one.
        self._instance = uuid.uuid4().hex
        self._refused = None  # type: Optional[str]
        self._counted = {}  # type: Dict[str, Counted]
        self._zoom = None  # type: Optional[Zoom]
        self._asked_s = self._drained_s = time.monotonic()
        self._slower = 1
        self._get_duration_s = 0.0
        self._keys_dropped = 0
        self._zones_dropped = False
        # What was asked of the zones that were dropped: it is not tried again with each request.
        self._given_up = None  # type: Optional[Tuple[Any, ...]]

    def serve(self) -> None:
        """Drain the queries until the mgr stops the module."""
        with self._lock:
            self._register()
        while not self._stopped.wait(self._period_s()):
            try:
                self.drain()
            except Exception:
                self.log.exception("the queries could not be drained")

    def shutdown(self) -> None:
        """Leave `serve`, and let the OSDs forget the queries."""
        self._stopped.set()
        with self._lock:
            self._unregister()

    def handle_command(self, inbuf: str, cmd: Dict[str, Any]) -> Tuple[int, str, str]:  # noqa: ARG002 - the mgr's
        """Return (-errno, answer in JSON, error) of a command."""
        with self._lock:
            if cmd["prefix"] == "bathyscope status":
                return 0, json.dumps(self._status()), ""
            self._asked_s = time.monotonic()
            try:
                self._register()
                if self._refused is not None:
                    return -errno.EOPNOTSUPP, "", self._refused
                if cmd["prefix"] == "bathyscope counters":
                    return 0, json.dumps(self._counters(), separators=(",", ":")), ""
                self._zoom_to(Zoom(cmd["images"], int(cmd["digits"]), cmd.get("within") or "", self._asked_s + ZOOM_S))
            except ValueError as error:
                return -errno.EINVAL, "", str(error)
            return 0, json.dumps(self._status()), ""

    def drain(self) -> None:
        """Move what the OSDs have reported into the totals."""
        with self._lock:
            began_s = time.monotonic()
            if began_s - self._asked_s > ASKED_S:
                self._unregister()
            if self._zoom is not None and began_s > self._zoom.until_s:
                self._remove(ZONES)
            reports = [
                (name, self.get_osd_perf_counters(counted.query_id) or {}) for name, counted in self._counted.items()
            ]
            self._drained_s = time.monotonic()
            for name, report in reports:
                # The zones may have been given up for the keys of another query.
                if name in self._counted:
                    self._counted[name].forget_idle(self._drained_s)
                    self._add_report(name, report.get("counters", []))
            zoom = self._zoom
            if zoom is not None and zoom.is_too_fine(self._counted[ZONES].totals):
                zoom.digits -= 1
                self._count_zones(zoom)
            # With the adding up: at many keys it takes as long as the gets, and holds the same interpreter.
            self._get_duration_s = time.monotonic() - began_s
            if self._get_duration_s > GET_S:
                self._slower = min(2 * self._slower, int(PERIOD_MAX_S))
            elif self._get_duration_s < QUIET_GET_S:
                self._slower = max(self._slower // 2, 1)

    # --- under the lock

    def _period_s(self) -> float:
        """Return the time to the next drain: that of the OSDs' reports, or longer while gets are slow."""
        return min(max(float(self.get_ceph_option("mgr_stats_period")), PERIOD_MIN_S) * self._slower, PERIOD_MAX_S)

    def _add_report(self, name: str, report: List[Dict[str, Any]]) -> None:
        """Add what one query has counted since the last drain; beyond KEYS_MAX keys, to one row."""
        key_count = sum(len(counted.totals) for counted in self._counted.values())
        counted = self._counted[name]
        for row in report:
            key = KEY_OF[name](row["k"])
            if key not in counted.totals:
                if key_count >= KEYS_MAX and ZONES in self._counted:
                    key_count -= len(self._counted[ZONES].totals)
                    self._given_up = None if self._zoom is None else self._zoom.asked
                    self._remove(ZONES)
                    self._zones_dropped = True
                    if name == ZONES:
                        return
                if key_count >= KEYS_MAX:
                    key = OTHER_KEY[name]
                    self._keys_dropped += 1
                key_count += key not in counted.totals
            counted.add(key, writes_and_reads([value[0] for value in row["c"]]), self._drained_s)

    def _register(self) -> None:
        """Register the queries that are always on, where they are not and may be."""
        missing = [name for name in ALWAYS if name not in self._counted]
        if missing and not self._stopped.is_set():
            self._refused = self._reason_to_refuse()
            for name in missing if self._refused is None else ():
                self._add_query(name, ALWAYS[name])

    def _reason_to_refuse(self) -> Optional[str]:
        """Return why nothing may be asked of the OSDs of this cluster; None when it may."""
        versions = [("the mgr", self.version)]
        for osd, about in (self.get("osd_metadata") or {}).items():
            versions.append((f"osd.{osd}", about.get("ceph_version", "")))
        for daemon, text in versions:
            release = release_of(text)
            if release is not None and release < RELEASE_MIN:
                number = ".".join(map(str, release))
                return f"{daemon} is Ceph {number}; before 14.2.5 an OSD can crash when it reports a query"
        return None

    def _add_query(self, name: str, wanted: Dict[str, Any]) -> None:
        """Register a query, in place of the one of that name."""
        self._remove(name)
        query_id = self.add_osd_perf_query(wanted)
        if query_id is None:
            raise ValueError("the mgr does not accept the query " + json.dumps(wanted))
        self._counted[name] = Counted(query_id, time.monotonic())
        if len(self._counted) == 1:
            self._drained_s = self._counted[name].registered_s

    def _remove(self, name: str) -> None:
        counted = self._counted.pop(name, None)
        if counted is not None:
            self.remove_osd_perf_query(counted.query_id)
        if name == ZONES:
            self._zoom = None

    def _unregister(self) -> None:
        """Remove all queries: the OSDs count nothing more."""
        for name in list(self._counted):
            self._remove(name)
        self._keys_dropped = 0
        self._given_up = None

    def _zoom_to(self, zoom: Zoom) -> None:
        """Count the zones of `zoom`. The same once more goes on with what is counted already."""
        if self._zoom is not None and self._zoom.asked == zoom.asked:
            self._zoom.until_s = zoom.until_s
        elif zoom.asked != self._given_up:
            self._zones_dropped = False
            self._given_up = None
            self._count_zones(zoom)

    def _count_zones(self, zoom: Zoom) -> None:
        self._add_query(ZONES, zoom.query())
        self._zoom = zoom

    def _counters(self) -> Dict[str, Any]:
        now_s = time.monotonic()
        return {
            "version": VERSION,
            "instance": self._instance,
            "clock_s": round(now_s, 3),
            "at_age_s": round(now_s - self._drained_s, 3),
            "queries": {name: counted.answer(now_s) for name, counted in self._counted.items()},
            "dropped": self._keys_dropped,
        }

    def _status(self) -> Dict[str, Any]:
        now_s = time.monotonic()
        queries = {
            name: {"registered_age_s": round(now_s - counted.registered_s, 3), "keys": len(counted.totals)}
            for name, counted in self._counted.items()
        }
        zoom = self._zoom
        return {
            "version": VERSION,
            "ceph_version": self.version,
            "instance": self._instance,
            "refused": self._refused,
            "queries": queries,
            "zoom": zoom and {"images": zoom.images, "digits": zoom.digits, "within": zoom.prefix},
            "asked_age_s": round(now_s - self._asked_s, 3),
            "get_duration_s": round(self._get_duration_s, 6),
            "drain_period_s": self._period_s(),
            "backed_off": self._slower > 1,
            "keys_dropped": self._keys_dropped,
            "zones_dropped": self._zones_dropped,
        }
