"""The systems of ``systems/`` at the simulated facility: their own files, with what the stand-ins
take the place of."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import shutil
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

import facility
import forked
import yaml

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent

#: Every system but the machine at hand.
SYSTEMS = sorted(path.stem for path in (ROOT / "systems").glob("*.yaml") if path.stem != "local")


@dataclass(frozen=True)
class Session:
    """A session that ended: its exit code, its standard output and error, and its records."""

    code: int
    output: str
    folder: Path | None
    records: list[dict]

    @property
    def end(self) -> dict:
        """What it wrote at its end: exit code, notes, and faults."""
        assert self.folder, self.output
        return json.loads((self.folder / "end.json").read_text())


def prepare(system: str, folder: Path) -> None:
    """Writes the system's file to a folder: programs from PATH in place of Spack's views, file
    systems in folders at hand."""
    content = yaml.safe_load((ROOT / "systems" / f"{system}.yaml").read_text(encoding="utf-8"))
    (found,) = content["systems"]
    # As what it stands for, this host is one of the system's.
    found["hostnames"] = [f"^{re.escape(socket.gethostname())}$"]
    for partition in found["partitions"]:
        extras = partition["extras"]
        for name, file_system in extras.get("file_systems", {}).items():
            place = folder / "file-systems" / name
            place.mkdir(parents=True, exist_ok=True)
            file_system.pop("path_variable", None)
            file_system["path"] = str(place)
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
        "PLUMBLINE_SITE": str(folder),
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
    code, out, err = forked.run(
        [str(BIN / "plumbline"), "run", f"--system={system}", *arguments],
        variables(system, folder, **of_facility),
        folder,
        patience,
    )
    new = set(sessions.glob("*/records.jsonl")) - before
    assert len(new) <= 1, new
    records = [json.loads(line) for path in new for line in path.read_text().splitlines()]
    folders = [path.parent for path in new]
    return Session(code, out + err, *(folders or [None]), records)


def reframe(system: str, folder: Path, *arguments: str) -> tuple[int, str, str]:
    """``reframe`` with all checks on a system of the facility: exit code, output and errors."""
    command = [str(BIN / "reframe"), f"--system={system}", "-c", str(ROOT / "checks"), *arguments]
    return forked.run(command, variables(system, folder), folder, patience=600)


def session(folder: Path, *arguments: str, fault: object, system: str = "perlmutter") -> Session:
    """A session of one sample, without warm-up, on a system that is prepared for it."""
    prepare(system, folder)
    few = ["-S", "num_warmups=0", "-S", "num_samples=1"]
    return run(system, folder, *few, *arguments, fault=fault)


def only(found: Session) -> dict:
    """The one record of a session."""
    (fields,) = found.records
    return fields


@functools.cache
def inventory(system: str) -> dict[str, dict[str, list[str]]]:
    """The cases of a system's inventory, ``CHECK @SYSTEM:PARTITION+ENVIRONMENT``: the figures that
    each row bounds. Empty where no environment of the system has a benchmark."""
    path = ROOT / "systems" / "inventory" / f"{system}.json"
    content = json.loads(path.read_text()) if path.exists() else {"cases": {}, "full": {}}
    return content["cases"] | content["full"]


def hash_of(case: str) -> str:
    """ReFrame's hash of a case's check: ``-n /HASH`` selects it."""
    name, *parameters = case.partition(" @")[0].split(" %")
    return hashlib.sha256("".join([name, *sorted(parameters)]).encode()).hexdigest()[:8]


def stage_of(case: str) -> str:
    """The last two parts of the folder in which a case runs, by which a fault finds it."""
    check, _, place = case.partition(" @")
    name = check.split()[0]
    return f"{place.rpartition('+')[2]}/{name}{f'_{hash_of(case)}' if '%' in check else ''}"


def stage_of_record(fields: dict) -> str:
    """The same of a record."""
    check, number = fields["check"], fields["case"].split()[0]
    name = check.split()[0]
    return f"{fields['environment']}/{name}{f'_{number}' if '%' in check else ''}"
