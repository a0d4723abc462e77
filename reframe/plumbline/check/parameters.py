"""Parameter values of a check by system: its variants, its file systems, its published scales."""

from __future__ import annotations

import functools
import os

from reframe.core.runtime import runtime

from plumbline.core import paths
from plumbline.reference import lookup

#: The environment without the variables and options of a variant.
DEFAULT = "default"

#: The only value of a parameter for which the system has none: it makes no test case. ReFrame would
#: warn of a parameter without values, as of a check that cannot be loaded.
NONE = "none"


def variants(*keys: str) -> list[str]:
    """Return :data:`DEFAULT` and the system's variants that set conditions of these keys only."""
    found = [DEFAULT]
    for partition in runtime().system.partitions:
        for name, variant in (partition.extras.get("variants") or {}).items():
            conditions = variant.get("conditions", {}).keys()
            if name not in found and conditions and conditions <= set(keys):
                found.append(name)
    return found


def gpu_variants() -> list[str]:
    """Return the variants with messages in GPU memory; :data:`DEFAULT` if the system has none."""
    return variants("buffer")[1:] or [DEFAULT]


def of_variants(*keys: str) -> list[str]:
    """Return the variants without :data:`DEFAULT`."""
    return variants(*keys)[1:] or [NONE]


def file_systems(**having: object) -> list[str]:
    """Return the file systems of the system, or its scratch folder if it lists none.

    Without ``having``, those that were built for one experiment are skipped.

    :arg having: settings that the file systems must have; ``...`` stands for any value.
    """
    listed = {
        name: entry
        for partition in runtime().system.partitions
        for name, entry in (partition.extras.get("file_systems") or {}).items()
    }
    if having:
        found = [
            name
            for name, entry in listed.items()
            if all(key in entry and value in (..., entry[key]) for key, value in having.items())
        ]
        return found or [NONE]
    return [n for n, entry in listed.items() if "building_blocks" not in entry] or ["scratch"]


def published_scales(benchmark: str, placement: str = "") -> list:
    """Return nodes and tasks per node of every published measurement of a benchmark on the system
    that has both."""
    scales = {
        (row.nodes, row.ppn)
        for row in references().rows
        if (row.system, row.benchmark) == (runtime().system.name, benchmark)
        and row.kind == "measured"
        and row.placement == placement
        and row.nodes
        and row.ppn
    }
    return sorted(scales) or [NONE]


def of_scale(scale) -> str:
    """Return a published scale as in a test case's name: 420x4."""
    return scale if scale == NONE else f"{scale[0]}x{scale[1]}"


def references() -> lookup.References:
    """Return the reference tables."""
    return _references(os.environ.get("PLUMBLINE_SITE"))


@functools.cache
def _references(site: str | None) -> lookup.References:
    """Return the tables of a site. They are needed for each value of each figure, and to look up
    their folders each time takes a tenth of a session."""
    return lookup.loaded(paths.reference())
