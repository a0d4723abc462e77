"""The job scripts of every system, by one dry run of all its cases at the simulated facility, which
the test files share: whoever asks first in a run of pytest makes it."""

from __future__ import annotations

import functools
import json
import re
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path

import fasteners
import foreign
import forked
import yaml
from plumbline.site import configuration
from plumbline.site.inventory import PlannedCase

#: Files of a stage folder that are no part of the job's script; ReFrame's own begin with a dot.
NOT_SHOWN = {"task.sh", "loaded.sh", "started.sh", "rfm_job.sh"}


@dataclass(frozen=True)
class Script:
    """The job script of one case, without what differs from run to run.

    :ivar where: system, partition and environment, by slashes.
    :ivar manager: the process manager, which is the launcher where nothing else is said.
    """

    where: str
    check: str
    manager: str
    scheduler: str
    placement: str
    text: str
    files: dict[str, str] = field(hash=False)

    @property
    def case(self) -> str:
        return f"{self.where}/{self.check}"


@dataclass(frozen=True)
class DryRun:
    """The cases of a system, and the scripts of those that are not skipped."""

    cases: list[PlannedCase]
    scripts: list[Script]


@functools.cache
def of(system: str, folder: Path) -> DryRun:
    """The dry run of a system; without any case where no environment has a benchmark.

    :arg folder: where it is kept for whoever asks next.
    """
    made = folder / f"{system}.json"
    with fasteners.InterProcessLock(folder / f"{system}.lock"):
        if not made.exists():
            found = _made(system, folder / system)
            shutil.rmtree(folder / system)
            made.write_text(json.dumps(asdict(found)))
    found = json.loads(made.read_text())
    return DryRun(
        [PlannedCase(**fields) for fields in found["cases"]],
        [Script(**fields) for fields in found["scripts"]],
    )


def _made(system: str, folder: Path) -> DryRun:
    foreign.prepare(system, folder)
    plan_file = folder / "plan.json"
    code, out, err = forked.run(
        [
            *(str(foreign.BIN / "reframe"), f"--system={system}", "--dry-run"),
            *("-c", str(foreign.ROOT / "checks")),
            *("-S", "osu_node_pairs.pair_seed=1", "-S", "imb_node_pairs.pair_seed=1"),
            *("-S", "osu_node_pairs.nodes=4", "-S", "imb_node_pairs.nodes=5"),
        ],
        foreign.variables(system, folder)
        | {
            "PLUMBLINE_STRICT": "0",
            configuration.PLAN_FILE: str(plan_file),
            configuration.ALL_SCALES: "1",
        },
        folder,
        patience=300,
    )
    assert "WARNING" not in out + err, out + err
    if "[session.nothing-selected]" in err:
        return DryRun([], [])
    assert code == 0, out + err
    (report,) = folder.glob("results/sessions/*/report.json")
    cases = json.loads(report.read_text())["runs"][0]["testcases"]
    scripts = [_script(case, folder) for case in cases if case["result"] == "pass"]
    assert len(scripts) == len(list(folder.glob("results/sessions/*/stage/**/rfm_job.sh")))
    return DryRun(
        [PlannedCase(**fields) for fields in json.loads(plan_file.read_text())["cases"]],
        sorted(scripts, key=lambda script: script.case),
    )


def _script(case: dict, folder: Path) -> Script:
    stage = Path(case["stagedir"])
    places = case["system"], case["partition"], case["environ"]
    files = {
        file.name: _cut(file.read_text())
        for file in sorted(stage.iterdir())
        if file.is_file() and file.name[0] != "." and file.name not in NOT_SHOWN
    }
    return Script(
        "/".join(places),
        case["display_name"],
        _manager(*places),
        case["scheduler"],
        case["placed"] or "",
        _steady((stage / "rfm_job.sh").read_text(), folder),
        {name: _steady(text, folder) for name, text in files.items()},
    )


def _steady(text: str, folder: Path) -> str:
    """A text without what differs from run to run."""
    text = text.replace(str(foreign.facility.BIN), "PROGRAMS").replace(str(folder), "FOLDER")
    text = re.sub(r"(plumbline-\w+?)-[0-9a-f]{8}\b", r"\1-RANDOM", text)
    text = re.sub(r"/sessions/\d{8}T\d{6}Z-[0-9a-f]+/", "/sessions/SESSION/", text)
    # The case's name, which a golden file has before each script.
    return re.sub(r"^(export FACILITY_.*|# \w+ .*@\S+)\n", "", text, flags=re.M)


def _cut(text: str, most: int = 4) -> str:
    """The beginning of a file: the lines of thousands of ranks are alike."""
    lines = text.splitlines(keepends=True)
    more = f"({len(lines) - most} more lines)\n" if len(lines) > most else ""
    return "".join(lines[:most]) + more


@functools.cache
def content(system: str) -> dict:
    """A system's own file."""
    return yaml.safe_load((foreign.ROOT / "systems" / f"{system}.yaml").read_text("utf-8"))


def _manager(system: str, partition: str, environment: str) -> str:
    """The process manager of a case, as the check finds it."""
    partitions = {p["name"]: p for p in content(system)["systems"][0]["partitions"]}
    environments = {e["name"]: e for e in content(system)["environments"]}
    extras = environments[environment].get("extras", {})
    return (
        extras.get("process_manager") or extras.get("launcher") or partitions[partition]["launcher"]
    )
