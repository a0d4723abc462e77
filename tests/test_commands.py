"""Run every command that a block of the README or the docs shows, as it is printed there.

The commands run in a checkout of their own. Its system is Perlmutter at the simulated facility, and
its history is made up. A command that needs another machine is skipped with a reason.

In a block with prompts, what is below a command is what it prints, with `...` for omitted text.
"""

from __future__ import annotations

import datetime
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import demo_history
import foreign
import forked
import pytest
from examples import prints
from foreign import ROOT
from plumbline.check import record
from plumbline.session import summary

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

#: How a line with a command begins.
PROGRAMS = ("plumbline ", ".venv/bin/plumbline ", "reframe ", "make ", "ci/", "spack-env/",
            ". ./env.sh", "apt-get ", "PIP_NO_INDEX")  # fmt: skip

#: Commands that are skipped, and why.
ELSEWHERE = {
    r"make (run|test)|.*baseline local": "measures this machine for minutes: make run; and CI",
    r"make ground(-all)?": "brings up machines for minutes, or a shell: tests/test_ground.py",
    r".*state=(healthy|slow|repaired)|plumbline lint --system local --accept": "one after the "
    "other, on a machine that is slowed down: tests/test_tutorial.py",
    r".*tutorial-report": "of the sessions before it: tests/test_tutorial.py",
    r".*disk=(free|slow)": "on a machine whose disk is slowed down: tests/test_tutorial.py",
    r"make inventories": "overwrites what tests/test_inventories.py compares",
    r"make setup": "clears the .venv that runs the tests if it is older than its lock; CI runs it",
    r"make build|plumbline build|spack-env/bootstrap": "downloads and builds: tests/test_spack.py "
    "does so where a mirror is given",
    r"plumbline mirror|PIP_NO_INDEX": "needs Spack's sources, and a folder beyond this one",
    r"apt-get": "installs packages",
    r".*(mychecks|gups)": "one after the other: tests/test_own_benchmark_page.py",
    r".*-c /site/checks": "has a site's checks: tests/test_plain_figures.py",
    r".*--distribute=idle": "measures each of 1,536 nodes here: tests/test_pairs.py has few",
    r".*(/site/|mysystem)": "a site's own checks: tests/test_plain_figures.py",
    r".*(larch|birch)": "at made-up sites: tests/test_two_sites.py",
    r"plumbline compare --duet": "measures a system with two sides: tests/test_duet.py and "
    "tests/test_cluster.py",
    r"plumbline waive \S+ ": "the names change from night to night: tests/test_waive.py",
    r"plumbline site": "in a home folder: tests/test_site_folder.py",
    r"plumbline clear|.*NODE_HOOK": "on a real Slurm: tests/test_clear.py",
    r"plumbline (init|sweep)|.*mycluster": "on a real Slurm: tests/test_onboarding.py and "
    "tests/test_sweep.py",
}

#: Commands that read the made-up history. The others run at the facility.
READS_HISTORY = re.compile(
    r"plumbline (show|trend|waive|compare|screen|report|export|history)(?! maintenance=)"
)

#: Commands that read the checkout only.
READS_CHECKOUT = re.compile(r"plumbline (refs|lint|doctor|parse)")

#: Added to sessions, so that they take seconds: few checks, one sample.
BRIEF = "-S num_samples=1 -S num_warmups=0"
FEW = f"-n babelstream {BRIEF}"

#: Text of the pages -> its replacement in this checkout.
REPLACEMENTS = {
    "nodes=64": "nodes=8",
    "n[01-04]": "nid[001000-001003]",
    "n[01-16]": "nid[001000-001001]",
    '--distribute=all -J "nodelist=$(': '--distribute=all -J "nodelist=nid[001000-001001]$(: ',
    "archer2": "alder",
    "perlmutter --extras maintenance=2026-11": "alder --extras maintenance=2026-09",
    "/srv/www/plumbline": "pages",
    "/var/lib/node_exporter/": "",
    "/var/lib/node_exporter": "page",
    "export --system NAME": "export --system birch",
    "export --system=perlmutter": "export --system=birch",
    "lint --system NAME": "lint --system local",
    "ci/nightly --system NAME": "ci/nightly",
    "imb OUTPUT": f"imb {ROOT}/tests/captures/imb/allgather.out",
    "-n imb_p2p": "-n babelstream",
}

#: Commands that may end with exit code 2, and a part of the message that says why.
INCONCLUSIVE = {
    r"plumbline compare maintenance": "not enough data",
    r"ci/post-maintenance": "not enough data",
    r"plumbline history list --system frontier": "[history.nothing-selected]",
    r"plumbline baseline mysystem": "[history.nothing-selected]",
}


#: The day of the last night on the pages; here it is that of the made-up history.
LAST = datetime.date(2026, 11, 24)
DAY = re.compile(r"\b(20\d\d)(-?)(0[1-9]|1[0-2])\2(0[1-9]|[12]\d|3[01])(?!\d)")

#: The session that the pages show is the last one of the made-up history.
NIGHT = "plumbline run --mode=nightly"

#: Pages with outputs that no command here prints, and where they are compared.
PRINTED_ELSEWHERE = {
    "compare.md": "a duet, on a machine with ten other processes; its heading: tests/test_duet.py",
    "history.md": "a damaged record: tests/test_history_faults.py",
    "network.md": "tests/test_network.py, tests/test_screen_settings.py",
    "nightly.md": "tests/test_nightly.py",
    "site-folder.md": "a site's folder: tests/test_site_folder.py",
    "throttling.md": "a GPU that is too hot: tests/test_facility_faults.py",
    "tutorial.md": "a virtual machine that is slowed down; its headings: tests/test_tutorial.py",
}

#: Pages whose outputs are compared by tests of their own.
FOLLOWED = {"checks.md", "two-sites.md"}


def blocks(page: Path, *languages: str) -> list[str]:
    """Return the code blocks of a page that are in one of these languages."""
    found = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.M | re.S)
    return [block for language, block in found if language in languages]


def commands(block: str) -> Iterator[tuple[str, str]]:
    """Yield the commands in a block, without comments and `.venv/bin/`, with what they print."""
    block = block.replace("\\\n", " ")
    pairs = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.M)
    for line, printed in pairs or [(line, "") for line in block.splitlines()]:
        text = re.sub(r"\s+#.*", "", line).strip().removeprefix(".venv/bin/")
        if text.startswith(PROGRAMS):
            yield text, printed


#: Each command, and the first page that shows it; and what the pages show of its output.
EVERY: dict[str, str] = {}
PRINTED: dict[str, set[str]] = {}
for _page in PAGES:
    for _block in blocks(_page, "", "sh", "bash", "shell", "console"):
        for _text, _printed in commands(_block):
            EVERY.setdefault(_text, _page.name)
            if _page.name not in FOLLOWED:
                PRINTED.setdefault(_text, set()).add(_printed)


@dataclass(frozen=True)
class Checkout:
    """A folder to run commands in, and three environments for them.

    :ivar plain: of the machine that the tests run on.
    :ivar facility: of the simulated facility.
    :ivar history: of the made-up history.
    :ivar moved: how much later than on the pages its nights are.
    """

    place: Path
    plain: dict[str, str]
    facility: dict[str, str]
    history: dict[str, str]
    moved: datetime.timedelta

    def dated(self, text: str) -> str:
        """Return a text of a page with the days of the made-up history."""

        def moved(found: re.Match) -> str:
            dash = found[2]
            day = datetime.date(int(found[1]), int(found[3]), int(found[4])) + self.moved
            return f"{day:%Y{dash}%m{dash}%d}"

        return DAY.sub(moved, text)

    def night(self) -> str:
        """Return the summary of the last night of a system of the made-up history."""
        sessions = Path(self.history["PLUMBLINE_RESULTS"], "sessions")
        records = [*record.read(max(sessions.glob("*T02*")) / "records.jsonl")]
        return summary.table(records, len(records))

    def run(self, text: str) -> subprocess.CompletedProcess:
        env = self.history if READS_HISTORY.match(text) else self.facility
        if READS_CHECKOUT.match(text):
            env = self.plain
        program, *words = shlex.split(text)
        if str(foreign.BIN / program) in forked.COMMANDS and not re.search(r"[;|&<>$()]", text):
            command = [str(foreign.BIN / program), *words]
            return subprocess.CompletedProcess(text, *forked.run(command, env, self.place, 600))
        return subprocess.run(
            ["bash", "-c", text], env=env, cwd=self.place, capture_output=True, text=True,
            check=False, timeout=600,
        )  # fmt: skip


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Checkout:
    folder = tmp_path_factory.mktemp("commands")
    place = folder / "checkout"
    place.mkdir()
    for entry in ROOT.iterdir():
        if entry.name not in (".git", "results", "report", "site", "pages"):
            (place / entry.name).symlink_to(entry)
    foreign.prepare("perlmutter", folder)
    ended = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(hours=6)
    demo_history.write(folder / "demo", end=ended)
    newest = max((folder / "demo" / "sessions").iterdir()) / "records.jsonl"
    kept = newest.read_text().splitlines()[0]
    (place / "nightly.log").write_text(f"plumbline-record {kept}\n")
    plain = os.environ | {"PATH": f"{foreign.BIN}:{os.environ['PATH']}"}
    made = Checkout(
        place,
        plain,
        foreign.variables("perlmutter", folder)
        | {"RFM_SYSTEM": "perlmutter", "PLUMBLINE_RESULTS": str(folder / "results")},
        plain | {"PLUMBLINE_RESULTS": str(folder / "demo"), "PLUMBLINE_SITE": str(folder / "demo")},
        ended.date() - LAST,
    )
    for _ in range(3):
        done = made.run(f"plumbline run {FEW}")
        assert done.returncode == 0, done.stdout + done.stderr
    return made


def test_pages_have_commands():
    assert len(EVERY) > 40
    subcommands = {text.split()[1] for text in EVERY if text.startswith("plumbline ")}
    assert subcommands > {"run", "trend", "compare", "screen", "report", "history", "refs", "lint",
                          "doctor"}  # fmt: skip


@pytest.mark.parametrize(
    "text", [pytest.param(text, id=f"{page}: {text}") for text, page in EVERY.items()]
)
def test_command(text: str, checkout: Checkout):
    for pattern, reason in ELSEWHERE.items():
        if re.match(pattern, text):
            pytest.skip(reason)
    shown = [checkout.dated(printed) for printed in PRINTED.get(text, ())]
    night = checkout.night() if text == NIGHT else ""
    text = checkout.dated(text)
    for before, replacement in REPLACEMENTS.items():
        text = text.replace(before, replacement)
    brief = BRIEF if " -n " in text else FEW
    if text.startswith("ci/"):
        brief = f"--sessions=1 {FEW}"
    text = re.sub(r"(plumbline run|reframe .*?-r|^ci/\S+)(?=\s|;|$)", rf"\1 {brief}", text)
    if "--input nights.csv" in text:
        write_nights(checkout.place / "nights.csv", "node" if " screen " in text else "series")
    done = checkout.run(text)
    output = done.stdout + done.stderr
    assert "Traceback" not in output
    if done.returncode == 2:
        reasons = [words for pattern, words in INCONCLUSIVE.items() if re.match(pattern, text)]
        assert reasons, output
        assert reasons[0] in output
    else:
        assert done.returncode in (0, 1), output
        assert output or re.search(r"^\. | -o ", text)
    assert [lines for lines in shown if not prints(night or output, lines)] == [], night or output


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("rate  +12.6%\nlate 3", True),
        ("rate +12.7%", False),
        ("rate +12.6%\n...\nend", True),
        ("rate +12.6%\nend", False),
        ("end\n...\nrate", False),
    ],
)
def test_what_counts_as_printed(shown: str, printed: bool):
    assert prints("rate   +12.6%\nlate   3\nend\n", shown) is printed


def test_outputs_are_below_their_commands():
    """Otherwise nothing compares them."""
    found = {
        page.name
        for page in PAGES
        for block in blocks(page, "", "text", "console")
        if re.search(r"^plumbline: |^-{4}|^\| ---|\[[a-z]+\.[a-z-]+\]$", block, re.M)
        and not block.startswith("$ ")
    }
    assert found == {*PRINTED_ELSEWHERE}


def write_nights(path: Path, unit: str) -> None:
    """Write a table of 30 nights of ten nodes or series, as `trend` and `screen` read it."""
    lines = [f"night,{unit},value,better"]
    lines += [f"{n // 10},n{n % 10},{100 + n % 3},higher" for n in range(300)]
    path.write_text("\n".join([*lines, ""]))
