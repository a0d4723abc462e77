"""The size of HPC Challenge, over machines of every kind."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable

import pytest
import yaml
from conftest import STANDINS, Done, Testbed
from own_machine import two_cores
from plumbline.check import sizing
from reframe.utility.cpuinfo import cpuinfo

GIB, MIB = 2**30, 2**20

#: From a virtual machine's reference BLAS to a fast core, and a fast one with ten processes beside.
SPEEDS = {
    "reference BLAS": sizing.Speed(1e9, 0.1e9),
    "slow": sizing.SLOW,
    "fast": sizing.Speed(56e9, 1.3e9),
    "busy": sizing.Speed(56e9 / 6, 1.3e9 / 6, wait=0.02),
}
MACHINES = [
    pytest.param(
        cores, memory * GIB, cache * MIB, name, id=f"{cores}x{memory}GiB-{cache}MiB-{name}"
    )
    for cores, memory, cache, name in itertools.product(
        (2, 4, 64), (4, 24, 512), (8, 32, 260, 1024), SPEEDS
    )
]


@pytest.mark.parametrize(("cores", "memory", "cache", "speed"), MACHINES)
def test_of_every_machine(cores: int, memory: int, cache: int, speed: str) -> None:
    """A run ends in time, fits, has a size that another day's probe gives too, and is no larger
    than STREAM's rules need."""
    order = sizing.order_by_time(cores, cache, memory, SPEEDS[speed])
    took = sizing.seconds(order, cores, SPEEDS[speed])
    smallest = order == sizing.SMALLEST
    assert took <= sizing.BUDGET or (smallest and took <= 2 * sizing.BUDGET)
    assert 8 * order**2 <= memory / 2
    needed = sizing.multiple(sizing.smallest_valid(cache, cores), 192)
    assert order % 192 == 0 and order in [needed, *(sizing.SMALLEST * 2**k for k in range(10))]
    assert smallest or order <= needed


def test_stream_is_of_memory_where_there_is_time() -> None:
    order = sizing.order_by_time(2, 32 * MIB, 24 * GIB, SPEEDS["fast"])
    assert sizing.vector(order, 2) >= 4 * 32 * MIB
    order = sizing.order_by_time(2, 260 * MIB, 24 * GIB, SPEEDS["fast"])
    assert sizing.vector(order, 2) < 4 * 260 * MIB


@pytest.mark.parametrize("factor", [0.8, 1.25])
def test_a_probe_of_another_day_gives_the_same_size(factor: float) -> None:
    speed = SPEEDS["fast"]
    other = sizing.Speed(speed.flops * factor, speed.updates * factor)
    assert {sizing.order_by_time(2, 260 * MIB, 24 * GIB, each) for each in (speed, other)} == {7680}


def test_of_the_captured_run() -> None:
    """The sizes that hpcc 1.5 printed itself follow from its N as they do here."""
    text = (STANDINS / "outputs" / "hpcc.out").read_text()
    printed = {key: int(value) for key, value in re.findall(r"^(\w+)=(\d+)$", text, re.M)}
    order, tasks = printed["HPL_N"], printed["CommWorldProcs"]
    assert sizing.table(order, tasks) == printed["RandomAccess_N"]
    assert sizing.vector(order, tasks) // 8 == printed["STREAM_VectorSize"]
    assert (sizing.share(order, tasks) / 24) ** 0.5 == pytest.approx(printed["DGEMM_N"], abs=2)


def test_of_a_measured_run() -> None:
    """N = 10,176 on two idle cores at 56 Gflop/s took 57 s."""
    assert sizing.seconds(10176, 2, SPEEDS["fast"]) == pytest.approx(57, rel=0.2)


def test_on_a_scheduled_system_what_is_declared_decides() -> None:
    fits = sizing.order_by_cache(36, 20 * MIB, 128 * GIB, sizing.SLOW, budget=600)
    assert sizing.vector(fits, 36) >= 4 * 20 * MIB
    slow = sizing.order_by_cache(2, GIB, 128 * GIB, sizing.SLOW, budget=300)
    assert sizing.seconds(slow, 2, sizing.SLOW) <= 300 and slow % 192 == 0
    small = sizing.order_by_cache(2, GIB, 4 * GIB, sizing.Speed(1e13, 1e13), budget=300)
    assert 8 * small**2 <= 0.8 * 4 * GIB


# -- the check -----------------------------------------------------------------------------------

#: MiB of last-level cache of each partition -> conditions of its run, at the speeds that the
#: stand-in prints of itself: 49 Gflop/s and 1.1 Gupdate/s.
BY_CACHE = {
    # 4 x 8 MiB need N = 5016: the next multiple of the blocks.
    8: ("5184", "memory"),
    # As a virtual machine sees the cache of a current server.
    260: ("7680", "maybe-cache"),
    1024: ("7680", "maybe-cache"),
}


@pytest.fixture(scope="module")
def bed(make_testbed: Callable[..., Testbed]) -> Testbed:
    """A system with a partition for each size of cache. Environment ``based`` has a baseline."""
    testbed = make_testbed()
    for name in ("one", "based"):
        testbed.environment(name, "hpcc")
    partitions = []
    for cache in BY_CACHE:
        processor = cpuinfo()
        for level in processor["topology"]["caches"]:
            if level["type"] == "L3":
                level["size"] = cache * MIB
        extras = {"memory": 4 * GIB, "scratch": str(testbed.scratch), "placements": ["full-node"],
                  "usable_cpus": list(two_cores())}  # fmt: skip
        environs = ["one", "based"] if cache == 260 else ["one"]
        path = testbed.write(
            name=f"cache{cache}", processor=processor, extras=extras, environs=environs
        )
        content = yaml.safe_load(path.read_text())
        partitions += content["systems"][0]["partitions"]
    content["systems"][0]["partitions"] = partitions
    path.write_text(yaml.safe_dump(content))
    size = "scale=cache;hpl_block=192;hpl_n={};stream_vector=maybe-cache"
    row = {"benchmark": "hpcc", "toolchain": "based", "metric": "single_stream_copy",
           "placement": "full-node", "value": "1.00", "unit": "GB/s"}  # fmt: skip
    testbed.refer(
        row | {"id": "own", "conditions": size.format(1920)},
        row | {"id": "other", "conditions": size.format(3840) + ";host=other"},
    )
    assert testbed.plumbline("lint").code == 0
    return testbed


def sizes(done: Done) -> dict[tuple[str, str], tuple[str, str]]:
    """Partition and environment -> the two conditions of each run."""
    assert done.code == 0, done.output
    return {
        (f["partition"], f["environment"]): tuple(
            f["conditions"][name] for name in ("hpl_n", "stream_vector")
        )
        for f in done.records
    }


def test_hpcc_follows_the_probe_or_its_baseline(bed: Testbed) -> None:
    """What a probe would say of another day leaves no baseline uncompared, nor does a dry run,
    which does not probe, lack it in the inventory."""
    inventory = json.loads((bed.systems / "inventory" / "testbed.json").read_text())
    assert inventory["references"].keys() == {"own"}
    done = bed.plumbline("run", "-n", "hpcc")
    assert sizes(done) == {
        **{(f"cache{cache}", "one"): found for cache, found in BY_CACHE.items()},
        ("cache260", "based"): ("1920", "maybe-cache"),
    }
    based = done.record("hpcc", "based")
    assert "own" in {fom["reference"] for fom in based["foms"]}
    assert done.end["faults"] == []


def test_hpcc_of_another_size(bed: Testbed) -> None:
    """As the command line has it, and on a busy machine."""
    only = ["--system=testbed:cache1024", "-n", "hpcc"]
    done = bed.plumbline("run", *only, "-S", "hpcc.n=1920")
    assert sizes(done) == {("cache1024", "one"): ("1920", "maybe-cache")}
    busy = bed.plumbline("run", "-n", "hpcc", "-p", "based", PLUMBLINE_OTHERS=10)
    assert sizes(busy)["cache260", "based"][0] == "960"
