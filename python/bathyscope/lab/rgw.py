"""The object gateway of a lab: radosgw with its beast front end, and one S3 user."""

from __future__ import annotations

from bathyscope.errors import LabError
from bathyscope.fields import as_dict, as_list, load_json, parsing
from bathyscope.files import read_own
from bathyscope.lab import network
from bathyscope.lab.bringup import Bringup, write_private
from bathyscope.lab.layout import Layout

DAEMON = "rgw.a"
# Those of the default zone, with their numbers of placement groups: the gateway would make some of them at the first
# bucket, when the lab is in use, and all with as many groups as a pool for data.
POOLS = {
    **dict.fromkeys((".rgw.root", "default.rgw.log", "default.rgw.control", "default.rgw.meta"), 8),
    "default.rgw.buckets.index": 8,
    "default.rgw.buckets.data": 32,
}
_USER = "bathy"


def make(bringup: Bringup) -> None:
    """Make the user, and with it the zone and its pools; then start the gateway and wait until it listens."""
    bringup.progress("making the object gateway")
    layout, record = bringup.layout, bringup.record
    # The gateway makes a zone too, if there is none: the two must not do it at once.
    answer = bringup.tools.run(
        *("radosgw-admin", "-c", str(layout.conf), "user", "create"),
        *("--uid", _USER, "--display-name", "Bathyscope"),
    )
    write_private(layout.s3_user, answer.decode())
    bringup.start(DAEMON)
    while not network.listens(record.address, record.ports[2]):
        bringup.tick("the object gateway does not listen")


def s3_keys(layout: Layout) -> tuple[str, str]:
    """Return the access key and the secret key of the lab's user. Raises LabError."""
    try:
        with parsing("the S3 user"):
            (key, *_) = as_list(as_dict(load_json(read_own(layout.s3_user)))["keys"])
            return str(as_dict(key)["access_key"]), str(as_dict(key)["secret_key"])
    except OSError as error:
        raise LabError(f"{layout.s3_user} cannot be read: {error.strerror}") from error
