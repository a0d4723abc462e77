"""The formats of `plumbline compare`."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree
from pathlib import Path
from types import SimpleNamespace

import junitparser
import pytest
from conftest import ROOT
from labs import (
    Lab,
    fom,
    lab_,  # noqa: F401 - a fixture
    rows_of,
    unwrapped,
    wild,
)
from markdown_it import MarkdownIt
from plumbline.analysis.compare import formats, sides
from plumbline.core.errors import Fault
from plumbline.core.text import WIDTH

HOSTILE = "p2p %x=a|b <script>alert(1)</script> `rm` [l](http://e.example) @all #1 \x1b[31m\n*b*"


@pytest.fixture
def hostile(lab: Lab) -> Lab:
    """Names and words that mean something to whoever shows them; one figure of each verdict."""
    for day in range(1, 11):
        late = day > 5
        foms = [
            fom(lab.noisy(900 if late else 1000), metric="a|b", location="<b>"),
            fom(lab.noisy(1000), metric="calm"),
            fom(wild(day), metric="wild"),
            fom(lab.noisy(1000), metric="new" if late else "gone"),
        ]
        broken = {"check": "x", "result": "error", "reason": "</testcase> | \x00 ]]> &"}
        lab.session(day, {"check": HOSTILE, "foms": foms}, broken)
    return lab


def test_text_shows_what_needs_a_look_first(hostile: Lab):
    out = unwrapped(hostile.compare().out)
    assert "\x1b" not in out and "\x00" not in out
    verdicts = re.findall(r"^(regressed|only before|too little data|unchanged): p2p", out, re.M)
    assert verdicts[0] == "regressed" and "unchanged" not in verdicts
    assert "1 unchanged" in out and out.splitlines()[-1].startswith("plumbline: no-go: 1 of 5")
    assert re.search("^unchanged: p2p", hostile.compare("--all").out, re.M)


def test_text_fits_a_terminal(lab: Lab):
    """Long names, many figures and nodes, and hashes of builds, which are shortened."""
    check = f"p2p %operation={'latency_' * 9}all %of={'pairs,' * 20}"
    names = [f"random_ring_latency_between_many_pairs_of_nodes_{n}" for n in range(5)]
    for day in range(1, 11):
        level = 1234567.8 if day < 6 else 1034567.8
        foms = [fom(lab.noisy(level), metric=name, unit="operation/s") for name in names]
        build = {"path": f"/opt/{'spack/' * 30}{day > 5}", "sha256": f"{int(day > 5)}a" * 32}
        nodes = [f"nid{n:05}" for n in range(40 if day < 6 else 80)]
        hosts = {node: {"kernel": "5.14"} for node in nodes}
        lab.session(day, {"check": check, "foms": foms, "build": build, "nodes": nodes,
                          "hosts": hosts})  # fmt: skip
    for options in ((), ("--all",)):
        out = lab.compare(*options).out
        assert max(map(len, out.splitlines())) <= WIDTH
        assert "1a1a1a1a1a1a" in out and not re.search("[0-9a-f]{20}", out)
        assert re.search(r"1\.23\d+e\+06", out)
    assert "1a" * 32 in lab.compare("--format=json").out


@pytest.mark.holds("pages")
def test_markdown_escapes_what_names_hold(hostile: Lab):
    out = hostile.compare("--format=markdown").out
    assert "\x1b" not in out
    parsed = MarkdownIt().enable("table").parse(out)
    inline = [token for block in parsed for token in block.children or ()]
    assert {token.type for token in inline} == {"text", "code_inline"}
    assert any("<script>" in token.content for token in inline if token.type == "code_inline")
    assert not any("<" in token.content for token in inline if token.type == "text")
    rows = [block for block in parsed if block.type == "tr_open"]
    cells = [block for block in parsed if block.type == "td_open"]
    assert (
        len(cells) % len(formats._HEADS) == 0 and len(rows) == len(cells) / len(formats._HEADS) + 1
    )
    assert "### Before and after: no-go" in out


def test_junit_never_passes_what_was_not_compared(hostile: Lab):
    out = hostile.compare("--format=junit").out
    xml.etree.ElementTree.fromstring(out)
    (suite,) = junitparser.JUnitXml.fromstring(out)
    results = {case.name.split()[0]: [type(r).__name__ for r in case.result] for case in suite}
    assert results == {
        "a|b_<b>": ["Failure"],
        "gone": ["Error"],
        "wild": ["Skipped"],
        "new": ["Skipped"],
        "calm": [],
        "verdict": ["Failure"],
    }
    (skipped,) = next(case for case in suite if case.name.startswith("wild")).result
    assert "too little data" in skipped.message


def test_csv_has_a_row_for_each_figure(hostile: Lab):
    rows = rows_of(hostile.compare("--format=csv"))
    expected = {row["metric"]: row["verdict"] for row in hostile.json()["figures"]}
    assert {row["metric"]: row["verdict"] for row in rows} == expected
    assert float(rows[0]["difference"]) == pytest.approx(-0.1, abs=0.01)
    assert {row["together"] for row in rows} == {"false"}


def test_last_of_sessions_that_have_not_ended_is_refused():
    known = [SimpleNamespace(session="20261101T010000Z-000001", extras={})]
    with pytest.raises(Fault) as fault:
        sides.sessions_of("last:1", known, "AFTER", {known[0].session})
    assert fault.value.code == "history.not-ended" and "AFTER" in str(fault.value)


def test_csv_writes_what_is_true_as_json_does(lab: Lab):
    """Figures that lose too little to be detected each alone, and all of them the same."""
    for day in range(1, 11):
        level = 100 if day < 6 else 97
        lab.session(day, {"foms": [fom(lab.noisy(level, 0.02), size=n) for n in range(40)]})
    together = [row["together"] for row in lab.json()["figures"]]
    assert any(together)
    assert [row["together"] for row in rows_of(lab.compare("--format=csv"))] == [
        json.dumps(one) for one in together
    ]


def test_the_page_names_every_field(hostile: Lab):
    page = (ROOT / "docs" / "compare.md").read_text()
    found = hostile.json()
    names = {*found, *found["figures"][0], *found["whole"], *found["unmeasured"][0],
             *found["surroundings"], *found["counts"]}  # fmt: skip
    assert not [name for name in names if f"`{name}`" not in page]


def test_a_file_gets_it(hostile: Lab, tmp_path: Path):
    path = tmp_path / "found.xml"
    done = hostile.compare("--format=junit", "-o", str(path))
    assert done.code == 1 and not done.out and "no-go" in done.err
    xml.etree.ElementTree.fromstring(path.read_text())
