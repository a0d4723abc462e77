"""Folders to write to: which file system, whether it will do, and nothing left where it won't."""

from __future__ import annotations

import errno
import os
import re
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
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
        # What a job has to ask for is there in that job alone.
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


def test_a_folder_in_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    says = "file system alpine: its folder is in the variable MEMBERWORK, which is not set: set it"
    with pytest.raises(ScratchError, match=says):
        file_system(EXTRAS, "alpine")
    monkeypatch.setenv("MEMBERWORK", "/gpfs/alpine/scratch/$USER")
    # It is replaced once: what a variable holds is a folder's name.
    assert file_system(EXTRAS, "alpine").folder == "/gpfs/alpine/scratch/$USER"


def test_a_variable_within_a_path_that_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("USER")
    for name in ("scratch", "gpfs", "burst-buffer"):
        with pytest.raises(ScratchError, match=f"file system {name}: .*variable USER"):
            file_system(EXTRAS, name)


def test_an_empty_variable_is_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be the folder that ReFrame was started in, and another in the job."""
    monkeypatch.setenv("MEMBERWORK", "")
    with pytest.raises(ScratchError, match="file system alpine: its folder '' is no absolute"):
        file_system(EXTRAS, "alpine")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nowhere", "no folder: give its path or path_variable"),
        ("odd", "'/p/\\$/x' is no folder"),
        ("relative", "'p/gpfs1' is no absolute path"),
    ],
)
def test_a_path_that_is_none(name: str, says: str) -> None:
    with pytest.raises(ScratchError, match=f"file system {name}: .*{says}"):
        file_system(EXTRAS, name)


@pytest.mark.parametrize("name", ["lustre", "scratch", ""])
@pytest.mark.parametrize("extras", [{}, {"scratch": ""}, {"file_systems": None}])
def test_a_partition_without_it(extras: dict, name: str) -> None:
    says = f"the partition has no {name} folder: set its extras.scratch, or name it among"
    with pytest.raises(ScratchError, match=says):
        file_system(extras, name)


def test_a_folder_with_a_dollar_in_its_name() -> None:
    assert file_system({"scratch": "/tmp/$$(id) $${USER}"}, "scratch").folder == (
        "/tmp/$(id) ${USER}"
    )


def test_a_file_system_that_is_called_scratch() -> None:
    """As Perlmutter's: it is the one that is meant."""
    extras = {"scratch": "/var/tmp", "file_systems": {"scratch": {"path": "/lustre"}}}
    assert file_system(extras, "scratch").folder == "/lustre"


# -- a folder of one's own -----------------------------------------------------------------------


def test_no_two_test_cases_have_the_same_folder() -> None:
    found = {scratch.own_folder("/scratch", "ior_0123abcd") for _ in range(100)}
    assert len(found) == 100
    for folder in found:
        assert folder.parent == Path("/scratch")
        assert re.fullmatch(r"plumbline-ior_0123abcd-[0-9a-f]{8}", folder.name)


def room(monkeypatch: pytest.MonkeyPatch, **told: int) -> None:
    """Has every file system tell of so much room."""
    usual = {"f_frsize": 4096, "f_bavail": 1000, "f_files": 1000, "f_favail": 100}
    # f_bsize and f_bfree are not what a user may fill.
    misleading = {"f_bsize": 2**30, "f_bfree": 2**40, "f_ffree": 2**40}
    answer = SimpleNamespace(**{**usual, **misleading, **told})
    monkeypatch.setattr(scratch.os, "statvfs", lambda _: answer)


def test_a_folder_that_will_do(tmp_path: Path) -> None:
    folder = scratch.own_folder(str(tmp_path), "fio")
    make(folder, needed=1, files=1, direct_io=False)
    assert folder.is_dir() and list(folder.iterdir()) == []
    # Nobody else looks into it.
    assert folder.stat().st_mode & 0o777 == 0o700
    with pytest.raises(ScratchError, match=f"{tmp_path}: File exists"):
        make(folder, needed=1, files=1, direct_io=False)
    assert folder.is_dir()


@pytest.mark.parametrize(
    ("needed", "files", "says"),
    [
        # A twentieth more must be free than is needed.
        (3900 * 1000, 1, None),
        (4096 * 1000, 1, r"has 0\.00 GiB free, 0\.00 GiB are needed"),
        (40 * 2**30, 1, r"has 0\.00 GiB free, 40\.00 GiB are needed"),
        (1, 95, None),
        (1, 96, "has 100 inodes free, 96 are needed"),
        (1, 1001, "has 100 inodes free, 1001 are needed"),
    ],
)
def test_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, needed: int, files: int, says: str | None
) -> None:
    room(monkeypatch)
    folder = tmp_path / "own"
    if says is None:
        make(folder, needed, files, direct_io=False)
        assert folder.is_dir()
        return
    with pytest.raises(ScratchError, match=f"^{tmp_path} {says}: free some, or point the part"):
        make(folder, needed, files, direct_io=False)
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_that_does_not_count_inodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room(monkeypatch, f_files=0, f_favail=0)
    make(tmp_path / "own", needed=1, files=10**9, direct_io=False)
    assert (tmp_path / "own").is_dir()


def test_a_file_system_that_does_not_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(scratch.os, "statvfs", fails)
    with pytest.raises(ScratchError, match=f"^{tmp_path}: Input/output error: point the part"):
        make(tmp_path / "own", needed=1, files=1, direct_io=False)
    assert list(tmp_path.iterdir()) == []


def test_a_parent_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ScratchError, match=f"^{tmp_path}/gone: No such file or directory: point"):
        make(tmp_path / "gone" / "own", needed=1, files=1, direct_io=False)
    (tmp_path / "file").touch()
    with pytest.raises(ScratchError, match=f"^{tmp_path}/file: Not a directory: point"):
        make(tmp_path / "file" / "own", needed=1, files=1, direct_io=False)


def test_a_parent_that_may_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() == 0:
        # What root may not write is the kernel's own.
        parent = Path("/proc/self")
    else:
        parent = tmp_path / "closed"
        parent.mkdir(mode=0o500)
    with pytest.raises(ScratchError, match=f"^{parent}: .+: point the partition's scratch"):
        make(parent / "own", needed=1, files=1, direct_io=False)


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
    with pytest.raises(ScratchError, match=f"^{in_memory} has no direct I/O, and what the page"):
        make(in_memory / "own", needed=1, files=1, direct_io=True)
    assert list(in_memory.iterdir()) == []
    make(in_memory / "own", needed=1, files=1, direct_io=False)
    assert (in_memory / "own").is_dir()


def test_no_direct_io(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an old tmpfs answers: the file is made, and its opening refused all the same."""
    opened = os.open

    def refuses(path: Path, flags: int, mode: int) -> int:
        os.close(opened(path, flags & ~os.O_DIRECT, mode))
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return opened(path, flags, mode)

    monkeypatch.setattr(scratch.os, "open", refuses)
    with pytest.raises(ScratchError, match=f"^{tmp_path} has no direct I/O"):
        make(tmp_path / "own", needed=1, files=1, direct_io=True)
    assert list(tmp_path.iterdir()) == []
    make(tmp_path / "own", needed=1, files=1, direct_io=False)
    assert (tmp_path / "own").is_dir()


def test_the_file_system_that_a_folder_is_on(in_memory: Path, tmp_path: Path) -> None:
    assert scratch.kind(in_memory).split()[0] in ("tmpfs", "ramfs")
    assert str(in_memory).startswith(scratch.kind(in_memory).split(maxsplit=1)[1])
    assert scratch.kind(in_memory / "not-there") == str(in_memory / "not-there")
    assert len(scratch.kind(tmp_path).split(maxsplit=1)) == 2
