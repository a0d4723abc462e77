"""What starts a night: scripts, units of systemd, the pipeline of GitLab; and its mail."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from conftest import ROOT


def _unit(name: str) -> configparser.ConfigParser:
    found = configparser.ConfigParser(strict=False, interpolation=None)
    found.optionxform = str
    found.read_string((ROOT / "ci" / f"plumbline-nightly.{name}").read_text())
    return found


def test_the_units_of_systemd(tmp_path: Path):
    service, timer = _unit("service"), _unit("timer")
    # It runs until it is done, as long as its budget says and no longer.
    assert service["Service"]["Type"] == "oneshot"
    program, *words = service["Service"]["ExecStart"].replace("\\\n", " ").split()
    assert program.endswith("ci/nightly")
    assert words[:5] == ["--system", "NAME", "--budget", "6h", "--out"]
    # What a profile would set.
    variables = dict(one.split("=") for one in service["Service"]["Environment"].split())
    assert variables.keys() == {"PLUMBLINE_SITE", "PLUMBLINE_RESULTS"}
    # systemd makes these with mode 0755, so that node_exporter can read the metrics there.
    made = [f"/var/lib/{name}" for name in service["Service"]["StateDirectory"].split()]
    assert words[5] in made
    # systemd opens it before it makes any folder of the unit's own.
    log = Path(service["Service"]["StandardOutput"].removeprefix("append:"))
    assert log.parent == Path("/var/log")
    assert service["Service"]["StandardError"] == "inherit"
    assert service["Service"]["UMask"] == "0027"
    # A SIGTERM to all of the unit would end the jobs, which is a fault of theirs.
    assert service["Service"]["KillMode"] == "mixed"
    # What ran is judged then, and the page written.
    assert service["Service"]["TimeoutStopSec"] == "10min"
    assert timer["Timer"]["OnCalendar"] and timer["Timer"]["Persistent"] == "true"
    assert timer["Install"]["WantedBy"] == "timers.target"
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed: the units were only read")
    for name in ("service", "timer"):
        text = (ROOT / "ci" / f"plumbline-nightly.{name}").read_text()
        (tmp_path / f"plumbline-nightly.{name}").write_text(
            text.replace("/opt/plumbline", str(ROOT)).replace("User=plumbline\n", "")
        )
    done = subprocess.run(
        ["systemd-analyze", "verify", *map(str, sorted(tmp_path.glob("plumbline-*")))],
        capture_output=True,
        text=True,
    )
    faults = [line for line in done.stderr.splitlines() if "plumbline" in line]
    assert done.returncode == 0 and not faults, done.stderr


@pytest.mark.parametrize("script", ["nightly", "post-maintenance"])
def test_a_checkout_without_its_setup(tmp_path: Path, script: str):
    copied = shutil.copytree(ROOT / "ci", tmp_path / "ci") / script
    done = subprocess.run([copied], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "make setup" in done.stderr
    assert str(tmp_path / "ci" / "../.venv/bin/plumbline") in done.stderr


@pytest.mark.parametrize(
    "missing", ["PLUMBLINE_RESULTS", "PLUMBLINE_TOOLS", "PLUMBLINE_SITE", None]
)
def test_a_job_of_gitlab_keeps_no_folder_in_its_checkout(tmp_path: Path, missing: str | None):
    """The runner removes what git ignores, before each job."""
    *tests, setup = yaml.safe_load((ROOT / "ci" / "gitlab-ci.yml").read_text())[".plumbline"][
        "before_script"
    ]
    assert setup == "make setup"
    names = {"PLUMBLINE_RESULTS", "PLUMBLINE_TOOLS", "PLUMBLINE_SITE"} - {missing}
    env = {"PATH": os.environ["PATH"], **dict.fromkeys(names, str(tmp_path))}
    done = subprocess.run(
        ["bash", "-c", "\n".join(tests)], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == (2 if missing else 0)
    assert re.findall(r"PLUMBLINE_\w+", done.stdout) == ([missing] if missing else [])


def test_the_pipeline_of_gitlab():
    pipeline = yaml.safe_load((ROOT / "ci" / "gitlab-ci.yml").read_text())
    for name, script in (("nightly", "ci/nightly"), ("post-maintenance", "ci/post-maintenance")):
        job = pipeline[name]
        assert any(script in line for line in job["script"])
        assert job["artifacts"]["when"] == "always"
        (junit,) = job["artifacts"]["reports"].values()
        out = re.search(r"--out[= ](\S+)", " ".join(job["script"]))[1]
        assert junit == f"{out}/{name}.xml"
        # What was asked for is not cut off by the runner first.
        assert job["rules"]


@pytest.mark.parametrize(
    ("nightly", "sent"),
    [
        ("exit 0", None),
        ("sleep 0.1; echo new >page/nightly.md; exit 1", "new\n"),
        ("echo refused >&2; exit 2", "refused\n"),
    ],
)
def test_the_mail_has_no_page_of_an_earlier_night(tmp_path: Path, nightly: str, sent: str | None):
    """The script of docs/monitoring.md, with a nightly that writes a page, or does not."""
    page = (ROOT / "docs" / "monitoring.md").read_text()
    (script,) = re.findall(r"^```sh\n(.*?)^```", page, re.M | re.S)
    for name, text in (("ci/nightly", nightly), ("bin/mail", "cat >sent")):
        path = tmp_path / name
        path.parent.mkdir()
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    page = tmp_path / "page" / "nightly.md"
    page.parent.mkdir()
    page.write_text("of yesterday\n")
    os.utime(page, (1, 1))
    env = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    subprocess.run(["sh", "-c", script], cwd=tmp_path, env=env, check=True)
    found = tmp_path / "sent"
    assert (found.read_text() if found.exists() else None) == sent
