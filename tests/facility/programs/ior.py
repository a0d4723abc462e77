"""IOR 4.0.0 (src/parse_options.c, src/ior-output.c)."""

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

TABLE = """
-a= -A= -b= -c -C -d= -D= -e -E -f= -F -g -G= -h|--help -i= -I -j= -J= -k -K -l= -m -M= -n -N= -o=
-O= -p -q -Q= -r -R -s= -S -t= -T= -u -U= -v -V -w -W -x -X= -y -Y -z -Z --posix.odirect --dryRun
--mpiio.showHints --random-offset-seed=
"""

#: Files beyond this many are not made: what a program leaves behind shows with a few.
FILES = 64


#: Directives of ``-O`` that change nothing here.
DIRECTIVES = (
    "stoneWallingWearOut",
    "stoneWallingStatusFile",
    "minTimeDuration",
    "allocateBufferOnGPU",
)


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


def size_of(text: str) -> int:
    """``32m`` and its like, powers of 1024."""
    found = re.fullmatch(r"(\d+)([kmgtKMGT]?)", text)
    if not found:
        raise Refused(f"ERROR: invalid size: {text}")
    return int(found[1]) * 1024 ** " kmgt".index(found[2].lower() or " ")


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
        self.api = str(options.get("a", "POSIX")).upper()
        if self.api not in ("POSIX", "MPIIO", "MMAP", "DUMMY", "HDF5"):
            raise Refused("ERROR: Unrecognized I/O API, (utilities.c:295)", 1)
        self.apart = "F" in options
        self.block = size_of(str(options.get("b", "1m")))
        self.transfer = size_of(str(options.get("t", "256k")))
        self.segments = int(options.get("s", 1))
        self.repetitions = int(options.get("i", 1))
        both = "w" not in options and "r" not in options
        self.accesses = [name for name in ("write", "read") if both or name[0] in options]
        self.path = str(options.get("o", "testFile"))
        self.json = False
        self.summary_file = ""
        for directive in str(options.get("O", "")).split(","):
            key, _, value = directive.partition("=")
            if key == "summaryFormat":
                if value not in ("default", "JSON", "CSV"):
                    raise Refused(f"Unknown summaryFormat {value}", 255)
                self.json = value == "JSON"
            elif key == "summaryFile":
                self.summary_file = value
            elif directive and key not in DIRECTIVES:
                raise Refused(f'Unrecognized parameter "{key}"', 255)
        if self.block % self.transfer:
            raise Refused(
                "ERROR: block size must be a multiple of transfer size, (ior.c:1298)", 255
            )
        self.tasks = min(int(options.get("N", len(run.tasks))), len(run.tasks))

    # -- what is measured -------------------------------------------------------------------

    def measure(self) -> list[dict]:
        """Every access of every repetition."""
        total = self.block * self.segments * self.tasks
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
        for repetition in range(self.repetitions):
            for access in self.accesses:
                rate = self.values.ior(access, **conditions)
                if access == "read" and self._cached():
                    # A file that this node wrote lies in its memory still.
                    rate *= 15
                rate = self.values.measured(rate, False, metric=f"{access}_bandwidth", size=None)
                seconds = total / 2**20 / rate
                limit = float(self.options.get("D", 0))
                row = {"access": access, "rate": rate, "seconds": seconds, "iter": repetition}
                if limit and seconds > limit:
                    # The stonewall ends the run; what it moved by then is what counts.
                    row |= {"seconds": limit, "moved": int(rate * limit) * 2**20}
                found.append(row)
        return found

    def _cached(self) -> bool:
        """Whether a read finds what the same node has just written."""
        if "write" not in self.accesses or "--posix.odirect" in self.run.words:
            return False
        shifted = {"C", "Q", "Z"} & set(self.options)
        return not shifted or len(self.run.nodes) == 1

    # -- files ------------------------------------------------------------------------------

    def file_names(self) -> list[Path]:
        count = min(self.tasks, FILES) if self.apart else 1
        return [
            Path(f"{self.path}.{rank:08d}" if self.apart else self.path) for rank in range(count)
        ]

    def touch(self, head: str) -> None:
        """Makes the files, or asks for them; a folder that is not there ends the run."""
        complaints = []
        for path in self.file_names():
            if "write" in self.accesses:
                try:
                    path.write_bytes(b"x")
                except OSError as err:
                    complaints.append(
                        f'ERROR: open64("{path}", 66, 0664) failed. Error: {err.strerror}, '
                        "(aiori-POSIX.c:569)\n"
                    )
            elif not path.exists():
                complaints.append(
                    f'ERROR: open64("{path}", 0) failed: No such file or directory, '
                    "(aiori-POSIX.c:641)\n"
                )
        if complaints:
            for rank in range(self.tasks):
                print(
                    f"Abort(-1) on node {rank} (rank {rank} in comm 0): application called "
                    f"MPI_Abort(MPI_COMM_WORLD, -1) - process {rank}",
                    file=sys.stderr,
                    flush=True,
                )
            raise _Stop(255, head + "".join(complaints))

    def remove(self) -> None:
        if "k" in self.options:
            return
        for path in self.file_names():
            path.unlink(missing_ok=True)

    # -- reports ----------------------------------------------------------------------------

    def text(self) -> str:
        date = time.strftime("%a %b %d %H:%M:%S %Y")
        first = self.path + (".00000000" if self.apart else "")
        if self.json:
            self.touch("")
            results = self.measure()
            self.remove()
            content = self._json(date, first, results)
            if self.summary_file:
                Path(self.summary_file).write_text(content)
                return f"Writing output to {self.summary_file}\n"
            return content
        head = self._head(date, first)
        self.touch(head)
        results = self.measure()
        self.remove()
        return head + self._table(results) + f"Finished            : {date}\n"

    @property
    def _order(self) -> str:
        if "C" in self.options or "Q" in self.options:
            return "constant task offset"
        return "random task offset" if "Z" in self.options else "no tasks offsets"

    def _head(self, date: str, first: str) -> str:
        lines = [
            "IOR-4.0.0: MPI Coordinated Test of Parallel I/O",
            f"Began               : {date}",
            f"Command line        : {' '.join(self.run.words)}",
            f"Machine             : Linux {self.run.nodes[0]}",
            "TestID              : 0",
            f"StartTime           : {date}",
            *self._place(first),
            "",
            "Options: ",
        ]
        lines += [f"{key:<20}: {value}" for key, value in self._settings()]
        lines += [
            "",
            "Results: ",
            "",
            "access    bw(MiB/s)  IOPS       Latency(s)  block(KiB) xfer(KiB)  open(s)    wr/rd(s)"
            "   close(s)   total(s)   iter",
            "------    ---------  ----       ----------  ---------- ---------  --------   --------"
            "   --------   --------   ----",
        ]
        return "".join(f"{line}\n" for line in lines)

    @staticmethod
    def _place(first: str) -> list[str]:
        """The file system, where the folder exists."""
        if not Path(first).parent.is_dir():
            return ["WARNING: Backend returned error during statfs"]
        return [
            f"Path                : {first}",
            "FS                  : 252.0 GiB   Used FS: 5.8%   Inodes: 16.0 Mi   Used Inodes: 2.7%",
        ]

    def _settings(self) -> list[tuple[str, object]]:
        settings: list[tuple[str, object]] = [
            ("api", self.api),
            ("apiVersion", "(3.1)" if self.api == "MPIIO" else ""),
            ("test filename", self.path),
            ("access", "file-per-process" if self.apart else "single-shared-file"),
            ("type", "collective" if "c" in self.options else "independent"),
            ("segments", self.segments),
            ("ordering in a file", "random" if "z" in self.options else "sequential"),
            ("ordering inter file", self._order),
        ]
        if self._order == "constant task offset":
            settings.append(("task offset", int(self.options.get("Q", 1))))
        settings += [
            ("nodes", len(self.run.nodes)),
            ("tasks", self.tasks),
            ("clients per node", self.run.per_node),
            ("repetitions", self.repetitions),
            ("xfersize", human(self.transfer)),
            ("blocksize", human(self.block)),
            ("aggregate filesize", human(self.block * self.segments * self.tasks)),
        ]
        if "D" in self.options:
            settings += [("stonewallingTime", self.options["D"]), ("stoneWallingWearOut", 0)]
        return settings

    def _warnings(self, row: dict) -> str:
        """What IOR says of a file that a stonewall left smaller, in the midst of its report."""
        if "moved" not in row:
            return ""
        return (
            "WARNING: Expected aggregate file size       = "
            f"{self.block * self.segments * self.tasks}\n"
            f"WARNING: Stat() of aggregate file size      = {row['moved']}\n"
            f"WARNING: Using actual aggregate bytes moved = {row['moved']}\n"
            "WARNING: Maybe caused by deadlineForStonewalling\n"
        )

    def _table(self, results: list[dict]) -> str:
        text = ""
        for row in results:
            text += self._warnings(row)
            cells = [
                (row["access"], 10), (_six(row["rate"]), 11), (_six(row["rate"] * 1.01), 11),
                (f"{row['seconds'] / 50:.6f}", 12), (f"{self.block / 1024:.6g}"[:10], 11),
                (f"{self.transfer / 1024:.2f}", 11), (f"{row['seconds'] / 900:.6f}", 11),
                (f"{row['seconds'] * 0.99:.6f}", 11), (f"{row['seconds'] / 800:.6f}", 11),
                (f"{row['seconds']:.6f}", 11), (row["iter"], 5),
            ]  # fmt: skip
            text += "".join(f"{cell:<{width}}" for cell, width in cells).rstrip() + "   \n"
        text += (
            "\nSummary of all tests:\n"
            "Operation   Max(MiB)   Min(MiB)  Mean(MiB)     StdDev   Max(OPs)   Min(OPs)  Mean(OPs)"
            "     StdDev    Mean(s) Stonewall(s) Stonewall(MiB) Test# #Tasks tPN reps fPP reord"
            " reordoff reordrand seed segcnt   blksiz    xsize aggs(MiB)   API RefNum\n"
        )
        for access in self.accesses:
            rates = [row["rate"] for row in results if row["access"] == access]
            seconds = [row["seconds"] for row in results if row["access"] == access]
            mean = sum(rates) / len(rates)
            ops = 2**20 / self.transfer
            wide = [max(rates), min(rates), mean, _deviation(rates)]
            text += f"{access:<9}"
            text += "".join(f" {value:10.2f}" for value in wide)
            text += "".join(f" {value * ops:10.2f}" for value in wide)
            text += f" {sum(seconds) / len(seconds):10.5f}         NA            NA"
            text += f" {0:5d} {self.tasks:6d} {self.run.per_node:3d} {self.repetitions:4d}"
            offset = int(self.options.get("Q", 1))
            shifted = int(self._order == "constant task offset")
            text += f" {int(self.apart):3d} {shifted:5d} {offset:8d} {int('Z' in self.options):9d}"
            text += f" {0:4d} {self.segments:6d} {self.block:8d} {self.transfer:8d}"
            text += (
                f" {self.block * self.segments * self.tasks / 2**20:9.1f} {self.api:>5} {0:6d}\n"
            )
        return text

    def _json(self, date: str, first: str, results: list[dict]) -> str:
        words = " ".join(self.run.words)
        node = self.run.nodes[0]
        shifted = int(self._order == "constant task offset")
        head = (
            '{\n  "Version": "4.0.0", \n'
            f'  "Began": "{date}", \n  "Command line": {json.dumps(words)}, \n'
            f'  "Machine": "Linux {node}", \n  "tests": [\n    {{\n    "TestID": 0, \n'
            f'    "StartTime": "{date}"    , "Path": "{first}","Capacity": "252.0 GiB", '
            '"Used Capacity": "5.8%","Inodes": "16.0 Mi", "Used Inodes" : "2.7%"\n, \n'
        )
        flags = {
            "testID": 0, "refnum": int(self.options.get("A", 0)), "api": self.api,
            "platform": f"{node.rstrip('0123456789')}(Linux)", "testFileName": self.path,
            "deadlineForStonewall": int(self.options.get("D", 0)), "stoneWallingWearOut": 0,
            "maxTimeDuration": int(self.options.get("T", 0)), "outlierThreshold": 0,
            "options": "(null)", "dryRun": 0, "nodes": len(self.run.nodes), "memoryPerTask": 0,
            "memoryPerNode": 0, "tasksPerNode": self.run.per_node,
            "repetitions": self.repetitions, "multiFile": int("m" in self.options),
            "interTestDelay": 0, "fsync": int("e" in self.options),
            "fsyncperwrite": int("Y" in self.options),
            "useExistingTestFile": int("E" in self.options), "uniqueDir": int("u" in self.options),
            "singleXferAttempt": int("x" in self.options),
            "readFile": int("read" in self.accesses), "writeFile": int("write" in self.accesses),
            "filePerProc": int(self.apart), "reorderTasks": shifted,
            "reorderTasksRandom": int("Z" in self.options), "reorderTasksRandomSeed": 0,
            "randomOffset": int("z" in self.options), "checkWrite": int("W" in self.options),
            "checkRead": int("R" in self.options), "dataPacketType": 0,
            "keepFile": int("k" in self.options), "keepFileWithError": 0, "warningAsErrors": 0,
            "verbose": 0, "data packet type": "g", "setTimeStampSignature/incompressibleSeed": 0,
            "collective": int("c" in self.options), "segmentCount": self.segments,
            "transferSize": self.transfer, "blockSize": self.block,
        }  # fmt: skip
        text = head + '    "Parameters": {\n' + _members(flags, 6) + "\n    }\n, \n"
        text += '    "Options": {\n' + _members(dict(self._settings()), 6) + "\n    }\n, \n"
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
            rows.append(f"{self._warnings(row)}{comma}{members}")
        text += '    "Results": [\n' + "".join(rows) + "]\n\n  }\n]\n, \n" + '"summary": [\n'
        summaries = []
        for access in self.accesses:
            rates = [row["rate"] for row in results if row["access"] == access]
            seconds = [row["seconds"] for row in results if row["access"] == access]
            mean, deviation = sum(rates) / len(rates), _deviation(rates)
            ops = 2**20 / self.transfer
            cells = {
                "operation": access, "API": self.api, "TestID": 0, "ReferenceNumber": 0,
                "segmentCount": self.segments, "blockSize": self.block,
                "transferSize": self.transfer, "numTasks": self.tasks,
                "tasksPerNode": self.run.per_node, "repetitions": self.repetitions,
                "filePerProc": int(self.apart), "reorderTasks": shifted,
                "taskPerNodeOffset": int(self.options.get("Q", 1)),
                "reorderTasksRandom": int("Z" in self.options), "reorderTasksRandomSeed": 0,
                "bwMaxMIB": max(rates), "bwMinMIB": min(rates), "bwMeanMIB": mean,
                "bwStdMIB": deviation, "OPsMax": max(rates) * ops, "OPsMin": min(rates) * ops,
                "OPsMean": mean * ops, "OPsSD": deviation * ops,
                "MeanTime": sum(seconds) / len(seconds),
            }  # fmt: skip
            if "D" in self.options:
                cells |= {"StoneWallTime": min(seconds), "StoneWallbwMeanMIB": mean}
            expected = self.block * self.segments * self.tasks
            moved = [r.get("moved", expected) for r in results if r["access"] == access]
            cells["xsizeMiB"] = moved[-1] / 2**20
            summaries.append("    {\n" + _members(cells, 4) + "\n  }\n")
        return text + ", \n".join(summaries) + f']\n, \n"Finished": "{date}"\n}}\n'


def _members(cells: dict, indent: int) -> str:
    """Members of an object, one a line, with the blank that IOR leaves behind commas."""
    lines = []
    for key, value in cells.items():
        text = f"{value:.4f}" if isinstance(value, float) else json.dumps(value)
        lines.append(f'{" " * indent}"{key}": {text}')
    return ", \n".join(lines)


def _six(value: float) -> str:
    """At most seven signs, as the columns have them."""
    if value >= 1e4:
        return f"{value:.0f}"
    return f"{value:.2f}"


def _deviation(found: list[float]) -> float:
    mean = sum(found) / len(found)
    return (sum((value - mean) ** 2 for value in found) / len(found)) ** 0.5
