"""Fixtures of the end-to-end tests: a test system on which the real commands run."""

from __future__ import annotations

import atexit
import contextlib
import csv
import functools
import gc
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import dry_runs
import forked
import hypothesis
import pytest
import yaml
from click.testing import CliRunner
from own_machine import BIN, plain_path, two_cores
from plumbline.check.scratch import has_direct_io
from plumbline.cli import main
from plumbline.core.errors import Fault
from plumbline.session import plan
from records import records_of

ROOT = Path(__file__).resolve().parents[1]
CHECKS = ROOT / "checks"
STANDINS = ROOT / "tests" / "standins"
MPICH = ROOT / ".tools" / "mpich" / "bin"

# Containers often set it, and then each of some thousand processes would compile all that it loads.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Commands outside a test system consider this machine idle, and have their own lock.
os.environ["PLUMBLINE_OTHERS"] = "0"
os.environ["PLUMBLINE_LOCKS"] = tempfile.mkdtemp(prefix="plumbline-locks-")
# Nor do they see what a developer keeps in site/.
os.environ["PLUMBLINE_SITE"] = f"{os.environ['PLUMBLINE_LOCKS']}/site"
atexit.register(shutil.rmtree, os.environ["PLUMBLINE_LOCKS"], ignore_errors=True)

# The ReFrame that a command within this process starts is forked, as the commands of the tests are.
plan.subprocess = SimpleNamespace(run=forked.completed)

# There are millions of objects once all tests are loaded, and each full collection looks at all: a
# tenth of the CPU time of tests that start no process.
gc.set_threshold(50_000)

# No test asserts how long something takes: cores may be busy.
hypothesis.settings.register_profile("plumbline", deadline=None)
hypothesis.settings.load_profile("plumbline")

#: Seconds after which a command of a test system is stopped, and its test fails.
PATIENCE = 600

#: Columns of a reference table that the tests use.
COLUMNS = [
    *("id", "source", "locator", "system", "toolchain", "benchmark", "metric", "placement"),
    *("message_size", "nodes", "ppn", "conditions", "value", "spread", "unit", "statistic", "kind"),
]


#: The slowest test files, the slowest first.
SLOWEST = [
    *("facility", "cluster", "ground", "tutorial"),
    *("report_browser", "commands", "sweep", "nightly", "nightly_interrupted", "onboarding"),
    *("inventories", "kill", "facility_faults", "fuzz", "pairs", "report_scale", "report_heat"),
    *("report_sessions", "report_node_pages", "report_compare", "checks", "queues"),
    *("site_configuration", "screen_pairs", "screen_nodes", "screen_figures", "screen_history"),
    *("plain_baseline", "plain_faults", "plain_figures", "reframe_versions", "trend", "faults"),
    *("throttling_wrapper", "session", "inventory", "host"),
    *("own_benchmark", "compare", "power", "history_index", "history_duckdb", "interrupted"),
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the slowest files first, so that no worker is idle for long at the end."""
    rank = {f"test_{name}": position for position, name in enumerate(SLOWEST)}
    items.sort(key=lambda item: rank.get(item.path.stem, len(SLOWEST)))


@dataclass(frozen=True)
class Done:
    """A command that ended.

    :ivar sessions: folders of the sessions that it created.
    """

    code: int
    out: str
    err: str
    sessions: list[Path] = field(default_factory=list)

    @property
    def output(self) -> str:
        """Standard output and standard error."""
        return self.out + self.err

    @property
    def codes(self) -> list[str]:
        """The reason codes at the ends of the lines that it printed."""
        return codes_in(self.output)

    @property
    def session(self) -> Path:
        """The folder of the only session that it created."""
        (folder,) = self.sessions
        return folder

    @property
    def end(self) -> dict:
        """What its one session wrote at its end: exit code, notes, and faults."""
        return json.loads((self.session / "end.json").read_text())

    @property
    def records(self) -> list[dict]:
        """The records of its sessions, validated against the schema."""
        return [fields for folder in self.sessions for fields in records_of(folder)]

    def record(self, check: str, environment: str | None = None) -> dict:
        """Return the only record of a check whose name contains all words of ``check``."""
        found = [
            fields
            for fields in self.records
            if set(check.split()) <= set(fields["check"].replace("%", " ").split())
            and environment in (None, fields["environment"])
        ]
        assert len(found) == 1, f"{len(found)} records of {check} {environment}\n{self.output}"
        return found[0]


def codes_in(output: str) -> list[str]:
    """The reason codes, in brackets, at the ends of lines."""
    return re.findall(r"\[([a-z]+\.[a-z-]+)\]$", output, re.M)


def asked(*arguments: object, **env: object) -> Done:
    """Run ``plumbline`` in this process, which reads all files again."""
    empty_caches()
    variables = {key: str(value) for key, value in env.items()}
    words = [str(word) for word in arguments]
    result = CliRunner().invoke(main, words, env=variables, catch_exceptions=False)
    return Done(result.exit_code, result.stdout, result.stderr)


def refused(done: Done, *parts: str) -> None:
    """Check that a command failed with exit code 2 and one or two lines, and ran no case."""
    lines = done.err.strip().splitlines()
    assert done.code == 2, done.output
    assert 1 <= len(lines) <= 2, done.output
    assert lines[0].startswith("plumbline: ")
    assert "Traceback" not in done.output and "  File " not in done.err
    for part in parts:
        assert part in done.err
    assert done.records == []


def fault_of(call: Callable[[], object], code: str, *parts: str) -> None:
    """Check that a call is refused with a code, and a message that has these parts."""
    with pytest.raises(Fault) as refusal:
        call()
    assert refusal.value.code == code, refusal.value
    for part in parts:
        assert part in str(refusal.value)


CHECK = """\
import reframe as rfm
from plumbline.check.benchmark import Benchmark, Figure


@rfm.simple_test
class NAME(Benchmark):
FIELDS

    def figures(self):
        return [Figure(*wanted) for wanted in self.wanted]
"""


def _as_a_user_starts_it(cores: set[int]) -> None:
    """Set the cores of a new process, and restore SIGINT, which background jobs of a shell ignore,
    as these tests may be one."""
    os.sched_setaffinity(0, cores)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Testbed:
    """A system in its own folder, with the environment variables of its commands."""

    __test__ = False
    #: Whether commands may be forked: not if :meth:`start` puts others before them.
    forks = True

    def __init__(self, folder: Path, scratch: Path, name: str = "testbed"):
        self.name = name
        self.folder = folder
        self.systems = folder / "systems"
        self.reference = folder / "reference"
        self.results = folder / "results"
        self.scratch = scratch
        self.home = folder / "home"
        for path in (self.systems, self.reference, self.results, self.home):
            path.mkdir()
        self.environments: list[dict] = []
        self.patience = PATIENCE
        kept = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("PLUMBLINE_", "RFM_", "STANDIN_", "PYTEST_"))
        }
        self.env = kept | {
            "HOME": str(self.home),
            "PATH": f"{BIN}:{plain_path()}",
            "PLUMBLINE_SITE": str(self.folder),
            "PLUMBLINE_RESULTS": str(self.results),
            "PLUMBLINE_SCRATCH": str(self.scratch),
            # Each test system counts as a separate host, which is idle.
            "PLUMBLINE_LOCKS": str(self.home),
            "PLUMBLINE_OTHERS": "0",
            "RFM_CONFIG_FILES": str(ROOT / "reframe" / "settings.py"),
            "RFM_COLORIZE": "0",
        }

    # -- the system ---------------------------------------------------------------------------

    def imb(self, name: str = "pip", provider: str = "pip") -> None:
        """Add an environment with the real Intel MPI Benchmarks, and write the system."""
        extras = {"extras": {"provider": provider}, "target_systems": [self.name]}
        self.environments.append({"name": name, "features": ["imb"], **extras})
        self.write()

    def lacking(self) -> None:
        """Add an environment whose program is not installed, and write the system."""
        self.imb("lacks")
        self.env["PLUMBLINE_TOOLS"] = str(self.folder / "no-tools")

    def environment(
        self,
        name: str,
        features: str = "imb hpcc fio",
        output: Path | None = None,
        wrong: str = "",
        provider: str = "path",
        **variables: object,
    ) -> None:
        """Add environment ``name`` to the system, with the stand-ins first on PATH.

        MPI programs are started by MPICH's mpiexec. fio has no launcher, and so its own environment
        ``name-io``.

        :arg output: folder with the captures that the stand-ins print.
        :arg wrong: folder of ``standins/wrong`` whose launchers come before the real ones.
        :arg variables: further variables of the stand-ins.
        """
        path = [STANDINS / "wrong" / wrong] if wrong else []
        path += [STANDINS, MPICH]
        found = {
            "PATH": ":".join([*map(str, path), "$PATH"]),
            "STANDIN_OUTPUT": str(output or STANDINS / "outputs"),
            **{key: str(value) for key, value in variables.items()},
        }
        kinds = {
            name: ([f for f in features.split() if f != "fio"], {"launcher": "mpiexec"}),
            f"{name}-io": ([f for f in features.split() if f == "fio"], {}),
        }
        for key, (wanted, extras) in kinds.items():
            if wanted:
                self.environments.append(
                    {
                        "name": key,
                        "features": wanted,
                        "extras": {"provider": provider, **extras},
                        "env_vars": [[k, v] for k, v in found.items()],
                        "target_systems": [self.name],
                    }
                )
        self.write()

    def write(self, **partition: object) -> Path:
        """Write the system's file."""
        path = self.systems / f"{self.name}.yaml"
        node = {
            "name": "node",
            "scheduler": "local",
            "launcher": "local",
            "environs": [environment["name"] for environment in self.environments],
            # The stand-ins measure nothing, so they may run concurrently.
            "max_jobs": 4,
            "extras": {"detect": True},
            **partition,
        }
        # Only the machine at hand may take every host name.
        host = ".*" if self.name == "local" else f"^{re.escape(socket.gethostname())}$"
        system = {"name": self.name, "hostnames": [host], "partitions": [node]}
        content = {"systems": [system], "environments": self.environments}
        path.write_text(yaml.safe_dump(content, sort_keys=False))
        return path

    def refer(self, *rows: dict, name: str = "testbed.csv") -> Path:
        """Write a reference table. Missing cells of a row are those of a site's baseline."""
        path = self.reference / name
        usual = {
            "source": "site",
            "locator": "table 1",
            "system": self.name,
            "statistic": "median",
            "kind": "measured",
        }
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, restval="")
            writer.writeheader()
            writer.writerows({**usual, **row} for row in rows)
        return path

    def check_file(self, name: str, **fields: object) -> Path:
        """Write a check, which measures PingPong's latency at 8 bytes unless ``fields`` differ."""
        fields = {
            "benchmark": "imb",
            "program": "IMB-MPI1",
            "placement": "on-socket",
            "tags": {"smoke"},
            "executable_opts": ["PingPong"],
            "wanted": [("pingpong_latency", 8)],
            **fields,
        }
        lines = "\n".join(f"    {key} = {value!r}" for key, value in fields.items())
        path = self.folder / f"{name}.py"
        path.write_text(CHECK.replace("NAME", name).replace("FIELDS", lines))
        return path

    # -- commands -----------------------------------------------------------------------------

    def enter(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Give this process the environment variables of its commands."""
        for name, value in self.env.items():
            monkeypatch.setenv(name, value)

    def session_folders(self) -> set[Path]:
        return {path.parent for path in self.results.glob("sessions/*/plan.json")}

    def start(self, *command: object, cwd: Path | None = None, **env: object) -> subprocess.Popen:
        """Start a command in its own process group. The caller must stop it."""
        cores = two_cores()
        return subprocess.Popen(
            [str(word) for word in command],
            cwd=cwd or self.folder,
            env={**self.env, **{key: str(value) for key, value in env.items()}},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=lambda: _as_a_user_starts_it(cores),
        )

    def ended(self, process: subprocess.Popen, before: set[Path]) -> Done:
        """Wait for the end of a command."""
        try:
            out, err = process.communicate(timeout=self.patience)
        finally:
            stop(process)
        sessions = sorted(self.session_folders() - before)
        return Done(process.returncode, out, err, sessions)

    def run(self, *command: object, cwd: Path | None = None, **env: object) -> Done:
        """Run a command to its end."""
        before = self.session_folders()
        # What PYTHONPATH brings is loaded when Python starts.
        forks = self.forks and "PYTHONPATH" not in env
        if not forks or str(command[0]) not in forked.COMMANDS:
            return self.ended(self.start(*command, cwd=cwd, **env), before)
        variables = {**self.env, **{key: str(value) for key, value in env.items()}}
        words = [str(word) for word in command]
        code, out, err = forked.run(
            words, variables, cwd or self.folder, self.patience, two_cores()
        )
        return Done(code, out, err, sorted(self.session_folders() - before))

    def plumbline(self, *arguments: object, **env: object) -> Done:
        return self.run(BIN / "plumbline", *arguments, **env)

    def asked(self, *arguments: object, **env: object) -> Done:
        """What the plumbline command prints, run within this process: where a process of its own
        is not what is tested."""
        before = self.session_folders()
        with mock.patch.dict(os.environ, self.env, clear=True), pytest.MonkeyPatch.context() as at:
            at.chdir(self.folder)
            done = asked(*arguments, **env)
            empty_caches()
        return replace(done, sessions=sorted(self.session_folders() - before))

    def reframe(self, *arguments: object, **env: object) -> Done:
        return self.run(BIN / "reframe", *arguments, **env)


def empty_caches() -> None:
    """Makes the package read again what it read once, as a new process does."""
    for name, module in [*sys.modules.items()]:
        if name.startswith("plumbline."):
            for value in vars(module).values():
                if isinstance(value, functools._lru_cache_wrapper):
                    value.cache_clear()


def stop(process: subprocess.Popen) -> None:
    """Kill the remaining processes of a command's process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


@pytest.fixture(scope="session")
def disk() -> Iterator[Path]:
    """Yield a folder on a file system with direct I/O."""
    for parent in (tempfile.gettempdir(), "/var/tmp", str(Path.home())):
        with tempfile.TemporaryDirectory(prefix="plumbline-tests-", dir=parent) as folder:
            if has_direct_io(Path(folder)):
                yield Path(folder)
                return
    pytest.skip("no folder with direct I/O here")


@pytest.fixture(scope="module")
def make_testbed(tmp_path_factory: pytest.TempPathFactory, disk: Path) -> Callable[..., Testbed]:
    """Return a function that creates test systems; skip if their programs are not installed."""
    if not (MPICH / "mpiexec").is_file():
        pytest.skip(f"{MPICH / 'mpiexec'} does not exist: run make setup")

    def make(name: str = "testbed") -> Testbed:
        two_cores()
        scratch = Path(tempfile.mkdtemp(prefix="scratch-", dir=disk))
        return Testbed(tmp_path_factory.mktemp(name), scratch, name)

    return make


@pytest.fixture(scope="session")
def dry_run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dry_runs.DryRun]:
    """Return a function that makes a system's dry run, once for all workers of pytest."""
    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    return functools.partial(dry_runs.of, folder=folder)


@pytest.fixture
def testbed(make_testbed: Callable[..., Testbed]) -> Testbed:
    """Return a test system for one test, without environments."""
    return make_testbed()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Yield a function that mounts a file system of a given size."""
    mounted = []

    def mount(size: str) -> Path:
        folder = tmp_path / f"disk-{size}"
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
        if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode:
            pytest.skip("needs root and mount(8) for a small disk")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "-l", str(folder)], check=True)
