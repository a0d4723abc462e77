"""Prunes old sessions, and recovers records from a log.

Records and plans are removed only with their whole session, and only on request. The index updates
itself with the next query.
"""

from __future__ import annotations

import datetime
import gzip
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from plumbline.check import record
from plumbline.core import files
from plumbline.core.errors import Fault, UnreadableFile
from plumbline.core.text import pluralize
from plumbline.history import running
from plumbline.site import configuration

#: No session is older than this: the clock was wrong.
_FIRST = datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)

#: How far the clocks of two hosts may differ.
_AHEAD = datetime.timedelta(days=1)

#: ReFrame's own files, which are never read again.
LOGS = ("reframe.log", "report.json")


@dataclass(frozen=True)
class RetentionRules:
    """Ages above which something is removed; ``None`` keeps it.

    :ivar stage: the folders in which test cases ran, for debugging those that failed.
    :ivar output: the outputs of cases that passed.
    :ivar logs: ReFrame's log and report, which are compressed.
    :ivar sessions: whole sessions, with their records.
    """

    stage: datetime.timedelta | None = None
    output: datetime.timedelta | None = None
    logs: datetime.timedelta | None = None
    sessions: datetime.timedelta | None = None

    def __bool__(self) -> bool:
        return any(vars(self).values())


@dataclass
class Pruned:
    """The result of pruning: number of items, bytes freed, and errors."""

    count: int = 0
    bytes: int = 0
    faults: list[str] = field(default_factory=list)


def prune(
    results: Path, rules: RetentionRules, say: Callable[[str], None], dry_run: bool = False
) -> Pruned:
    """Remove or compress what is older than the rules allow.

    Running sessions are kept, and those whose clock was wrong, since they have no age.

    :arg say: receives a line for each item.
    :arg dry_run: whether to list the items only.
    """
    now = datetime.datetime.now(datetime.timezone.utc)
    done = Pruned()

    def each(path: Path, action: Callable[[Path], int], verb: str) -> None:
        try:
            freed = _size(path) if dry_run else action(path)
        except OSError as err:
            done.faults.append(f"{path}: {err.strerror or err}")
            return
        done.count += 1
        done.bytes += freed
        say(f"{f'would be {verb}' if dry_run else verb}: {path} ({_readable(freed)})")

    for folder in sorted((results / "sessions").glob("*/")):
        # A link may lead to files of others.
        if folder.is_symlink() or not _is_session(folder) or running.is_running(folder):
            continue
        try:
            began = configuration.began(folder)
        except OSError as err:
            # It may have been removed meanwhile.
            done.faults.append(f"{folder}: {err.strerror or err}")
            continue
        age = now - began
        if began < _FIRST or age < -_AHEAD:
            say(f"{folder}: skipped: its clock was wrong: it began on {began:%Y-%m-%d}")
            continue
        if rules.sessions and age > rules.sessions:
            each(folder, _remove, "removed")
            continue
        for name, oldest in (("stage", rules.stage), ("output", rules.output)):
            if oldest and age > oldest and (folder / name).is_dir():
                each(folder / name, _remove, "removed")
        for name in LOGS:
            if rules.logs and age > rules.logs and (folder / name).is_file():
                each(folder / name, _compress, "compressed")
    return done


def _is_session(folder: Path) -> bool:
    """Return whether a folder is of a session; one that was killed early may be empty."""
    return configuration.is_session_name(folder.name) or (folder / "plan.json").is_file()


def _size(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder."""
    if not path.is_dir():
        return path.lstat().st_size
    return sum(
        Path(place, name).lstat().st_size for place, _, names in os.walk(path) for name in names
    )


def _readable(number: int) -> str:
    return f"{number / 1e6:.1f} MB" if number >= 1e5 else f"{number / 1e3:.1f} kB"


def _remove(path: Path) -> int:
    """Remove a folder, which must not be a link. Return the bytes freed."""
    freed = _size(path)
    shutil.rmtree(path)
    return freed


def _compress(path: Path) -> int:
    """Replace a file by a compressed one. Return the bytes freed."""
    before = path.stat().st_size
    whole = path.with_name(f"{path.name}.gz")
    with files.replacing(whole) as partial:
        with (
            open(path, "rb", opener=files.open_regular) as plain,
            gzip.open(partial, "xb") as packed,
        ):
            shutil.copyfileobj(plain, packed)
        shutil.copystat(path, partial)
    path.unlink()
    return before - whole.stat().st_size


# -- records from a log --------------------------------------------------------------------------

_MARK = "plumbline-record "


def recover(results: Path, log: Path, say: Callable[[str], None]) -> tuple[int, int, list[str]]:
    """Store the records that a session could only print.

    They replace records of unfinished cases, but no other existing ones.

    :arg log: the session's output; lines may begin with other text.
    :returns: how many were stored, how many existed already, and the lines that cannot be read.
    :raises Fault: if the log cannot be read, or a record cannot be written.
    """
    found: dict[str, list[record.Record]] = {}
    faults = []
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError as err:
        raise UnreadableFile(f"{log}: cannot be read: {err.strerror}") from None
    for number, line in enumerate(lines, 1):
        if _MARK not in line:
            continue
        try:
            _, begin, rest = line.partition(f"{_MARK}{{")
            inside, end, _ = rest.rpartition("}")
            fields = record.parse(f"{begin[len(_MARK) :]}{inside}{end}".encode())
        except record.Damaged as err:
            faults.append(f"{log}:{number}: {err}")
            continue
        name = fields.session
        if name == ".." or Path(name).name != name or not name.isprintable():
            faults.append(f"{log}:{number}: session: not a session name")
            continue
        found.setdefault(fields.session, []).append(fields)
    stored = existing = 0
    for session, records in found.items():
        new = _add(results / "sessions" / session, records)
        stored += new
        existing += len(records) - new
        say(f"session {session}: {new} of {pluralize(len(records), 'record')} stored from {log}")
    return stored, existing, faults


def _add(folder: Path, records: list[record.Record]) -> int:
    """Add new records to a session. Return their number."""
    path = folder / "records.jsonl"
    if folder.is_symlink():
        raise Fault(f"{folder}: it is a link, which is not followed: replace it by the folder",
                    code="files.not-writable")  # fmt: skip
    if running.is_running(folder):
        raise Fault(
            f"{folder.name}: the session is still running: recover it after it has ended",
            code="history.not-ended",
        )
    kept = list(record.read(path)) if path.exists() else []
    places: dict[tuple[str, int], int] = {}
    for place, fields in enumerate(kept):
        # The first line of a case and attempt counts.
        places.setdefault((fields.case, fields.attempt), place)
    new = 0
    for fields in records:
        place = places.setdefault((fields.case, fields.attempt), len(kept))
        if place == len(kept):
            kept.append(fields)
        elif kept[place].result == "unfinished" != fields.result:
            kept[place] = fields
        else:
            continue
        new += 1
    if new:
        message = "cannot be written ({}): free disk space, and run the command again"
        with files.writing(path, message):
            folder.mkdir(parents=True, exist_ok=True)
            files.write_atomically(path, "".join(f"{record.dumps(fields)}\n" for fields in kept))
    return new
