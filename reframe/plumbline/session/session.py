"""One session, from its plan to its summary.

ReFrame notifies a session of every test case that ends, and the session writes its record. The plan
is written before the first job is submitted, and at the end every planned case has a record.
:mod:`plumbline.session.start` makes ReFrame do so.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import sys
import time
from collections import Counter
from typing import Any

import reframe.core.runtime as rt
from reframe.core.exceptions import what
from reframe.core.logging import getlogger
from reframe.frontend import executors

from plumbline.check import duet, plain, record, session_files, states, verdict
from plumbline.check.result import (
    CaseResult,
    key_of,
    of_check,
    of_task,
    result_of,
    unfinished,
)
from plumbline.core import files, paths
from plumbline.core.errors import Fault, with_code
from plumbline.core.text import pluralize, printable, printable_lines
from plumbline.history import running
from plumbline.reference import waivers
from plumbline.session import cost, inventory_check, loading, preflight, progress, recovery, summary
from plumbline.session.dry_run import DryRun
from plumbline.site import (
    configuration,
    ended_jobs,
    host_load,
    inventory,
    slurm_jobs,
)

#: Variable with the seconds that a session may take.
BUDGET = "PLUMBLINE_BUDGET"
#: Seconds after these in which cases that have run are still judged.
_LAST = 60
#: Seconds that the clock may be corrected by without a note.
_JUMP = 5


class Session(executors.TaskEventListener):
    """What was planned, what ended how, and where the records are."""

    def __init__(self, name: str, dry_run: bool, extras: dict[str, str]):
        self.name = name
        self.dry_run = dry_run
        self.extras = extras
        self.folder = paths.results() / "sessions" / name
        self.planned: dict[str, session_files.Planned] = {}
        self.records: list[record.Record] = []
        self.preview = DryRun()
        self.notes: list[str] = []
        #: Differences from the inventory and, under strict rules, skips and warnings.
        self.faults: list[str] = []
        #: Records that could not be stored.
        self.lost = 0
        #: Whether something failed, or did not run, that no test case shows.
        self.inconclusive = False
        #: How often ReFrame's ``--reruns`` repeats each test case.
        self.reruns = 0
        #: Whether the system was named, and not found by the host's name.
        self.system_named = False
        #: Whether the command line has an option that runs cases, so that there is a folder.
        self.announced = True
        self.loading = loading.Loading([])
        #: Whether `plumbline run` runs it.
        self.supervised = False
        #: Whether `plumbline run` compares it with the system's inventory.
        self.compared = False
        #: That inventory, as it was before the first job.
        self.expected: inventory.Inventory | None = None
        #: Seconds until it ends, finished or not; no limit if 0.
        self.budget = float(os.environ.get(BUDGET) or 0)
        self._closed = self._busy = False
        self._ended: set[tuple[str, int]] = set()
        self._to_judge: set[str] = set()
        self._lock: files.OwnedLock | None = None
        self._running = None
        self._progress = progress.Progress({})
        self._began = time.monotonic()
        self._clock = time.time() - self._began

    # -- before the first job ---------------------------------------------------------------

    def begin(self, testcases) -> None:
        """Write the plan and report its cost, before anything is submitted.

        :raises Fault: if nothing is selected, it is uncertain which system this is, its inventory
            is damaged, or another session measures on this machine.
        """
        # First, as another system may have other cases.
        if not self.dry_run:
            notes = [*paths.missing_site(), preflight.check_host(self.system_named)]
            for note in filter(None, [*notes, *(self.loading.unmatched if testcases else [])]):
                self._report(note)
        preflight.check_selection(testcases, self.announced, self.loading)
        for line in self.loading.not_loaded:
            self.faults.append(with_code(line, "check.not-loaded"))
            print(f"plumbline: {printable_lines(self.faults[-1])}", flush=True)
        if not self.dry_run:
            if self.compared:
                self.expected = inventory.read(rt.runtime().system.name)
            self._claim(testcases)
        others = duet.current.others.values() if duet.current else ()
        self.planned = {
            key_of(testcase): cost.planned_case(testcase) for testcase in [*testcases, *others]
        }
        self._progress = progress.Progress(
            {
                key_of(testcase): of_check(testcase.check) or CaseResult()
                for testcase in testcases
                if host_load.is_local(testcase.check, testcase.partition)
            }
        )
        if not self.dry_run:
            self.notes += slurm_jobs.skipped_nodes(testcases)
            partitions = {case.partition for case in testcases}
            self.notes += ended_jobs.unwatched(
                {one.fullname: one.scheduler.registered_name for one in partitions}
            )
            self._note_load(testcases)
        of_partition: Counter[Any] = Counter(testcase.partition for testcase in testcases)
        queued = sum(min(count, part.max_jobs) for part, count in of_partition.items())
        print(
            f"plumbline: session {self.name}: {pluralize(len(testcases), 'job')}, {queued} queued "
            f"at once; {cost.total([*self.planned.values()])}",
            flush=True,
        )
        if not self.dry_run:
            self._write_plan(testcases)

    def _claim(self, testcases) -> None:
        """Claim this machine and the session's folder, and clean up after killed sessions."""
        with preflight.writable(paths.results()):
            self._lock = preflight.claim_machine(testcases, self.name)
            # The processes on a node of a sweep are its job's, not a killed session's.
            if configuration.ON_NODE not in os.environ:
                orphans = os.environ.get(recovery.ORPHANS, "cancel")
                recovery.clean_up(paths.results(), orphans, self._report)
            self._running = running.claim(self.folder)
        names = (folder.name for folder in session_files.sessions(paths.results()))
        newest = max(filter(configuration.is_session_name, names), default="")
        if newest > self.name:
            self.notes.append(
                f"this host's clock is behind the start of session {newest}, so this session is "
                f"sorted before it: set the clock that is wrong"
            )
        os.environ[recovery.MARK] = os.path.realpath(self.folder)

    def _write_plan(self, testcases) -> None:
        schedulers = {case.partition.scheduler.registered_name for case in testcases}
        plan = {
            "schema": record.SCHEMA,
            "session": self.name,
            "extras": self.extras,
            "system": rt.runtime().system.name,
            "schedulers": sorted(schedulers),
            "cases": self.planned,
        }
        with preflight.writable(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            files.write_atomically(self.folder / "plan.json", json.dumps(plan, indent=1))

    def withdraw(self) -> None:
        """Remove what a refused session left."""
        self.planned.clear()
        _close_logs()
        self._release()
        with contextlib.suppress(OSError):
            (self.folder / "reframe.log").unlink(missing_ok=True)

    def _release(self) -> None:
        """Release the machine and the session's folder."""
        if self._lock:
            self._lock.release()
            self._lock = None
        running.release(self.folder, self._running)

    def _report(self, line: str) -> None:
        """Report a finding before the first job, now and at the end."""
        print(f"plumbline: {printable_lines(line)}", flush=True)
        self.notes.append(line)

    def _note_load(self, testcases) -> None:
        """Report once that other processes use this machine, if one of the cases runs here."""
        cores = len(os.sched_getaffinity(0))
        here = any(host_load.matters(check, partition) for check, partition, _ in testcases)
        if here and not self._busy and host_load.shared(cores, cores):
            self._busy = True
            self._report(
                f"this machine is busy: {host_load.description(cores)}. The figures of cases that "
                f"share cores with them are marked and not compared with references. Such cases "
                f"that are set up from now on run once instead of several times, and may take "
                f"longer"
            )

    # -- as each case ends ------------------------------------------------------------------

    def on_task_setup(self, task):
        """Name the case in its job script, whose folder has only a hash of its parameters; have
        a plain check report its environment."""
        title = f"# {printable(task.info())}"
        reports = plain.reports(task.check)
        task.check.prerun_cmds = [title, *task.check.prerun_cmds, *reports]

    def on_task_compile(self, task):
        """Do nothing."""

    on_task_compile_exit = on_task_compile

    def on_task_run(self, task):
        """Report that a case starts."""
        line = self._progress.starts(key_of(task.testcase), task.check.display_name)
        if line and not self.dry_run:
            print(f"plumbline: {printable_lines(line)}", flush=True)

    def on_task_exit(self, task):
        """Remember a case that has run, and is judged next; by what else runs here by now."""
        self._to_judge.add(key_of(task.testcase))
        # What is common to both sides of a duet cancels.
        here = host_load.matters(task.check, task.testcase.partition)
        if here and not (self.dry_run or duet.current):
            host_load.count_again()
            self._note_load([task.testcase])

    def spent(self) -> bool:
        """Return whether the budget is spent; cases that have run get a minute to be judged."""
        excess = time.monotonic() - self._began - self.budget if self.budget else -1
        return excess >= (_LAST if self._to_judge else 0)

    def on_task_success(self, task):
        found = of_check(task.check)
        judged = found is None or (found.judgements is not None and not verdict.failed(found))
        # ReFrame passes a case of which an option skipped a phase, or the hook that fails it.
        ran = all(task.duration(phase) is not None for phase in ("sanity", "performance"))
        self.keep(task, "pass" if (judged and ran) or self.dry_run else "invalid")

    def on_task_failure(self, task):
        error = task.exc_info[1]
        if task.failed_stage == "cleanup":
            # The case has its record already.
            self.notes.append(f"{task.info()}: cleanup: {what(*task.exc_info)}")
            return
        self.keep(task, result_of(error))
        load_now, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
        here = host_load.is_here(task.check, task.testcase.partition)
        if here and "job timed out" in str(error) and load_now > cores:
            self.notes.append(
                f"{task.check.display_name} reached its time limit while the load of this "
                f"machine was {load_now:.1f} on {cores} cores: run it again when it is idle"
            )

    def on_task_skip(self, task):
        self.keep(task, "skip")

    def on_task_abort(self, task):
        self.keep(task, "aborted")

    # Only a waiver waives a failure; ReFrame's own marks do not.
    on_task_xfailure = on_task_xsuccess = on_task_failure

    def keep(self, task, result: str) -> None:
        """Write the record of a case that ended."""
        wrong = ""
        try:
            measured = of_check(task.check) or plain.measured(
                task.testcase, result == "pass", self.dry_run
            )
        except Exception as error:
            # ReFrame would end the session: what it calls on each event must not fail.
            measured, wrong = CaseResult(), f"{type(error).__name__}: {error}"
        if result == "invalid" and task.succeeded:
            # Of a plain check: figures of output that was not verified.
            measured.judgements = None
        fields = of_task(self, task, result, measured, wrong)
        self._to_judge.discard(fields.case)
        ended = (fields.case, fields.attempt)
        if ended in self._ended:
            # A signal arrived while ReFrame cleaned up after the case.
            return
        self._ended.add(ended)
        # ReFrame's --duration always ends a repetition.
        if not (fields.attempt and fields.code == "case.budget-spent" and not self.spent()):
            self.records.append(fields)
            if self.dry_run:
                self.preview.add(fields, measured, self.planned[fields.case]["hours"] * 3600)
            else:
                self.write(fields)
        if measured.scratch:
            # Also after its job was killed. Many files take minutes, in which the session may end.
            shutil.rmtree(measured.scratch, ignore_errors=True)
        if duet.current:
            duet.current.finish(task)

    def write(self, fields: record.Record) -> None:
        """Append a record to the file, or print it if the disk refuses it."""
        line = record.dumps(fields)
        try:
            session_files.append(self.folder / "records.jsonl", line)
        except session_files.RecordError as err:
            self.lost += 1
            print(
                f"plumbline: record not stored ({err}); it follows: `plumbline history recover "
                f"LOG` stores it from this output"
            )
            print(f"plumbline-record {line}", flush=True)

    # -- at the end -------------------------------------------------------------------------

    def close(self, of_reframe: int = 0) -> int:
        """Record every planned case, print the summary, and return the exit code.

        :arg of_reframe: ReFrame's own exit code, as far as it is known.
        """
        if self._closed:
            return self.exit_code
        self._closed = True
        _close_logs()
        if not self.planned:
            # Refused, by :meth:`begin` or by ReFrame before that.
            with contextlib.suppress(OSError):
                self.folder.rmdir()
            return self.exit_code
        if self.dry_run:
            self.preview.close(self.records, len(self.planned), self.loading)
            if self.exit_code and not self.supervised:
                os._exit(self.exit_code)
            return self.exit_code
        self._record_unfinished()
        self._note_misfits()
        plain, unchecked = not self.supervised, ""
        if plain:
            changed, new, unchecked = inventory_check.of_plain(
                self.planned, self.records, self.loading.folders
            )
            self.faults += changed
            self.notes += new
        strict = self._note_warnings()
        print(printable_lines(summary.table(self.records, len(self.planned))))
        self._note_what_no_case_shows(of_reframe)
        skipped = bool(self.records) and all(f.result == "skip" for f in self.records)
        if skipped:
            self.notes.append("nothing was measured: every test case was skipped")
        for note in [*self.notes, *self.faults]:
            print(f"plumbline: {printable_lines(note)}")
        # ReFrame's own exit code does not depend on records, skips and warnings. It is that of the
        # last attempts, and 0 for what is marked xfail, skipped a phase, or never ran.
        from_cases = strict or self.inconclusive or self._code_of_results != 0
        forced = bool(self.lost) or (plain and (from_cases or bool(self.loading.not_loaded)))
        last = ""
        if plain:
            code = f"{self.exit_code}" if forced else "ReFrame's own"
            last = (
                f"plain reframe: {unchecked}; the exit code is {code}; `plumbline run` checks this "
                f"and exits with the session's code"
            )
            self.notes.append(last)
        self._write_end()
        if self.records:
            print(f"plumbline: records: {self.folder / 'records.jsonl'}", flush=True)
        if last:
            print(f"plumbline: {last}", flush=True)
        self._release()
        if forced:
            sys.stdout.flush()
            os._exit(self.exit_code)
        return self.exit_code

    def _note_what_no_case_shows(self, of_reframe: int) -> None:
        """Report repetitions that the budget ended, and an exit code of ReFrame's that nothing else
        explains."""
        attempts = Counter(fields.case for fields in self.records)
        missing = sum(max(0, 1 + self.reruns - attempts[case]) for case in self.planned)
        if missing and self.budget and time.monotonic() - self._began >= self.budget:
            self.inconclusive = True
            planned = pluralize(self.reruns * len(self.planned), "rerun")
            message = f"budget spent: {missing} of {planned} did not run"
            self.notes.append(with_code(message, "case.budget-spent"))
        elif of_reframe and self.exit_code == 0:
            self.inconclusive = True
            self.notes.append(
                f"ReFrame ended with exit code {of_reframe}, and no test case shows why: the "
                f"session is inconclusive (exit code 2); see ReFrame's messages above"
            )

    def _note_misfits(self) -> None:
        """Report checks of the site that the system has no test case of: as faults, if a session
        is not restricted to some cases or environments."""
        lines = [str(misfit) for misfit in self.loading.misfits if misfit.wanted]
        if lines and (self.loading.narrowing or configuration.ON_NODE in os.environ):
            self.notes += lines
        else:
            self.faults += lines

    def _record_unfinished(self) -> None:
        ended = {fields.case for fields in self.records}
        for case, plan in self.planned.items():
            if case not in ended:
                fields = unfinished(self, case, plan)
                self.records.append(fields)
                self.write(fields)

    def _note_warnings(self) -> bool:
        """Note what schedulers, waivers and the clock show, and fail on skips and warnings under
        strict rules. What ``Benchmark.skip_case`` would skip has failed already, and is no skip.

        :returns: whether strict rules fail the session.
        """
        self.notes += ended_jobs.notes
        self.notes += summary.waiver_notes(waivers.loaded(paths.reference()), self.records)
        jumped = time.time() - time.monotonic() - self._clock
        if abs(jumped) > _JUMP:
            self.notes.append(
                f"the clock jumped by {jumped:+.0f} s while it ran: times in its records "
                f"and time limits may be wrong by that"
            )
        warnings = states.summed(
            n.state for fields in self.records for n in fields.warnings if n.code != states.LONE
        )
        strict = summary.reasons(self.records, "skip")
        strict += [f"{warnings}: see the table"] if warnings else []
        if os.environ.get("PLUMBLINE_STRICT") != "1":
            return False
        self.faults += [f"strict: {line}" for line in strict]
        return bool(strict)

    def _write_end(self) -> None:
        """Write what the records do not have."""
        end = session_files.SessionEnd(code=self.exit_code, notes=self.notes, faults=self.faults)
        try:
            with preflight.writable(self.folder):
                session_files.write_end(self.folder, end)
        except Fault as err:
            print(f"plumbline: {err}")

    @property
    def _code_of_results(self) -> int:
        return summary.exit_code(Counter(fields.result for fields in self.records))

    @property
    def exit_code(self) -> int:
        """0: OK, 1: a fault was found, 2: inconclusive."""
        code = self._code_of_results
        if code == 1 or self.faults:
            return 1
        if self.lost or self.inconclusive:
            return 2
        if self.dry_run and self.preview.of_scripts:
            return 0 if {fields.result for fields in self.records} == {"pass"} else 2
        return 0 if self.dry_run and self.records else code


def _close_logs() -> None:
    """Close ReFrame's log files, as at exit a full disk would cause a traceback for each."""
    logger = getlogger().logger
    for handler in list(logger.handlers if logger else []):
        if isinstance(handler, logging.FileHandler):
            logger.removeHandler(handler)
            try:
                handler.close()
            except OSError as err:
                print(f"plumbline: {handler.baseFilename}: not complete ({err.strerror})")
