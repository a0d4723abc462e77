"""`plumbline build`, `lock` and the provider `spack`, with a stand-in for Spack itself."""

from __future__ import annotations

import os
import re
import shutil
import signal
from types import SimpleNamespace

import pytest
from conftest import BIN, CHECKS, PATIENCE, codes_in, stop
from plumbline.software import environments, spack
from spack_site import CAPTURES, FIO, LOCK, PINS, Site, hashed, site_, wait_for  # noqa: F401 - a fixture


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


def test_a_program_of_two_toolchains_is_measured_in_the_first(site: Site):
    """Spack installs what does not use the MPI once for both."""
    shutil.copytree(site.folder, site.folder.with_name("other"))
    (first,) = site.testbed.environments
    first |= {"features": [], "extras": {"provider": "spack", "detect": True}}
    site.testbed.environments.append(first | {"name": "other"})
    site.testbed.write()
    assert site.plumbline("build", "testbed").code == 0
    for chosen, expected in {("-p", ".*"): {site.toolchain}, ("-p", "other"): {"other"}}.items():
        listed = site.testbed.reframe("-c", CHECKS, "-n", "fio", "-lC", *chosen)
        assert {*re.findall(r"- fio .*\+(\S+)", listed.out)} == expected, listed.output


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


def test_killed_build_is_not_used_and_goes_on(site: Site):
    process = site.start_build(site.testbed.folder / "gate")
    wait_for(lambda: "install" in site.starts)
    stop(process)
    assert site.refusal() == "build.not-built"
    assert site.build().code == 0
    assert site.refusal() == ""


@pytest.mark.parametrize("number, background", [
    (signal.SIGINT, False), (signal.SIGTERM, False), (signal.SIGHUP, False),
    # In the background of a script, SIGINT is ignored.
    (signal.SIGTERM, True),
])  # fmt: skip
def test_stopped_build_ends_after_spack(site: Site, number: signal.Signals, background: bool):
    """And after the process in which that builds."""
    process = site.start_build(site.testbed.folder / "gate", background)
    try:
        assert process.stdout and "fio" in next(line for line in process.stdout if "[" in line)
        if number == signal.SIGINT:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        # While Spack ends: otherwise it looks as if the signal did nothing.
        assert process.stdout.readline()
        process.communicate(timeout=PATIENCE)
    finally:
        stop(process)
    last = "install" if background else "interrupted"
    assert (process.returncode, site.starts[-1]) == (2, last)
    assert site.refusal() == "build.not-built"
    assert site.build().code == 0
    assert site.refusal() == ""


def test_a_stopped_lock_ends_spack_and_reports_no_failure(site: Site):
    """Spack runs in a thread of its own there, which no signal reaches."""
    started = site.testbed.folder / "started"
    (site.root / "spack" / "bin" / "spack").write_text(
        "#!/usr/bin/env python3\nimport pathlib, sys, time\nif 'concretize' in sys.argv:\n"
        f"    pathlib.Path('{started}').touch()\n    time.sleep({PATIENCE})\n"
    )
    process = site.testbed.start(BIN / "plumbline", "lock", site.name)
    try:
        wait_for(started.exists)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        stop(process)
    assert (process.returncode, codes_in(out + err)) == (2, [])
    assert err.splitlines() == ["plumbline: stopped"]


def test_spack_is_awaited_although_it_is_interrupted_again():
    """Its lock would be released while it works."""
    waits = []

    def wait(*_):
        waits.append(1)
        if len(waits) < 3:
            raise KeyboardInterrupt

    process = SimpleNamespace(
        stdout=None, poll=lambda: 0 if len(waits) == 3 else None, wait=wait, communicate=wait
    )
    with pytest.raises(KeyboardInterrupt), spack._awaited(process, lambda _: None):
        raise KeyboardInterrupt
    assert len(waits) == 3


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
