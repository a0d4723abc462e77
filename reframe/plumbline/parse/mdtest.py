"""mdtest 3.3.0, 4.0.0 and main: the table ``SUMMARY rate``, operations per second of all tasks.

``File creation`` becomes ``file_creation_rate``; likewise ``stat``, ``read``, ``rename`` and
``removal`` of files and directories, and ``tree_creation_rate``, ``tree_removal_rate``. The value
is the column ``Mean``: of the iterations, in 3.3.0 also of the tasks. A phase that did not run is
printed as 0.000 and gives no figure. ``-P`` prints a second table with the times of the phases in
seconds (also if main's title has ms/op). It gives no figures, but must agree with the rates.

mdtest continues after a file could not be created, and prints ``WARNING``. Every warning makes the
run invalid, except :data:`HARMLESS` ones. Source: ``src/mdtest.c``.
"""

from __future__ import annotations

import itertools
import math
import re

from plumbline.parse import Fom, Output, ParseError, parse_count, parse_number, single

#: A warning after which the rate of renaming is printed, of a phase that did nothing.
NO_RENAME = "Backend doesn't support rename"

#: Warnings that do not affect the rates.
HARMLESS = (
    "Read bytes is 0, thus, a read test will actually just open/close",
    "unable to use realpath() on file system",
    NO_RENAME,
)

_DIRECTORY = ("Directory creation", "Directory stat", "Directory removal")
_RENAME = ("Directory creation", "Directory stat", "Directory rename", "Directory removal")
_FILE = ("File creation", "File stat", "File read", "File removal")
_TREE = ("Tree creation", "Tree removal")

#: The possible rows of a table: ``-F`` excludes directories, ``-D`` files.
ROWS = (
    (*_DIRECTORY, *_FILE, *_TREE),
    (*_RENAME, *_FILE, *_TREE),
    (*_FILE, *_TREE),
    (*_DIRECTORY, *_TREE),
    (*_RENAME, *_TREE),
)

_LAUNCHED = re.compile(
    r"^mdtest-(\S+) was launched with (\d+) total task\(s\) on (\d+) node\(s\)[ ]*$", re.M
)
_STARTED = re.compile(r"^-- started at .* --[ ]*$", re.M)
_FINISHED = re.compile(r"^-- finished at .* --[ ]*$", re.M)
_COMMAND = re.compile(r"^Command line used: (.*)$", re.M)
_PATH = re.compile(r"^Path *: (.*\S)[ ]*$", re.M)
_SHIFT = re.compile(r"^(?:V-0: .*)?Shifting ranks by (\d+) for each phase\.[ ]*$", re.M)
_WORK = re.compile(r"^(\d+) tasks, (\d+) (files/directories|files|file|directories)[ ]*$", re.M)
_TITLE = re.compile(r"^SUMMARY (rate|time)(?: \(in [\w/]+\))?: \(of (\d+) iterations\)[ ]*$")
_HEAD = re.compile(r" +Operation +Max +Min +Mean +Std Dev *")
_RULE = re.compile(r" +-+ +-+ +-+ +-+ +-+ *")
_ROW = re.compile(r"   (\w+ \w+)(?: *:)?((?: +(?:\d+\.\d{3}|-?nan)){4})", re.ASCII)
_MESSAGE = re.compile(r"^.*?\b(?:WARNING|ERROR|FAILED)\b[: ].*$", re.M)


def parse(text: str) -> Output:
    """Parse the output of one run.

    :raises ParseError: if it is truncated, garbled, of several runs, or an operation failed.
    """
    for line in _MESSAGE.findall(_COMMAND.sub("", text)):
        if not any(harmless in line for harmless in HARMLESS):
            raise ParseError(f"mdtest reports: {line.strip()}", code="output.program-error")
    single(_STARTED.findall(text), "the first line of mdtest")
    if "Continue stonewall hit" in text:
        raise ParseError("a stonewall (-W) ended the run before all items were created")
    version, tasks, nodes = single(_LAUNCHED.findall(text), "the line with mdtest's tasks")
    command = single(_COMMAND.findall(text), "the command line")
    inputs = {"nodes": nodes, **_command(command)}
    inputs["path"] = single(_PATH.findall(text), "the path")
    working, items, what = single(_WORK.findall(text), "the line with tasks and items")
    if working != tasks:
        raise ParseError(f"{tasks} tasks were launched, {working} worked")
    # What -N is multiplied by depends on how the tasks are placed.
    shifts = _SHIFT.findall(text)
    shift = single(shifts, "the shift of ranks") if shifts else "0"
    inputs |= {"items": items, "items_are": what, "shift": shift}
    finished = single((match[0] for match in _FINISHED.finditer(text)), "the last line of mdtest")
    tables = _tables(text[: text.index(finished)].splitlines())
    if text[text.index(finished) + len(finished) :].count("SUMMARY"):
        raise ParseError("a table after the last line")
    if "rate" not in tables:
        raise ParseError("the table of rates is missing")
    iterations, rates = tables["rate"]
    for other, (count, rows) in tables.items():
        if count != iterations or list(rows) != list(rates):
            raise ParseError(f"the table of {other} has different rows or iterations")
    inputs["iterations"] = iterations
    if not parse_count(iterations, "iterations"):
        raise ParseError("the rates have no iterations")
    if "time" in tables:
        # With -S the line has "1 file".
        bounds = (1.0, math.inf) if what == "file" else (parse_count(items, "items"),) * 2
        done = {"Tree": (1.0, math.inf)}
        # With -I and -n, the number of items differs between iterations.
        if "'-I" not in command:
            done |= {"File": bounds, "Directory": bounds}
        _check_times(rates, tables["time"][1], done)
    unsupported = {"Directory rename"} if NO_RENAME in text else set()
    foms = [_figure(name, rates[name]) for name in rates if name not in unsupported]
    return Output(tuple(filter(None, foms)), parse_count(tasks, "tasks"), version, inputs)


def _command(line: str) -> dict[str, str]:
    """Return the options for the amount of work, as given."""
    # mdtest quotes each word but the first, and escapes nothing.
    if line.count("'") % 2:
        raise ParseError(f"the command line is truncated: {line!r}")
    words = line.split("'")[1::2]
    valued = {"items_per_task": "-n", "write_bytes": "-w", "read_bytes": "-e"}
    inputs = {
        name: words[words.index(option) + 1] if option in words[:-1] else "0"
        for name, option in valued.items()
    }
    flags = {"unique_dir": "-u", "files_only": "-F"}
    return inputs | {name: "1" if flag in words else "0" for name, flag in flags.items()}


def _tables(lines: list[str]) -> dict[str, tuple[str, dict[str, list[str]]]]:
    """Return the tables: ``rate`` or ``time`` -> iterations, and name -> cells of each row."""
    tables: dict[str, tuple[str, dict[str, list[str]]]] = {}
    left = iter(lines)
    for line in left:
        title = _TITLE.fullmatch(line)
        if not title:
            if _ROW.fullmatch(line):
                raise ParseError(f"a row outside a table: {line!r}")
            continue
        if title[1] in tables:
            raise ParseError(f"the table of {title[1]} is printed twice")
        if not _HEAD.fullmatch(next(left, "")):
            raise ParseError(f"the table of {title[1]} has an unknown header")
        if not _RULE.fullmatch(next(left, "")):
            raise ParseError(f"the table of {title[1]} has no line under its header")
        rows: dict[str, list[str]] = {}
        for line in itertools.takewhile(str.strip, left):
            row = _ROW.fullmatch(line)
            if not row or row[1] in rows:
                raise ParseError(f"the table of {title[1]}: not a row, or a repeated one: {line!r}")
            rows[row[1]] = row[2].split()
        if tuple(rows) not in ROWS:
            raise ParseError(f"the table of {title[1]}: rows are missing; it has {list(rows)}")
        tables[title[1]] = (title[2], rows)
    return tables


def _check_times(
    rates: dict[str, list[str]],
    times: dict[str, list[str]],
    done: dict[str, tuple[float, float]],
) -> None:
    """Check the rates against the times of the phases.

    Rate times time is the number of operations, the same in each phase on files, on directories, or
    on the tree. The highest rate belongs to the shortest time; the mean rate is at least that of
    the mean time.

    :arg done: first word of a phase -> least and most operations.
    """
    half = 0.0005
    for kind, (least, most) in done.items():
        for name in rates:
            if not name.startswith(kind):
                continue
            high, low, mean, _ = (parse_number(cell, name) for cell in rates[name])
            longest, shortest, usual, _ = (
                parse_number(cell, f"{name}, time") for cell in times[name]
            )
            if not high and not longest:
                continue
            pairs = (high, shortest), (low, longest), (mean, usual)
            least = max(least, *((rate - half) * (time - half) for rate, time in pairs[:2]))
            most = min(most, *((rate + half) * (time + half) for rate, time in pairs))
            if least > most * (1 + 1e-9):
                raise ParseError(
                    f"{name}: {rates[name]} operations per second contradict the times "
                    f"{times[name]} s"
                )


def _figure(name: str, cells: list[str]) -> Fom | None:
    """Return the mean of a row, ``None`` if the phase did not run."""
    high, low, mean, _ = (parse_number(cell, name) for cell in cells)
    if not low - 1e-3 <= mean <= high + 1e-3:
        raise ParseError(f"{name}: minimum, mean, maximum are {low}, {mean}, {high}")
    if not high:
        return None
    return Fom(f"{name.lower().replace(' ', '_')}_rate", mean, "operation/s")
