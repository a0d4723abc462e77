"""Starts a session as ReFrame loads its configuration, and patches ReFrame for it."""

from __future__ import annotations

import atexit
import logging
import os
import re
import sys
from typing import NoReturn

from plumbline.check import duet, plain
from plumbline.check.result import waived_case
from plumbline.core import paths
from plumbline.core.errors import Fault
from plumbline.core.text import printable_lines
from plumbline.session import loading, preflight, progress
from plumbline.session.session import Session
from plumbline.site import (
    check_patches,
    configuration,
    ended_jobs,
    host,
    job_patches,
    reframe_patches,
    slurm_jobs,
)

#: Whether what ReFrame only warns of when it loads checks is refused.
complete = False
#: Whether `plumbline run` compares the session with the system's inventory.
compared = False

#: The session of this process, once ReFrame's configuration is loaded.
current: Session | None = None


def configure(argv: list[str]) -> dict:
    """Return ReFrame's configuration for its command line, and start a session.

    :raises Fault: if a system file or a reference table is faulty.
    """
    global current
    reframe_patches.accept_later_names()
    job_patches.ask_why_jobs_wait()
    reframe_patches.warn_without_stack_walks()
    reframe_patches.select_without_copies()
    reframe_patches.load_first(paths.SETTINGS)
    running = any(a in ("--run", "--dry-run") or re.match(r"-[a-zA-Z]*r", a) for a in argv[1:])
    name = configuration.session_id()
    level = configuration.log_level(argv[1:])
    full = configuration.ALL_SCALES in os.environ or configuration.asked_for("full", argv[1:])
    site = configuration.gather(host.meant(argv[1:]), name, running, full, level)
    preflight.check_references(site)
    preflight.check_strict()
    # A log that cannot be written (a full disk) must not hide the verdicts among tracebacks.
    logging.raiseExceptions = False
    if current is None:
        extras = preflight.extras(argv) | (duet.current.extras if duet.current else {})
        current = Session(name, dry_run="--dry-run" in argv, extras=extras)
        reframe_patches.keep_in(current.folder)
        current.compared = compared
        current.announced = running
        current.system_named = bool(host.named_system(argv[1:]))
        current.loading = loading.Loading(argv[1:])
        # ReFrame itself refuses what is no number.
        reruns = "".join(configuration.option_values(argv[1:], "--reruns")[-1:])
        current.reruns = int(reruns) if reruns.isdecimal() else 0
        patch_reframe(current)
        slurm_jobs.watch()
        ended_jobs.watch()
        atexit.register(current.close)
    return site


def patch_reframe(session: Session) -> None:
    """Make ReFrame report its cases to the session, and treat known faults as expected ones."""

    def load(loader, load_all):
        try:
            preview = configuration.COMPLETE in os.environ
            checks = session.loading.load(loader, load_all, complete=complete or preview)
            if preview:
                preflight.refuse_not_loaded(session.loading)
            return checks
        except Fault as err:
            refuse(err)

    def begin(testcases):
        try:
            if duet.current:
                testcases = duet.current.pair(testcases, session)
            session.begin(testcases)
        except Fault as err:
            refuse(err)
        return progress.in_order(testcases)

    check_patches.wrap_load(load)
    check_patches.load_other_files(session.loading.failed)
    check_patches.note_set_variables()
    check_patches.postpone_skips()
    reframe_patches.watch_runs(begin, session, session.spent)
    reframe_patches.end_on_signals()
    reframe_patches.measure_by_monotonic_clock()
    reframe_patches.expect_known_faults(waived_case)
    check_patches.judge_after_performance(plain.judge, plain.is_compared)


def refuse(err: Fault) -> NoReturn:
    """End ReFrame, without a session, where it would print a traceback and exit as for a failed
    test case."""
    if current:
        current.withdraw()
    for line in err.coded().splitlines():
        print(f"plumbline: {printable_lines(line)}", file=sys.stderr)
    raise SystemExit(2) from None
