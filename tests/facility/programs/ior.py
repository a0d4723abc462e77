"""IOR 4.0.0 (src/parse_options.c, src/ior-output.c): its captured report in JSON, with what the run
itself decides put in, and the options that the checks use."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from ..options import Options, Refused, read
from ..run import CAPTURES, Run
from ..values import Values

#: A report of the options ``-a POSIX -F -w -r -C -e``.
REPORT = CAPTURES / "ior" / "v400_mpich_json.out"

TABLE = "-a= -b= -C -D= -e -F -O= -o= -r -s= -t= -w -z --posix.odirect --random-offset-seed="

#: Files beyond this many are not made: what a program leaves behind shows with a few.
FILES = 64


def play(run: Run) -> Iterator[tuple[int, str, int]]:
    options, rest = read(run.words[1:], TABLE, "ior")
    if rest:
        raise Refused(f"Error invalid argument: {rest[0]}")
    yield 0, _Report(run, options).text(), 0


class _Report:
    def __init__(self, run: Run, options: Options):
        self.run = run
        self.options = options
        self.values = Values(run)
        self.api = str(options["a"])
        settings = options.pairs("O")
        if settings.get("summaryFormat") != "JSON":
            raise Refused("a report that is not JSON: no stand-in", 255)
        self.apart = "F" in options
        self.block, self.transfer = int(options["b"]), int(options["t"])
        self.segments = int(options.get("s", 1))
        self.path = str(options["o"])
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
        for access in ("write", "read"):
            rate = self.values.ior(access, **conditions)
            if access == "read" and self._cached():
                # A file that this node wrote lies in its memory still.
                rate *= 15
            rate = self.values.measured(rate, False)
            seconds = size / 2**20 / rate
            if self.limit and seconds > self.limit:
                # The stonewall ends the run; what it moved by then is what counts, and is read.
                seconds, size = self.limit, int(rate * self.limit) * 2**20
            found.append({"access": access, "rate": rate, "seconds": seconds, "moved": size})
        return found

    def _cached(self) -> bool:
        """Whether a read finds what the same node has just written."""
        own = not self.shifted or len(self.run.nodes) == 1
        return own and "posix.odirect" not in self.options

    # -- files ------------------------------------------------------------------------------

    def file_names(self) -> list[Path]:
        count = min(self.tasks, FILES) if self.apart else 1
        return [
            Path(f"{self.path}.{rank:08d}" if self.apart else self.path) for rank in range(count)
        ]

    def touch(self) -> None:
        """Makes the files; a folder that is not there ends the run."""
        complaints = []
        for path in self.file_names():
            try:
                path.write_bytes(b"x")
            except OSError as err:
                complaints.append(
                    f'ERROR: open64("{path}", 66, 0664) failed. Error: {err.strerror}, '
                    "(aiori-POSIX.c:569)"
                )
        if complaints:
            for rank in range(self.tasks):
                print(
                    f"Abort(-1) on node {rank} (rank {rank} in comm 0): application called "
                    f"MPI_Abort(MPI_COMM_WORLD, -1) - process {rank}",
                    file=sys.stderr,
                    flush=True,
                )
            raise Refused("\n".join(complaints), 255)

    def remove(self) -> None:
        for path in self.file_names():
            path.unlink(missing_ok=True)

    # -- the report -------------------------------------------------------------------------

    def text(self) -> str:
        self.touch()
        results = self.measure()
        self.remove()
        report = json.loads(REPORT.read_text())
        (test,) = report["tests"]
        test["Parameters"] |= {
            "api": self.api, "testFileName": self.path, "nodes": len(self.run.nodes),
            "tasksPerNode": self.run.per_node, "filePerProc": int(self.apart),
            "deadlineForStonewall": int(self.limit), "stoneWallingWearOut": self.worn_out,
            "randomOffset": int("z" in self.options), "reorderTasks": self.shifted,
            "segmentCount": self.segments, "transferSize": self.transfer, "blockSize": self.block,
        }  # fmt: skip
        test["Options"] = self._settings()
        test["Results"] = [
            captured | {
                "access": row["access"], "bwMiB": round(row["rate"], 4),
                "blockKiB": self.block / 1024, "xferKiB": self.transfer / 1024,
                "totalTime": round(row["seconds"], 4),
            }
            for captured, row in zip(test["Results"], results, strict=True)
        ]  # fmt: skip
        report["summary"] = [
            captured | self._summary(row)
            for captured, row in zip(report["summary"], results, strict=True)
        ]
        head, mark, rest = json.dumps(report, indent=2).partition('"Results": [\n')
        return f"{head}{mark}{''.join(map(self._remarks, results))}{rest}\n"

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
            "nodes": len(self.run.nodes),
            "tasks": self.tasks,
            "clients per node": self.run.per_node,
            "repetitions": 1,
        }
        if self.limit:
            settings |= {"stonewallingTime": int(self.limit), "stoneWallingWearOut": self.worn_out}
        return settings

    def _summary(self, row: dict) -> dict[str, object]:
        rate = round(row["rate"], 4)
        return {
            "operation": row["access"], "API": self.api, "segmentCount": self.segments,
            "blockSize": self.block, "transferSize": self.transfer, "numTasks": self.tasks,
            "tasksPerNode": self.run.per_node, "filePerProc": int(self.apart),
            "reorderTasks": self.shifted, "bwMaxMIB": rate, "bwMinMIB": rate, "bwMeanMIB": rate,
            "MeanTime": round(row["seconds"], 4), "xsizeMiB": row["moved"] / 2**20,
        }  # fmt: skip

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
