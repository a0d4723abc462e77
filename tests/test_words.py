"""How names and counts are written."""

from __future__ import annotations

import re

import pytest
from plumbline.core.text import (
    GUARD,
    cell,
    counted,
    escaped,
    guarded,
    near,
    printable,
    shown,
    some,
    table,
)


def test_printable():
    assert printable("a\x1b[31m\n\x00é") == "a\\x1b[31m\\n\\x00é"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("a|b", "|"),
        ("*bold* `code` <b> [x](y) @all #1 !2 $x$ {x} ~x~ & \\", "*`<>[]@!$~|\\{}"),
        ("%1.0", "%"),
        ("_emphasis_", "_"),
        ("http://there", ":"),
        ("www.there", "."),
        ("line\nbreak", "\n"),
    ],
)
def test_nothing_has_a_meaning_in_markdown(text: str, left: str):
    assert not set(left) & set(escaped(text))


def test_names_stay_readable_in_markdown():
    text = "write_bandwidth_8 +2.5 % of 3.1 GB/s, 12:30"
    assert escaped(text) == text


def test_no_emoji():
    assert escaped(":smile:") == "&#58;smile:"


def test_shown_keeps_lines():
    assert shown("a\x1b\nb\tc\x00") == "a\\x1b\nb\\tc\\x00"


def test_a_table_has_no_line_of_its_cells_making():
    rows = [["a\nforged", None], ["1e5", 2]]
    assert table(rows, ["one", "two"]).splitlines() == [
        "one        two", "a\\nforged", "1e5        2",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("=1+1", "'=1+1"), ("+a", "'+a"), ("-a", "'-a"), ("@a", "'@a"), ("\ta", "\\ta"),
        ("'=a", "''=a"), ("-5", "-5"), ("-1.5e-07", "-1.5e-07"), ("-5+a", "'-5+a"), ("a=b", "a=b"),
        ("", ""), (-5.0, -5.0),
    ],
)  # fmt: skip
def test_no_text_in_a_csv_file_is_a_formula(value: object, written: object):
    assert cell(value) == written


@pytest.mark.parametrize("text", ["=a", "'=a", "''@", "\ta", "\ra", "\n=", "-5", "'-5", "'a", "a"])
def test_a_guarded_cell_is_read_back(text: str):
    assert re.sub(GUARD, r"\1", guarded(text)) == text


def test_counted():
    assert counted(1, "test case") == "1 test case"
    assert counted(0, "session") == "0 sessions"
    assert counted(2, "figure of merit", "figures of merit") == "2 figures of merit"


def test_a_truth_in_a_csv_file_is_as_in_json():
    assert [cell(value) for value in (True, False, 1, "True", None)] == [
        "true", "false", 1, "True", None,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "known", "told"),
    [
        ("sumit", ["summit", "sierra"], "near: summit"),
        ("lat", ["osu_latency", "osu_bw"], "near: osu_latency"),
        ("gpu", ["gpus", "one-task-per-gpu"], "near: gpus, one-task-per-gpu"),
        ("a", ["spack"], "there are: spack"),
        ("gone", ["a", "b"], "there are: a, b"),
        ("", ["a"], "there are: a"),
        ("gone", "abcdefg", "there are: a, b, c, d, e and 2 more"),
        ("gone", [], "there are: none"),
    ],
)
def test_near(name: str, known: list[str], told: str):
    assert near(name, known) == told


def test_near_tells_what_there_is_in_other_words():
    assert near("gone", ["a", "b"], "a (yours)") == "there are: a (yours)"
    assert near("aa", ["aaa"], "a (yours)") == "near: aaa"


def test_some():
    assert some(["a", "b", "c"]) == "a, b, c"
    assert some(iter("abcde")) == "a, b, c and 2 more"
    assert some([]) == ""
