"""Files of folders that others may write to: no link is followed, and nothing is waited for."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from histories import line, store
from plumbline.analysis import baseline_diff
from plumbline.core import files
from plumbline.core.errors import Fault
from plumbline.operate import nightly
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
