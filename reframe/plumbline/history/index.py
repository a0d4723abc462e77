"""The history's index: what the lines of all sessions say, as tables of DuckDB.

A cache and no more. It is brought up to date by whoever opens it: only the sessions whose files
changed are read again, those that are gone are dropped, and an index that is damaged, or of another
version, is built anew from the lines. A new state is written beside the old one and then takes its
name, so that a reader never sees half of one and nobody waits for a reader.
"""

from __future__ import annotations

import atexit
import contextlib
import csv
import functools
import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb

from plumbline.core import files
from plumbline.core.errors import Fault
from plumbline.core.text import GUARD, counted, some
from plumbline.history import intake

#: To be raised when a table changes: an index of another version is built anew.
VERSION = "3"
NAME = "history.duckdb"

#: Columns that an earlier `plumbline history export` did not write; without them they are NULL.
_LATER = ("seconds",)

#: Bytes of records that are written in one transaction.
_BATCH = 128 << 20
#: Bytes of records from which on reading them is told.
_LONG = 100_000_000
#: Seconds to wait for another command that renews the same index.
_PATIENCE = 120
_SETTINGS: dict[str, Any] = {
    "memory_limit": "512MB",
    "threads": min(4, os.cpu_count() or 1),
    "preserve_insertion_order": False,
    "autoinstall_known_extensions": False,
}
#: For each connection; a bar on standard output would stand between the answers.
_EACH = "USE kept; SET enable_progress_bar = false"


def opened(
    folder: Path, say: Callable[[str], None], anew: bool = False
) -> tuple[duckdb.DuckDBPyConnection, Path | None, list[str]]:
    """The index of a results folder, up to date, for reading; its file, ``None`` if it is kept in
    memory; and the sessions that cannot be read, a line each.

    Who may not write into the folder has an index of their own in their cache folder.

    :arg say: is told what takes long, or is not as it should be.
    :arg anew: whether to build it from all lines, whatever is there.
    :raises Fault: if there is no such folder, or no session in it.
    """
    wanted, faults = states(folder)
    db, place = _opened(folder, wanted, say, anew)
    rows = db.execute("SELECT session, place, why FROM aside ORDER BY session, rowid").fetchall()
    faults += [f"{folder / 'sessions' / session / at}: {why}" for session, at, why in rows]
    return db, place, faults


def _opened(
    folder: Path, wanted: dict[str, str], say: Callable[[str], None], anew: bool
) -> tuple[duckdb.DuckDBPyConnection, Path | None]:
    """The index, up to date, and its file."""
    places = [folder / NAME, *_cache(folder)]
    for place in places:
        db = None if anew else _current(place, wanted)
        if db:
            return db, place
    refused = []
    for place in places:
        try:
            return _renewed(place, folder, wanted, say, anew), place
        except (OSError, duckdb.Error) as err:
            refused.append(f"{place} ({first_line(err)})")
    say(f"the index is kept in memory, for this command only: no file for it: {', '.join(refused)}")
    try:
        db = empty()
        _renew(db, folder, wanted, say)
    except (OSError, duckdb.Error) as err:
        raise Fault(
            f"{folder}: cannot be indexed: {first_line(err)}", code="history.not-indexed"
        ) from None
    return db, None


def states(folder: Path) -> tuple[dict[str, str], list[str]]:
    """The sessions of a results folder, each with what changes when its files do; and those that
    cannot be read, a line each.

    :raises Fault: if there is no such folder, or no session in it.
    """
    if not folder.is_dir():
        raise Fault(
            f"{folder}: no such folder of results: see --from and PLUMBLINE_RESULTS",
            code="history.not-found",
        )
    found, faults = {}, []
    for session in sorted(folder.glob("sessions/*")):
        try:
            kept = _kept(session)
        except OSError as err:
            faults.append(f"{str(err.filename or session)!r}: {err.strerror}: it is not read")
            continue
        if kept and not session.name.isprintable():
            faults.append(f"{str(session)!r}: no name of a session: it is not read")
        elif any(kept[:2]):
            found[session.name] = " ".join(
                f"{file.st_size}:{file.st_mtime_ns}" if file else "0:0" for file in kept
            )
    if not found and not faults:
        raise Fault(
            f"{folder}: no session there yet: `plumbline run` makes one", code="history.empty"
        )
    return found, faults


def _kept(session: Path) -> list[os.stat_result | None]:
    """The state of a session's records, plan and end, ``None`` for what is not there; empty if it
    is no folder.

    :raises OSError: if it, or one of them, is a link, no regular file, or cannot be read.
    """
    if session.is_symlink():
        raise OSError(None, "it is a link", str(session))
    if not session.is_dir():
        return []
    kept: list[os.stat_result | None] = []
    for name in ("records.jsonl", "plan.json", "end.json"):
        path = session / name
        try:
            found = path.lstat()
        except FileNotFoundError:
            kept.append(None)
            continue
        kept.append(found)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(None, "it is no regular file", str(path))
        if not os.access(path, os.R_OK):
            raise PermissionError(None, "it may not be read", str(path))
    return kept


def _cache(folder: Path) -> list[Path]:
    """The index's file where the results folder cannot be written."""
    name = hashlib.md5(os.fsencode(folder.resolve())).hexdigest()
    with contextlib.suppress(RuntimeError):  # Whoever has no home folder has no cache.
        base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
        return [base / "plumbline" / f"history-{name}.duckdb"]
    return []


def first_line(err: Exception) -> str:
    """What an error says, short."""
    text = getattr(err, "strerror", None) or str(err) or type(err).__name__
    return text.splitlines()[0]


@functools.cache
def _own_folder() -> str:
    """A folder of this process' own for what does not fit into memory; empty if none can be made,
    so that DuckDB ends there. Under a name that nobody can foresee: DuckDB follows links."""
    try:
        folder = tempfile.mkdtemp(prefix="plumbline-history-")
    except OSError:
        return ""
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _attached(place: Path | str, mode: str = "") -> duckdb.DuckDBPyConnection:
    """DuckDB with an index's tables. Not connected to the file itself, since all connections of a
    process to one path share one state, also after another file has taken that name."""
    db = duckdb.connect(config=_SETTINGS | {"temp_directory": _own_folder()})
    try:
        db.execute(f"ATTACH {_quoted(place)} AS kept {mode}")
        db.execute(_EACH)
    except duckdb.Error:
        db.close()
        raise
    return db


def _quoted(path: Path | str) -> str:
    return "'" + str(path).replace("'", "''") + "'"


def empty(place: Path | str = ":memory:") -> duckdb.DuckDBPyConnection:
    """An index without a session, in memory or in a file that is not there yet."""
    db = _attached(place)
    db.execute(intake.TABLES)
    db.execute("INSERT INTO about VALUES ($1)", [VERSION])
    return db


def _wal(place: Path) -> Path:
    """The log of changes that DuckDB would take over with an index; an index of ours has none."""
    return place.with_name(f"{place.name}.wal")


def _readable(place: Path) -> bool:
    """Whether an index is there that DuckDB may open: it follows links, and waits for a FIFO."""
    return place.is_file() and not place.is_symlink() and not os.path.lexists(_wal(place))


def _current(place: Path, wanted: dict[str, str]) -> duckdb.DuckDBPyConnection | None:
    """An index that is up to date, for reading."""
    db = None
    with contextlib.suppress(duckdb.Error):
        if _readable(place):
            db = _attached(place, "(READ_ONLY)")
            if _known(db) == wanted:
                return db
    if db:
        db.close()
    return None


def _known(db: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """The sessions of an index and their states.

    :raises duckdb.Error: if it is of another version.
    """
    ((version,),) = db.execute("SELECT version FROM about").fetchall()
    if version != VERSION:
        raise duckdb.Error("it is of another version of Plumbline")
    states = "SELECT session, state FROM files UNION SELECT session, state FROM aside"
    return dict(db.execute(states).fetchall())


def _renewed(
    place: Path, folder: Path, wanted: dict[str, str], say: Callable[[str], None], anew: bool
) -> duckdb.DuckDBPyConnection:
    """An index whose file is brought up to date, under a lock, for reading.

    :raises OSError: if it cannot be written, or another command keeps the lock too long.
    :raises duckdb.Error: if DuckDB cannot write it.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    with _locked(place.with_suffix(".lock"), say):
        old = place if _readable(place) and not anew else None
        db = _current(place, wanted) if old else None
        if db:
            # Another command did it meanwhile.
            return db
        for left in place.parent.glob(f"{place.stem}.*.partial"):
            # Of a command that was killed.
            shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(
            ".partial", f"{place.stem}.", place.parent, ignore_cleanup_errors=True
        ) as own:
            partial = Path(own, place.name)
            try:
                _write(partial, old, folder, wanted, say)
            except duckdb.Error as err:
                if old is None:
                    raise
                why = first_line(err).replace(str(partial), place.name)
                say(f"{place}: damaged ({why}): built anew")
                _write(partial, None, folder, wanted, say)
            _wal(place).unlink(missing_ok=True)
            partial.replace(place)
    return _attached(place, "(READ_ONLY)")


@contextlib.contextmanager
def _locked(path: Path, say: Callable[[str], None]) -> Iterator[None]:
    lock = files.lock(path)
    if not lock.acquire(blocking=False):
        say("another command brings the index of the history up to date: waiting for it")
        if not lock.acquire(timeout=_PATIENCE):
            raise TimeoutError(f"another command has held {path} for {_PATIENCE} s")
    try:
        yield
    finally:
        lock.release()


def _write(
    partial: Path,
    old: Path | None,
    folder: Path,
    wanted: dict[str, str],
    say: Callable[[str], None],
) -> None:
    """Writes an index's file, from an old one where there is one."""
    for left in (partial, _wal(partial)):
        left.unlink(missing_ok=True)
    if old:
        shutil.copyfile(old, partial)
    db = _attached(partial) if old else empty(partial)
    try:
        _renew(db, folder, wanted, say)
        db.execute("CHECKPOINT kept")
    finally:
        db.close()


def _renew(
    db: duckdb.DuckDBPyConnection, folder: Path, wanted: dict[str, str], say: Callable[[str], None]
) -> None:
    """Has the tables say what the lines say."""
    known = _known(db)
    gone = [session for session, state in known.items() if wanted.get(session) != state]
    for table in ("figures", "cases", "faults", "files"):
        db.execute(
            f"DELETE FROM {table} WHERE file IN "
            f"(SELECT file FROM files WHERE session IN (SELECT unnest($1)))",
            [gone],
        )
    db.execute("DELETE FROM aside WHERE session IN (SELECT unnest($1))", [gone])
    new = [session for session, state in wanted.items() if known.get(session) != state]
    size = sum(_size(wanted[session]) for session in new)
    if size > _LONG:
        say(f"{folder}: reading {len(new)} sessions, {size / 1e9:.1f} GB, into the index")
    ((last,),) = db.execute("SELECT coalesce(max(file), 0) FROM files").fetchall()
    numbers = {session: number for number, session in enumerate(new, last + 1)}

    def read(batch: list[str]) -> None:
        with db.cursor() as own:
            own.execute(_EACH)
            own.begin()
            intake.read(own, folder, {session: numbers[session] for session in batch}, wanted)
            own.commit()

    # DuckDB writes the rows of one connection on one core.
    pool = ThreadPoolExecutor(_SETTINGS["threads"])
    try:
        for _ in pool.map(read, _batches(new, wanted)):
            pass
    finally:
        pool.shutdown(cancel_futures=True)


def _batches(sessions: list[str], states: dict[str, str]) -> Iterator[list[str]]:
    batch, size = [], 0
    for session in sessions:
        batch.append(session)
        size += _size(states[session])
        if size > _BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _size(state: str) -> int:
    """The bytes of a session's records."""
    return int(state.partition(":")[0] or 0)


# -- CSV ------------------------------------------------------------------------------------

#: Of a CSV's rows, what each table of the index gets.
_FROM_CSV = {
    "files": "DISTINCT ON (session) CELLS FROM rows",
    "cases": "DISTINCT CELLS FROM rows WHERE line IS NOT NULL AND time IS NOT NULL",
    "figures": "CELLS FROM rows WHERE metric IS NOT NULL AND isfinite(value)",
}
_LOST = """
SELECT count(*) FROM rows
WHERE line IS NOT NULL AND time IS NULL
    OR metric IS NOT NULL AND NOT coalesce(isfinite(value), false)
"""


def columns(db: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """The CSV's columns and their types."""
    found = {name: kind for name, kind, *_ in db.execute("DESCRIBE flat").fetchall()}
    del found["file"], found["state"], found["missing"]
    return found | {"extras": "VARCHAR", "samples": "VARCHAR"}


def _literal(path: Path) -> str:
    """A path as DuckDB takes it, which holds it for a pattern: a letter in brackets is itself."""
    return re.sub(r"([*?\[])", r"[\1]", str(path))


def of_csv(path: Path) -> tuple[duckdb.DuckDBPyConnection, list[str]]:
    """An index in memory of what a CSV has, and the rows left out, a line each.

    :raises Fault: if the file cannot be read, or its columns are others.
    """
    db = empty()
    known = columns(db)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            there = next(csv.reader(file), [])
    except (OSError, UnicodeDecodeError, csv.Error) as err:
        raise Fault(f"{path}: cannot be read: {err}", code="input.unreadable-file") from None
    missing = [repr(name) for name in known if name not in (*there, *_LATER)]
    unknown = [repr(name) for name in there if name not in known]
    # Of a CSV of something else, all are: a few tell which it is.
    wrong = [f"{what} {some(names)}" for what, names in
             (("missing", missing), ("unknown", unknown)) if names]  # fmt: skip
    if wrong or len(set(there)) != len(there):
        told = ", ".join(wrong) or "one stands twice"
        raise Fault(
            f"{path}:1: columns are not those of `plumbline history export`: {told}",
            code="input.wrong-file",
        )
    cells = ["dense_rank() OVER (ORDER BY session) AS file", "'' AS state", "0 AS missing"]
    for name, kind in known.items():
        # What marks a row without a case, or without a figure, stays NULL.
        text = kind == "VARCHAR" and name not in ("line", "metric")
        cell = f'"{name}"' if name in there else "NULL"
        cell = f"regexp_replace({cell}, {_quoted(GUARD)}, '\\1')" if kind == "VARCHAR" else cell
        cells.append(f"""coalesce({cell}, '') AS "{name}" """ if text else f'{cell} AS "{name}"')
    try:
        db.execute(
            f"CREATE TEMP TABLE cells AS SELECT {', '.join(cells)} FROM read_csv($path, header = "
            f"true, columns = $columns, delim = ',', quote = '\"', escape = '\"', "
            f"store_rejects = true)",
            {"path": _literal(path), "columns": {name: known[name] for name in there}},
        )
        db.execute(
            """CREATE TEMP TABLE rows AS SELECT * REPLACE (
            from_json(nullif(extras, ''), '"MAP(VARCHAR, VARCHAR)"') AS extras,
            coalesce(from_json(nullif(samples, ''), '["DOUBLE"]'), [value]) AS samples,
            coalesce(size, -1) AS size) FROM cells"""
        )
        for name, rows in _FROM_CSV.items():
            described = db.execute(f"DESCRIBE {name}").fetchall()
            named = ", ".join(f'"{cell}"' for cell, *_ in described)
            db.execute(f"INSERT INTO {name} SELECT {rows.replace('CELLS', named)}")
        rejects = db.execute(
            "SELECT line, column_name, error_message FROM reject_errors"
        ).fetchall()
        ((lost,),) = db.execute(_LOST).fetchall()
    except duckdb.Error as err:
        raise Fault(f"{path}: {first_line(err)}", code="input.wrong-file") from None
    faults = [f"{path}:{line}: {column}: {message}" for line, column, message in rejects]
    return db, faults + [f"{path}: {counted(lost, 'row')} without time or value"] * bool(lost)
