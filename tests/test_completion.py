"""What bash completes, by the line of docs/installing.md."""

from __future__ import annotations

import re
import shutil

import pytest
from conftest import ROOT, Testbed
from plumbline import cli

#: Calls the function that bash would call, with the words typed so far.
ASK = """
COMP_WORDS=({words} "{last}")
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
COMPREPLY=()
_plumbline_completion plumbline
printf '%s\\n' "${{COMPREPLY[@]}}" "--"
"""


def test_bash(testbed: Testbed):
    """Subcommands, and the names of systems, checks, sessions and reason codes."""
    if shutil.which("bash") is None:
        pytest.skip("no bash")
    page = (ROOT / "docs" / "installing.md").read_text()
    line = re.search(r"^(eval .*bash_source.*?) +#", page, re.M)[1]
    for name in ("20261124T021059Z-4bebf4", "20261125T021059Z-79565a"):
        (testbed.results / "sessions" / name).mkdir(parents=True)
    asked = [("plumbline", ""), ("plumbline show --system", "per"), ("plumbline show", "2026"),
             ("plumbline history", ""), ("plumbline trend --check", "osu_p"),
             ("plumbline explain", "build.not-b")]  # fmt: skip
    script = line + "".join(ASK.format(words=words, last=last) for words, last in asked)
    done = testbed.run("bash", "-c", script)
    found = [answer.split() for answer in done.out.split("--\n")]
    assert found == [
        cli.main.list_commands(None),
        ["perlmutter"],
        ["20261125T021059Z-79565a", "20261124T021059Z-4bebf4"],
        ["export", "links", "list", "nodes", "prune", "rebuild", "recover"],
        ["osu_p2p", "osu_p2p_variant"],
        ["build.not-built"],
        [],
    ], done.output


def test_nothing_is_completed_without_a_history(testbed: Testbed):
    """A shell prints no traceback into the line that is typed."""
    done = testbed.plumbline(
        _PLUMBLINE_COMPLETE="bash_complete", COMP_WORDS="plumbline show 2", COMP_CWORD="2"
    )
    assert (done.code, done.out.strip(), done.err) == (0, "", "")
