"""The loop over samples in a job script: run by bash, with a launcher that logs its options."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plumbline.check import samples
from plumbline.check.samples import RunEnd, SampleError
from plumbline.placement.binding import Binding
from plumbline.placement.placement import Layout, Task
from plumbline.placement.topology import Core

#: Takes its options, logs them, and starts the tasks.
LAUNCHER = """\
#!{python}
import json, os, subprocess, sys
words = sys.argv[1:]
start = words.index("./task.sh")
with open("launched", "a") as file:
    line = {{"options": words[:start], "task": words[start + 1:], "kind": os.environ.get("KIND")}}
    print(json.dumps(line), file=file)
codes = [
    subprocess.run(words[start:], env={{**os.environ, "PMI_RANK": str(rank)}}).returncode
    for rank in range(int(os.environ["TASKS"]))
]
sys.exit(next((code if code > 0 else 128 - code for code in codes if code), 0))
"""

#: Prints its arguments and its own word; one run ends as its environment has it.
PROGRAM = """\
#!/bin/sh
echo "$PMI_RANK: $WORD: $*"
echo complaint >&2
echo started >>started
[ "$(wc -l <started)" != "$FAIL_AT" ] || eval "$FAIL"
"""


def layout(*location: str, tasks: int = 1) -> Layout:
    core = Core((0,), 0, 0)
    return Layout("per-gpu", tuple(Task(0, (core,)) for _ in range(tasks)), location)


class Job:
    """A job script in a folder of its own, as ReFrame puts it together."""

    def __init__(self, folder: Path):
        self.folder = folder
        shutil.copy(ROOT / "reframe" / "plumbline" / "placement" / "task.sh", folder)
        for name, text in {"launch": LAUNCHER.format(python=sys.executable), "p": PROGRAM}.items():
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)

    def run(
        self,
        layouts: list[Layout],
        bindings: list[Binding],
        count: int,
        warmups: int = 0,
        env: dict[str, str] | None = None,
        **how: object,
    ) -> int:
        """Runs the loop to its end, and gives the script's exit code."""
        loop = samples.loop(layouts, bindings, count, warmups, **how)
        words = ["./launch", *samples.options(bindings), "./task.sh", "$sample", *loop.words]
        command = " ".join([*words, "./p", "arg", "'two words'", *loop.redirections])
        script = self.folder / "job.sh"
        script.write_text("\n".join(["#!/bin/bash", *loop.before, command, *loop.after, ""]))
        given = {"TASKS": str(layouts[0].num_tasks), "FAIL_AT": "", "FAIL": "", **(env or {})}
        done = subprocess.run(
            ["bash", "job.sh"],
            cwd=self.folder,
            env={**os.environ, **given},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        # Whatever the program says is in its own files.
        assert (done.stdout, done.stderr) == ("", ""), done
        return done.returncode

    @property
    def launched(self) -> list[dict]:
        return [json.loads(line) for line in (self.folder / "launched").read_text().splitlines()]

    def text(self, name: str) -> str:
        return (self.folder / name).read_text()

    @property
    def files(self) -> set[str]:
        return {path.name for path in self.folder.glob("sample*")}


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


#: Words that a shell would take apart or replace.
AWKWARD = ["--smpiargs=-mca coll ^basic", "it's", 'a "b"', "$HOME", "`id`", "*", "", "a\\b", "x;y"]
THREE = [layout("gpu0"), layout("gpu1"), layout("gpu0-gpu1")]


def test_one_layout(job: Job) -> None:
    """A warm-up and two samples, each with the same options and an output of its own."""
    bindings = [Binding(options=tuple(AWKWARD), task=("WORD=it's $HOME", "env", "A=b c"))]
    assert job.run([layout()], bindings, 3, 1) == 0
    task = ["WORD=it's $HOME", "env", "A=b c", "./p", "arg", "two words"]
    assert job.launched == [
        {"options": AWKWARD, "task": [str(sample), *task], "kind": None} for sample in range(3)
    ]
    runs = list(samples.runs([layout()], 3))
    assert [(run.sample, run.name) for run in runs] == [(0, "0"), (1, "1"), (2, "2")]
    for run in runs:
        assert job.text(run.out) == "0: it's $HOME: arg two words\n"
        assert job.text(run.err).endswith("complaint\n")
        assert "plumbline-task 0 " in job.text(run.err)
    # The first sample alone describes the host.
    assert [("plumbline-host" in job.text(run.err)) for run in runs] == [True, False, False]
    assert job.files == {name for run in runs for name in (run.out, run.err)} | {samples.ENDS}
    ended = samples.ends(job.folder)
    assert list(ended) == ["0", "1", "2"]
    assert [end.status for end in ended.values()] == [0, 0, 0]


def test_several_layouts_each_with_its_own_binding(job: Job) -> None:
    """Each sample measures all of them before the next begins."""
    bindings = [
        Binding(("-a", "one two"), {"KIND": "first $x"}, {}, ("WORD=a  b",)),
        Binding((), {"KIND": "it's"}, {}, ()),
        Binding(tuple(AWKWARD), {"KIND": 'a "b"\n'}, {}, ("WORD=c", "env", "A=*")),
    ]
    assert job.run(THREE, bindings, 2, 1) == 0
    args = ["./p", "arg", "two words"]
    assert job.launched == [
        launch
        for sample in ("0", "1")
        for launch in (
            {
                "options": ["-a", "one two"],
                "task": [sample, "WORD=a  b", *args],
                "kind": "first $x",
            },
            {"options": [], "task": [sample, *args], "kind": "it's"},
            {
                "options": AWKWARD,
                "task": [sample, "WORD=c", "env", "A=*", *args],
                "kind": 'a "b"\n',
            },
        )
    ]
    runs = list(samples.runs(THREE, 2))
    assert [run.name for run in runs] == [
        "0-gpu0", "0-gpu1", "0-gpu0-gpu1", "1-gpu0", "1-gpu1", "1-gpu0-gpu1",
    ]  # fmt: skip
    assert [run.layout for run in runs] == THREE * 2
    assert [job.text(run.out).split(":")[1] for run in runs] == [" a  b", " ", " c"] * 2
    assert list(samples.ends(job.folder)) == [run.name for run in runs]
    assert job.files == {name for run in runs for name in (run.out, run.err)} | {samples.ENDS}


def test_a_layout_of_many_names_is_one_run(job: Job) -> None:
    """One process goes through them all."""
    one = layout("gpu0", "gpu1")
    assert [run.name for run in samples.runs([one], 2)] == ["0", "1"]
    assert job.run([one], [Binding(("-n", "1"))], 2) == 0
    assert list(samples.ends(job.folder)) == ["0", "1"]


def test_commands_around_each_run(job: Job) -> None:
    """They know the run's name, and do not change its exit code."""
    how = {
        "before_sample": ["echo before $run >>log", "false"],
        "after_sample": ["echo after $run >>log", "mv p.json sample-$run.json 2>>log", "false"],
    }
    two = THREE[:2]
    assert job.run(two, [Binding(), Binding()], 2, **how) == 0
    lines = [line for line in job.text("log").splitlines() if not line.startswith("mv")]
    assert lines == [
        f"{when} {name}"
        for name in ("0-gpu0", "0-gpu1", "1-gpu0", "1-gpu1")
        for when in ("before", "after")
    ]
    assert [end.status for end in samples.ends(job.folder).values()] == [0] * 4


@pytest.mark.parametrize("several", [False, True])
def test_each_task_has_an_output_of_its_own(job: Job, several: bool) -> None:
    layouts = [layout("gpu0", tasks=3), layout("gpu1", tasks=3)] if several else [
        layout("gpu0", "gpu1", "gpu2", tasks=3)
    ]  # fmt: skip
    bindings = [Binding(task=("WORD=w",)) for _ in layouts]
    assert job.run(layouts, bindings, 2, output_per_task=True) == 0
    for run in samples.runs(layouts, 2):
        for rank in range(3):
            assert job.text(run.out_of_rank(rank)) == f"{rank}: w: arg two words\n"
        # Nothing is left for the output that they would share.
        assert job.text(run.out) == ""
        assert job.text(run.err).count("complaint") == 3


@pytest.mark.parametrize(("fail", "code"), [("exit 3", 3), ("kill -9 $$", 137), ("exit 1", 1)])
@pytest.mark.parametrize("several", [False, True])
def test_a_run_that_fails_ends_the_job(job: Job, fail: str, code: int, several: bool) -> None:
    """With its exit code; what was measured before it is there to read."""
    layouts = THREE[:2] if several else [layout()]
    bindings = [Binding() for _ in layouts]
    env = {"FAIL_AT": "3", "FAIL": fail}
    how = {"after_sample": ["echo after $run >>log"]}
    assert job.run(layouts, bindings, 4, env=env, **how) == code
    names = [run.name for run in samples.runs(layouts, 4)][:3]
    ended = samples.ends(job.folder)
    assert [(name, end.status) for name, end in ended.items()] == [
        (names[0], 0), (names[1], 0), (names[2], code),
    ]  # fmt: skip
    assert job.text("log").split() == [word for name in names for word in ("after", name)]
    assert len(job.launched) == 3
    assert not (job.folder / samples.Run(3, layouts[0], "3").out).exists()


def test_a_command_before_a_run_can_end_the_job(job: Job) -> None:
    """Nothing was started, and nothing tells of a run."""
    assert job.run([layout()], [Binding()], 2, before_sample=["exit 7"]) == 7
    assert samples.ends(job.folder) == {}
    assert not (job.folder / "launched").exists()


WORDS = st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=WORDS, second=WORDS, value=st.text("ab $'\"\\\n;*", max_size=5))
def test_any_words_reach_the_launcher(
    tmp_path: Path, first: list[str], second: list[str], value: str
) -> None:
    """Of one layout and of several, as they are."""
    bindings = [
        Binding(tuple(words), {"VALUE": value}, {}, tuple(reversed(words)))
        for words in (first, second)
    ]
    layouts = THREE[:2]
    for of_them in (slice(0, 1), slice(0, 2)):
        log = tmp_path / "log"
        log.unlink(missing_ok=True)
        chosen, bound = layouts[of_them], bindings[of_them]
        loop = samples.loop(chosen, bound, 1, 0)
        say = ["printf '%s\\0'", *samples.options(bound), "--", *loop.words, '"$VALUE"']
        say += [f">>{shlex.quote(str(log))}"]
        script = "\n".join([*loop.before, " ".join(say), *loop.after])
        subprocess.run(
            ["bash", "-c", script],
            cwd=tmp_path,
            env={"PATH": os.environ["PATH"], "VALUE": value},
            check=True,
        )
        (tmp_path / samples.ENDS).unlink()
        expected = [
            word for b in bound for word in [*b.options, "--", *b.task, b.env_vars["VALUE"]]
        ]
        assert log.read_bytes().decode().split("\0")[:-1] == expected


# -- what the job left ---------------------------------------------------------------------------


def test_ends_are_read_as_they_were_written(tmp_path: Path) -> None:
    (tmp_path / samples.ENDS).write_text("0 0 10.5 12.75\n1-gpu0 139 1e3 1001\n")
    assert samples.ends(tmp_path) == {
        "0": RunEnd(0, 10.5, 12.75),
        "1-gpu0": RunEnd(139, 1000, 1001),
    }
    assert samples.ends(tmp_path)["0"].seconds == 2.25


def test_no_run_ended(tmp_path: Path) -> None:
    assert samples.ends(tmp_path) == {}
    (tmp_path / samples.ENDS).touch()
    assert samples.ends(tmp_path) == {}


@pytest.mark.parametrize(
    "text",
    [
        "0 0 1.0",
        "0 0 1.0 2.0 3.0",
        "0 x 1.0 2.0",
        "0 0 1.0 soon",
        "0 0 nan 2.0",
        "0 0 1.0 inf",
        "0 0 1.0 2.0\n\n",
        "0 0 1.0 2.0\n1",
        b"0 0 1.0 2.0\n\xff\xfe",
        b"\0\0\0\0",
    ],
)
def test_garbled_ends_are_refused(tmp_path: Path, text: str | bytes) -> None:
    data = text if isinstance(text, bytes) else text.encode()
    (tmp_path / samples.ENDS).write_bytes(data)
    with pytest.raises(SampleError) as refusal:
        samples.ends(tmp_path)
    assert refusal.value.code == "output.file-garbled"


@pytest.mark.parametrize(
    "text", ["0 0 1.0 2.0\n0 0 3.0 4.0", "0 0 1.0 2.0\n1 0 2.0 3.0\n0 1 3.0 4.0"]
)
def test_ends_of_two_starts_of_a_job_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / samples.ENDS).write_text(text)
    with pytest.raises(SampleError) as refusal:
        samples.ends(tmp_path)
    assert refusal.value.code == "job.restarted"


def test_ends_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    (tmp_path / samples.ENDS).mkdir()
    with pytest.raises(SampleError) as refusal:
        samples.ends(tmp_path)
    assert refusal.value.code == "output.file-unreadable"


#: A job submitted at 10,000 s and seen to have ended at 10,100 s.
JOB = (10_000, 10_100)


@pytest.mark.parametrize(
    ("runs", "jumped"),
    [
        ([(10_010, 10_020), (10_021, 10_099)], 0),
        ([(10_010, 10_020), (10_009, 10_030)], 0),  # Rounds of pairs run beside each other.
        ([(9_710, 9_720), (9_721, 9_800)], 0),  # The node's clock is 290 s slow.
        ([(10_300, 10_310), (10_320, 10_390)], 0),  # It is 290 s fast.
        ([(6_410, 6_420), (10_021, 10_099)], 3600),  # It was set right by an hour meanwhile.
        ([], 0),
    ],
)
def test_runs_of_this_job_are_taken(runs: list[tuple], jumped: float) -> None:
    ended = {str(number): RunEnd(0, *run) for number, run in enumerate(runs)}
    samples.check_times(ended, *JOB, jumped)


@pytest.mark.parametrize(
    ("runs", "named"),
    [
        ([(9_600, 9_610)], ["run 0", "400 s"]),
        ([(10_010, 10_020), (9_000, 9_010)], ["run 1", "1000 s"]),
        ([(10_010, 10_500)], ["run 0", "400 s"]),
        # All within what clocks may differ by, and longer than the job was there.
        ([(9_800, 9_810), (10_050, 10_060)], ["260 s"]),
    ],
)
def test_runs_of_another_job_are_refused(runs: list[tuple], named: list[str]) -> None:
    ended = {str(number): RunEnd(0, *run) for number, run in enumerate(runs)}
    with pytest.raises(SampleError) as refusal:
        samples.check_times(ended, *JOB)
    assert refusal.value.code == "output.other-job"
    assert all(words in str(refusal.value) for words in named)
