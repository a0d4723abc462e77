"""Each of the six programs runs on each current system, at a size that is safe by default."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

import coverage_page
import facility
import pytest
from coverage_page import CURRENT, PROGRAMS, WITHOUT
from dry_runs import DryRun
from own_machine import PROGRAM
from plumbline.core import paths
from plumbline.session import plan

PAGE = paths.ROOT / "docs" / "coverage.md"
OTHERS = [system for system in CURRENT if system != "local"]


def test_the_current_systems_are_eighteen():
    assert len(CURRENT) == 18


def test_what_a_plain_run_runs_is_what_is_not_at_published_scale(dry_run: Callable[[str], DryRun]):
    """As ReFrame lists the checks without any option."""
    cases = dry_run("summit").cases
    assert coverage_page.counted(cases, full=True)
    assert coverage_page.listed("summit") == coverage_page.counted(cases)


@pytest.mark.parametrize("system", OTHERS)
def test_each_program_has_a_case(system: str, dry_run: Callable[[str], DryRun]):
    """In a plain run; and the page says how many."""
    plain = coverage_page.counted(dry_run(system).cases)
    lacking = [p for p in PROGRAMS if not plain[p] and (system, p) not in WITHOUT]
    assert not lacking, f"{system} has no test case of {lacking}"
    (row,) = re.findall(rf"^\| {system} \|(( [^|]+ \|){{6}})$", PAGE.read_text(), re.M)
    cells = [cell.split()[0].rstrip(",") for cell in row[0].split("|")[:-1]]
    assert cells == [str(plain[program]) for program in PROGRAMS], "make golden"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a machine where the six programs are on PATH."""
    folder = tmp_path_factory.mktemp("programs")
    for path in facility.BIN.iterdir():
        if PROGRAM.fullmatch(path.name) and not path.name.startswith(("cuda", "hip")):
            (folder / path.name).symlink_to(path)
    return {"PATH": f"{folder}:{os.environ['PATH']}", "PLUMBLINE_SCRATCH": str(folder)}


def test_each_program_that_is_built_here_has_a_case(built: dict[str, str]):
    """What does not run has the reason that the page has."""
    found = plan.preview("local", [str(paths.ROOT / "checks")], [], **built).cases
    plain = coverage_page.counted(found)
    assert all(plain[program] for program in PROGRAMS), plain
    codes = {case.code for case in found if coverage_page.benchmark_of(case.case) == "gpcnet"}
    assert codes == {"placement.too-few-nodes"}
    assert WITHOUT.keys() == {("local", "gpcnet")}


@pytest.mark.parametrize("system", OTHERS)
def test_what_is_written_by_default_is_bounded(system: str, dry_run: Callable[[str], DryRun]):
    """1 GiB and four files at a time by IOR, 4000 files of 32 KiB by mdtest, on two nodes."""
    written = {"ior": [], "ior_random": [], "mdtest": []}
    for script in dry_run(system).scripts:
        name = script.check.split()[0]
        if name not in written:
            continue
        start = script.text.index("PROGRAMS/")
        sizes = dict(re.findall(r" -([bsnw]) (\d+)", script.text[start:]))
        if name == "mdtest":
            assert int(sizes["n"]) <= 1000 and int(sizes["w"]) <= 32 * 1024
        else:
            assert int(sizes["b"]) * int(sizes["s"]) <= 2**30 // 4
        written[name].append(script)
    assert all(written.values()), f"{system}: no script of {[n for n in written if not written[n]]}"
