"""Which checks a system has, by its nodes and by the programs of its environments."""

from __future__ import annotations

import re

import pytest
from conftest import CHECKS, Testbed


@pytest.mark.parametrize(("features", "on_cpus"), [("kokkos", True), ("kokkos gpu", False)])
def test_kokkos_that_was_built_for_gpus_is_not_run_on_cpus(
    testbed: Testbed, features: str, on_cpus: bool
):
    testbed.environment("one", features=f"babelstream {features}")
    done = testbed.reframe("-c", CHECKS, "-L")
    assert done.code == 0
    assert ("babelstream_model %model=kokkos" in done.out) is on_cpus


@pytest.mark.parametrize(
    ("domains", "found"),
    [(["0x3"], {"commscope_host"}), (["0x1", "0x2"], {"babelstream_numa", "commscope_host"})],
)
def test_one_numa_domain_is_measured_as_all_cores(
    testbed: Testbed, domains: list[str], found: set[str]
):
    testbed.environment("one", features="babelstream omp commscope")
    cores = {"sockets": ["0x3"], "cores": ["0x1", "0x2"], "numa_nodes": domains}
    processor = {"num_cpus": 2, "num_cpus_per_core": 1, "num_cpus_per_socket": 2, "num_sockets": 1}
    testbed.write(
        processor={**processor, "topology": cores}, extras={"placements": ["numa-matrix"]}
    )
    done = testbed.reframe("-c", CHECKS, "-L")
    assert done.code == 0, done.output
    assert {*re.findall(r"^- (\w+) ", done.out, re.M)} == found


def test_what_hardly_depends_on_mpi_is_measured_under_the_first(testbed: Testbed):
    programs = testbed.folder / "bin"
    programs.mkdir()
    for name in ("ior", "mdtest"):
        (programs / name).symlink_to("/bin/true")
    for name in ("first", "other"):
        testbed.environment(name, features="mpi")
        testbed.environments[-1] |= {"extras": {"provider": "path", "detect": True}}
    testbed.write()
    path = f"{programs}:{testbed.env['PATH']}"
    for chosen, of_mpi in ((".*", {"first", "other"}), ("other", {"other"})):
        done = testbed.reframe("-c", CHECKS, "-lC", "--tag=nightly", "-p", chosen, PATH=path)
        assert done.code == 0, done.output
        found = re.findall(r"^- (ior|mdtest)\b(?:.*%api=(\w+))?.*\+(\w+)$", done.out, re.M)
        one = min(of_mpi)
        expected = {("ior", "posix", one), ("mdtest", "", one)}
        assert {*found} == expected | {("ior", "mpiio", name) for name in of_mpi}
