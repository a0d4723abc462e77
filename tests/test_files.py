"""Files of folders that others may write to: no link is followed, and nothing is waited for."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from histories import line, store
from plumbline.analysis import baseline_diff
from plumbline.cli import common
from plumbline.core import files
from plumbline.core.errors import Fault
from plumbline.operate import nightly, site_folder
from plumbline.output import export


@pytest.mark.holds("results-files")
@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_WRONLY, os.O_RDWR | os.O_CREAT | os.O_TRUNC])
@pytest.mark.parametrize("kind", ["link", "dangling", "fifo", "folder", "device"])
def test_only_a_plain_file_is_opened(tmp_path: Path, kind: str, flags: int) -> None:
    path, victim = tmp_path / "there", tmp_path / "victim"
    victim.write_text("mine")
    make = {
        "link": lambda: path.symlink_to(victim),
        "dangling": lambda: path.symlink_to(tmp_path / "made"),
        "fifo": lambda: os.mkfifo(path),
        "folder": path.mkdir,
        "device": lambda: path.symlink_to(os.devnull),
    }
    make[kind]()
    before = len([*Path("/proc/self/fd").iterdir()])
    with pytest.raises(OSError):
        files.open_regular(path, flags)
    with pytest.raises(OSError):
        files.open_regular(os.devnull, os.O_RDWR)
    assert len([*Path("/proc/self/fd").iterdir()]) == before
    assert victim.read_text() == "mine" and not (tmp_path / "made").exists()


def test_a_plain_file_is_read_and_made(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with open(path, "w", opener=files.open_regular) as file:
        file.write("täxt")
    assert files.read_text(path) == "täxt"
    assert path.stat().st_mode & 0o111 == 0


@pytest.mark.holds("results-files")
@pytest.mark.parametrize("store", [
    lambda path: files.write_atomically(path, "new"),
    lambda path: baseline_diff.save(path, "id,source,locator,system,benchmark,metric,value,unit,"
                                    "statistic,kind\n"),
    lambda path: export.write_prometheus(export.ExportedSession("s", "alpha", {}, []), path),
])  # fmt: skip
@pytest.mark.parametrize("name", ["{}.partial", "{stem}.partial", "{}.{pid}.{thread}"])
def test_no_link_stands_in_for_what_is_written_first(tmp_path: Path, store, name: str) -> None:
    """A file is written under another name, and then takes its own."""
    victim, path = tmp_path / "victim", tmp_path / "file.csv"
    victim.write_text("mine")
    planted = name.format(path.name, stem=path.stem, pid=os.getpid(),
                          thread=threading.current_thread().ident)  # fmt: skip
    (tmp_path / planted).symlink_to(victim)
    store(path)
    assert victim.read_text() == "mine"
    assert path.is_file() and not path.is_symlink()


@pytest.mark.holds("results-files")
def test_the_lock_of_a_nightly_is_no_link(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "nightly-alpha.lock").symlink_to(victim)
    with pytest.raises(Fault, match="nightly-alpha"), nightly._locked(tmp_path, "alpha"):
        pass
    assert victim.read_text() == "mine"


@pytest.mark.holds("results-files")
def test_an_end_that_is_a_fifo_is_not_waited_for(tmp_path: Path) -> None:
    folder = store(tmp_path, line())
    os.mkfifo(folder / "end.json")
    code = "import sys; from pathlib import Path; from plumbline.history import history\n" \
           "from plumbline.output import export\n" \
           "with history.History(Path(sys.argv[1])) as found:\n" \
           "    export.load(found, sys.argv[2])"  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code, tmp_path, folder.name],
                          capture_output=True, text=True, timeout=90)  # fmt: skip
    assert "plumbline.core.errors.Fault" in done.stderr and folder.name in done.stderr


def test_a_reader_that_is_gone_is_no_fault():
    """As of ``plumbline history export | head``: the command ends without a message."""
    with pytest.raises(BrokenPipeError), files.writing("standard output"):
        raise BrokenPipeError


@contextlib.contextmanager
def full_disk() -> Iterator[None]:
    """Files can be created here, and nothing can be written into them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("before", [None, "old"])
def test_a_result_that_does_not_fit_leaves_the_file_as_it_was(tmp_path: Path, before: str | None):
    path = tmp_path / "out.csv"
    if before:
        path.write_text(before)
    with pytest.raises(Fault) as refusal, full_disk():
        common.write("new", path)
    assert refusal.value.code == "files.not-writable" and str(path) in str(refusal.value)
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == (
        {path.name: before} if before else {}
    )


def test_what_replaces_a_file_keeps_its_permissions_and_a_link_to_it(tmp_path: Path):
    link, file = tmp_path / "latest.csv", tmp_path / "shared.csv"
    file.touch()
    file.chmod(0o660)
    link.symlink_to(file)
    common.write("new", link)
    assert link.readlink() == file and file.read_text() == "new"
    assert file.stat().st_mode & 0o777 == 0o660


def test_a_result_may_go_to_a_pipe(tmp_path: Path):
    """As of ``-o /dev/stdout``, or of ``-o >(gzip)``."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    common.write("new", pipe)
    assert os.read(end, 9) == b"new" and pipe.is_fifo()
    os.close(end)


def test_a_file_in_a_folder_of_others_is_written_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    file = tmp_path / "out.csv"
    file.touch()
    inode = file.stat().st_ino
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)
    common.write("new", file)
    assert (file.read_text(), file.stat().st_ino) == ("new", inode)


@pytest.mark.parametrize("there", [False, True])
def test_a_site_folder_that_does_not_fit_can_be_laid_out_later(tmp_path: Path, there: bool):
    folder = tmp_path / "site"
    if there:
        folder.mkdir()
    with pytest.raises(Fault) as refusal, full_disk():
        site_folder.lay_out(folder)
    assert refusal.value.code == "files.not-writable" and str(folder) in str(refusal.value)
    site_folder.lay_out(folder)
    assert (folder / "README.md").stat().st_size
