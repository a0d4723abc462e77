"""The docs say what is there: figures from the bench, links, commands."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from plumbline import cli, paths

DOCS = paths.ROOT / "docs"
PAGES = [paths.ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


def test_bench_page_is_rendered_from_its_figures():
    """docs/bench.md holds no figure that the bench did not print."""
    spec = importlib.util.spec_from_file_location("bench", paths.ROOT / "tests" / "bench.py")
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    figures = json.loads((DOCS / "bench.json").read_text())
    assert bench.render(figures) == (DOCS / "bench.md").read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path):
    """Links between the pages, and files that they name."""
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_are_there(page: Path):
    """Each `plumbline` command and option that a page names."""
    for line in re.findall(r"plumbline ((?:[a-z]+)(?: +--?[a-z][a-z-]*)*)", page.read_text()):
        name, *options = line.split()
        command = cli.main.get_command(None, name)
        if command is None:
            continue
        known = {option for parameter in command.params for option in parameter.opts}
        for option in options:
            # What follows `run` is ReFrame's.
            assert option in known or name == "run", f"{page}: plumbline {line}"


def test_worked_example_is_a_check(tmp_path):
    """The check of docs/checks.md loads and is listed."""
    (example,) = re.findall(r"```python\n(.*?)```", (DOCS / "checks.md").read_text(), re.S)
    assert len(example.splitlines()) < 60
    check = tmp_path / "fio_read.py"
    check.write_text(example)
    reframe = Path(sys.executable).with_name("reframe")
    done = subprocess.run(
        [reframe, "-C", paths.SETTINGS, "--system=local", "-c", check, "-l"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "fio_read %placement=all-cores" in done.stdout
