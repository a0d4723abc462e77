"""The index of the history: the records of all sessions as tables of DuckDB.

It is only a cache. Opening it updates it: only sessions whose files changed are read again,
removed ones are dropped, and an index that is damaged or of another version is rebuilt. A new state
is written next to the old one and then renamed, so readers never see an incomplete one, and no
writer waits for readers.
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
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar, get_args

import duckdb
import pydantic

from plumbline.check.record import FigureRecord, Record
from plumbline.core import files
from plumbline.core.errors import Fault, UnreadableFile, WrongFile
from plumbline.core.text import ESCAPED_FORMULA, pluralize, shorten
from plumbline.history import intake

T = TypeVar("T")

#: Increase it when a table changes: an index of another version is rebuilt.
VERSION = "5"
NAME = "history.duckdb"

#: Columns that earlier versions of `plumbline history export` did not write; they may be missing.
_LATER = ("seconds", "across")

#: Bytes of records in one transaction.
_BATCH = 128 << 20
#: Reading more bytes of records than this is announced.
_LONG = 100_000_000
#: Seconds to wait for another command that updates the same index.
_TIMEOUT = 120
_SETTINGS: dict[str, Any] = {
    "memory_limit": "512MB",
    # It gives back what a query took; its default, 512 MB, is never reached within that limit.
    "allocator_bulk_deallocation_flush_threshold": "16MB",
    "threads": min(4, os.cpu_count() or 1),
    "preserve_insertion_order": False,
    "autoinstall_known_extensions": False,
}
#: What DuckDB needs without a query.
_LEAST = "32MB"
#: For each connection; a progress bar would be mixed with the output.
_EACH = "USE kept; SET enable_progress_bar = false"


def open_index(
    folder: Path, say: Callable[[str], None], rebuild: bool = False
) -> tuple[duckdb.DuckDBPyConnection, Path | None, list[str]]:
    """Open the index of a results folder for reading, up to date.

    A user who cannot write to the folder has an index in the own cache folder.

    :arg say: receives messages about slow operations and problems.
    :arg rebuild: whether to build it from all records.
    :returns: the index; its file, ``None`` if it is in memory; and the sessions that cannot be
        read, a line each.
    :raises Fault: if there is no such folder, or no session in it.
    """
    wanted, faults = states(folder)
    db, path = _opened(folder, wanted, say, rebuild)
    rows = db.execute("SELECT session, place, why FROM aside ORDER BY session, rowid").fetchall()
    faults += [f"{folder / 'sessions' / session / place}: {why}" for session, place, why in rows]
    return db, path, faults


def _opened(
    folder: Path, wanted: dict[str, str], say: Callable[[str], None], rebuild: bool
) -> tuple[duckdb.DuckDBPyConnection, Path | None]:
    """Return the index, up to date, and its file."""
    candidates = [folder / NAME, *_cache(folder)]
    for path in candidates:
        db = None if rebuild else _current(path, wanted)
        if db:
            return db, path
    refused = []
    for path in candidates:
        try:
            return _updated(path, folder, wanted, say, rebuild), path
        except (OSError, duckdb.Error) as err:
            refused.append(f"{path} ({first_line(err)})")
    say(f"no index can be stored, so this command builds one in memory: {', '.join(refused)}")
    try:
        db = empty()
        _update(db, folder, wanted, say)
    except (OSError, duckdb.Error) as err:
        raise Fault(
            f"{folder}: cannot be indexed: {first_line(err)}", code="history.not-indexed"
        ) from None
    return db, None


def states(folder: Path) -> tuple[dict[str, str], list[str]]:
    """Return the sessions of a results folder, each with the state of its files, and those that
    cannot be read, a line each.

    :raises Fault: if there is no such folder, or no session in it.
    """
    if not folder.is_dir():
        raise Fault(
            f"{folder}: no such results folder: measure first (`plumbline run`), or name "
            "another one with --from or PLUMBLINE_RESULTS",
            code="history.not-found",
        )
    found, faults = {}, []
    for session in sorted(folder.glob("sessions/*")):
        try:
            stats = _stats(session)
        except OSError as err:
            faults.append(f"{str(err.filename or session)!r}: {files.why_unreadable(err, session)}")
            continue
        if stats and not session.name.isprintable():
            faults.append(f"{str(session)!r}: not a session name")
        elif any(stats[:2]):
            found[session.name] = " ".join(
                f"{file.st_size}:{file.st_mtime_ns}" if file else "0:0" for file in stats
            )
    if not found and not faults:
        raise Fault(
            f"{folder}: no session yet: measure with `plumbline run` first", code="history.empty"
        )
    return found, faults


def _stats(session: Path) -> list[os.stat_result | None]:
    """Return the states of a session's records, plan and end, ``None`` if missing; nothing if it is
    not a folder.

    :raises OSError: if it or a file is a link, not a regular file, or cannot be read.
    """
    if session.is_symlink():
        raise OSError(None, "it is a link", str(session))
    if not session.is_dir():
        return []
    stats: list[os.stat_result | None] = []
    for name in ("records.jsonl", "plan.json", "end.json"):
        path = session / name
        try:
            found = path.lstat()
        except FileNotFoundError:
            stats.append(None)
            continue
        stats.append(found)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(None, "it is not a regular file", str(path))
        if not os.access(path, os.R_OK):
            raise PermissionError(None, "no permission to read it", str(path))
    return stats


def _cache(folder: Path) -> list[Path]:
    """Return the path of the index if the results folder is not writable."""
    name = hashlib.md5(os.fsencode(folder.resolve())).hexdigest()
    with contextlib.suppress(RuntimeError):  # The user has no home folder.
        base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
        return [base / "plumbline" / f"history-{name}.duckdb"]
    return []


def first_line(err: Exception) -> str:
    """Return the first line of an error's message."""
    text = getattr(err, "strerror", None) or str(err) or type(err).__name__
    return text.splitlines()[0]


@functools.cache
def _own_folder() -> str:
    """Return a temporary folder for data that does not fit into memory, empty if there is none.

    Its name is random, since DuckDB follows links.
    """
    try:
        folder = tempfile.mkdtemp(prefix="plumbline-history-")
    except OSError:
        return ""
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _attached(place: Path | str, mode: str = "") -> duckdb.DuckDBPyConnection:
    """Return DuckDB with an index attached.

    It is not opened directly, since all connections of a process to one path share their state,
    even after the file was replaced.
    """
    db = duckdb.connect(config=_SETTINGS | {"temp_directory": _own_folder()})
    try:
        db.execute(f"ATTACH {_quoted(place)} AS kept {mode}")
        if place != ":memory:":
            # Views and macros of another user's index could read this user's files.
            db.execute("SET enable_external_access = false")
        db.execute(_EACH)
    except duckdb.Error:
        db.close()
        raise
    return db


def release(db: duckdb.DuckDBPyConnection) -> None:
    """Give back the memory that DuckDB keeps of earlier queries of an index in a file, which only a
    limit makes it do. It refuses a limit that it cannot keep: then it keeps the memory."""
    with contextlib.suppress(duckdb.Error):
        for limit in (_LEAST, _SETTINGS["memory_limit"]):
            db.execute(f"SET memory_limit = '{limit}'")


def _quoted(path: Path | str) -> str:
    return "'" + str(path).replace("'", "''") + "'"


def empty(place: Path | str = ":memory:") -> duckdb.DuckDBPyConnection:
    """Return an index without a session, in memory or in a new file."""
    db = _attached(place)
    db.execute(intake.TABLES)
    db.execute("INSERT INTO about VALUES ($1)", [VERSION])
    return db


def _wal(place: Path) -> Path:
    """Return the path of DuckDB's write-ahead log, which a complete index does not have."""
    return place.with_name(f"{place.name}.wal")


def _readable(place: Path) -> bool:
    """Return whether DuckDB may open an index. It would follow links, and wait for a FIFO."""
    return place.is_file() and not place.is_symlink() and not os.path.lexists(_wal(place))


def _current(place: Path, wanted: dict[str, str]) -> duckdb.DuckDBPyConnection | None:
    """Return an index for reading if it is up to date."""
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
    """Return the sessions of an index and their states.

    :raises duckdb.Error: if it is of another version.
    """
    ((version,),) = db.execute("SELECT version FROM about").fetchall()
    if version != VERSION:
        raise duckdb.Error("it is of another version of Plumbline")
    states = "SELECT session, state FROM files UNION SELECT session, state FROM aside"
    return dict(db.execute(states).fetchall())


def _updated(
    place: Path, folder: Path, wanted: dict[str, str], say: Callable[[str], None], rebuild: bool
) -> duckdb.DuckDBPyConnection:
    """Update the file of an index under a lock, and return it for reading.

    :raises OSError: if it cannot be written, or another command holds the lock too long.
    :raises duckdb.Error: if DuckDB cannot write it.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    with _locked(place.with_suffix(".lock"), say):
        old = place if _readable(place) and not rebuild else None
        db = _current(place, wanted) if old else None
        if db:
            # Another command updated it meanwhile.
            return db
        for left in place.parent.glob(f"{place.stem}.*.partial"):
            # Left by a command that was killed.
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
                say(f"{place}: damaged ({why}): rebuilding it")
                _write(partial, None, folder, wanted, say)
            _wal(place).unlink(missing_ok=True)
            partial.replace(place)
    return _attached(place, "(READ_ONLY)")


@contextlib.contextmanager
def _locked(path: Path, say: Callable[[str], None]) -> Iterator[None]:
    lock = files.lock(path)
    if not files.acquire(lock, blocking=False):
        say("waiting for another command that updates the index of the history")
        if not files.acquire(lock, timeout=_TIMEOUT):
            raise TimeoutError(f"another command has held {path} for {_TIMEOUT} s")
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
    """Write the file of an index, from an old one if there is one."""
    for left in (partial, _wal(partial)):
        left.unlink(missing_ok=True)
    if old:
        shutil.copyfile(old, partial)
    db = _attached(partial) if old else empty(partial)
    try:
        _update(db, folder, wanted, say)
        db.execute("CHECKPOINT kept")
    finally:
        db.close()


def _update(
    db: duckdb.DuckDBPyConnection, folder: Path, wanted: dict[str, str], say: Callable[[str], None]
) -> None:
    """Update the tables of an index to the wanted state."""
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
        for _ in pool.map(read, batches(new, lambda session: _size(wanted[session]), _BATCH)):
            pass
    finally:
        pool.shutdown(cancel_futures=True)


def batches(items: Iterable[T], size: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """Group items, in order, so that no group of several is larger than this."""
    batch: list[T] = []
    total = 0
    for item in items:
        if batch and total + size(item) > most:
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += size(item)
    if batch:
        yield batch


def _size(state: str) -> int:
    """Return the size of a session's records, from its state."""
    return int(state.partition(":")[0] or 0)


# -- CSV ------------------------------------------------------------------------------------

#: Table of the index -> its rows of a CSV file.
_FROM_CSV = {
    "files": "DISTINCT ON (session) CELLS FROM rows",
    "cases": "DISTINCT CELLS FROM rows WHERE line IS NOT NULL AND time IS NOT NULL",
    "figures": "CELLS FROM rows WHERE metric IS NOT NULL AND isfinite(value)",
}
#: Column of words -> the column that is NULL where it is empty, and the model that has the words.
_WORDS: dict[str, tuple[str, type[pydantic.BaseModel]]] = {
    "result": ("line", Record),
    "verdict": ("metric", FigureRecord),
}
_LOST = """
SELECT count(*) FROM cells
WHERE start IS NULL OR line IS NOT NULL AND time IS NULL
    OR metric IS NOT NULL AND NOT coalesce(isfinite(value), false)
"""


def columns(db: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """Return the columns of the CSV file and their types."""
    found = {name: kind for name, kind, *_ in db.execute("DESCRIBE flat").fetchall()}
    del found["file"], found["state"], found["missing"]
    return found | {"extras": "VARCHAR", "samples": "VARCHAR"}


def _literal(path: Path) -> str:
    """Return a path escaped for DuckDB, which takes it for a pattern."""
    return re.sub(r"([*?\[])", r"[\1]", str(path))


def of_csv(path: Path) -> tuple[duckdb.DuckDBPyConnection, list[str]]:
    """Return an index in memory of a CSV file, and the rows that were skipped, a line each.

    :raises Fault: if the file cannot be read, or has other columns.
    """
    db = empty()
    known = columns(db)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            header = next(csv.reader(file), [])
    except (OSError, UnicodeDecodeError, csv.Error) as err:
        raise UnreadableFile(f"{path}: cannot be read: {err}") from None
    missing = [repr(name) for name in known if name not in (*header, *_LATER)]
    unknown = [repr(name) for name in header if name not in known]
    wrong = [f"{what} {shorten(names)}" for what, names in
             (("missing", missing), ("unknown", unknown)) if names]  # fmt: skip
    if wrong or len(set(header)) != len(header):
        reason = ", ".join(wrong) or "a duplicate column"
        raise WrongFile(f"{path}:1: not a CSV file of `plumbline history export`: {reason}")
    cells = ["dense_rank() OVER (ORDER BY session) AS file", "'' AS state", "0 AS missing"]
    for name, kind in known.items():
        cell = f'"{name}"' if name in header else "NULL"
        if kind == "VARCHAR":
            cell = f"regexp_replace({cell}, {_quoted(ESCAPED_FORMULA)}, '\\1')"
            # NULL marks a row without a figure.
            cell = cell if name == "metric" else f"coalesce({cell}, '')"
        cells.append(f'{cell} AS "{name}"')
    try:
        db.execute(
            f"CREATE TEMP TABLE cells AS SELECT {', '.join(cells)} FROM read_csv($path, header = "
            f"true, columns = $columns, delim = ',', quote = '\"', escape = '\"', "
            f"store_rejects = true)",
            {"path": _literal(path), "columns": {name: known[name] for name in header}},
        )
        db.execute(
            """CREATE TEMP TABLE rows AS SELECT * REPLACE (
            from_json(nullif(extras, ''), '"MAP(VARCHAR, VARCHAR)"') AS extras,
            coalesce(from_json(nullif(samples, ''), '["DOUBLE"]'), [value]) AS samples,
            coalesce(size, -1) AS size) FROM cells WHERE start IS NOT NULL"""
        )
        faults = _drop_unknown(db)
        for name, rows in _FROM_CSV.items():
            described = db.execute(f"DESCRIBE {name}").fetchall()
            listed = ", ".join(f'"{cell}"' for cell, *_ in described)
            db.execute(f"INSERT INTO {name} SELECT {rows.replace('CELLS', listed)}")
        rejects = db.execute(
            "SELECT line, column_name, error_message FROM reject_errors"
        ).fetchall()
        ((lost,),) = db.execute(_LOST).fetchall()
    except duckdb.Error as err:
        raise WrongFile(f"{path}: {first_line(err)}") from None
    faults += [f"{pluralize(lost, 'row')} without start, time or value"] * bool(lost)
    return db, [
        *(f"{path}:{line}: {column}: {message}" for line, column, message in rejects),
        *(f"{path}: {fault}" for fault in faults),
    ]


def _drop_unknown(db: duckdb.DuckDBPyConnection) -> list[str]:
    """Drop the rows of a CSV file whose result or verdict Plumbline does not write, and return a
    line for each such word."""
    found: list[str] = []
    for name, (where, model) in _WORDS.items():
        known = get_args(model.model_fields[name].annotation)
        words = db.execute(
            f"DELETE FROM rows WHERE {where} IS NOT NULL AND {name} NOT IN (SELECT unnest($1)) "
            f"RETURNING {name}",
            [known],
        ).fetchall()
        found += [
            f"{pluralize(count, 'row')} with the {name} {word!r}; available: {', '.join(known)}"
            for (word,), count in Counter(words).items()
        ]
    return found
