"""The inventories that are shipped: what each system's cases are and what bounds their figures, as
a site has them whose benchmarks are all built. ``make inventories`` writes them anew."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import foreign
import pytest
from click.testing import CliRunner
from conftest import codes_in
from dry_runs import DryRun
from plumbline.cli import main
from plumbline.reference import lookup
from plumbline.site import inventory

SHIPPED = foreign.ROOT / "systems" / "inventory"


@pytest.mark.parametrize("system", foreign.SYSTEMS)
def test_shipped_inventory(system: str, dry_run: Callable[[str], DryRun]) -> None:
    accept = os.environ.get("ACCEPT_GOLDEN")
    references = lookup.loaded(foreign.ROOT / "reference")
    cases = dry_run(system).cases
    if not cases:
        pytest.skip(f"{system}: no environment has a benchmark that there is a check of")
    text = inventory.from_plan(cases, references).text()
    path = SHIPPED / f"{system}.json"
    if accept:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.exists(), f"{path} is not there: make inventories"
    assert text == path.read_text(encoding="utf-8"), "look at the change, then: make inventories"


def test_a_site_that_has_built_nothing_yet_knows_its_bounds(tmp_path: Path, monkeypatch) -> None:
    """Its cases are skipped, but no figure or bound depends on a build: the inventory of its own
    file is as the shipped one, and neither has a fault."""
    for variable in ("PLUMBLINE_TOOLS", "PLUMBLINE_RESULTS", "PLUMBLINE_SITE"):
        monkeypatch.setenv(variable, str(tmp_path))
    written = tmp_path / "systems" / "inventory" / "tioga.json"
    for own in (False, True):
        if own:
            written.parent.mkdir(parents=True)
            shutil.copy(foreign.ROOT / "systems" / "tioga.yaml", tmp_path / "systems")
        done = CliRunner().invoke(main, ["lint", "--system=tioga"])
        assert (done.exit_code, codes_in(done.output)) == (0, []), done.output
        assert written.exists() == own
    assert written.read_text() == (SHIPPED / "tioga.json").read_text()


def test_a_session_of_a_site_is_as_its_shipped_inventory_has_it(tmp_path: Path) -> None:
    """Also under strict rules; a reference that was edited since fails it."""
    foreign.prepare("tioga", tmp_path)
    selected = ("--strict", "-n", "osu_gpu%test=latency", "-S", "num_warmups=0")
    done = foreign.run("tioga", tmp_path, *selected)
    assert (done.code, len(done.records), done.end["faults"]) == (0, 4, []), done.output
    path = tmp_path / "systems" / "inventory" / "tioga.json"
    shipped = json.loads(path.read_text())
    shipped["references"]["tioga-commscope-d2d-latency-gpu-b"]["upper"] = 13.0
    path.write_text(json.dumps(shipped))
    edited = foreign.run("tioga", tmp_path, *selected)
    assert edited.code == 1
    (fault,) = edited.end["faults"]
    assert "tioga-commscope-d2d-latency-gpu-b" in fault and "2 figures" in fault
