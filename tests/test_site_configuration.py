"""A site's own ReFrame configuration beside Plumbline's: its files, its systems, its handlers."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from conftest import ROOT, Done, Testbed, refused
from plain_checks import VARYING
from plumbline.core.errors import Fault
from plumbline.site import configuration

OURS = ROOT / "reframe" / "settings.py"

#: A site's own configuration: a system for this host alone.
SITE = """
site_configuration = {
    "systems": [{"name": "theirs", "hostnames": [HOST], "partitions": [
        {"name": "node", "scheduler": "local", "launcher": "local", "environs": ["gnu"]}]}],
    "environments": [{"name": "gnu", "target_systems": ["theirs"]}],
    "logging": [{"handlers": [{"type": "file", "name": PREFIX + "/their.log"}],
                 "handlers_perflog": [{"type": "filelog", "prefix": "%(check_system)s",
                                       "level": "info",
                                       "format": "%(check_name)s|%(check_#ALL)s"}]}],
}
"""


@pytest.fixture(scope="module")
def site(make_testbed: Callable[..., Testbed]) -> Testbed:
    """A host of which Plumbline knows only ``local``, and the site more."""
    testbed = make_testbed("local")
    testbed.environment("base", "imb")
    host = f"^{re.escape(socket.gethostname())}$"
    text = SITE.replace("HOST", repr(host)).replace("PREFIX", repr(str(testbed.folder)))
    (testbed.folder / "site.py").write_text(text)
    (testbed.folder / "more.yaml").write_text("general: [{git_timeout: 7}]\n")
    (testbed.folder / "varying.py").write_text(VARYING)
    del testbed.env["RFM_CONFIG_FILES"]
    return testbed


ONLY = ("-c", "varying.py", "-n", "^bare$")
#: What starts a session -> its words, and variables.
COMMANDS: dict[str, tuple[str, list[object], dict[str, object]]] = {
    "run, variable": ("plumbline", ["run"], {"RFM_CONFIG_FILES": "site.py"}),
    "run, two options": ("plumbline", ["run", "-C", "site.py", "-C", "more.yaml"], {}),
    "run, ours last": ("plumbline", ["run", "-C", "site.py", "-C", OURS], {}),
    "run, named": ("plumbline", ["run", "--config-file=site.py", "--system=theirs"], {}),
    "nightly": ("plumbline", ["nightly", "-C", "site.py"], {}),
    "plain, after env.sh": ("reframe", ["-r", "-C", "site.py"],
                            {"RFM_CONFIG_PATH": OURS.parent}),
    "plain, variable after env.sh": ("reframe", ["-r"], {
        "RFM_CONFIG_PATH": OURS.parent, "RFM_CONFIG_FILES": "site.py"}),
    "plain, ours first": ("reframe", ["-r", "-C", OURS, "-C", "site.py"], {}),
    "plain, ours last": ("reframe", ["-r", "-C", "site.py", "-C", OURS], {}),
    "plain, ours twice": ("reframe", ["-r", "-C", "site.py", "-C", OURS, "-C", "more.yaml"],
                          {"RFM_CONFIG_PATH": OURS.parent}),
}  # fmt: skip


@pytest.mark.parametrize("name", COMMANDS)
def test_the_sites_system_is_measured_and_recorded(site: Testbed, name: str):
    command, words, variables = COMMANDS[name]
    perflog = site.folder / "perflogs" / "theirs" / "bare.log"
    perflog.unlink(missing_ok=True)
    done: Done = getattr(site, command)(*words, *ONLY, **variables)
    assert done.code == 0, done.output
    fields = done.record("bare")
    assert (fields["system"], fields["environment"], fields["result"]) == ("theirs", "gnu", "pass")
    assert {fom["metric"]: fom["value"] for fom in fields["foms"]} == {"rate": 12.5, "seconds": 3}
    # Handlers of both: the site's performance log, which is in the current folder without
    # Plumbline, too, and the session's own log.
    assert "12.5" in perflog.read_text()
    assert (done.session / "reframe.log").exists() and (site.folder / "their.log").exists()
    assert "redefinition" not in done.output
    # What ran is kept with its session, not overwritten by the next one.
    assert (done.session / "output" / "theirs" / "node" / "gnu" / "bare" / "rfm_job.sh").exists()


def test_lint_and_doctor_look_at_it_as_a_run_does(site: Testbed):
    """Also at checks without a tag; it is the site's, named or not."""
    path = site.systems / "inventory" / "theirs.json"
    checks = site.folder / "untagged.py"
    checks.write_text(VARYING.replace('tags = {"nightly"}', "tags = set()"))
    mine = {"RFM_CONFIG_FILES": "site.py"}
    doctor = json.loads(site.asked("doctor", "-c", checks, "--format=json", **mine).out)
    assert (doctor["system"], doctor["machine"], doctor["programs"]) == ("theirs", {}, {})
    assert "bare @theirs:node+gnu" in {case["case"] for case in doctor["cases"]}
    done = site.asked("lint", "-c", checks, **mine)
    assert done.code == 0, done.output
    found = json.loads(path.read_text())
    assert found["cases"].keys() == {case["case"] for case in doctor["cases"]}
    assert found["folders"] == [str(checks)]
    # Nothing is there for Plumbline's own checks: one line, with the checks of the inventory.
    done = site.asked("lint", "--system=theirs", **mine)
    (line,) = done.err.splitlines()
    assert (done.code, done.codes) == (1, ["session.nothing-selected"])
    assert f" -c {checks}, " in line
    path.unlink()


def test_without_the_sites_file_it_is_local(site: Testbed):
    done = site.plumbline("run", *ONLY)
    assert done.record("bare")["system"] == "local", done.output


def test_a_file_that_is_not_there_is_refused(site: Testbed):
    done = site.plumbline("run", "-C", "nowhere.py", *ONLY)
    refused(done, "nowhere.py", "[input.unreadable-file]")


@pytest.mark.parametrize(
    ("arguments", "variable", "expected"),
    [
        ([], None, []),
        ([], None, ["older.py"]),
        ([], "a.py:b.yaml", ["a.py", "b.yaml"]),
        ([], f"a.py:{OURS}", ["a.py"]),
        (["-C", "b.py"], "a.py", ["b.py"]),
        (["-r", "-Cb.py", "--config-file=c.py"], "a.py", ["b.py", "c.py"]),
        (["-C", "b.py", "-C", ":c.py"], None, ["c.py"]),
    ],
)
def test_the_files_are_reframes(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], variable: str | None, expected: list[str]
):
    monkeypatch.delenv("RFM_CONFIG_FILES", raising=False)
    monkeypatch.setenv("RFM_CONFIG_FILE", "older.py" if "older.py" in expected else "")
    if variable is not None:
        monkeypatch.setenv("RFM_CONFIG_FILES", variable)
    assert configuration.config_files(arguments) == expected


def test_the_other_arguments_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "a.py").touch()
    monkeypatch.setenv("RFM_CONFIG_FILES", "")
    monkeypatch.chdir(tmp_path)
    words = ["-n", "x", "-C", "a.py", "-S", "a=b", "--exec-policy=serial", "-c", "d"]
    assert configuration.take_config_files(words) == [*words[:2], *words[4:]]
    assert os.environ["RFM_CONFIG_FILES"] == f"{OURS}:{tmp_path / 'a.py'}"
    with pytest.raises(Fault) as refusal:
        configuration.take_config_files(["-C", "b.py"])
    assert refusal.value.code == "input.unreadable-file"


# -- what is pushed ------------------------------------------------------------------------------

PAGE = ROOT / "docs" / "own-configuration.md"
HTTPJSON, SYSLOG, GRAYLOG = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.S)


class Collector(HTTPServer):
    """An HTTP server that keeps what it is sent."""

    def __init__(self, status: int = 200):
        super().__init__(("127.0.0.1", 0), _Keep)
        self.status, self.bodies = status, []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_port}"


class _Keep(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if "gzip" in self.headers.get("Content-Encoding", ""):
            body = zlib.decompress(body)
        self.server.bodies.append((self.path, self.headers["Content-Type"], json.loads(body)))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_: object):
        pass


@pytest.fixture
def collect() -> Iterator[Callable[[int], Collector]]:
    started = []

    def start(status: int = 200) -> Collector:
        started.append(Collector(status))
        threading.Thread(target=started[-1].serve_forever, daemon=True).start()
        return started[-1]

    yield start
    for server in started:
        server.shutdown()
        server.server_close()


def push(site: Testbed, text: str, address: str, **env: object) -> Done:
    """Runs a session with an example of the docs as the site's configuration."""
    path = site.folder / "push.py"
    path.write_text(re.sub(r"[a-z]+\.example\.org:\d+", address, text))
    return site.plumbline("run", *ONLY, RFM_CONFIG_FILES=path, **env)


def test_a_push_arrives(site: Testbed, collect: Callable[..., Collector]):
    server = collect()
    assert push(site, HTTPJSON, server.address).code == 0
    ((path, kind, sent),) = server.bodies
    assert (path, kind) == ("/reframe", "application/json")
    assert (sent["facility"], sent["system"], sent["check"]) == ("example", "local", "bare")
    assert (sent["result"], sent["reason"], sent["environment"]) == ("pass", None, "base")
    rate = {"value": 12.5, "lower": None, "upper": None, "unit": "GB/s", "verdict": "pass"}
    assert sent["figures"]["rate"] == rate


def test_without_a_formatter_reframes_own_record_arrives(
    site: Testbed, collect: Callable[..., Collector]
):
    server = collect()
    done = push(site, HTTPJSON.replace('"json_formatter": as_json,', ""), server.address)
    assert done.code == 0, done.output
    ((_, _, sent),) = server.bodies
    assert (sent["check_perf_rate_value"], sent["check_result"]) == (12.5, "pass")


@pytest.mark.parametrize("status", [500, None])
def test_a_collector_that_fails_changes_no_result(
    site: Testbed, collect: Callable[..., Collector], status: int | None
):
    server = collect(status or 200)
    if status is None:
        server.server_close()
    done = push(site, HTTPJSON, server.address)
    assert done.code == 0 and done.record("bare")["result"] == "pass", done.output
    assert "WARNING" in done.output


def test_syslog_gets_a_line(site: Testbed):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(10)
        done = push(site, SYSLOG, f"127.0.0.1:{server.getsockname()[1]}")
        assert done.code == 0, done.output
        line = server.recv(65536).decode()
    assert "reframe: local bare pass rate=12.5 GB/s;seconds=3.0 s" in line


def test_graylog_gets_a_message(site: Testbed, collect: Callable[..., Collector]):
    """If its package is not installed, ReFrame says so, and measures."""
    server, package = collect(), site.folder / "pygelf"
    done = push(site, GRAYLOG, server.address)
    assert done.code == 0 and done.record("bare")["result"] == "pass", done.output
    assert "pygelf" in done.output and not server.bodies
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--retries=0"]
    command += ["--disable-pip-version-check", f"--target={package}", "pygelf"]
    installed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if installed.returncode:
        pytest.skip(f"no pygelf: {installed.stderr.strip().splitlines()[-1]}")
    assert push(site, GRAYLOG, server.address, PYTHONPATH=package).code == 0
    ((path, _, sent),) = server.bodies
    assert (path, sent["_facility"], sent["_check_system"]) == ("/gelf", "example", "local")
    assert (sent["_check_name"], sent["_check_result"]) == ("bare", "pass")


@pytest.mark.parametrize(
    ("text", "place"), [("x = = 1", "bad.py:1"), ("import os\n1 / 0", "bad.py:2")]
)
def test_a_configuration_that_cannot_be_executed(site: Testbed, text: str, place: str):
    path = site.folder / "bad.py"
    path.write_text(f"{text}\nsite_configuration = {{}}\n")
    refused(site.plumbline("run", "-C", path, "-n", "bare"), place, "[input.wrong-file]")


# -- its modes -------------------------------------------------------------------------------------

MODES = """
site_configuration = {
    "modes": [{"name": "production", "options": ["-n", "^bare$"]},
              {"name": "smoke", "options": ["-n", "^lenient$"]}],
}
"""


@pytest.mark.parametrize(
    ("mode", "checks"),
    [("production", {"bare"}), ("smoke", {"lenient"}), ("nightly", {"bare", "own"})],
)
def test_the_sites_modes_win(site: Testbed, mode: str, checks: set[str]):
    """Also over one of Plumbline's with the same name; without one, Plumbline's applies."""
    (site.folder / "modes.py").write_text(MODES)
    words = ("run", "-C", "site.py", "-C", "modes.py", "-c", "varying.py", f"--mode={mode}")
    done = site.plumbline(*words)
    assert {*checks} <= {fields["check"] for fields in done.records}, done.output
    assert mode == "nightly" or len({fields["check"] for fields in done.records}) == 1


def test_a_mode_that_neither_has_is_refused(site: Testbed):
    (site.folder / "modes.py").write_text(MODES)
    words = ("run", "-C", "modes.py", "-c", "varying.py", "--mode=prodction")
    refused(site.plumbline(*words), "[input.unknown-name]", "production")


def test_a_mode_of_a_file_that_does_not_load(site: Testbed):
    """The file is what is reported."""
    (site.folder / "bad.py").write_text("import os\n1 / 0\nsite_configuration = {}\n")
    done = site.plumbline("run", "-C", "bad.py", "-c", "varying.py", "--mode=production")
    refused(done, "bad.py:2", "[input.wrong-file]")


# -- its baseline --------------------------------------------------------------------------------


def test_the_sites_system_has_a_baseline(site: Testbed):
    for _ in range(3):
        assert site.plumbline("run", "-C", "site.py", *ONLY).code == 0
    path = site.systems / "inventory" / "theirs.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text('{"folders": ["/site/checks"]}')
    done = site.plumbline("baseline", "theirs")
    path.unlink()
    assert done.code == 0, done.output
    # Without these checks, their cases would be lost.
    assert "`plumbline lint --system theirs -c /site/checks --accept`" in done.out
    done = site.plumbline("run", "-C", "site.py", *ONLY, RATE=10)
    assert done.code == 1 and done.record("bare")["code"] == "figure.outside-bounds", done.output
    # Sessions of other systems are not disturbed by it.
    assert site.plumbline("run", *ONLY).code == 0
