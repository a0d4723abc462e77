"""Formatting of names, counts and tables."""

from __future__ import annotations

import re

import pytest
from plumbline.core.text import (
    ESCAPED_FORMULA,
    csv_cell,
    escape_formula,
    escape_markdown,
    format_table,
    printable,
    printable_lines,
    shorten,
    suggest,
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
    assert not set(left) & set(escape_markdown(text))


def test_names_stay_readable_in_markdown():
    text = "write_bandwidth_8 +2.5 % of 3.1 GB/s, 12:30"
    assert escape_markdown(text) == text


def test_no_emoji():
    assert escape_markdown(":smile:") == "&#58;smile:"


def test_printable_lines():
    assert printable_lines("a\x1b\nb\tc\x00") == "a\\x1b\nb\\tc\\x00"


def test_cells_cannot_add_lines_to_a_table():
    rows = [["a\nforged", None], ["1e5", 2]]
    assert format_table(rows, ["one", "two"]).splitlines() == [
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
    assert csv_cell(value) == written


@pytest.mark.parametrize("text", ["=a", "'=a", "''@", "\ta", "\ra", "\n=", "-5", "'-5", "'a", "a"])
def test_an_escaped_formula_is_read_back(text: str):
    assert re.sub(ESCAPED_FORMULA, r"\1", escape_formula(text)) == text


def test_a_truth_in_a_csv_file_is_as_in_json():
    assert [csv_cell(value) for value in (True, False, 1, "True", None)] == [
        "true", "false", 1, "True", None,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "known", "message"),
    [
        ("sumit", ["summit", "sierra"], "did you mean summit?"),
        ("lat", ["osu_latency", "osu_bw"], "did you mean osu_latency?"),
        ("gpu", ["gpus", "one-task-per-gpu"], "did you mean gpus, one-task-per-gpu?"),
        ("a", ["spack"], "available: spack"),
        ("gone", ["a", "b"], "available: a, b"),
        ("", ["a"], "available: a"),
        ("gone", "abcdefg", "available: a, b, c, d, e, f, g"),
        ("gone", [], "available: none"),
    ],
)
def test_suggest(name: str, known: list[str], message: str):
    assert suggest(name, known) == message


def test_suggest_with_a_text_of_what_is_available():
    assert suggest("gone", ["a", "b"], "a (yours)") == "available: a (yours)"
    assert suggest("aa", ["aaa"], "a (yours)") == "did you mean aaa?"


def test_shorten_keeps_a_short_list():
    assert shorten(iter("abc")) == "a, b, c"
    assert shorten([]) == ""
