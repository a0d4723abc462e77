"""A simulated facility: stand-ins for batch systems, launchers and benchmark programs.

Knows nothing of plumbline: what it says comes from ``machines.yaml``, from the manuals of the
commands that it simulates, and from the second transcription of the papers.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

BIN = Path(__file__).resolve().parent / "bin"
MODULE = BIN.with_name("module.bash")


def environment(
    system: str,
    state: Path,
    fault: dict | list | None = None,
    noise: float | None = None,
    base: dict[str, str] | None = None,
) -> dict[str, str]:
    """Variables with which commands find the stand-ins of one system first on PATH.

    :arg state: folder for jobs and for what the stand-ins need; made if it is not there.
    :arg fault: what goes wrong, see ``faults.py``.
    :arg noise: relative standard deviation of every value; none without.
    :arg base: the environment to start from; the process' own without.
    :raises KeyError: if no such machine is known.
    """
    from . import login, machine, server

    machine.prepare(system, state)
    found = {
        key: value
        for key, value in (os.environ if base is None else base).items()
        if not key.startswith("FACILITY_")
    }
    found |= {
        "PATH": f"{BIN}:{found.get('PATH', os.defpath)}",
        "FACILITY_STATE": str(state),
        "FACILITY_SYSTEM": system,
        server.VARIABLE: server.started(),
    }
    # Defined by the login in every shell, and handed on as bash does it.
    modules = machine.machines()[system].get("modules", {})
    found |= {
        "BASH_FUNC_module%%": MODULE.read_text(encoding="utf-8").rstrip(),
        "FACILITY_MODULES": modules.get("release", "lmod"),
        "FACILITY_MODULES_LOADED": ":".join(modules.get("loaded", [])),
    }
    login.lay_out(modules, state / "apps")
    if machine.machines()[system].get("described"):
        login.lay_out_kernel(machine.build(system), state / "sys")
    if "trees" in modules:
        variable = "LMOD_CMD" if modules.get("release", "lmod") == "lmod" else "MODULES_CMD"
        found |= {variable: str(BIN / "modulecmd"), "MODULEPATH": str(state / "apps" / "core")}
    if fault is not None:
        path = Path(state) / "faults.json"
        path.write_text(json.dumps(fault))
        found["FACILITY_FAULT"] = f"@{path}"
    if noise is not None:
        found["FACILITY_NOISE"] = str(noise)
    return found
