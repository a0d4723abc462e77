"""The start page: what is red and what is not, and pages of systems and published figures."""

from __future__ import annotations

import datetime
import json
import re

import numpy as np
import pytest
from plumbline.output.report import figures
from report_states import count, states
from reports import (  # noqa: F401 - fixtures
    DAY,
    NOW,
    UTC,
    assert_links_resolve,
    demo_,
    latencies,
    notes,
    one,
    pages_,
    report_page,
    sessions_of,
    shown,
    write,
)


def test_all_links_and_anchors_resolve(pages):
    assert assert_links_resolve(pages) > 500


def test_a_session_shows_build_hosts_job_and_output(pages, demo):
    folder = max(path for path in (demo / "sessions").iterdir())
    fields = json.loads((folder / "records.jsonl").read_text().splitlines()[0])
    content = max((pages / "sessions").iterdir()).read_text()
    host = fields["hosts"][fields["nodes"][0]]
    for value in (fields["build"]["sha256"], host["kernel"], fields["jobid"], fields["output"]):
        assert value in content


def test_today_shows_what_is_red(pages):
    content = shown(pages / "index.html", "red")
    assert count(content) == 5
    for value in ("nid0007", "above its ceiling", "truncated", "TIMEOUT", "13 sessions", "new"):
        assert value in content
    assert "fio" not in content
    assert "ior_easy" not in content


@pytest.mark.parametrize(
    ("section", "values"),
    [
        ("waived", ["ticket 4711", "storage team", "in 11 days"]),
        ("skipped", ["apt-get install fio"]),
        ("unasserted", ["gpcnet_load", "coral-gpcnet-latency"]),
        ("near-bound", ["file_creation_rate"]),
    ],
)
def test_today_shows_what_is_not_red(pages, section, values):
    content = shown(pages / "index.html", section)
    assert [value for value in values if value not in content] == []


def test_what_passed_and_asserts_nothing_is_no_pass(demo):
    alder, _ = states(demo, now=datetime.datetime.now(UTC))
    statuses = {case.check: case.status for case in alder.cases}
    assert statuses["gpcnet_load"] == "not-asserted"
    assert statuses["mdtest_easy"] == "pass"


def test_the_page_of_a_system_lists_its_checks(pages):
    content = one(pages, "systems/alder-*.html").read_text()
    checks = [path.name for path in (pages / "checks").glob("alder-*")]
    assert checks and all(f'href="../checks/{name}"' in content for name in checks)


def test_the_papers_figures_stand_beside_ours(pages, demo):
    content = (pages / "published.html").read_text()
    section = re.search(r'<section id="osu-latency-8-on-socket.*?</section>', content, re.S)[0]
    row = re.search(r"<tr><th[^>]*><a[^>]*>trinity</a>.*?</tr>", section, re.S)[0]
    assert "0.67 ± 0.01 us" in row
    ours = [float(line["value"]) for line in latencies(pages)][-figures.LATEST :]
    ratio = np.median(ours) / 0.67 - 1
    assert f"{ratio:+.1%}".replace("%", "\u202f%") in row
    assert "worse" in row
    assert "alder" in section and "birch" in section


#: The sections of the start page, and the note of each that has nothing to show.
EMPTY = {
    "red": "nothing-red",
    "changed": "no-change",
    "waived": "nothing-waived",
    "near-bound": "nothing-near-bound",
    "noticed": "no-warning",
    "skipped": "nothing-skipped",
    "unasserted": "all-asserted",
    "slow": "not-screened",
}


def test_a_session_in_which_all_was_skipped(tmp_path):
    skipped = {"result": "skip", "reason": "no network", "figures": [], "output": None}
    folder = sessions_of(tmp_path, [skipped])
    made = write(folder, tmp_path / "out", now=NOW)
    assert (made.series, made.red) == (0, 0)
    page = tmp_path / "out" / "index.html"
    assert notes(page) == {
        *("nothing-measured", "nothing-waived", "nothing-near-bound", "no-warning", "not-screened"),
    }
    assert count(shown(page, "skipped")) == 1 and "no network" in shown(page, "skipped")
    assert notes(one(tmp_path / "out", "checks/alder-stream*.html")) == {"nothing-measured"}
    assert notes(tmp_path / "out" / "published.html") == {"nothing-published"}
    assert_links_resolve(tmp_path / "out")


def test_a_section_with_nothing_in_it_has_a_note(tmp_path):
    page = report_page(sessions_of(tmp_path, *[[{}]] * 22, apart=DAY), now=NOW + 22 * DAY)
    assert {count(shown(page, name)) for name in EMPTY} == {0}
    assert notes(page) == {*EMPTY.values()}
    assert notes(page.parent / "changes.html") == {"no-change"}
    assert "gone" in notes(page.parent / "references" / "gone.html")


def test_a_reason_that_was_not_recorded_leaves_no_gap(tmp_path):
    lost = {"reason": None, "figures": [], "output": None}
    folder = sessions_of(tmp_path, [lost | {"check": check, "result": check}
                                    for check in ("error", "skip")])  # fmt: skip
    page = report_page(folder)
    for name in ("red", "skipped"):
        assert "no reason" in shown(page, name)


@pytest.mark.parametrize(("expires", "red"), [("2025-11-19", 1), ("2025-11-21", 0)])
def test_an_invalid_case_is_red_again_when_its_waiver_has_ended(expires, red, tmp_path):
    waived = {"result": "waived", "reason": "truncated", "waiver": "hang", "figures": []}
    folder = sessions_of(tmp_path, [waived])
    (folder / "reference").mkdir()
    (folder / "reference" / "waivers.yaml").write_text(
        f"- {{id: hang, reason: it hangs, owner: me, expires: {expires}, "
        "match: {system: alder, check: stream, results: [invalid]}}\n"
    )
    content = report_page(folder).read_text()
    assert f'<h2 id="red">Red now <span class="count">{red}</span></h2>' in content
