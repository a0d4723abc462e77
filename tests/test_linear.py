"""What grows with a site grows in proportion, and not with the square."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

import junitparser
import pytest
import records
from plumbline.check import record
from plumbline.output import export
from plumbline.site import slurm

#: How much more is done, and what that may take at most, as a multiple: the square would be 64, and
#: what no longer fits into a cache that other tests use takes up to 2.5 times as long.
MORE, MOST = 8, 24


def ratio(work: Callable[[int], object], size: int) -> float:
    """How much longer :data:`MORE` takes, in CPU time; the shortest of a few tries each."""

    def seconds(much: int) -> float:
        began = time.process_time()
        work(much)
        return time.process_time() - began

    # The collector looks at all objects of earlier tests, most often while much is done.
    gc.disable()
    try:
        tries = [(seconds(size), seconds(MORE * size)) for _ in range(4)]
        few, much = map(min, zip(*tries, strict=True))
        return much / few
    finally:
        gc.enable()


def many(count: int) -> export.ExportedSession:
    about = {"session": "s", "time": "2026-11-01T00:00:00Z", "system": "alpha"}
    cases = [record.validate(records.unvalidated(**about,
                            check=f"check {number}", result=("pass", "error", "skip")[number % 3],
                            reason="why", seconds={"total": 1.0, "samples": []}, foms=[]))
             for number in range(count)]  # fmt: skip
    return export.ExportedSession("s", "alpha", {"key": "value"}, cases, ["a fault"], ["a line"])


@pytest.mark.holds("linear")
def test_junit_of_many_cases() -> None:
    sessions = {count: many(count) for count in (500, MORE * 500)}
    assert ratio(lambda count: export.junit(sessions[count]), 500) < MOST
    (suite,) = junitparser.JUnitXml.fromstring(export.junit(sessions[500]).encode())
    assert (suite.tests, suite.failures, suite.errors, suite.skipped) == (502, 0, 169, 333)
    assert [case.name for case in suite][:2] == ["check 0", "check 1"]
    assert suite.time == 500


@pytest.mark.holds("linear")
def test_kinds_of_many_nodes() -> None:
    """Half of a partition's nodes have a GPU."""
    nodes = [
        slurm.SlurmNode(f"n{number}", "p", 2, 4, 1, 1000, ("", number % 2), ("a",), "idle", "none")
        for number in range(MORE * 2000)
    ]
    assert ratio(lambda count: slurm.kinds("p", nodes[:count]), 2000) < MOST
    assert [len(kind.nodes) for kind in slurm.kinds("p", nodes)] == [8000, 8000]
