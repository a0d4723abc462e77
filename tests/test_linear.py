"""What grows with a site grows in proportion, and not with the square."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import junitparser
import pytest
import records
from plumbline.output import export
from plumbline.session import session
from reframe.core import config

#: What four times as much may take at most, as a multiple: its square would be 16.
MOST = 10


def ratio(work: Callable[[int], object], size: int) -> float:
    """How much longer four times as much takes, in CPU time; the shortest of a few tries each."""

    def seconds(much: int) -> float:
        began = time.process_time()
        work(much)
        return time.process_time() - began

    return min(seconds(4 * size) for _ in range(2)) / min(seconds(size) for _ in range(4))


def many(count: int) -> export.Session:
    cases = [records.unheld(session="s", time="2026-11-01T00:00:00Z", system="alpha",
                            check=f"check {number}", result=("pass", "error", "skip")[number % 3],
                            reason="why", seconds={"total": 1.0, "samples": []}, foms=[])
             for number in range(count)]  # fmt: skip
    return export.Session("s", "alpha", {"key": "value"}, cases, ["a fault"], ["a line"])


@pytest.mark.holds("linear")
def test_junit_of_many_cases() -> None:
    sessions = {count: many(count) for count in (500, 2000)}
    assert ratio(lambda count: export.junit(sessions[count]), 500) < MOST
    (suite,) = junitparser.JUnitXml.fromstring(export.junit(sessions[500]).encode())
    assert (suite.tests, suite.failures, suite.errors, suite.skipped) == (502, 0, 169, 333)
    assert [case.name for case in suite][:2] == ["check 0", "check 1"]
    assert suite.time == 500


@pytest.mark.holds("linear")
def test_a_system_of_many_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of a run's commands has ReFrame read the configuration of all of them."""
    select = config._SiteConfig.select_subconfig
    monkeypatch.setattr(config._SiteConfig, "select_subconfig", select)

    copied = []

    def deepcopy(found, *args):
        if isinstance(found, dict) and "systems" in found:
            copied.append(sum(len(system["partitions"]) for system in found["systems"]))
        return copy.deepcopy(found, *args)

    monkeypatch.setattr(config, "copy", SimpleNamespace(**vars(copy) | {"deepcopy": deepcopy}))

    def selected(count: int) -> dict:
        partition = {"scheduler": "local", "launcher": "local", "environs": ["gnu"]}
        site = {
            "systems": [
                {"name": name, "hostnames": ["nowhere"],
                 "partitions": [partition | {"name": f"{name}{n}"} for n in range(count)]}
                for name in ("alpha", "beta")
            ],
            "environments": [{"name": "gnu"}],
            "logging": [{"handlers$": [{"type": "stream"}], "handlers": [{"type": "stream"}]}],
        }  # fmt: skip
        path = tmp_path / f"settings{count}.py"
        path.write_text(f"site_configuration = {site}")
        loaded = config.load_config(str(path))
        copied.clear()
        for number in range(count):
            loaded.select_subconfig(f"alpha:alpha{number}")
        loaded.select_subconfig("beta")
        return loaded._subconfigs

    plain = selected(8)
    whole = copied[0]
    assert whole >= 16 and copied == [whole] * 9
    session._with_small_copies()
    assert selected(8) == plain
    assert copied == [*[1] * 8, whole]
    assert [len(found["systems"][0]["partitions"]) for found in plain.values()] == [*[1] * 8, 8]
