"""Where a curve bends: beyond the knee, more flash brings less than it brought before."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# A knee that lies closer to the straight line than this is noise: the curve has no bend worth naming.
LEAST_BEND = 0.05
# A curve that gains less than this from its smallest to its largest size is flat.
LEAST_GAIN = 0.02


def upper_hull(sizes: NDArray[np.float64], hits: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return the indices of the points on the upper concave hull of a curve.

    `sizes` (n,) strictly increasing, `hits` (n,). A real cache of a policy with cliffs lies below its hull;
    the hull is what an optimal division of the space can reach (Talus, HPCA 2015).
    """
    hull: list[int] = []
    for i in range(len(sizes)):
        while len(hull) >= 2:
            a, b = hull[-2], hull[-1]
            if (hits[b] - hits[a]) * (sizes[i] - sizes[a]) <= (hits[i] - hits[a]) * (sizes[b] - sizes[a]):
                hull.pop()
            else:
                break
        hull.append(i)
    return np.asarray(hull, dtype=np.intp)


def knee_index(sizes: NDArray[np.float64], hits: NDArray[np.float64]) -> int | None:
    """Return the index of the knee: the hull point farthest above the chord, both axes scaled to 0..1.

    None when there are fewer than three points, when the curve is flat (gain below LEAST_GAIN), or when it
    is a straight line (bend below LEAST_BEND). The method is Kneedle's (Satopää et al., 2011) on the hull.
    """
    if len(sizes) < 3 or sizes[-1] <= sizes[0]:
        return None
    # A cache of size zero hits nothing; with it, a curve that starts on its plateau still has its bend there.
    xs = np.concatenate(([0.0], sizes))
    ys = np.concatenate(([0.0], np.maximum.accumulate(hits)))
    gain = ys[-1] - ys[0]
    if gain < LEAST_GAIN:
        return None
    hull = upper_hull(xs, ys)
    distance = ys[hull] / gain - xs[hull] / xs[-1]
    best = int(np.argmax(distance))
    if distance[best] < LEAST_BEND:
        return None
    return int(hull[best]) - 1
