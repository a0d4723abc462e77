"""Progress messages of a session on this machine: which case starts, and how long the rest takes.

If a scheduler runs the cases, their start is not known.
"""

from __future__ import annotations

import time

from plumbline.check.result import CaseResult
from plumbline.site import host_load


def in_order(testcases: list) -> list:
    """Return the cases with those of this machine sorted by time limit, so that results come soon.

    Cases that depend on each other keep their order.
    """
    if any(testcase.deps for testcase in testcases):
        return testcases

    def limit(testcase) -> float:
        check = testcase.check
        return check.time_limit or 0 if host_load.is_local(check, testcase.partition) else 0

    return sorted(testcases, key=limit)


class Progress:
    """The cases of this machine that have not started.

    :arg cases: name -> its result, with the estimated seconds on an idle machine; a check may
        change the estimate until its case starts.
    """

    def __init__(self, cases: dict[str, CaseResult]):
        self._rest = dict(cases)
        self._number = len(cases)
        self._began = self._expected = 0.0

    def starts(self, case: str, name: str) -> str:
        """Return the message for a case that starts now; empty for a case of another machine.

        The cases before it show the speed of this machine: their time relative to their estimates,
        which counts the more, the fewer cases there are left.
        """
        if case not in self._rest:
            return ""
        now = time.monotonic()
        self._began = self._began or now
        rest = sum(case.usual_seconds for case in self._rest.values())
        rest *= (now - self._began + rest) / (self._expected + rest or 1)
        self._expected += self._rest.pop(case).usual_seconds
        about = f"{rest / 60:.0f} min" if rest >= 90 else f"{max(rest, 1):.0f} s"
        done = self._number - len(self._rest)
        return f"{done} of {self._number} starts: {name}; the rest takes about {about}"
