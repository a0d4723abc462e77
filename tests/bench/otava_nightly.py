"""Apache Otava on series, every night on the nights up to it, from its own environment.

Reads series as JSON, and prints the new change points of each: start, night of the report, size.
"""

from __future__ import annotations

import json
import sys

from otava.analysis import compute_change_points


def nightly(values: list[float]) -> list[tuple[int, int, float]]:
    """A change point further than a week from any reported before is new."""
    found: list[tuple[int, int, float]] = []
    for night in range(20, len(values)):
        points, _ = compute_change_points(values[: night + 1])
        for point in points:
            if all(abs(point.index - start) > 7 for start, *_ in found):
                found.append((int(point.index), night, float(point.stats.forward_rel_change())))
    return found


print(json.dumps([nightly(values) for values in json.load(sys.stdin)]))
