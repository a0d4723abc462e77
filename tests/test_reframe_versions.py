"""Each version of ReFrame that Plumbline works with, and that any other is refused first."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import reframe
from conftest import BIN, CHECKS, ROOT, Testbed, codes_in
from plumbline.site.reframe_version import VERSIONS

#: Versions that were downloaded stay there; git ignores it.
CACHE = ROOT / ".tools" / "reframe"

#: A check that knows nothing of Plumbline.
PLAIN = """
import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import performance_function, sanity_function

@rfm.simple_test
class plain(rfm.RunOnlyRegressionTest):
    valid_systems = valid_prog_environs = ["*"]
    executable = "echo rate: 12"
    reference = {"*": {"rate": (10, -0.1, None, "GB/s")}}

    @sanity_function
    def printed(self):
        return sn.assert_found("rate", self.stdout)

    @performance_function("GB/s")
    def rate(self):
        return sn.extractsingle(r"rate: (\\d+)", self.stdout, 1, float)
"""


@pytest.fixture(scope="module", params=[v for v in VERSIONS if v != reframe.VERSION])
def other(request: pytest.FixtureRequest) -> Path:
    """The folder of another version, to come first on Python's path as with a site's module."""
    folder = CACHE / request.param
    if not (folder / "reframe" / "__init__.py").exists():
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-compile"]
        command += ["--disable-pip-version-check", "--retries=0", f"--target={folder}"]
        done = subprocess.run(
            [*command, f"reframe-hpc=={request.param}"],
            capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        if done.returncode:
            last = done.stderr.strip().splitlines()[-1]
            pytest.skip(f"ReFrame {request.param} cannot be downloaded: {last}")
    return folder


def test_its_patches(other: Path, tmp_path: Path):
    """What replaces a part of ReFrame does so in this version too, and finds the end of a job."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command += [f"--basetemp={tmp_path / 'patches'}"]
    files = ("reframe_patches", "check_patches", "job_patches", "ended_jobs")
    command += [f"tests/test_{name}.py" for name in files]
    command += ["-k", "not reach and not has_a_test and not says_why"]
    env = os.environ | {"PYTHONPATH": str(other)}
    done = subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_session(testbed: Testbed, other: Path):
    """One of ours and a plain check: measured, judged and recorded. The environment has a dot in
    its name where ReFrame allows it."""
    name = "gcc-13.2" if other.name in ("4.9.3", "4.10.0") else "gcc-13_2"
    testbed.environment(name, "fio")
    path = testbed.folder / "plain.py"
    path.write_text(PLAIN)
    few = ("-S", "fio.size=8", "-S", "num_samples=1", "-S", "num_warmups=0")
    done = testbed.plumbline(
        "run", "-c", CHECKS, "-c", path, "-n", "fio.*write|plain", *few, PYTHONPATH=other
    )
    assert done.code == 0, done.output
    assert re.search(rf"^ +version: +{re.escape(other.name)}$", done.out, re.M)
    (fom,) = done.record("plain")["foms"]
    assert (fom["value"], fom["unit"], fom["verdict"], fom["lower"]) == (12, "GB/s", "pass", 9)
    written = done.record("fio direction=write")
    assert (written["result"], written["environment"]) == ("pass", f"{name}-io")


# -- any other -----------------------------------------------------------------------------------


def started(*words: object, cwd: Path, **env: object) -> subprocess.CompletedProcess:
    variables = os.environ | {key: str(value) for key, value in env.items()}
    command = [str(word) for word in words]
    return subprocess.run(
        command, cwd=cwd, env=variables, capture_output=True, text=True, check=False
    )


SETTINGS = f"import runpy; runpy.run_path({str(ROOT / 'reframe' / 'settings.py')!r})"


@pytest.mark.parametrize("version", ["4.9.2", "4.11.0-dev.1", None])
def test_another_version_is_refused_by_its_number(tmp_path: Path, version: str | None):
    """Before anything of it is imported, which would fail here."""
    (tmp_path / "reframe").mkdir()
    text = f"VERSION = {version!r}\n" if version else ""
    (tmp_path / "reframe" / "__init__.py").write_text(f"{text}raise SystemExit('imported')\n")
    for words in ([sys.executable, "-c", SETTINGS], [BIN / "plumbline", "run"]):
        done = started(*words, cwd=tmp_path, PYTHONPATH=tmp_path)
        assert (done.returncode, codes_in(done.stderr)) == (2, ["session.wrong-reframe"])
        assert str(tmp_path / "reframe") in done.stderr and VERSIONS[0] in done.stderr
        assert version is None or f"ReFrame {version}," in done.stderr


def test_a_python_without_plumbline_is_refused(tmp_path: Path):
    """That of a module, for example; here, this one without its packages."""
    done = started(sys.executable, "-S", "-c", SETTINGS, cwd=tmp_path)
    assert (done.returncode, codes_in(done.stderr)) == (2, ["session.python-lacks-package"])
    assert sys.executable in done.stderr and str(ROOT) in done.stderr
    assert "pip install" in done.stderr


def test_an_old_python_is_refused(tmp_path: Path):
    """There, pip would refuse to install it."""
    old = f"import sys; sys.version_info = (3, 9, 2); {SETTINGS}"
    done = started(sys.executable, "-c", old, cwd=tmp_path)
    assert (done.returncode, codes_in(done.stderr)) == (2, ["session.python-lacks-package"])
    assert "make setup" in done.stderr and "pip install" not in done.stderr


def test_env_sh_configures_the_reframe_of_a_module(tmp_path: Path):
    """In a checkout without .venv: its Python gets Plumbline's package from there."""
    shutil.copy(ROOT / "env.sh", tmp_path)
    module = tmp_path / "bin"
    module.mkdir()
    (module / "reframe").symlink_to(BIN / "reframe")
    show = '. ./env.sh && . ./env.sh && command -v reframe && echo "$PYTHONPATH $RFM_CONFIG_PATH"'
    path = os.defpath
    done = started("sh", "-c", show, cwd=tmp_path, PATH=f"{module}:{path}", PYTHONPATH="",
                   RFM_CONFIG_PATH="site")  # fmt: skip
    ours = tmp_path / "reframe"
    assert done.stdout.split() == [str(module / "reframe"), str(ours), f"{ours}:site"]
    assert started("sh", "-c", show, cwd=tmp_path, PATH=path).returncode == 2
