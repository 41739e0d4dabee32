"""Which placement group an object belongs to, as Ceph's clients compute it: without asking the cluster.

The name is hashed (Robert Jenkins' hash of 1997, `ceph_str_hash_rjenkins`: that of all pools since 2012), and the hash
is folded onto the pool's number of groups so that, when it grows, groups are split and nothing else moves
(`ceph_stable_mod`). An object with a locator key hashes by that instead; images have none.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_GOLDEN = 0x9E3779B9
_BLOCK = 12
# The two digits of each byte.
_DIGITS = np.array([list(f"{byte:02x}".encode()) for byte in range(256)], dtype=np.uint8)
# Shifts of the three lines of a round of mixing.
_SHIFTS = ((13, 8, 13), (12, 16, 5), (3, 10, 15))

_Words = npt.NDArray[np.uint32]
Names = npt.NDArray[np.uint8]
"""Names of one length, a row of bytes each."""


def numbered(prefix: str, numbers: npt.NDArray[np.int64]) -> Names:
    """Return the names of an image's objects: a prefix, and the number in 16 hexadecimal digits."""
    start = np.frombuffer(prefix.encode(), dtype=np.uint8)
    digits = _DIGITS[numbers.astype(">i8").view(np.uint8)].reshape(-1, 16)
    return np.hstack([np.broadcast_to(start, (len(numbers), len(start))), digits])


def name_hash(name: bytes) -> int:
    """Return the hash of the name of an object in the default namespace, which has no locator key."""
    return int(_hashes(np.frombuffer(name, dtype=np.uint8).reshape(1, -1))[0])


def seed_of(hashed: int, pg_count: int) -> int:
    """Return the number of the placement group of an object with this hash in a pool of `pg_count` groups."""
    return int(_folded(np.array([hashed], dtype=np.int64), pg_count)[0])


def seeds(names: Names, namespace: str, pg_count: int) -> npt.NDArray[np.int64]:
    """Return the number of the placement group of each object in a pool of `pg_count` groups.

    `namespace` is the RADOS namespace, empty for the default one.
    """
    start = np.frombuffer(f"{namespace}\x1f".encode() if namespace else b"", dtype=np.uint8)
    return _folded(
        _hashes(np.hstack([np.broadcast_to(start, (len(names), len(start))), names])).astype(np.int64), pg_count
    )


def _folded(hashes: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
    """Return the group of each hash: its low bits; one bit less for those beyond the last group."""
    mask = (1 << (count - 1).bit_length()) - 1
    low = hashes & mask
    return np.asarray(np.where(low < count, low, hashes & (mask >> 1)))


def _hashes(names: Names) -> _Words:
    """Return the hash of each row."""
    count, length = names.shape
    # The last bytes come after the length, which takes the lowest byte of the third word.
    whole = length // _BLOCK * _BLOCK
    last = np.zeros((count, _BLOCK), dtype=np.uint8)
    rest = names[:, whole:]
    last[:, : min(rest.shape[1], 8)] = rest[:, :8]
    last[:, 9 : 9 + max(0, rest.shape[1] - 8)] = rest[:, 8:]
    a = b = np.array([_GOLDEN], dtype=np.uint32)
    c = np.zeros(1, dtype=np.uint32)
    for begin in range(0, whole, _BLOCK):
        block = names[:, begin : begin + _BLOCK]
        # What all names begin with is mixed once.
        words = _words(block[:1] if (block == block[:1]).all() else block)
        a, b, c = _mixed(a + words[0], b + words[1], c + words[2])
    words = _words(last)
    _, _, c = _mixed(a + words[0], b + words[1], c + words[2] + np.uint32(length))
    return c


def _words(block: Names) -> list[_Words]:
    """Return the three words of twelve bytes, of each row."""
    return list(np.ascontiguousarray(block).view("<u4").T.astype(np.uint32))


def _mixed(a: _Words, b: _Words, c: _Words) -> tuple[_Words, _Words, _Words]:
    for one, two, three in _SHIFTS:
        a = (a - b - c) ^ (c >> np.uint32(one))
        b = (b - c - a) ^ (a << np.uint32(two))
        c = (c - a - b) ^ (b >> np.uint32(three))
    return a, b, c
