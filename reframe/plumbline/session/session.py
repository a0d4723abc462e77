"""One session, from its plan to its closing table.

ReFrame tells a session's listeners of every test case as it ends, whatever its end; this module
adds one that writes the records, and wraps the one call that runs the cases, so that the plan is
written before the first job is submitted and every planned case is accounted for at the end.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import re
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import reframe.core.runtime as rt
from reframe.core.exceptions import what
from reframe.core.logging import getlogger
from reframe.frontend import executors

from plumbline.check import record, states
from plumbline.check.result import key_of, of_check, of_task, result_of, unfinished, waived_case
from plumbline.core import files, paths
from plumbline.core.errors import Fault
from plumbline.core.text import counted, shown
from plumbline.history import running
from plumbline.placement.topology import PlacementError
from plumbline.reference import lookup, waivers
from plumbline.session import inventory_check, preflight, progress, recovery, summary
from plumbline.site import (
    configuration,
    host,
    hostlock,
    inventory,
    load,
    lost,
    reframe_patches,
    slurm_jobs,
)

#: The session of this process, once ReFrame's configuration is loaded.
current: Session | None = None


def configure(argv: list[str]) -> dict:
    """ReFrame's configuration for its command line; a session that runs cases is watched.

    :raises Fault: if a system file or a reference table is faulty.
    """
    global current
    reframe_patches.warn_without_stack_walks()
    reframe_patches.select_without_copies()
    running = any(a in ("--run", "--dry-run") or re.match(r"-[a-zA-Z]*r", a) for a in argv[1:])
    name = configuration.session_id()
    full, level = configuration.asked_for("full", argv[1:]), configuration.log_level(argv[1:])
    site = configuration.gather(name, running, full, level)
    preflight.hold_references(site)
    # A log that cannot be written (a full disk) must not bury the verdicts under tracebacks.
    logging.raiseExceptions = False
    if current is None:
        current = Session(name, dry_run="--dry-run" in argv, extras=preflight.extras(argv))
        current.announced = running
        current.named = host.named(argv[1:])
        watch(current)
        slurm_jobs.watch()
        lost.watch()
        atexit.register(current.close)
    return site


def watch(session: Session) -> None:
    """Has ReFrame report its cases to the session, and take a known fault for an expected one."""

    def begin(testcases):
        try:
            session.begin(testcases)
        except Fault as err:
            session.withdraw()
            # ReFrame would print a traceback, and exit as if a test case had failed.
            for line in err.coded().splitlines():
                print(f"plumbline: {shown(line)}", file=sys.stderr)
            raise SystemExit(2) from None
        return progress.in_order(testcases)

    reframe_patches.watch_runs(begin, session, session.spent)
    reframe_patches.measure_by_monotonic_clock()
    reframe_patches.expect_known_faults(waived_case)


class Session(executors.TaskEventListener):
    """What was planned, what ended how, and where the records lie."""

    def __init__(self, name: str, dry_run: bool, extras: dict[str, str]):
        self.name = name
        self.dry_run = dry_run
        self.extras = extras
        self.folder = paths.results() / "sessions" / name
        self.planned: dict[str, record.Planned] = {}
        self.records: list[record.Record] = []
        self._ended: set[tuple[str, int]] = set()
        self.survey: list[dict] = []
        self.lost = 0
        self.notes: list[str] = []
        #: What `plumbline run` found against the inventory.
        self.faults: list[str] = []
        #: Whether the system was named, and not taken by the host's name.
        self.named = False
        #: Whether the command line said that cases would be run, so that the session has a folder.
        self.announced = True
        #: Whether `plumbline run` holds this session against the inventory.
        self.supervised = False
        self._closed = False
        self._lock: hostlock.HostLock | None = None
        self._running = None
        self._to_judge: set[str] = set()
        self._progress = progress.Progress({})
        self._began = time.monotonic()
        self._clock = time.time() - self._began
        #: Seconds until it ends, finished or not; no limit if 0.
        self.budget = float(os.environ.get(BUDGET) or 0)

    # -- before the first job ---------------------------------------------------------------

    def begin(self, testcases) -> None:
        """Writes the plan and says what it will cost, before anything is submitted.

        :raises Fault: if nothing is selected, it is not certain which system this is, or another
            session measures on this machine.
        """
        # First of all: of another system, other cases may be selected.
        if not self.dry_run and (told := preflight.hold_host(self.named)):
            self._found(told)
        preflight.hold_selection(testcases, self.announced)
        if not self.dry_run:
            with preflight.of_file_system(paths.results()):
                self._lock = preflight.claim_machine(testcases, self.name)
                # What runs on a node of a sweep is its job's, whatever became of the sweep.
                if configuration.ON_NODE not in os.environ:
                    recovery.settle(
                        paths.results(), os.environ.get(recovery.ORPHANS, "cancel"), self._found
                    )
                self._running = running.claim(self.folder)
            self._note_clock()
            os.environ[recovery.MARK] = os.path.realpath(self.folder)
        jobs, node_hours = 0, 0.0
        of_partition: Counter[Any] = Counter()
        for testcase in testcases:
            check, partition, environ = testcase
            nodes, hours = _cost(check, partition)
            jobs, node_hours = jobs + 1, node_hours + nodes * hours
            of_partition[partition] += 1
            self.planned[key_of(testcase)] = {
                "check": check.display_name,
                "system": rt.runtime().system.name,
                "partition": partition.name,
                "environment": environ.name,
                "tags": sorted(check.tags),
                "nodes": nodes,
                "hours": hours,
            }
        self._progress = progress.Progress(
            {
                key_of(testcase): getattr(testcase.check, "usual_seconds", 0)
                for testcase in testcases
                if testcase.partition.scheduler.is_local
            }
        )
        queued = sum(min(count, part.max_jobs) for part, count in of_partition.items())
        if not self.dry_run:
            self.notes += _left_out(testcases)
            self._note_load(testcases)
        print(
            f"plumbline: session {self.name}: {counted(jobs, 'job')}, {queued} queued at once; "
            f"at most {node_hours:.2f} node-hours by their time limits",
            flush=True,
        )
        if not self.dry_run:
            plan = {
                "schema": record.SCHEMA,
                "session": self.name,
                "extras": self.extras,
                "system": rt.runtime().system.name,
                "schedulers": sorted({_scheduler(testcase) for testcase in testcases}),
                "cases": self.planned,
            }
            with preflight.of_file_system(self.folder):
                self.folder.mkdir(parents=True, exist_ok=True)
                files.store(self.folder / "plan.json", json.dumps(plan, indent=1))

    def withdraw(self) -> None:
        """Takes back a session that was refused, of which nothing is to be told later."""
        self.planned.clear()
        _close_logs()
        self._let_go()
        with contextlib.suppress(OSError):
            (self.folder / "reframe.log").unlink(missing_ok=True)

    def _let_go(self) -> None:
        """Lets others measure on this machine, and deal with the session."""
        if self._lock:
            self._lock.release()
            self._lock = None
        running.release(self.folder, self._running)

    def _found(self, line: str) -> None:
        """Reports what was found before the first job, now and at the end."""
        print(f"plumbline: {shown(line)}", flush=True)
        self.notes.append(line)

    def _note_clock(self) -> None:
        """Tells of sessions that began after now."""
        names = [folder.name for folder in record.sessions(paths.results())]
        later = max(names, default="")
        if later > self.name:
            self.notes.append(
                f"the clock stands before the start of session {later}: sessions are in the order "
                f"of their clocks, which is not the one in which they ran"
            )

    def _note_load(self, testcases) -> None:
        """Says at once, and again at the end, that this machine has something else to do."""
        cores = len(os.sched_getaffinity(0))
        here = any(load.is_here(testcase.partition) for testcase in testcases)
        if here and configuration.ON_NODE not in os.environ and load.shared(cores, cores):
            self._found(
                f"this machine is busy: {load.told(cores)}. Cases that have to share cores with "
                f"them run once instead of several times and take longer, and their figures are "
                f"marked and compared with nothing"
            )

    # -- as each case ends ------------------------------------------------------------------

    def on_task_setup(self, task):
        """A case is being set up: nothing to keep."""

    on_task_compile = on_task_compile_exit = on_task_setup

    def on_task_run(self, task):
        """A case has started."""
        line = self._progress.starts(key_of(task.testcase), task.check.display_name)
        if line and not self.dry_run:
            print(f"plumbline: {shown(line)}", flush=True)

    def on_task_exit(self, task):
        """A case has run, and is to be judged next."""
        self._to_judge.add(key_of(task.testcase))

    def spent(self) -> bool:
        """Whether the budget is spent; what has run is judged first, as far as that is soon."""
        over = time.monotonic() - self._began - self.budget if self.budget else -1
        return over >= (_LAST if self._to_judge else 0)

    def on_task_success(self, task):
        found = of_check(task.check)
        judged = found is None or found.judgements is not None
        self.keep(task, "pass" if judged or self.dry_run else "invalid")

    def on_task_failure(self, task):
        if task.failed_stage == "cleanup":
            # Its verdict stands in the records already; what failed was the tidying up.
            self.notes.append(f"{task.info()}: cleanup: {what(*task.exc_info)}")
        else:
            self.keep(task, result_of(task.exc_info[1]))
            now, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
            here = load.is_here(task.testcase.partition)
            if here and "job timed out" in str(task.exc_info[1]) and now > cores:
                self.notes.append(
                    f"{task.check.display_name} ran into its time limit while the load of this "
                    f"machine was {now:.1f} on {cores} cores: run it again when it is idle"
                )

    def on_task_skip(self, task):
        self.keep(task, "skip")

    def on_task_abort(self, task):
        self.keep(task, "aborted")

    # ReFrame's own marks waive nothing: what ends so is a failure, but for a waiver.
    on_task_xfailure = on_task_xsuccess = on_task_failure

    def keep(self, task, result: str) -> None:
        """Writes the record of a case that ended."""
        fields = of_task(self, task, result)
        self._to_judge.discard(fields.case)
        ended = (fields.case, fields.attempt)
        if ended in self._ended:
            # A signal while ReFrame was clearing up after it: its verdict stands already.
            return
        self._ended.add(ended)
        tidy = getattr(task.check, "tidy", None)
        if tidy:
            tidy()
        self.records.append(fields)
        if self.dry_run:
            self.survey.append(_surveyed(task, fields))
        else:
            self.write(fields)

    def write(self, fields: record.Record) -> None:
        """Appends a record; where the disk refuses it, standard output gets it instead."""
        line = record.dumps(fields)
        try:
            record.append(self.folder / "records.jsonl", line)
        except record.RecordError as err:
            self.lost += 1
            print(f"plumbline: record not stored ({err}); here it is:")
            print(f"plumbline-record {line}", flush=True)

    # -- at the end -------------------------------------------------------------------------

    def close(self) -> int:
        """Accounts for every planned case, prints the closing table, and gives the exit code."""
        if self._closed:
            return self.exit_code
        self._closed = True
        _close_logs()
        if not self.planned:
            # Refused: by :meth:`begin`, or by ReFrame itself before that.
            with contextlib.suppress(OSError):
                self.folder.rmdir()
            return self.exit_code
        if self.dry_run:
            self.write_survey()
        else:
            ended = {fields.case for fields in self.records}
            for case, plan in self.planned.items():
                if case not in ended:
                    fields = unfinished(self, case, plan)
                    self.records.append(fields)
                    self.write(fields)
        plain = not (self.supervised or self.dry_run)
        unchecked = self.compare_plain() if plain else ""
        noticed = ""
        if os.environ.get("PLUMBLINE_STRICT") == "1" and not self.dry_run:
            noticed = states.summed(n.state for fields in self.records for n in fields.warnings)
            self.faults += [f"strict: {noticed}: see the table"] if noticed else []
        self.notes += slurm_jobs.notes
        if not self.dry_run:
            self.notes += summary.of_waivers(waivers.loaded(paths.reference()), self.records)
            jumped = time.time() - time.monotonic() - self._clock
            if abs(jumped) > _JUMP:
                self.notes.append(
                    f"the clock jumped by {jumped:+.0f} s while it ran: times in its records, and "
                    f"what ran into a time limit, are to be seen in that light"
                )
        print(shown(summary.table(self.records, len(self.planned), self.dry_run)))
        skipped = bool(self.records) and all(f.result == "skip" for f in self.records)
        if skipped:
            self.notes.append("nothing was measured: every test case was skipped")
        for note in [*self.notes, *self.faults]:
            print(f"plumbline: {shown(note)}")
        # ReFrame's own exit code knows nothing of records or warnings, and is 0 where all was
        # skipped.
        forced = bool(self.lost) or (plain and bool(skipped or noticed))
        last = ""
        if plain:
            code = f"{self.exit_code}" if forced else "ReFrame's own"
            last = f"plain reframe: {unchecked}; the exit code is {code}; `plumbline run` does both"
            self.notes.append(last)
        if not self.dry_run:
            self.write_end()
        if self.records and not self.dry_run:
            print(f"plumbline: records: {self.folder / 'records.jsonl'}", flush=True)
        if last:
            print(f"plumbline: {last}", flush=True)
        self._let_go()
        if forced:
            sys.stdout.flush()
            os._exit(self.exit_code)
        return self.exit_code

    def compare_plain(self) -> str:
        """Compares a session of the plain command with the inventory, as far as its cases go.

        :returns: what was not compared.
        """
        system = next(iter(self.planned.values()))["system"]
        path = inventory.path_of(system)
        try:
            expected = inventory.read(system)
        except Fault as err:
            return f"nothing was compared with the inventory: {err}"
        if expected is None:
            return f"nothing was compared with the inventory: {path} is not there"
        tables = lookup.loaded(paths.reference())
        changed, lost, new = inventory_check.differences(system, expected, self.records, tables)
        self.faults += changed + lost
        self.notes += new
        others = expected.cases.keys() - set(
            map(inventory_check.planned_case, self.planned.values())
        )
        return (
            f"not checked: whether {counted(len(others), 'other test case')} of {path} still exist"
        )

    def write_end(self) -> None:
        """Writes what the records do not tell of the session, for who reads it later."""
        end = {"code": self.exit_code, "notes": self.notes, "faults": self.faults}
        try:
            (self.folder / "end.json").write_text(json.dumps(end, indent=1))
        except OSError as err:
            with contextlib.suppress(OSError):
                (self.folder / "end.json").unlink(missing_ok=True)
            print(f"plumbline: {preflight.unwritable(self.folder, err)}")

    def write_survey(self) -> None:
        """What a dry run found out, for `plumbline doctor` and `plumbline lint`."""
        path = os.environ.get(SURVEY)
        if path:
            Path(path).write_text(json.dumps(self.survey))

    @property
    def exit_code(self) -> int:
        """0 as it should be, 1 a fault found, 2 could not tell."""
        code = summary.exit_code(Counter(fields.result for fields in self.records))
        if code == 1 or self.faults:
            return 1
        if self.lost:
            return 2
        return 0 if self.dry_run and self.records else code


def _scheduler(testcase) -> str:
    return testcase.partition.scheduler.registered_name


#: Variable with the seconds that a session may take.
BUDGET = "PLUMBLINE_BUDGET"
#: Seconds beyond it in which what has run is still judged.
_LAST = 60
#: Seconds that a clock may be set right by without a word.
_JUMP = 5

#: Variable that names the file a dry run's survey goes to.
SURVEY = "PLUMBLINE_SURVEY"


def _surveyed(task, fields: record.Record) -> dict:
    """A case of a dry run: whether it would run, and what of it would be asserted."""
    check = task.check
    figures, asserted = [], []
    rows: dict[str, list[str]] = {}
    if fields.result == "pass" and hasattr(check, "layouts"):
        tables = lookup.loaded(paths.reference())
        figures = [figure for layout in check.layouts for figure in check.figures_of(layout)]
        figures += check.optional()
        for figure in figures:
            case = check.case_of(figure)
            bounds = tables.bounds(case, figure.metric, figure.size, check.num_samples)
            ceiling = tables.ceiling(case, figure.metric, figure.size)
            if bounds:
                asserted.append([bounds.decides, *bounds.others])
                rows.setdefault(bounds.decides, []).append(figure.variable)
            if ceiling:
                rows.setdefault(ceiling.key, []).append(figure.variable)
    return {
        "case": fields.name,
        "tags": fields.tags,
        "runs": fields.result == "pass",
        "result": fields.result,
        "reason": fields.reason,
        "code": fields.code,
        "seconds": _cost(check, task.testcase.partition)[1] * 3600,
        "figures": len(figures),
        "asserted": len(asserted),
        "references": sorted({name for ids in asserted for name in ids}),
        "rows": rows,
    }


def _left_out(testcases) -> list[str]:
    """The nodes that take no jobs, so that ``--distribute`` leaves them out: a line a partition."""
    partitions = {
        case.partition.fullname: case.partition
        for case in testcases
        if getattr(case.check, "pinned_to", None)
        and case.partition.scheduler.registered_name in ("slurm", "squeue")
    }
    found = {name: slurm_jobs.unavailable(partition) for name, partition in partitions.items()}
    return [f"{name}: not measured: {'; '.join(nodes)}" for name, nodes in found.items() if nodes]


def _close_logs() -> None:
    """Closes ReFrame's log files while a failure can still be put in words: at exit, a disk that
    is full would print a traceback for each."""
    logger = getlogger().logger
    for handler in list(logger.handlers if logger else []):
        if isinstance(handler, logging.FileHandler):
            logger.removeHandler(handler)
            try:
                handler.close()
            except OSError as err:
                print(f"plumbline: {handler.baseFilename}: not whole ({err.strerror})")


def _cost(check, partition) -> tuple[int, float]:
    """Nodes of a case and the hours that its time limit allows."""
    try:
        nodes, seconds = check.cost_on(partition)
    except (AttributeError, PlacementError):
        nodes, seconds = 1, check.time_limit or 0
    return nodes, max(seconds, partition.extras.get("least_time", 0)) / 3600
