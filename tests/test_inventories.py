"""The inventories that are shipped: what each system's cases are and what bounds their figures, as
a site has them whose benchmarks are all built. ``make inventories`` writes them anew."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import foreign
import pytest
from dry_runs import DryRun
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


def test_a_site_that_has_built_nothing_yet_has_no_fault(tmp_path: Path) -> None:
    """Its environments are skipped, and the shipped inventory is not wrong of them."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("PLUMBLINE_")}
    env |= {"PLUMBLINE_TOOLS": str(tmp_path), "PLUMBLINE_RESULTS": str(tmp_path)}
    done = subprocess.run(
        [str(foreign.BIN / "plumbline"), "lint", "--system=tioga"],
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 faults" in done.stdout and "not there" not in done.stdout


def test_a_session_of_a_site_is_as_its_shipped_inventory_has_it(tmp_path: Path) -> None:
    """Also under strict rules; a reference that was edited since fails it."""
    foreign.prepare("tioga", tmp_path)
    selected = ("--strict", "-n", "osu_gpu%test=latency", "-S", "num_warmups=0")
    done = foreign.run("tioga", tmp_path, *selected)
    assert done.code == 0, done.said
    assert len(done.records) == 4 and "bounded" not in done.said
    path = tmp_path / "systems" / "inventory" / "tioga.json"
    shipped = json.loads(path.read_text())
    shipped["references"]["tioga-commscope-d2d-latency-gpu-b"]["upper"] = 13.0
    path.write_text(json.dumps(shipped))
    edited = foreign.run("tioga", tmp_path, *selected)
    assert edited.code == 1
    assert "reference tioga-commscope-d2d-latency-gpu-b, which bounds 2 figures: was" in edited.said
