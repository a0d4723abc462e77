"""Ten questions of an operator: the command or page that answers each, and the seconds it takes.

``python -m bench.questions`` in ``tests/`` asks them of the made-up history and prints what was
measured; ``--write`` also keeps it as ``docs/questions.json`` and renders ``docs/questions.md``.
"""

from __future__ import annotations

import datetime
import os
import platform
import re
import resource
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import demo_history
from plumbline.core.formats import markdown_table

from bench import BIN, arguments, chromium, keep


class Question(NamedTuple):
    """One question.

    :ivar way: a `plumbline` command; or a page of the report, with an anchor or a search.
    :ivar answer: a pattern of the line, or of the text on the page, that answers it.
    """

    text: str
    way: str
    answer: str


#: Seconds that a page has to show its answer.
PATIENCE = 60

#: A test case, and the first finding of `plumbline trend` in it.
FINDING = r"^\S.* @\S.*\n(above-ceiling|drift|improvement|regression|transient) .*"

QUESTIONS = [
    Question("What needs attention this morning?", "index.html", r"\d+ red of \d+ test cases"),
    Question("What failed last night?", "plumbline show --system alder --failed",
             r"^latency_8 .*FAIL.*"),
    Question("What is new since Monday?", "plumbline trend --new MONDAY",
             FINDING),
    Question("What is wrong now, and since when?", "plumbline trend --active",
             FINDING),
    Question("Which node?", "plumbline screen", r"^node +nid0007 .*"),
    Question("Since which build?", "plumbline trend --system alder --metric bandwidth",
             r"build \w+ to \w+"),
    Question("What else changed in that night?",
             "plumbline compare ..BEFORE CHANGED.. --system alder", r"^microcode .*"),
    Question("Is it safe to open the machine?", "plumbline compare ..BEFORE last:5 --system alder",
             r"no-go: .*"),
    Question("Is it known, who owns it, and until when?", "index.html#waived",
             r"storage team\s+expires .*days"),
    Question("How is this node in all checks?", "search.html#nid0007",
             r"babelstream_cpu[^\n]*"),
]  # fmt: skip


def dated(way: str) -> str:
    """The way with the days of the made-up history: the last Monday, and those of its change."""
    ended = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(hours=6)
    changed = ended.date() - datetime.timedelta(days=demo_history.FIRMWARE - 1)
    days = {
        "MONDAY": ended.date() - datetime.timedelta(days=ended.weekday() or 7),
        "BEFORE": changed - datetime.timedelta(days=1),
        "CHANGED": changed,
    }
    for name, day in days.items():
        way = way.replace(name, f"{day}")
    return way


class Asked(NamedTuple):
    """What a question gave.

    :ivar seconds: until the answer was there.
    :ivar cpu: seconds of the cores, of a command.
    :ivar text: all that was printed, or the page shows.
    """

    seconds: float
    cpu: float | None
    text: str


def used() -> float:
    """Seconds of the cores that ended processes of this one have used."""
    found = resource.getrusage(resource.RUSAGE_CHILDREN)
    return found.ru_utime + found.ru_stime


def command(question: Question, env: dict[str, str]) -> Asked:
    """Runs a command.

    :raises SystemExit: if it is inconclusive.
    """
    words = dated(question.way).split()
    began, before = time.perf_counter(), used()
    done = subprocess.run(
        [BIN / words[0], *words[1:]], env=env, capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - began
    if done.returncode not in (0, 1):
        raise SystemExit(f"{words}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return Asked(seconds, used() - before, done.stdout + done.stderr)


def answers(folder: Path) -> Iterator[tuple[Question, Asked, str]]:
    """Asks all questions of a made-up history; yields each with its answer.

    :raises SystemExit: if one has no answer.
    """
    env = os.environ | {"PLUMBLINE_SITE": str(folder), "PLUMBLINE_RESULTS": str(folder)}
    report = folder / "report"
    words = [BIN / "plumbline", "report", "--out", report]
    subprocess.run(words, env=env, check=True, capture_output=True)
    with chromium() as browser:
        for question in QUESTIONS:
            is_command = question.way.startswith("plumbline ")
            asked = command(question, env) if is_command else read(question, browser, report)
            found = re.search(question.answer, asked.text, re.M)
            if not found:
                raise SystemExit(f"{question.text}: no answer in\n{asked.text}")
            yield question, asked, " ".join(found[0].split())


def read(question: Question, browser, report: Path) -> Asked:
    """Opens a page of a report in a window of its own without a cache, and waits until the answer
    is shown.

    :raises SystemExit: if it is not.
    """
    name, _, anchor = question.way.partition("#")
    page = browser.new_page()
    began = time.perf_counter()
    page.goto(f"{(report / name).absolute().as_uri()}#{anchor}")
    while not re.search(question.answer, text := page.inner_text("main"), re.M):
        if time.perf_counter() - began > PATIENCE:
            raise SystemExit(f"{question.text}: no answer in\n{text}")
        page.wait_for_timeout(20)
    seconds = time.perf_counter() - began
    page.close()
    return Asked(seconds, None, text)


def measure() -> dict:
    """All answers with their conditions."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        demo_history.write(Path(folder))
        found = [
            {"question": question.text, "way": dated(question.way), "answer": answer,
             "seconds": round(asked.seconds, 1),
             "cpu": asked.cpu if asked.cpu is None else round(asked.cpu, 1)}
            for question, asked, answer in answers(Path(folder))
        ]  # fmt: skip
    return {
        "date": time.strftime("%Y-%m-%d"),
        "machine": {"cpus": os.cpu_count(), "kernel": platform.release(),
                    "load": round(load, 1)},
        "python": platform.python_version(),
        "answers": found,
    }  # fmt: skip


_PAGE = """# Ten questions of an operator

Which command, or page of [the report](report.md), answers what the staff on duty asks, and how
long that takes. For example, *what is new since Monday?*

```
plumbline trend --new 2026-11-23
```

Rendered by `make bench ARGS=--write` from `questions.json`, from real commands and pages; do not
edit. They read a made-up history of two systems with {nights} nights, in which latency was lost
with a new firmware, one node became slow, a file system is being rebuilt, and a build changed. To
make one and ask it yourself, in the checkout after `make run`:

```text
.venv/bin/python tests/demo_history.py demo
export PLUMBLINE_SITE=$PWD/demo PLUMBLINE_RESULTS=$PWD/demo PATH=$PWD/.venv/bin:$PATH
plumbline report --out demo/report
```

Its last night is the latest that has ended when it is made, and the days in the commands below move
with it. Pages are those of `demo/report`. The first question is answered by its start page:

![The report's start page: what is red on each system, and since when](images/report.png)

{table}

Measured on {date}: {cpus} CPUs at a load of {load} before, Linux {kernel}, Python {python}. A
command is timed from its start to its end, with an index of the history; a page from its address
until Chromium shows the answer, from a disk and without a cache. The report was made before.
"""


def render(found: dict) -> str:
    """What was measured, as the docs' page."""
    rows = []
    for asked in found["answers"]:
        answer = re.sub(r"([|<>*\\])", r"\\\1", asked["answer"])
        cpu = "" if asked["cpu"] is None else asked["cpu"]
        rows.append([asked["question"], f"`{asked['way']}`", asked["seconds"], cpu, answer])
    numbers = ["seconds", "CPU seconds"]
    table = markdown_table(["question", "way", *numbers, "answer"], rows, numbers)
    return _PAGE.format(
        table=table, date=found["date"], python=found["python"], nights=120, **found["machine"]
    )


def main() -> None:
    """Measures, prints, and keeps what was measured if that is asked."""
    options = arguments(__doc__).parse_args()
    keep("questions", measure(), render, options.write)


if __name__ == "__main__":
    main()
