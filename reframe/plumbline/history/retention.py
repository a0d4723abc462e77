"""What is kept of old sessions, by rule, and records that a log kept when the disk did not.

Records and plans go with their whole session only, and only where that is asked for. The index
needs no word: whoever asks next leaves out what is gone.
"""

from __future__ import annotations

import datetime
import gzip
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from plumbline.check import record
from plumbline.core import files
from plumbline.core.errors import Fault
from plumbline.core.text import counted
from plumbline.history import running
from plumbline.site import configuration

#: Before this there were no sessions: a clock that said so was not set yet.
_FIRST = datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)

#: How far a clock may be ahead of another one.
_AHEAD = datetime.timedelta(days=1)

#: What a log is: ReFrame's own files, which nothing here reads again.
LOGS = ("reframe.log", "report.json")


@dataclass(frozen=True)
class RetentionRules:
    """Ages beyond which something goes; ``None`` keeps it.

    :ivar stage: the folders that the test cases ran in; what failed is looked into there.
    :ivar output: the outputs of what passed.
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
    """What was done: places, the bytes that they held or still hold less, and what could not be."""

    count: int = 0
    bytes: int = 0
    faults: list[str] = field(default_factory=list)


def prune(
    results: Path, rules: RetentionRules, say: Callable[[str], None], dry_run: bool = False
) -> Pruned:
    """Removes or compresses what is older than the rules say; sessions that run are left alone, and
    those whose clock was wrong, so that they have no age.

    :arg say: is told of each place.
    :arg dry_run: whether only to tell.
    """
    now = datetime.datetime.now(datetime.timezone.utc)
    done = Pruned()

    def each(path: Path, way: Callable[[Path], int], verb: str) -> None:
        try:
            freed = _size(path) if dry_run else way(path)
        except OSError as err:
            # The file that it names may be told without its folder.
            done.faults.append(f"{path}: {err.strerror or err}")
            return
        done.count += 1
        done.bytes += freed
        say(f"{f'would be {verb}' if dry_run else verb}: {path} ({_size_told(freed)})")

    for folder in sorted((results / "sessions").glob("*/")):
        # A link leads elsewhere, and what is there is not ours; nor is a folder of another kind.
        if folder.is_symlink() or not _is_session(folder) or running.running(folder):
            continue
        try:
            began = configuration.began(folder)
        except OSError as err:
            # Another one may have removed it meanwhile.
            done.faults.append(f"{folder}: {err.strerror or err}")
            continue
        age = now - began
        if began < _FIRST or age < -_AHEAD:
            say(f"{folder}: left alone: a clock was wrong, by which it began {began:%Y-%m-%d}")
            continue
        if rules.sessions and age > rules.sessions:
            each(folder, _removed, "removed")
            continue
        for name, oldest in (("stage", rules.stage), ("output", rules.output)):
            if oldest and age > oldest and (folder / name).is_dir():
                each(folder / name, _removed, "removed")
        for name in LOGS:
            if rules.logs and age > rules.logs and (folder / name).is_file():
                each(folder / name, _compressed, "compressed")
    return done


def _is_session(folder: Path) -> bool:
    """Whether a folder is a session's; one that was killed early has no more than its name."""
    return configuration.named(folder.name) or (folder / "plan.json").is_file()


def _size(path: Path) -> int:
    """Bytes of a file, or of all files below a folder."""
    if not path.is_dir():
        return path.lstat().st_size
    return sum(
        Path(place, name).lstat().st_size for place, _, names in os.walk(path) for name in names
    )


def _size_told(number: int) -> str:
    return f"{number / 1e6:.1f} MB" if number >= 1e5 else f"{number / 1e3:.1f} kB"


def _removed(path: Path) -> int:
    """Removes a folder; one that is a link is refused."""
    freed = _size(path)
    shutil.rmtree(path)
    return freed


def _compressed(path: Path) -> int:
    """Compresses a file; the plain one goes once the other is whole."""
    before = path.stat().st_size
    whole, partial = path.with_name(f"{path.name}.gz"), path.with_name(f"{path.name}.partial")
    try:
        partial.unlink(missing_ok=True)
        with (
            open(path, "rb", opener=files.opened) as plain,
            gzip.open(partial, "xb") as packed,
        ):
            shutil.copyfileobj(plain, packed)
        shutil.copystat(path, partial)
        partial.replace(whole)
    finally:
        partial.unlink(missing_ok=True)
    path.unlink()
    return before - whole.stat().st_size


# -- records from a log --------------------------------------------------------------------------

_LINE = re.compile(r"plumbline-record (\{.*\})")


def recover(results: Path, log: Path, say: Callable[[str], None]) -> tuple[int, int, list[str]]:
    """Puts records that a session could not store, and printed, where they belong.

    A test case that was recorded as never finished meanwhile has its result then; any other that
    has a record keeps it.

    :arg log: what the session printed; other words may stand before a record.
    :returns: how many were taken, how many were there already, and the lines that are no records.
    :raises Fault: if the log cannot be read, or a record not be written.
    """
    found: dict[str, list[record.Record]] = {}
    faults = []
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as err:
        raise Fault(
            f"{log}: cannot be read: {err.strerror}", code="input.unreadable-file"
        ) from None
    for number, line in enumerate(lines, 1):
        if "plumbline-record " not in line:
            continue
        try:
            whole = _LINE.search(line)
            fields = record.parse(whole[1].encode() if whole else b"")
        except record.Damaged as err:
            faults.append(f"{log}:{number}: {err}")
            continue
        if fields.session == ".." or Path(fields.session).name != fields.session:
            faults.append(f"{log}:{number}: session: no name of a session")
            continue
        found.setdefault(fields.session, []).append(fields)
    taken = there = 0
    for session, records in found.items():
        new = _put(results / "sessions" / session, records)
        taken += new
        there += len(records) - new
        say(f"session {session}: {new} of {counted(len(records), 'record')} taken from {log}")
    return taken, there, faults


def _put(folder: Path, records: list[record.Record]) -> int:
    """Adds those of a session's records that are not there; how many."""
    path = folder / "records.jsonl"
    if running.running(folder):
        raise Fault(
            f"{folder.name}: the session still runs: recover once it has ended",
            code="history.not-ended",
        )
    kept = list(record.read(path)) if path.exists() else []
    by_place = {(fields.case, fields.attempt): fields for fields in kept}
    new = 0
    for fields in records:
        place = fields.case, fields.attempt
        known = by_place.get(place)
        if known is None:
            kept.append(fields)
        elif known.result == "unfinished" != fields.result:
            kept[kept.index(known)] = fields
        else:
            continue
        by_place[place] = fields
        new += 1
    if new:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            files.store(path, "".join(f"{record.dumps(fields)}\n" for fields in kept))
        except OSError as err:
            told = f"{path}: cannot be written ({err.strerror}): free the disk, and recover again"
            raise Fault(told, code="files.not-writable") from None
    return new
