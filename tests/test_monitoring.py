"""The alert rules and the dashboard of ``ci/monitoring``, by a real Prometheus that scrapes a real
node_exporter, whose textfile collector reads what a nightly wrote."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import PATIENCE, ROOT, Testbed
from plumbline.operate.nightly import page, parts
from test_baseline import figure, remember

MONITORING = ROOT / "ci" / "monitoring"
RULES = MONITORING / "prometheus-rules.yml"
PROGRAMS = ["prometheus", "promtool", "prometheus-node-exporter"]
MISSING = [name for name in PROGRAMS if not shutil.which(name)]

pytestmark = pytest.mark.skipif(
    bool(MISSING), reason=f"not installed: {', '.join(MISSING)} (apt-get install prometheus)"
)

CONFIGURATION = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: ["{rules}"]
scrape_configs:
  - job_name: node
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""

#: A name that PromQL, YAML and a template could trip over.
HOSTILE = 'osu"p2p\\ {{ $value }}'


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Prometheus:
    """A running server, and what it answers."""

    def __init__(self, port: int):
        self.url = f"http://127.0.0.1:{port}/api/v1"

    def ask(self, path: str, **arguments: str) -> dict:
        query = urllib.parse.urlencode(arguments)
        with urllib.request.urlopen(f"{self.url}/{path}?{query}", timeout=60) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[dict]:
        return self.ask("query", query=expression)["result"]

    def alerts(self) -> set[tuple[str, str]]:
        """The names of the alerts that fire, and the check or system of each."""
        labels = [alert["labels"] for alert in self.ask("alerts")["alerts"]
                  if alert["state"] == "firing"]  # fmt: skip
        return {(found["alertname"], found.get("check", found["system"])) for found in labels}


def wait_for(ready: Callable[[], object]) -> object:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            if found := ready():
                return found
        except OSError:
            pass
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.fixture(scope="module")
def prometheus(make_testbed: Callable[..., Testbed], tmp_path_factory) -> Iterator[Prometheus]:
    testbed = make_testbed()

    def case(name: str, **fields: object) -> str:
        case = f"{name} @testbed:node+disk-io"
        return remember(testbed, 1, None, check=name, case=case, **fields)

    bounds = {"lower": 95.0, "reference": "row", "statistic": "median"}
    case("passes", foms=[figure(96.0, verdict="pass", near_bound=True, **bounds)])
    failed = [figure(90.0, verdict="fail", **bounds)]
    session = case(HOSTILE, result="fail", reason="x", foms=failed)
    folder = tmp_path_factory.mktemp("prometheus")
    collected = folder / "collected"
    with pytest.MonkeyPatch.context() as at:
        at.setenv("PLUMBLINE_RESULTS", str(testbed.results))
        done = [
            parts.session("session", session, 1, []),
            parts.Part("trend", 1, findings={"new": 1, "known": 2, "waived": 4}),
        ]
        options = SimpleNamespace(maintenance="", out=collected, name="nightly")
        assert page.write(options, "testbed", [session], done, lambda line: None) == 1
    of_exporter, of_server = free_port(), free_port()
    settings = folder / "prometheus.yml"
    settings.write_text(CONFIGURATION.format(rules=RULES, port=of_exporter))
    commands = [
        ["prometheus-node-exporter", "--collector.disable-defaults", "--collector.textfile",
         f"--collector.textfile.directory={collected}",
         f"--web.listen-address=127.0.0.1:{of_exporter}"],
        ["prometheus", f"--config.file={settings}", f"--storage.tsdb.path={folder / 'data'}",
         f"--web.listen-address=127.0.0.1:{of_server}"],
    ]  # fmt: skip
    with (folder / "log").open("w") as log:
        started = [subprocess.Popen(one, stdout=log, stderr=log, cwd=folder) for one in commands]
    try:
        server = Prometheus(of_server)
        wait_for(lambda: server.query("plumbline_session_info"))
        yield server
    finally:
        for process in started:
            process.terminate()
            process.wait()


def test_it_reads_each_figure(prometheus: Prometheus):
    found = {
        one["metric"]["check"]: float(one["value"][1]) for one in prometheus.query("plumbline_fom")
    }
    assert found == {"passes": 96.0, HOSTILE: 90.0}


def test_the_alerts_fire(prometheus: Prometheus):
    expected = {
        ("PlumblineFault", "testbed"),
        ("PlumblineRegression", "testbed"),
        ("PlumblineCaseFailed", HOSTILE),
    }
    wait_for(lambda: prometheus.alerts() >= expected)
    assert prometheus.alerts() == expected


def test_promtool_accepts_the_rules():
    done = subprocess.run(["promtool", "check", "rules", RULES], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_rules_fire_when_they_should(tmp_path: Path):
    """By promtool itself: codes 0, 1 and 2, an old nightly, one whose metrics end, and one without
    references."""
    series = {
        'plumbline_nightly_exit_code{system="ok"}': 0,
        'plumbline_nightly_exit_code{system="red"}': 1,
        'plumbline_nightly_exit_code{system="unsure"}': 2,
        # A session by hand changes nothing.
        'plumbline_session_exit_code{system="ok"}': 1,
        'plumbline_session_exit_code{system="red"}': 0,
        'plumbline_nightly_timestamp_seconds{system="ok"}': 0,
        # Its clock was ahead by weeks.
        'plumbline_nightly_timestamp_seconds{system="ahead"}': 3_000_000,
        'plumbline_nightly_timestamp_seconds{system="gone"}': "0 _",
        'plumbline_nightly_timestamp_seconds{system="unknown"}': "0 _",
        'plumbline_nightly_findings{system="red",state="new"}': 0,
        'plumbline_nightly_findings{system="red",state="known"}': 2,
        'plumbline_nightly_findings{system="ok",state="waived"}': 2,
        'plumbline_nightly_findings{system="ok",state="new"}': 0,
        'plumbline_session_figures{system="ok",verdict="pass"}': 3,
        'plumbline_session_figures{system="ok",verdict="not-asserted"}': 5,
        'plumbline_session_figures{system="red",verdict="pass"}': 0,
        'plumbline_session_figures{system="red",verdict="not-asserted"}': 5,
    }
    fires = {
        ("PlumblineFault", "1h"): ["red"],
        ("PlumblineInconclusive", "1h"): ["unsure"],
        ("PlumblineNotRun", "36h"): ["ahead"],
        ("PlumblineNotRun", "37h"): ["ok", "ahead"],
        ("PlumblineNoMetrics", "0h"): [],
        ("PlumblineNoMetrics", "3h"): ["gone"],
        ("PlumblineRegression", "1h"): ["red"],
        ("PlumblineNotCompared", "1h"): ["red"],
    }
    queries = [
        {
            "expr": f'count by (system) (ALERTS{{alertname="{name}",alertstate="firing"}})',
            "eval_time": moment,
            "exp_samples": [{"labels": f'{{system="{system}"}}', "value": 1} for system in systems],
        }
        for (name, moment), systems in fires.items()
    ]
    tests = {
        "rule_files": [str(RULES)],
        "tests": [
            {
                "interval": "30m",
                "input_series": [
                    {"series": name, "values": f"{value}x80"} for name, value in series.items()
                ],
                "promql_expr_test": queries,
            },
            {
                "interval": "30m",
                "promql_expr_test": [
                    {
                        "expr": 'count(ALERTS{alertname="PlumblineNoMetrics",alertstate="firing"})',
                        "eval_time": "2h",
                        "exp_samples": [{"labels": "{}", "value": 1}],
                    }
                ],
            },
        ],
    }
    file = tmp_path / "rules.test.yml"
    file.write_text(json.dumps(tests))
    done = subprocess.run(["promtool", "test", "rules", file], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def expressions() -> list[tuple[str, str]]:
    """Title of a panel, and an expression of it with the dashboard's variables as ``All``."""
    dashboard = json.loads((MONITORING / "grafana-dashboard.json").read_text())
    names = [variable["name"] for variable in dashboard["templating"]["list"]]
    found = []
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            expression = target["expr"]
            for name in names:
                expression = expression.replace(f"${name}", ".*")
            found.append((panel["title"], expression))
    return found


@pytest.mark.parametrize(("title", "expression"), expressions())
def test_a_panel_of_the_dashboard_shows_something(prometheus: Prometheus, title, expression):
    assert "$" not in expression
    found = prometheus.query(expression)
    assert bool(found) == (title != "Warnings")
