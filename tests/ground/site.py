"""What an operator of the proving ground does: the system file, and nights."""

from __future__ import annotations

import datetime
import json
import re
import shutil
import subprocess
import time
from pathlib import Path

import nap
import yaml
from conftest import MPICH, ROOT
from login_node import LoginNode
from records import records_of

from ground.machine import SCRATCH

#: IMB's repetitions, of any message and of one of 1 MiB: a fabric of 50 Mbit/s carries six such
#: messages a second, where IMB's own forty, in both directions, take thirteen seconds. Twelve take
#: four: longer than the steps of a round take to start, so that its pairs send at the same time.
REPETITIONS = "400,12"

#: How the site's IMB is started: as on real nodes, the tasks of a pair are never on one core. All
#: nodes share this machine's, and the kernel leaves two tasks that poll on one of them for tenths
#: of a second, in which a latency of 20 us becomes one of 500.
PINNED = "exec taskset --cpu-list $((SLURM_PROCID % 2))"

#: Debian's programs. Its Slurm lists a PMIx that it cannot load, and they are without MPI.
PROGRAMS = {"name": "path", "features": ["fio"], "extras": {"provider": "path"}}

#: A check of the site's own: ReFrame's, and its program is beside it.
CHECK = """\
import reframe as rfm
import reframe.utility.sanity as sn


@rfm.simple_test
class cores(rfm.RunOnlyRegressionTest):
    valid_systems = ["*"]
    valid_prog_environs = ["path"]
    executable = "{program}"

    @sanity_function
    def ended(self):
        return sn.assert_found("^work:", self.stdout)

    @performance_function("Mop/s")
    def work(self):
        return sn.extractsingle(r"^work: (\\S+)", self.stdout, 1, float)
"""

#: What one night measures: all pairs of nodes; and each node's disk and cores by itself, with
#: little data.
PAIRS = ("-n", "imb_node_pairs", "-S", "imb_node_pairs.num_samples=1")
NODES = ("-n", "fio|cores", "-S", "fio.size=32", "-S", "fio.num_samples=3", "-S",
         "fio.num_warmups=0")  # fmt: skip

#: The date of a time, as sessions are called and as records have it.
DATE = re.compile(r"(?<!\d)(\d{4})(-?)(\d{2})\2(\d{2})(?=T\d)")


class Site(LoginNode):
    """A site's folder on the login node of the proving ground.

    :ivar repetitions: IMB's, of any message, and in MiB of a message size.
    :ivar strict: whether sessions are under strict rules: there is a baseline. Sweeps have no such
        rules, but compare with the baseline.
    """

    system = "ground"
    repetitions = REPETITIONS
    strict = False

    def draft(self) -> None:
        """The system file by the commands of docs/onboarding.md, and what it says is open."""
        self.expect(0, "init", self.system, "-p", "batch", "--probe")
        file = self.folder / "systems" / f"{self.system}.yaml"
        content = yaml.safe_load(file.read_text())
        (partition,) = content["systems"][0]["partitions"]
        extras = partition["extras"]
        extras["file_systems"] = {"scratch": {"path": SCRATCH, "node_local": True}}
        content["environments"] = [self._imb(), PROGRAMS | {"target_systems": [self.system]}]
        partition["environs"] = ["mpich", "path"]
        # The nodes share the cores of this machine: jobs at once would measure each other.
        partition["max_jobs"] = 1
        file.write_text(yaml.safe_dump(content, sort_keys=False))
        checks, program = self.folder / "checks", self.folder / "programs" / "work"
        checks.mkdir()
        nap.compiled(Path(__file__).with_name("work.c"), program)
        (checks / "cores.py").write_text(CHECK.format(program=program))
        self.expect(0, "lint", "--system", self.system, "--accept")

    def _imb(self) -> dict:
        """The site's own IMB: it repeats less, and each task has a core."""
        program = self.folder / "programs" / "IMB-MPI1"
        program.parent.mkdir()
        imb = ROOT / ".tools" / "imb" / "bin" / "IMB-MPI1"
        program.write_text(f'#!/bin/sh\n{PINNED} {imb} "$@" -iter {self.repetitions}\n')
        program.chmod(0o755)
        return self._environment("mpich", ["imb"], [program.parent])

    def _environment(
        self, name: str, features: list[str], folders: list[Path], **extras: object
    ) -> dict:
        """Programs in some folders, with the MPI of `make run`."""
        path = ":".join(dict.fromkeys(map(str, folders)))
        return {
            "name": name,
            "features": features,
            "extras": {"provider": "path", **extras},
            "env_vars": [
                ["PATH", f"{path}:$PATH"],
                ["LD_LIBRARY_PATH", f"{MPICH.parent}/lib:$LD_LIBRARY_PATH"],
            ],
            "target_systems": [self.system],
        }

    def add(self, name: str, features: list[str], programs: list[Path], **extras: object) -> None:
        """Adds an environment with programs that the site has built itself.

        :arg programs: one of each folder.
        """
        # Its launcher is how the MPI of the programs is known.
        folders = [*(program.parent for program in programs), MPICH]
        file = self.folder / "systems" / f"{self.system}.yaml"
        content = yaml.safe_load(file.read_text())
        content["environments"].append(self._environment(name, features, folders, **extras))
        (partition,) = content["systems"][0]["partitions"]
        partition["environs"].append(name)
        file.write_text(yaml.safe_dump(content, sort_keys=False))

    def expect(self, code: int, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs a command of Plumbline's.

        :raises AssertionError: if it ends with another exit code.
        """
        done = self.plumbline(*words)
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    # -- nights ---------------------------------------------------------------------------

    def pairs(self, seed: int = 0) -> subprocess.CompletedProcess[str]:
        """Measures pairs of all nodes."""
        nodes = ("-S", f"imb_node_pairs.nodes={len(self.there.names)}")
        drawn = ("-S", f"imb_node_pairs.pair_seed={seed}")
        rules = ["--strict"] * self.strict
        return self.plumbline("run", "--system", self.system, *rules, *PAIRS, *nodes, *drawn)

    def nodes(self) -> subprocess.CompletedProcess[str]:
        """Measures each node by itself."""
        return self.sweep("batch", "--jobs", "2", *NODES)

    def learn(self) -> None:
        """Makes the baseline of the nights so far; those that follow are under strict rules."""
        self.expect(0, "baseline", self.system)
        self.expect(0, "lint", "--system", self.system, "--accept")
        self.strict = True

    def screen(self) -> tuple[int, list[dict]]:
        """The exit code of ``plumbline screen``, and what it flags."""
        topology = str(self.there.folder / "topology.conf")
        done = self.plumbline("screen", "--topology", topology, "--format", "json")
        return done.returncode, json.loads(done.stdout or "[]")

    def changed(self, fact: str) -> set[str]:
        """The nodes of which ``plumbline compare`` lists changed facts, tonight against before.

        :arg fact: the end of their names, as ``address`` of ``net.fab0.address``.
        """
        today = datetime.datetime.now(datetime.timezone.utc).date()
        sides = f"..{today - datetime.timedelta(days=1)}", f"{today}.."
        found = json.loads(self.plumbline("compare", *sides, "--format", "json").stdout or "{}")
        changes = (found.get("surroundings") or {"hosts": []})["hosts"]
        return {
            node for change in changes if change["what"].endswith(fact) for node in change["where"]
        }

    def day_passes(self) -> None:
        """Dates every session back a day: nights follow each other within the hour."""
        for folder in sorted(self.results.glob("sessions/*")) + sorted(
            self.results.glob("sweeps/*")
        ):
            for path in folder.rglob("*.json*"):
                path.write_text(DATE.sub(_day_before, path.read_text()))
            folder.rename(folder.with_name(DATE.sub(_day_before, folder.name)))
        for index in self.results.glob("*.duckdb*"):
            index.unlink()

    def keep(self, folder: Path) -> None:
        """Copies the results to a folder."""
        shutil.copytree(self.results, folder)

    def restore(self, folder: Path) -> None:
        """Sets the results back to what a folder keeps."""
        shutil.rmtree(self.results)
        shutil.copytree(folder, self.results)

    def tonight(self) -> list[dict]:
        """The records of tonight's sessions."""
        folders = sorted(self.results.glob(f"sessions/{time.strftime('%Y%m%d', time.gmtime())}*"))
        return [fields for folder in folders for fields in records_of(folder)]


def _day_before(found: re.Match) -> str:
    day = datetime.date(int(found[1]), int(found[3]), int(found[4])) - datetime.timedelta(days=1)
    return day.strftime(f"%Y{found[2]}%m{found[2]}%d")
