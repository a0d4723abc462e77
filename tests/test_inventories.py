"""The inventories that are shipped: what each system's cases are and what bounds their figures, as
a site has them whose benchmarks are all built. ``make inventories`` writes them anew."""

from __future__ import annotations

import os
from pathlib import Path

import foreign
import pytest
from plumbline import inventory, paths, reference, survey

SHIPPED = foreign.ROOT / "systems" / "inventory"


def surveyed(system: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[survey.Case]:
    """All cases of a system at the simulated facility, by a dry run."""
    foreign.prepare(system, folder)
    env = foreign.variables(system, folder)
    for name in os.environ.keys() - env.keys():
        monkeypatch.delenv(name)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    return survey.surveyed(system, [str(paths.CHECKS)], [*survey.FULL])


@pytest.mark.parametrize("system", foreign.SYSTEMS)
def test_shipped_inventory(system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    accept = os.environ.get("ACCEPT_GOLDEN")
    references = reference.loaded(foreign.ROOT / "reference")
    text = inventory.of_cases(surveyed(system, tmp_path, monkeypatch), references).text()
    path = SHIPPED / f"{system}.json"
    if accept:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.exists(), f"{path} is not there: make inventories"
    assert text == path.read_text(encoding="utf-8"), "look at the change, then: make inventories"
