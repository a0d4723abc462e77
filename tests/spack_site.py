"""A test system that takes a program from Spack, which has a stand-in.

What the real one does with the same commands is shown by test_spack.py, where there is one.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from conftest import BIN, PATIENCE, ROOT, STANDINS, Done, Testbed, empty_caches
from plumbline.software import providers

CAPTURES = ROOT / "tests" / "captures" / "spack"
PINS = yaml.safe_load((ROOT / "spack-env" / "pins.yaml").read_text())

#: A solution of one root, fio, with a compiler that is there.
LOCK = {
    "_meta": {"file-type": "spack-lockfile", "lockfile-version": 6, "specfile-version": 5},
    "roots": [{"hash": "f" * 32, "spec": "fio"}],
    "concrete_specs": {
        "g" * 32: {
            "name": "gcc",
            "version": "12.2.0",
            "arch": {"platform": "linux", "platform_os": "debian12", "target": "x86_64_v3"},
            "namespace": "builtin",
            "external": {
                "path": "/usr",
                "module": None,
                "extra_attributes": {"compilers": {"c": "/bin/sh"}},
            },
        },
        "f" * 32: {
            "name": "fio",
            "version": "3.37",
            "arch": {"platform": "linux", "platform_os": "debian12", "target": "x86_64_v3"},
            "namespace": "builtin",
            "parameters": {},
            "dependencies": [
                {"name": "gcc", "hash": "g" * 32, "parameters": {"virtuals": ["c"]}},
            ],
        },
    },
}


def hashed(lock: dict) -> dict:
    """A lock with hashes in Spack's form in place of its names, the roots' last."""
    text = json.dumps(lock)
    roots = [root["hash"] for root in lock["roots"]]
    for name in sorted(lock["concrete_specs"], key=roots.__contains__):
        fields = json.loads(text)["concrete_specs"][name]
        digest = hashlib.sha1(json.dumps(fields).encode()).digest()
        text = text.replace(name, base64.b32encode(digest).decode().lower())
    lock = json.loads(text)
    for digest, fields in lock["concrete_specs"].items():
        fields["hash"] = digest
    return lock


#: The hash of fio in that solution.
FIO = hashed(LOCK)["roots"][0]["hash"]


#: Spack's commands that do something.
STARTS = ("concretize", "install", "interrupted", "providers", "uninstall")


class Site:
    """A test system whose environment `gcc` takes fio from Spack, and where that lies."""

    def __init__(self, testbed: Testbed):
        self.testbed = testbed
        testbed.environment("disk", "fio", provider="spack")
        self.toolchain = "disk-io"
        self.name = f"testbed:{self.toolchain}"
        self.tree = testbed.folder / "spack-env"
        self.folder = self.tree / "testbed" / self.toolchain
        self.folder.mkdir(parents=True)
        self.write(["fio"])
        self.tools = testbed.folder / "tools"
        self.root = self.tools / "spack"
        for name, pin in PINS.items():
            git = self.root / name / ".git"
            git.mkdir(parents=True)
            (git / "HEAD").write_text(pin["commit"] + "\n")
        (self.root / "spack" / "bin").mkdir()
        shutil.copy(STANDINS / "spack" / "spack", self.root / "spack" / "bin" / "spack")
        self.solution = testbed.folder / "solution.json"
        self.solves(LOCK)
        programs = testbed.folder / "programs"
        programs.mkdir()
        for name in ("fio", "replay.sh"):
            shutil.copy(STANDINS / name, programs)
        self.log = testbed.folder / "spack.log"
        testbed.env |= {
            "PLUMBLINE_TOOLS": str(self.tools),
            "STANDIN_LOCK": str(self.solution),
            "STANDIN_PROGRAMS": str(programs),
            "STANDIN_CAPTURES": str(CAPTURES),
            "STANDIN_LOG": str(self.log),
        }

    def write(self, specs: list[str], prefix: str = "/usr") -> None:
        included = [{"path": "../site.yaml", "optional": True}, "../externals.yaml"]
        view = {"default": {"root": "view", "link": "roots"}}
        content = {"include": included, "specs": specs, "view": view}
        (self.folder / "spack.yaml").write_text(yaml.safe_dump({"spack": content}))
        attributes = {"compilers": {"c": "/bin/sh"}}
        compiler = {"spec": "gcc@12.2.0", "prefix": prefix, "extra_attributes": attributes}
        packages = {"gcc": {"externals": [compiler]}}
        (self.folder.parent / "externals.yaml").write_text(yaml.safe_dump({"packages": packages}))

    def solves(self, lock: dict) -> None:
        """What Spack concretizes the manifest to."""
        self.solution.write_text(json.dumps(hashed(lock)))

    def plumbline(self, *words: object, **variables: str) -> Done:
        return self.testbed.asked(*words, **variables)

    def build(self, **variables: str) -> Done:
        return self.plumbline("build", self.name, **variables)

    def start_build(self, gate: Path, background: bool = False) -> subprocess.Popen:
        """A build in a process of its own, whose installation waits for a file."""
        interrupts = signal.SIG_IGN if background else signal.SIG_DFL

        def started():
            signal.signal(signal.SIGINT, interrupts)
            signal.signal(signal.SIGHUP, signal.SIG_DFL)

        return subprocess.Popen(
            [str(BIN / "plumbline"), "build", self.name],
            env=self.testbed.env | {"STANDIN_WAIT": str(gate)},
            stdout=subprocess.PIPE, text=True, start_new_session=True,
            preexec_fn=started,
        )  # fmt: skip

    def refusal(self, program: str = "fio") -> str:
        """The code of why no test case can use a program; empty if one can."""
        empty_caches()
        try:
            providers.find("spack", program, environment=self.name)
        except providers.NotProvided as err:
            return err.code
        return ""

    def pin(self, pins: dict) -> None:
        (self.tree / "pins.yaml").write_text(yaml.safe_dump(pins))

    @property
    def place(self) -> Path:
        """Where the environment is built."""
        return self.root / "environments" / "testbed" / self.toolchain

    @property
    def starts(self) -> list[str]:
        """What Spack was started for."""
        words = self.log.read_text().split() if self.log.exists() else []
        return [word for word in words if word in STARTS]

    @property
    def program(self) -> Path:
        return self.root.resolve() / "cache" / "store" / f"fio-3.37-{FIO[:7]}" / "bin" / "fio"

    def measure(self) -> Done:
        return self.testbed.plumbline(
            "run", "-n", "fio.*read", "-S", "fio.size=8", "-S", "num_samples=1", "-S",
            "num_warmups=0",
        )  # fmt: skip


@pytest.fixture(name="site")
def site_(testbed: Testbed, monkeypatch: pytest.MonkeyPatch) -> Site:
    site = Site(testbed)
    for variable in ("PLUMBLINE_TOOLS", "PLUMBLINE_SITE"):
        monkeypatch.setenv(variable, testbed.env[variable])
    return site


def wait_for(happens: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not happens():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
