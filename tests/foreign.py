"""The systems of ``systems/`` at the simulated facility: their own files, with what the stand-ins
take the place of."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import facility
import yaml

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent

#: Every system but the machine at hand.
SYSTEMS = sorted(path.stem for path in (ROOT / "systems").glob("*.yaml") if path.stem != "local")


@dataclass(frozen=True)
class Session:
    """A session that ended: its exit code, what it said, and its records by case."""

    code: int
    said: str
    folder: Path | None
    records: list[dict]


def prepare(system: str, folder: Path) -> None:
    """Writes the system's file to a folder: programs from PATH in place of Spack's views, file
    systems in folders at hand."""
    content = yaml.safe_load((ROOT / "systems" / f"{system}.yaml").read_text(encoding="utf-8"))
    (found,) = content["systems"]
    # As what it stands for, this host is one of the system's.
    found["hostnames"] = [f"^{re.escape(socket.gethostname())}$"]
    for partition in found["partitions"]:
        extras = partition["extras"]
        for name, told in extras.get("file_systems", {}).items():
            place = folder / "file-systems" / name
            place.mkdir(parents=True, exist_ok=True)
            told.pop("path_variable", None)
            told["path"] = str(place)
        # One look at the queue serves all jobs.
        partition["max_jobs"] = 16
    for environment in content["environments"]:
        environment["extras"]["provider"] = "path"
    systems = folder / "systems"
    systems.mkdir(parents=True, exist_ok=True)
    (systems / f"{system}.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    expected = ROOT / "systems" / "inventory" / f"{system}.json"
    if expected.exists():
        (systems / "inventory").mkdir(exist_ok=True)
        shutil.copy(expected, systems / "inventory")


def variables(system: str, folder: Path, **of_facility) -> dict[str, str]:
    """What the commands of a session find in their environment."""
    env = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("RFM_", "PLUMBLINE_", "SLURM_", "FACILITY_"))
    }
    env |= {
        "HOME": str(folder / "home"),
        "PLUMBLINE_SYSTEMS": str(folder / "systems"),
        "PLUMBLINE_RESULTS": str(folder / "results"),
        # Each simulated system is a host of its own.
        "PLUMBLINE_LOCKS": str(folder),
        "RFM_CONFIG_FILES": str(ROOT / "reframe" / "settings.py"),
        "RFM_COLORIZE": "0",
        "PATH": f"{BIN}:{env.get('PATH', os.defpath)}",
        "PYTHONPATH": str(ROOT / "tests" / "facility" / "python"),
    }
    (folder / "home").mkdir(parents=True, exist_ok=True)
    return facility.environment(system, folder / "state", base=env, **of_facility)


def run(system: str, folder: Path, *arguments: str, patience: int = 600, **of_facility) -> Session:
    """``plumbline run`` on a system of the facility."""
    sessions = folder / "results" / "sessions"
    before = set(sessions.glob("*/records.jsonl"))
    done = subprocess.run(
        [str(BIN / "plumbline"), "run", f"--system={system}", *arguments],
        env=variables(system, folder, **of_facility),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=patience,
    )
    new = set(sessions.glob("*/records.jsonl")) - before
    assert len(new) <= 1, new
    records = [json.loads(line) for path in new for line in path.read_text().splitlines()]
    folders = [path.parent for path in new]
    return Session(done.returncode, done.stdout + done.stderr, *(folders or [None]), records)
