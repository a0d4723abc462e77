"""The page and the test cases that a night leaves."""

from __future__ import annotations

import junitparser
from conftest import Done


def page_of(done: Done, name: str = "nightly") -> str:
    return (done.sessions[-1] / f"{name}.md").read_text()


def outcome_of(case: junitparser.TestCase) -> list[type]:
    return [type(result) for result in case.result]
