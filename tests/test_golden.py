"""The job scripts of every system, held against the ones that were looked at: a change in one
shows in review. ``make golden`` writes them anew."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import foreign
import pytest

GOLDEN = Path(__file__).with_name("golden")

#: One test of each kind: the others differ in the program's name and arguments alone.
KINDS = "|".join(
    [
        *("osu_p2p.*test=latency", "osu_gpu.*test=latency", "osu_one_sided.*test=put_latency"),
        *("osu_collective.*test=allreduce", "osu_overlap.*test=iallreduce"),
        *("osu_node_pairs.*test=latency", "imb_node_pairs"),
        *("babelstream", "commscope", "gpcnet", "mdtest", "hpcc", "fio"),
        *("ior.*posix.*file-per-process", "ior_random", "ior_building", "ior_one"),
        *("imb_p2p.*PingPong", "imb_collective.*Allreduce"),
    ]
)

#: Files of a stage folder that are no part of the job's script; ReFrame's own begin with a dot.
NOT_SHOWN = {"task.sh", "loaded.sh", "rfm_job.sh"}


def dry_run(system: str, folder: Path) -> str:
    """All scripts of a system, one after the other, without what differs from run to run."""
    foreign.prepare(system, folder)
    done = subprocess.run(
        [
            *(
                str(foreign.BIN / "reframe"),
                f"--system={system}",
                "-c",
                str(foreign.ROOT / "checks"),
            ),
            *("-n", f"^({KINDS})", "--dry-run", "--tag=.*"),
            *("-S", "osu_node_pairs.nodes=4", "-S", "imb_node_pairs.nodes=5"),
            *("-S", "pair_seed=1"),
        ],
        env=foreign.variables(system, folder) | {"PLUMBLINE_STRICT": "0"},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    if "no test case is selected" in done.stderr:
        return "no test case\n"
    assert done.returncode == 0, done.stdout + done.stderr
    skipped = re.findall(r"\[ +SKIP \] \(.*?\) (.*?) /\w+ @\w\S*?:(\S+) \[(.*)\]", done.stdout)
    scripts = sorted(folder.glob("results/sessions/*/stage/**/rfm_job.sh"))
    assert scripts or skipped, done.stdout
    texts = [_shown(path, folder) for path in scripts]
    texts += [f"### skipped: {name} @{where}\n{why}\n" for name, where, why in sorted(skipped)]
    return "\n".join(texts)


def _shown(path: Path, folder: Path) -> str:
    stage = path.parent
    where = "/".join(stage.parts[-4:])
    parts = [f"### {where}\n{path.read_text()}"]
    for file in sorted(stage.iterdir()):
        if file.is_file() and file.name[0] != "." and file.name not in NOT_SHOWN:
            parts.append(f"--- {file.name}\n{_cut(file.read_text())}")
    text = "\n".join(parts)
    text = text.replace(str(foreign.facility.BIN), "PROGRAMS").replace(str(folder), "FOLDER")
    text = re.sub(r"(plumbline-\w+?)-[0-9a-f]{8}\b", r"\1-RANDOM", text)
    text = re.sub(r"/sessions/\d{8}T\d{6}Z-[0-9a-f]+/", "/sessions/SESSION/", text)
    return re.sub(r"^export FACILITY_.*\n", "", text, flags=re.M)


def _cut(text: str, most: int = 8) -> str:
    """The beginning of a file: thousands of ranks are told alike."""
    lines = text.splitlines(keepends=True)
    more = f"({len(lines) - most} more lines)\n" if len(lines) > most else ""
    return "".join(lines[:most]) + more


@pytest.mark.parametrize("system", foreign.SYSTEMS)
def test_scripts(system: str, tmp_path: Path) -> None:
    path = GOLDEN / f"{system}.txt"
    text = dry_run(system, tmp_path)
    if os.environ.get("ACCEPT_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.exists(), f"{path} is not there: make golden"
    assert text == path.read_text(encoding="utf-8"), "look at the change, then: make golden"
