"""Files that a job left: regular ones of a bounded size, or none at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from conftest import Testbed
from plumbline import parse
from plumbline.check import samples
from plumbline.cli import main
from plumbline.core.errors import Fault
from plumbline.operate.onboarding import node
from plumbline.parse import outputs

CAPTURE = Path(__file__).with_name("captures") / "imb" / "pingpong.out"


def large(path: Path) -> None:
    """A file that takes no disk."""
    path.touch()
    os.truncate(path, outputs.LARGEST + 1)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


#: What may lie in an output's place -> what is said of it.
NONE: dict[str, tuple[Callable[[Path], None], str]] = {
    "large": (large, f"{outputs.LARGEST + 1} bytes"),
    "fifo": (os.mkfifo, "no regular file"),
    "endless": (endless, "no regular file"),
    "folder": (os.mkdir, "no regular file"),
}
EACH = pytest.mark.parametrize("kind", NONE)


@EACH
def test_no_file_to_be_read(kind: str, tmp_path: Path) -> None:
    make, says = NONE[kind]
    make(tmp_path / "sample-0.out")
    with pytest.raises(OSError, match=says) as caught:
        outputs.read(tmp_path / "sample-0.out")
    assert caught.value.filename == str(tmp_path / "sample-0.out")


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
    with pytest.raises(OSError, match="5 bytes; of no output are more than 4"):
        outputs.read(path)


@EACH
def test_parse_command(kind: str, tmp_path: Path) -> None:
    make, says = NONE[kind]
    make(tmp_path / "out")
    done = CliRunner().invoke(main, ["parse", "imb", str(tmp_path / "out")])
    assert done.exit_code == 2
    assert says in done.output


def test_parse_command_follows_a_link(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to(CAPTURE)
    assert CliRunner().invoke(main, ["parse", "imb", str(tmp_path / "out")]).exit_code == 0


@EACH
@pytest.mark.parametrize("name", [samples.ENDS, samples.NODES])
def test_files_of_the_loop(name: str, kind: str, tmp_path: Path) -> None:
    make, says = NONE[kind]
    make(tmp_path / name)
    read = samples.ends if name == samples.ENDS else samples.nodes_of_job
    with pytest.raises(samples.SampleError, match=says):
        read(tmp_path)


@EACH
def test_what_a_node_says_of_itself(kind: str, tmp_path: Path) -> None:
    make, says = NONE[kind]
    make(tmp_path / "out")
    with pytest.raises(Fault, match=says):
        node.read(tmp_path / "out")


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("mkfifo", "sample-0.out: it is no regular file"),
        ("mkfifo", "sample-0.err: it is no regular file"),
        ("ln -s /dev/zero", "samples.txt: it is no regular file"),
        (f"truncate -s {outputs.LARGEST + 1}", f"sample-0.out: it has {outputs.LARGEST + 1} bytes"),
        (f"truncate -s {outputs.LARGEST + 1}", f"sample-0.err: it has {outputs.LARGEST + 1} bytes"),
    ],
)
def test_what_a_job_left_is_invalid(testbed: Testbed, command: str, reason: str) -> None:
    testbed.environment("mpich", "imb")
    name = reason.partition(":")[0]
    path = testbed.check_file("odd", wanted=[("pingpong_latency", 8)])
    # What tells of a run's end is written after this.
    end = "; exit 0" if name == samples.ENDS else ""
    left = f"after_sample=rm -f {name}; {command} {name}{end}"
    done = testbed.plumbline(
        "run", "-c", path, "-S", "num_samples=1", "-S", "num_warmups=0", "-S", left
    )
    (fields,) = done.records
    assert fields["result"] == "invalid" and fields["foms"] == []
    assert reason in fields["reason"]
    assert done.code == 1


def test_a_reason_is_never_as_long_as_what_it_quotes() -> None:
    """It goes into records, and onto terminals."""
    with pytest.raises(parse.ParseError) as caught:
        parse.parse("ior", "WARNING: " + "a" * 10**6)
    assert 100 < len(str(caught.value)) < 1100
