"""IOR 4.0.0 (src/parse_options.c, src/ior-output.c): its report in JSON, and the options that the
checks use."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from ..options import Options, Refused, read
from ..run import Run
from ..values import Values

TABLE = "-a= -b= -C -D= -e -F -O= -o= -r -s= -t= -w -z --posix.odirect --random-offset-seed="

#: Files beyond this many are not made: what a program leaves behind shows with a few.
FILES = 64


class _Stop(Exception):
    """The program ends early, with what it printed and its exit code."""

    def __init__(self, code: int, out: str = ""):
        super().__init__(out)
        self.code, self.out = code, out


def play(run: Run) -> Iterator[tuple[int, str, int]]:
    try:
        options, rest = read(run.words[1:], TABLE, "ior")
        if rest:
            raise Refused(f"Error invalid argument: {rest[0]}")
    except Refused as refused:
        yield 0, f"{refused}\n", 1
        return
    try:
        yield 0, _Report(run, options).text(), 0
    except _Stop as stop:
        yield 0, stop.out, stop.code
    except Refused as refused:
        # Every rank says so.
        yield 0, f"{refused}\n" * len(run.tasks), refused.code


def human(number: float) -> str:
    """As IOR writes a size: ``1 MiB``, ``1.50 GiB``, ``512 bytes``."""
    for name, scale in (("TiB", 40), ("GiB", 30), ("MiB", 20)):
        if number >= 2**scale:
            value = number / 2**scale
            return f"{value:.0f} {name}" if value == int(value) else f"{value:.2f} {name}"
    return f"{number:.0f} bytes"


class _Report:
    def __init__(self, run: Run, options: Options):
        self.run = run
        self.options = options
        self.values = Values(run)
        self.api = str(options["a"])
        if self.api not in ("POSIX", "MPIIO"):
            raise Refused("ERROR: Unrecognized I/O API, (utilities.c:295)", 1)
        settings = options.pairs("O")
        if settings.get("summaryFormat") != "JSON":
            raise Refused("a report that is not JSON: no stand-in", 255)
        self.apart = "F" in options
        self.block, self.transfer = int(options["b"]), int(options["t"])
        self.segments = int(options.get("s", 1))
        self.accesses = [name for name in ("write", "read") if name[0] in options]
        self.path = str(options["o"])
        if self.block % self.transfer:
            raise Refused(
                "ERROR: block size must be a multiple of transfer size, (ior.c:1298)", 255
            )
        self.tasks = len(run.tasks)
        self.total = self.block * self.segments * self.tasks
        self.shifted = int("C" in options)
        self.limit = float(options.get("D", 0))
        self.worn_out = int(settings.get("stoneWallingWearOut", 0))

    # -- what is measured -------------------------------------------------------------------

    def measure(self) -> list[dict]:
        """Every access."""
        conditions = {
            "api": self.api.lower(),
            "files": "file-per-process" if self.apart else "single-shared-file",
            "order": "random" if "z" in self.options else "sequential",
        }
        if self.run.machine.name.startswith("reedbush"):
            ime = re.search(r"ime|cache", self.path)
            conditions["filesystem"] = "ime" if ime else "lustre"
        units = re.search(r"gl4-unit(s?)/", self.path)
        if units:
            conditions["gl4_units"] = "16" if units[1] else "1"
        elif self.run.machine.name in ("summit", "sierra"):
            conditions["gl4_units"] = "whole"
        found = []
        size = self.total
        for access in self.accesses:
            rate = self.values.ior(access, **conditions)
            if access == "read" and self._cached():
                # A file that this node wrote lies in its memory still.
                rate *= 15
            rate = self.values.measured(rate, False, metric=f"{access}_bandwidth", size=None)
            seconds = size / 2**20 / rate
            if self.limit and seconds > self.limit:
                # The stonewall ends the run; what it moved by then is what counts, and is read.
                seconds, size = self.limit, int(rate * self.limit) * 2**20
            found.append({"access": access, "rate": rate, "seconds": seconds, "moved": size})
        return found

    def _cached(self) -> bool:
        """Whether a read finds what the same node has just written."""
        if "write" not in self.accesses or "posix.odirect" in self.options:
            return False
        return not self.shifted or len(self.run.nodes) == 1

    # -- files ------------------------------------------------------------------------------

    def file_names(self) -> list[Path]:
        count = min(self.tasks, FILES) if self.apart else 1
        return [
            Path(f"{self.path}.{rank:08d}" if self.apart else self.path) for rank in range(count)
        ]

    def touch(self) -> None:
        """Makes the files; a folder that is not there ends the run."""
        complaints = ""
        for path in self.file_names():
            try:
                path.write_bytes(b"x")
            except OSError as err:
                complaints += (
                    f'ERROR: open64("{path}", 66, 0664) failed. Error: {err.strerror}, '
                    "(aiori-POSIX.c:569)\n"
                )
        if complaints:
            for rank in range(self.tasks):
                print(
                    f"Abort(-1) on node {rank} (rank {rank} in comm 0): application called "
                    f"MPI_Abort(MPI_COMM_WORLD, -1) - process {rank}",
                    file=sys.stderr,
                    flush=True,
                )
            raise _Stop(255, complaints)

    def remove(self) -> None:
        for path in self.file_names():
            path.unlink(missing_ok=True)

    # -- the report -------------------------------------------------------------------------

    def text(self) -> str:
        self.touch()
        results = self.measure()
        self.remove()
        return self._json(time.strftime("%a %b %d %H:%M:%S %Y"), results)

    def _settings(self) -> dict[str, object]:
        settings: dict[str, object] = {
            "api": self.api,
            "apiVersion": "(3.1)" if self.api == "MPIIO" else "",
            "test filename": self.path,
            "access": "file-per-process" if self.apart else "single-shared-file",
            "type": "independent",
            "segments": self.segments,
            "ordering in a file": "random" if "z" in self.options else "sequential",
            "ordering inter file": "constant task offset" if self.shifted else "no tasks offsets",
        }
        if self.shifted:
            settings["task offset"] = 1
        settings |= {
            "nodes": len(self.run.nodes),
            "tasks": self.tasks,
            "clients per node": self.run.per_node,
            "repetitions": 1,
            "xfersize": human(self.transfer),
            "blocksize": human(self.block),
            "aggregate filesize": human(self.total),
        }
        if self.limit:
            settings |= {"stonewallingTime": int(self.limit), "stoneWallingWearOut": self.worn_out}
        return settings

    def _remarks(self, row: dict) -> str:
        """What IOR says of a stonewall, and of a file that it left smaller, in the midst of its
        report."""
        pairs, text = row["moved"] // self.tasks // self.transfer, ""
        if self.worn_out:
            text = (
                f"stonewalling pairs accessed min: {pairs} max: {pairs} -- min data: 1.0 GiB mean "
                f"data: 1.0 GiB time: {row['seconds']:.1f}s\n"
            )
        if row["moved"] == self.total:
            return text
        ordered = "z" not in self.options or "random-offset-seed" in self.options
        if row["access"] == "read" and self.shifted and not (self.worn_out and ordered):
            # Another task wrote less, or elsewhere.
            text += f"WARNING: read(12, 0x7f0000000000, {self.transfer}) returned EOF prematurely\n"
        return text + (
            f"WARNING: Expected aggregate file size       = {self.total}\n"
            f"WARNING: Stat() of aggregate file size      = {row['moved']}\n"
            f"WARNING: Using actual aggregate bytes moved = {row['moved']}\n"
            "WARNING: Maybe caused by deadlineForStonewalling\n"
        )

    def _json(self, date: str, results: list[dict]) -> str:
        node = self.run.nodes[0]
        first = self.path + (".00000000" if self.apart else "")
        head = (
            '{\n  "Version": "4.0.0", \n'
            f'  "Began": "{date}", \n  "Command line": {json.dumps(" ".join(self.run.words))}, \n'
            f'  "Machine": "Linux {node}", \n  "tests": [\n    {{\n    "TestID": 0, \n'
            f'    "StartTime": "{date}"    , "Path": "{first}","Capacity": "252.0 GiB", '
            '"Used Capacity": "5.8%","Inodes": "16.0 Mi", "Used Inodes" : "2.7%"\n, \n'
        )
        flags = {
            "testID": 0, "refnum": 0, "api": self.api,
            "platform": f"{node.rstrip('0123456789')}(Linux)", "testFileName": self.path,
            "deadlineForStonewall": int(self.limit), "stoneWallingWearOut": self.worn_out,
            "maxTimeDuration": 0, "outlierThreshold": 0,
            "options": "(null)", "dryRun": 0, "nodes": len(self.run.nodes), "memoryPerTask": 0,
            "memoryPerNode": 0, "tasksPerNode": self.run.per_node,
            "repetitions": 1, "multiFile": 0,
            "interTestDelay": 0, "fsync": int("e" in self.options), "fsyncperwrite": 0,
            "useExistingTestFile": 0, "uniqueDir": 0, "singleXferAttempt": 0,
            "readFile": int("read" in self.accesses), "writeFile": int("write" in self.accesses),
            "filePerProc": int(self.apart), "reorderTasks": self.shifted,
            "reorderTasksRandom": 0, "reorderTasksRandomSeed": 0,
            "randomOffset": int("z" in self.options), "checkWrite": 0, "checkRead": 0,
            "dataPacketType": 0, "keepFile": 0, "keepFileWithError": 0, "warningAsErrors": 0,
            "verbose": 0, "data packet type": "g", "setTimeStampSignature/incompressibleSeed": 0,
            "collective": 0, "segmentCount": self.segments,
            "transferSize": self.transfer, "blockSize": self.block,
        }  # fmt: skip
        text = head + '    "Parameters": {\n' + _members(flags, 6) + "\n    }\n, \n"
        text += '    "Options": {\n' + _members(self._settings(), 6) + "\n    }\n, \n"
        rows = []
        for row in results:
            cells = {
                "access": row["access"], "bwMiB": row["rate"], "blockKiB": self.block / 1024,
                "xferKiB": self.transfer / 1024, "iops": row["rate"] * 1.01 * 2**20 / self.transfer,
                "latency": row["seconds"] / 50, "openTime": row["seconds"] / 900,
                "wrRdTime": row["seconds"] * 0.99, "closeTime": row["seconds"] / 800,
                "totalTime": row["seconds"],
            }  # fmt: skip
            comma = ", \n" if rows else ""
            members = "            {\n" + _members(cells, 8) + "\n      }\n"
            rows.append(f"{self._remarks(row)}{comma}{members}")
        text += '    "Results": [\n' + "".join(rows) + "]\n"
        if self.worn_out:
            pairs = results[0]["moved"] // self.tasks // self.transfer
            text += f"Pairs deadlineForStonewallingaccessed: {pairs}\n"
        text += "\n  }\n]\n, \n" + '"summary": [\n'
        summaries = []
        for row in results:
            rate, ops = row["rate"], row["rate"] * 2**20 / self.transfer
            cells = {
                "operation": row["access"], "API": self.api, "TestID": 0, "ReferenceNumber": 0,
                "segmentCount": self.segments, "blockSize": self.block,
                "transferSize": self.transfer, "numTasks": self.tasks,
                "tasksPerNode": self.run.per_node, "repetitions": 1,
                "filePerProc": int(self.apart), "reorderTasks": self.shifted,
                "taskPerNodeOffset": 1, "reorderTasksRandom": 0, "reorderTasksRandomSeed": 0,
                "bwMaxMIB": rate, "bwMinMIB": rate, "bwMeanMIB": rate, "bwStdMIB": 0.0,
                "OPsMax": ops, "OPsMin": ops, "OPsMean": ops, "OPsSD": 0.0,
                "MeanTime": row["seconds"],
            }  # fmt: skip
            if self.worn_out:
                cells |= {"StoneWallTime": row["seconds"], "StoneWallbwMeanMIB": rate}
            cells["xsizeMiB"] = row["moved"] / 2**20
            summaries.append("    {\n" + _members(cells, 4) + "\n  }\n")
        return text + ", \n".join(summaries) + f']\n, \n"Finished": "{date}"\n}}\n'


def _members(cells: dict, indent: int) -> str:
    """Members of an object, one a line, with the blank that IOR leaves behind commas."""
    lines = []
    for key, value in cells.items():
        text = f"{value:.4f}" if isinstance(value, float) else json.dumps(value)
        lines.append(f'{" " * indent}"{key}": {text}')
    return ", \n".join(lines)
