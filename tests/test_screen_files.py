"""Screening of a file: its formats, and what is refused in it."""

from __future__ import annotations

import csv
import json

import pytest
from fleet import Fleet
from plumbline.analysis.screen import Group, nights, of_file, of_topology
from plumbline.core.errors import Fault
from plumbline.core.text import WIDTH
from screened import command


def table(path, group: Group, switches: dict | None = None, **columns):
    """A CSV file of a group; ``columns`` are the same in every row."""
    rows = []
    for (night, unit), values in group.values.items():
        who = dict(zip(("node", "gpu"), unit, strict=False))
        if switches:
            who["switch"] = switches[unit[0]]
        rows += [{"night": night, **who, "value": value, **columns} for value in values]
    for (night, (one, other)), values in group.pairs.items():
        who = {"a": one, "b": other}
        if switches:
            who |= {"switch_a": switches[one], "switch_b": switches[other]}
        rows += [{"night": night, **who, "value": value, **columns} for value in values]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_a_file_gives_json(tmp_path):
    fleet = Fleet(50, nodes=60, nights=12, noise=0.01, slow={("n007",): (6, 0.08)})
    done = command("--input", table(tmp_path / "in.csv", fleet.values(), better="higher"))
    assert done.code == 1, done.output
    (one,) = json.loads(done.out)
    assert (one["night"], one["node"], one["kind"], one["since"], one["until"]) == (
        6, "n007", "node", 6, None)  # fmt: skip
    assert one["drain"] is True
    assert one["size"] == pytest.approx(0.08, abs=0.02)


def test_a_file_of_gpus_and_one_of_pairs_with_their_switches(tmp_path):
    fleet = Fleet(51, nodes=60, nights=8, noise=0.01, slow={("n007", "gpu1"): (6, 0.1)})
    done = command("--input", table(tmp_path / "g.csv", fleet.values(gpus=4), better="higher"))
    assert [(o["kind"], o["node"], o["gpu"]) for o in json.loads(done.out)] == [
        ("gpu", "n007", "gpu1")]  # fmt: skip
    fleet = Fleet(52, nights=2, switches=25, slow={("link", "s03", "s07"): (1, 0.1)})
    file = table(tmp_path / "p.csv", fleet.pairs(), fleet.switch_of(), better="higher")
    done = command("--input", file)
    (one,) = json.loads(done.out)
    assert (one["kind"], one["name"], one["link"]) == ("link", "s03:s07", ["s03", "s07"])
    (row,) = csv.DictReader(command("--input", file, "--format", "csv").out.splitlines())
    assert one.keys() - row.keys() == {"link"} and row.keys() <= one.keys()
    assert row["name"] == one["name"]


@pytest.mark.parametrize(("nodes", "code"), [(60, 0), (3, 2)])
def test_a_healthy_file_is_an_empty_list_and_too_few_peers_are_exit_2(tmp_path, nodes, code):
    values = Fleet(53, nodes=nodes, nights=5).values()
    series = "alpha:compute+gcc-openmpi osu_p2p %test=bw %placement=off-node bandwidth 4194304"
    done = command("--input", table(tmp_path / "in.csv", values, better="higher", series=series))
    assert (done.code, json.loads(done.out)) == (code, [])
    assert ("3 nodes" in " ".join(done.err.split())) == (code == 2)
    assert max(map(len, done.err.splitlines()), default=0) <= WIDTH


def test_text_and_csv(tmp_path):
    slow = {("n007",): (6, 0.2), ("n008",): (6, 0.2)}
    fleet = Fleet(54, nodes=60, nights=12, slow=slow)
    file = table(tmp_path / "in.csv", fleet.values(), better="higher")
    done = command("--input", file, "--format", "text", "--drain", tmp_path / "drain",
                   "--retest", tmp_path / "again")  # fmt: skip
    assert "nodename='n[007-008]' state=drain" in done.out
    assert (tmp_path / "drain").read_text() == "n007\nn008\n"
    assert (tmp_path / "again").exists()
    done = command("--input", file, "--format", "csv", "-o", tmp_path / "out.csv")
    assert done.code == 1
    printed = command("--input", file, "--format", "csv", "-o", "-")
    assert printed.out == (tmp_path / "out.csv").read_text()
    with (tmp_path / "out.csv").open() as out:
        rows = [(row["kind"], row["name"], row["night"], row["drain"])
                for row in csv.DictReader(out)]  # fmt: skip
    assert sorted(rows) == [("node", "n007", "6", "true"), ("node", "n008", "6", "true")]


HEAD = "night,node,value,better"


@pytest.mark.parametrize(
    ("text", "where", "code"),
    [
        ("night,value,better\n1,2,higher\n", ":1: no column node", ""),
        (f"{HEAD}\n1,n1,0,higher\n", ":2: value 0", ""),
        (f"{HEAD}\n1,n1,5,up\n", ":2: better 'up'", ""),
        (f"{HEAD}\n1,n1,5,lower\n1,n2,5,higher\n", ":3: better 'higher'", ""),
        (f"{HEAD}\n1,,5,higher\n", ":2: ''", ""),
        (f"{HEAD}\n1,n1:n1,5,higher\n", ":2: 'n1:n1'", ""),
        (f"{HEAD}\nlast,n1,5,higher\n", ":2: night 'last'", ""),
        (f"{HEAD}\n-1,n1,5,higher\n", ":2: night -1", ""),
        (f"{HEAD}\n1,n1,5,higher\n2026-11-01,n1,5,higher\n", ":3: night 2026-11-01", ""),
        (f"{HEAD}\n", "in.csv", "history.no-peers"),
        (f"{HEAD}\n1,n1,,higher\n", "in.csv", "history.no-peers"),
        (f"{HEAD}\n1,n1,nan,higher\n", "in.csv", "history.no-peers"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path, text, code, where):
    (tmp_path / "in.csv").write_text(text)
    done = command("--input", tmp_path / "in.csv")
    assert (done.code, done.out) == (2, "")
    assert where in done.err and set(done.codes) == {code or "input.wrong-file"}


def test_an_unreadable_file_and_one_with_a_session_are_refused(tmp_path):
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    file = table(tmp_path / "in.csv", Fleet(53, nodes=60, nights=5).values(), better="higher")
    for code, path, *more in [
        ("input.unreadable-file", tmp_path / "none.csv"),
        ("input.unreadable-file", tmp_path / "binary.csv"),
        ("input.wrong-option", file, "20261101T010000Z-000001"),
        ("input.wrong-option", file, "--from", tmp_path),
        ("input.wrong-option", file, "--system", "hill"),
    ]:
        done = command("--input", path, *more)
        assert (done.code, done.out, done.codes) == (2, "", [code])


def test_files_of_spreadsheets_and_of_several_figures(tmp_path):
    """A byte order mark, ends of lines as Windows has them, blanks; columns in any order."""
    text = (
        "night, better, series, node, value\r\n1, higher, triad, n1, 5\r\n\r\n1,lower,lat,n1,2\r\n"
    )
    (tmp_path / "in.csv").write_bytes(b"\xef\xbb\xbf" + text.encode())
    groups, _ = of_file(tmp_path / "in.csv")
    assert [(one.label, one.better, one.values) for one in groups] == [
        ("triad", "higher", {("1", ("n1",)): [5]}), ("lat", "lower", {("1", ("n1",)): [2]})
    ]  # fmt: skip


def test_a_pair_may_stand_in_node_and_has_no_gpu(tmp_path):
    (tmp_path / "in.csv").write_text(f"{HEAD},gpu\n01,n10:n2,5,higher,3\n1,n2,6,higher,3\n")
    ((group,), _) = of_file(tmp_path / "in.csv")
    assert (group.pairs, group.values) == (
        {("1", ("n2", "n10")): [5]}, {("1", ("n2", "3")): [6]})  # fmt: skip


def test_a_retest_column_holds_a_value_or_says_that_a_row_is_one(tmp_path):
    head = "night,node,value,better,retest\n"
    (tmp_path / "v.csv").write_text(head + "1,n1,5,higher,6\n1,n2,7,higher,\n")
    (tmp_path / "f.csv").write_text(head + "1,n1,5,higher,0\n1,n1,6,higher,1\n1,n2,7,higher,\n")
    for name in ("v.csv", "f.csv"):
        (group,), _ = of_file(tmp_path / name)
        assert group.values == {("1", ("n1",)): [5, 6], ("1", ("n2",)): [7]}


def test_topology_of_slurm(tmp_path):
    (tmp_path / "topology.conf").write_text(
        "# the tree\nSwitchName=s0 Nodes=n[0-2],x7\nSwitchName=s1 \\\n Nodes=n3\n"
        "SwitchName=top Switches=s[0-1]\n"
    )
    assert of_topology(tmp_path / "topology.conf") == {
        "n0": "s0", "n1": "s0", "n2": "s0", "x7": "s0", "n3": "s1"}  # fmt: skip
    (tmp_path / "empty").write_text("SwitchName=top Switches=s0\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for name, code in (
        ("empty", "input.wrong-file"),
        ("gone", "input.unreadable-file"),
        ("binary", "input.unreadable-file"),
    ):
        with pytest.raises(Fault) as fault:
            of_topology(tmp_path / name)
        assert fault.value.code == code and f"{name}: " in str(fault.value)


def test_a_retest_belongs_to_the_night_of_the_session_before():
    made = ["20261121T220000Z-aaaaaa", "20261122T060000Z-bbbbbb", "20261122T220000Z-cccccc"]
    assert [*nights(made).values()] == [made[0], made[0], made[2]]
