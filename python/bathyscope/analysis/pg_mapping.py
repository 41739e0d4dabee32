"""Which placement group an object belongs to, as Ceph's clients compute it: without asking the cluster.

The name is hashed (Robert Jenkins' hash of 1997, `ceph_str_hash_rjenkins`: that of all pools since 2012), and the hash
is folded onto the pool's number of groups so that, when it grows, groups are split and nothing else moves
(`ceph_stable_mod`). An object with a locator key hashes by that instead; images have none.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_GOLDEN = 0x9E3779B9
_BLOCK = 12
# Shifts of the three lines of a round of mixing.
_SHIFTS = ((13, 8, 13), (12, 16, 5), (3, 10, 15))

_Words = npt.NDArray[np.uint32]


def seeds(names: Sequence[str], namespace: str, pg_count: int) -> npt.NDArray[np.int64]:
    """Return the number of the placement group of each object in a pool of `pg_count` groups.

    `namespace` is the RADOS namespace, empty for the default one.
    """
    prefix = f"{namespace}\x1f" if namespace else ""
    encoded = [(prefix + name).encode() for name in names]
    lengths = np.array([len(name) for name in encoded], dtype=np.int64)
    hashes = np.zeros(len(encoded), dtype=np.uint32)
    for length in np.unique(lengths):
        mine = np.flatnonzero(lengths == length)
        joined = b"".join(encoded[place] for place in mine)
        hashes[mine] = _hashes(np.frombuffer(joined, dtype=np.uint8).reshape(len(mine), length))
    return _folded(hashes.astype(np.int64), pg_count)


def _folded(hashes: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
    """Return the group of each hash: its low bits; one bit less for those beyond the last group."""
    mask = (1 << (count - 1).bit_length()) - 1
    low = hashes & mask
    return np.asarray(np.where(low < count, low, hashes & (mask >> 1)))


def _hashes(names: npt.NDArray[np.uint8]) -> _Words:
    """Return the hash of each row: names of one length."""
    count, length = names.shape
    # The last bytes come after the length, which takes the lowest byte of the third word.
    whole = length // _BLOCK * _BLOCK
    last = np.zeros((count, _BLOCK), dtype=np.uint8)
    rest = names[:, whole:]
    last[:, : min(rest.shape[1], 8)] = rest[:, :8]
    last[:, 9 : 9 + max(0, rest.shape[1] - 8)] = rest[:, 8:]
    a = np.full(count, _GOLDEN, dtype=np.uint32)
    b, c = a.copy(), np.zeros(count, dtype=np.uint32)
    for begin in range(0, whole, _BLOCK):
        words = _words(names[:, begin : begin + _BLOCK])
        a, b, c = _mixed(a + words[0], b + words[1], c + words[2])
    words = _words(last)
    _, _, c = _mixed(a + words[0], b + words[1], c + words[2] + np.uint32(length))
    return c


def _words(block: npt.NDArray[np.uint8]) -> list[_Words]:
    """Return the three words of twelve bytes, of each row."""
    return list(np.ascontiguousarray(block).view("<u4").T.astype(np.uint32))


def _mixed(a: _Words, b: _Words, c: _Words) -> tuple[_Words, _Words, _Words]:
    for one, two, three in _SHIFTS:
        a = (a - b - c) ^ (c >> np.uint32(one))
        b = (b - c - a) ^ (a << np.uint32(two))
        c = (c - a - b) ^ (b >> np.uint32(three))
    return a, b, c
