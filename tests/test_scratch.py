"""Scratch folders: which file system, whether it suits, and that nothing is left otherwise."""

from __future__ import annotations

import errno
import os
import re
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import Testbed
from plumbline.check import scratch
from plumbline.check.scratch import FileSystem, ScratchError, file_system, make

EXTRAS = {
    "scratch": "/scratch/$USER",
    "file_systems": {
        "alpine": {"path_variable": "MEMBERWORK", "type": "gpfs"},
        "gpfs": {"path": "/p/gpfs1/${USER}/x"},
        "burst-buffer": {"path": "/mnt/bb/$USER", "resource": "burst_buffer"},
        "nvme": {"path": "/nvme", "node_local": True},
        "unit": {"path": "/unit", "conditions": {"gl4_units": "1"}},
        "nowhere": {"type": "gpfs"},
        "odd": {"path": "/p/$/x"},
        "relative": {"path": "p/gpfs1"},
    },
}


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USER", "someone")
    monkeypatch.delenv("MEMBERWORK", raising=False)


# -- which file system ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "folder", "node_local", "resource", "conditions"),
    [
        ("scratch", "/scratch/someone", False, None, {}),
        ("gpfs", "/p/gpfs1/someone/x", False, None, {}),
        # What a job must request exists in that job alone.
        ("burst-buffer", "/mnt/bb/someone", True, "burst_buffer", {}),
        ("nvme", "/nvme", True, None, {}),
        ("unit", "/unit", False, None, {"gl4_units": "1"}),
    ],
)
def test_file_system(
    name: str, folder: str, node_local: bool, resource: str | None, conditions: dict
) -> None:
    found = file_system(EXTRAS, name)
    assert found == FileSystem(
        name, folder, node_local, resource, {"filesystem": name, **conditions}
    )


def refusal(call: Callable[[], object], code: str) -> str:
    """The message of a refusal with that code."""
    with pytest.raises(ScratchError) as refused:
        call()
    assert refused.value.code == code
    return str(refused.value)


def test_a_folder_in_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    message = refusal(lambda: file_system(EXTRAS, "alpine"), "scratch.variable-unset")
    assert "alpine" in message and "MEMBERWORK" in message
    monkeypatch.setenv("MEMBERWORK", "/gpfs/alpine/scratch/$USER")
    # Variables within the value of a variable are not replaced.
    assert file_system(EXTRAS, "alpine").folder == "/gpfs/alpine/scratch/$USER"


@pytest.mark.parametrize("name", ["scratch", "gpfs", "burst-buffer"])
def test_a_variable_within_a_path_is_unset(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.delenv("USER")
    assert name in refusal(lambda: file_system(EXTRAS, name), "scratch.variable-unset")


@pytest.mark.parametrize("name", ["nowhere", "odd", "relative", "alpine"])
def test_not_an_absolute_path(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """An empty variable would be the folder in which ReFrame was started."""
    monkeypatch.setenv("MEMBERWORK", "")
    assert name in refusal(lambda: file_system(EXTRAS, name), "scratch.not-a-folder")


@pytest.mark.parametrize("name", ["lustre", "scratch", ""])
@pytest.mark.parametrize("extras", [{}, {"scratch": ""}, {"file_systems": None}])
def test_a_partition_without_it(extras: dict, name: str) -> None:
    assert name in refusal(lambda: file_system(extras, name), "scratch.none")


def test_a_folder_with_a_dollar_in_its_name() -> None:
    assert file_system({"scratch": "/tmp/$$(id) $${USER}"}, "scratch").folder == (
        "/tmp/$(id) ${USER}"
    )


def test_a_file_system_called_scratch() -> None:
    """As Perlmutter's: it wins over `extras.scratch`."""
    extras = {"scratch": "/var/tmp", "file_systems": {"scratch": {"path": "/lustre"}}}
    assert file_system(extras, "scratch").folder == "/lustre"


# -- an own folder ------------------------------------------------------------------------------


def test_no_two_test_cases_have_the_same_folder() -> None:
    found = {scratch.own_folder("/scratch", "ior_0123abcd") for _ in range(100)}
    assert len(found) == 100
    for folder in found:
        assert folder.parent == Path("/scratch")
        assert re.fullmatch(r"plumbline-ior_0123abcd-[0-9a-f]{8}", folder.name)


def report_room(monkeypatch: pytest.MonkeyPatch, **room: int) -> None:
    """Make every file system report this much space."""
    usual = {"f_frsize": 4096, "f_bavail": 1000, "f_files": 1000, "f_favail": 100}
    # A user cannot fill f_bsize and f_bfree.
    misleading = {"f_bsize": 2**30, "f_bfree": 2**40, "f_ffree": 2**40}
    answer = SimpleNamespace(**{**usual, **misleading, **room})
    monkeypatch.setattr(scratch.os, "statvfs", lambda _: answer)


def test_a_suitable_folder(tmp_path: Path) -> None:
    folder = scratch.own_folder(str(tmp_path), "fio")
    make(folder, needed=1, files=1, direct_io=False)
    assert folder.is_dir() and list(folder.iterdir()) == []
    assert folder.stat().st_mode & 0o777 == 0o700
    # A folder that exists is not taken over, and not removed.
    refusal(lambda: make(folder, 1, 1, False), "scratch.not-writable")
    assert folder.is_dir()


@pytest.mark.parametrize(
    ("needed", "files", "message"),
    [
        # A twentieth more must be free than is needed.
        (3900 * 1000, 1, None),
        (4096 * 1000, 1, "0.00 GiB free, 0.00 GiB"),
        (40 * 2**30, 1, "0.00 GiB free, 40.00 GiB"),
        (1, 95, None),
        (1, 96, "100 inodes free, 96"),
        (1, 1001, "100 inodes free, 1001"),
    ],
)
def test_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, needed: int, files: int, message: str | None
) -> None:
    report_room(monkeypatch)
    folder = tmp_path / "own"
    if message is None:
        make(folder, needed, files, direct_io=False)
        assert folder.is_dir()
        return
    refused = refusal(lambda: make(folder, needed, files, False), "scratch.too-little-space")
    assert f"{tmp_path} has {message}" in refused
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_that_does_not_count_inodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report_room(monkeypatch, f_files=0, f_favail=0)
    make(tmp_path / "own", needed=1, files=10**9, direct_io=False)
    assert (tmp_path / "own").is_dir()


def test_a_file_system_that_does_not_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(scratch.os, "statvfs", fails)
    message = refusal(lambda: make(tmp_path / "own", 1, 1, False), "scratch.not-writable")
    assert message.startswith(f"{tmp_path}: Input/output error")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["missing", "file", "closed"])
def test_a_parent_that_cannot_be_written(tmp_path: Path, kind: str) -> None:
    parent = tmp_path / kind
    if kind == "file":
        parent.touch()
    elif kind == "closed" and os.geteuid() == 0:
        # Root can write to every folder but the kernel's own.
        parent = Path("/proc/self")
    elif kind == "closed":
        parent.mkdir(mode=0o500)
    message = refusal(lambda: make(parent / "own", 1, 1, False), "scratch.not-writable")
    assert message.startswith(f"{parent}: ")


@pytest.mark.holds("shared-folders")
@pytest.mark.parametrize("kind", ["nothing", "own", "link", "dangling", "file", "other's"])
def test_a_job_makes_a_folder_of_its_own_on_a_node(tmp_path: Path, kind: str) -> None:
    folder, elsewhere = tmp_path / "it's own", tmp_path / "elsewhere"
    elsewhere.mkdir()
    if kind == "other's" and os.geteuid() != 0:
        pytest.skip("only root makes another user's folder")
    plant = {
        "own": lambda: folder.mkdir(0o700),
        "link": lambda: folder.symlink_to(elsewhere),
        "dangling": lambda: folder.symlink_to(tmp_path / "made"),
        "file": folder.touch,
        "other's": lambda: (folder.mkdir(0o777), os.chown(folder, 65534, 65534)),
    }
    plant.get(kind, lambda: None)()
    done = subprocess.run(["sh", "-c", scratch.making(folder)], capture_output=True, text=True)
    if kind in ("nothing", "own"):
        assert (done.returncode, done.stderr) == (0, "")
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    else:
        assert done.returncode == 1 and f"plumbline: {folder} " in done.stderr
        assert not (tmp_path / "made").exists()


# -- direct I/O ----------------------------------------------------------------------------------


def test_direct_io_leaves_nothing_behind(disk: Path) -> None:
    folder = disk / "own"
    make(folder, needed=1, files=1, direct_io=True)
    assert list(folder.iterdir()) == []
    folder.rmdir()


@pytest.fixture
def in_memory() -> Iterator[Path]:
    """A folder in memory, whose file system may take the flag of direct I/O nevertheless."""
    shared = Path("/dev/shm")
    mounts = Path("/proc/mounts").read_text().splitlines()
    if not any(line.split()[1:3] == [str(shared), "tmpfs"] for line in mounts):
        pytest.skip(f"{shared} is no tmpfs")
    with tempfile.TemporaryDirectory(dir=shared) as folder:
        yield Path(folder)


def test_no_direct_io_in_memory(in_memory: Path) -> None:
    message = refusal(lambda: make(in_memory / "own", 1, 1, True), "scratch.no-direct-io")
    assert message.startswith(f"{in_memory} ")
    assert list(in_memory.iterdir()) == []
    make(in_memory / "own", needed=1, files=1, direct_io=False)
    assert (in_memory / "own").is_dir()


@pytest.mark.parametrize("name", ["tmpfs", "ramfs", "zfs"])
def test_direct_io_without_effect(disk: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """ZFS 0.8 to 2.2 take the flag, and use their cache nevertheless (openzfs/zfs#7823)."""
    device = disk.stat().st_dev
    mounts = [(f"{os.major(device)}:{os.minor(device)}", "/", name)]
    monkeypatch.setattr(scratch, "_mounts", lambda: mounts)
    refusal(lambda: make(disk / "own", 1, 1, True), "scratch.no-direct-io")
    make(disk / "own", needed=1, files=1, direct_io=False)
    (disk / "own").rmdir()


def made_by_a_job(folder: Path, direct_io: bool, **env: str) -> subprocess.CompletedProcess:
    command = ["sh", "-c", scratch.making(folder, direct_io)]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **env})


def test_a_job_finds_that_a_node_has_no_direct_io(in_memory: Path) -> None:
    done = made_by_a_job(in_memory / "own", direct_io=True)
    found = scratch.refusal(f"loading\n{done.stderr}mpirun detected that a process exited\n")
    assert (done.returncode, found and found.code) == (1, "scratch.no-direct-io")
    assert str(found).startswith(f"{in_memory} (tmpfs on {os.uname().nodename}) ")
    done = made_by_a_job(in_memory / "own", direct_io=False)
    assert (done.returncode, scratch.refusal(done.stderr)) == (0, None)


@pytest.mark.parametrize(("name", "status"), [("zfs", 1), ("ext2/ext3", 0), ("", 0)])
def test_a_job_knows_direct_io_by_type(disk: Path, tmp_path: Path, name: str, status: int) -> None:
    program = tmp_path / "stat"
    program.write_text(f"#!/bin/sh\necho {name}\n")
    program.chmod(0o755)
    done = made_by_a_job(disk / "own", True, PATH=f"{tmp_path}:{os.environ['PATH']}")
    (disk / "own").rmdir()
    assert (done.returncode, scratch.refusal(done.stderr) is None) == (status, status == 0)


def test_a_case_in_memory_of_a_node_is_skipped(testbed: Testbed, in_memory: Path) -> None:
    testbed.environment("path", "fio")
    where = {"scratch": {"path": str(in_memory), "node_local": True}}
    testbed.write(extras={"detect": True, "file_systems": where})
    done = testbed.plumbline("run", "-n", "fio", "-S", "fio.size=8", "-S", "num_samples=1")
    assert [(record["result"], record["code"]) for record in done.records] == (
        [("skip", "scratch.no-direct-io")] * 2
    )
    assert list(in_memory.iterdir()) == []


def test_no_direct_io(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on an old tmpfs: the file is made, although opening it fails."""
    opened = os.open

    def refuses(path: Path, flags: int, mode: int) -> int:
        os.close(opened(path, flags & ~os.O_DIRECT, mode))
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return opened(path, flags, mode)

    monkeypatch.setattr(scratch.os, "open", refuses)
    refusal(lambda: make(tmp_path / "own", 1, 1, True), "scratch.no-direct-io")
    assert list(tmp_path.iterdir()) == []
    make(tmp_path / "own", needed=1, files=1, direct_io=False)
    assert (tmp_path / "own").is_dir()


def test_the_file_system_that_a_folder_is_on(in_memory: Path, tmp_path: Path) -> None:
    assert scratch.kind(in_memory).split()[0] in ("tmpfs", "ramfs")
    assert str(in_memory).startswith(scratch.kind(in_memory).split(maxsplit=1)[1])
    assert scratch.kind(in_memory / "not-there") == str(in_memory / "not-there")
    assert len(scratch.kind(tmp_path).split(maxsplit=1)) == 2
