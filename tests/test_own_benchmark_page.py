"""docs/checks.md, followed literally: its files are written, and its commands run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from conftest import ROOT, Testbed
from examples import prints

PAGE = ROOT / "docs" / "checks.md"

#: A block, and the path of the file that it is, if the text before it ends with one.
BLOCK = re.compile(r"(?:`([\w./]+)`:\n\n)?^```(\w+)\n(.*?)^```", re.M | re.S)


def steps() -> Iterator[tuple[str, str, str]]:
    """Yield the files of the page as (path, text), and its commands as (command, output), in order:
    kind, then these two."""
    for path, language, text in BLOCK.findall(PAGE.read_text()):
        if path and "NAME" not in path:
            yield "file", path, text
        elif language == "console":
            for command, output in re.findall(r"^\$ (.*)\n((?:[^$\n].*\n)*)", text, re.M):
                yield "command", command, output


@pytest.fixture
def local(make_testbed: Callable[..., Testbed]) -> Testbed:
    """A new user's checkout: the system `local`, no results, no references of its own."""
    testbed = make_testbed("local")
    testbed.env["PLUMBLINE_SITE"] = str(testbed.folder / "site")
    (testbed.folder / "checks").symlink_to(ROOT / "checks")
    return testbed


def test_the_page(local: Testbed):
    exports, done = [], []
    for kind, what, text in steps():
        if kind == "file":
            path = local.folder / what
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            continue
        ran = local.run("bash", "-c", "\n".join([*exports, what]), cwd=local.folder)
        assert ran.code == int("FAIL " in text), f"$ {what}\n{ran.output}"
        assert prints(ran.output, text), f"$ {what}\n{ran.output}"
        exports += [what] if what.startswith("export ") else []
        done += [ran]
    assert sum(len(ran.sessions) for ran in done) == 4
    fields = [fields for ran in done for fields in ran.records]
    assert [each["result"] for each in fields] == ["pass", "pass", "fail", "pass"]
    assert {(each["version"], *each["conditions"].items()) for each in fields} == {
        ("1.2", ("table", "64MiB"))
    }
    assert any('"benchmark":"gups"' in ran.out for ran in done)
