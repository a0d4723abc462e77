"""What `plumbline clear` publishes of a node: its verdict, the hook, and the script for Slurm."""

from __future__ import annotations

import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT, fault_of
from plumbline.analysis.clear import Clearance
from plumbline.operate import clear as operating
from weekly import Fleet, fleet_  # noqa: F401 - fixtures

SCRIPT = ROOT / "ci" / "node-verdict"


def hook(folder: Path, code: int = 0) -> Path:
    path = folder / "hook"
    path.write_text(f'#!/bin/sh\nprintf "%s|" "$@" >> "{folder}/called"\nexit {code}\n')
    path.chmod(0o755)
    return path


def test_the_verdict_is_published_and_the_hook_called(fleet: Fleet, tmp_path: Path):
    fleet.weeks(8)
    fleet.measure(51, "n003", 0.06, repeats=5)
    program, called = hook(tmp_path), tmp_path / "called"
    verdict = fleet.results / "verdicts" / "big" / "n003"
    # Off by default.
    assert fleet.clear("n003", "--system=big:cpu")[0].code == 1 and not called.exists()
    assert verdict.read_text().split()[0] == "no-go"
    assert stat.S_IMODE(verdict.stat().st_mode) == 0o644
    assert fleet.clear("n003", "--hook", program)[0].code == 1
    assert called.read_text().split("|")[:2] == ["drain", "n003"]
    fleet.measure(53, "n003", repeats=5)
    assert fleet.clear("n003", PLUMBLINE_NODE_HOOK=program)[0].code == 0
    assert called.read_text().split("|")[3:5] == ["resume", "n003"]
    assert verdict.read_text().split()[0] == "go"
    done, _ = fleet.clear("n003", "--hook", hook(tmp_path, code=3))
    assert (done.code, done.codes) == (2, ["scheduler.hook-failed"])


def test_not_enough_data_leaves_the_last_verdict_and_calls_no_hook(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("PLUMBLINE_RESULTS", str(tmp_path))
    for name in ("no-go", "not enough data"):
        found = Clearance("n1", name, ["slow; $(id)\n"], [], [])
        operating.publish(found, "big")
        assert operating.call(hook(tmp_path), found) == ""
    assert (tmp_path / "verdicts" / "big" / "n1").read_text().splitlines()[0].startswith("no-go ")
    assert (tmp_path / "called").read_text().count("drain|") == 1
    outside, inside = (Clearance(node, "go", [], [], []) for node in ("../n1", "n1"))
    fault_of(lambda: operating.publish(outside, "big"), "input.wrong-option")
    fault_of(lambda: operating.publish(inside, ".."), "input.wrong-option")


def verdict_script(folder: Path, *words: str, **env: str) -> subprocess.CompletedProcess:
    """Runs the script in the bare environment that slurmd gives it."""
    bare = {"SLURMD_NODENAME": "n1", "PLUMBLINE_VERDICTS": str(folder), **env}
    return subprocess.run([SCRIPT, *words], env=bare, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("line", "code"),
    [("no-go 2026-11-24T18:00:00Z 3 figures regressed\n", 1), ("go 2026-11-24T18:00:00Z fine\n", 0),
     ("", 0), ("no-goods\n", 0), (None, 0)],
)  # fmt: skip
def test_the_prologs_script_reads_the_last_verdict(tmp_path: Path, line: str | None, code: int):
    if line is not None:
        (tmp_path / "n1").write_text(line)
    done = verdict_script(tmp_path, SLURM_SCRIPT_CONTEXT="prolog_slurmd")
    assert done.returncode == code, done.stderr
    assert ("3 figures regressed" in done.stderr) == bool(code)
    assert verdict_script(tmp_path, SLURMD_NODENAME="../n1").returncode == 0


@pytest.mark.parametrize(
    ("state", "drains"),
    [("IDLE", True), ("DOWN*+DRAIN", False), ("MIXED+DRAIN", False), ("IDLE+MAINT", True)],
)
def test_a_health_check_drains_a_node_unless_it_is_drained(
    tmp_path: Path, state: str, drains: bool
):
    """What the site writes of the node is no state."""
    (tmp_path / "n1").write_text("no-go 2026-11-24T18:00:00Z slow\n")
    scontrol, program = tmp_path / "scontrol", tmp_path / "node-verdict"
    scontrol.write_text(f"""#!/bin/sh
[ "$1" = update ] && echo "$@" || echo "NodeName=n1 State={state} Partitions=q Comment=was DRAINED"
""")
    program.write_text(SCRIPT.read_text().replace("PATH=", f"PATH={tmp_path}:", 1))
    scontrol.chmod(0o755)
    bare = {"SLURMD_NODENAME": "n1", "PLUMBLINE_VERDICTS": str(tmp_path)}
    done = subprocess.run(["sh", program], env=bare, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("update nodename=n1 state=drain") == drains


def test_a_no_go_of_another_system_stops_no_job(tmp_path: Path, monkeypatch):
    """Whose node has the same name, in a results folder that both share."""
    monkeypatch.setenv("PLUMBLINE_RESULTS", str(tmp_path / "results"))
    program = tmp_path / "ci" / "node-verdict"
    program.parent.mkdir()
    shutil.copy(SCRIPT, program)

    def prolog(**env: str) -> subprocess.CompletedProcess:
        bare = {"SLURMD_NODENAME": "n1", "SLURM_SCRIPT_CONTEXT": "prolog_slurmd", **env}
        return subprocess.run([program], env=bare, capture_output=True, text=True)

    assert prolog().returncode == 0
    operating.publish(Clearance("n1", "no-go", ["slow"], [], []), "alder")
    assert prolog().returncode == 1
    operating.publish(Clearance("n1", "go", ["fine"], [], []), "birch")
    done = prolog()
    assert (done.returncode, "PLUMBLINE_VERDICTS" in done.stderr) == (0, True)
    for system, code in (("alder", 1), ("birch", 0)):
        folder = str(tmp_path / "results" / "verdicts" / system)
        assert prolog(PLUMBLINE_VERDICTS=folder).returncode == code
