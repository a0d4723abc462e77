"""What a session on this machine says while it runs: which case starts, how long the rest takes.

Where a scheduler runs the cases, nobody knows when they start.
"""

from __future__ import annotations

import time


def in_order(testcases: list) -> list:
    """The cases with the short ones of this machine first, by their time limits: whoever waits
    sees something soon. ReFrame has no option for it, and runs them as they are given; cases that
    depend on each other stay as they are."""
    if any(testcase.deps for testcase in testcases):
        return testcases
    return sorted(testcases, key=lambda case: _limit(case) if _here(case) else 0)


def _here(testcase) -> bool:
    return testcase.partition.scheduler.is_local


def _limit(testcase) -> float:
    # ReFrame's own type of a duration is seconds, or none where there is no limit.
    return testcase.check.time_limit or 0


class Progress:
    """The cases of this machine that have not started, and what each takes.

    :arg cases: name -> seconds that it takes on an idle machine, as far as is known.
    """

    def __init__(self, cases: dict[str, float]):
        self._rest = dict(cases)
        self._number = len(cases)
        self._began = self._expected = 0.0

    def starts(self, case: str, name: str) -> str:
        """The line for a case that starts now; empty for one that is none of these.

        What the cases before it took, beside what was expected of them, says how fast this machine
        is.
        """
        if case not in self._rest:
            return ""
        now = time.monotonic()
        self._began = self._began or now
        factor = (now - self._began) / self._expected if self._expected else 1
        rest = sum(self._rest.values()) * factor
        self._expected += self._rest.pop(case)
        about = f"{rest / 60:.0f} min" if rest >= 90 else f"{max(rest, 1):.0f} s"
        done = self._number - len(self._rest)
        return f"{done} of {self._number} starts: {name}; the rest takes about {about}"
