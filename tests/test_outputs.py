"""Files that a job left: regular ones of a bounded size, or none at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Testbed, asked, fault_of
from plumbline import parse
from plumbline.check import samples
from plumbline.operate.onboarding import node
from plumbline.parse import outputs

CAPTURE = Path(__file__).with_name("captures") / "imb" / "pingpong.out"


def large(path: Path) -> None:
    """A file that takes no disk."""
    path.touch()
    os.truncate(path, outputs.LARGEST + 1)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


#: What may lie in an output's place, and the error of reading it.
NONE: dict[str, tuple[Callable[[Path], None], int]] = {
    "large": (large, errno.EFBIG),
    "fifo": (os.mkfifo, errno.EINVAL),
    "endless": (endless, errno.EINVAL),
    "folder": (os.mkdir, errno.EINVAL),
}


@pytest.mark.parametrize("kind", NONE)
def test_what_is_no_file_of_a_job(kind: str, tmp_path: Path) -> None:
    """By each reader: of outputs, of the loop's files, of a node's description."""
    make, number = NONE[kind]
    path = tmp_path / "sample-0.out"
    make(path)
    with pytest.raises(OSError) as caught:
        outputs.read(path)
    assert (caught.value.filename, caught.value.errno) == (str(path), number)
    assert asked("parse", "imb", path).codes == ["input.unreadable-file"]
    fault_of(lambda: node.read(path), "input.unreadable-file")
    for name, read in ((samples.ENDS, samples.ends), (samples.NODES, samples.nodes_of_job)):
        make(tmp_path / name)
        with pytest.raises(samples.SampleError) as error:
            read(tmp_path)
        assert error.value.code == "output.file-unreadable"


def test_a_file_that_grows_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "sample-0.out"
    path.write_bytes(b"a\r\nb")
    monkeypatch.setattr(outputs, "LARGEST", 4)
    assert outputs.read(path) == "a\nb"
    path.write_bytes(b"abcde")
    fstat = os.fstat
    monkeypatch.setattr(os, "fstat", lambda file: os.stat_result([*fstat(file)[:6], 0, 0, 0, 0]))
    with pytest.raises(OSError) as caught:
        outputs.read(path)
    assert caught.value.errno == errno.EFBIG


def test_parse_command_follows_a_link(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to(CAPTURE)
    assert asked("parse", "imb", tmp_path / "out").code == 0


#: Name of a check -> what its job does last in each run, and the file that is then none.
LEFT = {
    "fifo_out": ("mkfifo sample-0.out", "sample-0.out"),
    "fifo_err": ("mkfifo sample-0.err", "sample-0.err"),
    # What tells of a run's end is written after this.
    "endless_ends": (f"ln -s /dev/zero {samples.ENDS}; exit 0", samples.ENDS),
    "large_out": (f"truncate -s {outputs.LARGEST + 1} sample-0.out", "sample-0.out"),
    "large_err": (f"truncate -s {outputs.LARGEST + 1} sample-0.err", "sample-0.err"),
}


def test_what_a_job_left_is_invalid(testbed: Testbed) -> None:
    testbed.environment("mpich", "imb")
    options = []
    for name, (command, file) in LEFT.items():
        last = [f"rm -f {file}; {command}"]
        options += ["-c", testbed.check_file(name, num_samples=1, num_warmups=0, after_sample=last)]
    done = testbed.plumbline("run", *options)
    assert done.code == 1
    for name, (_, file) in LEFT.items():
        fields = done.record(name)
        assert (fields["result"], fields["code"]) == ("invalid", "output.file-unreadable"), name
        assert f" {file}: " in fields["reason"] and fields["foms"] == []


def test_a_reason_is_never_as_long_as_what_it_quotes() -> None:
    """It goes into records, and onto terminals."""
    with pytest.raises(parse.ParseError) as caught:
        parse.parse("ior", "WARNING: " + "a" * 10**6)
    assert 100 < len(str(caught.value)) < 1100
