"""What the papers print, recomputed from the rows; and the pages rendered from them."""

import csv
import fnmatch
import re
from collections import Counter

import pages
import pytest
from plumbline.core import paths, units
from plumbline.reference import lookup

FOLDER = paths.ROOT / "reference"


@pytest.fixture(scope="module")
def references() -> lookup.References:
    return lookup.loaded(FOLDER)


def derived() -> list[dict]:
    return pages.read_derived(FOLDER)


def value_of(expression: str, rows: dict) -> float:
    """Arithmetic over row ids in braces, each standing for the value that is used."""

    def number(match: re.Match) -> str:
        row = rows[match[1]]
        return repr(row.value if row.value_used is None else row.value_used)

    arithmetic = re.sub(r"\{([^}]+)\}", number, expression)
    assert re.fullmatch(r"(?:[-+*/(), \d.e]|\b(?:min|max|round)\b)+", arithmetic), arithmetic
    return eval(arithmetic, {"__builtins__": {}, "min": min, "max": max, "round": round})  # noqa: S307


def holds(value: float, printed: str) -> str:
    """Whether a recomputed number is the printed one: yes (rounds to it), truncated (cut to it),
    hedged (printed as about, and within 10 %), coarse (within the rounding of what it is made of),
    or no."""
    mark, digits, exponent = re.fullmatch(r"([<>~]?)\s*(-?[\d.]+)(E[+-]\d+)?", printed).groups()
    number = float(digits + (exponent or ""))
    if mark in ("<", ">"):
        return "yes" if (value < number if mark == "<" else value > number) else "no"
    unit = float(f"1{exponent or ''}") * 10.0 ** -len(digits.partition(".")[2])
    if abs(value - number) <= unit / 2 * (1 + 1e-9):
        return "yes"
    if mark == "~":
        return "hedged" if abs(value / number - 1) <= 0.1 else "no"
    if 0 <= abs(value) - abs(number) < unit * (1 - 1e-9):
        return "truncated"
    # Table IX prints its sums with one digit less than their quotients.
    return "coarse" if exponent and abs(value / number - 1) < 0.002 else "no"


def test_every_printed_sum_ratio_and_percentage(references):
    """Each is recomputed from the rows; those that do not hold are the ones that are known."""
    wrong = []
    for fields in derived():
        if fields["holds"] == "unknown":
            continue
        found = holds(value_of(fields["expression"], references.tables.rows), fields["printed"])
        if found != fields["holds"]:
            wrong.append((fields["id"], fields["expression"], fields["printed"], found))
    assert not wrong
    assert sum(fields["holds"] != "unknown" for fields in derived()) > 200


def test_every_derived_row_is_accounted_for(references):
    """A derived row of the tables is recomputed, or said to be beyond what is printed."""
    listed = {fields["id"] for fields in derived()}
    rows = references.tables.rows.values()
    assert [row.id for row in rows if row.kind == "derived" and row.id not in listed] == []
    strange = [i for i in listed if not i.startswith("no-row:") and i not in references.tables.rows]
    assert strange == []


def test_known_misprints_name_rows(references):
    """The list of misprints is data about rows that are there, with the arithmetic."""
    with (FOLDER / "known" / "misprints.csv").open(newline="", encoding="utf-8") as file:
        listed = list(csv.DictReader(file))
    assert len(listed) > 80
    for fields in listed:
        assert all(fields[column] for column in ("id", "printed", "used", "arithmetic")), fields
        for pattern in fields["id"].split(";"):
            ids = fnmatch.filter(references.tables.rows, pattern.strip())
            # Of one paper: a pattern must not reach the rows of another.
            assert len({references.tables.rows[i].source for i in ids}) == 1, pattern


def test_used_values_have_their_arithmetic(references):
    """A row that is not used as printed says why."""
    for row in references.rows:
        if row.value_used is not None or row.unit_used:
            assert len(row.note) > 20, row.id


@pytest.mark.parametrize(
    ("name", "unit", "used"),
    [
        ("summit-mpigraph-bandwidth-mean-adaptive", "GB/s", 11.8),
        ("summit-mpigraph-bandwidth-mean-static", "GB/s", 10.2),
        ("reedbush-u-hpcg-performance-full", "Gflop/s", 8457.78),
        ("butte-nvlink-h2d-bandwidth-gpu2", "GB/s", 40.44),
        ("reedbush-u-imb-barrier-latency-speedup-hpcx-sharp", "one", 3.2),
        # GPCNeT divides by 2**20.
        ("summit-gpcnet-random-ring-bandwidth-p99-congested-03-ar-on-mean", "MiB/s", 2379.4),
    ],
)
def test_traps(references, name, unit, used):
    """Numbers whose printed unit or place cannot be are used as they must be read."""
    value, _ = references.tables.rows[name].used(unit)
    assert value == pytest.approx(used)


def test_a_lower_bound_is_no_ceiling(references):
    """'> 450' caps nothing."""
    case = lookup.Case("trinity", "knl", "cray-mpich", "babelstream", "all-cores", 1, 1)
    assert references.ceiling(case, "memory_bandwidth", None) is None
    case = lookup.Case("sawtooth", "cpu", "intel-mpi", "babelstream", "all-cores", 1, 1)
    assert references.ceiling(case, "memory_bandwidth", None).value == 281.505


@pytest.mark.parametrize(("system", "placement", "metric", "most"), [
    # Links of 50 GB/s and direction: four, two and one between GPUs of class A, B and C.
    ("frontier", "gpu-a", "bandwidth", 200), ("frontier", "gpu-a", "bibandwidth", 400),
    ("tioga", "gpu-b", "bandwidth", 100), ("rzvernal", "gpu-c", "xccl_bandwidth", 50),
    # A pair of class D has no link of its own: the memory caps it.
    ("frontier", "gpu-d", "bandwidth", 1600),
    ("frontier", "gpus-on-node", "xccl_allreduce_bus_bandwidth", 2 * 8 * 50),
    # Four of the twelve NVLinks of an A100, of 25 GB/s and direction.
    ("perlmutter", "gpu-a", "bandwidth", 100), ("polaris", "gpu-a", "xccl_bibandwidth", 200),
    ("polaris", "gpus-on-node", "xccl_alltoall_bandwidth", 2 * 12 * 25),
    # Four NICs of 200 Gb/s, and two.
    ("frontier", "off-node", "bandwidth", 100), ("polaris", "off-node", "bibandwidth", 100),
    ("perlmutter", "gpus-off-node", "xccl_bcast_bus_bandwidth", 200),
])  # fmt: skip
def test_ceilings_of_hardware_guides(references, system, placement, metric, most):
    nodes = 2 if "off" in placement else 1
    device = {"buffer": "device"}
    case = lookup.Case(system, "gpu", "cray-mpich", "osu", placement, nodes, 1, device)
    found = references.ceiling(case, metric, 2**20)
    unit = references.tables.foms["osu"][metric].unit
    # And half of the last printed digit, which is 2 % of 25 GB/s.
    assert 1 <= found.value / (most * units.factor("GB/s", unit)) <= 1.02


def test_counts(references):
    """Rows per paper and kind: a row lost in an edit is noticed."""
    counts = Counter((row.source, row.kind) for row in references.rows if row.source != "site")
    assert counts == {
        ("coral-sc18", "measured"): 170, ("coral-sc18", "peak"): 82,
        ("coral-sc18", "target"): 13, ("coral-sc18", "derived"): 83,
        ("coral-sc19", "measured"): 177, ("coral-sc19", "peak"): 6,
        ("coral-sc19", "target"): 1, ("coral-sc19", "derived"): 66,
        ("pmbs23", "measured"): 108, ("pmbs23", "peak"): 13, ("pmbs23", "derived"): 43,
        ("reedbush-2016", "measured"): 52, ("reedbush-2016", "peak"): 28,
        ("reedbush-2016", "derived"): 23,
        ("cielo-xe6", "measured"): 44, ("cielo-xe6", "peak"): 12, ("cielo-xe6", "derived"): 1,
        ("alcf-slingshot", "peak"): 4, ("amd-mi250", "peak"): 3, ("nvidia-a100", "peak"): 4,
        ("olcf-frontier", "peak"): 4,
    }  # fmt: skip


def test_pages_are_rendered_from_the_tables(references):
    """`make docs` would change nothing."""
    docs = paths.ROOT / "docs"
    rendered = pages.rendered(references, FOLDER)
    there = sorted(f"papers/{path.name}" for path in (docs / "papers").glob("*.md"))
    assert sorted(name for name in rendered if name.startswith("papers/")) == there
    for name, text in rendered.items():
        assert (docs / name).read_text(encoding="utf-8") == text, f"{name}: run `make docs`"
    everything = "".join(rendered.values())
    assert [row.id for row in references.rows if f"`{row.id}`" not in everything] == []
