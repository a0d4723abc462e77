"""`plumbline build`, `mirror` and the provider `spack`, with a stand-in for Spack itself.

What the real one does with the same commands is shown by test_spack.py, where there is one.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from conftest import BIN, PATIENCE, ROOT, STANDINS, Done, Testbed, empty_caches, stop
from plumbline.parse import osu
from plumbline.software import (
    build,
    debian,
    environments,
    externals,
    mirror,
    programs,
    providers,
    spack,
)

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
    """A lock with Spack's hashes in place of the names that stand for them, the roots' last."""
    text = json.dumps(lock)
    roots = [root["hash"] for root in lock["roots"]]
    for name in sorted(lock["concrete_specs"], key=roots.__contains__):
        fields = json.loads(text)["concrete_specs"][name]
        text = text.replace(name, environments.dag_hash(fields))
    lock = json.loads(text)
    for digest, fields in lock["concrete_specs"].items():
        fields["hash"] = digest
    return lock


#: Spack's hash of fio in that solution.
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
        return subprocess.Popen(
            [str(BIN / "plumbline"), "build", self.name],
            env=self.testbed.env | {"STANDIN_WAIT": str(gate)},
            stdout=subprocess.PIPE, text=True, start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, interrupts),
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


@pytest.fixture
def site(testbed: Testbed, monkeypatch: pytest.MonkeyPatch) -> Site:
    site = Site(testbed)
    for variable in ("PLUMBLINE_TOOLS", "PLUMBLINE_SITE"):
        monkeypatch.setenv(variable, testbed.env[variable])
    return site


# -- what is built ---------------------------------------------------------------------------------


def test_build_then_measure(site: Site):
    """Skipped before the build; measured after it, with the whole build in the record."""
    (record,) = site.measure().records
    assert (record["result"], record["code"]) == ("skip", "build.not-built")

    done = site.build()
    assert done.code == 0, done.output
    assert "[2/2] fio-3.37" in done.out
    manifest = (site.folder / "spack.yaml").read_text()

    after = site.measure()
    assert after.code == 0, after.output
    (record,) = after.records
    assert record["result"] == "pass"
    build, lock = record["build"], environments.read_lock(site.place / "spack.lock")
    assert (
        build
        | {
            "provider": "spack",
            "path": str(site.program),
            "environment": site.name,
            "spec": "fio@3.37",
            "hash": FIO,
            "lock": lock.sha256,
            "compiler": "gcc@12.2.0",
            "mpi": "none",
            "spack": f"{PINS['spack']['tag']} {PINS['spack']['commit']}",
            "packages": f"{PINS['packages']['tag']} {PINS['packages']['commit']}",
        }
        == build
    )
    # A run edits nothing of the tree.
    assert (site.folder / "spack.yaml").read_text() == manifest
    assert [path.name for path in site.folder.iterdir()] == ["spack.yaml"]


def test_second_build_starts_nothing(site: Site):
    for _ in range(2):
        assert site.build().code == 0
        assert site.starts == ["concretize", "install"]


def test_kept_lock_is_installed_without_concretizing(site: Site):
    """The tree's lock if it matches the manifest; otherwise a new solution."""
    assert site.build().code == 0
    shutil.copy(site.place / "spack.lock", site.folder)
    shutil.rmtree(site.place)
    assert site.build().code == 0
    assert site.starts == ["concretize", "install", "install"]
    site.write(["fio", "ior"])
    assert site.build().code == 0
    assert site.starts[3:] == ["concretize", "install"]


def test_unused_after_the_manifest_changed(site: Site):
    assert site.build().code == 0
    (site.folder.parent / "site.yaml").write_text("packages: {perl: {buildable: false}}\n")
    assert site.refusal() == "build.not-built"


def test_two_builds_at_once_install_once(site: Site):
    """The second reports that it waits, and finds the work done."""
    gate = site.testbed.folder / "gate"
    first = site.start_build(gate)
    wait_for(lambda: "install" in site.starts)
    second = site.start_build(gate)
    assert str(site.root / "lock") in second.stdout.readline()
    gate.touch()
    for process in (first, second):
        process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
    assert site.starts == ["concretize", "install"]


def wait_for(happens: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not happens():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def test_killed_build_is_not_used_and_goes_on(site: Site):
    process = site.start_build(site.testbed.folder / "gate")
    wait_for(lambda: "install" in site.starts)
    stop(process)
    assert site.refusal() == "build.not-built"
    assert site.build().code == 0
    assert site.refusal() == ""


@pytest.mark.parametrize("number, background", [
    (signal.SIGINT, False), (signal.SIGTERM, False),
    # In the background of a script, SIGINT is ignored.
    (signal.SIGTERM, True),
])  # fmt: skip
def test_stopped_build_ends_after_spack(site: Site, number: signal.Signals, background: bool):
    process = site.start_build(site.testbed.folder / "gate", background)
    try:
        assert process.stdout and "fio" in next(line for line in process.stdout if "[" in line)
        if number == signal.SIGINT:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        process.communicate(timeout=PATIENCE)
    finally:
        stop(process)
    last = "install" if background else "interrupted"
    assert (process.returncode, site.starts[-1]) == (2, last)
    assert site.refusal() == "build.not-built"


def test_the_other_toolchains_are_built(site: Site):
    """One that fails is named at the end, and by the exit code."""
    other = site.folder.with_name("aaa")
    other.mkdir()
    (other / "spack.yaml").write_text(
        "spack: {include: [../nowhere.yaml], specs: [fio], view: {}}\n"
    )
    done = site.plumbline("build", "testbed")
    assert (done.code, done.codes) == (2, ["spack.wrong-manifest", "build.failed"])
    assert "testbed:aaa" in done.err.splitlines()[-1]
    assert site.refusal() == ""


# -- what goes wrong -------------------------------------------------------------------------------

#: What the real Spack printed -> the code, and what of it is in the message.
FAULTS = {
    "broken": ("spack.failed", ["gpcnet-1.3", "network_test.c:198:1", "spack-build-out.txt"]),
    "checksum": ("spack.wrong-checksum", ["babelstream-5.0"]),
    "nosource": ("spack.not-fetched", ["gpcnet-1.3"]),
    "fullstage": ("build.too-little-space", ["osu-micro-benchmarks-7.4", "PLUMBLINE_TOOLS"]),
    "fullstore": ("build.too-little-space", ["gcc-runtime-12.2.0", "PLUMBLINE_TOOLS"]),
    "unpackage": ("spack.wrong-manifest", ["osu-micro-benchmark"]),
    "unvariant": ("spack.wrong-manifest", ["{'fast'}"]),
    "unversioned": ("spack.not-concretized", ["externals.yaml:10", "`buildable:false`"]),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_failed_build(site: Site, fault: str):
    """Spack's own error and the log; nothing of it is used; the same command repairs it."""
    code, words = FAULTS[fault]
    done = site.build(STANDIN_FAULT=fault)
    assert (done.code, done.codes) == (2, [code, "build.failed"])
    log = site.place / "build.log"
    assert [word for word in (*words, str(log), site.name) if word not in done.err] == []
    assert (CAPTURES / f"{fault}.out").read_text() in log.read_text()
    assert site.refusal() == "build.not-built"
    assert site.build().code == 0
    assert site.refusal() == ""


def test_build_that_fails_in_configure_shows_the_compilers_error(tmp_path: Path):
    """IOR without MPI's headers: Spack points at warnings of autoupdate, and at status 77."""
    output = (CAPTURES / "partial.out").read_text()
    stage = tmp_path / "spack-stage-ior"
    (stage / "spack-src").mkdir(parents=True)
    shutil.copy(CAPTURES / "ior-config.txt", stage / "spack-src" / "config.log")
    output = re.sub(r"/site/stage/spack-stage-ior-4\.0\.0-\w+", str(stage), output)
    failure = spack.Failure(output, "local:openmpi", tmp_path / "build.log")
    assert list(failure.reasons.values()) == [
        "osu-micro-benchmarks-7.4: configure: error: C compiler cannot create executables",
        "ior-4.0.0: configure: C compiler cannot create executables: "
        "/usr/bin/ld: cannot find -lmpi: No such file or directory",
        "gpcnet-1.3: network_test.c:17:10: fatal error: mpi.h: No such file or directory",
    ]
    assert "autoupdate" not in str(failure)
    assert str(stage / "spack-build-out.txt") in str(failure)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nosubmodule", ["comm-scope@0.12.0", "github.com/gabime/spdlog.git", "thirdparty/spdlog"]),
        ("nodownload", ["osu-micro-benchmarks@7.4"]),
    ],
)
def test_source_that_cannot_be_fetched_is_named(
    name: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PLUMBLINE_TOOLS", str(tmp_path))
    log = tmp_path / "mirror.log"
    failure = spack.Failure((CAPTURES / f"{name}.out").read_text(), "local:mpich", log)
    assert failure.code == "spack.not-fetched"
    assert [word for word in (*words, str(log)) if word not in str(failure)] == []


def test_one_package_that_fails_takes_nothing_from_the_others(site: Site):
    """What built is used; what did not is skipped with the build's own error, and is built by the
    next build."""
    lock = copy.deepcopy(LOCK)
    specs = lock["concrete_specs"]
    specs["n" * 32] = specs["f" * 32] | {"name": "gpcnet", "version": "1.3"}
    lock["roots"].append({"hash": "n" * 32, "spec": "gpcnet"})
    site.solves(lock)
    done = site.build(STANDIN_FAULT="partial")
    assert (done.code, done.codes) == (2, ["build.failed"] * 2)
    assert "network_test.c:17:10" in done.err and "gpcnet@1.3" in done.err
    assert "fio@3.37" not in done.err
    assert site.refusal() == ""
    # Its checks are there, so that they are seen to be skipped.
    assert providers.installed("spack", site.name, ["network_test"]) == ["network_test"]
    assert site.refusal("network_test") == "build.not-in-environment"
    again = site.build()
    assert "network_test.c:17:10" in again.out
    assert site.starts[:3] == ["concretize", "install", "install"]


def test_what_was_built_before_is_not_used_after_a_failed_build(site: Site):
    """Its view may have changed."""
    assert site.build().code == 0
    site.write(["fio", "ior"])
    assert site.build(STANDIN_FAULT="checksum").code == 2
    site.write(["fio"])
    assert site.refusal() == "build.not-built"


def test_half_installed(site: Site):
    """Installed again, once; where that does not help, not used."""
    done = site.build(STANDIN_MISSING="fio")
    assert (done.code, done.codes) == (2, ["build.failed"] * 2)
    assert site.starts == ["concretize", "install", "uninstall", "install"]
    assert "fio@3.37" in done.err
    assert site.refusal() == "build.not-built"


def test_program_changed_after_the_build(site: Site):
    """It is not measured, `doctor` names it, and a build installs it anew."""
    assert site.build().code == 0
    site.program.write_text(site.program.read_text() + "# another\n")
    assert site.refusal() == "build.changed"
    doctor = json.loads(site.plumbline("doctor", "--system=testbed", "--format=json").out)
    assert str(site.program) in doctor["environments"][site.name]
    assert [case["code"] for case in doctor["cases"]] == ["build.changed"] * len(doctor["cases"])
    again = site.build()
    assert again.code == 0, again.output
    assert site.starts[2:] == ["install", "uninstall", "install"]
    assert site.refusal() == ""


@pytest.mark.parametrize("lost", ["program", "package", "link", "view"])
def test_program_lost_after_the_build(site: Site, lost: str):
    """As where old files are purged: the check is skipped, not gone; a build brings it back."""
    assert site.build().code == 0
    if lost == "package":
        shutil.rmtree(site.program.parents[1])
    else:
        # Without the link to its view, an environment is as where Spack was killed as it made that.
        lost_file = {"program": site.program, "link": "view/bin/fio", "view": "view"}[lost]
        (site.place / lost_file).unlink()
    assert site.refusal() == "build.not-in-environment"
    # `local` has the features of what was built, not of what is left of it.
    assert providers.installed("spack", site.name, ["fio", "ior"]) == ["fio"]
    assert site.build().code == 0
    assert site.refusal() == ""


def test_library_lost_after_the_build(site: Site):
    """One that Spack built, such as the compiler's: the loader would take the system's."""
    lock = copy.deepcopy(LOCK)
    specs = lock["concrete_specs"]
    fio = specs.pop("f" * 32)
    specs["m" * 32] = fio | {"name": "gcc-runtime", "version": "12.2.0"}
    specs["f" * 32] = fio | {
        "dependencies": [*fio["dependencies"], {"name": "gcc-runtime", "hash": "m" * 32}]
    }
    site.solves(lock)
    (digest,) = (d for d, f in hashed(lock)["concrete_specs"].items() if "runtime" in f["name"])
    prefix = site.root.resolve() / "cache" / "store" / f"gcc-runtime-12.2.0-{digest[:7]}"
    ldd = site.testbed.folder / "bin" / "ldd"
    ldd.parent.mkdir()
    ldd.write_text(f"#!/bin/sh\necho ' libgomp.so.1 => {prefix}/bin/replay.sh (0x0)'\n")
    ldd.chmod(0o755)
    path = f"{ldd.parent}:{site.testbed.env['PATH']}"
    assert site.build(PATH=path).code == 0
    shutil.rmtree(prefix)
    assert site.refusal() == "build.changed"
    assert site.build(PATH=path).code == 0
    # First, as Spack takes it as installed and would build the others without it.
    assert site.starts[2:] == ["uninstall", "install"]
    assert site.refusal() == ""
    # A purge may leave the folders.
    (prefix / "bin" / "replay.sh").unlink()
    assert site.build(PATH=path).code == 0
    assert site.starts[4:] == ["install", "uninstall", "install"]
    for file in (prefix / "bin").iterdir():
        file.unlink()
    shutil.rmtree(site.place)
    assert site.build(PATH=path).code == 0
    assert site.starts[7:] == ["concretize", "uninstall", "install"]


def test_a_manifest_that_cannot_be_read_stops_no_session_of_anything_else(site: Site):
    assert site.build().code == 0
    (site.folder / "spack.yaml").write_text("spack: [")
    assert providers.installed("spack", site.name, ["fio", "ior"]) == ["fio"]
    assert site.refusal() == "build.not-built"
    assert providers.installed("spack", "testbed:elsewhere", ["fio"]) == []


def test_tool_changed_after_the_build(site: Site):
    """A maintenance took the compiler away: what was built with it is built anew."""
    compiler = site.testbed.folder / "cc"
    compiler.write_text("#!/bin/sh\n")
    compiler.chmod(0o755)
    lock = copy.deepcopy(LOCK)
    lock["concrete_specs"]["g" * 32] |= {"name": "xl"}
    attributes = lock["concrete_specs"]["g" * 32]["external"]["extra_attributes"]
    attributes["compilers"]["c"] = str(compiler)
    site.solves(lock)
    assert site.build().code == 0
    compiler.unlink()
    done = site.build()
    assert (done.code, done.codes) == (2, ["build.no-external", "build.failed"])
    assert str(compiler) in done.err
    # What was built is used on, as it was before a build was tried.
    assert site.refusal() == ""


def test_install_root_that_was_copied(site: Site, monkeypatch: pytest.MonkeyPatch):
    """Its links lead to where it was: nothing of that is measured."""
    assert site.build().code == 0
    copied = site.tools.with_name("copy")
    shutil.copytree(site.tools, copied, symlinks=True)
    monkeypatch.setenv("PLUMBLINE_TOOLS", str(copied))
    assert site.refusal() == "build.not-built"
    starts = site.starts
    done = site.build(PLUMBLINE_TOOLS=str(copied))
    assert (done.code, done.codes) == (2, ["build.failed"] * 2)
    assert str(site.program.parents[1]) in done.err
    # Spack's database has where it was, and Spack would build with that.
    assert site.starts == starts
    shutil.rmtree(copied / "spack" / "cache")
    assert site.build(PLUMBLINE_TOOLS=str(copied)).code == 0
    assert site.refusal() == ""


def test_garbled_mark_and_lock(site: Site):
    assert site.build().code == 0
    lock = (site.place / "spack.lock").read_text()
    for name, text in (("built.json", "{"), ("spack.lock", "{"), ("spack.lock", lock + " ")):
        (site.place / name).write_text(text)
        assert site.refusal() == "build.not-built"
        assert site.build().code == 0


def test_program_of_another_mpi(site: Site, monkeypatch: pytest.MonkeyPatch):
    """Built by the wrapper of an MPI that is not the toolchain's: never started."""
    lock = copy.deepcopy(LOCK)
    specs = lock["concrete_specs"]
    specs["m" * 32] = specs["g" * 32] | {"name": "mpich", "external": {"path": "/usr"}}
    specs["f" * 32]["dependencies"].append(
        {"name": "mpich", "hash": "m" * 32, "parameters": {"virtuals": ["mpi"]}}
    )
    site.solves(lock)
    assert "mpich@12.2.0" in site.build().err
    specs["m" * 32]["version"] = externals.version_at("mpich", "/usr") or pytest.skip("no MPICH")
    site.solves(lock)
    shutil.rmtree(site.place)
    assert site.build().code == 0
    linked = {"mpich": "libmpich.so.12"}
    monkeypatch.setattr(providers, "_libraries", lambda path: linked)
    launchers = {"mpich": f"MPICH {specs['m' * 32]['version']}", "openmpi": "Open MPI 4.1.4"}
    monkeypatch.setattr(
        providers, "mpi_version",
        lambda path: launchers["openmpi" if path.endswith("openmpi") else "mpich"],
    )  # fmt: skip

    def find() -> providers.Program:
        return providers.find("spack", "fio", lambda name: f"/somewhere/{name}", site.name)

    assert find().build["mpi"].startswith("mpich@")
    launchers["mpich"] = "MPICH 9.9"
    for version in ("MPICH 9.9", "Open MPI 4.1.4"):
        with pytest.raises(providers.NotProvided, match=version) as refusal:
            find()
        assert refusal.value.code == "build.other-mpi"
        linked["openmpi"] = "libmpi.so.40"


@pytest.mark.parametrize("file", ["testbed/site.yaml", "config/config.yaml"])
def test_install_tree_of_the_sites_own(site: Site, file: str):
    """Nothing would be found there, and what is in Plumbline's be uninstalled."""
    path = site.tree / file
    path.parent.mkdir(exist_ok=True)
    path.write_text("config: {install_tree: {padded_length: 128}}\n")
    done = site.build()
    assert (done.code, done.codes) == (2, ["spack.wrong-manifest", "build.failed"])
    assert site.starts == []
    path.write_text("config: {build_jobs: 2}\n")
    assert site.build().code == 0


def test_external_that_is_not_there(site: Site):
    lock = copy.deepcopy(LOCK)
    compiler = lock["concrete_specs"]["g" * 32]["external"]
    compiler["extra_attributes"]["compilers"]["c"] = "/opt/xl/bin/xlc_r"
    for path, missing in (("/usr", "/opt/xl/bin/xlc_r"), ("/opt/xl", "/opt/xl")):
        compiler["path"] = path
        site.write(["fio"], path)
        site.solves(lock)
        shutil.rmtree(site.place, ignore_errors=True)
        done = site.build()
        assert (done.code, done.codes) == (2, ["build.no-external", "build.failed"])
        assert f"gcc@12.2.0: {missing} " in done.err
        assert str(site.folder.parent / "site.yaml") in done.err
    assert "install" not in site.starts


def test_compiler_of_the_manifest_that_is_not_there(site: Site):
    """Taken as given for another machine alone, whose C library the files have."""
    file = site.folder.parent / "externals.yaml"
    file.write_text(file.read_text().replace("/bin/sh", "/opt/xl/bin/xlc"))
    done = site.build()
    assert (done.code, done.codes) == (2, ["build.no-external", "build.failed"])
    assert "/opt/xl/bin/xlc" in done.err
    assert not site.log.exists()
    glibc = {"spec": "glibc@2.28", "prefix": "/usr"}
    packages = {"packages": {"glibc": {"externals": [glibc]}}}
    (site.folder.parent / "site.yaml").write_text(yaml.safe_dump(packages))
    assert site.build().code == 0
    assert "as_given.py" in site.log.read_text()


def test_mpi_that_spack_would_build_in_place_of_the_sites(site: Site):
    """Spack only warns of an external that it drops, such as one without a version."""
    lock = copy.deepcopy(LOCK)
    specs = lock["concrete_specs"]
    fio = specs.pop("f" * 32)
    specs["m" * 32] = fio | {"name": "openmpi", "version": "5.0.8"}
    needs = {"name": "openmpi", "hash": "m" * 32, "parameters": {"virtuals": ["mpi"]}}
    specs["f" * 32] = fio | {"dependencies": [*fio["dependencies"], needs]}
    site.solves(lock)
    file = site.folder.parent / "site.yaml"
    file.write_text("packages: {openmpi: {externals: [{spec: openmpi, prefix: /usr}]}}\n")
    # The second does not take what the first solved.
    for _ in range(2):
        done = site.build()
        assert (done.code, done.codes) == (2, ["spack.wrong-manifest", "build.failed"])
        assert "openmpi@5.0.8" in done.err
    done = site.plumbline("lock", site.name)
    assert done.codes == ["spack.wrong-manifest", "spack.not-concretized"]
    assert not (site.folder / "spack.lock").exists()
    assert "install" not in site.starts
    # Nor is a compiler used that Spack found on PATH.
    listed = site.folder.parent / "externals.yaml"
    before = listed.read_text()
    listed.write_text(before.replace("/usr", "/opt/gcc"))
    site.solves(LOCK)
    assert site.build().codes == ["spack.wrong-manifest", "build.failed"]
    # Externals may be in the site's settings. An MPI that Spack is meant to build has none.
    settings = site.tree / "config" / "packages.yaml"
    settings.parent.mkdir()
    settings.write_text(before)
    site.solves(lock)
    file.unlink()
    assert site.build().code == 0


def test_full_disk_before_anything_starts(site: Site, monkeypatch: pytest.MonkeyPatch):
    usage = shutil.disk_usage(site.root)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=2**20))
    assert site.build().codes == ["build.too-little-space", "build.failed"]
    assert site.starts == []


def test_install_root_that_cannot_be_written(site: Site):
    file = site.testbed.folder / "file"
    file.write_text("")
    for command in (["build", site.name], ["mirror", "use", "mirror"]):
        done = site.plumbline(*command, PLUMBLINE_TOOLS=str(file))
        assert (done.code, done.codes[0]) == (2, "files.not-a-folder")


def test_locks_at_once_find_the_index_made(site: Site):
    """Spack's own lock on it gives up after 120 s."""
    other = site.folder.with_name("other")
    shutil.copytree(site.folder, other)
    done = site.plumbline("lock", "-j", "2", "testbed")
    assert done.code == 0, done.output
    assert site.starts == ["providers", "concretize", "concretize"]
    assert (other / "spack.lock").is_file()


# -- Spack itself ----------------------------------------------------------------------------------


def test_bootstrap_brings_spack_alone(site: Site):
    done = site.testbed.run(ROOT / "spack-env" / "bootstrap")
    assert done.code == 0, done.output
    assert str(site.root / "spack") in done.out
    assert site.starts == []


def test_no_network(site: Site):
    """At once, with the way on; never minutes of git's own patience."""
    shutil.rmtree(site.root / "spack")
    site.pin(PINS | {"spack": PINS["spack"] | {"git": "https://host.invalid/spack.git"}})
    done = site.plumbline("build")
    assert (done.code, done.codes) == (2, ["spack.not-fetched"])
    assert "host.invalid" in done.err and "plumbline mirror create" in done.err


@pytest.mark.holds("downloads")
def test_commit_that_is_not_to_be_had(site: Site, tmp_path: Path):
    """Another repository in the published one's place brings nothing."""
    shutil.rmtree(site.root / "spack")
    other = tmp_path / "other.git"
    subprocess.run(["git", "init", "-q", "--bare", other], check=True)
    site.pin(PINS | {"spack": PINS["spack"] | {"git": f"file://{other}"}})
    done = site.plumbline("build")
    assert (done.code, done.codes) == (2, ["spack.not-fetched"])
    assert str(site.root / "spack.log") in done.err
    assert not (site.root / "spack").exists()
    assert not (site.root / "spack.partial").exists()


def test_checkout_that_was_edited(mirrored: tuple[Site, Path]):
    """Records have its commit, and Spack's hash of a package stays that of the lock."""
    site, _ = mirrored
    checkout = site.root / "packages"
    file = checkout / "bin" / "spack"
    for text in ("edited", None):
        file.unlink() if text is None else file.write_text(text)
        done = site.build()
        assert (done.code, done.codes) == (2, ["spack.edited", "build.failed"])
        assert f"{file}: " in done.err
        assert site.starts == []
        subprocess.run(["git", "-C", checkout, "checkout", "-q", "-f"], check=True)
    (checkout / "left").touch()
    assert site.build().code == 0


def repository(folder: Path, name: str) -> tuple[Path, str]:
    """A repository with one commit, and that commit."""
    path = folder / name
    of_test = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
    subprocess.run(["git", "init", "-q", path], check=True)
    (path / "bin").mkdir()
    shutil.copy(STANDINS / "spack" / "spack", path / "bin" / "spack")
    subprocess.run(["git", "-C", path, "add", "."], check=True)
    subprocess.run(["git", "-C", path, *of_test, "commit", "-q", "-m", name], check=True)
    head = subprocess.run(["git", "-C", path, "rev-parse", "HEAD"], capture_output=True, check=True)
    return path, head.stdout.decode().strip()


@pytest.fixture
def mirrored(site: Site, tmp_path: Path) -> tuple[Site, Path]:
    """A site whose Spack comes from repositories of the test's own, by way of a mirror."""
    pins = {}
    for name in ("spack", "packages"):
        path, commit = repository(tmp_path / "upstream", name)
        pins[name] = {"git": f"file://{path}", "tag": "v0", "commit": commit}
    site.pin(pins)
    done = site.plumbline("build")
    assert done.code == 0, done.output
    folder = tmp_path / "mirror"
    for name, pin in pins.items():
        # As in a checkout that somebody cloned.
        subprocess.run(["git", "-C", site.root / name, "tag", pin["tag"]], check=True)
        mirror._copy_commit(folder / "git" / f"{name}.git", name, pin, tmp_path / "log", print)
    digest = hashlib.sha256(b"sources").hexdigest()
    by_commit, by_checksum = "git/x/y.git/c0ffee.tar.gz", f"archive/{digest[:2]}/{digest}.tar.gz"
    for name in (by_commit, by_checksum, "archive/md/5.tar.gz"):
        source = folder / "_source-cache" / name
        source.parent.mkdir(parents=True)
        source.write_bytes(b"sources")
    sources = {f"_source-cache/{by_commit}": digest}
    contents = {"pins": pins, "environments": {site.name: "d"}, "sources": sources}
    (folder / "plumbline.json").write_text(json.dumps(contents))
    return site, folder


def test_spack_comes_from_the_mirror(mirrored: tuple[Site, Path], tmp_path: Path):
    """With what upstream offered gone."""
    site, folder = mirrored
    for name in ("spack", "packages"):
        shutil.rmtree(site.root / name)
    shutil.rmtree(tmp_path / "upstream")
    used = site.plumbline("mirror", "use", str(folder))
    assert used.code == 0, used.output
    assert spack.sha256(folder / "plumbline.json") in used.out
    done = site.build()
    assert done.code == 0, done.output
    assert str(folder / "git" / "spack.git") in done.out
    settings = yaml.safe_load((site.root / "config" / "mirrors.yaml").read_text())
    assert settings["mirrors:"]["plumbline"]["url"] == folder.as_uri()
    assert str(site.root / "config") in site.log.read_text()


def test_lost_mirror(mirrored: tuple[Site, Path]):
    site, folder = mirrored
    assert site.plumbline("mirror", "use", folder).code == 0
    folder.rename(folder.with_name("away"))
    done = site.build()
    assert (done.code, done.codes) == (2, ["spack.wrong-mirror", "build.failed"])
    assert str(folder) in done.err and "mirror use --off" in done.err
    # If it is lost during a build, Spack's error and the log are still reported.
    failure = spack.Failure((CAPTURES / "nosource.out").read_text(), site.name, site.log)
    assert failure.code == "spack.not-fetched"
    assert all(word in str(failure) for word in ("fetchers", f"{folder}: ", str(site.log)))
    assert site.plumbline("mirror", "use", "--off").code == 0
    assert site.build().code == 0


@pytest.mark.holds("downloads")
def test_mirror_with_a_changed_source(mirrored: tuple[Site, Path]):
    """A source that a recipe names by a commit has no checksum of Spack's: the mirror's own."""
    site, folder = mirrored
    assert site.plumbline("mirror", "use", folder).code == 0
    for source in sources_of(folder):
        source.write_bytes(b"other")
        used = site.plumbline("mirror", "use", folder)
        assert (used.code, used.codes) == (2, ["spack.wrong-mirror"])
        assert f"{source}: " in used.err
        if "git" in source.parts:
            done = site.build()
            assert (done.code, done.codes[0]) == (2, "spack.wrong-mirror")
            assert f"{source}: " in done.err
        source.write_bytes(b"sources")
    assert site.starts == []


def sources_of(folder: Path) -> list[Path]:
    """The sources of a mirror whose SHA-256 is known."""
    sources = (folder / "_source-cache").glob("**/*.tar.gz")
    return [source for source in sources if source.name != "5.tar.gz"]


def test_mirror_that_is_made_again_has_no_source_that_was_cut_off_or_changed(
    mirrored: tuple[Site, Path], monkeypatch: pytest.MonkeyPatch
):
    """As Spack keeps what is there. A source that is as it was fetched is not fetched again."""
    site, folder = mirrored
    monkeypatch.setattr(mirror, "_wheels", lambda *_: None)
    contents = folder / "plumbline.json"
    listed = contents.read_text()
    sources = sources_of(folder)
    for cut_off in (True, False):
        if cut_off:
            contents.write_text(json.dumps(json.loads(listed) | {"sources": {}}))
        for source in sources:
            source.write_bytes(b"half")
        done = site.plumbline("mirror", "create", folder, site.name)
        assert done.code == 0, done.output
        assert [source.read_bytes() for source in sources] == [b"sources"] * 2
        assert json.loads(contents.read_text())["sources"] == json.loads(listed)["sources"]
    before = [source.stat().st_mtime_ns for source in sources]
    assert site.plumbline("mirror", "create", folder, site.name).code == 0
    assert [source.stat().st_mtime_ns for source in sources] == before
    assert site.plumbline("mirror", "use", folder).code == 0


def test_source_without_a_checksum_that_spack_cached_is_not_used(
    mirrored: tuple[Site, Path], monkeypatch: pytest.MonkeyPatch
):
    """It may be half a file of a build that was interrupted, and Spack would take it unchecked."""
    site, folder = mirrored
    monkeypatch.setattr(mirror, "_wheels", lambda *_: None)
    cached = site.root / "cache" / "sources" / "_source-cache"
    for words in (["build", site.name], ["mirror", "create", folder, site.name]):
        for name in ("git/x/y.git/c0ffee.tar.gz", "archive/md/5.tar.gz"):
            (cached / name).parent.mkdir(parents=True, exist_ok=True)
            (cached / name).write_bytes(b"half")
        done = site.plumbline(*words)
        assert done.code == 0, done.output
        assert [path.name for path in cached.glob("**/*.tar.gz")] == ["5.tar.gz"]


def test_folder_that_is_no_mirror(mirrored: tuple[Site, Path]):
    """Without a list, with half of one, with another list; without the packages."""
    site, folder = mirrored
    contents = folder / "plumbline.json"
    listed = contents.read_text()
    for text in (None, "{", "[]", listed):
        contents.unlink(missing_ok=True)
        if text is not None:
            contents.write_text(text)
        if text == listed:
            shutil.rmtree(folder / "git" / "packages.git")
        done = site.plumbline("mirror", "use", folder)
        assert (done.code, done.codes) == (2, ["spack.wrong-mirror"]), text
        assert ("packages" in done.err) == (text == listed)
        assert not (site.root / "mirror").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_mirror_that_another_user_carried_here(mirrored: tuple[Site, Path]):
    site, folder = mirrored
    for path in [folder, *folder.rglob("*")]:
        os.chown(path, 1234, 1234)
    for name in ("spack", "packages"):
        shutil.rmtree(site.root / name)
    assert site.plumbline("mirror", "use", str(folder)).code == 0
    assert site.build().code == 0


def test_source_that_the_mirror_has_not_got(mirrored: tuple[Site, Path]):
    site, folder = mirrored
    assert site.plumbline("mirror", "use", folder).code == 0
    done = site.build(STANDIN_FAULT="nosource")
    assert done.codes == ["spack.not-fetched", "build.failed"]
    # The remedy is another mirror, not to make one.
    assert f" {folder}, " in done.err


def test_mirror_needs_a_folder_or_off(site: Site):
    for words in ([], ["x", "--off"]):
        assert site.plumbline("mirror", "use", *words).codes == ["input.wrong-option"]


# -- externals -------------------------------------------------------------------------------------


def test_tools_print_their_version(tmp_path: Path):
    """Each as its distribution's program prints it; nothing of a program that prints another."""
    printed = {
        "autoconf": ("autoconf", "autoconf (GNU Autoconf) 2.71\nCopyright"),
        "automake": ("automake", "automake (GNU automake) 1.16.5\n"),
        "cmake": ("cmake", "cmake version 3.25.1\n"),
        "gcc": ("gcc", "12.2.0\n"),
        "gmake": ("make", "GNU Make 4.3\nBuilt for"),
        "libtool": ("libtoolize", "libtoolize (GNU libtool) 2.4.7\n"),
        "m4": ("m4", "m4 (GNU M4) 1.4.19\n"),
        "mpich": ("mpiexec.mpich", "HYDRA build details:\n    Version:       4.0.2\n"),
        "numactl": ("pkgconf", "2.0.16\n"),
        "openmpi": ("mpirun.openmpi", "mpirun.openmpi (OpenRTE) 4.1.4\nmpirun (Open MPI) 4.1.4\n"),
        "perl": ("perl", "5.36.0"),
        "pkgconf": ("pkgconf", "1.8.1\n"),
    }
    assert set(printed) == set(externals.TOOLS)
    for package, (program, text) in printed.items():
        prefix = tmp_path / package
        (prefix / "bin").mkdir(parents=True)
        path = prefix / "bin" / program
        path.write_text(f"#!/bin/sh\ncat <<'E'\n{text}\nE\n")
        assert externals.version_at(package, str(prefix)) is None
        path.chmod(0o755)
        version = externals.version_at(package, str(prefix))
        assert version and version in text
        path.write_text("#!/bin/sh\necho 'segmentation fault'\n")
        assert externals.version_at(package, str(prefix)) is None


@pytest.fixture
def openmpi(tmp_path: Path) -> Path:
    """A prefix like Debian's: what runs is there, and a wrapper that calls the real compiler with
    headers and libraries of a folder that another package brings."""
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    run = "#!/bin/sh\necho 'mpirun (Open MPI) 4.1.4'\n"
    for name in ("mpicc", "mpicxx"):
        compiler = {"mpicc": "gcc", "mpicxx": "g++"}[name]
        own = f"-I{tmp_path}/include -L{tmp_path}/lib -lmpi_own"
        wrapper = f'#!/bin/sh\nexec {compiler} -nostdinc "$@" {own}\n'
        (bin_ / f"{name}.openmpi").write_text(wrapper)
    (bin_ / "mpirun.openmpi").write_text(run)
    for path in bin_.iterdir():
        path.chmod(0o755)
    return tmp_path


def test_an_mpi_that_only_runs_is_none_to_build_with(openmpi: Path):
    """`mpirun` and `mpicc` without headers, or without libraries: what Debian's openmpi-bin is
    without libopenmpi-dev. The compiler's own words say what is missing."""
    prefix = str(openmpi)
    assert externals.version_at("openmpi", prefix) == "4.1.4"
    assert "mpi.h" in externals.build_error("openmpi", prefix)
    (openmpi / "include").mkdir()
    (openmpi / "include" / "mpi.h").write_text(
        '#ifdef __cplusplus\nextern "C"\n#endif\nint MPI_Init(int *, char ***);\n'
    )
    assert "-lmpi_own" in externals.build_error("openmpi", prefix)
    (openmpi / "lib").mkdir()
    source = openmpi / "mpi.c"
    source.write_text("int MPI_Init(int *n, char ***v) { return n || v; }\n")
    library = openmpi / "lib" / "libmpi_own.so"
    subprocess.run(["gcc", "-shared", "-fPIC", source, "-o", library], check=True)
    assert externals.build_error("openmpi", prefix) is None
    (openmpi / "bin" / "mpicxx.openmpi").unlink()
    assert f"{openmpi}/bin/mpicxx.openmpi" in externals.build_error("openmpi", prefix)


def test_what_cannot_be_built_with_is_installed_or_named(
    openmpi: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", f"{openmpi}/bin:{os.environ['PATH']}")
    monkeypatch.setattr(externals, "version_at", lambda name, prefix: (
        "4.1.4" if name != "openmpi" or prefix == str(openmpi) else None
    ))  # fmt: skip
    assert "mpi.h" in externals.missing_tools("openmpi")["openmpi"]
    assert "libopenmpi-dev" in externals.debian_packages(["openmpi"])
    monkeypatch.setenv("PLUMBLINE_TOOLS", str(tmp_path / "tools"))
    monkeypatch.setattr(debian, "can_install", lambda: True)
    wanted = []

    def install(packages: list[str], log: Path, report: Callable[[str], None]) -> bool:
        wanted.extend(packages)
        return False

    monkeypatch.setattr(debian, "install", install)
    with pytest.raises(spack.Fault) as refusal:
        build._install_tools(environments.Environment("local", "openmpi"), print)
    assert refusal.value.code == "build.no-compiler"
    assert "mpi.h" in str(refusal.value) and "libopenmpi-dev" in str(refusal.value)
    assert str(tmp_path / "tools" / "spack" / "apt.log") in str(refusal.value)
    assert "libopenmpi-dev" in wanted


def test_external_mpi_of_a_lock_must_build(openmpi: Path, tmp_path: Path):
    lock = copy.deepcopy(LOCK)
    lock["concrete_specs"]["m" * 32] = lock["concrete_specs"]["g" * 32] | {
        "name": "openmpi", "version": "4.1.4", "external": {"path": str(openmpi), "module": None},
    }  # fmt: skip
    path = tmp_path / "spack.lock"
    path.write_text(json.dumps(hashed(lock)))
    faults = " ".join(externals.faults(environments.read_lock(path)))
    assert "openmpi@4.1.4" in faults and "mpi.h" in faults


def test_detected_settings_are_spacks():
    """What this machine has, in place of the shipped lists."""
    content = yaml.safe_load(externals.detect())["packages"]
    (target,) = content["all"]["require:"]
    assert target == f"target={externals.target()}"
    for name, package in content.items():
        if name != "all":
            (external,) = package["externals:"]
            assert external["spec"].startswith(f"{name}@")
            assert package["buildable"] is False


def test_every_program_of_the_one_sided_checks_has_a_hash():
    """A view without one of them is incomplete, and one that was exchanged is noticed."""
    known = {program for program, _ in osu.TITLES.values()}
    wanted = {name for name in known if re.match("osu_(put|get|acc|cas|fop)_", name)}
    assert len(wanted) == 9
    assert wanted <= {*programs.PROGRAMS["osu-micro-benchmarks"]}
