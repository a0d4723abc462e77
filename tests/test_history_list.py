"""What `plumbline history list` and `links` print."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from histories import fom, line, mixed_, results_, rows_of, run, store  # noqa: F401 - fixtures


def links_of(*arguments: object) -> dict[tuple[str, str], tuple[str, int]]:
    """The links that it lists: day and number of sessions."""
    rows = json.loads(run("links", "--format=json", *arguments).out)
    return {(row["kind"], row["name"]): (row["last"][:10], row["sessions"]) for row in rows}


def test_links_and_when_they_were_last_measured(results: Path, tmp_path: Path):
    """Of nodes by any case on several, of switches by pairs of their nodes."""
    pairs = [fom(location=where) for where in ("a1:a2", "a1:b1", "a2:b1")]
    store(results, line(0, 1, pairs, nodes=["a1", "a2", "b1"]), line(1, 1, nodes=["c1"]))
    store(results, line(0, 2, nodes=["b1", "c1"]), name="20261102T010000Z-000002")
    # What failed to run measured nothing.
    wrong = {"result": "invalid", "reason": "x", "code": "output.garbled", "foms": []}
    store(results, line(0, 3, nodes=["a1", "c1"], **wrong), name="20261103T010000Z-000003")
    nodes = {("node", "a1"): ("2026-11-01", 1), ("node", "a2"): ("2026-11-01", 1),
             ("node", "b1"): ("2026-11-02", 2), ("node", "c1"): ("2026-11-02", 1)}  # fmt: skip
    assert links_of("--from", results) == nodes
    topology = tmp_path / "topology.conf"
    topology.write_text("SwitchName=a Nodes=a[1-2]\nSwitchName=b Nodes=b1\nSwitchName=c Nodes=c1\n")
    assert links_of("--from", results, "--topology", topology) == nodes | {
        ("link", "a:b"): ("2026-11-01", 1), ("link", "b:c"): ("2026-11-02", 1)
    }  # fmt: skip
    # The longest ago first.
    done = run("links", "--from", results, "--topology", topology, "--format=csv")
    names = [row["name"] for row in csv.DictReader(done.out.splitlines())]
    assert {*names[:3]} == {"a1", "a2", "a:b"} and done.code == 0
    text = run("links", "--from", results).out
    assert "c1" in text and max(map(len, text.splitlines())) <= 100


def test_a_session_that_has_not_ended_is_listed_as_such(results: Path):
    """Two cases are planned, and one has a record: it runs, or was cut off, until it has an end."""
    store(results, line(day=1))
    folder = store(results, line(day=2), plan=2)

    def listed() -> list[list[object]]:
        cells = csv.DictReader(run("list", "--from", results, "--format", "csv").out.splitlines())
        return [
            [row["unended"] for row in rows_of("--from", results)],
            [row["unended"] for row in cells],
        ]

    def more_words() -> int:
        """How many more words of text the second session has than the first."""
        _, _, first, second, *_ = run("list", "--from", results).out.splitlines()
        return len(second.split()) - len(first.split())

    assert listed() == [[False, True], ["false", "true"]]
    assert more_words() > 0
    (folder / "end.json").write_text('{"code": 0, "notes": [], "faults": []}')
    assert listed() == [[False, False], ["false", "false"]]
    assert more_words() == 0


def test_the_time_of_the_cases_is_listed_without_waiting(results: Path):
    """The sum of what each record says, and nothing where none says it."""
    lines = [line(day=1, seconds={"total": total, "samples": []}) for total in (3605.25, 60.25)]
    lines[1]["case"] = "other"
    store(results, *lines)
    store(results, line(day=2, seconds={"total": None, "samples": []}))
    assert [row["seconds"] for row in rows_of("--from", results)] == [3665.5, None]
    shown = run("list", "--from", results).out.splitlines()
    assert "measured" in shown[0] and "1:01:06" in shown[2] and ":01:" not in shown[3]


def test_figures_above_their_ceiling_are_listed_as_failed(results: Path):
    verdicts = ["pass", "fail", "above-ceiling", "above-ceiling"]
    store(results, line(foms=[fom(metric=f"m{n}", verdict=v) for n, v in enumerate(verdicts)]))
    head, _, row = run("list", "--from", results).out.splitlines()[:3]
    assert row[head.index("failed") :][: len("failed")].strip() == "3"


def test_options_of_the_command_line(mixed: Path):
    """They reach the selection; what is no time or pair is refused with exit code 2."""
    (row,) = rows_of("--from", mixed, "--extras", "who=x")
    assert row["start"] == "2026-11-02T01:00:00Z"
    found = run("list", "--from", mixed, "--since", "2026-11-02", "--format", "csv")
    assert [row["system"] for row in csv.DictReader(found.out.splitlines())] == ["alpha", "alpha"]
    for option, wrong in (("--since", "last week"), ("--since", "2026-13-01"), ("--extras", "who")):
        done = run("list", "--from", mixed, option, wrong)
        assert done.code == 2 and f"'{option}'" in done.err and f"'{wrong}'" in done.err
    assert run("list", "--from", mixed, "--system", "gamma").code == 2
