"""`plumbline build`, `mirror` and the provider `spack`, with a stand-in for Spack itself.

What the real one does with the same commands is shown by test_spack.py, where there is one.
"""

from __future__ import annotations

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
from conftest import BIN, ROOT, STANDINS, Done, Testbed
from plumbline.software import build, debian, environments, externals, providers, spack

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
STARTS = ("concretize", "install", "providers", "uninstall")


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
        shutil.copy(ROOT / "spack-env" / "pins.yaml", self.tree)
        shutil.copytree(ROOT / "spack-env" / "config", self.tree / "config")
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

    def write(self, specs: list[str]) -> None:
        included = [{"path": "../site.yaml", "optional": True}, "../externals.yaml"]
        view = {"default": {"root": "view", "link": "roots"}}
        content = {"include": included, "specs": specs, "view": view}
        (self.folder / "spack.yaml").write_text(yaml.safe_dump({"spack": content}))
        compiler = {"spec": "gcc@12.2.0", "extra_attributes": {"compilers": {"c": "/bin/sh"}}}
        packages = {"gcc": {"externals": [compiler]}}
        (self.folder.parent / "externals.yaml").write_text(yaml.safe_dump({"packages": packages}))

    def solves(self, lock: dict) -> None:
        """What Spack concretizes the manifest to."""
        self.solution.write_text(json.dumps(hashed(lock)))

    def plumbline(self, *words: str, **variables: str) -> Done:
        return self.testbed.plumbline(*words, **variables)

    def build(self, **variables: str) -> Done:
        return self.plumbline("build", self.name, **variables)

    @property
    def place(self) -> Path:
        """Where the environment is built."""
        return self.root / "environments" / "testbed" / self.toolchain

    @property
    def starts(self) -> list[str]:
        """What Spack was started for."""
        words = self.log.read_text().split() if self.log.exists() else []
        return [word for word in words if word in STARTS]

    def measure(self) -> Done:
        return self.plumbline(
            "run", "-n", "fio.*read", "-S", "fio.size=8", "-S", "num_samples=1", "-S",
            "num_warmups=0",
        )  # fmt: skip


@pytest.fixture
def site(testbed: Testbed) -> Site:
    return Site(testbed)


# -- what is built ---------------------------------------------------------------------------------


def test_build_then_measure(site: Site):
    """Skipped with the command before; measured after, with the whole build in the record."""
    before = site.measure()
    (record,) = before.records
    assert record["result"] == "skip"
    assert f"plumbline build {site.name}" in record["reason"]

    done = site.build()
    assert done.code == 0, done.said
    assert f"{site.name}: [2/2] fio-3.37" in done.out
    manifest = (site.folder / "spack.yaml").read_text()

    after = site.measure()
    assert after.code == 0, after.said
    (record,) = after.records
    build = record["build"]
    lock = environments.read_lock(site.place / "spack.lock")
    assert record["result"] == "pass"
    assert build["provider"] == "spack"
    assert build["path"] == str(spack_store(site) / f"fio-3.37-{FIO[:7]}" / "bin" / "fio")
    assert (build["environment"], build["spec"]) == (site.name, "fio@3.37")
    assert (build["hash"], build["lock"]) == (FIO, lock.sha256)
    assert (build["compiler"], build["mpi"]) == ("gcc@12.2.0", "none")
    assert build["spack"] == f"{PINS['spack']['tag']} {PINS['spack']['commit']}"
    assert build["packages"] == f"{PINS['packages']['tag']} {PINS['packages']['commit']}"
    # A run edits nothing of the tree.
    assert (site.folder / "spack.yaml").read_text() == manifest
    assert sorted(path.name for path in site.folder.iterdir()) == ["spack.yaml"]


def spack_store(site: Site) -> Path:
    return (site.root / "cache" / "store").resolve()


def test_second_build_starts_nothing(site: Site):
    assert site.build().code == 0
    assert site.starts == ["concretize", "install"]
    again = site.build()
    assert again.code == 0
    assert "is built" in again.out
    assert site.starts == ["concretize", "install"]


def test_kept_lock_is_installed_without_concretizing(site: Site):
    """The tree's lock where it says what the manifest does; a new solution where it does not."""
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
    (record,) = site.measure().records
    assert record["result"] == "skip"
    assert "was built from another manifest" in record["reason"]


def test_two_builds_at_once_install_once(site: Site):
    """The second waits, says so, and finds the work done."""
    gate = site.testbed.folder / "gate"
    command = [str(BIN / "plumbline"), "build", site.name]
    env = site.testbed.env | {"STANDIN_WAIT": str(gate)}
    first = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
    wait_for(lambda: "install" in site.starts)
    second = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
    assert "waiting for it" in second.stdout.readline()
    gate.touch()
    assert "built in" in first.communicate(timeout=60)[0]
    assert "is built" in second.communicate(timeout=60)[0]
    assert (first.returncode, second.returncode) == (0, 0)
    assert site.starts == ["concretize", "install"]


def wait_for(happens: Callable[[], bool]) -> None:
    for _ in range(1200):
        if happens():
            return
        time.sleep(0.05)
    pytest.fail("waited in vain")


def test_killed_build_is_not_used_and_goes_on(site: Site):
    gate = site.testbed.folder / "gate"
    env = site.testbed.env | {"STANDIN_WAIT": str(gate)}
    process = subprocess.Popen(
        [str(BIN / "plumbline"), "build", site.name], env=env, start_new_session=True,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    wait_for(lambda: "install" in site.starts)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    (record,) = site.measure().records
    assert record["result"] == "skip"
    assert "is not built" in record["reason"]
    assert site.build().code == 0
    assert site.measure().records[0]["result"] == "pass"


def test_the_other_toolchains_are_built(site: Site):
    """One that fails is named at the end, and the exit code says it."""
    other = site.folder.with_name("aaa")
    other.mkdir()
    (other / "spack.yaml").write_text(
        "spack: {include: [../nowhere.yaml], specs: [fio], view: {}}\n"
    )
    done = site.plumbline("build", "testbed")
    assert done.code == 2
    assert "nowhere.yaml is not there" in done.err
    assert "failed to build: testbed:aaa" in done.err
    assert site.measure().records[0]["result"] == "pass"


# -- what goes wrong -------------------------------------------------------------------------------

#: What the real Spack printed -> what is said of it.
FAULTS = {
    "broken": ["gpcnet-1.3", "network_test.c:198:1: error", "/site/stage/", "spack-build-out.txt"],
    "checksum": ["babelstream-5.0", "sha256 checksum failed", "nothing was built from it"],
    "nosource": ["gpcnet-1.3", "All fetchers failed", "plumbline mirror create"],
    "fullstage": ["osu-micro-benchmarks-7.4", "the disk is full", "PLUMBLINE_TOOLS"],
    "fullstore": ["gcc-runtime-12.2.0", "the disk is full", "PLUMBLINE_TOOLS"],
    "unpackage": ["'osu-micro-benchmark' does not exist", "names a package that"],
    "unvariant": ["No such variant {'fast'}", "a variant that its recipe does not have"],
}


@pytest.mark.parametrize("fault", FAULTS)
def test_failed_build(site: Site, fault: str):
    """Spack's own words, the mend, the log; exit 2; nothing of it is used, the other checks go on;
    and the same command mends it."""
    done = site.build(STANDIN_FAULT=fault)
    assert done.code == 2
    log = site.place / "build.log"
    for words in (*FAULTS[fault], str(log), f"failed to build: {site.name}"):
        assert words in done.err
    assert "Traceback" not in done.said
    others = {word for key, words in FAULTS.items() if key[:4] != fault[:4] for word in words[1:2]}
    assert not any(word in done.err for word in others - set(FAULTS[fault]))
    captured = (CAPTURES / f"{fault}.out").read_text()
    assert captured in log.read_text()
    (record,) = site.measure().records
    assert record["result"] == "skip"
    assert site.build().code == 0
    assert site.measure().records[0]["result"] == "pass"


def test_build_that_fails_in_configure_shows_the_compilers_error(tmp_path: Path):
    """IOR without MPI's headers: Spack points at warnings of autoupdate, and at status 77."""
    said = (CAPTURES / "partial.out").read_text()
    stage = tmp_path / "spack-stage-ior"
    (stage / "spack-src").mkdir(parents=True)
    shutil.copy(CAPTURES / "ior-config.txt", stage / "spack-src" / "config.log")
    said = re.sub(r"/site/stage/spack-stage-ior-4\.0\.0-\w+", str(stage), said)
    failure = spack.Failure(said, "local:openmpi", tmp_path / "build.log")
    assert list(failure.reasons.values()) == [
        "osu-micro-benchmarks-7.4: configure: error: C compiler cannot create executables",
        "ior-4.0.0: configure: C compiler cannot create executables: "
        "/usr/bin/ld: cannot find -lmpi: No such file or directory",
        "gpcnet-1.3: network_test.c:17:10: fatal error: mpi.h: No such file or directory",
    ]
    assert "autoupdate" not in str(failure)
    assert str(stage / "spack-build-out.txt") in str(failure)


def test_submodule_that_cannot_be_had_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PLUMBLINE_TOOLS", str(tmp_path))
    said = (CAPTURES / "nosubmodule.out").read_text()
    told = spack.explain(said, "local:openmpi", tmp_path / "mirror.log")
    assert "comm-scope@0.12.0" in told
    assert "github.com/gabime/spdlog.git" in told
    assert "submodule path 'thirdparty/libscope/thirdparty/spdlog'" in told


def test_mirror_that_lacks_a_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PLUMBLINE_TOOLS", str(tmp_path))
    said = (CAPTURES / "nodownload.out").read_text()
    told = spack.explain(said, "local:mpich", tmp_path / "mirror.log")
    assert told.startswith("local:mpich: Failed downloads: osu-micro-benchmarks@7.4\n")
    assert "plumbline mirror create" in told
    assert told.endswith(f"see {tmp_path / 'mirror.log'}")


def test_one_package_that_fails_takes_nothing_from_the_others(site: Site, monkeypatch):
    """What built is used; what did not is skipped with the build's own error, and is built by the
    next build."""
    lock = json.loads(json.dumps(LOCK))
    specs = lock["concrete_specs"]
    specs["n" * 32] = specs["f" * 32] | {"name": "gpcnet", "version": "1.3"}
    lock["roots"].append({"hash": "n" * 32, "spec": "gpcnet"})
    site.solves(lock)
    done = site.build(STANDIN_FAULT="partial")
    assert done.code == 2
    assert "gpcnet-1.3: network_test.c:17:10: fatal error: mpi.h: No such file" in done.err
    assert "built without gpcnet@1.3" in done.err
    assert "fio@3.37" not in done.err
    assert site.measure().records[0]["result"] == "pass"
    for variable in ("PLUMBLINE_TOOLS", "PLUMBLINE_SPACK_ENV"):
        monkeypatch.setenv(variable, site.testbed.env[variable])
    # Its checks are there, so that they are seen to be skipped.
    assert "network_test" in providers.there("spack", site.name)
    with pytest.raises(
        providers.NotProvided, match=r"could not be built: gpcnet-1\.3: network_test"
    ):
        providers.find("spack", "network_test", environment=site.name)
    again = site.build()
    assert "is not complete: gpcnet-1.3: network_test.c" in again.out
    assert site.starts[:3] == ["concretize", "install", "install"]


def test_what_was_built_before_is_not_used_after_a_failed_build(site: Site):
    """Its view may have changed."""
    assert site.build().code == 0
    site.write(["fio", "ior"])
    assert site.build(STANDIN_FAULT="checksum").code == 2
    site.write(["fio"])
    assert "is not built" in site.measure().records[0]["reason"]


def test_the_sessions_other_checks_go_on(site: Site):
    site.testbed.environment("mpi", "imb")
    done = site.plumbline("run", "-n", "imb_p2p.*PingPong|fio.*read", "-S", "fio.size=8",
                          "-S", "num_samples=1", "-S", "num_warmups=0")  # fmt: skip
    assert done.record("imb_p2p")["result"] == "pass"
    assert done.record("fio")["result"] == "skip"


def test_half_installed(site: Site):
    """Installed again, once; where that does not help, not used."""
    done = site.build(STANDIN_MISSING="fio")
    assert done.code == 2
    assert site.starts == ["concretize", "install", "uninstall", "install"]
    assert "half installed" in done.err
    assert "has no fio of fio@3.37" in done.err
    assert "is not built" in site.measure().records[0]["reason"]


def test_program_changed_after_the_build(site: Site):
    """It is not measured, `doctor` names it, and a build installs it anew."""
    assert site.build().code == 0
    program = spack_store(site) / f"fio-3.37-{FIO[:7]}" / "bin" / "fio"
    program.write_text(program.read_text() + "# another\n")
    (record,) = site.measure().records
    assert record["result"] == "skip"
    assert f"{program} is not the file that was built" in record["reason"]
    assert f"plumbline build {site.name}" in record["reason"]
    told = json.loads(site.plumbline("doctor", "--system=testbed", "--format=json").out)
    assert f"{program} was changed after it was built" in told["environments"][site.name]
    again = site.build()
    assert again.code == 0, again.said
    assert "was changed after it was built" in again.out
    assert site.starts[2:] == ["install", "uninstall", "install"]
    assert site.measure().records[0]["result"] == "pass"


@pytest.mark.parametrize("lost", [f"fio-3.37-{FIO[:7]}", f"fio-3.37-{FIO[:7]}/bin/fio"])
def test_program_lost_after_the_build(site: Site, lost: str):
    """As where old files are purged: the check is skipped, not gone; a build brings it back."""
    assert site.build().code == 0
    path = spack_store(site) / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    done = site.measure()
    assert done.records[0]["result"] == "skip"
    assert "it is lost" in done.records[0]["reason"]
    assert f"plumbline build {site.name}" in done.records[0]["reason"]
    again = site.build()
    assert again.code == 0
    assert "is damaged" in again.out
    assert site.measure().records[0]["result"] == "pass"


def test_lost_program_of_the_machine_at_hand_is_still_a_case(site: Site, monkeypatch):
    """`local` has the features of what was built, not of what is left of it."""
    assert site.build().code == 0
    for variable in ("PLUMBLINE_TOOLS", "PLUMBLINE_SPACK_ENV"):
        monkeypatch.setenv(variable, site.testbed.env[variable])
    assert providers.there("spack", site.name) == ["fio"]
    (site.place / "view" / "bin" / "fio").unlink()
    assert providers.there("spack", site.name) == ["fio"]
    # Nor does a manifest that cannot be read stop the sessions of everything else.
    (site.folder / "spack.yaml").write_text("spack: [")
    assert providers.there("spack", site.name) == ["fio"]
    with pytest.raises(providers.NotProvided, match=r"no valid YAML"):
        providers.find("spack", "fio", environment=site.name)
    assert providers.there("spack", "testbed:elsewhere") == []


def test_tool_changed_after_the_build(site: Site):
    """A maintenance took the compiler away: what was built with it is built anew."""
    compiler = site.testbed.folder / "cc"
    compiler.write_text("#!/bin/sh\n")
    compiler.chmod(0o755)
    lock = json.loads(json.dumps(LOCK))
    lock["concrete_specs"]["g" * 32] |= {"name": "xl"}
    attributes = lock["concrete_specs"]["g" * 32]["external"]["extra_attributes"]
    attributes["compilers"]["c"] = str(compiler)
    site.solves(lock)
    assert site.build().code == 0
    compiler.unlink()
    done = site.build()
    assert done.code == 2
    assert "was built with what is gone" in done.out
    assert f"{compiler} not there" in done.err


def test_install_root_that_was_copied(site: Site):
    """Its links lead to where it was: nothing of that is measured."""
    assert site.build().code == 0
    copy = site.tools.with_name("copy")
    shutil.copytree(site.tools, copy, symlinks=True)
    site.testbed.env["PLUMBLINE_TOOLS"] = str(copy)
    (record,) = site.measure().records
    assert record["result"] == "skip"
    assert f"remove {copy / 'spack' / 'cache'} and build again" in record["reason"]


def test_garbled_mark_and_lock(site: Site):
    assert site.build().code == 0
    (site.place / "built.json").write_text("{")
    assert "is not built" in site.measure().records[0]["reason"]
    assert site.build().code == 0
    (site.place / "spack.lock").write_text("{")
    assert "is not built" in site.measure().records[0]["reason"]
    assert site.build().code == 0


def test_program_of_another_mpi(site: Site, monkeypatch: pytest.MonkeyPatch):
    """Built by the wrapper of an MPI that is not the toolchain's: never started."""
    lock = json.loads(json.dumps(LOCK))
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
    for variable in ("PLUMBLINE_TOOLS", "PLUMBLINE_SPACK_ENV"):
        monkeypatch.setenv(variable, site.testbed.env[variable])
    linked = {"mpich": "libmpich.so.12"}
    monkeypatch.setattr(providers, "_libraries", lambda path: linked)
    launchers = {"mpich": f"MPICH {specs['m' * 32]['version']}", "openmpi": "Open MPI 4.1.4"}
    monkeypatch.setattr(
        providers, "mpi_version",
        lambda path: launchers["openmpi" if path.endswith("openmpi") else "mpich"],
    )  # fmt: skip

    def which(name: str) -> str:
        return f"/somewhere/{name}"

    found = providers.find("spack", "fio", which, site.name)
    assert found.build["mpi"].startswith("mpich@")
    launchers["mpich"] = "MPICH 9.9"
    with pytest.raises(providers.NotProvided, match=r"built with mpich@.* of MPICH 9\.9"):
        providers.find("spack", "fio", which, site.name)
    linked["openmpi"] = "libmpi.so.40"
    with pytest.raises(providers.NotProvided, match=r"built with mpich@.* of Open MPI 4\.1\.4: "):
        providers.find("spack", "fio", which, site.name)


def test_intel_mpi_is_told_from_mpich(monkeypatch: pytest.MonkeyPatch):
    """Both have libmpi.so.12 and mpiexec.hydra; the launcher says whose it is."""
    said = "Intel(R) MPI Library for Linux* OS, Version 2021.19.0 Build 20260929 (id: 1821d9b)\n"
    monkeypatch.setattr(providers, "_output", lambda command: said)
    providers.mpi_version.cache_clear()
    found = providers._launcher_of("ior", {"mpich": "/x/libmpi.so.12"}, lambda name: f"/x/{name}")
    providers.mpi_version.cache_clear()
    assert found == ("mpirun-intelmpi", "/x/mpiexec.mpich", "Intel MPI 2021.19.0")


def test_external_that_is_not_there(site: Site):
    lock = json.loads(json.dumps(LOCK))
    compiler = lock["concrete_specs"]["g" * 32]["external"]
    compiler["extra_attributes"]["compilers"]["c"] = "/opt/xl/bin/xlc_r"
    site.solves(lock)
    done = site.build()
    assert done.code == 2
    assert "external gcc@12.2.0: /opt/xl/bin/xlc_r not there" in done.err
    assert str(site.folder.parent / "site.yaml") in done.err
    compiler["path"] = "/opt/xl"
    site.solves(lock)
    shutil.rmtree(site.place)
    assert "external gcc@12.2.0: /opt/xl is not there" in site.build().err
    assert "install" not in site.starts


def test_full_disk_before_anything_starts(site: Site, monkeypatch, capsys):
    monkeypatch.setenv("PLUMBLINE_TOOLS", str(site.tools))
    usage = shutil.disk_usage(site.root)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=2**20))
    with pytest.raises(spack.Fault, match=r"1 MiB are free, a build needs 1 GiB.*PLUMBLINE_TOOLS"):
        spack.hold_against_room()


def test_install_root_that_cannot_be_written(site: Site):
    file = site.testbed.folder / "file"
    file.write_text("")
    done = site.build(PLUMBLINE_TOOLS=str(file))
    assert done.code == 2
    assert "cannot be written" in done.err
    assert "Traceback" not in done.said


def test_locks_at_once_find_the_index_made(site: Site):
    """Spack's own lock on it gives up after 120 s."""
    other = site.folder.with_name("other")
    shutil.copytree(site.folder, other)
    done = site.plumbline("lock", "-j", "2", "testbed")
    assert done.code == 0, done.said
    assert site.starts == ["providers", "concretize", "concretize"]
    assert (other / "spack.lock").is_file()


# -- Spack itself ----------------------------------------------------------------------------------


def test_bootstrap_brings_spack_alone(site: Site):
    done = site.testbed.run(ROOT / "spack-env" / "bootstrap")
    assert done.code == 0, done.said
    assert f"Spack is in {site.root / 'spack'}" in done.out
    assert site.starts == []


def test_no_network(site: Site):
    """At once, with the way on; never minutes of git's own patience."""
    shutil.rmtree(site.root / "spack")
    pins = json.loads(json.dumps(PINS))
    pins["spack"]["git"] = "https://host.invalid/spack.git"
    (site.tree / "pins.yaml").write_text(yaml.safe_dump(pins))
    done = site.plumbline("build")
    assert done.code == 2
    assert "host.invalid cannot be reached" in done.err
    assert "plumbline mirror create FOLDER" in done.err


@pytest.mark.holds("downloads")
def test_commit_that_is_not_to_be_had(site: Site, tmp_path: Path):
    """Another repository in the published one's place brings nothing."""
    shutil.rmtree(site.root / "spack")
    other = tmp_path / "other.git"
    subprocess.run(["git", "init", "-q", "--bare", other], check=True)
    pins = json.loads(json.dumps(PINS))
    pins["spack"]["git"] = f"file://{other}"
    (site.tree / "pins.yaml").write_text(yaml.safe_dump(pins))
    done = site.plumbline("build")
    assert done.code == 2
    assert f"spack {PINS['spack']['tag']}" in done.err
    assert str(site.root / "spack.log") in done.err
    assert not (site.root / "spack").exists()
    assert not (site.root / "spack.partial").exists()


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
    (site.tree / "pins.yaml").write_text(yaml.safe_dump(pins))
    done = site.plumbline("build")
    assert done.code == 0, done.said
    folder = tmp_path / "mirror"
    for name, pin in pins.items():
        bare = folder / "git" / f"{name}.git"
        subprocess.run(["git", "init", "-q", "--bare", bare], check=True)
        source = ["file://" + str(site.root / name), f"{pin['commit']}:refs/tags/v0"]
        subprocess.run(["git", "-C", bare, "fetch", "-q", "--depth=1", *source], check=True)
    source = folder / "_source-cache" / "git" / "x" / "y.git" / "c0ffee.tar.gz"
    source.parent.mkdir(parents=True)
    source.write_bytes(b"sources")
    told = {str(source.relative_to(folder)): spack.sha256(source)}
    contents = {"pins": pins, "environments": {site.name: "d"}, "sources": told}
    (folder / "plumbline.json").write_text(json.dumps(contents))
    return site, folder


def test_spack_comes_from_the_mirror(mirrored: tuple[Site, Path], tmp_path: Path):
    """With what upstream offered gone."""
    site, folder = mirrored
    for name in ("spack", "packages"):
        shutil.rmtree(site.root / name)
    shutil.rmtree(tmp_path / "upstream")
    used = site.plumbline("mirror", "use", str(folder))
    assert used.code == 0, used.said
    assert spack.sha256(folder / "plumbline.json") in used.out
    done = site.build()
    assert done.code == 0, done.said
    assert f"from {folder / 'git' / 'spack.git'}" in done.out
    settings = yaml.safe_load((site.root / "config" / "mirrors.yaml").read_text())
    assert settings["mirrors:"]["plumbline"]["url"] == folder.as_uri()
    assert str(site.root / "config") in site.log.read_text()


def test_lost_mirror(mirrored: tuple[Site, Path]):
    site, folder = mirrored
    assert site.plumbline("mirror", "use", str(folder)).code == 0
    folder.rename(folder.with_name("away"))
    done = site.build()
    assert done.code == 2
    assert f"{folder}: the mirror in use is not there" in done.err
    assert "mirror use --off" in done.err
    assert site.plumbline("mirror", "use", "--off").code == 0
    assert site.build().code == 0


@pytest.mark.holds("downloads")
def test_mirror_with_a_changed_source(mirrored: tuple[Site, Path]):
    """A source that a recipe names by a commit has no checksum of Spack's: the mirror's own."""
    site, folder = mirrored
    assert site.plumbline("mirror", "use", str(folder)).code == 0
    (source,) = (folder / "_source-cache" / "git").glob("**/*.tar.gz")
    source.write_bytes(b"other")
    for done in (site.build(), site.plumbline("mirror", "use", str(folder))):
        assert done.code == 2
        assert f"{source}: is not what the mirror was made with" in done.err
    assert site.starts == []


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda folder: (folder / "plumbline.json").unlink(), "so it is no mirror"),
        (lambda folder: (folder / "plumbline.json").write_text("{"), "no list of a mirror's"),
        (lambda folder: (folder / "plumbline.json").write_text("[]"), "no list of a mirror's"),
        (lambda folder: shutil.rmtree(folder / "git" / "packages.git"), "does not have packages"),
    ],
    ids=["no list", "half a list", "another list", "no packages"],
)
def test_folder_that_is_no_mirror(mirrored: tuple[Site, Path], damage, says: str):
    site, folder = mirrored
    damage(folder)
    done = site.plumbline("mirror", "use", str(folder))
    assert done.code == 2
    assert says in done.err
    assert "Traceback" not in done.said
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
    assert site.plumbline("mirror", "use", str(folder)).code == 0
    done = site.build(STANDIN_FAULT="nosource")
    assert f"the mirror in use, {folder}, has not got it" in done.err


def test_mirror_lost_in_the_middle(mirrored: tuple[Site, Path], monkeypatch: pytest.MonkeyPatch):
    """Spack's words and the log are still told."""
    site, folder = mirrored
    assert site.plumbline("mirror", "use", str(folder)).code == 0
    folder.rename(folder.with_name("away"))
    monkeypatch.setenv("PLUMBLINE_TOOLS", str(site.tools))
    told = spack.explain((CAPTURES / "nosource.out").read_text(), site.name, site.log)
    assert "All fetchers failed" in told
    assert f"{folder}: the mirror in use is not there" in told
    assert told.endswith(f"see {site.log}")


def test_mirror_where_the_install_root_cannot_be_written(mirrored: tuple[Site, Path]):
    site, folder = mirrored
    done = site.plumbline("mirror", "use", str(folder), PLUMBLINE_TOOLS="/dev/null/x")
    assert done.code == 2
    assert "cannot be written" in done.err


def test_mirror_needs_a_folder_or_off(site: Site):
    assert site.plumbline("mirror", "use").code == 2
    assert site.plumbline("mirror", "use", "x", "--off").code == 2


# -- externals -------------------------------------------------------------------------------------


def test_tools_tell_their_version(tmp_path: Path):
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
    assert "mpi.h" in externals.untried("openmpi", prefix)
    (openmpi / "include").mkdir()
    (openmpi / "include" / "mpi.h").write_text(
        '#ifdef __cplusplus\nextern "C"\n#endif\nint MPI_Init(int *, char ***);\n'
    )
    assert "cannot find -lmpi_own" in externals.untried("openmpi", prefix)
    (openmpi / "lib").mkdir()
    source = openmpi / "mpi.c"
    source.write_text("int MPI_Init(int *n, char ***v) { return n || v; }\n")
    library = openmpi / "lib" / "libmpi_own.so"
    subprocess.run(["gcc", "-shared", "-fPIC", source, "-o", library], check=True)
    assert externals.untried("openmpi", prefix) is None
    (openmpi / "bin" / "mpicxx.openmpi").unlink()
    assert externals.untried("openmpi", prefix) == f"no {openmpi}/bin/mpicxx.openmpi"


def test_what_cannot_be_built_with_is_installed_or_named(
    openmpi: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", f"{openmpi}/bin:{os.environ['PATH']}")
    monkeypatch.setattr(externals, "version_at", lambda name, prefix: (
        "4.1.4" if name != "openmpi" or prefix == str(openmpi) else None
    ))  # fmt: skip
    assert "mpi.h" in externals.lacking("openmpi")["openmpi"]
    assert "libopenmpi-dev" in externals.packages_of(["openmpi"])
    monkeypatch.setenv("PLUMBLINE_TOOLS", str(tmp_path / "tools"))
    monkeypatch.setattr(debian, "can_install", lambda: True)
    asked = []

    def install(packages: list[str], log: Path, say) -> bool:
        asked.extend(packages)
        return False

    monkeypatch.setattr(debian, "install", install)
    here = environments.Environment("local", "openmpi")
    with pytest.raises(
        spack.Fault, match=r"(?s)openmpi \(.*mpi\.h.*libopenmpi-dev.*it failed here"
    ):
        build._equip(here, print)
    assert "libopenmpi-dev" in asked


def test_external_mpi_of_a_lock_must_build(openmpi: Path, tmp_path: Path):
    lock = json.loads(json.dumps(LOCK))
    lock["concrete_specs"]["m" * 32] = lock["concrete_specs"]["g" * 32] | {
        "name": "openmpi", "version": "4.1.4", "external": {"path": str(openmpi), "module": None},
    }  # fmt: skip
    path = tmp_path / "spack.lock"
    path.write_text(json.dumps(hashed(lock)))
    told = " ".join(externals.faults(environments.read_lock(path)))
    assert "external openmpi@4.1.4: cannot be built with:" in told


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
