"""The ends of a test case: ReFrame's exceptions with reason codes, and codes for the others."""

from __future__ import annotations

from reframe.core.exceptions import (
    BuildError,
    ExpectedFailureError,
    JobError,
    PerformanceError,
    ReframeError,
    RunSessionTimeout,
    SanityError,
    SkipTestError,
    UnexpectedSuccessError,
)

from plumbline.core.errors import Coded
from plumbline.site.ended_jobs import Lost

#: ReFrame's phase in which a case ended with an error without a code -> code.
_OF_PHASE = {
    "startup": "case.set-up",
    "setup": "case.set-up",
    "compile": "case.set-up",
    "compile_wait": "case.set-up",
    "run": "case.not-submitted",
    "run_wait": "case.not-submitted",
}


class Skip(Coded, SkipTestError):
    """The case cannot run here."""


class Refused(Coded, ReframeError):
    """The case cannot run here, although it should."""


class Invalid(Coded, SanityError):
    """The output cannot be trusted."""

    def __init__(self, why: str, code: str):
        super().__init__(f"invalid: {why}", code)


class Failed(Coded, PerformanceError):
    """A figure is outside its bounds or above its ceiling."""


def code_of(task) -> str:
    """Return the reason code of a test case that did not pass.

    :arg task: ReFrame's task of the case.
    """
    kind, error, _ = task.exc_info
    if kind is None:
        return "case.phase-skipped"
    if task.aborted:
        timeout = isinstance(error.__cause__, RunSessionTimeout)
        return "case.budget-spent" if timeout else "case.stopped"
    if isinstance(error, Coded | Lost) and error.code:
        return error.code
    job = getattr(task.check, "job", None)
    if isinstance(error, JobError) and job and job.state == "TIMEOUT":
        # Of ReFrame's local scheduler.
        return "job.time-limit"
    if isinstance(error, ExpectedFailureError | UnexpectedSuccessError):
        return "case.xfail"
    if isinstance(error, BuildError):
        return "case.build-failed"
    if isinstance(error, PerformanceError):
        return "figure.outside-bounds"
    if isinstance(error, SanityError):
        return "case.sanity"
    if task.skipped:
        return "case.skipped-by-reframe"
    return _OF_PHASE.get(task.failed_stage, "case.error")
