"""What contributors rely on: the list of commands, the hooks, the examples in docstrings."""

from __future__ import annotations

import doctest
import importlib
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from conftest import ROOT

PACKAGE = ROOT / "reframe" / "plumbline"
#: Modules with examples in their docstrings.
EXAMPLES = sorted(
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    for path in PACKAGE.rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_in_docstrings(name: str):
    failed, tried = doctest.testmod(importlib.import_module(name))
    assert tried and not failed


def test_there_are_examples():
    assert {"plumbline.core.text", "plumbline.core.units", "plumbline.history.series"} < {*EXAMPLES}


def listed(*goals: str) -> list[str]:
    """The targets that make lists."""
    done = subprocess.run(["make", *goals], cwd=ROOT, capture_output=True, text=True, check=True)
    return re.findall(r"^make (\S+) +\S", done.stdout, re.M)


def test_make_lists_its_targets():
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    (phony,) = re.findall(r"^\.PHONY: (.*)$", text, re.M)
    # What others need, and nobody calls.
    inner = {"packages", "cluster-packages"}
    assert sorted(listed()) == sorted(listed("help")) == sorted({*phony.split()} - inner)


def test_a_checkout_that_was_moved_is_set_up_again(tmp_path: Path):
    """Its commands start the Python of the old place."""
    for name in ("Makefile", "requirements.lock", "pyproject.toml"):
        shutil.copy2(ROOT / name, tmp_path)
    commands = tmp_path / ".venv" / "bin"
    commands.mkdir(parents=True)
    (tmp_path / ".venv" / "complete").touch()

    def recipes(place: Path) -> str:
        (commands / "plumbline").write_text(f"#!{place}/.venv/bin/python\n")
        make = ["make", "-n", "setup"]
        return subprocess.run(make, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    assert "-m venv" not in recipes(tmp_path)
    assert "-m venv" in recipes(tmp_path.parent)


def test_a_set_up_without_a_package_index_names_the_remedy(tmp_path: Path):
    """pip itself reports that no version satisfies the requirement."""
    for name in ("Makefile", "requirements.lock", "pyproject.toml"):
        shutil.copy2(ROOT / name, tmp_path)
    python = tmp_path / "python"
    made = 'mkdir -p .venv/bin; printf "#!/bin/sh\\nexit 1\\n" >.venv/bin/python'
    python.write_text(f'#!/bin/sh\n[ "$2" != venv ] || {{ {made}; chmod +x .venv/bin/python; }}\n')
    python.chmod(0o755)
    make = ["make", "setup", f"PYTHON={python}"]
    done = subprocess.run(make, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2 and "PIP_INDEX_URL" in done.stderr
    assert not (tmp_path / ".venv" / "complete").exists()


def test_hooks_need_no_network():
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    assert [repo["repo"] for repo in config["repos"]] == ["local"]
    for hook in config["repos"][0]["hooks"]:
        assert hook["language"] == "system"
        assert shutil.which(shlex.split(hook["entry"])[0], path=f"{ROOT}:/usr/bin:/bin")


def test_citation_is_of_this_version():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "type"} < {*cited}
    assert cited["authors"] == [{"name": "The Plumbline developers"}]
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for key in ("version", "license"):
        assert f'{key} = "{cited[key]}"' in project


@pytest.mark.parametrize(
    ("of_gitlab", "of_github"),
    [
        ("issue_templates/Bug.md", "ISSUE_TEMPLATE/bug.md"),
        ("issue_templates/System.md", "ISSUE_TEMPLATE/system.md"),
        ("merge_request_templates/Default.md", "PULL_REQUEST_TEMPLATE.md"),
    ],
)
def test_templates_are_the_same_on_both(of_gitlab: str, of_github: str):
    theirs = Path(ROOT, ".github", of_github).read_text(encoding="utf-8")
    ours = Path(ROOT, ".gitlab", of_gitlab).read_text(encoding="utf-8")
    assert re.sub(r"\A---\n.*?\n---\n\n", "", theirs, flags=re.S) == ours


def test_no_packages_or_other_large_files_in_the_repository():
    """A wheel that a tool left in the folder was once committed with `git add -A`."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        pytest.skip("not a git checkout")
    files = [ROOT / name.decode() for name in done.stdout.split(b"\0") if name]
    large = {file.name for file in files if file.exists() and file.stat().st_size > 256 * 1024}
    assert files and not large
    assert not [file.name for file in files if file.suffix in {".whl", ".gz", ".zip", ".so"}]
