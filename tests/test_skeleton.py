"""The house: the real ReFrame is found, nothing names a machine, locks are whole."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from conftest import BIN, ROOT
from plumbline.cli import main

REFRAME = "4.10.4"
COMMANDS = set(main.list_commands(None))
GROUPS = ("history", "mirror")
LOCKS = [ROOT / "requirements.lock", *sorted(ROOT.glob("reframe/plumbline/software/pip/*.lock"))]


def output_of(*command: object) -> str:
    """What a command prints when it is run from the project's folder."""
    done = subprocess.run(
        [str(word) for word in command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _tracked() -> list[Path]:
    """The files of the tree, also those that are not committed yet."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no git checkout: {done.stderr.strip()}")
    paths = [ROOT / name for name in done.stdout.split("\0") if name]
    return [path for path in paths if path.is_file()]


def test_the_folder_reframe_is_no_package():
    assert not (ROOT / "reframe" / "__init__.py").exists()


def test_the_command_reframe_is_the_real_one():
    assert output_of(BIN / "reframe", "--version").split()[0] == REFRAME


def test_python_imports_the_real_one_from_the_projects_folder():
    script = "import reframe, plumbline; print(reframe.__file__); print(plumbline.__file__)"
    reframe, plumbline = output_of(sys.executable, "-c", script).split()
    assert "site-packages" in Path(reframe).parts
    assert Path(plumbline) == ROOT / "reframe" / "plumbline" / "__init__.py"


def test_pytest_imports_the_real_one_from_the_projects_folder(tmp_path: Path):
    test = tmp_path / "test_import.py"
    test.write_text(
        "def test_it():\n"
        "    import reframe\n"
        f"    assert reframe.VERSION == {REFRAME!r}\n"
        "    assert 'site-packages' in reframe.__file__\n"
    )
    options = ["-q", "-p", "no:cacheprovider", f"--rootdir={ROOT}", str(test)]
    assert "1 passed" in output_of(BIN / "pytest", *options)


def test_plumbline_has_the_commands_of_the_design():
    assert {"setup", "run", "parse", "doctor", "lint", "baseline"} <= COMMANDS
    listing = CliRunner().invoke(main, ["--help"]).output
    assert [name for name in COMMANDS if name not in listing] == []


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_help(name: str):
    command = main.get_command(None, name)
    assert isinstance(command, click.Command) and command.help
    for option in ("--help", "-h"):
        done = CliRunner().invoke(main, [name, option])
        assert done.exit_code == 0, done.output
        assert f" {name} [OPTIONS]" in done.output
        assert command.get_short_help_str(20) in " ".join(done.output.split())


def test_every_command_is_listed_with_a_whole_sentence():
    for listing, commands in (
        (["--help"], {name: main.get_command(None, name) for name in COMMANDS}),
        *(([name, "--help"], main.get_command(None, name).commands) for name in GROUPS),
    ):
        output = CliRunner().invoke(main, listing).output
        table = " ".join(output.partition("Commands:")[2].split())
        assert "..." not in table
        for name, command in commands.items():
            sentence = " ".join(command.help.split()).partition(". ")[0].removesuffix(".")
            assert f"{name} {sentence}" in table


#: What takes long to load, and what must not wait for it.
HEAVY = {"duckdb", "scipy.stats"}
EARLY = [
    ["--help"],
    *([name, "--help"] for name in sorted(COMMANDS)),
    ["refs", "no such word"],
    ["baseline"],
    ["export", "some", "--last"],
    ["export", "-o", "session.txt"],
    ["history", "list", "--from", "nowhere"],
    ["compare", "a", "b", "--from", "nowhere.csv"],
    ["trend", "--since", "never"],
    ["report", "--out", "site", "--from", "nowhere"],
    ["parse", "linpack", "file"],
    ["run", "--list"],
]


#: Writes what each command has loaded when it ends, and its exit code: each in a process of its
#: own, forked from one that has imported nothing but the command line.
LOADED = """
import json, os, sys
from plumbline.cli import main

for number, words in enumerate(json.loads(sys.argv[1])):
    if os.fork() == 0:
        try:
            main(words)
        except SystemExit as end:
            with open(f"loaded-{number}.json", "w") as file:
                json.dump([end.code, [*sys.modules]], file)
        os._exit(0)
    os.wait()
"""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("loaded")
    command = [sys.executable, "-c", LOADED, json.dumps(EARLY)]
    subprocess.run(command, cwd=folder, capture_output=True, check=True)
    return folder


@pytest.mark.parametrize("number", range(len(EARLY)), ids=[" ".join(words) for words in EARLY])
def test_what_is_cheap_loads_nothing_heavy(loaded: Path, number: int):
    words = EARLY[number]
    code, modules = json.loads((loaded / f"loaded-{number}.json").read_text())
    assert code == (0 if "--help" in words else 2)
    heavy = HEAVY | ({"reframe"} if words[0] == "refs" else set())
    assert not heavy & {*modules}


@pytest.mark.holds("downloads")
@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.name)
def test_a_lock_has_pins_with_hashes_and_nothing_else(path: Path):
    text = re.sub(r"\\\n\s*", " ", path.read_text())
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    assert lines
    for line in lines:
        assert re.fullmatch(r"[\w.-]+==\S+(?: ; .*?)?(?: +--hash=sha256:[0-9a-f]{64})+", line), line
    assert "://" not in text


def test_every_dependency_is_locked():
    project = (ROOT / "pyproject.toml").read_text()
    (listed,) = re.findall(r"^dependencies = \[\n(.*?)^\]", project, re.M | re.S)
    wanted = re.findall(r'^ +"([\w.-]+)', listed, re.M)
    locked = re.findall(r"^([\w.-]+)==", LOCKS[0].read_text(), re.M)
    assert wanted and {name.lower() for name in wanted} <= {name.lower() for name in locked}
    assert re.search(rf"^reframe-hpc=={re.escape(REFRAME)} ", LOCKS[0].read_text(), re.M)


#: Spelled in parts, so that this file does not name them itself.
ELSEWHERE = {
    "a folder of one machine": r"(?<![\w.$}/])/(?:wo" r"rk|ro" r"ot)(?:/|\b(?!\s*[-\w]*:))",
    "a package index": r"py" r"pi\.org|python" r"hosted\.org|py" r"pi\.python",
}


@pytest.mark.parametrize("what", ELSEWHERE)
def test_no_file_of_the_tree_names(what: str):
    found = []
    for path in _tracked():
        text = path.read_bytes().decode("utf-8", errors="replace")
        found += [
            f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
            for number, line in enumerate(text.splitlines(), 1)
            if re.search(ELSEWHERE[what], line)
        ]
    assert found == []


def test_the_tree_has_no_results_and_no_tools():
    names = {path.relative_to(ROOT).parts[0] for path in _tracked()}
    assert not names & {"results", ".tools", ".venv"}


def test_ci_calls_the_readmes_test_command():
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    assert "make test" in script.read_text()
    assert "\nmake test\n" in (ROOT / "README.md").read_text()
