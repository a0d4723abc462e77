"""Values of a check's parameters that the system at hand has: its variants, its file systems, the
scales that were published of it."""

from __future__ import annotations

from reframe.core.runtime import runtime

from plumbline.core import paths
from plumbline.reference import lookup

#: The environment as it is, without the variables and options of a variant.
DEFAULT = "default"

#: A parameter's only value where the system at hand has none: no test case comes of it. ReFrame
#: warns of a parameter without values as of a check that could not be loaded.
NONE = "none"


def variants(*keys: str) -> list[str]:
    """The variants of the system at hand that set conditions of these keys and no others, to be
    a check's parameter; before them the environment as it is."""
    found = [DEFAULT]
    for partition in runtime().system.partitions:
        for name, told in (partition.extras.get("variants") or {}).items():
            set_by_it = told.get("conditions", {}).keys()
            if name not in found and set_by_it and set_by_it <= set(keys):
                found.append(name)
    return found


def gpu_variants() -> list[str]:
    """The variants under which messages may lie in GPU memory; where the system has none, the
    environment as it is."""
    return variants("buffer")[1:] or [DEFAULT]


def of_variants(*keys: str) -> list[str]:
    """The variants alone."""
    return variants(*keys)[1:] or [NONE]


def file_systems(**having: object) -> list[str]:
    """The file systems of the system at hand, to be a check's parameter; where it names none, its
    scratch folder. Those that are set up for one experiment are left out.

    :arg having: only those that tell this of themselves; ``...`` stands for any value.
    """
    listed = {
        name: told
        for partition in runtime().system.partitions
        for name, told in (partition.extras.get("file_systems") or {}).items()
    }
    if having:
        found = [
            name
            for name, told in listed.items()
            if all(key in told and want in (..., told[key]) for key, want in having.items())
        ]
        return found or [NONE]
    return [n for n, told in listed.items() if "building_blocks" not in told] or ["scratch"]


def published_scales(benchmark: str, placement: str = "") -> list:
    """Nodes and tasks on each of every measurement that was published of a benchmark on the
    system at hand and states both, to be a check's parameter."""
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
    """A published scale in a test case's name: 420x4."""
    return scale if scale == NONE else f"{scale[0]}x{scale[1]}"


def references() -> lookup.References:
    """The tables in force."""
    return lookup.loaded(paths.reference())
