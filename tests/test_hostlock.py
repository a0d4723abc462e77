"""The lock that all sessions of a host share."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest
from plumbline.core import files, paths
from plumbline.core.errors import Fault
from plumbline.session import preflight
from plumbline.site import hostlock
from plumbline.site.hostlock import claim


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PLUMBLINE_LOCKS", str(tmp_path))
    return tmp_path


def test_one_at_a_time() -> None:
    first = claim("session one")
    with pytest.raises(files.Held) as held:
        claim("session two")
    assert str(held.value) == "session one"
    first.release()
    claim("session two").release()


@pytest.mark.holds("terminal")
def test_what_another_user_left_in_it_steers_no_terminal() -> None:
    first = claim("session \x1b[2J\x1b]0;owned\x07\nplumbline: all passed")
    with pytest.raises(files.Held) as held:
        claim("session two")
    first.release()
    assert str(held.value).isprintable()


def test_released_by_a_process_that_is_killed(folder: Path) -> None:
    child = os.fork()
    if child == 0:
        claim("a child that ends without a word")
        os._exit(0)
    os.waitpid(child, 0)
    claim("the next").release()


def test_a_full_disk_does_not_end_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    first = claim("session one")
    with pytest.raises(files.Held, match=r"^$"):
        claim("session two")
    first.release()


def test_every_user_may_lock_it(folder: Path) -> None:
    mask = os.umask(0o077)
    try:
        claim("of a careful user").release()
    finally:
        os.umask(mask)
    assert stat.S_IMODE(hostlock.path().stat().st_mode) == 0o666


@pytest.mark.holds("shared-folders")
@pytest.mark.parametrize("kind", ["link", "second name", "pipe", "folder"])
def test_what_lies_there_is_not_trusted(folder: Path, kind: str) -> None:
    victim, path = folder / "victim", hostlock.path()
    victim.write_text("precious")
    make = {
        "link": lambda: path.symlink_to(victim),
        "second name": lambda: path.hardlink_to(victim),
        "pipe": lambda: os.mkfifo(path),
        "folder": path.mkdir,
    }
    make[kind]()
    with pytest.raises(Fault, match=f"{path}: .*PLUMBLINE_LOCKS") as refusal:
        claim("session")
    assert refusal.value.code == "files.not-a-file"
    assert victim.read_text() == "precious"


@pytest.mark.holds("shared-folders")
def test_a_dangling_link_is_not_followed(folder: Path) -> None:
    hostlock.path().symlink_to(folder / "made")
    with pytest.raises(Fault):
        claim("session")
    assert not (folder / "made").exists()


@pytest.mark.parametrize(
    ("scheduler", "local", "locked"),
    [(True, False, True), (False, False, False), (False, True, True)],
)
def test_whose_jobs_run_here(folder: Path, scheduler: bool, local: bool, locked: bool) -> None:
    """Those of a check with `local`, too, on a partition with a scheduler."""
    partition = SimpleNamespace(scheduler=SimpleNamespace(is_local=scheduler))
    lock = preflight.claim_machine([(SimpleNamespace(local=local), partition, None)], "session")
    assert (lock is not None) is locked
    if lock:
        lock.release()


def test_its_folder_is_the_same_for_every_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PLUMBLINE_LOCKS")
    monkeypatch.setenv("TMPDIR", "/nowhere")
    assert paths.locks() in (Path("/run/lock"), Path("/tmp"))
    assert paths.locks().stat().st_mode & stat.S_ISVTX
