"""What is built of the project: a wheel that measures in an empty folder, and its version, which is
the same wherever it stands."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import click
import pytest
import yaml
from conftest import BIN, MPICH, ROOT
from plumbline.cli import main
from records import records_of

try:
    import tomllib
except ModuleNotFoundError:
    from pip._vendor import tomli as tomllib

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
RECIPE = ROOT / "spack-env/repo/spack_repo/plumbline/packages/py_plumbline/package.py"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    settings = folder / "distutils.cfg"
    settings.write_text(f"[build]\nbuild_base={folder}\n[egg_info]\negg_base={folder}\n")
    _link_build_requirements(folder / "site")
    env = {**os.environ, "DIST_EXTRA_CONFIG": str(settings), "PYTHONPATH": str(folder / "site")}
    build = f"from setuptools import build_meta; build_meta.build_wheel({str(folder)!r})"
    subprocess.run([sys.executable, "-S", "-c", build], cwd=ROOT, env=env, check=True)
    (built,) = folder.glob("*.whl")
    return built


def _link_build_requirements(site: Path) -> None:
    """Fill a folder of packages as pip does for a build: with what the project requires there."""
    site.mkdir()
    for requirement in PYPROJECT["build-system"]["requires"]:
        found = importlib.metadata.distribution(re.match(r"[\w-]+", requirement)[0])
        for name in {file.parts[0] for file in found.files} - {"..", "__pycache__"}:
            (site / name).symlink_to(found.locate_file(name))


@dataclass(frozen=True)
class Installed:
    """The wheel in an environment of its own, an empty folder, and a new home.

    :ivar package: the installed package.
    """

    folder: Path
    package: Path
    env: dict[str, str]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            words, cwd=self.folder / "empty", env=self.env, capture_output=True, text=True,
            check=False, timeout=600,
        )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def plumbline(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.run(f"{self.folder}/venv/bin/plumbline", *words)


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Its dependencies are those of these tests, and its provider's wheels too: no network."""
    folder = tmp_path_factory.mktemp("installed")
    for name in ("empty", "home"):
        (folder / name).mkdir()
    venv.create(folder / "venv", symlinks=True)
    python = folder / "venv" / "bin" / "python"
    install = [sys.executable, "-m", "pip", f"--python={python}", "install", "-q", "--no-deps"]
    subprocess.run([*install, "--no-index", "--no-compile", wheel], check=True)
    (package,) = (folder / "venv").glob("lib/python*/site-packages/plumbline")
    (package.parent / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    # Its command, of this environment.
    script = (BIN / "reframe").read_text().replace(f"#!{BIN}/", f"#!{python.parent}/")
    (python.parent / "reframe").write_text(script)
    (python.parent / "reframe").chmod(0o755)
    env = {
        "HOME": str(folder / "home"),
        "PATH": os.defpath,
        "PLUMBLINE_TOOLS": str(ROOT / ".tools"),
        "PLUMBLINE_LOCKS": str(folder),
        "PLUMBLINE_OTHERS": "0",
    }
    return Installed(folder, package, env)


def test_a_wheel_has_what_is_shipped_and_no_more(wheel: Path):
    """What git has in the folders that are shipped, and nothing that commands left there."""
    with zipfile.ZipFile(wheel) as archive:
        names = {n.removeprefix("plumbline/") for n in archive.namelist() if "/shipped/" in n}
    listed = subprocess.run(
        ["git", "ls-files", "checks", "reference", "spack-env", "systems", "reframe/settings.py",
         "requirements.lock"], cwd=ROOT, capture_output=True, text=True, check=False,
    ).stdout.split()  # fmt: skip
    if not listed:
        pytest.skip("no git, or no checkout")
    assert names == {f"shipped/{path}" for path in listed}


def test_a_wheel_has_a_manual_page(wheel: Path, tmp_path: Path):
    """Of all commands and their options, which roff formats without a warning."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/plumbline.1"))
        page = tmp_path / "plumbline.1"
        page.write_bytes(archive.read(name))
    assert name.partition("/")[2] == "data/share/man/man1/plumbline.1"
    parts = re.split(r"^\.SS plumbline ", page.read_text("ascii").replace(r"\-", "-"), flags=re.M)
    commands = dict(_commands(main))
    assert len(commands) > 30 and len(parts) == len(commands) + 1
    assert f'"Plumbline {PROJECT["version"]}"' in parts[0]
    for part, (words, command) in zip(parts[1:], commands.items(), strict=True):
        assert part.startswith(f"{words} "), words
        for option in command.params:
            if isinstance(option, click.Option):
                assert re.search(rf"^\.B .*{option.opts[-1]}\b", part, re.M), (words, option.name)
    if shutil.which("groff") is None:
        pytest.skip("the manual page is not formatted: no groff")
    done = subprocess.run(
        ["groff", "-man", "-ww", "-Tascii", page], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def _commands(group: click.Group, above: str = "") -> Iterator[tuple[str, click.Command]]:
    """Return words of the command line -> command, of all that the group has."""
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        yield above + name, command
        if isinstance(command, click.Group):
            yield from _commands(command, f"{above}{name} ")


def test_an_installed_plumbline_measures(installed: Installed):
    """In an empty folder with a new home; all that it writes is in the site's folder."""
    if not (MPICH / "mpiexec").is_file():
        pytest.skip(f"{MPICH / 'mpiexec'} does not exist: run make setup")
    done = installed.plumbline("run", "--mode=smoke", "-n", "imb_collective%operation=Barrier")
    assert done.returncode == 0, done.stdout + done.stderr
    site = installed.folder / "home" / "plumbline"
    (session,) = (site / "results" / "sessions").iterdir()
    (fields,) = records_of(session)
    assert (fields["result"], fields["benchmark"], fields["system"]) == ("pass", "imb", "local")
    assert [fom["metric"] for fom in fields["foms"]] == ["barrier_latency"]
    assert not [*(installed.folder / "empty").iterdir()]
    assert [path.name for path in site.iterdir()] == ["results"]


def test_programs_of_wheels_are_installed_where_they_are_selected(installed: Installed):
    """A node without network that measures programs of its own does not wait for pip."""
    tools = {**installed.env, "PLUMBLINE_TOOLS": str(installed.folder / "tools")}
    offline = tools | {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}
    for environment, installs in (("path", False), ("pip", True), ("^p", True)):
        one = replace(installed, env=offline)
        done = one.plumbline("run", "-p", environment, "-n", "imb_collective%operation=Barrier")
        assert ("provider pip: " in done.stdout) is installs, done.stdout
        assert ("[spack.not-fetched]" in done.stderr) is installs, done.stderr


def test_an_installed_plumbline_has_the_shipped_files(installed: Installed):
    """Under plain ReFrame too, after what `plumbline env` prints."""
    linted = installed.plumbline("lint", "--system=tioga")
    assert linted.returncode == 0, linted.stderr
    assert re.search(r"1 system, 1 Spack environment, \d{3} references", linted.stdout)
    assert (
        "osu" in installed.plumbline("refs", "--unused", "--benchmark=osu", "--format=csv").stdout
    )
    command = f'eval "$({installed.folder}/venv/bin/plumbline env)" && reframe -l -n fio'
    listed = installed.run("sh", "-c", command)
    assert listed.returncode == 0 and "- fio " in listed.stdout, listed.stdout
    assert str(installed.package / "shipped" / "checks") in listed.stdout


def test_an_installed_plumbline_writes_to_its_site(installed: Installed):
    site = installed.folder / "site"
    assert installed.plumbline("site", str(site)).returncode == 0
    installed.env["PLUMBLINE_SITE"] = str(site)
    done = installed.plumbline("init", "mine")
    assert done.returncode == 0, done.stderr
    content = yaml.safe_load((site / "systems" / "mine.yaml").read_text())
    assert content["systems"][0]["name"] == "mine"


def test_the_version_is_the_same_everywhere():
    version = PROJECT["version"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == version
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    released = re.search(r"^## (?!Unreleased$)(.*)$", changes, re.M)[1]
    assert released == f"{version} — {citation['date-released']}"
    assert f'version("{version}", tag="v{version}")' in RECIPE.read_text(encoding="utf-8")
    shown = subprocess.run([BIN / "plumbline", "--version"], capture_output=True, text=True)
    assert shown.stdout.split()[-1] == version


#: Distribution -> Spack's package, where it is not py- and its name.
PACKAGES = {"clingo": "clingo", "duckdb": "duckdb", "reframe-hpc": "reframe"}


def calls_of(path: Path, name: str) -> list[ast.Call]:
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return [n for n in nodes if isinstance(n, ast.Call) and getattr(n.func, "id", "") == name]


def test_the_recipe_depends_on_what_the_project_depends_on():
    """On the same versions: Spack's 1.2: is >=1.2 here."""
    stated = {}
    for call in calls_of(RECIPE, "depends_on"):
        kind = ast.literal_eval(call.keywords[0].value)
        package, _, versions = call.args[0].value.partition("@")
        if kind == ("build", "run") and package != "python":
            stated[package] = versions.partition("+")[0]
    expected = {}
    for requirement in PROJECT["dependencies"]:
        name, rest = re.fullmatch(r"([\w-]+)(.*)", requirement).groups()
        least = re.search(r"[>=]=([\d.]+)", rest)[1]
        most = re.search(r"<=([\d.]+)", rest)
        end = "" if rest.startswith("==") else f":{most[1] if most else ''}"
        expected[PACKAGES.get(name, f"py-{name}")] = least + end
    assert stated == expected
    (python,) = [
        call.args[0].value for call in calls_of(RECIPE, "depends_on")
        if call.args[0].value.startswith("python@")
    ]  # fmt: skip
    assert PROJECT["requires-python"] == f">={python.removeprefix('python@').removesuffix(':')}"
