#!/usr/bin/env python3
"""Runs Plumbline's GPU checks on a machine with an NVIDIA GPU, and packs what they printed.

    capture.py --list                   what to prepare, for a machine that reaches nothing else
    capture.py --dry-run FOLDER         what would be done
    capture.py FOLDER                   builds what is prepared, runs the checks, packs all

FOLDER has the prepared files. Nothing else is needed but Python, a C++ compiler, make, CMake, a
CUDA toolkit and the driver. Steps that are done are not repeated, so a machine that is lent for
some minutes at a time can be used up: call it again. The measuring is Plumbline's own: its checks,
its records.

Exit codes: 0 if all is done; 1 if a step failed, a program is missing, or a check that this machine
can run was not measured (the captures are packed nevertheless); 2 if this machine or the folder
will not do.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from steps import NCCL_ALL, NCCL_PAIRS, STEPS, Step

HERE = Path(__file__).resolve().parent

#: Spack's recipes of this project; one has a header that the build of Comm|Scope needs.
RECIPES = HERE.parents[1] / "spack-env/repo/spack_repo/plumbline/packages"

#: MiB that can be carried to a machine that is lent.
CARRIED = 64


@dataclass(frozen=True)
class Check:
    """A check of Plumbline that is run.

    :ivar programs: each has test cases of its own. :ivar gpus: how many it needs.
    :ivar alone: whether it is only for a machine with one GPU: with several, another check measures
        the same programs.
    """

    name: str
    programs: tuple[str, ...]
    gpus: int = 1
    alone: bool = False

    def fits(self, gpus: int) -> bool:
        """Return whether it is for a machine with so many GPUs."""
        return self.gpus <= gpus and not (self.alone and gpus > 1)


#: osu_one_gpu and osu_xccl_one_gpu are beside this script.
CHECKS = (
    Check("babelstream_gpu", ("cuda-stream",)),
    Check("commscope_gpu", ("comm_scope",)),
    Check("commscope_d2d", ("comm_scope",), gpus=2),
    Check("osu_gpu", ("osu_latency", "osu_bw", "osu_bibw"), gpus=2),
    Check("osu_xccl_gpu", NCCL_PAIRS, gpus=2),
    Check("osu_xccl_node", NCCL_ALL, gpus=2),
    Check("osu_one_gpu", ("osu_latency", "osu_bw")),
    # NCCL before 2.30 refuses it: an error, whose message is on the sample's standard error.
    Check("osu_xccl_one_gpu", (*NCCL_PAIRS, *NCCL_ALL), alone=True),
)

#: Model as nvidia-smi prints it -> peak of its memory in TB/s, and the document that prints that.
PEAKS = {
    "NVIDIA H200": ("4.8", "NVIDIA H200 Tensor Core GPU datasheet, GPU Memory Bandwidth"),
    "NVIDIA H100 80GB HBM3": ("3.35", "NVIDIA H100 Tensor Core GPU datasheet, H100 SXM"),
}


#: Columns of a reference table.
COLUMNS = (
    "id", "source", "locator", "system", "toolchain", "benchmark", "metric", "placement",
    "message_size", "nodes", "ppn", "conditions", "value", "spread", "unit", "value_used",
    "unit_used", "statistic", "kind", "note",
)  # fmt: skip


#: What is kept of nvidia-smi: file -> arguments.
NVIDIA_SMI = {
    "nvidia-smi-q": ["-q"],
    "nvidia-smi-L": ["-L"],
    "nvidia-smi-topo": ["topo", "-m"],
    "nvidia-smi-help-query-gpu": ["--help-query-gpu"],
    "nvidia-smi-version": ["--version"],
}


class Unsuitable(Exception):
    """The machine or the folder will not do; the text says why, and what to do."""


def printed(*command: str) -> str:
    """Return what a command prints, standard error behind it; empty if it does not exist."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr


def gpus() -> list[list[str]]:
    """Return name and compute capability of each GPU.

    :raises Unsuitable: if this machine is none of those that this script is for.
    """
    if platform.machine() != "x86_64":
        raise Unsuitable(f"this machine is {platform.machine()}, and the wheels are for x86_64")
    query = ("--query-gpu=name,compute_cap", "--format=csv,noheader")
    rows = [line.split(", ") for line in printed("nvidia-smi", *query).splitlines()]
    found = [row for row in rows if len(row) == 2]
    if not found:
        raise Unsuitable(
            "no NVIDIA GPU: nvidia-smi lists none. Run it on a machine with one; --dry-run shows "
            "what it would do"
        )
    return found


class Machine:
    """A folder of prepared files, and the folder in which this script works."""

    def __init__(self, folder: Path, work: Path):
        self.folder, self.work = folder, work.absolute()
        self.prefix = self.work / "prefix"
        self.python = self.work / "venv" / "bin"
        nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
        self.cuda = Path(nvcc).resolve().parents[1]
        self.failed: list[str] = []
        self.not_run: dict[str, str] = {}

    def file(self, step: Step) -> Path | None:
        """Return the prepared file of a step, the last if there are several."""
        return max(self.folder.glob(step.file), default=None)

    def env(self, arch: str = "ARCH") -> dict[str, str]:
        """Return the variables of every step."""
        libraries = os.environ.get("LD_LIBRARY_PATH", "")
        path = [self.python, self.prefix / "bin", self.cuda / "bin", os.environ.get("PATH", "")]
        return {
            **os.environ,
            "RECIPES": str(RECIPES), "PREFIX": str(self.prefix),
            "CUDA": str(self.cuda), "ARCH": arch,
            "NCCL": str(self.nccl() or ""), "JOBS": str(os.cpu_count() or 1),
            "PATH": ":".join(map(str, path)),
            "LD_LIBRARY_PATH": f"{self.prefix}/lib:{self.work}/nccl/lib:{libraries}",
            "PLUMBLINE_SITE": str(self.work / "site"),
            "PLUMBLINE_RESULTS": str(self.work / "results"),
        }  # fmt: skip

    def nccl(self) -> Path | None:
        """Return a prefix of NCCL: the system's, or links to that of NVIDIA's wheel, which has no
        unversioned library."""
        if Path("/usr/include/nccl.h").exists():
            return Path("/usr")
        for wheel in map(Path, sys.path):
            source = wheel / "nvidia" / "nccl"
            library = max(source.glob("lib/libnccl.so.*"), default=None)
            if library is None:
                continue
            links = self.work / "nccl"
            (links / "lib").mkdir(parents=True, exist_ok=True)
            targets = {"include": source / "include", "lib/libnccl.so": library,
                       f"lib/{library.name}": library}  # fmt: skip
            for name, target in targets.items():
                if not (links / name).exists():
                    (links / name).symlink_to(target)
            return links
        return None

    def programs(self) -> dict[str, str]:
        """Return the programs that there are, with their paths."""
        path = self.env()["PATH"]
        found = {name: shutil.which(name, path=path) for step in STEPS for name in step.programs}
        return {name: program for name, program in found.items() if program}

    def missing(self, step: Step) -> list[str]:
        """Return the programs of a step that there are not. If it is prepared, those of PATH do not
        count: an MPI there may not know GPU memory."""
        if self.file(step) is None:
            return [name for name in step.programs if name not in self.programs()]
        return [name for name in step.programs if not (self.prefix / "bin" / name).exists()]

    def needed(self, step: Step) -> bool:
        """Return whether a step's programs are needed."""
        return not step.only_for or any(
            self.file(other) for other in STEPS if other.name == step.only_for
        )

    def fail(self, reason: str) -> None:
        """Note and print what failed."""
        self.failed.append(reason)
        print(reason, flush=True)

    def do(self, name: str, script: str, folder: Path, arch: str, of: str = "") -> bool:
        """Run shell commands, once; return whether they succeeded. Their output is in logs/NAME.

        :arg of: what they depend on. They are run again if it is another text.
        """
        done = self.work / "done" / name
        if done.exists() and done.read_text() == of:
            return True
        print(f"{name} ...", flush=True)
        with (self.work / "logs" / f"{name}.log").open("wb") as log:
            code = subprocess.run(
                ["bash", "-euxo", "pipefail", "-c", script], cwd=folder, env=self.env(arch),
                stdout=log, stderr=subprocess.STDOUT, check=False,
            ).returncode  # fmt: skip
        if code:
            self.fail(f"{name} ended with exit code {code}: logs/{name}.log")
        else:
            done.write_text(of)
        return not code

    def build(self, step: Step, arch: str) -> None:
        """Build the programs of a prepared file, and note those that are missing then."""
        if not self.needed(step) or not self.missing(step):
            return
        file = self.file(step)
        if file is None:
            why = f"no {step.file} in the folder, and not on PATH"
        else:
            folder = self.work / "build" / step.name
            if not folder.exists():
                folder.mkdir(parents=True)
                # Python before 3.12 need not have tarfile's filters.
                shutil.unpack_archive(file, folder)
            inside = next(path for path in folder.iterdir() if path.is_dir())
            nccl = str(self.nccl() or "")
            # What was built without NCCL is built again with it.
            if not self.do(step.name, step.script, inside, arch, of=nccl):
                return
            why = f"built with {f'NCCL of {nccl}' if nccl else 'no NCCL'}: logs/{step.name}.log"
        if missing := self.missing(step):
            self.fail(f"{step.name}: missing {', '.join(missing)}: {why}")

    def measure(self, arch: str, gpus: int) -> None:
        """Run the checks, and note those that were not measured."""
        programs = self.programs()
        wanted, self.not_run = runnable(programs, gpus)
        for check, reason in self.not_run.items():
            print(f"not run: {check}: {reason}", flush=True)
        if not wanted:
            return
        # A program that was added or built since is measured, too.
        of = "".join(f"{path}\n" for path in sorted(programs.values()))
        self.do("measure", measure_script(gpus), self.work, arch, of)
        if lacking := unmeasured(wanted, self.records()):
            (self.work / "done" / "measure").unlink(missing_ok=True)
        for reason in lacking:
            self.fail(reason)

    def records(self) -> list[dict[str, str]]:
        """Return the records of the last session."""
        files = (self.work / "results").rglob("records.jsonl")
        last = max(files, key=lambda file: file.stat().st_mtime, default=None)
        return [json.loads(line) for line in last.read_text().splitlines()] if last else []


#: A check and one of its programs.
Pair = tuple[str, str]


def runnable(programs: Iterable[str], gpus: int) -> tuple[list[Pair], dict[str, str]]:
    """Return what a machine with these programs and so many GPUs can run; and the checks that no
    machine with so few can, with the reason."""
    have = set(programs)
    wanted = [
        (check.name, program)
        for check in CHECKS
        for program in check.programs
        if check.fits(gpus) and program in have
    ]
    few = [check for check in CHECKS if check.gpus > gpus]
    return wanted, {check.name: f"it needs {check.gpus} GPUs, and there is {gpus}" for check in few}


def unmeasured(wanted: Iterable[Pair], records: list[dict[str, str]]) -> list[str]:
    """Return which checks have no measurement, or a test case that did not pass, and why."""
    found: dict[Pair, list[dict[str, str]]] = {}
    for record in records:
        found.setdefault((record["check"].split()[0], record["program"]), []).append(record)
    reasons = []
    for check, program in wanted:
        if (check, program) not in found:
            reasons.append(f"{check}: no test case with {program}: logs/measure.log")
        for record in found.get((check, program), []):
            if record["result"] not in ("pass", "waived"):
                why = record["reason"] or record["result"]
                reasons.append(f"{record['check']} with {program}: {why}")
    return reasons


def wheels_script(folder: Path) -> str:
    """Return the commands that install Plumbline and what the machine's Python lacks of its
    needs."""  # numpy and scipy are large; a machine with a CUDA toolkit often has them.
    # Python may be that of a virtual environment, which hides its packages from those made with it.
    outer = "import site; print(*site.getsitepackages(), sep=chr(10))"
    inner = "import sysconfig; print(sysconfig.get_path('purelib'))"
    return (
        '"$PYTHON" -m venv --without-pip --system-site-packages "$VENV"\n'
        '"$PYTHON" -m pip --python "$VENV/bin/python" install --no-index --no-deps '
        f"{shlex.quote(str(folder))}/*.whl\n"
        f'"$PYTHON" -c {shlex.quote(outer)} '
        f'>"$("$VENV/bin/python" -c {shlex.quote(inner)})/outer.pth"\n'
        '"$VENV/bin/plumbline" --version'
    )


def measure_script(gpus: int) -> str:
    """Return the commands that measure on a machine with so many GPUs."""
    names = [check.name for check in CHECKS if check.gpus > gpus or check.fits(gpus)]
    selected = rf"^({'|'.join(names)})\b"
    return (
        "plumbline doctor || true\n"
        f"plumbline run --system local -p '^path$' -n {shlex.quote(selected)}"
    )


def lay_out_site(machine: Machine, model: str) -> None:
    """Write the site's folder: the check for one GPU, and the peak of the GPU's memory."""
    site = machine.work / "site"
    for name in ("checks", "reference"):
        (site / name).mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "osu_one_gpu.py", site / "checks")
    if model not in PEAKS:
        return
    peak, locator = PEAKS[model]
    sources = f"vendor:\n  title: {locator.partition(',')[0]}\n  authors: NVIDIA\n"
    (site / "reference" / "sources.yaml").write_text(sources)
    row = {
        "id": "device-memory-bandwidth-peak", "source": "vendor", "locator": locator,
        "system": "local", "benchmark": "babelstream", "metric": "memory_bandwidth",
        "placement": "per-gpu", "conditions": f"host={platform.node()}", "value": peak,
        "unit": "TB/s", "statistic": "unstated", "kind": "peak",
    }  # fmt: skip
    with (site / "reference" / "device.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS)
        table.writeheader()
        table.writerow(row)


def keep(machine: Machine, when: str) -> None:
    """Keep what nvidia-smi prints, before or after the runs."""
    for name, arguments in NVIDIA_SMI.items():
        (machine.work / "captures" / f"{name}.{when}.txt").write_text(
            printed("nvidia-smi", *arguments)
        )


def describe(machine: Machine) -> None:
    """Write machine.json: the machine, its versions, and the files that programs were built of."""
    files = sorted(path for path in machine.folder.rglob("*") if path.is_file())
    facts = {
        "gpus": gpus(),
        "uname": " ".join(platform.uname()),
        "python": sys.version,
        "nvcc": printed(str(machine.cuda / "bin" / "nvcc"), "--version"),
        "driver": printed("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
        "prepared": {
            str(path.relative_to(machine.folder)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in files
        },
        "failed": machine.failed,
        "not_run": machine.not_run,
    }
    (machine.work / "captures" / "machine.json").write_text(json.dumps(facts, indent=2) + "\n")


def run(machine: Machine, out: Path) -> int:
    """Do all steps, and pack the captures; return the exit code."""
    found = gpus()
    model, capability = found[0]
    arch = capability.replace(".", "")
    for name in ("logs", "done", "captures", "build"):
        (machine.work / name).mkdir(parents=True, exist_ok=True)
    lay_out_site(machine, model)
    keep(machine, "before")
    python, venv = map(shlex.quote, (sys.executable, str(machine.python.parent)))
    script = f"PYTHON={python} VENV={venv}\n{wheels_script(machine.folder)}"
    if machine.do("wheels", script, machine.work, arch):
        for step in STEPS:
            machine.build(step, arch)
        machine.measure(arch, len(found))
    keep(machine, "after")
    describe(machine)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(out, "w:gz") as archive:
        for name in ("captures", "logs", "results", "site"):
            if (machine.work / name).exists():
                archive.add(machine.work / name, name)
    print(f"captures: {out}")
    return 1 if machine.failed else 0


def listing() -> str:
    """Return what to prepare."""
    lines = [
        f"Put these into one folder, {CARRIED} MiB at most in all:",
        "",
        "  *.whl  Plumbline itself and what the machine's Python lacks of its dependencies:",
        "         pip wheel --no-deps .; pip download --only-binary=:all: -d FOLDER ...",
    ]
    for step in STEPS:
        lines += [f"  {step.file}  gives {', '.join(step.programs)}", f"         {step.source}"]
    lines += [
        "",
        "A program that is not prepared is taken from the machine's PATH, and is missing if it",
    ]
    lines += [
        "is not there either. The machine needs CUDA's toolkit and driver, a C++ compiler, make",
        "and CMake. NCCL is the system's, or that of NVIDIA's Python wheel, which is larger than",
        "what can be carried: python3 -m pip install nvidia-nccl-cu12 on the machine, with the",
        "Python that runs this script. With one GPU it must be 2.30 or later: older ones refuse",
        "two ranks on it.",
    ]
    return "\n".join(lines)


def plan(machine: Machine) -> str:
    """Return what would be done, as text."""
    size = sum(path.stat().st_size for path in machine.folder.rglob("*") if path.is_file())
    lines = [f"folder: {machine.folder} ({size / 2**20:.1f} MiB of {CARRIED} that can be carried)"]
    lines += [f"work:   {machine.work}", "", "wheels"]
    wheels = sorted(path.name for path in machine.folder.glob("*.whl"))
    lines += [f"    {name}" for name in wheels or ["none: Plumbline cannot be installed"]]
    for step in STEPS:
        missing = machine.missing(step)
        if (file := machine.file(step)) is not None:
            state = f"of {file.name}" if missing else "built already"
        elif not machine.needed(step):
            state = f"not needed: {step.only_for} is not built"
        elif missing:
            state = f"no {step.file} in the folder, and not on PATH: {', '.join(missing)}"
        else:
            state = "taken from PATH"
        lines += [f"{step.name}: {state}"]
        lines += [f"    {step.script}"] if file and missing else []
    lines += ["measure", *(f"    {line}" for line in measure_script(1).splitlines())]
    lines += ["keep", *(f"    nvidia-smi {' '.join(words)}" for words in NVIDIA_SMI.values())]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, help="with the prepared files")
    parser.add_argument("--list", action="store_true", help="print what to prepare")
    parser.add_argument("--dry-run", action="store_true", help="print the plan")
    parser.add_argument("--work", type=Path, default=Path(".device"), help="[default: .device]")
    parser.add_argument("--out", type=Path, help="[default: captures.tar.gz in the work folder]")
    options = parser.parse_args()
    if options.list:
        print(listing())
        return 0
    try:
        if options.folder is None or not options.folder.is_dir():
            raise Unsuitable(f"{options.folder}: no folder of prepared files; --list says which")
        machine = Machine(options.folder.resolve(), options.work)
        if options.dry_run:
            print(plan(machine))
            return 0
        return run(machine, options.out or machine.work / "captures.tar.gz")
    except Unsuitable as err:
        print(f"capture.py: {err}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
